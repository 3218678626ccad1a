"""The one seam between the functions and their cloud: every adapter call passes here.

A `Strike` makes some of the calls go wrong, in one of these ways: ``before`` (it raises, nothing
happened), ``after`` (it happened, the answer is lost), ``slow`` (time passes in it), ``hide`` (a
list does not show yet what exists), ``stale`` (a list shows what it showed before), ``partial``
(places did not answer), ``shape`` (an answer nobody expects), ``denied`` (a role is missing),
``kill`` (the function dies there) and ``meanwhile`` (something else acts in the middle of it).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from lustrum.adapters.google import CloudList
from lustrum.adapters.ray_jobs import RayReply

from testing.agenda import Agenda
from testing.cloud import denied, unavailable

LISTS = {
    ("gke", "list"),
    ("lustre", "list"),
    ("compute", "machines"),
    ("builds", "tagged"),
    ("workflows", "live"),
}
METHODS: dict[str, tuple[str, ...]] = {
    "ledger": (
        "create",
        "load",
        "change",
        "unfinished",
        "append_event",
        "forget_event",
        "events",
        "lease_slot",
        "release_slot",
        "slot_holders",
    ),
    "publisher": ("publish",),
    "workflows": ("live", "create", "is_live", "cancel", "ring"),
    "builds": ("tagged", "get", "cancel"),
    "gke": ("list", "delete", "delete_pool", "relabel"),
    "lustre": ("list", "delete", "relabel", "export", "import_", "transfer"),
    "compute": ("machines",),
    "project": ("number", "machine_zones", "lustre_zones", "bucket_bindings"),
    "storage": ("list", "read", "write"),
    "kubernetes": ("get", "items", "apply", "delete", "request"),
}
ZONE = "us-east1-b"


class Killed(BaseException):
    """The instance of a function dies: nothing in it runs any more, not even its clean-up."""


@dataclass
class Who:
    """Who acts: a function (with the step it was asked for) and the execution that called it."""

    function: str
    step: str = ""
    execution: str = ""
    at: float = 0.0
    killed: bool = False

    @property
    def name(self) -> str:
        """The function, with its step where one function does several things."""
        return f"{self.function}:{self.step}" if self.function == "advance_run" else self.function


NOBODY = Who("the world")


@dataclass
class Strike:
    """Calls that go wrong. ``service``, ``method`` and ``function`` may be ``*``.

    Attributes:
        skip: how many matching calls pass before.
        count: how many go wrong; ``seconds`` is how long a slow one takes, and, when
            ``lasting`` is given, the strike ends by itself so many seconds after it was armed.
    """

    mode: str
    service: str = "*"
    method: str = "*"
    function: str = "*"
    skip: int = 0
    count: int = 1
    seconds: float = 60.0
    lasting: float | None = None
    meanwhile: Callable[[], None] | None = None
    fault: str = ""  # the kind of fault in the schedule
    armed_at: float = 0.0

    def hits(self, service: str, method: str, who: Who) -> bool:
        """Say whether this call goes wrong, and count it."""
        if self.count <= 0 or self.service not in ("*", service):
            return False
        if self.method not in ("*", method) or self.function not in ("*", who.function):
            return False
        if self.mode in ("hide", "stale", "partial") and (service, method) not in LISTS:
            return False
        if self.mode == "partial" and service not in ("gke", "lustre", "compute"):
            return False
        if who is NOBODY and self.mode in ("kill", "meanwhile"):
            return False
        if self.skip > 0:
            self.skip -= 1
            return False
        self.count -= 1
        return True


@dataclass
class Struck:
    """One thing that went wrong, for the checks that ask whether a fault explains what they
    see.
    """

    at: float
    kind: str
    service: str = ""
    method: str = ""
    who: str = ""
    lasts: float = 0.0
    fault: str = ""
    state: str = ""  # of the run


@dataclass
class Effect:
    """One call that changes something, as it was done."""

    at: float
    who: Who
    service: str
    method: str
    args: tuple[Any, ...]
    result: Any = None


@dataclass
class Seam:
    """Wraps the adapters of one project; ``watchers`` see every call that came through."""

    agenda: Agenda
    strikes: list[Strike] = field(default_factory=list)
    struck: list[Struck] = field(default_factory=list)
    watchers: list[Callable[[Effect], None]] = field(default_factory=list)
    calls: int = 0
    state: str = "REQUESTED"  # of the run, as it was last seen
    _who: list[Who] = field(default_factory=lambda: [NOBODY])
    _seen: dict[tuple[Any, ...], Any] = field(default_factory=dict)
    _busy: bool = False

    @property
    def who(self) -> Who:
        """Who acts now."""
        return self._who[-1]

    def adopt(self, services: Any) -> None:
        """Pass every adapter of a project through the seam, also clusters that come later."""
        for service in METHODS:
            if service != "kubernetes":
                self.wrap(service, getattr(services, service))
        services.cloud.on_cluster = lambda cluster: self.wrap("kubernetes", cluster)

    def wrap(self, service: str, adapter: Any) -> None:
        """Replace the methods of one adapter."""
        for method in METHODS[service]:
            setattr(adapter, method, self._wrapped(service, method, getattr(adapter, method)))

    @contextmanager
    def acting(self, function: str, step: str = "", execution: str = "") -> Iterator[Who]:
        """Say who acts while the block runs."""
        who = Who(function, step, execution, self.agenda.now())
        self._who.append(who)
        try:
            yield who
        finally:
            self._who.pop()

    def note(self, kind: str, who: str = "", lasts: float = 0.0) -> None:
        """Remember a fault that is not of a call."""
        self.struck.append(
            Struck(self.agenda.now(), kind, who=who, lasts=lasts, fault=kind, state=self.state)
        )

    def arm(self, strike: Strike) -> None:
        """Let some of the next calls go wrong."""
        strike.armed_at = self.agenda.now()
        self.strikes.append(strike)

    def _wrapped(self, service: str, method: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **named: Any) -> Any:
            return self._call(service, method, real, args, named)

        return call

    def _call(
        self,
        service: str,
        method: str,
        real: Callable[..., Any],
        args: tuple[Any, ...],
        named: dict[str, Any],
    ) -> Any:
        who = self._who[-1]
        if who.killed:
            raise Killed
        self.calls += 1
        strike = self._strike(service, method, who) if self.strikes else None
        if strike is None:
            result = real(*args, **named)
        else:
            result = self._go_wrong(strike, service, method, real, args, named)
        if (service, method) in LISTS:
            self._seen[service, method, args] = result
        for watch in self.watchers:
            watch(Effect(self.agenda.time, who, service, method, args, result))
        return result

    def _strike(self, service: str, method: str, who: Who) -> Strike | None:
        now = self.agenda.time
        for strike in self.strikes:
            if strike.lasting is not None and now > strike.armed_at + strike.lasting:
                strike.count = 0
            if strike.hits(service, method, who):
                lasts = strike.seconds if strike.mode == "slow" else 0.0
                fault = strike.fault or strike.mode
                self.struck.append(
                    Struck(now, strike.mode, service, method, who.name, lasts, fault, self.state)
                )
                return strike
        self.strikes = [one for one in self.strikes if one.count > 0]
        return None

    def _go_wrong(
        self,
        strike: Strike,
        service: str,
        method: str,
        real: Callable[..., Any],
        args: tuple[Any, ...],
        named: dict[str, Any],
    ) -> Any:
        who, mode = self._who[-1], strike.mode
        if mode == "before":
            raise unavailable(service)
        if mode == "denied":
            raise denied(service)
        if mode == "kill":
            who.killed = True
            raise Killed
        if mode == "slow":
            self.agenda.advance(strike.seconds)
        if mode == "meanwhile" and strike.meanwhile is not None:
            strike.meanwhile()
        if mode == "stale" and (service, method, args) in self._seen:
            return self._seen[service, method, args]
        if mode == "shape":
            return _misshapen(service, method, real, args, named)
        result = real(*args, **named)
        if mode == "hide":
            return CloudList([], []) if isinstance(result, CloudList) else []
        if mode == "partial":
            kept = [one for one in result.items if _place(one) != ZONE]
            return CloudList(kept, [*result.missing, ZONE])
        if mode == "after":
            for watch in self.watchers:
                watch(Effect(self.agenda.time, who, service, method, args, result))
            raise unavailable(service)
        return result


def _place(thing: Any) -> str:
    return str(getattr(thing, "location", None) or getattr(thing, "zone", ""))


def _misshapen(
    service: str, method: str, real: Callable[..., Any], args: tuple[Any, ...], named: Any
) -> Any:
    """Return what an API might answer that has lost its mind, or raise as an adapter would."""
    if (service, method) == ("kubernetes", "request"):
        return RayReply(200, b"<html>upstream connect error</html>")
    if (service, method) == ("storage", "read"):
        return json.dumps({"unexpected": True}).encode()
    raise ValueError(f"{service} {method}: an answer of another shape")
