"""The commands: run, check and serve, as a user's shell sees them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from workflows_engine.cli import main

ROOT = Path(__file__).parents[2]
COMMAND = [sys.executable, "-m", "workflows_engine"]

GREET = "main: {params: [a], steps: [{s: {return: '${a.n + 1}'}}]}"


@pytest.fixture
def flow(tmp_path: Path) -> Path:
    path = tmp_path / "flow.yaml"
    path.write_text(GREET, encoding="utf-8")
    return path


class TestCheck:
    def test_ok(self, flow: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["check", str(flow)]) == 0
        assert capsys.readouterr().out == "ok\n"

    def test_faults(self, flow: Path, capsys: pytest.CaptureFixture[str]) -> None:
        flow.write_text("- a:\n    return: ${x}\n", encoding="utf-8")
        assert main(["check", str(flow)]) == 2
        assert capsys.readouterr().out.startswith(f"{flow}:2: symbol 'x'")

    def test_a_missing_file_is_one_line(self, flow: Path) -> None:
        with pytest.raises(SystemExit, match="cannot read"):
            main(["check", str(flow) + "x"])


class TestRun:
    def test_result_on_stdout(self, flow: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["run", str(flow), "--data", '{"n": 1}', "--virtual-time"]) == 0
        assert capsys.readouterr().out == "2\n"

    def test_real_time(self, flow: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["run", str(flow), "--data", '{"n": 1}']) == 0
        assert capsys.readouterr().out == "2\n"

    def test_error_map_on_stderr(self, flow: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["run", str(flow), "--data", "{}", "--virtual-time"]) == 1
        out, err = capsys.readouterr()
        assert out == ""
        assert json.loads(err)["tags"] == ["KeyError", "LookupError"]

    def test_faults_are_found_first(self, flow: Path, capsys: pytest.CaptureFixture[str]) -> None:
        flow.write_text("- a: {return: '${x}'}\n", encoding="utf-8")
        assert main(["run", str(flow)]) == 2
        assert "symbol 'x'" in capsys.readouterr().err

    def test_an_argument_that_is_no_json(
        self, flow: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert main(["run", str(flow), "--data", "{oops", "--virtual-time"]) == 1
        assert "not valid JSON" in capsys.readouterr().err

    def test_steps_and_bill(self, flow: Path, capsys: pytest.CaptureFixture[str]) -> None:
        flow.write_text(
            "- a: {call: sys.sleep, args: {seconds: 90}}\n"
            "- b: {call: sys.log, args: {text: hello}}\n"
            "- c: {return: '${sys.get_env(\"A\")}'}\n",
            encoding="utf-8",
        )
        arguments = ["run", str(flow), "--virtual-time", "--verbose", "--env", "A=b"]
        assert main([*arguments, "--seed", "3"]) == 0
        out, err = capsys.readouterr()
        assert out == '"b"\n'
        assert "90.000 s  main.b  succeeded" in err
        assert "billed steps: 3 internal, 0 external" in err
        assert "DEFAULT: hello" in err


@contextmanager
def serving(*arguments: str) -> Iterator[tuple[str, str, subprocess.Popen[str]]]:
    """A running server: its REST URL, its gRPC target, the process."""
    process = subprocess.Popen(
        [*COMMAND, "serve", *arguments],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**os.environ, "GRPC_VERBOSITY": "NONE"},
    )
    assert process.stdout is not None
    try:
        url = process.stdout.readline().strip()
        grpc_target = process.stdout.readline().strip().removeprefix("grpc://")
        yield url, grpc_target, process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def ask(method: str, url: str, body: object = None) -> tuple[int, dict[str, object]]:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(
        url, data, {"Content-Type": "application/json"}, method=method
    )
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            text = answer.read()
            return answer.status, json.loads(text) if text else {}
    except urllib.error.HTTPError as exc:
        return exc.code, json.loads(exc.read() or b"{}")


class TestServe:
    PARENT = "projects/p/locations/l/workflows/greet"

    def test_serves_until_it_is_told_to_stop(self, flow: Path) -> None:
        arguments = ("--workflow", f"greet={flow}", "--project", "p", "--location", "l")
        with serving(*arguments) as (url, _, process):
            assert url.startswith("http://127.0.0.1:")
            status, workflow = ask("GET", f"{url}/v1/{self.PARENT}")
            assert (status, workflow["sourceContents"]) == (200, GREET)
            process.send_signal(signal.SIGTERM)
            assert process.wait(timeout=30) == 0

    def test_a_faulty_workflow_does_not_start(self, flow: Path) -> None:
        flow.write_text("- a: {return: '${x}'}\n", encoding="utf-8")
        done = subprocess.run(
            [*COMMAND, "serve", "--workflow", f"w={flow}"],
            capture_output=True,
            text=True,
            timeout=60,
            cwd=ROOT,
        )
        assert done.returncode == 2
        assert "symbol 'x'" in done.stderr

    def test_a_bad_pair_is_a_usage_error(self) -> None:
        with pytest.raises(SystemExit) as raised:
            main(["serve", "--env", "novalue"])
        assert raised.value.code == 2


class TestFindings:
    @pytest.mark.parametrize(("options", "code"), [((), 0), (("--strict",), 2)])
    def test_a_warning_is_an_error_on_demand(
        self, options: tuple[str, ...], code: int, tmp_path: Path
    ) -> None:
        path = tmp_path / "w.yaml"
        path.write_text("- a: {return: no}", encoding="utf-8")
        assert main(["check", *options, str(path)]) == code

    def test_findings_as_json(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        path = tmp_path / "w.yaml"
        path.write_text("- a: {return: no, next: b}", encoding="utf-8")
        assert main(["check", "--json", str(path)]) == 2
        found = json.loads(capsys.readouterr().out)
        assert {one["severity"] for one in found} == {"warning", "error"}
        assert all(one["path"] == str(path) and one["line"] == 1 for one in found)
