"""The asyncio manager: what waits.

It decides nothing: the core does. A queued caller awaits one future whose `cancel` reports to the core at once, so
that a cancelled request leaves the queue in the very call that cancels it (CAN-1). The future is settled without a
value: the slot's state says how the wait ended.
"""

from __future__ import annotations

import asyncio
from _thread import get_ident
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Self

from provider_concurrency._tags import CANCELLED, HANDED, HELD, NEW, QUEUED
from provider_concurrency.loops import LoopShell, Waiter
from provider_concurrency.slot import ENTERED_TWICE, Slot
from provider_concurrency.validation import (
    MAX_SECONDS,
    check_callback,
    check_duration,
)

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager
    from types import TracebackType

__all__ = ["ConcurrencyManager"]

_INF: Final = float("inf")


def _are_plain(conversation: object, prompt: object) -> bool:
    """Whether a request's arguments are plainly legal; the judgement of the rest isn't urgent."""
    return (conversation is None or conversation.__class__ is str) and (
        prompt is None or (isinstance(prompt, float) and -_INF < prompt < _INF)
    )


class _SlotBlock(Slot):
    """What `manager.slot(...)` returns: a slot whose request begins and ends with the block (CAN-2, REL-1)."""

    __slots__ = ("_manager", "_on_queued", "_provider_name", "_timeout")

    _manager: ConcurrencyManager
    _provider_name: str
    _timeout: float | None
    _on_queued: Callable[[], object] | None

    async def __aenter__(self) -> Slot:
        state = self._state  # which the calls below change
        if state != NEW:
            raise RuntimeError(ENTERED_TWICE)
        manager = self._manager
        if manager._take_now(self, self._provider_name, self._timeout):
            return self
        if (waiter := manager._ask_for(self, self._provider_name, self._timeout, self._on_queued)) is not None:
            try:
                await waiter
            except BaseException:
                if self._state != CANCELLED:  # a cancel has withdrawn it already
                    manager._cancel_request(self)
                raise
        if self._state == HANDED:
            self._state = HELD
            return self
        return manager._receive(self)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._state != NEW:
            self.release()

    def __enter__(self) -> Slot:
        if self._state == NEW:
            raise TypeError("manager.slot(...) needs `async with`")
        return super().__enter__()

    def __exit__(self, *_: object) -> None:
        if self._state != NEW:
            self.release()

    def __repr__(self) -> str:
        return f"<slot of {self._provider_name!r}: not entered>" if self._state == NEW else super().__repr__()


class ConcurrencyManager(LoopShell):
    """Admits at most N requests at once per provider, and keeps a released slot closed until it has cooled.

    Durations are seconds. `limits`: own limits by provider; `default_limit`: for all others (None: unlimited, 0:
    nobody). `release_cooldown`: how long a released slot still counts. `slot_timeout`: a slot untouched for longer is
    reclaimed at the next sweep (None: never), sweeps every `watchdog_interval`. `default_pause`, `min_pause`,
    `max_pause`: how long a 429 pauses (PAU-2). `max_queued`: longest queue per provider (None: no bound). `clock`:
    integer nanoseconds, monotonic; `wall_clock`: epoch seconds. `observer`, `on_reclaim(slot)`, `on_pause(provider,
    seconds)`: called after the state change that they tell of (CAL-1..4).

    Making and configuring one needs no running loop (LOP-1). Raises TypeError or ValueError, naming the argument.
    """

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
        slot = Slot()
        slot.conversation_id = conversation_id
        slot._prompt = prompt_started_at
        # `_take_now`, written out here alone, since a call of it would cost a tenth of an uncontended request.
        try:
            p = self._providers[provider]
        except (KeyError, TypeError):  # unknown, or no str
            pass
        else:
            if (
                p.queue is None
                and get_ident() == self._home
                and not self._loop.is_closed()  # type: ignore[union-attr] # `_home` isn't 0: there is a loop
                and (
                    (conversation_id is None and prompt_started_at is None)
                    or _are_plain(conversation_id, prompt_started_at)
                )
                and (timeout is None or (timeout.__class__ is float and 0.0 <= timeout <= MAX_SECONDS))
            ):
                slot._provider = p
                slot._state = HELD
                read_clock = self._clock  # a method call would look for a method first
                slot._touched = p.held[slot] = read_clock()
                if len(p.held) <= p.cap:
                    return slot
                del p.held[slot]
        if (waiter := self._ask_for(slot, provider, timeout, on_queued)) is not None:
            try:
                await waiter
            except BaseException:
                if slot._state != CANCELLED:  # a cancel has withdrawn it already
                    self._cancel_request(slot)
                raise
        if slot._state == HANDED:
            slot._state = HELD
            return slot
        return self._receive(slot)

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
        slot = Slot()
        slot.conversation_id = conversation_id
        slot._prompt = prompt_started_at
        if self._take_now(slot, provider, None):
            return slot
        self._prepare("try_acquire", slot, provider)
        try:
            self._operate(self._try, slot, provider)
        except BaseException:
            self._cancel_request(slot)
            raise
        return None if slot._state == NEW else self._receive(slot)

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
        block = _SlotBlock()
        block.conversation_id = conversation_id
        block._prompt = prompt_started_at
        block._state = NEW
        block._manager = self
        block._provider_name = provider
        block._timeout = timeout
        block._on_queued = on_queued
        return block

    def _take_now(self, slot: Slot, provider: str, timeout: float | None) -> bool:
        """The short way into a request, where all is plain and there is room; whether it was granted.

        What is due needn't be applied before such a grant: it could only make more room, and no observer listens.
        Whether there is room is judged last, with the slot in its place, since any call before may run a finaliser that
        takes a slot (ADM-4). Nobody waits, so a slot that stood there for a moment has kept nobody out.
        """
        try:
            p = self._providers[provider]
        except (KeyError, TypeError):  # unknown, or no str
            return False
        if (
            p.queue is None
            and get_ident() == self._home
            and not self._loop.is_closed()  # type: ignore[union-attr] # `_home` isn't 0: there is a loop
            and (
                (slot.conversation_id is None and slot._prompt is None)
                or _are_plain(slot.conversation_id, slot._prompt)
            )
            and (timeout is None or (timeout.__class__ is float and 0.0 <= timeout <= MAX_SECONDS))
        ):
            slot._provider = p
            slot._state = HELD
            read_clock = self._clock
            slot._touched = p.held[slot] = read_clock()
            if len(p.held) <= p.cap:
                return True
            del p.held[slot]
        return False

    def _ask_for(
        self, slot: Slot, provider: str, timeout: float | None, on_queued: Callable[[], object] | None
    ) -> Waiter | None:
        """The long way into a request: judges and makes it. Returns what its caller is to await, if it queued."""
        self._prepare("acquire", slot, provider)
        ticks = None if timeout is None else check_duration("timeout", timeout)
        if on_queued is not None:
            check_callback("on_queued", on_queued)
        try:
            self._operate(self._ask, slot, provider, ticks, on_queued)
        except BaseException:
            self._cancel_request(slot)
            raise
        return slot._waiter if slot._state == QUEUED else None  # type: ignore[return-value] # `_make_waiter` made it

    def _prepare(self, what: str, slot: Slot, provider: str) -> None:
        """Judges a request's arguments and the calling loop."""
        slot._state = NEW
        if self._closed or provider.__class__ is not str or not _are_plain(slot.conversation_id, slot._prompt):
            self._judge_request(what, slot, provider)
        if slot._prompt is None:
            slot._prompt = self._settings.wall_clock()
        if self._busy or get_ident() != self._thread or self._is_loop_closed():
            self._bind(what)

    def _receive(self, slot: Slot) -> Slot:
        if slot._state == CANCELLED:  # withdrawn; that the task was un-cancelled then brings no slot back
            raise asyncio.CancelledError
        return super()._receive(slot)

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
            if not waiter.done() and not waiter.get_loop().is_closed():
                waiter.set_result(None)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
