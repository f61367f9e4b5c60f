"""Subjects made from the model itself, whole or with one fault planted: what the judge must tell apart.

They say what the model says, so that the judge can be tested without any implementation.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

from provider_concurrency_model import system
from provider_concurrency_model.state import State
from provider_concurrency_spec.vocabulary import (
    FEATURES,
    Acquire,
    Cancel,
    Close,
    Command,
    Config,
    Do,
    Operation,
    RateLimited,
    Release,
    RemoveLimit,
    Reply,
    SlotEvent,
    StatusRow,
    command_from_json,
    config_from_json,
    reply_to_json,
    status_row_to_json,
)

Message = dict[str, Any]


class Faithful:
    """Answers as the model does."""

    features: tuple[str, ...] = FEATURES

    def __init__(self) -> None:
        self.state: State | None = None

    def handle(self, message: Message) -> Any:
        match message["cmd"]:
            case "hello":
                port = {"name": type(self).__name__, "version": "1", "language": "Python", "runtime": "model"}
                return {"id": message["id"], "protocol": 1, "port": port, "features": list(self.features)}
            case "bye":
                return {"id": message["id"]}
            case "new":
                try:
                    self.state = system.new(self.configure(config_from_json(message["config"])))
                except system.InvalidConfigError as error:
                    return {"id": message["id"], "error": {"kind": "invalid", "message": str(error)}}
                return self.say(message, Reply())
            case _:
                assert self.state is not None
                command = command_from_json(message)
                self.state, reply = self.run(self.state, command)
                return self.say(message, reply)

    def configure(self, config: Config) -> Config:
        return config

    def run(self, state: State, command: Command) -> tuple[State, Reply]:
        return system.run(state, command)

    def say(self, message: Message, reply: Reply) -> Message:
        assert self.state is not None
        return {"id": message["id"], **reply_to_json(reply), "timers": self.count_timers(self.state)}

    def count_timers(self, state: State) -> int:
        if state.is_closed:
            return 0
        waiting = {slot.provider for slot in state.slots if slot.state == "queued"}
        due = {slot.provider for slot in state.slots if slot.deadline_ms is not None}
        due |= {provider.name for provider in state.providers if provider.paused_until_ms is not None}
        is_watching = state.settings.slot_timeout_ms is not None and any(slot.state == "held" for slot in state.slots)
        return len(waiting & due) + is_watching


class Verbose(Faithful):
    """Conforms, but in another order and with members of its own: only the slow comparison can see that it is equal."""

    def say(self, message: Message, reply: Reply) -> Message:
        said = super().say(message, reply)
        return {"extra": 1, **dict(reversed(list(said.items()))), "status": list(reversed(said["status"]))}


# -- one planted fault each ------------------------------------------------------------------------------------------


class ForgetsCooldown(Faithful):
    """REL-1, REL-3: a released slot is free at once."""

    def configure(self, config: Config) -> Config:
        return replace(config, release_cooldown_ms=0)


class ForgetsToClose(Faithful):
    """CLO-1: close does nothing."""

    def run(self, state: State, command: Command) -> tuple[State, Reply]:
        return system.run(state, _drop(command, Close))


class ShortensPauses(Faithful):
    """PAU-1: the last report decides, also a shorter one."""

    def run(self, state: State, command: Command) -> tuple[State, Reply]:
        if isinstance(command, Do):
            named = {op.provider for op in command.ops if isinstance(op, RateLimited)}
            providers = tuple(item for item in state.providers if item.name not in named)
            opened = tuple(item._replace(paused_until_ms=None) for item in state.providers if item.name in named)
            state = replace(state, providers=(*providers, *opened))
        return system.run(state, command)


class ForgetsHolders(Faithful):
    """LIM-3, ACC-1: with the limit the holders are forgotten."""

    def run(self, state: State, command: Command) -> tuple[State, Reply]:
        if isinstance(command, Do):
            named = {op.provider for op in command.ops if isinstance(op, RemoveLimit)}
            state = replace(
                state, slots=tuple(slot for slot in state.slots if slot.provider not in named or slot.state == "queued")
            )
        return system.run(state, command)


class LeaksUndelivered(Faithful):
    """CAN-2: a cancel between grant and delivery is overlooked."""

    def run(self, state: State, command: Command) -> tuple[State, Reply]:
        after, reply = system.run(state, command)
        granted = {item.request for item in reply.events if isinstance(item, SlotEvent) and item.event == "granted"}
        if not isinstance(command, Do):
            return after, reply
        return system.run(state, Do(tuple(op for op in command.ops if not _cancels_one_of(op, granted))))


def _cancels_one_of(operation: Operation, requests: set[str]) -> bool:
    return isinstance(operation, Cancel) and operation.request in requests


class FreesTwice(Faithful):
    """REL-2: a second release during the cooldown frees the slot."""

    def run(self, state: State, command: Command) -> tuple[State, Reply]:
        if isinstance(command, Do):
            again = {op.request for op in command.ops if isinstance(op, Release)}
            state = replace(
                state, slots=tuple(slot for slot in state.slots if slot.state != "cooling" or slot.request not in again)
            )
        return system.run(state, command)


class GrantsYoungestFirst(Faithful):
    """ORD-1: the queue is a stack."""

    def run(self, state: State, command: Command) -> tuple[State, Reply]:
        if isinstance(command, Do):
            command = Do(
                tuple(
                    replace(op, prompt_started_at=-op.prompt_started_at)
                    if isinstance(op, Acquire) and isinstance(op.prompt_started_at, int)
                    else op
                    for op in command.ops
                )
            )
        return system.run(state, command)


class LeavesATimer(Faithful):
    """CLO-1: a release after close arms a timer."""

    def count_timers(self, state: State) -> int:
        return super().count_timers(state) or int(state.is_closed and any(slot.state == "free" for slot in state.ended))


def _drop(command: Command, kind: type[Operation]) -> Command:
    return Do(tuple(op for op in command.ops if not isinstance(op, kind))) if isinstance(command, Do) else command


# -- bad manners -------------------------------------------------------------------------------------------------------


class Raises(Faithful):
    """Raises at its second release."""

    def __init__(self) -> None:
        super().__init__()
        self.releases = 0

    def run(self, state: State, command: Command) -> tuple[State, Reply]:
        self.releases += isinstance(command, Do) and any(isinstance(op, Release) for op in command.ops)
        if self.releases == 2:
            raise KeyError("slot 2")
        return system.run(state, command)


class Exits(Faithful):
    """Ends the interpreter, with the exit code of success."""

    def handle(self, message: Message) -> Any:
        if message["cmd"] == "advance":
            raise SystemExit(0)
        return super().handle(message)


class ExitsAtHello(Faithful):
    """The same before it has said a word."""

    def handle(self, message: Message) -> Any:
        raise SystemExit(0)


class Abandons(Faithful):
    """Raises what is no Exception either."""

    def handle(self, message: Message) -> Any:
        if message["cmd"] == "advance":
            raise asyncio.CancelledError
        return super().handle(message)


class SaysNoJson(Faithful):
    """Adds to its advances what no line could carry."""

    def handle(self, message: Message) -> Any:
        reply = super().handle(message)
        return self.spoil(reply) if message["cmd"] == "advance" else reply

    def spoil(self, reply: Message) -> Any:
        return {**reply, "status": object()}


class NestsTooDeep(SaysNoJson):
    """An array of arrays of arrays."""

    def spoil(self, reply: Message) -> Any:
        nested: list[Any] = []
        for _ in range(100_000):
            nested = [nested]
        return {**reply, "events": nested}


class CountsTooFar(SaysNoJson):
    """A number of more digits than Python reads or writes."""

    def spoil(self, reply: Message) -> Any:
        return {**reply, "status": [{**row, "paused_for_ms": 10**5000} for row in reply["status"]]}


class ContainsItself(SaysNoJson):
    """A reply that is one of its own events, twice, so that walking through it would never end."""

    def spoil(self, reply: Message) -> Any:
        reply["self"] = reply
        reply["events"].append(reply)
        return reply


class TalksNonsense(Faithful):
    """Answers an advance with something else."""

    def handle(self, message: Message) -> Any:
        return "what?" if message["cmd"] == "advance" else super().handle(message)


class MixesIds(Faithful):
    """The third reply has the second's id."""

    def say(self, message: Message, reply: Reply) -> Message:
        said = super().say(message, reply)
        return {**said, "id": said["id"] - 1} if message["cmd"] == "do" else said


class LiesAboutFeatures(Faithful):
    """Declares `touch`, then skips it."""

    def handle(self, message: Message) -> Any:
        if any(op["op"] == "touch" for op in message.get("ops", ())):
            return {"id": message["id"], "skip": {"feature": "touch"}}
        return super().handle(message)


class Minimal(Faithful):
    """Conforms, without any optional feature."""

    features = ()

    def say(self, message: Message, reply: Reply) -> Message:
        said = super().say(message, reply)
        del said["timers"]
        return said


class AcceptsAnyConfig(Faithful):
    """Takes a configuration that must be refused."""

    def handle(self, message: Message) -> Any:
        reply = super().handle(message)
        return {"id": message["id"], "events": [], "status": [], "unsettled": []} if "error" in reply else reply


class StartsWithState(Faithful):
    """Has a provider before anything was done."""

    def say(self, message: Message, reply: Reply) -> Message:
        said = super().say(message, reply)
        if message["cmd"] == "new":
            said["status"] = [status_row_to_json(StatusRow("p", 1, 0, 0, 0, 0, 0, paused=False, paused_for_ms=None))]
        return said


class OtherProtocol(Faithful):
    """Speaks protocol 2."""

    def handle(self, message: Message) -> Any:
        return {**super().handle(message), "protocol": 2}


class Mute(Faithful):
    """Has no handle at all."""

    handle = None  # type: ignore[assignment]


class Unmakeable(Faithful):
    """Can't be made."""

    def __init__(self) -> None:
        raise OSError("no licence")
