"""The commands that make sense for a run as it is. Pure."""

from __future__ import annotations

from lustrum.core.record import Run, State


def next_steps(run: Run) -> list[str]:
    """Return commands, each with its purpose behind `#`."""
    one = run.run_id
    logs = [f"lustrum logs {one}  # of attempt {run.attempt}"] if run.attempt else []
    report = f"lustrum report {one} -o report.html  # the whole story"
    if run.is_over:
        return [*logs, report]
    found = [f"lustrum watch {one}  # follow it to its end", *logs]
    if run.state is State.TRAINING:
        found.append(f"lustrum dashboard {one}  # Ray's dashboard on this machine")
    if run.cancel is None and run.teardown is None:
        found.append(f"lustrum extend {one} 2  # two hours more")
        found.append(f"lustrum cancel {one}  # end it, with its newest checkpoint exported")
    return [*found, report]
