"""What of a log is new since it was looked at last. Pure."""

from __future__ import annotations

from collections.abc import Sequence

_ANCHOR = 20  # last lines said, by which the place is found again


def unseen(before: Sequence[str], now: Sequence[str]) -> list[str]:
    """Return the lines that follow those said before.

    A log is only added to, but of a long one only the end is seen, so that its beginning moves.
    When nothing said before is in it any more, all of it is new.
    """
    if not before:
        return list(now)
    if list(now[: len(before)]) == list(before):
        return list(now[len(before) :])
    # The last line said may have been half written.
    complete = before[:-1]
    if list(now[: len(complete)]) == list(complete):
        return list(now[len(complete) :])
    for length in range(min(_ANCHOR, len(complete)), 0, -1):
        anchor = list(complete[-length:])
        for end in range(len(now), length - 1, -1):
            if list(now[end - length : end]) == anchor:
                rest = list(now[end:])
                return rest[1:] if rest and rest[0] == before[-1] else rest
    return list(now)
