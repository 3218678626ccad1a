"""From the YAML tree to the model, by the schema: every fault with what to write instead."""

from __future__ import annotations

import re

from workflows_engine import limits, model
from workflows_engine.parser_control import KINDS, STEP_KEYS, ControlParser
from workflows_engine.parser_values import IDENTIFIER
from workflows_engine.yaml_nodes import Mapping, Scalar, Sequence, Tree

STEP_NAME = re.compile(r"[^\s${}][^\n${}]{0,127}")
RESERVED = ("end", "break", "continue")
_WITH = {"args": "call", "result": "call", "except": "try", "retry": "try"}


class Parser(ControlParser):
    """Builds the model of one source."""

    def source(self, tree: Tree) -> model.Source:
        """The routines of a source: a list of steps is the body of main."""
        source = model.Source()
        if isinstance(tree, Sequence):
            source.routines["main"] = model.Routine("main", [], self.steps(tree, 0), tree.line)
            return source
        if not isinstance(tree, Mapping):
            self.fault(1, "a workflow is a list of steps or a map with main", "main: with steps:")
            return source
        for key, value in tree.items:
            source.routines[key.text] = self._routine(key, value)
        if "main" not in source.routines:
            self.fault(tree.line, "there is no main", "main: with steps: for the entry point")
        return source

    def _routine(self, key: Scalar, tree: Tree) -> model.Routine:
        name = key.text
        if not IDENTIFIER.fullmatch(name):
            self.fault(
                key.line, f"{name!r} is not a name for a subworkflow", "letters, digits and _"
            )
        if not isinstance(tree, Mapping):
            self.fault(key.line, f"{name} must be a map", "params: and steps: below it")
            return model.Routine(name, [], [], key.line)
        for item, _ in tree.items:
            if item.text not in ("params", "steps"):
                self.fault(item.line, f"{name} cannot have {item.text!r}", "params: and steps:")
        steps = tree.get("steps")
        if steps is None:
            self.fault(key.line, f"{name} has no steps", "steps: with at least one step")
        return model.Routine(
            name,
            self._params(name, tree.get("params")),
            [] if steps is None else self.steps(steps, 0),
            key.line,
        )

    def _params(self, routine: str, tree: Tree | None) -> list[tuple[str, model.Value | None]]:
        if tree is None:
            return []
        if not isinstance(tree, Sequence):
            self.fault(tree.line, "params must be a list", "params: [name]")
            return []
        params: list[tuple[str, model.Value | None]] = []
        for item in tree.items:
            default: model.Value | None = None
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
        count = len(params)
        if routine == "main" and count > 1:
            self.fault(tree.line, f"main has {count} params, 1 allowed", "one map of them")
        elif count > limits.PARAMS:
            message = f"{routine} has {count} params; the schema that editors use allows 10"
            self.warn(tree.line, message, "one map of them")
        return params

    # Steps

    def steps(self, tree: Tree, depth: int) -> list[model.Step]:
        """A list of steps."""
        if depth > limits.SOURCE_NESTING:
            self.fault(tree.line, "steps nest too deep", "a subworkflow")
            return []
        if not isinstance(tree, Sequence) or not tree.items:
            self.fault(tree.line, "steps must be a list of named steps", "- name: and its body")
            return []
        steps: list[model.Step] = []
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
                    "letters, digits and _, but not end, break or continue",
                )
            if key.text in names:
                self.fault(key.line, f"the step {key.text!r} appears twice", "another name")
            names.add(key.text)
            steps.append(self._step(key, body, depth))
        return steps

    def _step(self, key: Scalar, tree: Tree, depth: int) -> model.Step:
        if not isinstance(tree, Mapping):
            self.fault(
                key.line,
                f"step {key.text!r} has no body",
                "one of " + ", ".join(KINDS) + ", next",
            )
            return model.Step(key.text, None, None, key.line)
        self._known(tree, f"step {key.text!r}", STEP_KEYS)
        body = self._body(tree, f"step {key.text!r}", depth)
        next_ = self._next(tree.get("next"))
        if body is None and next_ is None:
            self.fault(key.line, f"step {key.text!r} does nothing", "one of " + ", ".join(KINDS))
        return model.Step(key.text, body, next_, key.line)

    def _next(self, tree: Tree | None) -> str | None:
        if tree is None:
            return None
        if isinstance(tree, Scalar) and isinstance(tree.value, str) and tree.text:
            if tree.text.startswith("${"):
                self.fault(tree.line, "next cannot be an expression", "a switch with a next each")
            return tree.text
        self.fault(tree.line, "next must be the name of a step", "next: name, end or break")
        return None

    def _body(self, tree: Mapping, where: str, depth: int) -> model.Body | None:
        kinds = [key.text for key, _ in tree.items if key.text in KINDS]
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
                return model.Raise(self.value(value))
            case "return":
                return model.Return(self.value(value))
            case "try":
                return self._try(value, tree, depth)
            case _:
                return model.Nested(self.steps(value, depth + 1))

    def _assign(self, tree: Tree) -> model.Assign:
        items: list[tuple[model.Target, model.Value]] = []
        most = limits.ASSIGNMENTS
        for item in self._listed(tree, "assign", "- name: value", "assignments", most):
            if not isinstance(item, Mapping) or len(item.items) != 1:
                self.fault(item.line, "an assignment is a map with one key", "- name: value")
                continue
            key, value = item.items[0]
            target = self._target(key)
            if target is not None:
                items.append((target, self.value(value)))
        return model.Assign(items)

    def _call(self, value: Tree, tree: Mapping) -> model.Call:
        name = value.text if isinstance(value, Scalar) and isinstance(value.value, str) else ""
        if not name or name.startswith("${"):
            self.fault(value.line, "call must be the name of a function", "call: http.get")
        args = tree.get("args")
        parsed = self.value(args) if args is not None else None
        if parsed is not None and not isinstance(parsed, model.MapValue | model.ListValue):
            if not (isinstance(parsed, model.Const) and parsed.value is None):
                self.fault(
                    tree.line,
                    "args must be a map or a list",
                    "args: with a key for each parameter",
                )
            parsed = None
        return model.Call(name, parsed, self._variable(tree.get("result"), "result"), value.line)
