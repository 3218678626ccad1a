"""A blueprint, expanded as far as the stand-in needs it: variables resolved, settings of each
module.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

_WHOLE = re.compile(r"\$\(vars\.(\w+)\)")
_STAGED = re.compile(r'\$\(ghpc_stage\("([^"]+)"\)\)')


class Invalid(Exception):
    """The blueprint, its variables or the command line cannot be used."""


def expand(blueprint: Path, deployment: Path | None) -> dict[str, Any]:
    """Return the blueprint with every ``$(vars.x)`` resolved and the backend in its group.

    Raises:
        Invalid: it cannot be read, a variable is not set or not used, a module uses an unknown
        one.
    """
    found = _load(blueprint)
    given = _load(deployment) if deployment else {}
    variables = {**found.get("vars", {}), **given.get("vars", {})}
    missing = [name for name, value in variables.items() if value is None]
    if missing:
        raise Invalid(f'deployment variable "{missing[0]}" was not set')
    variables = {name: _resolve(value, variables, blueprint) for name, value in variables.items()}
    variables["labels"] = {
        "ghpc_blueprint": found["blueprint_name"],
        "ghpc_deployment": variables["deployment_name"],
        **variables.get("labels", {}),
    }
    if not all(isinstance(value, str) for value in variables["labels"].values()):
        raise Invalid(f"labels must be strings: {variables['labels']}")
    backend = given.get("terraform_backend_defaults") or found.get("terraform_backend_defaults")
    groups = []
    known: set[str] = set()
    for group in found["deployment_groups"]:
        modules = []
        for module in group["modules"]:
            strangers = set(module.get("use", [])) - known
            if strangers:
                raise Invalid(f"module {module['id']!r} uses unknown {sorted(strangers)}")
            known.add(module["id"])
            settings = _resolve(module.get("settings", {}), variables, blueprint)
            modules.append({**module, "settings": settings})
        groups.append({**group, "modules": modules, "terraform_backend": backend})
    return {**found, "vars": variables, "deployment_groups": groups}


def module(expanded: dict[str, Any], source: str) -> dict[str, Any]:
    """Return the settings of the one module with a source. Raises Invalid."""
    found = [
        one["settings"]
        for group in expanded["deployment_groups"]
        for one in group["modules"]
        if one["source"] == source
    ]
    if len(found) != 1:
        raise Invalid(f"the blueprint has {len(found)} modules {source}; the stand-in knows one")
    return dict(found[0])


def _load(path: Path) -> dict[str, Any]:
    try:
        return dict(yaml.safe_load(path.read_text()))
    except (OSError, yaml.YAMLError, TypeError) as error:
        raise Invalid(f"cannot read {path}: {error}") from None


def _resolve(value: Any, variables: dict[str, Any], blueprint: Path) -> Any:
    if isinstance(value, dict):
        return {key: _resolve(one, variables, blueprint) for key, one in value.items()}
    if isinstance(value, list):
        return [_resolve(one, variables, blueprint) for one in value]
    if not isinstance(value, str):
        return value
    staged = _STAGED.fullmatch(value)
    if staged:
        # Relative to the blueprint's folder, and copied into the deployment folder.
        return {"staged": (blueprint.parent / staged[1]).read_text()}
    whole = _WHOLE.fullmatch(value)
    if whole:
        return _resolve(_variable(whole[1], variables), variables, blueprint)
    return _WHOLE.sub(lambda found: str(_variable(found[1], variables)), value)


def _variable(name: str, variables: dict[str, Any]) -> Any:
    if name not in variables:
        raise Invalid(f'module references unknown global variable "{name}"')
    return variables[name]
