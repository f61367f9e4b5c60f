from concurrent.futures import ThreadPoolExecutor

import openai

from provider_concurrency.context import conversation
from provider_concurrency.integrations.httpx2 import limited_client
from provider_concurrency.threading import ConcurrencyManager

manager = ConcurrencyManager(limits={"openai": 4}, release_cooldown=0.35)
client = openai.OpenAI(http_client=limited_client(manager, provider="openai"))


def ask(question: str) -> str:
    with conversation(question):
        stream = client.chat.completions.create(
            model="gpt-5", messages=[{"role": "user", "content": question}], stream=True
        )
        with stream:
            return "".join([chunk.choices[0].delta.content or "" for chunk in stream])


with manager, client, ThreadPoolExecutor(12) as pool:
    print(list(pool.map(ask, [f"What is {n} + {n}?" for n in range(12)])))
