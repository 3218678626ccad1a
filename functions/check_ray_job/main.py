"""`check_ray_job`: look at the attempt and decide: wait, resume or stop."""

import flask
import functions_framework
from lustrum.handlers.pages import with_page
from lustrum.handlers.training import check_ray_job as step
from lustrum.wiring.http import Reply, answer_call
from lustrum.wiring.services import services


@functions_framework.http
def check_ray_job(request: flask.Request) -> Reply:
    """Answer a workflow's call."""
    return answer_call(
        "check_ray_job",
        request,
        lambda call: with_page(
            services(), call, step(services(), call["run_id"], call.get("execution"))
        ),
    )
