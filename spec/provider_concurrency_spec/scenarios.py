"""Scenarios: small runs with their expected replies, as JSON data that a port may vendor.

A file shows one behaviour and is named after it. The format is defined in SPEC.md ("Scenario files"). The loader is
strict where a slip would go unnoticed: unknown keys are refused, `needs` must be exactly the features that the
scenario uses, and a rule id must exist.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from importlib.resources import files
from typing import Any, Final, TypeGuard, cast

from provider_concurrency_spec.rules import RULE_IDS
from provider_concurrency_spec.vocabulary import (
    FEATURES,
    Acquire,
    Advance,
    Cancel,
    Command,
    Config,
    Do,
    Event,
    Feature,
    Hook,
    Inspect,
    Json,
    MalformedError,
    Operation,
    Reply,
    Resume,
    SetCooldown,
    Stall,
    StatusRow,
    Touch,
    TryAcquire,
    WallClock,
    config_from_json,
    config_to_json,
    event_from_json,
    event_to_json,
    operation_from_json,
    operation_to_json,
    status_row_from_json,
    status_row_to_json,
)


@dataclass(frozen=True, slots=True)
class Expect:
    """What a reply must be; None: not judged. `timers` is exact, `timers_max` a bound."""

    events: tuple[Event, ...] | None = None
    status: tuple[StatusRow, ...] | None = None
    unsettled: tuple[str, ...] | None = None
    timers: int | None = None
    timers_max: int | None = None

    def to_reply(self) -> Reply:
        """The reply that is expected, with what isn't judged left empty."""
        return Reply(self.events or (), self.status or (), self.unsettled or (), self.timers)


@dataclass(frozen=True, slots=True)
class ScenarioStep:
    """One command and what its reply must be."""

    command: Command
    expect: Expect


@dataclass(frozen=True, slots=True)
class Scenario:
    """One behaviour: the rules it shows, the features a port needs for it, and the run.

    `refused_configs`: configurations that a subject must refuse at `new` as invalid, each tried on its own, before
    the run (which may be empty then).
    """

    name: str
    rules: tuple[str, ...]
    needs: tuple[Feature, ...]
    why: str
    config: Config
    steps: tuple[ScenarioStep, ...]
    refused_configs: tuple[Config, ...] = ()


_LARGEST: Final = 2**53 - 1
"""The largest whole number of the schemas, which every language's JSON can hold."""
_DEEPEST: Final = 50
"""Hooks in hooks; far from where a run of them would end in a RecursionError."""
_COMMAND_KEYS: Final = ("do", "advance_ms", "stall_ms")


def _known(value: Json, allowed: frozenset[str], what: str) -> Mapping[str, Json]:
    """`value` as an object without unknown keys."""
    if not isinstance(value, dict):
        raise MalformedError(f"{what} must be an object, not {value!r}")
    taken = cast("dict[str, Json]", value)
    unknown = sorted(set(taken) - allowed)
    if unknown:
        raise MalformedError(f"{what} has unknown keys: {', '.join(unknown)}")
    return taken


def _require(taken: Mapping[str, Json], *names: str) -> None:
    for name in names:
        if name not in taken:
            raise MalformedError(f"lacks {name!r}")


def _is_list(value: Json) -> TypeGuard[list[Json]]:
    return isinstance(value, list)


def _list(value: Json, what: str) -> list[Json]:
    if not _is_list(value):
        raise MalformedError(f"{what} must be an array, not {value!r}")
    return value


def _text(value: Json, what: str) -> str:
    if not isinstance(value, str) or not value:
        raise MalformedError(f"{what} must be a non-empty string, not {value!r}")
    return value


def _count(value: Json, what: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= _LARGEST:
        raise MalformedError(f"{what} must be a whole number from 0 to {_LARGEST}, not {value!r}")
    return value


def _feature(value: Json) -> Feature:
    for feature in FEATURES:
        if feature == value:
            return feature
    raise MalformedError(f"needs: unknown feature {value!r}")


def _names(kind: type[Any], *more: str) -> frozenset[str]:
    return frozenset({*more, *(field.name for field in fields(kind))})


def _operation(value: Json, depth: int = 0) -> Operation:
    """One operation; the codec ignores unknown fields as ports do, a scenario refuses them as slips.

    `depth`: how many hooks it stands in.
    """
    operation = operation_from_json(value)
    _known(value, _names(type(operation), "op"), f"operation {value['op']!r}")
    if isinstance(operation, Hook):
        if depth == _DEEPEST:
            raise MalformedError(f"hook: do is nested more than {_DEEPEST} deep")
        for inner in value.get("do", ()):
            _operation(inner, depth + 1)
    return operation


def _event(value: Json) -> Event:
    event = event_from_json(value)
    _known(value, _names(type(event), "event"), f"event {value['event']!r}")
    return event


def _row(value: Json) -> StatusRow:
    return status_row_from_json(_known(value, _names(StatusRow), "status row"))


def _expect(value: Json) -> Expect:
    taken = _known(value, _names(Expect), "expect")
    out: dict[str, Json] = {}
    if "events" in taken:
        out["events"] = tuple(_event(item) for item in _list(taken["events"], "events"))
    if "status" in taken:
        out["status"] = tuple(_row(item) for item in _list(taken["status"], "status"))
    if "unsettled" in taken:
        out["unsettled"] = tuple(_text(name, "unsettled") for name in _list(taken["unsettled"], "unsettled"))
    for key in ("timers", "timers_max"):
        if key in taken:
            out[key] = _count(taken[key], key)
    return Expect(**out)


def _command(taken: Mapping[str, Json]) -> Command:
    found = [key for key in _COMMAND_KEYS if key in taken]
    match found:
        case ["do"]:
            return Do(tuple(_operation(op) for op in _list(taken["do"], "do")))
        case ["advance_ms"]:
            return Advance(_count(taken["advance_ms"], "advance_ms"))
        case ["stall_ms"]:
            return Stall(_count(taken["stall_ms"], "stall_ms"))
        case _:
            raise MalformedError(f"exactly one of {', '.join(_COMMAND_KEYS)} is needed, not {found}")


def _step(value: Json, at: int) -> ScenarioStep:
    try:
        taken = _known(value, frozenset({*_COMMAND_KEYS, "expect"}), "step")
        _require(taken, "expect")
        return ScenarioStep(_command(taken), _expect(taken["expect"]))
    except MalformedError as error:
        raise MalformedError(f"steps[{at}]: {error}") from None


def scenario_from_json(value: Json, source: str) -> Scenario:
    """Reads one scenario; `source` (a file's name) opens every error message.

    Raises MalformedError naming the source and the field, also for a value that is nested too deeply.
    """
    try:
        taken = _known(value, _names(Scenario), "scenario")
        _require(taken, "name", "rules", "why", "steps")
        scenario = Scenario(
            name=_text(taken["name"], "name"),
            rules=tuple(_text(rule, "rules") for rule in _list(taken["rules"], "rules")),
            needs=tuple(_feature(name) for name in _list(taken.get("needs", []), "needs")),
            why=_text(taken["why"], "why"),
            config=config_from_json(taken.get("config", {})),
            steps=tuple(_step(step, at) for at, step in enumerate(_list(taken["steps"], "steps"))),
            refused_configs=tuple(
                config_from_json(config) for config in _list(taken.get("refused_configs", []), "refused_configs")
            ),
        )
        _check(scenario)
    except (MalformedError, RecursionError) as error:
        raise MalformedError(f"{source}: {error}") from None
    return scenario


def _check(scenario: Scenario) -> None:
    """What the fields must say together."""
    unknown = sorted(set(scenario.rules) - set(RULE_IDS))
    if unknown or not scenario.rules:
        raise MalformedError(f"rules: unknown rule {', '.join(unknown)}" if unknown else "rules must not be empty")
    used = features_used(scenario)
    if set(scenario.needs) != set(used):
        raise MalformedError(f"needs must be exactly what the scenario uses, {list(used)}, not {list(scenario.needs)}")
    if not scenario.steps and not scenario.refused_configs:
        raise MalformedError("steps must not be empty")
    names = [op.request for op in _all_operations(scenario) if isinstance(op, Acquire | TryAcquire)]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise MalformedError(f"steps: request names are used twice: {', '.join(twice)}")


def _flatten(operations: tuple[Operation, ...]) -> Iterator[Operation]:
    for operation in operations:
        yield operation
        if isinstance(operation, Hook):
            yield from _flatten(operation.do)


def _all_operations(scenario: Scenario) -> Iterator[Operation]:
    for step in scenario.steps:
        if isinstance(step.command, Do):
            yield from _flatten(step.command.ops)


def features_used(scenario: Scenario) -> tuple[Feature, ...]:
    """The optional features a subject must have to run the scenario, in the order of FEATURES."""
    used: set[Feature] = set()
    by_kind: dict[type[Operation], Feature] = {
        Cancel: "cancel",
        Touch: "touch",
        Resume: "resume",
        SetCooldown: "set_cooldown",
        TryAcquire: "try_acquire",
        Inspect: "inspect",
        Hook: "hooks",
        WallClock: "wall_clock",
    }
    for operation in _all_operations(scenario):
        if type(operation) in by_kind:
            used.add(by_kind[type(operation)])
        if isinstance(operation, Acquire) and operation.timeout_ms is not None:
            used.add("timeout")
        if isinstance(operation, Acquire) and operation.path:
            used.add("nesting")
    for step in scenario.steps:
        if isinstance(step.command, Stall):
            used.add("stall")
        if step.expect.timers is not None or step.expect.timers_max is not None:
            used.add("timers")
    for config in (scenario.config, *scenario.refused_configs):
        if config.max_queued is not None:
            used.add("max_queued")
        if config.default_limit is not None:
            used.add("default_limit")
        if config.nested is not None:
            used.add("nesting")
    return tuple(feature for feature in FEATURES if feature in used)


def scenario_to_json(scenario: Scenario) -> dict[str, Json]:
    """The object of a scenario's file, every key written out."""

    def step_to_json(step: ScenarioStep) -> dict[str, Json]:
        out: dict[str, Json] = {}
        match step.command:
            case Do(ops):
                out["do"] = [operation_to_json(op) for op in ops]
            case Advance(ms):
                out["advance_ms"] = ms
            case Stall(ms):
                out["stall_ms"] = ms
        expect: dict[str, Json] = {}
        if step.expect.events is not None:
            expect["events"] = [event_to_json(event) for event in step.expect.events]
        if step.expect.status is not None:
            expect["status"] = [status_row_to_json(row) for row in step.expect.status]
        if step.expect.unsettled is not None:
            expect["unsettled"] = list(step.expect.unsettled)
        if step.expect.timers is not None:
            expect["timers"] = step.expect.timers
        if step.expect.timers_max is not None:
            expect["timers_max"] = step.expect.timers_max
        out["expect"] = expect
        return out

    return {
        "name": scenario.name,
        "rules": list(scenario.rules),
        "needs": list(scenario.needs),
        "why": scenario.why,
        "config": config_to_json(scenario.config),
        "refused_configs": [config_to_json(config) for config in scenario.refused_configs],
        "steps": [step_to_json(step) for step in scenario.steps],
    }


def read_json(text: str | bytes, source: str) -> Json:
    """The value of a file's text; raises MalformedError naming the source, whatever is wrong with it."""

    def refuse(name: str) -> Json:
        raise ValueError(f"{name} is no number of JSON")

    try:
        return json.loads(text, parse_constant=refuse)
    except (ValueError, RecursionError) as error:  # JSONDecodeError and UnicodeDecodeError: ValueErrors
        raise MalformedError(f"{source}: not JSON: {error}") from None


def load_text(text: str, source: str) -> Scenario:
    """Reads a scenario from the text of its file; the file's name (without .json) must be the scenario's."""
    scenario = scenario_from_json(read_json(text, source), source)
    if source.removesuffix(".json") != scenario.name:
        raise MalformedError(f"{source}: name is {scenario.name!r}, but the file is named {source!r}")
    return scenario


def load_all() -> tuple[Scenario, ...]:
    """Every scenario of the specification, sorted by name."""
    folder = files("provider_concurrency_spec") / "scenarios"
    sources = sorted((item for item in folder.iterdir() if item.name.endswith(".json")), key=lambda item: item.name)
    return tuple(load_text(item.read_text(encoding="utf-8"), item.name) for item in sources)
