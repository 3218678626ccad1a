"""The APIs as Google's own clients and plain HTTP see them, over loopback."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.api_core import exceptions
from google.auth.credentials import AnonymousCredentials
from google.cloud.workflows import executions_v1
from google.cloud.workflows.executions_v1.services.executions import transports as executions
from google.cloud.workflows_v1 import (
    CreateWorkflowRequest,
    ListWorkflowRevisionsRequest,
    Workflow,
    WorkflowsClient,
)
from google.cloud.workflows_v1.services.workflows import transports as workflows
from google.protobuf.field_mask_pb2 import FieldMask
from workflows_engine import ApiError, filters

from engine_tests.test_cli import ask, serving

PARENT = "projects/p/locations/l"
SOURCES = {
    "double": "main: {params: [a], steps: [{s: {return: '${a.n * 2}'}}]}",
    "sleep": "- s: {call: sys.sleep, args: {seconds: 600}}",
    "bell": """
- open: {call: events.create_callback_endpoint, result: cb}
- wait: {call: events.await_callback, args: {callback: "${cb}", timeout: 60}, result: r}
- give: {return: "${r.http_request}"}
""",
}


class Served:
    """One server for all tests of this file, and the clients for it."""

    def __init__(self, url: str, target: str) -> None:
        self.url = url
        self.channel = grpc.insecure_channel(target)
        self.executions = executions_v1.ExecutionsClient(
            transport=executions.ExecutionsGrpcTransport(channel=self.channel)
        )
        self.workflows_grpc = WorkflowsClient(
            transport=workflows.WorkflowsGrpcTransport(channel=self.channel)
        )
        self.workflows_rest = WorkflowsClient(
            transport=workflows.WorkflowsRestTransport(
                host=url.removeprefix("http://"),
                url_scheme="http",
                credentials=AnonymousCredentials(),  # type: ignore[no-untyped-call]
            )
        )

    def create(self, workflow: str, argument: str = "", **labels: str) -> Any:
        return self.executions.create_execution(
            parent=f"{PARENT}/workflows/{workflow}",
            execution=executions_v1.Execution(argument=argument, labels=labels),
        )

    def wait(self, name: str, state: str) -> Any:
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            execution = self.executions.get_execution(name=name)
            if execution.state.name == state:
                return execution
            time.sleep(0.01)
        raise AssertionError(f"{name} is {execution.state.name}, not {state}")


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder: Path = tmp_path_factory.mktemp("flows")
    arguments = ["--project", "p", "--location", "l"]
    for name, source in SOURCES.items():
        (folder / f"{name}.yaml").write_text(source, encoding="utf-8")
        arguments += ["--workflow", f"{name}={folder / name}.yaml"]
    with serving(*arguments) as (url, target, _):
        one = Served(url, target)
        yield one
        one.channel.close()


class TestExecutionsClient:
    def test_create_and_get(self, served: Served) -> None:
        created = served.create("double", '{"n": 21}', run="a")
        assert created.name.startswith(f"{PARENT}/workflows/double/executions/")
        done = served.wait(created.name, "SUCCEEDED")
        assert (done.result, done.argument) == ("42", '{"n": 21}')
        assert dict(done.labels) == {"run": "a"}
        assert done.workflow_revision_id.startswith("000001-")
        assert done.start_time <= done.end_time

    def test_failure_has_payload_context_and_stack(self, served: Served) -> None:
        failed = served.wait(served.create("double", "{}").name, "FAILED")
        assert "KeyError" in failed.error.payload
        assert 'in step "s", routine "main", line: 1' in failed.error.context
        assert failed.error.stack_trace.elements[0].step == "s"
        assert failed.error.stack_trace.elements[0].position.line == 1

    def test_list_by_label_and_state_in_pages(self, served: Served) -> None:
        names = {served.create("sleep", run="paged").name for _ in range(5)}
        served.create("sleep", run="other")
        request = executions_v1.ListExecutionsRequest(
            parent=f"{PARENT}/workflows/sleep",
            filter='state="ACTIVE" AND labels.run="paged"',
            page_size=2,
        )
        pages = list(served.executions.list_executions(request).pages)
        assert [len(page.executions) for page in pages] == [2, 2, 1]
        assert {one.name for page in pages for one in page.executions} == names
        assert all(not one.argument for page in pages for one in page.executions)  # BASIC

    def test_cancel(self, served: Served) -> None:
        name = served.create("sleep").name
        assert served.executions.cancel_execution(name=name).state.name == "CANCELLED"
        with pytest.raises(exceptions.FailedPrecondition):
            served.executions.cancel_execution(name=name)

    def test_errors_are_the_clients_own(self, served: Served) -> None:
        with pytest.raises(exceptions.NotFound):
            served.executions.get_execution(name=f"{PARENT}/workflows/double/executions/none")
        with pytest.raises(exceptions.NotFound):
            served.create("nothing")
        with pytest.raises(exceptions.InvalidArgument):
            served.create("double", "{oops")
        with pytest.raises(exceptions.InvalidArgument):
            served.create("double", '"' + "x" * 32768 + '"')
        with pytest.raises(exceptions.InvalidArgument):
            list(
                served.executions.list_executions(
                    executions_v1.ListExecutionsRequest(
                        parent=f"{PARENT}/workflows/double", filter="colour=red"
                    )
                )
            )


class TestWorkflowsClient:
    @pytest.mark.parametrize("kind", ["rest", "grpc"])
    def test_create_update_list_and_delete(self, served: Served, kind: str) -> None:
        client: WorkflowsClient = getattr(served, f"workflows_{kind}")
        name = f"{PARENT}/workflows/made-{kind}"
        workflow = Workflow(source_contents=SOURCES["double"], labels={"a": "b"})
        request = CreateWorkflowRequest(
            parent=PARENT, workflow=workflow, workflow_id=f"made-{kind}"
        )
        made = client.create_workflow(request).result(timeout=30)
        assert (made.name, made.state.name) == (name, "ACTIVE")
        with pytest.raises(exceptions.Conflict):
            client.create_workflow(request)
        assert name in [one.name for one in client.list_workflows(parent=PARENT)]
        change = Workflow(name=name, source_contents=SOURCES["sleep"])
        mask = FieldMask(paths=["source_contents"])
        changed = client.update_workflow(workflow=change, update_mask=mask).result(timeout=30)
        assert changed.revision_id.startswith("000002-")
        assert dict(changed.labels) == {"a": "b"}
        revisions = client.list_workflow_revisions(ListWorkflowRevisionsRequest(name=name))
        assert [one.revision_id[:6] for one in revisions] == ["000002", "000001"]
        client.delete_workflow(name=name).result(timeout=30)
        with pytest.raises(exceptions.NotFound):
            client.get_workflow(name=name)

    def test_a_faulty_source_is_refused_with_its_faults(self, served: Served) -> None:
        workflow = Workflow(source_contents="- a: {return: '${x}'}")
        with pytest.raises(exceptions.BadRequest, match="symbol 'x'"):
            served.workflows_rest.create_workflow(
                parent=PARENT, workflow=workflow, workflow_id="faulty"
            )


class TestRest:
    def test_callbacks_are_listed_sent_once_and_gone_at_the_end(self, served: Served) -> None:
        name = served.create("bell").name
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            _, listed = ask("GET", f"{served.url}/v1/{name}/callbacks")
            callbacks: Any = listed["callbacks"]
            if callbacks and callbacks[0]["waiters"]:
                break
        assert callbacks[0]["method"] == "POST"
        assert callbacks[0]["waiters"] == ["wait"]
        url = f"{served.url}/v1/{callbacks[0]['name']}"
        assert ask("PUT", url, {})[0] == 405
        assert ask("POST", f"{url}?q=1", {"event": "done"})[0] == 200
        result = served.wait(name, "SUCCEEDED").result
        assert '"event": "done"' in result
        assert '"q": "1"' in result
        assert ask("POST", url, {"event": "late"})[0] == 404

    def test_an_execution_by_http_alone(self, served: Served) -> None:
        url = f"{served.url}/v1/{PARENT}/workflows/double/executions"
        status, created = ask("POST", url, {"argument": '{"n": 1}', "labels": {"by": "http"}})
        assert status == 200
        name = str(created["name"])
        served.wait(name, "SUCCEEDED")
        assert ask("GET", f"{served.url}/v1/{name}")[1]["result"] == "2"
        basic = ask("GET", f"{served.url}/v1/{name}?view=BASIC")[1]
        assert "result" not in basic
        status, listed = ask("GET", f"{url}?filter=labels.by%3D%22http%22&view=FULL")
        assert [one["result"] for one in listed["executions"]] == ["2"]  # type: ignore[attr-defined]
        entries = ask("GET", f"{served.url}/v1/{name}/stepEntries")[1]["stepEntries"]
        assert [(e["step"], e["state"]) for e in entries] == [("s", "STATE_SUCCEEDED")]  # type: ignore[attr-defined]
        one = ask("GET", f"{served.url}/v1/{name}/stepEntries/1")[1]
        assert (one["routine"], one["stepType"]) == ("main", "STEP_RETURN")
        assert ask("GET", f"{served.url}/v1/{name}:exportData")[0] == 200

    def test_a_pubsub_message_starts_one_execution(self, served: Served) -> None:
        url = f"{served.url}/v1/{PARENT}/workflows/sleep:triggerPubsubExecution"
        body = {"message": {"messageId": "m-1", "data": "e30="}, "subscription": "s"}
        names = {ask("POST", url, body)[1]["name"] for _ in range(3)}
        assert len(names) == 1
        body["message"] = {"messageId": "m-2"}
        assert ask("POST", url, body)[1]["name"] not in names

    @pytest.mark.parametrize(
        ("method", "path", "body", "status"),
        [
            ("GET", "nothing", None, 404),
            ("GET", f"{PARENT}/workflows/none", None, 404),
            ("GET", "projects/x/locations/y/workflows/double/executions", None, 404),
            ("GET", f"{PARENT}/workflows/double/executions?pageSize=x", None, 400),
            ("GET", f"{PARENT}/workflows/double/executions?pageToken=x", None, 400),
            ("POST", f"{PARENT}/workflows/double/executions", [1], 400),
            ("POST", f"{PARENT}/workflows", {"sourceContents": ""}, 400),
            ("GET", f"{PARENT}/operations/none", None, 404),
            ("GET", f"{PARENT}/operations", None, 200),
            ("GET", "projects/p/locations", None, 200),
            ("GET", PARENT, None, 200),
        ],
    )
    def test_status(
        self, served: Served, method: str, path: str, body: object, status: int
    ) -> None:
        assert ask(method, f"{served.url}/v1/{path}", body)[0] == status


class TestFilters:
    @pytest.mark.parametrize(
        "text",
        [
            "colour = 1",
            "state",
            "state =",
            '(state="ACTIVE"',
            'state="ACTIVE" )',
            "startTime > yesterday",
            "labels.a < b",
            "state ~ x",
            "duration > long",
        ],
    )
    def test_what_cannot_be_read_is_refused(self, text: str) -> None:
        with pytest.raises(ApiError):
            filters.compile_filter(text)
