"""W4: half of a deep queue is cancelled at random, as when a user closes many windows."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from time import thread_time_ns
from typing import Any, Final

from .contended import random_ages
from .measure import Case, on_asyncio
from .rows import SPEEDUP, Family, Row
from .uncontended import PROVIDER, make_manager

_SEED: Final = 40


async def _cost_of_cancelling(waiters: int, wait: Callable[[int], Coroutine[Any, Any, object]]) -> float:
    """CPU time per cancelled waiter, the end of its task included."""
    tasks = [asyncio.create_task(wait(number)) for number in range(waiters)]
    await asyncio.sleep(0)
    victims = random.Random(_SEED).sample(tasks, max(1, waiters // 2))
    start = thread_time_ns()
    for task in victims:
        task.cancel()
    while not victims[-1].done():  # noqa: ASYNC110 - turns of the loop are what is timed
        await asyncio.sleep(0)
    cost = thread_time_ns() - start
    assert all(task.cancelled() for task in victims)
    for task in tasks:  # in order, which a semaphore, too, can bear
        task.cancel()
    return cost / len(victims)


@on_asyncio
async def cancel_requests(waiters: int, timeout: float | None = None) -> float:
    manager = make_manager(limits={PROVIDER: 1})
    ages = random_ages(waiters)
    await manager.acquire(PROVIDER)

    async def wait(number: int) -> None:
        await manager.acquire(PROVIDER, prompt_started_at=ages[number], timeout=timeout)

    cost = await _cost_of_cancelling(waiters, wait)
    status = manager.get_status(PROVIDER)
    assert status is not None
    assert status.queued == 0
    return cost


def cancel_requests_with_timeout(waiters: int) -> float:
    return cancel_requests(waiters, timeout=3_600.0)


@on_asyncio
async def cancel_semaphore_waiters(waiters: int) -> float:
    semaphore = asyncio.Semaphore(1)
    await semaphore.acquire()
    return await _cost_of_cancelling(waiters, lambda _: semaphore.acquire())


@on_asyncio
async def cancel_futures_two_deep(waiters: int) -> float:
    loop = asyncio.get_running_loop()

    async def acquire() -> None:
        await loop.create_future()

    async def wait(_: int) -> None:
        await acquire()

    return await _cost_of_cancelling(waiters, wait)


@on_asyncio
async def cancel_bare_futures(waiters: int) -> float:
    loop = asyncio.get_running_loop()

    async def wait(_: int) -> None:
        await loop.create_future()

    return await _cost_of_cancelling(waiters, wait)


_OURS: Final = Case("requests", cancel_requests, 100_000, 5_000)
_TIMED: Final = Case("with a timeout", cancel_requests_with_timeout, 100_000, 5_000)
_FUTURES: Final = Case("bare futures", cancel_bare_futures, 100_000, 5_000)
_TWO_DEEP: Final = Case("two coroutines deep", cancel_futures_two_deep, 100_000, 5_000)
_WHOLE: Final = Case("requests", cancel_requests, 100_000, 10_000, is_warmed=False)
_WHOLE_TIMED: Final = Case("with a timeout", cancel_requests_with_timeout, 100_000, 10_000, is_warmed=False)
_SEMAPHORE: Final = Case("asyncio.Semaphore", cancel_semaphore_waiters, 100_000, 10_000, is_warmed=False)

FAMILIES: Final = (
    Family(
        "cancellation",
        rounds=3,
        quick_rounds=3,
        rows=(
            Row("W4", "cancel half of 1e5, against bare futures", _OURS, _FUTURES, goal=1.5, done_at=1.9),
            Row("W4", "the same with a timeout on each", _TIMED, _FUTURES, goal=1.5, done_at=1.9,
                note="the bare futures have none"),
            Row("W4", "bare futures, two coroutines deep as ours", _TWO_DEEP, _FUTURES,
                note="the floor: the caller's coroutine, and acquire"),
        ),
    ),
    Family(
        "cancellation at a semaphore",
        rounds=1,  # the semaphore's takes half a minute
        quick_rounds=1,
        rows=(
            Row("W4", "cancel half of 1e5, against Semaphore", _WHOLE, _SEMAPHORE, SPEEDUP, goal=100, done_at=60,
                depends_on_size=True, note="one round: the semaphore's cost is quadratic"),
            Row("W4", "the same with a timeout on each", _WHOLE_TIMED, _SEMAPHORE, SPEEDUP, goal=100, done_at=60,
                depends_on_size=True, note="the semaphore's waiters have none"),
        ),
    ),
)  # fmt: skip
