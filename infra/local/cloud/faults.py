"""Faults on demand: calls that fail, operations that fail later or last long, partial answers.

A rule is JSON, posted to `/_local/faults` (one rule or a list) or given to `Faults.add`:

    {"operation": "gke.GetCluster", "times": 2, "status": 503, "text": "backend error"}
    {"operation": "lustre.exportData", "times": 1, "end": "PERMISSION_DENIED on the bucket"}
    {"operation": "gke.CreateCluster", "delay": 5}
    {"operation": "gke.missing_zones", "value": ["us-east1-c"]}

`operation` is a shell pattern. `times` is how often it applies (default: until taken back).
Exactly one effect:
    status, text   the call is answered so, nothing is done
    lost           the call is done, but its answer is this status: what a timeout looks like
    hold           the call waits so many seconds before it is done
    end            the call is accepted, its long operation ends with this error
    delay          its long operation takes so many seconds
    value          read by one part, see the list

Calls: gke.<Method>, lustre.{create,list,get,patch,delete,exportData,importData},
storage.{list,get,insert,delete}, compute.list, monitoring.ListTimeSeries,
kubernetes.<verb>.<plural> (get, list, create, apply, patch, update, delete), kubernetes.proxy.
Values: gke.missing_zones, lustre.unreachable, compute.unreachable (lists of zones);
compute.stockout.<pool>, compute.stockout.<zone>.<pool> (text: no node comes);
kubernetes.image (text: the image cannot be pulled);
kubernetes.mount (text: FailedMount); kubernetes.operator (any: the CRD does not appear);
kubernetes.token (any: every token is refused with 401); lustre.failed_objects (number);
compute.machine_zones, lustre.locations (zones that offer it); storage.policy (bindings).
"""

from __future__ import annotations

import fnmatch
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_EFFECTS = ("status", "lost", "hold", "end", "delay", "value")


@dataclass
class Rule:
    """One fault: where, how often (None: always), which effect with which value."""

    operation: str
    effect: str
    value: Any
    text: str = ""
    times: int | None = None


class Faults:
    """The plan of faults of one cloud; safe to use from every thread."""

    def __init__(self) -> None:
        self._rules: list[Rule] = []
        self._lock = threading.Lock()

    def add(self, rule: Mapping[str, Any]) -> None:
        """Add a rule. Raises ValueError, naming what is wrong."""
        unknown = set(rule) - {"operation", "times", "text", *_EFFECTS}
        effects = [key for key in _EFFECTS if key in rule]
        if unknown or "operation" not in rule or len(effects) != 1:
            raise ValueError(
                f"a fault needs 'operation' and exactly one of {', '.join(_EFFECTS)}; "
                f"got {sorted(rule)}"
            )
        effect = effects[0]
        with self._lock:
            self._rules.append(
                Rule(
                    str(rule["operation"]),
                    effect,
                    rule[effect],
                    str(rule.get("text", "injected fault")),
                    rule.get("times"),
                )
            )

    def clear(self) -> None:
        """Take every rule back."""
        with self._lock:
            self._rules.clear()

    def rules(self) -> list[dict[str, Any]]:
        """Return the rules that still apply, as JSON."""
        with self._lock:
            return [
                {"operation": r.operation, r.effect: r.value, "text": r.text, "times": r.times}
                for r in self._rules
            ]

    def refusal(self, call: str) -> tuple[int, str] | None:
        """Return status and text with which a call is to be answered, or None. May wait."""
        held = self._take(call, "hold")
        if held is not None:
            time.sleep(float(held.value))
        rule = self._take(call, "status")
        return None if rule is None else (int(rule.value), rule.text)

    def lost(self, call: str) -> tuple[int, str] | None:
        """Return what the caller gets instead of the answer of a call that was done, or None."""
        rule = self._take(call, "lost")
        return None if rule is None else (int(rule.value), rule.text)

    def end_of(self, operation: str) -> str | None:
        """Return the error that ends a long operation, or None."""
        rule = self._take(operation, "end")
        return None if rule is None else str(rule.value)

    def delay_of(self, operation: str, default: float) -> float:
        """Return the seconds a long operation takes."""
        rule = self._take(operation, "delay")
        return default if rule is None else float(rule.value)

    def value(self, name: str) -> Any:
        """Return an injected value, or None."""
        rule = self._take(name, "value")
        return None if rule is None else rule.value

    def _take(self, operation: str, effect: str) -> Rule | None:
        with self._lock:
            for rule in self._rules:
                if rule.effect == effect and fnmatch.fnmatchcase(operation, rule.operation):
                    if rule.times is not None:
                        rule.times -= 1
                        if rule.times <= 0:
                            self._rules.remove(rule)
                    return rule
        return None
