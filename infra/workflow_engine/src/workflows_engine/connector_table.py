"""Which HTTP request a connector makes: the rows that do not follow from its name.

A connector is named ``googleapis.SERVICE.VERSION.COLLECTIONS.METHOD``. For APIs in Google's
resource style (an argument ``name`` or ``parent``) the request follows from the name; the others
have a row. To add one, add a line here. Sources: the discovery documents of each service.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Row:
    """A request: ``path`` with arguments in braces; ``operation`` is how it is waited for.

    operation: None, "google" (name, done), "container" (status DONE), "compute" (selfLink),
    "bigquery" (status.state DONE).
    """

    service: str
    method: str
    path: str
    operation: str | None = None


def _rows() -> dict[str, Row]:
    rows: dict[str, Row] = {}

    def add(prefix: str, service: str, lines: str) -> None:
        for line in lines.strip().splitlines():
            name, method, path, *operation = line.split()
            rows[f"googleapis.{prefix}.{name}"] = Row(
                service, method, path, operation[0] if operation else None
            )

    add(
        "cloudbuild.v1",
        "cloudbuild",
        """
        projects.triggers.run POST /v1/projects/{projectId}/triggers/{triggerId}:run google
        projects.locations.triggers.run POST /v1/{name}:run google
        projects.builds.create POST /v1/projects/{projectId}/builds google
        projects.builds.retry POST /v1/projects/{projectId}/builds/{id}:retry google
        projects.builds.get GET /v1/projects/{projectId}/builds/{id}
        projects.builds.list GET /v1/projects/{projectId}/builds
        projects.builds.cancel POST /v1/projects/{projectId}/builds/{id}:cancel
        projects.triggers.get GET /v1/projects/{projectId}/triggers/{triggerId}
        projects.triggers.list GET /v1/projects/{projectId}/triggers
        projects.locations.builds.create POST /v1/{parent}/builds google
        projects.locations.builds.retry POST /v1/{name}:retry google
        """,
    )
    add(
        "container.v1",
        "container",
        """
        projects.locations.clusters.create POST /v1/{parent}/clusters container
        projects.locations.clusters.delete DELETE /v1/{name} container
        projects.locations.clusters.update PUT /v1/{name} container
        projects.locations.clusters.setResourceLabels POST /v1/{name}:setResourceLabels container
        projects.locations.clusters.nodePools.create POST /v1/{parent}/nodePools container
        projects.locations.clusters.nodePools.delete DELETE /v1/{name} container
        projects.locations.clusters.nodePools.update PUT /v1/{name} container
        projects.locations.clusters.nodePools.setSize POST /v1/{name}:setSize container
        projects.locations.clusters.nodePools.setAutoscaling POST /v1/{name}:setAutoscaling container
        projects.zones.clusters.create POST /v1/projects/{projectId}/zones/{zone}/clusters container
        projects.zones.clusters.delete DELETE /v1/projects/{projectId}/zones/{zone}/clusters/{clusterId} container
        projects.zones.clusters.get GET /v1/projects/{projectId}/zones/{zone}/clusters/{clusterId}
        """,  # noqa: E501
    )
    instance = "/compute/v1/projects/{project}/zones/{zone}/instances"
    add(
        "compute.v1",
        "compute",
        f"""
        instances.insert POST {instance} compute
        instances.delete DELETE {instance}/{{instance}} compute
        instances.start POST {instance}/{{instance}}/start compute
        instances.stop POST {instance}/{{instance}}/stop compute
        instances.get GET {instance}/{{instance}}
        instances.list GET {instance}
        """,
    )
    add(
        "storage.v1",
        "storage",
        """
        buckets.insert POST /storage/v1/b
        buckets.get GET /storage/v1/b/{bucket}
        buckets.list GET /storage/v1/b
        buckets.delete DELETE /storage/v1/b/{bucket}
        objects.insert POST /upload/storage/v1/b/{bucket}/o
        objects.get GET /storage/v1/b/{bucket}/o/{object}
        objects.list GET /storage/v1/b/{bucket}/o
        objects.delete DELETE /storage/v1/b/{bucket}/o/{object}
        """,
    )
    add(
        "bigquery.v2",
        "bigquery",
        """
        jobs.insert POST /bigquery/v2/projects/{projectId}/jobs bigquery
        jobs.query POST /bigquery/v2/projects/{projectId}/queries
        jobs.get GET /bigquery/v2/projects/{projectId}/jobs/{jobId}
        jobs.getQueryResults GET /bigquery/v2/projects/{projectId}/queries/{jobId}
        """,
    )
    add(
        "pubsub.v1",
        "pubsub",
        """
        projects.topics.publish POST /v1/{topic}:publish
        projects.topics.create PUT /v1/{name}
        projects.topics.delete DELETE /v1/{topic}
        projects.subscriptions.create PUT /v1/{name}
        projects.subscriptions.pull POST /v1/{subscription}:pull
        projects.subscriptions.acknowledge POST /v1/{subscription}:acknowledge
        projects.subscriptions.delete DELETE /v1/{subscription}
        """,
    )
    add(
        "secretmanager.v1",
        "secretmanager",
        """
        projects.secrets.versions.access GET /v1/{name}:access
        projects.secrets.addVersion POST /v1/{parent}:addVersion
        """,
    )
    add(
        "workflowexecutions.v1",
        "workflowexecutions",
        """
        projects.locations.workflows.executions.create POST /v1/{parent}/executions
        projects.locations.workflows.executions.get GET /v1/{name}
        projects.locations.workflows.executions.list GET /v1/{parent}/executions
        projects.locations.workflows.executions.cancel POST /v1/{name}:cancel
        """,
    )
    return rows


ROWS = _rows()

_VERSIONS = "googleapis.secretmanager.v1.projects.secrets"
# The connectors that Google's samples call inside expressions, with their parameters in order.
POSITIONAL: dict[str, tuple[str, ...]] = {
    f"{_VERSIONS}.versions.accessString": ("secret_id", "version", "project_id"),
    f"{_VERSIONS}.addVersionString": ("secret_id", "data", "project_id"),
}
_STANDARD = {
    "get": ("GET", "{name}"),
    "list": ("GET", "{parent}/{collection}"),
    "create": ("POST", "{parent}/{collection}"),
    "patch": ("PATCH", "{name}"),
    "delete": ("DELETE", "{name}"),
}


def row_for(name: str, args: dict[str, Any]) -> Row | None:
    """The request of a connector: its row, else what its name says; None when neither does."""
    if name in ROWS:
        return ROWS[name]
    parts = name.split(".")
    if len(parts) < 5:
        return None
    _, service, version, *collections, method = parts
    verb, template = _STANDARD.get(method, ("POST", "{name}:" + method))
    needed = "parent" if "{parent}" in template else "name"
    if needed not in args:
        # Custom methods name their resource after its kind: {topic}:publish, {resource}:setIam...
        candidates = [key for key in args if re.fullmatch(r"name|parent|resource", key)]
        if not candidates or method in _STANDARD:
            return None
        template = template.replace("{name}", "{" + candidates[0] + "}")
    path = template.replace("{collection}", collections[-1])
    waits = "google" if verb != "GET" else None
    return Row(service, verb, f"/{version}/{path}", f"{waits}?" if waits else None)
