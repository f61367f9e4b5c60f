"""The blocking manager: the same core, rules and names, for programs of threads.

    from provider_concurrency.threading import ConcurrencyManager

    manager = ConcurrencyManager(limits={"openai": 4})
    with manager.slot("openai", timeout=30.0):
        ...

One lock guards all state; no callback, and no user code but the injected clocks, runs under it. Notifications are
delivered by whichever thread finds nobody else delivering (CAL-2), so that on_queued of one thread may be called by
another, and a callback that blocks holds up the callbacks of all; but nobody is kept delivering for others (BLK-2).
What is due is applied by the next operation or by one thread that does nothing else (TIM-4).
"""

from __future__ import annotations

import threading
from _thread import allocate_lock
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar, cast
from weakref import WeakSet, finalize, ref

from provider_concurrency._tags import CANCELLED, HANDED, HELD, NEW, QUEUED
from provider_concurrency.core import log
from provider_concurrency.delivery import SharedDeliveryLine
from provider_concurrency.errors import ManagerClosedError, ProviderConcurrencyError
from provider_concurrency.fork import forget_in_children
from provider_concurrency.mending import mend
from provider_concurrency.provider import Provider
from provider_concurrency.slot import ENTERED_TWICE, Slot
from provider_concurrency.status import ProviderStatus, SlotInfo
from provider_concurrency.surface import Surface
from provider_concurrency.validation import check_callback, check_duration
from provider_concurrency.wake import WakeThread

if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from types import TracebackType

__all__ = ["ConcurrencyManager"]

T = TypeVar("T")

_SWEEP: Final = object()
"""The key of the sweeps' wake-up; a provider's is its name."""
_CONCLUDE: Final = object()
"""The key of what a finaliser left to the thread that wakes."""
_NEEDS_OPEN: Final = frozenset({"_ask", "_try", "_set_limit", "_set_cooldown", "_resume"})
"""The state changes that a closed manager refuses (CLO-2), and that no finaliser makes."""


class _SlotBlock:
    """What `manager.slot(...)` returns: the request begins and ends with the block (REL-1)."""

    def __init__(self, acquire: Callable[[], Slot]) -> None:
        self._acquire: Callable[[], Slot] | None = acquire

    def __enter__(self) -> Slot:
        acquire, self._acquire = self._acquire, None
        if acquire is None:
            raise RuntimeError(ENTERED_TWICE)
        self._held = acquire()
        return self._held

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._held.release()


class ConcurrencyManager(Surface):
    """Admits at most N requests at once per provider; every call may come from any thread.

    The arguments are those of provider_concurrency.ConcurrencyManager, and so are the calls, but that those that wait
    block their thread. A blocked thread can't be cancelled: give `timeout`, or close the manager.
    """

    _lock: threading.RLock
    _wakes: WakeThread
    _drain: threading.Condition
    _self: ref[ConcurrencyManager]

    def _set_up(self) -> None:
        self._lock = threading.RLock()
        self._drain = threading.Condition(self._lock)
        self._wakes = self._make_wakes()
        self._line = SharedDeliveryLine(self._report_failure, is_spared=self._wakes.is_current)
        self._self = ref(self)
        finalize(self, self._wakes.stop)
        forget_in_children(self)
        _managers.add(self)

    def _make_wakes(self) -> WakeThread:
        return WakeThread(self._lock)

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
        slot = Slot()
        slot.conversation_id = conversation_id
        slot._prompt = prompt_started_at
        self._prepare("acquire", slot, provider)
        ticks = None if timeout is None else check_duration("timeout", timeout)
        check_callback("on_queued", on_queued)
        try:
            self._operate(self._ask, slot, provider, ticks, on_queued)
            if slot._state == QUEUED:
                cast("threading.Lock", slot._waiter).acquire()
            return self._within(self._receive, slot)
        except BaseException:
            self._take_back(slot)
            raise

    def try_acquire(
        self, provider: str, *, conversation_id: str | None = None, prompt_started_at: float | None = None
    ) -> Slot | None:
        """A slot if acquire would grant one at once, else None and nothing has changed (ADM-8)."""
        slot = Slot()
        slot.conversation_id = conversation_id
        slot._prompt = prompt_started_at
        self._prepare("try_acquire", slot, provider)
        try:
            self._operate(self._try, slot, provider)
            return self._within(self._receive, slot) if slot._state == HANDED else None
        except BaseException:
            self._take_back(slot)
            raise

    def slot(
        self,
        provider: str,
        *,
        conversation_id: str | None = None,
        prompt_started_at: float | None = None,
        timeout: float | None = None,
        on_queued: Callable[[], object] | None = None,
    ) -> AbstractContextManager[Slot, None]:
        """`with manager.slot(...) as slot`: acquire with the same arguments, release at the end of the block.

        RuntimeError where it is entered a second time.
        """
        return _SlotBlock(
            partial(
                self.acquire,
                provider,
                conversation_id=conversation_id,
                prompt_started_at=prompt_started_at,
                timeout=timeout,
                on_queued=on_queued,
            )
        )

    def wait_closed(self, timeout: float | None = None) -> None:
        """Returns when the manager is closed and no slot is held any more (CLO-2).

        Raises TimeoutError after `timeout` seconds; TypeError, ValueError.
        """
        if timeout is not None:
            check_duration("timeout", timeout)
        if not self._within(self._drain.wait_for, lambda: self._closed and not self._holds_any(), timeout):
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

    def _prepare(self, what: str, slot: Slot, provider: object) -> None:
        slot._state = NEW
        self._judge_request(what, slot, provider)
        if slot._prompt is None:
            slot._prompt = self._settings.wall_clock()

    def _receive(self, slot: Slot) -> Slot:
        if slot._state == CANCELLED:
            raise RuntimeError("the process was forked while this thread asked for a slot; it is the parent's (FRK-1)")
        return super()._receive(slot)

    def _take_back(self, slot: Slot) -> None:
        """An acquire ends with an exception: whatever has become of its request, its caller won't get it."""
        if slot._state in (QUEUED, HANDED, HELD):
            self._operate(self._withdraw, slot)

    def _withdraw(self, slot: Slot) -> None:
        queue = slot._provider.queue
        if slot._state == HELD:  # interrupted on the way to its caller (CAN-2)
            slot._state = HANDED
        if slot._state == QUEUED and (queue is None or slot not in iter(queue)):
            slot._state = CANCELLED  # interrupted on the way to the queue
        super()._withdraw(slot)

    # -- status: whole, since another thread may change what is read --------------------------------------------------

    def get_status(self, provider: str) -> ProviderStatus | None:
        """See Surface; one moment of the provider, whatever other threads do."""
        return self._within(super().get_status, provider)

    def get_slots(self, provider: str) -> list[SlotInfo]:
        """See Surface; one moment of the provider, whatever other threads do."""
        return self._within(super().get_slots, provider)

    # -- one operation at a time ----------------------------------------------------------------------------------

    def _within(self, call: Callable[..., T], *args: Any) -> T:
        """The call's result, made under the lock; what came up meanwhile is concluded after it."""
        try:
            with self._lock:
                return call(*args)
        finally:
            if self._deferred or self._line.waiting:
                self._conclude()

    def _operate(self, change: Callable[..., object], *args: Any) -> None:
        self._within(self._guard, change, args)

    def _guard(self, change: Callable[..., object], args: tuple[Any, ...]) -> None:
        """A state change that leaves the books in order, even where it is interrupted."""
        if change.__name__ in _NEEDS_OPEN:
            if self._closed:  # since the call looked
                raise ManagerClosedError("the manager is closed")
            if self._busy:
                raise RuntimeError("called while this thread is changing state (from a finaliser or a signal)")
        is_nested = self._busy
        try:
            self._change(change, args)
        except ProviderConcurrencyError:  # a refusal, which has changed nothing
            raise
        except BaseException as error:
            if not is_nested:
                self._busy = False
                self._change(mend, (self, error))
            raise

    def _change(self, change: Callable[..., object], args: tuple[Any, ...]) -> None:
        """A state change, at once or, while this thread makes another one, right after that."""
        if self._busy:
            self._deferred.append((change, args))
            return
        self._busy = True
        self._op += 1
        try:
            change(*args)
        finally:
            self._busy = False

    def _conclude(self) -> None:
        if self._owns(self):
            # A finaliser came by while this thread holds the lock (FIN-1). Whoever took it concludes after it; the
            # thread that wakes may sleep next, so it is told.
            if self._wakes.is_current():
                self._wakes.set(_CONCLUDE, 0.0, partial(_wake, self._self, _CONCLUDE))
            return
        with self._lock:
            while self._deferred:
                change, args = self._deferred.popleft()
                self._guard(change, args)
        self._line.deliver()

    def _apply_due(self, provider: Provider) -> None:
        self._operate(self._catch_up_and_rest, provider)

    @staticmethod
    def _owns(manager: ConcurrencyManager) -> bool:
        """Whether this thread holds a manager's lock."""
        return bool(cast("Any", manager._lock)._is_owned())  # what threading.Condition asks, too

    def _is_foreign(self) -> bool:
        """Whether this is a finaliser in the middle of another manager's operation: it must not wait for our lock.

        Somebody who has ours may wait for that one, for the same reason.
        """
        return len(_managers) > 1 and any(other is not self and self._owns(other) for other in list(_managers))

    def _hand_over(self, change: Callable[..., object], *args: Any) -> None:
        self._deferred.append((change, args))
        if self._lock.acquire(blocking=False):  # else whoever has it concludes after it
            try:
                self._wakes.set(_CONCLUDE, 0.0, partial(_wake, self._self, _CONCLUDE))
            finally:
                self._lock.release()

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
        self._wakes.set(provider.name, (deadline - now) / 1e9, partial(_wake, self._self, provider.name))

    def _disarm(self, provider: Provider) -> None:
        if provider.timer is not None:
            provider.timer = None
            self._wakes.clear(provider.name)

    def _arm_sweep(self, now: int) -> None:
        if self._sweep_at is not None:
            self._wakes.set(_SWEEP, (self._sweep_at - now) / 1e9, partial(_wake, self._self, _SWEEP))

    def _disarm_sweep(self) -> None:
        self._wakes.clear(_SWEEP)

    def _on_wake(self, key: object) -> None:
        """A provider's timer, or the sweeps', or what was left to this thread."""
        if key is _CONCLUDE:
            self._conclude()
            if self._closed:
                self._wakes.stop()
        elif key is _SWEEP:
            self._operate(self._sweep_in_time)
        else:
            self._operate(self._wake_provider, key)

    def _wake_provider(self, name: str) -> None:
        p = self._providers.get(name)
        if p is not None:
            p.timer = None
            self._catch_up_and_rest(p)

    def _sweep_in_time(self) -> None:
        """The sweep, unless the timer is early (TIM-2) or the manager was closed meanwhile (CLO-1)."""
        now = self._clock()
        if self._sweep_at is not None and now < self._sweep_at:
            self._arm_sweep(now)
        elif self._sweep_at is not None:
            self._sweep()

    def _time_to_reclaim(self, slot: Slot) -> float | None:
        """Seconds until the sweep that reclaims a held slot unless somebody touches it (WAT-1); None: none does."""
        if self._slot_timeout is None or self._closed:
            return None
        earliest = slot._touched + self._slot_timeout - self._born
        sweep = (earliest // self._interval + 1) * self._interval
        return (self._born + sweep - self._within(self._clock)) / 1e9

    def _forget_parent(self) -> None:
        self._lock = threading.RLock()
        self._drain = threading.Condition(self._lock)
        self._wakes.forget(self._lock)
        self._forget_slots()
        for p in self._providers.values():  # another thread may have been in the middle of configuring it
            p.set_limit(p.limit)
            p.cooldown = self._release_cooldown if p.own_cooldown is None else p.own_cooldown


def _wake(manager: ref[ConcurrencyManager], key: object) -> None:
    """A wake-up; it keeps no manager alive that nobody uses any more."""
    found = manager()
    if found is not None:
        found._on_wake(key)


_managers: Final[WeakSet[ConcurrencyManager]] = WeakSet()
