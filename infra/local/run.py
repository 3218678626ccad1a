"""`make run`: the local stack up, one request through its whole life, the stack down, the proof
printed.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import sys
import time
import uuid
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

from lustrum.core import names
from lustrum.core.plan import make_plan
from lustrum.core.request import BadRequest, StartRequest, parse_request
from rich.console import Console
from rich.markup import escape

from infra.local.emulators import Missing
from infra.local.functions import ROOT
from infra.local.own_cluster import OwnCluster, Unfit
from infra.local.processes import DidNotStart
from infra.local.stack import Stack, describe

FOLDER = ROOT / ".lustrum"
STACKS = 10  # working folders that are kept, the newest
RUNS = 10  # runs whose report, logs and checkpoints are kept, the newest
POLL = 0.3  # seconds between looks at the ledger
FAILED, BAD_INPUT, INTERRUPTED = 1, 2, 130


def main() -> int:
    """Run one request; 0 only if it SUCCEEDED and nothing is left."""
    parser = argparse.ArgumentParser(
        prog="make run",
        description=__doc__,
        epilog="example: make run REQUEST=examples/requests/tiny.json; on a cluster of your own "
        "instead of the stand-in's: LUSTRUM_KUBECONFIG, see docs/own-cluster.md",
    )
    parser.add_argument("request", nargs="?", default="examples/requests/tiny.json", type=Path)
    parser.add_argument("--minutes", type=float, default=10, help="give up after this long")
    options = parser.parse_args()
    console = Console(highlight=False, soft_wrap=True)
    signal.signal(signal.SIGTERM, _end)
    try:
        return _run(options.request, options.minutes * 60, console)
    except (BadRequest, OSError) as error:
        console.print(f"[red]error:[/] {escape(f'{options.request}: {error}')}")
        return BAD_INPUT
    except (Missing, Unfit) as error:
        console.print(f"[red]error:[/] {escape(str(error))}")
        return BAD_INPUT
    except DidNotStart as error:
        console.print(f"[red]error:[/] {escape(str(error))}")
        return FAILED
    except KeyboardInterrupt:
        console.print("interrupted: everything that was started here has been ended")
        return INTERRUPTED


def _run(path: Path, limit: float, console: Console) -> int:
    body = path.read_bytes()
    request = parse_request(body)
    if not isinstance(request, StartRequest):
        raise BadRequest("action", request.action, "make run starts a run; use a start request")
    plan = make_plan(request, names.run_id("check"), "exports")
    if plan.machine != "local":
        raise BadRequest(
            "profile",
            request.profile,
            "needs real A4 machines; on one machine use the profile tiny-grpo, and `lustrum plan` "
            "to see what this request would do",
        )
    own = OwnCluster.of(os.environ)
    real, stands_in = describe(own)
    console.print(f"[bold]real:[/]      {real}")
    console.print(f"[bold]stands in:[/] {stands_in}\n")
    for note in own.check() if own else ():
        console.print(f"[yellow]note:[/] {escape(note)}")
    forget_old_stacks(FOLDER)
    root = FOLDER / f"stack-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}"
    stack = Stack(root, own=own)
    began = time.monotonic()
    run_id, left = "", []
    try:
        stack.start(lambda part: console.print(f"starting: {part}"))
        console.print(
            f"up in {time.monotonic() - began:.1f} s on loopback, files in {_short(root)}"
        )
        message, run_id = publish_anew(stack, body)
        console.print(f"published {_short(path)} as message {message}: run {run_id}\n")
        run = _follow(stack, run_id, limit, console)
        left = _everything(stack.inventory()) + (own.left(run_id) if own else [])
        kept = _keep(stack, run, run_id)
        if own is not None and not own.was_used(run_id):
            console.print(
                f"[yellow]note:[/] no pod wrote to {own.lustre}: is it behind the claim?"
            )
    finally:
        stack.stop()
        if own is not None and run_id:
            left += _clear(own, run_id, console)
    _say_end(console, run, kept, left, time.monotonic() - began)
    outcome = run.outcome.value if run is not None and run.outcome is not None else "UNFINISHED"
    return 0 if outcome == "SUCCEEDED" and not left else FAILED


def publish_anew(stack: Stack, body: bytes) -> tuple[str, str]:
    """Publish a request as a run of its own; return message id and run id.

    The emulator counts its messages from 1: without a key the first run of every stack would have
    the same id, and the same folder.
    """
    attributes = {"idempotency_key": f"make-run-{uuid.uuid4().hex}"}
    message = stack.publish(body, **attributes)
    return message, names.run_id(names.message_key(attributes, message, None))


def _clear(own: OwnCluster, run_id: str, console: Console) -> list[str]:
    """Take what goes with a run's cluster out of the user's; say and return what would not go."""
    problems = own.clear(run_id)
    for problem in problems:
        console.print(f"[red]left behind:[/] {escape(problem)}")
    return problems


def _follow(stack: Stack, run_id: str, limit: float, console: Console) -> Any:
    """Show the run until it is over; None when it never appeared."""
    os.environ |= {key: value for key, value in stack.env.items() if os.environ.get(key) != value}
    from lustrum.core.errors import NotFound
    from lustrum.show.terminal_view import LiveView
    from lustrum.wiring.services import Services
    from lustrum.wiring.settings import read_settings

    ledger = Services(read_settings(os.environ)).ledger
    end = time.monotonic() + limit
    run = None
    with LiveView(console) as view:
        while time.monotonic() < end:
            stack.children.check()
            try:
                run = ledger.load(run_id)
            except NotFound:
                run = None
            if run is not None:
                view.show(run)
                if run.is_over and (run.report_uri or time.time() - (run.closed_at or 0) > 15):
                    return run
            refused = [
                one for one in stack.pubsub.notifications() if one["kind"] == "request.rejected"
            ]
            if refused:
                raise BadRequest(refused[0]["field"], refused[0]["value"], refused[0]["reason"])
            time.sleep(POLL)
    console.print(
        f"[red]gave up after {limit / 60:g} minutes[/]; logs in {_short(stack.root)}/logs"
    )
    return run


def forget_old_stacks(folder: Path, keep: int = STACKS) -> None:
    """Remove the working folders of all but the newest runs whose process has ended."""
    stacks = sorted(folder.glob("stack-*-*"), key=lambda one: one.name, reverse=True)
    for one in stacks[keep - 1 :]:
        process = one.name.rsplit("-", 1)[-1]
        if not (process.isdigit() and Path("/proc", process).exists()):
            shutil.rmtree(one, ignore_errors=True)


def forget_old_runs(folder: Path, keep: int) -> None:
    """Remove what was kept of all but the newest runs."""
    runs = sorted(folder.glob("rl-*"), key=lambda one: one.stat().st_mtime, reverse=True)
    for one in runs[keep:]:
        shutil.rmtree(one, ignore_errors=True)


def _keep(stack: Stack, run: Any, run_id: str) -> Path:
    """Bring report, logs and exported checkpoints to ``.lustrum/runs/<run_id>``."""
    forget_old_runs(FOLDER / "runs", RUNS - 1)
    kept = FOLDER / "runs" / run_id
    kept.mkdir(parents=True)
    reports = stack.bucket(f"gs://{stack.project}-reports/runs/{run_id}")
    if reports.exists():
        shutil.copytree(reports, kept, dirs_exist_ok=True)
    if run is not None and run.safe_export is not None:
        shutil.copytree(stack.bucket(run.plan.export_to), kept / "exported")
    shutil.copytree(stack.root / "logs", kept / "stack-logs")
    return kept


def _say_end(console: Console, run: Any, kept: Path, left: list[str], seconds: float) -> None:
    _say_place(console, "exported checkpoints", kept / "exported")
    _say_place(console, "logs", kept)
    console.print(
        f"{'inventory:':22}" + ("empty" if not left else "NOT EMPTY: " + ", ".join(left))
    )
    _say_place(console, "report", kept / "report.html")
    if run is None:
        console.print("run - UNFINISHED")
        return
    from lustrum.show.terminal_view import last_line

    console.print(f"{last_line(run, time.time())} in {seconds:.0f} s")


def _say_place(console: Console, what: str, path: Path) -> None:
    if path.exists():
        console.print(f"{what + ':':22}{_short(path)}")


def _everything(inventory: dict[str, Any]) -> list[str]:
    return [
        f"{kind} {json.dumps(one) if not isinstance(one, str) else one}"
        for kind, found in inventory.items()
        for one in found
    ]


def _short(path: Path) -> str:
    try:
        return str(path.resolve().relative_to(Path.cwd()))
    except ValueError:
        return str(path)


def _end(signum: int, frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
