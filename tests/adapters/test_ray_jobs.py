"""The Jobs API as measured on real heads: every status, every lost answer. Cases G3, G11, B3."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from lustrum.adapters import ray_jobs
from lustrum.adapters.ray_jobs import RayJob, RayJobs, RayReply
from lustrum.core.errors import NotFound, ServiceError
from lustrum.core.failures import Failure

JOB = {
    "submission_id": "rl-0123456789-a1",
    "status": "RUNNING",
    "message": "Job is running",
    "driver_exit_code": None,
    "error_type": None,
    "metadata": {"run_id": "rl-0123456789"},
    "entrypoint": "python3 x",
    "driver_node_id": "n1",
}
EXISTS = (
    b"Traceback ...\nValueError: Job with submission_id rl-0123456789-a1 already exists. "
    b"Please use a different submission_id."
)
Step = RayReply | ServiceError


def lost() -> ServiceError:
    return ServiceError(Failure.INFRA_TRANSIENT, "ReadTimeout", retryable=True)


def found(**more: Any) -> RayReply:
    return RayReply(200, json.dumps({**JOB, **more}).encode())


class Dashboard:
    """Answers in turn; keeps what was asked."""

    def __init__(self, *steps: Step) -> None:
        self.steps = list(steps)
        self.asked: list[tuple[str, str]] = []

    def __call__(self, method: str, path: str, body: bytes | None = None) -> RayReply:
        self.asked.append((method, path))
        step = self.steps.pop(0)
        if isinstance(step, ServiceError):
            raise step
        return step


def submit(*steps: Step) -> tuple[RayJob, Dashboard]:
    dashboard = Dashboard(*steps)
    job = RayJobs(dashboard).submit(
        "rl-0123456789-a1", "python3 x", {"A": "b"}, {"run_id": "rl-0123456789"}
    )
    return job, dashboard


class TestSubmit:
    @pytest.mark.parametrize(
        "first",
        (
            RayReply(200, b"{}"),
            RayReply(500, EXISTS),  # the second post of one id: adopted
            RayReply(500, b"Please use a different submission_id."),
            lost(),  # accepted, and the answer lost
            RayReply(500, b"internal error"),
            RayReply(502, b"<html>bad gateway</html>"),
            RayReply(504, b""),
            RayReply(200, b"<html>login</html>"),
        ),
    )
    def test_b3_g11_a_job_that_is_there_is_ours(self, first: Step) -> None:
        job, dashboard = submit(first, found())
        assert job.submission_id == "rl-0123456789-a1"
        assert dashboard.asked == [
            ("POST", "api/jobs/"),
            ("GET", "api/jobs/rl-0123456789-a1"),
        ]

    @pytest.mark.parametrize(
        ("first", "failure", "retryable"),
        (
            (lost(), Failure.INFRA_TRANSIENT, True),
            (RayReply(500, b"No available agent to submit job"), Failure.INFRA_TRANSIENT, True),
            (RayReply(503, b""), Failure.INFRA_TRANSIENT, True),
            (RayReply(500, EXISTS), Failure.INFRA_TRANSIENT, True),
            (RayReply(200, b"{}"), Failure.INFRA_TRANSIENT, True),
            (RayReply(400, b"Traceback: unknown field"), Failure.CONFIG, False),
            (RayReply(405, b""), Failure.CONFIG, False),
            (RayReply(401, b""), Failure.ACCESS, False),
            (RayReply(403, b"forbidden"), Failure.ACCESS, False),
        ),
    )
    def test_g3_g11_a_job_that_is_not_there_is_an_error_of_its_class(
        self, first: Step, failure: Failure, retryable: bool
    ) -> None:
        with pytest.raises(ServiceError) as error:
            submit(first, RayReply(404, b"Job does not exist"))
        assert (error.value.failure, error.value.retryable) == (failure, retryable)

    def test_nobody_knows_whether_it_is_there(self) -> None:
        with pytest.raises(ServiceError) as error:
            submit(lost(), lost())
        assert error.value.retryable

    @pytest.mark.parametrize("metadata", ({}, {"run_id": "rl-ffffffffff"}))
    def test_a_job_of_somebody_else_is_not_adopted(self, metadata: dict[str, str]) -> None:
        with pytest.raises(ServiceError) as error:
            submit(RayReply(500, EXISTS), found(metadata=metadata))
        assert (error.value.failure, error.value.retryable) == (Failure.CONFIG, False)

    def test_g6_nothing_but_the_given_environment_is_sent(self) -> None:
        bodies: list[Any] = []

        def send(method: str, path: str, body: bytes | None = None) -> RayReply:
            if body:
                bodies.append(json.loads(body))
            return found()

        RayJobs(send).submit("rl-0123456789-a1", "x", {"A": "b"}, {"run_id": "rl-0123456789"})
        assert bodies[0]["runtime_env"] == {"env_vars": {"A": "b"}}


class TestLooks:
    @pytest.mark.parametrize(
        ("answer", "kind"),
        (
            (RayReply(404, b"Job X does not exist"), NotFound),
            (RayReply(500, b"oops"), ServiceError),
            (RayReply(503, b"no endpoints available for service"), ServiceError),
            (RayReply(200, b"<html>"), ServiceError),
            (RayReply(200, b""), ServiceError),
            (RayReply(401, b""), ServiceError),
        ),
    )
    def test_get_every_answer_that_is_none(
        self, answer: RayReply, kind: type[ServiceError]
    ) -> None:
        with pytest.raises(kind):
            RayJobs(Dashboard(answer)).get("x")

    @pytest.mark.parametrize("body", (b"[]", b"{}", b"null", b'{"status": null}'))
    def test_get_an_odd_body_is_a_pending_job(self, body: bytes) -> None:
        assert RayJobs(Dashboard(RayReply(200, body))).get("x").status == "PENDING"

    def test_get_quotes_the_id(self) -> None:
        dashboard = Dashboard(found())
        RayJobs(dashboard).get("Bad/Id x?y")
        assert dashboard.asked == [("GET", "api/jobs/Bad%2FId%20x%3Fy")]

    @pytest.mark.parametrize(
        ("status", "over"),
        (
            ("PENDING", False),
            ("RUNNING", False),
            ("STOPPED", True),
            ("SUCCEEDED", True),
            ("FAILED", True),
        ),
    )
    def test_is_over(self, status: str, over: bool) -> None:
        assert RayJobs(Dashboard(found(status=status))).get("x").is_over is over

    @pytest.mark.parametrize(
        "answer",
        (
            RayReply(200, b'{"stopped": true}'),
            RayReply(200, b'{"stopped": false}'),
            RayReply(404, b""),
        ),
    )
    def test_stop_what_is_over_or_unknown_is_fine(self, answer: RayReply) -> None:
        RayJobs(Dashboard(answer)).stop("x")

    def test_stop_that_fails_is_told(self) -> None:
        with pytest.raises(ServiceError):
            RayJobs(Dashboard(RayReply(500, b""))).stop("x")

    def test_tail_is_empty_when_there_is_none(self) -> None:
        job = RayJobs(Dashboard(found(driver_node_id=None))).get("x")
        assert RayJobs(Dashboard()).tail(job) == ""
        job = RayJobs(Dashboard(found())).get("x")
        for answer in (RayReply(404, b"x"), RayReply(500, b"x")):
            assert RayJobs(Dashboard(answer)).tail(job) == ""
        assert RayJobs(Dashboard(RayReply(200, b"a\xffb"))).tail(job) == "a�b"

    def test_nodes_counts_the_living(self) -> None:
        summary = [
            {"raylet": {"state": "ALIVE", "resourcesTotal": {"CPU": 8}}},
            {"raylet": {"state": "ALIVE", "resourcesTotal": {"GPU": 8.0}}},
            {"raylet": {"state": "DEAD", "resourcesTotal": {"GPU": 8.0}}},
            {"raylet": {"state": "ALIVE"}},
            {},
        ]
        body = json.dumps({"data": {"summary": summary}}).encode()
        nodes = RayJobs(Dashboard(RayReply(200, body))).nodes()
        assert (nodes.alive, nodes.gpus) == (3, 8.0)

    @pytest.mark.parametrize("body", (b"{}", b'{"data": null}', b'{"data": {"summary": null}}'))
    def test_nodes_of_an_odd_body_are_none(self, body: bytes) -> None:
        assert RayJobs(Dashboard(RayReply(200, body))).nodes().alive == 0


class TestDirect:
    @pytest.mark.parametrize(
        "error",
        (
            httpx.ConnectError("refused"),
            httpx.ReadTimeout("slow"),
            httpx.RemoteProtocolError("cut"),
            httpx.ConnectTimeout("slow"),
        ),
    )
    def test_no_answer_may_pass(
        self, error: httpx.HTTPError, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def handler(request: httpx.Request) -> httpx.Response:
            raise error

        _use(monkeypatch, handler)
        with pytest.raises(ServiceError) as told:
            ray_jobs.direct("http://127.0.0.1:1")("GET", "api/version")
        assert told.value.retryable

    def test_paths_and_headers(self, monkeypatch: pytest.MonkeyPatch) -> None:
        seen: list[httpx.Request] = []

        def handler(request: httpx.Request) -> httpx.Response:
            seen.append(request)
            return httpx.Response(200, json=JOB)

        _use(monkeypatch, handler)
        send = ray_jobs.direct("http://127.0.0.1:8265/", lambda: {"Authorization": "Bearer t"})
        assert RayJobs(send).get("x").status == "RUNNING"
        assert str(seen[0].url) == "http://127.0.0.1:8265/api/jobs/x"
        assert seen[0].headers["Authorization"] == "Bearer t"
        assert "Mozilla" not in seen[0].headers["User-Agent"]  # answered 405 on POST


def _use(patch: pytest.MonkeyPatch, handler: Callable[[httpx.Request], httpx.Response]) -> None:
    real = httpx.Client
    patch.setattr(
        httpx, "Client", lambda **more: real(**more, transport=httpx.MockTransport(handler))
    )
