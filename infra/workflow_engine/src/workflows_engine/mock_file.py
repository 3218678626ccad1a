"""The file of ``run --mock``: its form, and every fault of one with its line."""

from __future__ import annotations

import re
from typing import Any, Self

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from workflows_engine import limits
from workflows_engine.errors import Fault, FaultySource

_METHODS = "GET|HEAD|POST|PUT|DELETE|CONNECT|OPTIONS|TRACE|PATCH"


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class Match(_Strict):
    """Which calls a mock answers: HTTP by url, or a connector by name; maps match as subsets."""

    method: str | None = Field(None, pattern=f"^({_METHODS})$")
    url: str | None = Field(None, description="* stands for any text")
    url_regex: str | None = Field(None, description="a pattern of the whole URL")
    query: dict[str, Any] = {}
    headers: dict[str, Any] = {}
    body: Any = None
    connector: str | None = Field(None, description="* stands for any text")
    args: dict[str, Any] = {}

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        kinds = [name for name in ("url", "url_regex", "connector") if getattr(self, name)]
        if len(kinds) != 1:
            raise ValueError("match needs one of url, url_regex and connector")
        other = {"args"} if kinds != ["connector"] else {"method", "query", "headers", "body"}
        wrong = sorted(other & self.model_fields_set)
        if wrong:
            raise ValueError(f"match by {kinds[0]} cannot have {', '.join(wrong)}")
        if self.url_regex is not None:
            try:
                re.compile(self.url_regex)
            except re.error as exc:
                raise ValueError(f"url_regex is no pattern: {exc}") from None
        return self


class Answer(_Strict):
    """An answer of HTTP, or of a connector (its result is the body); 400 and over is an error."""

    status: int = Field(200, ge=100, le=599)
    headers: dict[str, str] = {}
    body: Any = None
    delay: float | None = Field(None, ge=0, le=limits.EXECUTION_SECONDS)


class Raised(BaseModel):
    """An error to raise: a tag of the language, or tags as they are; more keys are kept."""

    model_config = ConfigDict(extra="allow", strict=True)

    message: str = "raised by a mock"
    tag: str | None = None
    tags: list[str] | None = None
    delay: float | None = Field(None, ge=0, le=limits.EXECUTION_SECONDS)


class Fail(_Strict):
    """How the first calls fail: by a status (503) or an error."""

    times: int = Field(ge=1)
    status: int | None = Field(None, ge=400, le=599)
    body: Any = None
    error: Raised | None = None

    @model_validator(mode="after")
    def _one(self) -> Self:
        if self.status is not None and self.error is not None:
            raise ValueError("fail has a status or an error, not both")
        return self


class Mock(_Strict):
    """One rule: what it matches and how it answers; the first rule that matches counts."""

    name: str = ""
    match: Match
    answer: Answer | None = None
    answers: list[Answer] | None = Field(None, min_length=1, description="in turn; last repeats")
    error: Raised | None = None
    fail: Fail | None = None
    delay: float = Field(0.0, ge=0, le=limits.EXECUTION_SECONDS, description="seconds")
    times: int | None = Field(None, ge=1, description="how often it answers at most")

    @model_validator(mode="after")
    def _one_answer(self) -> Self:
        given = [n for n in ("answer", "answers", "error") if getattr(self, n) is not None]
        if len(given) > 1:
            raise ValueError(f"a mock has one of answer, answers and error, not {given}")
        return self

    @property
    def sequence(self) -> list[Answer]:
        """Its answers in turn."""
        return self.answers or [self.answer or Answer()]


class CallbackMock(_Strict):
    """A request to the n-th callback endpoint of the run, some time after its creation."""

    endpoint: int = Field(1, ge=1)
    after: float = Field(0.0, ge=0, le=limits.EXECUTION_SECONDS, description="seconds")
    method: str | None = Field(None, pattern=f"^({_METHODS})$")
    headers: dict[str, str] = {}
    query: dict[str, str] = {}
    body: Any = None


class MockFile(_Strict):
    """A whole file."""

    mocks: list[Mock] = []
    callbacks: list[CallbackMock] = []


def is_mock_file(text: str) -> bool:
    """Whether a text is a file of mocks rather than a workflow: no ``main``, but ``mocks``."""
    keys = set(re.findall(r"(?m)^(main|mocks|callbacks)[ \t]*:", text))
    return bool(keys) and "main" not in keys


def read_mocks(text: str, path: str = "<mocks>") -> MockFile:
    """Read a file of mocks. Raises FaultySource with a fault for each field that is wrong."""
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
        value = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as exc:
        mark = getattr(exc, "problem_mark", None)
        line = mark.line + 1 if mark is not None else 1
        told = getattr(exc, "problem", None) or str(exc)
        raise FaultySource([Fault(line, f"not YAML: {told}", "YAML that parses", path)]) from None
    try:
        return MockFile.model_validate(value)
    except ValidationError as exc:
        raise FaultySource([_fault(one, node, path) for one in exc.errors()]) from None


def _fault(one: Any, node: Any, path: str) -> Fault:
    where = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in one["loc"])
    field = where.lstrip(".") or "the file"
    told = one["msg"].removeprefix("Value error, ")
    told = told[:1].lower() + told[1:]
    if one["type"] == "extra_forbidden":
        return Fault(
            _line(node, one["loc"]), f"{field} is not known here", "a field of the schema", path
        )
    got = "" if one["type"] == "missing" else f", not {_short(one['input'])}"
    if one["type"] == "value_error":
        got = ""
    return Fault(_line(node, one["loc"]), f"{field}: {told}{got}", "what the schema says", path)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _line(node: Any, loc: tuple[Any, ...]) -> int:
    """The line of a field, or of what holds it."""
    for part in loc:
        if isinstance(node, yaml.SequenceNode) and isinstance(part, int):
            node = node.value[part]
        elif isinstance(node, yaml.MappingNode):
            found = [value for key, value in node.value if key.value == part]
            if not found:
                break
            node = found[0]
    return int(node.start_mark.line) + 1 if node is not None else 1
