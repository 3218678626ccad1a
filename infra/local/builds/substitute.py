"""Substitutions of Cloud Build: ``$_X``, ``${_X}``, built-in names, ``$$`` for a dollar. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

BUILT_IN = frozenset(
    {
        "PROJECT_ID",
        "PROJECT_NUMBER",
        "BUILD_ID",
        "LOCATION",
        "TRIGGER_NAME",
        "COMMIT_SHA",
        "REVISION_ID",
        "SHORT_SHA",
        "REPO_NAME",
        "REPO_FULL_NAME",
        "BRANCH_NAME",
        "TAG_NAME",
        "REF_NAME",
        "TRIGGER_BUILD_CONFIG_PATH",
        "SERVICE_ACCOUNT_EMAIL",
        "SERVICE_ACCOUNT",
    }
)
_USER = re.compile(r"_[A-Z0-9_]+")
_REFERENCE = re.compile(r"\$\$|\$\{([A-Za-z_][A-Za-z0-9_]*)\}|\$([A-Za-z_][A-Za-z0-9_]*)")
# Where a build's own text is taken as it is.
_UNTOUCHED = frozenset({"substitutions", "script", "timeout", "queueTtl", "id"})


class Refused(Exception):
    """The service would refuse the build (INVALID_ARGUMENT)."""


def check_names(values: Mapping[str, Any]) -> None:
    """Refuse user substitutions with a wrong name or a value that is no string."""
    for name, value in values.items():
        if name not in BUILT_IN and not _USER.fullmatch(name):
            raise Refused(f"substitution key {name!r} must be a built-in or match ^_[A-Z0-9_]+$")
        if not isinstance(value, str):
            raise Refused(f"substitution {name} must be a string, not {type(value).__name__}")


def substitute(value: Any, values: Mapping[str, str], *, loose: bool) -> Any:
    """Return a build, or a part of one, with every reference replaced.

    Args:
        loose: ALLOW_LOOSE, which triggered builds have: an unknown user name becomes empty.

    Raises:
        Refused: a name that is no built-in, or (not loose) a user name without a value.
    """
    if isinstance(value, dict):
        return {
            key: one if key in _UNTOUCHED else substitute(one, values, loose=loose)
            for key, one in value.items()
        }
    if isinstance(value, list):
        return [substitute(one, values, loose=loose) for one in value]
    if not isinstance(value, str):
        return value

    def replaced(found: re.Match[str]) -> str:
        if found[0] == "$$":
            return "$"
        name = found[1] or found[2]
        if name in values:
            return values[name]
        if name in BUILT_IN:
            return ""
        if not _USER.fullmatch(name):
            raise Refused(
                f"key in the template {name!r} is not a valid built-in substitution; "
                "write $$ for a dollar"
            )
        if not loose:
            raise Refused(f"key {name!r} in the template is not matched in the substitution data")
        return ""

    return _REFERENCE.sub(replaced, value)
