"""What a good value is: the rules' section "Validation", read once for configurations and once for operations.

A value stands here as it stood on the wire (`Raw`): the strings "NaN", "Infinity" and "-Infinity" are the floats that
JSON lacks, any other string, true, false and null are no numbers. Every reader returns the value in the model's units
or raises `InvalidConfigError`; the model turns that into a refused configuration or into a `Refused` event. The wire
doesn't tell a wrong type from a wrong value, so neither do the readers.

Durations: a finite real >= 0 is good, 1.5 included; it becomes whole milliseconds by rounding up, so that a positive
one is at least 1. (The kit sends no fractional duration: a subject with a finer tick may keep the fraction.) More than
1e9 seconds is too much, except for a 429's retry-after, which is never refused (PAU-2).
"""

from __future__ import annotations

import math
import sys
from typing import Final

from provider_concurrency_spec.vocabulary import Config, Raw

from .state import Nested, Settings

LONGEST_MS: Final = 10**12
"""1e9 seconds."""

_LARGEST_FLOAT: Final = int(sys.float_info.max)
_FLOATS: Final = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


class InvalidConfigError(ValueError):
    """A configuration (or an operation's argument) that must be refused; the message names it and its value."""


def read_number(value: object) -> int | float | None:
    """The real number (or NaN or an infinity) that a raw value stands for; None if it is no number (bool is none).

    An int beyond every float is as good as infinite.
    """
    if isinstance(value, str):
        return _FLOATS.get(value)
    if isinstance(value, int) and abs(value) > _LARGEST_FLOAT:
        return math.inf if value > 0 else -math.inf
    if isinstance(value, int | float) and not isinstance(value, bool):
        return value
    return None


def check_conversation(value: object) -> None:
    """conversation_id: a string or None."""
    if value is not None and not isinstance(value, str):
        raise InvalidConfigError(f"conversation_id must be a string or None, not {value!r}")


def read_real(name: str, value: object) -> int | float:
    """A finite real number: prompt_started_at, and the base of every duration."""
    number = read_number(value)
    if number is None or not math.isfinite(number):
        raise InvalidConfigError(f"{name} must be a finite number, not {value!r}")
    return number


def read_count(name: str, value: object) -> int:
    """An int >= 0: limit, default_limit, max_queued. 1.5, 2.0 and true are none."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise InvalidConfigError(f"{name} must be an integer >= 0, not {value!r}")
    return value


def read_duration(name: str, value: object) -> int:
    """A duration >= 0 in whole milliseconds, rounded up."""
    number = read_real(name, value)
    if number < 0 or number > LONGEST_MS:
        raise InvalidConfigError(f"{name} must be from 0 to {LONGEST_MS} ms, not {value!r}")
    return math.ceil(number)


def read_positive_duration(name: str, value: object) -> int:
    """A duration > 0 in whole milliseconds, rounded up."""
    duration = read_duration(name, value)
    if duration == 0:
        raise InvalidConfigError(f"{name} must be more than 0, not {value!r}")
    return duration


def read_nested(value: object) -> Nested | None:
    """One of two words, or nobody asks (NST-1)."""
    match value:
        case None:
            return None
        case "queue":
            return "queue"
        case "raise":
            return "raise"
        case _:
            raise InvalidConfigError(f"nested must be 'queue' or 'raise', not {value!r}")


def read_config(config: Config) -> Settings:
    """The whole configuration, or InvalidConfigError naming the first bad value."""
    settings = Settings(
        release_cooldown_ms=read_duration("release_cooldown", config.release_cooldown_ms),
        slot_timeout_ms=(
            None if config.slot_timeout_ms is None else read_positive_duration("slot_timeout", config.slot_timeout_ms)
        ),
        watchdog_interval_ms=read_positive_duration("watchdog_interval", config.watchdog_interval_ms),
        default_pause_ms=read_positive_duration("default_pause", config.default_pause_ms),
        min_pause_ms=read_duration("min_pause", config.min_pause_ms),
        max_pause_ms=read_positive_duration("max_pause", config.max_pause_ms),
        max_queued=None if config.max_queued is None else read_count("max_queued", config.max_queued),
        default_limit=None if config.default_limit is None else read_count("default_limit", config.default_limit),
        nested=read_nested(config.nested),
    )
    if not settings.min_pause_ms <= settings.default_pause_ms <= settings.max_pause_ms:
        raise InvalidConfigError(
            f"min_pause <= default_pause <= max_pause doesn't hold: "
            f"{config.min_pause_ms!r}, {config.default_pause_ms!r}, {config.max_pause_ms!r}"
        )
    return settings


def read_retry_after(value: Raw, settings: Settings, cooldown_ms: int) -> tuple[Raw, int]:
    """PAU-2: what a 429 requested, as its event tells it, and how long it pauses. Nothing is refused here."""
    number = read_number(value)
    requested = number if number is not None and math.isfinite(number) else None
    if number is None or math.isnan(number) or number < 0:
        duration: int = settings.default_pause_ms
    elif number > settings.max_pause_ms:  # Infinity too, which has no ceiling
        duration = settings.max_pause_ms
    else:
        duration = math.ceil(number)
    return requested, min(max(duration, settings.min_pause_ms, cooldown_ms), settings.max_pause_ms)
