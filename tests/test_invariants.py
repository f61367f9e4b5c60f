"""Each invariant accepts a good run and rejects a planted fault: an alarm that can't ring is no alarm."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from provider_concurrency_spec import invariants as inv
from provider_concurrency_spec.scenarios import load_all
from provider_concurrency_spec.vocabulary import (
    Acquire,
    Advance,
    Close,
    Command,
    Config,
    Do,
    Event,
    Hook,
    Paused,
    RateLimited,
    Refused,
    Release,
    Reply,
    Resume,
    Resumed,
    SetCooldown,
    SetLimit,
    SlotEvent,
    SlotShown,
    Stall,
    StatusRow,
    Touch,
    TryAcquire,
)

CONFIG = Config(slot_timeout_ms=5_000, watchdog_interval_ms=1_000)
SCENARIOS = {scenario.name: scenario for scenario in load_all()}


def row(**changes: Any) -> StatusRow:
    """A row of provider p; in_flight is the sum unless given."""
    plain = StatusRow("p", None, 0, 0, 0, 0, 0, paused=False, paused_for_ms=None)
    changed = replace(plain, **changes)
    return (
        changed
        if "in_flight" in changes
        else replace(changed, in_flight=changed.held + changed.cooling + changed.reclaimed)
    )


def acquire(request: str, prompt: float = 1, timeout: int | None = None, provider: str = "p") -> Acquire:
    return Acquire(provider, request, None, prompt, timeout)


def told(text: str, at: int = 0, provider: str = "p") -> tuple[Event, ...]:
    """Events written as "granted r1, queued r2"."""
    pairs = [part.split() for part in text.split(", ") if part]
    return tuple(SlotEvent(kind, at, provider, request) for kind, request in pairs)  # type: ignore[arg-type]


Exchange = tuple[Command, tuple[Event, ...], tuple[StatusRow, ...], tuple[str, ...]]


def exchange(command: Command, events: tuple[Event, ...] = (), *rows: StatusRow, unsettled: str = "") -> Exchange:
    return command, events, rows, tuple(unsettled.split())


def run(*exchanges: Exchange, config: Config = CONFIG) -> inv.Run:
    return inv.Run.of(
        config, [(command, Reply(events, rows, unsettled)) for command, events, rows, unsettled in exchanges]
    )


def step(command: Command, events: tuple[Event, ...] = (), *rows: StatusRow, **more: Any) -> inv.Step:
    """One step from an empty status at 0, unless `before` or `started_ms` is given."""
    reply = Reply(events, rows, more.pop("unsettled", ()), more.pop("timers", None))
    return inv.Step(**{"config": CONFIG, "started_ms": 0, "before": (), "command": command, "reply": reply, **more})


def scenario_run(name: str, at: int | None = None, **changes: Any) -> inv.Run:
    """The run that a scenario expects, with changes planted into the reply of one step."""
    scenario = SCENARIOS[name]
    replies = [each.expect.to_reply() for each in scenario.steps]
    if at is not None:
        replies[at] = replace(replies[at], **changes)
    return inv.Run.of(
        scenario.config, [(each.command, reply) for each, reply in zip(scenario.steps, replies, strict=True)]
    )


def seen(changed: StatusRow, config: Config = CONFIG) -> inv.RowSeen:
    return inv.RowSeen(config, changed)


ASK = exchange(
    Do((SetLimit("p", 1), acquire("r1"), acquire("r2", 2), acquire("r3", 3))),
    told("granted r1, queued r2, queued r3"),
    row(limit=1, held=1, queued=2),
    unsettled="r2 r3",
)
NO_COOLDOWN = replace(CONFIG, release_cooldown_ms=0)
FREED = told("released r1, recycled r1")
PAUSED = exchange(
    Do((RateLimited("p", 2_000),)), (Paused(0, "p", 2_000, 2_000),), row(paused=True, paused_for_ms=2_000)
)
HELD = exchange(Do((acquire("r1"),)), told("granted r1"), row(held=1))
COOLING = exchange(Do((acquire("r1"), Release("r1"))), told("granted r1, released r1"), row(cooling=1))
WAITING = exchange(
    Do((SetLimit("p", 0), acquire("r1", timeout=500))), told("queued r1"), row(limit=0, queued=1), unsettled="r1"
)
NESTED = replace(CONFIG, nested="queue")
NESTED_RAISE = replace(CONFIG, nested="raise")
CHILD = Acquire("p", "child", "b", 2, None, ("a", "b"))
FAMILY = Do((SetLimit("p", 1), Acquire("p", "parent", "a", 1, None, ("a",)), CHILD))
BORN = told("granted parent, queued child")


def family(*, blocked: bool | None, config: Config = NESTED, ask: Do = FAMILY, **changes: Any) -> inv.Run:
    """A parent that holds the only slot, and a child that waits for it."""
    row_then = row(**{"limit": 1, "held": 1, "queued": 1, "self_blocked": blocked, **changes})
    return run(exchange(ask, BORN, row_then, unsettled="child"), config=config)


CLOSED = exchange(Do((acquire("r1"), Close())), told("granted r1"), row(held=1))

FAULTS: list[tuple[str, Any]] = [
    ("in_flight_is_the_sum", seen(row(held=2, in_flight=1))),
    ("in_flight_is_the_sum", seen(row(held=-1, cooling=1))),
    ("limit_is_a_count", seen(row(limit=-1))),
    ("pause_is_ahead_and_bounded", seen(row(paused=True))),
    ("pause_is_ahead_and_bounded", seen(row(paused_for_ms=1))),
    ("pause_is_ahead_and_bounded", seen(row(paused=True, paused_for_ms=0))),
    ("pause_is_ahead_and_bounded", seen(row(paused=True, paused_for_ms=21_600_001))),
    ("nobody_waits_beside_room", seen(row(limit=2, held=1, queued=1))),
    ("nobody_waits_beside_room", seen(row(queued=1))),
    ("nobody_waits_beside_room", seen(row(held=1, queued=1), Config(default_limit=2))),
    ("queue_is_within_its_bound", seen(row(limit=0, queued=3), Config(max_queued=2))),
    ("who_waits_for_itself_waits_for_holders", seen(row(held=1), NESTED)),
    ("who_waits_for_itself_waits_for_holders", seen(row(held=1, self_blocked=False))),
    ("who_waits_for_itself_waits_for_holders", seen(row(limit=1, held=1, self_blocked=True), NESTED)),
    ("who_waits_for_itself_waits_for_holders", seen(row(held=1, queued=1, paused=True, self_blocked=True), NESTED)),
    ("who_waits_for_itself_waits_for_holders", seen(row(limit=2, held=1, queued=1, self_blocked=True), NESTED)),
    ("who_waits_for_itself_waits_for_holders", seen(row(limit=0, queued=1, self_blocked=True), NESTED)),
    (
        "who_waits_for_itself_waits_for_holders",
        seen(row(limit=2, held=2, cooling=1, queued=1, self_blocked=True), NESTED),
    ),
    ("one_row_per_provider", inv.StatusSeen(CONFIG, (row(held=1), row(held=2)))),
    ("events_are_stamped_within_the_step", step(Do((acquire("r1"),)), told("granted r1", at=1))),
    ("events_are_stamped_within_the_step", step(Stall(500), told("recycled r1", at=200))),
    ("events_are_stamped_within_the_step", step(Advance(500), told("recycled r1", at=501))),
    ("refusals_name_their_operation", step(Do((Close(),)), (Refused(0, "close", 1, "invalid"),))),
    ("refusals_name_their_operation", step(Do((Close(),)), (Refused(0, "resume", 0, "invalid"),))),
    ("refusals_name_their_operation", step(Do((Resume("p"),)), (Refused(0, "resume", 0, "closed"),) * 2)),
    ("refusals_name_their_operation", step(Do((acquire("r"),)), (Refused(0, "acquire", 0, "queue_full"),))),
    ("refusals_name_their_operation", step(Do((CHILD,)), (Refused(0, "acquire", 0, "nested"),), config=NESTED)),
    (
        "refusals_name_their_operation",
        step(Do((replace(CHILD, timeout_ms=0),)), (Refused(0, "acquire", 0, "nested"),), config=NESTED_RAISE),
    ),
    (
        "who_would_wait_for_itself_is_refused",
        step(
            Do((CHILD,)),
            told("queued child"),
            row(limit=1, held=1, queued=1, self_blocked=True),
            unsettled=("child",),
            config=NESTED_RAISE,
        ),
    ),
    ("self_blocked_follows_the_paths", family(blocked=False)),
    ("self_blocked_follows_the_paths", family(blocked=True, ask=Do((*FAMILY.ops[:2], replace(CHILD, path=("b",)))))),
    (
        "self_blocked_follows_the_paths",
        family(blocked=True, ask=Do((*FAMILY.ops[:2], replace(CHILD, conversation="a", path=("a",))))),
    ),
    ("self_blocked_follows_the_paths", family(blocked=True, limit=2)),
    ("self_blocked_follows_the_paths", family(blocked=True, cooling=1)),
    (
        "a_refused_burst_changes_nothing",
        step(Do((SetLimit("p", -1),)), (Refused(0, "set_limit", 0, "invalid"),), row(limit=0)),
    ),
    (
        "a_refused_burst_changes_nothing",
        step(Do((SetLimit("p", -1),)), (Refused(0, "set_limit", 0, "invalid"), *told("granted r1"))),
    ),
    (
        "in_flight_rises_only_to_a_limit",
        step(Do((acquire("r"),)), told("granted r"), row(limit=1, held=2), before=(row(limit=1, held=1),)),
    ),
    (
        "in_flight_rises_only_to_a_limit",
        step(Do((SetLimit("p", 2),)), (), row(limit=2, held=4), before=(row(limit=1, held=3),)),
    ),
    (
        "a_pause_is_never_shortened",
        step(Advance(100), (), row(paused=True, paused_for_ms=800), before=(row(paused=True, paused_for_ms=1_000),)),
    ),
    (
        "a_pause_is_never_shortened",
        step(Do((SetLimit("p", 1),)), (), row(limit=1), before=(row(paused=True, paused_for_ms=1_000),)),
    ),
    ("a_pause_begins_and_ends_for_a_reason", step(Do((acquire("r"),)), (), row(paused=True, paused_for_ms=5))),
    ("a_pause_begins_and_ends_for_a_reason", step(Do((acquire("r"),)), (Resumed(0, "p"),))),
    ("a_sweep_is_no_operation", step(Do((acquire("r2"),)), told("reclaimed r1"))),
    ("who_does_not_wait_never_queues", step(Do((acquire("r", timeout=0),)), told("queued r"))),
    ("who_does_not_wait_never_queues", step(Do((TryAcquire("p", "r", None, 1),)), told("timed_out r"))),
    ("close_leaves_nothing_pending", step(Do((Close(),)), (), row(cooling=1))),
    ("close_leaves_nothing_pending", step(Do((Close(),)), (), unsettled=("r",))),
    ("close_leaves_nothing_pending", step(Do((Close(),)), (), timers=1)),
    # Runs: what each bug of a limiter would make of them.
    (
        "every_request_walks_the_table",
        run(HELD, exchange(Do((Release("r1"), Release("r1"))), told("released r1, released r1"))),
    ),
    ("every_request_walks_the_table", run(exchange(Do(()), told("granted ghost")))),
    ("every_request_walks_the_table", run(exchange(Do((acquire("r1"),)), told("granted r1", provider="q")))),
    ("every_request_walks_the_table", run(exchange(Do((acquire("r1"),)), told("recycled r1")))),
    (
        "every_request_walks_the_table",
        run(COOLING, exchange(Advance(200), (*told("recycled r1", at=200), *told("recycled r1", at=200)))),
    ),
    (
        "every_request_walks_the_table",
        run(
            exchange(Advance(9), (*told("granted r1", at=9), *told("released r1", at=8))),
            exchange(Do((acquire("r1"),))),
        ),
    ),
    ("counts_follow_the_events", run(HELD, exchange(Do((SetLimit("p", 1),)), (), row(limit=1)))),
    (
        "counts_follow_the_events",
        run(HELD, exchange(Do((Release("r1"), Release("r1"))), told("released r1"), row(cooling=2))),
    ),
    ("only_the_queued_are_unsettled", run((*WAITING[:3], ()))),
    ("only_the_queued_are_unsettled", run((*HELD[:3], ("r1",)))),
    (
        "grants_go_to_the_head",
        run(
            ASK,
            exchange(Do((Release("r1"),)), (*FREED, *told("granted r3")), row(limit=1, held=1, queued=1)),
            config=NO_COOLDOWN,
        ),
    ),
    (
        "grants_go_to_the_head",
        run(
            ASK,
            exchange(
                Do((Release("r1"), acquire("r4", 9))), (*FREED, *told("granted r4")), row(limit=1, held=1, queued=2)
            ),
        ),
    ),
    ("nothing_happens_after_close", run(CLOSED, exchange(Do((acquire("r2"),)), told("granted r2"), row(held=2)))),
    ("nothing_happens_after_close", run(CLOSED, exchange(Do((Release("r1"),)), told("released r1"), row(cooling=1)))),
    ("nothing_happens_after_close", run(CLOSED, exchange(Do((Release("r1"),)), FREED, row(cooling=1)))),
    ("nothing_happens_after_close", run(CLOSED, exchange(Do((acquire("r2"),)), (), row(held=1)))),
    (
        "nothing_happens_after_close",
        run(CLOSED, exchange(Do((Release("r1"),)), (Refused(0, "release", 0, "closed"),), row(held=1))),
    ),
    (
        "nothing_happens_after_close",
        run(CLOSED, exchange(Advance(9_000), told("reclaimed r1", at=6_000), row(reclaimed=1))),
    ),
    ("nothing_happens_after_close", scenario_run("close-leaves-nothing-behind", 3, timers=1)),
    (
        "status_shows_the_settings",
        scenario_run("a-pause-without-a-limit", 0, status=(row(limit=0, paused=True, paused_for_ms=1_000),)),
    ),
    ("status_shows_the_settings", run(exchange(Do((SetLimit("p", 2),))))),
    ("status_shows_the_settings", run(exchange(Do((SetCooldown("p", 5),))))),
    ("status_shows_the_settings", run(HELD, exchange(Do((Release("r1"),)), FREED, row()))),
    ("cooldowns_last_their_time", run(HELD, exchange(Do((Release("r1"),)), FREED))),
    ("cooldowns_last_their_time", run(COOLING, exchange(Advance(199), told("recycled r1", at=199)))),
    ("cooldowns_last_their_time", run(COOLING, exchange(Advance(300), told("recycled r1", at=201)))),
    ("cooldowns_last_their_time", run(COOLING, exchange(Advance(200), (), row(cooling=1)))),
    (
        "cooldowns_last_their_time",
        run(
            COOLING,
            exchange(Do((SetCooldown("p", 5),)), (), row(cooling=1)),
            exchange(Advance(5), told("recycled r1", at=5), row()),
        ),
    ),
    ("timeouts_are_punctual", run(WAITING, exchange(Advance(499), told("timed_out r1", at=499), row(limit=0)))),
    ("timeouts_are_punctual", run(WAITING, exchange(Advance(500), (), row(limit=0, queued=1), unsettled="r1"))),
    (
        "timeouts_are_punctual",
        run(ASK, exchange(Advance(500), told("timed_out r2", at=500), row(limit=1, held=1, queued=1))),
    ),
    ("pauses_have_the_length_of_the_rule", run(exchange(Do((RateLimited("p", 5),)), (Paused(0, "p", 5, 5),)))),
    ("pauses_have_the_length_of_the_rule", run(exchange(Do((RateLimited("p", -1),)), (Paused(0, "p", -1, 1_000),)))),
    (
        "pauses_have_the_length_of_the_rule",
        run(exchange(Do((RateLimited("p", True),)), (Paused(0, "p", True, 30_000),))),
    ),
    (
        "pauses_have_the_length_of_the_rule",
        run(exchange(Do((RateLimited("p", None),)), (Paused(0, "p", None, 1_000),))),
    ),
    (
        "pauses_end_when_they_are_due",
        run(
            PAUSED,
            exchange(
                Do((RateLimited("p", 1_000),)), (Paused(0, "p", 1_000, 1_000),), row(paused=True, paused_for_ms=1_000)
            ),
        ),
    ),
    ("pauses_end_when_they_are_due", run(PAUSED, exchange(Advance(1_999), (Resumed(1_999, "p"),)))),
    ("pauses_end_when_they_are_due", run(PAUSED, exchange(Advance(2_000), ()))),
    ("pauses_end_when_they_are_due", run(PAUSED, exchange(Advance(1_000), (), row()))),
    ("pauses_end_when_they_are_due", run(HELD, exchange(Advance(5), (Resumed(5, "p"),), row(held=1)))),
    (
        "nothing_is_granted_while_paused",
        run(PAUSED, exchange(Do((acquire("r1"),)), told("granted r1"), row(held=1, paused=True, paused_for_ms=2_000))),
    ),
    ("the_watchdog_reclaims_the_untouched", run(HELD, exchange(Advance(6_000), (), row(held=1)))),
    (
        "the_watchdog_reclaims_the_untouched",
        run(
            HELD,
            exchange(Stall(5_500), told("reclaimed r1", at=5_500), row(reclaimed=1)),
            exchange(Do((acquire("r2"),)), told("granted r2"), row(held=1, reclaimed=1)),
            exchange(Stall(7_000), (), row(held=1)),
        ),
    ),
    (
        "the_watchdog_reclaims_the_untouched",
        run(HELD, exchange(Advance(5_000), told("reclaimed r1", at=5_000), row(reclaimed=1))),
    ),
    (
        "the_watchdog_reclaims_the_untouched",
        run(HELD, exchange(Advance(6_000), told("reclaimed r1", at=5_500), row(reclaimed=1))),
    ),
    (
        "the_watchdog_reclaims_the_untouched",
        run(
            HELD,
            exchange(Advance(5_000), (), row(held=1)),
            exchange(Do((Touch("r1"),)), (), row(held=1)),
            exchange(Advance(1_000), told("reclaimed r1", at=6_000), row(reclaimed=1)),
        ),
    ),
    (
        "the_watchdog_reclaims_the_untouched",
        run(
            HELD,
            exchange(Advance(6_000), told("reclaimed r1", at=6_000), row(reclaimed=1)),
            config=replace(CONFIG, slot_timeout_ms=None),
        ),
    ),
    ("timers_are_few", scenario_run("one-timer-per-provider-whatever-the-load", 2, timers=3)),
]

GOOD: dict[str, Any] = {
    "row": [
        seen(row()),
        seen(row(limit=1, held=1, cooling=1, queued=3)),
        seen(row(paused=True, paused_for_ms=1, queued=1)),
    ],
    "status": [inv.StatusSeen(CONFIG, ()), inv.StatusSeen(CONFIG, (row(held=1), replace(row(held=1), provider="q")))],
    "step": [each for scenario in SCENARIOS for each in scenario_run(scenario).steps],
    "run": [scenario_run(scenario) for scenario in SCENARIOS],
}
BY_NAME = {each.name: each for each in inv.INVARIANTS}


@pytest.mark.parametrize("invariant", inv.INVARIANTS, ids=lambda each: each.name)
def test_an_invariant_accepts_the_good(invariant: inv.Invariant[Any]) -> None:
    assert [found for subject in GOOD[invariant.scope] if (found := invariant.check(subject)) is not None] == []


@pytest.mark.parametrize(("name", "fault"), FAULTS, ids=[f"{at}-{name}" for at, (name, _) in enumerate(FAULTS)])
def test_an_invariant_rejects_a_planted_fault(name: str, fault: Any) -> None:
    message = BY_NAME[name].check(fault)
    assert message, f"{name} accepts {fault}"


def test_every_invariant_has_a_planted_fault() -> None:
    assert {name for name, _ in FAULTS} == set(BY_NAME)
    assert len(BY_NAME) == len(inv.INVARIANTS)


def test_the_checks_collect_from_every_scope() -> None:
    faulty = run(
        ASK, exchange(Do((Release("r1"),)), told("released r1, recycled r1"), row(limit=1, queued=2), unsettled="r2 r3")
    )
    found = inv.check_run(faulty)
    assert {each.invariant for each in found} == {"nobody_waits_beside_room", "cooldowns_last_their_time"}
    assert [each.rule_ids for each in inv.check_status(faulty.steps[1].reply.status, CONFIG)] == [("ADM-5",)]
    assert [each.invariant for each in inv.check_step(faulty.steps[1])] == ["nobody_waits_beside_room"]
    assert inv.check_run(run(ASK)) == ()


# -- what can't be told is not judged --------------------------------------------------------------------------------

CALLBACK = Hook("queued", "p", (SetCooldown("p", 5), SetLimit("p", 3), Touch("r1"), Resume("p"), acquire("inner", 1)))
LENIENT: list[tuple[Callable[[], inv.Run], str]] = [
    (
        lambda: run(
            exchange(Do((CALLBACK, acquire("r1"), Release("r1"))), told("granted r1, released r1"), row(cooling=1)),
            exchange(Advance(5), told("recycled r1", at=5)),
        ),
        "a cooldown that a callback may have set",
    ),
    (
        lambda: run(
            exchange(Do((CALLBACK, acquire("r1"))), told("granted r1"), row(held=1)),
            exchange(Advance(6_000), (), row(held=1)),
        ),
        "a slot that a callback may have touched",
    ),
    (
        lambda: run(
            exchange(
                Do((CALLBACK, RateLimited("p", 9_000))),
                (Paused(0, "p", 9_000, 9_000),),
                row(paused=True, paused_for_ms=9_000),
            ),
            exchange(Advance(5), (Resumed(5, "p"),)),
        ),
        "a pause that a callback may have ended",
    ),
    (
        lambda: run(
            exchange(
                Do((SetCooldown("p", 1.5), acquire("r1"), Release("r1"))),
                told("granted r1, released r1"),
                row(cooling=1),
            ),
            exchange(Advance(1), told("recycled r1", at=1), row()),
        ),
        "a cooldown in fractions of a millisecond",
    ),
    (
        lambda: run(
            exchange(
                Do((RateLimited("p", 1_500.5),)),
                (Paused(0, "p", 1_500.5, 1_501),),
                row(paused=True, paused_for_ms=1_501),
            )
        ),
        "a report in fractions of a millisecond",
    ),
    (
        lambda: run(
            exchange(Do((acquire("r1"),)), told("granted r1"), row(held=1)),
            exchange(Advance(9_000), (), row(held=1)),
            config=replace(CONFIG, watchdog_interval_ms=0.5),
        ),
        "a grid in fractions of a millisecond",
    ),
    (
        lambda: run(
            exchange(
                Do((acquire("r1", float("nan")), SetLimit("p", 0), acquire("r2"))),
                (Refused(0, "acquire", 0, "invalid"), *told("queued r2")),
                row(limit=0, queued=1),
                unsettled="r2",
            )
        ),
        "prompt times that are no numbers",
    ),
    (
        lambda: run(
            exchange(
                Do((RateLimited("p", 2_000), Resume("p"), RateLimited("p", 1_000))),
                (Paused(0, "p", 2_000, 2_000), Resumed(0, "p"), Paused(0, "p", 1_000, 1_000)),
                row(paused=True, paused_for_ms=1_000),
            ),
            exchange(Advance(1_000), (Resumed(1_000, "p"),)),
        ),
        "the order of reports and a resume in one burst",
    ),
    (
        lambda: run(
            exchange(Do((Close(),))), exchange(Do((Release("x"), Close())), (SlotShown(0, "x", "free", False),))
        ),
        "inspecting after a close",
    ),
    (
        lambda: run(
            exchange(
                Do((SetLimit("p", 0), Acquire("p", "r1", None, "NaN"), acquire("r2"))),
                told("queued r1, queued r2"),
                row(limit=0, queued=2),
                unsettled="r1 r2",
            ),
            exchange(Do((SetLimit("p", 1),)), told("granted r2"), row(limit=1, held=1, queued=1), unsettled="r1"),
        ),
        "the order of what has no place in an order",
    ),
    (
        lambda: run(
            exchange(
                Do((RateLimited("p", 7),)),
                (Paused(0, "p", 7, 8),),
                row(paused=True, paused_for_ms=8),
            ),
            config=Config(default_pause_ms=0.5, min_pause_ms=0, max_pause_ms=8),
        ),
        "pauses of a configuration in fractions of a millisecond",
    ),
]


@pytest.mark.parametrize(("make", "what"), LENIENT, ids=[what for _, what in LENIENT])
def test_what_cannot_be_told_is_not_judged(make: Callable[[], inv.Run], what: str) -> None:
    assert inv.check_run(make()) == (), what
