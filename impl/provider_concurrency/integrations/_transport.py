"""What an HTTP transport does with slots, without any HTTP library; `httpx2` and `httpx` add only their own classes.

What tasks and threads share stands here, what waits in `_waiting` and `_blocking`.

Every request that reaches the transport takes its own slot before it is sent, also a redirect, an auth hop and a retry
(HTT-3), and the response's body holds that slot until it is read to its end, closed, failed or forgotten (HTT-4, see
guard.py). Whatever happens before there is a body gives the slot back at once. A response that says "too many" is
reported with the time it asks for (HTT-5), before its slot is given back, so that nobody is admitted in between.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, Protocol, TypeAlias, TypedDict, TypeVar, cast

from provider_concurrency.integrations._keepalive import KeepaliveFilter
from provider_concurrency.integrations._routing import Headers, ProviderChoice, Request, Route, Router
from provider_concurrency.integrations._sdk_errors import fit_sdk
from provider_concurrency.retry_after import parse_retry_after
from provider_concurrency.validation import check_callback, check_duration, check_flag

if TYPE_CHECKING:
    from provider_concurrency.lease import LeaseOptions
    from provider_concurrency.surface import Surface

Verdict: TypeAlias = bool | float | None
"""Of a response: no rate limit (False, None), one with the headers' time (True), or with so many seconds (a number)."""


class Response(Protocol):
    """The part of a library's response that is used."""

    stream: Any
    status_code: int
    is_closed: bool
    extensions: Any

    @property
    def headers(self) -> Headers:
        """Its header lines."""
        ...


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


class AcquireArguments(TypedDict):
    """See ask_for."""

    conversation_id: str | None
    prompt_started_at: float
    timeout: float | None


RequestT = TypeVar("RequestT", bound=Request)
ResponseT = TypeVar("ResponseT", bound=Response)
ClientT = TypeVar("ClientT")
_KNOWN: Final = frozenset(LimitOptions.__annotations__)


class SlotTransport(Generic[RequestT, ResponseT]):
    """What a transport of either kind knows and decides, around an inner one."""

    timeout_type: ClassVar[Callable[..., Exception]]
    """The library's ReadTimeout."""
    manager_type: ClassVar[type[Surface]]
    """The kind of manager whose slots it can wait for."""

    def __init__(self, manager: Surface, inner: object, options: LimitOptions) -> None:
        """Raises TypeError or ValueError, naming the option."""
        if not isinstance(manager, self.manager_type):
            kind = f"{self.manager_type.__module__}.{self.manager_type.__qualname__}"
            raise TypeError(f"manager must be a {kind}, not {manager!r}")
        if unknown := options.keys() - _KNOWN:
            raise TypeError(f"unknown options: {', '.join(sorted(unknown))}")
        if isinstance(inner, SlotTransport):
            raise ValueError(  # noqa: TRY004 - the right type, in the wrong place
                "the inner transport takes slots already; a request would need two at once (HTT-3)"
            )
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
        self._keepalives_count = check_flag("keepalives_count", options.get("keepalives_count", True))
        self._abort_reclaimed = check_flag("abort_reclaimed", options.get("abort_reclaimed", True))

    def _lease_options(self, request: RequestT) -> LeaseOptions:
        """How a request's lease is."""
        return {
            "first_timeout": self._first_byte_timeout,
            "on_first_timeout": lambda: self._explain_first_timeout(request),
            "keep_alive": self._is_bounded(request),
            "abort_reclaimed": self._abort_reclaimed,
            "fit_error": lambda error: fit_sdk(error, request.headers.get("user-agent")),
        }

    def _choose_counts(self, response: ResponseT) -> Callable[[bytes], bool] | None:
        """Which chunks of a response are signs of life; None: all (HTT-7)."""
        if not self._keepalives_count and _is_plain_event_stream(response.headers):
            return KeepaliveFilter().counts
        return None

    def _report(self, manager: Surface, response: ResponseT, provider: str, verdict: object) -> None:
        """Reports a response of which the verdict is "too many" (HTT-5)."""
        if verdict is None or verdict is False:
            return
        seconds: Any = verdict
        if verdict is True:
            found = parse_retry_after(response.headers.multi_items(), now=self._wall_clock())
            seconds = None if found is None else found.requested
        manager.report_rate_limit(provider, seconds)

    def _is_bounded(self, request: RequestT) -> bool:
        """Whether something else than the watchdog ends a wait for the first byte (GRD-5)."""
        timeouts = cast("dict[str, object]", request.extensions.get("timeout", {}))
        return self._first_byte_timeout is not None or timeouts.get("read") is not None

    def _explain_first_timeout(self, request: RequestT) -> Exception:
        message = f"no first byte within first_byte_timeout ({self._first_byte_timeout} s)"
        return self.timeout_type(message, request=request)


def ask_for(route: Route) -> AcquireArguments:
    """The arguments of a request's acquire, but for the provider."""
    return {
        "conversation_id": route.conversation_id,
        "prompt_started_at": route.prompt_started_at,
        "timeout": route.timeout,
    }


def choose_client(http: Any, kind: type[ClientT], client: object) -> ClientT:
    """The client that was given, or a new one of the library `http` with the LLM SDKs' own settings."""
    if client is None:
        return cast("Callable[..., ClientT]", kind)(
            timeout=http.Timeout(600.0, connect=5.0),
            limits=http.Limits(max_connections=1000, max_keepalive_connections=100),
            follow_redirects=True,
        )
    if not isinstance(client, kind):
        raise TypeError(f"this manager needs a client of the kind {kind.__name__}, not {client!r}")
    return client


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
