"""`start_run`: a message of `lustrum-requests` becomes a run, a cancel or an extension, once."""

import flask
import functions_framework
from lustrum.handlers.start import handle_push
from lustrum.wiring.http import Reply, answer_push
from lustrum.wiring.services import services


@functions_framework.http
def start_run(request: flask.Request) -> Reply:
    """Answer a Pub/Sub push."""
    return answer_push("start_run", request, lambda body: handle_push(services(), body))
