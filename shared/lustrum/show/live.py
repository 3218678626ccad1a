"""The page of a living run: where it is, what it waits for, what it costs, what comes next.

Rewritten at each transition and poll, so it is drawn without matplotlib; the report takes its
place when the run is closed. One self-contained HTML page as the report is; it asks its browser
to load it again, by an address of its own, only while the run lives.
"""

from __future__ import annotations

from collections.abc import Sequence

from lustrum import __version__
from lustrum.core.cost import hourly
from lustrum.core.eta import seconds_left, step_seconds
from lustrum.core.failures import TABLE
from lustrum.core.history import entered_at, phases
from lustrum.core.record import Run, State
from lustrum.show.curve import Curve, curve
from lustrum.show.formatting import clock, dollars, duration, moment, size
from lustrum.show.gpus import gpu_line
from lustrum.show.page import template
from lustrum.show.timeline import spent

REFRESH = 60  # seconds between two loads by the browser
MISHAPS_SHOWN = 10
# State -> what is waited for in it, and what happens next.
WAITS: dict[State, tuple[str, str]] = {
    State.REQUESTED: ("its workflow to take the run", "a network slot and a zone are chosen"),
    State.QUEUED: ("a free network slot", "the zone's cluster and file system are built"),
    State.PROVISIONING: (
        "the build of the cluster and the file system",
        "the Ray head starts; no GPU is paid for yet",
    ),
    State.STARTING_HEAD: ("the Ray head to answer", "the model and the data go onto Lustre"),
    State.STAGING: ("model and data to be on Lustre", "the GPU nodes are asked for"),
    State.WAITING_FOR_GPUS: ("the GPU nodes", "the training is submitted"),
    State.TRAINING: ("the training", "the GPUs are released, the checkpoint is exported"),
    State.RECOVERING: (
        "the nodes of the next attempt",
        "the training resumes from its newest checkpoint",
    ),
    State.RELEASING: ("the GPU nodes to be gone", "the checkpoint is exported to the bucket"),
    State.EXPORTING: ("the export of the checkpoint", "cluster and file system are destroyed"),
    State.DESTROYING: ("the build that destroys everything", "an inventory proves it"),
    State.VERIFYING: ("an empty inventory, twice", "the report is written, the run is closed"),
    State.CLOSED: ("nothing: the run is closed", "nothing"),
    State.REJECTED: ("nothing: the run was never begun", "nothing"),
}


def render_live(
    run: Run,
    now: float,
    *,
    said: str = "",
    address: str = "",
    index: str = "",
    more: Sequence[tuple[str, str]] = (),
) -> str:
    """Return the page of a run that is not over.

    Args:
        run: the record.
        now: epoch seconds.
        said: what the last poll answered, in words; hostile text stays text.
        address: where the page can be loaded again; "": it is not loaded again.
        index: address of the page of all runs; "": no link.
        more: further sections, (title, safe SVG markup): curves that others draw.
    """
    waits, then = WAITS[run.state]
    return template("live.html").render(
        run=run,
        plan=run.plan,
        version=__version__,
        refresh=REFRESH if address and not run.is_over else None,
        address=address,
        index=index,
        waits=waits,
        since=duration(max(now - entered_at(run, run.state, run.created_at), 0.0)),
        said="" if run.reason else said,
        then=_then(run) or then,
        facts=_facts(run, now),
        curves=learning_curves(run),
        gpus=gpu_line(run),
        save=_last_save(run),
        share=_share(spent(run, now), run.plan.cost_limit),
        more=more,
        phases=[
            (state.value.replace("_", " ").lower(), duration(until - since), clock(since))
            for state, since, until in phases(run, now)
        ],
        mishaps=[
            (moment(one.at), one.failure.value, one.sentence, TABLE[one.failure].advice)
            for one in run.mishaps[-MISHAPS_SHOWN:]
        ][::-1],
        problems=run.teardown.problems if run.teardown else [],
        at=moment(now),
    )


def learning_curves(run: Run) -> list[Curve]:
    """Return the reward by step, and the loss where the training tells one (sft, dpo)."""
    saved = [one.step for one in run.saves]
    found = []
    for name in ("reward", "loss"):
        by_attempt: dict[int, list[tuple[int, float]]] = {}
        for one in sorted(run.series, key=lambda one: (one.attempt, one.step)):
            value = getattr(one, name)
            if value is not None:
                by_attempt.setdefault(one.attempt, []).append((one.step, value))
        drawn = curve(name, list(by_attempt.items()), saved, run.plan.max_num_steps)
        if drawn is not None:
            found.append(drawn)
    return found


def _facts(run: Run, now: float) -> list[tuple[str, str, str]]:
    left, pace = seconds_left(run, now), step_seconds(run)
    until = run.deadline_at - now
    rate = hourly(run.usage)
    return [
        ("step", f"{run.progress.step}", f"of {run.plan.max_num_steps}"),
        (
            "training done in",
            "-" if left is None else duration(left),
            f"at {duration(pace)} a step" if left is not None and pace else "no pace known yet",
        ),
        ("cost, estimate", dollars(spent(run, now)), f"limit {dollars(run.plan.cost_limit)}"),
        ("costs now", f"{dollars(rate)}/h", "of what is up"),
        (
            "age",
            duration(now - run.created_at),
            f"deadline in {duration(until)}" if until > 0 else "past its deadline",
        ),
        ("attempt", f"{run.attempt}", f"limit {run.plan.attempts}"),
    ]


def _then(run: Run) -> str:
    """What happens next when it is not what the state alone says."""
    teardown = run.teardown
    if teardown is not None and not teardown.final and run.state is State.VERIFYING:
        return "the next zone is tried"
    if run.cancel is not None and teardown is None:
        return "it was cancelled: its teardown begins"
    return ""


def _last_save(run: Run) -> str:
    save = run.checkpoint
    if save is None:
        return "nothing is saved yet"
    safe = run.safe_export
    where = "on Lustre alone" if safe is None or safe.step < save.step else f"safe in {safe.uri}"
    return f"step {save.step}, {size(save.bytes)}, at {moment(save.at)}: {where}"


def _share(part: float, whole: float) -> int:
    return round(min(1.0, part / whole) * 100) if whole else 0
