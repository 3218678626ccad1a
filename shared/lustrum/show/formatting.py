"""How amounts and moments are written for people: dollars, bytes, seconds, times in UTC. Pure."""

from __future__ import annotations

from datetime import UTC, datetime

_BYTES = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def dollars(amount: float) -> str:
    """Write US dollars: ``$1,234.50``."""
    return f"${amount:,.2f}"


def size(count: float) -> str:
    """Write bytes with a binary unit: ``1.5 GiB``."""
    unit = 0
    while abs(count) >= 1024 and unit < len(_BYTES) - 1:
        count, unit = count / 1024, unit + 1
    return f"{count:.0f} B" if unit == 0 else f"{count:.1f} {_BYTES[unit]}"


def duration(seconds: float) -> str:
    """Write seconds as people say them: ``40 ms``, ``4.2 s``, ``42 s``, ``5 min 03 s``,
    ``3 h 20 min``, ``2 d 4 h``.
    """
    if 0 < seconds < 0.9995:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 9.95:
        return f"{max(0.0, seconds):.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    if whole < 86400:
        return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
    return f"{whole // 86400} d {whole % 86400 // 3600} h"


def moment(at: float) -> str:
    """Write an epoch time: ``2026-09-17 14:03:09 UTC``."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def clock(at: float) -> str:
    """Write an epoch time as the time of day in UTC: ``14:03:09``."""
    return datetime.fromtimestamp(at, UTC).strftime("%H:%M:%S")
