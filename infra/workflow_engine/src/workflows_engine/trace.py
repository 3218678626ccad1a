"""What an execution did, step by step, as rows: for people a table, for programs JSON."""

from __future__ import annotations

from typing import Any

from workflows_engine.execution import Execution
from workflows_engine.history import Entry
from workflows_engine.values import printable, to_json

Row = dict[str, Any]
_WIDTH = 60  # characters of a result or an error in the table


def rows(execution: Execution) -> list[Row]:
    """A row for each kept step entry, in the order in which the steps began.

    Times are seconds of the execution's clock since its start; ``place`` lists routines,
    iterations (``loop[2]``, from 0) and branches (``parallel[name]``), outermost first.
    """
    start = execution.start_time or 0.0
    entries = execution.history.entries if execution.history is not None else ()
    return [_row(entry, start) for entry in entries]


def _row(entry: Entry, start: float) -> Row:
    row: Row = {
        "id": entry.id,
        "step": entry.op.name,
        "routine": entry.op.routine,
        "line": entry.op.line,
        "place": entry.place or [entry.op.routine],
        "type": entry.op.kind.removeprefix("STEP_"),
        "begin": round(entry.created - start, 6),
        "seconds": round(entry.updated - entry.created, 6),
        "state": entry.state.removeprefix("STATE_"),
    }
    if entry.exception is not None:
        row["error"] = printable(entry.exception)
    elif entry.result is not None:
        row["result"] = printable(entry.result)
    return row


def table(found: list[Row]) -> str:
    """The rows as a table of plain text."""
    head = ("begin s", "took s", "place", "step", "type", "state", "result or error")
    lines = [head]
    for row in found:
        value = row.get("error", row.get("result"))
        lines.append(
            (
                f"{row['begin']:.3f}",
                f"{row['seconds']:.3f}",
                " > ".join(row["place"]),
                row["step"],
                row["type"].lower(),
                row["state"].lower(),
                "" if value is None else _short(value),
            )
        )
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    right = (0, 1)
    return "\n".join(
        "  ".join(
            text.rjust(width) if column in right else text.ljust(width)
            for column, (text, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )


def _short(value: Any) -> str:
    if isinstance(value, dict) and isinstance(value.get("message"), str) and "tags" in value:
        text = value["message"]
    else:
        text = value if isinstance(value, str) else to_json(value)
    text = " ".join(text.split())
    return text if len(text) <= _WIDTH else text[: _WIDTH - 3] + "..."
