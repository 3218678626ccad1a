"""The workflow engine: speed in virtual time, memory of waiting executions, billed steps.

The baseline is a bare asyncio coroutine that awaits nothing as often, in the same run; both are
CPU seconds of one core. Run alone with `python -m bench.engine`.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import yaml
from workflows_engine import Engine, Workflow, virtual

ROOT = Path(__file__).parents[1]
WAITING = 1000
HOURS = 6

# What real workflows do: arithmetic, maps, a switch, a subworkflow, an HTTP call, a sleep.
MIX = """
main:
  steps:
    - init: {assign: [{i: 0}, {m: {total: 0, last: ""}}]}
    - check: {switch: [{condition: "${i >= 10000}", next: done}]}
    - count: {assign: [{i: "${i + 1}"}, {m.total: "${m.total + i * 2}"}]}
    - label: {call: name, args: {n: "${i}"}, result: text}
    - note: {assign: [{m.last: "${text}"}]}
    - ask:
        try: {call: http.post, args: {url: "http://127.0.0.1/", body: {n: "${i}"}}, result: r}
        except: {as: e, steps: [{again: {raise: "${e}"}}]}
    - wait: {call: sys.sleep, args: {seconds: 1}, next: check}
    - done: {return: "${m}"}
name:
  params: [n, prefix: "run-"]
  steps:
    - give: {return: "${prefix + string(n)}"}
"""

BELL = """
main:
  params: [args]
  steps:
    - open: {call: events.create_callback_endpoint, result: bell}
    - wait: {call: events.await_callback, args: {callback: "${bell}", timeout: 86400}, result: r}
    - give: {return: "${r.http_request.body}"}
"""


def run() -> dict[str, float | str]:
    """Return the figures; `baseline_ratio` is the engine's time per step over a bare await."""
    steps, seconds = virtual.run(_mixed)
    bare = _bare(steps)
    memory = json.loads(
        subprocess.run(
            [sys.executable, "-m", "bench.engine", "waiting"],
            cwd=ROOT,
            check=True,
            capture_output=True,
            text=True,
        ).stdout
    )
    figures: dict[str, float | str] = {
        "steps_per_second_virtual": round(steps / seconds),
        "bare_awaits_per_second": round(steps / bare),
        "baseline_ratio": round(seconds / bare, 1),
        "callbacks_1000_rss_mb": memory["rss_mb"],
        "callbacks_1000_kb_each": memory["kb_each"],
        "callbacks_1000_wake_seconds": memory["wake_seconds"],
    }
    return {**figures, **_six_hours()}


async def _http(*_: Any) -> tuple[int, dict[str, str], Any]:
    return 200, {}, {"ok": True}


async def _mixed() -> tuple[int, float]:
    engine = Engine(http=_http, history=0)
    engine.deploy("mix", Workflow(MIX))
    began = time.process_time()
    execution = await engine.create("mix").wait()
    assert execution.state == "SUCCEEDED", execution.error
    return execution.steps, time.process_time() - began


def _bare(steps: int) -> float:
    """Seconds a plain coroutine takes to await as many coroutines that do nothing."""

    async def nothing() -> None:
        return None

    async def loop() -> float:
        began = time.process_time()
        for _ in range(steps):
            await nothing()
        return time.process_time() - began

    return asyncio.run(loop())


def _rss_mb() -> float:
    status = Path("/proc/self/status").read_text(encoding="ascii")
    line = next(line for line in status.splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1]) / 1024


async def _waiting() -> dict[str, float]:
    """Memory of the whole process while executions wait on callbacks, in real time."""
    before = _rss_mb()
    engine = Engine()
    engine.deploy("bell", Workflow(BELL))
    runs = [engine.create("bell", {"n": n}) for n in range(WAITING)]
    while not all(any(callback.waiters for callback in run.callbacks) for run in runs):
        await asyncio.sleep(0)
    rss = _rss_mb()
    began = time.process_time()
    for number, one in enumerate(runs):
        (callback,) = one.callbacks
        url = f"{engine.base_url}/v1/{one.name}/callbacks/{callback.id}"
        assert engine.callback(url, number) == 200
    await asyncio.gather(*(one.wait() for one in runs))
    assert [one.value for one in runs] == list(range(WAITING))
    return {
        "rss_mb": round(rss, 1),
        "kb_each": round((rss - before) * 1024 / WAITING, 1),
        "wake_seconds": round(time.process_time() - began, 3),
    }


def _six_hours() -> dict[str, float | str]:
    """Billed steps of a run of six hours without trouble, from its claim to its hand-over."""
    path = ROOT / "workflows" / "rl_run.yaml"

    async def main() -> dict[str, float | str]:
        loop = asyncio.get_running_loop()
        engine = Engine(
            http=_functions(loop.time),
            env={
                "LUSTRUM_FUNCTIONS_URL": "https://functions.cloudfunctions.net",
                "LUSTRUM_BUILD_TRIGGER": "projects/p/locations/r/triggers/t",
            },
        )
        engine.deploy("rl-run", Workflow.from_file(path))
        execution = await engine.create("rl-run", {"run_id": "rl-0123456789"}).wait()
        assert execution.state == "SUCCEEDED", execution.error
        assert HOURS * 3600 <= loop.time() < (HOURS + 0.2) * 3600
        return {
            "rl_run_6h_internal_steps": execution.steps - execution.external_steps,
            "rl_run_6h_external_steps": execution.external_steps,
        }

    return virtual.run(main)


def _functions(now: Any) -> Any:
    """Answers as the functions give them: a build of 40 minutes, staging of 15, GPUs after 10.

    Polls and deadlines are those of the first profile. No event calls the callback.
    """
    began: dict[str, float] = {}
    profiles = yaml.safe_load(
        (ROOT / "shared/lustrum/core/profiles.yaml").read_text(encoding="utf-8")
    )
    timing = next(iter(profiles.values()))["timing"]

    def since(what: str) -> float:
        return float(now() - began.setdefault(what, now()))

    async def handle(
        _method: str, url: str, _headers: Any, _query: Any, body: Any, *_: Any
    ) -> tuple[int, dict[str, str], Any]:
        go = {"go": True, "why": "", "failure": None}
        function = url.rsplit("/", 1)[-1]
        step = body.get("step") if isinstance(body, dict) else None
        if function.endswith(":run"):
            began["build"] = now()
            return 200, {}, {"name": "projects/p/locations/r/operations/o", "metadata": {}}
        if function == "check-ray-job":
            over = now() >= HOURS * 3600
            return 200, {}, {**go, "next": "stop" if over else "wait", "wait": 300}
        if function == "apply-ray-cluster":
            return 200, {}, {**go, "ready": since("pods") >= 600}
        if function == "stage-data":
            return 200, {}, {**go, "done": since("stage") >= 900}
        if step == "claim":
            return 200, {}, {**go, "timing": timing, "capacity_wait": 3600}
        if step == "place":
            return 200, {}, {**go, "placed": True, "substitutions": {}, "wait": 60}
        if step == "build":
            status = "none" if "build" not in began else "live"
            status = "done" if "build" in began and since("build") >= 2400 else status
            return 200, {}, {**go, "status": status}
        return 200, {}, go

    return handle


def _print(figures: dict[str, float | str]) -> None:
    # Not at the top: the process whose memory is measured holds the engine, not a table library.
    from rich.console import Console
    from rich.table import Table

    table = Table("figure", "value")
    for name, value in figures.items():
        table.add_row(name, f"{value:,}" if isinstance(value, int | float) else value)
    Console().print(table)


if __name__ == "__main__":
    if sys.argv[1:] == ["waiting"]:
        print(json.dumps(asyncio.run(_waiting())))
    else:
        _print(run())
