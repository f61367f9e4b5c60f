"""The OpenAI and Anthropic SDKs as they are, against a real server: one line puts the manager underneath.

On the real clock, since sockets are: short service times, and figures of the server's own rather than of a stopwatch.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import anthropic
import httpx2
import openai
import pytest

from lagging_provider import Behaviour, LaggingProvider, lagging_provider
from provider_concurrency import AcquireTimeoutError, ConcurrencyManager, ManagerClosedError, QueueFullError
from provider_concurrency.context import conversation
from provider_concurrency.errors import SlotReclaimedError
from provider_concurrency.events import Event, typed
from provider_concurrency.integrations.httpx import limited_client as limited_httpx_client
from provider_concurrency.integrations.httpx2 import LimitedTransport, limited_client

pytestmark = [pytest.mark.realtime, pytest.mark.long]
QUESTION: Any = [{"role": "user", "content": "why?"}]
FAST = Behaviour(limit=2, lag="fixed:0.03", service=0.05, penalty=0.1)


class Sdk:
    """What both SDKs can do, spelt once."""

    def __init__(self, client: Any) -> None:
        self.client = client

    async def whole(self, **extra: Any) -> str:
        raise NotImplementedError

    async def open(self, **extra: Any) -> Any:
        raise NotImplementedError


class OpenAI(Sdk):
    error = openai.OpenAIError

    @staticmethod
    def make(url: str, http: Any, **options: Any) -> OpenAI:
        return OpenAI(openai.AsyncOpenAI(api_key="none", base_url=f"{url}/v1", http_client=http, **options))

    async def whole(self, **extra: Any) -> str:
        answer = await self.client.chat.completions.create(model="m", messages=QUESTION, **extra)
        return answer.choices[0].message.content

    async def open(self, **extra: Any) -> Any:
        return await self.client.chat.completions.create(model="m", messages=QUESTION, stream=True, **extra)


class Anthropic(Sdk):
    error = anthropic.AnthropicError

    @staticmethod
    def make(url: str, http: Any, **options: Any) -> Anthropic:
        return Anthropic(anthropic.AsyncAnthropic(api_key="none", base_url=url, http_client=http, **options))

    async def whole(self, **extra: Any) -> str:
        answer = await self.client.messages.create(model="m", max_tokens=9, messages=QUESTION, **extra)
        return answer.content[0].text

    async def open(self, **extra: Any) -> Any:
        return await self.client.messages.create(model="m", max_tokens=9, messages=QUESTION, stream=True, **extra)


sdks = pytest.mark.parametrize("kind", [OpenAI, Anthropic])


class Stage:
    def __init__(self, provider: LaggingProvider, **settings: Any) -> None:
        self.events: list[Event] = []
        self.provider = provider
        settings = {"limits": {"p": 2}, "release_cooldown": 0.05, "min_pause": 0.05} | settings
        self.manager = ConcurrencyManager(observer=typed(self.events.append), **settings)
        self.http: list[Any] = []

    def sdk(self, kind: Any, wrap: Callable[..., Any] = limited_client, **options: Any) -> Any:
        self.http.append(wrap(self.manager, provider="p"))
        return kind.make(self.provider.url, self.http[-1], **options)

    @property
    def held(self) -> int:
        status = self.manager.get_status("p")
        return 0 if status is None else status.held

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(5):
            while not holds():  # noqa: ASYNC110 - a condition of two sides, one of them the server
                await asyncio.sleep(0.005)


@asynccontextmanager
async def staged(behaviour: Behaviour = FAST, **settings: Any) -> AsyncIterator[Stage]:
    async with lagging_provider(behaviour) as provider:
        stage = Stage(provider, **settings)
        try:
            yield stage
        finally:
            for http in stage.http:
                await http.aclose()
        await asyncio.sleep(0)
        assert stage.held == 0


def play(scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(scenario())
    gc.collect()


@pytest.mark.parametrize("wrap", [limited_client, limited_httpx_client])
@sdks
def test_one_line_and_the_server_never_sees_more_than_its_limit(kind: Any, wrap: Any) -> None:
    if kind is Anthropic and wrap is limited_httpx_client:
        pytest.skip("the current Anthropic SDK accepts httpx2's clients only")

    async def scenario() -> None:
        async with staged() as stage:
            sdk = stage.sdk(kind, wrap)

            async def stream() -> int:
                return len([event async for event in await sdk.open()])

            answers = await asyncio.gather(*(sdk.whole() for _ in range(4)), *(stream() for _ in range(4)))
            assert answers[:4] == ["w " * 8] * 4
            assert all(isinstance(count, int) and count > 5 for count in answers[4:])
            figures = stage.provider.figures
            assert (figures.finished, figures.refused, figures.overshoots, figures.peak) == (8, 0, 0, 2)

    play(scenario)


@sdks
def test_bug_75_a_slot_given_back_at_the_head_overshoots(kind: Any) -> None:
    """The mistake, planted: what the test above asserts must then fail."""

    class HeadReleasing(LimitedTransport):
        def _hold(self, response: Any, lease: Any) -> None:
            lease.give_back()

    async def scenario() -> None:
        async with staged() as stage:
            http = httpx2.AsyncClient(transport=HeadReleasing(stage.manager, provider="p"))
            sdk = kind.make(stage.provider.url, http, max_retries=0)
            opened = await asyncio.gather(*(sdk.open() for _ in range(6)), return_exceptions=True)
            assert stage.provider.figures.overshoots > 0
            await asyncio.gather(*(stream.close() for stream in opened if not isinstance(stream, BaseException)))
            await http.aclose()

    play(scenario)


@sdks
def test_htt_8_a_full_queue_is_our_error_and_is_not_retried(kind: Any) -> None:
    async def scenario() -> None:
        async with staged(max_queued=0) as stage:
            sdk = stage.sdk(kind, max_retries=5)
            streams = [await sdk.open(), await sdk.open()]
            with pytest.raises(QueueFullError) as caught:
                await sdk.whole()
            assert type(caught.value).__name__ == "QueueFullError"
            assert (caught.value.provider, caught.value.in_flight) == ("p", 2)
            assert kind is OpenAI or isinstance(caught.value, anthropic.AnthropicError)
            stage.manager.close()
            with pytest.raises(ManagerClosedError):
                await sdk.whole()
            for stream in streams:
                await stream.close()

    play(scenario)


@sdks
def test_htt_8_a_timeout_in_the_queue_is_our_error_and_no_timeout_of_the_sdk_counts_there(kind: Any) -> None:
    async def scenario() -> None:
        async with staged() as stage:
            sdk = stage.sdk(kind, lambda *a, **o: limited_client(*a, acquire_timeout=0.3, **o), timeout=0.1)
            holders = [await stage.manager.acquire("p") for _ in range(2)]
            with pytest.raises(AcquireTimeoutError) as caught:
                await sdk.whole()
            assert caught.value.waited >= 0.3
            for holder in holders:
                holder.release()
            assert await sdk.whole()

    play(scenario)


@sdks
@pytest.mark.parametrize("form", ["seconds", "ms", "date", "none"])
def test_bug_28_a_429_pauses_everybody_and_the_sdks_retry_keeps_its_prompt_time(kind: Any, form: str) -> None:
    behaviour = Behaviour(limit=1, lag="fixed:0", service=0.1, penalty=0.1, retry_after=form)

    async def scenario() -> None:
        async with staged(behaviour, default_pause=0.2) as stage:  # the manager's limit of 2 is wrong
            sdk = stage.sdk(kind, max_retries=9)
            await sdk.whole()  # the first request of an SDK pays for its set-up
            await asyncio.sleep(0.1)
            stage.events.clear()
            await asyncio.gather(sdk.whole(), sdk.whole())
            granted = [event for event in stage.events if event.kind == "granted"]
            paused: list[Any] = [event.value for event in stage.events if event.kind == "paused"]
            assert stage.provider.figures.refused >= 1
            requested, applied = paused[0]
            assert applied >= 50_000_000
            match form:
                case "none":
                    assert requested is None
                case "date":
                    assert 0 <= requested <= 1.1
                case _:
                    assert requested == pytest.approx(0.1, abs=0.001)
            prompts = [event.prompt_started_at for event in granted]
            assert len(prompts) >= 3
            assert len(set(prompts)) == 2

    play(scenario)


@sdks
def test_bug_77_a_reader_cancelled_in_its_own_code_gives_the_slot_back_though_its_task_is_kept(kind: Any) -> None:
    async def scenario() -> None:
        async with staged(Behaviour(limit=2, service=5.0)) as stage:
            sdk = stage.sdk(kind)

            async def consume() -> None:
                async for _ in await sdk.open():
                    await asyncio.sleep(60)

            task = asyncio.create_task(consume())
            await stage.until(lambda: stage.provider.account.active == 1)
            await asyncio.sleep(0.7)
            task.cancel()
            await asyncio.wait([task])
            await stage.until(lambda: stage.held == 0 and stage.provider.account.active == 0)
            assert task.cancelled()

    play(scenario)


@sdks
@pytest.mark.filterwarnings("ignore:a stream of provider")
def test_grd_3_a_forgotten_stream_is_closed_upstream_before_its_slot_is_free(kind: Any) -> None:
    async def scenario() -> None:
        async with staged(Behaviour(limit=2, service=60.0)) as stage:
            await stage.sdk(kind).open()
            assert stage.held == 1
            gc.collect()
            await stage.until(lambda: stage.held == 0)
            await stage.until(lambda: stage.provider.account.active == 0)

    play(scenario)


@sdks
def test_grd_1_a_stream_closed_by_another_task_in_the_middle_of_a_read(kind: Any) -> None:
    async def scenario() -> None:
        async with staged(Behaviour(limit=2, service=60.0)) as stage:
            stream = await stage.sdk(kind).open()

            async def consume() -> None:
                async for _ in stream:
                    pass

            reader = asyncio.create_task(consume())
            await asyncio.sleep(0.05)
            await stream.close()
            await asyncio.wait([reader], timeout=5)
            assert reader.done()
            assert reader.exception() is not None  # a cut answer doesn't look like a whole one
            await stage.until(lambda: stage.held == 0 and stage.provider.account.active == 0)

    play(scenario)


@sdks
@pytest.mark.parametrize("fault", ["truncate", "reset"])
def test_bug_75_a_broken_stream_gives_the_slot_back(kind: Any, fault: str) -> None:
    async def scenario() -> None:
        async with staged() as stage:
            stream = await stage.sdk(kind).open(extra_headers={"x-fault": fault})
            with pytest.raises((kind.error, httpx2.TransportError)):
                async for _ in stream:
                    pass
            assert stage.held == 0

    play(scenario)


@sdks
def test_bug_32_a_stalled_stream_is_reclaimed_and_closed_upstream(kind: Any) -> None:
    async def scenario() -> None:
        async with staged(slot_timeout=0.3, watchdog_interval=0.1) as stage:
            stream = await stage.sdk(kind).open(extra_headers={"x-fault": "stall"})
            with pytest.raises(Exception, match="the watchdog took the slot back"):
                async for _ in stream:
                    pass
            await stage.until(lambda: stage.provider.account.active == 0)
            assert [event.kind for event in stage.events].count("reclaimed") == 1

    play(scenario)


@sdks
def test_htt_8_a_reclaim_in_the_body_of_a_whole_answer_is_our_error_and_is_not_retried(kind: Any) -> None:
    async def scenario() -> None:
        async with staged(slot_timeout=0.2, watchdog_interval=0.1) as stage:
            slow = httpx2.AsyncClient(timeout=None, event_hooks={"response": [lambda _: asyncio.sleep(1.0)]})
            stage.http.append(limited_client(stage.manager, slow, provider="p"))
            sdk = kind.make(stage.provider.url, stage.http[-1], max_retries=3)
            with pytest.raises(SlotReclaimedError):
                await sdk.whole()
            assert stage.provider.figures.admitted == 1

    play(scenario)


@sdks
def test_htt_6_the_first_byte_limit_is_the_sdks_own_timeout_error(kind: Any) -> None:
    timeout_error = {OpenAI: openai.APITimeoutError, Anthropic: anthropic.APITimeoutError}[kind]

    async def scenario() -> None:
        async with staged() as stage:
            sdk = stage.sdk(kind, lambda *a, **o: limited_client(*a, first_byte_timeout=0.2, **o), max_retries=1)
            with pytest.raises(timeout_error):
                await sdk.whole(extra_headers={"x-service": "30"})
            assert stage.provider.figures.admitted == 2

    play(scenario)


@sdks
def test_ctx_1_a_conversation_reaches_through_the_sdk(kind: Any) -> None:
    async def scenario() -> None:
        async with staged() as stage:
            sdk = stage.sdk(kind)

            async def ask(name: str) -> None:
                with conversation(name, prompt_started_at=float(len(name))):
                    await sdk.whole()
                    async for _ in await sdk.open():
                        pass

            await asyncio.gather(ask("a"), ask("bb"))
            granted = [event for event in stage.events if event.kind == "granted"]
            told = {(event.conversation_id, event.prompt_started_at) for event in granted}
            assert (len(granted), told) == (4, {("a", 1.0), ("bb", 2.0)})

    play(scenario)


@sdks
def test_htt_3_redirects_do_not_deadlock_at_limit_1(kind: Any) -> None:
    async def scenario() -> None:
        async with staged(limits={"p": 1}) as stage:
            stage.http.append(limited_client(stage.manager, provider="p"))
            sdk = kind.make(f"{stage.provider.url}/redirect", stage.http[-1])
            assert await asyncio.gather(sdk.whole(), sdk.whole()) == ["w " * 8] * 2
            assert [event.kind for event in stage.events].count("granted") == 4

    play(scenario)
