"""The table for people, and the same as JSON."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import sys
from collections.abc import Iterable, Sequence
from typing import Any, Final

from .measure import Case, Quartiles
from .rows import Result

FORMAT: Final = 1
"""Of the JSON; counts up when a field changes its meaning."""

_HEADINGS: Final = ("", "workload", "ours", "peer", "", "figure", "quartiles", "goal", "done at", "", "what counts")
_PEERS: Final = ("anyio", "aiolimiter", "uvloop", "transitions")


def describe_environment() -> dict[str, Any]:
    """What the figures depend on; nothing that names the machine."""
    versions: dict[str, str | None] = {}
    for name in _PEERS:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            versions[name] = None
    return {
        "python": platform.python_version(),
        "implementation": platform.python_implementation(),
        "system": sys.platform,
        "machine": platform.machine(),
        "processors": os.cpu_count(),
        "peers": versions,
    }


def to_json(results: Iterable[Result], *, quick: bool, seconds: float) -> dict[str, Any]:
    """Everything that was measured."""
    return {
        "format": FORMAT,
        "quick": quick,
        "seconds": round(seconds, 1),
        "environment": describe_environment(),
        "rows": [_row_to_json(result) for result in results],
    }


def _row_to_json(result: Result) -> dict[str, Any]:
    row = result.row
    return {
        "id": row.id,
        "workload": row.what,
        "ours": _cost_to_json(row.ours, row.unit, result.ours),
        "peer": None if row.peer is None else _cost_to_json(row.peer, row.unit, result.peer),
        "figure": {"name": row.figure.name} | _quartiles_to_json(result.figure),
        "is_less_better": row.figure.is_less_better,
        "goal": row.goal,
        "done_at": row.done_at,
        "mark": result.mark,
        "clock": row.clock,
        "rounds": result.rounds,
        "missing": list(result.missing),
        "note": row.note,
    }


def _cost_to_json(case: Case, unit: str, cost: Quartiles | None) -> dict[str, str | float | None]:
    return {"name": case.name, "unit": unit} | _quartiles_to_json(cost)


def _quartiles_to_json(quartiles: Quartiles | None) -> dict[str, float | None]:
    if quartiles is None:
        return {"low": None, "median": None, "high": None}
    return {"low": quartiles.low, "median": quartiles.median, "high": quartiles.high}


def write_table(results: Sequence[Result]) -> str:
    """A table that reads in a terminal and as Markdown, its notes below."""
    notes = list(dict.fromkeys(result.row.note for result in results if result.row.note))
    rows = [_HEADINGS, *[_cells(result, notes) for result in results]]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEADINGS))]
    padded = [[cell.ljust(width) for cell, width in zip(row, widths, strict=True)] for row in rows]
    lines = [f"| {' | '.join(cells)} |" for cells in padded]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    footnotes = [f"[{number}] {note}" for number, note in enumerate(notes, 1)]
    return "\n".join([*lines, "", *footnotes])


def _cells(result: Result, notes: Sequence[str]) -> tuple[str, ...]:
    row = result.row
    sign = "<=" if row.figure.is_less_better else ">="
    what = f"{row.what} [{notes.index(row.note) + 1}]" if row.note else row.what
    peer_name = row.peer.name if row.peer is not None else ""
    goal = "" if row.goal is None else f"{sign} {_number(row.goal)}"
    done_at = "" if row.done_at is None else _number(row.done_at)
    if result.figure is None or result.ours is None:
        return (row.id, what, f"no {', '.join(result.missing)}", "", peer_name, "", "", goal, done_at, "", row.clock)
    return (
        row.id,
        what,
        _amount(result.ours, row.unit),
        _amount(result.peer, row.unit),
        peer_name,
        f"{_number(result.figure.median)}{row.figure.unit}",
        f"{_number(result.figure.low)} .. {_number(result.figure.high)}" if result.rounds > 1 else "",
        goal,
        done_at,
        result.mark,
        row.clock,
    )


def _amount(quartiles: Quartiles | None, unit: str) -> str:
    return "" if quartiles is None else f"{_number(quartiles.median)} {unit}".rstrip()


def _number(value: float) -> str:
    """Three digits, or all of a whole number's."""
    return f"{value:.0f}" if abs(value) >= 100 or value == int(value) else f"{value:.3g}"


def summarise(results: Iterable[Result]) -> str:
    """One line: how many demands are met."""
    marks = [result.mark for result in results if result.mark]
    return f"{marks.count('goal')} at the goal, {marks.count('done')} done, {marks.count('MISS')} missed"
