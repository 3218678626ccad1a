"""One attempt of a training under the real supervisor, as a process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path

import psutil
import pytest
from lustrum.core.progress import log_events

from .conftest import RUN, Head, wait_for

PYTHON_39 = Path.home() / ".pyenv/versions/3.9.18/bin/python3.9"


class TestAttempt:
    def test_train_to_the_end(self, head: Head) -> None:
        assert head.train("train(1, 6)", max_steps=6) == 0
        completed = head.events()[-1]
        assert completed["type"] == "job.completed"
        assert completed["exit_code"] == 0
        assert (completed["total_steps"], completed["max_steps"]) == (6, 6)
        assert completed["class"] is None
        assert completed["event_id"] == f"{RUN}-a1-job.completed-6"
        assert [event["step"] for event in head.events("checkpoint.saved")] == [2, 4, 6]

    def test_train_reports_each_step_once(self, head: Head) -> None:
        head.train("train(1, 5)", max_steps=5)
        steps = [step for event in head.events("job.progress") for step in event["steps"]]
        assert [step["step"] for step in steps] == [1, 2, 3, 4, 5]
        assert [step["reward"] for step in steps] == [0.01, 0.02, 0.03, 0.04, 0.05]
        assert head.last("job.progress")["save_seconds"] == 0.25

    def test_train_passes_every_line_on_and_into_the_log(self, head: Head) -> None:
        head.train("say('one'); print('\\rbar 10%\\rbar 20%', end=''); print(' x' * 50000)")
        for text in (head.text(), (head.logs / "attempt-1.log").read_text()):
            assert "\none\n" in text
            assert text.count(" x") == 50_000
            assert '"type": "job.completed"' in text
        assert head.last("job.completed")  # its line begins at the start of a line

    def test_train_an_event_that_the_training_prints_itself_is_none(self, head: Head) -> None:
        forged = {"type": "job.completed", "run_id": RUN, "attempt": 1, "exit_code": 0}
        line = "LUSTRUM " + json.dumps({**forged, "ended": "data"})
        script = f"for end in ('', '\\r', '\\x0c', '\\u2028', 'x' * 65530): say(end + {line!r})"
        assert head.train(f"{script}\nsys.exit(3)") == 3
        for text in (head.text(), (head.logs / "attempt-1.log").read_text()):
            found = [one for one in log_events(text, RUN, 1) if one.type == "job.completed"]
            assert [one.exit_code for one in found] == [3]
            assert text.count("LUSTRUM_{") >= 4  # shown, but not as an event

    def test_train_the_exit_code_is_the_training_s(self, head: Head) -> None:
        assert head.train("sys.exit(7)") == 7
        assert head.last("job.completed")["exit_code"] == 7
        assert head.last("job.completed")["class"] is None

    def test_train_killed_training_is_128_plus_signal(self, head: Head) -> None:
        assert head.train("os.kill(os.getpid(), 9)") == 137
        assert head.last("job.completed")["exit_code"] == 137

    def test_train_early_exit_0_is_not_the_last_step_c12(self, head: Head) -> None:
        assert head.train("train(1, 12)", max_steps=20) == 0
        completed = head.last("job.completed")
        assert (completed["exit_code"], completed["total_steps"]) == (0, 12)

    def test_train_missing_command_is_config(self, head: Head) -> None:
        assert head.run("train", command=["/nowhere/uv", "run"]) == 127
        assert head.last("job.completed")["class"] == "CONFIG"
        assert "/nowhere/uv" in head.last("job.completed")["message"]

    @pytest.mark.parametrize(
        ("line", "failure"),
        [
            ("OSError: [Errno 28] No space left on device: '%s/runs/x/f'", "LUSTRE_FULL"),
            ("OSError: [Errno 28] No space left on device: '/tmp/ray/f' %.0s", None),
            ("torch.OutOfMemoryError: CUDA out of memory.%.0s", "USER_OOM"),
            ("KeyError: 'answer'%.0s", None),
        ],
    )
    def test_train_names_the_class_a_line_gives_away(
        self, head: Head, line: str, failure: str | None
    ) -> None:
        assert head.train(f"say({line % head.lustre!r}); sys.exit(1)") == 1
        completed = head.last("job.completed")
        assert completed["class"] == failure
        assert line.split("%")[0].strip() in completed["message"]

    def test_train_an_odd_line_never_stops_the_reading(self, head: Head) -> None:
        """More than a pipe holds comes after it: were nobody reading, the training would hang."""
        script = (
            "banner(1); say('📊 Training Results:'); say('  • Avg Reward: 1.2.3')\n"
            "say('Saving checkpoint for step ' + '9' * 5000 + '...')\n"
            "sys.stdout.buffer.write(b'half \\xe2\\x82\\n' + b'x' * 2**16)\n"
            "sys.stdout.flush(); say('y' * 2**17); write(1); results(1)"
        )
        assert head.train(script, max_steps=2, stall_seconds=20) == 0
        points = [step for one in head.events("job.progress") for step in one["steps"]]
        assert [step["reward"] for step in points] == [None, 0.01]

    def test_train_unwritable_lustre_ends_with_a_class(self, head: Head) -> None:
        head.lustre.rmdir()
        head.lustre.write_text("a file")
        assert head.train("say('never')") == 72
        assert head.last("job.completed")["class"] == "LUSTRE_CONFIG"
        assert "never" not in head.text()

    @pytest.mark.skipif(not PYTHON_39.exists(), reason="no Python 3.9 here")
    def test_train_on_python_3_9(self, head: Head) -> None:
        head.python = str(PYTHON_39)
        assert head.train("train(1, 4)", max_steps=4) == 0
        assert head.last("job.completed")["total_steps"] == 4

    def test_spec_unknown_key_is_named(self, head: Head) -> None:
        assert head.run("train", comand=["x"]) == 78
        assert "spec.comand" in head.last("job.completed")["message"]

    def test_spec_from_a_file(self, head: Head, tmp_path: Path) -> None:
        path = tmp_path / "spec.json"
        path.write_text(json.dumps(head.spec()))
        done = subprocess.run(
            ["python3", str(head.supervisor), "list", "--spec", str(path)], capture_output=True
        )
        assert done.returncode == 0
        assert b'"checkpoint.list"' in done.stdout

    def test_command_is_never_read_by_a_shell(self, head: Head, tmp_path: Path) -> None:
        command = [*head.command("say(repr(sys.argv[1:]))"), f"a; touch {tmp_path}/pwned", "$HOME"]
        head.run("train", command=command)
        assert "$HOME" in head.text()
        assert not (tmp_path / "pwned").exists()


class TestResume:
    def test_resume_counts_from_the_newest_complete_step(self, head: Head) -> None:
        head.checkpoint("step_4", 4)
        assert head.train("train(5, 8)", max_steps=8) == 0
        assert head.last("attempt.started")["step"] == 4
        steps = [step for event in head.events("job.progress") for step in event["steps"]]
        assert [step["step"] for step in steps] == [5, 6, 7, 8]

    def test_resume_removes_what_an_interrupted_save_left_c11(self, head: Head) -> None:
        head.checkpoint("step_4", 4)
        head.checkpoint("tmp_step_6", 6)
        head.checkpoint("old_step_4", 4)
        head.train("say('holds ' + ' '.join(sorted(os.listdir(root))))")
        assert "holds step_4\n" in head.text()

    def test_resume_restores_a_step_caught_between_two_renames(self, head: Head) -> None:
        head.checkpoint("old_step_4", 4)
        head.train("say('holds ' + ' '.join(sorted(os.listdir(root))))")
        assert "holds step_4\n" in head.text()
        assert head.last("attempt.started")["step"] == 4

    def test_resume_puts_a_broken_newest_step_out_of_the_way(self, head: Head) -> None:
        head.checkpoint("step_4", 4)
        head.checkpoint("step_6")  # without training_info.json NeMo-RL crashes at load
        head.train("say('holds ' + ' '.join(sorted(os.listdir(root))))")
        assert "holds broken_step_6 step_4\n" in head.text()
        assert head.last("checkpoint.set_aside")["steps"] == [6]

    def test_resume_finished_run_trains_nothing(self, head: Head) -> None:
        head.checkpoint("step_20", 20)
        assert head.train("say('64 GPUs for nothing')", max_steps=20) == 0
        assert "for nothing" not in head.text()
        assert head.last("job.completed")["total_steps"] == 20

    def test_resume_other_model_is_refused_c10(self, head: Head) -> None:
        head.checkpoint("step_4", 4, model="meta-llama/Llama-3.3-70B-Instruct")
        assert head.train("say('never')", model="Qwen/Qwen2.5-72B-Instruct") == 78
        completed = head.last("job.completed")
        assert completed["class"] == "CONFIG"
        assert "meta-llama/Llama-3.3-70B-Instruct" in completed["message"]
        assert "never" not in head.text()

    def test_resume_same_model_is_accepted(self, head: Head) -> None:
        head.checkpoint("step_4", 4, model="Qwen/Qwen2.5-72B-Instruct")
        assert head.train("say('resumed')", model="Qwen/Qwen2.5-72B-Instruct") == 0

    def test_resume_tells_of_a_step_committed_as_the_last_attempt_died(self, head: Head) -> None:
        step = head.checkpoint("step_4", 4)
        head.train("pass", attempt=2)
        assert head.last("checkpoint.saved")["checkpoint"]["step"] == 4
        assert (step / "lustrum-manifest.json").exists()

    def test_resume_half_a_conversion_is_removed(self, head: Head) -> None:
        half = head.lustre / "cache/huggingface/nemo_rl/org/model/iter_0000000"
        half.mkdir(parents=True)
        head.train("sys.exit(1)", model="org/model")
        assert not half.exists()

    def test_resume_a_conversion_that_served_a_step_stays(self, head: Head) -> None:
        whole = head.lustre / "cache/huggingface/nemo_rl/org/model/iter_0000000"
        script = f"os.makedirs({str(whole)!r}); banner(1); hold({str(head.lustre / 'go')!r})"
        process = head.start("train", command=head.command(script), model="org/model")
        wait_for("the marker", (whole.parent / "lustrum-converted").exists)
        (head.lustre / "go").touch()
        assert process.wait(10) == 0
        head.train("pass", model="org/model", attempt=2)
        assert whole.exists()


class TestManifest:
    def test_manifest_names_every_file(self, head: Head) -> None:
        head.train("train(1, 2)", max_steps=2)
        folder = head.checkpoints / "step_2"
        manifest = json.loads((folder / "lustrum-manifest.json").read_text())
        assert set(manifest["sizes"]) == {
            "policy/weights/model.bin",
            "training_info.json",
            "config.yaml",
        }
        assert manifest["files"] == 3
        assert manifest["bytes"] == sum(manifest["sizes"].values())
        assert (manifest["step"], manifest["attempt"]) == (2, 1)
        saved = head.last("checkpoint.saved")
        assert saved["checkpoint"]["bytes"] == manifest["bytes"]
        assert 0 <= saved["checkpoint"]["seconds"] < DEADLINE_OF_A_SAVE

    def test_manifest_unwritable_is_said_and_does_not_end_the_training(self, head: Head) -> None:
        script = "os.mkdir(root / 'step_2'); (root / 'step_2' / 'lustrum-manifest.json').mkdir()\n"
        script += "(root / 'step_2' / 'lustrum-manifest.json' / 'x').touch(); train(3, 4)"
        assert head.train(script, max_steps=4) == 0
        saved = {event["step"]: event for event in head.events("checkpoint.saved")}
        assert saved[2]["manifest"] is False
        assert saved[4]["manifest"] is True

    def test_manifest_a_truncated_file_makes_the_step_incomplete(self, head: Head) -> None:
        head.train("train(1, 4)", max_steps=4)
        (head.checkpoints / "step_4/policy/weights/model.bin").write_bytes(b"short")
        head.run("list")
        listed = {
            item["step"]: item["complete"] for item in head.last("checkpoint.list")["checkpoints"]
        }
        assert listed == {2: True, 4: False}


DEADLINE_OF_A_SAVE = 10


class TestStall:
    def test_stall_ends_the_training_with_hang(self, head: Head) -> None:
        script = "train(1, 2); say('hangs')\nwhile True: say('noise'); time.sleep(0.05)"
        assert head.train(script, max_steps=20, stall_seconds=1.0) == 85
        assert head.last("job.stalled")["step"] == 2
        completed = head.events()[-1]
        assert (completed["type"], completed["class"]) == ("job.completed", "HANG")
        assert completed["exit_code"] == 85

    def test_stall_training_that_ignores_sigterm_is_killed(self, head: Head) -> None:
        script = "signal.signal(signal.SIGTERM, signal.SIG_IGN); say('pid %d' % os.getpid())\n"
        script += "time.sleep(3600)"
        assert (
            head.train(script, stall_seconds=0.3, startup_stall_seconds=0.3, grace_seconds=0.3)
            == 85
        )
        assert not psutil.pid_exists(_pid(head))

    def test_stall_a_growing_save_is_progress(self, head: Head) -> None:
        script = "banner(1); write(2, commit=False)\nfor _ in range(30):\n"
        script += "    open(root / 'tmp_step_2/policy/weights/model.bin', 'ab').write(b'w' * 9)\n"
        script += "    time.sleep(0.1)"
        assert head.train(script, stall_seconds=1.0) == 0
        assert not head.events("job.stalled")

    def test_stall_before_the_first_step_has_its_own_patience(self, head: Head) -> None:
        assert head.train("time.sleep(1.5)", stall_seconds=0.2, startup_stall_seconds=30) == 0


class TestHungFileSystem:
    """A named pipe that nobody reads or writes hangs whoever opens it, as a lost Lustre does."""

    def test_hung_log_does_not_hang_the_training(self, head: Head) -> None:
        head.logs.mkdir(parents=True)
        os.mkfifo(head.logs / "attempt-1.log")
        assert head.train("train(1, 4)", max_steps=4, flush_seconds=0.3) == 0
        assert head.last("job.completed")["total_steps"] == 4

    def test_hung_checkpoints_do_not_hide_a_stall(self, head: Head) -> None:
        script = "os.mkdir(root / 'step_2'); os.mkfifo(root / 'step_2/training_info.json')\n"
        script += "banner(1); time.sleep(600)"
        assert head.train(script, stall_seconds=0.5, settle_seconds=0.3, grace_seconds=1) == 85
        assert head.events()[-1]["type"] == "job.completed"
        assert head.events()[-1]["class"] == "HANG"


class TestSignals:
    @pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
    def test_signal_reaches_the_training_and_is_told(self, head: Head, signum: int) -> None:
        script = f"signal.signal({int(signum)}, lambda *_: (say('got it'), sys.exit(3)))\n"
        process = head.start("train", command=head.command(script + "say('up'); time.sleep(600)"))
        wait_for("the training", lambda: "\nup\n" in head.text())
        process.send_signal(signum)
        assert process.wait(10) == 3
        assert "got it" in head.text()
        assert head.events()[-1]["type"] == "job.completed"

    def test_signal_default_action_is_128_plus_n(self, head: Head) -> None:
        process = head.start("train", command=head.command("say('up'); time.sleep(600)"))
        wait_for("the training", lambda: "\nup\n" in head.text())
        process.terminate()
        assert process.wait(10) == 143
        assert head.last("job.completed")["exit_code"] == 143

    def test_signal_kill_after_the_grace(self, head: Head) -> None:
        script = "signal.signal(signal.SIGTERM, signal.SIG_IGN); say('pid %d' % os.getpid())\n"
        process = head.start(
            "train", command=head.command(script + "time.sleep(600)"), grace_seconds=0.3
        )
        wait_for("the training", lambda: "pid " in head.text())
        process.terminate()
        assert process.wait(10) == 137
        assert not psutil.pid_exists(_pid(head))

    def test_signal_no_descendant_outlives_the_job(self, head: Head) -> None:
        script = "import subprocess; p = subprocess.Popen(['sleep', '600']); say('pid %d' % p.pid)"
        assert head.train(script) == 0
        pid = _pid(head)
        wait_for("the end of the descendant", lambda: not _runs(pid))

    def test_an_attempt_that_a_later_one_overtakes_ends(self, head: Head) -> None:
        first = head.start("train", command=head.command("train(1, 2); time.sleep(600)"))
        first_log = head.output
        wait_for("step 2", lambda: '"checkpoint.saved"' in first_log.read_text())
        head.output = first_log.with_name("second.log")
        assert head.train("train(3, 4)", attempt=2) == 0
        assert head.last("job.completed")["step"] == 4
        assert first.wait(10) == 75
        said = first_log.read_text()
        assert "attempt 2 has begun: this one ends" in said
        assert said.count('"checkpoint.saved"') == 1, "it tells nothing of the other's steps"
        assert head.train("say('never')", attempt=1) == 75
        assert "never" not in head.text()

    def test_signal_killed_supervisor_takes_the_training_with_it(self, head: Head) -> None:
        script = "say('pid %d' % os.getpid()); time.sleep(600)"
        process = head.start("train", command=head.command(script))
        wait_for("the training", lambda: "pid " in head.text())
        process.kill()
        process.wait(10)
        pid = _pid(head)
        wait_for("the end of the training", lambda: not _runs(pid))


class TestPrivacy:
    def test_secrets_are_taken_out_of_the_output(self, head: Head, tmp_path: Path) -> None:
        (tmp_path / "token").write_text("hf_filetoken-short\n")
        (tmp_path / "netrc").write_text(
            "machine api.wandb.ai login user password 0123abcdef0123\n"
        )
        head.environment = {
            "HF_TOKEN_PATH": str(tmp_path / "token"),
            "NETRC": str(tmp_path / "netrc"),
            "MY_API_KEY": "a-key-in-the-environment",
        }
        script = "say(repr(dict(os.environ))); say('hf_' + 'A' * 30)\n"
        script += (
            "say(open(os.environ['HF_TOKEN_PATH']).read() + open(os.environ['NETRC']).read())"
        )
        head.train(script)
        for text in (head.text(), (head.logs / "attempt-1.log").read_text()):
            for secret in (
                "a-key-in-the-environment",
                "hf_filetoken-short",
                "0123abcdef0123",
                "hf_AAAA",
            ):
                assert secret not in text
            assert "<redacted>" in text
        assert "HF_TOKEN_PATH" in head.text()  # the path itself is no secret


def _pid(head: Head) -> int:
    line = next(line for line in head.text().splitlines() if line.startswith("pid "))
    return int(line.split()[1])


def _runs(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


class TestPruneWhileTraining:
    def test_prune_only_when_asked(self, head: Head) -> None:
        head.train("train(1, 8)", max_steps=8, keep=2)
        assert sorted(os.listdir(head.checkpoints)) == ["step_2", "step_4", "step_6", "step_8"]

    def test_prune_keeps_the_newest(self, head: Head) -> None:
        head.train("train(1, 8)", max_steps=8, keep=2, prune=True)
        assert sorted(os.listdir(head.checkpoints)) == ["step_6", "step_8"]
