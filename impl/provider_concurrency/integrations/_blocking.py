"""The sync transport's behaviour; the library's module makes a transport of it.

A wait for the head can't be cut, since nothing tells the connection before there is a response: it is bounded by the
library's own timeouts, each of which gets no more than is left. A wait for the body is cut by shutting the connection
down. What HTTP/2 shares a connection between is never cut: its reader is told when its read returns.
"""

from __future__ import annotations

import inspect
import socket
import threading
import weakref
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Final, Protocol, Self, Unpack, cast

from provider_concurrency.errors import ProviderConcurrencyError
from provider_concurrency.integrations._sdk_errors import fit_sdk
from provider_concurrency.integrations._transport import LimitOptions, RequestT, ResponseT, SlotTransport, ask_for
from provider_concurrency.threading import ConcurrencyManager
from provider_concurrency.threading_guard import Alarms, GuardedIterator, Lease

if TYPE_CHECKING:
    from types import TracebackType

    from provider_concurrency.slot import Slot

_LEAST_S: Final = 0.001
"""What a timeout is at least: none is a library's word for "don't wait"."""
_GRACE_S: Final = 0.1
"""How much later than the sweep that reclaims its slot a wait for the head ends."""


class Inner(Protocol):
    """The part of the wrapped transport that is used."""

    def handle_request(self, request: Any, /) -> Any:
        """Sends a request; returns its response, the body yet unread."""

    def close(self) -> None:
        """Closes the connections."""

    def __enter__(self) -> Any: ...

    def __exit__(self, kind: Any = None, error: Any = None, traceback: Any = None, /) -> Any: ...


class Countdown(dict[str, Any]):
    """A request's timeouts, none of which is longer than what is left at the moment when it is asked for."""

    def __init__(self, timeouts: dict[str, Any], seconds: float, now: Callable[[], float]) -> None:
        """`seconds` are left now."""
        super().__init__(timeouts)
        self._now = now
        self._end = now() + seconds

    def get(self, key: str, default: Any = None) -> Any:
        """The timeout, cut."""
        own = super().get(key, default)
        left = max(self._end - self._now(), _LEAST_S)
        return left if own is None else min(own, left)

    def __getitem__(self, key: str) -> Any:
        return self.get(key)


class BlockingTransport(SlotTransport[RequestT, ResponseT]):
    """A transport whose threads wait for their slots."""

    manager_type = ConcurrencyManager
    body_type: ClassVar[type[GuardedIterator[bytes]]]
    """The library's kind of response stream."""

    def __init__(self, manager: ConcurrencyManager, inner: Inner, **options: Unpack[LimitOptions]) -> None:
        """Raises TypeError or ValueError, naming the option."""
        super().__init__(manager, inner, options)
        if inspect.iscoroutinefunction(self._classify):
            raise TypeError("classify of a sync transport must be no coroutine function")
        self._manager = manager
        self._inner = inner
        self._alarms = Alarms()
        weakref.finalize(self, self._alarms.stop)
        self._lock = threading.RLock()  # of the next
        self._open: weakref.WeakSet[Lease] = weakref.WeakSet()

    def handle_request(self, request: RequestT) -> ResponseT:
        """Sends a request when it has its slot (HTT-3). Raises what the inner transport raises, and what acquire does.

        `QueueFullError`, `AcquireTimeoutError` and `ManagerClosedError` are ours, not the upstream's (HTT-8).
        """
        route = self._router.find(request)
        if route.provider is None:
            response: ResponseT = self._inner.handle_request(request)
            return response
        try:
            return self._send(request, self._manager.acquire(route.provider, **ask_for(route)))
        except ProviderConcurrencyError as error:
            raise fit_sdk(error, request.headers.get("user-agent")) from None

    def close(self) -> None:
        """Closes what is still open of the responses and gives their slots back, then closes the inner transport."""
        try:
            self._close_bodies()
        finally:
            self._inner.close()

    def __enter__(self) -> Self:
        self._inner.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None = None,
        error: BaseException | None = None,
        traceback: TracebackType | None = None,
    ) -> None:
        try:
            self._close_bodies()
        finally:
            self._inner.__exit__(kind, error, traceback)

    def _close_bodies(self) -> None:
        with self._lock:
            leases = list(self._open)
        for lease in leases:
            lease.close("the transport was closed")
        self._alarms.stop()

    def _send(self, request: RequestT, slot: Slot) -> ResponseT:
        """Sends a request that has its slot; the body of the response that it returns holds it."""
        lease = Lease(slot, alarms=self._alarms, **self._lease_options(request))
        try:
            response = lease.wait(lambda: self._receive(request, lease))
            self._judge(response, slot.provider)
        except BaseException:  # a failed or refused request: nobody else will give the slot back
            lease.close()
            raise
        if response.is_closed:  # the inner transport had the whole body, and nobody will read the stream
            lease.give_back()
        return response

    def _receive(self, request: RequestT, lease: Lease) -> ResponseT:
        with self._bounded(request, lease):
            response: ResponseT = self._inner.handle_request(request)
        self._hold(response, lease)
        with self._lock:
            self._open.add(lease)
        return response

    @contextmanager
    def _bounded(self, request: RequestT, lease: Lease) -> Generator[None, None, None]:
        """The request's timeouts end within what is left for the first byte, or with the reclaim of its slot."""
        limit = lease.first_left
        if limit is None and self._abort_reclaimed and not self._is_bounded(request):
            limit = self._manager._time_to_reclaim(lease.slot)
            limit = None if limit is None else limit + _GRACE_S
        extensions = cast("dict[str, Any]", request.extensions)
        timeouts = extensions.get("timeout")
        if limit is not None:
            extensions["timeout"] = Countdown(timeouts or {}, limit, self._alarms.now)
        try:
            yield
        finally:
            if limit is not None:  # the body is read with the request's own
                extensions["timeout"] = timeouts or {}

    def _hold(self, response: ResponseT, lease: Lease) -> None:
        """Puts a stream that holds the slot in the place of the response's own (HTT-4)."""
        lease.cut_by(_find_cut(response.extensions))
        stream = response.stream
        source: Iterator[bytes] = iter(stream)
        response.stream = self.body_type(lease, source, stream, counts=self._choose_counts(response))

    def _judge(self, response: ResponseT, provider: str) -> None:
        """Reports a response that says "too many" (HTT-5)."""
        verdict: Any = response.status_code in self._statuses
        if self._classify is not None:
            try:
                verdict = self._classify(response)
            except Exception as error:  # noqa: BLE001 - the caller's code; a 429 must not be lost for it
                self._manager._report_failure(error, self._classify)
        self._report(self._manager, response, provider, verdict)


def _find_cut(extensions: dict[str, Any]) -> Callable[[], object] | None:
    """What makes a read of this response return at once, or None where its connection isn't its own or isn't known."""
    stream = extensions.get("network_stream")
    connection: object = None if stream is None else stream.get_extra_info("socket")
    if not isinstance(connection, socket.socket) or extensions.get("http_version") == b"HTTP/2":
        return None
    return partial(_shut_down, connection)


def _shut_down(connection: socket.socket) -> None:
    with suppress(OSError):  # it is closed already, which will do
        socket.socket.shutdown(connection, socket.SHUT_RDWR)  # not an SSLSocket's own: its reader is in the middle
