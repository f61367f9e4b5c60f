"""An LLM provider whose own counter lags: a real HTTP server on loopback, for real SDK clients.

    python tests/lagging_provider.py --limit 4 --lag fixed:0.2 --service 0.4 --penalty 1 --port 8800

It admits `limit` sessions at once and counts a session for `lag` seconds beyond its end: beyond the last byte that it
wrote, or the moment it noticed that the client was gone. A request above the limit gets a 429 with Retry-After, and
for `penalty` seconds so does every other one. It speaks OpenAI's POST .../chat/completions and Anthropic's
POST .../messages, streamed or whole. GET /stats tells what it has seen.

A request may ask for trouble by header: `x-fault: stall | truncate | reset | pings | error`, `x-service: seconds`.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import heapq
import json
import random
import socket
import struct
import sys
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import asdict, dataclass, field, fields
from email.utils import formatdate
from typing import Any

FAULTS = ("stall", "truncate", "reset")


@dataclass(frozen=True)
class Behaviour:
    """How the provider is; durations in seconds."""

    limit: int = 4
    lag: str = "fixed:0.2"  # or uniform:LEAST,MOST, or bimodal:SHORT,LONG,SHARE_OF_LONG
    service: float = 0.4  # from admission to the last byte
    chunks: int = 8
    penalty: float = 0.0  # how long after a 429 everything is refused
    retry_after: str = "seconds"  # the header's form: seconds, ms, date, none
    noise: float = 0.0  # how often the counter is read one too high or one too low
    foreign: int = 0  # sessions of somebody else on the same account
    stall: float = 0.0  # how often a stream stops in the middle, the connection open
    truncate: float = 0.0  # how often it ends before its end
    reset: float = 0.0  # how often the connection is reset
    seed: int = 0


@dataclass
class Figures:
    """What the provider has seen of its client; `peak` counts a request that was refused, too."""

    admitted: int = 0
    finished: int = 0
    broken: int = 0  # ended before their end, by a fault or by the client
    overshoots: int = 0  # requests that found `limit` sessions counted
    refused: int = 0  # all 429s
    peak: int = 0
    connections: int = 0
    events: list[tuple[float, str, int]] = field(default_factory=list[tuple[float, str, int]])  # time, what, count then


class Account:
    """The provider's counter: exact by the clock, not by timers."""

    def __init__(self, behaviour: Behaviour) -> None:
        self.behaviour = behaviour
        self.figures = Figures()
        self.active = 0
        self._lingering: list[float] = []  # when the count of an ended session falls
        self._penalised_until = 0.0
        self._random = random.Random(behaviour.seed)

    def count(self) -> int:
        now = time.monotonic()
        while self._lingering and self._lingering[0] <= now:
            self._note(heapq.heappop(self._lingering), "forgotten")
        return self.active + len(self._lingering)

    def admit(self) -> float | None:
        """None if the request is admitted, else the seconds after which it may be tried again."""
        behaviour, now = self.behaviour, time.monotonic()
        count = self.count()
        self.figures.peak = max(self.figures.peak, count + 1)
        if now < self._penalised_until:
            return self._refuse("penalised", self._penalised_until - now)
        if count >= behaviour.limit:
            self.figures.overshoots += 1
        read = count + behaviour.foreign
        if self._random.random() < behaviour.noise:
            read += self._random.choice((-1, 1))
        if read >= behaviour.limit:
            self._penalised_until = now + behaviour.penalty
            return self._refuse("overshoot" if count >= behaviour.limit else "refused", behaviour.penalty)
        self.active += 1
        self.figures.admitted += 1
        self._note(now, "begin")
        return None

    def end(self, *, whole: bool) -> None:
        now = time.monotonic()
        self.active -= 1
        if whole:
            self.figures.finished += 1
        else:
            self.figures.broken += 1
        heapq.heappush(self._lingering, now + self.draw_lag())
        self._note(now, "end")

    def draw_lag(self) -> float:
        kind, _, numbers = self.behaviour.lag.partition(":")
        values = [float(number) for number in numbers.split(",")]
        match kind, values:
            case "fixed", [lag]:
                return lag
            case "uniform", [least, most]:
                return self._random.uniform(least, most)
            case "bimodal", [short, long, share]:
                return long if self._random.random() < share else short
            case _:
                raise ValueError(f"no such lag: {self.behaviour.lag!r}")

    def draw_fault(self) -> str | None:
        for fault in FAULTS:
            if self._random.random() < getattr(self.behaviour, fault):
                return fault
        return None

    def _refuse(self, why: str, seconds: float) -> float:
        self.figures.refused += 1
        self._note(time.monotonic(), why)
        return seconds

    def _note(self, when: float, what: str) -> None:
        if len(self.figures.events) < 10_000:
            self.figures.events.append((when, what, self.active + len(self._lingering)))


class Connection(asyncio.Protocol):
    """One client connection: requests one after the other; a lost one ends the session that it carries."""

    def __init__(self, account: Account, connections: set[Connection]) -> None:
        self._account = account
        self._connections = connections
        self._buffer = b""
        self._task: asyncio.Task[None] | None = None
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self._connections.add(self)
        self._account.figures.connections += 1

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        self._begin_next()

    def connection_lost(self, exc: Exception | None) -> None:
        self._connections.discard(self)
        if self._task is not None:
            self._task.cancel()

    def _begin_next(self) -> None:
        if self._task is not None and not self._task.done():
            return
        head, found, rest = self._buffer.partition(b"\r\n\r\n")
        if not found:
            return
        first, *lines = head.decode("latin-1").split("\r\n")
        headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        length = int(headers.get("content-length", "0"))
        if len(rest) < length:
            return
        body, self._buffer = rest[:length], rest[length:]
        method, path, _ = first.split(" ")
        self._task = asyncio.get_running_loop().create_task(self._answer(method, path, headers, body))
        self._task.add_done_callback(lambda _task: self.transport.is_closing() or self._begin_next())

    async def _answer(self, method: str, path: str, headers: dict[str, str], body: bytes) -> None:
        account = self._account
        if method == "GET" and path == "/stats":
            figures = asdict(account.figures) | {"count": account.count(), "active": account.active}
            self._send(200, json.dumps(figures | {"events": len(figures["events"])}))
        elif path.startswith("/redirect/"):
            self._send(307, "", ("location", path.removeprefix("/redirect")))
        elif (wait := account.admit()) is not None:
            error = {"type": "rate_limit_error", "message": "too many concurrent sessions"}
            self._send(429, json.dumps({"type": "error", "error": error}), *self._retry_after(wait))
        else:
            await self._hold_session(path, headers, body)

    async def _hold_session(self, path: str, headers: dict[str, str], body: bytes) -> None:
        whole = False
        try:
            asked = json.loads(body or b"{}")
            await self._serve(path, headers, bool(asked.get("stream")))
            whole = not self.transport.is_closing()
        finally:
            self._account.end(whole=whole)

    async def _serve(self, path: str, headers: dict[str, str], is_streamed: bool) -> None:
        behaviour = self._account.behaviour
        service = float(headers.get("x-service", behaviour.service))
        fault = headers.get("x-fault", self._account.draw_fault())
        style = AnthropicStyle if path.endswith("/messages") else OpenAIStyle
        if fault == "error":
            self._send(500, json.dumps({"error": {"message": "broken"}}))
        elif is_streamed:
            await self._stream(list(style.stream(behaviour.chunks)), service, fault)
        else:
            await asyncio.sleep(service)
            if fault in FAULTS:
                await self._fail(fault)
            else:
                self._send(200, json.dumps(style.whole()))

    async def _stream(self, pieces: list[bytes], service: float, fault: str | None) -> None:
        self._write_head(200, ("content-type", "text/event-stream"), ("transfer-encoding", "chunked"))
        began = time.monotonic()
        for number, piece in enumerate(pieces):
            due = began + service * (number + 1) / len(pieces)  # so that late timers don't add up
            await asyncio.sleep(max(due - time.monotonic(), 0.0))
            if fault in FAULTS and number == len(pieces) // 2:
                await self._fail(fault)
                return
            self._write_chunk(b": keep-alive\n\n" if fault == "pings" and number else piece)
        self.transport.write(b"0\r\n\r\n")

    async def _fail(self, fault: str) -> None:
        match fault:
            case "stall":
                await asyncio.Event().wait()  # until the client goes
            case "truncate":
                self.transport.close()
            case _:
                connection: socket.socket = self.transport.get_extra_info("socket")
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                self.transport.abort()

    def _retry_after(self, seconds: float) -> list[tuple[str, str]]:
        match self._account.behaviour.retry_after:
            case "seconds":
                return [("retry-after", f"{seconds:.3f}".rstrip("0").rstrip("."))]
            case "ms":
                return [("retry-after-ms", str(round(seconds * 1000)))]
            case "date":
                return [("retry-after", formatdate(time.time() + seconds, usegmt=True))]
            case _:
                return []

    def _send(self, status: int, body: str, *headers: tuple[str, str]) -> None:
        content = body.encode()
        lines = (("content-type", "application/json"), ("content-length", str(len(content))), *headers)
        self._write_head(status, *lines)
        self.transport.write(content)

    def _write_head(self, status: int, *headers: tuple[str, str]) -> None:
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers)
        self.transport.write(f"HTTP/1.1 {status} -\r\n{lines}\r\n".encode())

    def _write_chunk(self, data: bytes) -> None:
        self.transport.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")


def _event(data: dict[str, Any], name: str | None = None) -> bytes:
    prefix = "" if name is None else f"event: {name}\n"
    return f"{prefix}data: {json.dumps(data)}\n\n".encode()


class OpenAIStyle:
    """Chat completions."""

    @staticmethod
    def whole() -> dict[str, Any]:
        message = {"role": "assistant", "content": "w " * 8}
        choice = {"index": 0, "message": message, "finish_reason": "stop", "logprobs": None}
        return {"id": "c", "object": "chat.completion", "created": 0, "model": "m", "choices": [choice]}

    @staticmethod
    def stream(words: int) -> Iterator[bytes]:
        head = {"id": "c", "object": "chat.completion.chunk", "created": 0, "model": "m"}
        for number in range(words):
            delta = {"role": "assistant", "content": "w "} if number == 0 else {"content": "w "}
            yield _event(head | {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]})
        yield _event(head | {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}) + b"data: [DONE]\n\n"


class AnthropicStyle:
    """Messages."""

    @staticmethod
    def whole() -> dict[str, Any]:
        usage = {"input_tokens": 1, "output_tokens": 8}
        content = [{"type": "text", "text": "w " * 8}]
        head = {"id": "m", "type": "message", "role": "assistant", "model": "m", "stop_sequence": None}
        return head | {"content": content, "stop_reason": "end_turn", "usage": usage}

    @staticmethod
    def stream(words: int) -> Iterator[bytes]:
        message = AnthropicStyle.whole() | {"content": [], "stop_reason": None}
        text = {"type": "text", "text": ""}
        yield _event({"type": "message_start", "message": message}, "message_start") + _event(
            {"type": "content_block_start", "index": 0, "content_block": text}, "content_block_start"
        )
        for _ in range(words - 1):
            delta = {"type": "text_delta", "text": "w "}
            yield _event({"type": "content_block_delta", "index": 0, "delta": delta}, "content_block_delta")
        end = {"stop_reason": "end_turn", "stop_sequence": None}
        yield (
            _event({"type": "content_block_stop", "index": 0}, "content_block_stop")
            + _event({"type": "message_delta", "delta": end, "usage": {"output_tokens": 8}}, "message_delta")
            + _event({"type": "message_stop"}, "message_stop")
        )


class LaggingProvider:
    """The running server; `account` is its counter, `url` its root without a slash."""

    def __init__(self, account: Account, server: asyncio.Server) -> None:
        self.account = account
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"

    @property
    def figures(self) -> Figures:
        return self.account.figures


@contextlib.asynccontextmanager
async def lagging_provider(behaviour: Behaviour | None = None, port: int = 0) -> AsyncIterator[LaggingProvider]:
    account = Account(behaviour or Behaviour())
    connections: set[Connection] = set()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Connection(account, connections), "127.0.0.1", port)
    try:
        yield LaggingProvider(account, server)
    finally:
        server.close()
        for connection in list(connections):
            connection.transport.abort()
        await asyncio.sleep(0)


async def _run(behaviour: Behaviour, port: int) -> None:
    async with lagging_provider(behaviour, port) as provider:
        print(provider.url, flush=True)
        await asyncio.Event().wait()


def _parse(arguments: list[str]) -> tuple[Behaviour, int]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int, default=0, help="default: a free one; the URL is printed")
    for setting in fields(Behaviour):
        kind = type(setting.default)
        parser.add_argument(f"--{setting.name.replace('_', '-')}", type=kind, default=setting.default)
    values = vars(parser.parse_args(arguments))
    return Behaviour(**{key: value for key, value in values.items() if key != "port"}), values["port"]


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_run(*_parse(sys.argv[1:])))
