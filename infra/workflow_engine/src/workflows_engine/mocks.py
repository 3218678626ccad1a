"""Answers to the calls of a workflow from a file, so that it can be tested without a program.

``Mocks`` stands for the world: it is the HTTP handler and the connector handler of an engine, and
sends the callbacks that the file lists. What no mock answers ends the execution with a sentence
that no ``except`` sees, because a test that met an unknown call has found something.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from workflows_engine.connectors import knows
from workflows_engine.errors import FatalError, WorkflowError, error, http_error
from workflows_engine.mock_file import Answer, CallbackMock, Match, Mock, MockFile, Raised
from workflows_engine.ports import HttpAnswer, HttpCall
from workflows_engine.values import to_json

Json = dict[str, Any]


class Mocks:
    """The mocks of a file during one or more executions; counts which were used."""

    def __init__(self, file: MockFile) -> None:
        self._mocks = [_Use(mock, number) for number, mock in enumerate(file.mocks, 1)]
        self._callbacks = list(file.callbacks)
        self._sent = [0] * len(self._callbacks)
        self._endpoints = 0
        self._sending: set[asyncio.Task[None]] = set()

    async def http(self, *call: *HttpCall) -> HttpAnswer:
        """Answer an HTTP call, as an HttpHandler. Raises FatalError when no mock does."""
        method, url, headers, query, body, _auth, _timeout = call
        seen = {
            "method": method,
            "url": url,
            "headers": {key.lower(): _text(value) for key, value in headers.items()},
            "query": {
                **dict(parse_qsl(urlsplit(url).query, keep_blank_values=True)),
                **{key: _text(value) for key, value in query.items()},
            },
            "body": body,
        }
        uses = [one for one in self._mocks if one.mock.match.connector is None]
        use = self._choose(uses, seen, f"{method} {url}")
        answer = await use.answer()
        named = {"Content-Type": "application/json", **answer.headers}
        return answer.status, named, answer.body

    async def connector(self, name: str, args: Json, _params: Json) -> Any:
        """Answer a connector, as a ConnectorHandler.

        Gives NotImplemented when the file has no mock for the connector and it is a built-in one:
        its HTTP requests then meet the mocks. Raises FatalError when nothing answers.
        """
        uses = [one for one in self._mocks if one.mock.match.connector is not None]
        mine = [one for one in uses if _glob(str(one.mock.match.connector), name)]
        if not mine and knows(name, args):
            return NotImplemented
        use = self._choose(mine or uses, {"connector": name, "args": args}, name)
        answer = await use.answer()
        if answer.status >= 400:
            raise http_error(answer.status, dict(answer.headers), answer.body)
        return answer.body

    def callback_created(self, engine: Any, url: str, method: str) -> None:
        """Plan the callbacks that the file sends to the endpoint that was just created."""
        self._endpoints += 1
        for index, one in enumerate(self._callbacks):
            if one.endpoint == self._endpoints:
                task = asyncio.ensure_future(self._send(engine, index, one, url, method))
                self._sending.add(task)
                task.add_done_callback(self._sending.discard)

    async def _send(
        self, engine: Any, index: int, one: CallbackMock, url: str, method: str
    ) -> None:
        await asyncio.sleep(one.after)
        self._sent[index] = engine.callback(
            url, one.body, one.method or method, one.headers, one.query
        )

    def unused(self) -> list[str]:
        """A sentence for each mock that answered nothing and each callback that was not taken."""
        left = [f"mock {one.title} was not used" for one in self._mocks if not one.uses]
        for index, one in enumerate(self._callbacks):
            if self._sent[index] == 0:
                left.append(f"callback {index + 1} (to endpoint {one.endpoint}) was not sent")
            elif self._sent[index] != 200:
                left.append(f"callback {index + 1} was refused with {self._sent[index]}")
        return left

    @staticmethod
    def _choose(uses: list[_Use], seen: Json, what: str) -> _Use:
        reasons = []
        for use in uses:
            reason = use.exhausted() or next(_differences(use.mock.match, seen), None)
            if reason is None:
                use.uses += 1
                return use
            reasons.append(f"{use.title}: {reason}")
        told = "; ".join(reasons[:5]) or "the file has none of this kind"
        more = f"; and {len(reasons) - 5} more" if len(reasons) > 5 else ""
        message = f"MockError: no mock answers {what} ({told}{more})"
        raise FatalError({"message": message, "tags": ["MockError"]})


class _Use:
    """A mock, and how often it has answered."""

    def __init__(self, mock: Mock, number: int) -> None:
        self.mock = mock
        self.uses = 0
        self.title = f"{number} ({mock.name})" if mock.name else str(number)

    def exhausted(self) -> str | None:
        """Why it answers no more, or None."""
        most = self.mock.times
        return None if most is None or self.uses < most else f"has answered {most} times"

    async def answer(self) -> Answer:
        """The answer of this use, after its delay. Raises the error that the mock names."""
        mock, number = self.mock, self.uses
        failing = mock.fail
        if failing is not None and number <= failing.times:
            chosen: Answer | Raised = failing.error or Answer(
                status=failing.status or 503, body=failing.body
            )
        else:
            number -= failing.times if failing is not None else 0
            chosen = mock.error or mock.sequence[min(number, len(mock.sequence)) - 1]
        delay = mock.delay if chosen.delay is None else chosen.delay
        if delay:
            await asyncio.sleep(delay)
        if isinstance(chosen, Raised):
            raise _raised(chosen)
        return chosen


def _raised(one: Raised) -> WorkflowError:
    more = {key: value for key, value in (one.model_extra or {}).items()}
    if one.tag is not None:
        return error(one.tag, one.message, **more)
    return WorkflowError({"message": one.message, "tags": one.tags or [], **more})


def _differences(match: Match, seen: Json) -> Iterator[str]:
    """In what a call differs from a match, the first thing first."""
    if match.connector is not None:
        if not _glob(match.connector, seen["connector"]):
            yield f"is for {match.connector}"
        yield from _subset("args", match.args, seen["args"])
        return
    if match.method is not None and match.method != seen["method"]:
        yield f"is for {match.method}"
    plain = seen["url"].partition("?")[0]
    if match.url is not None and not (_glob(match.url, seen["url"]) or _glob(match.url, plain)):
        yield f"is for {match.url}"
    if match.url_regex is not None and not re.fullmatch(match.url_regex, seen["url"]):
        yield f"is for the pattern {match.url_regex}"
    for name, wanted in match.headers.items():
        yield from _subset(f"headers.{name}", _text(wanted), seen["headers"].get(name.lower()))
    for name, wanted in match.query.items():
        yield from _subset(f"query.{name}", _text(wanted), seen["query"].get(name))
    if "body" in match.model_fields_set:
        yield from _subset("body", match.body, seen["body"])


def _subset(where: str, wanted: Any, got: Any) -> Iterator[str]:
    """Where ``got`` lacks something of ``wanted``: maps may have more keys, the rest is equal."""
    if isinstance(wanted, dict | list) and isinstance(got, str | bytes):
        try:
            got = json.loads(got)
        except ValueError:
            yield f"{where} is no JSON"
            return
    if isinstance(wanted, dict):
        if not isinstance(got, dict):
            yield f"{where} is {_shown(got)}, not a map"
            return
        for key, value in wanted.items():
            if key not in got:
                yield f"{where} has no {key!r}"
            else:
                yield from _subset(f"{where}.{key}", value, got[key])
    elif isinstance(wanted, list) and isinstance(got, list) and len(wanted) == len(got):
        for index, (one, other) in enumerate(zip(wanted, got, strict=True)):
            yield from _subset(f"{where}[{index}]", one, other)
    elif isinstance(wanted, bool) is not isinstance(got, bool) or wanted != got:
        yield f"{where} is {_shown(got)}, not {_shown(wanted)}"


def _shown(value: Any) -> str:
    text = repr(value) if isinstance(value, bytes) else to_json(value)
    return text if len(text) <= 80 else text[:77] + "..."


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if isinstance(value, str) else str(value)


def _glob(pattern: str, text: str) -> bool:
    """Whether a text is a pattern's: ``*`` is any text, all else is itself."""
    return re.fullmatch(re.escape(pattern).replace(r"\*", ".*"), text, re.DOTALL) is not None
