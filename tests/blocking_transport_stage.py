"""What the sync transports' tests share: both HTTP libraries, an inner transport that does as it is told, virtual time.

All runs in one thread: a body that waits lets the virtual time pass itself, and what is due on the way happens there.
A connection is a real pair of sockets, so that cutting it is the real thing.
"""

from __future__ import annotations

import gc
import importlib
import socket
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import pytest

import blocking_stage
from provider_concurrency.threading_guard import Alarms
from provider_concurrency.threading_port import Caller

Piece: TypeAlias = "bytes | float | BaseException"
"""Of a body: something to send, seconds to wait, something to raise."""
Handler: TypeAlias = "Callable[[Any], Any]"


class Lib:
    """One HTTP library and our module for it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.http = importlib.import_module(name)
        ours = importlib.import_module(f"provider_concurrency.integrations.{name}")
        self.Transport = ours.BlockingLimitedTransport
        self.limited_client = ours.limited_client


LIBS = [pytest.param(Lib(name), id=name) for name in ("httpx2", "httpx")]
both = pytest.mark.parametrize("lib", LIBS)


class Wire:
    """A connection that knows whether it was cut; also the library's `network_stream`."""

    def __init__(self) -> None:
        self.near, self.far = socket.socketpair()
        self.far.setblocking(False)

    def get_extra_info(self, name: str) -> object:
        return self.near if name == "socket" else None

    @property
    def is_cut(self) -> bool:
        try:
            return self.far.recv(1) == b""
        except BlockingIOError:
            return False

    def close(self) -> None:
        self.near.close()
        self.far.close()


class Stage(blocking_stage.Stage):
    """A blocking manager on virtual time under clients of one library, and what the inner transport has seen."""

    def __init__(self, lib: Lib, **settings: Any) -> None:
        super().__init__(**{"limits": {"p": 1}} | settings)
        self.lib = lib
        self.bodies: list[Any] = []
        self.wires: list[Wire] = []
        self.requests: list[Any] = []
        self.started: list[float] = []

    @property
    def now(self) -> float:
        return self.time.now_ns / 1e9

    def sleep(self, seconds: float, wire: Wire | None = None) -> None:
        """Lets time pass; as soon as the wire is cut this fails as a read does."""
        end = self.time.now_ns + round(seconds * 1e9)
        while self.time.now_ns < end:
            due = min((entry[0] for entry in self.time._due.values()), default=end)
            self.time.advance_ns(max(min(due, end) - self.time.now_ns, 0))
            if wire is not None and wire.is_cut:
                raise self.lib.http.ReadError("cut")

    def body(self, wire: Wire | None, *pieces: Piece) -> Any:
        """A response stream that sends, waits and raises; `closed` counts its closings."""
        stage = self

        class Body(stage.lib.http.SyncByteStream):
            def __init__(self) -> None:
                self.closed = 0
                stage.bodies.append(self)

            def __iter__(self) -> Iterator[bytes]:
                for piece in pieces:
                    if isinstance(piece, bytes):
                        yield piece
                    elif isinstance(piece, BaseException):
                        raise piece
                    else:
                        stage.sleep(piece, wire)

            def close(self) -> None:
                self.closed += 1

        return Body()

    def answer(self, *pieces: Piece, status: int = 200, headers: Any = None, wired: bool = True) -> Any:
        """`wired`: its connection is known, so that it can be cut."""
        wire = Wire() if wired else None
        if wire is not None:
            self.wires.append(wire)
        extensions = {} if wire is None else {"network_stream": wire, "http_version": b"HTTP/1.1"}
        stream = self.body(wire, *pieces)
        return self.lib.http.Response(status, headers=headers, stream=stream, extensions=extensions)

    def inner(self, handler: Handler) -> Any:
        """A transport that answers each request with `handler(request)`."""
        stage = self

        class Inner(stage.lib.http.BaseTransport):
            closed = 0

            def handle_request(self, request: Any) -> Any:
                stage.requests.append(request)
                stage.started.append(stage.now)
                return handler(request)

            def close(self) -> None:
                self.closed += 1

        return Inner()

    def transport(self, handler: Handler, **options: Any) -> Any:
        transport = self.lib.Transport(self.manager, self.inner(handler), **{"provider": "p"} | options)
        transport._alarms = VirtualAlarms(self)
        return transport

    def client(self, handler: Handler, options: dict[str, Any] | None = None, **client: Any) -> Any:
        return self.lib.http.Client(transport=self.transport(handler, **options or {}), **client)

    def open(self, client: Any, **extra: Any) -> Any:
        """A response whose body is still to be read."""
        return client.send(client.build_request("GET", "http://host/", **extra), stream=True)

    def ask_by(self, call: Callable[[], Any]) -> Caller:
        """Makes a call in a thread of its own, up to where it waits for a slot."""
        caller = Caller(call)
        self.callers.append(caller)
        caller.start_quietly()
        caller.finish()
        return caller

    @property
    def held(self) -> int:
        status = self.status()
        return 0 if status is None else status.held

    def seen(self) -> list[str]:
        """The events' words so far."""
        return [event.kind for event in self.events]


class VirtualAlarms(Alarms):
    """Alarms on the stage's clock."""

    def __init__(self, stage: Stage) -> None:
        super().__init__()
        self._wakes = stage.time
        self._stage = stage

    def now(self) -> float:
        return self._stage.now

    def stop(self) -> None:
        """The manager's own wake-ups stand on the same clock."""


Scenario: TypeAlias = Callable[[Stage], None]


def play(lib: Lib, scenario: Scenario, **settings: Any) -> Stage:
    """Runs a scenario; at its end nothing may be held or queued, and no body open."""
    stage = Stage(lib, **settings)
    try:
        scenario(stage)
        stage.pass_ms(round(stage.manager._settings.release_cooldown / 1e6))
        status = stage.status()
        assert status is None or (status.in_flight, status.queued) == (0, 0), status
        assert all(body.closed for body in stage.bodies)
        stage.finish()
    finally:
        for wire in stage.wires:
            wire.close()
        gc.collect()
    return stage


def read(response: Any) -> list[bytes]:
    return list(response.iter_raw())


def first_chunk(response: Any) -> tuple[Iterator[bytes], bytes]:
    """Begins to read: the iterator, and its first chunk."""
    iterator = response.iter_raw()
    return iterator, next(iterator)
