"""TIM: integer monotonic time; deadlines decide, timers only wake."""

from __future__ import annotations

import asyncio
import math
import time
import warnings
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from provider_concurrency import ConcurrencyManager, SlotState
from provider_concurrency.testing import VirtualLoop
from support import MS, WALL, World

DAY = 86_400.0
LONGEST = DAY
"""The longest delay that the loop is asked for."""


@pytest.mark.parametrize("jump", [DAY, -DAY])
def test_bug_44_the_wall_clock_decides_nothing(make: Callable[..., World], jump: float) -> None:
    """TIM-1."""
    world = make(limits={"p": 1}, slot_timeout=10, watchdog_interval=1)
    held = world.hold()
    world.manager.report_rate_limit("q", 5)
    released = world.hold("r")
    released.release()
    waiter = world.ask("q", timeout=20)
    world.wall_jump = jump
    world.pass_ms(199)
    assert released.state is SlotState.COOLING
    status = world.status("q")
    assert status is not None
    assert (status.paused_for, status.paused_until) == (4.801, pytest.approx(WALL + jump + 5))
    world.pass_ms(1)
    assert released.state is SlotState.FREE
    world.pass_ms(4799)
    assert not waiter.done()
    world.pass_ms(1)
    assert waiter.done()
    world.pass_ms(5000)
    assert held.state is SlotState.HELD
    world.pass_ms(1000)
    assert held.reclaimed


class Clock:
    """An injected clock that may do anything."""

    def __init__(self, now: int = 10**12) -> None:
        self.now = now

    def __call__(self) -> int:
        return self.now


def test_tim_1_a_clock_that_goes_back_is_held_at_its_last_value() -> None:
    """Bug 48: nothing is freed early, and nothing is extended beyond the step."""
    clock = Clock()
    manager = ConcurrencyManager(clock=clock, limits={"p": 1})
    with World(watched=False) as world, world.loop.running():
        slot = manager.try_acquire("p")
        assert slot is not None
        slot.release()
        clock.now -= 100 * 10**9
        status = manager.get_status("p")
        assert status is not None
        assert (status.cooling, status.head_wait) == (1, None)
        manager.report_rate_limit("p", 5)
        assert manager.get_status("p").paused_for == 5  # type: ignore[union-attr]
        clock.now += 100 * 10**9 + 199 * MS
        assert slot.state is SlotState.COOLING
        clock.now += MS
        assert slot.state is SlotState.FREE
        manager.close()


@pytest.mark.parametrize("start_ns", [0, 1_700_000_000 * 10**9, 2**53 * MS, 2**62])
def test_bug_47_exact_at_the_deadline_however_large_the_clock(make: Callable[..., World], start_ns: int) -> None:
    world = make(start_ns=start_ns, limits={"p": 1}, slot_timeout=5, watchdog_interval=1)
    holder = world.hold()
    waiter = world.ask()
    holder.release()
    world.loop.advance_ns(200 * MS - 1)
    assert not waiter.done()
    world.loop.advance_ns(1)
    assert waiter.done()
    world.manager.report_rate_limit("p", 3)
    world.loop.advance_ns(3 * 10**9 - 1)
    assert world.status().paused  # type: ignore[union-attr]
    world.loop.advance_ns(1)
    assert not world.status().paused  # type: ignore[union-attr]
    world.loop.advance_ns(2_800_000_000 - 1)
    assert waiter.result().state is SlotState.HELD
    world.loop.advance_ns(1)
    assert waiter.result().reclaimed


def test_bug_50_the_far_future_is_reached_in_capped_steps(make: Callable[..., World]) -> None:
    world = make(slot_timeout=3.2e8, watchdog_interval=1e8, max_pause=1e9, limits={"p": 2})
    held = world.hold()
    world.manager.report_rate_limit("p", 2.0**53)
    waiter = world.ask()
    world.loop.advance(3600)
    assert (waiter.done(), held.state) == (False, SlotState.HELD)
    world.loop.advance(4e8 - 3600 - 1)
    assert held.state is SlotState.HELD
    world.loop.advance(1)
    assert held.reclaimed
    world.loop.advance(6e8 - 1)
    assert not waiter.done()
    world.loop.advance(1)
    assert waiter.done()


def test_tim_2_an_early_timer_changes_nothing_and_is_armed_again() -> None:
    """On uvloop timers come up to a millisecond early: here the manager's clock is behind the loop's."""
    clock = Clock(10**12)
    world = World(watched=False, limits={"p": 1}, clock=clock)
    with world:
        holder = world.hold()
        waiter = world.ask()
        holder.release()
        clock.now += 199_300_000
        world.loop.advance(0.2)
        assert not waiter.done()
        assert world.figures() == (0, 1, 0, 1)
        assert world.timers() == 2
        clock.now += 700_000
        world.loop.advance(0.001)
        assert waiter.done()


def test_tim_2_a_clock_that_doesnt_follow_the_loop_is_warned_of_once() -> None:
    clock = Clock()
    world = World(watched=False, limits={"p": 1}, clock=clock)
    with world, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        holder = world.hold()
        world.ask()
        holder.release()
        world.loop.advance(5)
        assert [str(w.message).split(":")[0] for w in caught] == [
            "the event loop's timers keep firing before the manager's clock has reached their time"
        ]
        clock.now += 10**9
        world.loop.advance(100)
        assert world.figures() == (1, 0, 0, 0)
        assert len(caught) == 1


def test_tim_2_the_sweeps_timer_is_armed_again_if_it_is_early() -> None:
    clock = Clock()
    world = World(watched=False, slot_timeout=1, watchdog_interval=1, clock=clock)
    with world, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        slot = world.hold()
        world.loop.advance(30)
        assert slot.state is SlotState.HELD
        assert world.timers() == 1
        assert len(caught) == 1
        clock.now += 2 * 10**9
        world.loop.advance(1)
        assert slot.reclaimed


def test_tim_2_what_is_noticed_late_is_never_back_dated(make: Callable[..., World]) -> None:
    world = make(limits={"p": 1}, slot_timeout=1, watchdog_interval=1)
    holder = world.hold()
    waiter = world.ask()
    holder.release()
    world.loop.stall_ns(1900 * MS)  # the cooldown was over long ago, and a sweep is due
    world.loop.settle()
    slot = waiter.result()
    assert slot.state is SlotState.HELD  # touched when it was granted
    world.pass_ms(1000)
    assert slot.state is SlotState.HELD
    world.pass_ms(100)
    assert slot.reclaimed
    world.loop.stall_ns(1050 * MS)  # at 3000 ms it was reclaimed, and cools since then
    assert world.status() is not None
    assert slot.state is SlotState.FREE


def test_tim_3_what_is_due_is_applied_in_order_of_deadline(make_watched: Callable[..., World]) -> None:
    world = make_watched(limits={"p": 1}, release_cooldown=0.3)
    holder = world.hold()
    world.ask(prompt_started_at=1, timeout=0.1)
    world.ask(prompt_started_at=2, timeout=0.3)
    world.ask(prompt_started_at=3, timeout=0.3)
    holder.release()
    world.manager.report_rate_limit("p", 1)
    world.ask(prompt_started_at=4, timeout=1)
    world.events.clear()
    world.loop.stall_ns(2 * 10**9)
    world.status()
    assert world.told() == [
        ("timed_out", 2), ("recycled", 1), ("timed_out", 3), ("timed_out", 4), ("resumed", None), ("granted", 5),
    ]  # fmt: skip


@pytest.mark.parametrize("reading", ["get_status", "get_slots", "get_status_all", "state"])
def test_tim_3_a_reading_applies_what_is_due(make: Callable[..., World], reading: str) -> None:
    world = make(limits={"p": 1})
    holder = world.hold()
    waiter = world.ask()
    holder.release()
    world.loop.stall_ns(200 * MS)
    if reading == "state":
        assert holder.state is SlotState.FREE
    else:
        arguments = () if reading == "get_status_all" else ("p",)
        getattr(world.manager, reading)(*arguments)
    with world.unchanged():
        assert world.figures() == (1, 0, 0, 0)
    world.loop.settle()
    assert waiter.done()


def test_tim_3_a_refused_call_applies_nothing(make: Callable[..., World]) -> None:
    world = make(limits={"p": 1})
    holder = world.hold()
    world.ask()
    holder.release()
    world.loop.stall_ns(200 * MS)
    with world.unchanged():
        for refused in (lambda: world.manager.set_limit("p", -1), lambda: world.take("p", prompt_started_at="x")):
            with pytest.raises((TypeError, ValueError)):
                refused()
        assert world.ask(timeout=-1).exception() is not None


def test_tim_1_the_wall_clock_is_read_for_prompts_and_paused_until_only(make: Callable[..., World]) -> None:
    readings = 0

    def wall_clock() -> float:
        nonlocal readings
        readings += 1
        return 1e9

    def count(act: Callable[[], object]) -> int:
        before = readings
        act()
        return readings - before

    world = make(limits={"p": 1}, slot_timeout=1, watchdog_interval=1, wall_clock=wall_clock)
    manager = world.manager
    assert readings == 0
    assert count(lambda: world.ask(prompt_started_at=1)) == 0
    assert count(lambda: world.ask(prompt_started_at=1, timeout=0.5)) == 0
    assert count(world.ask) == 1  # its prompt time
    assert count(lambda: manager.report_rate_limit("p", 5)) == 0
    assert count(manager.get_status_all) == 1  # paused_until
    assert count(lambda: manager.resume("p")) == 0
    assert count(lambda: world.status()) == 0
    assert count(lambda: world.pass_ms(5000)) == 0
    assert count(manager.close) == 0


@pytest.mark.realtime
def test_tim_1_on_the_real_clock_a_cooldown_lasts_at_least_its_length() -> None:
    async def run() -> float:
        manager = ConcurrencyManager(limits={"p": 1}, release_cooldown=0.02)
        (await manager.acquire("p")).release()
        began = time.monotonic()
        (await manager.acquire("p", timeout=5)).release()
        manager.close()
        return time.monotonic() - began

    assert 0.0199 <= asyncio.run(run()) < 2


# -- delays ------------------------------------------------------------------------------------------------------------


class Recording(VirtualLoop):
    """Notes the delays that it is asked for."""

    def __init__(self, start_ns: int) -> None:
        super().__init__(start_ns)
        self.delays: list[float] = []

    def call_later(self, delay: float, *args: Any, **keywords: Any) -> Any:
        self.delays.append(delay)
        return super().call_later(delay, *args, **keywords)

    def call_at(self, when: float, *args: Any, **keywords: Any) -> Any:
        raise AssertionError("the manager uses call_later only")


anything = st.one_of(st.floats(), st.integers(), st.sampled_from([0.0, 1e-9, 1e9, 1e12, math.inf, math.nan]))


@settings(max_examples=150, deadline=None, derandomize=True, database=None)
@given(
    configuration=st.fixed_dictionaries(
        {},
        optional={
            "slot_timeout": anything,
            "watchdog_interval": anything,
            "release_cooldown": anything,
            "max_pause": anything,
        },
    ),
    reports=st.lists(anything, max_size=5),
    cooldown=anything,
    timeout=anything,
    start_ns=st.sampled_from([0, 2**53 * 1_000_000]),
)
def test_tim_4_delays_are_finite_not_negative_and_capped(
    configuration: dict[str, float], reports: list[float], cooldown: float, timeout: float, start_ns: int
) -> None:
    """Bug 51: whatever floats come in."""
    loop = Recording(start_ns)
    try:
        world = World(loop=loop, limits={"p": 1}, **configuration)
    except ValueError:
        world = World(loop=loop, limits={"p": 1})
    with world:
        slot = world.hold()
        world.ask(timeout=timeout)
        world.ask()
        try:
            world.manager.set_cooldown("p", cooldown)
        except ValueError:
            slot.touch()
        for retry_after in reports:
            world.manager.report_rate_limit("p", retry_after)
            loop.advance_ns(min(loop.next_deadline_ns() or loop._now, loop._now + 10**9) - loop._now)
        slot.release()
        for _ in range(20):
            deadline = loop.next_deadline_ns()
            if deadline is None:
                break
            loop.advance_ns(max(deadline - loop._now, 0))
        assert loop.delays
        assert all(0 <= delay <= LONGEST for delay in loop.delays), loop.delays
        assert all(math.isfinite(delay) for delay in loop.delays)


def test_bug_51_an_uncapped_delay_would_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    from provider_concurrency import loops

    property_ = test_tim_4_delays_are_finite_not_negative_and_capped.hypothesis.inner_test  # type: ignore[attr-defined]
    case = {"configuration": {}, "reports": [], "cooldown": 1e9, "timeout": 1e9, "start_ns": 0}
    property_(**case)
    monkeypatch.setattr(loops, "_MAX_DELAY_NS", 10**30)
    with pytest.raises(AssertionError, match="1000000000"):
        property_(**case)
