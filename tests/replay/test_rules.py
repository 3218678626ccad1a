"""No run ends badly: each rule in the case that broke it, through the real functions."""

from __future__ import annotations

import json
from typing import Any

import pytest
from lustrum.core.errors import ServiceError
from lustrum.core.plain_text import plain
from lustrum.core.record import Run
from lustrum.core.request import BadRequest, parse_request
from lustrum.core.supervisor_jobs import newest_step_folder
from lustrum.handlers import reactions
from lustrum.handlers import start as requests
from lustrum.handlers.transitions import advance_run
from lustrum.head.checkpoint_rule import NEMO_RL
from lustrum.show import report

from testing.life import Life
from testing.services import FakeServices, push
from testing.stories import check_nothing_is_left, to_the_end

ENDLESS = int("9" * 400)
ZERO = "rl-0000000000"


def job_event(run_id: str = ZERO, **more: Any) -> dict[str, Any]:
    return {"type": "job.progress", "run_id": run_id, "attempt": 1, "event_id": "e", **more}


def react(
    services: FakeServices, body: Any, message_id: str = "1", key: str = ""
) -> dict[str, Any]:
    return reactions.handle_push(services, push(body, message_id, key=key))


class TestRule7NumbersAreBounded:
    @pytest.mark.parametrize(
        "more",
        (
            {"step": ENDLESS},
            {"step": -1},
            {"max_steps": ENDLESS},
            {"attempt": ENDLESS},
            {"exit_code": ENDLESS},
            {"type": "job." + "x" * 2**20},
            {"class": "x" * 2**20},
            {"checkpoint": {"step": 1, "bytes": ENDLESS}},
            {"checkpoint": {"step": ENDLESS}},
            {"steps": [{"step": ENDLESS}]},
        ),
        ids=lambda more: next(iter(more)),
    )
    def test_rule7_an_event_beyond_all_measure_is_kept_once(self, more: Any) -> None:
        services = FakeServices()
        for _ in range(3):
            assert react(services, job_event(**more))["status"] == "rejected"
        assert len(services.outbox.dead_letters) == len(services.outbox.notifications) == 1

    @pytest.mark.parametrize(
        "body",
        (
            {"id": "\N{GRINNING FACE}" * 600, "status": "WORKING", "steps": []},
            {"id": "b", "status": "X" * 2**20, "steps": []},
        ),
        ids=("id", "status"),
    )
    def test_rule7_a_build_notice_no_ledger_can_hold_is_kept_once(self, body: Any) -> None:
        services = FakeServices()
        for _ in range(3):
            assert react(services, body)["status"] == "rejected"
        assert len(services.outbox.dead_letters) == 1

    @pytest.mark.parametrize("field", ("observed_value", "started_at", "ended_at"))
    @pytest.mark.parametrize("value", (ENDLESS, "nan", "inf", -ENDLESS), ids=repr)
    def test_rule7_an_incident_with_a_number_without_end_is_acknowledged(
        self, field: str, value: Any
    ) -> None:
        services = FakeServices()
        body = {"incident": {"incident_id": "i", "state": "open", field: value}}
        assert react(services, body)["status"] == "kept"
        assert "NaN" not in json.dumps(services.outbox.notifications)

    def test_rule7_a_report_is_written_whatever_the_training_says(self) -> None:
        wild = ("NaN", "Infinity", "-Infinity", "1.7e308", "-1.7e308", "9" * 400)

        async def story(life: Life) -> Run:
            run_id = await life.start()
            await life.until_state(run_id, "TRAINING")
            for number, value in enumerate(wild):
                event = job_event(run_id, event_id=f"w{number}", step=1)
                text = json.dumps({**event, "reward": 0, "seconds": 0}).replace(
                    '"reward": 0', f'"reward": {value}'
                )
                key = life.event_key(run_id)
                answer = react(life.services, text.encode(), f"w{number}", key)
                assert answer["status"] == "kept"
            return await life.until_closed(run_id)

        life = Life()
        run = life.run(story)
        check_nothing_is_left(life, run)
        assert run.outcome == "SUCCEEDED"
        assert "<html" in report.render(run, life.services.memory.events(run.run_id))

    def test_rule7_a_report_that_cannot_be_drawn_is_written_as_text(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        life = Life()

        def fail(run: Run, events: Any) -> str:
            raise OverflowError("cannot convert float infinity to integer")

        monkeypatch.setattr(life, "_render", fail, raising=False)
        run = life.run(to_the_end())
        folder = f"gs://report-bucket/runs/{run.run_id}/"
        page = life.services.storage.read(folder + "report.html").decode()
        assert run.report_uri == folder + "report.html"
        assert "could not be drawn" in page and run.plan.model in page
        assert json.loads(life.services.storage.read(folder + "run.json"))["state"] == "CLOSED"
        (told,) = life.services.outbox.kinds("run.closed")
        assert "OverflowError" in told["report_problem"]


class TestRule8NothingSecretIsRepeated:
    @pytest.mark.parametrize(
        "body",
        (
            {"hf_token": "s3cr3t-value"},
            {"x": {"deep": "s3cr3t-value"}},
            {"limits": {"hours": {"note": "s3cr3t-value"}}},
            {"lustre": ["s3cr3t-value", {}]},
            {"overrides": {"logger.wandb.api_key": "s3cr3t-value\n"}},
            {"name": "hf_" + "A" * 30 + "s3cr3t-value"},
        ),
        ids=lambda body: json.dumps(body)[:40],
    )
    def test_rule8_the_value_is_in_no_answer_and_no_notification(self, body: Any) -> None:
        services = FakeServices()
        answer = requests.handle_push(services, push(body))
        assert answer["status"] == "rejected"
        said = json.dumps([answer, services.outbox.notifications])
        said += json.dumps([attributes for _, attributes in services.outbox.dead_letters])
        assert "s3cr3t" not in said

    def test_rule8_broken_json_is_not_repeated(self) -> None:
        with pytest.raises(BadRequest) as bad:
            parse_request(b'{"token": "s3cr3t-value"')
        assert "s3cr3t" not in str(bad.value)

    def test_rule8_a_plain_value_is_still_named(self) -> None:
        with pytest.raises(BadRequest) as bad:
            parse_request(b'{"nodes": 65}')
        assert bad.value.value == "65"

    @pytest.mark.parametrize(
        "text",
        (
            "a\x1b]0;title\x07b",
            "a\x1b[2Jb",
            "a\x1b[31;1mb",
            "a\x9b2Jb",
            "a\u202eb",
            "a\x00\x08b",
            "a\x1bcb",
            "a\x1b]8;;http://x\x1b\\b",
        ),
        ids=repr,
    )
    def test_rule8_terminal_escapes_are_stripped(self, text: str) -> None:
        assert plain(text) == "ab"

    def test_rule8_the_training_cannot_write_on_a_readers_screen(self) -> None:
        from testing.dashboard import Script

        life = Life()
        life.cloud.scripts = {
            n: Script(fail_at=3, message="\x1b]0;owned\x07\x1b[31mboom\x1b[0m\u202e")
            for n in range(1, 9)
        }
        run = life.run(to_the_end())
        check_nothing_is_left(life, run)
        assert "boom" in run.reason
        shown = run.reason + "".join(one.sentence for one in run.mishaps)
        assert not any(mark in shown for mark in "\x1b\x07\u202e")

    @pytest.mark.parametrize(
        "url",
        (
            "http://127.0.0.1:1/x",
            "https://evil.example/v1/callbacks/x",
            "https://workflowexecutions.googleapis.com.evil.example/x",
            "http://workflowexecutions.googleapis.com/x",
            "https://workflowexecutions.googleapis.com@evil.example/x",
        ),
    )
    def test_rule8_a_doorbell_elsewhere_gets_no_access_token(self, url: str) -> None:
        services = FakeServices()
        run_id = requests.handle_push(services, push({}))["run_id"]
        call = {"run_id": run_id, "execution": "e", "step": "claim", "callback_url": url}
        with pytest.raises(ServiceError, match="callback_url"):
            advance_run(services, call)
        assert services.memory.peek(run_id).callback_url is None

    @pytest.mark.parametrize(
        ("wanted", "found"),
        (
            ("gs://b/runs/a/", "gs://b/runs/a/step_8/"),
            ("gs://b/runs/a", "gs://b/runs/a/step_8/"),
            ("gs://b/step_3/run/", "gs://b/step_3/run/step_10/"),
            ("gs://b/runs/a/step_4", "gs://b/runs/a/step_4/"),
            ("gs://b/runs/", None),
            ("gs://b/", None),
            ("gs://b/run", None),
        ),
    )
    def test_rule8_resume_from_is_exactly_what_it_says(
        self, wanted: str, found: str | None
    ) -> None:
        places = (
            "runs/a/step_4",
            "runs/a/step_8",
            "runs/b/step_99",
            "step_3/run/step_10",
            "runs/a/deep/step_77",
            "runsother/step_5",
        )
        uris = [f"gs://b/{place}/training_info.json" for place in places]
        if found is None:
            with pytest.raises(ServiceError, match="resume_from"):
                newest_step_folder(NEMO_RL, uris, wanted)
        else:
            assert newest_step_folder(NEMO_RL, uris, wanted) == found


class TestSmallThings:
    @pytest.mark.parametrize(
        "more",
        (
            {"step": "build"},
            {"step": "build", "action": "x"},
            {"step": "build", "action": "deploy", "since": "x"},
        ),
        ids=repr,
    )
    def test_a_callers_fault_is_not_answered_try_again(self, more: Any) -> None:
        services = FakeServices()
        run_id = requests.handle_push(services, push({}))["run_id"]
        with pytest.raises(ServiceError) as refused:
            advance_run(services, {"run_id": run_id, "execution": "e", **more})
        assert not refused.value.retryable

    def test_a_second_gzip_stream_is_not_ignored(self) -> None:
        import gzip

        with pytest.raises(BadRequest, match="more than one stream"):
            parse_request(gzip.compress(b"{}") + gzip.compress(b'{"nodes": 1}'))

    def test_a_twin_among_thousands_of_keys_is_found_at_once(self) -> None:
        import time

        body = "{" + ",".join(f'"k{n}":1' for n in range(5000)) + ',"k4999":2}'
        began = time.process_time()
        with pytest.raises(BadRequest, match="twice"):
            parse_request(body.encode())
        assert time.process_time() - began < 0.5
