"""From the YAML tree to the model, by the schema: every fault with what to write instead."""

from __future__ import annotations

import re
from typing import Any

from infra.local.workflows import expressions, limits
from infra.local.workflows.errors import Fault
from infra.local.workflows.expressions import Attribute, BadExpression, Index, Literal, Name, Node
from infra.local.workflows.model import (
    Assign,
    Body,
    Call,
    Case,
    Const,
    Expr,
    For,
    ListValue,
    MapValue,
    Nested,
    Parallel,
    Raise,
    Retry,
    Return,
    Routine,
    Source,
    Step,
    Switch,
    Target,
    Try,
    Value,
)
from infra.local.workflows.yaml_nodes import Mapping, Scalar, Sequence, Tree

IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
STEP_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_ .-]{0,127}")
RESERVED = ("end", "break", "continue")
_KINDS = ("assign", "call", "switch", "for", "parallel", "raise", "try", "return", "steps")
_WITH = {"args": "call", "result": "call", "except": "try", "retry": "try"}
_STEP_KEYS = {*_KINDS, *_WITH, "next"}


class Parser:
    """Builds the model of one source; goes on after a fault, to report them all."""

    def __init__(self, path: str) -> None:
        self.faults: list[Fault] = []
        self._path = path

    def fault(self, line: int, message: str, instead: str) -> None:
        self.faults.append(Fault(line, message, instead, self._path))

    def source(self, tree: Tree) -> Source:
        """The routines of a source: a list of steps is the body of main."""
        source = Source()
        if isinstance(tree, Sequence):
            source.routines["main"] = Routine("main", [], self.steps(tree, 0), tree.line)
            return source
        if not isinstance(tree, Mapping):
            self.fault(1, "a workflow is a list of steps or a map with main", "main: with steps:")
            return source
        for key, value in tree.items:
            source.routines[key.text] = self._routine(key, value)
        if "main" not in source.routines:
            self.fault(tree.line, "there is no main", "main: with steps: for the entry point")
        return source

    def _routine(self, key: Scalar, tree: Tree) -> Routine:
        name = key.text
        if not IDENTIFIER.fullmatch(name):
            self.fault(
                key.line, f"{name!r} is not a name for a subworkflow", "letters, digits and _"
            )
        if not isinstance(tree, Mapping):
            self.fault(key.line, f"{name} must be a map", "params: and steps: below it")
            return Routine(name, [], [], key.line)
        for item, _ in tree.items:
            if item.text not in ("params", "steps"):
                self.fault(item.line, f"{name} cannot have {item.text!r}", "params: and steps:")
        steps = tree.get("steps")
        if steps is None:
            self.fault(key.line, f"{name} has no steps", "steps: with at least one step")
        return Routine(
            name,
            self._params(name, tree.get("params")),
            [] if steps is None else self.steps(steps, 0),
            key.line,
        )

    def _params(self, routine: str, tree: Tree | None) -> list[tuple[str, Value | None]]:
        if tree is None:
            return []
        if not isinstance(tree, Sequence):
            self.fault(tree.line, "params must be a list", "params: [name]")
            return []
        params: list[tuple[str, Value | None]] = []
        for item in tree.items:
            default: Value | None = None
            if isinstance(item, Mapping) and len(item.items) == 1:
                name = item.items[0][0]
                default = self.value(item.items[0][1])
            elif isinstance(item, Scalar):
                name = item
            else:
                self.fault(item.line, "a parameter is a name", "name, or name: default")
                continue
            if not IDENTIFIER.fullmatch(name.text):
                self.fault(name.line, f"{name.text!r} is not a parameter name", "letters and _")
            if any(name.text == other for other, _ in params):
                self.fault(name.line, f"parameter {name.text!r} appears twice", "each name once")
            params.append((name.text, default))
        most = 1 if routine == "main" else limits.PARAMS
        if len(params) > most:
            self.fault(
                tree.line, f"{routine} has {len(params)} params, {most} allowed", "one map of them"
            )
        return params

    # Steps

    def steps(self, tree: Tree, depth: int) -> list[Step]:
        """A list of steps."""
        if depth > limits.SOURCE_NESTING:
            self.fault(tree.line, "steps nest too deep", "a subworkflow")
            return []
        if not isinstance(tree, Sequence) or not tree.items:
            self.fault(tree.line, "steps must be a list of named steps", "- name: and its body")
            return []
        steps: list[Step] = []
        names: set[str] = set()
        for item in tree.items:
            if not isinstance(item, Mapping) or len(item.items) != 1:
                self.fault(
                    item.line, "a step is a map with one key, its name", "- name: and its body"
                )
                continue
            key, body = item.items[0]
            if not STEP_NAME.fullmatch(key.text) or key.text in RESERVED:
                self.fault(
                    key.line,
                    f"{key.text!r} is not a step name",
                    "letters, digits, _, - and spaces, but not end, break or continue",
                )
            if key.text in names:
                self.fault(key.line, f"the step {key.text!r} appears twice", "another name")
            names.add(key.text)
            steps.append(self._step(key, body, depth))
        return steps

    def _step(self, key: Scalar, tree: Tree, depth: int) -> Step:
        if not isinstance(tree, Mapping):
            self.fault(
                key.line, f"step {key.text!r} has no body", "one of " + ", ".join(_KINDS) + ", next"
            )
            return Step(key.text, None, None, key.line)
        self._known(tree, f"step {key.text!r}", _STEP_KEYS)
        body = self._body(tree, f"step {key.text!r}", depth)
        next_ = self._next(tree.get("next"))
        if body is None and next_ is None:
            self.fault(key.line, f"step {key.text!r} does nothing", "one of " + ", ".join(_KINDS))
        return Step(key.text, body, next_, key.line)

    def _known(self, tree: Mapping, where: str, keys: set[str]) -> None:
        for item, _ in tree.items:
            if item.text not in keys:
                self.fault(
                    item.line, f"{where} cannot have {item.text!r}", ", ".join(sorted(keys))
                )

    def _next(self, tree: Tree | None) -> str | None:
        if tree is None:
            return None
        if isinstance(tree, Scalar) and isinstance(tree.value, str) and tree.text:
            if tree.text.startswith("${"):
                self.fault(tree.line, "next cannot be an expression", "a switch with a next each")
            return tree.text
        self.fault(tree.line, "next must be the name of a step", "next: name, end or break")
        return None

    def _body(self, tree: Mapping, where: str, depth: int) -> Body | None:
        kinds = [key.text for key, _ in tree.items if key.text in _KINDS]
        for key, _ in tree.items:
            partner = _WITH.get(key.text)
            if partner is not None and partner not in kinds:
                self.fault(key.line, f"{where} has {key.text} without {partner}", f"{partner}:")
        if len(kinds) > 1:
            self.fault(
                tree.line,
                f"{where} has {' and '.join(kinds)}, but a step does one thing",
                "one step for each",
            )
        if not kinds:
            return None
        kind = kinds[0]
        value = tree.get(kind)
        assert value is not None
        match kind:
            case "assign":
                return self._assign(value)
            case "call":
                return self._call(value, tree)
            case "switch":
                return self._switch(value, depth)
            case "for":
                return self._for(value, depth)
            case "parallel":
                return self._parallel(value, depth)
            case "raise":
                return Raise(self.value(value))
            case "return":
                return Return(self.value(value))
            case "try":
                return self._try(value, tree, depth)
            case _:
                return Nested(self.steps(value, depth + 1))

    def _assign(self, tree: Tree) -> Assign:
        items: list[tuple[Target, Value]] = []
        if not isinstance(tree, Sequence) or not tree.items:
            self.fault(tree.line, "assign must be a list", "- name: value")
            return Assign(items)
        if len(tree.items) > limits.ASSIGNMENTS:
            self.fault(
                tree.line,
                f"{len(tree.items)} assignments in one step, {limits.ASSIGNMENTS} allowed",
                "several steps",
            )
        for item in tree.items:
            if not isinstance(item, Mapping) or len(item.items) != 1:
                self.fault(item.line, "an assignment is a map with one key", "- name: value")
                continue
            key, value = item.items[0]
            target = self._target(key)
            if target is not None:
                items.append((target, self.value(value)))
        return Assign(items)

    def _target(self, key: Scalar) -> Target | None:
        path: list[Node] = []
        try:
            node: Node = expressions.parse(key.text)
        except BadExpression as exc:
            self.fault(key.line, f"cannot assign to {key.text!r}: {exc.message}", exc.instead)
            return None
        while not isinstance(node, Name):
            if isinstance(node, Attribute):
                path.append(Literal(node.name))
                node = node.base
            elif isinstance(node, Index):
                path.append(node.key)
                node = node.base
            else:
                self.fault(
                    key.line, f"cannot assign to {key.text!r}", "name, name.key or name[index]"
                )
                return None
        return Target(node.id, path[::-1], key.line)

    def _call(self, value: Tree, tree: Mapping) -> Call:
        name = value.text if isinstance(value, Scalar) and isinstance(value.value, str) else ""
        if not name or name.startswith("${"):
            self.fault(value.line, "call must be the name of a function", "call: http.get")
        args = tree.get("args")
        parsed = self.value(args) if args is not None else None
        if parsed is not None and not isinstance(parsed, MapValue):
            if isinstance(parsed, Const) and parsed.value is None:
                parsed = None
            else:
                self.fault(tree.line, "args must be a map", "args: with a key for each parameter")
                parsed = None
        return Call(name, parsed, self._variable(tree.get("result"), "result"), value.line)

    def _variable(self, tree: Tree | None, what: str) -> Target | None:
        if tree is None:
            return None
        if isinstance(tree, Scalar) and IDENTIFIER.fullmatch(tree.text):
            return Target(tree.text, [], tree.line)
        shown = tree.text if isinstance(tree, Scalar) else "a list or map"
        self.fault(tree.line, f"{what} must be the name of a variable, not {shown}", "a name")
        return None

    def _switch(self, tree: Tree, depth: int) -> Switch:
        cases: list[Case] = []
        if not isinstance(tree, Sequence) or not tree.items:
            self.fault(tree.line, "switch must be a list", "- condition: ${...}")
            return Switch(cases)
        if len(tree.items) > limits.CONDITIONS:
            self.fault(
                tree.line,
                f"{len(tree.items)} conditions in one switch, {limits.CONDITIONS} allowed",
                "several switches",
            )
        for item in tree.items:
            condition = item.get("condition") if isinstance(item, Mapping) else None
            if not isinstance(item, Mapping) or condition is None:
                self.fault(item.line, "a case of a switch has no condition", "- condition: ${...}")
                continue
            self._known(item, "a case of a switch", {*_STEP_KEYS, "condition"})
            value = self.value(condition)
            if not isinstance(value, Expr) and not (
                isinstance(value, Const) and isinstance(value.value, bool)
            ):
                self.fault(condition.line, "condition is not an expression", "${...} or true")
            body = self._body(item, "a case of a switch", depth + 1)
            cases.append(Case(value, body, self._next(item.get("next")), item.line))
        return Switch(cases)

    def _for(self, tree: Tree, depth: int) -> For:
        if not isinstance(tree, Mapping):
            self.fault(tree.line, "for must be a map", "value:, in: and steps:")
            return For(None, None, None, None, [], tree.line)
        self._known(tree, "for", {"value", "index", "in", "range", "steps"})
        value = self._variable(tree.get("value"), "value")
        index = self._variable(tree.get("index"), "index")
        items, bounds = tree.get("in"), tree.get("range")
        if (items is None) == (bounds is None):
            self.fault(tree.line, "for needs either in or range", "in: ${list} or range: [1, 9]")
        many = self.value(items) if items is not None else None
        if isinstance(many, MapValue) or (isinstance(many, Const)):
            self.fault(tree.line, "for cannot go over this", "in: a list, ${list} or ${keys(map)}")
        span = self.value(bounds) if bounds is not None else None
        if isinstance(span, Const | MapValue) or (
            isinstance(span, ListValue) and len(span.items) != 2
        ):
            self.fault(tree.line, "range needs its first and last number", "range: ${[a, b]}")
        if span is not None and tree.get("index") is not None:
            self.fault(tree.line, "index counts the elements of in, not of range", "value alone")
        steps = tree.get("steps")
        if steps is None:
            self.fault(tree.line, "for has no steps", "steps: with at least one step")
        body = self.steps(steps, depth + 1) if steps is not None else []
        return For(
            value.name if value else None,
            index.name if index else None,
            many,
            span,
            body,
            tree.line,
        )

    def _parallel(self, tree: Tree, depth: int) -> Parallel:
        nothing = Parallel([], None, [], None, tree.line)
        if not isinstance(tree, Mapping):
            self.fault(tree.line, "parallel must be a map", "branches: or for:")
            return nothing
        keys = {"shared", "concurrency_limit", "exception_policy", "branches", "for"}
        self._known(tree, "parallel", keys)
        policy = tree.get("exception_policy")
        if policy is not None and (
            not isinstance(policy, Scalar) or policy.value != "continueAll"
        ):
            self.fault(policy.line, "the only exception_policy is continueAll", "continueAll")
        branches, loop = tree.get("branches"), tree.get("for")
        if (branches is None) == (loop is None):
            self.fault(tree.line, "parallel needs either branches or for", "branches: or for:")
        shared: list[str] = []
        names = tree.get("shared")
        if names is not None and not isinstance(names, Sequence):
            self.fault(names.line, "shared must be a list of variables", "shared: [name]")
        for item in names.items if isinstance(names, Sequence) else []:
            variable = self._variable(item, "shared")
            if variable is not None:
                shared.append(variable.name)
        limit = tree.get("concurrency_limit")
        bound = self.value(limit) if limit is not None else None
        if limit is not None and isinstance(bound, Const):
            number = bound.value
            if type(number) is not int or number < 1:
                self.fault(limit.line, "concurrency_limit must be a positive integer", "1 or more")
        return Parallel(
            shared,
            bound,
            self._branches(branches, depth) if branches is not None else [],
            self._for(loop, depth) if loop is not None else None,
            tree.line,
        )

    def _branches(self, tree: Tree, depth: int) -> list[tuple[str, list[Step]]]:
        branches: list[tuple[str, list[Step]]] = []
        if not isinstance(tree, Sequence) or not 2 <= len(tree.items) <= limits.BRANCHES:
            self.fault(
                tree.line, f"branches must be a list of 2 to {limits.BRANCHES}", "- name: steps:"
            )
        for item in tree.items if isinstance(tree, Sequence) else []:
            body = item.items[0][1] if isinstance(item, Mapping) and item.items else None
            steps = body.get("steps") if isinstance(body, Mapping) else None
            if not isinstance(item, Mapping) or len(item.items) != 1 or steps is None:
                self.fault(item.line, "a branch is a name with steps", "- name: with steps:")
                continue
            name = item.items[0][0]
            if any(name.text == other for other, _ in branches):
                self.fault(name.line, f"the branch {name.text!r} appears twice", "another name")
            branches.append((name.text, self.steps(steps, depth + 1)))
        return branches

    def _try(self, tree: Tree, step: Mapping, depth: int) -> Try:
        steps: list[Step] = []
        inline: Body | None = None
        if isinstance(tree, Sequence):
            steps = self.steps(tree, depth + 1)
        elif isinstance(tree, Mapping) and tree.get("for") is not None:
            self.fault(
                tree.line,
                "a for directly under try has no step name and is refused",
                "try: with steps: and a named step around the for",
            )
        elif isinstance(tree, Mapping) and [key.text for key, _ in tree.items] == ["steps"]:
            inner = tree.get("steps")
            steps = self.steps(inner, depth + 1) if inner is not None else []
        elif isinstance(tree, Mapping):
            self._known(tree, "try", _STEP_KEYS)
            inline = self._body(tree, "try", depth + 1)
            if inline is None:
                self.fault(tree.line, "try holds nothing to do", "a call, or steps:")
        else:
            self.fault(tree.line, "try must be a step or steps", "try: with steps:")
        handler: list[Step] | None = None
        name: str | None = None
        caught = step.get("except")
        if isinstance(caught, Mapping):
            self._known(caught, "except", {"as", "steps"})
            variable = self._variable(caught.get("as"), "as")
            name = variable.name if variable else None
            inner = caught.get("steps")
            if inner is None:
                self.fault(caught.line, "except has no steps", "steps: with at least one step")
            handler = self.steps(inner, depth + 1) if inner is not None else []
        elif caught is not None:
            self.fault(caught.line, "except must be a map", "as: and steps:")
        retry = self._retry(step.get("retry"))
        return Try(steps, inline, retry, name, handler, tree.line)

    def _retry(self, tree: Tree | None) -> Retry | None:
        if tree is None:
            return None
        if not isinstance(tree, Mapping):
            value = self.value(tree)
            if not isinstance(value, Expr):
                self.fault(tree.line, "retry must be a policy", "${http.default_retry} or a map")
            return Retry(policy=value, line=tree.line)
        self._known(tree, "retry", {"predicate", "max_retries", "backoff"})
        parts: dict[str, Value] = {key.text: self.value(value) for key, value in tree.items}
        backoff = tree.get("backoff")
        if isinstance(backoff, Mapping):
            self._known(backoff, "backoff", {"initial_delay", "max_delay", "multiplier"})
        elif backoff is not None and not isinstance(parts["backoff"], Expr):
            self.fault(backoff.line, "backoff must be a map", "initial_delay, max_delay, multiplier")
        predicate = parts.get("predicate")
        if predicate is not None and not isinstance(predicate, Expr):
            self.fault(tree.line, "predicate is not an expression", "${name of a predicate}")
        return Retry(
            predicate=predicate,
            max_retries=parts.get("max_retries"),
            backoff=parts.get("backoff"),
            line=tree.line,
        )

    # Values

    def value(self, tree: Tree) -> Value:
        """A value of the source: a literal, an expression, or a list or map of them."""
        if isinstance(tree, Sequence):
            return ListValue([self.value(item) for item in tree.items], tree.line)
        if isinstance(tree, Mapping):
            return MapValue(
                [(self._key(key), self.value(value)) for key, value in tree.items], tree.line
            )
        if isinstance(tree.value, str):
            return self._text(tree)
        return Const(tree.value, tree.line)

    def _key(self, key: Scalar) -> Const | Expr:
        value = self._text(key)
        return value if isinstance(value, Expr) else Const(key.text, key.line)

    def _text(self, scalar: Scalar) -> Const | Expr:
        text = scalar.text.strip()
        if text.startswith("${"):
            if not text.endswith("}"):
                if scalar.plain:
                    self.fault(
                        scalar.line,
                        "an expression that begins with ${ does not end with }",
                        "the whole ${...} in single quotes (YAML ends plain text at ' #')",
                    )
                    return Const(None, scalar.line)
                return Const(scalar.text, scalar.line, _mixed(scalar.text))
            try:
                return Expr(expressions.parse(text[2:-1]), scalar.line)
            except BadExpression as exc:
                self.fault(scalar.line, exc.message, exc.instead)
                return Const(None, scalar.line)
        if len(scalar.text.encode("utf-8", "replace")) > limits.STRING_BYTES:
            self.fault(scalar.line, "a string is longer than 256 KB", "a shorter string")
        return Const(scalar.text, scalar.line, _mixed(scalar.text))


def _mixed(text: str) -> tuple[Node, ...]:
    """The expressions inside a text that the service would leave as they are."""
    found: list[Node] = []
    for match in re.finditer(r"\$\{([^{}]*)\}", text):
        try:
            found.append(expressions.parse(match[1]))
        except BadExpression:
            continue
    return tuple(found)


def constant(value: Value) -> Any:
    """The Python value of a source value without expressions; raises ValueError for others."""
    match value:
        case Const(literal):
            return literal
        case ListValue(items):
            return [constant(item) for item in items]
        case MapValue(pairs):
            return {constant(key): constant(item) for key, item in pairs}
        case _:
            raise ValueError("an expression has no constant value")
