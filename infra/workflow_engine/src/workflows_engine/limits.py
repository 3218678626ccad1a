"""The limits of Cloud Workflows that the engine enforces.

Sources: the quotas page, the Workflows and Executions API definitions and the published JSON
schema. A limit that Google does not publish is marked as ours.
"""

from __future__ import annotations

KIB = 1024

SOURCE_BYTES = 128 * KIB  # workflows.proto, source_contents
ARGUMENT_BYTES = 32 * KIB  # executions.proto, argument
MEMORY_BYTES = 512 * KIB  # all variables and pending events of one execution
RESULT_BYTES = 512 * KIB  # what an execution returns; the memory it had to fit into
HTTP_RESPONSE_BYTES = 2048 * KIB
STRING_BYTES = 256 * KIB
EXPRESSION_CHARACTERS = 400
VALUE_NESTING = 100  # ours: lists and maps inside one another
SOURCE_NESTING = 64  # ours: steps inside steps

STEPS = 100_000  # per execution
CALL_DEPTH = 20
ASSIGNMENTS = 50  # per step
CONDITIONS = 50  # per switch
PARAMS = 10  # per subworkflow, in Google's JSON schema alone; main takes one
BRANCHES = 10
PARALLEL_NESTING = 2
PARALLEL_CONCURRENCY = 20
BRANCH_ERRORS_KEPT = 100

EXECUTION_SECONDS = 365 * 24 * 3600
HTTP_TIMEOUT_SECONDS = 300  # default
HTTP_TIMEOUT_MAX_SECONDS = 1800
CONNECTOR_TIMEOUT_SECONDS = 1800  # default
CONNECTOR_TIMEOUT_MAX_SECONDS = 31_536_000
CALLBACK_TIMEOUT_SECONDS = 43_200  # default: 12 hours

ENV_VARS = 20
ENV_VAR_BYTES = 4 * KIB
LABELS = 64
LABEL_CHARACTERS = 63
CONCURRENT_EXECUTIONS = 10_000
BACKLOG = 100_000
