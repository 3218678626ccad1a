"""`lustrum start`, `cancel`, `extend`: what is published, and what is said of the answer."""

from __future__ import annotations

import base64
import io
import json
import zipfile
from pathlib import Path

import pytest
from lustrum.core import names
from lustrum.core.record_parts import Cancel, Teardown
from lustrum.core.request import StartRequest, parse_request
from lustrum.handlers import start
from lustrum.wiring.settings import read_settings

from testing import records
from tests.cli.conftest import Shell


class FakeWorkflows:
    """Executions that are only counted."""

    def __init__(self) -> None:
        self.made: list[str] = []

    def ensure(self, workflow: str, run_id: str, argument: object) -> str:
        self.made.append(workflow)
        return f"executions/{len(self.made)}"


@pytest.fixture
def alive(lustrum: Shell, monkeypatch: pytest.MonkeyPatch) -> Shell:
    """The real step of `start_run` takes each message while the command waits for it."""
    monkeypatch.setattr(start, "relabel", lambda services, run: None)
    services = lustrum.services(read_settings(lustrum.env))
    services.workflows = FakeWorkflows()  # type: ignore[assignment]
    taken: set[int] = set()

    def deliver() -> None:
        for number, (topic, data, attributes) in enumerate(list(lustrum.publisher.sent), 1):
            if topic == "lustrum-requests" and number not in taken:
                taken.add(number)
                body = {
                    "message": {
                        "data": base64.b64encode(data).decode(),
                        "attributes": attributes,
                        "messageId": str(number),
                    }
                }
                start.handle_push(services, json.dumps(body).encode())

    lustrum.on_sleep = deliver
    return lustrum


class TestStart:
    def test_start_publishes_the_request_and_names_the_run(self, alive: Shell) -> None:
        result = alive("start", "-", stdin='{"nodes": 4, "limits": {"hours": 2}}')
        assert result.exit_code == 0, result.stderr
        body, attributes = alive.sent[0]
        assert body == {"nodes": 4, "limits": {"hours": 2}}
        run_id = names.run_id("key:" + attributes["idempotency_key"])
        assert alive.ledger.run_ids() == [run_id]
        assert f"run {run_id}: at most 2 h" in result.stdout
        assert f"lustrum watch {run_id}" in result.stdout

    def test_start_with_the_same_key_twice_is_one_run(self, alive: Shell) -> None:
        first = alive("start", "-", "--key", "tonight", stdin="{}")
        second = alive("start", "-", "--key", "tonight", stdin="{}")
        assert first.exit_code == second.exit_code == 0
        assert alive.ledger.run_ids() == [names.run_id("key:tonight")]
        assert "started it before" in second.stdout and "started it before" not in first.stdout

    def test_start_without_key_is_a_run_each_time(self, alive: Shell) -> None:
        alive("start", "-", stdin="{}")
        alive("start", "-", stdin="{}")
        assert len(alive.ledger.run_ids()) == 2

    def test_start_tells_of_a_refusal_by_the_control_plane(self, lustrum: Shell) -> None:
        def refuse() -> None:
            lustrum.ledger.append_event(
                "rejected",
                "1",
                {"message_id": "1", "field": "image", "value": "x", "reason": "is too new"},
            )

        lustrum.on_sleep = refuse
        result = lustrum("start", "-", stdin="{}")
        assert result.exit_code == 2
        assert 'error: image: "x": is too new' in result.stderr

    def test_start_that_nobody_takes_says_so(self, lustrum: Shell) -> None:
        result = lustrum("start", "-", stdin="{}")
        assert result.exit_code == 1
        assert "published but not accepted" in result.stderr and "lustrum doctor" in result.stderr
        assert 20 < sum(lustrum.slept) < 60

    def test_start_no_wait_returns_at_once(self, lustrum: Shell) -> None:
        result = lustrum("start", "-", "--no-wait", stdin="{}")
        assert result.exit_code == 0 and lustrum.slept == []

    def test_start_refuses_zones_without_network(self, lustrum: Shell) -> None:
        result = lustrum("start", "-", stdin='{"zones": ["europe-west4-b"]}')
        assert result.exit_code == 2 and "slots are in us-east1" in result.stderr
        assert not lustrum.sent

    def test_start_dry_run_sends_nothing_and_needs_no_cloud(self, lustrum: Shell) -> None:
        lustrum.env.clear()
        result = lustrum("start", "-", "--dry-run", stdin='{"nodes": 4}')
        assert result.exit_code == 0 and lustrum.made == 0
        assert '"nodes": 4' in result.stdout and not lustrum.sent

    @pytest.mark.parametrize("key", ["", "k" * 1001])
    def test_start_refuses_a_key_that_cannot_be_sent(self, lustrum: Shell, key: str) -> None:
        assert lustrum("start", "-", "--key", key, stdin="{}").exit_code == 2

    def test_start_watch_follows_to_the_end(self, alive: Shell) -> None:
        run_id = names.run_id("key:watched")
        deliver = alive.on_sleep

        def close_soon() -> None:
            deliver()
            if sum(alive.slept) > 20:
                done = records.eventful_run()
                alive.ledger.change(
                    run_id,
                    lambda one: one.__dict__.update(
                        {**done.__dict__, "run_id": run_id, "closed_at": alive.now}
                    ),
                )

        alive.on_sleep = close_soon
        result = alive("start", "-", "--watch", "--key", "watched", stdin="{}")
        assert result.exit_code == 0, result.output
        assert f"run {run_id} CLOSED SUCCEEDED step 20/20" in result.stdout.splitlines()[-1]


class TestCode:
    @pytest.fixture
    def folder(self, tmp_path: Path) -> Path:
        folder = tmp_path / "mine"
        folder.mkdir()
        (folder / "train.py").write_text("print('hello')\n")
        (folder / "big.bin").write_text("not this\n")
        (folder / ".rayignore").write_text("*.bin\n")
        return folder

    def test_start_packs_uploads_and_names_the_code(self, alive: Shell, folder: Path) -> None:
        result = alive("start", "-", "--code", str(folder), stdin="{}")
        assert result.exit_code == 0, result.stderr
        [(uri, content)] = alive.storage.objects.items()
        assert uri.startswith("gs://exports/code/") and uri.endswith(".zip")
        with zipfile.ZipFile(io.BytesIO(content)) as bundle:
            assert sorted(bundle.namelist()) == [".rayignore", "train.py"]
        body, _ = alive.sent[0]
        assert body == {"code": uri}
        assert isinstance(parse_request(json.dumps(body).encode()), StartRequest)
        assert "code: 2 files" in result.stdout

    def test_start_uploads_the_same_folder_once(self, alive: Shell, folder: Path) -> None:
        alive("start", "-", "--code", str(folder), stdin="{}")
        result = alive("start", "-", "--code", str(folder), stdin="{}")
        assert alive.storage.writes == 1 and "there already" in result.stdout

    def test_start_refuses_a_folder_with_a_secret(self, lustrum: Shell, folder: Path) -> None:
        (folder / ".env").write_text("TOKEN=1\n")
        result = lustrum("start", "-", "--code", str(folder), stdin="{}")
        assert result.exit_code == 2
        assert "looks like a secret" in result.stderr and "TOKEN" not in result.stderr
        assert not lustrum.storage.objects and not lustrum.sent

    def test_start_refuses_a_folder_that_is_none(self, lustrum: Shell) -> None:
        result = lustrum("start", "-", "--code", "/no/such", stdin="{}")
        assert result.exit_code == 2 and "--code" in result.stderr

    def test_start_refuses_code_given_twice(self, lustrum: Shell, folder: Path) -> None:
        request = '{"code": "gs://exports/other.zip"}'
        assert lustrum("start", "-", "--code", str(folder), stdin=request).exit_code == 2
        assert not lustrum.storage.objects

    def test_start_checks_the_request_before_it_uploads(
        self, lustrum: Shell, folder: Path
    ) -> None:
        request = '{"limits": {"cost_usd": 1}}'
        assert lustrum("start", "-", "--code", str(folder), stdin=request).exit_code == 2
        assert not lustrum.storage.objects

    def test_start_dry_run_packs_and_uploads_nothing(self, lustrum: Shell, folder: Path) -> None:
        result = lustrum("start", "-", "--code", str(folder), "--dry-run", stdin="{}")
        assert result.exit_code == 0, result.output
        assert "code: 2 files" in result.stdout and not lustrum.storage.objects


class TestCancel:
    def test_cancel_publishes_and_waits_until_it_is_written(self, alive: Shell) -> None:
        alive.ledger.create(records.new_run())
        result = alive("cancel", records.RUN_ID, "--no-export")
        assert result.exit_code == 0, result.output
        assert alive.sent[0][0] == {"action": "cancel", "run_id": records.RUN_ID, "export": False}
        assert "without export" in result.stdout
        assert alive.ledger.load(records.RUN_ID).cancel is not None

    def test_cancel_of_a_run_that_is_over_sends_nothing(self, lustrum: Shell) -> None:
        lustrum.ledger.create(records.eventful_run())
        result = lustrum("cancel", records.RUN_ID)
        assert result.exit_code == 0 and "over already: SUCCEEDED" in result.stdout
        assert not lustrum.sent

    def test_cancel_twice_sends_once(self, lustrum: Shell) -> None:
        run = records.new_run()
        run.cancel = Cancel(at=1, export=True, event_id="e")
        lustrum.ledger.create(run)
        assert "being cancelled already" in lustrum("cancel", records.RUN_ID).stdout
        assert not lustrum.sent


class TestExtend:
    def test_extend_says_until_when(self, alive: Shell) -> None:
        alive.ledger.create(records.new_run(limits={"hours": 6, "cost_usd": 5000}))
        result = alive("extend", records.RUN_ID, "1.5")
        assert result.exit_code == 0, result.output
        assert "2026-09-17 20:30:00 UTC" in result.stdout
        assert alive.ledger.load(records.RUN_ID).plan.hours == 7.5

    def test_extend_beyond_the_money_is_told(self, alive: Shell) -> None:
        alive.ledger.create(records.new_run())
        result = alive("extend", records.RUN_ID, "20")
        assert result.exit_code == 2 and "limits.cost_usd" in result.stderr
        assert alive.ledger.load(records.RUN_ID).plan.hours == 6

    @pytest.mark.parametrize("hours", ["0", "169", "nan"])
    def test_extend_refuses_hours_out_of_range(self, lustrum: Shell, hours: str) -> None:
        lustrum.ledger.create(records.new_run())
        result = lustrum("extend", records.RUN_ID, hours)
        assert result.exit_code == 2 and "hours" in result.stderr
        assert not lustrum.sent

    def test_extend_of_a_run_in_teardown_is_refused_here(self, lustrum: Shell) -> None:
        run = records.new_run()
        run.teardown = Teardown(execution="t", final=True, claimed_at=0, lease_until=0)
        lustrum.ledger.create(run)
        assert "ending or over" in lustrum("extend", records.RUN_ID, "1").stderr
        assert not lustrum.sent
