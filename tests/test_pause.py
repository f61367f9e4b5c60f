"""PAU: a 429 pauses everybody, a shorter one never shortens, and nothing about it raises."""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from provider_concurrency import SlotState
from support import WALL, World


def test_pau_4_nothing_is_granted_while_paused_and_all_else_goes_on(make: Callable[..., World]) -> None:
    world = make(limits={"p": 2}, slot_timeout=3, watchdog_interval=1)
    held, stuck = world.hold(), world.hold()
    world.manager.report_rate_limit("p", 30)
    waiter = world.ask()
    held.release()
    assert world.take() is None
    world.pass_ms(4000)
    assert (held.state, stuck.reclaimed) == (SlotState.FREE, True)
    world.pass_ms(25_999)
    assert not waiter.done()
    status = world.status()
    assert status is not None
    assert (status.paused, status.paused_for, status.paused_until) == (True, 0.001, pytest.approx(WALL + 30))
    world.pass_ms(1)
    assert waiter.result().state is SlotState.HELD
    assert world.figures() == (1, 0, 0, 0)


def test_bug_58_a_later_shorter_report_never_shortens(make: Callable[..., World]) -> None:
    world = make(default_pause=1)
    manager = world.manager
    manager.report_rate_limit("p", 5)
    waiter = world.ask()
    world.pass_ms(100)
    manager.report_rate_limit("p", 1)
    manager.report_rate_limit("p")
    assert world.status().paused_for == 4.9  # type: ignore[union-attr]
    manager.report_rate_limit("p", 20)
    assert world.status().paused_for == 20  # type: ignore[union-attr]
    assert world.timers() == 1
    world.pass_ms(19_999)
    assert not waiter.done()
    world.pass_ms(1)
    assert waiter.done()


def test_pau_2_the_event_says_what_was_requested_and_what_was_applied(make_watched: Callable[..., World]) -> None:
    world = make_watched(default_pause=30, min_pause=1, max_pause=100)
    world.manager.set_cooldown("slow", 7)
    for provider, retry_after in [("p", 5), ("p", 2), ("p", None), ("p", 0), ("p", 1e6), ("slow", 3), ("q", math.inf)]:
        world.manager.report_rate_limit(provider, retry_after)
    assert [event.value for event in world.events if event.kind == "paused"] == [
        (5, 5 * 10**9),
        (2, 2 * 10**9),
        (None, 30 * 10**9),
        (0, 10**9),
        (1e6, 100 * 10**9),
        (3, 7 * 10**9),
        (None, 100 * 10**9),
    ]


@pytest.mark.parametrize(
    ("retry_after", "seconds"),
    [
        (None, 30.0), (math.nan, 30.0), (-1, 30.0), (-math.inf, 30.0), ("5", 30.0), (True, 30.0), (Decimal(5), 30.0),
        ([], 30.0), (0, 1.0), (0.0, 1.0), (1e-12, 1.0), (1, 1.0), (1.0000000001, 1.000000001), (5, 5.0), (45.5, 45.5),
        (21599, 21599.0), (21600, 21600.0), (21601, 21600.0), (10**400, 21600.0), (math.inf, 21600.0),
    ],
)  # fmt: skip
def test_bug_56_how_long_a_429_pauses(make: Callable[..., World], retry_after: object, seconds: float) -> None:
    """PAU-2."""
    world = make()
    world.manager.report_rate_limit("p", retry_after)  # type: ignore[arg-type]
    status = world.status()
    assert status is not None
    assert status.paused_for == seconds
    world.loop.advance_ns(round(seconds * 1e9) - 1)
    assert world.status() is not None
    world.loop.advance_ns(1)
    assert world.status() is None


@pytest.mark.parametrize(
    ("settings_", "seconds"),
    [
        ({"min_pause": 3}, 3.0),
        ({"min_pause": 0, "release_cooldown": 2}, 2.0),
        ({"min_pause": 0, "release_cooldown": 0}, 0.0),
        ({"min_pause": 1, "release_cooldown": 90, "max_pause": 60}, 60.0),
    ],
)
def test_pau_2_at_least_the_cooldown_at_most_max_pause(
    make: Callable[..., World], settings_: dict[str, float], seconds: float
) -> None:
    world = make(**settings_)
    world.manager.report_rate_limit("p", 0)
    status = world.status()
    assert (status.paused_for if status is not None else 0.0) == seconds


def test_pau_5_a_pause_of_nothing_ends_in_the_call(make_watched: Callable[..., World]) -> None:
    world = make_watched(min_pause=0, release_cooldown=0)
    world.manager.report_rate_limit("p", 0)
    assert world.told() == [("paused", None), ("resumed", None)]
    assert world.status() is None


def test_pau_3_a_pause_belongs_to_the_provider(make: Callable[..., World]) -> None:
    world = make()
    manager = world.manager
    manager.report_rate_limit("p", 5)
    assert manager.get_limit("p") is None
    waiter = world.ask()
    for change in (lambda: manager.set_limit("p", 3), lambda: manager.remove_limit("p")):
        change()
        assert world.status().paused  # type: ignore[union-attr]
        assert not waiter.done()
    assert manager.get_limits() == {}
    world.pass_ms(5000)
    assert waiter.done()


def test_pau_5_resume_ends_a_pause_and_admits_by_room(make: Callable[..., World]) -> None:
    world = make(limits={"p": 2})
    world.manager.report_rate_limit("p", 50)
    waiting = [world.ask(prompt_started_at=n) for n in range(4)]
    world.manager.resume("p")
    assert world.figures() == (2, 0, 0, 2)
    world.loop.settle()
    assert [task.done() for task in waiting] == [True, True, False, False]
    with world.unchanged():
        world.manager.resume("p")
        world.manager.resume("unknown")


def test_bug_59_a_429_from_the_first_granted_stops_the_rest(make: Callable[..., World]) -> None:
    world = make(limits={"p": 4}, release_cooldown=0)
    world.manager.report_rate_limit("p", 5)

    async def work(n: int) -> None:
        async with world.manager.slot("p", prompt_started_at=n):
            started.append(n)
            world.manager.report_rate_limit("p", 5)

    started: list[int] = []
    tasks = [world.loop.start(work(n)) for n in range(20)]
    world.pass_ms(5000)
    assert started == [0, 1, 2, 3]
    world.pass_ms(5000)
    assert started == [0, 1, 2, 3, 4, 5, 6, 7]
    world.loop.advance(100)
    assert started == list(range(20))
    assert all(task.done() for task in tasks)


def test_pau_5_the_deadline_decides_though_the_timer_is_late(make: Callable[..., World]) -> None:
    world = make()
    world.manager.report_rate_limit("p", 5)
    waiter = world.ask()
    world.loop.stall_ns(5 * 10**9 - 1)
    assert world.status().paused  # type: ignore[union-attr]
    world.loop.stall_ns(1)
    assert world.figures() == (1, 0, 0, 0)
    world.loop.settle()
    assert waiter.done()


@settings(max_examples=60, deadline=None, derandomize=True, database=None)
@given(st.lists(st.tuples(st.floats() | st.integers() | st.none(), st.integers(0, 40_000)), max_size=12))
def test_pau_1_paused_until_is_the_greatest_of_all(reports: list[tuple[float | None, int]]) -> None:
    with World(default_pause=2, min_pause=1, max_pause=60) as world:
        until = 0.0
        for retry_after, ms in reports:
            now = world.loop.time()
            asked = 2.0 if retry_after is None or not retry_after >= 0 else retry_after
            until = max(until, now + min(max(asked, 1.0), 60.0))
            world.manager.report_rate_limit("p", retry_after)
            status = world.status()
            assert status is not None
            assert status.paused_for == pytest.approx(until - now, abs=1e-6)
            world.pass_ms(ms)


class Broken(float):
    """A number that can't be compared."""

    def __lt__(self, other: object) -> bool:
        raise KeyError("x")

    __gt__ = __ge__ = __le__ = __lt__


class Unequal(int):
    """One that can't even be asked whether it is NaN."""

    def __ne__(self, other: object) -> bool:
        raise RuntimeError("no")

    __hash__ = int.__hash__


@pytest.mark.parametrize("value", [Broken(5), Unequal(5)], ids=["compared", "NaN"])
def test_pau_2_a_number_that_cant_be_read_is_the_default_pause(value: float, make: Callable[..., World]) -> None:
    world = make(default_pause=7)
    world.manager.report_rate_limit("p", value)
    assert world.status().paused_for == 7  # type: ignore[union-attr]
