"""`release_accelerators`: workers to 0, delete the GPU node pool."""

import flask
import functions_framework
from lustrum.http import Reply, answer_call
from lustrum.services import services
from lustrum.steps.teardown import release_accelerators as step


@functions_framework.http
def release_accelerators(request: flask.Request) -> Reply:
    """Answer a workflow's call."""
    return answer_call(
        "release_accelerators",
        request,
        lambda call: step(services(), call["run_id"], call["execution"]),
    )
