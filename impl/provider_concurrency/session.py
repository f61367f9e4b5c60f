"""What every port of this package does with the operations of protocol 1, whatever runs its manager.

A session is one manager, the requests made of it, and what it told. How an acquire is started and waited for, and how
time passes, is the subclass's: on a virtual loop in `port`, with blocked threads in `threading_port`.
"""

from __future__ import annotations

import abc
import logging
import math
from contextlib import AbstractContextManager, ExitStack, nullcontext
from typing import Any

from provider_concurrency.context import conversation
from provider_concurrency.errors import ManagerClosedError, NestedAcquireError, QueueFullError
from provider_concurrency.slot import Slot
from provider_concurrency.surface import Surface

Message = dict[str, Any]

# Reclaims are warnings (WAT-5); here they are meant, and the judge reads them as events.
logging.getLogger("provider_concurrency").addHandler(logging.NullHandler())

_MS = 1_000_000
_FLOATS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_UNSEEN = {"limit_set", "limit_removed", "cooldown_set", "closed"}


def read_number(value: Any) -> Any:
    """A number of the wire as Python's; what is no number stays as it is, to be refused."""
    return _FLOATS.get(value, value) if isinstance(value, str) else value


def read_seconds(value: Any) -> Any:
    """Milliseconds of the wire as seconds; what is no number stays as it is, to be refused."""
    number = read_number(value)
    return number / 1000 if isinstance(number, int | float) and not isinstance(number, bool) else number


def within_blocks(op: Message) -> ExitStack:
    """The conversation blocks around an acquire, the outermost first (NST-1); to be entered where it is called."""
    blocks = ExitStack()
    for conversation_id in op.get("path", ()):
        blocks.enter_context(conversation(conversation_id))
    return blocks


class HookError(Exception):
    """Thrown from a callback because a hook says so."""


class Session(abc.ABC):
    """One manager, and the requests made of it."""

    manager: Any  # a Surface, with acquire and try_acquire of either kind

    def __init__(self, config: Message) -> None:
        """Makes the manager. Raises TypeError or ValueError for a configuration that must be refused."""
        self.wall_jump = 0.0
        self.events: list[Message] = []
        self.slots: dict[str, Slot] = {}  # what the callers have received
        self.names: dict[int, str] = {}  # by arrival number
        self.ends: dict[str, str] = {}  # last event of a request whose caller never had a slot
        self.hooks: list[Message] = []
        self.index = 0
        self.tells_nesting = "nested" in config
        self.manager = self._make_manager(
            default_limit=read_number(config["default_limit"]),
            release_cooldown=read_seconds(config["release_cooldown_ms"]),
            slot_timeout=read_seconds(config["slot_timeout_ms"]),
            watchdog_interval=read_seconds(config["watchdog_interval_ms"]),
            default_pause=read_seconds(config["default_pause_ms"]),
            min_pause=read_seconds(config["min_pause_ms"]),
            max_pause=read_seconds(config["max_pause_ms"]),
            max_queued=read_number(config["max_queued"]),
            nested=config.get("nested", "queue"),
            clock=self._now_ns,
            wall_clock=lambda: 1.0e9 + self._now_ns() / 1e9 + self.wall_jump,
            observer=self._observe,
            on_reclaim=self._on_reclaim,
            on_pause=self._on_pause,
        )

    # -- the subclass's -------------------------------------------------------------------------------------------

    @abc.abstractmethod
    def _make_manager(self, **settings: Any) -> Surface:
        """The manager that is driven."""

    @abc.abstractmethod
    def _now_ns(self) -> int:
        """The virtual time."""

    @abc.abstractmethod
    def _acquire(self, op: Message) -> None:
        """Starts an acquire, up to where it waits; raises what refuses it."""

    @abc.abstractmethod
    def _cancel(self, name: str) -> None:
        """Cancels the caller of a request."""

    @abc.abstractmethod
    def _settle(self) -> None:
        """Lets every caller whose wait is over have its slot."""

    @abc.abstractmethod
    def _advance(self, ns: int) -> None:
        """Lets time pass, every deadline punctual."""

    @abc.abstractmethod
    def _stall(self, ns: int) -> None:
        """The clock leaps, then what is overdue is applied."""

    @abc.abstractmethod
    def _collect_unsettled(self) -> list[str]:
        """The requests whose caller still waits; the slots of the others go to `slots`."""

    @abc.abstractmethod
    def _count_timers(self) -> int:
        """How many timers the manager has alive."""

    @abc.abstractmethod
    def shut(self) -> None:
        """Ends everything."""

    def _acting(self) -> AbstractContextManager[None]:
        """Around operations: where they are called."""
        return nullcontext()

    # -- commands -------------------------------------------------------------------------------------------------

    def answer(self, command: str, message: Message) -> Message:
        """Carries out `do`, `advance` or `stall`; returns what its reply says."""
        if command == "do":
            with self._acting():
                for index, op in enumerate(message["ops"]):
                    self.index = index
                    self._perform(op)
            self._settle()
        elif command == "advance":
            self._advance(message["ms"] * _MS)
        else:
            self._stall(message["ms"] * _MS)
        return self.report()

    def report(self) -> Message:
        """What the manager told since the last reply, and how it stands."""
        rows: list[Message] = [
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
                **({"self_blocked": status.self_blocked} if self.tells_nesting else {}),
            }
            for status in self.manager.get_status_all().values()
        ]
        events, self.events = self.events, []
        unsettled = self._collect_unsettled()
        return {"events": events, "status": rows, "unsettled": unsettled, "timers": self._count_timers()}

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
        except NestedAcquireError:
            self._refuse(op, index, "nested")
        except (TypeError, ValueError):
            self._refuse(op, index, "invalid")

    def _call(self, op: Message) -> None:
        manager = self.manager
        match op["op"]:
            case "acquire":
                self._acquire(op)
            case "try_acquire":
                self._try_acquire(op)
            case "release":
                self._release(op["request"])
            case "touch":
                self._touch(op["request"])
            case "cancel":
                self._cancel(op["request"])
            case "inspect":
                self._inspect(op["request"])
            case "set_limit":
                manager.set_limit(op["provider"], read_number(op["limit"]))
            case "remove_limit":
                manager.remove_limit(op["provider"])
            case "resume":
                manager.resume(op["provider"])
            case "set_cooldown":
                manager.set_cooldown(op["provider"], read_seconds(op["cooldown_ms"]))
            case "rate_limited":
                manager.report_rate_limit(op["provider"], read_seconds(op["retry_after_ms"]))
            case "close":
                manager.close()
            case "hook":
                self.hooks.append(dict(op))
            case "wall_clock":
                self.wall_jump += op["jump_ms"] / 1000
            case other:
                raise ValueError(f"unknown op {other!r}")

    def _try_acquire(self, op: Message) -> None:
        name, provider = op["request"], op["provider"]
        self._expect_number(name)
        slot = self.manager.try_acquire(
            provider, conversation_id=op["conversation"], prompt_started_at=read_number(op["prompt_started_at"])
        )
        if slot is not None:
            self.slots[name] = slot

    def _read_acquire(self, op: Message) -> Message:
        """The keywords of an acquire."""
        return {
            "conversation_id": op["conversation"],
            "prompt_started_at": read_number(op["prompt_started_at"]),
            "timeout": read_seconds(op["timeout_ms"]),
            "on_queued": lambda: self._hook("queued", op["provider"]),
        }

    def _judge_error(self, error: BaseException, index: int, *, was_open: bool) -> None:
        """Raises the error of an acquire that was refused; the others are ends, of which an event tells."""
        if not (isinstance(error, TimeoutError) or (isinstance(error, ManagerClosedError) and was_open)):
            self.index = index
            raise error

    def _expect_number(self, name: str) -> None:
        """The next request to run gets the next arrival number; its events may be told after its call returned."""
        self.names[self.manager._arrivals + 1] = name

    def _release(self, name: str) -> None:
        if name in self.slots:
            self.slots[name].release()

    def _touch(self, name: str) -> None:
        if name in self.slots:
            self.slots[name].touch()

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
        return self._now_ns() // _MS

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

    def _on_reclaim(self, slot: Slot) -> None:
        self._hook("reclaimed", slot.provider)

    def _on_pause(self, provider: str, _: float) -> None:
        self._hook("paused", provider)

    def _hook(self, on: str, provider: str) -> None:
        """Runs the hooks that wait for this callback, in the order in which they were given."""
        for hook in [hook for hook in self.hooks if hook["on"] == on and hook["provider"] == provider]:
            hook["times"] = hook.get("times", 1) - 1
            if hook["times"] <= 0:
                self.hooks.remove(hook)
            with self._acting():
                for index, op in enumerate(hook.get("do", ())):
                    self.index = index
                    self._perform(op)
            if hook.get("throw"):
                raise HookError(on)


def _tidy(ms: float) -> float | int:
    """Whole milliseconds as an int, for JSON."""
    return round(ms) if abs(ms - round(ms)) < 1e-6 else ms
