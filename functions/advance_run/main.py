"""`advance_run`: one transition of a run, for the two workflows."""

import flask
import functions_framework
from lustrum.handlers.pages import with_page
from lustrum.handlers.telling import with_news
from lustrum.handlers.transitions import advance_run as step
from lustrum.wiring.http import Reply, answer_call
from lustrum.wiring.services import services


@functions_framework.http
def advance_run(request: flask.Request) -> Reply:
    """Answer a workflow's call."""
    return answer_call(
        "advance_run",
        request,
        lambda call: with_news(
            services(), call, with_page(services(), call, step(services(), call))
        ),
    )
