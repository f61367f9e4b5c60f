"""What the model knows: frozen records, and the questions that are answered from them by looking at everything.

Times are whole milliseconds since `new`. Nothing is counted on the side: in_flight, the queue and room are derived
from the slots each time somebody asks, so they can't disagree with them (ACC-1).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple, TypeAlias

from provider_concurrency_spec.vocabulary import Hook, SlotStateName, StatusRow

IN_FLIGHT: Final = frozenset({"held", "cooling", "reclaimed"})
"""The slot states that count against a limit."""

Nested: TypeAlias = Literal["queue", "raise"]
"""What becomes of an acquire that would wait for its own ancestors (NST-1)."""


@dataclass(frozen=True, slots=True)
class Settings:
    """A valid configuration, in whole milliseconds."""

    release_cooldown_ms: int
    slot_timeout_ms: int | None
    watchdog_interval_ms: int
    default_pause_ms: int
    min_pause_ms: int
    max_pause_ms: int
    max_queued: int | None
    default_limit: int | None
    nested: Nested | None = None
    """None: nobody asks for NST-1, and no row tells it."""


class Slot(NamedTuple):
    """One request and what became of it."""

    request: str
    provider: str
    prompt_started_at: int | float
    arrival: int
    """Its place among the equally old (ORD-1)."""
    state: SlotStateName
    deadline_ms: int | None = None
    """queued: the end of its patience, if any. cooling, reclaimed: the end of its cooldown. Otherwise None."""
    touched_ms: int = 0
    """held: the last sign of life (WAT-2)."""
    grant: int = 0
    """The number of its grant: the sweep's order."""
    is_delivered: bool = False
    """Whether its caller has received it; until then a cancel gives it back (CAN-2)."""
    was_reclaimed: bool = False
    """Stays true to the end (WAT-3)."""
    conversation: str | None = None
    """Whose it is (NST-1), and nothing else (ORD-2)."""
    ancestors: frozenset[str] = frozenset()
    """The conversations around its acquire that may hold what it waits for (NST-1)."""


class Provider(NamedTuple):
    """What is known about a provider apart from its slots."""

    name: str
    limit: int | None = None
    """Its own limit (LIM-1), None without one."""
    cooldown_ms: int | None = None
    """Its own cooldown (ACC-4), None without one."""
    paused_until_ms: int | None = None
    """None while it is open."""


@dataclass(frozen=True, slots=True)
class ArmedHook:
    """A hook that waits for its callback, and how often it will still run."""

    hook: Hook
    times: int


@dataclass(frozen=True, slots=True)
class State:
    """The whole manager."""

    settings: Settings
    now_ms: int = 0
    is_closed: bool = False
    arrivals: int = 0
    """How many requests have become slots; the next one's place is one more."""
    grants: int = 0
    """How many grants there have been."""
    providers: tuple[Provider, ...] = ()
    """Those with state (ACC-3), in order of creation."""
    slots: tuple[Slot, ...] = ()
    """The live ones, in order of arrival."""
    ended: tuple[Slot, ...] = ()
    """Those that reached their end, in that order (ACC-2)."""
    hooks: tuple[ArmedHook, ...] = ()


def queue_of(slots: Iterable[Slot], provider: str) -> list[Slot]:
    """Who waits at a provider, the head first (ORD-1)."""
    waiting = [slot for slot in slots if slot.state == "queued" and slot.provider == provider]
    waiting.sort(key=lambda slot: (slot.prompt_started_at, slot.arrival))
    return waiting


def count_in_flight(slots: Iterable[Slot], provider: str) -> int:
    """The slots that count against the provider's limit."""
    return len([slot for slot in slots if slot.provider == provider and slot.state in IN_FLIGHT])


def limit_in_force(settings: Settings, provider: Provider) -> int | None:
    """The provider's own limit, or the manager's default (LIM-4)."""
    return settings.default_limit if provider.limit is None else provider.limit


def cooldown_in_force(settings: Settings, provider: Provider) -> int:
    """The provider's own cooldown, or the manager's (ACC-4)."""
    return settings.release_cooldown_ms if provider.cooldown_ms is None else provider.cooldown_ms


def find_provider(state: State, name: str) -> Provider:
    """A provider's record; one without state has an empty one."""
    return next((provider for provider in state.providers if provider.name == name), Provider(name))


def find_slot(state: State, request: str) -> Slot | None:
    """A request's slot, live or ended; None if there never was one."""
    return next((slot for slot in (*state.slots, *state.ended) if slot.request == request), None)


def status_row(slots: Iterable[Slot], provider: Provider, now_ms: int, self_blocked: bool | None = None) -> StatusRow:
    """One provider's row in a reply; `self_blocked` is None where nobody asks for it."""
    states = [slot.state for slot in slots if slot.provider == provider.name]
    held, cooling, reclaimed = states.count("held"), states.count("cooling"), states.count("reclaimed")
    until_ms = provider.paused_until_ms
    return StatusRow(
        provider=provider.name,
        limit=provider.limit,
        in_flight=held + cooling + reclaimed,
        held=held,
        cooling=cooling,
        reclaimed=reclaimed,
        queued=states.count("queued"),
        paused=until_ms is not None,
        paused_for_ms=None if until_ms is None else until_ms - now_ms,
        self_blocked=self_blocked,
    )
