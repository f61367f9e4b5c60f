"""Following a run along: what its steps say about requests and settings, for the invariants on whole runs.

Where a callback may have changed something at a moment that nobody can tell from outside, all possibilities are kept:
the invariants then judge only what is wrong under each of them.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from provider_concurrency_spec.invariants.kinds import Run, Step, flatten, whole
from provider_concurrency_spec.vocabulary import (
    Acquire,
    Raw,
    RemoveLimit,
    SetCooldown,
    SetLimit,
    SlotEvent,
    SlotEventKind,
    SlotStateName,
    TryAcquire,
)

NEXT: Final[dict[tuple[SlotStateName | None, SlotEventKind], SlotStateName]] = {
    (None, "granted"): "held",
    (None, "queued"): "queued",
    (None, "timed_out"): "timed_out",
    ("queued", "granted"): "held",
    ("queued", "cancelled"): "cancelled",
    ("queued", "timed_out"): "timed_out",
    ("queued", "rejected"): "rejected",
    ("held", "released"): "cooling",
    ("held", "reclaimed"): "reclaimed",
    ("held", "cancelled"): "cancelled",
    ("cooling", "recycled"): "free",
    ("reclaimed", "recycled"): "free",
}
"""The slot table of SPEC.md: state before (None: new) and event -> state after; no other pair is legal."""


@dataclass(frozen=True, slots=True)
class Ask:
    """A request as it was asked for; `order` is its arrival among the burst operations, None if a callback made it."""

    operation: Acquire | TryAcquire
    order: int | None

    @property
    def provider(self) -> str:
        """The provider it was asked of."""
        return self.operation.provider

    @property
    def has_timeout(self) -> bool:
        """Whether it may time out."""
        return isinstance(self.operation, Acquire) and self.operation.timeout_ms is not None

    @property
    def timeout_ms(self) -> int | None:
        """Its timeout if it has one in whole ms."""
        return whole(self.operation.timeout_ms) if isinstance(self.operation, Acquire) else None

    def is_before(self, other: Ask) -> bool:
        """Whether it is certainly ahead in the queue (ORD-1)."""
        mine, others = self.operation.prompt_started_at, other.operation.prompt_started_at
        if not isinstance(mine, int | float) or not isinstance(others, int | float):
            return False
        if mine != others:
            return mine < others
        return self.order is not None and other.order is not None and self.order < other.order


def asks_of(run: Run) -> dict[str, Ask]:
    """Every request of the run by its name."""
    asks: dict[str, Ask] = {}
    for step in run.steps:
        for operation in step.operations:
            if isinstance(operation, Acquire | TryAcquire):
                asks[operation.request] = Ask(operation, len(asks))
            for inner in flatten((operation,)):
                if inner is not operation and isinstance(inner, Acquire | TryAcquire):
                    asks[inner.request] = Ask(inner, None)
    return asks


def slot_events(run: Run) -> Iterator[tuple[Step, SlotEvent]]:
    """Every event of a slot with its step."""
    for step in run.steps:
        for event in step.events:
            if isinstance(event, SlotEvent):
                yield step, event


@dataclass(slots=True)
class Slots:
    """The requests followed along their events; memory of the ended ones is their name only."""

    live: dict[str, tuple[str, SlotStateName]] = field(default_factory=dict[str, tuple[str, SlotStateName]])
    ended: dict[str, SlotStateName] = field(default_factory=dict[str, SlotStateName])

    def move(self, event: SlotEvent) -> str | None:
        """Takes an event in; returns what is wrong with it."""
        provider, state = self.live.get(event.request, (event.provider, self.ended.get(event.request)))
        after = NEXT.get((state, event.event))
        if after is None:
            return f"{event} of a request that is {state or 'new'}"
        if after in ("queued", "held", "cooling", "reclaimed"):
            self.live[event.request] = provider, after
        else:
            self.live.pop(event.request, None)
            self.ended[event.request] = after
        return None

    def is_held(self, request: str) -> bool:
        """Whether the request holds a slot."""
        return request in self.live and self.live[request][1] == "held"

    def count(self) -> defaultdict[str, Counter[SlotStateName]]:
        """How many slots each provider has in each live state."""
        counts: defaultdict[str, Counter[SlotStateName]] = defaultdict(Counter)
        for provider, state in self.live.values():
            counts[provider][state] += 1
        return counts


NONE_ONLY: Final[frozenset[int | None]] = frozenset({None})


@dataclass(frozen=True, slots=True)
class Settings:
    """The providers' own limits and cooldowns as far as the run tells; None: none of its own; one value: certain."""

    limits: dict[str, frozenset[int | None]]
    """What may be the own limit after the step."""
    cooldowns: dict[str, frozenset[int | None]]
    """What may have been the own cooldown at some moment of the step."""
    cooldowns_after: dict[str, frozenset[int | None]]
    inexact: frozenset[str]
    """Providers that were given a cooldown that is no whole number of ms."""

    def cooldowns_ms(self, provider: str, manager_ms: Raw) -> frozenset[int] | None:
        """What may have been the cooldown in force in ms; None: can't be said exactly."""
        default = whole(manager_ms)
        if default is None or provider in self.inexact:
            return None
        return frozenset(default if own is None else own for own in self.cooldowns.get(provider, NONE_ONLY))


def settings_along(run: Run) -> Iterator[tuple[Step, Settings]]:
    """Each step with the settings that may be in force in it and after it."""
    limits: dict[str, frozenset[int | None]] = {}
    cooldowns: dict[str, frozenset[int | None]] = {}
    inexact: set[str] = set()
    for step in run.steps:
        during = dict(cooldowns)
        # A callback's operation may come before or after those of the burst, or not at all.
        for certain, operations in ((True, step.accepted), (False, step.hooked)):
            for operation in operations:
                match operation:
                    case SetLimit(provider, limit):
                        _put(limits, provider, whole(limit), certain)
                    case RemoveLimit(provider):
                        _put(limits, provider, None, certain)
                    case SetCooldown(provider, cooldown):
                        _put(cooldowns, provider, whole(cooldown), certain)
                        _put(during, provider, whole(cooldown), False)
                        if cooldown is not None and whole(cooldown) is None:
                            inexact.add(provider)
                    case _:
                        pass
        yield step, Settings(dict(limits), during, dict(cooldowns), frozenset(inexact))


def _put(table: dict[str, frozenset[int | None]], provider: str, value: int | None, certain: bool) -> None:
    table[provider] = frozenset({value}) if certain else table.get(provider, NONE_ONLY) | {value}
