"""`export_checkpoints`: export the newest complete step and verify it."""

import flask
import functions_framework
from lustrum.handlers.exporting import export_checkpoints as step
from lustrum.handlers.pages import with_page
from lustrum.wiring.http import Reply, answer_call
from lustrum.wiring.services import services


@functions_framework.http
def export_checkpoints(request: flask.Request) -> Reply:
    """Answer a workflow's call."""
    return answer_call(
        "export_checkpoints",
        request,
        lambda call: with_page(
            services(), call, step(services(), call["run_id"], call["execution"])
        ),
    )
