"""The sync OpenAI and Anthropic SDKs, and the HTTP clients themselves, against a real server: BLK-8 on real sockets.

As test_sdk_clients.py does for the async ones: short service times, and figures of the server's own.
"""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any

import anthropic
import httpx
import httpx2
import openai
import pytest

from lagging_provider import Behaviour, LaggingProvider, lagging_provider
from provider_concurrency import AcquireTimeoutError, ManagerClosedError, QueueFullError
from provider_concurrency.context import conversation
from provider_concurrency.errors import ProviderConcurrencyError, SlotReclaimedError
from provider_concurrency.events import Event, typed
from provider_concurrency.integrations.httpx import limited_client as limited_httpx_client
from provider_concurrency.integrations.httpx2 import BlockingLimitedTransport, limited_client
from provider_concurrency.threading import ConcurrencyManager

pytestmark = [pytest.mark.realtime, pytest.mark.long]
QUESTION: Any = [{"role": "user", "content": "why?"}]
FAST = Behaviour(limit=2, lag="fixed:0.03", service=0.05, penalty=0.1)


class Sdk:
    """What both SDKs can do, spelt once."""

    def __init__(self, client: Any) -> None:
        self.client = client

    def whole(self, **extra: Any) -> str:
        raise NotImplementedError

    def open(self, **extra: Any) -> Any:
        raise NotImplementedError


class OpenAI(Sdk):
    error = openai.OpenAIError
    timeout_error = openai.APITimeoutError

    @staticmethod
    def make(url: str, http: Any, **options: Any) -> OpenAI:
        return OpenAI(openai.OpenAI(api_key="none", base_url=f"{url}/v1", http_client=http, **options))

    def whole(self, **extra: Any) -> str:
        return self.client.chat.completions.create(model="m", messages=QUESTION, **extra).choices[0].message.content

    def open(self, **extra: Any) -> Any:
        return self.client.chat.completions.create(model="m", messages=QUESTION, stream=True, **extra)


class Anthropic(Sdk):
    error = anthropic.AnthropicError
    timeout_error = anthropic.APITimeoutError

    @staticmethod
    def make(url: str, http: Any, **options: Any) -> Anthropic:
        return Anthropic(anthropic.Anthropic(api_key="none", base_url=url, http_client=http, **options))

    def whole(self, **extra: Any) -> str:
        return self.client.messages.create(model="m", max_tokens=9, messages=QUESTION, **extra).content[0].text

    def open(self, **extra: Any) -> Any:
        return self.client.messages.create(model="m", max_tokens=9, messages=QUESTION, stream=True, **extra)


sdks = pytest.mark.parametrize("kind", [OpenAI, Anthropic])
wraps = pytest.mark.parametrize("wrap", [limited_client, limited_httpx_client], ids=["httpx2", "httpx"])


class Stage:
    def __init__(self, provider: LaggingProvider, **settings: Any) -> None:
        self.events: list[Event] = []
        self.provider = provider
        settings = {"limits": {"p": 2}, "release_cooldown": 0.05, "min_pause": 0.05} | settings
        self.manager = ConcurrencyManager(observer=typed(self.events.append), **settings)
        self.http: list[Any] = []

    def client(self, wrap: Callable[..., Any] = limited_client, given: Any = None, **options: Any) -> Any:
        self.http.append(wrap(self.manager, given, **{"provider": "p"} | options))
        return self.http[-1]

    def sdk(self, kind: Any, wrap: Callable[..., Any] = limited_client, **options: Any) -> Any:
        return kind.make(self.provider.url, self.client(wrap), **options)

    @property
    def held(self) -> int:
        status = self.manager.get_status("p")
        return 0 if status is None else status.held

    def until(self, holds: Callable[[], bool]) -> None:
        end = time.monotonic() + 5
        while not holds():
            assert time.monotonic() < end
            time.sleep(0.005)

    def is_free(self) -> bool:
        """Nothing is held here, and nothing open there."""
        return self.held == 0 and self.provider.account.active == 0

    def kinds(self) -> list[str]:
        return [event.kind for event in self.events]


@contextmanager
def staged(behaviour: Behaviour = FAST, **settings: Any) -> Iterator[Stage]:
    """The server runs in a thread of its own."""
    ready, over = threading.Event(), asyncio.Event()
    found: list[Any] = []

    async def serve() -> None:
        async with lagging_provider(behaviour) as provider:
            found.extend((provider, asyncio.get_running_loop()))
            ready.set()
            await over.wait()

    server = threading.Thread(target=lambda: asyncio.run(serve()))
    server.start()
    assert ready.wait(10)
    stage = Stage(found[0], **settings)
    try:
        yield stage
        for http in stage.http:
            http.close()
        assert stage.held == 0
    finally:
        stage.manager.close()
        found[1].call_soon_threadsafe(over.set)
        server.join(10)
    gc.collect()


def together(*calls: Callable[[], Any]) -> list[Any]:
    """What each call returns or raises, made in a thread each."""

    def make(call: Callable[[], Any]) -> Any:
        try:
            return call()
        except Exception as error:  # noqa: BLE001 - it is the result
            return error

    with ThreadPoolExecutor(len(calls)) as pool:
        return list(pool.map(make, calls))


@wraps
@sdks
def test_one_line_and_the_server_never_sees_more_than_its_limit(kind: Any, wrap: Any) -> None:
    if kind is Anthropic and wrap is limited_httpx_client:
        pytest.skip("the current Anthropic SDK accepts httpx2's clients only")
    with staged() as stage:
        sdk = stage.sdk(kind, wrap)
        answers = together(*[sdk.whole] * 4, *[lambda: len(list(sdk.open()))] * 4)
        assert answers[:4] == ["w " * 8] * 4
        assert all(isinstance(count, int) and count > 5 for count in answers[4:])
        figures = stage.provider.figures
        assert (figures.finished, figures.refused, figures.overshoots, figures.peak) == (8, 0, 0, 2)


@sdks
def test_bug_75_a_slot_given_back_at_the_head_overshoots(kind: Any) -> None:
    """The mistake, planted: what the test above asserts must then fail."""

    class HeadReleasing(BlockingLimitedTransport):
        def _hold(self, response: Any, lease: Any) -> None:
            lease.give_back()

    with staged() as stage:
        http = httpx2.Client(transport=HeadReleasing(stage.manager, provider="p"))
        sdk = kind.make(stage.provider.url, http, max_retries=0)
        opened = together(*[sdk.open] * 6)
        assert stage.provider.figures.overshoots > 0
        for stream in opened:
            if not isinstance(stream, BaseException):
                stream.close()
        http.close()


@sdks
def test_htt_8_a_full_queue_and_a_timeout_in_it_are_our_errors_and_are_not_retried(kind: Any) -> None:
    with staged(max_queued=0) as stage:
        sdk = stage.sdk(kind, max_retries=5)
        streams = [sdk.open(), sdk.open()]
        with pytest.raises(QueueFullError) as caught:
            sdk.whole()
        assert (caught.value.provider, caught.value.in_flight) == ("p", 2)
        assert kind is OpenAI or isinstance(caught.value, anthropic.AnthropicError)
        stage.manager.close()
        with pytest.raises(ManagerClosedError):
            sdk.whole()
        for stream in streams:
            stream.close()
    with staged() as stage:
        sdk = stage.sdk(kind, lambda *a, **o: limited_client(*a, acquire_timeout=0.3, **o), timeout=0.1)
        holders = [stage.manager.acquire("p") for _ in range(2)]
        with pytest.raises(AcquireTimeoutError) as waited:
            sdk.whole()
        assert waited.value.waited >= 0.3
        for holder in holders:
            holder.release()
        assert sdk.whole()


@sdks
@pytest.mark.parametrize("form", ["seconds", "ms", "date", "none"])
def test_bug_28_a_429_pauses_everybody_and_the_sdks_retry_keeps_its_prompt_time(kind: Any, form: str) -> None:
    behaviour = Behaviour(limit=1, lag="fixed:0", service=0.1, penalty=0.1, retry_after=form)
    with staged(behaviour, default_pause=0.2) as stage:  # the manager's limit of 2 is wrong
        sdk = stage.sdk(kind, max_retries=9)
        sdk.whole()  # the first request of an SDK pays for its set-up
        time.sleep(0.1)
        stage.events.clear()
        assert together(sdk.whole, sdk.whole) == ["w " * 8] * 2
        granted = [event for event in stage.events if event.kind == "granted"]
        paused: list[Any] = [event.value for event in stage.events if event.kind == "paused"]
        assert stage.provider.figures.refused >= 1
        requested, applied = paused[0]
        assert applied >= 50_000_000
        assert requested is None if form == "none" else 0 <= requested <= 1.1
        prompts = [event.prompt_started_at for event in granted]
        assert (len(prompts) >= 3, len(set(prompts))) == (True, 2)


@sdks
@pytest.mark.filterwarnings("ignore:a stream of provider")
def test_grd_3_a_forgotten_stream_is_closed_upstream_before_its_slot_is_free(kind: Any) -> None:
    with staged(Behaviour(limit=2, service=60.0)) as stage:
        stage.sdk(kind).open()
        assert stage.held <= 1
        gc.collect()
        stage.until(stage.is_free)


@sdks
def test_bug_77_an_exception_in_the_loop_over_a_stream_gives_the_slot_back(kind: Any) -> None:
    with staged(Behaviour(limit=2, service=5.0)) as stage:
        sdk = stage.sdk(kind)
        with suppress(ZeroDivisionError), sdk.open() as stream:
            for _ in stream:
                raise ZeroDivisionError
        assert stage.held == 0
        stage.until(stage.is_free)


@sdks
def test_grd_1_a_stream_closed_by_another_thread_in_the_middle_of_a_read(kind: Any) -> None:
    with staged(Behaviour(limit=2, service=60.0)) as stage:
        stream = stage.sdk(kind).open()
        threading.Timer(0.1, stream.close).start()
        began = time.monotonic()
        with pytest.raises(ProviderConcurrencyError, match="another thread closed it"):
            list(stream)
        assert time.monotonic() - began < 5
        stage.until(stage.is_free)


@sdks
@pytest.mark.parametrize("fault", ["truncate", "reset"])
def test_bug_75_a_broken_stream_gives_the_slot_back(kind: Any, fault: str) -> None:
    with staged() as stage:
        stream = stage.sdk(kind).open(extra_headers={"x-fault": fault})
        with pytest.raises((kind.error, httpx2.TransportError)):
            list(stream)
        assert stage.held == 0


@sdks
def test_bug_32_a_stalled_stream_is_reclaimed_and_closed_upstream(kind: Any) -> None:
    with staged(slot_timeout=0.3, watchdog_interval=0.1) as stage:
        stream = stage.sdk(kind).open(extra_headers={"x-fault": "stall"})
        began = time.monotonic()
        with pytest.raises(Exception, match="the watchdog took the slot back"):
            list(stream)
        assert time.monotonic() - began < 5
        stage.until(lambda: stage.provider.account.active == 0)
        assert stage.kinds().count("reclaimed") == 1


@wraps
def test_bug_32_an_answer_that_never_begins_is_reclaimed_and_closed_upstream(wrap: Any) -> None:
    """With no timeout of the client's, in a wait that nothing can cut."""
    given = {limited_client: httpx2.Client, limited_httpx_client: httpx.Client}[wrap](timeout=None)
    with staged(slot_timeout=0.3, watchdog_interval=0.1) as stage:
        client = stage.client(wrap, given)
        with pytest.raises(SlotReclaimedError):
            client.post(f"{stage.provider.url}/v1/chat/completions", json={}, headers={"x-service": "60"})
        stage.until(lambda: stage.provider.account.active == 0)
        assert stage.kinds().count("reclaimed") == 1


@sdks
def test_grd_5_a_whole_answer_may_take_longer_than_the_watchdogs_patience(kind: Any) -> None:
    with staged(slot_timeout=0.2, watchdog_interval=0.05) as stage:
        assert stage.sdk(kind).whole(extra_headers={"x-service": "0.8"}) == "w " * 8
        assert "reclaimed" not in stage.kinds()


@sdks
def test_htt_8_a_reclaim_in_the_body_of_a_whole_answer_is_our_error_and_is_not_retried(kind: Any) -> None:
    with staged(slot_timeout=0.2, watchdog_interval=0.1) as stage:
        slow = httpx2.Client(timeout=None, event_hooks={"response": [lambda _: time.sleep(1.0)]})
        sdk = kind.make(stage.provider.url, stage.client(given=slow), max_retries=3)
        with pytest.raises(SlotReclaimedError):
            sdk.whole()
        assert stage.provider.figures.admitted == 1


@sdks
@pytest.mark.parametrize("extra", [{"x-service": "30"}, {"x-fault": "stall", "x-service": "60"}], ids=["head", "body"])
def test_htt_6_the_first_byte_limit_is_the_sdks_own_timeout_error(kind: Any, extra: Any) -> None:
    with staged() as stage:
        sdk = stage.sdk(kind, lambda *a, **o: limited_client(*a, first_byte_timeout=0.3, **o), max_retries=1)
        began = time.monotonic()
        if "x-fault" in extra:  # the head of a stream comes at once, no byte of its body for 7 s
            with pytest.raises((kind.timeout_error, httpx2.ReadTimeout)):
                list(sdk.open(extra_headers=extra))
        else:
            with pytest.raises(kind.timeout_error):
                sdk.whole(extra_headers=extra)
            assert stage.provider.figures.admitted == 2
        assert time.monotonic() - began < 5
        stage.until(stage.is_free)


@sdks
def test_ctx_1_a_conversation_reaches_through_the_sdk(kind: Any) -> None:
    with staged() as stage:
        sdk = stage.sdk(kind)

        def ask(name: str) -> None:
            with conversation(name, prompt_started_at=float(len(name))):
                sdk.whole()
                list(sdk.open())

        assert together(lambda: ask("a"), lambda: ask("bb")) == [None, None]
        granted = [event for event in stage.events if event.kind == "granted"]
        told = {(event.conversation_id, event.prompt_started_at) for event in granted}
        assert (len(granted), told) == (4, {("a", 1.0), ("bb", 2.0)})


@sdks
def test_htt_3_redirects_do_not_deadlock_at_limit_1(kind: Any) -> None:
    with staged(limits={"p": 1}) as stage:
        sdk = kind.make(f"{stage.provider.url}/redirect", stage.client())
        assert together(sdk.whole, sdk.whole) == ["w " * 8] * 2
        assert stage.kinds().count("granted") == 4


@wraps
def test_htt_4_the_clients_themselves_stream_and_close(wrap: Any) -> None:
    with staged(limits={"p": 1}) as stage:
        client = stage.client(wrap)
        url = f"{stage.provider.url}/v1/chat/completions"
        with client.stream("POST", url, json={"stream": True}) as response:
            chunks = response.iter_bytes()
            assert next(chunks)
            with pytest.raises(AcquireTimeoutError):
                stage.manager.acquire("p", timeout=0)
        assert stage.held == 0
        assert client.post(url, json={}).status_code == 200
        assert stage.provider.figures.overshoots == 0
