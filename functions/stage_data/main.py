"""`stage_data`: folders, model cache and an earlier checkpoint onto Lustre, through the head."""

import flask
import functions_framework
from lustrum.handlers.pages import with_page
from lustrum.handlers.training import stage_data as step
from lustrum.wiring.http import Reply, answer_call
from lustrum.wiring.services import services


@functions_framework.http
def stage_data(request: flask.Request) -> Reply:
    """Answer a workflow's call."""
    return answer_call(
        "stage_data",
        request,
        lambda call: with_page(
            services(), call, step(services(), call["run_id"], call.get("execution"))
        ),
    )
