"""Puts a manager underneath HTTP clients; each module imports its own library, this one imports none.

    from provider_concurrency.integrations.httpx2 import limited_client

    client = openai.AsyncOpenAI(http_client=limited_client(manager, provider="openai"))

`httpx2` is what the current OpenAI and Anthropic SDKs use, `httpx` is the same for its predecessor. An asyncio manager
goes underneath their async clients, a blocking one underneath their sync ones.
"""

from __future__ import annotations

__all__: list[str] = []
