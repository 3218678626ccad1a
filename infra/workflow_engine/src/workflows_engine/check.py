"""The static checker: what Google Cloud would refuse to deploy, and YAML that does not say what
it seems to say.

Variables are checked per scope and without regard to order: a name is known where some step of
the same or an enclosing scope assigns it. Loops, except blocks and branches are scopes.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator

from workflows_engine import limits, model
from workflows_engine.builtins import BLOCKING, CONSTANTS, FUNCTIONS
from workflows_engine.check_calls import CallChecker
from workflows_engine.check_jumps import JumpChecker
from workflows_engine.errors import Fault, Faults, FaultySource
from workflows_engine.expressions import (
    Attribute,
    Binary,
    Call,
    Name,
    Node,
    Unary,
    children,
    dotted_name,
    unparse,
    walk,
)
from workflows_engine.parser import Parser
from workflows_engine.variables import assigned
from workflows_engine.yaml_nodes import read

MODULES = {name.split(".")[0] for name in (*FUNCTIONS, *BLOCKING, *CONSTANTS) if "." in name}


def check(text: str, path: str = "<source>") -> tuple[model.Source | None, list[Fault]]:
    """Check a source: the model (None when it is not even YAML) and every fault, by line."""
    try:
        tree, faults = read(text, path)
    except FaultySource as exc:
        return None, exc.faults
    parser = Parser(path)
    source = parser.source(tree)
    checker = _Checker(source, path)
    for routine in source.routines.values():
        checker.routine(routine)
    found = faults + parser.faults + checker.faults
    return source, sorted(dict.fromkeys(found))


class _Names:
    """The variables of a scope. ``shared`` is set on a branch: what it may write above."""

    def __init__(
        self, names: Iterable[str], parent: _Names | None = None, shared: set[str] | None = None
    ) -> None:
        self.names = set(names)
        self.parent = parent
        self.shared = shared

    def __contains__(self, name: str) -> bool:
        return name in self.names or (self.parent is not None and name in self.parent)

    def writable(self, name: str) -> bool:
        """False when writing ``name`` here would write a parent's variable that is not shared."""
        scope: _Names | None = self
        while scope is not None and name not in scope.names:
            if scope.shared is not None and name not in scope.shared:
                return scope.parent is None or name not in scope.parent
            scope = scope.parent
        return True

    def all(self) -> set[str]:
        return self.names | (self.parent.all() if self.parent is not None else set())


class _Checker(Faults):
    def __init__(self, source: model.Source, path: str) -> None:
        super().__init__(path)
        self._source = source
        self._calls = CallChecker(source.routines, self.fault)
        self._jumps = JumpChecker(self.fault)
        self._everywhere: set[str] = set()
        self._parallel = 0

    def routine(self, routine: model.Routine) -> None:
        if routine.name in FUNCTIONS:
            self.fault(
                routine.line, f"{routine.name!r} is a function of the language", "another name"
            )
        names = _Names([name for name, _ in routine.params])
        for _, default in routine.params:
            if default is not None:
                self._value(default, _Names([]))
        names.names |= set(_declared(routine.steps, names))
        self._everywhere = set(assigned(routine.steps))
        self._steps(routine.steps, names)
        self._jumps.routine(routine)

    # Steps

    def _steps(self, steps: list[model.Step], names: _Names) -> None:
        for step in steps:
            self._body(step.body, names)

    def _body(self, body: model.Body | None, names: _Names) -> None:
        match body:
            case None:
                return
            case model.Assign(items):
                for target, value in items:
                    self._value(value, names)
                    self._target(target, names)
            case model.Call():
                self._calls.step(body)
                if body.args is not None:
                    self._value(body.args, names)
                if body.result is not None:
                    self._target(body.result, names)
            case model.Switch(cases):
                for case in cases:
                    self._value(case.condition, names)
                    self._body(case.body, names)
            case model.For():
                self._for(body, names)
            case model.Parallel():
                self._parallel_step(body, names)
            case model.Try():
                self._try(body, names)
            case model.Raise(value) | model.Return(value):
                self._value(value, names)
            case model.Nested(steps):
                self._steps(steps, names)

    def _target(self, target: model.Target, names: _Names) -> None:
        for node in target.path:
            self._node(node, target.line, names)
        if target.path and target.name not in names:
            self._unknown(target.name, target.line, names)
        elif not names.writable(target.name):
            self.fault(
                target.line,
                f"{target.name!r} belongs to the steps outside this branch and is not shared",
                f"shared: [{target.name}] on the parallel step, or another name",
            )

    def _for(self, body: model.For, names: _Names) -> None:
        for value in (body.items, body.bounds):
            if value is not None:
                self._value(value, names)
        own = {name for name in (body.value, body.index) if name}
        inner = _Names(own, names)
        inner.names |= set(_declared(body.steps, inner))
        self._steps(body.steps, inner)

    def _parallel_step(self, body: model.Parallel, names: _Names) -> None:
        self._parallel += 1
        if self._parallel > limits.PARALLEL_NESTING:
            self.fault(
                body.line,
                f"parallel steps nest more than {limits.PARALLEL_NESTING} deep",
                "one parallel step less",
            )
        if body.limit is not None:
            self._value(body.limit, names)
        for name in body.shared:
            if name not in names:
                self.fault(
                    body.line,
                    f"shared variable {name!r} is not assigned outside the parallel step",
                    f"a step before it that assigns {name}",
                )
            elif not names.writable(name):
                self.fault(
                    body.line,
                    f"{name!r} is not shared with the enclosing branch",
                    f"shared: [{name}] on the outer parallel step too",
                )
        shared = set(body.shared)
        if body.loop is not None:
            for value in (body.loop.items, body.loop.bounds):
                if value is not None:
                    self._value(value, names)
            own = {name for name in (body.loop.value, body.loop.index) if name}
            self._branch(body.loop.steps, _Names(own, names, shared))
        for _, steps in body.branches:
            self._branch(steps, _Names([], names, shared))
        self._parallel -= 1

    def _branch(self, steps: list[model.Step], inner: _Names) -> None:
        inner.names |= set(_declared(steps, inner))
        self._steps(steps, inner)

    def _try(self, body: model.Try, names: _Names) -> None:
        self._steps(body.steps, names)
        self._body(body.inline, names)
        if body.retry is not None:
            self._retry(body.retry, names)
        if body.handler is not None:
            inner = _Names({body.name} if body.name else (), names)
            inner.names |= set(_declared(body.handler, inner))
            self._steps(body.handler, inner)

    def _retry(self, retry: model.Retry, names: _Names) -> None:
        if retry.policy is not None:
            self._value(retry.policy, names)
            return
        for name in ("predicate", "max_retries"):
            if getattr(retry, name) is None:
                default = "${http.default_retry_predicate}" if name == "predicate" else "5"
                self.warn(
                    retry.line, f"retry has no {name}: {default} is taken", f"{name}: {default}"
                )
        for value in (retry.predicate, retry.max_retries, retry.backoff):
            if value is not None:
                self._value(value, names)
        if retry.predicate is not None:
            self._calls.predicate(retry.predicate, names.all())

    # Values and expressions

    def _value(self, value: model.Value, names: _Names) -> None:
        match value:
            case model.Const(_, line, mixed):
                if any(self._means_something(node, names) for node in mixed):
                    self.warn(
                        line,
                        "${...} inside other text is not replaced: the text stays as it is",
                        'the whole value as one expression: ${"text " + name}',
                    )
            case model.Expr(node, line):
                self._node(node, line, names)
            case model.ListValue(items):
                for item in items:
                    self._value(item, names)
            case model.MapValue(pairs):
                for key, item in pairs:
                    self._value(key, names)
                    self._value(item, names)

    def _means_something(self, node: Node, names: _Names) -> bool:
        return any(
            (isinstance(part, Name) and part.id in names)
            or (isinstance(part, Call) and (part.name in FUNCTIONS or part.name in BLOCKING))
            for part in walk(node)
        )

    def _node(self, node: Node, line: int, names: _Names) -> None:
        stack = [node]
        while stack:
            top = stack.pop()
            if isinstance(top, Attribute) and self._member(top, line, names):
                continue
            if isinstance(top, Name):
                if top.id not in names and top.id not in self._source.routines:
                    self._unknown(top.id, line, names)
            elif isinstance(top, Call):
                self._calls.expression(top, line)
            elif isinstance(top, Binary):
                self._negation(top, line)
            stack.extend(children(top))

    def _negation(self, node: Binary, line: int) -> None:
        """``not x in y`` is ``(not x) in y`` by the documented precedence: never what is meant."""
        left = node.left
        if isinstance(left, Unary) and left.op == "not" and node.op not in ("==", "!="):
            meant = unparse(Unary("not", Binary(node.op, left.operand, node.right)))
            self.warn(line, f"not binds tighter than {node.op}", meant)

    def _member(self, node: Attribute, line: int, names: _Names) -> bool:
        """Whether ``a.b`` is a member of a module rather than of a variable."""
        path = dotted_name(node)
        if path is None:
            return False
        root = path.split(".")[0]
        if root in names or root not in MODULES:
            return False
        if path in CONSTANTS:
            return True
        if path in FUNCTIONS or path in BLOCKING:
            self.fault(line, f"the function {path} is not called", f"{path}(arguments)")
        else:
            known = [*CONSTANTS, *FUNCTIONS]
            self.fault(line, f"the module {root} has no {path!r}", _close(path, known, "a member"))
        return True

    def _unknown(self, name: str, line: int, names: _Names) -> None:
        if name in self._everywhere:
            self.fault(
                line,
                f"the variable {name!r} exists only inside a loop, branch or except block",
                f"an assign of {name} before that block",
            )
            return
        self.fault(
            line,
            f"symbol {name!r} is neither a variable nor a sub-workflow name",
            _close(name, [*names.all(), *self._source.routines], "a name that is assigned"),
        )


def _close(name: str, known: Iterable[str], otherwise: str) -> str:
    matches = difflib.get_close_matches(name, sorted(known), 1, 0.6)
    return matches[0] if matches else otherwise


def _declared(steps: list[model.Step], above: _Names) -> Iterator[str]:
    """The variables that steps create in their own scope: not in loops, branches, handlers."""
    for step in steps:
        yield from _declared_by(step.body, above)


def _declared_by(body: model.Body | None, above: _Names) -> Iterator[str]:
    match body:
        case model.Assign(items):
            yield from (t.name for t, _ in items if not t.path and _new(t.name, above))
        case model.Call(_, _, result) if result is not None:
            if _new(result.name, above):
                yield result.name
        case model.Switch(cases):
            for case in cases:
                yield from _declared_by(case.body, above)
        case model.Try(steps, inline, _, _, _):
            yield from _declared(steps, above)
            yield from _declared_by(inline, above)
        case model.Nested(steps):
            yield from _declared(steps, above)
        case _:
            return


def _new(name: str, above: _Names) -> bool:
    return name in above.names or above.parent is None or name not in above.parent


__all__ = ["check"]
