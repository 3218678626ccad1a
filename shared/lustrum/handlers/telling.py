"""Telling people: every notification goes out here, with text, page, price and command."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from lustrum.core import names
from lustrum.core.record import Run
from lustrum.handlers.once import once
from lustrum.show.notices import News, news, notice
from lustrum.wiring.http import Answer
from lustrum.wiring.services import Services

REST = 300.0  # seconds without a try after one that failed: a topic that hangs slows no step


def publish(
    services: Services, message: Mapping[str, Any], run: Run | None = None, says: str = ""
) -> None:
    """Publish one notification. Raises what the publisher raises."""
    settings, page = services.settings, ""
    if run is not None and settings.report_bucket:
        page = settings.link(names.page_uri(settings.report_bucket, run.run_id))
    services.publisher.notify(notice(message, run, page, says))


def with_news(services: Services, call: Mapping[str, Any], answer: Answer) -> Answer:
    """Tell the news of the run that a function was just asked about, each once; return its
    answer. What cannot be told is tried again with a later step and never touches the run.
    """
    try:
        _tell_news(services, str(call["run_id"]))
    except Exception as error:  # a notification is never worth a run
        pages = services.pages
        pages.silent_until = services.now() + REST
        logging.getLogger("lustrum").warning("news: %s: %s", type(error).__name__, error)
    return answer


def _tell_news(services: Services, run_id: str) -> None:
    now, pages = services.now(), services.pages
    if now < pages.silent_until:
        return
    run = services.ledger.load(run_id)
    for one in news(run, now):
        mark = f"{run_id}-{one.mark}"
        if mark not in pages.told:
            _tell_once(services, run, one, mark)
            pages.told.add(mark)


def _tell_once(services: Services, run: Run, one: News, mark: str) -> None:
    message = {"kind": one.kind, "run_id": run.run_id, "mark": one.mark, "at": one.at}
    once(services, mark, lambda: publish(services, message, run, one.says))
