"""The doctor's probes against answers shaped as the services give them."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from lustrum.adapters.google import Rest, Tokens
from lustrum.adapters.project import Project, asker
from lustrum.core.errors import NotFound, ServiceError
from lustrum.core.settings import Settings
from lustrum.doctor.project_questions import Quota, ServiceQuota

Answers = Mapping[str, dict[str, Any]]


class Asked:
    """Answers by the end of the URL's path; remembers what was asked."""

    def __init__(self, answers: Answers) -> None:
        self.answers = answers
        self.calls: list[tuple[str, str, Mapping[str, Any] | None]] = []

    def __call__(self, method: str, url: str, body: Mapping[str, Any] | None) -> dict[str, Any]:
        self.calls.append((method, url, body))
        for end, answer in self.answers.items():
            if url.endswith(end):
                return answer
        raise NotFound(url)


def project(answers: Answers) -> tuple[Project, Asked]:
    asked = Asked(answers)
    return Project("p", asked), asked


class TestProject:
    def test_enabled_services_of_all_pages(self) -> None:
        found, asked = project(
            {
                "pageToken=two": {"services": [{"config": {"name": "lustre.googleapis.com"}}]},
                "pageSize=200": {
                    "services": [
                        {
                            "name": "projects/1/services/iam.googleapis.com",
                            "config": {"name": "iam.googleapis.com", "title": "IAM"},
                            "state": "ENABLED",
                            "parent": "projects/1",
                        }
                    ],
                    "nextPageToken": "two",
                },
            }
        )
        assert found.enabled_services() == {"iam.googleapis.com", "lustre.googleapis.com"}
        assert "filter=state%3AENABLED" in asked.calls[0][1]
        assert len(asked.calls) == 2

    def test_states_of_functions_and_workflows(self) -> None:
        path = "projects/p/locations/us-east1"
        found, _ = project(
            {
                "/v2/projects/p/locations/us-east1/functions": {
                    "functions": [
                        {
                            "name": f"{path}/functions/start-run",
                            "state": "ACTIVE",
                            "environment": "GEN_2",
                        },
                        {"name": f"{path}/functions/stage-data", "state": "FAILED"},
                    ]
                },
                "/v1/projects/p/locations/us-east1/workflows": {
                    "workflows": [{"name": f"{path}/workflows/rl-run", "state": "ACTIVE"}]
                },
            }
        )
        assert found.functions("us-east1") == {"start-run": "ACTIVE", "stage-data": "FAILED"}
        assert found.workflows("us-east1") == {"rl-run": "ACTIVE"}

    def test_machine_zones_leave_out_those_that_only_warn(self) -> None:
        warning = {"warning": {"code": "NO_RESULTS_ON_PAGE", "message": "There are no results"}}
        found, asked = project(
            {
                "returnPartialSuccess=true": {
                    "items": {
                        "zones/us-east1-b": {"machineTypes": [{"name": "a4-highgpu-8g"}]},
                        "zones/us-east1-c": warning,
                    }
                }
            }
        )
        assert found.machine_zones("a4-highgpu-8g") == {"us-east1-b"}
        assert "filter=name%3Da4-highgpu-8g" in asked.calls[0][1]

    def test_lustre_zones_are_its_locations(self) -> None:
        found, _ = project(
            {
                "/projects/p/locations": {
                    "locations": [
                        {"name": "projects/p/locations/us-east1-b", "locationId": "us-east1-b"}
                    ]
                }
            }
        )
        assert found.lustre_zones() == {"us-east1-b"}

    def test_region_quotas_by_metric(self) -> None:
        found, _ = project(
            {
                "/regions/us-east1": {
                    "quotas": [
                        {"metric": "PREEMPTIBLE_NVIDIA_B200_GPUS", "limit": 64.0, "usage": 8.0},
                        {"metric": "CPUS", "limit": 24},
                    ]
                }
            }
        )
        assert found.region_quotas("us-east1") == {
            "PREEMPTIBLE_NVIDIA_B200_GPUS": Quota(64, 8),
            "CPUS": Quota(24, 0),
        }

    def test_service_quotas_one_for_each_value(self) -> None:
        info = {
            "quotaId": "StorageFor500MBpsThroughputPerTiB-per-zone-network",
            "metric": "lustre.googleapis.com/storage_for_500mbps_throughput_per_tib",
            "dimensions": ["zone", "network"],
            "dimensionsInfos": [
                {
                    "dimensions": {"zone": "us-east1-b"},
                    "details": {"value": "18000"},
                    "applicableLocations": ["us-east1-b"],
                },
                {"details": {"value": "-1"}},
            ],
        }
        found, asked = project({"quotaInfos?pageSize=100": {"quotaInfos": [info]}})
        first, second = found.service_quotas("lustre.googleapis.com")
        assert first == ServiceQuota(
            f"{info['metric']} {info['quotaId']}",
            {"zone": "us-east1-b"},
            frozenset({"us-east1-b"}),
            18_000,
        )
        assert first.is_lustre_tier(500) and not first.is_lustre_tier(1000)
        assert second.limit == -1
        assert "/services/lustre.googleapis.com/" in asked.calls[0][1]

    def test_bindings_of_project_with_conditions_too(self) -> None:
        policy = {
            "version": 3,
            "bindings": [
                {
                    "role": "roles/datastore.user",
                    "members": ["serviceAccount:a", "user:b"],
                    "condition": {"title": "the ledger only", "expression": "..."},
                },
                {"role": "roles/owner"},
            ],
        }
        found, asked = project({"/projects/p:getIamPolicy": policy})
        assert found.project_bindings() == {
            ("roles/datastore.user", "serviceAccount:a"),
            ("roles/datastore.user", "user:b"),
        }
        # without it the service leaves conditional bindings out, or downgrades the version
        assert asked.calls[0][2] == {"options": {"requestedPolicyVersion": 3}}

    def test_bindings_of_bucket_topic_and_function(self) -> None:
        policy = {"bindings": [{"role": "r", "members": ["m"]}]}
        found, asked = project(
            {
                "/b/some-bucket/iam?optionsRequestedPolicyVersion=3": policy,
                "/topics/lustrum-alerts:getIamPolicy": policy,
                "/services/start-run:getIamPolicy": policy,
            }
        )
        assert found.bucket_bindings("some-bucket") == {("r", "m")}
        assert found.topic_bindings("lustrum-alerts") == {("r", "m")}
        assert found.invoker_bindings("us-east1", "start-run") == {("r", "m")}
        assert {call[0] for call in asked.calls} == {"GET"}

    def test_bindings_of_an_account_are_asked_by_post(self) -> None:
        policy = {"bindings": [{"role": "r", "members": ["m"]}]}
        found, asked = project({"/serviceAccounts/a@p.example:getIamPolicy": policy})
        assert found.account_bindings("a@p.example") == {("r", "m")}
        assert asked.calls[0][0] == "POST"

    def test_peerings_of_a_network(self) -> None:
        found, _ = project(
            {"/global/networks/lustrum": {"peerings": [{"name": "x", "state": "ACTIVE"}]}}
        )
        assert found.peerings("lustrum") == {"x": "ACTIVE"}

    def test_secret_state_reads_no_value(self) -> None:
        found, asked = project(
            {"/secrets/s/versions/latest": {"name": "n", "state": "ENABLED", "etag": "e"}}
        )
        assert found.secret_state("s") == "ENABLED"
        assert "access" not in asked.calls[0][1]

    @pytest.mark.parametrize(
        ("answer", "may"), [({"permissions": ["pubsub.topics.publish"]}, True), ({}, False)]
    )
    def test_may_publish_asks_for_that_permission(self, answer: dict[str, Any], may: bool) -> None:
        found, asked = project({":testIamPermissions": answer})
        assert found.may_publish("lustrum-requests") is may
        assert asked.calls[0][2] == {"permissions": ["pubsub.topics.publish"]}

    def test_number_is_asked_once(self) -> None:
        found, asked = project({"/v1/projects/p": {"projectNumber": "123", "projectId": "p"}})
        assert found.number() == found.number() == "123"
        assert len(asked.calls) == 1


class TestAsker:
    def ask(self, status: int, text: str) -> Any:
        def answer(request: httpx.Request) -> httpx.Response:
            assert request.headers["Authorization"].startswith("Bearer ")
            return httpx.Response(status, text=text)

        settings = Settings(project="p", region="r", endpoints={"x": "http://localhost"})
        return asker(Rest(settings, Tokens(settings), httpx.MockTransport(answer)))

    def test_asker_decodes_the_answer(self) -> None:
        assert self.ask(200, '{"a": 1}')("POST", "https://x.example/y", {"b": 2}) == {"a": 1}

    @pytest.mark.parametrize(("quota_project", "sent"), [("my-quota", "my-quota"), (None, None)])
    def test_asker_bills_a_persons_calls_to_their_quota_project(
        self, quota_project: str | None, sent: str | None
    ) -> None:
        def answer(request: httpx.Request) -> httpx.Response:
            seen.append(request.headers.get("x-goog-user-project"))
            return httpx.Response(200, text="{}")

        class Person(Tokens):
            _credentials = SimpleNamespace(quota_project_id=quota_project)

            def __init__(self) -> None:
                pass

            def get(self, *, fresh: bool = False) -> str:
                return "a person's"

        seen: list[str | None] = []
        settings = Settings(project="p", region="r", endpoints={"x": "http://localhost"})
        ask = asker(Rest(settings, Person(), httpx.MockTransport(answer)))
        ask("GET", "https://cloudquotas.googleapis.com/v1/x", None)
        assert seen == [sent]

    def test_asker_disabled_service_is_an_access_problem(self) -> None:
        with pytest.raises(ServiceError, match="has not been used in project"):
            self.ask(403, "Cloud Quotas API has not been used in project 1 before")(
                "GET", "https://cloudquotas.googleapis.com/v1/x", None
            )
