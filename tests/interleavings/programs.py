"""Small programs on the real manager, each with what must hold at its end whatever the schedule.

`monitored` runs a program's tasks with the lifecycle monitor as the manager's observer; at the end nothing is held,
nothing waits, no timer is left, and the monitor has seen no rule broken.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from interleavings.explorer import PermutedLoop, Program
from provider_concurrency import AcquireTimeoutError, ConcurrencyManager, ManagerClosedError
from provider_concurrency_model.monitor import Monitor

Spawn = Callable[..., "asyncio.Task[Any]"]
Body = Callable[[Any, Spawn], Awaitable[None]]


class Releasable(Protocol):
    def release(self) -> None: ...


class Manager(Protocol):
    """What the programs use of a manager; the planted race has it, too."""

    async def acquire(self, provider: str, **options: Any) -> Releasable: ...


def monitored(body: Body, *, is_eager: bool = False, **settings: Any) -> Program:
    """A program of the explorer: the body on a fresh manager, then the checks."""

    def program(loop: PermutedLoop) -> None:
        if is_eager:
            loop.set_task_factory(asyncio.eager_task_factory)  # type: ignore[attr-defined] # 3.12+
        known = {"release_cooldown": 0.01, "limits": {"p": 1}} | settings
        monitor = Monitor.from_seconds(**known)
        manager = ConcurrencyManager(**known, clock=loop.time_ns, observer=monitor)
        tasks: list[asyncio.Task[Any]] = []

        def spawn(coroutine: Any) -> asyncio.Task[Any]:
            tasks.append(loop.create_task(coroutine))
            return tasks[-1]

        async def main() -> None:
            await body(manager, spawn)
            await asyncio.gather(*tasks, return_exceptions=True)

        loop.run_until_complete(main())
        loop.advance(1.0)  # cooldowns end
        for task in tasks:
            if not task.cancelled() and (error := task.exception()) is not None:
                assert isinstance(error, AcquireTimeoutError | ManagerClosedError), error
        status = manager.get_status("p")
        assert status is not None, "the limit is state"
        assert (status.in_flight, status.queued) == (0, 0), status
        manager.close()
        assert not loop.alive_timers(), "a timer outlived close"
        monitor.assert_at_rest()

    return program


async def use(manager: Manager, **options: Any) -> None:
    """Takes a slot, lets the loop run once, gives it back."""
    slot = await manager.acquire("p", **options)
    try:
        await asyncio.sleep(0)
    finally:
        slot.release()


async def two_waiters(manager: Manager, spawn: Spawn) -> None:
    """A holder and two waiters."""
    for _ in range(3):
        spawn(use(manager))


async def cancel_a_waiter(manager: Manager, spawn: Spawn) -> None:
    """The second waiter is cancelled at whatever point it is."""
    spawn(use(manager))
    victim = spawn(use(manager))
    spawn(use(manager))
    await asyncio.sleep(0)
    victim.cancel()


async def cancel_under_wait_for(manager: Manager, spawn: Spawn) -> None:
    """A waiter under wait_for is cancelled (cases 4 and 73)."""

    async def waiting() -> None:
        slot = await asyncio.wait_for(manager.acquire("p"), 5)
        slot.release()

    spawn(use(manager))
    victim = spawn(waiting())
    await asyncio.sleep(0)
    victim.cancel()


async def timeout_meets_cooldown(manager: Manager, spawn: Spawn) -> None:
    """A waiter's timeout and the cooldown that would let it in end in one iteration (CAN-3)."""
    spawn(use(manager))
    spawn(use(manager, timeout=0.01))
    spawn(use(manager, timeout=0.02))


async def pause_meets_cancel(manager: ConcurrencyManager, spawn: Spawn) -> None:
    """The pause ends and the head of the queue is cancelled in one iteration (case 10)."""
    manager.report_rate_limit("p", 1.0)
    head = spawn(use(manager, prompt_started_at=1.0))
    spawn(use(manager, prompt_started_at=2.0))

    async def cancel_at_the_end() -> None:
        await asyncio.sleep(1.0)
        head.cancel()

    spawn(cancel_at_the_end())


async def raise_lower_resume(manager: ConcurrencyManager, spawn: Spawn) -> None:
    """Limit changes and a 429 among waiters (cases 34, 59)."""

    async def steer() -> None:
        manager.set_limit("p", 2)
        await asyncio.sleep(0)
        manager.report_rate_limit("p", 1.0)
        await asyncio.sleep(0)
        manager.set_limit("p", 1)
        manager.resume("p")

    for _ in range(3):
        spawn(use(manager))
    spawn(steer())


async def close_among_waiters(manager: ConcurrencyManager, spawn: Spawn) -> None:
    """The manager is closed at whatever point the others are (case 60)."""

    async def end() -> None:
        await asyncio.sleep(0)
        manager.close()

    for _ in range(3):
        spawn(use(manager))
    spawn(end())


async def sweep_meets_touch(manager: ConcurrencyManager, spawn: Spawn) -> None:
    """A holder touches in the iteration in which the watchdog judges it; another one waits (WAT-1)."""

    async def hold() -> None:
        slot = await manager.acquire("p")
        await asyncio.sleep(0.06)
        slot.touch()
        await asyncio.sleep(0.03)
        slot.release()

    spawn(hold())
    spawn(use(manager))


PROGRAMS: dict[str, Program] = {
    "two waiters": monitored(two_waiters),
    "two waiters, no cooldown": monitored(two_waiters, release_cooldown=0.0),
    "cancel a waiter": monitored(cancel_a_waiter),
    "cancel a waiter, no cooldown": monitored(cancel_a_waiter, release_cooldown=0.0),
    "cancel under wait_for": monitored(cancel_under_wait_for),
    "timeout meets cooldown": monitored(timeout_meets_cooldown),
    "pause meets cancel": monitored(pause_meets_cancel, release_cooldown=0.0),
    "raise, lower, pause, resume": monitored(raise_lower_resume),
    "close among waiters": monitored(close_among_waiters),
    "sweep meets touch": monitored(sweep_meets_touch, slot_timeout=0.05, watchdog_interval=0.06),
}
"""By name; a failing schedule's file names one of these."""
if hasattr(asyncio, "eager_task_factory"):
    PROGRAMS |= {
        "two waiters, eager": monitored(two_waiters, is_eager=True),
        "cancel a waiter, eager": monitored(cancel_a_waiter, is_eager=True),
    }


class RacyManager:
    """The fault that the explorer must find: an admission that awaits between the look and the leap."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.in_flight = self.peak = 0

    async def acquire(self, _provider: str, **_: Any) -> Releasable:
        while self.in_flight >= self.limit:  # noqa: ASYNC110 - polling is part of the fault
            await asyncio.sleep(0.001)
        await asyncio.sleep(0)  # say, an await of a lock or of a database
        self.in_flight += 1
        self.peak = max(self.peak, self.in_flight)
        return self

    def release(self) -> None:
        self.in_flight -= 1


def racy(loop: PermutedLoop) -> None:
    """Two callers of the racy manager at limit 1; by habit's schedule the second looks when the first has leapt."""
    manager = RacyManager(1)

    async def late() -> None:
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        await use(manager)

    async def main() -> None:
        await asyncio.gather(use(manager), late())

    loop.run_until_complete(main())
    assert manager.peak <= manager.limit, f"{manager.peak} in flight at limit {manager.limit}"


PROGRAMS["planted: an admission that awaits"] = racy
