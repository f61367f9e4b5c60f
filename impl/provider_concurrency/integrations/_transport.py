"""What an HTTP transport does with slots, without any HTTP library; `httpx2` and `httpx` add only their own classes.

Every request that reaches the transport takes its own slot before it is sent, also a redirect, an auth hop and a retry
(HTT-3), and the response's body holds that slot until it is read to its end, closed, failed or forgotten (HTT-4, see
guard.py). Whatever happens before there is a body gives the slot back at once. A response that says "too many" is
reported with the time it asks for (HTT-5), before its slot is given back, so that nobody is admitted in between.
"""

from __future__ import annotations

import inspect
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Final,
    Generic,
    Protocol,
    Self,
    TypeAlias,
    TypedDict,
    TypeVar,
    Unpack,
    cast,
)

from provider_concurrency.errors import ProviderConcurrencyError
from provider_concurrency.guard import GuardedIterator, Lease
from provider_concurrency.integrations._keepalive import KeepaliveFilter
from provider_concurrency.integrations._routing import Headers, ProviderChoice, Request, Router
from provider_concurrency.integrations._sdk_errors import fit_sdk
from provider_concurrency.retry_after import parse_retry_after
from provider_concurrency.validation import check_callback, check_duration

if TYPE_CHECKING:
    from types import TracebackType

    from provider_concurrency.manager import ConcurrencyManager
    from provider_concurrency.slot import Slot

Verdict: TypeAlias = bool | float | None
"""Of a response: no rate limit (False, None), one with the headers' time (True), or with so many seconds (a number)."""


class Response(Protocol):
    """The part of a library's response that is used."""

    stream: Any
    status_code: int
    is_closed: bool

    @property
    def headers(self) -> Headers:
        """Its header lines."""
        ...


class Inner(Protocol):
    """The part of the wrapped transport that is used."""

    async def handle_async_request(self, request: Any, /) -> Any:
        """Sends a request; returns its response, the body yet unread."""

    async def aclose(self) -> None:
        """Closes the connections."""

    async def __aenter__(self) -> Any: ...

    async def __aexit__(self, kind: Any = None, error: Any = None, traceback: Any = None, /) -> Any: ...


class Client(Protocol):
    """The part of a library's client that is used; the library has no public way to wrap what a client has made."""

    _transport: Any
    _mounts: Any


class LimitOptions(TypedDict, total=False):
    """The keywords that transports and `limited_client` take; all of them optional."""

    provider: ProviderChoice
    """Which provider a request belongs to (HTT-1); default: its host."""
    acquire_timeout: float | None
    """Seconds to queue for a slot at most, then AcquireTimeoutError (CAN-3); default None: no limit."""
    rate_limit_statuses: Collection[int]
    """Statuses that mean "too many at once" (HTT-5); default {429}."""
    classify: Callable[[Any], Verdict | Awaitable[Verdict]] | None
    """Judges a response instead of the statuses (HTT-5); default None."""
    first_byte_timeout: float | None
    """Seconds from sending to the first byte of the body at most, then the library's ReadTimeout (HTT-6)."""
    keepalives_count: bool
    """Whether an event stream's keep-alives are signs of life (HTT-7); default True."""
    abort_reclaimed: bool
    """Whether a response whose slot is reclaimed is closed (GRD-4); default True."""


RequestT = TypeVar("RequestT", bound=Request)
ResponseT = TypeVar("ResponseT", bound=Response)
_KNOWN: Final = frozenset(LimitOptions.__annotations__)


class SlotTransport(Generic[RequestT, ResponseT]):
    """An async transport's behaviour, around an inner one; the library's module makes a transport of it."""

    body_type: ClassVar[type[GuardedIterator[bytes]]]
    """The library's kind of response stream."""
    timeout_type: ClassVar[Callable[..., Exception]]
    """The library's ReadTimeout."""

    def __init__(self, manager: ConcurrencyManager, inner: Inner, **options: Unpack[LimitOptions]) -> None:
        """Raises TypeError or ValueError, naming the option."""
        if unknown := options.keys() - _KNOWN:
            raise TypeError(f"unknown options: {', '.join(sorted(unknown))}")
        if isinstance(inner, SlotTransport):
            raise ValueError(  # noqa: TRY004 - the right type, in the wrong place
                "the inner transport takes slots already; a request would need two at once (HTT-3)"
            )
        self._manager = manager
        self._inner = inner
        wall_clock = manager._settings.wall_clock
        self._wall_clock = wall_clock
        acquire_timeout = options.get("acquire_timeout")
        if acquire_timeout is not None:
            check_duration("acquire_timeout", acquire_timeout)
        self._router = Router(options.get("provider"), acquire_timeout, wall_clock)
        self._statuses = _check_statuses(options.get("rate_limit_statuses", (429,)))
        self._classify = options.get("classify")
        check_callback("classify", self._classify)
        self._first_byte_timeout = options.get("first_byte_timeout")
        if self._first_byte_timeout is not None:
            check_duration("first_byte_timeout", self._first_byte_timeout, positive=True)
        self._keepalives_count = options.get("keepalives_count", True)
        self._abort_reclaimed = options.get("abort_reclaimed", True)
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
            slot = await self._manager.acquire(
                route.provider,
                conversation_id=route.conversation_id,
                prompt_started_at=route.prompt_started_at,
                timeout=route.timeout,
            )
            return await self._send(request, slot)
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
        lease = Lease(
            slot,
            first_timeout=self._first_byte_timeout,
            on_first_timeout=lambda: self._explain_first_timeout(request),
            keep_alive=self._is_bounded(request),
            abort_reclaimed=self._abort_reclaimed,
            fit_error=lambda error: fit_sdk(error, request.headers.get("user-agent")),
        )
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
        counts = None
        if not self._keepalives_count and _is_plain_event_stream(response.headers):
            counts = KeepaliveFilter().counts
        stream = response.stream
        source: AsyncIterator[bytes] = aiter(stream)
        response.stream = self.body_type(lease, source, stream, counts=counts)

    async def _judge(self, response: ResponseT, provider: str) -> None:
        """Reports a response that says "too many" (HTT-5)."""
        verdict: object = response.status_code in self._statuses
        if self._classify is not None:
            try:
                judged = self._classify(response)
                verdict = await judged if inspect.isawaitable(judged) else judged
            except Exception as error:  # noqa: BLE001 - the caller's code; a 429 must not be lost for it
                self._manager._report_failure(error, self._classify)
        if verdict is None or verdict is False:
            return
        seconds: Any = verdict
        if verdict is True:
            found = parse_retry_after(response.headers.multi_items(), now=self._wall_clock())
            seconds = None if found is None else found.requested
        self._manager.report_rate_limit(provider, seconds)

    def _is_bounded(self, request: RequestT) -> bool:
        """Whether something else than the watchdog ends a wait for the first byte (GRD-5)."""
        timeouts = cast("dict[str, object]", request.extensions.get("timeout", {}))
        return self._first_byte_timeout is not None or timeouts.get("read") is not None

    def _explain_first_timeout(self, request: RequestT) -> Exception:
        message = f"no first byte within first_byte_timeout ({self._first_byte_timeout} s)"
        return self.timeout_type(message, request=request)


def put_underneath(client: Client, wrap: Callable[[Any], SlotTransport[Any, Any]]) -> None:
    """Wraps every transport of a client, those of its proxies and mounts included, so that no request goes past."""
    client._transport = wrap(client._transport)
    client._mounts = {pattern: None if inner is None else wrap(inner) for pattern, inner in client._mounts.items()}


def _check_statuses(statuses: Collection[object]) -> frozenset[int]:
    checked: set[int] = set()
    for status in statuses:
        if isinstance(status, bool) or not isinstance(status, int):
            raise TypeError(f"rate_limit_statuses must be ints, not {status!r}")
        checked.add(status)
    return frozenset(checked)


def _is_plain_event_stream(headers: Headers) -> bool:
    """Whether keep-alives can be told: an event stream whose bytes aren't compressed."""
    kind = (headers.get("content-type") or "").partition(";")[0].strip().lower()
    coding = (headers.get("content-encoding") or "identity").strip().lower()
    return kind == "text/event-stream" and coding == "identity"
