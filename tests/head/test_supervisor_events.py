"""What reaches Pub/Sub, and that nothing about it can hurt the training."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from lustrum.head.signature import is_signed

from .conftest import RUN, Head, wait_for
from .google import TOKEN, Google

Spec = dict[str, Any]


class TestPublish:
    def test_publish_what_is_printed(self, head: Head, google: Google, cloud: Spec) -> None:
        assert head.train("train(1, 4)", max_steps=4, **cloud) == 0
        assert google.events[-1] == head.events()[-1]
        assert [event["step"] for event in google.of("checkpoint.saved")] == [2, 4]
        assert google.events[0]["type"] == "attempt.started"
        attributes = google.attributes[-1]
        assert attributes["type"] == "job.completed"
        assert (attributes["run_id"], attributes["attempt"]) == (RUN, "1")

    def test_publish_is_signed_with_the_runs_key_which_is_never_printed(
        self, head: Head, google: Google, cloud: Spec, tmp_path: Path
    ) -> None:
        key = "0123456789abcdef" * 4
        (tmp_path / "event_key").write_text(key)
        place = str(tmp_path / "event_key")
        script = f"train(1, 2)\nsay(open({place!r}).read())"
        assert head.train(script, max_steps=2, event_key=place, **cloud) == 0
        signed = zip(google.data, google.attributes, strict=True)
        assert google.data and all(is_signed(key, said, one["signature"]) for said, one in signed)
        assert key not in head.text() and "<redacted>" in head.text()

    def test_publish_without_a_key_is_not_signed(
        self, head: Head, google: Google, cloud: Spec, tmp_path: Path
    ) -> None:
        place = str(tmp_path / "nothing")
        assert head.train("train(1, 2)", max_steps=2, event_key=place, **cloud) == 0
        assert google.attributes and not any("signature" in one for one in google.attributes)

    def test_publish_shape_of_the_contract(self, head: Head, google: Google, cloud: Spec) -> None:
        head.train("train(1, 2)", max_steps=2, attempt=3, **cloud)
        saved = google.of("checkpoint.saved")[0]
        assert saved["event_id"] == f"{RUN}-a3-checkpoint.saved-2"
        assert set(saved["checkpoint"]) == {"step", "files", "bytes", "seconds"}
        assert saved["checkpoint"]["bytes"] > 1000

    def test_publish_every_step_s_reward_arrives(
        self, head: Head, google: Google, cloud: Spec
    ) -> None:
        head.train("train(1, 9)", max_steps=9, heartbeat_seconds=0.01, **cloud)
        steps = [step for event in google.of("job.progress") for step in event["steps"]]
        assert [step["step"] for step in steps] == list(range(1, 10))

    def test_publish_with_a_token_that_is_never_printed(
        self, head: Head, google: Google, cloud: Spec
    ) -> None:
        head.train("pass", **cloud)
        assert set(google.authorizations) == {f"Bearer {TOKEN}"}
        assert TOKEN not in head.text()

    def test_publish_without_a_token_to_an_emulator(
        self, head: Head, google: Google, cloud: Spec
    ) -> None:
        google.metadata_up = False
        head.train("pass", token=False, **cloud)
        assert google.authorizations[-1] is None
        assert google.of("job.completed")

    def test_publish_waits_for_a_late_metadata_server(
        self, head: Head, google: Google, cloud: Spec
    ) -> None:
        google.metadata_up = False
        process = head.start(
            "train",
            command=head.command("say('up'); hold('go')"),
            **{**cloud, "metadata_wait_seconds": 20},
        )
        wait_for("the training", lambda: "\nup\n" in head.text())
        google.metadata_up = True
        wait_for("the event", lambda: google.of("attempt.started"))
        (head.output.parent / "go").touch()
        assert process.wait(10) == 0

    def test_publish_answered_503_is_tried_again(
        self, head: Head, google: Google, cloud: Spec
    ) -> None:
        google.publish_status = [503, 503]
        head.train("train(1, 2)", max_steps=2, **cloud)
        assert google.of("job.completed")

    def test_publish_forbidden_does_not_fail_the_job(
        self, head: Head, google: Google, cloud: Spec
    ) -> None:
        google.publish_status = [403] * 1000
        assert head.train("train(1, 4)", max_steps=4, **cloud) == 0
        assert "was not published: 403" in head.text()
        assert [event["step"] for event in head.events("checkpoint.saved")] == [2, 4]

    def test_publish_never_answered_delays_the_end_by_the_flush_only(
        self, head: Head, google: Google, cloud: Spec
    ) -> None:
        google.silent.set()
        since = time.monotonic()
        assert head.train("train(1, 40)", max_steps=40, **{**cloud, "flush_seconds": 1}) == 0
        assert time.monotonic() - since < 8
        assert head.last("job.completed")["total_steps"] == 40

    def test_publish_unreachable_does_not_fail_the_job(self, head: Head, cloud: Spec) -> None:
        cloud |= {"pubsub_endpoint": "http://127.0.0.1:9", "token": False, "flush_seconds": 1}
        assert head.train("train(1, 2)", max_steps=2, **cloud) == 0
