"""`close_run`: report, notification, CLOSED; or give the slot back."""

import flask
import functions_framework
from lustrum.http import Reply, answer_call
from lustrum.services import services
from lustrum.steps.teardown import close_run as step


@functions_framework.http
def close_run(request: flask.Request) -> Reply:
    """Answer a workflow's call."""
    return answer_call(
        "close_run", request, lambda call: step(services(), call["run_id"], call["execution"])
    )
