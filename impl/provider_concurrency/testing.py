"""Virtual time for asyncio: tests that never sleep and always take the same course.

    loop = VirtualLoop()
    manager = ConcurrencyManager(limits={"p": 1}, clock=loop.time_ns)

Timers fire in order of their deadlines, each when the clock has reached it exactly; the clock moves only when nothing
is left to run. `asyncio.Runner(loop_factory=VirtualLoop)` runs whole programs on it, `advance` and `settle` drive it
step by step.
"""

from __future__ import annotations

import asyncio
import heapq
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from contextlib import contextmanager
from contextvars import Context
from typing import Any, TypeVar, TypeVarTuple, Unpack

__all__ = ["StuckLoopError", "VirtualLoop"]

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class StuckLoopError(RuntimeError):
    """The loop was asked to run until something happens, and nothing ever will."""


class VirtualLoop(asyncio.BaseEventLoop):
    """An event loop whose time is an integer that moves only when nothing is left to run.

    No sockets, pipes, signals or child processes: what needs them raises NotImplementedError.
    """

    # What BaseEventLoop keeps and `_run_once` works on.
    _ready: deque[asyncio.Handle]
    _stopping: bool

    def __init__(self, start_ns: int = 0) -> None:
        """Starts at `start_ns` nanoseconds."""
        super().__init__()
        self._now = start_ns
        self._timers: list[tuple[int, int, asyncio.TimerHandle]] = []
        self._made = 0  # timers made so far; breaks ties of deadline

    # -- the clock ------------------------------------------------------------------------------------------------

    def time_ns(self) -> int:
        """The virtual time in nanoseconds: what ConcurrencyManager takes as `clock`."""
        return self._now

    def time(self) -> float:
        """The virtual time in seconds."""
        return self._now / 1e9

    def call_later(
        self, delay: float, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """Arms a timer `delay` seconds from now, exact to the nanosecond."""
        return self._call_at_ns(self._now + round(delay * 1e9), callback, args, context)

    def call_at(
        self, when: float, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """Arms a timer for the time `when` in seconds."""
        return self._call_at_ns(round(when * 1e9), callback, args, context)

    def _call_at_ns(
        self, when: int, callback: Callable[..., object], args: tuple[Any, ...], context: Context | None
    ) -> asyncio.TimerHandle:
        handle = asyncio.TimerHandle(when / 1e9, callback, args, self, context)
        self._made += 1
        heapq.heappush(self._timers, (when, self._made, handle))
        return handle

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Told by a handle that it was cancelled; it is dropped when it comes to the top."""

    def alive_timers(self) -> list[asyncio.TimerHandle]:
        """The timers that are neither cancelled nor fired."""
        return [handle for _, _, handle in self._timers if not handle.cancelled()]

    def next_deadline_ns(self) -> int | None:
        """When the next timer is due, or None."""
        while self._timers and self._timers[0][2].cancelled():
            heapq.heappop(self._timers)
        return self._timers[0][0] if self._timers else None

    # -- running --------------------------------------------------------------------------------------------------

    def _run_once(self) -> None:
        """One turn: what is ready now runs; if nothing is, time passes to the next deadline first."""
        if not self._ready and not self._stopping:
            deadline = self.next_deadline_ns()
            if deadline is None:
                raise StuckLoopError("nothing is ready and no timer is armed: the loop would wait for ever")
            self._now = max(self._now, deadline)
        self._turn()

    def _turn(self) -> None:
        """Makes due timers ready, then runs what is ready; what that makes ready waits for the next turn."""
        self._collect_due()
        for _ in range(len(self._ready)):
            handle = self._ready.popleft()
            if not handle.cancelled():
                handle._run()

    def _collect_due(self) -> None:
        while (deadline := self.next_deadline_ns()) is not None and deadline <= self._now:
            self._ready.append(heapq.heappop(self._timers)[2])

    def _process_events(self, event_list: object) -> None:
        """There are no events but timers."""

    def _write_to_self(self) -> None:
        """Nothing sleeps, so nothing has to be woken."""

    @contextmanager
    def running(self) -> Generator[None, None, None]:
        """Makes this the running loop of the thread for a block, without running anything."""
        previous = asyncio._get_running_loop()
        asyncio._set_running_loop(self)
        try:
            yield
        finally:
            asyncio._set_running_loop(previous)

    def settle(self) -> None:
        """Runs until nothing is ready; no time passes."""
        with self.running():
            while self._ready or ((deadline := self.next_deadline_ns()) is not None and deadline <= self._now):
                self._turn()

    def step(self) -> bool:
        """One turn without time passing; False if there was nothing to run."""
        with self.running():
            if not self._ready and ((deadline := self.next_deadline_ns()) is None or deadline > self._now):
                return False
            self._turn()
            return True

    def advance(self, seconds: float) -> None:
        """Lets time pass: each timer on the way fires punctually, and the loop settles after each."""
        self.advance_ns(round(seconds * 1e9))

    def advance_ns(self, ns: int) -> None:
        """`advance`, in nanoseconds."""
        end = self._now + ns
        self.settle()
        while (deadline := self.next_deadline_ns()) is not None and deadline <= end:
            self._now = max(self._now, deadline)
            self.settle()
        self._now = max(self._now, end)  # a callback may have stalled beyond it

    def stall_ns(self, ns: int) -> None:
        """The clock leaps and nothing fires meanwhile, as when a callback blocks the loop."""
        self._now += ns

    def start(self, coroutine: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Makes a task and runs its first step at once, even from within another task or callback."""
        with self.running():
            current = asyncio.current_task(self)
            if current is not None:
                asyncio.tasks._leave_task(self, current)
            try:
                task = asyncio.Task(coroutine, loop=self)  # not by a task factory: that may have run it already
                self._ready.pop()._run()
            finally:
                if current is not None:
                    asyncio.tasks._enter_task(self, current)
            return task
