"""Holding a slot for exactly as long as a stream lives, whoever ends it.

A streamed answer occupies the provider until its last byte, not until its head, and it can end in many ways: read to
the end, closed, failed, cancelled in the middle of a read, its reader dead between two reads, or simply forgotten. A
lease ties one slot to one stream and gives it back once, after the stream was closed (GRD-1):

- who reads it to the end, closes it, or sees it fail gives it back there and then;
- a reader that ends with an exception or a cancellation between two reads has its stream closed behind it, even if
  somebody keeps the dead task (GRD-2): the reader is the task that read last, before the first read the one that
  opened it;
- a forgotten one is closed by its finaliser, from whichever thread, with a ResourceWarning (GRD-3);
- one that the watchdog reclaims is closed at once, so that the upstream stops counting it, and its reader gets a
  SlotReclaimedError (GRD-4).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar, Unpack

from provider_concurrency.lease import BaseLease, Guarded, LeaseOptions, LeaseWatch

if TYPE_CHECKING:
    from types import TracebackType

    from provider_concurrency.slot import Slot

__all__ = ["GuardedIterator", "Lease"]

T = TypeVar("T")
log: Final = logging.getLogger("provider_concurrency")
_closing: Final[set[asyncio.Task[None]]] = set()  # the loop alone would not keep them alive


class _Watch(LeaseWatch["Lease"]):
    """What the slot and the reader's task call."""

    def on_reader_done(self, task: asyncio.Task[Any]) -> None:
        # `_exception`, since reading `exception()` would silence asyncio's "exception was never retrieved".
        if (lease := self._lease()) is not None and (task.cancelled() or task._exception is not None):
            lease._on_reader_gone(task)


class Lease(BaseLease):
    """One held slot, and what has to be closed before it is given back; to be made on the slot's loop."""

    _watch: _Watch

    def __init__(self, slot: Slot, **options: Unpack[LeaseOptions]) -> None:
        """Sources are closed by their `aclose`, if any."""
        self._loop = asyncio.get_running_loop()
        self._scope: asyncio.Timeout | None = None  # of the wait that is under way
        self._reader: asyncio.Task[Any] | None = None
        super().__init__(slot, _Watch(self), options)
        self._read_by(asyncio.current_task())

    async def wait(self, step: Callable[[], Awaitable[T]]) -> T:
        """Awaits one step of the stream, within what is left for the first sign of life.

        Raises what the step raises; SlotReclaimedError if the slot is taken back meanwhile or was before, and
        ProviderConcurrencyError if the stream was closed behind its reader.
        """
        self._check()
        self._read_by(asyncio.current_task())
        began = self._loop.time()
        beat = None
        if self._beat_every is not None:
            beat = self._loop.call_later(self._beat_every, self._beat)
            self._timer = beat
        self._scope = scope = asyncio.timeout(self._first_left)
        try:
            async with scope:
                return await step()
        except TimeoutError:
            if not scope.expired():
                raise
            self._check()
            raise self._first_timed_out() from None
        finally:
            self._scope = None
            if beat is not None:
                self._timer.cancel()
            if self._first_left is not None:
                self._first_left = max(self._first_left - (self._loop.time() - began), 0.0)

    async def close(self, why: str | None = None) -> None:
        """Closes the sources, then gives the slot back, also if that fails or is cancelled. Idempotent.

        `why`: what a later read is told; None if only the reader itself can have closed it.
        """
        self._gone = self._gone or why
        if self._scope is not None and self._sources and all(map(_is_running, self._sources)):
            self._gone = self._gone or "another task closed it"
            self._scope.reschedule(self._loop.time())  # a running generator refuses to be closed: its reader does it
            return
        sources, self._sources = self._sources, ()
        try:
            await _close_all(sources)
        finally:
            self.give_back()

    def give_back(self) -> None:
        """See BaseLease."""
        if self._held:
            self._read_by(None)
        super().give_back()

    def abandon(self, why: str) -> None:
        """Closes the sources and gives the slot back in the background; for where nothing can be awaited."""
        self._gone = self._gone or why
        if self._held:
            self._held = False
            _finish_later(self._loop, self._take_parts())

    # -- what ends it from outside --------------------------------------------------------------------------------

    def _on_reclaim(self) -> None:
        if not self._held or not self._abort_reclaimed:
            return
        self._gone = "reclaimed"
        if self._scope is not None:
            self._scope.reschedule(self._loop.time())  # the wait ends, and its reader closes
        else:
            self.abandon("reclaimed")

    def _on_reader_gone(self, task: asyncio.Task[Any]) -> None:
        if task is self._reader:
            self.abandon("the task that read it has ended")

    # -- helpers --------------------------------------------------------------------------------------------------

    def _forget(self) -> None:
        self._held = False
        _finish_later(self._loop, self._take_parts())

    def _read_by(self, task: asyncio.Task[Any] | None) -> None:
        """`task` is the reader from now on."""
        if task is not self._reader:
            if self._reader is not None:
                self._reader.remove_done_callback(self._watch.on_reader_done)
            if task is not None:
                task.add_done_callback(self._watch.on_reader_done)
            self._reader = task

    def _beat(self) -> None:
        self.slot.touch()
        if self._beat_every is not None:
            self._timer = self._loop.call_later(self._beat_every, self._beat)

    def _take_parts(self) -> _Parts:
        reader, sources = self._reader, self._sources
        self._reader, self._sources = None, ()
        return self.slot, sources, reader, self._watch


class GuardedIterator(Guarded[T]):
    """An async iterator that holds a slot until it is exhausted, closed, failed, or its reader is gone (GRD-1).

    Every item for which `counts(item)` is true touches the slot (None: every item). `async with` closes it at the
    end of the block. Reading one that was closed ends at once, as a closed generator does; reading one that was
    closed behind its reader raises, lest a cut answer look like a whole one.
    """

    def __init__(
        self, lease: Lease, source: AsyncIterator[T], *more: object, counts: Callable[[T], bool] | None = None
    ) -> None:
        """`more`: what is to be closed after the source itself."""
        super().__init__(lease, counts, (source, *more))
        self._lease = lease
        self._source = source

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> T:
        if self._ended:
            raise StopAsyncIteration
        try:
            item = await self._lease.wait(self._source.__anext__)
        except StopAsyncIteration:
            self._ended = True
            self._lease.give_back()
            raise
        except GeneratorExit:  # the reader's coroutine is being dropped: nothing can be awaited any more
            self._lease.abandon("the coroutine that read it was dropped")
            raise
        except BaseException:
            await self._lease.close()
            raise
        if self._is_sign_of_life(item):
            self._lease.heard()
        return item

    async def aclose(self) -> None:
        """Closes the source, then gives the slot back. Idempotent."""
        self._ended = True
        await self._lease.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()


_Parts = tuple["Slot", tuple[object, ...], "asyncio.Task[Any] | None", _Watch]


def _finish_later(loop: asyncio.AbstractEventLoop, parts: _Parts) -> None:
    """From any thread, also from within a finaliser: closes and gives back on the loop; without a loop, gives back."""
    try:
        loop.call_soon_threadsafe(_start_finish, loop, parts)
    except RuntimeError:  # the loop is closed, and the connections with it
        _detach(parts)
        parts[0].release()


def _start_finish(loop: asyncio.AbstractEventLoop, parts: _Parts) -> None:
    task = loop.create_task(_finish(parts))
    _closing.add(task)
    task.add_done_callback(_closing.discard)


async def _finish(parts: _Parts) -> None:
    slot, sources = parts[0], parts[1]
    try:
        await _close_all(sources)
    except Exception as error:  # noqa: BLE001 - nobody is left to whom it could be raised
        log.debug("closing an abandoned stream of provider %r failed: %r", slot.provider, error)
    finally:
        _detach(parts)
        slot.release()


def _detach(parts: _Parts) -> None:
    slot, _, reader, watch = parts
    slot._on_reclaimed = None
    if reader is not None:
        reader.remove_done_callback(watch.on_reader_done)


def _is_running(source: object) -> bool:
    """Whether a source is a generator that another task is in the middle of."""
    return bool(getattr(source, "ag_running", False))


async def _close_all(sources: tuple[object, ...]) -> None:
    """Closes each, in order; a failing one doesn't keep the rest open."""
    if not sources:
        return
    first, rest = sources[0], sources[1:]
    try:
        aclose = getattr(first, "aclose", None)
        if aclose is not None and not _is_running(first):
            await aclose()
    finally:
        await _close_all(rest)
