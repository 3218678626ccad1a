"""Steps that hold other steps: switch, for, parallel, try."""

from __future__ import annotations

from workflows_engine import limits, model
from workflows_engine.parser_values import ValueParser
from workflows_engine.yaml_nodes import Mapping, Scalar, Sequence, Tree

KINDS = ("assign", "call", "switch", "for", "parallel", "raise", "try", "return", "steps")
EXCEPT = "<except>"  # the step that an except block without steps is
STEP_KEYS = {*KINDS, "args", "result", "except", "retry", "next"}


class ControlParser(ValueParser):
    """Reads the bodies of control steps; the parser of steps completes it."""

    def steps(self, tree: Tree, depth: int) -> list[model.Step]:
        """A list of steps, ``depth`` below its routine."""
        raise NotImplementedError

    def _body(self, tree: Mapping, where: str, depth: int) -> model.Body | None:
        raise NotImplementedError

    def _next(self, tree: Tree | None) -> str | None:
        raise NotImplementedError

    def _switch(self, tree: Tree, depth: int) -> model.Switch:
        cases: list[model.Case] = []
        example = "- condition: ${...}"
        for item in self._listed(tree, "switch", example, "conditions", limits.CONDITIONS):
            condition = item.get("condition") if isinstance(item, Mapping) else None
            if not isinstance(item, Mapping) or condition is None:
                self.fault(item.line, "a case of a switch has no condition", "- condition: ${...}")
                continue
            self._known(item, "a case of a switch", {*STEP_KEYS, "condition"})
            value = self.value(condition)
            if not isinstance(value, model.Expr) and not (
                isinstance(value, model.Const) and isinstance(value.value, bool)
            ):
                self.fault(condition.line, "condition is not an expression", "${...} or true")
            body = self._body(item, "a case of a switch", depth + 1)
            cases.append(model.Case(value, body, self._next(item.get("next")), item.line))
        return model.Switch(cases)

    def _for(self, tree: Tree, depth: int) -> model.For:
        if not isinstance(tree, Mapping):
            self.fault(tree.line, "for must be a map", "value:, in: and steps:")
            return model.For(None, None, None, None, [], tree.line)
        self._known(tree, "for", {"value", "index", "in", "range", "steps"})
        value = self._variable(tree.get("value"), "value")
        index = self._variable(tree.get("index"), "index")
        items, bounds = tree.get("in"), tree.get("range")
        if (items is None) == (bounds is None):
            self.fault(tree.line, "for needs either in or range", "in: ${list} or range: [1, 9]")
        many = self.value(items) if items is not None else None
        if isinstance(many, model.MapValue | model.Const):
            self.fault(tree.line, "for cannot go over this", "in: a list, ${list} or ${keys(map)}")
        span = self.value(bounds) if bounds is not None else None
        if isinstance(span, model.Const | model.MapValue) or (
            isinstance(span, model.ListValue) and len(span.items) != 2
        ):
            self.fault(tree.line, "range needs its first and last number", "range: ${[a, b]}")
        if span is not None and tree.get("index") is not None:
            self.warn(tree.line, "Google's page of range has no index", "value alone")
        steps = tree.get("steps")
        if steps is None:
            self.fault(tree.line, "for has no steps", "steps: with at least one step")
        body = self.steps(steps, depth + 1) if steps is not None else []
        return model.For(
            value.name if value else None,
            index.name if index else None,
            many,
            span,
            body,
            tree.line,
        )

    def _parallel(self, tree: Tree, depth: int) -> model.Parallel:
        nothing = model.Parallel([], None, [], None, tree.line)
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
        if limit is not None and isinstance(bound, model.Const):
            number = bound.value
            if type(number) is not int or number < 1:
                self.fault(limit.line, "concurrency_limit must be a positive integer", "1 or more")
        return model.Parallel(
            shared,
            bound,
            self._branches(branches, depth) if branches is not None else [],
            self._for(loop, depth) if loop is not None else None,
            tree.line,
        )

    def _branches(self, tree: Tree, depth: int) -> list[tuple[str, list[model.Step]]]:
        branches: list[tuple[str, list[model.Step]]] = []
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

    def _try(self, tree: Tree, step: Mapping, depth: int) -> model.Try:
        steps: list[model.Step] = []
        inline: model.Body | None = None
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
            self._known(tree, "try", STEP_KEYS)
            inline = self._body(tree, "try", depth + 1)
            if inline is None:
                self.fault(tree.line, "try holds nothing to do", "a call, or steps:")
        else:
            self.fault(tree.line, "try must be a step or steps", "try: with steps:")
        handler: list[model.Step] | None = None
        name: str | None = None
        caught = step.get("except")
        if isinstance(caught, Mapping):
            self._known(caught, "except", {"as", *STEP_KEYS})
            variable = self._variable(caught.get("as"), "as")
            name = variable.name if variable else None
            inner = caught.get("steps")
            if inner is not None and len(caught.items) <= 2:
                handler = self.steps(inner, depth + 1)
            else:
                # "Catch errors": the body of a step may stand there in place of steps.
                body = self._body(caught, "except", depth + 1)
                after = self._next(caught.get("next"))
                if body is None and after is None:
                    self.fault(caught.line, "except holds nothing to do", "a call, or steps:")
                handler = [model.Step(EXCEPT, body, after, caught.line)]
        elif caught is not None:
            self.fault(caught.line, "except must be a map", "as: and steps:")
        retry = self._retry(step.get("retry"))
        return model.Try(steps, inline, retry, name, handler, tree.line)

    def _retry(self, tree: Tree | None) -> model.Retry | None:
        if tree is None:
            return None
        if not isinstance(tree, Mapping):
            value = self.value(tree)
            if not isinstance(value, model.Expr):
                self.fault(tree.line, "retry must be a policy", "${http.default_retry} or a map")
            return model.Retry(policy=value, line=tree.line)
        self._known(tree, "retry", {"predicate", "max_retries", "backoff"})
        parts: dict[str, model.Value] = {key.text: self.value(value) for key, value in tree.items}
        backoff = tree.get("backoff")
        if isinstance(backoff, Mapping):
            self._known(backoff, "backoff", {"initial_delay", "max_delay", "multiplier"})
        elif backoff is not None and not isinstance(parts["backoff"], model.Expr):
            self.fault(
                backoff.line, "backoff must be a map", "initial_delay, max_delay, multiplier"
            )
        predicate = parts.get("predicate")
        if predicate is not None and not isinstance(predicate, model.Expr):
            self.fault(tree.line, "predicate is not an expression", "${name of a predicate}")
        return model.Retry(
            predicate=predicate,
            max_retries=parts.get("max_retries"),
            backoff=parts.get("backoff"),
            line=tree.line,
        )
