"""The async transport's behaviour; the library's module makes a transport of it."""

from __future__ import annotations

import inspect
import weakref
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self, Unpack

from provider_concurrency.errors import ProviderConcurrencyError
from provider_concurrency.guard import GuardedIterator, Lease
from provider_concurrency.integrations._sdk_errors import fit_sdk
from provider_concurrency.integrations._transport import LimitOptions, RequestT, ResponseT, SlotTransport, ask_for
from provider_concurrency.manager import ConcurrencyManager

if TYPE_CHECKING:
    from types import TracebackType

    from provider_concurrency.slot import Slot


class Inner(Protocol):
    """The part of the wrapped transport that is used."""

    async def handle_async_request(self, request: Any, /) -> Any:
        """Sends a request; returns its response, the body yet unread."""

    async def aclose(self) -> None:
        """Closes the connections."""

    async def __aenter__(self) -> Any: ...

    async def __aexit__(self, kind: Any = None, error: Any = None, traceback: Any = None, /) -> Any: ...


class WaitingTransport(SlotTransport[RequestT, ResponseT]):
    """A transport whose tasks wait for their slots."""

    manager_type = ConcurrencyManager
    body_type: ClassVar[type[GuardedIterator[bytes]]]
    """The library's kind of response stream."""

    def __init__(self, manager: ConcurrencyManager, inner: Inner, **options: Unpack[LimitOptions]) -> None:
        """Raises TypeError or ValueError, naming the option."""
        super().__init__(manager, inner, options)
        self._manager = manager
        self._inner = inner
        self._open: weakref.WeakSet[Lease] = weakref.WeakSet()

    async def handle_async_request(self, request: RequestT) -> ResponseT:
        """Sends a request when it has its slot (HTT-3). Raises what the inner transport raises, and what acquire does.

        `QueueFullError`, `AcquireTimeoutError` and `ManagerClosedError` are ours, not the upstream's (HTT-8).
        """
        route = self._router.find(request)
        if route.provider is None:
            response: ResponseT = await self._inner.handle_async_request(request)
            return response
        try:
            return await self._send(request, await self._manager.acquire(route.provider, **ask_for(route)))
        except ProviderConcurrencyError as error:
            raise fit_sdk(error, request.headers.get("user-agent")) from None

    async def aclose(self) -> None:
        """Closes what is still open of the responses and gives their slots back, then closes the inner transport."""
        try:
            await self._close_bodies()
        finally:
            await self._inner.aclose()

    async def __aenter__(self) -> Self:
        await self._inner.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None = None,
        error: BaseException | None = None,
        traceback: TracebackType | None = None,
    ) -> None:
        try:
            await self._close_bodies()
        finally:
            await self._inner.__aexit__(kind, error, traceback)

    async def _close_bodies(self) -> None:
        for lease in list(self._open):
            await lease.close("the transport was closed")

    async def _send(self, request: RequestT, slot: Slot) -> ResponseT:
        """Sends a request that has its slot; the body of the response that it returns holds it."""
        lease = Lease(slot, **self._lease_options(request))
        try:
            response: ResponseT = await lease.wait(lambda: self._inner.handle_async_request(request))
        except BaseException:  # a cancelled, failed or refused request: nobody else will give the slot back
            lease.give_back()
            raise
        self._open.add(lease)
        try:
            self._hold(response, lease)
            await self._judge(response, slot.provider)
        except BaseException:
            await lease.close()
            raise
        if response.is_closed:  # the inner transport had the whole body, and nobody will read the stream
            lease.give_back()
        return response

    def _hold(self, response: ResponseT, lease: Lease) -> None:
        """Puts a stream that holds the slot in the place of the response's own (HTT-4)."""
        stream = response.stream
        source: AsyncIterator[bytes] = aiter(stream)
        response.stream = self.body_type(lease, source, stream, counts=self._choose_counts(response))

    async def _judge(self, response: ResponseT, provider: str) -> None:
        """Reports a response that says "too many" (HTT-5)."""
        verdict: Any = response.status_code in self._statuses
        if self._classify is not None:
            try:
                judged = self._classify(response)
                verdict = await judged if inspect.isawaitable(judged) else judged
            except Exception as error:  # noqa: BLE001 - the caller's code; a 429 must not be lost for it
                self._manager._report_failure(error, self._classify)
        self._report(self._manager, response, provider, verdict)
