"""The subject interface: the manager behind protocol 1, in process or as lines over stdio.

`Port().handle(message)` takes a request message and returns its reply (protocol.md). Time is virtual: the manager
runs on a VirtualLoop. Run as `python -m provider_concurrency.port` it reads one JSON object a line from stdin.
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
import platform
import sys
from collections.abc import Callable
from typing import IO, Any, cast

from provider_concurrency import ConcurrencyManager, ManagerClosedError, QueueFullError, Slot
from provider_concurrency.testing import VirtualLoop
from provider_concurrency_spec.vocabulary import (
    FEATURES,
    PROTOCOL,
    Config,
    MalformedError,
    command_from_json,
    config_from_json,
    config_to_json,
)

Message = dict[str, Any]

# Reclaims are warnings (WAT-5); here they are meant, and the judge reads them as events.
logging.getLogger("provider_concurrency").addHandler(logging.NullHandler())

_MS = 1_000_000
_FLOATS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_UNSEEN = {"limit_set", "limit_removed", "cooldown_set", "closed"}


def _number(value: Any) -> Any:
    """A number of the wire as Python's; what is no number stays as it is, to be refused."""
    return _FLOATS.get(value, value) if isinstance(value, str) else value


def _seconds(value: Any) -> Any:
    """Milliseconds of the wire as seconds; what is no number stays as it is, to be refused."""
    number = _number(value)
    return number / 1000 if isinstance(number, int | float) and not isinstance(number, bool) else number


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


class _HookError(Exception):
    """Thrown from a callback because a hook says so."""


class Port:
    """One manager at a time, driven by messages."""

    def __init__(self) -> None:
        """Waits for `hello` and `new`."""
        self._session: _Session | None = None

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
                        "name": "provider-concurrency",
                        "version": _version(),
                        "language": "python",
                        "runtime": f"{platform.python_implementation()} {platform.python_version()}",
                    },
                    features=list(FEATURES),
                )
            case "new":
                self.shut()
                try:
                    self._session = _Session(message["config"])
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


class _Session:
    """One manager on its virtual loop, and the requests made of it."""

    def __init__(self, config: Message) -> None:
        self.loop = VirtualLoop()
        self.loop.set_exception_handler(self._expect)
        self.wall_jump = 0.0
        try:
            self.manager = ConcurrencyManager(
                default_limit=_number(config["default_limit"]),
                release_cooldown=_seconds(config["release_cooldown_ms"]),
                slot_timeout=_seconds(config["slot_timeout_ms"]),
                watchdog_interval=_seconds(config["watchdog_interval_ms"]),
                default_pause=_seconds(config["default_pause_ms"]),
                min_pause=_seconds(config["min_pause_ms"]),
                max_pause=_seconds(config["max_pause_ms"]),
                max_queued=_number(config["max_queued"]),
                clock=self.loop.time_ns,
                wall_clock=lambda: 1.0e9 + self.loop.time() + self.wall_jump,
                observer=self._observe,
                on_reclaim=lambda slot: self._hook("reclaimed", slot.provider),
                on_pause=lambda provider, _: self._hook("paused", provider),
            )
        except BaseException:
            self.loop.close()
            raise
        self.events: list[Message] = []
        self.tasks: dict[str, asyncio.Task[Slot]] = {}  # requests by acquire
        self.slots: dict[str, Slot] = {}  # what the callers have received
        self.names: dict[int, str] = {}  # by arrival number
        self.ends: dict[str, str] = {}  # last event of a request whose caller never had a slot
        self.hooks: list[Message] = []
        self.index = 0

    def answer(self, command: str, message: Message) -> Message:
        if command == "do":
            self.do(message["ops"])
        elif command == "advance":
            self.loop.advance_ns(message["ms"] * _MS)
        else:
            self.loop.stall_ns(message["ms"] * _MS)
            self.loop.settle()
        return self.report()

    # -- commands -------------------------------------------------------------------------------------------------

    def do(self, ops: list[Message]) -> None:
        with self.loop.running():
            for index, op in enumerate(ops):
                self.index = index
                self._perform(op)
        self.loop.settle()

    def report(self) -> Message:
        rows = [
            {
                "provider": status.provider,
                "limit": status.limit,
                "in_flight": status.in_flight,
                "held": status.held,
                "cooling": status.cooling,
                "reclaimed": status.reclaimed,
                "queued": status.queued,
                "paused": status.paused,
                "paused_for_ms": None if status.paused_for is None else round(status.paused_for * 1000),
            }
            for status in self.manager.get_status_all().values()
        ]
        events, self.events = self.events, []
        unsettled = [name for name, task in self.tasks.items() if not task.done()]
        for name, task in list(self.tasks.items()):
            if task.done():
                del self.tasks[name]
                if not task.cancelled() and task.exception() is None:
                    self.slots[name] = task.result()
        return {"events": events, "status": rows, "unsettled": unsettled, "timers": len(self.loop.alive_timers())}

    def shut(self) -> None:
        self.manager.close()
        for task in self.tasks.values():
            task.cancel()
        self.loop.settle()
        self.loop.close()

    # -- operations -----------------------------------------------------------------------------------------------

    def _perform(self, op: Message) -> None:
        """One operation; a refusal becomes an event."""
        index = self.index
        try:
            self._call(op)
        except ManagerClosedError:
            self._refuse(op, index, "closed")
        except QueueFullError:
            self._refuse(op, index, "queue_full")
        except (TypeError, ValueError):
            self._refuse(op, index, "invalid")

    def _call(self, op: Message) -> None:
        manager = self.manager
        match op["op"]:
            case "acquire":
                self._acquire(op)
            case "try_acquire":
                self._try_acquire(op)
            case "release" | "touch" | "cancel" | "inspect" as name:
                _ON_REQUEST[name](self, op["request"])
            case "set_limit":
                manager.set_limit(op["provider"], _number(op["limit"]))
            case "remove_limit":
                manager.remove_limit(op["provider"])
            case "resume":
                manager.resume(op["provider"])
            case "set_cooldown":
                manager.set_cooldown(op["provider"], _seconds(op["cooldown_ms"]))
            case "rate_limited":
                manager.report_rate_limit(op["provider"], _seconds(op["retry_after_ms"]))
            case "close":
                manager.close()
            case "hook":
                self.hooks.append(dict(op))
            case "wall_clock":
                self.wall_jump += op["jump_ms"] / 1000
            case other:
                raise ValueError(f"unknown op {other!r}")

    def _acquire(self, op: Message) -> None:
        name, provider, index = op["request"], op["provider"], self.index
        was_open = not self.manager._closed  # its own callback may close the manager
        self._expect_number(name)
        task = self.loop.start(
            self.manager.acquire(
                provider,
                conversation_id=op["conversation"],
                prompt_started_at=_number(op["prompt_started_at"]),
                timeout=_seconds(op["timeout_ms"]),
                on_queued=lambda: self._hook("queued", provider),
            )
        )
        if not task.done():
            self.tasks[name] = task
        elif not task.cancelled():
            error = task.exception()
            if error is None:
                self.slots[name] = task.result()
            elif not (isinstance(error, TimeoutError) or (isinstance(error, ManagerClosedError) and was_open)):
                self.index = index
                raise error  # refused; the others are ends, of which an event tells

    def _try_acquire(self, op: Message) -> None:
        name, provider = op["request"], op["provider"]
        self._expect_number(name)
        slot = self.manager.try_acquire(
            provider, conversation_id=op["conversation"], prompt_started_at=_number(op["prompt_started_at"])
        )
        if slot is not None:
            self.slots[name] = slot

    def _expect_number(self, name: str) -> None:
        """The next request to run gets the next arrival number; its events may be told after its call returned."""
        self.names[self.manager._arrivals + 1] = name

    def _release(self, name: str) -> None:
        if name in self.slots:
            self.slots[name].release()

    def _touch(self, name: str) -> None:
        if name in self.slots:
            self.slots[name].touch()

    def _cancel(self, name: str) -> None:
        if name in self.tasks:
            self.tasks[name].cancel()

    def _inspect(self, name: str) -> None:
        slot = self.slots.get(name)
        if slot is not None:
            state, reclaimed = slot.state.value, slot.reclaimed
        elif name in self.ends:
            state, reclaimed = self.ends[name], False
        else:
            return
        self.events.append(
            {"event": "slot", "at_ms": self._now(), "request": name, "state": state, "reclaimed": reclaimed}
        )

    # -- what the manager tells -----------------------------------------------------------------------------------

    def _now(self) -> int:
        return self.loop.time_ns() // _MS

    def _refuse(self, op: Message, index: int, kind: str) -> None:
        self.events.append({"event": "error", "at_ms": self._now(), "op": op["op"], "index": index, "kind": kind})

    def _observe(
        self,
        event: str,
        _op: int,
        t_ns: int,
        provider: str | None,
        request: int | None,
        _conversation: str | None,
        _prompt: float | None,
        _in_flight: int,
        _queued: int,
        value: Any,
    ) -> None:
        if event in _UNSEEN:
            return
        told: Message = {"event": event, "at_ms": t_ns // _MS, "provider": provider}
        if request is not None:
            told["request"] = self.names[request]
            self.ends[told["request"]] = "held" if event == "granted" else event
        if event == "paused":
            requested, applied = value
            told["requested_ms"] = None if requested is None else _tidy(requested * 1000)
            told["applied_ms"] = applied // _MS
        self.events.append(told)

    def _hook(self, on: str, provider: str) -> None:
        """Runs the hooks that wait for this callback, in the order in which they were given."""
        for hook in [hook for hook in self.hooks if hook["on"] == on and hook["provider"] == provider]:
            hook["times"] = hook.get("times", 1) - 1
            if hook["times"] <= 0:
                self.hooks.remove(hook)
            with self.loop.running():
                for index, op in enumerate(hook.get("do", ())):
                    self.index = index
                    self._perform(op)
            if hook.get("throw"):
                raise _HookError(on)

    def _expect(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Hooks that throw are meant; anything else is a fault of the manager and ends the run."""
        if not isinstance(context.get("exception"), _HookError):
            loop.default_exception_handler(context)
            raise SystemExit(70)


_ON_REQUEST: dict[str, Callable[[_Session, str], None]] = {
    "release": _Session._release,
    "touch": _Session._touch,
    "cancel": _Session._cancel,
    "inspect": _Session._inspect,
}


def _tidy(ms: float) -> float | int:
    """Whole milliseconds as an int, for JSON."""
    return round(ms) if abs(ms - round(ms)) < 1e-6 else ms


def _version() -> str:
    from importlib.metadata import version

    return version("provider-concurrency")


def serve(lines: IO[str], out: IO[str]) -> None:
    """Answers lines until `bye` or the end of input."""
    port = Port()
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
