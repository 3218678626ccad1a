"""The ``text`` module of the standard library."""

from __future__ import annotations

import re
import urllib.parse
from functools import lru_cache
from typing import Any

from workflows_engine import limits
from workflows_engine.errors import FatalError, resource_limit, value_error
from workflows_engine.registry import need, register


@lru_cache(maxsize=1024)
def _regex(pattern: str, longest: bool) -> Any:
    import re2  # 2.4 MB that most workflows do without

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


def _too_long(function: str) -> FatalError:
    """A result that is refused before it is made: it could fill the machine."""
    return resource_limit(
        f"{function}: the result is longer than the {limits.STRING_BYTES} bytes allowed"
    )


# IANA names (in lower case) of the charsets that are taken, with Python's name of the codec.
_CHARSETS = {
    "utf-8": "utf-8",
    "us-ascii": "ascii",
    "utf-16": "utf-16",
    "utf-16be": "utf-16-be",
    "utf-16le": "utf-16-le",
    **{f"iso-8859-{n}": f"iso8859-{n}" for n in range(1, 17) if n != 12},
    **{f"windows-{n}": f"cp{n}" for n in range(1250, 1259)},
    **{
        name: name
        for name in (
            "koi8-r",
            "koi8-u",
            "shift_jis",
            "euc-jp",
            "iso-2022-jp",
            "euc-kr",
            "gbk",
            "gb18030",
            "big5",
        )
    },
    "macintosh": "mac-roman",
    "ibm866": "cp866",
}


def _charset(function: str, value: Any) -> str:
    name: str = need(function, "charset", value, str)
    codec = _CHARSETS.get(name.lower())
    if codec is None:
        raise value_error(f"{function}: charset {name!r} is not one of {', '.join(_CHARSETS)}")
    return codec


@register("text.decode", "data", "charset", charset="UTF-8")
def decode(data: Any, charset: Any) -> str:
    """The text of bytes; what the charset cannot decode becomes U+FFFD."""
    raw: bytes = need("text.decode", "data", data, bytes)
    return raw.decode(_charset("text.decode", charset), "replace")


@register("text.encode", "text", "charset", charset="UTF-8")
def encode(data: Any, charset: Any) -> bytes:
    """The bytes of a text. Raises ValueError for characters that the charset lacks."""
    text: str = need("text.encode", "text", data, str)
    try:
        return text.encode(_charset("text.encode", charset))
    except UnicodeError as exc:
        raise value_error(f"text.encode: {exc}") from None


@register("text.find_all", "source", "substr")
def find_all(source: Any, substr: Any) -> list[int]:
    """The indexes, in code points, of the matches that do not overlap, from the left."""
    text = need("text.find_all", "source", source, str)
    part = need("text.find_all", "substr", substr, str)
    return [match.start() for match in re.finditer(re.escape(part), text)]


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
    old: str = need("text.replace_all", "substr", substr, str)
    new: str = need("text.replace_all", "repl", repl, str)
    grown = len(text) + text.count(old) * (len(new) - len(old))
    if grown > limits.STRING_BYTES:
        raise _too_long("text.replace_all")
    return text.replace(old, new)


@register("text.replace_all_regex", "source", "regexp", "repl")
def replace_all_regex(source: Any, regexp: Any, repl: Any) -> str:
    """The longest of the leftmost matches replaced; ``repl`` is literal: no back references."""
    function = "text.replace_all_regex"
    text = need(function, "source", source, str)
    new: str = need(function, "repl", repl, str)
    pattern = _pattern(function, regexp, longest=True)
    size = len(text)

    def replacement(match: Any) -> str:
        nonlocal size
        size += len(new) - len(match[0])
        if size > limits.STRING_BYTES + len(text):  # what is still to be replaced may be shorter
            raise _too_long(function)
        return new

    replaced: str = pattern.sub(replacement, _whole(function, text))
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
    """Percent escapes as UTF-8 and pluses as spaces. Raises ValueError for a stray %."""
    text: str = need("text.url_decode", "source", source, str)
    stray = re.search(r"%(?![0-9a-fA-F]{2})", text)
    if stray is not None:
        raise value_error(
            f"text.url_decode: the % at {stray.start()} is not followed by two hexadecimal digits"
        )
    return urllib.parse.unquote_plus(text)


@register("text.url_encode", "source")
def url_encode(source: Any) -> str:
    """Encode all but letters, digits and ``-_.~``. Raises TypeError."""
    return _quote(need("text.url_encode", "source", source, str))


@register("text.url_encode_plus", "source")
def url_encode_plus(source: Any) -> str:
    """As text.url_encode, with ``+`` for a space. Raises TypeError."""
    return _quote(need("text.url_encode_plus", "source", source, str)).replace("%20", "+")


def _quote(text: str) -> str:
    """Percent escapes for all but letters, digits and ``.-_``, as the pages say: ~ as well."""
    return urllib.parse.quote(text, safe="", errors="replace").replace("~", "%7E")
