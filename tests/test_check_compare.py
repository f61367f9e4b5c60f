"""What counts as the same reply, and what each difference is called (protocol.md, "Comparison")."""

from __future__ import annotations

from typing import Any

import pytest

from provider_concurrency_model.check.blame import name_rules
from provider_concurrency_model.check.compare import Difference, Expected, compare, read_reply
from provider_concurrency_model.check.describe import say_command, say_config, say_difference
from provider_concurrency_spec.vocabulary import (
    Acquire,
    Cancel,
    Config,
    Do,
    Event,
    Paused,
    RateLimited,
    Refused,
    Release,
    RemoveLimit,
    Reply,
    Resumed,
    SetLimit,
    SlotEvent,
    SlotEventKind,
    SlotShown,
    StatusRow,
    reply_to_json,
)


def slot(kind: SlotEventKind, request: str, at_ms: int = 0, provider: str = "p") -> SlotEvent:
    return SlotEvent(kind, at_ms, provider, request)


def row(provider: str = "p", **changes: Any) -> StatusRow:
    items: dict[str, Any] = {
        "limit": 1, "in_flight": 1, "held": 1, "cooling": 0, "reclaimed": 0, "queued": 0, "paused": False,
        "paused_for_ms": None,
    }  # fmt: skip
    return StatusRow(provider, **{**items, **changes})


def differ(expected: Reply, actual: Reply | dict[str, Any], max_timers: int = 9, **options: Any) -> list[Difference]:
    message = actual if isinstance(actual, dict) else reply_to_json(actual)
    return list(compare(Expected.of_reply(expected), message, max_timers=max_timers, **options))


def events(*items: Event) -> Reply:
    return Reply(events=items)


EQUAL: dict[str, tuple[Reply, Reply]] = {
    "two providers interleaved": (
        events(slot("granted", "a"), slot("granted", "b", provider="q")),
        events(slot("granted", "b", provider="q"), slot("granted", "a")),
    ),
    "events of different requests": (
        events(slot("released", "a"), slot("queued", "b")),
        events(slot("queued", "b"), slot("released", "a")),
    ),
    "a grant and what isn't one": (
        events(slot("recycled", "a"), slot("granted", "b")),
        events(slot("granted", "b"), slot("recycled", "a")),
    ),
    "a pause among slots": (
        events(Paused(0, "p", 5, 5), slot("released", "a"), Resumed(0, "p")),
        events(Resumed(0, "p"), slot("released", "a"), Paused(0, "p", 5, 5)),
    ),
    "errors in another order": (
        events(Refused(0, "set_limit", 0, "invalid"), Refused(0, "acquire", 1, "closed")),
        events(Refused(0, "acquire", 1, "closed"), Refused(0, "set_limit", 0, "invalid")),
    ),
    "rows in another order": (Reply(status=(row("p"), row("q"))), Reply(status=(row("q"), row("p")))),
    "waiting requests in another order": (Reply(unsettled=("a", "b")), Reply(unsettled=("b", "a"))),
}


@pytest.mark.parametrize("name", EQUAL)
def test_order_that_nobody_promises_is_not_compared(name: str) -> None:
    assert differ(*EQUAL[name]) == []
    assert differ(*reversed(EQUAL[name])) == []


UNEQUAL: dict[str, tuple[Reply, Reply, str]] = {
    "grants of one provider at one instant": (
        events(slot("granted", "a"), slot("granted", "b")),
        events(slot("granted", "b"), slot("granted", "a")),
        "grants",
    ),
    "a request's own sequence": (
        events(slot("queued", "a"), slot("granted", "a")),
        events(slot("granted", "a"), slot("queued", "a")),
        "request",
    ),
    "an event at another time": (events(slot("recycled", "a", 200)), events(slot("recycled", "a", 199)), "request"),
    "an event at another provider": (events(slot("queued", "a")), events(slot("queued", "a", 0, "q")), "request"),
    "an event twice": (events(slot("released", "a")), events(slot("released", "a"), slot("released", "a")), "request"),
    "an answer to inspect": (
        events(SlotShown(0, "a", "cooling", reclaimed=True)),
        events(SlotShown(0, "a", "cooling", reclaimed=False)),
        "request",
    ),
    "a pause twice": (events(Paused(0, "p", 5, 5)), events(Paused(0, "p", 5, 5), Paused(0, "p", 5, 5)), "pause"),
    "a pause of another length": (events(Paused(0, "p", 5, 5)), events(Paused(0, "p", 5, 6)), "pause"),
    "true told as 1": (events(Paused(0, "p", True, 5)), events(Paused(0, "p", 1, 5)), "pause"),
    "an end of a pause missing": (events(Resumed(3, "p")), events(), "pause"),
    "a refusal of another op": (
        events(Refused(0, "acquire", 0, "closed")),
        events(Refused(0, "acquire", 1, "closed")),
        "error",
    ),
    "a refusal of another kind": (
        events(Refused(0, "acquire", 0, "closed")),
        events(Refused(0, "acquire", 0, "invalid")),
        "error",
    ),
    "a count": (Reply(status=(row(),)), Reply(status=(row(in_flight=2, held=2),)), "status"),
    "a row too many": (Reply(), Reply(status=(row(),)), "status"),
    "a row missing": (Reply(status=(row(),)), Reply(), "status"),
    "a row twice": (Reply(status=(row(),)), Reply(status=(row(), row())), "status"),
    "who waits": (Reply(unsettled=("a",)), Reply(unsettled=()), "unsettled"),
    "who waits, twice": (Reply(unsettled=("a",)), Reply(unsettled=("a", "a")), "unsettled"),
}


@pytest.mark.parametrize("name", UNEQUAL)
def test_each_difference_is_found_and_named(name: str) -> None:
    expected, actual, what = UNEQUAL[name]
    found = differ(expected, actual)
    assert what in {item.what for item in found}
    assert all(item.expected != item.actual for item in found)
    assert all(item.rule for item in name_rules(found, None))


def test_a_limit_of_true_is_not_a_limit_of_1() -> None:
    message = reply_to_json(Reply(status=(row(),)))
    message["status"][0]["limit"] = True
    (found,) = differ(Reply(status=(row(),)), message)
    assert (found.what, found.where) == ("reply", "shape")


def test_unknown_members_are_ignored() -> None:
    message = reply_to_json(events(slot("queued", "a")))
    message["events"][0]["colour"] = "blue"
    assert differ(events(slot("queued", "a")), {**message, "mood": "good"}) == []


@pytest.mark.parametrize(
    "message",
    [
        {},
        {"events": None, "status": [], "unsettled": []},
        {"events": [], "status": {}, "unsettled": []},
        {"events": [], "status": [], "unsettled": [1]},
        {"events": [{"event": "granted"}], "status": [], "unsettled": []},
        {"events": [{"event": "danced", "at_ms": 0}], "status": [], "unsettled": []},
        {"events": [], "status": [{"provider": "p"}], "unsettled": []},
        {"events": [7], "status": [], "unsettled": []},
    ],
)
def test_a_malformed_reply_is_one_difference(message: dict[str, Any]) -> None:
    (found,) = differ(Reply(), message)
    assert found.what == "reply"
    assert read_reply(message) is None


@pytest.mark.parametrize(
    ("timers", "bound", "is_fine"),
    [(0, 0, True), (1, 0, False), (3, 3, True), (4, 3, False), (-1, 3, False), (True, 3, False), ("1", 3, False)],
)
def test_timers_are_judged_by_a_bound(timers: Any, bound: int, is_fine: bool) -> None:
    found = differ(Reply(), {**reply_to_json(Reply()), "timers": timers}, bound)
    assert [item.what for item in found] == ([] if is_fine else ["timers"])


def test_timers_may_be_missing_unless_they_were_declared() -> None:
    assert differ(Reply(), reply_to_json(Reply())) == []
    assert [item.what for item in differ(Reply(), reply_to_json(Reply()), needs_timers=True)] == ["timers"]


def test_a_scenario_judges_only_what_it_says() -> None:
    message = {**reply_to_json(Reply((slot("queued", "a"),), (row(),), ("a",))), "timers": 1}
    assert compare(Expected(), message, max_timers=2) == ()
    assert compare(Expected(events=(slot("queued", "a"),)), message, max_timers=2) == ()
    assert [item.what for item in compare(Expected(status=()), message, max_timers=2)] == ["status"]
    assert [item.what for item in compare(Expected(timers=0), message, max_timers=2)] == ["timers"]
    assert [item.what for item in compare(Expected(timers_max=0), message, max_timers=2)] == ["timers"]
    assert compare(Expected(timers=1, timers_max=1), message, max_timers=2) == ()


BLAMED: dict[str, tuple[Reply, Reply, Do, str]] = {
    "PAU-1": (
        Reply(status=(row(paused=True, paused_for_ms=50),)),
        Reply(status=(row(paused=True, paused_for_ms=20),)),
        Do((RateLimited("p", 20),)),
        "a pause that got shorter",
    ),
    "LIM-3": (
        Reply(status=(row(limit=None),)),
        Reply(),
        Do((RemoveLimit("p"),)),
        "holders forgotten with the limit",
    ),
    "REL-3": (
        events(slot("released", "a")),
        events(slot("released", "a"), slot("recycled", "a")),
        Do((Release("a"),)),
        "no cooldown",
    ),
    "REL-2": (
        Reply(status=(row(limit=2, in_flight=2, held=1, cooling=1),)),
        Reply(status=(row(limit=2, in_flight=1, held=1, cooling=0),)),
        Do((Release("a"),)),
        "a second release frees a slot",
    ),
    "CAN-2": (
        events(slot("granted", "b"), slot("cancelled", "b")),
        events(slot("granted", "b")),
        Do((Release("a"), Cancel("b"))),
        "an undelivered grant isn't given back",
    ),
    "ORD-1": (
        events(slot("granted", "a"), slot("granted", "b")),
        events(slot("granted", "b"), slot("granted", "a")),
        Do((SetLimit("p", 2),)),
        "the wrong one first",
    ),
    "ADM-1": (
        events(slot("queued", "b")),
        events(slot("granted", "b")),
        Do((Acquire("p", "b", None, 1),)),
        "a newcomer barges",
    ),
    "LIM-1": (
        events(Refused(0, "set_limit", 0, "invalid")),
        events(),
        Do((SetLimit("p", 1.5),)),
        "a limit of 1.5",
    ),
    "CLO-2": (
        events(Refused(0, "acquire", 0, "closed")),
        events(slot("granted", "b")),
        Do((Acquire("p", "b", None, 1),)),
        "a grant after close",
    ),
}


@pytest.mark.parametrize("rule", BLAMED)
def test_the_most_telling_difference_points_at_the_rule(rule: str) -> None:
    expected, actual, command, told = BLAMED[rule]
    assert name_rules(differ(expected, actual), command)[0].rule == rule, told


def test_timers_in_the_reply_to_new_concern_no_close() -> None:
    difference = Difference("timers", "alive", None, "at most 0", 0.5)
    assert name_rules([difference], None)[0].rule == "TIM-4"
    assert name_rules([difference], Do((SetLimit("p", 1),)))[0].rule == "CLO-1"


def test_a_difference_is_told_in_the_words_of_the_wire() -> None:
    (shown,) = differ(events(SlotShown(5, "r", "reclaimed", True)), events(SlotShown(5, "r", "cooling", False)))
    assert say_difference(shown)[1:] == (
        "slot reclaimed, reclaimed true at 5 ms",
        "slot cooling, reclaimed false at 5 ms",
    )
    (status,) = differ(Reply(status=(row(),)), Reply(status=(row(limit=None, paused=True, paused_for_ms=9),)))
    assert say_difference(status)[2] == "limit null, paused true, paused_for_ms 9"
    assert say_command(Do((SetLimit("p", None), SetLimit("p", True)))) == "do set_limit p null, set_limit p true"
    assert say_config(Config(release_cooldown_ms=True, slot_timeout_ms=None)) == (
        "release_cooldown_ms true, slot_timeout_ms null"
    )
    assert say_config(Config()) == "the defaults"
