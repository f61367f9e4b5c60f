"""Validation: judged at the edge, before any change; wrong type TypeError, wrong value ValueError, both say what."""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from provider_concurrency import ConcurrencyManager
from provider_concurrency.validation import MAX_SECONDS, check_duration, to_ns
from support import World

NAN, INF = math.nan, math.inf
NO_NUMBER: list[Any] = [True, False, "3", b"3", [], (), {}, 1j, Decimal(1), Fraction(1), object()]

COUNTS_BAD: list[Any] = [-1, -(2**70)]
COUNTS_WRONG: list[Any] = [1.0, 1.5, NAN, INF, *NO_NUMBER]
SECONDS_BAD: list[Any] = [-1, -1e-9, NAN, INF, -INF, 1e9 + 1, 10**10, 2**70]


def cases(good: list[Any], bad: list[Any], wrong: list[Any]) -> list[tuple[Any, type[Exception] | None]]:
    return [*((v, None) for v in good), *((v, ValueError) for v in bad), *((v, TypeError) for v in wrong)]


CONSTRUCTOR: dict[str, list[tuple[Any, type[Exception] | None]]] = {
    "default_limit": cases([None, 0, 1, 2**70], COUNTS_BAD, COUNTS_WRONG),
    "max_queued": cases([None, 0, 1, 2**70], COUNTS_BAD, COUNTS_WRONG),
    "release_cooldown": cases([0, 0.0, 1, 1e9, 1e-12], SECONDS_BAD, [None, *NO_NUMBER]),
    "slot_timeout": cases([None, 1, 1e-12, 1e9], [0, 0.0, *SECONDS_BAD], NO_NUMBER),
    "watchdog_interval": cases([1, 1e-12, 1e9], [0, 0.0, *SECONDS_BAD], [None, *NO_NUMBER]),
    "default_pause": cases([1, 1.0, 21600], [0, 0.5, 21601, *SECONDS_BAD], [None, *NO_NUMBER]),
    "min_pause": cases([0, 0.0, 30], [31, *SECONDS_BAD], [None, *NO_NUMBER]),
    "max_pause": cases([30, 1e9], [0, 29, *SECONDS_BAD], [None, *NO_NUMBER]),
    "limits": cases([None, {}, {"": 0}], [{"p": -1}], [[("p", 1)], 5, {7: 1}, {"p": 1.0}, {"p": True}, {"p": None}]),
    "clock": cases([], [], [None, 5, "now"]),
    "wall_clock": cases([], [], [None, 5, "now"]),
    "observer": cases([None, print], [], [5, "p"]),
    "on_reclaim": cases([None, print], [], [5, "p"]),
    "on_pause": cases([None, print], [], [5, "p"]),
}


@pytest.mark.parametrize("name", CONSTRUCTOR)
def test_bug_43_the_constructor_judges_every_argument(name: str) -> None:
    for value, error in CONSTRUCTOR[name]:
        if error is None:
            ConcurrencyManager(**{name: value})
            continue
        with pytest.raises(error) as caught:
            ConcurrencyManager(**{name: value})
        assert caught.type is error, value
        assert name in str(caught.value) or value == {7: 1}  # there it is the provider that is named
        shown = next(iter(value.values())) if isinstance(value, dict) and "p" in value else value
        assert repr(7 if value == {7: 1} else shown) in str(caught.value)


CALLS: dict[str, tuple[Callable[[ConcurrencyManager, Any], object], list[tuple[Any, type[Exception] | None]]]] = {
    "limit": (lambda m, v: m.set_limit("p", v), cases([], COUNTS_BAD, [None, *COUNTS_WRONG])),
    "seconds": (lambda m, v: m.set_cooldown("p", v), cases([], SECONDS_BAD, NO_NUMBER)),
    "prompt_started_at": (lambda m, v: m.try_acquire("p", prompt_started_at=v), cases([], [NAN, INF, -INF], NO_NUMBER)),
    "conversation_id": (lambda m, v: m.try_acquire("p", conversation_id=v), cases([], [], [5, b"c", True, ["c"]])),
}
BAD_NAMES: list[Any] = [None, 5, b"p", True, ["p"], object()]
for call in ("set_limit", "remove_limit", "set_cooldown", "resume", "report_rate_limit", "try_acquire"):
    extra = {"set_limit": (1,), "set_cooldown": (1,)}.get(call, ())
    CALLS[f"provider of {call}"] = (
        lambda m, v, call=call, extra=extra: getattr(m, call)(v, *extra),  # type: ignore[misc]
        cases([], [], BAD_NAMES),
    )
for call in ("get_limit", "get_cooldown", "get_status", "get_slots"):
    CALLS[f"provider of {call}"] = (lambda m, v, call=call: getattr(m, call)(v), cases([], [], BAD_NAMES))  # type: ignore[misc]


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("has_room", [True, False])
def test_bug_43_a_call_judges_its_arguments_and_changes_nothing(
    make: Callable[..., World], name: str, has_room: bool
) -> None:
    world = make(limits={"p": 3 if has_room else 1})
    world.hold()
    call, table = CALLS[name]
    for value, error in table:
        assert error is not None
        with world.loop.running(), world.unchanged(), pytest.raises(error) as caught:
            call(world.manager, value)
        assert caught.type is error, value
        assert str(caught.value).startswith(name.split(" ")[0] + " must be")
        assert repr(value) in str(caught.value)


@pytest.mark.parametrize("has_room", [True, False])
@pytest.mark.parametrize(
    ("name", "table"),
    [
        ("timeout", cases([], SECONDS_BAD, NO_NUMBER)),
        ("prompt_started_at", cases([], [NAN, INF, -INF], NO_NUMBER)),
        ("conversation_id", cases([], [], [5, b"c", True, ["c"]])),
        ("provider", cases([], [], BAD_NAMES)),
    ],
)
def test_bug_43_acquire_judges_its_arguments_and_changes_nothing(
    make: Callable[..., World], name: str, table: list[tuple[Any, type[Exception]]], has_room: bool
) -> None:
    world = make(limits={"p": 3 if has_room else 1})
    world.hold()
    for value, error in table:
        with world.unchanged():
            caught = world.ask(**{name: value}).exception()
        assert type(caught) is error, value
        assert str(caught).startswith(f"{name} must be")
        assert repr(value) in str(caught)


def test_on_queued_must_be_callable_where_it_may_be_called(make: Callable[..., World]) -> None:
    world = make(limits={"p": 0})
    with world.unchanged():
        assert str(world.ask(on_queued=5).exception()) == "on_queued must be callable or None, not 5"


@pytest.mark.parametrize("value", [0, 1, 5.0, 0.5, -3, 2**70, 10**400, -0.0])
def test_prompt_times_of_every_finite_kind_are_taken(make: Callable[..., World], value: float) -> None:
    world = make()
    world.hold().release()
    assert world.hold(prompt_started_at=value, conversation_id="", timeout=1).state.value == "held"


@pytest.mark.parametrize("value", [NAN, "x", None, True, [], -1, Decimal(3), 10**400, -(10**400)])
def test_report_rate_limit_takes_anything(make: Callable[..., World], value: Any) -> None:
    """PAU-2: never an exception in a 429 path."""
    world = make()
    world.manager.report_rate_limit("p", value)
    assert world.status() is not None


def test_wrong_keywords_are_a_type_error(make: Callable[..., World]) -> None:
    world = make()
    with world.unchanged():
        with pytest.raises(TypeError):
            world.manager.acquire("p", None)  # type: ignore[misc]
        with pytest.raises(TypeError):
            ConcurrencyManager({"p": 1})  # type: ignore[misc]


# -- seconds become ticks ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("seconds", "ns"),
    [
        (0, 0), (0.0, 0), (1, 10**9), (1.8, 1_800_000_000), (0.2, 200_000_000), (0.1 + 0.2, 300_000_000),
        (1e-12, 1), (5e-324, 1), (1e-9, 1), (1.5e-9, 2), (1e9, 10**18), (10**9, 10**18), (0.001, 1_000_000),
        (2.675, 2_675_000_000), (1 / 3, 333_333_334),
    ],
)  # fmt: skip
def test_seconds_are_rounded_up_to_whole_ticks(seconds: float, ns: int) -> None:
    assert check_duration("x", seconds) == to_ns(seconds) == ns


@settings(max_examples=200, deadline=None, derandomize=True, database=None)
@given(st.floats(min_value=0, max_value=MAX_SECONDS))
def test_a_positive_duration_is_at_least_one_tick_and_never_shorter(seconds: float) -> None:
    ns = to_ns(seconds)
    assert (ns >= 1) == (seconds > 0)
    assert ns - seconds * 1e9 <= 1
    assert ns - seconds * 1e9 >= -2 * math.ulp(seconds * 1e9)


@settings(max_examples=200, deadline=None, derandomize=True, database=None)
@given(st.integers(0, 10**9))
def test_whole_milliseconds_survive_the_way_through_seconds(ms: int) -> None:
    """Up to eleven days; further out a float has no room for all nanoseconds."""
    assert to_ns(ms / 1000) == ms * 1_000_000
