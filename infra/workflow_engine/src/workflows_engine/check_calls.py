"""Static checks of calls: does the function exist, may it be called here, do the arguments fit."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from workflows_engine import limits
from workflows_engine.builtins import BLOCKING, CONSTANTS, FUNCTIONS, REQUIRED
from workflows_engine.connector_params import read_params
from workflows_engine.connector_table import POSITIONAL
from workflows_engine.errors import WorkflowError
from workflows_engine.expressions import Call as CallNode
from workflows_engine.expressions import Name, dotted_name
from workflows_engine.model import Call, Const, Expr, ListValue, MapValue, Routine, Value
from workflows_engine.parser_values import constant

CONNECTOR = re.compile(r"googleapis(\.[A-Za-z0-9]+){3,}")
GKE = ("gke.request", "gke.create_job", "gke.await_job", "gke.delete_job")

Report = Callable[[int, str, str], None]


def is_connector(name: str) -> bool:
    """Whether a name has the form of a connector; the list of all is Google's alone."""
    return name in GKE or CONNECTOR.fullmatch(name) is not None


def parameters(name: str, routines: Mapping[str, Routine]) -> Sequence[tuple[str, Any]] | None:
    """The parameters of a subworkflow or function with their defaults; None: unknown."""
    if name in routines:
        return [
            (param, REQUIRED if default is None else default)
            for param, default in routines[name].params
        ]
    if name in FUNCTIONS:
        return FUNCTIONS[name].params
    return BLOCKING.get(name)


class CallChecker:
    """Checks the calls of one source."""

    def __init__(self, routines: Mapping[str, Routine], report: Report) -> None:
        self._routines = routines
        self._report = report

    def step(self, call: Call) -> None:
        """A call step."""
        name = call.function
        if not name or name.startswith("${"):
            return  # reported by the parser
        if isinstance(call.args, ListValue):
            self._list(name, call.args)
            return
        given: dict[str, Value] = {}
        for key, value in call.args.items if call.args is not None else []:
            if isinstance(key, Const):
                given[str(key.value)] = value
            else:
                self._report(key.line, "the name of an argument cannot be an expression", "a name")
                return
        params = parameters(name, self._routines)
        if params is not None:
            self._named(name, params, given, call.line)
            self._timeout(name, given.get("timeout"))
        elif is_connector(name):
            self._connector(given)
        else:
            self._unknown(name, call.line)

    def _unknown(self, name: str, line: int) -> None:
        known = [*self._routines, *FUNCTIONS, *BLOCKING, *GKE]
        self._report(
            line,
            f"there is no function or subworkflow {name!r}",
            _close(name, known, "the name of a function, connector or subworkflow"),
        )

    def _list(self, name: str, args: ListValue) -> None:
        """A call step whose arguments are a list: by position, as on the page of sys.log."""
        params = parameters(name, self._routines)
        if params is not None:
            least = sum(1 for _, default in params if default is REQUIRED)
            names = [param for param, _ in params]
            self._count(name, len(args.items), least, len(params), names, args.line)
            given = dict(zip(names, args.items, strict=False))
            self._timeout(name, given.get("timeout"))
        elif is_connector(name):
            self._report(args.line, f"{name} takes its arguments by name", "args: with a key each")
        else:
            self._unknown(name, args.line)

    def expression(self, call: CallNode, line: int) -> None:
        """A call inside an expression."""
        name, count = call.name, len(call.args)
        if name in self._routines:
            routine = self._routines[name].params
            required = sum(1 for _, default in routine if default is None)
            self._count(name, count, required, len(routine), [p for p, _ in routine], line)
        elif name in FUNCTIONS:
            spec = FUNCTIONS[name]
            names = [param for param, _ in spec.params]
            self._count(name, count, spec.required, len(names), names, line)
        elif name in POSITIONAL:
            params = list(POSITIONAL[name])
            self._count(name, count, 1, len(params), params, line)
        elif name in BLOCKING or is_connector(name):
            self._report(
                line, f"{name} blocks and cannot be called in an expression", f"call: {name}"
            )
        else:
            known = [*self._routines, *FUNCTIONS]
            self._report(
                line, f"there is no function {name!r}", _close(name, known, "a known function")
            )

    def predicate(self, value: Value, variables: set[str]) -> None:
        """The predicate of a retry."""
        if not isinstance(value, Expr):
            return
        node = value.node
        path = dotted_name(node)
        if isinstance(node, Name) and node.id in self._routines and node.id not in variables:
            count = len(self._routines[node.id].params)
            if count != 1:
                self._report(
                    value.line,
                    f"the predicate {node.id} has {count} parameters",
                    "one parameter, the error",
                )
        elif isinstance(node, CallNode):
            self._report(value.line, "a predicate is named, not called", "${" + node.name + "}")
        elif path in CONSTANTS and isinstance(CONSTANTS[path], dict):
            self._report(
                value.line,
                f"{path} is a whole policy, not a predicate",
                "${http.default_retry_predicate}, or retry: ${" + path + "}",
            )

    def _count(
        self, name: str, count: int, least: int, most: int, params: list[str], line: int
    ) -> None:
        if not least <= count <= most:
            wanted = str(least) if least == most else f"{least} to {most}"
            self._report(
                line,
                f"{name} takes {wanted} arguments, not {count}",
                f"{name}({', '.join(params)})",
            )

    def _named(
        self, name: str, params: Sequence[tuple[str, Any]], given: dict[str, Value], line: int
    ) -> None:
        names = [param for param, _ in params]
        for param, default in params:
            if default is REQUIRED and param not in given:
                self._report(line, f"{name} needs the argument {param!r}", f"args: with {param}:")
        for arg, value in given.items():
            if arg not in names:
                wanted = _close(arg, names, ", ".join(names) or "no args")
                self._report(value.line, f"{name} has no argument {arg!r}", wanted)

    def _timeout(self, name: str, value: Value | None) -> None:
        if not (name.startswith("http.") and isinstance(value, Const)):
            return
        number = value.value
        if number is None:
            return
        if type(number) not in (int, float) or not 0 < number <= limits.HTTP_TIMEOUT_MAX_SECONDS:
            self._report(
                value.line,
                f"the timeout of {name} cannot be {number}",
                f"seconds, at most {limits.HTTP_TIMEOUT_MAX_SECONDS}",
            )

    def _connector(self, given: dict[str, Value]) -> None:
        value = given.get("connector_params")
        if not isinstance(value, MapValue):
            return
        try:
            read_params(constant(value))
        except ValueError:
            return  # holds expressions: read at run time
        except WorkflowError as exc:
            self._report(value.line, exc.value["message"], "connector_params as documented")


def _close(name: str, known: list[str], otherwise: str) -> str:
    matches = difflib.get_close_matches(name, sorted(known), 1, 0.6)
    return matches[0] if matches else otherwise
