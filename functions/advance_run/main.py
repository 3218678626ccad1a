"""`advance_run`: one transition of a run, for the two workflows."""

import flask
import functions_framework
from lustrum.http import Reply, answer_call
from lustrum.services import services
from lustrum.steps.advance import advance_run as step


@functions_framework.http
def advance_run(request: flask.Request) -> Reply:
    """Answer a workflow's call."""
    return answer_call("advance_run", request, lambda call: step(services(), call))
