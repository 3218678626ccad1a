"""`start_run`: a message of `lustrum-requests` becomes a run, a cancel or an extension, once."""

import flask
import functions_framework
from lustrum.http import Reply, answer_push
from lustrum.services import services
from lustrum.steps.requests import handle_push


@functions_framework.http
def start_run(request: flask.Request) -> Reply:
    """Answer a Pub/Sub push."""
    return answer_push("start_run", request, lambda body: handle_push(services(), body))
