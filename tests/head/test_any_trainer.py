"""Trainers other than NeMo-RL under the real supervisor: verl's and Hugging Face's folders."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from .conftest import Head

VERL: dict[str, Any] = {"checkpoint_layout": "verl", "max_steps": 20}
HUGGING_FACE: dict[str, Any] = {"checkpoint_layout": "huggingface", "max_steps": 20}
OWN: dict[str, Any] = {
    "checkpoint_layout": "own",
    "checkpoint_pattern": "ckpt-{step}",
    "complete_when": "done.txt",
    "max_steps": 20,
}
# What each library writes, in its order, with small files.
WRITERS = """
def verl(n, tracker=True):
    folder = root / f"global_step_{n}"
    (folder / "actor").mkdir(parents=True, exist_ok=True)
    (folder / "actor/model_world_size_1_rank_0.pt").write_bytes(b"w" * 1000)
    (folder / "data.pt").write_bytes(b"d" * 10)
    if tracker:
        (root / "latest_checkpointed_iteration.txt").write_text(str(n))
def huggingface(n, state=True):
    folder = root / f"checkpoint-{n}"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "model.safetensors").write_bytes(b"w" * 1000)
    (folder / "optimizer.pt").write_bytes(b"o" * 10)
    if state:
        (folder / "trainer_state.json").write_text(json.dumps({"global_step": n, "max_steps": 20}))
def own(n, done=True):
    folder = root / f"ckpt-{n}"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "weights.bin").write_bytes(b"w" * 1000)
    if done:
        (folder / "done.txt").write_text("")
"""
CASES = pytest.mark.parametrize(
    ("spec", "writer", "pattern"),
    [
        (VERL, "verl", "global_step_{}"),
        (HUGGING_FACE, "huggingface", "checkpoint-{}"),
        (OWN, "own", "ckpt-{}"),
    ],
    ids=["verl", "huggingface", "own"],
)


def saved(head: Head) -> list[tuple[int, int]]:
    return [
        (event["checkpoint"]["step"], event["checkpoint"]["bytes"])
        for event in head.events("checkpoint.saved")
    ]


class TestWatched:
    @CASES
    def test_watched_steps_are_told_once_and_whole(
        self, head: Head, spec: dict[str, Any], writer: str, pattern: str
    ) -> None:
        script = f"{WRITERS}\n{writer}(10)\ntime.sleep(1)\n{writer}(20)\n"
        assert head.train(script, **spec) == 0
        assert [step for step, _ in saved(head)] == [10, 20]
        done = head.last("job.completed")
        assert (done["step"], done["total_steps"]) == (20, 20)
        for step in (10, 20):
            manifest = head.checkpoints / pattern.format(step) / "lustrum-manifest.json"
            assert json.loads(manifest.read_text())["total_steps"] == step

    @CASES
    def test_watched_a_step_in_the_making_is_not_told(
        self, head: Head, spec: dict[str, Any], writer: str, pattern: str
    ) -> None:
        script = f"{WRITERS}\n{writer}(10)\n{writer}(20, False)\ntime.sleep(1)\nsys.exit(3)\n"
        assert head.train(script, **spec) == 3
        assert [step for step, _ in saved(head)] == [10]
        assert head.last("job.completed")["step"] == 10

    def test_watched_what_other_ranks_still_write_is_waited_for(self, head: Head) -> None:
        script = WRITERS + (
            "huggingface(10)\n"
            "for size in range(1, 9):\n"
            "    (root / 'checkpoint-10/rng_state_1.pth').write_bytes(b'r' * size * 100)\n"
            "    time.sleep(0.05)\n"
            "time.sleep(1)\n"
        )
        assert head.train(script, **HUGGING_FACE) == 0
        (told,) = saved(head)
        assert told[1] >= 1000 + 10 + 800  # with the last byte of the slow rank
        manifest = head.checkpoints / "checkpoint-10/lustrum-manifest.json"
        assert json.loads(manifest.read_text())["sizes"]["rng_state_1.pth"] == 800

    def test_watched_a_folder_that_never_completes_holds_up_no_later_one(self, head: Head) -> None:
        script = f"{WRITERS}\nhuggingface(10, False)\nhuggingface(20)\ntime.sleep(1)\n"
        assert head.train(script, **HUGGING_FACE) == 0
        assert [step for step, _ in saved(head)] == [20]


class TestResumed:
    @CASES
    def test_resumed_a_broken_step_is_set_aside_and_the_attempt_goes_on_before_it(
        self, head: Head, spec: dict[str, Any], writer: str, pattern: str
    ) -> None:
        head.train(f"{WRITERS}\n{writer}(10)\n{writer}(15)\nsys.exit(1)\n", **spec)
        for path in (head.checkpoints / pattern.format(15)).rglob("*"):
            if path.suffix in (".pt", ".bin", ".safetensors"):
                path.write_bytes(b"cut")
        head.train(f"{WRITERS}\n{writer}(20)\n", attempt=2, **spec)
        assert head.last("attempt.started")["step"] == 10
        assert head.last("checkpoint.set_aside")["steps"] == [15]
        assert (head.checkpoints / f"broken_{pattern.format(15)}").is_dir()
        assert head.last("job.completed")["step"] == 20

    def test_resumed_verl_is_led_to_the_newest_complete_step(self, head: Head) -> None:
        head.train(f"{WRITERS}\nverl(10)\nverl(15)\nsys.exit(1)\n", **VERL)
        (head.checkpoints / "global_step_15/data.pt").unlink()
        tracker = "(root / 'latest_checkpointed_iteration.txt').read_text()"
        head.train(f"say('tracker ' + {tracker})\n", attempt=2, **VERL)
        assert "tracker 10\n" in head.text()

    @CASES
    def test_resumed_nothing_to_do_when_the_goal_is_saved(
        self, head: Head, spec: dict[str, Any], writer: str, pattern: str
    ) -> None:
        head.train(f"{WRITERS}\n{writer}(20)\n", **spec)
        assert head.train("say('trained again')\n", attempt=2, **spec) == 0
        assert "trained again" not in head.text()

    @CASES
    def test_resumed_an_imported_step_is_adopted(
        self, head: Head, spec: dict[str, Any], writer: str, pattern: str
    ) -> None:
        head.train(f"{WRITERS}\n{writer}(10)\n", **spec)
        source = head.checkpoints.parent / "imported" / pattern.format(10)
        source.parent.mkdir()
        os.rename(head.checkpoints / pattern.format(10), source)
        for path in head.checkpoints.iterdir():  # an export holds the step's folder alone
            path.unlink()
        assert head.run("stage", resume_from=str(source), **spec) == 0
        assert head.last("stage.done")["resume_step"] == 10
        head.run("list", **spec)
        (found,) = head.last("checkpoint.list")["checkpoints"]
        assert (found["step"], found["complete"]) == (10, True)


class TestPruned:
    @CASES
    def test_pruned_to_the_newest(
        self, head: Head, spec: dict[str, Any], writer: str, pattern: str
    ) -> None:
        steps = "".join(f"{writer}({step})\n" for step in (5, 10, 15, 20))
        head.train(WRITERS + steps, **spec)
        head.run("prune", keep=2, **spec)
        assert head.last("checkpoint.pruned")["steps"] == [15, 20]
        assert steps_in(head.checkpoints, pattern) == {pattern.format(15), pattern.format(20)}


def steps_in(folder: Path, pattern: str) -> set[str]:
    return {path.name for path in folder.iterdir() if path.is_dir()}


def progress(head: Head) -> list[dict[str, Any]]:
    return [step for event in head.events("job.progress") for step in event["steps"]]


class TestProgress:
    def test_progress_of_verl_by_its_console_line(self, head: Head) -> None:
        script = WRITERS + (
            "say('(TaskRunner pid=7) step:0 - val-core/gsm8k/reward/mean@1:0.2')\n"
            "for n in range(1, 4):\n"
            "    say(f'(TaskRunner pid=7) step:{n} - response/max:9.5 - actor/pg_loss:-0.02'\n"
            "        f' - critic/score/mean:np.float64(0.1{n}) - timing_s/step:{n}.5'\n"
            "        f' - training/global_step:{n}')\n"
            "verl(3)\n"
        )
        assert head.train(script, **VERL | {"max_steps": 3}) == 0
        assert [(one["step"], one["reward"]) for one in progress(head)] == [
            (1, 0.11),
            (2, 0.12),
            (3, 0.13),
        ]
        last = head.last("job.progress")
        assert (last["loss"], last["step_seconds"], last["phase"]) == (-0.02, 3.5, "step")

    @pytest.mark.parametrize("quote", ["", "'"], ids=["transformers 4", "transformers 5"])
    def test_progress_of_huggingface_by_its_bar_and_dict(self, head: Head, quote: str) -> None:
        script = WRITERS + (
            "bar = lambda n, total: print(f'\\r {n}%|#2   | {n}/{total} [00:05<00:39]', end='')\n"
            "bar(0, 20); bar(5, 8)\n"  # the second is an evaluation's
            "print('\\rLoading weights: 100%|##| 20/20 [00:05<00:39]', end='')\n"
            "for n in range(1, 4):\n"
            "    bar(n, 20)\n"
            f"    say('\\n' + \"{{'loss': {quote}2.\" + str(n) + \"{quote}, 'reward': {quote}0.\""
            f" + str(n) + \"{quote}, 'epoch': {quote}0.1{quote}}}\")\n"
            "    bar(n, 20)\n"
        )
        head.train(script, **HUGGING_FACE)
        assert [(one["step"], one["reward"]) for one in progress(head)] == [
            (1, 0.1),
            (2, 0.2),
            (3, 0.3),
        ]
        assert head.last("job.progress")["loss"] == 2.3

    def test_progress_of_an_own_script_by_its_texts(self, head: Head) -> None:
        texts = {"step": "iter {} of", "reward": "rew=({})", "loss": "loss {}"}
        script = WRITERS + (
            "say('iter 1 of 20 | loss 0.5')\n"
            "say('iter 2 of 20 | loss 1.2.3 rew=(0.25)')\n"
            "say('iter ' + '9' * 5000 + ' of 20')\n"
            "say('iter -3 of 20')\n"
        )
        head.train(script, progress=texts, **OWN)
        assert [(one["step"], one["reward"]) for one in progress(head)] == [(1, None), (2, 0.25)]


class TestCommand:
    def test_command_is_given_the_step_to_go_on_from(self, head: Head) -> None:
        command = head.command(f"{WRITERS}\nsay(str(sys.argv[1:])); huggingface(10)\n")
        head.run("train", command=[*command, "--from={resume_from}", "--all"], **HUGGING_FACE)
        assert "\n['--all']\n" in head.text()
        again = [*command, "--from={resume_from}", "--all"]
        head.run("train", command=again, attempt=2, **HUGGING_FACE)
        assert f"\n['--from={head.checkpoints}/checkpoint-10', '--all']\n" in head.text()

    def test_command_has_the_environment_of_the_spec(self, head: Head) -> None:
        script = "say(os.environ['LUSTRUM_X'] + '|' + os.environ['LUSTRUM_RESUME_FROM'] + '|')"
        head.train(script, environment={"LUSTRUM_X": "a b"}, **OWN)
        assert "\na b||\n" in head.text()


class TestEnded:
    def test_ended_at_the_goal(self, head: Head) -> None:
        head.train(f"{WRITERS}\nown(20)\n", **OWN)
        assert head.last("job.completed")["ended"] == "goal"

    def test_ended_at_its_own_time_limit(self, head: Head) -> None:
        line = "say('Timeout has been reached, stopping training early')"
        head.train(f"train(1, 4)\n{line}\n", max_steps=20)
        assert head.last("job.completed")["ended"] == "time_limit"

    def test_ended_at_the_time_limit_it_was_given(self, head: Head) -> None:
        head.train(f"{WRITERS}\nown(10)\n", must_save_by=1.0, **OWN)
        assert head.last("job.completed")["ended"] == "time_limit"

    def test_ended_with_the_data(self, head: Head) -> None:
        head.train("train(1, 4)\n", max_steps=20)
        assert head.last("job.completed")["ended"] == "data"

    @pytest.mark.parametrize("script", ["train(1, 5)\n", "say('usage: ...')\n"])
    def test_ended_with_steps_unsaved_or_none_is_no_end_of_the_data(
        self, head: Head, script: str
    ) -> None:
        assert head.train(script, max_steps=20) == 0
        assert head.last("job.completed")["ended"] is None

    def test_ended_by_us_when_it_stays_after_its_last_step(self, head: Head) -> None:
        script = f"{WRITERS}\nown(20)\nwhile True: say('uploading'); time.sleep(0.05)\n"
        assert head.train(script, linger_seconds=0.5, **OWN) == 0
        done = head.last("job.completed")
        assert (done["ended"], done["class"], done["step"]) == ("goal", None, 20)
        assert "after its last step" in done["message"]

    def test_ended_late_but_by_itself_is_left_alone(self, head: Head) -> None:
        script = f"{WRITERS}\nown(20)\ntime.sleep(1)\nsay('pushed')\n"
        assert head.train(script, linger_seconds=20, **OWN) == 0
        assert "\npushed\n" in head.text()
