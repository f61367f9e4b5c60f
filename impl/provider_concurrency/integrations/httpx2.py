"""The transports for httpx2, and clients with a manager underneath.

client = openai.AsyncOpenAI(http_client=limited_client(manager, provider="openai"))

With a blocking manager it is openai.OpenAI, and a sync client.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Unpack, overload

import httpx2

from provider_concurrency import guard, threading_guard
from provider_concurrency.integrations._blocking import BlockingTransport
from provider_concurrency.integrations._transport import LimitOptions, choose_client, put_underneath
from provider_concurrency.integrations._waiting import WaitingTransport
from provider_concurrency.threading import ConcurrencyManager as BlockingManager

if TYPE_CHECKING:
    from provider_concurrency.manager import ConcurrencyManager

__all__ = ["BlockingLimitedTransport", "LimitOptions", "LimitedTransport", "limited_client"]


class _Body(guard.GuardedIterator[bytes], httpx2.AsyncByteStream):
    """A response's body that holds its slot."""


class _BlockingBody(threading_guard.GuardedIterator[bytes], httpx2.SyncByteStream):
    """The same for threads."""


class LimitedTransport(WaitingTransport[httpx2.Request, httpx2.Response], httpx2.AsyncBaseTransport):
    """An async transport whose requests take slots of `manager`, around `inner` (default: a new AsyncHTTPTransport).

    The options are LimitOptions'. Raises TypeError or ValueError, naming the option.
    """

    body_type = _Body
    timeout_type = httpx2.ReadTimeout

    def __init__(
        self,
        manager: ConcurrencyManager,
        inner: httpx2.AsyncBaseTransport | None = None,
        **options: Unpack[LimitOptions],
    ) -> None:
        """See the class."""
        super().__init__(manager, httpx2.AsyncHTTPTransport() if inner is None else inner, **options)


class BlockingLimitedTransport(BlockingTransport[httpx2.Request, httpx2.Response], httpx2.BaseTransport):
    """The same for threads: a sync transport, a blocking manager (default of `inner`: a new HTTPTransport)."""

    body_type = _BlockingBody
    timeout_type = httpx2.ReadTimeout

    def __init__(
        self, manager: BlockingManager, inner: httpx2.BaseTransport | None = None, **options: Unpack[LimitOptions]
    ) -> None:
        """See the class."""
        super().__init__(manager, httpx2.HTTPTransport() if inner is None else inner, **options)


@overload
def limited_client(
    manager: ConcurrencyManager, client: httpx2.AsyncClient | None = None, **options: Unpack[LimitOptions]
) -> httpx2.AsyncClient: ...


@overload
def limited_client(
    manager: BlockingManager, client: httpx2.Client | None = None, **options: Unpack[LimitOptions]
) -> httpx2.Client: ...


def limited_client(
    manager: ConcurrencyManager | BlockingManager,
    client: httpx2.AsyncClient | httpx2.Client | None = None,
    **options: Unpack[LimitOptions],
) -> httpx2.AsyncClient | httpx2.Client:
    """The client with `manager` underneath, in place; without one, a new client with the LLM SDKs' own settings.

    An asyncio manager has an AsyncClient, a blocking one a Client; else TypeError. All its requests go through
    LimitedTransport or BlockingLimitedTransport, whose options these are, also those through proxies and mounts.
    """
    if isinstance(manager, BlockingManager):
        blocking = choose_client(httpx2, httpx2.Client, client)
        put_underneath(blocking, lambda inner: BlockingLimitedTransport(manager, inner, **options))
        return blocking
    waiting = choose_client(httpx2, httpx2.AsyncClient, client)
    put_underneath(waiting, lambda inner: LimitedTransport(manager, inner, **options))
    return waiting
