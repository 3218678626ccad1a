"""Where variables live, and how much memory they take.

A scope is a dictionary of variables. A routine call opens one without a parent; each iteration
of a loop, an except block and a branch of a parallel step open one below the present one.
"""

from __future__ import annotations

from typing import Any

from workflows_engine import limits
from workflows_engine.errors import error, resource_limit
from workflows_engine.ports import RunningExecution
from workflows_engine.values import measure, set_item


class Frame:
    """One strand of one routine call: who runs, where it is, how deep it is."""

    __slots__ = ("depth", "execution", "parallel_depth", "parent", "routine", "step")

    def __init__(
        self,
        execution: RunningExecution,
        routine: str,
        parent: Frame | None,
        depth: int,
        parallel: int,
    ) -> None:
        self.execution = execution
        self.routine = routine
        self.parent = parent
        self.depth = depth
        self.parallel_depth = parallel
        self.step = ""


class Scope:
    """Variables by name, with the measured size of each."""

    __slots__ = ("frame", "origin", "parent", "shared", "sizes", "variables")

    def __init__(
        self, frame: Frame, parent: Scope | None = None, shared: frozenset[str] | None = None
    ) -> None:
        self.frame = frame
        self.parent = parent
        self.shared = shared  # not None: a branch, which writes only these of its parent's
        # The scope that called this routine, or the step and the iteration or branch of it.
        self.origin: Scope | tuple[str, Any] | None = None
        self.variables: dict[str, Any] = {}
        self.sizes: dict[str, int] = {}

    def find(self, name: str) -> Any:
        """The value of a variable here or above. Raises KeyError when no step has assigned it."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope.variables:
                return scope.variables[name]
            scope = scope.parent
        raise error("KeyError", f"variable {name!r} has not been assigned")

    def owner(self, name: str) -> Scope:
        """The scope an assignment to ``name`` writes to: where it is, else here."""
        scope: Scope = self
        while name not in scope.variables:
            parent = scope.parent
            if parent is None or (scope.shared is not None and name not in scope.shared):
                return self
            scope = parent
        return scope

    def assign(self, name: str, value: Any) -> None:
        """Assign a whole variable; counts its memory."""
        scope = self if self.parent is None or name in self.variables else self.owner(name)
        size = measure(value)
        sizes = scope.sizes
        execution = self.frame.execution
        execution.memory += size - sizes.get(name, 0)
        sizes[name] = size
        scope.variables[name] = value
        if execution.memory > limits.MEMORY_BYTES:
            raise _out_of_memory(execution.memory, name)

    def assign_item(self, name: str, path: list[Any], value: Any) -> None:
        """Assign a part of a variable: ``name[path[0]][path[1]] = value``."""
        container = self.find(name)
        size = measure(value)
        changed, delta = set_item({} if container is None else container, path, value, size)
        scope = self.owner(name)
        if name not in scope.variables:  # a private copy of a parent's variable in a branch
            delta = measure(changed)
        execution = self.frame.execution
        execution.memory += delta
        scope.sizes[name] = scope.sizes.get(name, 0) + delta
        scope.variables[name] = changed
        if execution.memory > limits.MEMORY_BYTES:
            raise _out_of_memory(execution.memory, name)

    def place(self) -> list[str]:
        """Where its steps run, outermost first: routines, iterations and branches."""
        parts: list[str] = []
        scope: Scope | None = self
        while scope is not None:
            origin = scope.origin
            if isinstance(origin, tuple):
                parts.append(f"{origin[0]}[{origin[1]}]")
            if scope.parent is None:
                parts.append(scope.frame.routine)
                scope = origin if isinstance(origin, Scope) else None
            else:
                scope = scope.parent
        return parts[::-1]

    def close(self) -> None:
        """Give the memory of this scope's variables back."""
        if self.sizes:
            self.frame.execution.memory -= sum(self.sizes.values())


def _out_of_memory(size: int, name: str) -> Exception:
    return resource_limit(
        f"memory usage limit exceeded: the variables take {size} bytes after assigning "
        f"{name!r}, {limits.MEMORY_BYTES} are allowed"
    )
