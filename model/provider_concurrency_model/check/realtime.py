"""The level `realtime`: the scenarios for a subject that can't be given a clock. The kit waits and sends no `advance`.

The subject's `at_ms` are whole milliseconds of its own clock since `new`, rounded down. The model is told when each
burst really was, and says when everything after it is due. An event may be late within a window; it is never early, not
by a millisecond. All times of a scenario are scaled alike, so that different instants stay further apart than the
window; a look shortly before another is left out. It shows less than virtual time does, and says so: it runs by itself,
only when it is asked for, and passing it isn't called conforming.
"""

from __future__ import annotations

import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields, replace
from math import gcd
from typing import Any, Final

from provider_concurrency_model import system
from provider_concurrency_model.check.case import EMPTY_REPLY, Case, case_of_commands, needs_of
from provider_concurrency_model.check.compare import Expected, read_reply
from provider_concurrency_model.check.drive import (
    Failed,
    NotAsked,
    Outcome,
    Passed,
    broken_at,
    conclude,
    drive,
    judge_reply,
)
from provider_concurrency_model.check.subject import Message, Session, SubjectBrokeError
from provider_concurrency_model.state import State
from provider_concurrency_spec.scenarios import Scenario
from provider_concurrency_spec.vocabulary import (
    Acquire,
    Advance,
    Command,
    Config,
    Do,
    Event,
    Hook,
    Json,
    Operation,
    Reply,
    Stall,
    command_to_json,
    config_to_json,
    reply_to_json,
)

WINDOW_MS: Final = 50
_LONGEST_MS: Final = 8000
_LARGEST_MS: Final = 10**12  # SPEC.md, "Validation"
_TIMES: Final = ("timeout_ms", "cooldown_ms", "retry_after_ms")
_TRIES: Final = 3
"""With a machine that is too slow."""


def plan(scenario: Scenario, window_ms: int) -> Case | str:
    """The scenario as it is run in real time, with the model's answers; or why it can't be."""
    commands: list[Command] = []
    for step in scenario.steps:
        match step.command, commands:
            case Stall(), _:
                return "a blocked loop can't be had from outside"
            case Advance(ms), [*_, Advance(before)]:
                commands[-1] = Advance(before + ms)
            case command, _:
                commands.append(command)
    times: list[int] = []

    def note(ms: int) -> int:
        times.append(ms)
        return ms

    _scale(scenario.config, commands, note)
    waits = [command.ms for command in commands if isinstance(command, Advance)]
    unit = gcd(*times)
    # Each wait ends a window late, so that what is due at its end has been noticed: the instants drift by so much.
    scaled_unit = window_ms * (len(waits) + 2)
    if sum(waits) // max(unit, 1) * scaled_unit > _LONGEST_MS:
        return f"its instants lie so close together that it would take more than {_LONGEST_MS // 1000} s"
    if max(times) // unit * scaled_unit > _LARGEST_MS:
        return "scaled, its times would be illegal"
    config, scaled = _scale(scenario.config, commands, lambda ms: ms // unit * scaled_unit)
    if isinstance(config.slot_timeout_ms, int):
        # A sweep at exactly the timeout keeps the slot; so does one that comes late, and the next is a unit away.
        config = replace(config, slot_timeout_ms=config.slot_timeout_ms + window_ms + 1)
    if _is_blurred(config, scaled, window_ms):
        return "it has two deadlines at one instant, and which is first is known only in virtual time"
    case = case_of_commands(scenario.name, "realtime", config, scaled)
    needs = needs_of(config, scaled)
    return replace(case, rules=scenario.rules, why=scenario.why, needs=needs, refused=scenario.refused_configs)


def _is_blurred(config: Config, commands: Sequence[Command], window_ms: int) -> bool:
    """Whether something else happens when waits end a window late, or when timeouts differ by a tick."""
    late = [replace(each, ms=each.ms + window_ms) if isinstance(each, Advance) else each for each in commands]
    shape = _shape_of(config, commands)
    if _shape_of(config, late) != shape:
        return True
    return any(_shape_of(config, [_nudge(each, by) for each in late]) != shape for by in (-1, 1))


def _nudge(command: Command, by: int) -> Command:
    if not isinstance(command, Do):
        return command
    return Do(
        tuple(
            replace(op, timeout_ms=op.timeout_ms + by)
            if isinstance(op, Acquire) and isinstance(op.timeout_ms, int) and op.timeout_ms
            else op
            for op in command.ops
        )
    )


def _shape_of(config: Config, commands: Iterable[Command]) -> list[list[Event]]:
    """What happens in each step, whenever."""
    state, shape = system.new(config), list[list[Event]]()
    for command in commands:
        state, reply = system.run(state, command)
        shape.append(sorted((replace(event, at_ms=0) for event in reply.events), key=repr))
    return shape


def _scale(config: Config, commands: Iterable[Command], change: Callable[[int], int]) -> tuple[Config, list[Command]]:
    """All legal times changed; those that are to be refused or mean something else stay as they are."""
    settings: dict[str, Any] = {
        field.name: change(value)
        for field in fields(config)
        if field.name.endswith("_ms") and type(value := getattr(config, field.name)) is int and value > 0
    }

    def scale(operation: Operation) -> Operation:
        if isinstance(operation, Hook):
            return replace(operation, do=tuple(map(scale, operation.do)))
        for name in _TIMES:
            value: Json = getattr(operation, name, None)
            if type(value) is int and value > 0:
                changed: dict[str, Any] = {name: change(value)}
                return replace(operation, **changed)
        return operation

    scaled: list[Command] = [
        Do(tuple(map(scale, command.ops))) if isinstance(command, Do) else replace(command, ms=change(command.ms))
        for command in commands
    ]
    return replace(config, **settings), scaled


class TooSlowError(Exception):
    """This machine was too busy to look when it should: that says nothing about the subject."""


class _Inexcusable(Exception):  # noqa: N818 - no error of ours
    """Something came before its time, or should not have come: no repetition makes that good."""

    def __init__(self, outcome: Failed) -> None:
        super().__init__()
        self.outcome = outcome


def drive_in_real_time(session: Session, case: Case, window_ms: int) -> tuple[Outcome, bool]:
    """The outcome, and whether it took more than one try: what was late is tried twice more, and two of three count.

    Raises TooSlowError.
    """
    lacking = sorted(case.needs - session.hello.features)
    if lacking:
        return NotAsked(tuple(lacking)), False
    refusing = drive(session, replace(case, steps=()))  # takes no time
    if isinstance(refusing, Failed) or not case.steps:
        return refusing, False
    try:
        first = _try(session, case, window_ms)
        if not isinstance(first, Failed) or first.is_broken:
            return first, False
        second, third = (_try(session, case, window_ms) for _ in range(2))
    except _Inexcusable as found:
        return found.outcome, False
    return (second if isinstance(second, Failed) else third), True


def _try(session: Session, case: Case, window_ms: int) -> Outcome:
    for _ in range(_TRIES - 1):
        try:
            return _converse(session, case, window_ms)
        except TooSlowError:
            continue
    return _converse(session, case, window_ms)


def _converse(session: Session, case: Case, window_ms: int) -> Outcome:
    """One conversation in real time, with the model beside it."""
    state, zero, at = system.new(case.config), 0.0, -1
    first_id, needs_timers = session.take_ids(1 + len(case.steps)), "timers" in session.hello.features

    def elapsed_ms() -> int:
        return int((time.monotonic() - zero) * 1000)

    def ask(message: Message, asked_at_ms: int) -> Json:
        """The reply; if it took a window, nobody knows what it shows."""
        reply: Json = next(iter(session.subject.converse([message])), None)
        if elapsed_ms() - asked_at_ms > window_ms:
            raise TooSlowError
        return reply

    try:
        asked_ms = elapsed_ms()
        raw = ask({"id": first_id, "cmd": "new", "config": config_to_json(case.config)}, asked_ms)
        zero = time.monotonic()  # the subject's time began a little before, so it is never behind ours
        found = judge_reply(EMPTY_REPLY, raw, first_id, 0, needs_timers)
        if found is not None:
            return conclude(case, at, raw, found, ())
        for at, step in enumerate(case.steps):
            burst = step.command if isinstance(step.command, Do) else Do(())
            reply = Reply()
            if isinstance(step.command, Advance):
                state, reply = system.run(state, step.command)
                state, later = _pass_time(state, window_ms)
                reply = replace(reply, status=later.status)
                time.sleep(max(0.0, zero + state.now_ms / 1000 - time.monotonic()))
            message_id = first_id + 1 + at
            looked_ms = state.now_ms if isinstance(step.command, Advance) else elapsed_ms()
            raw = ask({"id": message_id, **command_to_json(burst)}, looked_ms)
            if isinstance(step.command, Do):
                state, _ = _pass_time(state, _time_of(raw, looked_ms) - state.now_ms)
                state, reply = system.run(state, step.command)
            fitted, is_excusable = _fit(raw, reply, window_ms)
            found = judge_reply(Expected.of_reply(reply), fitted, message_id, step.max_timers, needs_timers)
            if found is not None:
                outcome = conclude(case, at, raw, found, ())
                if isinstance(outcome, Failed) and not is_excusable:
                    raise _Inexcusable(outcome)
                return outcome
    except SubjectBrokeError as broke:
        return broken_at(case, at, broke)
    return Passed(len(case.steps))


def _pass_time(state: State, ms: int) -> tuple[State, Reply]:
    """A little time in which nothing is due; if something is, the plan has been overtaken."""
    state, reply = system.run(state, Advance(max(0, ms)))
    if reply.events:
        raise TooSlowError
    return state, reply


def _time_of(raw: Json, otherwise_ms: int) -> int:
    """When a burst was, on the subject's clock: what it told first says so."""
    reply = read_reply(raw)
    return reply.events[0].at_ms if reply is not None and reply.events else otherwise_ms


def _fit(raw: Json, wanted: Reply, window_ms: int) -> tuple[Json, bool]:
    """The reply with everything that is late within the window put at its due time; whether what differs may be chance.

    Late, and missing because it is late, may be; what is early or shouldn't be there at all isn't.
    """
    given = read_reply(raw)
    if given is None:
        return raw, False
    due: defaultdict[Event, deque[int]] = defaultdict(deque)
    for event in wanted.events:
        due[replace(event, at_ms=0)].append(event.at_ms)
    events: list[Event] = []
    is_excusable = True
    for event in given.events:
        times = due[replace(event, at_ms=0)]
        lateness = event.at_ms - times[0] if times else -1
        is_excusable = is_excusable and lateness >= 0
        events.append(replace(event, at_ms=times.popleft()) if 0 <= lateness < window_ms else event)
    pauses = {row.provider: row.paused_for_ms for row in wanted.status}
    status = [
        replace(row, paused_for_ms=pause)
        if (pause := pauses.get(row.provider)) is not None
        and row.paused_for_ms is not None
        and abs(row.paused_for_ms - pause) <= window_ms
        else row
        for row in given.status
    ]
    return {**raw, **reply_to_json(Reply(tuple(events), tuple(status), given.unsettled))}, is_excusable
