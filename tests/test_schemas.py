"""The JSON Schemas: good and bad messages, and that they say what the codec says."""

from __future__ import annotations

import copy
import io
import json
from collections.abc import Callable
from typing import Any

import pytest
from jsonschema import Draft202012Validator

import fake_subjects
from provider_concurrency import ConcurrencyManager
from provider_concurrency.trace import Recorder
from provider_concurrency_model.check.case import case_of_commands
from provider_concurrency_model.check.counterexample import counterexample_of, counterexample_to_json
from provider_concurrency_model.check.drive import Failed, drive
from provider_concurrency_model.check.expect import Expectations, Known, expectations_to_json
from provider_concurrency_model.check.judge import ALL_LEVELS, LEVELS
from provider_concurrency_model.check.subject import InProcess, Session
from provider_concurrency_model.random_runs import random_run
from provider_concurrency_spec.scenarios import load_all, scenario_to_json
from provider_concurrency_spec.schemas import SCHEMA_NAMES, SchemaName, find_faults, load_schema
from provider_concurrency_spec.vocabulary import (
    FEATURES,
    OPERATION_NAMES,
    SLOT_EVENT_KINDS,
    SLOT_STATES,
    MalformedError,
    reply_from_json,
)

CONFIG = {
    "release_cooldown_ms": 200, "slot_timeout_ms": 5000, "watchdog_interval_ms": 1000, "default_pause_ms": 30000,
    "min_pause_ms": 0, "max_pause_ms": 21600000, "max_queued": None, "default_limit": None,
}  # fmt: skip
ACQUIRE = {
    "op": "acquire", "provider": "p", "request": "r1", "conversation": "c1", "prompt_started_at": 5, "timeout_ms": None,
}  # fmt: skip
HELLO = {"id": 0, "protocol": 1, "port": dict.fromkeys(("name", "version", "language", "runtime"), "x"), "features": []}
ROW = {
    "provider": "p", "limit": 1, "in_flight": 1, "held": 1, "cooling": 0, "reclaimed": 0, "queued": 0, "paused": False,
    "paused_for_ms": None,
}  # fmt: skip
GRANTED = {"event": "granted", "at_ms": 0, "provider": "p", "request": "r1"}
REPLY = {"id": 2, "events": [GRANTED], "status": [ROW], "unsettled": [], "timers": 1}
EVENTS: list[dict[str, Any]] = [
    *({"event": kind, "at_ms": 1, "provider": "", "request": "r"} for kind in SLOT_EVENT_KINDS),
    {"event": "paused", "at_ms": 0, "provider": "p", "requested_ms": -0.5, "applied_ms": 30000},
    {"event": "paused", "at_ms": 0, "provider": "p", "requested_ms": None, "applied_ms": 0},
    {"event": "resumed", "at_ms": 2**53 - 1, "provider": "p"},
    {"event": "error", "at_ms": 0, "op": "set_limit", "index": 0, "kind": "invalid"},
    {"event": "error", "at_ms": 0, "op": "acquire", "index": 1, "kind": "nested"},
    *({"event": "slot", "at_ms": 6, "request": "r", "state": state, "reclaimed": True} for state in SLOT_STATES),
]


@pytest.mark.parametrize("name", SCHEMA_NAMES)
def test_each_is_a_schema(name: SchemaName) -> None:
    schema = load_schema(name)
    Draft202012Validator.check_schema(schema)
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert schema["$id"].endswith(f"/{name}.json")
    assert schema["title"]


def test_the_words_are_the_vocabularys() -> None:
    assert load_schema("words")["$defs"]["feature"]["enum"] == list(FEATURES)
    assert load_schema("words")["$defs"]["level"]["enum"] == list(ALL_LEVELS)
    assert load_schema("operation")["properties"]["op"]["enum"] == list(OPERATION_NAMES.values())


GOOD: list[tuple[SchemaName, Any]] = [
    ("request", {"id": 0, "cmd": "hello", "protocol": 1, "spec": "1.0"}),
    ("request", {"id": 1, "cmd": "new", "config": CONFIG}),
    ("request", {"id": 2, "cmd": "do", "ops": [{"op": "set_limit", "provider": "p", "limit": "NaN"}, ACQUIRE]}),
    ("request", {"id": 1, "cmd": "new", "config": {**CONFIG, "nested": "raise"}}),
    ("request", {"id": 2, "cmd": "do", "ops": [{**ACQUIRE, "path": []}, {**ACQUIRE, "path": ["a", ""]}]}),
    ("request", {"id": 3, "cmd": "advance", "ms": 200}),
    ("request", {"id": 4, "cmd": "stall", "ms": 0}),
    ("request", {"id": 9, "cmd": "bye"}),
    ("hello", HELLO),
    ("hello", {**HELLO, "features": ["cancel", "levitate"], "more": 1}),
    ("reply", REPLY),
    ("reply", {**REPLY, "status": [{**ROW, "self_blocked": True}]}),
    ("reply", {**REPLY, "log": "unknown members are ignored"}),
    ("reply", {"id": 7, "skip": {"feature": "touch"}}),
    ("reply", {"id": 7, "error": {"message": "no"}}),
    ("reply", {"id": 7, "error": {"kind": "invalid", "message": "no"}}),
    *(("event", event) for event in EVENTS),
]


@pytest.mark.parametrize(("name", "value"), GOOD)
def test_good_messages(name: SchemaName, value: Any) -> None:
    assert find_faults(name, value) == []


BAD: list[tuple[SchemaName, Any, str]] = [
    ("request", {"id": 0, "cmd": "dance"}, "cmd: 'dance'"),
    ("request", {"cmd": "bye"}, "'id' is a required"),
    ("request", {"id": 0, "cmd": "hello", "protocol": 2, "spec": "1.0"}, "protocol: 1 was expected"),
    ("request", {"id": 1, "cmd": "new", "config": {**CONFIG, "limit": 1}}, "config: Additional properties"),
    ("request", {"id": 1, "cmd": "new", "config": {"max_queued": 1}}, "config: "),
    ("request", {"id": 2, "cmd": "do", "ops": [{"op": "acquire", "provider": "p"}]}, "ops[0]: 'request'"),
    ("request", {"id": 2, "cmd": "do", "ops": [{"op": "release", "request": 1}]}, "ops[0].request: 1"),
    ("request", {"id": 1, "cmd": "new", "config": {"nested": "raise"}}, "config: "),
    ("request", {"id": 2, "cmd": "do", "ops": [{**ACQUIRE, "path": "a"}]}, "ops[0].path: 'a'"),
    ("request", {"id": 2, "cmd": "do", "ops": [{**ACQUIRE, "path": [1]}]}, "ops[0].path[0]: 1"),
    ("request", {"id": 3, "cmd": "advance", "ms": -1}, "ms: -1"),
    ("request", {"id": 3, "cmd": "advance", "ms": 1.5}, "ms: 1.5"),
    ("hello", {**HELLO, "protocol": 2}, "protocol: "),
    ("hello", {**HELLO, "port": {"name": "x"}}, "port: "),
    ("hello", {**HELLO, "features": [1]}, "features[0]: 1"),
    ("reply", [REPLY], "the whole: "),
    ("reply", {**REPLY, "id": -1}, "id: -1"),
    ("reply", {**REPLY, "events": {}}, "events: {}"),
    ("reply", {**REPLY, "events": [{**GRANTED, "at_ms": True}]}, "events[0].at_ms: True"),
    ("reply", {**REPLY, "events": [{**GRANTED, "event": "gone"}]}, "events[0].event: 'gone'"),
    ("reply", {**REPLY, "status": [{**ROW, "held": None}]}, "status[0].held: None"),
    ("reply", {**REPLY, "status": [{**ROW, "self_blocked": None}]}, "status[0].self_blocked: None"),
    ("reply", {**REPLY, "unsettled": ["r1", "r1"]}, "unsettled: "),
    ("reply", {**REPLY, "timers": -1}, "timers: -1"),
    ("reply", {"id": 7, "skip": "touch"}, "skip: 'touch'"),
    ("reply", {"id": 7, "error": {"kind": "invalid"}}, "error: 'message'"),
]


@pytest.mark.parametrize(("name", "value", "told"), BAD)
def test_bad_messages(name: SchemaName, value: Any, told: str) -> None:
    faults = find_faults(name, value)
    assert any(fault.startswith(told) or told in fault for fault in faults), faults


def test_what_the_kit_sends_and_a_good_port_answers() -> None:
    subject = InProcess("fake_subjects:Faithful")
    for seed in range(5):
        case = case_of_commands("it", "random", *random_run(seed, 40))
        for message in case.messages(1):
            assert find_faults("request", message) == []
            (reply,) = subject.converse([message])
            assert find_faults("reply", reply) == []


def spoil(value: Any) -> list[tuple[str, Callable[[Any], Any]]]:
    """Ways to spoil each member of an object: leave it out, or give it another type."""
    ways: list[tuple[str, Callable[[Any], Any]]] = []
    for key in value:
        ways.append((f"without {key}", lambda item, key=key: {name: item[name] for name in item if name != key}))
        ways.extend(
            (f"{key}: {other!r}", lambda item, key=key, other=other: {**item, key: other})
            for other in (None, True, -1.5, "x", [], {})
        )
    return ways


def test_schema_and_codec_refuse_the_same_replies() -> None:
    """Where one is stricter it is the schema, and only so: no negative numbers, no name twice, no requested text."""
    for parts, place in ((EVENTS, "events"), ([ROW, {**ROW, "self_blocked": False}], "status")):
        for part in parts:
            for told, way in spoil(part):
                reply = copy.deepcopy(REPLY)
                reply[place] = [way(part)]
                try:
                    reply_from_json(reply)
                    is_read = True
                except MalformedError:
                    is_read = False
                faults = find_faults("reply", reply)
                if not is_read:
                    assert faults, (part, told)
                elif faults:
                    assert "requested_ms" in told or "op: " in told, (part, told, faults)


def test_scenario_files() -> None:
    for scenario in load_all():
        assert find_faults("scenario", scenario_to_json(scenario)) == [], scenario.name
    good = scenario_to_json(load_all()[0])
    for bad in ({**good, "whey": "x"}, {**good, "rules": []}, {**good, "rules": ["ADM1"]}, {**good, "needs": ["fly"]}):
        assert find_faults("scenario", bad)
    assert find_faults("scenario", {**good, "steps": [{"advance_ms": 1, "stall_ms": 1, "expect": {}}]})
    assert find_faults("scenario", {**good, "steps": [{"do": [], "expect": {"evens": []}}]})


def test_traces() -> None:
    stream = io.StringIO()
    recorder = Recorder(stream)
    ticks = iter(range(0, 10**12, 10**9))
    manager = ConcurrencyManager(limits={"p": 1}, observer=recorder, clock=lambda: next(ticks))
    recorder.begin(manager)
    manager.set_limit("q", 2)
    manager.set_cooldown("q", 1.0)
    manager.set_cooldown("q", None)
    manager.report_rate_limit("q", 5.0)
    manager.report_rate_limit("q")
    manager.resume("q")
    manager.remove_limit("q")
    manager.close()
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    slot = {"provider": "p", "request": 1, "conversation": None, "prompt_started_at": 1.5}
    lines += [{"seq": 9, "op": 9, "t": 1, "event": kind, **slot, "last_touch": 0, "post": lines[-1]["post"]}
              for kind in SLOT_EVENT_KINDS]  # fmt: skip
    assert {line.get("event") for line in lines} >= {"limit_set", "cooldown_set", "paused", "resumed", "closed"}
    for line in lines:
        assert find_faults("trace_line", line) == [], line
        for told, way in spoil(
            {key: line[key] for key in ("seq", "op", "t", "post", "trace", "config") if key in line}
        ):
            if told not in ("without trace",):
                assert find_faults("trace_line", {**line, **way(line)} if "without" not in told else way(line)), told


def test_counterexamples_and_expectations() -> None:
    session = Session(InProcess("fake_subjects:ForgetsCooldown"))
    outcome = drive(session, case_of_commands("it", "random", *random_run(3, 60)))
    assert isinstance(outcome, Failed)
    content = json.loads(json.dumps(counterexample_to_json(counterexample_of(outcome, session.label)), default=repr))
    assert find_faults("counterexample", content) == []
    assert find_faults("counterexample", {**content, "counterexample": 2})
    known = Known("a-case", "PAU-1", "it differs", note="see #5")
    assert find_faults("expectation", expectations_to_json(Expectations((known,), LEVELS, 0, 200))) == []
    for bad in ({"known": [{"rule": "PAU-1"}]}, {"knwon": []}, {"levels": ["all"]}, {"runs": 0}):
        assert find_faults("expectation", bad)


def test_the_fake_subjects_greet_as_the_schema_wants() -> None:
    assert find_faults("hello", fake_subjects.Faithful().handle({"id": 0, "cmd": "hello"})) == []
