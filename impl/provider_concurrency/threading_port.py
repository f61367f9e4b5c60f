"""The blocking manager behind protocol 1: real threads that wait, on virtual time.

Every acquire runs in a thread of its own. The driver goes on when that thread has its answer or waits for its slot, so
that a run always takes the same course although the threads are real. A blocked thread can't be cancelled: the feature
`cancel` isn't declared, everything else is. Run as `python -m provider_concurrency.threading_port`, or name
`provider_concurrency.threading_port:Port` as the subject.
"""

from __future__ import annotations

import sys
import threading
from _thread import LockType, allocate_lock, get_ident, start_new_thread
from collections.abc import Callable, Hashable
from typing import Any, Final

from provider_concurrency import port
from provider_concurrency._tags import QUEUED
from provider_concurrency.delivery import SharedDeliveryLine
from provider_concurrency.session import HookError, Message, Session, within_blocks
from provider_concurrency.slot import Slot
from provider_concurrency.threading import ConcurrencyManager
from provider_concurrency.wake import WakeThread

_PATIENCE_S: Final = 10.0
"""Real seconds for a thread that has nothing to wait for; more means a deadlock."""


class VirtualWakes(WakeThread):
    """The manager's clock, and wake-ups that are called by whoever advances it."""

    def __init__(self, start_ns: int = 0) -> None:
        """Starts at `start_ns` nanoseconds."""
        self.now_ns = start_ns
        self._made = 0
        self._due: dict[Hashable, tuple[int, int, Callable[[], object]]] = {}

    def __len__(self) -> int:
        return len(self._due)

    def read(self) -> int:
        """The virtual time in nanoseconds: what the manager takes as `clock`."""
        return self.now_ns

    def set(self, key: Hashable, delay: float, wake: Callable[[], object]) -> None:
        """See WakeThread."""
        self._made += 1
        self._due[key] = (self.now_ns + max(round(delay * 1e9), 0), self._made, wake)

    def clear(self, key: Hashable) -> None:
        """See WakeThread."""
        self._due.pop(key, None)

    def stop(self) -> None:
        """See WakeThread."""
        self._due.clear()

    def forget(self, lock: threading.RLock) -> None:  # noqa: ARG002 - nothing here needs a lock
        """See WakeThread."""
        self._due.clear()

    def is_current(self) -> bool:
        """See WakeThread."""
        return False

    def advance_ns(self, ns: int, between: Callable[[], object] = lambda: None) -> None:
        """Lets time pass: each wake-up on the way is called punctually, and `between` after each."""
        end = self.now_ns + ns
        while self._due and (at := min(self._due.values())[0]) <= end:
            self.now_ns = max(self.now_ns, at)
            self.fire_due(between)
        self.now_ns = end

    def fire_due(self, between: Callable[[], object] = lambda: None) -> None:
        """Calls the wake-ups that are due now, in order of their deadlines, and `between` after each."""
        while self._due:
            at, key = min((entry[:2], key) for key, entry in self._due.items())
            if at[0] > self.now_ns:
                break
            self._due.pop(key)[2]()
            between()


class Caller:
    """One blocking call, made in a thread of its own."""

    def __init__(self, call: Callable[[], Slot]) -> None:
        """Not started yet; see `start_quietly`."""
        self._call = call
        self._thread = 0
        self._is_over = False
        self._quiet, self._over = _make_gate(), _make_gate()
        self.request: Slot | None = None  # what it waits for, or has waited for
        self.slot: Slot | None = None
        self.error: BaseException | None = None

    def start_quietly(self) -> None:
        """Starts it, and returns when it has its answer or is about to wait for a slot."""
        worker = _idle.pop() if _idle else _Worker()
        worker.begin(self)
        if not self._quiet.acquire(timeout=_PATIENCE_S):
            raise TimeoutError("an acquire has neither returned nor begun to wait")

    def is_alive(self) -> bool:
        """Whether the call hasn't returned yet."""
        return not self._is_over

    def note_waiting(self) -> None:
        """Told when all is done but the waiting."""
        self._quiet.release()

    def finish(self) -> None:
        """Returns when the call has returned, if its request isn't queued any more."""
        queued = self.request is not None and self.request._state == QUEUED
        if not (self._is_over or queued or self._thread == get_ident()):
            if not self._over.acquire(timeout=_PATIENCE_S):
                raise TimeoutError("an acquire whose wait is over hasn't returned")
            self._over.release()

    def _run(self, worker: _Worker) -> None:
        self._thread = get_ident()
        _running[self._thread] = self
        try:
            self.slot = self._call()
        except BaseException as error:  # noqa: BLE001 - judged by whoever made the caller
            self.error = error
        del _running[self._thread]
        _idle.append(worker)
        self._is_over = True
        self._over.release()
        if self._quiet.locked():
            self._quiet.release()


class _Worker:
    """A thread that makes one call after another: to start one takes longer than all else that a call does."""

    def __init__(self) -> None:
        self._begun = _make_gate()
        self._caller: Caller | None = None
        start_new_thread(self._serve, ())

    def begin(self, caller: Caller) -> None:
        self._caller = caller
        self._begun.release()

    def _serve(self) -> None:
        while self._begun.acquire():
            caller, self._caller = self._caller, None
            assert caller is not None, "begun by a caller"
            caller._run(self)
            del caller  # it isn't kept until the next one comes


def _make_gate() -> LockType:
    """A lock that is taken: whoever takes it next waits for a release."""
    gate = allocate_lock()
    gate.acquire()
    return gate


_idle: Final[list[_Worker]] = []
_running: Final[dict[int, Caller]] = {}
"""The calls under way, by the thread that makes them."""


class _Waiter:
    """What a queued caller waits for; it tells the caller that it does."""

    def __init__(self) -> None:
        self._lock = _make_gate()

    def acquire(self) -> None:
        caller = _running.get(get_ident())
        if caller is not None:
            caller.note_waiting()
        self._lock.acquire()

    def release(self) -> None:
        self._lock.release()

    def locked(self) -> bool:
        return self._lock.locked()


class VirtualManager(ConcurrencyManager):
    """The blocking manager on virtual time: `clock` and wake-ups are those of `time`."""

    def __init__(self, time: VirtualWakes, **settings: Any) -> None:
        """The settings are ConcurrencyManager's."""
        self.time = time
        self.failures: list[BaseException] = []
        settings.setdefault("clock", time.read)
        super().__init__(**settings)

    def _set_up(self) -> None:
        super()._set_up()
        self._line = SharedDeliveryLine(self._report_failure, start=lambda run: run())  # before the call returns

    def _make_wakes(self) -> WakeThread:
        return self.time

    def _make_waiter(self, slot: Slot) -> object:
        caller = _running.get(get_ident())
        if caller is not None:
            caller.request = slot
        return _Waiter()

    def _report_failure(self, error: Exception, callback: Callable[..., object]) -> None:
        super()._report_failure(error, callback)
        self.failures.append(error)


class _Session(Session):
    """A blocking manager on virtual time, and its callers."""

    def __init__(self, config: Message) -> None:
        self.time = VirtualWakes()
        self.callers: dict[str, Caller] = {}  # requests by acquire whose slot hasn't been collected
        super().__init__(config)

    def _make_manager(self, **settings: Any) -> ConcurrencyManager:
        return VirtualManager(self.time, **settings)

    def _now_ns(self) -> int:
        return self.time.now_ns

    def _acquire(self, op: Message) -> None:
        name, index = op["request"], self.index
        was_open = not self.manager._closed  # its own callback may close the manager
        self._expect_number(name)
        arguments = self._read_acquire(op)

        def acquire() -> Slot:
            with within_blocks(op):
                slot: Slot = self.manager.acquire(op["provider"], **arguments)
                return slot

        caller = Caller(acquire)
        caller.start_quietly()
        self.callers[name] = caller
        self._settle()
        if caller.error is not None:
            self._judge_error(caller.error, index, was_open=was_open)

    def _cancel(self, name: str) -> None:
        raise NotImplementedError(f"a blocked thread can't be cancelled ({name})")

    def _perform(self, op: Message) -> None:
        super()._perform(op)
        self._settle()

    def _settle(self) -> None:
        for name, caller in list(self.callers.items()):
            caller.finish()
            if not caller.is_alive():
                self.callers.pop(name, None)
                if caller.slot is not None:
                    self.slots[name] = caller.slot
        for error in getattr(self.manager, "failures", ()):
            if not isinstance(error, HookError):
                raise SystemExit(70) from error  # a fault of the manager, no conversation's business

    def _advance(self, ns: int) -> None:
        self.time.advance_ns(ns, self._settle)

    def _stall(self, ns: int) -> None:
        self.time.now_ns += ns
        self.time.fire_due(self._settle)

    def _collect_unsettled(self) -> list[str]:
        self._settle()
        return list(self.callers)

    def _count_timers(self) -> int:
        return len(self.time)

    def shut(self) -> None:
        self.manager.close()
        self._settle()


class Port(port.Port):
    """One blocking manager at a time, driven by messages."""

    name = "provider-concurrency (threads)"
    features = tuple(feature for feature in port.Port.features if feature != "cancel")

    def _open(self, config: Message) -> Session:
        return _Session(config)


if __name__ == "__main__":
    port.serve(sys.stdin, sys.stdout, Port)
