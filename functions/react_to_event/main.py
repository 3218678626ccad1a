"""`react_to_event`: job events, build notices and alerts: append, act, call the callback."""

import flask
import functions_framework
from lustrum.handlers.reactions import handle_push
from lustrum.wiring.http import Reply, answer_push
from lustrum.wiring.services import services


@functions_framework.http
def react_to_event(request: flask.Request) -> Reply:
    """Answer a Pub/Sub push."""
    return answer_push("react_to_event", request, lambda body: handle_push(services(), body))
