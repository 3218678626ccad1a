"""The ``text`` module of the standard library."""

from __future__ import annotations

import re
import urllib.parse
from functools import lru_cache
from typing import Any

import re2

from workflows_engine.errors import value_error
from workflows_engine.registry import need, register


@lru_cache(maxsize=1024)
def _regex(pattern: str, longest: bool) -> Any:
    options = re2.Options()
    options.log_errors = False
    options.longest_match = longest
    try:
        return re2.compile(pattern, options)
    except re2.error as exc:
        reason = exc.args[0] if exc.args else ""
        reason = reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(reason)
        raise value_error(
            f"{pattern!r} is not a regular expression of RE2, which has neither look-around nor "
            f"back references: {reason}"
        ) from None
    except UnicodeError as exc:
        raise value_error(f"a regular expression must be UTF-8: {exc}") from None


def _pattern(function: str, value: Any, *, longest: bool = False) -> Any:
    """A pattern of RE2, the service's regular expressions: its time is linear in the text."""
    return _regex(need(function, "regexp", value, str), longest)


def _whole(function: str, text: str) -> str:
    """The text, when RE2 can read it. Raises WorkflowError (ValueError) for half characters."""
    if not text.isascii():
        try:
            text.encode()
        except UnicodeError as exc:
            raise value_error(f"{function}: source must be UTF-8: {exc}") from None
    return text


_CHARSETS = ("UTF-8", "US-ASCII", "ISO-8859-1", "UTF-16", "UTF-16BE", "UTF-16LE")


def _charset(function: str, value: Any) -> str:
    name: str = need(function, "charset", value, str).upper()
    if name not in _CHARSETS:
        raise value_error(f"{function}: charset {value!r} is not one of {_CHARSETS}")
    return name


@register("text.decode", "data", "charset", charset="UTF-8")
def decode(data: Any, charset: Any) -> str:
    """Text of bytes. Raises TypeError, ValueError (charset, bytes that are no such text)."""
    raw: bytes = need("text.decode", "data", data, bytes)
    try:
        return raw.decode(_charset("text.decode", charset))
    except ValueError as exc:
        raise value_error(f"text.decode: {exc}") from None


@register("text.encode", "data", "charset", charset="UTF-8")
def encode(data: Any, charset: Any) -> bytes:
    """Bytes of text. Raises TypeError, ValueError (charset, a character it does not have)."""
    text: str = need("text.encode", "data", data, str)
    try:
        return text.encode(_charset("text.encode", charset))
    except ValueError as exc:
        raise value_error(f"text.encode: {exc}") from None


@register("text.find_all", "source", "substr")
def find_all(source: Any, substr: Any) -> list[dict[str, Any]]:
    """Where ``substr`` stands in ``source``: maps of index and match. Raises TypeError."""
    text = need("text.find_all", "source", source, str)
    part = need("text.find_all", "substr", substr, str)
    return [{"index": m.start(), "match": part} for m in re.finditer(re.escape(part), text)]


@register("text.find_all_regex", "source", "regexp")
def find_all_regex(source: Any, regexp: Any) -> list[dict[str, Any]]:
    """Where a pattern matches: maps of index and match. Raises TypeError, ValueError (pattern)."""
    text = need("text.find_all_regex", "source", source, str)
    pattern = _pattern("text.find_all_regex", regexp, longest=True)
    found = pattern.finditer(_whole("text.find_all_regex", text))
    return [{"index": m.start(), "match": m[0]} for m in found]


@register("text.match_regex", "source", "regexp")
def match_regex(source: Any, regexp: Any) -> bool:
    """Whether a pattern matches a part of ``source``. Raises TypeError, ValueError (pattern)."""
    text = need("text.match_regex", "source", source, str)
    pattern = _pattern("text.match_regex", regexp)
    return pattern.search(_whole("text.match_regex", text)) is not None


@register("text.replace_all", "source", "substr", "repl")
def replace_all(source: Any, substr: Any, repl: Any) -> str:
    """``source`` with each ``substr`` replaced. Raises TypeError."""
    text: str = need("text.replace_all", "source", source, str)
    old = need("text.replace_all", "substr", substr, str)
    return text.replace(old, need("text.replace_all", "repl", repl, str))


@register("text.replace_all_regex", "source", "regexp", "repl")
def replace_all_regex(source: Any, regexp: Any, repl: Any) -> str:
    r"""As text.replace_all, by a pattern; ``\1`` is a group. Raises TypeError, ValueError."""
    text = need("text.replace_all_regex", "source", source, str)
    template = need("text.replace_all_regex", "repl", repl, str)
    pattern = _pattern("text.replace_all_regex", regexp)

    def replacement(match: Any) -> str:
        def group(reference: re.Match[str]) -> str:
            number = reference[1]
            if number == "\\":
                return "\\"
            try:
                return match[int(number)] or ""
            except IndexError:
                raise value_error(
                    f"text.replace_all_regex: there is no group {number} in {pattern.pattern!r}"
                ) from None

        return re.sub(r"\\([0-9\\])", group, template)

    replaced: str = pattern.sub(replacement, _whole("text.replace_all_regex", text))
    return replaced


@register("text.split", "source", "separator")
def split(source: Any, separator: Any) -> list[str]:
    """The parts between separators; an empty one splits into characters. Raises TypeError."""
    text: str = need("text.split", "source", source, str)
    by = need("text.split", "separator", separator, str)
    return text.split(by) if by else list(text)


@register("text.substring", "source", "start", "end")
def substring(source: Any, start: Any, end: Any) -> str:
    """Characters from start (inclusive) to end (exclusive); refuses a range outside the text."""
    text: str = need("text.substring", "source", source, str)
    need("text.substring", "start", start, int)
    need("text.substring", "end", end, int)
    if not 0 <= start <= end <= len(text):
        raise value_error(
            f"text.substring: {start} to {end} is not a range inside {len(text)} characters"
        )
    return text[start:end]


@register("text.to_lower", "source")
def to_lower(source: Any) -> str:
    """Lower case. Raises TypeError."""
    text: str = need("text.to_lower", "source", source, str)
    return text.lower()


@register("text.to_upper", "source")
def to_upper(source: Any) -> str:
    """Upper case. Raises TypeError."""
    text: str = need("text.to_upper", "source", source, str)
    return text.upper()


@register("text.url_decode", "source")
def url_decode(source: Any) -> str:
    """Decode ``%XX`` and ``+``. Raises TypeError."""
    return urllib.parse.unquote_plus(need("text.url_decode", "source", source, str))


@register("text.url_encode", "source")
def url_encode(source: Any) -> str:
    """Encode all but letters, digits and ``-_.~``. Raises TypeError."""
    return _quote(need("text.url_encode", "source", source, str))


@register("text.url_encode_plus", "source")
def url_encode_plus(source: Any) -> str:
    """As text.url_encode, with ``+`` for a space. Raises TypeError."""
    return _quote(need("text.url_encode_plus", "source", source, str)).replace("%20", "+")


def _quote(text: str) -> str:
    return urllib.parse.quote(text, safe="", errors="replace")
