"""The slot: what a request becomes, and the handle that its holder releases."""

from __future__ import annotations

import enum
from _thread import get_ident
from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING, Final, NoReturn, SupportsIndex, TypeVar, overload

from provider_concurrency._tags import (
    CANCELLED,
    COOLING,
    FREE,
    FREE_RECLAIMED,
    HANDED,
    HELD,
    NEW,
    QUEUED,
    RECLAIMED,
    REJECTED,
    TIMED_OUT,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from provider_concurrency import guard, threading_guard
    from provider_concurrency.lease import LeaseOptions
    from provider_concurrency.provider import Provider

__all__ = ["Slot", "SlotState"]

T = TypeVar("T")

ENTERED_TWICE: Final = "what manager.slot() returns can be entered only once"


class SlotState(enum.Enum):
    """Where a slot is in its life (SPEC.md, the slot table)."""

    QUEUED = "queued"
    HELD = "held"
    COOLING = "cooling"
    RECLAIMED = "reclaimed"
    FREE = "free"
    CANCELLED = "cancelled"
    TIMED_OUT = "timed_out"
    REJECTED = "rejected"


_STATES: Final = {
    HELD: SlotState.HELD,
    HANDED: SlotState.HELD,
    QUEUED: SlotState.QUEUED,
    COOLING: SlotState.COOLING,
    RECLAIMED: SlotState.RECLAIMED,
    FREE: SlotState.FREE,
    FREE_RECLAIMED: SlotState.FREE,
    CANCELLED: SlotState.CANCELLED,
    TIMED_OUT: SlotState.TIMED_OUT,
    REJECTED: SlotState.REJECTED,
    NEW: SlotState.QUEUED,
}


class Slot:
    """One request's place at its provider. Made by the manager only; compared and hashed by identity.

    `with await manager.acquire(...) as slot:` releases at the end of the block. A slot has no finaliser: one that is
    dropped without a release is given back by the watchdog (FIN-1, WAT-1).
    """

    __slots__ = ("_ancestors", "_arrival", "_deadline", "_key", "_on_reclaimed", "_prompt", "_provider", "_state",
                 "_touched", "_waiter", "conversation_id")  # fmt: skip

    # The manager builds slots attribute by attribute, not by __init__ (a seventh of an uncontended request); those that
    # only a queued request needs are not set on a slot that is granted at once, nor is its number where no observer
    # could tell it.
    _provider: Provider
    _state: int
    _arrival: int
    _touched: int  # when it last showed life (ns): queued, was granted, was touched (WAT-2)
    _key: float  # its place in a run (see queue.py)
    _prompt: float | None
    _waiter: object
    _ancestors: frozenset[str]  # the conversations around a request that queued, if there are any (NST-1)
    _deadline: int | None
    _on_reclaimed: Callable[[], object] | None  # told of a reclaim before the manager's own on_reclaim (GRD-4)
    conversation_id: str | None

    def release(self) -> None:
        """Gives the slot back: its cooldown starts now (REL-1).

        Synchronous, idempotent for ever, callable from any thread (THR-1); never raises (REL-2), but for a
        KeyboardInterrupt or SystemExit out of a callback (CAL-4).
        """
        # The short way, where nobody is queued and no observer listens: `Core._release` without what then leaves
        # nothing to do. It only makes room, so a finaliser may come by in the middle of a grant (FIN-1); and one that
        # releases this very slot may come by at any call, so none stands between the last look and the change.
        p = self._provider
        manager = p.manager
        if get_ident() != manager._home:
            manager._release_slot(self)
        elif self._state == HELD:
            if p.queue is not None:
                manager._operate(manager._release, self)
            elif p.cooldown:
                manager._start_cooldown(p, self)
            else:
                del p.held[self]
                self._state = FREE

    def touch(self) -> None:
        """Tells the watchdog that the holder is alive (WAT-2); without effect on a slot that isn't held."""
        self._provider.manager._touch_slot(self)

    @overload
    def guard(
        self, stream: AsyncIterator[T], *, first_timeout: float | None = None, abort_reclaimed: bool = True
    ) -> guard.GuardedIterator[T]: ...

    @overload
    def guard(
        self, stream: Iterator[T], *, first_timeout: float | None = None, abort_reclaimed: bool = True
    ) -> threading_guard.GuardedIterator[T]: ...

    def guard(
        self,
        stream: AsyncIterator[T] | Iterator[T],
        *,
        first_timeout: float | None = None,
        abort_reclaimed: bool = True,
    ) -> guard.GuardedIterator[T] | threading_guard.GuardedIterator[T]:
        """The stream, which from now on holds this slot until it ends, is closed, fails or is forgotten (GRD-1..4).

            async for item in slot.guard(stream): ...

        Each item touches the slot. `first_timeout`: seconds to wait for the first item, then TimeoutError.
        `abort_reclaimed`: a reclaim closes the stream, and its reader gets SlotReclaimedError. Raises ValueError if the
        slot isn't held. An async stream needs a running loop, else RuntimeError. One that isn't async is read by a
        thread, which nothing interrupts: it is told of either when its read returns (BLK-8).
        """
        from provider_concurrency import guard, threading_guard  # most slots are never guarded

        if self._state != HELD:
            raise ValueError(f"only a held slot can guard a stream; this one is {_STATES[self._state].value}")
        options: LeaseOptions = {"first_timeout": first_timeout, "abort_reclaimed": abort_reclaimed}
        if isinstance(stream, AsyncIterator):
            return guard.GuardedIterator(guard.Lease(self, **options), stream)
        return threading_guard.GuardedIterator(threading_guard.Lease(self, **options), stream)

    @property
    def provider(self) -> str:
        """The provider's name."""
        return self._provider.name

    @property
    def state(self) -> SlotState:
        """The state now; what is due of the provider is applied first (TIM-3)."""
        if self._state in (COOLING, RECLAIMED):
            self._provider.manager._apply_due(self._provider)
        return _STATES[self._state]

    @property
    def reclaimed(self) -> bool:
        """Whether the watchdog took the slot back; stays true to the end (WAT-3)."""
        return self._state in (RECLAIMED, FREE_RECLAIMED)

    def __enter__(self) -> Slot:
        if self._state != HELD:
            raise RuntimeError(f"only a held slot can be entered; this one is {self.state.value}")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.release()

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        """For copy and pickle: the manager knows this slot only."""
        raise TypeError("a slot can't be copied: its manager would not know the copy")

    def __repr__(self) -> str:
        return f"<Slot of {self._provider.name!r}: {_STATES[self._state].value}>"
