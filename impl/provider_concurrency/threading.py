"""The blocking manager: the same core, rules and names, for programs of threads.

    from provider_concurrency.threading import ConcurrencyManager

    manager = ConcurrencyManager(limits={"openai": 4})
    with manager.slot("openai", timeout=30.0):
        ...

One lock guards all state; no callback, and no user code but the injected clocks, runs under it. Notifications are
delivered by whichever thread finds nobody else delivering (CAL-2), so that on_queued of one thread may be called by
another, and a callback that blocks holds up the callbacks of all. What is due is applied by the next operation or by
one thread that does nothing else (TIM-4).
"""

from __future__ import annotations

import threading
from _thread import allocate_lock
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, Self, cast
from weakref import finalize

from provider_concurrency._tags import HANDED, QUEUED
from provider_concurrency.core import log
from provider_concurrency.delivery import SharedDeliveryLine
from provider_concurrency.fork import forget_in_children
from provider_concurrency.provider import Provider
from provider_concurrency.slot import Slot
from provider_concurrency.status import ProviderStatus, SlotInfo
from provider_concurrency.surface import Surface
from provider_concurrency.validation import check_callback, check_duration
from provider_concurrency.wake import WakeThread

if TYPE_CHECKING:
    from types import TracebackType

__all__ = ["ConcurrencyManager"]

_SWEEP: Final = object()
"""The key of the sweeps' wake-up."""


class ConcurrencyManager(Surface):
    """Admits at most N requests at once per provider; every call may come from any thread.

    The arguments are those of provider_concurrency.ConcurrencyManager, and so are the calls, but that those that wait
    block their thread. A blocked thread can't be cancelled: give `timeout`, or close the manager.
    """

    _lock: threading.RLock
    _wakes: WakeThread
    _drain: threading.Condition

    def _set_up(self) -> None:
        self._make_locks()
        self._wakes = WakeThread()
        finalize(self, self._wakes.stop)
        forget_in_children(self)

    def _make_locks(self) -> None:
        self._lock = threading.RLock()
        self._drain = threading.Condition(self._lock)
        self._line = SharedDeliveryLine(self._report_failure)

    # -- what waits -----------------------------------------------------------------------------------------------

    def acquire(
        self,
        provider: str,
        *,
        conversation_id: str | None = None,
        prompt_started_at: float | None = None,
        timeout: float | None = None,
        on_queued: Callable[[], object] | None = None,
    ) -> Slot:
        """Blocks until there is a slot: granted at once if there is room, else the oldest prompt first (ADM-1, ORD-1).

        Arguments and errors are those of the asyncio manager's acquire. An exception thrown into the blocked thread
        (KeyboardInterrupt) leaves the queue, or gives the slot back (CAN-1, CAN-2).
        """
        slot = self._make_request("acquire", provider, conversation_id, prompt_started_at)
        ticks = None if timeout is None else check_duration("timeout", timeout)
        check_callback("on_queued", on_queued)
        try:
            self._operate(self._ask, slot, provider, ticks, on_queued)
            if slot._state == QUEUED:
                cast("threading.Lock", slot._waiter).acquire()
            with self._lock:
                return self._hand_out(slot)
        except BaseException:
            self._cancel_request(slot)
            raise

    def try_acquire(
        self, provider: str, *, conversation_id: str | None = None, prompt_started_at: float | None = None
    ) -> Slot | None:
        """A slot if acquire would grant one at once, else None and nothing has changed (ADM-8)."""
        slot = self._make_request("try_acquire", provider, conversation_id, prompt_started_at)
        try:
            self._operate(self._try, slot, provider)
            with self._lock:
                return self._hand_out(slot) if slot._state == HANDED else None
        except BaseException:
            self._cancel_request(slot)
            raise

    @contextmanager
    def slot(
        self,
        provider: str,
        *,
        conversation_id: str | None = None,
        prompt_started_at: float | None = None,
        timeout: float | None = None,
        on_queued: Callable[[], object] | None = None,
    ) -> Generator[Slot, None, None]:
        """`with manager.slot(...) as slot`: acquire with the same arguments, release at the end of the block."""
        held = self.acquire(
            provider,
            conversation_id=conversation_id,
            prompt_started_at=prompt_started_at,
            timeout=timeout,
            on_queued=on_queued,
        )
        try:
            yield held
        finally:
            held.release()

    def wait_closed(self, timeout: float | None = None) -> None:
        """Returns when the manager is closed and no slot is held any more (CLO-2).

        Raises TimeoutError after `timeout` seconds; TypeError, ValueError.
        """
        if timeout is not None:
            check_duration("timeout", timeout)
        with self._lock:
            if not self._drain.wait_for(lambda: self._closed and not self._holds_any(), timeout):
                raise TimeoutError(f"slots were still held, or the manager still open, after {timeout} s")

    def close(self) -> None:
        """Ends the manager for good: idempotent, no wake-up is left (CLO-1)."""
        super().close()
        self._wakes.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    # -- one operation at a time ----------------------------------------------------------------------------------

    def _change(self, change: Callable[..., object], *args: Any) -> None:
        with self._lock:
            super()._change(change, *args)

    def _conclude(self) -> None:
        with self._lock:
            if self._busy:  # a finaliser within this thread's own operation (FIN-1)
                return
            while self._deferred:
                deferred, args = self._deferred.popleft()
                super()._change(deferred, *args)
        self._line.deliver()

    def _apply_due(self, p: Provider) -> None:
        self._operate(self._catch_up_and_rest, p)

    def _status(self, p: Provider) -> ProviderStatus:
        with self._lock:
            return super()._status(p)

    def _list_slots(self, p: Provider) -> list[SlotInfo]:
        with self._lock:
            return super()._list_slots(p)

    def _is_foreign(self) -> bool:
        return False

    def _hand_over(self, change: Callable[..., object], *args: Any) -> None:
        raise AssertionError(f"no thread is foreign: {change} {args}")

    def _before_change(self) -> None:
        """There is no loop that could have been closed."""

    def _measure_home(self) -> None:
        """Nobody takes the short way: every change needs the lock."""

    def _report_failure(self, error: Exception, callback: Callable[..., object]) -> None:
        log.error("provider_concurrency: the callback %r raised", callback, exc_info=error)

    # -- waiters and wake-ups -------------------------------------------------------------------------------------

    def _make_waiter(self, slot: Slot) -> object:  # noqa: ARG002 - a lock needs no slot
        waiter = allocate_lock()
        waiter.acquire()
        return waiter

    def _settle(self, slot: Slot) -> None:
        cast("threading.Lock", slot._waiter).release()

    def _drained(self) -> None:
        self._drain.notify_all()

    def _arm(self, provider: Provider, deadline: int, now: int) -> None:
        provider.timer, provider.timer_at = True, deadline
        self._wakes.set(provider, (deadline - now) / 1e9, lambda: self._on_wake(provider))

    def _disarm(self, provider: Provider) -> None:
        if provider.timer is not None:
            provider.timer = None
            self._wakes.clear(provider)

    def _on_wake(self, provider: Provider) -> None:
        with self._lock:
            provider.timer = None
        self._operate(self._catch_up_and_rest, provider)

    def _arm_sweep(self, now: int) -> None:
        if self._sweep_at is not None:
            self._wakes.set(_SWEEP, (self._sweep_at - now) / 1e9, self._on_sweep)

    def _disarm_sweep(self) -> None:
        self._wakes.clear(_SWEEP)

    def _on_sweep(self) -> None:
        with self._lock:
            now = self._clock()
            is_early = self._sweep_at is not None and now < self._sweep_at
            if is_early:
                self._arm_sweep(now)
        if not is_early:
            self._operate(self._sweep)

    def _forget_parent(self) -> None:
        self._make_locks()
        self._wakes.forget()
        self._forget_slots()
