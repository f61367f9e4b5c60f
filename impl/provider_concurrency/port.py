"""The subject interface: the manager behind protocol 1, in process or as lines over stdio.

`Port().handle(message)` takes a request message and returns its reply (protocol.md). Time is virtual: the manager
runs on a VirtualLoop. Run as `python -m provider_concurrency.port` it reads one JSON object a line from stdin.
"""

from __future__ import annotations

import asyncio
import json
import platform
import sys
from contextlib import AbstractContextManager
from contextvars import Context
from typing import IO, Any, ClassVar, cast

from provider_concurrency import ConcurrencyManager, Slot
from provider_concurrency.session import HookError, Message, Session, within_blocks
from provider_concurrency.surface import Surface
from provider_concurrency.testing import VirtualLoop
from provider_concurrency_spec.vocabulary import (
    FEATURES,
    PROTOCOL,
    Config,
    Feature,
    MalformedError,
    command_from_json,
    config_from_json,
    config_to_json,
)


def _find_flaw(message: Message) -> str | None:
    """What a message lacks so that it can't be carried out at all, or None; its values are the manager's to judge."""
    command = message.get("cmd")
    try:
        if command == "new":
            config_from_json(message.get("config"))
            if missing := [name for name in config_to_json(Config()) if name not in message["config"]]:
                return f"config lacks {', '.join(missing)}"
        elif command in ("do", "advance", "stall"):
            command_from_json(message)
    except MalformedError as flaw:
        return str(flaw)
    return None


class Port:
    """One manager at a time, driven by messages."""

    name: ClassVar[str] = "provider-concurrency"
    features: ClassVar[tuple[Feature, ...]] = FEATURES

    def __init__(self) -> None:
        """Waits for `hello` and `new`."""
        self._session: Session | None = None

    def _open(self, config: Message) -> Session:
        return _Session(config)

    def handle(self, message: Message) -> Message:
        """Answers one request message."""
        if (flaw := _find_flaw(message)) is not None:
            return {"id": message.get("id"), "error": {"message": flaw}}
        reply: Message = {"id": message.get("id")}
        match message.get("cmd"):
            case "hello":
                reply.update(
                    protocol=PROTOCOL,
                    port={
                        "name": self.name,
                        "version": _version(),
                        "language": "python",
                        "runtime": f"{platform.python_implementation()} {platform.python_version()}",
                    },
                    features=list(self.features),
                )
            case "new":
                self.shut()
                try:
                    self._session = self._open(message["config"])
                except (TypeError, ValueError) as error:
                    reply["error"] = {"kind": "invalid", "message": str(error)}
                else:
                    reply.update(self._session.report())
            case "do" | "advance" | "stall" as command:
                if self._session is None:
                    reply["error"] = {"message": f"{command} before new"}
                else:
                    reply.update(self._session.answer(command, message))
            case "bye":
                self.shut()
            case other:
                reply["error"] = {"message": f"unknown cmd {other!r}"}
        return reply

    def shut(self) -> None:
        """Ends the session, if any."""
        if self._session is not None:
            self._session.shut()
            self._session = None


class _Session(Session):
    """A manager on its virtual loop."""

    manager: ConcurrencyManager

    def __init__(self, config: Message) -> None:
        self.loop = VirtualLoop()
        self.loop.set_exception_handler(self._expect)
        self.tasks: dict[str, asyncio.Task[Slot]] = {}  # requests by acquire
        try:
            super().__init__(config)
        except BaseException:
            self.loop.close()
            raise

    def _make_manager(self, **settings: Any) -> Surface:
        return ConcurrencyManager(**settings)

    def _now_ns(self) -> int:
        return self.loop.time_ns()

    def _acting(self) -> AbstractContextManager[None]:
        return self.loop.running()

    def _settle(self) -> None:
        self.loop.settle()

    def _advance(self, ns: int) -> None:
        self.loop.advance_ns(ns)

    def _stall(self, ns: int) -> None:
        self.loop.stall_ns(ns)
        self.loop.settle()

    def _collect_unsettled(self) -> list[str]:
        unsettled = [name for name, task in self.tasks.items() if not task.done()]
        for name, task in list(self.tasks.items()):
            if task.done():
                del self.tasks[name]
                if not task.cancelled() and task.exception() is None:
                    self.slots[name] = task.result()
        return unsettled

    def _count_timers(self) -> int:
        return len(self.loop.alive_timers())

    def shut(self) -> None:
        self.manager.close()
        for task in self.tasks.values():
            task.cancel()
        self.loop.settle()
        self.loop.close()

    def _acquire(self, op: Message) -> None:
        name, index = op["request"], self.index
        was_open = not self.manager._closed  # its own callback may close the manager
        self._expect_number(name)
        # In a context of its own: a hook's acquire isn't inside the blocks of the one whose callback makes it.
        task = Context().run(self._start, op)
        if not task.done():
            self.tasks[name] = task
        elif not task.cancelled():
            error = task.exception()
            if error is None:
                self.slots[name] = task.result()
            else:
                self._judge_error(error, index, was_open=was_open)

    def _start(self, op: Message) -> asyncio.Task[Slot]:
        with within_blocks(op):
            return self.loop.start(self.manager.acquire(op["provider"], **self._read_acquire(op)))

    def _cancel(self, name: str) -> None:
        if name in self.tasks:
            self.tasks[name].cancel()

    def _expect(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Hooks that throw are meant; anything else is a fault of the manager and ends the run."""
        if not isinstance(context.get("exception"), HookError):
            loop.default_exception_handler(context)
            raise SystemExit(70)


def _version() -> str:
    from importlib.metadata import version

    return version("provider-concurrency")


def serve(lines: IO[str], out: IO[str], kind: type[Port] = Port) -> None:
    """Answers lines until `bye` or the end of input."""
    port = kind()
    for line in lines:
        reply: Message = {"id": None}
        try:
            message: object = json.loads(line)
        except ValueError as error:
            reply["error"] = {"message": f"not JSON: {error}"}
        else:
            if isinstance(message, dict):
                request = cast(Message, message)
                if request.get("cmd") == "bye":
                    break
                reply = port.handle(request)
            else:
                reply["error"] = {"message": f"a message is an object, not {message!r}"}
        out.write(json.dumps(reply, separators=(",", ":")) + "\n")
        out.flush()
    port.shut()


if __name__ == "__main__":
    serve(sys.stdin, sys.stdout)
