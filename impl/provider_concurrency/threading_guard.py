"""Holding a slot of a blocking manager for exactly as long as a stream lives: what guard.py is for tasks, for threads.

A thread that reads can't be cancelled. What ends its read from outside is the connection: it is cut, the read returns,
and the reader closes the stream and is told why. What can't be cut (see `cut_by`) is told when its read returns by
itself. A thread that ends leaves nothing behind that could be noticed, so GRD-2 has no counterpart: a stream that its
reader drops is closed by its finaliser, one that is kept unread is the watchdog's.

No lock is waited for anywhere here, and no library is called from a finaliser or a notification: either may come by
in the middle of anything that this very thread does, and have to wait for itself. Closing is left to a thread.
"""

from __future__ import annotations

import logging
import threading
import time
from _thread import get_ident, start_new_thread
from collections.abc import Callable, Hashable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Final, Self, TypeVar, Unpack

from provider_concurrency.fork import forget_in_children
from provider_concurrency.lease import BaseLease, Guarded, LeaseOptions, LeaseWatch
from provider_concurrency.turn import Turn
from provider_concurrency.wake import WakeThread

if TYPE_CHECKING:
    from types import TracebackType

    from provider_concurrency.slot import Slot

__all__ = ["Alarms", "GuardedIterator", "Lease"]

T = TypeVar("T")
log: Final = logging.getLogger("provider_concurrency")


class Alarms:
    """The timers of many leases, kept by one thread that starts with the first of them."""

    def __init__(self) -> None:
        """No thread yet."""
        self._forget_parent()
        forget_in_children(self)

    def _forget_parent(self) -> None:
        """In a forked child: the thread is the parent's."""
        self._lock = threading.RLock()
        self._wakes = WakeThread(self._lock)

    def now(self) -> float:
        """Seconds on the clock of the alarms."""
        return time.monotonic()

    def set(self, key: Hashable, delay: float, wake: Callable[[], object]) -> None:
        """Has `wake` called in `delay` seconds, in place of the key's former alarm."""
        with self._lock:
            self._wakes.set(key, delay, wake)

    def clear(self, key: Hashable) -> None:
        """Drops a key's alarm, if any."""
        with self._lock:
            self._wakes.clear(key)

    def stop(self) -> None:
        """Drops all alarms and ends the thread."""
        self._wakes.stop()


class _Watch(LeaseWatch["Lease"]):
    """What the slot and the alarms call."""

    def on_beat(self) -> None:
        if (lease := self._lease()) is not None:
            lease._beat()

    def on_late(self, wait: int) -> None:
        if (lease := self._lease()) is not None:
            lease._on_late(wait)


class Lease(BaseLease):
    """One held slot, and what has to be closed before it is given back; for one reading thread at a time."""

    _watch: _Watch

    def __init__(self, slot: Slot, *, alarms: Alarms | None = None, **options: Unpack[LeaseOptions]) -> None:
        """Sources are closed by their `close`, if any. `alarms` keep it alive, and cut a first wait that is too long.

        Without them `keep_alive` has no effect, and a first wait that was too long is told when it is over.
        """
        self._alarms = alarms
        self._now = time.monotonic if alarms is None else alarms.now
        self._turn = Turn()  # of whoever reads or closes
        self._reader = 0  # the thread that reads
        self._waits = 0  # how many waits there have been
        self._is_late = False  # first_timeout is over, and the wait for it was cut
        self._cut: Callable[[], object] | None = None
        super().__init__(slot, _Watch(self), options)

    def cut_by(self, cut: Callable[[], object] | None) -> None:
        """`cut()`, called from any thread, makes the read that is under way return; it must not wait for anything."""
        self._cut = cut

    @property
    def first_left(self) -> float | None:
        """Seconds that are left for the first sign of life; None: no limit."""
        return self._first_left

    def wait(self, step: Callable[[], T]) -> T:
        """Makes one step of the stream, within what is left for the first sign of life.

        Raises what the step raises; SlotReclaimedError if the slot is taken back meanwhile or was before, and
        ProviderConcurrencyError if the stream was closed behind its reader, or is read by another thread.
        """
        self._check()
        items: list[T] = []
        try:
            is_mine = self._turn.run(lambda: items.append(self._wait(step)))
        except Exception:
            self._check()  # what really ended it
            raise
        self._check()
        if not is_mine:
            raise RuntimeError(f"another thread reads or closes this stream of provider {self.slot.provider!r}")
        return items[0]

    def close(self, why: str | None = None) -> None:
        """Closes the sources, then gives the slot back, also if that fails. Idempotent.

        `why`: what a later read is told; None if only the reader itself can have closed it. A read that another thread
        is in the middle of is cut instead: its reader closes.
        """
        self._gone = self._gone or why
        if not self._turn.run(self._close):
            self._gone = self._gone or "another thread closed it"
            if self._reader:
                self._cut_off()

    def _close(self) -> None:
        sources, self._sources = self._sources, ()
        try:
            _close_all(sources)
        finally:
            self.give_back()

    # -- what ends it from outside --------------------------------------------------------------------------------

    def _on_reclaim(self) -> None:
        if self._held and self._abort_reclaimed:
            if self._reader:
                self._cut_off()
            else:
                self._finish_later()

    def _forget(self) -> None:
        self._finish_later()

    def _finish_later(self) -> None:
        try:
            start_new_thread(self._finish, ())
        except RuntimeError:  # no more threads
            self.give_back()

    def _finish(self) -> None:
        try:
            self.close()
        except Exception as error:  # noqa: BLE001 - nobody is left to whom it could be raised
            log.debug("closing an abandoned stream of provider %r failed: %r", self.slot.provider, error)

    def _cut_off(self) -> None:
        if (cut := self._cut) is not None:
            cut()

    # -- one wait ---------------------------------------------------------------------------------------------------

    def _wait(self, step: Callable[[], T]) -> T:
        began = self._now()
        try:
            self._reader = get_ident()
            self._waits += 1
            self._set_alarms()
            return step()
        finally:
            self._reader = 0
            if self._alarms is not None and (self._beat_every is not None or self._first_left is not None):
                self._alarms.clear((self._watch, "beat"))
                self._alarms.clear((self._watch, "late"))
            if self._first_left is not None:
                self._first_left = max(self._first_left - (self._now() - began), 0.0)
                self._is_late = self._is_late or not self._first_left

    def _set_alarms(self) -> None:
        if self._alarms is None:
            return
        if self._beat_every is not None:
            self._alarms.set((self._watch, "beat"), self._beat_every, self._watch.on_beat)
        if self._first_left is not None and self._cut is not None:
            self._alarms.set((self._watch, "late"), self._first_left, partial(self._watch.on_late, self._waits))

    def _beat(self) -> None:
        self.slot.touch()
        if self._reader and self._beat_every is not None and self._alarms is not None:
            self._alarms.set((self._watch, "beat"), self._beat_every, self._watch.on_beat)

    def _on_late(self, wait: int) -> None:
        if self._reader and wait == self._waits and self._first_left is not None:
            self._is_late = True
            self._cut_off()

    def _check(self) -> None:
        super()._check()
        if self._is_late:
            raise self._first_timed_out()


class GuardedIterator(Guarded[T]):
    """An iterator that holds a slot until it is exhausted, closed or failed (GRD-1).

    Every item for which `counts(item)` is true touches the slot (None: every item). `with` closes it at the end of the
    block. Reading one that was closed ends at once, as a closed generator does; reading one that was closed behind its
    reader raises, lest a cut answer look like a whole one.
    """

    def __init__(
        self, lease: Lease, source: Iterator[T], *more: object, counts: Callable[[T], bool] | None = None
    ) -> None:
        """`more`: what is to be closed after the source itself."""
        super().__init__(lease, counts, (source, *more))
        self._lease = lease
        self._source = source

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> T:
        if self._ended:
            raise StopIteration
        try:
            item = self._lease.wait(self._source.__next__)
        except StopIteration:
            self._ended = True
            self._lease.give_back()
            raise
        except BaseException:
            self._lease.close()
            raise
        if self._is_sign_of_life(item):
            self._lease.heard()
        return item

    def close(self) -> None:
        """Closes the source, then gives the slot back. Idempotent."""
        self._ended = True
        self._lease.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def _close_all(sources: tuple[object, ...]) -> None:
    """Closes each, in order; a failing one doesn't keep the rest open."""
    if not sources:
        return
    first, rest = sources[0], sources[1:]
    try:
        close = getattr(first, "close", None)
        if close is not None:
            close()
    finally:
        _close_all(rest)
