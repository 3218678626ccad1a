"""The functions that the workflows call, and the reaper: JSON in, JSON out, never HTML."""

from __future__ import annotations

import json

import pytest

from testing.services import FakeServices, push
from tests.functions.support import CALLED, NAMES, client, post

RUN = "rl-3fb820c385"
GOOD = {"run_id": RUN, "execution": "projects/p/locations/r/workflows/w/executions/1"}
BAD_CALLS = {
    "empty": b"",
    "array": b"[1]",
    "null": b"null",
    "not json": b"{",
    "not utf-8": b"\xff",
    "deep": b"[" * 50_000,
    "no run": b"{}",
    "run as a number": json.dumps({**GOOD, "run_id": 7}).encode(),
    "run with a path": json.dumps({**GOOD, "run_id": "../" + RUN}).encode(),
    "run with a line": json.dumps({**GOOD, "run_id": RUN + "\n"}).encode(),
    "no execution": json.dumps({"run_id": RUN}).encode(),
    "execution as a list": json.dumps({**GOOD, "execution": []}).encode(),
    "too large": json.dumps({**GOOD, "x": "y" * 300_000}).encode(),
}


class TestCalls:
    @pytest.mark.parametrize("name", CALLED)
    @pytest.mark.parametrize("body", BAD_CALLS.values(), ids=BAD_CALLS)
    def test_a_bad_call_is_the_callers_fault(
        self, name: str, body: bytes, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        services = FakeServices()
        answer = post(client(name, services, monkeypatch), body)
        assert answer.status_code == 400
        error = answer.get_json()["error"]
        assert (error["class"], error["retryable"]) == ("CONFIG", False)
        assert error["message"]
        assert services.cloud.calls == [] and services.memory.run_ids() == []

    @pytest.mark.parametrize("name", CALLED)
    def test_a_run_nobody_knows_is_not_found(
        self, name: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        call = {**GOOD, "step": "claim"}
        answer = post(client(name, FakeServices(), monkeypatch), json.dumps(call).encode())
        assert answer.status_code == 404
        assert answer.get_json()["error"]["retryable"] is False

    @pytest.mark.parametrize("name", CALLED)
    def test_a_ledger_that_is_away_may_be_asked_again(
        self, name: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        services = FakeServices()
        services.memory.broken = ConnectionError("firestore is away")
        call = {**GOOD, "step": "claim"}
        answer = post(client(name, services, monkeypatch), json.dumps(call).encode())
        assert answer.status_code == 503
        assert answer.get_json()["error"]["retryable"] is True

    @pytest.mark.parametrize("name", CALLED)
    @pytest.mark.parametrize("method", ("get", "delete", "put"))
    def test_only_json_leaves(
        self, name: str, method: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        app = client(name, FakeServices(), monkeypatch)
        answer = getattr(app, method)("/")
        assert answer.status_code == 400
        assert answer.get_json()["error"]["class"] == "CONFIG"

    @pytest.mark.parametrize("name", sorted(set(CALLED) - {"advance_run"}))
    def test_an_execution_that_does_not_own_the_run_is_refused(
        self, name: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        services = FakeServices()
        post(client("start_run", services, monkeypatch), push({}))
        services.memory.change(RUN, lambda run: setattr(run, "execution", "somebody"))
        answer = post(client(name, services, monkeypatch), json.dumps(GOOD).encode())
        assert answer.status_code == 200
        assert answer.get_json()["go"] is False
        assert not {call for call in services.cloud.calls if call[1] != "list"}

    @pytest.mark.parametrize("step", (None, "", "destroyed", "__class__", 7, ["claim"]))
    def test_a_step_nobody_knows(self, step: object, monkeypatch: pytest.MonkeyPatch) -> None:
        call = json.dumps({**GOOD, "step": step}).encode()
        answer = post(client("advance_run", FakeServices(), monkeypatch), call)
        assert answer.status_code == 400
        assert "step" in answer.get_json()["error"]["message"]

    @pytest.mark.parametrize("step", ("enter", "teardown"))
    def test_a_state_nobody_knows(self, step: str, monkeypatch: pytest.MonkeyPatch) -> None:
        services = FakeServices()
        post(client("start_run", services, monkeypatch), push({}))
        execution = GOOD["execution"]
        app = client("advance_run", services, monkeypatch)
        if step == "teardown":
            post(app, json.dumps({**GOOD, "step": "claim_teardown"}).encode())
        call = json.dumps({**GOOD, "step": step, "state": "DONE", "execution": execution}).encode()
        assert post(app, call).status_code == 400

    @pytest.mark.parametrize(
        ("call", "field"),
        (
            ({"step": "claim", "callback_url": 5}, "callback_url"),
            ({"step": "failed", "why": {"a": 1}}, "why"),
            ({"step": "failed", "build": "often"}, "build"),
            ({"step": "hand_over", "failure": ["CONFIG"]}, "failure"),
            ({"step": "build", "action": "deploy", "since": float("inf")}, "since"),
            ({"step": "claim_teardown", "final": "perhaps"}, "final"),
            ({"step": "teardown", "at": 3}, "at"),
        ),
    )
    def test_a_field_of_the_wrong_kind_is_named_and_not_answered_try_again(
        self, call: dict[str, object], field: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        services = FakeServices()
        post(client("start_run", services, monkeypatch), push({}))
        app = client("advance_run", services, monkeypatch)
        answer = post(app, json.dumps({**GOOD, **call}).encode())
        error = answer.get_json()["error"]
        assert (answer.status_code, error["retryable"]) == (400, False)
        assert error["message"].startswith(f"{field}: ")


class TestReaper:
    def test_a28_a_sweep_that_saw_all_is_a_200_and_any_other_a_500(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        services = FakeServices()
        app = client("reap_runs", services, monkeypatch)
        assert post(app, b"").status_code == 200
        services.cloud.missing_zones = ["us-east1-b"]
        answer = post(app, b"")
        assert answer.status_code == 500
        assert "us-east1-b" in str(answer.get_json()["problems"])


class TestEveryFunction:
    @pytest.mark.parametrize("name", NAMES)
    def test_it_is_short_and_says_what_it_is(self, name: str) -> None:
        from tests.functions.support import ROOT

        text = (ROOT / name / "main.py").read_text()
        assert len(text.splitlines()) < 80
        assert text.startswith(f'"""`{name}`')


class TestFaultsOfOurs:
    @pytest.mark.parametrize(
        ("fault", "status"),
        [(AssertionError("x"), 400), (TypeError("x"), 400), (OSError("x"), 503)],
    )
    def test_a_bug_is_not_tried_again(
        self, fault: Exception, status: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        services = FakeServices()
        services.memory.broken = fault
        call = {**GOOD, "step": "claim"}
        answer = post(client("advance_run", services, monkeypatch), json.dumps(call).encode())
        assert answer.status_code == status
        assert answer.get_json()["error"]["retryable"] is (status == 503)
