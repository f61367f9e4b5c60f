"""What ties one slot to one stream, whoever waits for it: the half of a lease that tasks and threads share.

Nothing that outlives the stream may keep the lease alive, or a forgotten stream would never be closed (GRD-3): the
slot, which the manager keeps, and every timer know it only weakly.
"""

from __future__ import annotations

import abc
import sys
import warnings
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, TypedDict, TypeVar

from provider_concurrency.errors import ProviderConcurrencyError, SlotReclaimedError, explain

if TYPE_CHECKING:
    from provider_concurrency.slot import Slot

T = TypeVar("T")
LeaseT = TypeVar("LeaseT", bound="BaseLease")


class LeaseOptions(TypedDict, total=False):
    """What a lease may be told, of either kind; all of it optional."""

    first_timeout: float | None
    """Seconds that all waits until the first sign of life may take together; default None: no limit."""
    on_first_timeout: Callable[[], Exception]
    """Makes the error for that; default: TimeoutError."""
    keep_alive: bool
    """Touch the slot while such a wait lasts, because something else bounds it (GRD-5); default False."""
    abort_reclaimed: bool
    """Whether a reclaim closes the stream (GRD-4); default True."""
    fit_error: Callable[[ProviderConcurrencyError], Exception]
    """Makes of our own errors what the reader can tell apart (HTT-8); default: themselves."""


class BaseLease(abc.ABC):
    """One held slot, and what has to be closed before it is given back."""

    _held = False  # for __del__ after a failed __init__
    _first_left: float | None
    _beat_every: float | None

    def __init__(self, slot: Slot, watch: LeaseWatch[Any], options: LeaseOptions) -> None:
        """The slot is told whom a reclaim concerns."""
        self.slot = slot
        self._first_left = options.get("first_timeout")
        self._on_first_timeout = options.get("on_first_timeout")
        self._beat_every = _choose_beat(slot) if options.get("keep_alive", False) else None
        self._abort_reclaimed = options.get("abort_reclaimed", True)
        self._fit_error = options.get("fit_error")
        self._sources: tuple[object, ...] = ()
        self._gone: str | None = None  # why it was closed behind its reader
        self._watch = watch
        self._held = True
        slot._on_reclaimed = watch.on_reclaim

    def close_first(self, *sources: object) -> None:
        """What is to be closed, in this order, before the slot is given back."""
        self._sources = sources

    def heard(self) -> None:
        """A sign of life: touches the slot, and the limit for the first one is over."""
        self._first_left = self._beat_every = None
        self.slot.touch()

    def give_back(self) -> None:
        """Gives the slot back at once; the sources stay as they are. Idempotent."""
        if self._held:
            self._held = False
            self.slot._on_reclaimed = None
            self.slot.release()

    @abc.abstractmethod
    def _on_reclaim(self) -> None:
        """The watchdog took the slot back."""

    @abc.abstractmethod
    def _forget(self) -> None:
        """From a finaliser, in whatever thread: has the sources closed and the slot given back elsewhere."""

    def __del__(self) -> None:
        if self._held and not sys.is_finalizing():
            self._forget()
            warnings.warn(
                f"a stream of provider {self.slot.provider!r} was forgotten: neither read to its end nor closed",
                ResourceWarning,
                stacklevel=2,
                source=self,
            )

    def _check(self) -> None:
        """Raises what a reader must be told that has nothing more to read."""
        if self._abort_reclaimed and self.slot.reclaimed:
            why = "the watchdog took the slot back after slot_timeout without a sign of life"
            raise self._fit(explain(SlotReclaimedError, why, self.slot._provider))
        if self._gone is not None:
            why = f"the stream was closed behind its reader: {self._gone}"
            raise self._fit(ProviderConcurrencyError(why, provider=self.slot.provider))

    def _fit(self, error: ProviderConcurrencyError) -> Exception:
        return error if self._fit_error is None else self._fit_error(error)

    def _first_timed_out(self) -> Exception:
        if self._on_first_timeout is not None:
            return self._on_first_timeout()
        return TimeoutError("the stream gave no sign of life within first_timeout")


class LeaseWatch(Generic[LeaseT]):
    """What the slot calls; it knows the lease weakly."""

    def __init__(self, lease: LeaseT) -> None:
        """Nothing is known of the lease yet but that it is there."""
        self._lease = weakref.ref(lease)

    def on_reclaim(self) -> None:
        """The watchdog took the slot back."""
        if (lease := self._lease()) is not None:
            lease._on_reclaim()


class Guarded(Generic[T]):
    """The half of a guarded iterator that tasks and threads share."""

    def __init__(self, lease: BaseLease, counts: Callable[[T], bool] | None, sources: tuple[object, ...]) -> None:
        """`sources`: what is to be closed when it ends."""
        self._counts = counts
        self._ended = False
        lease.close_first(*sources)

    def _is_sign_of_life(self, item: T) -> bool:
        return self._counts is None or self._counts(item)


def _choose_beat(slot: Slot) -> float | None:
    """Seconds between two touches that keep the watchdog away; None where it is off."""
    slot_timeout = slot._provider.manager._slot_timeout
    return None if slot_timeout is None else slot_timeout / 2e9
