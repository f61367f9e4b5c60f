"""HTT-1, HTT-2, HTT-8, CTX-1, CTX-2: which provider, conversation and prompt time a request belongs to, and options."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from typing import Any

import pytest

from provider_concurrency import ConcurrencyManager
from provider_concurrency.context import conversation, current_conversation
from transport_stage import Lib, Stage, both, play


def granted(stage: Stage) -> list[tuple[str | None, str | None]]:
    return [(event.provider, event.conversation_id) for event in stage.events if event.kind == "granted"]


async def get(stage: Stage, url: str, provider: Any, **extra: Any) -> None:
    await stage.client(lambda _: stage.answer(b"a"), {"provider": provider}).get(url, **extra)


@both
@pytest.mark.parametrize(
    ("provider", "url", "expected"),
    [
        (None, "https://api.openai.com/v1", "api.openai.com"),
        (None, "http://127.0.0.1:8000/v1", "127.0.0.1:8000"),
        ("umans", "https://api.openai.com/v1", "umans"),
        ("", "https://api.openai.com/v1", ""),  # case 30: a name like any other
        ({"api.openai.com": "openai"}, "https://API.openai.com/v1", "openai"),
        ({"API.openai.com": "openai"}, "https://api.openai.com:443/v1", "openai"),
        ({"localhost:1": "a", "localhost": "b"}, "http://localhost:1/", "a"),
        ({"localhost:1": "a", "localhost": "b"}, "http://localhost:2/", "b"),
        ({"localhost": ""}, "http://localhost:2/", ""),
        ({"api.openai.com": "openai"}, "https://auth.example/", "auth.example"),  # nothing is unlimited by a slip
        (lambda request: request.url.path.strip("/"), "http://host/gpt", "gpt"),
    ],
)
def test_htt_1_name_map_callable_or_host(lib: Lib, provider: Any, url: str, expected: str) -> None:
    async def scenario(stage: Stage) -> None:
        await get(stage, url, provider)
        assert granted(stage) == [(expected, None)]

    play(lib, scenario)


@both
def test_htt_1_the_extension_wins_over_the_block_and_the_block_over_the_client(lib: Lib) -> None:
    async def scenario(stage: Stage) -> None:
        own = {"provider_concurrency": {"provider": "own", "conversation_id": "c9", "prompt_started_at": 5.0}}
        await get(stage, "http://host/", "client")
        with conversation("c1"):
            await get(stage, "http://host/", "client")
        with conversation("c1", provider="block"):
            await get(stage, "http://host/", "client")
            await get(stage, "http://host/", "client", extensions=own)
            await get(stage, "http://host/", "client", extensions={"provider_concurrency": {"conversation_id": None}})
        assert granted(stage) == [("client", None), ("client", "c1"), ("block", "c1"), ("own", "c9"), ("block", None)]
        assert stage.prompts()[3] == 5.0

    play(lib, scenario)


@both
def test_htt_1_a_callables_none_is_not_limited(lib: Lib) -> None:
    async def scenario(stage: Stage) -> None:
        await get(stage, "http://host/", lambda _: None)
        assert granted(stage) == []
        assert len(stage.requests) == 1

    play(lib, scenario)


@both
def test_htt_1_an_extension_that_nobody_would_read_is_refused(lib: Lib) -> None:
    async def scenario(stage: Stage) -> None:
        with pytest.raises(TypeError, match="has no 'conversation'; it has provider, conversation_id"):
            await get(stage, "http://host/", "p", extensions={"provider_concurrency": {"conversation": "c"}})
        with pytest.raises(TypeError, match="must be a mapping"):
            await get(stage, "http://host/", "p", extensions={"provider_concurrency": "p"})
        nan = {"prompt_started_at": float("nan")}  # case 19
        with pytest.raises(ValueError, match="prompt_started_at must be finite"):
            await get(stage, "http://host/", "p", extensions={"provider_concurrency": nan})

    play(lib, scenario)


@both
def test_htt_1_an_extension_may_have_its_own_timeout(lib: Lib) -> None:
    async def scenario(stage: Stage) -> None:
        holder = await stage.manager.acquire("p")
        with pytest.raises(TimeoutError):
            await get(stage, "http://host/", "p", extensions={"provider_concurrency": {"timeout": 2.0}})
        assert stage.loop.time() == 2.0
        holder.release()

    play(lib, scenario)


@both
def test_ctx_1_a_block_reaches_tasks_that_it_starts_and_no_others(lib: Lib) -> None:
    async def scenario(stage: Stage) -> None:
        async def ask() -> None:
            await get(stage, "http://host/", "p")

        before = asyncio.create_task(ask())
        with conversation("c1") as block:
            assert current_conversation() is block
            within = asyncio.create_task(ask())
            with conversation("c2"):
                inner = asyncio.create_task(ask())
        assert current_conversation() is None
        after = asyncio.create_task(ask())
        await asyncio.gather(before, within, inner, after)
        assert [conversation_id for _, conversation_id in granted(stage)] == [None, "c1", "c2", None]

    play(lib, scenario)


def test_ctx_1_bad_arguments() -> None:
    for arguments in ({"conversation_id": 1}, {"conversation_id": "c", "provider": 1}):
        with pytest.raises(TypeError), conversation(**arguments):  # type: ignore[arg-type]
            pass
    with pytest.raises(ValueError, match="prompt_started_at"), conversation("c", prompt_started_at=float("inf")):
        pass


@both
def test_ctx_2_the_first_request_of_a_block_fixes_its_prompt_time(lib: Lib) -> None:
    async def scenario(stage: Stage) -> None:
        with conversation("c1"):
            await get(stage, "http://host/", "p")
            await asyncio.sleep(10)
            await get(stage, "http://host/", "p")
        with conversation("c1", prompt_started_at=7.0):
            await get(stage, "http://host/", "p")
        await get(stage, "http://host/", "p")
        assert stage.prompts() == [1e9, 1e9, 7.0, pytest.approx(1e9 + 10.4)]

    play(lib, scenario)


@both
def test_htt_2_an_sdks_retry_keeps_the_prompt_time_of_its_first_attempt(lib: Lib) -> None:
    """The SDKs number their attempts; nothing else tells a retry from a new request."""

    async def scenario(stage: Stage) -> None:
        async def call(url: str, *attempts: str) -> None:
            for attempt in attempts:
                await get(stage, url, "p", headers={"x-stainless-retry-count": attempt})
                await asyncio.sleep(10)

        await call("http://host/a", "0", "1", "2")
        await call("http://host/b", "1")  # another call's: not taken for a retry of the last one
        await call("http://host/b", "0")
        assert [round(prompt - 1e9) for prompt in stage.prompts() if prompt] == [0, 0, 0, 30, 40]

    play(lib, scenario, release_cooldown=0.0)


# -- options ----------------------------------------------------------------------------------------------------------


@both
@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"provider": 1}, TypeError, "provider must be a str, a mapping"),
        ({"provider": {1: "p"}}, TypeError, "hosts must be str"),
        ({"provider": {"host": 1}}, TypeError, "provider must be a str"),
        ({"provider": {"https://host/": "p"}}, ValueError, "must be hosts, not URLs"),
        ({"acquire_timeout": -1}, ValueError, "acquire_timeout must be >= 0"),
        ({"first_byte_timeout": 0}, ValueError, "first_byte_timeout must be > 0"),
        ({"first_byte_timeout": "1"}, TypeError, "first_byte_timeout must be a number"),
        ({"keepalives_count": 5}, TypeError, "keepalives_count must be a bool, not 5"),
        ({"abort_reclaimed": None}, TypeError, "abort_reclaimed must be a bool, not None"),
        ({"rate_limit_statuses": ["429"]}, TypeError, "rate_limit_statuses must be ints"),
        ({"classify": 1}, TypeError, "classify must be callable"),
        ({"retries": 3}, TypeError, "unknown options: retries"),
    ],
)
def test_htt_options_are_judged_at_once(lib: Lib, options: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        lib.LimitedTransport(ConcurrencyManager(), **options)


@both
def test_htt_3_a_client_is_not_limited_twice(lib: Lib) -> None:
    manager = ConcurrencyManager()
    client = lib.limited_client(manager)
    with pytest.raises(ValueError, match="takes slots already"):
        lib.limited_client(manager, client)


@both
def test_htt_3_a_client_of_ones_own_keeps_its_settings_and_all_its_transports_are_limited(lib: Lib) -> None:
    mounts = {"https://a": lib.http.AsyncHTTPTransport(), "https://b": None}
    mine = lib.http.AsyncClient(timeout=3.0, mounts=mounts)
    client = lib.limited_client(ConcurrencyManager(), mine, provider="p")
    assert client is mine
    assert client.timeout.read == 3.0
    assert isinstance(client._transport, lib.LimitedTransport)
    wrapped = [type(transport) for transport in client._mounts.values()]
    assert sorted(kind.__name__ for kind in wrapped) == ["LimitedTransport", "NoneType"]


@both
def test_htt_3_the_inner_transport_is_entered_and_closed(lib: Lib) -> None:
    async def scenario(stage: Stage) -> None:
        transport = stage.transport(lambda _: stage.answer(b"a"))
        async with lib.http.AsyncClient(transport=transport) as client:
            await client.get("http://host/")
        await transport.aclose()
        assert transport._inner.closed == 2

    play(lib, scenario)


@pytest.mark.parametrize(
    ("module", "loaded"),
    [("", []), (".integrations", []), (".integrations.httpx2", ["httpx2"]), (".integrations.httpx", ["httpx"])],
)
def test_each_module_imports_its_own_library_only(module: str, loaded: list[str]) -> None:
    program = (
        f"import sys, provider_concurrency{module}\n"
        "print(*[name for name in ('httpx', 'httpx2', 'openai', 'anthropic') if name in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert found.stdout.split() == loaded
