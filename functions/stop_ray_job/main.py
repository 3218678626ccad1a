"""`stop_ray_job`: silence rl_run and the deploy build, stop the job, save its log."""

import flask
import functions_framework
from lustrum.handlers.teardown import stop_ray_job as step
from lustrum.wiring.http import Reply, answer_call
from lustrum.wiring.services import services


@functions_framework.http
def stop_ray_job(request: flask.Request) -> Reply:
    """Answer a workflow's call."""
    return answer_call(
        "stop_ray_job", request, lambda call: step(services(), call["run_id"], call["execution"])
    )
