"""`close_run`: report, notification, CLOSED; or give the slot back."""

import flask
import functions_framework
from lustrum.handlers.teardown import close_run as step
from lustrum.wiring.http import Reply, answer_call
from lustrum.wiring.services import services


@functions_framework.http
def close_run(request: flask.Request) -> Reply:
    """Answer a workflow's call."""
    return answer_call(
        "close_run", request, lambda call: step(services(), call["run_id"], call["execution"])
    )
