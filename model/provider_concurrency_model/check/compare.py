"""What counts as the same reply (protocol.md, "Comparison"), and what differs when it isn't.

Per provider and instant the sequence of grants; each request's own sequence of events; errors by instant and index; the
rest as a multiset. Nothing is compared between providers. Status rows whole, their order aside; `unsettled` as a set;
`timers` against a bound only. Most replies are equal to the letter, so their text is compared first; only where it
differs are both sides brought to canonical form.
"""

from __future__ import annotations

import json
import marshal
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias, TypeVar

from provider_concurrency_model.check.untyped import is_array, is_object, is_texts
from provider_concurrency_spec.vocabulary import (
    Event,
    Json,
    MalformedError,
    Paused,
    Refused,
    Reply,
    Resumed,
    SlotEvent,
    SlotShown,
    StatusRow,
    event_from_json,
    event_to_json,
    reply_to_json,
    status_row_from_json,
    status_row_to_json,
)

Aspect: TypeAlias = Literal[
    "grants", "request", "pause", "error", "status", "unsettled", "timers", "reply", "invariant"
]
_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


@dataclass(frozen=True, slots=True)
class Difference:
    """One thing that isn't as expected. `expected` and `actual` are JSON values; None means nothing of the kind."""

    what: Aspect
    where: str
    """Whose: a provider, a request, an op's index."""
    at_ms: int | None
    expected: Json
    actual: Json
    rule: str | None = None
    """The rule that looks broken; a guess from the outside (`blame`)."""


class Expected:
    """What a reply must say. Members left None are not compared (scenario files say only what they are about)."""

    __slots__ = ("_bytes", "_canonical", "events", "status", "timers", "timers_max", "unsettled")

    def __init__(
        self,
        *,
        events: tuple[Event, ...] | None = None,
        status: tuple[StatusRow, ...] | None = None,
        unsettled: tuple[str, ...] | None = None,
        timers: int | None = None,
        timers_max: int | None = None,
    ) -> None:
        """Takes the parts to compare: `timers` is exact, `timers_max` a bound tighter than the protocol's own."""
        self.events = events
        self.status = status
        self.unsettled = unsettled
        self.timers = timers
        self.timers_max = timers_max
        self._canonical: tuple[_Events, dict[str, StatusRow]] | None = None
        complete = events is not None and status is not None and unsettled is not None
        self._bytes = _bytes_of(reply_to_json(Reply(events or (), status or (), unsettled or ()))) if complete else None

    @classmethod
    def of_reply(cls, reply: Reply) -> Expected:
        """The whole reply of the model; the model's timers are not the subject's."""
        return cls(events=reply.events, status=reply.status, unsettled=reply.unsettled)

    def is_met_to_the_letter(self, message: Mapping[str, Json]) -> bool:
        """A cheap sufficient test."""
        return self._bytes is not None and self._bytes == _bytes_of(message)

    def canonical(self) -> tuple[_Events, dict[str, StatusRow]]:
        """Both parts that need sorting out, made once."""
        if self._canonical is None:
            self._canonical = (_sort_out(self.events or ()), {row.provider: row for row in self.status or ()})
        return self._canonical


def compare(
    expected: Expected, message: Mapping[str, Json], *, max_timers: int, needs_timers: bool = False
) -> tuple[Difference, ...]:
    """Everything in the reply `message` that isn't as expected; empty for a reply that conforms."""
    found: list[Difference] = []
    timers: Json = message.get("timers")
    if timers is None:
        if needs_timers:
            found.append(Difference("timers", "alive", None, "a number", None))
    elif type(timers) is not int or not 0 <= timers <= max_timers:
        found.append(Difference("timers", "alive", None, f"at most {max_timers}", timers))
    elif expected.timers is not None and timers != expected.timers:
        found.append(Difference("timers", "alive", None, f"exactly {expected.timers}", timers))
    elif expected.timers_max is not None and timers > expected.timers_max:
        found.append(Difference("timers", "alive", None, f"at most {expected.timers_max}", timers))
    if expected.is_met_to_the_letter(message):
        return tuple(found)
    try:
        actual = _read_parts(message)
    except MalformedError as error:
        return (Difference("reply", "shape", None, "a reply of protocol 1", str(error)),)
    events, rows = expected.canonical()
    if expected.events is not None:
        found.extend(_compare_events(events, _sort_out(actual.events)))
    if expected.status is not None:
        found.extend(_compare_status(rows, actual.status))
    if expected.unsettled is not None and (
        set(expected.unsettled) != set(actual.unsettled) or len(set(actual.unsettled)) != len(actual.unsettled)
    ):
        found.append(Difference("unsettled", "requests", None, sorted(expected.unsettled), sorted(actual.unsettled)))
    return tuple(found)


def read_reply(message: Json) -> Reply | None:
    """The reply in words of the vocabulary; None when it is malformed (then `compare` says so) or missing."""
    try:
        return _read_parts(message) if is_object(message) else None
    except MalformedError:
        return None


# -- canonical forms -------------------------------------------------------------------------------------------------


class _Events:
    """A reply's events, sorted out as far as their order matters."""

    __slots__ = ("errors", "grants", "pauses", "requests")

    def __init__(self) -> None:
        self.grants: dict[tuple[str, int], list[str]] = {}
        self.requests: dict[str, list[SlotEvent | SlotShown]] = {}
        self.errors: dict[tuple[int, int], list[str]] = {}
        self.pauses: dict[tuple[str, int], Counter[str]] = {}


def _sort_out(events: Iterable[Event]) -> _Events:
    out = _Events()
    for event in events:
        match event:
            case SlotEvent():
                out.requests.setdefault(event.request, []).append(event)
                if event.event == "granted":
                    out.grants.setdefault((event.provider, event.at_ms), []).append(event.request)
            case SlotShown():
                out.requests.setdefault(event.request, []).append(event)
            case Refused():
                out.errors.setdefault((event.at_ms, event.index), []).append(event.kind)
            case Paused():
                # The text of `requested_ms`: 1 and True are equal in Python, on the wire they are not.
                told = f"paused requested {json.dumps(event.requested_ms)} applied {event.applied_ms}"
                out.pauses.setdefault((event.provider, event.at_ms), Counter())[told] += 1
            case Resumed():
                out.pauses.setdefault((event.provider, event.at_ms), Counter())["resumed"] += 1
    return out


def _bytes_of(message: Mapping[str, Json]) -> bytes | None:
    """What a reply says, as bytes: these keep 1, 1.0 and True apart, which `==` doesn't; None for foreign objects."""
    try:
        # Version 0 knows no references, so that equal values have equal bytes. It takes a third of the time of a text.
        return marshal.dumps((message.get("events"), message.get("status"), message.get("unsettled")), 0)
    except ValueError:
        return None


def _read_parts(message: Mapping[str, Json]) -> Reply:
    events, status, unsettled = message.get("events"), message.get("status"), message.get("unsettled")
    if not is_array(events):
        raise MalformedError(f"events must be an array, not {events!r}")
    if not is_array(status):
        raise MalformedError(f"status must be an array, not {status!r}")
    if not is_texts(unsettled):
        raise MalformedError(f"unsettled must be an array of request names, not {unsettled!r}")
    return Reply(
        tuple(event_from_json(event) for event in events),
        tuple(status_row_from_json(row) for row in status),
        tuple(unsettled),
    )


# -- differences -----------------------------------------------------------------------------------------------------


def _compare_events(expected: _Events, actual: _Events) -> list[Difference]:
    found: list[Difference] = []
    for request, mine, theirs in _unequal(expected.requests, actual.requests):
        at_ms = _first_instant(mine or [], theirs or [])
        found.append(Difference("request", request, at_ms, _jsons(mine), _jsons(theirs)))
    for (provider, at_ms), wanted, given in _unequal(expected.grants, actual.grants):
        found.append(Difference("grants", provider, at_ms, wanted, given))
    for (at_ms, index), refused, refused_too in _unequal(expected.errors, actual.errors):
        found.append(Difference("error", f"op {index}", at_ms, refused, refused_too))
    for (provider, at_ms), told, told_too in _unequal(expected.pauses, actual.pauses):
        found.append(Difference("pause", provider, at_ms, _texts(told), _texts(told_too)))
    return found


def _compare_status(expected: dict[str, StatusRow], actual: tuple[StatusRow, ...]) -> list[Difference]:
    found: list[Difference] = []
    rows = {row.provider: row for row in actual}
    if len(rows) != len(actual):
        twice = sorted(name for name, times in Counter(row.provider for row in actual).items() if times > 1)
        found.append(Difference("status", ", ".join(twice), None, "one row", "several rows"))
    for provider, wanted, given in _unequal(expected, rows):
        found.append(
            Difference(
                "status", provider, None, wanted and status_row_to_json(wanted), given and status_row_to_json(given)
            )
        )
    return found


def _unequal(
    first: Mapping[_Key, _Value], second: Mapping[_Key, _Value]
) -> Iterator[tuple[_Key, _Value | None, _Value | None]]:
    """The keys at which the two differ, in the order of the first, with both values."""
    if first == second:
        return
    for key in dict.fromkeys([*first, *second]):
        mine, theirs = first.get(key), second.get(key)
        if mine != theirs:
            yield key, mine, theirs


def _texts(told: Counter[str] | None) -> list[str] | None:
    return None if told is None else sorted(told.elements())


def _jsons(events: Iterable[Event] | None) -> list[Json] | None:
    return None if events is None else [event_to_json(event) for event in events]


def _first_instant(first: list[SlotEvent | SlotShown], second: list[SlotEvent | SlotShown]) -> int:
    for mine, theirs in zip(first, second, strict=False):
        if mine != theirs:
            return min(mine.at_ms, theirs.at_ms)
    longer = first if len(first) > len(second) else second
    return longer[min(len(first), len(second))].at_ms
