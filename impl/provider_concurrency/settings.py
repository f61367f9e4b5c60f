"""A manager's configuration, judged once (SPEC.md, "Validation")."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

from provider_concurrency.validation import (
    Clock,
    check_callback,
    check_count,
    check_duration,
    check_limits,
    check_nested,
    hold_back,
)

if TYPE_CHECKING:
    from provider_concurrency.slot import Slot

Observer: TypeAlias = Callable[
    [str, int, int, "str | None", "int | None", "str | None", "float | None", int, int, object], object
]
"""Called as (event, op, t_ns, provider, request, conversation_id, prompt_started_at, in_flight, queued, value)."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What a manager was made with; durations in nanoseconds."""

    limits: dict[str, int]
    default_limit: int | None
    release_cooldown: int
    slot_timeout: int | None
    watchdog_interval: int
    default_pause: int
    min_pause: int
    max_pause: int
    max_queued: int | None
    nested: Literal["queue", "raise"]
    clock: Clock
    wall_clock: Callable[[], float]
    observer: Observer | None
    on_reclaim: Callable[[Slot], object] | None
    on_pause: Callable[[str, float], object] | None

    def describe(self) -> dict[str, object]:
        """The configuration as it stands in a trace's header; durations in nanoseconds."""
        return {
            "limits": dict(self.limits),
            "default_limit": self.default_limit,
            "release_cooldown": self.release_cooldown,
            "slot_timeout": self.slot_timeout,
            "watchdog_interval": self.watchdog_interval,
            "default_pause": self.default_pause,
            "min_pause": self.min_pause,
            "max_pause": self.max_pause,
            "max_queued": self.max_queued,
        }


def read_settings(
    *,
    limits: Mapping[str, int] | None,
    default_limit: int | None,
    release_cooldown: float,
    slot_timeout: float | None,
    watchdog_interval: float,
    default_pause: float,
    min_pause: float,
    max_pause: float,
    max_queued: int | None,
    nested: Literal["queue", "raise"],
    clock: Callable[[], int],
    wall_clock: Callable[[], float],
    observer: Observer | None,
    on_reclaim: Callable[[Slot], object] | None,
    on_pause: Callable[[str, float], object] | None,
) -> Settings:
    """Judges every argument of a manager's constructor; TypeError and ValueError name it and its value."""
    for name, needed in (("clock", clock), ("wall_clock", wall_clock)):
        if not callable(needed):
            raise TypeError(f"{name} must be callable, not {needed!r}")
    for name, callback in (("observer", observer), ("on_reclaim", on_reclaim), ("on_pause", on_pause)):
        check_callback(name, callback)
    settings = Settings(
        limits={} if limits is None else check_limits(limits),
        default_limit=None if default_limit is None else check_count("default_limit", default_limit),
        release_cooldown=check_duration("release_cooldown", release_cooldown),
        slot_timeout=None if slot_timeout is None else check_duration("slot_timeout", slot_timeout, positive=True),
        watchdog_interval=check_duration("watchdog_interval", watchdog_interval, positive=True),
        default_pause=check_duration("default_pause", default_pause, positive=True),
        min_pause=check_duration("min_pause", min_pause),
        max_pause=check_duration("max_pause", max_pause, positive=True),
        max_queued=None if max_queued is None else check_count("max_queued", max_queued),
        nested=check_nested(nested),
        clock=clock if clock is time.monotonic_ns else hold_back(clock),
        wall_clock=wall_clock,
        observer=observer,
        on_reclaim=on_reclaim,
        on_pause=on_pause,
    )
    if not settings.min_pause <= settings.default_pause <= settings.max_pause:
        raise ValueError(
            "min_pause <= default_pause <= max_pause must hold, "
            f"not min_pause={min_pause!r}, default_pause={default_pause!r}, max_pause={max_pause!r}"
        )
    return settings
