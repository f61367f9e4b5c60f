"""Arguments are judged here, at the edge, before anything changes.

Wrong type: TypeError; wrong value: ValueError; both name the argument and the value. bool is no number. Seconds
become whole nanoseconds by rounding up, and a positive duration is at least one (SPEC.md, "Validation").
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Final, Literal, cast

MAX_SECONDS: Final = 1e9
"""The longest duration that is accepted; about 31 years."""


def to_ns(seconds: float) -> int:
    """Seconds as whole nanoseconds, rounded up.

    What lies within two units of the float's own last place above a whole number is that number: 1.8 s is written
    with an error that, taken literally, would round up to 1 800 000 001 ns.
    """
    if isinstance(seconds, int):
        return seconds * 1_000_000_000
    scaled = seconds * 1e9
    whole = round(scaled)
    return whole if scaled - whole <= 2 * math.ulp(scaled) else whole + 1


def check_number(name: str, value: object) -> float:
    """A real number that is not NaN and not infinite."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{name} must be a number, not {value!r}")
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{name} must be finite, not {value!r}")
    return value


def check_duration(name: str, value: object, *, positive: bool = False) -> int:
    """A duration in seconds, as nanoseconds: >= 0, or > 0 where `positive`; at most MAX_SECONDS."""
    seconds = check_number(name, value)
    if seconds < 0 or (positive and seconds == 0):
        raise ValueError(f"{name} must be {'> 0' if positive else '>= 0'} seconds, not {value!r}")
    if seconds > MAX_SECONDS:
        raise ValueError(f"{name} must be at most {MAX_SECONDS:.0f} seconds, not {value!r}")
    return to_ns(seconds)


def check_count(name: str, value: object) -> int:
    """A whole number >= 0."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} must be an int, not {value!r}")
    if value < 0:
        raise ValueError(f"{name} must be >= 0, not {value!r}")
    return value


def check_limits(value: object) -> dict[str, int]:
    """A mapping from provider to limit."""
    if not isinstance(value, Mapping):
        raise TypeError(f"limits must be a mapping from provider to limit, not {value!r}")
    items = cast("Mapping[object, object]", value).items()
    return {check_provider(provider): check_count(f"limits[{provider!r}]", limit) for provider, limit in items}


def check_provider(value: object) -> str:
    """A provider's name: any string, the empty one included."""
    if not isinstance(value, str):
        raise TypeError(f"provider must be a str, not {value!r}")
    return value


def check_conversation(value: object) -> str | None:
    """A conversation's name, or nothing."""
    if value is not None and not isinstance(value, str):
        raise TypeError(f"conversation_id must be a str or None, not {value!r}")
    return value


def check_flag(name: str, value: object) -> bool:
    """True or False, no stand-in for either."""
    if not isinstance(value, bool):
        raise TypeError(f"{name} must be a bool, not {value!r}")
    return value


def check_callback(name: str, value: object) -> None:
    """Something that can be called, or nothing."""
    if value is not None and not callable(value):
        raise TypeError(f"{name} must be callable or None, not {value!r}")


_NESTED: Final[Mapping[str, Literal["queue", "raise"]]] = {"queue": "queue", "raise": "raise"}


def check_nested(value: object) -> Literal["queue", "raise"]:
    """What becomes of a request that could only wait for its own ancestors (NST-1)."""
    if not isinstance(value, str):
        raise TypeError(f"nested must be 'queue' or 'raise', not {value!r}")
    if (choice := _NESTED.get(value)) is not None:
        return choice
    raise ValueError(f"nested must be 'queue' or 'raise', not {value!r}")


def read_retry_after(value: object, cap_ns: int) -> tuple[float | None, int | None]:
    """What a 429 asked for, as (the number to report, nanoseconds or None for "use the default"); PAU-2.

    Never raises: absent, NaN, negative, or no real number means the default, and so does a subclass's number that
    can't be read. At most `cap_ns`, so that infinity means the longest pause.
    """
    try:
        if isinstance(value, bool) or not isinstance(value, int | float) or value != value:
            return None, None
        requested = None if value in (math.inf, -math.inf) else value
        if value < 0:
            return requested, None
        return requested, cap_ns if value >= cap_ns / 1e9 else to_ns(value)
    except Exception:  # noqa: BLE001 - a foreign class's arithmetic; a 429 must not be lost for it
        return None, None


Clock = Callable[[], int]


def hold_back(clock: Clock) -> Clock:
    """An injected clock that goes back is held at the last value that it gave (TIM-1)."""
    last = clock()

    def read() -> int:
        nonlocal last
        now = clock()
        if now > last:
            last = now
        return last

    return read
