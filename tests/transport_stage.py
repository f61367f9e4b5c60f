"""What the transports' tests share: both HTTP libraries, an inner transport that does as it is told, virtual time."""

from __future__ import annotations

import asyncio
import gc
import importlib
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine
from typing import Any, TypeAlias

import pytest

from provider_concurrency import ConcurrencyManager, ProviderStatus
from provider_concurrency.events import Event, typed
from provider_concurrency.testing import VirtualLoop

WALL = 1.0e9
Piece: TypeAlias = "bytes | float | BaseException"
"""Of a body: something to send, seconds to wait, something to raise."""
Handler: TypeAlias = "Callable[[Any], Any]"


class Lib:
    """One HTTP library and our module for it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.http = importlib.import_module(name)
        ours = importlib.import_module(f"provider_concurrency.integrations.{name}")
        self.LimitedTransport = ours.LimitedTransport
        self.limited_client = ours.limited_client


LIBS = [pytest.param(Lib(name), id=name) for name in ("httpx2", "httpx")]
both = pytest.mark.parametrize("lib", LIBS)


class Stage:
    """A manager on virtual time under a client of one library, and what the inner transport has seen."""

    def __init__(self, lib: Lib, loop: VirtualLoop, **settings: Any) -> None:
        self.lib, self.loop = lib, loop
        self.events: list[Event] = []
        self.bodies: list[Any] = []
        self.requests: list[Any] = []
        self.started: list[float] = []
        settings = {"limits": {"p": 1}} | settings
        self.manager = ConcurrencyManager(
            clock=loop.time_ns, wall_clock=lambda: WALL + loop.time(), observer=typed(self.events.append), **settings
        )

    def body(self, *pieces: Piece) -> Any:
        """A response stream that sends, waits and raises; `closed` counts its closings."""
        stage = self

        class Body(stage.lib.http.AsyncByteStream):
            def __init__(self) -> None:
                self.closed = 0
                stage.bodies.append(self)

            async def __aiter__(self) -> AsyncIterator[bytes]:
                for piece in pieces:
                    if isinstance(piece, bytes):
                        yield piece
                    elif isinstance(piece, BaseException):
                        raise piece
                    else:
                        await asyncio.sleep(piece)

            async def aclose(self) -> None:
                self.closed += 1

        return Body()

    def answer(self, *pieces: Piece, status: int = 200, headers: Any = None) -> Any:
        return self.lib.http.Response(status, headers=headers, stream=self.body(*pieces))

    def inner(self, handler: Handler) -> Any:
        """A transport that answers each request with `handler(request)`, awaited if need be."""
        stage = self

        class Inner(stage.lib.http.AsyncBaseTransport):
            closed = 0

            async def handle_async_request(self, request: Any) -> Any:
                stage.requests.append(request)
                stage.started.append(stage.loop.time())
                answer = handler(request)
                return await answer if isinstance(answer, Awaitable) else answer

            async def aclose(self) -> None:
                self.closed += 1

        return Inner()

    def transport(self, handler: Handler, **options: Any) -> Any:
        return self.lib.LimitedTransport(self.manager, self.inner(handler), **{"provider": "p"} | options)

    def client(self, handler: Handler, options: dict[str, Any] | None = None, **client: Any) -> Any:
        return self.lib.http.AsyncClient(transport=self.transport(handler, **options or {}), **client)

    def stream(self, client: Any) -> Any:
        """`async with stage.stream(client) as response`."""
        return client.stream("GET", "http://host/")

    async def open(self, client: Any, **extra: Any) -> Any:
        """A response whose body is still to be read."""
        return await client.send(client.build_request("GET", "http://host/", **extra), stream=True)

    def status(self) -> ProviderStatus | None:
        return self.manager.get_status("p")

    @property
    def held(self) -> int:
        status = self.status()
        return 0 if status is None else status.held

    def prompts(self) -> list[float | None]:
        """The prompt times of the grants so far."""
        return [event.prompt_started_at for event in self.events if event.kind == "granted"]

    def kinds(self) -> list[str]:
        return [event.kind for event in self.events]


Scenario: TypeAlias = Callable[[Stage], Coroutine[Any, Any, None]]


def play(lib: Lib, scenario: Scenario, *, rest: bool = True, **settings: Any) -> Stage:
    """Runs a scenario on virtual time; at its end nothing may be held, queued or armed, and no body open."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        loop = runner.get_loop()
        assert isinstance(loop, VirtualLoop)
        stage = Stage(lib, loop, **settings)
        runner.run(_play(scenario, stage))
        if rest:
            status = stage.status()
            assert status is None or (status.in_flight, status.queued) == (0, 0), status
            assert all(body.closed for body in stage.bodies)
            assert len(loop.alive_timers()) <= 2, "more than the provider's timer and the sweeps'"
    gc.collect()
    return stage


async def _play(scenario: Scenario, stage: Stage) -> None:
    await scenario(stage)
    await asyncio.sleep(0.001)
    await asyncio.sleep(stage.manager._settings.release_cooldown / 1e9)


async def read(response: Any) -> list[bytes]:
    return [chunk async for chunk in response.aiter_raw()]


async def first_chunk(response: Any) -> tuple[AsyncGenerator[bytes, None], bytes]:
    """Begins to read: the iterator, and its first chunk."""
    iterator = response.aiter_raw()
    return iterator, await anext(iterator)
