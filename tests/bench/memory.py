"""W5 and the memory of W11: bytes by tracemalloc, which are exact, so that one round is enough."""

from __future__ import annotations

import asyncio
import gc
import tracemalloc
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, Final

from provider_concurrency import ConcurrencyManager, Slot

from .measure import Case, on_asyncio
from .rows import COST, EXCESS, Family, Row
from .uncontended import PROVIDER, make_manager

_NOT_OURS: Final = (tracemalloc.Filter(inclusive=False, filename_pattern="*_weakrefset.py"),)
"""asyncio's own table of tasks, which doubles when it likes to."""


def weigh() -> int:
    """What the block has allocated and not freed, in bytes."""
    gc.collect()
    return sum(trace.size for trace in tracemalloc.take_snapshot().filter_traces(_NOT_OURS).traces)


@contextmanager
def weighing() -> Iterator[Callable[[], int]]:
    """Traces allocations for a block, which may ask what they weigh."""
    gc.collect()
    tracemalloc.start()
    try:
        yield weigh
    finally:
        tracemalloc.stop()


async def _weigh_waiters(count: int, wait: Callable[[], Coroutine[Any, Any, object]]) -> float:
    """Bytes per waiting task, the task and its coroutine included."""
    tasks: list[asyncio.Task[object]] = []
    with weighing() as weight:
        for _ in range(count):
            tasks.append(asyncio.create_task(wait()))  # noqa: PERF401 - the list grows alike in every case
        await asyncio.sleep(0)
        total = weight()
    assert not any(task.done() for task in tasks)
    for task in tasks:
        task.cancel()
    return total / count


@on_asyncio
async def weigh_queued_requests(count: int) -> float:
    manager = make_manager(limits={PROVIDER: 1})
    await manager.acquire(PROVIDER)
    return await _weigh_waiters(count, lambda: manager.acquire(PROVIDER))


@on_asyncio
async def weigh_semaphore_waiters(count: int) -> float:
    semaphore = asyncio.Semaphore(1)
    await semaphore.acquire()
    return await _weigh_waiters(count, semaphore.acquire)


@on_asyncio
async def weigh_held_slots(count: int) -> float:
    """Bytes per held slot, what the manager keeps of it included; the caller's own reference isn't."""
    manager = make_manager(limits={PROVIDER: count + 1})
    kept: list[Slot | None] = [None] * count
    (await manager.acquire(PROVIDER)).release()
    with weighing() as weight:
        for number in range(count):
            kept[number] = await manager.acquire(PROVIDER)
        total = weight()
    assert all(slot is not None for slot in kept)
    return total / count


def weigh_idle_providers(count: int) -> float:
    """Bytes per provider that has a limit and nothing else; its name is the caller's."""
    limits = {f"provider-{number}": 8 for number in range(count)}
    with weighing() as weight:
        manager = ConcurrencyManager(limits=limits)
        total = weight()
    assert len(manager.get_limits()) == count
    return total / count


_QUEUED: Final = Case("queued request", weigh_queued_requests, 10_000, 2_000, is_warmed=False)
_SEMAPHORE: Final = Case("Semaphore's waiter", weigh_semaphore_waiters, 10_000, 2_000, is_warmed=False)
_HELD: Final = Case("held slot", weigh_held_slots, 10_000, 2_000, is_warmed=False)
_IDLE: Final = Case("idle provider", weigh_idle_providers, 10_000, 2_000, is_warmed=False)

FAMILIES: Final = (
    Family(
        "memory",
        rounds=1,  # the same each time
        quick_rounds=1,
        rows=(
            Row("W5", "queued request above Semaphore's waiter", _QUEUED, _SEMAPHORE, EXCESS, goal=260, done_at=320,
                unit="B", clock="bytes"),
            Row("W5", "held slot", _HELD, None, COST, goal=160, done_at=220, unit="B", clock="bytes"),
            Row("W11", "idle provider with a limit", _IDLE, None, COST, goal=1_000, done_at=2_000, unit="B",
                clock="bytes"),
        ),
    ),
)  # fmt: skip
