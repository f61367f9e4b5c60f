"""Draws a trace as one HTML file that needs no network: a lane per slot, pauses, queue length; provider by provider.

A slot takes the first free lane when it is granted and keeps it until it is free, so the lanes are the places that a
limit gives; those who wait have lanes of their own below. Nothing is judged here: a trace with violations is drawn as
it says. What is too much for one page is left out, and the page says so: spans beyond `max_spans` (the drawing ends
there), waiting lanes and places beyond a number that can be told apart (they still count in the curves).
"""

from __future__ import annotations

import heapq
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Final

from provider_concurrency_model.check.trace import parse_line, read_event, read_header
from provider_concurrency_model.findings import MonitorConfig
from provider_concurrency_spec.vocabulary import Json

MAX_SPANS: Final = 20_000
MAX_LANES: Final = 200
MAX_WAITING_LANES: Final = 40
MAX_PROVIDERS: Final = 50

_STATES: Final[Mapping[str, int]] = {"queued": 0, "held": 1, "cooling": 2, "reclaimed": 3}  # as on the page
_ENTERS: Final[Mapping[str, str]] = {
    "queued": "queued",
    "granted": "held",
    "released": "cooling",
    "reclaimed": "reclaimed",
}
_LEAVES: Final = frozenset({"timed_out", "cancelled", "rejected", "recycled"})


@dataclass(frozen=True, slots=True)
class TimelineSummary:
    """What was drawn: `notes` say what was left out."""

    events: int
    spans: int
    providers: tuple[str, ...]
    notes: tuple[str, ...]


def _seconds(t_ns: int) -> str:
    return f"{t_ns / 1e9:.9f}".rstrip("0").rstrip(".") + " s"


class _Lanes:
    """Numbers that are given out, smallest first, and come back."""

    def __init__(self) -> None:
        self._free: list[int] = []
        self.made = 0

    def take(self) -> int:
        if self._free:
            return heapq.heappop(self._free)
        self.made += 1
        return self.made - 1

    def give_back(self, lane: int) -> None:
        heapq.heappush(self._free, lane)


@dataclass(slots=True)
class _Live:
    """A slot in the state that it entered last."""

    state: str
    since_ns: int
    lane: int
    conversation: str | None


class _Sheet:
    """One provider's drawing."""

    def __init__(self, name: str, limit: int | None) -> None:
        self.name = name
        self.live: dict[int, _Live] = {}
        self.places = _Lanes()
        self.waiting = _Lanes()
        self.spans: list[tuple[bool, int, str, int, int, int, str | None]] = []
        self.points: list[tuple[int, int, int]] = [(0, 0, 0)]
        self.limits: list[tuple[int, int | None]] = [(0, limit)]
        self.pauses: list[tuple[int, int]] = []
        self.paused_since: int | None = None

    def enter(self, request: int, state: str, t_ns: int, conversation: str | None) -> None:
        """A slot enters a state; its lane stays its own while it is in flight."""
        left = self.live.pop(request, None)
        lanes = self.waiting if state == "queued" else self.places
        if left is None:
            lane = lanes.take()
        else:
            lane = self._finish(request, left, t_ns)
            if left.state == "queued":
                self.waiting.give_back(lane)
                lane = lanes.take()
        self.live[request] = _Live(state, t_ns, lane, conversation)

    def leave(self, request: int, t_ns: int) -> None:
        """A slot ends."""
        left = self.live.pop(request, None)
        if left is not None:
            lane = self._finish(request, left, t_ns)
            (self.waiting if left.state == "queued" else self.places).give_back(lane)

    def _finish(self, request: int, left: _Live, t_ns: int) -> int:
        is_waiting = left.state == "queued"
        self.spans.append((is_waiting, left.lane, left.state, left.since_ns, t_ns, request, left.conversation))
        return left.lane

    def count(self, t_ns: int, in_flight: int, queued: int) -> None:
        """The curves' next step; of several at one instant the last counts."""
        if self.points[-1][0] == t_ns:
            self.points.pop()
        if not self.points or self.points[-1][1:] != (in_flight, queued):
            self.points.append((t_ns, in_flight, queued))

    def pause(self, t_ns: int) -> None:
        """A pause begins, or goes on."""
        if self.paused_since is None:
            self.paused_since = t_ns

    def resume(self, t_ns: int) -> None:
        """A pause ends."""
        if self.paused_since is not None:
            self.pauses.append((self.paused_since, t_ns))
            self.paused_since = None

    def conclude(self, t_ns: int) -> None:
        """Nothing more is read: what is still going on is drawn up to here."""
        for request, left in self.live.items():
            self._finish(request, left, t_ns)
        self.resume(t_ns)

    def to_json(self, conversations: dict[str, int]) -> dict[str, Json]:
        """The provider as the page reads it; `conversations` numbers their names."""
        places, waiting = min(self.places.made, MAX_LANES), min(self.waiting.made, MAX_WAITING_LANES)
        spans: list[Json] = []
        for is_waiting, lane, state, start_ns, end_ns, request, conversation in self.spans:
            if lane < (waiting if is_waiting else places):
                row = lane + places if is_waiting else lane
                whose = None if conversation is None else conversations.setdefault(conversation, len(conversations))
                spans.append([row, _STATES[state], start_ns, end_ns, request, whose])
        left_out = [
            f"{made - drawn} {what} beyond the first {drawn} are only in the curves"
            for made, drawn, what in (
                (self.places.made, places, "places"),
                (self.waiting.made, waiting, "waiting lanes"),
            )
            if made > drawn
        ]
        peaks = [max(point[index] for point in self.points) for index in (1, 2)]
        return {
            "name": self.name,
            "lanes": places,
            "waiting_lanes": waiting,
            "spans": spans,
            "points": self.points,
            "limits": self.limits,
            "pauses": self.pauses,
            "peaks": [*peaks, *(limit for _, limit in self.limits if limit is not None and limit <= 4 * max(peaks))],
            "note": "; ".join(left_out),
        }


class _Drawing:
    """A pass over a trace's events."""

    def __init__(self, config: MonitorConfig, max_spans: int) -> None:
        self.config = config
        self.max_spans = max_spans
        self.sheets: dict[str, _Sheet] = {}
        self.left_out: set[str] = set()
        self.events = 0
        self.spans = 0
        self.end_ns = 0
        self.closed_ns: int | None = None
        self.notes: list[str] = []

    def read(self, lines: Iterable[bytes | str]) -> None:
        """Takes in events until the end, the cap, or a line that isn't one."""
        for number, line in enumerate(lines, 2):
            try:
                row = parse_line(line)
                event, _, t_ns, provider, request, conversation, _, in_flight, queued, value = read_event(row)
            except (ValueError, RecursionError) as broken:
                self.notes.append(f"drawn up to line {number - 1}; line {number} can't be read: {broken}")
                break
            if self.spans >= self.max_spans:
                self.notes.append(
                    f"drawn up to line {number - 1}, {_seconds(self.end_ns)}: {self.spans} spans are the cap"
                )
                break
            self.events += 1
            self.end_ns = max(self.end_ns, t_ns)
            if provider is None:
                self._close(t_ns)
                continue
            sheet = self._sheet(provider)
            if sheet is None:
                continue
            sheet.count(t_ns, in_flight, queued)
            if request is not None and event in _ENTERS:
                sheet.enter(request, _ENTERS[event], t_ns, conversation)
                self.spans += 1
            elif request is not None and event in _LEAVES:
                sheet.leave(request, t_ns)
            elif event == "paused":
                sheet.pause(t_ns)
            elif event == "resumed":
                sheet.resume(t_ns)
            elif event in ("limit_set", "limit_removed"):
                limit = value if isinstance(value, int) else self.config.default_limit
                sheet.limits.append((t_ns, limit))
        for sheet in self.sheets.values():
            sheet.conclude(self.end_ns)
        if self.left_out:
            self.notes.append(f"{len(self.left_out)} providers beyond the first {MAX_PROVIDERS} aren't drawn")

    def _close(self, t_ns: int) -> None:
        self.closed_ns = t_ns
        for sheet in self.sheets.values():
            sheet.resume(t_ns)

    def _sheet(self, provider: str) -> _Sheet | None:
        sheet = self.sheets.get(provider)
        if sheet is None and provider not in self.left_out:
            if len(self.sheets) >= MAX_PROVIDERS:
                self.left_out.add(provider)
                return None
            limit = self.config.limits.get(provider, self.config.default_limit)
            sheet = self.sheets[provider] = _Sheet(provider, limit)
        return sheet

    def to_json(self, wall: str) -> dict[str, Json]:
        """Everything as the page reads it."""
        conversations: dict[str, int] = {}
        providers = [sheet.to_json(conversations) for sheet in self.sheets.values()]
        return {
            "summary": f"{self.events} events in {_seconds(self.end_ns)}; recorded from {wall}",
            "notes": self.notes,
            "end_ns": self.end_ns,
            "closed_ns": self.closed_ns,
            "providers": providers,
            "conversations": list(conversations),
        }


def write_timeline(lines: Iterable[bytes | str], path: Path | str, *, max_spans: int = MAX_SPANS) -> TimelineSummary:
    """Writes the page of a trace; raises MalformedError or ValueError when its header can't be read."""
    source = iter(lines)
    header = parse_line(next(source, ""))
    drawing = _Drawing(read_header(header), max_spans)
    drawing.read(source)
    # Within a script element only "<" could end it, or begin a comment.
    data = json.dumps(drawing.to_json(str(header.get("wall", "?"))), separators=(",", ":")).replace("<", "\\u003c")
    page = files("provider_concurrency_model.check").joinpath("timeline_page.html").read_text(encoding="utf-8")
    Path(path).write_text(page.replace("@DATA@", data, 1), encoding="utf-8")
    return TimelineSummary(drawing.events, drawing.spans, tuple(drawing.sheets), tuple(drawing.notes))
