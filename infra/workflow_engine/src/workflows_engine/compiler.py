"""From the model to closures: each routine becomes a block of ops."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from workflows_engine import control, model, retries, routines
from workflows_engine.blocks import BREAK, CONTINUE, END, Block, Jump, Op, Returned, Signal
from workflows_engine.builtins import BLOCKING, FUNCTIONS, REQUIRED
from workflows_engine.calls import BODIES, connector
from workflows_engine.coverage import Coverage
from workflows_engine.errors import WorkflowError, type_error
from workflows_engine.evaluate import Compiled, Compiler, combine, constant
from workflows_engine.probes import Probes
from workflows_engine.routines import CompiledRoutine
from workflows_engine.scope import Scope
from workflows_engine.values import type_name
from workflows_engine.variables import assigned

# A body over the scope, and whether it must be awaited
Closure = tuple[Callable[[Scope], Any], bool]


@dataclass
class _Place:
    """Where a block stands: which steps its own steps may jump to."""

    block: Block
    names: dict[str, int]
    outer: _Place | None  # None at the border of a routine, a loop or a branch


def compile_source(
    source: model.Source, coverage: Coverage | None = None
) -> dict[str, CompiledRoutine]:
    """Compile every routine of a checked source; its steps count their runs in ``coverage``."""
    compiled: dict[str, CompiledRoutine] = {}
    for routine in source.routines.values():
        names = [name for name, _ in routine.params]
        compiled[routine.name] = CompiledRoutine(routine.name, [], names=names)
    for routine in source.routines.values():
        probes = None if coverage is None else Probes(coverage, routine.name)
        _RoutineCompiler(routine, compiled, probes).compile()
    return compiled


class _RoutineCompiler:
    def __init__(
        self, routine: model.Routine, routines: dict[str, CompiledRoutine], probes: Probes | None
    ) -> None:
        self._probes = probes
        self._routine = routine
        self._routines = routines
        variables = {name for name, _ in routine.params} | set(assigned(routine.steps))
        self._expressions = Compiler(variables, routines, self._call_by_position)

    def compile(self) -> None:
        target = self._routines[self._routine.name]
        target.params = [
            (name, None if default is None else self.value(default))
            for name, default in self._routine.params
        ]
        self._fill(target.block, self._routine.steps, None)

    async def _call_by_position(self, scope: Scope, name: str, values: list[Any]) -> Any:
        routine = self._routines[name]
        if len(values) > len(routine.params):
            raise type_error(f"{name} takes {len(routine.params)} arguments, got {len(values)}")
        names = [param for param, _ in routine.params]
        return await routines.call(scope, routine, dict(zip(names, values, strict=False)))

    # Blocks

    def _fill(self, block: Block, steps: list[model.Step], outer: _Place | None) -> Block:
        place = _Place(block, {step.name: i for i, step in enumerate(steps)}, outer)
        for step in steps:
            op = self._op(step.name, step.body, step.next, step.line, place)
            if self._probes is not None:
                self._probes.step(op)
            block.ops.append(op)
        return block

    def _block(self, steps: list[model.Step], outer: _Place | None = None) -> Block:
        return self._fill(Block(), steps, outer)

    def _inline(self, name: str, body: model.Body, line: int, outer: _Place) -> Block:
        """A body without a name of its own: a block of one op that bears the step's name.

        Only what counts as a step by Google's list (calls, raises, what holds steps) is one here.
        """
        block = Block()
        place = _Place(block, {}, outer)
        op = self._op(name, body, None, line, place)
        op.silent = isinstance(body, model.Assign | model.Return | model.Nested | model.Switch)
        block.ops.append(op)
        return block

    def _op(
        self, name: str, body: model.Body | None, next_: str | None, line: int, at: _Place
    ) -> Op:
        run, waits = self._body(name, body, line, at)
        kind = "STEP_JUMP" if body is None else model.STEP_TYPES[type(body)]
        op = Op(name, kind, self._routine.name, line, run, waits, self._jump(next_, at))
        if isinstance(body, model.Call) and body.result is not None:
            op.result = body.result.name
        return op

    def _jump(self, name: str | None, at: _Place) -> Signal:
        if name is None:
            return None
        special: dict[str, Signal] = {"end": END, "break": BREAK, "continue": CONTINUE}
        if name in special:
            return special[name]
        place: _Place | None = at
        while place is not None:
            if name in place.names:
                index = place.names[name]
                return index if place is at else Jump(place.block, index)
            place = place.outer
        raise AssertionError(f"the checker let an unknown jump to {name} pass")

    # Bodies: each gives a closure over the scope and whether it must be awaited

    def _body(self, name: str, body: model.Body | None, line: int, at: _Place) -> Closure:
        match body:
            case None:
                return (lambda _scope: None), False
            case model.Assign():
                return self._assign(body)
            case model.Call():
                return self._call(body)
            case model.Switch():
                return self._switch(name, body, at)
            case model.For():
                return self._for(body)
            case model.Parallel():
                return self._parallel(body)
            case model.Try():
                return self._try(name, body, line, at)
            case model.Raise(value):
                return _plain(combine([self.value(value)], _raise))
            case model.Return(value):
                return _plain(combine([self.value(value)], Returned))
            case model.Nested(steps):
                return control.nested(self._block(steps, at)), True

    def _assign(self, body: model.Assign) -> Closure:
        writes = [self._write(target, self.value(value)) for target, value in body.items]
        if not any(write.waits for write in writes):
            runs = [write.run for write in writes]
            if len(runs) == 1:
                return runs[0], False

            def run(scope: Scope) -> None:
                for one in runs:
                    one(scope)

            return run, False

        async def waiting(scope: Scope) -> None:
            for write in writes:
                done = write.run(scope)
                if write.waits:
                    await done

        return waiting, True

    def _write(self, target: model.Target, value: Compiled) -> Compiled:
        name = target.name
        run = value.run
        if not target.path:
            if value.waits:

                async def wait(scope: Scope) -> None:
                    scope.assign(name, await run(scope))

                return Compiled(wait, waits=True)
            return Compiled(lambda scope: scope.assign(name, run(scope)))
        keys = [self._expressions.expression(node) for node in target.path]
        both = combine([*keys, value], lambda *values: [*values])
        collect = both.run
        if both.waits:

            async def wait_item(scope: Scope) -> None:
                *path, new = await collect(scope)
                scope.assign_item(name, path, new)

            return Compiled(wait_item, waits=True)

        def item(scope: Scope) -> None:
            *path, new = collect(scope)
            scope.assign_item(name, path, new)

        return Compiled(item)

    def _call(self, body: model.Call) -> Closure:
        function = body.function
        named = model.by_name(body.args, self._parameters(function))
        pairs = named.items if named is not None else []
        if function in self._routines:
            routine = self._routines[function]
            args = self._map(pairs)

            async def call(scope: Scope) -> Any:
                values = args.run(scope)
                return await routines.call(scope, routine, await values if args.waits else values)

            return self._store(Compiled(call, waits=True), body.result)
        if function in FUNCTIONS:
            spec = FUNCTIONS[function]
            if spec.scoped:
                inner = self._by_position(spec.params, pairs, lambda *values: values)
                target = spec.body
                if inner.waits:

                    async def scoped(scope: Scope) -> Any:
                        return target(scope, *await inner.run(scope))

                    return self._store(Compiled(scoped, waits=True), body.result)
                return self._store(
                    Compiled(lambda scope: target(scope, *inner.run(scope))), body.result
                )
            return self._store(self._by_position(spec.params, pairs, spec.body), body.result)
        args = self._map(pairs)
        action = BODIES[function] if function in BLOCKING else connector(function)
        evaluate = args.run

        async def effect(scope: Scope) -> Any:
            values = evaluate(scope)
            return await action(scope, await values if args.waits else values)

        return self._store(Compiled(effect, waits=True), body.result)

    def _parameters(self, function: str) -> list[str]:
        if function in self._routines:
            return self._routines[function].names
        params = FUNCTIONS[function].params if function in FUNCTIONS else BLOCKING.get(function)
        return [name for name, _ in params or ()]

    def _by_position(
        self,
        params: tuple[tuple[str, Any], ...],
        pairs: list[tuple[model.Const | model.Expr, model.Value]],
        build: Callable[..., Any],
    ) -> Compiled:
        given = {key.value: value for key, value in pairs if isinstance(key, model.Const)}
        parts = []
        for name, default in params:
            if name in given:
                parts.append(self.value(given[name]))
            else:
                assert default is not REQUIRED, "the checker let a missing argument pass"
                parts.append(constant(default))
        return combine(parts, build)

    def _store(self, call: Compiled, target: model.Target | None) -> Closure:
        run = call.run
        if target is None:
            if call.waits:

                async def drop(scope: Scope) -> None:
                    await run(scope)

                return drop, True

            def ignore(scope: Scope) -> None:
                run(scope)

            return ignore, False
        write = self._write(target, call)
        return write.run, write.waits

    def _switch(self, name: str, body: model.Switch, at: _Place) -> Closure:
        cases = [
            (
                self.value(case.condition),
                None if case.body is None else self._inline(name, case.body, case.line, at),
                self._jump(case.next, at),
            )
            for case in body.cases
        ]
        if self._probes is not None:
            cases = self._probes.conditions(name, body, cases)
        return control.switch(cases)

    def _for(self, body: model.For) -> Closure:
        source = body.items if body.items is not None else body.bounds
        assert source is not None
        ranged = body.items is None
        block = self._block(body.steps)
        return control.loop(self.value(source), ranged, body.value, body.index, block), True

    def _parallel(self, body: model.Parallel) -> Closure:
        limit = self.value(body.limit) if body.limit is not None else None
        shared = frozenset(body.shared)
        if body.loop is not None:
            loop = body.loop
            source = loop.items if loop.items is not None else loop.bounds
            assert source is not None
            block = self._block(loop.steps)
            return control.parallel_loop(
                self.value(source),
                loop.items is None,
                loop.value,
                loop.index,
                block,
                shared,
                limit,
            ), True
        branches = [(name, self._block(steps)) for name, steps in body.branches]
        return control.parallel_branches(branches, shared, limit), True

    def _try(self, name: str, body: model.Try, line: int, at: _Place) -> Closure:
        if body.inline is not None:
            block = self._inline(name, body.inline, line, at)
        else:
            block = self._block(body.steps, at)
        handler = None if body.handler is None else self._block(body.handler, at)
        retry = body.retry
        policy: Compiled | None = None
        if retry is not None and retry.policy is not None:
            policy = self.value(retry.policy)
        elif retry is not None:
            parts = {
                "predicate": retry.predicate,
                "max_retries": retry.max_retries,
                "backoff": retry.backoff,
            }
            pairs: list[tuple[model.Const | model.Expr, model.Value]] = [
                (model.Const(key, retry.line), value)
                for key, value in parts.items()
                if value is not None
            ]
            policy = self._map(pairs)
        marks = {}
        if self._probes is not None and policy is not None:
            marks["on_retry"] = self._probes.mark("retry", name, line)
        if self._probes is not None and handler is not None:
            marks["on_except"] = self._probes.mark("except", name, line)
        return retries.attempt(block, policy, self._routines, body.name, handler, **marks), True

    # Values

    def value(self, value: model.Value) -> Compiled:
        """Compile a value of the source; a value without expressions is built once."""
        match value:
            case model.Const(literal):
                return constant(literal)
            case model.Expr(node):
                return self._expressions.expression(node)
            case model.ListValue(items):
                parts = [self.value(item) for item in items]
                if all(part.constant for part in parts):
                    return constant([part.run(None) for part in parts])  # type: ignore[arg-type]
                return combine(parts, lambda *values: [*values])
            case model.MapValue(pairs):
                return self._map(pairs)

    def _map(self, pairs: list[tuple[model.Const | model.Expr, model.Value]]) -> Compiled:
        parts = [self.value(item) for _, item in pairs]
        if all(isinstance(key, model.Const) for key, _ in pairs):
            keys = [key.value for key, _ in pairs if isinstance(key, model.Const)]
            if all(part.constant for part in parts):
                values = [part.run(None) for part in parts]  # type: ignore[arg-type]
                return constant(dict(zip(keys, values, strict=True)))
            return combine(parts, lambda *values: dict(zip(keys, values, strict=True)))
        names = [self.value(key) for key, _ in pairs]
        size = len(names)

        def build(*values: Any) -> dict[str, Any]:
            for key in values[:size]:
                if type(key) is not str:
                    raise type_error(f"a map key must be a string, not {type_name(key)}")
            return dict(zip(values[:size], values[size:], strict=True))

        return combine([*names, *parts], build)


def _plain(part: Compiled) -> Closure:
    return part.run, part.waits


def _raise(value: Any) -> Any:
    if type(value) in (str, dict):
        raise WorkflowError(value)
    raise type_error(f"raise takes a string or a map, not {type_name(value)}")
