"""LOP-1: none, a closed one, a second one, uvloop: what needs a loop, and what happens when it ends."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import uvloop

from provider_concurrency import ConcurrencyManager, SlotState
from provider_concurrency.testing import VirtualLoop
from support import MS, World


def test_lop_1_configuration_release_and_status_need_no_loop() -> None:
    loop = VirtualLoop()
    manager = ConcurrencyManager(limits={"p": 1}, clock=loop.time_ns)
    manager.set_limit("q", 2)
    manager.set_cooldown("q", 1)
    manager.report_rate_limit("q", 5)
    manager.resume("q")
    manager.remove_limit("p")
    assert list(manager.get_status_all()) == ["q"]
    with loop.running():
        slot = manager.try_acquire("q")
    assert slot is not None
    slot.touch()
    slot.release()  # the loop exists, and isn't running
    assert slot.state is SlotState.COOLING
    loop.close()
    manager.close()
    assert slot.state is SlotState.FREE


def test_lop_1_acquire_needs_a_loop() -> None:
    manager = ConcurrencyManager(limits={"p": 1})
    with pytest.raises(RuntimeError, match="no running event loop"):
        manager.try_acquire("p")
    waiting = manager.acquire("p")
    with pytest.raises(RuntimeError, match="no running event loop"):
        waiting.send(None)
    assert manager.get_status("p").in_flight == 0  # type: ignore[union-attr]
    manager.close()


def test_lop_1_without_a_loop_what_is_due_is_applied_by_the_next_operation(make: Callable[..., World]) -> None:
    world = make(limits={"p": 1})
    world.manager.report_rate_limit("p", 5)
    world.loop.stall_ns(5000 * MS)
    assert world.figures() == (0, 0, 0, 0)
    assert not world.status().paused  # type: ignore[union-attr]


def test_lop_1_an_observer_is_told_in_time_of_a_pause_reported_before_any_acquire(
    make_watched: Callable[..., World],
) -> None:
    world = make_watched(limits={"p": 1})
    world.manager.report_rate_limit("q", 1)  # no loop runs: nobody can wake
    assert world.timers() == 0
    with world.loop.running():
        world.manager.report_rate_limit("p", 2)
    world.pass_ms(2000)
    assert [(e.kind, e.provider) for e in world.events] == [("paused", "q"), ("paused", "p"), ("resumed", "p")]
    assert world.status("q") is None
    assert world.hold().state is SlotState.HELD


def test_lop_1_a_second_open_loop_is_refused(make: Callable[..., World]) -> None:
    """Bug 68: when it would have to queue; what is granted at once needs no loop to wake it."""
    world = make(limits={"p": 1})
    world.hold()
    other = VirtualLoop()
    try:
        with world.unchanged():
            refused = other.start(world.manager.acquire("p"))
            with pytest.raises(RuntimeError, match="serves another event loop, which is still open"):
                refused.result()
        assert other.start(world.manager.acquire("new")).result().state is SlotState.HELD
    finally:
        other.close()
    assert world.ask("new").done()


def test_lop_1_a_closed_loop_is_noticed_and_the_next_one_served() -> None:
    """Bug 71: waiters of a closed loop end as cancelled, holders go on counting, deadlines stand."""
    first, second = VirtualLoop(), VirtualLoop()
    clock = first
    world = World(
        watched=True, limits={"p": 1, "q": 1}, slot_timeout=5, watchdog_interval=1, clock=lambda: clock.time_ns()
    )
    world.loop.close()
    world.loop = first
    held = world.hold("p")
    waiter = world.ask("p", timeout=3)
    world.manager.report_rate_limit("q", 4)
    other = world.ask("q")
    first.advance(1)
    world.events.clear()
    first.close()
    assert world.figures("p") == (1, 0, 0, 0)
    assert world.figures("q") == (0, 0, 0, 0)
    assert sorted(world.told()) == [("cancelled", 2), ("cancelled", 3)]
    second._now = first._now
    clock = world.loop = second
    queued, behind_the_pause = world.ask("p"), world.ask("q")
    second.advance(2.999)
    assert not behind_the_pause.done()
    second.advance(0.001)
    assert behind_the_pause.done()
    assert not queued.done()
    second.advance(2)  # 6 s after the grant the watchdog takes the slot of the dead loop
    assert held.reclaimed
    second.advance(0.2)
    assert queued.result().state is SlotState.HELD
    world.finish()
    assert not waiter.done()
    assert not other.done()
    for task in (waiter, other):
        task._log_destroy_pending = False  # type: ignore[attr-defined]


def test_lop_1_an_undelivered_grant_of_a_closed_loop_is_given_back() -> None:
    loop = VirtualLoop()
    manager = ConcurrencyManager(limits={"p": 1}, release_cooldown=0, clock=loop.time_ns)
    with loop.running():
        holder = manager.try_acquire("p")
    waiter = loop.start(manager.acquire("p"))
    assert holder is not None
    holder.release()
    assert manager.get_status("p").held == 1  # type: ignore[union-attr]
    loop.close()
    assert manager.get_status("p").held == 0  # type: ignore[union-attr]
    assert not waiter.done()
    waiter._log_destroy_pending = False  # type: ignore[attr-defined]
    manager.close()


@pytest.mark.parametrize("is_watched", [True, False])
def test_lop_1_closing_after_the_loop_was_closed_raises_nothing(is_watched: bool) -> None:
    """Whoever still waited for the close, on the closed loop, is beyond help."""
    loop = VirtualLoop()
    manager = ConcurrencyManager(clock=loop.time_ns, observer=(lambda *_: None) if is_watched else None)
    with loop.running():
        slot = manager.try_acquire("p")
    assert slot is not None
    waiting = loop.start(manager.wait_closed())
    loop.close()
    manager.close()
    slot.release()
    assert slot.state is SlotState.FREE
    assert not waiting.done()
    waiting._log_destroy_pending = False  # type: ignore[attr-defined]


RUNNERS: dict[str, Callable[[Coroutine[Any, Any, Any]], Any]] = {
    "asyncio": asyncio.run,
    "uvloop": uvloop.run,
    "virtual": lambda main: asyncio.Runner(loop_factory=VirtualLoop).run(main),
}


@pytest.mark.realtime
@pytest.mark.parametrize("run", [RUNNERS["asyncio"], RUNNERS["uvloop"]], ids=["asyncio", "uvloop"])
def test_bug_68_run_after_run_contended_or_not(run: Callable[[Coroutine[Any, Any, Any]], Any]) -> None:
    manager = ConcurrencyManager(limits={"p": 2}, release_cooldown=0.001)
    peak = running = 0

    async def work() -> None:
        nonlocal peak, running
        async with manager.slot("p", timeout=30):
            running += 1
            peak = max(peak, running)
            await asyncio.sleep(0.005)
            running -= 1

    async def main(tasks: int) -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(tasks):
                group.create_task(work())

    for tasks in (1, 10, 2, 10):
        run(main(tasks))
    assert peak == 2
    manager.close()
    assert manager.get_status_all()["p"].in_flight == 0


@pytest.mark.realtime
@pytest.mark.parametrize("run", [RUNNERS["asyncio"], RUNNERS["uvloop"]], ids=["asyncio", "uvloop"])
def test_lop_1_sweeps_pauses_and_timeouts_on_a_real_loop(run: Callable[[Coroutine[Any, Any, Any]], Any]) -> None:
    async def main() -> list[str]:
        manager = ConcurrencyManager(
            limits={"p": 1}, release_cooldown=0.01, slot_timeout=0.03, watchdog_interval=0.02, min_pause=0
        )
        told: list[str] = []
        stuck = await manager.acquire("p")
        with contextlib.suppress(TimeoutError):
            await manager.acquire("p", timeout=0.005)
            told.append("not timed out")
        second = await manager.acquire("p", timeout=10)
        told.append("reclaimed" if stuck.reclaimed else "lost")
        manager.report_rate_limit("p", 0.02)
        second.release()
        third = await manager.acquire("p", timeout=10)
        told.append(third.state.value)
        manager.close()
        return told

    assert run(main()) == ["reclaimed", "held"]


def test_lop_1_a_loop_that_moves_to_another_thread_is_still_the_managers() -> None:
    import threading

    loop = VirtualLoop()
    manager = ConcurrencyManager(limits={"p": 1}, clock=loop.time_ns, release_cooldown=0)
    first = loop.run_until_complete(manager.acquire("p"))
    first.release()
    slots = []

    def use() -> None:
        for _ in range(2):
            slots.append(loop.run_until_complete(manager.acquire("p")))
            slots[-1].release()

    thread = threading.Thread(target=use)
    thread.start()
    thread.join()
    assert [slot.state for slot in slots] == [SlotState.FREE, SlotState.FREE]
    loop.close()
    manager.close()
