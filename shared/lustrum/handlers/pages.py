"""The pages in the report bucket: a living run's, rewritten at each transition and poll, and the
page of all runs. Whatever goes wrong with them never touches a run.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

from lustrum.core import names
from lustrum.core.errors import NotFound
from lustrum.core.record import Run
from lustrum.wiring.http import Answer
from lustrum.wiring.services import Services

EVERY = 20.0  # seconds between two writings of one run's page, unless its state changed
INDEX_EVERY = 60.0  # seconds between two writings of the page of all runs
REST = 300.0  # seconds without a try after one that failed: a bucket that hangs slows no poll
RUNS_SHOWN = 200
SETTLE = 1800.0  # seconds after its end in which the reaper sees to a run's last page
HTML = "text/html; charset=utf-8"


def with_page(services: Services, call: Mapping[str, Any], answer: Answer) -> Answer:
    """Rewrite the page of the run that a function was just asked about; return its answer.

    A state is written at once, the same state at most each `EVERY` seconds (of this process).
    """
    try:
        _show(services, str(call["run_id"]), str(answer.get("why") or ""))
    except Exception as error:  # a page is never worth a run
        _rest(services)
        logging.getLogger("lustrum").warning("page: %s: %s", type(error).__name__, error)
    return answer


def _show(services: Services, run_id: str, said: str) -> None:
    now, pages = services.now(), services.pages
    if not services.settings.report_bucket or now < pages.rests_until:
        return
    run = services.ledger.load(run_id)
    state, at = pages.written.get(run_id, ("", 0.0))
    if run.is_over or (state == run.state and now - at < EVERY):
        return
    write_page(services, run, said)
    pages.written[run_id] = (run.state, now)
    if state != run.state and now - pages.index_at >= INDEX_EVERY:
        write_index(services)


def write_page(services: Services, run: Run, said: str = "") -> None:
    """Write the page of a living run; if it was closed meanwhile, its report stays in place."""
    from lustrum.show.live import render_live

    settings = services.settings
    uri = names.page_uri(settings.report_bucket, run.run_id)
    page = render_live(
        run,
        services.now(),
        said=said,
        address=settings.link(uri),
        index=settings.link(names.index_uri(settings.report_bucket)),
    )
    services.storage.write(uri, page.encode(errors="replace"), HTML)
    after = services.ledger.load(run.run_id)
    if after.report_uri is not None:  # the close wrote its page before this one was written
        settle(services, after)


def settle(services: Services, run: Run) -> None:
    """Put the report of a closed run where its page was, without drawing it again."""
    if run.report_uri is not None:
        page = services.storage.read(run.report_uri)
        uri = names.page_uri(services.settings.report_bucket, run.run_id)
        services.storage.write(uri, page, HTML)


def write_index(services: Services) -> None:
    """Write the page of all runs."""
    from lustrum.show.index import page_links, render_index

    settings = services.settings
    found = services.ledger.recent(RUNS_SHOWN)
    page = render_index(
        found.runs, services.now(), page_links(found.runs, settings), found.unreadable
    )
    uri = names.index_uri(settings.report_bucket)
    services.storage.write(uri, page.encode(errors="replace"), HTML)
    pages = services.pages
    pages.index_at = services.now()


def close_page(services: Services, run: Run) -> None:
    """Put the report in the place of a run's page, and its outcome onto the page of all runs."""
    if not services.settings.report_bucket:
        return
    writes: tuple[Callable[[], object], ...] = (
        lambda: settle(services, run),
        lambda: write_index(services),
    )
    for write in writes:
        try:
            write()
        except Exception as error:  # the reaper's next sweep writes both anew
            logging.getLogger("lustrum").warning("page: %s: %s", type(error).__name__, error)


def sweep_pages(services: Services) -> None:
    """Write the page of every living run and of all runs: what was missed is made good."""
    now, pages = services.now(), services.pages
    if not services.settings.report_bucket or now < pages.rests_until:
        return
    try:
        for run in services.ledger.recent(RUNS_SHOWN).runs:
            if not run.is_over:
                write_page(services, run)
            elif run.closed_at is not None and now - run.closed_at < SETTLE:
                try:
                    settle(services, run)
                except NotFound:
                    continue  # its report was deleted
        write_index(services)
    except Exception as error:
        _rest(services)
        logging.getLogger("lustrum").warning("page: %s: %s", type(error).__name__, error)


def _rest(services: Services) -> None:
    pages = services.pages
    pages.rests_until = services.now() + REST
