"""The Kubernetes connector: requests to the API server of a GKE cluster, and Jobs.

The endpoint ``gke`` may hold {project}, {location} and {cluster}. Without one the cluster's own
DNS endpoint is asked for: Workflows does not reach control planes by IP address since 2025-01.
"""

from __future__ import annotations

from typing import Any

from workflows_engine.connector_call import ConnectorCall
from workflows_engine.errors import error, type_error, value_error

NAMES = ("gke.request", "gke.create_job", "gke.await_job", "gke.delete_job")


async def run(call: ConnectorCall) -> Any:
    """Run gke.request, gke.create_job, gke.await_job or gke.delete_job."""
    match call.name:
        case "gke.request":
            method = call.text("method").upper()
            path = call.text("path")
            body, query = call.args.get("body"), call.args.get("query")
            return await _exchange(call, method, path, body, query)
        case "gke.create_job":
            job = call.args.get("job")
            if not isinstance(job, dict):
                raise type_error("gke.create_job needs the argument 'job', a map")
            return (await _exchange(call, "POST", _jobs(call), job))["body"]
        case "gke.await_job":
            return await _await_job(call)
        case "gke.delete_job":
            path = f"{_jobs(call)}/{call.text('job_name')}"
            return (await _exchange(call, "DELETE", path, None, call.args.get("query")))["body"]
        case name:
            raise error("SystemError", f"there is no connector {name}")


def _jobs(call: ConnectorCall) -> str:
    return f"/apis/batch/v1/namespaces/{call.text('namespace', 'default')}/jobs"


async def _exchange(
    call: ConnectorCall, method: str, path: str, body: Any = None, query: Any = None
) -> dict[str, Any]:
    if not path.startswith("/"):
        raise value_error(f"{call.name}: path must begin with /, not {path!r}")
    return await call.exchange(method, await _base(call) + path, query, body)


async def _base(call: ConnectorCall) -> str:
    project = call.text("project", call.engine.project)
    location, cluster = call.text("location"), call.text("cluster_id")
    given = call.engine.endpoints.get("gke")
    if given is not None:
        for name, value in (("project", project), ("location", location), ("cluster", cluster)):
            given = given.replace("{" + name + "}", value)
        return given
    path = f"/v1/projects/{project}/locations/{location}/clusters/{cluster}"
    found = call.answered(await call.api("GET", "container", path))
    config = _map(_map(found, "controlPlaneEndpointsConfig"), "dnsEndpointConfig")
    return f"https://{config.get('endpoint') or call.answered(found, 'endpoint', str)}"


def _map(value: dict[str, Any], name: str) -> dict[str, Any]:
    """A map inside a map; an empty one when it is not there or is none."""
    found = value.get(name)
    return found if isinstance(found, dict) else {}


async def _await_job(call: ConnectorCall) -> Any:
    """Wait until a Job has succeeded. Raises FailedJobError with the job in it."""
    timeout = call.args.get("timeout", call.params.timeout)
    if type(timeout) not in (int, float):
        raise type_error("gke.await_job: timeout must be a number of seconds")
    path = f"{_jobs(call)}/{call.text('job_name')}"
    until = call.engine.now() + timeout
    delay = call.params.initial_delay
    while True:
        job = call.answered((await _exchange(call, "GET", path))["body"])
        listed = _map(job, "status").get("conditions")
        conditions = {
            str(one.get("type")): one.get("status")
            for one in (listed if isinstance(listed, list) else [])
            if isinstance(one, dict)
        }
        if conditions.get("Complete") == "True":
            return job
        if conditions.get("Failed") == "True":
            raise error("FailedJobError", f"the job {call.args['job_name']} failed", job=job)
        if call.engine.now() + delay > until:
            raise error("TimeoutError", f"the job did not complete within {timeout:g} s")
        await call.engine.sleep(delay)
        call.execution.steps += 1
        delay = min(delay * call.params.multiplier, call.params.max_delay)
