"""The sync SDKs in many threads, every way to end a stream, a provider with faults: nothing is left, no overrun.

What clients_soak.py does for tasks, on the sync transports. Figures are the server's own and the monitor's.
"""

from __future__ import annotations

import gc
import random
import subprocess
import sys
import threading
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import anthropic
import httpx2
import openai
import pytest

from clients_soak import COOLDOWN, LAG, LIMIT, SETTINGS
from provider_concurrency import AcquireTimeoutError
from provider_concurrency.context import conversation
from provider_concurrency.errors import ProviderConcurrencyError
from provider_concurrency.integrations.httpx2 import limited_client
from provider_concurrency.threading import ConcurrencyManager
from provider_concurrency.threading_guard import Lease
from provider_concurrency_model.monitor import Monitor

pytestmark = [pytest.mark.realtime, pytest.mark.long]
QUESTION: Any = [{"role": "user", "content": "why?"}]
Open = Callable[[], Any]
SECONDS, WORKERS = 6.0, 12


class Soak:
    """The clients, and what they have done."""

    def __init__(self, url: str, manager: ConcurrencyManager) -> None:
        self.url, self.manager = url, manager
        self.outcomes: Counter[str] = Counter()
        self.failures: list[BaseException] = []
        self.http = [self.make_http(), self.make_http(first_byte_timeout=0.5, acquire_timeout=2.0)]
        self.opens = [open_ for http in self.http for open_ in self.make_opens(http)]

    def make_http(self, **options: Any) -> httpx2.Client:
        return limited_client(self.manager, httpx2.Client(timeout=3.0, verify=False), provider="p", **options)

    def make_opens(self, http: httpx2.Client) -> list[Open]:
        """Ways to open a stream through a client."""
        gpt = openai.OpenAI(base_url=f"{self.url}/v1", api_key="none", http_client=http, max_retries=1)
        claude = anthropic.Anthropic(base_url=self.url, api_key="none", http_client=http, max_retries=1)
        return [
            lambda: gpt.chat.completions.create(model="m", messages=QUESTION, stream=True),
            lambda: claude.messages.create(model="m", max_tokens=9, messages=QUESTION, stream=True),
            lambda: type(gpt.chat.completions.create(model="m", messages=QUESTION)),  # whole: nothing to read
        ]

    def work(self, until: float, number: int) -> None:
        """One worker: a request after the other, each to its own end."""
        chance = random.Random(number)
        ways = [self.read_all, self.read_all, self.close_early, self.close_elsewhere, self.die, self.forget]
        ways.append(self.close_client)
        while time.monotonic() < until:
            way, open_ = chance.choice(ways), chance.choice(self.opens[:2] if chance.random() < 0.7 else self.opens)
            outcome = way.__name__
            try:
                with conversation(f"c{number}"):
                    way(open_, chance)
            except AcquireTimeoutError:
                outcome = "acquire timeout"
            except (ProviderConcurrencyError, openai.OpenAIError, anthropic.AnthropicError, httpx2.HTTPError) as error:
                outcome = type(error).__name__
            except BaseException as error:  # noqa: BLE001 - judged at the end
                self.failures.append(error)
                return
            self.outcomes[outcome] += 1

    def read_all(self, open_: Open, _: random.Random) -> None:
        stream = open_()
        if not isinstance(stream, type):  # a whole answer has nothing to read
            list(stream)

    def close_early(self, open_: Open, _: random.Random) -> None:
        stream = open_()
        if not isinstance(stream, type):
            next(iter(stream))
            stream.close()

    def close_elsewhere(self, open_: Open, chance: random.Random) -> None:
        stream = open_()
        if not isinstance(stream, type):
            closer = threading.Timer(chance.uniform(0, 0.1), stream.close)
            closer.start()
            try:
                list(stream)
            finally:
                closer.join()

    def die(self, open_: Open, chance: random.Random) -> None:
        stream = open_()
        if not isinstance(stream, type):
            with suppress(ZeroDivisionError), stream:
                for _ in stream:
                    chance.random() < 0.3 and 1 / 0

    def forget(self, open_: Open, _: random.Random) -> None:
        open_()

    def close_client(self, _: Open, chance: random.Random) -> None:
        http = self.make_http()
        stream = chance.choice(self.make_opens(http)[:2])()
        next(iter(stream))
        http.close()


@contextmanager
def provider_process() -> Iterator[str]:
    behaviour = {"limit": LIMIT, "lag": LAG, "service": 0.1, "penalty": 0.5, "stall": 0.02, "truncate": 0.03,
                 "reset": 0.03, "seed": 1}  # fmt: skip
    arguments = [word for name, value in behaviour.items() for word in (f"--{name}", str(value))]
    program = Path(__file__).parent / "lagging_provider.py"
    with subprocess.Popen([sys.executable, str(program), *arguments], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline().strip()
        finally:
            process.terminate()


def read_stats(url: str) -> dict[str, Any]:
    """The server's figures when its counter has fallen to nothing."""
    end = time.monotonic() + 10
    while True:
        stats: dict[str, Any] = httpx2.get(f"{url}/stats", verify=False).json()
        if stats["count"] == 0 or time.monotonic() > end:
            return stats
        time.sleep(0.1)


def count_leases() -> int:
    return sum(isinstance(thing, Lease) for thing in gc.get_objects())


def test_a_short_soak_of_threads_leaves_nothing_and_overruns_nobody() -> None:
    warnings.filterwarnings("ignore", "a stream of provider", ResourceWarning)
    before = count_leases()
    monitor = Monitor.from_seconds(**SETTINGS, resumes=False)
    manager = ConcurrencyManager(**SETTINGS, observer=monitor)
    with provider_process() as url:
        soak = Soak(url, manager)
        until = time.monotonic() + SECONDS
        crew = [threading.Thread(target=soak.work, args=(until, number)) for number in range(WORKERS)]
        for thread in crew:
            thread.start()
        for thread in crew:
            thread.join(60)
        assert not any(thread.is_alive() for thread in crew), soak.outcomes
        for http in soak.http:
            http.close()
        gc.collect()
        time.sleep(2 * COOLDOWN)
        status = manager.get_status("p")
        assert status is None or (status.in_flight, status.queued) == (0, 0), manager.get_slots("p")
        manager.close()
        stats = read_stats(url)
    assert soak.failures == []
    assert monitor.violations == []
    assert (stats["overshoots"], stats["refused"], stats["active"]) == (0, 0, 0), stats
    assert stats["peak"] <= LIMIT
    assert stats["admitted"] > 5  # on a busy machine most of the time goes into importing the SDKs
    assert count_leases() <= before + 2
