"""Connectors and answers that are not what an API promises: an error with a tag, no fault."""

from __future__ import annotations

import json
from typing import Any

import pytest

from engine_tests.support import Web, failure

CLUSTER = {"cluster_id": "c", "location": "l"}
BUILD = ("googleapis.cloudbuild.v1.projects.triggers.run", {"projectId": "p", "triggerId": "t"})
COMPUTE = ("googleapis.compute.v1.instances.insert", {"project": "p", "zone": "z", "body": {}})
QUERY = ("googleapis.bigquery.v2.jobs.insert", {"projectId": "p", "body": {}})
CREATE = (
    "googleapis.container.v1.projects.locations.clusters.create",
    {"parent": "projects/p/locations/l", "body": {}},
)
GKE = ("gke.request", {**CLUSTER, "method": "GET", "path": "/api"})
JOB = ("gke.await_job", {**CLUSTER, "job_name": "j", "timeout": 5})
EXECUTIONS = "googleapis.workflowexecutions.v1.projects.locations.workflows.executions."


def end(call: tuple[str, dict[str, Any]], *answers: Any) -> str:
    """The tag that a call ends with when the API answers these, the last one again and again."""
    source = json.dumps([{"a": {"call": call[0], "args": call[1]}}])
    tags: list[str] = failure(source, http=Web(*[(200, answer) for answer in answers]))["tags"]
    return tags[0]


@pytest.mark.parametrize(
    ("call", "answer", "tag"),
    [
        (BUILD, "text", "ResponseTypeError"),
        (BUILD, {"name": 5}, "ResponseTypeError"),
        (BUILD, {"name": "o", "done": True, "error": "no"}, "OperationError"),
        (CREATE, {"name": "o", "status": "DONE", "error": "no"}, "OperationError"),
        (COMPUTE, {"selfLink": 3, "status": "RUNNING"}, "ResponseTypeError"),
        (COMPUTE, {"status": "DONE", "error": "no"}, "OperationError"),
        (COMPUTE, {"status": "DONE", "error": {"errors": [3]}}, "OperationError"),
        (QUERY, {"status": {"state": "RUNNING"}, "jobReference": "x"}, "ResponseTypeError"),
        (QUERY, {"status": {}, "jobReference": {"projectId": "p"}}, "ResponseTypeError"),
        (GKE, [1], "ResponseTypeError"),
        (GKE, {"controlPlaneEndpointsConfig": "x"}, "ResponseTypeError"),
    ],
)
def test_an_answer_of_another_kind(
    call: tuple[str, dict[str, Any]], answer: Any, tag: str
) -> None:
    assert end(call, answer) == tag


@pytest.mark.parametrize("job", [{"status": "x"}, {"status": {"conditions": [1]}}, {}])
def test_a_job_without_conditions_is_waited_for(job: Any) -> None:
    def answer(request: Any) -> tuple[int, Any]:
        return 200, {"endpoint": "10.0.0.1"} if "container." in request["url"] else job

    source = json.dumps([{"a": {"call": JOB[0], "args": JOB[1]}}])
    assert failure(source, http=Web(answer))["tags"] == ["TimeoutError"]


@pytest.mark.parametrize(
    ("method", "args"),
    [
        ("create", {"parent": "w", "body": {"argument": {"k": 1}}}),
        ("create", {"parent": "w", "body": {"labels": "x"}}),
        ("create", {"parent": "w", "body": {"labels": {"a": 1}}}),
        ("create", {"parent": "w", "body": {"callLogLevel": 1}}),
        ("list", {"parent": "w", "pageSize": "2"}),
        ("list", {"parent": "w", "filter": 1}),
        ("list", {"parent": "w", "filter": "colour=1"}),
        ("list", {"parent": "w", "orderBy": "colour"}),
        ("run", {"workflow_id": "w", "labels": [1]}),
    ],
)
def test_a_field_of_another_kind_is_a_bad_request(method: str, args: dict[str, Any]) -> None:
    source = json.dumps([{"a": {"call": EXECUTIONS + method, "args": args}}])
    error = failure(source)
    assert (error["tags"], error["code"]) == (["HttpError"], 400)


def test_a_query_that_is_no_map_is_a_type_error() -> None:
    assert end(("gke.request", {**GKE[1], "query": "a=b"}), {"endpoint": "x"}) == "TypeError"
