"""Commands, replies and differences in one line each, for people: reports, diagrams and error messages use these."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import assert_never

from provider_concurrency_model.check.compare import Difference, Expected
from provider_concurrency_model.check.untyped import is_array, is_object
from provider_concurrency_spec.vocabulary import (
    OPERATION_NAMES,
    Acquire,
    Advance,
    Command,
    Config,
    Do,
    Event,
    Hook,
    Json,
    Operation,
    Paused,
    RateLimited,
    Refused,
    Resumed,
    SetCooldown,
    SetLimit,
    SlotEvent,
    SlotShown,
    Stall,
    StatusRow,
    TryAcquire,
    WallClock,
)


def say_command(command: Command) -> str:
    """One command: `do set_limit p 1, acquire r1 at p`."""
    match command:
        case Do(ops):
            return "do " + (", ".join(say_operation(op) for op in ops) or "nothing")
        case Advance(ms):
            return f"advance {ms} ms"
        case Stall(ms):
            return f"stall {ms} ms"


def say_operation(operation: Operation) -> str:
    """One operation, its plain members left out where they say nothing."""
    name = OPERATION_NAMES[type(operation)]
    match operation:
        case Acquire(provider, request, conversation, prompt, timeout, path):
            limit = "" if timeout is None else f", timeout {say_number(timeout)}"
            kin = f", for {say_kin(conversation, path)}" if path else ""
            return f"{name} {request} at {say_name(provider)} (prompt {prompt}{limit}{kin})"
        case TryAcquire(provider, request, _, prompt):
            return f"{name} {request} at {say_name(provider)} (prompt {prompt})"
        case SetLimit(provider, limit):
            return f"{name} {say_name(provider)} {say_plain(limit)}"
        case SetCooldown(provider, cooldown):
            return f"{name} {say_name(provider)} {say_number(cooldown)}"
        case RateLimited(provider, retry_after):
            return f"{name} {say_name(provider)} {say_number(retry_after)}"
        case Hook(point, provider, inner, throw, times):
            does = [*(say_operation(op) for op in inner), *(["throw"] if throw else [])]
            often = "" if times == 1 else f" x{times}"
            return f"hook on {point} of {say_name(provider)}{often}: [{', '.join(does)}]"
        case WallClock(jump):
            return f"{name} {jump:+} ms"
        case _:
            whose: str = getattr(operation, "request", "")
            return " ".join(filter(None, (name, whose, _provider_of(operation))))


def say_kin(conversation: str | None, path: Sequence[str]) -> str:
    """Who asks within which blocks: `b in a > b`."""
    whose = "nobody" if conversation is None else say_name(conversation)
    return f"{whose} in {' > '.join(map(say_name, path))}" if path else whose


def _provider_of(operation: Operation) -> str:
    provider: str | None = getattr(operation, "provider", None)
    return "" if provider is None else say_name(provider)


def say_event(event: Event) -> str:
    """One event with its time."""
    match event:
        case SlotEvent(kind, at_ms, provider, request):
            return f"{at_ms} ms {kind} {request} at {say_name(provider)}"
        case Paused(at_ms, provider, requested, applied):
            return f"{at_ms} ms paused {say_name(provider)} for {applied} ms (requested {say_plain(requested)})"
        case Resumed(at_ms, provider):
            return f"{at_ms} ms resumed {say_name(provider)}"
        case Refused(at_ms, op, index, kind):
            return f"{at_ms} ms refused op {index} ({op}): {kind}"
        case SlotShown(at_ms, request, state, reclaimed):
            return f"{at_ms} ms {request} is {state}{', was reclaimed' if reclaimed else ''}"
        case _:
            assert_never(event)


def say_row(row: StatusRow) -> str:
    """One status row."""
    limit = "no limit" if row.limit is None else f"limit {row.limit}"
    pause = f", paused for {row.paused_for_ms} ms" if row.paused else ""
    counts = f"held {row.held}, cooling {row.cooling}, reclaimed {row.reclaimed}, queued {row.queued}"
    blocked = ", self-blocked" if row.self_blocked else ""
    return f"{say_name(row.provider)}: {limit}, in_flight {row.in_flight} ({counts}){pause}{blocked}"


def say_expected(expected: Expected) -> list[str]:
    """What a reply must say, a line for each thing."""
    lines = [say_event(event) for event in expected.events or ()]
    if expected.events == ():
        lines.append("no events")
    lines.extend(say_row(row) for row in expected.status or ())
    if expected.status == ():
        lines.append("no provider has state")
    if expected.unsettled:
        lines.append(f"waiting: {', '.join(expected.unsettled)}")
    if expected.timers is not None:
        lines.append(f"timers alive: {expected.timers}")
    return lines


def say_difference(difference: Difference) -> tuple[str, str, str]:
    """What differs, the expected and the actual, as short texts."""
    at = "" if difference.at_ms is None else f" at {difference.at_ms} ms"
    match difference.what:
        case "grants":
            head = f"grants of {say_name(difference.where)}{at}"
        case "request":
            head = f"events of {difference.where}{at}"
        case "pause":
            head = f"pause of {say_name(difference.where)}{at}"
        case "error":
            head = f"refusal of {difference.where}{at}"
        case "status":
            return _say_status(difference)
        case "unsettled":
            head = "requests that still wait"
        case "timers" | "reply" | "invariant":
            head = f"{difference.what} ({difference.where})"
    return head, _say_value(difference.expected), _say_value(difference.actual)


def _say_status(difference: Difference) -> tuple[str, str, str]:
    head = f"status of {say_name(difference.where)}"
    wanted, given = difference.expected, difference.actual
    if not is_object(wanted) or not is_object(given):
        return head, _say_value(wanted), _say_value(given)
    unequal = [key for key in wanted if wanted[key] != given.get(key)]
    return head, _say_members(wanted, unequal), _say_members(given, unequal)


def _say_members(row: Mapping[str, Json], keys: list[str]) -> str:
    return ", ".join(f"{key} {say_plain(row.get(key))}" for key in keys)


def _say_value(value: Json) -> str:
    if value is None:
        return "nothing"
    if is_array(value):
        return ", ".join(_say_value(item) for item in value) or "nothing"
    if is_object(value):
        if "event" in value and "at_ms" in value:
            shown = f" {value['state']}, reclaimed {say_plain(value['reclaimed'])}" if value["event"] == "slot" else ""
            return f"{value['event']}{shown} at {value['at_ms']} ms"
        return ", ".join(f"{key} {say_plain(item)}" for key, item in value.items())
    return say_plain(value)


def say_plain(value: Json) -> str:
    """A value as it stands on the wire: whoever reads this may not know Python's words for nothing and for truth."""
    return str(value) if isinstance(value, str) else json.dumps(value, default=repr)


def say_config(config: Config) -> str:
    """The settings that aren't the defaults."""
    usual = asdict(Config())
    told = [f"{key} {say_plain(value)}" for key, value in asdict(config).items() if repr(value) != repr(usual[key])]
    return ", ".join(told) or "the defaults"


def say_number(value: Json) -> str:
    """A duration as it stands on the wire."""
    return "-" if value is None else f"{value} ms" if type(value) in (int, float) else say_plain(value)


def say_name(provider: str) -> str:
    """A provider's name, or a conversation's; the empty one is legal and must be visible."""
    return provider or '""'


def make_printable(text: str) -> str:
    """The text without what a terminal would obey or a file can't hold: a subject may say anything."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() or char in "\n\t" else char.encode("unicode_escape").decode() for char in text
    )
