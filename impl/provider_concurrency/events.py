"""Typed events for observers that prefer objects to positional arguments.

The manager calls its observer with plain values, since an object for each transition would cost more than the
transition. `typed(handler)` is an observer that makes a frozen Event of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias, cast

from provider_concurrency.settings import Observer

__all__ = ["Event", "EventKind", "tee", "typed"]

EventKind: TypeAlias = Literal[
    "granted", "queued", "timed_out", "cancelled", "rejected", "released", "reclaimed", "recycled",
    "paused", "resumed", "limit_set", "limit_removed", "cooldown_set", "closed",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Event:
    """One transition or configuration change, as the observer is told of it (CAL-2).

    `op`: number of the operation; the provider is at rest after an operation's last event. `t_ns`: nanoseconds since
    the manager was made. `request`: the arrival number; None for events that aren't a slot's. `in_flight` and
    `queued`: the provider's figures directly after this transition. `value`: of `reclaimed` the time of the last touch
    (ns since the manager was made); of `paused` (requested seconds or None, applied ns); of `limit_set` the limit; of
    `cooldown_set` ns or None; else None.
    """

    kind: EventKind
    op: int
    t_ns: int
    provider: str | None
    request: int | None
    conversation_id: str | None
    prompt_started_at: float | None
    in_flight: int
    queued: int
    value: object


def typed(handler: Callable[[Event], object]) -> Observer:
    """An observer that calls `handler` with an Event."""

    def observe(
        event: str,
        op: int,
        t_ns: int,
        provider: str | None,
        request: int | None,
        conversation_id: str | None,
        prompt_started_at: float | None,
        in_flight: int,
        queued: int,
        value: object,
    ) -> None:
        kind = cast(EventKind, event)
        handler(Event(kind, op, t_ns, provider, request, conversation_id, prompt_started_at, in_flight, queued, value))

    return observe


def tee(*observers: Observer) -> Observer:
    """An observer that calls several, in order; one that raises doesn't keep the event from the others (CAL-4)."""

    def observe(*event: object) -> None:
        failures: list[Exception] = []
        for observer in observers:
            try:
                observer(*event)  # type: ignore[arg-type] # the values go through as they came
            except Exception as error:  # noqa: BLE001 - raised below, together
                failures.append(error)
        if failures:
            raise failures[0] if len(failures) == 1 else ExceptionGroup("observers raised", failures)

    return observe
