"""What the asyncio manager needs of a loop: waiters, timers, threads, and the loop's own end.

The core says when something is due; here that becomes the one timer of a provider and the one of the sweeps (TIM-4).
The core says who may act; here that is the thread of the running loop (THR-1), until the loop is closed (LOP-1) or the
process is forked (FRK-1).
"""

from __future__ import annotations

import asyncio
import warnings
from _thread import get_ident
from collections.abc import Callable
from typing import Any, Final, cast

from provider_concurrency.core import log
from provider_concurrency.fork import forget_in_children
from provider_concurrency.provider import Provider
from provider_concurrency.slot import Slot
from provider_concurrency.surface import Surface

_MAX_DELAY_NS: Final = 86_400 * 1_000_000_000
"""No loop is asked for more (TIM-4): what is later is re-armed when this is over."""
_MIN_REARM_NS: Final = 1_000_000
"""A timer that fired early isn't re-armed for less: uvloop counts whole milliseconds."""
_SUSPICIOUS_EARLY: Final = 20
"""So many early timers in a row mean that the loop runs on another clock than the manager."""
_SWEEP_TURNS: Final = 8
"""Turns of the loop between the sweeps' timer and the judgement (WAT-1)."""


_OTHER_LOOP: Final = "this manager serves another event loop, which is still open"

_cancel: Final = asyncio.Future[None].cancel
"""Named once, since `super()` is made anew in each call."""


class Waiter(asyncio.Future[None]):
    """What a queued caller awaits."""

    __slots__ = ("slot",)  # without, each would have a dict of its own

    slot: Slot

    def cancel(self, msg: Any | None = None) -> bool:
        """Withdraws the request now (CAN-1, CAN-2), not when the caller's task runs next."""
        slot = self.slot
        try:
            slot._provider.manager._cancel_request(slot)
        finally:
            slot._waiter = None
            cancelled = _cancel(self, msg)
        return cancelled


class LoopShell(Surface):
    """The core on an asyncio event loop."""

    _loop: asyncio.AbstractEventLoop | None
    _thread: int  # the loop's thread
    _maker: int  # the thread that made the manager
    _is_loop_closed: Callable[[], bool]  # of the loop that is served; without one: never
    _resting_home: int  # what `_home` is while no operation runs
    _is_concluding: bool  # somebody up the stack lets what was put off act
    _sweep_handle: asyncio.Handle | None
    _early: int  # timers in a row that found their deadline ahead
    _close_waiters: set[asyncio.Future[None]]

    def _set_up(self) -> None:
        self._serve(None)
        self._maker = get_ident()
        self._resting_home = 0
        self._is_concluding = False
        self._sweep_handle = None
        self._early = 0
        self._close_waiters = set()
        forget_in_children(self)

    # -- one operation at a time ----------------------------------------------------------------------------------

    def _operate(self, change: Callable[..., object], *args: Any) -> None:
        if self._busy:
            self._deferred.append((change, args))
            return
        self._busy = True
        self._home = 0
        self._op += 1
        try:
            if self._is_loop_closed():
                self._lose_loop()
            change(*args)
        finally:
            self._busy = False
            self._home = self._resting_home
            if self._deferred or self._line.waiting:
                self._conclude()

    def _conclude(self) -> None:
        if self._busy or self._is_concluding:
            return
        self._is_concluding = True
        try:
            while self._deferred:
                change, args = self._deferred.popleft()
                self._operate(change, *args)
        finally:
            self._is_concluding = False
        self._line.deliver()

    # -- waiters and callbacks ------------------------------------------------------------------------------------

    def _make_waiter(self, slot: Slot) -> object:
        if asyncio.get_running_loop() is not self._loop:
            raise RuntimeError(f"acquire: {_OTHER_LOOP}")
        waiter = Waiter(loop=self._loop)
        waiter.slot = slot
        return waiter

    def _settle(self, slot: Slot) -> None:
        waiter: Waiter | None = slot._waiter  # type: ignore[assignment] # `_make_waiter` made it
        slot._waiter = None  # no cycle is left to the collector
        if waiter is not None:
            try:
                waiter.set_result(None)
            except asyncio.InvalidStateError:  # it is over already: its caller will find that out, and gives back
                return

    def _report_failure(self, error: Exception, callback: Callable[..., object]) -> None:
        message = f"provider_concurrency: the callback {callback!r} raised"
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_exception_handler({"message": message, "exception": error})
        else:
            log.error(message, exc_info=error)

    # -- threads and loops ----------------------------------------------------------------------------------------

    def _is_foreign(self) -> bool:
        return self._loop is not None and get_ident() != self._thread and not self._loop.is_closed()

    def _apply_due(self, provider: Provider) -> None:
        # Without a loop whoever made the manager is the owner: others may read while its loop is about to start.
        has_loop = self._loop is not None and not self._loop.is_closed()
        if not self._busy and get_ident() == (self._thread if has_loop else self._maker):
            self._operate(self._catch_up_and_rest, provider)

    def _hand_over(self, change: Callable[..., object], *args: Any) -> None:
        self._deferred.append((change, args))
        try:
            cast(asyncio.AbstractEventLoop, self._loop).call_soon_threadsafe(self._conclude)
        except RuntimeError:  # the loop was closed meanwhile: nobody else will do it
            self._conclude()

    def _bind(self, what: str) -> None:
        """Serves the running loop from now on; a second, open one is refused (LOP-1)."""
        loop = asyncio.get_running_loop()
        if self._busy:
            raise RuntimeError(f"{what} called while the manager is changing state (from a finaliser or a signal)")
        if self._loop is not loop:
            if self._loop is not None and not self._loop.is_closed():
                raise RuntimeError(f"{what}: {_OTHER_LOOP}")
            self._operate(self._adopt, loop)
        elif self._thread != get_ident():
            self._thread = get_ident()
            self._measure_home()

    def _adopt(self, loop: asyncio.AbstractEventLoop) -> None:
        self._serve(loop)
        now = self._clock()
        for p in list(self._providers.values()):
            self._rest(p, now)
        if self._holds_any():
            self._announce_sweep(now)
        self._measure_home()

    def _lose_loop(self) -> None:
        self._serve(None)
        self._sweep_handle = None
        self._drop_waiters()
        self._measure_home()

    def _serve(self, loop: asyncio.AbstractEventLoop | None) -> None:
        """From now on this loop, which runs in this thread, or none."""
        self._loop = loop
        self._thread = 0 if loop is None else get_ident()
        self._is_loop_closed = bool if loop is None else loop.is_closed

    def _measure_home(self) -> None:
        """Opens the short ways: a loop, a sweep announced for whoever is granted next, and no observer to be told."""
        is_open = not self._closed and self._loop is not None and self._sweep_at is not None
        self._resting_home = self._thread if is_open and self._observer is None else 0

    def _forget_parent(self) -> None:
        """In a forked child (FRK-1)."""
        self._disarm_sweep()
        self._serve(None)
        self._home = self._resting_home = 0
        self._maker = get_ident()
        self._is_concluding = False
        self._close_waiters.clear()
        self._forget_slots()

    # -- timers ---------------------------------------------------------------------------------------------------

    def _arm(self, provider: Provider, deadline: int, now: int) -> None:
        self._disarm(provider)
        if self._loop is None and (running := asyncio._get_running_loop()) is not None:
            # An observer waits for a deadline that was set before any acquire: this loop can wake for it.
            self._serve(running)
            self._measure_home()
        if self._loop is not None:
            provider.timer_at = min(deadline, now + _MAX_DELAY_NS)
            provider.timer = self._call_at(provider.timer_at, now, self._on_timer, provider)

    def _disarm(self, provider: Provider) -> None:
        if provider.timer is not None:
            cast(asyncio.TimerHandle, provider.timer).cancel()
            provider.timer = None

    def _on_timer(self, provider: Provider) -> None:
        provider.timer = None
        is_early = self._count_early(provider.timer_at)
        self._operate(self._catch_up_and_rest, provider)
        self._warn_early(is_early)

    def _arm_sweep(self, now: int) -> None:
        if self._loop is not None and self._sweep_at is not None:  # pragma: no branch - a sweep is announced on a loop
            target = min(self._sweep_at, now + _MAX_DELAY_NS)
            self._sweep_handle = self._call_at(target, now, self._on_sweep_timer, target)

    def _disarm_sweep(self) -> None:
        if self._sweep_handle is not None:
            self._sweep_handle.cancel()
            self._sweep_handle = None

    def _on_sweep_timer(self, target: int) -> None:
        is_early = self._count_early(target)
        now = self._clock()
        if self._sweep_at is not None and now < self._sweep_at:
            self._arm_sweep(now)
            self._warn_early(is_early)
        else:
            self._await_sweep(_SWEEP_TURNS)

    def _await_sweep(self, turns: int) -> None:
        """Lets whatever was held back have its step, and its touch, before it is judged (WAT-1)."""
        if turns:
            loop = cast(asyncio.AbstractEventLoop, self._loop)
            self._sweep_handle = loop.call_soon(self._await_sweep, turns - 1)
        else:
            self._sweep_handle = None
            self._operate(self._sweep)

    def _call_at(self, target: int, now: int, callback: Callable[..., object], *args: Any) -> asyncio.TimerHandle:
        remaining = max(target - now, _MIN_REARM_NS if self._early else 0)
        return cast(asyncio.AbstractEventLoop, self._loop).call_later(remaining / 1e9, callback, *args)

    def _count_early(self, target: int) -> bool:
        """Whether a timer has fired before its time, which changes nothing but that it is re-armed (TIM-2)."""
        is_early = self._clock() < target
        self._early = self._early + 1 if is_early else 0
        return is_early

    def _warn_early(self, is_early: bool) -> None:
        if is_early and self._early == _SUSPICIOUS_EARLY:
            warnings.warn(
                "the event loop's timers keep firing before the manager's clock has reached their time: does the loop "
                "run on virtual time? Then pass clock= to ConcurrencyManager",
                RuntimeWarning,
                stacklevel=2,
            )
