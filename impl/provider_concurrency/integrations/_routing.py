"""Whose request it is: provider, conversation, prompt time and timeout, from the most specific place that says (HTT-1).

1. the request's own extension: `extensions={"provider_concurrency": {"provider": "openai", ...}}`
2. the block it is sent in: `with conversation("c1", provider="openai"): ...`
3. the transport's `provider`: a name, a map from host to name, or a callable
4. the host
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias, TypedDict, cast

from provider_concurrency.context import current_conversation
from provider_concurrency.validation import check_provider

if TYPE_CHECKING:
    from collections.abc import Iterable

EXTENSION: Final = "provider_concurrency"
_STAMP: Final = "provider_concurrency.prompt_started_at"
_RETRY_COUNT: Final = "x-stainless-retry-count"
"""Sent by the SDKs that Stainless generates (OpenAI's and Anthropic's among them): 0, then 1, 2, ..."""


class Headers(Protocol):
    """The part of a library's headers that is used."""

    def get(self, key: str, /) -> str | None:
        """One header's value, names in any case."""
        ...

    def multi_items(self) -> list[tuple[str, str]]:
        """All header lines."""
        ...


class Url(Protocol):
    """The part of a library's URL that is used."""

    @property
    def host(self) -> str:
        """In lower case, without the port."""
        ...

    @property
    def port(self) -> int | None:
        """None where it is the scheme's own."""
        ...


class Request(Protocol):
    """The part of a library's request that is used."""

    method: str

    @property
    def url(self) -> Url:
        """Where it goes."""
        ...

    @property
    def headers(self) -> Headers:
        """Its header lines."""
        ...

    @property
    def extensions(self) -> Any:
        """What travels with it but isn't sent; a redirect inherits it."""


class SlotExtension(TypedDict, total=False):
    """What a request may say of itself under `extensions["provider_concurrency"]`; all of it optional."""

    provider: str
    conversation_id: str | None
    prompt_started_at: float
    timeout: float | None


ProviderChoice: TypeAlias = "str | Mapping[str, str] | Callable[[Any], str | None] | None"
"""A name for all requests; a map from host, or host:port, to name; a callable (its None: not limited); None: the host.

A host that a map doesn't hold is a provider of its own name, so that nothing is unlimited by a slip (HTT-1, LIM-4)."""


@dataclass(frozen=True, slots=True)
class Route:
    """What a request asks the manager for; `provider` None: nothing, it isn't limited."""

    provider: str | None
    conversation_id: str | None
    prompt_started_at: float
    timeout: float | None


class Router:
    """Finds a request's route; one per transport."""

    def __init__(self, provider: ProviderChoice, timeout: float | None, wall_clock: Callable[[], float]) -> None:
        """`timeout`: seconds to queue at most, unless a request says otherwise."""
        self._choose = _read_choice(provider)
        self._timeout = timeout
        self._wall_clock = wall_clock

    def find(self, request: Request) -> Route:
        """The request's route (HTT-1, HTT-2). Raises TypeError for an extension that nobody would read."""
        own = _read_extension(request)
        block = current_conversation()
        provider = own.get("provider")
        if provider is None and block is not None:
            provider = block.provider
        if provider is None:
            provider = self._choose(request)
        conversation_id = block.id if block is not None else None
        return Route(
            provider=provider,
            conversation_id=own.get("conversation_id", conversation_id),
            prompt_started_at=self._find_prompt(request, own),
            timeout=own.get("timeout", self._timeout),
        )

    def _find_prompt(self, request: Request, own: SlotExtension) -> float:
        """When the prompt began: a redirect, an auth hop and an SDK's retry keep that of the first request (HTT-2)."""
        extensions = cast("MutableMapping[str, Any]", request.extensions)
        call = (request.method, str(request.url))
        retries = request.headers.get(_RETRY_COUNT)
        last = _last_attempt.get()
        block = current_conversation()
        prompt: float
        if "prompt_started_at" in own:
            prompt = own["prompt_started_at"]
        elif block is not None:
            prompt = block.settle_prompt(self._wall_clock)
        elif _STAMP in extensions:
            prompt = extensions[_STAMP]
        elif retries not in (None, "0") and last is not None and last[0] == call:
            prompt = last[1]
        else:
            prompt = self._wall_clock()
        extensions[_STAMP] = prompt
        if retries is not None:
            _last_attempt.set((call, prompt))
        return prompt


_last_attempt: Final[ContextVar[tuple[tuple[str, str], float] | None]] = ContextVar(
    "provider_concurrency.last_attempt", default=None
)
"""An SDK's retry is a new request; what it has in common with the first is the task that sends it."""


def name_host(request: Request) -> str:
    """The host, with its port if that isn't the scheme's own."""
    url = request.url
    return url.host if url.port is None else f"{url.host}:{url.port}"


def _read_choice(provider: ProviderChoice) -> Callable[[Request], str | None]:
    if provider is None:
        return name_host
    if isinstance(provider, str):
        return lambda _request: provider
    if isinstance(provider, Mapping):
        items = cast("Mapping[object, object]", provider).items()
        names = {_check_host(host): check_provider(name) for host, name in items}

        def look_up(request: Request) -> str:
            place = name_host(request)
            return names[place] if place in names else names.get(request.url.host, place)

        return look_up
    if callable(provider):
        return provider
    raise TypeError(f"provider must be a str, a mapping from host to provider, a callable or None, not {provider!r}")


def _check_host(host: object) -> str:
    if not isinstance(host, str):
        raise TypeError(f"provider's hosts must be str, not {host!r}")
    if "/" in host:
        raise ValueError(f"provider's hosts must be hosts, not URLs: {host!r}")
    return host.lower()


def _read_extension(request: Request) -> SlotExtension:
    """The request's own extension; a misspelt key would silently leave it unlimited, so it raises TypeError."""
    own: object = request.extensions.get(EXTENSION)
    if own is None:
        return {}
    if not isinstance(own, Mapping):
        raise TypeError(f"extensions[{EXTENSION!r}] must be a mapping, not {own!r}")
    known = SlotExtension.__annotations__
    unknown: Iterable[object] = [key for key in cast("Mapping[object, object]", own) if key not in known]
    if unknown:
        raise TypeError(f"extensions[{EXTENSION!r}] has no {', '.join(map(repr, unknown))}; it has {', '.join(known)}")
    return cast(SlotExtension, own)
