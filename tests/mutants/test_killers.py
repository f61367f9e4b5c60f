"""Tests that some fault of the zoo, or a survivor of SURVIVORS.md, was the first to ask for."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from provider_concurrency import AcquireTimeoutError, ConcurrencyManager
from provider_concurrency.slot import SlotState
from support import MS, World


def test_tim_1_what_begins_while_the_clock_is_back_lasts_its_time() -> None:
    """Bug 48: a cooldown that began in the hour that came twice isn't over when the clock is right again."""
    now = 10**12
    manager = ConcurrencyManager(clock=lambda: now, limits={"p": 1})
    with World(watched=False) as world, world.loop.running():
        slot = manager.try_acquire("p")
        assert slot is not None
        now -= 100 * 10**9
        slot.release()
        now += 100 * 10**9
        assert slot.state is SlotState.COOLING
        now += 200 * MS
        assert slot.state is SlotState.FREE
        manager.close()


@pytest.mark.parametrize("by_reading", [True, False])
def test_tim_3_a_patience_that_ends_between_two_cooldowns(make: Callable[..., World], by_reading: bool) -> None:
    """All three are noticed at once, and still go in order: the second cooldown comes too late for who timed out."""
    world = make(limits={"p": 2})
    first, second = world.hold(), world.hold()
    first.release()
    world.pass_ms(100)
    second.release()
    older = world.ask(prompt_started_at=1)
    younger = world.ask(prompt_started_at=2, timeout=0.15)
    world.loop.stall_ns(500 * MS)  # past the ends at 200, 250 and 300 ms
    if by_reading:
        assert world.figures() == (1, 0, 0, 0)
    world.loop.settle()
    assert older.result().state is SlotState.HELD
    with pytest.raises(AcquireTimeoutError):
        younger.result()


def test_acc_3_cooldowns_that_nobody_looks_at_take_no_memory(make_unwatched: Callable[..., World]) -> None:
    """Without a limit no request ever finds the provider full, and so none looks for what is over."""
    world = make_unwatched()
    for _ in range(1000):
        world.hold().release()
        world.pass_ms(50)
    cooling = world.manager._providers["p"].cooling
    assert cooling is not None
    assert len(cooling) < 20


def test_wat_1_the_grid_begins_when_the_manager_is_made(make: Callable[..., World]) -> None:
    """However late the first grant comes, and whatever the clock said at the beginning."""
    world = make(start_ns=1_700_000_000 * 10**9 + 123, slot_timeout=0.5, watchdog_interval=1)
    world.pass_ms(300)
    slot = world.hold()
    world.pass_ms(699)
    assert not slot.reclaimed
    world.pass_ms(1)
    assert slot.reclaimed
