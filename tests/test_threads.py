"""THR-1: release and touch from any thread; status and limits may be read; everything else raises."""

from __future__ import annotations

import asyncio
import heapq
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import pytest

from provider_concurrency import ConcurrencyManager, Slot, SlotState
from provider_concurrency.queue import SortedRun
from support import World

T = TypeVar("T")


@pytest.fixture(scope="module")
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(8) as pool:
        yield pool


def elsewhere(pool: ThreadPoolExecutor, call: Callable[..., T], *args: Any) -> T:
    """Runs a call to its end in another thread."""
    return pool.submit(call, *args).result(timeout=10)


def test_thr_1_release_from_another_thread_is_handed_to_the_loop(
    make: Callable[..., World], pool: ThreadPoolExecutor
) -> None:
    world = make(limits={"p": 1}, release_cooldown=0)
    holder = world.hold()
    waiter = world.ask()
    elsewhere(pool, holder.release)
    assert holder.state is SlotState.HELD  # not before the loop has its turn
    world.loop.settle()
    assert (holder.state, waiter.result().state) == (SlotState.FREE, SlotState.HELD)


def test_thr_1_two_releases_from_two_threads_count_once(make: Callable[..., World], pool: ThreadPoolExecutor) -> None:
    world = make(limits={"p": 2}, release_cooldown=0)
    holder, _ = world.hold(), world.hold()
    for _ in range(3):
        elsewhere(pool, holder.release)
    holder.release()
    world.loop.settle()
    assert world.figures() == (1, 0, 0, 0)


def test_thr_1_what_was_handed_over_acts_with_the_next_operation(
    make: Callable[..., World], pool: ThreadPoolExecutor
) -> None:
    world = make(limits={"p": 1}, release_cooldown=0)
    holder = world.hold()
    elsewhere(pool, holder.release)
    assert world.figures() == (0, 0, 0, 0)  # reading is an operation
    world.loop.settle()
    assert world.figures() == (0, 0, 0, 0)


def test_thr_1_touch_from_another_thread(make: Callable[..., World], pool: ThreadPoolExecutor) -> None:
    world = make(slot_timeout=5, watchdog_interval=1)
    holder, other = world.hold(), world.hold()
    world.pass_ms(4000)
    elsewhere(pool, holder.touch)
    world.loop.settle()
    world.pass_ms(3000)
    assert (holder.reclaimed, other.reclaimed) == (False, True)
    elsewhere(pool, other.touch)
    elsewhere(pool, other.release)
    holder.release()


CALLS: dict[str, Callable[[ConcurrencyManager], object]] = {
    "set_limit": lambda m: m.set_limit("p", 1),
    "remove_limit": lambda m: m.remove_limit("p"),
    "set_cooldown": lambda m: m.set_cooldown("p", 1),
    "report_rate_limit": lambda m: m.report_rate_limit("p"),
    "resume": lambda m: m.resume("p"),
    "close": lambda m: m.close(),
    "try_acquire": lambda m: m.try_acquire("p"),
    "acquire": lambda m: m.acquire("p").send(None),
    "wait_closed": lambda m: m.wait_closed().send(None),
    "acquire on a loop of its own": lambda m: asyncio.run(m.acquire("p")),
}


@pytest.mark.parametrize("name", CALLS)
def test_thr_1_other_calls_from_a_foreign_thread_raise(
    make: Callable[..., World], pool: ThreadPoolExecutor, name: str
) -> None:
    world = make(limits={"p": 3})
    world.hold()
    with world.unchanged(), pytest.raises(RuntimeError):
        elsewhere(pool, CALLS[name], world.manager)


def test_thr_1_statuses_and_limits_may_be_read_and_apply_nothing(
    make: Callable[..., World], pool: ThreadPoolExecutor
) -> None:
    world = make(limits={"p": 1})
    manager = world.manager
    holder = world.hold()
    gone = world.ask(prompt_started_at=1)
    world.ask(prompt_started_at=2)
    holder.release()
    gone.cancel()
    world.loop.stall_ns(10**9)  # the cooldown is due, and so is the grant
    with world.unchanged():
        status = elsewhere(pool, manager.get_status, "p")
        assert status is not None
        assert (status.cooling, status.queued, status.head_wait) == (1, 1, 1.0)
        assert elsewhere(pool, manager.get_status_all) == {"p": status}
        assert [info.state for info in elsewhere(pool, manager.get_slots, "p")] == [SlotState.QUEUED]
        assert elsewhere(pool, manager.get_limits) == {"p": 1}
        assert elsewhere(pool, manager.get_limit, "p") == 1
        assert elsewhere(pool, manager.get_cooldown, "p") is None
        assert elsewhere(pool, lambda: holder.state) is SlotState.COOLING
    assert world.figures() == (1, 0, 0, 0)


def test_thr_1_a_reading_elsewhere_leaves_the_queue_alone(make: Callable[..., World], pool: ThreadPoolExecutor) -> None:
    """Dropping dead entries in passing would race with the loop's thread."""
    world = make(limits={"p": 1})
    world.hold()
    waiting = [world.ask(prompt_started_at=n) for n in range(5)]
    for task in waiting[:3]:
        task.cancel()
    p = world.manager._providers["p"]
    assert p.queue is not None
    before = (list(p.queue.run), list(p.queue.late), p.queue.dead)
    status = elsewhere(pool, world.manager.get_status, "p")
    assert (list(p.queue.run), list(p.queue.late), p.queue.dead) == before
    assert status is not None
    assert (status.queued, status.head_wait) == (2, 0.0)


@pytest.mark.realtime
def test_thr_1_release_from_another_thread_wakes_the_loop() -> None:
    """Bug 69: a loop that sleeps towards a far timer is woken."""

    async def main() -> float:
        manager = ConcurrencyManager(limits={"p": 1}, release_cooldown=0.01)
        holder = await manager.acquire("p")
        far = asyncio.get_running_loop().call_later(60, lambda: None)
        began = time.monotonic()
        timer = threading.Timer(0.02, holder.release)
        timer.start()
        slot = await manager.acquire("p", timeout=30)
        waited = time.monotonic() - began
        slot.release()
        far.cancel()
        timer.join()
        manager.close()
        return waited

    assert 0.029 <= asyncio.run(main()) < 10


@pytest.mark.realtime
def test_bug_69_eight_threads_release_a_thousand_slots_each(pool: ThreadPoolExecutor) -> None:
    async def main() -> None:
        manager = ConcurrencyManager(limits={"p": 8000}, release_cooldown=0, slot_timeout=60)
        slots = [await manager.acquire("p") for _ in range(8000)]
        waiting = [asyncio.create_task(manager.acquire("p")) for _ in range(8000)]
        await asyncio.sleep(0)
        statuses = 0

        def work(mine: list[Slot]) -> None:
            nonlocal statuses
            for number, slot in enumerate(mine):
                slot.touch()
                slot.release()
                slot.release()
                if number % 50 == 0:
                    assert manager.get_status("p").in_flight <= 8000  # type: ignore[union-attr]
                    statuses += 1

        loop = asyncio.get_running_loop()
        jobs = [loop.run_in_executor(pool, work, slots[n::8]) for n in range(8)]
        await asyncio.gather(*jobs)
        granted = await asyncio.wait_for(asyncio.gather(*waiting), 30)
        assert statuses == 160
        assert len({id(slot) for slot in granted}) == 8000
        status = manager.get_status("p")
        assert status is not None
        assert (status.held, status.cooling, status.queued) == (8000, 0, 0)
        for slot in granted:
            slot.release()
        assert manager.get_status("p").in_flight == 0  # type: ignore[union-attr]
        manager.close()

    asyncio.run(main())


@pytest.mark.realtime
def test_bug_65_a_cross_thread_acquire_that_gives_up_leaves_nothing() -> None:
    async def main() -> None:
        manager = ConcurrencyManager(limits={"p": 1}, release_cooldown=0)
        holder = await manager.acquire("p")
        loop = asyncio.get_running_loop()

        def ask() -> None:
            future = asyncio.run_coroutine_threadsafe(manager.acquire("p"), loop)
            with pytest.raises(TimeoutError):
                future.result(0.01)
            future.cancel()

        await asyncio.to_thread(ask)
        await asyncio.sleep(0.01)
        assert manager.get_status("p").queued == 0  # type: ignore[union-attr]
        holder.release()
        assert manager.get_status("p").in_flight == 0  # type: ignore[union-attr]
        manager.close()

    asyncio.run(main())


def test_thr_1_release_after_the_loop_was_closed_acts_in_the_calling_thread(
    make_unwatched: Callable[..., World], pool: ThreadPoolExecutor
) -> None:
    world = make_unwatched(release_cooldown=0)
    slots = [world.hold() for _ in range(400)]
    world.loop.close()
    for job in [pool.submit(lambda mine: [slot.release() for slot in mine], slots[n::8]) for n in range(8)]:
        job.result(timeout=10)
    assert {slot.state for slot in slots} == {SlotState.FREE}
    assert world.manager.get_status_all() == {}


def test_thr_1_a_loop_closed_while_a_release_is_handed_over(
    make_unwatched: Callable[..., World], pool: ThreadPoolExecutor
) -> None:
    """The loop refuses the hand-over: the caller does it."""
    world = make_unwatched(release_cooldown=0)
    slot = world.hold()

    def refuse(*_: object) -> None:
        world.loop.close()
        raise RuntimeError("Event loop is closed")

    world.loop.call_soon_threadsafe = refuse  # type: ignore[method-assign]
    elsewhere(pool, slot.release)
    assert slot.state is SlotState.FREE


def test_thr_1_a_reading_while_the_dead_are_swept_out(
    make: Callable[..., World], pool: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both runs are exchanged at once with the count of their dead: nobody counts less than nothing."""
    world = make(limits={"p": 1})
    world.hold()
    waiting = [world.ask(prompt_started_at=prompt) for prompt in (*range(40, 0, -1), *range(40, 80))]
    seen: list[int] = []

    def heapify_observed(heap: list[Any]) -> None:
        heapq.heapify(heap)
        status = elsewhere(pool, world.manager.get_status, "p")
        assert status is not None
        seen.extend((status.queued, len(elsewhere(pool, world.manager.get_slots, "p"))))

    monkeypatch.setattr("provider_concurrency.queue.heapify", heapify_observed)
    for task in (*waiting[:39], *waiting[50:]):  # the head stays
        task.cancel()
    assert seen
    assert all(1 <= count <= 80 for count in seen)
    world.loop.settle()
    assert world.figures() == (1, 0, 0, 11)


def test_thr_1_a_reading_of_who_is_granted_meanwhile(
    make: Callable[..., World], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who was queued when it was looked at may have been granted and released since: its key is no prompt time then."""
    world = make(limits={"p": 1}, release_cooldown=5)
    holder = world.hold()
    task = world.ask(prompt_started_at=77)
    look = SortedRun.__iter__

    def look_slowly(run: SortedRun) -> Iterator[Slot]:
        yield from look(run)
        monkeypatch.undo()
        holder.release()
        world.pass_ms(5000)
        task.result().release()

    monkeypatch.setattr(SortedRun, "__iter__", look_slowly)
    rows = world.manager.get_slots("p")
    assert [row.prompt_started_at for row in rows if row.state is SlotState.QUEUED] == [77]
    assert all(row.age >= 0 for row in rows)


def test_thr_1_readings_elsewhere_before_there_is_a_loop(pool: ThreadPoolExecutor) -> None:
    """Who watches a manager from its making on applies nothing: the loop may start at any moment."""
    now = [0]
    manager = ConcurrencyManager(limits={"p": 1}, clock=lambda: now[0])
    manager.report_rate_limit("p", 5)
    now[0] = 6 * 10**9
    status = elsewhere(pool, manager.get_status, "p")
    assert status is not None
    assert status.paused
    own = manager.get_status("p")
    assert own is not None
    assert not own.paused
