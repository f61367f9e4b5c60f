"""The virtual-time loop itself: exact, in order, and never stuck without saying so."""

from __future__ import annotations

import asyncio
import contextvars
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from provider_concurrency.testing import StuckLoopError, VirtualLoop


@pytest.fixture
def loop() -> Iterator[VirtualLoop]:
    loop = VirtualLoop()
    yield loop
    loop.close()


def test_whole_programs_run_without_waiting() -> None:
    log: list[object] = []

    async def tick(name: str, seconds: float) -> str:
        await asyncio.sleep(seconds)
        log.append((name, asyncio.get_running_loop().time()))
        return name

    async def main() -> str:
        async with asyncio.TaskGroup() as group:
            group.create_task(tick("a", 86_400))
            group.create_task(tick("b", 3600))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(tick("never", 10), 5)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(7):
                await asyncio.sleep(8)
        semaphore = asyncio.Semaphore(1)
        async with semaphore:
            waiting = asyncio.create_task(semaphore.acquire())
            await asyncio.sleep(1)
        await waiting
        log.append(asyncio.get_running_loop().time())
        return "done"

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        assert runner.run(main()) == "done"
    assert log == [("b", 3600), ("a", 86_400), 86_413]


@pytest.mark.parametrize("start_ns", [0, 1_700_000_000 * 10**9 + 1, 2**53 * 1_000_000, 2**62 + 1])
def test_timers_are_exact_to_the_nanosecond(start_ns: int) -> None:
    loop = VirtualLoop(start_ns)
    fired: list[int] = []
    for delay in (0.2, 1e-9, 0.1, 0.0, 0.2):
        loop.call_later(delay, lambda: fired.append(loop.time_ns() - start_ns))
    loop.advance_ns(200_000_000 - 1)
    assert fired == [0, 1, 100_000_000]
    loop.advance_ns(1)
    assert fired == [0, 1, 100_000_000, 200_000_000, 200_000_000]
    loop.close()


def test_call_at_takes_the_loops_own_time(loop: VirtualLoop) -> None:
    fired: list[float] = []
    loop.advance(1.5)
    for when in (3.0, 2.0, 1.0):
        loop.call_at(when, lambda when=when: fired.append((when, loop.time())))  # type: ignore[misc, arg-type]
    loop.advance(2)
    assert fired == [(1.0, 1.5), (2.0, 2.0), (3.0, 3.0)]
    assert (loop.time(), loop.time_ns()) == (3.5, 3_500_000_000)


def test_a_cancelled_timer_never_fires_and_isnt_alive(loop: VirtualLoop) -> None:
    fired: list[str] = []
    first = loop.call_later(1, fired.append, "first")
    loop.call_later(2, fired.append, "second")
    assert len(loop.alive_timers()) == 2
    first.cancel()
    assert len(loop.alive_timers()) == 1
    assert loop.next_deadline_ns() == 2 * 10**9
    loop.advance(5)
    assert fired == ["second"]
    assert (loop.alive_timers(), loop.next_deadline_ns()) == ([], None)


def test_a_timer_cancelled_by_one_of_the_same_instant_doesnt_fire(loop: VirtualLoop) -> None:
    fired: list[str] = []
    loop.call_later(1, lambda: later.cancel())
    later = loop.call_later(1, fired.append, "later")
    loop.advance(1)
    assert fired == []


def test_stuck_is_said(loop: VirtualLoop) -> None:
    async def wait() -> None:
        await loop.create_future()

    with pytest.raises(StuckLoopError, match="would wait for ever"):
        loop.run_until_complete(wait())
    for task in asyncio.all_tasks(loop):
        task.cancel()
    loop.settle()


def test_advance_settles_at_each_deadline(loop: VirtualLoop) -> None:
    seen: list[tuple[str, int]] = []

    async def chain(name: str) -> None:
        for _ in range(3):
            await asyncio.sleep(0)
        seen.append((name, loop.time_ns()))

    loop.call_later(1, lambda: loop.create_task(chain("one")))
    loop.call_later(1.000000001, lambda: loop.create_task(chain("two")))
    loop.advance(3)
    assert seen == [("one", 10**9), ("two", 10**9 + 1)]


def test_a_stall_leaps_over_timers(loop: VirtualLoop) -> None:
    fired: list[int] = []
    loop.call_later(1, lambda: fired.append(loop.time_ns()))
    loop.stall_ns(5 * 10**9)
    assert fired == []
    loop.settle()
    assert fired == [5 * 10**9]


def test_time_never_goes_back_though_a_callback_stalls(loop: VirtualLoop) -> None:
    loop.call_later(1, loop.stall_ns, 10 * 10**9)
    loop.advance(2)
    assert loop.time() == 11


def test_step_runs_one_turn(loop: VirtualLoop) -> None:
    seen: list[str] = []
    assert not loop.step()
    loop.call_soon(lambda: (seen.append("one"), loop.call_soon(seen.append, "two")))
    loop.call_later(1, seen.append, "later")
    assert loop.step()
    assert seen == ["one"]
    assert loop.step()
    assert not loop.step()
    assert seen == ["one", "two"]
    loop.stall_ns(10**9)
    assert loop.step()
    assert seen == ["one", "two", "later"]


def test_start_runs_the_first_step_at_once_and_in_its_own_task(loop: VirtualLoop) -> None:
    seen: list[object] = []

    async def inner() -> None:
        seen.append(asyncio.current_task())
        await asyncio.sleep(0)

    async def outer() -> None:
        seen.append("before")
        loop.call_soon(seen.append, "soon")
        task = loop.start(inner())
        assert seen[-1] is task
        assert asyncio.current_task() is not task
        await task

    loop.start(outer())
    loop.settle()
    assert [str(entry) for entry in seen if isinstance(entry, str)] == ["before", "soon"]


@pytest.mark.skipif(sys.version_info < (3, 12), reason="eager tasks came with Python 3.12")
def test_start_runs_nothing_else_though_tasks_are_eager(loop: VirtualLoop) -> None:
    seen: list[str] = []
    loop.set_task_factory(asyncio.eager_task_factory)  # type: ignore[attr-defined]
    loop.call_soon(seen.append, "soon")

    async def wait() -> None:
        seen.append("started")
        await loop.create_future()

    task = loop.start(wait())
    assert seen == ["started"]
    task.cancel()
    loop.settle()
    assert seen == ["started", "soon"]


def test_contexts_go_with_timers(loop: VirtualLoop) -> None:
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="unset")
    context = contextvars.copy_context()
    context.run(variable.set, "set")
    seen: list[str] = []
    loop.call_later(1, lambda: seen.append(variable.get()), context=context)
    loop.call_at(1.0, lambda: seen.append(variable.get()), context=context)
    loop.call_later(1, lambda: seen.append(variable.get()))
    loop.advance(1)
    assert seen == ["set", "set", "unset"]


def test_there_are_no_sockets(loop: VirtualLoop) -> None:
    async def connect() -> Any:
        return await loop.create_connection(asyncio.Protocol, "127.0.0.1", 9)

    with pytest.raises((NotImplementedError, RuntimeError, AttributeError)):
        loop.run_until_complete(asyncio.wait_for(loop.sock_recv(None, 1), 1))  # type: ignore[arg-type]
    assert connect is not None


def test_a_call_from_another_thread_is_taken(loop: VirtualLoop) -> None:
    import threading

    seen: list[str] = []
    thread = threading.Thread(target=loop.call_soon_threadsafe, args=(seen.append, "from there"))
    thread.start()
    thread.join()
    loop.settle()
    assert seen == ["from there"]


def test_an_interrupted_advance_can_go_on(loop: VirtualLoop) -> None:
    seen: list[str] = []

    def interrupt() -> None:
        raise KeyboardInterrupt

    loop.call_later(1, interrupt)
    loop.call_later(1, seen.append, "same instant")
    with pytest.raises(KeyboardInterrupt):
        loop.advance(5)
    assert loop.time() == 1
    loop.advance(4)
    assert seen == ["same instant"]
