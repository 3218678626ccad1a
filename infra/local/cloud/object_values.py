"""What is done to the bodies of Kubernetes objects: merging, paths, selectors. Pure."""

from __future__ import annotations

import base64
import copy
import json
import re
from collections.abc import Mapping
from typing import Any

Object = dict[str, Any]


def settle(body: Object) -> Object:
    """Return an object as it is stored: a Secret's write-only stringData becomes data."""
    if isinstance(body.get("stringData"), dict):
        body["data"] = {
            **(body.get("data") or {}),
            **{
                key: base64.b64encode(str(value).encode()).decode()
                for key, value in body.pop("stringData").items()
            },
        }
    return body


def merge(base: Any, patch: Any) -> Any:
    """Apply a JSON merge patch (RFC 7386) in place and return the result."""
    if not isinstance(base, dict) or not isinstance(patch, dict):
        return copy.deepcopy(patch)
    for key, value in patch.items():
        if value is None:
            base.pop(key, None)
        else:
            base[key] = merge(base.get(key), value)
    return base


def remove(base: Any, before: Mapping[str, Any], after: Mapping[str, Any]) -> Any:
    """Remove from ``base`` what was in ``before`` and is not in ``after``, in place."""
    for key, old in before.items():
        if not isinstance(base, dict) or key not in base:
            continue
        if key not in after:
            del base[key]
        elif isinstance(old, dict) and isinstance(after[key], dict):
            remove(base[key], old, after[key])
    return base


def leaves(value: Any, path: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], Any]]:
    """Return path and value of everything an apply sets, but for what names the object."""
    if isinstance(value, dict) and value:
        return [leaf for key, item in value.items() for leaf in leaves(item, (*path, key))]
    skip = path[:1] in (("apiVersion",), ("kind",)) or path == ("metadata", "name")
    return [] if skip else [(path, value)]


def at(value: Any, path: tuple[str, ...]) -> Any:
    """Return the value at a path, None if there is none."""
    for key in path:
        if not isinstance(value, dict):
            return None
        value = value.get(key)
    return value


def prune(body: Any, path: str) -> None:
    """Drop the field at a path such as ``spec.list[0].name``, in place."""
    keys = [key for key in re.split(r"\.|\[(\d+)\]", path) if key]
    for key in keys[:-1]:
        body = body[int(key)] if isinstance(body, list) else body.get(key, {})
    if isinstance(body, dict):
        body.pop(keys[-1], None)


def labels_agree(selector: str, labels: Mapping[str, str]) -> bool:
    """Say whether labels match a selector of equality and set terms."""
    for term in re.split(r",(?![^(]*\))", selector) if selector else []:
        match = re.fullmatch(r"\s*(\S+)\s+(in|notin)\s+\((.*)\)\s*", term)
        if match:
            values = [value.strip() for value in match[3].split(",")]
            if (labels.get(match[1]) in values) != (match[2] == "in"):
                return False
        elif "!=" in term:
            key, value = term.split("!=", 1)
            if labels.get(key.strip()) == value.strip():
                return False
        elif "=" in term:
            key, value = re.split("==?", term, maxsplit=1)
            if labels.get(key.strip()) != value.strip():
                return False
        elif term.strip().startswith("!"):
            if term.strip()[1:] in labels:
                return False
        elif term.strip() not in labels:
            return False
    return True


def fields_agree(selector: str, item: Object) -> bool:
    """Say whether an object matches a field selector."""
    for term in selector.split(",") if selector else []:
        wanted = "!=" not in term
        key, value = re.split("!=|==?", term, maxsplit=1)
        found = at(item, tuple(key.strip().split(".")))
        text = found if isinstance(found, str) else "" if found is None else json.dumps(found)
        if (text == value.strip()) != wanted:
            return False
    return True
