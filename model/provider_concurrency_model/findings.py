"""The words of a judged run: how its manager was configured, what an observer receives, what was found.

Everything is in nanoseconds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Final, TypeAlias, cast

from provider_concurrency_spec.vocabulary import SLOT_EVENT_KINDS, Json, MalformedError

PROVIDER_EVENT_KINDS: Final = ("paused", "resumed", "limit_set", "limit_removed", "cooldown_set")
EVENT_KINDS: Final = (*SLOT_EVENT_KINDS, *PROVIDER_EVENT_KINDS, "closed")
"""Every event that an observer receives."""

Moment: TypeAlias = tuple[str, int, int]
"""(event, op, t_ns): one line of a slot's history."""


def seconds_to_ns(seconds: float) -> int:
    """The ticks of a duration, rounded up from its shortest decimal form: the least that any careful reading gives."""
    return math.ceil(Decimal(repr(float(seconds))) * 1_000_000_000)


@dataclass(frozen=True, slots=True)
class MonitorConfig:
    """What a run was configured with, as far as its events are judged by it; the defaults are the manager's."""

    limits: Mapping[str, int] = field(default_factory=dict[str, int])
    default_limit: int | None = None
    release_cooldown_ns: int = 200_000_000
    slot_timeout_ns: int | None = 300_000_000_000
    watchdog_interval_ns: int = 30_000_000_000
    default_pause_ns: int = 30_000_000_000
    min_pause_ns: int = 1_000_000_000
    max_pause_ns: int = 21_600_000_000_000
    max_queued: int | None = None

    @classmethod
    def from_seconds(
        cls,
        *,
        limits: Mapping[str, int] | None = None,
        default_limit: int | None = None,
        release_cooldown: float = 0.2,
        slot_timeout: float | None = 300.0,
        watchdog_interval: float = 30.0,
        default_pause: float = 30.0,
        min_pause: float = 1.0,
        max_pause: float = 21_600.0,
        max_queued: int | None = None,
    ) -> MonitorConfig:
        """From the manager's own keywords."""
        return cls(
            limits=dict(limits or {}),
            default_limit=default_limit,
            release_cooldown_ns=seconds_to_ns(release_cooldown),
            slot_timeout_ns=None if slot_timeout is None else seconds_to_ns(slot_timeout),
            watchdog_interval_ns=seconds_to_ns(watchdog_interval),
            default_pause_ns=seconds_to_ns(default_pause),
            min_pause_ns=seconds_to_ns(min_pause),
            max_pause_ns=seconds_to_ns(max_pause),
            max_queued=max_queued,
        )

    @classmethod
    def from_header(cls, value: Json) -> MonitorConfig:
        """From the `config` object of a trace's header; raises MalformedError naming what is wrong."""
        items = _object(value, "config")
        limits = _object(items.get("limits"), "config: limits")
        return cls(
            limits={name: _whole(limits, name) for name in limits},
            default_limit=_whole_or_none(items, "default_limit"),
            release_cooldown_ns=_whole(items, "release_cooldown"),
            slot_timeout_ns=_whole_or_none(items, "slot_timeout"),
            watchdog_interval_ns=_whole(items, "watchdog_interval"),
            default_pause_ns=_whole(items, "default_pause"),
            min_pause_ns=_whole(items, "min_pause"),
            max_pause_ns=_whole(items, "max_pause"),
            max_queued=_whole_or_none(items, "max_queued"),
        )


def _object(value: Json, what: str) -> Mapping[str, Json]:
    if not isinstance(value, dict):
        raise MalformedError(f"{what} must be an object, not {value!r}")
    return cast("Mapping[str, Json]", value)


def _whole(items: Mapping[str, Json], name: str) -> int:
    value: Json = items.get(name)
    if type(value) is not int or value < 0:
        raise MalformedError(f"config: {name} must be a whole number >= 0, not {value!r}")
    return value


def _whole_or_none(items: Mapping[str, Json], name: str) -> int | None:
    if name not in items:
        raise MalformedError(f"config lacks {name!r}")
    return None if items[name] is None else _whole(items, name)


@dataclass(frozen=True, slots=True)
class ObservedEvent:
    """One event as the observer received it."""

    event: str
    op: int
    t_ns: int
    provider: str | None
    request: int | None
    conversation_id: str | None
    prompt_started_at: float | None
    in_flight: int
    queued: int
    value: object

    def __str__(self) -> str:
        """The event in a line."""
        subject = "" if self.request is None else f" request {self.request}"
        place = "" if self.provider is None else f" of {self.provider!r}"
        return f"{self.event}{subject}{place} at {self.t_ns} ns (op {self.op})"


@dataclass(frozen=True, slots=True)
class Violation:
    """A broken rule: at which event (`index` counts from 0), and what its slot had been through, this event included.

    What holds only at rest is judged after an operation's last event, and that event is named then.
    """

    rule: str
    message: str
    index: int
    event: ObservedEvent
    history: tuple[Moment, ...]

    def __str__(self) -> str:
        """The finding with the slot's history."""
        told = ", ".join(f"{event} at {t_ns} (op {op})" for event, op, t_ns in self.history)
        return f"{self.rule}: {self.message}; at event {self.index}: {self.event}" + (f"; history: {told}" * bool(told))
