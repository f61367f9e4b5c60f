"""The codec of protocol 1's words: every word survives the wire, and what isn't a word is refused by name."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from provider_concurrency_spec import vocabulary as v

# -- strategies ------------------------------------------------------------------------------------------------------

NAMES = st.text(max_size=8)
WHOLE = st.integers(0, 2**53 - 1)
RAW = st.one_of(
    st.integers(-(2**53), 2**53),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from(["NaN", "Infinity", "-Infinity", "soon"]),
    st.booleans(),
    st.none(),
)
CONVERSATIONS = st.none() | NAMES

PLAIN_OPERATIONS: st.SearchStrategy[v.Operation] = st.one_of(
    st.builds(v.Acquire, NAMES, NAMES, CONVERSATIONS, RAW, RAW, st.lists(NAMES, max_size=3).map(tuple)),
    st.builds(v.TryAcquire, NAMES, NAMES, CONVERSATIONS, RAW),
    st.builds(v.Release, NAMES),
    st.builds(v.Cancel, NAMES),
    st.builds(v.Touch, NAMES),
    st.builds(v.Inspect, NAMES),
    st.builds(v.SetLimit, NAMES, RAW),
    st.builds(v.RemoveLimit, NAMES),
    st.builds(v.Resume, NAMES),
    st.builds(v.SetCooldown, NAMES, RAW),
    st.builds(v.RateLimited, NAMES, RAW),
    st.builds(v.Close),
    st.builds(v.WallClock, st.integers()),
)
OPERATIONS = PLAIN_OPERATIONS | st.builds(
    v.Hook,
    st.sampled_from(["queued", "paused", "reclaimed"]),
    NAMES,
    st.lists(PLAIN_OPERATIONS, max_size=3).map(tuple),
    st.booleans(),
    st.integers(1, 3),
)
COMMANDS: st.SearchStrategy[v.Command] = st.one_of(
    st.builds(v.Do, st.lists(OPERATIONS, max_size=4).map(tuple)),
    st.builds(v.Advance, WHOLE),
    st.builds(v.Stall, WHOLE),
)
EVENTS: st.SearchStrategy[v.Event] = st.one_of(
    st.builds(v.SlotEvent, st.sampled_from(v.SLOT_EVENT_KINDS), WHOLE, NAMES, NAMES),
    st.builds(v.Paused, WHOLE, NAMES, RAW, WHOLE),
    st.builds(v.Resumed, WHOLE, NAMES),
    st.builds(
        v.Refused,
        WHOLE,
        st.sampled_from(sorted(v.OPERATION_NAMES.values())),
        WHOLE,
        st.sampled_from(["invalid", "closed", "queue_full", "nested"]),
    ),
    st.builds(v.SlotShown, WHOLE, NAMES, st.sampled_from(v.SLOT_STATES), st.booleans()),
)
ROWS = st.builds(
    v.StatusRow, NAMES, st.none() | WHOLE, WHOLE, WHOLE, WHOLE, WHOLE, WHOLE, st.booleans(), st.none() | WHOLE,
    st.none() | st.booleans(),
)  # fmt: skip
REPLIES = st.builds(
    v.Reply,
    st.lists(EVENTS, max_size=4).map(tuple),
    st.lists(ROWS, max_size=3).map(tuple),
    st.lists(NAMES, max_size=3).map(tuple),
    st.none() | WHOLE,
)


def over_the_wire(value: Any) -> Any:
    return json.loads(json.dumps(value, allow_nan=False))


@given(OPERATIONS)
def test_an_operation_survives_the_wire(operation: v.Operation) -> None:
    assert v.operation_from_json(over_the_wire(v.operation_to_json(operation))) == operation


@given(COMMANDS)
def test_a_command_survives_the_wire(command: v.Command) -> None:
    assert v.command_from_json(over_the_wire(v.command_to_json(command))) == command


@given(EVENTS)
def test_an_event_survives_the_wire(event: v.Event) -> None:
    assert v.event_from_json(over_the_wire(v.event_to_json(event))) == event


@given(REPLIES)
def test_a_reply_survives_the_wire(reply: v.Reply) -> None:
    assert v.reply_from_json(over_the_wire(v.reply_to_json(reply))) == reply


@given(st.builds(v.Config, *[RAW] * 9))
def test_a_configuration_survives_the_wire(config: v.Config) -> None:
    sent = over_the_wire(v.config_to_json(config))
    assert v.config_from_json(sent) == config
    assert list(sent) == [
        "release_cooldown_ms",
        "slot_timeout_ms",
        "watchdog_interval_ms",
        "default_pause_ms",
        "min_pause_ms",
        "max_pause_ms",
        "max_queued",
        "default_limit",
        *([] if config.nested is None else ["nested"]),
    ]


# -- the forms of protocol.md ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("event", "sent"),
    [
        (
            v.SlotEvent("granted", 0, "p", "r1"),
            {"event": "granted", "at_ms": 0, "provider": "p", "request": "r1"},
        ),
        (
            v.Paused(5, "p", None, 30_000),
            {"event": "paused", "at_ms": 5, "provider": "p", "requested_ms": None, "applied_ms": 30_000},
        ),
        (v.Resumed(7, "p"), {"event": "resumed", "at_ms": 7, "provider": "p"}),
        (
            v.Refused(0, "set_limit", 2, "invalid"),
            {"event": "error", "at_ms": 0, "op": "set_limit", "index": 2, "kind": "invalid"},
        ),
        (
            v.SlotShown(1, "r", "free", True),
            {"event": "slot", "at_ms": 1, "request": "r", "state": "free", "reclaimed": True},
        ),
    ],
)
def test_events_have_the_form_of_the_protocol(event: v.Event, sent: dict[str, Any]) -> None:
    assert v.event_to_json(event) == sent


def test_a_reply_without_timers_has_no_such_key() -> None:
    assert "timers" not in v.reply_to_json(v.Reply())
    assert v.reply_to_json(v.Reply(timers=0))["timers"] == 0


def test_an_operation_may_leave_out_what_has_a_default() -> None:
    sent = {"op": "acquire", "provider": "p", "request": "r", "conversation": None, "prompt_started_at": 1}
    assert v.operation_from_json(sent) == v.Acquire("p", "r", None, 1, None)
    assert v.operation_from_json({"op": "hook", "on": "queued", "provider": "p"}) == v.Hook("queued", "p")


def test_what_nesting_adds_is_on_the_wire_only_where_it_says_something() -> None:
    """So that protocol 1 is to the letter what it was for a port that lacks the feature."""
    assert "path" not in v.operation_to_json(v.Acquire("p", "r", None, 1))
    assert v.operation_to_json(v.Acquire("p", "r", None, 1, None, ("a", "")))["path"] == ["a", ""]
    assert "nested" not in v.config_to_json(v.Config())
    assert v.config_to_json(v.Config(nested="raise"))["nested"] == "raise"
    assert "self_blocked" not in ROW
    assert v.status_row_to_json(v.StatusRow("p", 1, 1, 1, 0, 0, 0, False, None, False))["self_blocked"] is False


def test_unknown_fields_of_messages_are_ignored() -> None:
    assert v.operation_from_json({"op": "release", "request": "r", "later": 1}) == v.Release("r")
    assert v.event_from_json({"event": "resumed", "at_ms": 0, "provider": "p", "later": 1}) == v.Resumed(0, "p")


# -- what isn't a word -----------------------------------------------------------------------------------------------

ROW: dict[str, Any] = v.status_row_to_json(v.StatusRow("p", 1, 1, 1, 0, 0, 0, False, None))
GRANTED: dict[str, Any] = v.event_to_json(v.SlotEvent("granted", 0, "p", "r"))


@pytest.mark.parametrize(
    ("value", "named"),
    [
        ({"op": "borrow"}, "borrow"),
        ({"op": None}, "None"),
        ({"op": ["release"]}, "release"),
        ({"request": "r"}, "None"),
        ("release", "operation"),
        ({"op": "release"}, "request"),
        ({"op": "release", "request": 3}, "request"),
        ({"op": "set_limit", "provider": None, "limit": 1}, "provider"),
        ({"op": "acquire", "provider": "p", "request": "r"}, "conversation"),
        (
            {
                "op": "acquire",
                "provider": "p",
                "request": "r",
                "conversation": None,
                "prompt_started_at": 1,
                "path": "ab",
            },
            "path",
        ),
        (
            {
                "op": "acquire",
                "provider": "p",
                "request": "r",
                "conversation": None,
                "prompt_started_at": 1,
                "path": [1],
            },
            "path",
        ),
        ({"op": "hook", "on": "queued", "provider": "p", "do": "close"}, "do"),
        ({"op": "hook", "on": "queued", "provider": "p", "do": [{"op": "borrow"}]}, "borrow"),
    ],
)
def test_a_malformed_operation_is_refused(value: Any, named: str) -> None:
    with pytest.raises(v.MalformedError, match=named):
        v.operation_from_json(value)


@pytest.mark.parametrize(
    ("value", "named"),
    [
        ({"cmd": "sleep"}, "sleep"),
        ([], "command"),
        ({"cmd": "advance"}, "ms"),
        ({"cmd": "advance", "ms": -1}, "ms"),
        ({"cmd": "stall", "ms": 1.5}, "ms"),
        ({"cmd": "stall", "ms": True}, "ms"),
        ({"cmd": "do"}, "ops"),
        ({"cmd": "do", "ops": {}}, "ops"),
    ],
)
def test_a_malformed_command_is_refused(value: Any, named: str) -> None:
    with pytest.raises(v.MalformedError, match=named):
        v.command_from_json(value)


@pytest.mark.parametrize(
    ("value", "named"),
    [
        ({**GRANTED, "event": "borrowed"}, "borrowed"),
        ({**GRANTED, "event": None}, "None"),
        ({**GRANTED, "at_ms": "0"}, "at_ms"),
        ({**GRANTED, "at_ms": True}, "at_ms"),
        ({**GRANTED, "request": 1}, "request"),
        ({"event": "granted", "at_ms": 0, "provider": "p"}, "request"),
        ({"event": "paused", "at_ms": 0, "provider": "p", "requested_ms": 1, "applied_ms": 1.5}, "applied_ms"),
        ({"event": "error", "at_ms": 0, "op": "close", "index": 0, "kind": "tired"}, "kind"),
        ({"event": "error", "at_ms": 0, "op": "close", "index": None, "kind": "closed"}, "index"),
        ({"event": "slot", "at_ms": 0, "request": "r", "state": "lost", "reclaimed": False}, "state"),
        ({"event": "slot", "at_ms": 0, "request": "r", "state": "free", "reclaimed": 0}, "reclaimed"),
        ("granted", "event"),
    ],
)
def test_a_malformed_event_is_refused(value: Any, named: str) -> None:
    with pytest.raises(v.MalformedError, match=named):
        v.event_from_json(value)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("provider", 1),
        ("limit", 1.5),
        ("limit", True),
        ("in_flight", None),
        ("held", "1"),
        ("queued", False),
        ("paused", 0),
        ("paused_for_ms", "never"),
    ],
)
def test_a_malformed_row_is_refused(key: str, value: Any) -> None:
    with pytest.raises(v.MalformedError, match=key):
        v.status_row_from_json({**ROW, key: value})
    with pytest.raises(v.MalformedError, match=key):
        v.status_row_from_json({name: item for name, item in ROW.items() if name != key})


@pytest.mark.parametrize("value", [None, 0, "no"])
def test_a_malformed_self_blocked_is_refused(value: Any) -> None:
    """It may be left out, and is a bool where it stands."""
    assert v.status_row_from_json(ROW).self_blocked is None
    with pytest.raises(v.MalformedError, match="self_blocked"):
        v.status_row_from_json({**ROW, "self_blocked": value})


@pytest.mark.parametrize(
    ("value", "named"),
    [
        ({"status": [], "unsettled": []}, "events"),
        ({"events": [], "unsettled": []}, "status"),
        ({"events": [], "status": []}, "unsettled"),
        ({"events": {}, "status": [], "unsettled": []}, "events"),
        ({"events": [], "status": [], "unsettled": [1]}, "unsettled"),
        ({"events": [], "status": [], "unsettled": [], "timers": 1.5}, "timers"),
        ([], "reply"),
    ],
)
def test_a_malformed_reply_is_refused(value: Any, named: str) -> None:
    with pytest.raises(v.MalformedError, match=named):
        v.reply_from_json(value)


def test_a_misspelt_setting_is_refused() -> None:
    with pytest.raises(v.MalformedError, match="cool_down_ms"):
        v.config_from_json({"cool_down_ms": 1})
    with pytest.raises(v.MalformedError, match="config"):
        v.config_from_json([])


def test_every_operation_has_a_name_and_every_feature_is_listed_once() -> None:
    assert len(set(v.OPERATION_NAMES.values())) == len(v.OPERATION_NAMES) == 14
    assert len(set(v.FEATURES)) == len(v.FEATURES) == 14
