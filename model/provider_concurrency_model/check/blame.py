"""Which rule a difference points at: a guess from the outside, made from the difference and the command it followed.

A judge sees words, not causes, so this is a signpost ("read this rule first") and never part of a verdict. Where an
invariant is broken or a scenario says what it is about, those name the rule instead. The tables below go from the
command's operations and the event that is missing, early or extra to the rule that a reader should open.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from provider_concurrency_model.check.compare import Difference
from provider_concurrency_model.check.untyped import is_object
from provider_concurrency_spec.vocabulary import (
    OPERATION_NAMES,
    Acquire,
    Command,
    Config,
    Do,
    Hook,
    Json,
    Operation,
    Release,
    Stall,
)

_BY_OPERATION: Final[Mapping[str, str]] = {
    "close": "CLO-1",
    "remove_limit": "LIM-3",
    "set_limit": "LIM-2",
    "set_cooldown": "ACC-4",
    "resume": "PAU-5",
    "rate_limited": "PAU-1",
    "cancel": "CAN-1",
    "release": "REL-1",
    "touch": "WAT-2",
    "try_acquire": "ADM-8",
    "acquire": "ADM-1",
    "inspect": "ACC-2",
    "hook": "CAL-3",
    "wall_clock": "TIM-1",
}
"""The rule of an operation's effect, the most telling operation of a burst first."""

_BY_EVENT: Final[Mapping[str, str]] = {
    "granted": "ADM-2",
    "queued": "ADM-1",
    "timed_out": "CAN-3",
    "cancelled": "CAN-1",
    "rejected": "CLO-1",
    "released": "REL-1",
    "reclaimed": "WAT-1",
    "recycled": "REL-3",
    "slot": "ACC-2",
}

_BY_REFUSAL: Final[Mapping[str, str]] = {
    "set_limit": "LIM-1",
    "acquire": "ORD-1",
    "try_acquire": "ORD-1",
    "set_cooldown": "ACC-4",
}

_BY_SETTING: Final[Mapping[str, str]] = {
    "release_cooldown_ms": "REL-3",
    "slot_timeout_ms": "WAT-1",
    "watchdog_interval_ms": "WAT-1",
    "default_pause_ms": "PAU-2",
    "min_pause_ms": "PAU-2",
    "max_pause_ms": "PAU-2",
    "max_queued": "ADM-7",
    "default_limit": "LIM-4",
}

_DEFAULTS: Final = Config()

_ORDER: Final = ("reply", "error", "pause", "request", "grants", "unsettled", "status", "timers", "invariant")
"""Causes before their consequences: a pause that ends early explains the grant that follows, not the reverse."""


def name_rules(differences: Sequence[Difference], command: Command | None) -> tuple[Difference, ...]:
    """The differences with a rule each, the most telling first."""
    named = [replace(item, rule=item.rule or _guess(item, command)) for item in differences]
    named.sort(key=lambda item: (item.at_ms is None, item.at_ms or 0, _ORDER.index(item.what)))
    return tuple(named)


def rule_of_setting(config: Config) -> str:
    """The rule of the first setting that isn't the default: what is wrong with a configuration to be refused."""
    odd = [name for name in _BY_SETTING if repr(getattr(config, name)) != repr(getattr(_DEFAULTS, name))]
    return _BY_SETTING[odd[0]] if odd else "LIM-4"


def _guess(difference: Difference, command: Command | None) -> str:
    operations = tuple(_operations_of(command))
    match difference.what:
        case "reply":
            return _by_operations(operations) or "TIM-3"
        case "error":
            return _guess_refusal(difference, command)
        case "pause":
            return _guess_pause(difference)
        case "request":
            return _guess_request(difference, command, operations)
        case "grants":
            return _guess_grants(difference, command, operations)
        case "unsettled":
            # Only callers are left: what was decided is right, but they don't have it.
            rule = _by_operations(operations)
            return rule if rule in ("CAN-1", "CLO-1") else "ADM-3"
        case "status":
            return _guess_status(difference, operations)
        case "invariant":
            return "ACC-1"  # never guessed: an invariant brings its rule
        case "timers":
            # None are allowed after a close, and in the reply to `new`, which follows no command.
            return "CLO-1" if difference.expected == "at most 0" and command is not None else "TIM-4"


def _guess_refusal(difference: Difference, command: Command | None) -> str:
    kinds: set[Json] = set(difference.expected or ()) | set(difference.actual or ())
    if "closed" in kinds:
        return "CLO-2"
    if "queue_full" in kinds:
        return "ADM-7"
    if "nested" in kinds:
        return "NST-1"
    index = int(difference.where.removeprefix("op "))
    if isinstance(command, Do) and index < len(command.ops):
        operation = command.ops[index]
        if isinstance(operation, Acquire) and not _is_plain_duration(operation.timeout_ms):
            return "CAN-3"
        name = _name_of(operation)
        return _BY_REFUSAL.get(name) or _BY_OPERATION[name]
    return "CLO-2"


def _guess_pause(difference: Difference) -> str:
    wanted, given = _list_of(difference.expected), _list_of(difference.actual)
    if not any(text.startswith("paused") for text in (*wanted, *given)):
        return "PAU-1"  # only when it ends differs
    return "PAU-2" if wanted and given else "PAU-3"


def _guess_request(difference: Difference, command: Command | None, operations: tuple[Operation, ...]) -> str:
    wanted, given = _first_unequal(_list_of(difference.expected), _list_of(difference.actual))
    # The word that is missing explains more than the one that stands in its place.
    words = [str(event["event"]) for event in (wanted, given) if event is not None]
    word = words[0]
    if wanted is None and word == "released":
        return "REL-2"
    if word == "cancelled" and any(event.get("event") == "granted" for event in _list_of(difference.expected)):
        return "CAN-2"
    if word == "recycled" and "close" in map(_name_of, operations):
        return "CLO-1"
    if word == "granted" and isinstance(command, Stall):
        return "TIM-2"
    if word in ("granted", "queued"):
        return "ADM-1" if any(_starts(operation, difference.where) for operation in operations) else "ADM-2"
    return _BY_EVENT.get(word, "ACC-2")


def _guess_grants(difference: Difference, command: Command | None, operations: tuple[Operation, ...]) -> str:
    wanted, given = _list_of(difference.expected), _list_of(difference.actual)
    if sorted(wanted) == sorted(given):
        return "ORD-1"
    if len(given) > len(wanted):
        return "ADM-4"
    if isinstance(command, Stall):
        return "TIM-2"
    return _by_operations(operations) or "ADM-5"


def _guess_status(difference: Difference, operations: tuple[Operation, ...]) -> str:
    wanted, given = difference.expected, difference.actual
    if not is_object(wanted) or not is_object(given):
        return "ACC-3" if not operations else _by_operations(operations) or "ACC-3"
    unequal = {key for key in wanted if wanted[key] != given.get(key)}
    if unequal == {"self_blocked"}:
        return "NST-1"
    if unequal <= {"paused", "paused_for_ms"}:
        return "PAU-1" if any(_name_of(item) == "rate_limited" for item in operations) else "PAU-5"
    if unequal == {"limit"}:
        return "LIM-3" if any(_name_of(item) == "remove_limit" for item in operations) else "LIM-1"
    if unequal <= {"queued"}:
        return _by_operations(operations) or "CAN-3"
    released = [item.request for item in operations if isinstance(item, Release)]
    if released and len(set(released)) == len(operations) == 1:
        # One release alone that changes counts the model leaves alone: it wasn't the first.
        return "REL-2" if given["held"] < wanted["held"] or given["cooling"] < wanted["cooling"] else "REL-1"
    return _by_operations(operations) or "ACC-1"


def _by_operations(operations: tuple[Operation, ...]) -> str | None:
    names = {_name_of(operation) for operation in operations}
    return next((rule for name, rule in _BY_OPERATION.items() if name in names), None)


def _operations_of(command: Command | None) -> Iterator[Operation]:
    if isinstance(command, Do):
        for operation in command.ops:
            yield operation
            if isinstance(operation, Hook):
                yield from _operations_of(Do(operation.do))


def _list_of(value: list[Json] | None) -> list[Json]:
    return [] if value is None else value


def _first_unequal(
    wanted: Sequence[Mapping[str, Json]], given: Sequence[Mapping[str, Json]]
) -> tuple[Mapping[str, Json] | None, Mapping[str, Json] | None]:
    at = next(
        (i for i, pair in enumerate(zip(wanted, given, strict=False)) if pair[0] != pair[1]),
        min(len(wanted), len(given)),
    )
    return (wanted[at] if at < len(wanted) else None), (given[at] if at < len(given) else None)


def _name_of(operation: Operation) -> str:
    return OPERATION_NAMES[type(operation)]


def _starts(operation: Operation, request: str) -> bool:
    return isinstance(operation, Acquire) and operation.request == request


def _is_plain_duration(value: Json) -> bool:
    return value is None or (type(value) in (int, float) and value >= 0)
