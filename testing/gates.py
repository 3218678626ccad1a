"""Gates of a life: what a call of a function by a workflow loses on its way."""

from __future__ import annotations

from typing import Any

from workflows_engine.errors import HttpConnectionBroken, HttpConnectionFailed


def lose_answer(function_name: str, times: int = 1, step: str | None = None) -> Any:
    """Return an ``after`` gate that loses the answers of a function."""
    left = [times]

    def gate(name: str, call: dict[str, Any]) -> None:
        if name == function_name and step in (None, call.get("step")) and left[0] > 0:
            left[0] -= 1
            raise HttpConnectionBroken("the answer was lost")

    return gate


def refuse(function_name: str, times: int = 1_000_000) -> Any:
    """Return a ``before`` gate that lets no request arrive."""
    left = [times]

    def gate(name: str, call: dict[str, Any]) -> None:
        if name == function_name and left[0] > 0:
            left[0] -= 1
            raise HttpConnectionFailed("connection refused")

    return gate
