"""W2: a thousand tasks for eight slots, so that nearly every request queues and is woken through the loop."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Coroutine
from datetime import UTC, datetime, timedelta
from time import thread_time_ns
from typing import Any, Final

from .measure import Case, on_asyncio
from .naive import NaiveManager
from .rows import SPEEDUP, Family, Row
from .uncontended import PROVIDER, expect_idle, make_manager

_TASKS: Final = 1_000
_LIMIT: Final = 8
_SEED: Final = 20
_EPOCH: Final = datetime(2026, 1, 1, tzinfo=UTC)


def random_ages(count: int) -> list[float]:
    """Prompt times in no order."""
    generator = random.Random(_SEED)
    return [generator.random() for _ in range(count)]


def random_datetimes(count: int) -> list[datetime]:
    """The same as the original had them."""
    return [_EPOCH + timedelta(seconds=age) for age in random_ages(count)]


def rising_ages(count: int) -> list[float]:
    """Prompt times in the order of arrival."""
    return [float(number) for number in range(count)]


async def cost_of(worker: Callable[[int], Coroutine[Any, Any, None]], tasks: int, per_task: int) -> float:
    """CPU time per operation of `tasks` workers, their tasks' making included."""
    start = thread_time_ns()
    await asyncio.gather(*[worker(number) for number in range(tasks)])
    return (thread_time_ns() - start) / (tasks * per_task)


async def _queue_for_slots(per_task: int, make_ages: Callable[[int], list[float]], tasks: int) -> float:
    manager = make_manager()
    ages = make_ages(tasks * per_task)
    granted = 0

    async def work(number: int) -> None:
        nonlocal granted
        for turn in range(per_task):
            slot = await manager.acquire(PROVIDER, prompt_started_at=ages[turn * tasks + number])
            await asyncio.sleep(0)
            slot.release()
        granted += per_task

    cost = await cost_of(work, tasks, per_task)
    assert granted == tasks * per_task
    expect_idle(manager)
    return cost


@on_asyncio
async def slots_by_random_age(per_task: int, tasks: int = _TASKS) -> float:
    return await _queue_for_slots(per_task, random_ages, tasks)


@on_asyncio
async def slots_in_order(per_task: int, tasks: int = _TASKS) -> float:
    return await _queue_for_slots(per_task, rising_ages, tasks)


async def _pass_a_gate(
    per_task: int, tasks: int, acquire: Callable[[], Awaitable[object]], release: Callable[[], object]
) -> float:
    """A limiter without handles: who acquires, releases."""

    async def work(number: int) -> None:
        for _ in range(per_task):
            await acquire()
            await asyncio.sleep(0)
            release()

    return await cost_of(work, tasks, per_task)


@on_asyncio
async def semaphore(per_task: int, tasks: int = _TASKS) -> float:
    gate = asyncio.Semaphore(_LIMIT)
    return await _pass_a_gate(per_task, tasks, gate.acquire, gate.release)


class _HearingFuture(asyncio.Future[None]):
    """A future that hears of its cancel in that moment (CAN-1): one of asyncio's own can't be told to."""

    def cancel(self, msg: Any | None = None) -> bool:
        return super().cancel(msg)


class _HearingSemaphore(asyncio.Semaphore):
    """It asks what `_get_loop` returns, on 3.11 to 3.13, for its futures."""

    def __init__(self, value: int) -> None:
        super().__init__(value)
        self._running = asyncio.get_running_loop()

    def _get_loop(self) -> Any:
        return self

    def create_future(self) -> asyncio.Future[None]:
        return _HearingFuture(loop=self._running)


@on_asyncio
async def hearing_semaphore(per_task: int, tasks: int = _TASKS) -> float:
    gate = _HearingSemaphore(_LIMIT)
    return await _pass_a_gate(per_task, tasks, gate.acquire, gate.release)


@on_asyncio
async def anyio_semaphore(per_task: int, tasks: int = _TASKS) -> float:
    import anyio

    gate = anyio.Semaphore(_LIMIT)
    return await _pass_a_gate(per_task, tasks, gate.acquire, gate.release)


@on_asyncio
async def capacity_limiter(per_task: int, tasks: int = _TASKS) -> float:
    import anyio

    gate = anyio.CapacityLimiter(_LIMIT)
    return await _pass_a_gate(per_task, tasks, gate.acquire, gate.release)


@on_asyncio
async def naive(per_task: int, tasks: int = _TASKS) -> float:
    manager = NaiveManager({PROVIDER: _LIMIT})
    ages = random_datetimes(tasks * per_task)

    async def work(number: int) -> None:
        for turn in range(per_task):
            release = await manager.acquire(PROVIDER, prompt_started_at=ages[turn * tasks + number])
            await asyncio.sleep(0)
            release()

    cost = await cost_of(work, tasks, per_task)
    assert manager.in_flight(PROVIDER) == 0
    return cost


@on_asyncio
async def no_limiter(per_task: int, tasks: int = _TASKS) -> float:
    async def work(number: int) -> None:
        for _ in range(per_task):
            await asyncio.sleep(0)

    return await cost_of(work, tasks, per_task)


_SEMAPHORE: Final = Case("asyncio.Semaphore", semaphore, 10, 4)
_RANDOM: Final = Case("random ages", slots_by_random_age, 10, 4)
_IN_ORDER: Final = Case("in order", slots_in_order, 10, 4)
_NAIVE: Final = Case("naive port", naive, 2, 1)
_LIMITER: Final = Case("anyio.CapacityLimiter", capacity_limiter, 10, 4, ("anyio",))
_ANYIO_SEMAPHORE: Final = Case("anyio.Semaphore", anyio_semaphore, 10, 4, ("anyio",))
_HEARING: Final = Case("futures that hear", hearing_semaphore, 10, 4)
_NOTHING: Final = Case("no limiter", no_limiter, 10, 4)

FAMILIES: Final = (
    Family(
        "contended",
        rounds=15,
        quick_rounds=7,
        rows=(
            Row("W2", "1000 tasks, limit 8, random prompt ages", _RANDOM, _SEMAPHORE, goal=1.15, done_at=1.30),
            Row("W2", "1000 tasks, limit 8, in prompt order", _IN_ORDER, _SEMAPHORE, goal=1.05, done_at=1.20),
            Row("W2", "against the naive port", _RANDOM, _NAIVE, SPEEDUP),
            Row("W2", "against anyio.CapacityLimiter", _RANDOM, _LIMITER),
            Row("W2", "anyio.Semaphore / asyncio.Semaphore", _ANYIO_SEMAPHORE, _SEMAPHORE,
                note="a peer alone: it has neither handle, clock nor priority"),
            Row("W2", "a Semaphore whose futures hear of a cancel", _HEARING, _SEMAPHORE,
                note="what CAN-1 costs by itself"),
            Row("W2", "the same tasks without any limiter", _NOTHING, _SEMAPHORE, note="the loop's own part"),
        ),
    ),
)  # fmt: skip
