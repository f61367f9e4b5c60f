"""FRK-1: a forked child keeps configuration and pauses, and nothing else."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import textwrap

import pytest

from provider_concurrency import SlotState, fork
from support import World

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")

PROLOGUE = """
import asyncio, os, sys, warnings
warnings.simplefilter("ignore", DeprecationWarning)  # that a process with threads forks
from provider_concurrency import ConcurrencyManager, SlotState

def in_child(check):
    '''Runs check in a forked child; the parent fails with it.'''
    pid = os.fork()
    if pid == 0:
        try:
            check()
        except BaseException:
            import traceback
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0, "the child failed"
"""


def run(program: str) -> None:
    """Runs a program of its own; what it says on stderr is shown when it fails, and is not expected."""
    done = subprocess.run(
        [sys.executable, "-c", PROLOGUE + textwrap.dedent(program)], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""


def test_frk_1_a_forked_child_keeps_configuration_and_pauses() -> None:
    """Bug 66: the child starts without slots, queue, timers and loop; the parent is unaffected."""
    run(
        """
        async def main():
            manager = ConcurrencyManager(limits={"p": 1}, release_cooldown=0.01, slot_timeout=1, watchdog_interval=0.5)
            manager.set_cooldown("c", 2)
            held = await manager.acquire("p")
            (await manager.acquire("c")).release()
            waiter = asyncio.create_task(manager.acquire("p"))
            await asyncio.sleep(0)
            manager.report_rate_limit("q", 50)
            await manager.acquire("unlimited")

            def check():
                asyncio._set_running_loop(None)
                status = manager.get_status_all()
                assert list(status) == ["p", "c", "q"], status
                assert (status["p"].in_flight, status["p"].queued, status["p"].limit) == (0, 0, 1)
                assert (status["c"].in_flight, manager.get_cooldown("c")) == (0, 2)
                assert status["q"].paused
                assert held.state is SlotState.FREE
                held.release()
                held.touch()
                assert manager.get_status("p").in_flight == 0

                async def use():
                    slot = await manager.acquire("p")
                    other = asyncio.create_task(manager.acquire("p", timeout=5))
                    await asyncio.sleep(0)
                    slot.release()
                    assert (await other).state is SlotState.HELD
                    assert manager.try_acquire("q") is None
                asyncio.run(use())
                manager.close()

            in_child(check)
            status = manager.get_status("p")
            assert (status.held, status.queued) == (1, 1)
            held.release()
            assert (await waiter).state is SlotState.HELD
            manager.close()
        asyncio.run(main())
        """
    )


def test_frk_1_a_child_that_cancels_the_parents_tasks_is_sound() -> None:
    """Their requests aren't the child's: the cancel of one must not reach into the child's own queue."""
    run(
        """
        async def main():
            manager = ConcurrencyManager(default_limit=1, release_cooldown=0, slot_timeout=9, watchdog_interval=0.01)
            held, other = await manager.acquire("p"), await manager.acquire("r")
            queued = [asyncio.create_task(manager.acquire("p", timeout=9)) for _ in range(3)]
            handed = asyncio.create_task(manager.acquire("r"))
            manager.set_cooldown("c", 9)
            cooling = await manager.acquire("c")
            cooling.release()
            await asyncio.sleep(0)
            other.release()

            def check():
                queued.pop().cancel()

                async def use():
                    mine = await manager.acquire("p")
                    waiting = asyncio.create_task(manager.acquire("p", timeout=9))
                    await asyncio.sleep(0)
                    for task in (*queued, handed):
                        task.cancel()
                    status = manager.get_status("p")
                    assert (status.held, status.queued) == (1, 1), status
                    mine.release()
                    (await waiting).release()
                    assert list(manager.get_status_all()) == ["c"]
                asyncio.run(use())
                assert cooling.state is SlotState.FREE
                manager.close()

            in_child(check)
            held.release()
            for task in queued:
                await asyncio.sleep(0)
                (await task).release()
            (await handed).release()
            manager.close()
        asyncio.run(main())
        """
    )


def test_frk_1_a_fork_out_of_a_callback() -> None:
    """The child is in the middle of a delivery that is the parent's."""
    run(
        """
        heard = []
        def on_pause(provider, seconds):
            heard.append(provider)
            if provider == "p":
                manager.report_rate_limit("q", 5)
                in_child(check)

        def check():
            assert heard == ["p"]
            manager.report_rate_limit("r", 5)
            assert heard == ["p", "r"], heard
            assert sorted(manager.get_status_all()) == ["p", "q", "r"]

        manager = ConcurrencyManager(on_pause=on_pause)
        manager.report_rate_limit("p", 5)
        assert heard == ["p", "q"], heard
        manager.close()
        """
    )


@pytest.mark.parametrize("watched", [True, False])
def test_frk_1_what_the_child_forgets(watched: bool) -> None:
    """The same without a fork: what the hook does, step by step."""
    world = World(watched=watched, default_limit=1, limits={"p": 1}, slot_timeout=1, watchdog_interval=1)
    try:
        forget_and_look(world)
    finally:
        world.abandon()


def forget_and_look(world: World) -> None:
    manager = world.manager
    stuck, held = world.hold("stuck"), world.hold("p")
    world.loop.advance(1.5)
    held.touch()
    cooling, handed_over = world.hold("c"), world.hold("r")
    manager.set_cooldown("r", 0)
    handed = world.ask("r")
    world.loop.advance(0.5)
    cooling.release()
    assert stuck.reclaimed
    queued = world.ask("p", timeout=5)
    manager.report_rate_limit("q", 50)
    handed_over.release()
    fork._forget_parents()
    world.watched = False  # it wasn't told, and needn't be
    world.auditor.states.clear()
    world.auditor.counts.clear()
    world.auditor.keys.clear()
    assert world.timers() == 0
    assert [slot.state for slot in (stuck, held, cooling)] == [SlotState.FREE] * 3
    assert (stuck.reclaimed, held.reclaimed) == (True, False)
    assert {name: world.figures(name) for name in ("p", "c", "stuck")} == {"p": (0, 0, 0, 0), "c": None, "stuck": None}
    assert manager.get_status("q").paused  # type: ignore[union-attr]
    assert manager.get_cooldown("r") == 0
    with world.unchanged():
        queued.cancel()
        for slot in (stuck, held, cooling):
            slot.release()
            slot.touch()
    with pytest.raises(asyncio.CancelledError):
        world.loop.run_until_complete(handed)
    world.auditor.wrong.clear()
    assert world.hold("p").state is SlotState.HELD
    manager.close()
