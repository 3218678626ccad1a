"""The same APIs over gRPC: the released ``ExecutionsClient`` speaks nothing else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import grpc
import grpc.aio
from google.cloud.workflows.executions_v1 import types as executions
from google.cloud.workflows_v1 import types as workflows
from google.longrunning import operations_pb2  # type: ignore[import-untyped]
from google.protobuf import json_format

from workflows_engine.api import Api
from workflows_engine.errors import ApiError

_STATUS = {
    400: grpc.StatusCode.INVALID_ARGUMENT,
    404: grpc.StatusCode.NOT_FOUND,
    409: grpc.StatusCode.ALREADY_EXISTS,
    429: grpc.StatusCode.RESOURCE_EXHAUSTED,
}

Call = Callable[[Any], dict[str, Any]]


def _json(message: Any) -> dict[str, Any]:
    return dict(json_format.MessageToDict(message))


def _enum_name(kind: Any, value: int) -> str:
    return str(kind(value).name)


def _mask(request: Any) -> str:
    return ",".join(request.update_mask.paths)


def _handlers(api: Api) -> dict[str, dict[str, tuple[Any, Any, Call]]]:
    """service -> method -> (request type, response type, function of the request)."""
    operation = operations_pb2.Operation
    return {
        "google.cloud.workflows.executions.v1.Executions": {
            "CreateExecution": (
                executions.CreateExecutionRequest.pb(),
                executions.Execution.pb(),
                lambda r: api.create_execution(r.parent, _json(r.execution)),
            ),
            "GetExecution": (
                executions.GetExecutionRequest.pb(),
                executions.Execution.pb(),
                lambda r: api.get_execution(r.name, _enum_name(executions.ExecutionView, r.view)),
            ),
            "ListExecutions": (
                executions.ListExecutionsRequest.pb(),
                executions.ListExecutionsResponse.pb(),
                lambda r: api.list_executions(
                    r.parent,
                    r.page_size,
                    r.page_token,
                    _enum_name(executions.ExecutionView, r.view),
                    r.filter,
                    r.order_by,
                ),
            ),
            "CancelExecution": (
                executions.CancelExecutionRequest.pb(),
                executions.Execution.pb(),
                lambda r: api.cancel_execution(r.name),
            ),
        },
        "google.cloud.workflows.v1.Workflows": {
            "CreateWorkflow": (
                workflows.CreateWorkflowRequest.pb(),
                operation,
                lambda r: api.create_workflow(r.parent, r.workflow_id, _json(r.workflow)),
            ),
            "UpdateWorkflow": (
                workflows.UpdateWorkflowRequest.pb(),
                operation,
                lambda r: api.update_workflow(r.workflow.name, _json(r.workflow), _mask(r)),
            ),
            "DeleteWorkflow": (
                workflows.DeleteWorkflowRequest.pb(),
                operation,
                lambda r: api.delete_workflow(r.name),
            ),
            "GetWorkflow": (
                workflows.GetWorkflowRequest.pb(),
                workflows.Workflow.pb(),
                lambda r: api.get_workflow(r.name, r.revision_id),
            ),
            "ListWorkflows": (
                workflows.ListWorkflowsRequest.pb(),
                workflows.ListWorkflowsResponse.pb(),
                lambda r: api.list_workflows(r.parent, r.page_size, r.page_token),
            ),
            "ListWorkflowRevisions": (
                workflows.ListWorkflowRevisionsRequest.pb(),
                workflows.ListWorkflowRevisionsResponse.pb(),
                lambda r: api.list_revisions(r.name, r.page_size, r.page_token),
            ),
        },
        "google.longrunning.Operations": {
            "GetOperation": (
                operations_pb2.GetOperationRequest,
                operation,
                lambda r: api.get_operation(r.name),
            ),
        },
    }


def _unary(request_type: Any, response_type: Any, call: Call) -> Any:
    async def serve(request: Any, context: Any) -> Any:
        try:
            result = call(request)
        except ApiError as exc:
            code = _STATUS.get(exc.code, grpc.StatusCode.UNKNOWN)
            if exc.status == "FAILED_PRECONDITION":
                code = grpc.StatusCode.FAILED_PRECONDITION
            await context.abort(code, exc.message)
        response = response_type()
        # Newer fields than the installed client's are left out, as its server would send them.
        return json_format.ParseDict(result, response, ignore_unknown_fields=True)

    return grpc.unary_unary_rpc_method_handler(
        serve,
        request_deserializer=request_type.FromString,
        response_serializer=response_type.SerializeToString,
    )


async def serve(api: Api, host: str, port: int) -> tuple[Any, int]:
    """Start a gRPC server without TLS; gives the server and its port."""
    server = grpc.aio.server()
    for service, methods in _handlers(api).items():
        handlers = {name: _unary(*spec) for name, spec in methods.items()}
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, handlers),))
    bound = server.add_insecure_port(f"{host}:{port}")
    await server.start()
    return server, bound
