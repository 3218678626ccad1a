"""``workflows-engine``: run, check and serve workflows."""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from workflows_engine import coverage, limits, trace, virtual
from workflows_engine.check import check
from workflows_engine.coverage import Coverage
from workflows_engine.engine import Engine
from workflows_engine.errors import ApiError, Fault, FaultySource, HttpConnectionFailed
from workflows_engine.execution import Execution
from workflows_engine.graph import mermaid
from workflows_engine.mock_file import MockFile, is_mock_file, read_mocks
from workflows_engine.mocks import Mocks
from workflows_engine.values import to_json
from workflows_engine.workflow import Workflow


def _pair(text: str) -> tuple[str, str]:
    key, separator, value = text.partition("=")
    if not key or not separator:
        raise argparse.ArgumentTypeError(f"{text!r} is not KEY=VALUE")
    return key, value


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="workflows-engine", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--env", type=_pair, action="append", default=[], metavar="KEY=VALUE")
    common.add_argument(
        "--endpoint",
        type=_pair,
        action="append",
        default=[],
        metavar="SERVICE=URL",
        help="base URL of a service for connectors, for example cloudbuild=http://127.0.0.1:8080",
    )
    common.add_argument("--project", default="local-project")
    common.add_argument("--location", default="us-central1")
    common.add_argument("--seed", default="0", help="decides ids and the order of branches")

    run = commands.add_parser("run", parents=[common], help="run a workflow to its end")
    run.add_argument("file", type=Path)
    run.add_argument("--data", help="the argument, as JSON")
    run.add_argument(
        "--virtual-time", action="store_true", help="no wait takes time; HTTP calls fail"
    )
    _mock_option(run, "; no wait takes time")
    run.add_argument("--trace", action="store_true", help="a table of all steps on stderr")
    run.add_argument("--trace-json", type=Path, metavar="FILE", help="all steps, as JSON")
    run.add_argument("--coverage", action="store_true", help="steps and branches reached")
    run.add_argument(
        "--coverage-json", type=Path, metavar="FILE", help="the same as JSON, added to FILE"
    )
    run.add_argument("--verbose", action="store_true", help="steps and bill on stderr")

    checks = commands.add_parser("check", help="find what Google Cloud would refuse")
    checks.add_argument("file", type=Path, nargs="+")
    checks.add_argument("--strict", action="store_true", help="a warning is an error")
    checks.add_argument("--json", action="store_true", help="a list of findings, for editors")

    drawn = commands.add_parser("graph", help="a workflow as a mermaid flowchart")
    drawn.add_argument("file", type=Path)

    serve = commands.add_parser("serve", parents=[common], help="serve the APIs on loopback")
    serve.add_argument("--host", default="127.0.0.1")
    serve.add_argument("--port", type=int, default=0, help="REST and callbacks; 0: a free one")
    serve.add_argument("--grpc-port", type=int, default=0, help="gRPC; 0: a free one")
    _mock_option(serve, "")
    serve.add_argument("--workflow", type=_pair, action="append", default=[], metavar="NAME=FILE")
    merged = commands.add_parser("coverage", help="merge and report files of --coverage-json")
    merged.add_argument("file", type=Path, nargs="+")
    merged.add_argument("--json", type=Path, metavar="FILE", help="write the merged file")
    merged.add_argument("--fail-under", type=float, default=0.0, metavar="PERCENT")

    commands.add_parser("mock-schema", help="the JSON schema of files of mocks, for editors")
    return parser


def _mock_option(parser: argparse.ArgumentParser, more: str) -> None:
    parser.add_argument(
        "--mock",
        type=Path,
        action="append",
        default=[],
        metavar="FILE",
        help=f"answer HTTP calls and connectors from a file{more}",
    )


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as exc:
        raise SystemExit(f"cannot read {path}: {exc}") from None


def _check(files: Sequence[Path], strict: bool, as_json: bool) -> int:
    found = [fault for path in files for fault in _faults(_read(path), str(path))]
    refused = [fault for fault in found if strict or not fault.warning]
    if as_json:
        print(json.dumps([_finding(fault, strict) for fault in found], indent=2))
        return 2 if refused else 0
    for fault in found:
        print(fault, file=sys.stdout if fault in refused else sys.stderr)
    if not refused:
        print("ok")
    return 2 if refused else 0


def _faults(text: str, path: str) -> list[Fault]:
    """The faults of a workflow or of a file of mocks."""
    if not is_mock_file(text):
        return check(text, path)[1]
    try:
        read_mocks(text, path)
    except FaultySource as exc:
        return exc.faults
    return []


def _finding(fault: Fault, strict: bool) -> dict[str, Any]:
    return {
        "path": fault.path,
        "line": fault.line,
        "severity": "warning" if fault.warning and not strict else "error",
        "message": fault.message,
        "instead": fault.instead,
    }


def _log(_execution: Execution, severity: str, payload: Any) -> None:
    text = payload if isinstance(payload, str) else to_json(payload)
    print(f"{severity}: {text}", file=sys.stderr, flush=True)


def _mocks(files: Sequence[Path]) -> Mocks | None:
    """The mocks of all files, in order. Raises FaultySource."""
    if not files:
        return None
    both = MockFile()
    for path in files:
        one = read_mocks(_read(path), str(path))
        both.mocks += one.mocks
        both.callbacks += one.callbacks
    return Mocks(both)


def _engine(args: argparse.Namespace, http: Any, mocks: Mocks | None, **more: Any) -> Engine:
    if getattr(args, "trace", False) or getattr(args, "trace_json", None) is not None:
        more |= {"history": limits.STEPS, "detail": True}
    if mocks is not None:
        http = mocks.http
        more |= {"connectors": {"*": mocks.connector}, "on_callback": mocks.callback_created}
    return Engine(
        http=http,
        endpoints=dict(args.endpoint),
        env=dict(args.env),
        project=args.project,
        location=args.location,
        seed=args.seed,
        on_log=_log,
        **more,
    )


async def _no_network(*_: Any) -> Any:
    raise HttpConnectionFailed("there is no network in virtual time")


async def _in_virtual_time(
    args: argparse.Namespace, workflow: Workflow, mocks: Mocks | None
) -> int:
    code = await _execute(args, workflow, _engine(args, _no_network, mocks), "")
    for line in mocks.unused() if mocks is not None else []:
        print(line, file=sys.stderr)
    return code


async def _in_real_time(args: argparse.Namespace, workflow: Workflow) -> int:
    # gRPC and Google's types take a second to import; `check` does without.
    from workflows_engine.http_client import HttpClient
    from workflows_engine.server import Server

    client = HttpClient()
    # The callbacks of the execution must be reachable while it runs.
    server = Server(lambda url: _engine(args, client, None, base_url=url))
    await server.start()
    try:
        return await _execute(args, workflow, server.engine, server.url)
    finally:
        await server.stop()
        await client.close()


async def _execute(args: argparse.Namespace, workflow: Workflow, engine: Engine, url: str) -> int:
    engine.deploy(args.file.stem, workflow)
    execution = engine.create(args.file.stem, argument_json=args.data)
    if args.verbose and url:
        print(f"execution {url}/v1/{execution.name}", file=sys.stderr, flush=True)
    await execution.wait()
    if args.verbose:
        _report(execution)
    if args.trace:
        print(trace.table(trace.rows(execution)), file=sys.stderr)
    if args.trace_json is not None:
        _write(args.trace_json, to_json(trace.rows(execution), indent=2))
    if execution.state == "SUCCEEDED":
        print(execution.result)
        return 0
    error = execution.error or {"payload": json.dumps(f"the execution was {execution.state}")}
    print(error["payload"], file=sys.stderr)
    if args.verbose:
        print(error.get("context", ""), file=sys.stderr)
    return 1


def _report(execution: Execution) -> None:
    start = execution.start_time or 0.0
    for entry in execution.history.entries if execution.history is not None else ():
        print(
            f"{entry.created - start:12.3f} s  {entry.op.routine}.{entry.op.name}  "
            f"{entry.state.removeprefix('STATE_').lower()}",
            file=sys.stderr,
        )
    print(
        f"billed steps: {execution.steps - execution.external_steps} internal, "
        f"{execution.external_steps} external",
        file=sys.stderr,
    )


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text + "\n", encoding="utf-8")
    except OSError as exc:
        raise SystemExit(f"cannot write {path}: {exc}") from None


def _run(args: argparse.Namespace) -> int:
    text = _read(args.file)
    counted = None
    if args.coverage or args.coverage_json is not None:
        counted = Coverage.of(text, str(args.file))
    try:
        workflow = Workflow(text, str(args.file), counted)
        mocks = _mocks(args.mock)
    except FaultySource as exc:
        print(exc, file=sys.stderr)
        return 2
    try:
        if args.virtual_time or mocks is not None:
            code = virtual.run(lambda: _in_virtual_time(args, workflow, mocks))
        else:
            code = asyncio.run(_in_real_time(args, workflow))
        if counted is not None:
            _tell_coverage(args, counted)
        return code
    except ApiError as exc:
        print(json.dumps({"message": exc.message, "code": exc.code}), file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


def _tell_coverage(args: argparse.Namespace, counted: Coverage) -> None:
    if args.coverage:
        print("\n".join(counted.lines()), file=sys.stderr)
    path = args.coverage_json
    if path is not None:
        earlier = _coverages([path]) if path.exists() else []
        _write(path, coverage.dump(_merged([*earlier, counted])))


def _coverages(files: Sequence[Path]) -> list[Coverage]:
    try:
        return [one for path in files for one in coverage.load(_read(path), str(path))]
    except ValueError as exc:
        raise SystemExit(str(exc)) from None


def _merged(found: list[Coverage]) -> list[Coverage]:
    try:
        return coverage.merge(found)
    except ValueError as exc:
        raise SystemExit(str(exc)) from None


def _report_coverage(args: argparse.Namespace) -> int:
    found = _merged(_coverages(args.file))
    for one in found:
        print("\n".join(one.lines()))
    if args.json is not None:
        _write(args.json, coverage.dump(found))
    reached = coverage.share(found)
    if reached < args.fail_under:
        print(f"{reached:.1f} % is under {args.fail_under:g} %", file=sys.stderr)
        return 1
    return 0


def _graph(path: Path) -> int:
    try:
        workflow = Workflow(_read(path), str(path))
    except FaultySource as exc:
        print(exc, file=sys.stderr)
        return 2
    print(mermaid(workflow.model), end="")
    return 0


async def _serve(
    args: argparse.Namespace, workflows: dict[str, Workflow], mocks: Mocks | None
) -> int:
    from workflows_engine.http_client import HttpClient
    from workflows_engine.server import Server

    client = HttpClient()
    server = Server(lambda url: _engine(args, client, mocks, base_url=url))
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    await server.start(args.host, args.port, args.grpc_port)
    try:
        for name, workflow in workflows.items():
            server.engine.deploy(name, workflow)
        print(server.url)
        print(f"grpc://{server.grpc_target}", flush=True)
        await stop.wait()
    finally:
        await server.stop()
        await client.close()
    return 0


def _start(args: argparse.Namespace) -> int:
    workflows = {}
    faults = 0
    for name, file in args.workflow:
        try:
            workflows[name] = Workflow(_read(Path(file)), file)
        except FaultySource as exc:
            print(exc, file=sys.stderr)
            faults += 1
    try:
        mocks = _mocks(args.mock)
    except FaultySource as exc:
        print(exc, file=sys.stderr)
        faults += 1
    if faults:
        return 2
    try:
        return asyncio.run(_serve(args, workflows, mocks))
    except ApiError as exc:
        print(f"cannot deploy: {exc.message}", file=sys.stderr)
        return 1
    except OSError as exc:
        print(f"cannot listen on {args.host}:{args.port}: {exc}", file=sys.stderr)
        return 1


def main(argv: Sequence[str] | None = None) -> int:
    """The command; gives its exit code."""
    args = _parser().parse_args(argv)
    match args.command:
        case "check":
            return _check(args.file, args.strict, args.json)
        case "run":
            return _run(args)
        case "coverage":
            return _report_coverage(args)
        case "graph":
            return _graph(args.file)
        case "mock-schema":
            print(json.dumps(MockFile.model_json_schema(), indent=2))
            return 0
        case _:
            return _start(args)
