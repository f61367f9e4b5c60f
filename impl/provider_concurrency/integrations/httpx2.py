"""The transport for httpx2, and clients with a manager underneath.

client = openai.AsyncOpenAI(http_client=limited_client(manager, provider="openai"))
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Unpack

import httpx2

from provider_concurrency.guard import GuardedIterator
from provider_concurrency.integrations._transport import LimitOptions, SlotTransport, put_underneath

if TYPE_CHECKING:
    from provider_concurrency.manager import ConcurrencyManager

__all__ = ["LimitOptions", "LimitedTransport", "limited_client"]


class _Body(GuardedIterator[bytes], httpx2.AsyncByteStream):
    """A response's body that holds its slot."""


class LimitedTransport(SlotTransport[httpx2.Request, httpx2.Response], httpx2.AsyncBaseTransport):
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


def limited_client(
    manager: ConcurrencyManager, client: httpx2.AsyncClient | None = None, **options: Unpack[LimitOptions]
) -> httpx2.AsyncClient:
    """The client with `manager` underneath, in place; without one, a new client with the LLM SDKs' own settings.

    All its requests go through LimitedTransport, whose options these are, also those through proxies and mounts.
    """
    if client is None:
        client = httpx2.AsyncClient(
            timeout=httpx2.Timeout(600.0, connect=5.0),
            limits=httpx2.Limits(max_connections=1000, max_keepalive_connections=100),
            follow_redirects=True,
        )
    put_underneath(client, lambda inner: LimitedTransport(manager, inner, **options))
    return client
