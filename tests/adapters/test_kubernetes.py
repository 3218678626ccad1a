"""The Kubernetes adapter without a cluster: tokens, timeouts, paths. The cluster tier has one."""

from __future__ import annotations

import json
from typing import Any

import pytest
import urllib3
from lustrum.adapters.google import Tokens
from lustrum.adapters.kubernetes import Kubernetes
from lustrum.core.errors import NotFound, ServiceError
from lustrum.core.failures import Failure
from lustrum.core.settings import Settings


class Reply:
    def __init__(self, status: int, body: Any = None) -> None:
        self.status = status
        self.data = body if isinstance(body, bytes) else json.dumps(body or {}).encode()


class Pool:
    """Answers in turn; keeps what was asked."""

    def __init__(self, *replies: Reply | Exception) -> None:
        self.replies = list(replies)
        self.asked: list[tuple[str, str, dict[str, Any]]] = []

    def request(self, method: str, url: str, **more: Any) -> Reply:
        self.asked.append((method, url, more))
        reply = self.replies.pop(0)
        if isinstance(reply, Exception):
            raise reply
        return reply


class FakeTokens(Tokens):
    def __init__(self) -> None:
        self.fresh: list[bool] = []

    def get(self, *, fresh: bool = False) -> str:
        self.fresh.append(fresh)
        return "new" if fresh else "old"


def connected(*replies: Reply | Exception) -> tuple[Kubernetes, Pool, FakeTokens]:
    tokens = FakeTokens()
    kubernetes = Kubernetes.connect(Settings("p", "r"), tokens, "gke-x.us-east1.gke.goog")
    pool = Pool(*replies)
    kubernetes._api.rest_client.pool_manager = pool
    return kubernetes, pool, tokens


class TestRequests:
    def test_j1_a_token_that_died_is_refreshed_once(self) -> None:
        kubernetes, pool, tokens = connected(Reply(401), Reply(200, {"a": 1}))
        assert kubernetes.get("Secret", "x") == {"a": 1}
        assert tokens.fresh == [False, True]
        assert pool.asked[1][2]["headers"]["Authorization"] == "Bearer new"

    def test_an_apply_of_an_unknown_field_is_our_own_mistake_though_it_answers_500(self) -> None:
        text = "failed to create typed patch object: .spec.headGruop: field not declared in schema"
        kubernetes, _, _ = connected(Reply(500, {"message": text}))
        with pytest.raises(ServiceError) as error:
            kubernetes.apply({"kind": "RayCluster", "metadata": {"name": "x"}})
        assert error.value.failure is Failure.CONFIG
        assert not error.value.retryable

    def test_j1_a_second_401_is_an_error(self) -> None:
        kubernetes, pool, _ = connected(Reply(401), Reply(401), Reply(200))
        with pytest.raises(ServiceError) as error:
            kubernetes.get("Secret", "x")
        assert error.value.failure is Failure.ACCESS
        assert len(pool.asked) == 2

    @pytest.mark.parametrize(
        "error",
        (
            urllib3.exceptions.ConnectTimeoutError(),
            urllib3.exceptions.ReadTimeoutError(urllib3.HTTPConnectionPool("x"), "/", "slow"),
            urllib3.exceptions.ProtocolError("cut"),
        ),
    )
    def test_j5_no_answer_may_pass(self, error: Exception) -> None:
        kubernetes, _, _ = connected(error)
        with pytest.raises(ServiceError) as told:
            kubernetes.get("Secret", "x")
        assert told.value.retryable

    def test_every_request_has_a_timeout_and_goes_to_the_dns_endpoint(self) -> None:
        kubernetes, pool, _ = connected(Reply(200))
        kubernetes.get("RayCluster", "rl-0123456789")
        method, url, more = pool.asked[0]
        assert (method, url) == (
            "GET",
            "https://gke-x.us-east1.gke.goog/apis/ray.io/v1/namespaces/default/rayclusters/rl-0123456789",
        )
        assert more["timeout"].connect_timeout <= 10 and more["timeout"].read_timeout <= 60
        assert more["retries"] is False

    @pytest.mark.parametrize(
        ("status", "failure"),
        (
            (403, Failure.ACCESS),
            (422, Failure.CONFIG),
            (429, Failure.INFRA_TRANSIENT),
            (500, Failure.INFRA_TRANSIENT),
        ),
    )
    def test_every_status_has_its_class(self, status: int, failure: Failure) -> None:
        kubernetes, _, _ = connected(Reply(status, {"message": "why"}))
        with pytest.raises(ServiceError) as error:
            kubernetes.get("Secret", "x")
        assert error.value.failure is failure and "why" in str(error.value)

    def test_404_is_not_found(self) -> None:
        kubernetes, _, _ = connected(Reply(404, b"<html>"))
        with pytest.raises(NotFound):
            kubernetes.get("Secret", "x")

    def test_j3_apply_is_server_side_and_strict(self) -> None:
        kubernetes, pool, _ = connected(Reply(200))
        kubernetes.apply({"kind": "Secret", "metadata": {"name": "x"}, "é": "😀"})
        method, url, more = pool.asked[0]
        assert method == "PATCH"
        assert "fieldValidation=Strict" in url and "fieldManager=lustrum" in url
        assert more["headers"]["Content-Type"] == "application/apply-patch+yaml"
        assert "😀" in more["body"].decode()

    def test_delete_what_is_not_there_is_fine(self) -> None:
        kubernetes, pool, _ = connected(Reply(404))
        kubernetes.delete("RayCluster", "x")
        assert "propagationPolicy=Foreground" in pool.asked[0][1]

    def test_the_dashboard_is_reached_by_the_service_proxy(self) -> None:
        kubernetes, _, _ = connected()
        path = kubernetes.proxy("rl-0123456789-head-svc", 8265, "/api/version")
        assert path == (
            "/api/v1/namespaces/default/services/http:rl-0123456789-head-svc:8265/proxy/api/version"
        )
