"""Google's REST APIs behind a scripted transport: tokens, timeouts, pages, odd bodies. J1, D1."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from lustrum.adapters.builds import Builds
from lustrum.adapters.compute import Compute
from lustrum.adapters.google import Rest, Tokens, pages
from lustrum.adapters.lustre import Lustre
from lustrum.adapters.storage import Storage, split
from lustrum.core.errors import NotFound, ServiceError
from lustrum.core.failures import Failure
from lustrum.core.settings import Settings

SETTINGS = Settings(
    project="p", region="us-east1", build_trigger="projects/p/locations/us-east1/triggers/t"
)
INSTANCE = "projects/p/locations/us-east1-b/instances/rl-0123456789"


class FakeTokens(Tokens):
    """Counts what is asked for."""

    def __init__(self) -> None:
        self.fresh: list[bool] = []

    def get(self, *, fresh: bool = False) -> str:
        self.fresh.append(fresh)
        return "new" if fresh else "old"


Handler = Callable[[httpx.Request], httpx.Response]


def rest(handler: Handler, tokens: FakeTokens | None = None) -> Rest:
    return Rest(SETTINGS, tokens or FakeTokens(), httpx.MockTransport(handler))


def answers(*replies: Any) -> tuple[Handler, list[httpx.Request]]:
    """Return a handler that answers in turn, and what it was asked."""
    left, asked = list(replies), []

    def handler(request: httpx.Request) -> httpx.Response:
        asked.append(request)
        reply = left.pop(0)
        if isinstance(reply, Exception):
            raise reply
        if isinstance(reply, httpx.Response):
            return reply
        return httpx.Response(200, json=reply)

    return handler, asked


class TestRest:
    def test_j1_a_token_that_died_is_refreshed_once(self) -> None:
        handler, asked = answers(httpx.Response(401), {"ok": 1})
        tokens = FakeTokens()
        assert rest(handler, tokens).call("lustre", "GET", "/v1/x") == {"ok": 1}
        assert tokens.fresh == [False, True]
        assert asked[1].headers["Authorization"] == "Bearer new"

    def test_j1_a_second_401_is_an_error(self) -> None:
        handler, asked = answers(httpx.Response(401), httpx.Response(401), {"never": 1})
        with pytest.raises(ServiceError) as error:
            rest(handler).call("lustre", "GET", "/v1/x")
        assert error.value.failure is Failure.ACCESS
        assert len(asked) == 2

    @pytest.mark.parametrize(
        ("status", "failure", "retryable"),
        (
            (400, Failure.CONFIG, False),
            (403, Failure.ACCESS, False),
            (409, Failure.CONFIG, False),
            (412, Failure.CONFIG, False),
            (429, Failure.INFRA_TRANSIENT, True),
            (500, Failure.INFRA_TRANSIENT, True),
            (503, Failure.INFRA_TRANSIENT, True),
            (302, Failure.CONFIG, False),
        ),
    )
    def test_every_status_has_its_class(
        self, status: int, failure: Failure, retryable: bool
    ) -> None:
        handler, _ = answers(httpx.Response(status, text="why"))
        with pytest.raises(ServiceError) as error:
            rest(handler).call("lustre", "GET", "/v1/x")
        found = (error.value.failure, error.value.retryable, error.value.status)
        assert found == (failure, retryable, status)
        assert "why" in str(error.value)

    def test_404_is_not_found(self) -> None:
        handler, _ = answers(httpx.Response(404))
        with pytest.raises(NotFound):
            rest(handler).call("lustre", "GET", "/v1/x")

    @pytest.mark.parametrize(
        "error",
        (
            httpx.ConnectError("refused"),
            httpx.ConnectTimeout("x"),
            httpx.ReadTimeout("x"),
            httpx.RemoteProtocolError("cut"),
        ),
    )
    def test_no_answer_may_pass(self, error: Exception) -> None:
        handler, _ = answers(error)
        with pytest.raises(ServiceError) as told:
            rest(handler).call("lustre", "GET", "/v1/x")
        assert told.value.retryable

    def test_every_call_has_a_timeout(self) -> None:
        handler, asked = answers({})
        rest(handler).call("lustre", "GET", "/v1/x")
        limits = asked[0].extensions["timeout"]
        assert all(limits[one] and limits[one] <= 30 for one in ("connect", "read", "write"))

    @pytest.mark.parametrize("body", (b"<html>", b"{", b"\xff"))
    def test_what_is_not_json_may_pass(self, body: bytes) -> None:
        handler, _ = answers(httpx.Response(200, content=body))
        with pytest.raises(ServiceError) as error:
            rest(handler).call("lustre", "GET", "/v1/x")
        assert error.value.retryable

    def test_an_empty_answer_is_an_empty_map(self) -> None:
        handler, _ = answers(httpx.Response(204))
        assert rest(handler).call("lustre", "DELETE", "/v1/x") == {}

    def test_pages_all_of_them(self) -> None:
        handler, asked = answers({"a": 1, "nextPageToken": "t"}, {"a": 2})
        assert [one["a"] for one in pages(rest(handler), "lustre", "/v1/x", {"f": "y"})] == [1, 2]
        assert dict(asked[1].url.params) == {"f": "y", "pageToken": "t"}


def output(found: Any) -> str:
    return base64.b64encode(json.dumps(found).encode()).decode()


class TestBuilds:
    def one(self, **more: Any) -> Any:
        body = {
            "id": "b",
            "status": "FAILURE",
            "tags": ["lustrum"],
            "createTime": "2026-01-01T00:00:00.123456789Z",
        }
        handler, self.asked = answers({"builds": [{**body, **more}]})
        return Builds(rest(handler), SETTINGS).tagged("rl-0123456789-deploy-z1")[0]

    def test_tagged_asks_by_tag_in_the_triggers_region(self) -> None:
        self.one()
        assert self.asked[0].url.path == "/v1/projects/p/locations/us-east1/builds"
        assert self.asked[0].url.params["filter"] == 'tags="rl-0123456789-deploy-z1"'

    @pytest.mark.parametrize(
        ("results", "expected"),
        (
            ({"buildStepOutputs": [output({"class": "STOCKOUT"})]}, {"class": "STOCKOUT"}),
            ({"buildStepOutputs": [output({"a": 1}), "", output({"a": 2})]}, {"a": 2}),
            ({"buildStepOutputs": ["%%%", output([1]), "bm90IGpzb24="]}, {}),
            ({"buildStepOutputs": None}, {}),
            (None, {}),
            ({}, {}),
        ),
    )
    def test_the_output_of_the_last_step_that_left_one(
        self, results: Any, expected: dict[str, Any]
    ) -> None:
        assert self.one(results=results).output == expected

    def test_a_time_in_nanoseconds(self) -> None:
        assert self.one().created_at == pytest.approx(1767225600.123456)
        assert self.one(createTime=None).created_at == 0

    @pytest.mark.parametrize(
        ("status", "live"),
        (
            ("PENDING", True),
            ("QUEUED", True),
            ("WORKING", True),
            ("SUCCESS", False),
            ("FAILURE", False),
            ("CANCELLED", False),
            ("TIMEOUT", False),
            ("EXPIRED", False),
        ),
    )
    def test_is_live(self, status: str, live: bool) -> None:
        assert self.one(status=status).is_live is live

    def test_creates_is_said_by_the_tag(self) -> None:
        assert self.one(tags=["rl-0123456789-deploy-z1"]).creates
        assert not self.one(tags=["rl-0123456789-destroy-z1"]).creates

    def test_no_builds(self) -> None:
        handler, _ = answers({})
        assert Builds(rest(handler), SETTINGS).tagged("x") == []


class TestLustre:
    def lustre(self, *replies: Any) -> Lustre:
        handler, self.asked = answers(*replies)
        return Lustre(rest(handler), SETTINGS)

    def test_list_of_all_places_with_those_that_did_not_answer(self) -> None:
        found = self.lustre(
            {
                "instances": [{"name": INSTANCE, "state": "ACTIVE", "labels": {"a": "b"}}],
                "unreachable": ["us-west1-a"],
            },
        ).list()
        [one] = found.items
        assert (one.name, one.zone, one.state) == ("rl-0123456789", "us-east1-b", "ACTIVE")
        assert found.missing == ["us-west1-a"]

    @pytest.mark.parametrize("status", (400, 404, 409))
    def test_delete_what_is_gone_or_busy_is_fine(self, status: int) -> None:
        self.lustre(httpx.Response(status)).delete("us-east1-b", "x")

    @pytest.mark.parametrize("status", (403, 500))
    def test_delete_that_is_refused_is_told(self, status: int) -> None:
        with pytest.raises(ServiceError):
            self.lustre(httpx.Response(status)).delete("us-east1-b", "x")

    def test_relabel_keeps_the_others(self) -> None:
        self.lustre({"labels": {"a": "b"}}, {}).relabel("us-east1-b", "x", 5.9)
        body = json.loads(self.asked[1].content)
        assert body == {"labels": {"a": "b", "lustrum-expires": "5"}}
        assert self.asked[1].url.params["updateMask"] == "labels"

    def test_i7_an_export_beside_another_is_the_other(self) -> None:
        running = {"name": "op1", "metadata": {"target": INSTANCE}}
        done = {"name": "op0", "done": True, "metadata": {"target": INSTANCE}}
        other = {"name": "op2", "metadata": {"target": "another"}}
        lustre = self.lustre(httpx.Response(409), {"operations": [done, other, running]})
        assert lustre.export("us-east1-b", "rl-0123456789", "/x", "gs://b/x/") == "op1"

    def test_i7_a_conflict_with_nothing_is_an_error(self) -> None:
        lustre = self.lustre(httpx.Response(409), {"operations": []})
        with pytest.raises(ServiceError):
            lustre.export("us-east1-b", "rl-0123456789", "/x", "gs://b/x/")

    @pytest.mark.parametrize(
        ("body", "done", "problem"),
        (
            ({}, False, ""),
            ({"done": True}, True, ""),
            ({"done": True, "error": {"message": "PERMISSION_DENIED"}}, True, "PERMISSION_DENIED"),
            (
                {
                    "done": True,
                    "metadata": {"operationMetadata": {"counters": {"objectsFailedCount": "2"}}},
                },
                True,
                "2 objects could not be copied",
            ),
            ({"metadata": None}, False, ""),
        ),
    )
    def test_i6_transfer(self, body: dict[str, Any], done: bool, problem: str) -> None:
        found = self.lustre(body).transfer("op1")
        assert (found.done, found.problem) == (done, problem)

    def test_transfer_counts_what_was_there_already(self) -> None:
        counters = {
            "objectsCopiedCount": "2",
            "objectsSkippedCount": "1",
            "bytesCopiedCount": "20",
            "bytesSkippedCount": 5,
        }
        body = {"metadata": {"operationMetadata": {"counters": counters}}}
        found = self.lustre(body).transfer("op1")
        assert (found.files, found.bytes) == (3, 25)


class TestCompute:
    def test_machines_with_places_that_did_not_answer(self) -> None:
        items = {
            "zones/us-east1-b": {
                "instances": [
                    {
                        "name": "vm",
                        "zone": "https://x/zones/us-east1-b",
                        "status": "RUNNING",
                        "labels": {"goog-k8s-cluster-name": "rl-0123456789"},
                        "guestAccelerators": [{"acceleratorCount": 8}],
                    },
                    {"name": "bare"},
                ]
            },
            "zones/us-east1-c": {"warning": {"code": "UNREACHABLE"}},
            "zones/us-east1-d": {"warning": {"code": "NO_RESULTS_ON_PAGE"}},
        }
        handler, asked = answers({"items": items, "unreachables": ["zones/x"]}, {})
        found = Compute(rest(handler), SETTINGS).machines("rl-0123456789")
        assert [(one.name, one.zone, one.gpus, one.cluster) for one in found.items] == [
            ("vm", "us-east1-b", 8, "rl-0123456789"),
            ("bare", "", 0, ""),
        ]
        assert found.missing == ["zones/x", "zones/us-east1-c"]
        assert asked[0].url.params["filter"].endswith("goog-k8s-cluster-name=rl-0123456789")


class TestStorage:
    def test_list_all_pages(self) -> None:
        handler, asked = answers(
            {"items": [{"name": "a/b", "size": "5"}], "nextPageToken": "t"}, {"items": []}
        )
        [one] = Storage(rest(handler)).list("gs://bucket/a/")
        assert (one.uri, one.size) == ("gs://bucket/a/b", 5)
        assert asked[0].url.params["prefix"] == "a/"

    def test_read_and_write_quote_the_name(self) -> None:
        handler, asked = answers(httpx.Response(200, content=b"x"), {})
        storage = Storage(rest(handler))
        assert storage.read("gs://bucket/a/b c?.log") == b"x"
        assert asked[0].url.raw_path.startswith(b"/storage/v1/b/bucket/o/a%2Fb%20c%3F.log")
        storage.write("gs://bucket/a", b"y", "text/plain")
        assert asked[1].headers["Content-Type"] == "text/plain"

    def test_delete_what_is_not_there_is_fine(self) -> None:
        handler, _ = answers(httpx.Response(404))
        Storage(rest(handler)).delete("gs://bucket/x")

    def test_split_refuses_what_is_no_uri(self) -> None:
        with pytest.raises(ValueError, match="s3://x"):
            split("s3://x/y")
        assert split("gs://bucket") == ("bucket", "")
