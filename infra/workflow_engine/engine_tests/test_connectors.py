"""Connectors: requests, retries, operations, parameters, child executions, Kubernetes."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from workflows_engine import ApiError, Engine, virtual

from engine_tests.support import Web, drive, failure, faults, result, workflow

TRIGGER = "googleapis.cloudbuild.v1.projects.locations.triggers.run"
NAME = "projects/p/locations/l/triggers/t"


def call(name: str, args: str, give: str = "${r}") -> str:
    return f"""
- call: {{call: {name}, args: {args}, result: r}}
- give: {{return: "{give}"}}
"""


def operation(**more: Any) -> dict[str, Any]:
    return {"name": "projects/p/locations/l/operations/o", "metadata": {}, **more}


class TestRequests:
    @pytest.mark.parametrize(
        ("name", "args", "method", "url"),
        [
            (
                "googleapis.cloudbuild.v1.projects.builds.get",
                "{projectId: p, id: b}",
                "GET",
                "https://cloudbuild.googleapis.com/v1/projects/p/builds/b",
            ),
            (
                "googleapis.cloudbuild.v1.projects.locations.builds.list",
                "{parent: projects/p/locations/l, filter: 'tags=\"a\"'}",
                "GET",
                "https://cloudbuild.googleapis.com/v1/projects/p/locations/l/builds",
            ),
            (
                "googleapis.cloudbuild.v1.projects.builds.cancel",
                "{projectId: p, id: b, body: {}}",
                "POST",
                "https://cloudbuild.googleapis.com/v1/projects/p/builds/b:cancel",
            ),
            (
                "googleapis.container.v1.projects.locations.clusters.get",
                "{name: projects/p/locations/l/clusters/c}",
                "GET",
                "https://container.googleapis.com/v1/projects/p/locations/l/clusters/c",
            ),
            (
                "googleapis.container.v1.projects.locations.clusters.list",
                "{parent: projects/p/locations/-}",
                "GET",
                "https://container.googleapis.com/v1/projects/p/locations/-/clusters",
            ),
            (
                "googleapis.pubsub.v1.projects.topics.publish",
                "{topic: projects/p/topics/t, body: {messages: []}}",
                "POST",
                "https://pubsub.googleapis.com/v1/projects/p/topics/t:publish",
            ),
            (
                "googleapis.secretmanager.v1.projects.secrets.versions.access",
                "{name: projects/p/secrets/s/versions/1}",
                "GET",
                "https://secretmanager.googleapis.com/v1/projects/p/secrets/s/versions/1:access",
            ),
            (
                "googleapis.storage.v1.objects.get",
                "{bucket: b, object: a/b c}",
                "GET",
                "https://storage.googleapis.com/storage/v1/b/b/o/a%2Fb%20c",
            ),
        ],
    )
    def test_method_and_url(self, name: str, args: str, method: str, url: str) -> None:
        http = Web((200, {"ok": 1}))
        assert result(call(name, args), http=http) == {"ok": 1}
        request = http.requests[0]
        assert (request["method"], request["url"]) == (method, url)
        assert request["auth"] == {"type": "OAuth2"}

    def test_other_arguments_are_the_query(self) -> None:
        http = Web((200, {}))
        name = "googleapis.cloudbuild.v1.projects.builds.list"
        drive(call(name, "{projectId: p, filter: f, pageSize: 5}"), http=http)
        assert http.requests[0]["query"] == {"filter": "f", "pageSize": 5}

    def test_an_endpoint_replaces_the_address_of_a_service(self) -> None:
        http = Web((200, {}))
        args = "{projectId: p, id: b}"
        source = call("googleapis.cloudbuild.v1.projects.builds.get", args)
        drive(source, http=http, endpoints={"cloudbuild": "http://127.0.0.1:5/"})
        assert http.requests[0]["url"] == "http://127.0.0.1:5/v1/projects/p/builds/b"

    def test_a_missing_argument_is_a_type_error(self) -> None:
        source = call("googleapis.cloudbuild.v1.projects.builds.get", "{projectId: p}")
        assert failure(source, http=Web(200))["tags"] == ["TypeError"]

    def test_an_unknown_connector_says_how_to_add_it(self) -> None:
        source = call("googleapis.sheets.v4.spreadsheets.create", "{body: {}}")
        error = failure(source, http=Web(200))
        assert error["tags"] == ["SystemError"]
        assert "connector_table.py" in error["message"]

    def test_reads_are_retried_and_writes_only_when_that_is_safe(self) -> None:
        read = call("googleapis.cloudbuild.v1.projects.builds.get", "{projectId: p, id: b}")
        write = call(TRIGGER, f"{{name: {NAME}, body: {{}}}}")
        for source, status, requests in (
            (read, 502, 6),
            (read, 404, 1),
            (write, 502, 1),
            (write, 503, 6),
        ):
            http = Web((status, {}))
            assert failure(source, http=http)["code"] == status
            assert len(http.requests) == requests

    def test_text_of_a_secret_in_an_expression(self) -> None:
        http = Web((200, {"payload": {"data": "aGVsbG8="}}))
        version = "googleapis.secretmanager.v1.projects.secrets.versions.accessString"
        source = f'- a: {{return: \'${{{version}("s", "1", "p")}}\'}}'
        assert result(source, http=http) == "hello"
        assert http.requests[0]["url"].endswith("/v1/projects/p/secrets/s/versions/1:access")


class TestOperations:
    def run(self, *answers: Any, params: str = "") -> tuple[Any, Web]:
        http = Web(*answers)
        body = f"{{name: {NAME}, body: {{triggerId: t}}{params}}}"
        return drive(call(TRIGGER, body), http=http), http

    def test_polls_grow_from_one_second_by_a_quarter_and_bill_a_step_each(self) -> None:
        execution, http = self.run(*[(200, operation())] * 5, (200, operation(done=True)))
        assert execution.value == operation(done=True)
        elapsed = (execution.end_time or 0) - (execution.start_time or 0)
        assert elapsed == pytest.approx(1 + 1.25 + 1.25**2 + 1.25**3 + 1.25**4)
        assert len(http.requests) == 6
        assert execution.steps == 2 + 5

    def test_a_failed_operation_is_an_operation_error(self) -> None:
        broken = operation(done=True, error={"code": 3, "message": "build failed"})
        execution, _ = self.run((200, operation()), (200, broken))
        error = execution.failure
        assert error["tags"] == ["OperationError"]
        assert error["operation"] == broken
        assert error["error"]["code"] == 3
        assert "build failed" in error["message"]

    def test_an_answer_that_is_no_operation_is_a_response_type_error(self) -> None:
        for answer in ((200, "text"), (200, {"what": 1}), (200, None)):
            execution, _ = self.run(answer)
            assert execution.failure["tags"] == ["ResponseTypeError"]

    def test_skip_polling_gives_the_first_answer(self) -> None:
        execution, http = self.run(
            (200, operation()), params=", connector_params: {skip_polling: true}"
        )
        assert execution.value == operation()
        assert len(http.requests) == 1

    @pytest.mark.parametrize(("params", "seconds"), [("", 1800), ("timeout: 7200", 7200)])
    def test_the_timeout_bounds_the_whole_call(self, params: str, seconds: int) -> None:
        execution, _ = self.run((200, operation()), params=f", connector_params: {{{params}}}")
        assert execution.failure["tags"] == ["TimeoutError"]
        assert (execution.end_time or 0) - (execution.start_time or 0) == seconds

    def test_a_poll_that_fails_for_a_moment_is_retried(self) -> None:
        execution, _ = self.run((200, operation()), (503, {}), (200, operation(done=True)))
        assert execution.state == "SUCCEEDED"

    def test_a_cluster_operation_ends_by_its_status(self) -> None:
        name = "googleapis.container.v1.projects.locations.clusters.nodePools.delete"
        args = "{name: projects/p/locations/l/clusters/c/nodePools/n}"
        http = Web(
            (200, {"name": "op-1", "status": "RUNNING"}), (200, {"name": "op-1", "status": "DONE"})
        )
        assert result(call(name, args, "${r.status}"), http=http) == "DONE"
        assert http.requests[1]["url"].endswith("/v1/projects/p/locations/l/operations/op-1")
        broken = {"name": "o", "status": "DONE", "error": {"code": 8, "message": "stock-out"}}
        assert "stock-out" in failure(call(name, args), http=Web((200, broken)))["message"]

    def test_a_compute_operation_is_polled_by_its_link(self) -> None:
        name = "googleapis.compute.v1.instances.stop"
        link = "https://www.googleapis.com/compute/v1/projects/p/zones/z/operations/o"
        http = Web((200, {"status": "RUNNING", "selfLink": link}), (200, {"status": "DONE"}))
        result(call(name, "{project: p, zone: z, instance: i}"), http=http)
        assert http.requests[1]["url"] == (
            "https://compute.googleapis.com/compute/v1/projects/p/zones/z/operations/o"
        )

    def test_a_bigquery_job_is_polled_by_its_reference(self) -> None:
        job = {"jobReference": {"projectId": "p", "jobId": "j", "location": "EU"}}
        http = Web(
            (200, {**job, "status": {"state": "RUNNING"}}),
            (200, {**job, "status": {"state": "DONE"}}),
        )
        source = call("googleapis.bigquery.v2.jobs.insert", "{projectId: p, body: {}}")
        assert result(source, http=http)["status"]["state"] == "DONE"
        assert http.requests[1]["query"] == {"location": "EU"}

    @pytest.mark.parametrize(
        ("params", "tag"),
        [
            ("${1}", "TypeError"),
            ("{timeout: '${\"1\"}'}", "TypeError"),
            ("{timeout: '${0}'}", "ValueError"),
            ("{skip_polling: '${1}'}", "TypeError"),
            ("{polling_policy: {initial_delay: '${-1}'}}", "ValueError"),
            ("{'polling': '${1}'}", "ValueError"),
        ],
    )
    def test_wrong_parameters(self, params: str, tag: str) -> None:
        value = f"'{params}'" if params.startswith("$") else params
        execution, _ = self.run(200, params=f", connector_params: {value}")
        assert execution.failure["tags"] == [tag]

    def test_constant_parameters_are_checked_before_the_run(self) -> None:
        source = call(TRIGGER, f"{{name: {NAME}, connector_params: {{timeout: 99999999}}}}")
        assert "at most 31536000" in faults(source)[0]


CHILD = """
main:
  params: [a]
  steps:
    - wait: {call: sys.sleep, args: {seconds: 30}}
    - bad: {switch: [{condition: "${a.n < 0}", raise: "negative"}]}
    - give: {return: "${a.n * 2}"}
"""
RUN = "googleapis.workflowexecutions.v1.projects.locations.workflows.executions"


class TestChildExecutions:
    def run(self, source: str, **engine: Any) -> Any:
        async def main() -> Any:
            running = Engine(**engine)
            running.deploy("child", workflow(CHILD))
            running.deploy("w", workflow(source))
            execution = await running.create("w").wait()
            return execution, running.list("child")

        return virtual.run(main)

    def test_run_waits_and_gives_the_result(self) -> None:
        source = call(f"{RUN}.run", "{workflow_id: child, argument: {n: 21}}")
        execution, children = self.run(source)
        assert execution.value == 42
        assert [child.state for child in children] == ["SUCCEEDED"]
        elapsed = (execution.end_time or 0) - (execution.start_time or 0)
        assert 30 <= elapsed < 40  # seen at the next poll, not at once

    def test_a_child_that_fails_is_an_operation_error(self) -> None:
        source = call(f"{RUN}.run", "{workflow_id: child, argument: {n: -1}}")
        execution, _ = self.run(source)
        assert execution.failure["tags"] == ["OperationError"]
        assert execution.failure["operation"]["state"] == "FAILED"

    def test_create_get_list_and_cancel(self) -> None:
        parent = "projects/local-project/locations/us-central1/workflows/child"
        source = f"""
- create:
    call: {RUN}.create
    args:
      parent: {parent}
      body: {{argument: '{{"n": 1}}', labels: {{run: a}}}}
    result: child
- get: {{call: {RUN}.get, args: {{name: "${{child.name}}"}}, result: seen}}
- list: {{call: {RUN}.list, args: {{parent: "{parent}", filter: 'state="ACTIVE"'}}, result: all}}
- cancel: {{call: {RUN}.cancel, args: {{name: "${{child.name}}"}}, result: gone}}
- give: {{return: ["${{seen.state}}", "${{len(all.executions)}}", "${{gone.state}}"]}}
"""
        execution, children = self.run(source)
        assert execution.value == ["ACTIVE", 1, "CANCELLED"]
        assert children[0].labels == {"run": "a"}

    def test_an_unknown_workflow_is_an_http_error_404(self) -> None:
        execution, _ = self.run(call(f"{RUN}.run", "{workflow_id: nope}"))
        assert (execution.failure["tags"], execution.failure["code"]) == (["HttpError"], 404)

    def test_a_child_over_quota_is_refused_not_queued(self) -> None:
        source = call(f"{RUN}.run", "{workflow_id: child, argument: {n: 1}}")
        execution, _ = self.run(source, max_concurrent=1)
        assert execution.failure["code"] == 429

    def test_map_runs_all_and_keeps_the_order(self) -> None:
        source = call(
            "experimental.executions.map", "{workflow_id: child, arguments: [{n: 1}, {n: 2}]}"
        )
        execution, _ = self.run(source)
        assert execution.value == [2, 4]


class TestInjected:
    def test_a_handler_takes_a_name_or_a_pattern(self) -> None:
        seen = []

        async def handler(name: str, args: dict[str, Any], params: dict[str, Any]) -> Any:
            seen.append((name.rsplit(".", 1)[-1], args, params))
            await asyncio.sleep(100)
            return {"ok": (1, 2)}

        source = call(TRIGGER, "{name: n, connector_params: {timeout: 200}}")
        for key in (TRIGGER, "googleapis.cloudbuild.*"):
            assert result(source, connectors={key: handler}) == {"ok": [1, 2]}
        assert seen[0] == ("run", {"name": "n"}, {"timeout": 200})
        late = call(TRIGGER, "{name: n, connector_params: {timeout: 50}}")
        assert failure(late, connectors={TRIGGER: handler})["tags"] == ["TimeoutError"]

    def test_a_refusal_of_a_handler_is_an_http_error(self) -> None:
        async def refuse(name: str, args: dict[str, Any], params: dict[str, Any]) -> Any:
            raise ApiError(403, "PERMISSION_DENIED", "no")

        error = failure(call(TRIGGER, "{name: n}"), connectors={TRIGGER: refuse})
        assert (error["code"], error["body"]["error"]["status"]) == (403, "PERMISSION_DENIED")


class TestKubernetes:
    CLUSTER = "cluster_id: c, location: l, project: p"

    def test_request_reaches_the_api_server(self) -> None:
        http = Web((200, {"kind": "PodList"}))
        source = call("gke.request", f"{{{self.CLUSTER}, method: GET, path: /api/v1/pods}}")
        endpoints = {"gke": "http://127.0.0.1:9/{cluster}"}
        assert result(source, http=http, endpoints=endpoints)["body"] == {"kind": "PodList"}
        assert http.requests[0]["url"] == "http://127.0.0.1:9/c/api/v1/pods"

    def test_without_an_endpoint_the_clusters_dns_name_is_asked_for(self) -> None:
        config = {"dnsEndpointConfig": {"endpoint": "gke-1.gke.goog"}}
        http = Web(
            (200, {"endpoint": "10.0.0.2", "controlPlaneEndpointsConfig": config}), (200, {})
        )
        source = call("gke.request", f"{{{self.CLUSTER}, method: GET, path: /version}}")
        result(source, http=http)
        assert http.requests[1]["url"] == "https://gke-1.gke.goog/version"

    def test_jobs_are_created_awaited_and_deleted(self) -> None:
        job = {"metadata": {"name": "j"}}
        done = {"status": {"conditions": [{"type": "Complete", "status": "True"}]}}
        http = Web((201, job), (200, job), (200, done), (200, {"status": "Success"}))
        source = f"""
- c: {{call: gke.create_job, args: {{{self.CLUSTER}, job: {{kind: Job}}}}}}
- a: {{call: gke.await_job, args: {{{self.CLUSTER}, job_name: j}}, result: r}}
- d: {{call: gke.delete_job, args: {{{self.CLUSTER}, job_name: j, query: {{x: "y"}}}}}}
- g: {{return: "${{r}}"}}
"""
        assert result(source, http=http, endpoints={"gke": "http://k"}) == done
        assert [r["method"] for r in http.requests] == ["POST", "GET", "GET", "DELETE"]
        assert http.requests[3]["query"] == {"x": "y"}

    def test_a_failed_job_is_a_failed_job_error_with_the_job(self) -> None:
        broken = {"status": {"conditions": [{"type": "Failed", "status": "True"}]}}
        source = call("gke.await_job", f"{{{self.CLUSTER}, job_name: j}}")
        error = failure(source, http=Web((200, broken)), endpoints={"gke": "http://k"})
        assert (error["tags"], error["job"]) == (["FailedJobError"], broken)

    def test_a_job_that_never_ends_is_a_timeout_error(self) -> None:
        source = call("gke.await_job", f"{{{self.CLUSTER}, job_name: j, timeout: 90}}")
        error = failure(source, http=Web((200, {})), endpoints={"gke": "http://k"})
        assert error["tags"] == ["TimeoutError"]
