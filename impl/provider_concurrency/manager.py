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
from provider_concurrency.loops import LoopShell
from provider_concurrency.slot import Slot
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


def _are_plain(conversation: object, prompt: object, timeout: object) -> bool:
    """Whether a request's arguments are plainly legal; the judgement of the rest isn't urgent."""
    return (
        (conversation is None or conversation.__class__ is str)
        and (prompt is None or (isinstance(prompt, float) and -_INF < prompt < _INF))
        and (timeout is None or (isinstance(timeout, float) and 0.0 <= timeout <= MAX_SECONDS))
    )


class _SlotContext:
    """`async with manager.slot(...)`; deliberately no `with` (CAN-2, REL-1)."""

    __slots__ = ("_conversation_id", "_is_entered", "_manager", "_on_queued", "_prompt_started_at", "_provider",
                 "_slot", "_timeout")  # fmt: skip

    # Built attribute by attribute, as a slot is.
    _manager: ConcurrencyManager
    _provider: str
    _conversation_id: str | None
    _prompt_started_at: float | None
    _timeout: float | None
    _on_queued: Callable[[], object] | None
    _is_entered: bool
    _slot: Slot | None

    async def __aenter__(self) -> Slot:
        if self._is_entered:
            raise RuntimeError("what manager.slot() returns can be entered only once")
        self._is_entered = True
        manager, conversation, prompt = self._manager, self._conversation_id, self._prompt_started_at
        slot = manager._start(self._provider, conversation, prompt, self._timeout)
        if slot is None or slot._state != HELD:
            slot = await manager.acquire(
                self._provider,
                conversation_id=conversation,
                prompt_started_at=prompt,
                timeout=self._timeout,
                on_queued=self._on_queued,
            )
        self._slot = slot
        return slot

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._slot is not None:
            self._slot.release()

    def __enter__(self) -> None:
        raise TypeError("manager.slot(...) needs `async with`")

    def __exit__(self, *_: object) -> None:
        """Never reached: __enter__ raises. It stands here so that `with` gets as far as the hint."""


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
        # `_start`, written out here alone, since a call of it would cost a tenth of an uncontended request.
        try:
            p = self._plain_providers[provider]
        except (KeyError, TypeError):  # unknown, or no str: the long way
            pass
        else:
            if (
                len(p.held) < p.cap
                and get_ident() == self._home
                and not self._loop.is_closed()  # type: ignore[union-attr] # `_home` isn't 0: there is a loop
                and (
                    (conversation_id is None and prompt_started_at is None and timeout is None)
                    or _are_plain(conversation_id, prompt_started_at, timeout)
                )
            ):
                slot = Slot()
                slot._provider = p
                slot._prompt = prompt_started_at
                slot.conversation_id = conversation_id
                slot._state = HELD
                read_clock = self._clock  # a method call would look for a method first
                slot._touched = p.held[slot] = read_clock()
                return slot

        slot = self._start(provider, conversation_id, prompt_started_at, timeout) or self._prepare(
            "acquire", provider, conversation_id, prompt_started_at
        )
        if slot._state == HELD:
            return slot
        ticks = None if timeout is None else check_duration("timeout", timeout)
        if on_queued is not None:
            check_callback("on_queued", on_queued)
        try:
            self._operate(self._ask, slot, provider, ticks, on_queued)
            if slot._state == QUEUED:
                await slot._waiter  # type: ignore[misc] # it is a Waiter
        except BaseException:
            self._cancel_request(slot)
            raise
        finally:
            slot._waiter = None  # no cycle is left to the collector
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
        slot = self._start(provider, conversation_id, prompt_started_at, None) or self._prepare(
            "try_acquire", provider, conversation_id, prompt_started_at
        )
        if slot._state == HELD:
            return slot
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
        context = _SlotContext()
        context._manager = self
        context._provider = provider
        context._conversation_id = conversation_id
        context._prompt_started_at = prompt_started_at
        context._timeout = timeout
        context._on_queued = on_queued
        context._is_entered = False
        context._slot = None
        return context

    def _start(
        self, provider: str, conversation_id: str | None, prompt_started_at: float | None, timeout: float | None
    ) -> Slot | None:
        """The short way into a request, where all is plain: granted if there is room, else ready to be asked for.

        What is due needn't be applied before such a grant: it could only make more room, and no observer listens.
        None: `_prepare` is to judge the request.
        """
        try:
            p = self._providers[provider]
        except (KeyError, TypeError):  # unknown, or no str
            return None
        if (
            get_ident() != self._home
            or self._loop.is_closed()  # type: ignore[union-attr] # `_home` isn't 0: there is a loop
            or not (
                (conversation_id is None and prompt_started_at is None and timeout is None)
                or _are_plain(conversation_id, prompt_started_at, timeout)
            )
        ):
            return None
        slot = Slot()  # before the room is judged, since making it may run a finaliser (FIN-1)
        slot._provider = p
        slot._prompt = prompt_started_at
        slot.conversation_id = conversation_id
        if len(p.held) < p.cap and self._observer is None:
            slot._state = HELD
            read_clock = self._clock
            slot._touched = p.held[slot] = read_clock()
            return slot
        if asyncio.get_running_loop() is not self._loop:
            return None
        slot._state = NEW
        if prompt_started_at is None:
            slot._prompt = self._settings.wall_clock()
        return slot

    def _prepare(self, what: str, provider: object, conversation: object, prompt: object) -> Slot:
        """Judges a request's arguments and the calling loop."""
        slot = self._make_request(what, provider, conversation, prompt)
        self._bind(what)
        return slot

    def _deliver(self, slot: Slot) -> Slot:
        """Hands the slot to its caller, or tells how the wait ended otherwise."""
        if slot._state == CANCELLED:  # withdrawn; that the task was un-cancelled then brings no slot back
            raise asyncio.CancelledError
        return self._hand_out(slot)

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
