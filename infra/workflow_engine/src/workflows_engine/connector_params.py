"""``connector_params``: how long a connector may take and how its operation is polled."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from workflows_engine import limits
from workflows_engine.errors import type_error, value_error
from workflows_engine.values import type_name


@dataclass(frozen=True)
class Params:
    """``connector_params`` with the documented defaults; times in seconds."""

    given: dict[str, Any]
    timeout: float = limits.CONNECTOR_TIMEOUT_SECONDS
    initial_delay: float = 1.0
    multiplier: float = 1.25
    max_delay: float = 60.0
    skip_polling: bool = False
    scopes: Any = None


def read_params(value: Any) -> Params:
    """Read ``connector_params``. Raises TypeError or ValueError tagged as such."""
    if value is None:
        return Params({})
    if type(value) is not dict:
        raise type_error(f"connector_params must be a map, not {type_name(value)}")
    _only("connector_params", value, ("timeout", "polling_policy", "skip_polling", "scopes"))
    policy = value.get("polling_policy") or {}
    if type(policy) is not dict:
        raise type_error(f"polling_policy must be a map, not {type_name(policy)}")
    _only("polling_policy", policy, ("initial_delay", "multiplier", "max_delay"))
    defaults = Params({})
    skip = value.get("skip_polling", False)
    if type(skip) is not bool:
        raise type_error(f"skip_polling must be bool, not {type_name(skip)}")
    return Params(
        given=value,
        timeout=_positive(
            "timeout", value, defaults.timeout, limits.CONNECTOR_TIMEOUT_MAX_SECONDS
        ),
        initial_delay=_positive("initial_delay", policy, defaults.initial_delay, 86_400),
        multiplier=_positive("multiplier", policy, defaults.multiplier, 1000),
        max_delay=_positive("max_delay", policy, defaults.max_delay, 86_400),
        skip_polling=skip,
        scopes=value.get("scopes"),
    )


def _only(where: str, value: dict[str, Any], names: tuple[str, ...]) -> None:
    for name in value:
        if name not in names:
            raise value_error(f"{where} has no {name!r}, only {', '.join(names)}")


def _positive(name: str, values: dict[str, Any], default: float, most: float) -> float:
    value = values.get(name, default)
    if type(value) not in (int, float):
        raise type_error(f"{name} must be a number, not {type_name(value)}")
    if not 0 < value <= most:
        raise value_error(f"{name} must be above 0 and at most {most}, not {value}")
    return float(value)
