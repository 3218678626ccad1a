"""`submit_ray_job`: submit the next training attempt, or adopt it."""

import flask
import functions_framework
from lustrum.handlers.training import submit_ray_job as step
from lustrum.wiring.http import Reply, answer_call
from lustrum.wiring.services import services


@functions_framework.http
def submit_ray_job(request: flask.Request) -> Reply:
    """Answer a workflow's call."""
    return answer_call(
        "submit_ray_job",
        request,
        lambda call: step(services(), call["run_id"], call.get("execution")),
    )
