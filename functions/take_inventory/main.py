"""`take_inventory`: what of the run is still in the cloud; with `sweep` delete it by name."""

import flask
import functions_framework
from lustrum.handlers.inventory import take_inventory as step
from lustrum.wiring.http import Reply, answer_call
from lustrum.wiring.services import services


@functions_framework.http
def take_inventory(request: flask.Request) -> Reply:
    """Answer a workflow's call."""
    return answer_call(
        "take_inventory",
        request,
        lambda call: step(services(), call["run_id"], call["execution"], bool(call.get("sweep"))),
    )
