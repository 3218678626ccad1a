"""Strict field validation of what is applied, as an API server does with `fieldValidation=Strict`.

The built-in kinds are checked against the models of the installed `kubernetes` client, which are
generated from the API's own OpenAPI. RayCluster's own fields (ray.io/v1, KubeRay 1.5) are the
table below, their pod templates again the client's models.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from kubernetes import client as kube

# "Model" is a class of the client; a leading "*" a list, "{}" a map of it; "any": not looked into.
_RAY: dict[str, dict[str, str]] = {
    "RayCluster": {
        "apiVersion": "str",
        "kind": "str",
        "metadata": "V1ObjectMeta",
        "spec": "RayClusterSpec",
        "status": "any",
    },
    "RayClusterSpec": {
        "rayVersion": "str",
        "headGroupSpec": "HeadGroupSpec",
        "workerGroupSpecs": "*WorkerGroupSpec",
        "enableInTreeAutoscaling": "bool",
        "autoscalerOptions": "any",
        "suspend": "bool",
        "managedBy": "str",
        "headServiceAnnotations": "{}str",
        "gcsFaultToleranceOptions": "any",
        "authOptions": "any",
        "upgradeStrategy": "any",
        "networkPolicy": "any",
    },
    "HeadGroupSpec": {
        "serviceType": "str",
        "headService": "V1Service",
        "enableIngress": "bool",
        "rayStartParams": "{}str",
        "template": "V1PodTemplateSpec",
        "resources": "{}str",
        "labels": "{}str",
    },
    "WorkerGroupSpec": {
        "groupName": "str",
        "replicas": "int",
        "minReplicas": "int",
        "maxReplicas": "int",
        "idleTimeoutSeconds": "int",
        "numOfHosts": "int",
        "rayStartParams": "{}str",
        "template": "V1PodTemplateSpec",
        "scaleStrategy": "any",
        "suspend": "bool",
        "resources": "{}str",
        "labels": "{}str",
    },
}
_REQUIRED = {
    "RayClusterSpec": ("headGroupSpec",),
    "HeadGroupSpec": ("template",),
    "WorkerGroupSpec": ("groupName", "maxReplicas", "minReplicas", "template"),
}
_KINDS = {
    "RayCluster": "RayCluster",
    "Secret": "V1Secret",
    "ConfigMap": "V1ConfigMap",
    "ServiceAccount": "V1ServiceAccount",
    "PersistentVolumeClaim": "V1PersistentVolumeClaim",
    "PersistentVolume": "V1PersistentVolume",
    "Namespace": "V1Namespace",
    "Service": "V1Service",
    "Pod": "V1Pod",
    "Role": "V1Role",
    "RoleBinding": "V1RoleBinding",
    "ClusterRole": "V1ClusterRole",
    "ClusterRoleBinding": "V1ClusterRoleBinding",
}
# Quantities: the models say "str", the API takes a number too.
_QUANTITIES = frozenset({"limits", "requests", "size_limit", "divisor", "capacity"})
_LABEL = re.compile(r"([A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?)?")
_WRONG_TYPE = "must be of type"
_PLAIN = {"str": str, "int": int, "bool": bool, "float": (int, float)}
_WORD = {"str": "string", "int": "integer", "bool": "boolean", "float": "number"}


def unknown_fields(kind: str, body: Any) -> list[str]:
    """Return the paths of fields that the kind does not have."""
    return [path for path, problem in _walk(_KINDS.get(kind, "any"), body, "") if problem is None]


def invalid_fields(kind: str, body: Any) -> list[str]:
    """Return a sentence for every field of a wrong type and every required one that is absent."""
    found = [
        f"{path}: {problem}"
        for path, problem in _walk(_KINDS.get(kind, "any"), body, "")
        if problem is not None
    ]
    return found


def untyped_field(kind: str, body: Any, *, strict: bool) -> str | None:
    """Return the first thing an apply patch cannot be typed by, None when it can.

    What is absent is no matter of types, and an unknown field only when it is asked for.
    """
    for path, problem in _walk(_KINDS.get(kind, "any"), body, ""):
        if problem is None and strict:
            return f".{path}: field not declared in schema"
        if problem is not None and _WRONG_TYPE in problem:
            return f".{path}: {problem}"
    return None


def label_problems(labels: Mapping[str, Any]) -> list[str]:
    """Return a sentence for every value that cannot be a label's."""
    return [
        f'metadata.labels: Invalid value: "{value}": a valid label must be an empty string or '
        "consist of alphanumeric characters, '-', '_' or '.', and must start and end with an "
        f"alphanumeric character ({key})"
        for key, value in labels.items()
        if not _LABEL.fullmatch(str(value))
    ]


def _walk(model: str, value: Any, path: str) -> Iterator[tuple[str, str | None]]:
    if value is None or model == "any":
        return
    if model.startswith("*"):
        if not isinstance(value, list):
            yield path, _type_problem(value, "array")
            return
        for index, item in enumerate(value):
            yield from _walk(model[1:], item, f"{path}[{index}]")
        return
    if model.startswith("{}"):
        if not isinstance(value, dict):
            yield path, _type_problem(value, "object")
            return
        for key, item in value.items():
            yield from _walk(model[2:], item, f"{path}.{key}")
        return
    if model in _PLAIN:
        wrong_bool = isinstance(value, bool) != (model == "bool")
        if not isinstance(value, _PLAIN[model]) or wrong_bool:  # type: ignore[arg-type]
            yield path, _type_problem(value, _WORD[model])
        return
    fields = _fields(model)
    if fields is None:
        return
    if not isinstance(value, dict):
        yield path, _type_problem(value, "object")
        return
    for key in _REQUIRED.get(model, ()):
        if key not in value:
            yield f"{path}.{key}".lstrip("."), "Required value"
    for key, item in value.items():
        inner = f"{path}.{key}".lstrip(".")
        if key not in fields:
            yield inner, None
        else:
            yield from _walk(fields[key], item, inner)


def _fields(model: str) -> dict[str, str] | None:
    if model in _RAY:
        return _RAY[model]
    found = getattr(kube, model, None)
    if found is None:
        return None
    return {
        found.attribute_map[key]: "any" if key in _QUANTITIES else _short(kind)
        for key, kind in found.openapi_types.items()
    }


def _short(kind: str) -> str:
    # "list[V1Container]", and "dict(str, str)" or "Dict[str, str]", by the client's version.
    match = re.fullmatch(r"[Ll]ist\[(.+)\]", kind)
    if match:
        return "*" + _short(match[1])
    match = re.fullmatch(r"[Dd]ict[(\[]str, (.+)[)\]]", kind)
    if match:
        return "{}" + _short(match[1])
    if kind.startswith("V") or kind in _PLAIN:
        return kind
    return "any"


def _type_problem(value: Any, wanted: str) -> str:
    names = {
        bool: "boolean",
        str: "string",
        int: "integer",
        float: "number",
        list: "array",
        dict: "object",
    }
    got = names.get(type(value), "null")
    return f'Invalid value: "{got}": {_WRONG_TYPE} {wanted}: "{got}"'
