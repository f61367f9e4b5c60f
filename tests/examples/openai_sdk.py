import asyncio

import openai

from provider_concurrency import ConcurrencyManager
from provider_concurrency.context import conversation
from provider_concurrency.integrations.httpx2 import limited_client

manager = ConcurrencyManager(limits={"openai": 4}, release_cooldown=0.35)
client = openai.AsyncOpenAI(http_client=limited_client(manager, provider="openai"))


async def ask(question: str) -> str:
    with conversation(question):  # its retries keep their place in the queue
        stream = await client.chat.completions.create(
            model="gpt-5", messages=[{"role": "user", "content": question}], stream=True
        )
        return "".join([chunk.choices[0].delta.content or "" async for chunk in stream])


async def main() -> None:
    async with client:
        print(await asyncio.gather(*(ask(f"What is {n} + {n}?") for n in range(12))))


asyncio.run(main())
