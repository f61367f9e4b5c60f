"""The provider that lags, by itself: its counter, its refusals, its faults, its one command."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import httpx2
import pytest

from lagging_provider import Account, Behaviour, LaggingProvider, lagging_provider

pytestmark = pytest.mark.realtime
Scenario = Callable[[LaggingProvider, httpx2.AsyncClient], Coroutine[Any, Any, None]]


def play(behaviour: Behaviour, scenario: Scenario) -> None:
    async def run() -> None:
        async with lagging_provider(behaviour) as provider, httpx2.AsyncClient(base_url=provider.url) as client:
            await scenario(provider, client)

    asyncio.run(run())


async def ask(client: httpx2.AsyncClient, path: str = "/v1/chat/completions", **extra: Any) -> httpx2.Response:
    return await client.post(path, json={"stream": True}, **extra)


def test_it_counts_a_session_for_the_lag_beyond_its_end() -> None:
    async def scenario(provider: LaggingProvider, client: httpx2.AsyncClient) -> None:
        statuses = [response.status_code for response in await asyncio.gather(*(ask(client) for _ in range(3)))]
        assert sorted(statuses) == [200, 200, 429]
        assert (provider.account.active, provider.account.count()) == (0, 2)
        assert (await ask(client)).status_code == 429
        await asyncio.sleep(0.3)
        assert provider.account.count() == 0
        assert (await ask(client)).status_code == 200
        figures = provider.figures
        assert (figures.admitted, figures.finished, figures.overshoots, figures.peak) == (3, 3, 2, 3)

    play(Behaviour(limit=2, lag="fixed:0.3", service=0.05), scenario)


def test_after_a_429_everything_is_refused_for_the_penalty() -> None:
    async def scenario(provider: LaggingProvider, client: httpx2.AsyncClient) -> None:
        first = asyncio.create_task(ask(client))
        await asyncio.sleep(0.02)
        refused = await ask(client)
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "0.3")
        await first
        again = await ask(client)
        assert again.status_code == 429
        assert 0 < float(again.headers["retry-after"]) < 0.3
        await asyncio.sleep(0.3)
        assert (await ask(client)).status_code == 200
        assert provider.figures.overshoots == 1

    play(Behaviour(limit=1, lag="fixed:0", service=0.05, penalty=0.3), scenario)


@pytest.mark.parametrize(("foreign", "noise"), [(1, 0.0), (0, 1.0)])
def test_foreign_sessions_and_noise_refuse_below_the_limit(foreign: int, noise: float) -> None:
    async def scenario(provider: LaggingProvider, client: httpx2.AsyncClient) -> None:
        for _ in range(20):
            await ask(client)
        figures = provider.figures
        assert figures.overshoots == 0
        assert figures.refused == 20 if foreign else 0 < figures.refused < 20

    play(Behaviour(limit=1, lag="fixed:0", service=0.0, foreign=foreign, noise=noise), scenario)


@pytest.mark.parametrize(
    ("lag", "expected"),
    [("fixed:0.2", {0.2}), ("bimodal:0.05,0.35,0.5", {0.05, 0.35}), ("uniform:0.1,0.3", None)],
)
def test_the_shapes_of_the_lag(lag: str, expected: set[float] | None) -> None:
    account = Account(Behaviour(lag=lag))
    drawn = {account.draw_lag() for _ in range(200)}
    if expected is None:
        assert 0.1 <= min(drawn) < max(drawn) <= 0.3
    else:
        assert drawn == expected


def test_an_unknown_lag_is_refused() -> None:
    with pytest.raises(ValueError, match="no such lag"):
        Account(Behaviour(lag="normal:0.1")).draw_lag()


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages"])
@pytest.mark.parametrize("fault", ["truncate", "reset", "stall"])
def test_faults_end_the_session(path: str, fault: str) -> None:
    async def scenario(provider: LaggingProvider, client: httpx2.AsyncClient) -> None:
        kind = httpx2.ReadTimeout if fault == "stall" else httpx2.TransportError
        with pytest.raises(kind):
            await ask(client, path, headers={"x-fault": fault}, timeout=0.2)
        async with asyncio.timeout(2):
            while provider.account.active:  # noqa: ASYNC110 - the server has no event for it
                await asyncio.sleep(0.01)
        assert (provider.figures.broken, provider.figures.finished) == (1, 0)

    play(Behaviour(service=0.02), scenario)


def test_pings_a_server_error_and_the_redirect() -> None:
    async def scenario(provider: LaggingProvider, client: httpx2.AsyncClient) -> None:
        assert ": keep-alive" in (await ask(client, headers={"x-fault": "pings"})).text
        assert (await ask(client, headers={"x-fault": "error"})).status_code == 500
        moved = await ask(client, "/redirect/v1/messages")
        assert (moved.status_code, moved.headers["location"]) == (307, "/v1/messages")
        stats = (await client.get("/stats")).json()
        assert (stats["admitted"], stats["count"]) == (2, 2)

    play(Behaviour(service=0.01), scenario)


def test_one_command_starts_it() -> None:
    program = Path(__file__).parent / "lagging_provider.py"
    command = [sys.executable, str(program), "--limit", "1", "--lag", "fixed:0.1", "--service", "0.01"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            url = process.stdout.readline().strip()
            with httpx2.Client(base_url=url) as client:
                assert client.post("/v1/messages", json={}).json()["role"] == "assistant"
                assert client.get("/stats").json()["finished"] == 1
        finally:
            process.terminate()
            process.wait(5)
