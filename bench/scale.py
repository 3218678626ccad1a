"""Many at once: requests delivered three times, a sweep over a thousand runs, long lists, a long
report. Over the fakes of `testing`, so what is measured is this code and no service.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable

from lustrum.core.record import Run
from lustrum.core.record_parts import Progress
from lustrum.handlers.reaping import reap_runs
from lustrum.handlers.start import handle_push
from lustrum.show.report import render

from testing.services import FakeServices, push

REQUESTS, DELIVERIES = 200, 3
RUNS, RECORDS, STEPS = 1000, 10_000, 10_000


def run() -> dict[str, float | str]:
    """Return seconds of each; the services answer at once."""
    services = FakeServices()
    figures: dict[str, float | str] = {
        f"requests_{REQUESTS}x{DELIVERIES}_seconds": _timed(lambda: _requests(services)),
    }
    assert len(services.executions.executions) == REQUESTS, "each request starts one run"
    model = services.memory.peek(services.memory.run_ids()[0])
    figures[f"report_{STEPS}_steps_seconds"] = _timed(lambda: _report(model))
    swept = _many(model, RUNS, clusters=True)
    figures[f"sweep_{RUNS}_runs_{RUNS}_clusters_seconds"] = _timed(lambda: reap_runs(swept))
    listed = _many(model, RECORDS, clusters=False)
    figures[f"ledger_{RECORDS}_unfinished_seconds"] = _timed(lambda: listed.ledger.unfinished())
    figures[f"ledger_{RECORDS}_recent_20_seconds"] = _timed(lambda: listed.ledger.recent(20))
    return figures


def _timed(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return round(time.perf_counter() - began, 3)


def _requests(services: FakeServices) -> None:
    for number in range(REQUESTS):
        for _ in range(DELIVERIES):
            handle_push(services, push("{}", f"m{number}"))


def _report(model: Run) -> None:
    series = [
        Progress(step=one, reward=one / STEPS, at=float(one), attempt=1) for one in range(STEPS)
    ]
    page = render(model.model_copy(update={"series": series, "closed_at": float(STEPS)}), [])
    assert "</html>" in page


def _many(model: Run, count: int, *, clusters: bool) -> FakeServices:
    services = FakeServices()
    for number in range(count):
        run_id = f"rl-{number:010x}"
        found = json.loads(model.model_dump_json()) | {"run_id": run_id}
        found["execution"] = services.executions.ensure("rl-run", "", {})
        services.memory.create(Run.model_validate(found))
        if clusters:
            labels = {
                "lustrum-run": run_id,
                "managed-by": "lustrum",
                "lustrum-expires": str(int(model.hard_deadline_at)),
            }
            services.cloud._new_cluster(run_id, "us-east1-b", labels)
            services.cloud._new_instance(run_id, "us-east1-b", labels)
    return services
