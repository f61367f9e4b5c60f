"""W6: many slots cool at once. Ours is one timer and a run of deadlines; the peer is a timer for each slot."""

from __future__ import annotations

import asyncio
from collections import deque
from time import thread_time_ns
from typing import Final

from provider_concurrency import Slot

from .measure import Case, on_asyncio
from .rows import SPEEDUP, Family, Row
from .uncontended import PROVIDER, expect_idle, make_manager

_PER_SLOT: Final = 20e-6
"""Seconds that a slot may take to be released: the cooldown is long enough that none ends before all have begun."""


async def _hold(count: int, cooldown: float) -> tuple[list[Slot], float]:
    """Slots to be released, and what their release costs without a cooldown."""
    manager = make_manager(limits={PROVIDER: count})
    slots = [await manager.acquire(PROVIDER) for _ in range(count)]
    start = thread_time_ns()
    for slot in slots:
        slot.release()
    bare = thread_time_ns() - start
    expect_idle(manager)
    manager.set_cooldown(PROVIDER, cooldown)
    return [await manager.acquire(PROVIDER) for _ in range(count)], bare


async def _cost_of_releases(count: int) -> tuple[int, float]:
    """CPU time of `count` releases and of their cooldowns' end; and of as many releases without a cooldown."""
    cooldown = max(0.01, count * _PER_SLOT)
    slots, bare = await _hold(count, cooldown)
    manager = slots[0]._provider.manager
    start = thread_time_ns()
    for slot in slots:
        slot.release()
    started = thread_time_ns() - start
    assert len(slots[0]._provider.cooling or ()) == count, "a cooldown was over before all had begun"
    await asyncio.sleep(cooldown * 1.05)
    start = thread_time_ns()
    manager._operate(manager._catch_up_and_rest, slots[0]._provider)  # what its timer, or a reading, does
    ended = thread_time_ns() - start
    assert not slots[0]._provider.held
    assert not slots[0]._provider.cooling
    return started + ended, bare


@on_asyncio
async def release_and_cool(count: int) -> float:
    """The whole release, all its checks included, and the end of the cooldown; per slot."""
    cost, _ = await _cost_of_releases(count)
    return cost / count


@on_asyncio
async def cool_alone(count: int) -> float:
    """What the cooldown adds to a release that has none; per slot."""
    cost, bare = await _cost_of_releases(count)
    return (cost - bare) / count


@on_asyncio
async def timer_per_slot(count: int) -> float:
    """One call_later for each slot and what it does when it fires, on asyncio's loop; per slot."""
    loop = asyncio.get_running_loop()
    cooling: deque[int] = deque()
    cooldown = max(0.01, count * _PER_SLOT)
    start = thread_time_ns()
    for number in range(count):
        cooling.append(number)
        loop.call_later(cooldown, cooling.popleft)
    started = thread_time_ns() - start
    assert len(cooling) == count, "a cooldown was over before all had begun"
    start = thread_time_ns()
    await asyncio.sleep(cooldown * 1.05)
    while cooling:  # noqa: ASYNC110 - turns of the loop are what is timed
        await asyncio.sleep(0)
    return (started + thread_time_ns() - start) / count


_WHOLE: Final = Case("release and its cooldown", release_and_cool, 100_000, 10_000)
_ALONE: Final = Case("the cooldown's part", cool_alone, 100_000, 10_000)
_TIMERS: Final = Case("one call_later each", timer_per_slot, 100_000, 10_000)

FAMILIES: Final = (
    Family(
        "cooldowns",
        rounds=3,
        quick_rounds=2,
        rows=(
            Row("W6", "cooldown start + expiry, 1e5 slots", _ALONE, _TIMERS, SPEEDUP, goal=10, done_at=6,
                depends_on_size=True, note="what the cooldown adds to a release"),
            Row("W6", "the same, the whole release included", _WHOLE, _TIMERS, SPEEDUP,
                note="the peer only arms and fires"),
        ),
    ),
)  # fmt: skip
