"""Each function's role holds what its steps call, and nothing its steps never call.

A missing permission shows only in the cloud, in the middle of somebody's run. So the calls are
read from the source: from a function's step through every function of the handlers it reaches,
to the adapters' methods, to the permissions those need.
"""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from .configuration import ROOT, local_values

STEPS = ROOT / "shared" / "lustrum" / "handlers"

FIND_CLUSTER = {"container.clusters.list"}
TRANSFER = {"lustre.operations.get"}
# adapter method -> permissions of its REST calls; () for what a grant elsewhere covers
NEEDS: dict[str, set[str]] = {
    "builds.tagged": {"cloudbuild.builds.list"},
    "builds.get": {"cloudbuild.builds.get"},
    "builds.cancel": {"cloudbuild.builds.update"},
    "compute.machines": {"compute.instances.list"},
    "gke.list": FIND_CLUSTER,
    "gke.find": FIND_CLUSTER,
    "gke.delete": {"container.clusters.delete"},
    "gke.delete_pool": {"container.clusters.update"},
    "gke.relabel": {"container.clusters.update"},
    "kubernetes": FIND_CLUSTER | {"container.clusters.connect"},
    "lustre.list": {"lustre.instances.list"},
    "lustre.delete": {"lustre.instances.delete"},
    "lustre.relabel": {"lustre.instances.get", "lustre.instances.update"},
    "lustre.export": {"lustre.instances.exportData", "lustre.operations.list"},
    "lustre.import_": {"lustre.instances.importData", "lustre.operations.list"},
    "lustre.transfer": TRANSFER,
    "monitoring.lustre_fill": {"monitoring.timeSeries.list"},
    "project.bucket_bindings": {"storage.buckets.getIamPolicy"},
    "project.bucket_owner": {"storage.buckets.get"},
    "project.lustre_zones": {"lustre.locations.list"},
    "project.machine_zones": {"compute.machineTypes.list"},
    "project.number": {"resourcemanager.projects.get"},
    "project.project_bindings": {"resourcemanager.projects.getIamPolicy"},
    "workflows.ensure": {"workflows.executions.create", "workflows.executions.list"},
    "workflows.live": {"workflows.executions.list"},
    "workflows.is_live": {"workflows.executions.get"},
    "workflows.cancel": {"workflows.executions.cancel", "workflows.executions.get"},
    "workflows.ring": {"workflows.callbacks.send"},
    # through Kubernetes, on a bucket or a topic
    "ray": set(),
    "storage.list": set(),
    "storage.read": set(),
    "storage.write": set(),
    "storage.delete": set(),
    "publisher.notify": set(),
    "publisher.bury": set(),
}
# Held although no step asks for it by name: (reason in functions.tf)
SPARE = {
    "cloudbuild.builds.get",  # the list's own entries, read again by id
    "lustre.instances.get",  # import and export look their instance up
    "monitoring.timeSeries.list",  # plots of the report
    "workflows.executions.get",
}


@cache
def reached(function: str) -> frozenset[str]:
    """Return the adapter methods a function's step can reach, as ``adapter.method``."""
    main = ast.parse((ROOT / "functions" / function / "main.py").read_text())
    todo = []
    for node in ast.walk(main):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(
            "lustrum.handlers."
        ):
            todo += [((node.module or "").rsplit(".", 1)[1], alias.name) for alias in node.names]
    seen: set[tuple[str, str]] = set()
    calls: set[str] = set()
    while todo:
        place = todo.pop()
        if place in seen or place not in _definitions():
            continue
        seen.add(place)
        for node in ast.walk(_definitions()[place]):
            if isinstance(node, ast.Attribute):
                calls |= _service_call(node)
            elif isinstance(node, ast.Name):
                todo.append(_imports(place[0]).get(node.id, (place[0], node.id)))
    return frozenset(calls)


@pytest.mark.parametrize("function", sorted(local_values()["functions"]))
class TestRights:
    def test_role_holds_what_the_steps_call(self, function: str) -> None:
        calls = reached(function)
        assert calls, "no call of a service was found: has the shape of the steps changed?"
        unknown = calls - set(NEEDS)
        assert not unknown, "say in NEEDS what these need"
        needed = set().union(*(NEEDS[call] for call in calls))
        assert needed <= rights(function)

    def test_role_holds_nothing_more(self, function: str) -> None:
        needed = set().union(*(NEEDS.get(call, set()) for call in reached(function)))
        assert rights(function) - needed <= SPARE

    def test_topics_and_buckets_follow_the_steps(self, function: str) -> None:
        calls = reached(function)
        publishes = local_values()["publishes"]
        assert ("publisher.notify" in calls) == (function in publishes["notifications"])
        assert ("publisher.bury" in calls) == (function in publishes["refused"])
        granted = {
            name.split("/")[0]: role
            for name, role in local_values()["bucket_rights"].items()
            if name.split("/")[1] == function
        }
        assert ("storage.write" in calls) == ("roles/storage.objectUser" in granted.values())
        assert ("storage.list" in calls) == (
            granted.get("exports") == "roles/storage.objectViewer"
        )


def rights(function: str) -> set[str]:
    """Return the permissions of a function's own role, locals resolved."""
    return _permissions(local_values()["functions"][function]["rights"])


def _permissions(expression: object) -> set[str]:
    if isinstance(expression, list):
        return set(expression)
    text = str(expression)
    found = set(re.findall(r'"([\w.]+)"', text))
    for name in re.findall(r"local\.(\w+)", text):
        found |= _permissions(local_values()[name])
    return found


@cache
def _modules() -> dict[str, ast.Module]:
    return {path.stem: ast.parse(path.read_text()) for path in sorted(STEPS.glob("*.py"))}


@cache
def _definitions() -> dict[tuple[str, str], ast.AST]:
    return {
        (name, node.name): node
        for name, module in _modules().items()
        for node in module.body
        if isinstance(node, (ast.FunctionDef, ast.ClassDef))
    } | {
        (name, target.id): node
        for name, module in _modules().items()
        for node in module.body
        if isinstance(node, (ast.Assign, ast.AnnAssign))
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        if isinstance(target, ast.Name)
    }


@cache
def _imports(module: str) -> dict[str, tuple[str, str]]:
    """Return what a module of steps takes from another one, anywhere in it."""
    return {
        alias.asname or alias.name: (Path((node.module or "").replace(".", "/")).name, alias.name)
        for node in ast.walk(_modules()[module])
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("lustrum.handlers")
        for alias in node.names
    }


def _service_call(node: ast.Attribute) -> set[str]:
    """``services.gke.list`` is ``gke.list``, ``services.kubernetes`` is ``kubernetes``."""
    inner = node.value
    if isinstance(inner, ast.Name) and inner.id == "services":
        return {node.attr} & set(NEEDS)
    if (
        isinstance(inner, ast.Attribute)
        and isinstance(inner.value, ast.Name)
        and inner.value.id == "services"
        and inner.attr not in ("settings", "ledger")
    ):
        return {f"{inner.attr}.{node.attr}"}
    return set()
