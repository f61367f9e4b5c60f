"""W3: the queue is deep. A request must not pay for those that wait already."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from dataclasses import dataclass
from datetime import datetime
from heapq import heapify, heappop, heappush
from time import thread_time_ns
from typing import Any, Final

from provider_concurrency import Slot
from provider_concurrency._tags import QUEUED
from provider_concurrency.queue import SortedRun

from .contended import random_ages, random_datetimes
from .measure import Case, on_asyncio
from .naive import NaiveManager
from .rows import SPEEDUP, Family, Row
from .uncontended import PROVIDER, expect_idle, make_manager

_LIMIT: Final = 8
_SEED: Final = 30
_SOME: Final = 10_000
"""Waiters that a shallow run has in all, queue after queue, so that it is long enough to be timed."""


Drained = Callable[[int], Awaitable[float]]
"""Queues so many tasks, lets all of them through, and returns the CPU time in all."""


async def _time_queue(waiters: Iterable[Coroutine[Any, Any, None]], open_gate: Callable[[], None]) -> float:
    """CPU time until all waiters, started and queued, are through; the gate is opened when all of them wait."""
    start = thread_time_ns()
    tasks = [asyncio.create_task(waiter) for waiter in waiters]
    await asyncio.sleep(0)
    open_gate()
    await asyncio.gather(*tasks)
    return thread_time_ns() - start


async def _drain_manager(depth: int) -> float:
    manager = make_manager(limits={PROVIDER: _LIMIT})
    blockers = [await manager.acquire(PROVIDER) for _ in range(_LIMIT)]

    def open_gate() -> None:
        for slot in blockers:
            slot.release()

    async def pass_through(age: float) -> None:
        slot = await manager.acquire(PROVIDER, prompt_started_at=age)
        slot.release()

    cost = await _time_queue(map(pass_through, random_ages(depth)), open_gate)
    expect_idle(manager)
    return cost


async def _drain_semaphore(depth: int) -> float:
    semaphore = asyncio.Semaphore(0)

    def open_gate() -> None:
        for _ in range(_LIMIT):
            semaphore.release()

    async def pass_through() -> None:
        await semaphore.acquire()
        semaphore.release()

    return await _time_queue((pass_through() for _ in range(depth)), open_gate)


async def _drain_capacity_limiter(depth: int) -> float:
    import anyio

    limiter = anyio.CapacityLimiter(_LIMIT)
    blockers = [object() for _ in range(_LIMIT)]
    for blocker in blockers:
        limiter.acquire_on_behalf_of_nowait(blocker)

    def open_gate() -> None:
        for blocker in blockers:
            limiter.release_on_behalf_of(blocker)

    async def pass_through() -> None:
        await limiter.acquire()
        limiter.release()

    return await _time_queue((pass_through() for _ in range(depth)), open_gate)


async def _drain_naive(depth: int) -> float:
    manager = NaiveManager({PROVIDER: _LIMIT})
    blockers = [await manager.acquire(PROVIDER) for _ in range(_LIMIT)]

    def open_gate() -> None:
        for release in blockers:
            release()

    async def pass_through(started: datetime) -> None:
        release = await manager.acquire(PROVIDER, prompt_started_at=started)
        release()

    cost = await _time_queue(map(pass_through, random_datetimes(depth)), open_gate)
    assert manager.in_flight(PROVIDER) == 0
    return cost


def _per_waiter(drain: Drained) -> Callable[[int], float]:
    """CPU time per waiter at a depth: queue after queue until enough of them were seen."""

    @on_asyncio
    async def run(depth: int, at_least: int = _SOME) -> float:
        total, waiters = 0.0, 0
        while waiters < max(depth, at_least):
            total += await drain(depth)
            waiters += depth
        return total / waiters

    return run


drain_manager: Final = _per_waiter(_drain_manager)
drain_semaphore: Final = _per_waiter(_drain_semaphore)
drain_capacity_limiter: Final = _per_waiter(_drain_capacity_limiter)
drain_naive: Final = _per_waiter(_drain_naive)


# -- the queue alone --------------------------------------------------------------------------------------------------


@dataclass
class _Entry:
    prompt_started_at: datetime


def _make_queued_slot(prompt: float, arrival: int) -> Slot:
    slot = Slot()
    slot._state = QUEUED
    slot._key = prompt
    slot._arrival = arrival
    return slot


def push_and_pop(operations: int, depth: int) -> float:
    """The manager's queue at a steady depth: CPU time per push and pop, random ages."""
    generator = random.Random(_SEED)
    slots = [_make_queued_slot(generator.random(), arrival) for arrival in range(depth + operations)]
    queue = SortedRun()
    for number in range(depth):
        queue.push(slots[number])
    start = thread_time_ns()
    for slot in slots[depth:]:
        queue.push(slot)
        queue.take_first()
    cost = thread_time_ns() - start
    assert len(queue) == depth
    return cost / operations


def push_and_pop_a_heap(operations: int, depth: int) -> float:
    """The same with `heapq` and nothing else: nobody leaves the queue otherwise than by its front."""
    generator = random.Random(_SEED)
    slots = [_make_queued_slot(generator.random(), arrival) for arrival in range(depth + operations)]
    heap = [(slot._key, slot._arrival, slot) for slot in slots[:depth]]
    heapify(heap)
    start = thread_time_ns()
    for slot in slots[depth:]:
        heappush(heap, (slot._key, slot._arrival, slot))
        heappop(heap)
    cost = thread_time_ns() - start
    assert len(heap) == depth
    return cost / operations


def sort_and_pop(operations: int, depth: int) -> float:
    """The original's queue at a steady depth: a list, sorted anew for each request."""
    entries = [_Entry(started) for started in random_datetimes(depth + operations)]
    queue = sorted(entries[:depth], key=lambda entry: entry.prompt_started_at)
    start = thread_time_ns()
    for entry in entries[depth:]:
        queue.append(entry)
        queue.sort(key=lambda entry: entry.prompt_started_at)
        queue.pop(0)
    cost = thread_time_ns() - start
    assert len(queue) == depth
    return cost / operations


def _queue_rows(depth: int, sorts: int, goal: float, done_at: float) -> tuple[Row, Row]:
    ours = Case(f"heap and run, {depth}", lambda size: push_and_pop(size, depth), 20_000, 5_000)
    heap = Case(f"heapq alone, {depth}", lambda size: push_and_pop_a_heap(size, depth), 20_000, 5_000)
    peer = Case(f"sort per insert, {depth}", lambda size: sort_and_pop(size, depth), sorts, max(2, sorts // 4))
    return (
        Row("W3", f"queue push + pop at depth {depth}", ours, peer, SPEEDUP, goal, done_at),
        Row("W3", f"heapq alone at depth {depth}", heap, peer, SPEEDUP, note="with nobody who leaves the queue"),
    )


FAMILIES: Final = (
    Family(
        "deep queue",
        rounds=3,
        quick_rounds=2,
        rows=(
            Row(
                "W3",
                "enqueue + grant, depth 1e5 / 1e3",
                Case("depth 1e5", drain_manager, 100_000, 20_000, is_warmed=False),
                Case("depth 1e3", drain_manager, 1_000, 1_000),
                goal=2.4,
                done_at=3,
                depends_on_size=True,
            ),
        ),
    ),
    Family(
        "queue alone",
        rounds=7,
        quick_rounds=3,
        rows=(
            *_queue_rows(1_000, sorts=200, goal=90, done_at=60),
            *_queue_rows(10_000, sorts=20, goal=1_000, done_at=600),
            *_queue_rows(100_000, sorts=4, goal=10_000, done_at=6_000),
        ),
    ),
)
