"""Runs a workflow to its end in virtual time, with what it would meet outside injected."""

from __future__ import annotations

import textwrap
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import pytest
from workflows_engine import Engine, Execution, FaultySource, Workflow, virtual

Json = dict[str, Any]


class Web:
    """An HTTP handler: answers from a list or a function, and remembers the requests."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.requests: list[Json] = []

    async def __call__(
        self,
        method: str,
        url: str,
        headers: Json,
        query: Json,
        body: Any,
        auth: Json | None,
        timeout: float,
    ) -> tuple[int, Mapping[str, str], Any]:
        request = {
            "method": method,
            "url": url,
            "headers": headers,
            "query": query,
            "body": body,
            "auth": auth,
            "timeout": timeout,
        }
        self.requests.append(request)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if callable(answer) and not isinstance(answer, type):
            answer = answer(request)
            if isinstance(answer, Awaitable):
                answer = await answer
        if isinstance(answer, BaseException) or (
            isinstance(answer, type) and issubclass(answer, BaseException)
        ):
            raise answer
        if isinstance(answer, int):
            return answer, {}, None
        status, content = answer
        return status, {"Content-Type": "application/json"}, content


def workflow(source: str) -> Workflow:
    """Compile a source; a list of steps is the body of main."""
    return Workflow(textwrap.dedent(source))


def drive(
    source: str | Workflow,
    argument: Any = None,
    meanwhile: Callable[[Engine, Execution], Awaitable[Any]] | None = None,
    **engine: Any,
) -> Execution:
    """Run a workflow to its end; ``meanwhile`` runs beside it."""
    compiled = source if isinstance(source, Workflow) else workflow(source)

    async def main() -> Execution:
        running = Engine(**engine)
        running.deploy("w", compiled)
        execution = running.create("w", argument)
        if meanwhile is not None:
            await meanwhile(running, execution)
        await execution.wait()
        assert running.faults == []
        return execution

    return virtual.run(main)


def result(source: str | Workflow, argument: Any = None, **engine: Any) -> Any:
    """What a workflow returns; fails when it does not succeed."""
    execution = drive(source, argument, **engine)
    assert execution.state == "SUCCEEDED", execution.error
    return execution.value


def failure(source: str | Workflow, argument: Any = None, **engine: Any) -> Any:
    """The error value a workflow ends with."""
    execution = drive(source, argument, **engine)
    assert execution.state == "FAILED", execution.result
    return execution.failure


def evaluate(expression: str, **variables: Any) -> Any:
    """The value of one expression, with variables from the argument."""
    names = "".join(f"\n        - {name}: ${{args.{name}}}" for name in variables)
    assign = f"\n    - set:\n        assign:{names}".replace("        -", "          -")
    body = (assign if variables else "") + "\n    - give:\n        return: " + _quoted(expression)
    return result(f"main:\n  params: [args]\n  steps:{body}\n", variables)


def refusal(expression: str, **variables: Any) -> list[str]:
    """The tags of the error an expression raises."""
    names = "".join(f"\n          - {name}: ${{args.{name}}}" for name in variables)
    assign = f"\n    - set:\n        assign:{names}" if variables else ""
    body = assign + "\n    - give:\n        return: " + _quoted(expression)
    error = failure(f"main:\n  params: [args]\n  steps:{body}\n", variables)
    tags: list[str] = error["tags"]
    return tags


def _quoted(expression: str) -> str:
    return "'${" + expression.replace("'", "''") + "}'"


def warnings(source: str) -> list[str]:
    """The warnings of a source that is not refused, as text."""
    return [str(warning) for warning in workflow(source).warnings]


def faults(source: str) -> list[str]:
    """The faults of a source as text; fails when it has none."""
    with pytest.raises(FaultySource) as raised:
        workflow(source)
    return [str(fault) for fault in raised.value.faults]


ERROR_OF = """
    - attempt:
        try:
          steps:
            - step:
                {step}
        except:
          as: e
          steps:
            - give:
                return: ${{e}}
"""


def caught(step: str, **engine: object) -> object:
    """What except gets from a step."""
    return result(ERROR_OF.format(step=step), **engine)
