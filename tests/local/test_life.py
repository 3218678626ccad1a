"""Whole lives on the local stack: real emulators, functions, workflows, build scripts, Ray and
training.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest
from lustrum.core import names
from lustrum.core.errors import NotFound, ServiceError
from lustrum.core.record import Outcome, Run, State
from lustrum.wiring.services import Services
from lustrum.wiring.settings import read_settings

from infra.local.stack import Stack

pytestmark = [pytest.mark.stack, pytest.mark.timeout(400)]

HF_TOKEN = "hf_thisTokenMustNeverBeSeenAnywhere123"
WANDB_KEY = "f00dfacecafebeef00dfacecafebeef00dfacecf"
LIFE = 240.0  # seconds a run may take here
SLOW = {"local.step_seconds": 0.5}  # so that there is a middle to strike at


class Lives:
    """A running stack, and what a test wants to know of its runs."""

    def __init__(self, stack: Stack) -> None:
        self.stack = stack
        self.services = Services(read_settings(stack.env))
        self.notifications: list[dict[str, Any]] = []
        self.whole: set[str] = set()
        self.seen_whole: Future[str]
        self.seen_killed: Future[Run]
        self.seen_cancelled: Future[Run]
        self.killed = ""
        self.cancelled = ""

    def start(self, request: dict[str, Any], **attributes: str) -> str:
        """Publish a request and return its run id."""
        message = self.stack.publish(json.dumps(request).encode(), **attributes)
        key = attributes.get("idempotency_key")
        return names.run_id(f"key:{key}" if key else f"message:{message}")

    def wait(self, run_id: str, until: Callable[[Run], bool], seconds: float = LIFE) -> Run:
        """Return the run as soon as a condition holds."""
        end = time.monotonic() + seconds
        run = None
        while time.monotonic() < end:
            self.stack.children.check()
            try:
                run = self.services.ledger.load(run_id)
            except NotFound:
                run = None
            if run is not None and until(run):
                return run
            time.sleep(0.2)
        raise AssertionError(
            f"{run_id} did not get there: {run and run.model_dump_json(indent=1)}"
        )

    def heard(self, kind: str, run_id: str | None) -> list[dict[str, Any]]:
        """Return the notifications of a kind for a run, so far."""
        self.notifications += self.stack.pubsub.notifications()
        return [
            one for one in self.notifications if one["kind"] == kind and one["run_id"] == run_id
        ]

    def assert_nothing_is_left(self, run_id: str = "") -> None:
        """The stand-in cloud holds nothing of a run, or nothing at all."""
        left = [one for found in self.stack.inventory().values() for one in found if run_id in one]
        assert not left

    def exported(self, run: Run) -> dict[str, Any]:
        """Return the training_info.json of the exported step."""
        assert run.export is not None and run.export.verified_at is not None
        folder = self.stack.bucket(run.export.uri)
        info: dict[str, Any] = json.loads((folder / "training_info.json").read_text())
        return info


@pytest.fixture(scope="module")
def lives(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lives]:
    environ = dict(os.environ)
    secrets = {"LUSTRUM_HF_TOKEN": HF_TOKEN, "LUSTRUM_WANDB_API_KEY": WANDB_KEY}
    stack = Stack(tmp_path_factory.mktemp("stack"), secrets=secrets)
    stack.start()
    os.environ |= stack.env
    try:
        lives = Lives(stack)
        # All at once, as they would come: each test strikes at its own and waits for its end.
        whole = {"profile": "tiny-grpo", "name": "whole"}
        lives.whole = {lives.start(whole, idempotency_key="five times") for _ in range(5)}
        lives.killed = lives.start({"profile": "tiny-grpo", "name": "killed", "overrides": SLOW})
        lives.cancelled = lives.start({**whole, "name": "cancelled", "overrides": SLOW})
        with ThreadPoolExecutor() as strikes:
            lives.seen_whole = strikes.submit(_look_into, lives)
            lives.seen_killed = strikes.submit(_kill, lives)
            lives.seen_cancelled = strikes.submit(_cancel, lives)
            yield lives
    finally:
        killed = stack.stop()
        os.environ.clear()
        os.environ.update(environ)
        assert not killed, f"had to be killed: {killed}"
        assert not psutil.Process().children(recursive=True), "a process is left"


def _look_into(lives: Lives) -> str:
    """Return what Ray shows of the first run while it trains."""
    (run_id,) = lives.whole
    lives.wait(run_id, lambda run: run.state == State.TRAINING and run.progress.step > 0)
    return _ray_answers(lives, run_id)


def _kill(lives: Lives) -> Run:
    """Kill the training of the second run in its middle."""
    run = lives.wait(lives.killed, lambda run: run.checkpoint is not None)
    _training_process(lives.killed).send_signal(signal.SIGKILL)
    return run


def _cancel(lives: Lives) -> Run:
    """Cancel the third run in its middle."""
    run = lives.wait(lives.cancelled, lambda run: run.checkpoint is not None)
    lives.start({"action": "cancel", "run_id": lives.cancelled})
    return run


class TestLife:
    def test_cancel_exports_and_leaves_nothing(self, lives: Lives) -> None:
        run_id = lives.cancelled
        seen = lives.seen_cancelled.result()
        run = lives.wait(run_id, lambda run: run.is_over)
        assert run.outcome == Outcome.CANCELLED, run.reason
        assert seen.checkpoint is not None
        assert lives.exported(run)["total_steps"] >= seen.checkpoint.step
        assert lives.exported(run)["total_steps"] < run.plan.max_num_steps
        lives.assert_nothing_is_left(run_id)

    def test_killed_training_resumes_and_succeeds(self, lives: Lives) -> None:
        run_id = lives.killed
        seen = lives.seen_killed.result()
        run = lives.wait(run_id, lambda run: run.is_over)
        assert run.outcome == Outcome.SUCCEEDED, run.reason
        assert run.attempt == 2, run.mishaps
        assert run.job is not None and seen.checkpoint is not None
        assert run.job.began_step >= seen.checkpoint.step > 0
        assert lives.exported(run)["total_steps"] == run.plan.max_num_steps
        lives.assert_nothing_is_left(run_id)

    def test_run_succeeds_exports_and_leaves_nothing(self, lives: Lives) -> None:
        (run_id,) = lives.whole
        answer = lives.seen_whole.result()
        run = lives.wait(run_id, lambda run: run.is_over and run.report_uri is not None)
        assert (run.state, run.outcome) == (State.CLOSED, Outcome.SUCCEEDED), run.reason
        assert run.attempt == 1
        assert run.zone_attempts == 1
        assert lives.exported(run)["total_steps"] == run.plan.max_num_steps
        lives.assert_nothing_is_left(run_id)
        assert len(lives.services.ledger.recent(10).runs) == len(
            {run_id, lives.killed, lives.cancelled}
        )
        assert len(lives.heard("run.closed", run_id)) == 1
        _assert_tokens_are_nowhere(lives, answer)

    def test_bad_request_is_answered_once_and_starts_nothing(self, lives: Lives) -> None:
        before = len(lives.services.ledger.recent(50).runs)
        lives.stack.publish(b'{"nodes": "eight"}')
        end = time.monotonic() + 30
        while time.monotonic() < end and not lives.heard("request.rejected", None):
            time.sleep(0.1)
        (answer,) = lives.heard("request.rejected", None)
        assert answer["field"] == "nodes"
        dead = lives.stack.pubsub.pull("lustrum-dead-letters-pull")
        assert [data for data, _ in dead] == [b'{"nodes": "eight"}']
        assert len(lives.services.ledger.recent(50).runs) == before

    def test_reaper_is_content_when_nothing_is_left(self, lives: Lives) -> None:
        lives.assert_nothing_is_left()
        answer = lives.stack.reap()
        assert answer.status_code == 200, answer.text
        assert answer.json()["acted"] == []


def _ray_answers(lives: Lives, run_id: str) -> str:
    """Return everything Ray's API shows of the jobs."""
    kubernetes = lives.services.kubernetes(run_id)
    found = []
    for path in (
        "api/jobs/",
        f"api/jobs/{run_id}-a1",
        "api/v0/actors?detail=1",
        "nodes?view=details",
    ):
        try:
            answer = kubernetes.request("GET", kubernetes.proxy(f"{run_id}-head-svc", 8265, path))
        except ServiceError:
            continue
        found.append(answer.body.decode(errors="replace"))
    assert f"{run_id}-a1" in "".join(found)
    return "".join(found)


def _assert_tokens_are_nowhere(lives: Lives, ray: str) -> None:
    stack = lives.stack
    texts = {"Ray's API": ray, "notifications": json.dumps(lives.notifications)}
    for run in lives.services.ledger.recent(10).runs:
        texts[f"record {run.run_id}"] = run.model_dump_json()
        texts[f"events {run.run_id}"] = json.dumps(lives.services.ledger.events(run.run_id))
    workflows = lives.services.workflows
    for workflow in ("rl-run", "teardown"):
        listed = workflows._client.list_executions(
            request={"parent": lives.services.settings.workflow(workflow), "view": "FULL"}
        )
        texts[f"executions of {workflow}"] = "".join(
            f"{one.argument} {one.result}" for one in listed
        )
        assert texts[f"executions of {workflow}"]
    for path in stack.root.rglob("*"):
        if path.is_file() and not _is_secret_mount(path):
            texts[str(path.relative_to(stack.root))] = path.read_bytes().decode(errors="replace")
    assert any("functions.log" in name for name in texts)
    for name, text in texts.items():
        assert HF_TOKEN not in text and WANDB_KEY not in text, f"a token is in {name}"


def _is_secret_mount(path: Path) -> bool:
    """The one place where the tokens are meant to be: files of the Kubernetes Secret."""
    return path.name in ("hf_token", "netrc")


def _training_process(run_id: str) -> psutil.Process:
    for process in psutil.process_iter(["cmdline"]):
        line = process.info["cmdline"] or []
        if line[1:2] == ["examples/grpo_numpy/train.py"] and run_id in " ".join(line):
            return process
    raise AssertionError(f"no training process of {run_id}")
