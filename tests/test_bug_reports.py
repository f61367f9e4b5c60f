"""Publicly reported faults of limiters that no rule's own test file has a place for; the table is bug_cases.py."""

from __future__ import annotations

import asyncio
import inspect
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from provider_concurrency import AcquireTimeoutError, ConcurrencyManager, Slot, SlotState
from provider_concurrency.testing import VirtualLoop
from provider_concurrency.threading import ConcurrencyManager as BlockingManager
from support import MS, World

Make = Callable[..., World]


def test_bug_6_cancelled_between_two_stages_both_counts_return_to_zero(make: Make) -> None:
    """There is no acquire of several providers; who nests two slots gets the first one back."""
    world = make(limits={"all": 2, "p": 1}, release_cooldown=0)

    async def both() -> None:
        async with world.manager.slot("all"), world.manager.slot("p"):
            await asyncio.sleep(3600)

    holder = world.loop.start(both())
    for n in range(5):
        waiting = world.loop.start(both())
        world.loop.settle()
        assert (world.figures("all"), world.figures("p")) == ((2, 0, 0, 0), (1, 0, 0, 1))
        waiting.cancel()
        world.loop.settle()
        assert (world.figures("all"), world.figures("p")) == ((1, 0, 0, 0), (1, 0, 0, 0)), n
    holder.cancel()
    world.loop.settle()
    assert (world.figures("all"), world.figures("p")) == ((0, 0, 0, 0), (0, 0, 0, 0))


@pytest.mark.realtime
def test_bug_12_releasing_and_giving_up_in_many_threads_never_block_each_other() -> None:
    """One thread gives slots back, others give up waiting; callbacks use the manager, so none runs under its lock."""
    told = 0
    looked: list[bool] = []  # an assertion in a callback would only be reported (CAL-4)

    def observe(*_: object) -> None:
        nonlocal told
        told += 1
        if told % 1000 == 0:  # were the lock held here, this thread could not look
            reader = threading.Thread(target=manager.get_status, args=("p",))
            reader.start()
            reader.join(10)
            looked.append(not reader.is_alive())

    manager = BlockingManager(limits={"p": 1}, release_cooldown=0, observer=observe)

    def release() -> None:
        for _ in range(5000):
            manager.acquire("p", timeout=10).release()

    def give_up() -> None:
        for _ in range(2500):
            with suppress(AcquireTimeoutError):
                manager.acquire("p", timeout=1e-5, on_queued=lambda: manager.get_slots("p")).release()

    threads = [threading.Thread(target=work, daemon=True) for work in (release, give_up, give_up)]
    for thread in threads:
        thread.start()
    end = time.monotonic() + 60
    for thread in threads:
        thread.join(max(end - time.monotonic(), 0))
    assert not any(thread.is_alive() for thread in threads)
    status = manager.get_status("p")
    assert status is not None
    assert (status.in_flight, status.queued) == (0, 0)
    assert looked
    assert all(looked)
    manager.close()


@pytest.mark.realtime
def test_bug_12_a_thread_releases_what_the_loop_cancels() -> None:
    async def main() -> None:
        manager = ConcurrencyManager(limits={"p": 1}, release_cooldown=0)
        loop = asyncio.get_running_loop()
        for _ in range(1000):
            slot = await manager.acquire("p")
            waiting = [loop.create_task(manager.acquire("p")) for _ in range(2)]
            await asyncio.sleep(0)
            released = loop.run_in_executor(None, slot.release)
            for task in waiting:
                task.cancel()
            await asyncio.wait_for(released, 10)
            await asyncio.gather(*waiting, return_exceptions=True)
            await asyncio.sleep(0)
            status = manager.get_status("p")
            assert status is not None
            assert (status.held, status.queued) == (0, 0)
        manager.close()

    asyncio.run(main())


@pytest.mark.parametrize("cooldown", [0, 200])
def test_bug_16_the_next_one_runs_at_the_very_moment_there_is_room(make: Make, cooldown: int) -> None:
    """No poll, no back-off: at the end of the cooldown, within the same turns of the loop."""
    world = make(limits={"p": 1}, release_cooldown=cooldown / 1000)
    ran: list[int] = []

    async def work() -> None:
        async with world.manager.slot("p"):
            ran.append(world.loop.time_ns() // MS)
            await asyncio.sleep(0.12)

    tasks = [world.loop.start(work()) for _ in range(5)]
    world.pass_ms(5 * (120 + cooldown))
    assert all(task.done() for task in tasks)
    assert ran == [n * (120 + cooldown) for n in range(5)]


@pytest.mark.parametrize("manager", [ConcurrencyManager, BlockingManager])
def test_bug_42_no_request_can_be_larger_than_another(manager: type[Any]) -> None:
    """There are no weights, so none can exceed the limit and block all behind it for ever."""
    known = {"self", "provider", "conversation_id", "prompt_started_at", "timeout", "on_queued", "nested"}
    for call in ("acquire", "try_acquire", "slot"):
        assert set(inspect.signature(getattr(manager, call)).parameters) <= known
    made = manager(limits={"p": 2})
    with pytest.raises(TypeError, match="weight"):
        made.slot("p", weight=3).__enter__()
    made.close()


def test_bug_42_what_no_limit_admits_is_served_when_the_limit_allows_it(make: Make) -> None:
    world = make(limits={"p": 0})
    first, second = world.ask(), world.ask()
    world.pass_ms(10_000)
    world.manager.set_limit("p", 1)
    world.loop.settle()
    assert (first.done(), second.done()) == (True, False)


def test_bug_48_a_clock_that_steps_back_frees_nothing_early_and_nothing_late(make: Make) -> None:
    loop = VirtualLoop(10**15)
    step = 0
    world = make(
        loop=loop, clock=lambda: loop.time_ns() + step, limits={"p": 2}, slot_timeout=300, watchdog_interval=30
    )
    cooling, stuck = world.hold(), world.hold()
    cooling.release()
    behind_the_cooldown = world.ask()
    world.manager.report_rate_limit("q", 50)
    behind_the_pause = world.ask("q")
    step = -100_000 * MS
    for name in ("p", "q"):
        status = world.status(name)
        assert status is not None
        assert (status.head_wait, status.queued) == (0, 1), "held at the last value"
        assert status.paused_for == (50 if name == "q" else None)
    assert [info.age for info in world.manager.get_slots("p")] == [0, 0]
    loop.stall_ns(100_000 * MS)  # until the clock says again what it said before
    loop.settle()
    assert not behind_the_cooldown.done()
    world.pass_ms(199)
    assert not behind_the_cooldown.done()
    world.pass_ms(1)
    assert behind_the_cooldown.result().state is SlotState.HELD
    world.pass_ms(50_000 - 201)
    assert not behind_the_pause.done()
    world.pass_ms(1)
    assert behind_the_pause.done()
    world.pass_ms(250_000)
    assert not stuck.reclaimed, "touched 300 s ago: not longer than slot_timeout"
    world.pass_ms(30_000)
    assert stuck.reclaimed


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")
def test_bug_66_a_forked_child_starts_without_the_parents_slots() -> None:
    """In a process of its own: never a hang in the child, and the parent is unaffected (more in test_fork.py)."""
    program = """
import asyncio, os
from provider_concurrency import ConcurrencyManager

async def use(manager):
    (await asyncio.wait_for(manager.acquire("p"), 5)).release()

async def main():
    manager = ConcurrencyManager(limits={"p": 1}, release_cooldown=0.05)
    held = await manager.acquire("p")
    waiter = asyncio.ensure_future(manager.acquire("p"))
    await asyncio.sleep(0)
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            asyncio._set_running_loop(None)
            asyncio.run(use(manager))
            status = 0
        finally:
            os._exit(status)
    assert os.waitpid(pid, 0)[1] == 0
    assert not waiter.done()
    held.release()
    (await asyncio.wait_for(waiter, 5)).release()
    manager.close()

asyncio.run(main())
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.realtime
def test_bug_71_a_slot_of_a_loop_that_is_gone_costs_at_most_the_slot_timeout() -> None:
    manager = ConcurrencyManager(limits={"p": 1}, release_cooldown=0, slot_timeout=0.05, watchdog_interval=0.02)
    kept: list[Slot] = []

    async def leave_it_held() -> None:
        kept.append(await manager.acquire("p"))
        asyncio.ensure_future(manager.acquire("p"))  # noqa: RUF006 - asyncio.run cancels it
        await asyncio.sleep(0)

    async def come_later() -> None:
        assert [info.state for info in manager.get_slots("p")] == [SlotState.HELD], "nobody of the old loop waits"
        async with asyncio.timeout(10), manager.slot("p"):
            assert kept[0].reclaimed
        manager.close()

    asyncio.run(leave_it_held())
    asyncio.run(come_later())
