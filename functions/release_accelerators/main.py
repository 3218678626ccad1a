"""`release_accelerators`: workers to 0, delete the GPU node pool."""

import flask
import functions_framework
from lustrum.handlers.teardown import release_accelerators as step
from lustrum.wiring.http import Reply, answer_call
from lustrum.wiring.services import services


@functions_framework.http
def release_accelerators(request: flask.Request) -> Reply:
    """Answer a workflow's call."""
    return answer_call(
        "release_accelerators",
        request,
        lambda call: step(services(), call["run_id"], call["execution"]),
    )
