"""`reap_runs`: look at the cloud, end what outlived its run. Any answer but 200 pages."""

import json

import flask
import functions_framework
from lustrum.handlers.reaping import ReapFailed
from lustrum.handlers.reaping import reap_runs as step
from lustrum.wiring.http import Reply, log
from lustrum.wiring.services import services


@functions_framework.http
def reap_runs(request: flask.Request) -> Reply:
    """Sweep once."""
    try:
        answer, status = step(services()), 200
    except ReapFailed as failed:
        answer, status = failed.answer, 500
    log("reap_runs", "", status, answer)
    return json.dumps(answer), status, {"Content-Type": "application/json"}
