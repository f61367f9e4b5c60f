"""Well-known limiters as subjects of protocol 1: what they answer, and what they can't be asked.

    python tests/ports/limiters.py asyncio.Semaphore

Each is driven over virtual time as its users drive it: one limiter for a provider, made when a limit is set; without
one nothing limits. What a limiter has no call for is skipped (changing a limit, a pause, close), and what happens there
without a call, because it has no such thing, is answered as it is (a released place is free at once, nobody is taken a
slot from). Prompt times are not passed on: there is nowhere to pass them.

These limiters tell nothing by themselves, so events are what their callers can see: a grant from the queue is seen when
its caller runs. That makes one question impossible: a cancel after something in the same burst that may have granted.
"""

from __future__ import annotations

import asyncio
import json
import platform
import sys
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any, ClassVar, Generic, TypeAlias, TypeVar

import aiolimiter
import anyio

from provider_concurrency.testing import VirtualLoop

Json: TypeAlias = Any
L = TypeVar("L")

MS = 1_000_000
FLOATS = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}


class CannotError(Exception):
    """The limiter has nothing that an operation could call; the message is what it would take."""


@dataclass(eq=False, slots=True)
class Request(Generic[L]):
    """One acquire; `limiter` is None where no limit was set."""

    name: str
    provider: str
    limiter: L | None
    state: str = "new"
    task: asyncio.Task[None] | None = None


class LimiterPort(ABC, Generic[L]):
    """Protocol 1 in front of one kind of limiter."""

    name: ClassVar[str]
    version: ClassVar[str]
    features: ClassVar[tuple[str, ...]] = ("cancel", "stall")

    def __init__(self) -> None:
        self._reset()

    def _reset(self) -> None:
        self._loop = VirtualLoop()
        self._events: list[Json] = []
        self._limiters: dict[str, L] = {}
        self._limits: dict[str, Json] = {}
        self._requests: dict[str, Request[L]] = {}

    # -- the limiter

    @abstractmethod
    def make(self, limit: Json) -> L:
        """A limiter for so many; TypeError or ValueError for what it refuses."""

    def resize(self, limiter: L, limit: Json) -> None:
        """Another limit for one that is in use."""
        raise CannotError("set_limit again")

    @abstractmethod
    async def acquire(self, limiter: L, request: Request[L]) -> None:
        """Waits for a place."""

    def try_acquire(self, limiter: L, request: Request[L]) -> bool:
        """Takes a place if there is one."""
        raise CannotError("try_acquire")

    @abstractmethod
    def release(self, limiter: L, request: Request[L]) -> None:
        """Gives the place back; called again for a second release, as a caller might."""

    def has_place(self, limiter: L, request: Request[L]) -> bool:
        """Whether a request has its place although its caller doesn't run yet."""
        return False

    # -- messages

    def handle(self, message: dict[str, Json]) -> Json:
        """The reply to one message."""
        try:
            return {"id": message["id"], **self._answer(message)}
        except CannotError as cannot:
            return {"id": message["id"], "skip": {"feature": str(cannot)}}
        except Exception as error:  # noqa: BLE001 - a limiter that raises is a finding, not the end
            return {"id": message["id"], "error": {"message": repr(error)}}

    def _answer(self, message: dict[str, Json]) -> dict[str, Json]:
        match message["cmd"]:
            case "hello":
                runtime = f"Python {platform.python_version()}"
                port = {"name": self.name, "version": self.version, "language": "Python", "runtime": runtime}
                return {"protocol": 1, "port": port, "features": list(self.features)}
            case "bye":
                self._end()
                return {}
            case "new":
                self._end()
                self._reset()
            case "do":
                self._refuse_what_cannot_be_seen(message["ops"])
                for index, op in enumerate(message["ops"]):
                    self._perform(op, index)
                self._loop.settle()
            case "advance":
                self._loop.advance_ns(message["ms"] * MS)
            case "stall":
                self._loop.stall_ns(message["ms"] * MS)
                self._loop.settle()
            case other:
                return {"error": {"message": f"unknown command {other!r}"}}
        return self._reply()

    def _end(self) -> None:
        for request in self._requests.values():
            if request.task is not None:
                request.task.cancel()
        self._loop.settle()
        self._loop.close()

    def _refuse_what_cannot_be_seen(self, ops: list[Json]) -> None:
        may_have_granted = False
        for op in ops:
            if op["op"] == "cancel" and may_have_granted:
                raise CannotError("a grant that is seen before its caller runs")
            may_have_granted = may_have_granted or op["op"] in ("release", "set_limit", "remove_limit")

    def _perform(self, op: Json, index: int) -> None:
        raised: list[Exception] = []

        async def run() -> None:  # a task, as anyio wants one
            try:
                self._operate(op)
            except Exception as error:  # noqa: BLE001 - raised again outside the loop
                raised.append(error)

        if op["op"] == "acquire":
            self._start(op)
        else:
            self._alone(lambda: self._loop.create_task(run()))
        for error in raised:
            if not isinstance(error, TypeError | ValueError):
                raise error
            self._tell("error", None, op=op["op"], index=index, kind="invalid")

    def _alone(self, schedule: Callable[[], object]) -> None:
        """One turn of the loop for what is scheduled here and nothing else: between the operations of a burst."""
        ready: deque[asyncio.Handle] = self._loop._ready
        others = list(ready)
        ready.clear()
        schedule()
        self._loop.step()
        ready.extendleft(reversed(others))

    def _start(self, op: Json) -> None:
        """The caller runs as far as it comes without waiting (from Python 3.12 on: an eager task)."""
        if op.get("timeout_ms") is not None:
            raise CannotError("timeout")
        request = self._add(op)
        limiter = request.limiter
        if limiter is None:
            self._grant(request)
            return

        def start() -> None:
            request.task = self._loop.create_task(self._call(limiter, request))

        self._alone(start)
        if request.state == "new" and self.has_place(limiter, request):
            self._grant(request)
        elif request.state == "new":
            request.state = "queued"
            self._tell("queued", request.provider, request=request.name)

    def _operate(self, op: Json) -> None:
        match op["op"]:
            case "try_acquire":
                attempt = self._add(op)
                if attempt.limiter is None or self.try_acquire(attempt.limiter, attempt):
                    self._grant(attempt)
                else:
                    del self._requests[attempt.name]
            case "release":
                request = self._requests.get(op["request"])
                if request is not None and request.state in ("held", "free"):
                    self._release(request)
            case "cancel":
                request = self._requests.get(op["request"])
                if request is not None and request.state == "queued" and request.task is not None:
                    request.task.cancel()
            case "set_limit":
                self._set_limit(op["provider"], FLOATS.get(op["limit"], op["limit"]))
            case "remove_limit" if op["provider"] not in self._limiters:
                pass
            case "remove_limit":
                self.resize(self._limiters[op["provider"]], float("inf"))
                del self._limits[op["provider"]]
            case other:
                raise CannotError(other)

    # -- requests

    def _add(self, op: Json) -> Request[L]:
        if isinstance(op["prompt_started_at"], str | bool):
            raise CannotError("prompt_started_at")  # what isn't taken can't be refused
        request = Request(op["request"], op["provider"], self._limiters.get(op["provider"]))
        self._requests[request.name] = request
        return request

    async def _call(self, limiter: L, request: Request[L]) -> None:
        try:
            await self.acquire(limiter, request)
        except asyncio.CancelledError:
            request.state = "cancelled"
            self._tell("cancelled", request.provider, request=request.name)
        else:
            if request.state in ("new", "queued"):
                self._grant(request)

    def _grant(self, request: Request[L]) -> None:
        request.state = "held"
        self._tell("granted", request.provider, request=request.name)

    def _release(self, request: Request[L]) -> None:
        if request.limiter is not None:
            self.release(request.limiter, request)
        if request.state == "held":
            request.state = "free"
            self._tell("released", request.provider, request=request.name)
            self._tell("recycled", request.provider, request=request.name)

    def _set_limit(self, provider: str, limit: Json) -> None:
        if provider in self._limiters:
            self.resize(self._limiters[provider], limit)
        else:
            self._limiters[provider] = self.make(limit)
        self._limits[provider] = limit

    # -- replies

    def _tell(self, event: str, provider: str | None, **members: Json) -> None:
        at: dict[str, Json] = {"event": event, "at_ms": self._loop.time_ns() // MS}
        self._events.append({**at, **({} if provider is None else {"provider": provider}), **members})

    def _reply(self) -> dict[str, Json]:
        events, self._events = self._events, []
        requests = self._requests.values()
        waiting = [request.name for request in requests if request.state == "queued"]
        present = {request.provider for request in requests if request.state in ("held", "queued")}
        return {
            "events": events,
            "status": [self._row(provider) for provider in sorted({*self._limits, *present})],
            "unsettled": waiting,
        }

    def _row(self, provider: str) -> dict[str, Json]:
        states = [request.state for request in self._requests.values() if request.provider == provider]
        return {
            "provider": provider,
            "limit": self._limits.get(provider),
            "in_flight": states.count("held"),
            "held": states.count("held"),
            "cooling": 0,
            "reclaimed": 0,
            "queued": states.count("queued"),
            "paused": False,
            "paused_for_ms": None,
        }


# -- the limiters ----------------------------------------------------------------------------------------------------


class SemaphorePort(LimiterPort[asyncio.Semaphore]):
    """The standard library's: a number of places."""

    name = "asyncio.Semaphore"
    version = platform.python_version()

    def make(self, limit: Json) -> asyncio.Semaphore:
        return asyncio.Semaphore(limit)

    async def acquire(self, limiter: asyncio.Semaphore, request: Request[asyncio.Semaphore]) -> None:
        await limiter.acquire()

    def release(self, limiter: asyncio.Semaphore, request: Request[asyncio.Semaphore]) -> None:
        limiter.release()


class CapacityLimiterPort(LimiterPort[anyio.CapacityLimiter]):
    """anyio's: a number of places, which may change, and borrowers who are known."""

    name = "anyio.CapacityLimiter"
    version = version("anyio")
    features = ("cancel", "stall", "try_acquire")

    def make(self, limit: Json) -> anyio.CapacityLimiter:
        return anyio.CapacityLimiter(limit)

    def resize(self, limiter: anyio.CapacityLimiter, limit: Json) -> None:
        limiter.total_tokens = limit

    async def acquire(self, limiter: anyio.CapacityLimiter, request: Request[anyio.CapacityLimiter]) -> None:
        await limiter.acquire_on_behalf_of(request)

    def try_acquire(self, limiter: anyio.CapacityLimiter, request: Request[anyio.CapacityLimiter]) -> bool:
        try:
            limiter.acquire_on_behalf_of_nowait(request)
        except anyio.WouldBlock:
            return False
        return True

    def release(self, limiter: anyio.CapacityLimiter, request: Request[anyio.CapacityLimiter]) -> None:
        limiter.release_on_behalf_of(request)

    def has_place(self, limiter: anyio.CapacityLimiter, request: Request[anyio.CapacityLimiter]) -> bool:
        return request in limiter.statistics().borrowers


class AsyncLimiterPort(LimiterPort[aiolimiter.AsyncLimiter]):
    """aiolimiter's: a rate. `limit` requests a second, which is what people take who are told "3 at once"."""

    name = "aiolimiter.AsyncLimiter"
    version = version("aiolimiter")

    def make(self, limit: Json) -> aiolimiter.AsyncLimiter:
        return aiolimiter.AsyncLimiter(limit, 1)

    async def acquire(self, limiter: aiolimiter.AsyncLimiter, request: Request[aiolimiter.AsyncLimiter]) -> None:
        await limiter.acquire()

    def release(self, limiter: aiolimiter.AsyncLimiter, request: Request[aiolimiter.AsyncLimiter]) -> None:
        """A rate limiter is told nothing of it."""


PORTS: tuple[type[LimiterPort[Any]], ...] = (SemaphorePort, CapacityLimiterPort, AsyncLimiterPort)


def main() -> None:
    """One line in, one line out, for the limiter named on the command line."""
    by_name = {port.name: port for port in PORTS}
    if len(sys.argv) != 2 or sys.argv[1] not in by_name:
        raise SystemExit(f"usage: {sys.argv[0]} {' | '.join(by_name)}")
    port = by_name[sys.argv[1]]()
    for line in sys.stdin:
        message = json.loads(line)
        if message.get("cmd") == "bye":
            break
        print(json.dumps(port.handle(message)), flush=True)
    port.handle({"id": -1, "cmd": "bye"})


if __name__ == "__main__":
    main()
