"""Do something once, however often it is asked for: a notification, a dead letter, a start."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from lustrum.wiring.services import Services

MARKS = "marks"  # the ledger's shelf of what was done


def once(
    services: Services,
    mark: str,
    action: Callable[[], Any],
    *,
    shelf: str = MARKS,
    record: Mapping[str, Any] | None = None,
) -> bool:
    """Do ``action`` if nobody did under this mark; say whether it was done now.

    The mark is set first, so that of two deliveries at once only one acts, and taken back when
    the action fails, so that the next delivery repeats it. (A process that dies between the two
    leaves it undone: what must not be lost is never guarded by this alone.)
    """
    if not services.ledger.append_event(shelf, mark, record or {"mark": mark}):
        return False
    try:
        action()
    except BaseException:
        services.ledger.forget_event(shelf, mark)
        raise
    return True
