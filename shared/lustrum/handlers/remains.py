"""What a failed destroy leaves behind is said: its name, its price, and the command that ends it.

Once a day and run, by the reaper; the same goes into the record, and so into the report.
"""

from __future__ import annotations

from lustrum.core import names
from lustrum.core.history import entered_at, note_problems
from lustrum.core.record import Run, State
from lustrum.handlers.inventory import Inventory, look_around
from lustrum.handlers.once import once
from lustrum.handlers.telling import publish
from lustrum.wiring.services import Services

PATIENCE = 1800.0  # seconds a destroy may need
DAY = 86_400.0


def tell_if_it_stays(services: Services, run: Run, now: float) -> None:
    """Tell of what a run still holds when its destroy has had its time."""
    if run.state is not State.VERIFYING or run.is_over:
        return
    if now - entered_at(run, State.VERIFYING, now) >= PATIENCE:
        tell(services, run.run_id, run, look_around(services, run.run_id), now)


def tell(
    services: Services, run_id: str, run: Run | None, found: Inventory, now: float
) -> list[str]:
    """Notify of what is left, at most once a day; return one line for each thing."""
    things = _priced(services.settings.project, run, found)
    lines = [f"{one['name']}, {one['price']}: {one['command']}" for one in things]
    if not things:
        return []

    def notify() -> None:
        message = {"kind": "run.remains", "run_id": run_id, "things": things}
        publish(services, message, run)
        if run is not None:
            services.ledger.change(run_id, lambda one: _note(one, lines))

    once(services, f"{run_id}-remains-{int(now // DAY)}", notify)
    return lines


def _note(run: Run, lines: list[str]) -> None:
    if run.teardown is not None:
        note_problems(run.teardown, (f"left: {line}" for line in lines))


def _priced(project: str, run: Run | None, found: Inventory) -> list[dict[str, str]]:
    """Return name, price and command of each thing that can be deleted by hand."""
    rates = (
        {}
        if run is None
        else {name: pieces * rate for name, (pieces, rate) in run.plan.rates().items()}
    )
    things = []
    for cluster in found.clusters:
        parts = ["system", *(["accelerators"] if names.GPU_POOL in cluster.pools else [])]
        things.append(
            {
                "name": f"cluster {cluster.name} in {cluster.location}",
                "price": _price([rates[part] for part in parts if part in rates]),
                "command": f"gcloud container clusters delete {cluster.name} "
                f"--location={cluster.location} --project={project} --quiet",
            }
        )
    for instance in found.instances:
        things.append(
            {
                "name": f"Lustre {instance.name} in {instance.zone}",
                "price": _price([rates["lustre"]] if "lustre" in rates else []),
                "command": f"gcloud lustre instances delete {instance.name} "
                f"--location={instance.zone} --project={project} --quiet",
            }
        )
    return things


def _price(rates: list[float]) -> str:
    return f"${sum(rates):,.2f}/h" if rates else "at a price not known here"
