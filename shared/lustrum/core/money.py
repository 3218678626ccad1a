"""What a run costs, part by part and to the cent: what its accelerators did, and all the rest.
Pure; estimates from the dated prices of the run's beginning.

Accelerators are paid from their creation to their deletion. Of that time they *save* while a step
waits for its checkpoint, *train* from an attempt's first step to its end, and *wait* otherwise:
before the first step, between attempts, after the last step. An attempt ends with its failure, but
one that went silent has ended with its last step.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import floor

from lustrum.core.cost import Usage, bill
from lustrum.core.failures import Failure
from lustrum.core.history import phases
from lustrum.core.record import Run, State
from lustrum.core.record_parts import Worked
from lustrum.core.run_plan import RunPlan

TRAINING, SAVING = "training", "saving"
BEFORE, BETWEEN, AFTER = "before the first step", "between attempts", "after the last step"
PARTS = (TRAINING, SAVING, BEFORE, BETWEEN, AFTER)
WAITING = (BEFORE, BETWEEN, AFTER)  # for us, not for the training
GIB = 2**30

Span = tuple[float, float]


@dataclass(frozen=True)
class Account:
    """What a run has cost; amounts in whole cents, so that parts add up to the whole.

    Attributes:
        resources: resource -> cents; their sum is ``total``.
        parts: what the accelerators did -> cents; their sum is ``resources["accelerators"]``.
        seconds: what the accelerators did -> node-seconds.
        hourly: dollars an hour of what is up now.
        kept_month: dollars a month of the export in the bucket, as long as it is kept.
        dated: day of the prices.
    """

    resources: Mapping[str, int]
    parts: Mapping[str, int]
    seconds: Mapping[str, float]
    total: int
    hourly: float
    kept_month: float
    dated: str

    @property
    def dollars(self) -> float:
        """The whole, in dollars."""
        return self.total / 100

    @property
    def waiting(self) -> int:
        """Cents of accelerators that waited for us."""
        return sum(self.parts[one] for one in WAITING)

    @property
    def idle_share(self) -> float | None:
        """Share of the accelerators' time in which they waited for us, None when none were up."""
        whole = sum(self.seconds.values())
        return sum(self.seconds[one] for one in WAITING) / whole if whole else None


@dataclass(frozen=True)
class RecipeOrder:
    """What the order of the original recipe would have cost in idle accelerators, and ours did:
    node-seconds and dollars.
    """

    idle_seconds: float
    idle_dollars: float
    our_seconds: float
    nodes: int

    @property
    def sentence(self) -> str:
        """The comparison, for people."""
        theirs, ours = (one / self.nodes / 60 for one in (self.idle_seconds, self.our_seconds))
        return (
            f"the order of the original recipe would have idled {theirs:,.0f} minutes "
            f"(${self.idle_dollars:,.2f}); this run idled {ours:,.0f}"
        )


def account(run: Run, now: float) -> Account:
    """Return what a run has cost until ``now`` (epoch seconds); of a closed run, until then."""
    now = now if run.closed_at is None else run.closed_at
    dollars = bill(run.usage, now)
    for name, amount in _extras(run, now).items():
        dollars[name] = dollars.get(name, 0.0) + amount
    total = round(sum(dollars.values()) * 100)
    resources = to_cents(dollars, total)
    seconds, spent = _accelerators(run, now)
    extras = run.plan.extras
    rate = extras.storage_gib_month if extras is not None else 0.0
    return Account(
        resources=resources,
        parts=to_cents(spent, resources.get("accelerators", 0)),
        seconds=seconds,
        total=total,
        hourly=hourly(run),
        kept_month=_exported_gib(run) * rate,
        dated=run.plan.prices_dated,
    )


def to_cents(dollars: Mapping[str, float], total: int) -> dict[str, int]:
    """Return amounts in whole cents whose sum is ``total``: what rounding leaves goes to those
    that lost most by it.
    """
    cents = {name: floor(amount * 100) for name, amount in dollars.items()}
    if not cents:
        return {}
    left = total - sum(cents.values())
    by_loss = sorted(cents, key=lambda name: cents[name] - dollars[name] * 100)
    for index in range(abs(left)):
        name = by_loss[index % len(by_loss)] if left > 0 else by_loss[-1 - index % len(by_loss)]
        cents[name] += 1 if left > 0 else -1
    return cents


def recipe_order(run: Run, now: float) -> RecipeOrder | None:
    """Return what the original recipe's order would have idled; None when nothing was trained.

    The recipe makes its accelerators with the cluster and destroys them with it. Taken from this
    run: they would have been up from the end of its deployment until its destruction begins, in
    each zone where it got any; the time in which none could be had is left out for both.
    """
    now = now if run.closed_at is None else run.closed_at
    seconds, _ = _accelerators(run, now)
    nodes = run.plan.nodes
    worked = seconds[TRAINING] + seconds[SAVING]
    if not worked or "accelerators" not in run.plan.rates():
        return None
    up = 0.0
    for since, until in _zones(run, now):
        got = [item.since for item in _nodes(run) if since <= item.since < until]
        if got:
            up += until - since - _waited_for_capacity(run, since, min(got))
    ours = sum(seconds[one] for one in WAITING)
    theirs = max(up * nodes - worked, ours)
    rate = run.plan.rates()["accelerators"][1]
    return RecipeOrder(theirs, theirs / 3600 * rate, ours, nodes)


def minute_of_waiting(plan: RunPlan) -> float:
    """Return dollars of one minute in which all accelerators wait."""
    pieces, rate = plan.rates()["accelerators"]
    return pieces * rate / 60


def saves_cost(plan: RunPlan, bytes_per_second: float) -> tuple[int, float, float]:
    """Return how many saves a whole training makes, the seconds of each and the dollars of
    accelerators that wait for all of them.

    Args:
        plan: the plan.
        bytes_per_second: how fast a save is expected to be.
    """
    count = -(-plan.max_num_steps // plan.save_period)
    each = (plan.checkpoint_gib or 0) * GIB / bytes_per_second if bytes_per_second else 0.0
    return count, each, count * each / 60 * minute_of_waiting(plan)


def _extras(run: Run, now: float) -> dict[str, float]:
    """Dollars of builds, NAT and storage; a build lasts as long as its state."""
    extras, plan = run.plan.extras, run.plan
    if extras is None or plan.machine == "local":
        return {}
    builds = sum(
        until - since
        for state, since, until in phases(run, now)
        if state in (State.PROVISIONING, State.DESTROYING)
    )
    machines = sum(
        max(0.0, (now if item.until is None else item.until) - item.since) * item.pieces
        for item in run.usage
        if item.resource in ("accelerators", "system")
    )
    staged = sum(one[0] is State.WAITING_FOR_GPUS for one in phases(run, now))
    export = run.safe_export
    kept = 0.0
    if export is not None and export.verified_at is not None:
        kept = max(0.0, now - export.verified_at) / 3600 * _exported_gib(run)
    found = {
        "builds": builds / 60 * extras.build_minute,
        "nat": machines / 3600 * extras.nat_vm_hour
        + plan.downloaded_gib * staged * extras.nat_gib,
        "storage": kept * extras.storage_gib_month / extras.hours_per_month,
    }
    return {name: amount for name, amount in found.items() if amount}


def _exported_gib(run: Run) -> float:
    return run.safe_export.bytes / GIB if run.safe_export is not None else 0.0


def hourly(run: Run) -> float:
    """Return dollars an hour of what is up now, Cloud NAT's share of each machine included."""
    extras = run.plan.extras
    up = [item for item in run.usage if item.until is None]
    found = sum(item.rate * item.pieces for item in up)
    if extras is not None and run.plan.machine != "local":
        machines = [one.pieces for one in up if one.resource in ("accelerators", "system")]
        found += sum(machines) * extras.nat_vm_hour
    return found


def _accelerators(run: Run, now: float) -> tuple[dict[str, float], dict[str, float]]:
    """Return node-seconds and dollars of the accelerators by what they did."""
    seconds, dollars = dict.fromkeys(PARTS, 0.0), dict.fromkeys(PARTS, 0.0)
    attempts = _attempts(run, now)
    saving = _union((one.at - one.seconds, one.at) for one in run.saves if one.seconds)
    working = _union([*attempts, *saving])
    begin = min((since for since, _ in working), default=float("inf"))
    end = max((until for _, until in working), default=float("-inf"))
    for item in _nodes(run):
        up = (item.since, max(item.since, now if item.until is None else item.until))
        saved = _shared(saving, up)
        trained = _shared(working, up) - saved
        idle = up[1] - up[0] - saved - trained
        before = max(0.0, min(up[1], begin) - up[0])
        after = max(0.0, up[1] - max(up[0], end)) if end > begin else 0.0
        before, after = min(before, idle), min(after, idle - min(before, idle))
        found = (trained, saved, before, max(0.0, idle - before - after), after)
        for name, long in zip(PARTS, found, strict=True):
            seconds[name] += long * item.pieces
            dollars[name] += long / 3600 * item.pieces * item.rate
    return seconds, dollars


def _attempts(run: Run, now: float) -> list[Span]:
    """Return since when until when each attempt trained."""
    return [(one.since, _end(run, number, one, now)) for number, one in run.worked.items()]


def _end(run: Run, number: int, worked: Worked, now: float) -> float:
    failed = [one for one in run.mishaps if one.attempt == number and one.at >= worked.since]
    if failed:
        silent = failed[0].failure in (Failure.HANG, Failure.GPUS_IDLE)
        return worked.until if silent else max(worked.until, failed[0].at)
    job = run.job
    if job is None or job.attempt != number or run.state is not State.TRAINING:
        return worked.until
    return max(worked.until, now if job.completed_at is None else job.completed_at)


def _nodes(run: Run) -> list[Usage]:
    return [item for item in run.usage if item.resource == "accelerators"]


def _zones(run: Run, now: float) -> list[Span]:
    """Return when each zone's deployment was done, until its destruction began."""
    found: list[Span] = []
    since: float | None = None
    for state, began, _ in phases(run, now):
        if state is State.STARTING_HEAD and since is None:
            since = began
        elif state in (State.DESTROYING, State.VERIFYING, State.PROVISIONING) and since:
            found.append((since, began))
            since = None
    return [*found, (since, now)] if since is not None else found


def _waited_for_capacity(run: Run, since: float, got: float) -> float:
    """Return the seconds in which accelerators were asked for and none came."""
    asked = [
        one.at for one in run.history if one.state is State.WAITING_FOR_GPUS and since <= one.at
    ]
    return max(0.0, got - min(asked)) if asked else 0.0


def _union(spans: Iterable[Span]) -> list[Span]:
    found: list[Span] = []
    for since, until in sorted(one for one in spans if one[1] > one[0]):
        if found and since <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], until))
        else:
            found.append((since, until))
    return found


def _shared(spans: Iterable[Span], whole: Span) -> float:
    return sum(max(0.0, min(b, whole[1]) - max(a, whole[0])) for a, b in spans)
