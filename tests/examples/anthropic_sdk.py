import asyncio

import anthropic

from provider_concurrency import ConcurrencyManager
from provider_concurrency.context import conversation
from provider_concurrency.integrations.httpx2 import limited_client

manager = ConcurrencyManager(limits={"anthropic": 4}, release_cooldown=0.35)
client = anthropic.AsyncAnthropic(http_client=limited_client(manager, provider="anthropic"))


async def ask(question: str) -> str:
    with conversation(question):  # its retries keep their place in the queue
        async with client.messages.stream(
            model="claude-sonnet-5-5", max_tokens=99, messages=[{"role": "user", "content": question}]
        ) as stream:
            return "".join([text async for text in stream.text_stream])


async def main() -> None:
    async with client:
        print(await asyncio.gather(*(ask(f"What is {n} + {n}?") for n in range(12))))


asyncio.run(main())
