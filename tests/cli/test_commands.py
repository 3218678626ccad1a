"""What holds for every command: help with an example, errors as one line, exit codes."""

from __future__ import annotations

import json
from importlib import metadata
from pathlib import Path

import pytest
from google.api_core.exceptions import PermissionDenied, ServiceUnavailable
from lustrum.cli import app
from lustrum.core.errors import ServiceError
from lustrum.core.failures import Failure

from tests.cli.conftest import Shell

COMMANDS = [command.name or "" for command in app.registered_commands]


class TestHelp:
    def test_no_argument_shows_help_with_every_command(self, lustrum: Shell) -> None:
        result = lustrum()
        assert result.exit_code == 0
        for name in (
            "plan",
            "start",
            "list",
            "watch",
            "cancel",
            "extend",
            "report",
            "doctor",
            "dashboard",
        ):
            assert f"  {name} " in result.stdout

    @pytest.mark.parametrize("name", COMMANDS)
    def test_help_of_every_command_has_an_example(self, lustrum: Shell, name: str) -> None:
        result = lustrum(name, "--help")
        assert result.exit_code == 0
        assert f"Example: lustrum {name}" in result.stdout

    @pytest.mark.parametrize("name", COMMANDS)
    def test_first_sentence_of_every_command_fits_the_list(
        self, lustrum: Shell, name: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("COLUMNS", "80")
        [line] = [one for one in lustrum().stdout.splitlines() if one.startswith(f"  {name} ")]
        assert not line.endswith("...")


class TestVersion:
    def test_version_is_that_of_the_package_that_is_installed(self, lustrum: Shell) -> None:
        result = lustrum("--version")
        assert result.exit_code == 0
        assert result.stdout == f"lustrum {metadata.version('lustrum')}\n"


class TestErrors:
    @pytest.mark.parametrize(
        ("words", "stdin", "expected"),
        [
            (["frob"], None, "No such command"),
            (["--frob"], None, "No such option"),
            (["plan"], None, "Missing argument 'FILE'"),
            (["plan", "/no/such.json"], None, 'FILE: "/no/such.json": No such file'),
            (["plan", "-"], "", "is empty; write {}"),
            (["plan", "-"], "{", "message"),
            (["plan", "-"], '{"nodes": "eight"}', 'nodes: "eight"'),
            (["plan", "-"], '{"node": 8}', 'node: "(not shown)": is not a known field'),
            (["plan", "-"], '{"limits": {"hours": 900}}', "limits.hours: 900"),
            (["plan", "-"], '{"overrides": {"grpo.x": "$(id)"}}', "overrides.grpo.x"),
            (
                ["plan", "-"],
                '{"action": "cancel", "run_id": "rl-0123456789"}',
                'action: "cancel": use `lustrum cancel RUN`',
            ),
            (["start", "-"], '{"profile": "none"}', 'profile: "none": must be one of'),
            (["watch", "../etc"], None, 'RUN: "../etc": must be a run id'),
            (["cancel", "rl-0123456789"], None, "is not a run known here"),
            (["extend", "rl-0123456789", "many"], None, 'HOURS: "many": must be a number'),
            (["extend", "rl-0123456789", "-1"], None, "No such option"),
            (["report", "rl-0123456789"], None, "is not a run known here"),
            (["dashboard", "rl-0123456789"], None, "is not a run known here"),
            (["--env", "/no/such.json", "list"], None, "--env"),
        ],
    )
    def test_bad_input_is_one_line_and_exit_2(
        self, lustrum: Shell, words: list[str], stdin: str | None, expected: str
    ) -> None:
        result = lustrum(*words, stdin=stdin)
        assert result.exit_code == 2
        assert result.stderr.startswith("error: ") and result.stderr.count("\n") == 1
        assert expected in result.stderr
        assert not lustrum.sent

    @pytest.mark.parametrize("name", ["list", "watch rl-0123456789", "start -"])
    def test_missing_environment_is_named(self, lustrum: Shell, name: str) -> None:
        lustrum.env.clear()
        result = lustrum(*name.split(), stdin="{}")
        assert result.exit_code == 2
        assert "LUSTRUM_PROJECT is not set" in result.stderr and "--env FILE" in result.stderr

    @pytest.mark.parametrize(
        ("error", "expected"),
        [
            (PermissionDenied("nope"), "lustrum doctor"),
            (ServiceUnavailable("away"), "away"),
            (ServiceError(Failure.ACCESS, "no Google credentials"), "credentials"),
        ],
    )
    def test_failure_of_a_service_is_one_line_and_exit_1(
        self, lustrum: Shell, error: Exception, expected: str
    ) -> None:
        lustrum.ledger.broken = error
        result = lustrum("list")
        assert result.exit_code == 1
        assert result.stderr.startswith("error: ") and result.stderr.count("\n") == 1
        assert expected in result.stderr


class TestEnvironmentFile:
    def test_env_file_stands_below_the_environment(self, lustrum: Shell, tmp_path: Path) -> None:
        given = {**lustrum.env, "LUSTRUM_REGION": "from-file", "LUSTRUM_EXPORT_BUCKET": "filed"}
        given["LUSTRUM_SLOTS"] = json.loads(given["LUSTRUM_SLOTS"])
        path = tmp_path / "environment.json"
        path.write_text(json.dumps(given))
        lustrum.env = {"LUSTRUM_EXPORT_BUCKET": "mine"}
        result = lustrum("--env", str(path), "plan", "-", "--json", stdin="{}")
        found = json.loads(result.stdout)
        assert found["plan"]["export_to"].startswith("gs://mine/")
        assert found["blueprint"]["_PROJECT"] == "project-x"
        assert found["zones"][0]["slots"] == ["us-east1-0"]

    def test_env_file_that_is_no_object_is_refused(self, lustrum: Shell, tmp_path: Path) -> None:
        path = tmp_path / "environment.json"
        path.write_text("[1]")
        assert lustrum("--env", str(path), "list").exit_code == 2
