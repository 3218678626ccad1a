"""Run the same small workflows on this engine and on other local emulators; print a table.

``python tools/compare.py [--python P] [--gcw BINARY] [--karupanerura BINARY]`` prints it.

* P: the Python of an environment that has ``workflows-emulator`` (from PyPI);
* gcw: ``gcw-emulator`` of github.com/lemonberrylabs/gcw-emulator, built with Go;
* karupanerura: the program of github.com/karupanerura/google-cloud-workflow-emulator.

What is not given is left out. Every case runs in processes of its own, over loopback only.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import yaml

_HERE = Path(__file__).parent
_SECONDS = 12.0  # after which a case hangs
_ENVIRONMENT = {**os.environ, "PYTHONPATH": str(_HERE.parent / "src")}
# (result, None), (None, error text) or ("refused", text) of one run
Outcome = tuple[Any, str | None]
Runner = Callable[[Path, Any], Outcome]


class Web(BaseHTTPRequestHandler):
    """Answers /json, and any status by its number; notes when it was called."""

    times: ClassVar[list[float]] = []

    def do_GET(self) -> None:
        """Answer a call of a workflow."""
        Web.times.append(time.monotonic())
        name = self.path.strip("/")
        body = b'{"n": 1}'
        self.send_response(int(name) if name.isdigit() else 200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


def _process(argv: list[str], folder: Path) -> tuple[int, str, str]:
    """Run a command to its end; rc 124 when it took too long."""
    process = subprocess.Popen(
        argv,
        cwd=folder,
        env=_ENVIRONMENT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        out, err = process.communicate(timeout=_SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        return 124, "", "hangs"
    return process.returncode, out, err


def ours(file: Path, argument: Any) -> Outcome:
    """This engine's own command."""
    argv = [sys.executable, "-m", "workflows_engine", "run", str(file)]
    argv += ["--data", json.dumps(argument)] if argument is not None else []
    code, out, err = _process(argv, file.parent)
    if code == 0:
        return json.loads(out), None
    return ("refused" if code == 2 else None), err


_EMULATOR = """
import json, logging, sys
logging.disable(logging.CRITICAL)
from workflows_emulator.main import execute_workflow, load_workflow
flow = load_workflow(sys.argv[1])
argument = json.loads(sys.argv[2])
print("RESULT " + json.dumps(execute_workflow(flow, {"args": argument} if argument else {})))
"""


def emulator(python: str) -> Runner:
    """The package workflows-emulator, called as its own server calls it."""

    def run(file: Path, argument: Any) -> Outcome:
        argv = [python, "-c", _EMULATOR, str(file), json.dumps(argument)]
        code, out, err = _process(argv, file.parent)
        found = [line for line in out.splitlines() if line.startswith("RESULT ")]
        if code == 0 and found:
            return json.loads(found[-1].removeprefix("RESULT ")), None
        return ("refused" if "ValidationError" in err else None), err

    return run


def karupanerura(binary: str) -> Runner:
    """The program of karupanerura, on one file."""

    def run(file: Path, argument: Any) -> Outcome:
        argv = [binary, "-f", str(file), "--args", json.dumps(argument or {})]
        code, out, err = _process(argv, file.parent)
        if code != 0:
            return ("refused" if "failed to load workflow" in err else None), err or out
        try:
            return json.loads(out.strip().splitlines()[-1]), None
        except (ValueError, IndexError):
            return None, out + err

    return run


def gcw(binary: str) -> Runner:
    """A server of gcw-emulator for the case: deploy, execute, poll."""

    def run(file: Path, argument: Any) -> Outcome:
        ports = [_free(), _free()]
        argv = [binary, "--host", "127.0.0.1", "--port", str(ports[0])]
        argv += ["--grpc-port", str(ports[1]), "--project", "p"]
        server = subprocess.Popen(
            argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=file.parent
        )
        base = f"http://127.0.0.1:{ports[0]}/v1/projects/p/locations/us-central1/workflows"
        try:
            return _gcw_case(base, file, argument)
        finally:
            server.kill()
            server.wait()

    return run


def _gcw_case(base: str, file: Path, argument: Any) -> Outcome:
    until = time.monotonic() + _SECONDS
    deployed: Any = None
    while time.monotonic() < until and deployed is None:
        try:
            deployed = _post(f"{base}?workflowId=w", {"sourceContents": file.read_text()})
        except urllib.error.HTTPError as exc:
            return "refused", exc.read().decode("utf-8", "replace")
        except OSError:
            time.sleep(0.1)
    body = {} if argument is None else {"argument": json.dumps(argument)}
    execution: Any = None
    while time.monotonic() < until and execution is None:
        try:
            execution = _post(f"{base}/w/executions", body)
        except urllib.error.HTTPError as exc:
            if exc.code != 404:
                return None, exc.read().decode("utf-8", "replace")
            time.sleep(0.1)
    url = base.split("/projects/")[0] + "/" + execution["name"]
    while time.monotonic() < until:
        with urllib.request.urlopen(url, timeout=5) as answer:
            state = json.load(answer)
        if state["state"] == "SUCCEEDED":
            return json.loads(state.get("result") or "null"), None
        if state["state"] != "ACTIVE":
            return None, json.dumps(state.get("error"))
        time.sleep(0.05)
    return None, "hangs"


def _post(url: str, body: Any) -> Any:
    request = urllib.request.Request(
        url, json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=5) as answer:
        return json.load(answer)


def _free() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def verdict(case: dict[str, Any], outcome: Outcome, seconds: float) -> str:
    """``ok``, or in a few words what came instead."""
    got, error = outcome
    if error == "hangs":
        return "hangs"
    if case.get("refused"):
        return "ok" if got == "refused" else "runs" if error is None else "fails when it runs"
    if "error" in case:
        return "ok" if error is not None and case["error"] in error else "no such error"
    if error is not None:
        return "refused" if got == "refused" else "fails: " + _last(error)
    if "seconds" in case:
        low, high = case["seconds"]
        return "ok" if low <= seconds < high else f"retries for {seconds:.1f} s"
    same = got == case["want"] and isinstance(got, bool) is isinstance(case["want"], bool)
    return "ok" if same else "gives " + json.dumps(got)[:40]


def _last(error: str) -> str:
    lines = [line.strip() for line in error.splitlines() if len(line.strip()) > 3]
    return (lines[-1] if lines else "no output")[:60].replace("|", "/").replace("`", "'")


def main() -> int:
    """Print the document; gives the exit code: 1 when this engine misses a case."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--python")
    parser.add_argument("--gcw")
    parser.add_argument("--karupanerura")
    parser.add_argument("--version", action="append", default=[], metavar="NAME=TEXT")
    args = parser.parse_args()
    runners: dict[str, Runner] = {"workflows-engine": ours}
    if args.python:
        runners["workflows-emulator"] = emulator(args.python)
    if args.gcw:
        runners["gcw-emulator"] = gcw(args.gcw)
    if args.karupanerura:
        runners["google-cloud-workflow-emulator"] = karupanerura(args.karupanerura)
    web = ThreadingHTTPServer(("127.0.0.1", 0), Web)
    threading.Thread(target=web.serve_forever, daemon=True).start()
    versions = dict(one.split("=", 1) for one in args.version)
    text = (_HERE / "compare_cases.yaml").read_text(encoding="utf-8")
    cases = yaml.safe_load(text.replace("{web}", f"http://127.0.0.1:{web.server_port}"))
    rows, good = [], dict.fromkeys(runners, 0)
    for case in cases:
        cells = []
        for name, runner in runners.items():
            told = _case(case, runner)
            good[name] += told == "ok"
            cells.append(told)
        rows.append(f"| {case['row']} | {case['name']} | {' | '.join(cells)} |")
        print(rows[-1], file=sys.stderr)
    web.shutdown()
    print(_document(rows, good, versions, len(cases)), end="")
    return 0 if good["workflows-engine"] == len(cases) else 1


def _case(case: dict[str, Any], runner: Runner) -> str:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "case.yaml"
        # Some engines take no list of steps; that is a case of its own, and no other's.
        flow = case["flow"]
        if isinstance(flow, list) and not case.get("bare"):
            flow = {"main": {"steps": flow}}
        file.write_text(yaml.safe_dump(flow, sort_keys=False), encoding="utf-8")
        Web.times.clear()
        outcome = runner(file, case.get("argument"))
        seconds = Web.times[-1] - Web.times[0] if Web.times else 0.0
        return verdict(case, outcome, seconds)


def _document(rows: list[str], good: dict[str, int], versions: dict[str, str], count: int) -> str:
    head = [f"{name} {versions.get(name, '')}".strip() for name in good]
    lines = [
        "# Side by side with other local emulators",
        "",
        f"{count} small workflows, each run on each engine in processes of its own over loopback;",
        f"made on {datetime.now(UTC):%Y-%m-%d} by `tools/compare.py`. `ok` is what the reference",
        "says; a row number is that of the list of thirty differences that `test_b1.py` holds.",
        "Where a file must be refused, a refusal counts for any reason. Engines that take no list",
        "of steps get each case with `main`.",
        "",
        f"| row | case | {' | '.join(head)} |",
        "|---|---|" + "---|" * len(head),
        *rows,
        f"| | **ok** | {' | '.join(f'{number} of {count}' for number in good.values())} |",
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
