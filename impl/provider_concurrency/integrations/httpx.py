"""The transports for httpx, and clients with a manager underneath.

client = limited_client(manager, provider={"api.example.com": "example"})

With a blocking manager it is a sync client.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Unpack, overload

import httpx

from provider_concurrency import guard, threading_guard
from provider_concurrency.integrations._blocking import BlockingTransport
from provider_concurrency.integrations._transport import LimitOptions, choose_client, put_underneath
from provider_concurrency.integrations._waiting import WaitingTransport
from provider_concurrency.threading import ConcurrencyManager as BlockingManager

if TYPE_CHECKING:
    from provider_concurrency.manager import ConcurrencyManager

__all__ = ["BlockingLimitedTransport", "LimitOptions", "LimitedTransport", "limited_client"]


class _Body(guard.GuardedIterator[bytes], httpx.AsyncByteStream):
    """A response's body that holds its slot."""


class _BlockingBody(threading_guard.GuardedIterator[bytes], httpx.SyncByteStream):
    """The same for threads."""


class LimitedTransport(WaitingTransport[httpx.Request, httpx.Response], httpx.AsyncBaseTransport):
    """An async transport whose requests take slots of `manager`, around `inner` (default: a new AsyncHTTPTransport).

    The options are LimitOptions'. Raises TypeError or ValueError, naming the option.
    """

    body_type = _Body
    timeout_type = httpx.ReadTimeout

    def __init__(
        self,
        manager: ConcurrencyManager,
        inner: httpx.AsyncBaseTransport | None = None,
        **options: Unpack[LimitOptions],
    ) -> None:
        """See the class."""
        super().__init__(manager, httpx.AsyncHTTPTransport() if inner is None else inner, **options)


class BlockingLimitedTransport(BlockingTransport[httpx.Request, httpx.Response], httpx.BaseTransport):
    """The same for threads: a sync transport, a blocking manager (default of `inner`: a new HTTPTransport)."""

    body_type = _BlockingBody
    timeout_type = httpx.ReadTimeout

    def __init__(
        self, manager: BlockingManager, inner: httpx.BaseTransport | None = None, **options: Unpack[LimitOptions]
    ) -> None:
        """See the class."""
        super().__init__(manager, httpx.HTTPTransport() if inner is None else inner, **options)


@overload
def limited_client(
    manager: ConcurrencyManager, client: httpx.AsyncClient | None = None, **options: Unpack[LimitOptions]
) -> httpx.AsyncClient: ...


@overload
def limited_client(
    manager: BlockingManager, client: httpx.Client | None = None, **options: Unpack[LimitOptions]
) -> httpx.Client: ...


def limited_client(
    manager: ConcurrencyManager | BlockingManager,
    client: httpx.AsyncClient | httpx.Client | None = None,
    **options: Unpack[LimitOptions],
) -> httpx.AsyncClient | httpx.Client:
    """The client with `manager` underneath, in place; without one, a new client with the LLM SDKs' own settings.

    An asyncio manager has an AsyncClient, a blocking one a Client; else TypeError. All its requests go through
    LimitedTransport or BlockingLimitedTransport, whose options these are, also those through proxies and mounts.
    """
    if isinstance(manager, BlockingManager):
        blocking = choose_client(httpx, httpx.Client, client)
        put_underneath(blocking, lambda inner: BlockingLimitedTransport(manager, inner, **options))
        return blocking
    waiting = choose_client(httpx, httpx.AsyncClient, client)
    put_underneath(waiting, lambda inner: LimitedTransport(manager, inner, **options))
    return waiting
