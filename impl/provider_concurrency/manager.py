"""The asyncio manager: the core's decisions turned into futures, timers and cancellation.

The shell decides nothing. A queued caller awaits one future whose `cancel` reports to the core at once, so that a
cancelled request leaves the queue in the very call that cancels it (CAN-1). The future is settled without a value:
the slot's state says how the wait ended.
"""

from __future__ import annotations

import asyncio
import os
import time
import warnings
import weakref
from _thread import get_ident
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, Self, cast

from provider_concurrency._tags import HANDED, HELD, NEW, QUEUED, REJECTED, TIMED_OUT
from provider_concurrency.core import log
from provider_concurrency.errors import AcquireTimeoutError, ManagerClosedError
from provider_concurrency.provider import Provider
from provider_concurrency.settings import Observer, read_settings
from provider_concurrency.slot import Slot
from provider_concurrency.surface import Surface
from provider_concurrency.validation import (
    MAX_SECONDS,
    check_callback,
    check_conversation,
    check_duration,
    check_number,
    check_provider,
)

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager
    from types import TracebackType

__all__ = ["ConcurrencyManager"]

_MAX_DELAY_NS: Final = 86_400 * 1_000_000_000
"""No loop is asked for more (TIM-4): what is later is re-armed when this is over."""
_MIN_REARM_NS: Final = 1_000_000
"""A timer that fired early isn't re-armed for less: uvloop counts whole milliseconds."""
_SUSPICIOUS_EARLY: Final = 20
"""So many early timers in a row mean that the loop runs on another clock than the manager."""
_SWEEP_TURNS: Final = 8
"""Turns of the loop between the sweeps' timer and the judgement (WAT-1)."""

_INF: Final = float("inf")
_new_slot: Final[Callable[[type[Slot]], Slot]] = object.__new__


def _are_plain(conversation: object, prompt: object, timeout: object) -> bool:
    """Whether a request's arguments are plainly legal; the judgement of the rest isn't urgent."""
    return (
        (conversation is None or conversation.__class__ is str)
        and (prompt is None or (isinstance(prompt, float) and -_INF < prompt < _INF))
        and (timeout is None or (isinstance(timeout, float) and 0.0 <= timeout <= MAX_SECONDS))
    )


class _Waiter(asyncio.Future[None]):
    """What a queued caller awaits."""

    slot: Slot

    def cancel(self, msg: Any | None = None) -> bool:
        """Withdraws the request now (CAN-1, CAN-2), not when the caller's task runs next."""
        try:
            self.slot._provider.manager._cancel_request(self.slot)
        finally:
            cancelled = super().cancel(msg)
        return cancelled


class _SlotContext:
    """`async with manager.slot(...)`; deliberately no `with` (CAN-2, REL-1)."""

    __slots__ = ("_arguments", "_manager", "_provider", "_slot")

    def __init__(self, manager: ConcurrencyManager, provider: str, **arguments: Any) -> None:
        self._manager = manager
        self._provider = provider
        self._arguments = arguments
        self._slot: Slot | None = None

    async def __aenter__(self) -> Slot:
        if self._slot is not None:
            raise RuntimeError("what manager.slot() returns can be entered only once")
        self._slot = await self._manager.acquire(self._provider, **self._arguments)
        return self._slot

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._slot is not None:
            self._slot.release()

    def __enter__(self) -> None:
        raise TypeError("manager.slot(...) needs `async with`")

    def __exit__(self, *_: object) -> None:
        """Never reached: __enter__ raises. It stands here so that `with` gets as far as the hint."""


class ConcurrencyManager(Surface):
    """Admits at most N requests at once per provider, and keeps a released slot closed until it has cooled.

    Durations are seconds. `limits`: own limits by provider; `default_limit`: for all others (None: unlimited, 0:
    nobody). `release_cooldown`: how long a released slot still counts. `slot_timeout`: a slot untouched for longer is
    reclaimed at the next sweep (None: never), sweeps every `watchdog_interval`. `default_pause`, `min_pause`,
    `max_pause`: how long a 429 pauses (PAU-2). `max_queued`: longest queue per provider (None: no bound). `clock`:
    integer nanoseconds, monotonic; `wall_clock`: epoch seconds. `observer`, `on_reclaim(slot)`, `on_pause(provider,
    seconds)`: called after the state change that they tell of (CAL-1..4).

    Making and configuring one needs no running loop (LOP-1). Raises TypeError or ValueError, naming the argument.
    """

    def __init__(
        self,
        *,
        limits: Mapping[str, int] | None = None,
        default_limit: int | None = None,
        release_cooldown: float = 0.2,
        slot_timeout: float | None = 300.0,
        watchdog_interval: float = 30.0,
        default_pause: float = 30.0,
        min_pause: float = 1.0,
        max_pause: float = 21600.0,
        max_queued: int | None = None,
        clock: Callable[[], int] = time.monotonic_ns,
        wall_clock: Callable[[], float] = time.time,
        observer: Observer | None = None,
        on_reclaim: Callable[[Slot], object] | None = None,
        on_pause: Callable[[str, float], object] | None = None,
    ) -> None:
        """See the class."""
        super().__init__(
            read_settings(
                limits=limits,
                default_limit=default_limit,
                release_cooldown=release_cooldown,
                slot_timeout=slot_timeout,
                watchdog_interval=watchdog_interval,
                default_pause=default_pause,
                min_pause=min_pause,
                max_pause=max_pause,
                max_queued=max_queued,
                clock=clock,
                wall_clock=wall_clock,
                observer=observer,
                on_reclaim=on_reclaim,
                on_pause=on_pause,
            )
        )
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = 0  # the loop's thread
        self._sweep_handle: asyncio.Handle | None = None
        self._early = 0  # timers in a row that found their deadline ahead
        self._close_waiters: set[asyncio.Future[None]] = set()
        _managers.add(self)

    # -- acquire --------------------------------------------------------------------------------------------------

    async def acquire(
        self,
        provider: str,
        *,
        conversation_id: str | None = None,
        prompt_started_at: float | None = None,
        timeout: float | None = None,
        on_queued: Callable[[], object] | None = None,
    ) -> Slot:
        """Waits for a slot: granted at once if there is room, else queued, the oldest prompt first (ADM-1, ORD-1).

        `prompt_started_at`: when the user's prompt began, on one scale for all callers of a provider (default: epoch
        seconds now); `timeout`: seconds to stay queued at most (0: don't queue); `on_queued()`: called once if the
        request queues (CAL-1). A cancelled caller leaves the queue at once, or gives the slot back (CAN-1, CAN-2).

        Raises AcquireTimeoutError (CAN-3), QueueFullError (ADM-7), ManagerClosedError (CLO-1, CLO-2), TypeError,
        ValueError, and RuntimeError from a foreign thread or a second open loop (THR-1, LOP-1).
        """
        try:
            p = self._providers[provider]
        except (KeyError, TypeError):  # unknown, or no str
            p = None
        if (
            p is not None
            and len(p.held) < p.cap
            and get_ident() == self._home
            and not self._loop.is_closed()  # type: ignore[union-attr] # `_home` isn't 0: there is a loop
            and (
                (conversation_id is None and prompt_started_at is None and timeout is None)
                or _are_plain(conversation_id, prompt_started_at, timeout)
            )
        ):
            slot = _new_slot(Slot)
            slot._provider = p
            slot._arrival = self._arrivals = self._arrivals + 1
            slot._prompt = prompt_started_at
            slot.conversation_id = conversation_id
            slot._state = HELD
            slot._touched = p.held[slot] = self._clock()
            return slot

        slot = self._prepare("acquire", provider, conversation_id, prompt_started_at)
        ticks = None if timeout is None else check_duration("timeout", timeout)
        check_callback("on_queued", on_queued)
        try:
            self._operate(self._ask, slot, provider, ticks, on_queued)
            if slot._state == QUEUED:
                await cast(_Waiter, slot._waiter)
        except BaseException:
            self._cancel_request(slot)
            raise
        return self._deliver(slot)

    def try_acquire(
        self,
        provider: str,
        *,
        conversation_id: str | None = None,
        prompt_started_at: float | None = None,
    ) -> Slot | None:
        """A slot if acquire would grant one at once, else None and nothing has changed (ADM-8).

        Raises ManagerClosedError, TypeError, ValueError, and RuntimeError as acquire does.
        """
        try:
            p = self._providers[provider]
        except (KeyError, TypeError):  # unknown, or no str
            p = None
        if (
            p is not None
            and len(p.held) < p.cap
            and get_ident() == self._home
            and not self._loop.is_closed()  # type: ignore[union-attr] # `_home` isn't 0: there is a loop
            and (
                (conversation_id is None and prompt_started_at is None)
                or _are_plain(conversation_id, prompt_started_at, None)
            )
        ):
            slot = _new_slot(Slot)
            slot._provider = p
            slot._arrival = self._arrivals = self._arrivals + 1
            slot._prompt = prompt_started_at
            slot.conversation_id = conversation_id
            slot._state = HELD
            slot._touched = p.held[slot] = self._clock()
            return slot

        slot = self._prepare("try_acquire", provider, conversation_id, prompt_started_at)
        try:
            self._operate(self._try, slot, provider)
        except BaseException:
            self._cancel_request(slot)
            raise
        return self._deliver(slot) if slot._state == HANDED else None

    def slot(
        self,
        provider: str,
        *,
        conversation_id: str | None = None,
        prompt_started_at: float | None = None,
        timeout: float | None = None,
        on_queued: Callable[[], object] | None = None,
    ) -> AbstractAsyncContextManager[Slot]:
        """`async with manager.slot(...) as slot`: acquire with the same arguments, release at the end of the block."""
        return _SlotContext(
            self,
            provider,
            conversation_id=conversation_id,
            prompt_started_at=prompt_started_at,
            timeout=timeout,
            on_queued=on_queued,
        )

    def _prepare(self, what: str, provider: object, conversation: object, prompt: object) -> Slot:
        """Judges a request's arguments and the calling loop; numbers the request (ORD-1)."""
        if self._closed:
            raise ManagerClosedError(f"{what}: the manager is closed", provider=str(provider))
        check_provider(provider)
        slot = _new_slot(Slot)
        slot.conversation_id = check_conversation(conversation)
        slot._prompt = None if prompt is None else check_number("prompt_started_at", prompt)
        slot._state = NEW
        self._bind(what)
        if slot._prompt is None:
            slot._prompt = self._settings.wall_clock()
        slot._arrival = self._arrivals = self._arrivals + 1
        return slot

    def _deliver(self, slot: Slot) -> Slot:
        """Hands the slot to its caller, or tells how the wait ended otherwise."""
        state, p = slot._state, slot._provider
        if state == HANDED:
            slot._state = HELD
            return slot
        if slot.reclaimed:  # swept before its caller ran; `with` refuses it
            return slot
        waited = self._clock() - slot._queued_at
        if state == TIMED_OUT:
            raise self._explain(AcquireTimeoutError, f"no slot within {waited / 1e9:.3f} s", p, waited)
        if state == REJECTED:
            raise self._explain(ManagerClosedError, "the manager was closed while the request was queued", p, waited)
        raise asyncio.CancelledError  # withdrawn, and the task then un-cancelled: the slot is gone all the same

    # -- close ----------------------------------------------------------------------------------------------------

    async def wait_closed(self, timeout: float | None = None) -> None:
        """Returns when the manager is closed and no slot is held any more (CLO-2).

        Raises TimeoutError after `timeout` seconds; TypeError, ValueError.
        """
        if timeout is not None:
            check_duration("timeout", timeout)
        self._admit_call("wait_closed", when_closed=True)
        async with asyncio.timeout(timeout):
            while not self._closed or self._holds_any():
                waiter = asyncio.get_running_loop().create_future()
                self._close_waiters.add(waiter)
                try:
                    await waiter
                finally:
                    self._close_waiters.discard(waiter)

    def _drained(self) -> None:
        for waiter in self._close_waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    # -- waiters and callbacks ------------------------------------------------------------------------------------

    def _make_waiter(self, slot: Slot) -> object:
        waiter = _Waiter(loop=self._loop)
        waiter.slot = slot
        return waiter

    def _settle(self, slot: Slot) -> None:
        waiter = cast(_Waiter, slot._waiter)
        if not waiter.done():
            waiter.set_result(None)

    def _report_failure(self, error: Exception, callback: Callable[..., object]) -> None:
        message = f"provider_concurrency: the callback {callback!r} raised"
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_exception_handler({"message": message, "exception": error})
        else:
            log.error(message, exc_info=error)

    # -- threads and loops ----------------------------------------------------------------------------------------

    def _is_foreign(self) -> bool:
        return self._loop is not None and get_ident() != self._thread and not self._loop.is_closed()

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
                raise RuntimeError(f"{what}: this manager serves another event loop, which is still open")
            self._operate(self._adopt, loop)
        self._thread = get_ident()

    def _adopt(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop, self._thread = loop, get_ident()
        now = self._clock()
        for p in list(self._providers.values()):
            self._rest(p, now)
        if self._holds_any():
            self._announce_sweep(now)

    def _before_change(self) -> None:
        if self._loop is not None and self._loop.is_closed():
            self._loop = self._sweep_handle = None
            self._thread = 0
            self._drop_waiters()

    def _after_change(self) -> None:
        """Opens the short way: a loop, no observer to be told, and a sweep announced for whoever is granted next."""
        is_open = self._observer is None and not self._closed and self._loop is not None
        self._home = self._thread if is_open and (self._sweep_at is not None or self._slot_timeout is None) else 0

    def _forget_parent(self) -> None:
        """In a forked child (FRK-1)."""
        self._loop = self._sweep_handle = None
        self._thread = self._home = 0
        self._close_waiters.clear()
        self._forget_slots()

    # -- timers ---------------------------------------------------------------------------------------------------

    def _arm(self, provider: Provider, deadline: int, now: int) -> None:
        self._disarm(provider)
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
        if self._loop is not None and self._sweep_at is not None:
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


_managers: Final[weakref.WeakSet[ConcurrencyManager]] = weakref.WeakSet()


def _forget_parents() -> None:
    for manager in list(_managers):
        manager._forget_parent()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_parents)
