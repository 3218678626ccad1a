"""Text from outside, made fit to be shown: no terminal escapes, no secrets. Pure."""

from __future__ import annotations

import re

NOT_SHOWN = "(not shown)"
_ESCAPES = re.compile(
    r"\x1b\][^\x07\x1b]{0,4096}(?:\x07|\x1b\\)"  # titles, links
    r"|(?:\x1b\[|\x9b)[0-?]{0,64}[ -/]{0,16}[@-~]"  # colours, cursor
    r"|\x1b[ -/]{0,4}[0-~]"
)
# C0 and C1 but tab and line ends; what turns the direction of writing.
_CONTROLS = re.compile(
    r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]"
)
_SECRET_NAME = re.compile(
    r"token|secret|passw|credential|authori[sz]ation|cookie|netrc|bearer"
    r"|(?:^|[^a-z])(?:api|access|private|ssh|auth|signing)[^a-z]?key(?:$|[^a-z])"
    r"|(?:^|\.|_)key$",
    re.IGNORECASE,
)
_SECRET_VALUE = re.compile(
    r"\bhf_[A-Za-z0-9]{16,}|\bwandb_v1_\w{8,}|\bya29\.|\bAIza[\w-]{20,}|\bgh[pousr]_\w{20,}"
    r"|\bsk-[\w-]{16,}|\bAKIA[A-Z0-9]{12,}|PRIVATE KEY|\b[Bb]earer\s+\S{8,}|\beyJ[\w-]{10,}\."
    r"|\b[0-9a-f]{40}\b"
)


def plain(text: str) -> str:
    """Return a text without terminal escapes and control characters: it could otherwise write
    anywhere on a reader's screen.
    """
    return _CONTROLS.sub("", _ESCAPES.sub("", text))


def looks_secret(field: str, value: str = "") -> bool:
    """Say whether a field is named like a secret, or a value looks like one."""
    return bool(_SECRET_NAME.search(field) or _SECRET_VALUE.search(value))


def shorten(text: str, limit: int = 500) -> str:
    """Return a text on one line, cut in the middle of what is longer than ``limit`` characters,
    without terminal escapes.
    """
    line = " ".join(plain(text).split())
    return line if len(line) <= limit else line[: limit // 2] + " ... " + line[-limit // 2 :]
