"""The local stack that stays: who holds it, what its shell reads, what its commands refuse."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import psutil
import pytest
from typer.testing import CliRunner

from infra.local import command, kept
from infra.local.cloud import Cloud, server
from infra.local.cloud.state import Problem
from infra.local.kept import Kept
from infra.local.run import forget_old_runs


def held_by(pid: int, began: float) -> Kept:
    return Kept(pid, began, "root", "http://127.0.0.1:9/_local", "http://127.0.0.1:9", {})


def write(home: Path, found: Kept) -> None:
    home.mkdir(exist_ok=True)
    (home / "state.json").write_text(json.dumps(asdict(found)))
    (home / "env").write_text("")


class TestCurrent:
    def test_a_stack_whose_process_lives_is_up(self, tmp_path: Path) -> None:
        mine = held_by(os.getpid(), psutil.Process().create_time())
        write(tmp_path, mine)
        assert kept.current(tmp_path) == mine
        assert kept.up(lambda text: None, tmp_path) == (mine, False)

    @pytest.mark.parametrize("began", [1.0, None])
    def test_what_a_dead_one_left_is_removed_also_when_its_number_is_anothers(
        self, tmp_path: Path, began: float | None
    ) -> None:
        pid = os.getpid() if began is not None else 4_194_305  # beyond the largest of Linux
        write(tmp_path, held_by(pid, began or 0.0))
        assert kept.current(tmp_path) is None
        assert not list(tmp_path.iterdir())

    def test_a_state_that_cannot_be_read_is_none(self, tmp_path: Path) -> None:
        (tmp_path / "state.json").write_text('{"pid": 1')
        assert kept.current(tmp_path) is None and not list(tmp_path.iterdir())

    def test_down_ends_the_process_and_forgets_it(self, tmp_path: Path) -> None:
        child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
        write(tmp_path, held_by(child.pid, psutil.Process(child.pid).create_time()))
        assert kept.down(tmp_path) is not None
        assert child.wait(10) < 0 and not list(tmp_path.iterdir())
        assert kept.down(tmp_path) is None


class TestEnvironment:
    def test_a_shell_reads_every_value_back_and_finds_the_commands(self) -> None:
        values = {"LUSTRUM_SLOTS": '[{"name": "a b"}]', "LUSTRUM_X": "it's $HOME; `id`\n2"}
        script = kept.exports(values) + 'printf "%s|%s" "$LUSTRUM_SLOTS" "$LUSTRUM_X"; '
        script += "command -v lustrum-local"
        answer = subprocess.run(
            ["bash", "-c", script], capture_output=True, text=True, check=True, timeout=20
        )
        assert answer.stdout.startswith(f"{values['LUSTRUM_SLOTS']}|{values['LUSTRUM_X']}")
        assert answer.stdout.strip().endswith("infra/local/commands/lustrum-local")

    def test_nothing_but_what_the_command_needs_is_written(self) -> None:
        found = kept.visible({"LUSTRUM_PROJECT": "p", "AWS_SECRET": "s", "LUSTRUM_KUBECONFIG": ""})
        assert found == {"LUSTRUM_PROJECT": "p"}


class TestCommand:
    @pytest.fixture(autouse=True)
    def nowhere(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(kept.current, "__defaults__", (tmp_path,))
        monkeypatch.setattr(kept.needed, "__defaults__", (tmp_path,))

    @pytest.mark.parametrize(
        "words",
        [
            ["preempt", "rl-0123456789"],
            ["stockout", "us-east1-b"],
            ["fill", "rl-0123456789", "85%"],
            ["kill-head", "rl-0123456789"],
            ["stall", "rl-0123456789"],
            ["heal"],
            ["env"],
            ["notifications"],
        ],
    )
    def test_without_a_stack_each_says_how_to_start_one(self, words: list[str]) -> None:
        result = CliRunner().invoke(command.app, words)
        assert result.exit_code == 1
        assert result.stderr == "error: no local stack is up; start one: make up\n"

    def test_status_without_a_stack_exits_1(self) -> None:
        result = CliRunner().invoke(command.app, ["status"])
        assert result.exit_code == 1 and "make up" in result.stdout

    @pytest.mark.parametrize("text", ["full", "101%", "-1", "nan", ""])
    def test_a_share_that_is_none_is_refused(self, text: str) -> None:
        with pytest.raises(Exception, match="must be 0 to 100"):
            command._percent(text)

    def test_a_share_is_read_with_and_without_its_sign(self) -> None:
        assert command._percent("85%") == command._percent("85") == 85.0


class TestFill:
    def test_pods_see_a_full_instance_and_nobody_else_does(self, tmp_path: Path) -> None:
        (tmp_path / "rl-a" / "run").mkdir(parents=True)
        (tmp_path / "rl-b").mkdir()
        (tmp_path / ".rl-a.used").write_text("0.97")
        code = (
            "import shutil, sys\n"
            "for path in sys.argv[1:]:\n"
            "    usage = shutil.disk_usage(path)\n"
            "    print(1 - usage.free / usage.total)\n"
        )
        env = {"PYTHONPATH": str(server.SITE), "LUSTRUM_LOCAL_LUSTRE": str(tmp_path)}
        places = [str(tmp_path / "rl-a" / "run"), str(tmp_path / "rl-b"), "/"]
        answer = subprocess.run(
            [sys.executable, "-c", code, *places],
            env=env,
            capture_output=True,
            text=True,
            check=True,
            timeout=20,
        )
        full, *others = map(float, answer.stdout.split())
        assert full == pytest.approx(0.97, abs=1e-3)
        assert all(one != pytest.approx(0.97, abs=1e-3) for one in others)

    def test_an_instance_that_is_not_there_is_refused(self, tmp_path: Path) -> None:
        cloud = Cloud(tmp_path, "project-x")
        with pytest.raises(Problem, match="no Lustre instance rl-0123456789"):
            cloud.fill("rl-0123456789", 0.5)
        with pytest.raises(Problem, match="share must be 0 to 1"):
            cloud.fill("rl-0123456789", 85)


def test_all_but_the_newest_kept_runs_are_removed(tmp_path: Path) -> None:
    for number in range(12):
        one = tmp_path / f"rl-{number:010}"
        (one / "stack-logs").mkdir(parents=True)
        os.utime(one, (number, number))
    (tmp_path / "mine").mkdir()
    forget_old_runs(tmp_path, 9)
    left = sorted(one.name for one in tmp_path.iterdir())
    assert left == ["mine", *(f"rl-{number:010}" for number in range(3, 12))]
