"""`stage_data`: folders, model cache and an earlier checkpoint onto Lustre, through the head."""

import flask
import functions_framework
from lustrum.http import Reply, answer_call
from lustrum.services import services
from lustrum.steps.training import stage_data as step


@functions_framework.http
def stage_data(request: flask.Request) -> Reply:
    """Answer a workflow's call."""
    return answer_call(
        "stage_data", request, lambda call: step(services(), call["run_id"], call.get("execution"))
    )
