"""The monitor: it accepts what the rules allow, and names the rule, event and slot of what they don't."""

import inspect
import itertools
import math
import random
import time

import pytest

from provider_concurrency_model import lifecycle, system
from provider_concurrency_model.findings import EVENT_KINDS, seconds_to_ns
from provider_concurrency_model.judging import RunJudge
from provider_concurrency_model.ledger import Lateness
from provider_concurrency_model.monitor import Monitor, MonitorConfig, ViolationError
from provider_concurrency_spec.vocabulary import (
    Acquire,
    Cancel,
    Close,
    Config,
    MalformedError,
    Paused,
    RateLimited,
    Refused,
    Release,
    RemoveLimit,
    Resume,
    Resumed,
    SetCooldown,
    SetLimit,
    SlotEvent,
    Touch,
)

MS = 1_000_000
COOLDOWN, TIMEOUT, SWEEP, PAUSE = 200, 5000, 1000, 30_000
CONFIG = MonitorConfig(
    limits={"p": 1},
    release_cooldown_ns=COOLDOWN,
    slot_timeout_ns=TIMEOUT,
    watchdog_interval_ns=SWEEP,
    default_pause_ns=PAUSE,
    min_pause_ns=0,
    max_pause_ns=21_600_000_000_000,
)
FREE = MonitorConfig(limits={"p": 1}, release_cooldown_ns=0, min_pause_ns=0)

Event = tuple[str, int, int, str | None, int | None, str | None, float | None, int, int, object]


def ev(event, request, op, t, post, value=None, *, provider="p", prompt=None) -> Event:
    """One event; `post` is (in_flight, queued), the prompt's age follows the arrival unless it is given."""
    age = None if request is None else float(request if prompt is None else prompt)
    return (event, op, t, provider, request, None if request is None else f"c{request}", age, *post, value)


def conf(event, op, t, post, value=None, *, provider="p") -> Event:
    """A provider event."""
    return (event, op, t, provider, None, None, None, *post, value)


def closed(op, t) -> Event:
    return ("closed", op, t, None, None, None, None, 0, 0, None)


HANDOVER = [  # a holder and a waiter at limit 1
    ev("granted", 1, 0, 0, (1, 0)),
    ev("queued", 2, 1, 10, (1, 1)),
    ev("released", 1, 2, 20, (1, 1)),
    ev("recycled", 1, 3, 220, (0, 1)),
    ev("granted", 2, 3, 220, (1, 0)),
    ev("released", 2, 4, 300, (1, 0)),
    ev("recycled", 2, 5, 555, (0, 0)),
]

GOOD = {
    "handover": (CONFIG, HANDOVER),
    "oldest prompt first, arrival as tie-break": (
        MonitorConfig(limits={"p": 1}, release_cooldown_ns=0),
        [
            ev("granted", 1, 0, 0, (1, 0)),
            ev("queued", 2, 1, 1, (1, 1), prompt=200),
            ev("queued", 3, 2, 2, (1, 2), prompt=100),
            ev("queued", 4, 3, 3, (1, 3), prompt=100),
            ev("released", 1, 4, 4, (1, 3)),
            ev("recycled", 1, 4, 4, (0, 3)),
            ev("granted", 3, 4, 4, (1, 2), prompt=100),
            ev("cancelled", 3, 5, 5, (0, 2), prompt=100),
            ev("granted", 4, 5, 5, (1, 1), prompt=100),
            ev("released", 4, 6, 6, (1, 1), prompt=100),
            ev("recycled", 4, 6, 6, (0, 1), prompt=100),
            ev("granted", 2, 6, 6, (1, 0), prompt=200),
        ],
    ),
    "leaving the queue": (
        CONFIG,
        [
            ev("granted", 1, 0, 0, (1, 0)),
            ev("timed_out", 2, 1, 1, (1, 0)),
            ev("queued", 3, 2, 1, (1, 1)),
            ev("queued", 4, 3, 1, (1, 2)),
            ev("cancelled", 3, 4, 2, (1, 1)),
            ev("timed_out", 4, 5, 50, (1, 0)),
            ev("cancelled", 1, 6, 60, (0, 0)),
            ev("granted", 5, 7, 60, (1, 0)),
        ],
    ),
    "a pause, extended, not shortened, over late": (
        CONFIG,
        [
            conf("paused", 0, 0, (0, 0), (1e-6, 1000)),
            ev("queued", 1, 1, 10, (0, 1)),
            conf("paused", 2, 500, (0, 1), (1e-6, 1000)),
            conf("paused", 3, 600, (0, 1), (1e-8, 200)),  # at least the cooldown (PAU-2)
            conf("resumed", 4, 1700, (0, 1)),
            ev("granted", 1, 4, 1700, (1, 0)),
        ],
    ),
    "a pause ended by resume": (
        CONFIG,
        [
            conf("paused", 0, 0, (0, 0), (None, PAUSE)),
            ev("queued", 1, 1, 10, (0, 1)),
            conf("resumed", 2, 20, (0, 1)),
            ev("granted", 1, 2, 20, (1, 0)),
        ],
    ),
    "a pause of 0": (FREE, [conf("paused", 0, 5, (0, 0), (0.0, 0)), conf("resumed", 0, 5, (0, 0))]),
    "a reclaim": (
        CONFIG,
        [
            ev("granted", 1, 0, 0, (1, 0)),
            ev("queued", 2, 1, 1, (1, 1)),
            ev("reclaimed", 1, 2, 6000, (1, 1), 999),
            ev("recycled", 1, 3, 6200, (0, 1)),
            ev("granted", 2, 3, 6200, (1, 0)),
        ],
    ),
    "limits": (
        CONFIG,
        [
            ev("granted", 1, 0, 0, (1, 0), provider="q"),
            ev("granted", 2, 1, 0, (2, 0), provider="q"),
            conf("limit_set", 2, 1, (2, 0), 1, provider="q"),
            ev("queued", 3, 3, 2, (2, 1), provider="q"),
            conf("limit_set", 4, 3, (2, 1), 0, provider="q"),
            conf("limit_removed", 5, 4, (2, 1), provider="q"),
            ev("granted", 3, 5, 4, (3, 0), provider="q"),
        ],
    ),
    "a cooldown of a provider's own, for later releases": (
        CONFIG,
        [
            conf("limit_set", 0, 0, (0, 0), 2),
            ev("granted", 1, 1, 0, (1, 0)),
            ev("granted", 2, 2, 0, (2, 0)),
            ev("released", 1, 3, 10, (2, 0)),
            conf("cooldown_set", 4, 20, (2, 0), 50),
            ev("released", 2, 5, 30, (2, 0)),
            ev("recycled", 2, 6, 80, (1, 0)),
            conf("cooldown_set", 7, 90, (1, 0), None),
            ev("recycled", 1, 8, 210, (0, 0)),
            conf("limit_removed", 9, 211, (0, 0)),
        ],
    ),
    "close": (
        CONFIG,
        [
            conf("limit_set", 0, 0, (0, 0), 2),
            ev("granted", 1, 1, 0, (1, 0)),
            ev("granted", 2, 2, 0, (2, 0)),
            ev("queued", 3, 3, 1, (2, 1)),
            ev("queued", 4, 4, 1, (2, 2), prompt=0),
            conf("paused", 5, 2, (2, 2), (None, PAUSE)),
            ev("released", 1, 6, 3, (2, 2)),
            closed(7, 4),
            ev("rejected", 4, 7, 4, (2, 1), prompt=0),
            ev("rejected", 3, 7, 4, (2, 0)),
            ev("recycled", 1, 7, 4, (1, 0)),
            ev("released", 2, 8, 5, (1, 0)),
            ev("recycled", 2, 8, 5, (0, 0)),
        ],
    ),
    "two deadlines applied late by one operation, in order": (
        MonitorConfig(limits={"p": 2}, release_cooldown_ns=COOLDOWN, min_pause_ns=0),
        [
            ev("granted", 1, 0, 0, (1, 0)),
            ev("granted", 2, 1, 0, (2, 0)),
            ev("released", 2, 2, 10, (2, 0)),
            ev("released", 1, 3, 20, (2, 0)),
            conf("paused", 4, 20, (2, 0), (2e-7, 200)),
            ev("recycled", 2, 5, 900, (1, 0)),
            ev("recycled", 1, 5, 900, (0, 0)),
            conf("resumed", 5, 900, (0, 0)),
            ev("granted", 3, 5, 900, (1, 0)),
        ],
    ),
}

PAUSED = [conf("paused", 0, 0, (0, 0), (None, PAUSE)), ev("queued", 1, 1, 10, (0, 1))]
HELD = [ev("granted", 1, 0, 0, (1, 0))]
WAITED = [*HELD, ev("queued", 2, 1, 10, (1, 1)), ev("queued", 3, 2, 11, (1, 2))]
COOLING = [*HELD, ev("released", 1, 1, 10, (1, 0))]
ENDED = [*COOLING, ev("recycled", 1, 2, 210, (0, 0))]
CLOSED = [*HELD, closed(1, 5)]
FREED = [*WAITED, ev("cancelled", 1, 3, 20, (0, 2))]
TWO = [
    conf("limit_set", 0, 0, (0, 0), 2),
    ev("granted", 1, 1, 0, (1, 0)),
    ev("granted", 2, 2, 0, (2, 0)),
]
COOLING_TWO = [*TWO, ev("released", 1, 3, 10, (2, 0)), ev("released", 2, 4, 20, (2, 0))]

BAD = {
    # what the table has no row for
    "a doubled grant": ("ADM-2", CONFIG, [*HELD, ev("granted", 1, 1, 5, (1, 0))]),
    "a grant after the end": ("ACC-2", CONFIG, [*ENDED, ev("granted", 1, 3, 220, (0, 0))]),
    "a second end": ("ACC-2", CONFIG, [*ENDED, ev("recycled", 1, 3, 220, (0, 0))]),
    "a cancel after the end": ("ACC-2", CONFIG, [*ENDED, ev("cancelled", 1, 3, 220, (0, 0))]),
    "a second cooldown": ("REL-1", CONFIG, [*COOLING, ev("released", 1, 2, 20, (1, 0))]),
    "free without a release": ("REL-3", CONFIG, [*HELD, ev("recycled", 1, 1, 5, (0, 0))]),
    "a release of a waiter": ("REL-1", CONFIG, [*WAITED, ev("released", 2, 3, 20, (2, 1))]),
    "queued while held": ("ADM-1", CONFIG, [*HELD, ev("queued", 1, 1, 5, (0, 1))]),
    "queued twice": ("ADM-1", CONFIG, [*WAITED, ev("queued", 2, 3, 15, (1, 2))]),
    "timed out while held": ("CAN-3", CONFIG, [*HELD, ev("timed_out", 1, 1, 5, (0, 0))]),
    "cancelled while cooling": ("CAN-2", CONFIG, [*COOLING, ev("cancelled", 1, 2, 20, (0, 0))]),
    "rejected while held": ("CLO-1", CONFIG, [*CLOSED, ev("rejected", 1, 2, 6, (0, 0))]),
    "reclaimed while cooling": ("WAT-1", CONFIG, [*COOLING, ev("reclaimed", 1, 2, 6000, (1, 0), 0)]),
    "resumed while open": ("PAU-5", CONFIG, [conf("resumed", 0, 5, (0, 0))]),
    "closed twice": ("CLO-1", CONFIG, [*CLOSED, closed(2, 6)]),
    # admission and order
    "past the limit": ("ADM-4", CONFIG, [*HELD, ev("granted", 2, 1, 5, (2, 0))]),
    "past the default limit": (
        "ADM-4",
        MonitorConfig(default_limit=0),
        [ev("granted", 1, 0, 0, (1, 0))],
    ),
    "past a lowered limit": (
        "ADM-4",
        CONFIG,
        [*TWO, conf("limit_set", 3, 1, (2, 0), 1), ev("cancelled", 1, 4, 2, (1, 0)), ev("granted", 3, 5, 3, (2, 0))],
    ),
    "while paused": ("ADM-4", CONFIG, [*PAUSED, ev("granted", 1, 2, 20, (1, 0))]),
    "while paused, at once": ("ADM-4", CONFIG, [PAUSED[0], ev("granted", 1, 1, 20, (1, 0))]),
    "a newcomer barges": ("ADM-1", CONFIG, [*FREED, ev("granted", 4, 3, 20, (1, 2))]),
    "queued beside room": ("ADM-1", CONFIG, [ev("queued", 1, 0, 0, (0, 1)), ev("granted", 1, 0, 0, (1, 0))]),
    "timed out beside room": ("ADM-1", CONFIG, [ev("timed_out", 1, 0, 0, (0, 0))]),
    "a queue too long": ("ADM-7", MonitorConfig(default_limit=0, max_queued=1), [
        ev("queued", 1, 0, 0, (0, 1)), ev("queued", 2, 1, 0, (0, 2)),
    ]),
    "a skipped waiter": ("ORD-1", CONFIG, [*FREED, ev("granted", 3, 3, 20, (1, 1))]),
    "a lost wake-up": ("ADM-5", CONFIG, [*FREED, ev("queued", 4, 4, 30, (0, 3))]),
    "no admission after resume": ("ADM-5", CONFIG, [*PAUSED, conf("resumed", 2, PAUSE, (0, 1)), closed(3, PAUSE)]),
    "no admission after a limit is removed": (
        "ADM-5",
        CONFIG,
        [*WAITED, conf("limit_removed", 3, 20, (1, 2)), ev("timed_out", 2, 4, 21, (1, 1))],
    ),
    # accounting
    "in_flight miscounted": ("ACC-1", CONFIG, [ev("granted", 1, 0, 0, (0, 0))]),
    "queued miscounted": ("ACC-1", CONFIG, [*HELD, ev("queued", 2, 1, 10, (1, 0))]),
    "holders from before the limit forgotten": (
        "ACC-1",
        CONFIG,
        [ev("granted", 1, 0, 0, (1, 0), provider="q"), conf("limit_set", 1, 1, (0, 0), 1, provider="q")],
    ),
    "closed with counts": ("ACC-1", CONFIG, [("closed", 0, 0, None, None, None, None, 1, 0, None)]),
    "a slot of another provider": ("ACC-1", CONFIG, [*HELD, ev("released", 1, 1, 5, (0, 0), provider="q")]),
    "a bad limit": ("LIM-1", CONFIG, [conf("limit_set", 0, 0, (0, 0), -1)]),
    "a bad cooldown": ("ACC-4", CONFIG, [conf("cooldown_set", 0, 0, (0, 0), 1.5)]),
    # cooldown
    "recycled a tick early": ("REL-3", CONFIG, [*COOLING, ev("recycled", 1, 2, 209, (0, 0))]),
    "recycled early after a reclaim": (
        "REL-3",
        CONFIG,
        [*HELD, ev("reclaimed", 1, 1, 6000, (1, 0), 0), ev("recycled", 1, 2, 6199, (0, 0))],
    ),
    "a cooldown shortened by a later configuration": (
        "REL-3",
        CONFIG,
        [*COOLING, conf("cooldown_set", 2, 15, (1, 0), 50), ev("recycled", 1, 3, 65, (0, 0))],
    ),
    "a cooldown of 0 that outlives its call": (
        "REL-1",
        FREE,
        [*COOLING, ev("recycled", 1, 2, 10, (0, 0))],
    ),
    "deadlines out of order": (
        "TIM-3",
        CONFIG,
        [*COOLING_TWO, ev("recycled", 2, 5, 900, (1, 0)), ev("recycled", 1, 5, 900, (0, 0))],
    ),
    "a tie not by arrival": (
        "TIM-3",
        CONFIG,
        [
            *TWO,
            ev("released", 2, 3, 10, (2, 0)),
            ev("released", 1, 4, 10, (2, 0)),
            ev("recycled", 2, 5, 210, (1, 0)),
            ev("recycled", 1, 5, 210, (0, 0)),
        ],
    ),
    "a pause over before the cooldown due with it": (
        "TIM-3",
        CONFIG,
        [
            *COOLING,
            conf("paused", 2, 10, (1, 0), (2e-7, 200)),
            conf("resumed", 3, 210, (1, 0)),
            ev("recycled", 1, 3, 210, (0, 0)),
        ],
    ),
    # pauses
    "a pause of the wrong length": ("PAU-2", CONFIG, [conf("paused", 0, 0, (0, 0), (1e-6, 500))]),
    "a pause shorter than the cooldown": ("PAU-2", CONFIG, [conf("paused", 0, 0, (0, 0), (1e-7, 100))]),
    "a negative request that isn't the default": ("PAU-2", CONFIG, [conf("paused", 0, 0, (0, 0), (-1.0, 0))]),
    "a pause of 0 that outlives its call": (
        "PAU-5",
        FREE,
        [conf("paused", 0, 5, (0, 0), (0.0, 0)), ev("queued", 1, 1, 5, (0, 1))],
    ),
    "resumed early by an operation that isn't resume": (
        "PAU-5",
        CONFIG,
        [*PAUSED, conf("paused", 2, 20, (0, 1), (3e-7, 300)), conf("resumed", 2, 20, (0, 1))],
    ),
    # watchdog
    "reclaimed at exactly slot_timeout": ("WAT-1", CONFIG, [*HELD, ev("reclaimed", 1, 1, 5000, (1, 0), 0)]),
    "reclaimed with the watchdog off": (
        "WAT-1",
        MonitorConfig(slot_timeout_ns=None),
        [*HELD, ev("reclaimed", 1, 1, 10**15, (1, 0), 0)],
    ),
    "reclaimed before the first sweep": (
        "WAT-1",
        MonitorConfig(slot_timeout_ns=10, watchdog_interval_ns=1000),
        [*HELD, ev("reclaimed", 1, 1, 999, (1, 0), 0)],
    ),
    "touched before the grant": (
        "WAT-2",
        CONFIG,
        [ev("granted", 1, 0, 500, (1, 0)), ev("reclaimed", 1, 1, 6000, (1, 0), 499)],
    ),
    "swept out of grant order": (
        "TIM-3",
        CONFIG,
        [*TWO, ev("reclaimed", 2, 3, 6000, (2, 0), 0), ev("reclaimed", 1, 3, 6000, (2, 0), 0)],
    ),
    # close
    "rejected while open": ("CLO-1", CONFIG, [*WAITED, ev("rejected", 2, 3, 20, (1, 1))]),
    "rejected out of order": (
        "CLO-1",
        CONFIG,
        [*WAITED, closed(3, 20), ev("rejected", 3, 3, 20, (1, 1)), ev("rejected", 2, 3, 20, (1, 0))],
    ),
    "granted after close": ("CLO-1", CONFIG, [closed(0, 0), ev("granted", 1, 1, 0, (1, 0))]),
    "paused after close": ("CLO-1", CONFIG, [closed(0, 0), conf("paused", 1, 0, (0, 0), (None, PAUSE))]),
    "a limit after close": ("CLO-1", CONFIG, [closed(0, 0), conf("limit_set", 1, 0, (0, 0), 1)]),
    "reclaimed after close": ("CLO-1", CONFIG, [*CLOSED, ev("reclaimed", 1, 2, 6000, (1, 0), 0)]),
    "a close that leaves waiters": ("CLO-1", CONFIG, [*WAITED, closed(3, 20), ev("cancelled", 1, 4, 21, (0, 2))]),
    "a cooldown that outlives close": ("CLO-1", CONFIG, [*CLOSED, ev("released", 1, 2, 6, (1, 0)), closed(3, 7)]),
    # time and order of events
    "time going back": ("TIM-1", CONFIG, [ev("granted", 1, 0, 9, (1, 0)), ev("released", 1, 1, 8, (1, 0))]),
    "operations going back": ("CAL-2", CONFIG, [ev("granted", 1, 3, 9, (1, 0)), ev("released", 1, 2, 9, (1, 0))]),
}  # fmt: skip


def watch(config, events, **options) -> Monitor:
    monitor = Monitor(config, **options)
    for event in events:
        monitor(*event)
    return monitor


@pytest.mark.parametrize("machine", [False, True], ids=["table", "machine"])
@pytest.mark.parametrize("name", GOOD)
def test_a_good_run_is_clean(name: str, machine: bool) -> None:
    config, events = GOOD[name]
    monitor = watch(config, events, machine=machine)
    monitor.assert_at_rest()
    assert monitor.first is None
    assert monitor.events == len(events)
    counted = {event: number for event, number in monitor.counts.items() if number}
    assert counted == {name: sum(event[0] == name for event in events) for name in {event[0] for event in events}}


@pytest.mark.parametrize("machine", [False, True], ids=["table", "machine"])
@pytest.mark.parametrize("name", BAD)
def test_a_bad_run_is_named(name: str, machine: bool) -> None:
    rule, config, events = BAD[name]
    monitor = watch(config, events, machine=machine)
    first = monitor.first
    assert first is not None
    assert first.rule == rule
    with pytest.raises(ViolationError, match=rule):
        monitor.assert_clean()
    assert all(watch(config, events[:length], machine=machine).first is None for length in range(first.index + 1)), (
        "nothing before it is at fault"
    )


@pytest.mark.parametrize("name", GOOD)
def test_every_prefix_of_a_good_run_is_good(name: str) -> None:
    config, events = GOOD[name]
    for length in range(len(events)):
        watch(config, events[:length]).assert_clean()


def test_both_engines_find_the_same_everywhere() -> None:
    for _, config, events in BAD.values():
        assert watch(config, events).violations == watch(config, events, machine=True).violations


def test_the_first_violation_tells_the_slot_s_history() -> None:
    monitor = watch(CONFIG, BAD["a second end"][2])
    first = monitor.first
    assert first is not None
    assert first.index == 3
    assert (first.event.event, first.event.request, first.event.conversation_id) == ("recycled", 1, "c1")
    assert first.history == (("granted", 0, 0), ("released", 1, 10), ("recycled", 2, 210), ("recycled", 3, 220))
    for word in ("ACC-2", "request 1 of 'p'", "'c1'", "event 3", "granted at 0 (op 0)"):
        assert word in str(first)


def test_a_lost_wake_up_names_the_operation_s_last_event_and_who_waits() -> None:
    first = watch(CONFIG, BAD["a lost wake-up"][2]).first
    assert first is not None
    assert first.event.event == "cancelled"
    assert first.history[0][0] == "queued"
    assert "2 wait at 'p': in_flight 0, limit 1" in first.message


def test_the_last_operation_is_judged_on_request() -> None:
    monitor = watch(CONFIG, FREED)
    monitor.assert_clean()
    with pytest.raises(ViolationError, match="ADM-5"):
        monitor.assert_at_rest()


def test_judging_rest_between_operations_changes_nothing() -> None:
    monitor = Monitor(CONFIG)
    for before, event in zip([None, *HANDOVER], HANDOVER, strict=False):
        if before is not None and before[1] != event[1]:
            monitor.assert_at_rest()
        monitor(*event)
    monitor.assert_at_rest()


def test_without_resume_an_early_end_of_a_pause_is_a_violation() -> None:
    config, events = GOOD["a pause ended by resume"]
    assert watch(config, events).early_resumes == 1
    first = watch(config, events, resumes=False).first
    assert first is not None
    assert first.rule == "PAU-5"


def test_one_fault_is_told_once() -> None:
    """A leaked slot makes every later count differ by one."""
    shifted = [(*event[:7], event[7] + 1, *event[8:]) for event in HANDOVER[1:]]
    monitor = watch(CONFIG, [HANDOVER[0], *shifted])
    assert [violation.rule for violation in monitor.violations] == ["ACC-1", "ADM-6"]


def test_a_rise_above_the_limit_by_the_manager_s_own_count() -> None:
    monitor = watch(CONFIG, [*HELD, ev("queued", 2, 1, 5, (2, 1))])
    assert [violation.rule for violation in monitor.violations] == ["ACC-1", "ADM-6"]


def test_the_manager_s_word_is_taken_after_a_violation() -> None:
    """What follows an illegal transition is judged from where the manager says that it is."""
    dropped = [ev("released", 1, 1, 10, (1, 0)), ev("cancelled", 1, 1, 10, (0, 0)), ev("granted", 2, 2, 11, (1, 0))]
    assert [found.rule for found in watch(FREE, [*HELD, *dropped]).violations] == ["CAN-2"]
    again = [ev("queued", 2, 3, 15, (1, 3)), ev("cancelled", 2, 4, 16, (1, 2)), ev("cancelled", 1, 5, 17, (0, 2))]
    monitor = watch(CONFIG, [*WAITED, *again, ev("granted", 3, 5, 17, (1, 1))])
    assert [found.rule for found in monitor.violations] == ["ADM-1", "ACC-1"]


def test_an_end_long_ago_is_known_without_its_history() -> None:
    monitor = watch(CONFIG, lives(100))
    monitor(*ev("released", 3, 10_000, 10**9, (0, 0)))
    first = monitor.first
    assert first is not None
    assert (first.rule, first.history) == ("ACC-2", ())


def test_a_machine_that_disagrees_with_the_table_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(lifecycle.SLOT_TABLE, ("held", "released"), "free")
    with pytest.raises(AssertionError, match="the table goes to free, the machine to cooling"):
        watch(CONFIG, COOLING, machine=True)


def test_violations_are_capped_but_counted() -> None:
    monitor = watch(CONFIG, [*ENDED, *(ev("recycled", 1, op, 220, (0, 0)) for op in range(3, 500))])
    assert monitor.violation_count == 497
    assert len(monitor.violations) == 100
    with pytest.raises(ViolationError, match="and 496 more"):
        monitor.assert_clean()


def test_raising_monitor_raises_at_the_event() -> None:
    monitor = watch(CONFIG, HELD, raising=True)
    with pytest.raises(ViolationError) as caught:
        monitor(*ev("granted", 1, 1, 5, (1, 0)))
    assert caught.value.violation.rule == "ADM-2"


def test_live_counts_and_peaks() -> None:
    monitor = watch(CONFIG, [*TWO, ev("queued", 3, 3, 1, (2, 1)), ev("released", 1, 4, 2, (2, 1))])
    counts = monitor.providers()["p"]
    assert (counts.limit, counts.in_flight, counts.held, counts.cooling, counts.queued) == (2, 2, 1, 1, 1)
    assert (counts.peak_in_flight, counts.peak_queued, counts.paused, counts.reclaimed) == (2, 1, False, 0)
    assert monitor.live_slots == 3
    swept = watch(CONFIG, [*HELD, ev("reclaimed", 1, 1, 6000, (1, 0), 0)]).providers()["p"]
    assert (swept.held, swept.reclaimed, swept.cooling) == (0, 1, 0)


def test_lateness_is_measured() -> None:
    monitor = watch(CONFIG, HANDOVER)
    late = monitor.lateness["recycled"]
    assert (late.count, late.max_ns, late.total_ns) == (2, 55, 55)
    config, events = GOOD["a pause, extended, not shortened, over late"]
    assert watch(config, events).lateness["resumed"].max_ns == 200


def test_quantiles_are_upper_bounds_within_a_quarter() -> None:
    late = Lateness()
    assert late.quantile(0.5) == 0
    values = [number * 137 for number in range(1, 1001)]
    for value in values:
        late.add(value)
    for share in (0.01, 0.5, 0.99, 1.0):
        exact = values[math.ceil(share * len(values)) - 1]
        assert exact <= late.quantile(share) <= exact * 1.25


@pytest.mark.parametrize(
    "event",
    [
        ev("nonsense", 1, 0, 0, (0, 0)),
        ev("granted", None, 0, 0, (1, 0)),
        ev("granted", 1, 0, 0, (1, 0), provider=None),
        ev("closed", None, 0, 0, (0, 0)),
    ],
)
def test_what_is_no_event_is_refused(event: Event) -> None:
    with pytest.raises(ValueError, match="no event"):
        Monitor(CONFIG)(*event)


@pytest.mark.parametrize(
    ("requested", "applied", "may"),
    [
        (None, PAUSE, True), (math.nan, PAUSE, True), (-3.0, PAUSE, True), (True, PAUSE, True), ("2", PAUSE, True),
        (math.inf, 10**12, True), (None, 10**12, True), (-math.inf, 10**12, False), (math.inf, PAUSE, False),
        (1e300, 10**12, True), (5e-6, 5000, True), (5e-6, 5001, True), (5e-6, 5003, False), (0, 700, True),
        (0, 0, False), (3e-7, 700, True),
    ],
)  # fmt: skip
def test_the_length_of_a_pause(requested, applied: int, may: bool) -> None:
    config = MonitorConfig(release_cooldown_ns=700, min_pause_ns=500, default_pause_ns=PAUSE, max_pause_ns=10**12)
    monitor = watch(config, [conf("paused", 0, 0, (0, 0), (requested, applied))])
    assert (monitor.first is None) is may


def test_configuration_from_the_manager_s_keywords() -> None:
    assert MonitorConfig.from_seconds() == MonitorConfig()
    config = MonitorConfig.from_seconds(limits={"p": 2}, release_cooldown=0.057, slot_timeout=None, min_pause=1e-10)
    assert (config.release_cooldown_ns, config.slot_timeout_ns, config.min_pause_ns) == (57_000_000, None, 1)
    monitor = Monitor.from_seconds(limits={"p": 1}, release_cooldown=2e-7)
    for event in HANDOVER:
        monitor(*event)
    monitor.assert_at_rest()


@pytest.mark.parametrize("seconds", [0.1, 0.2, 0.3, 1.1, 1.001, 0.29, 4.35, 123.456, 1e-9, 0.057])
def test_seconds_round_up_from_what_was_written(seconds: float) -> None:
    assert seconds_to_ns(seconds) == round(seconds * 1e9)
    assert seconds_to_ns(seconds) <= math.ceil(seconds * 1e9), "never later than any careful manager's reading"


def test_a_bad_header_is_refused() -> None:
    with pytest.raises(MalformedError, match="limits"):
        MonitorConfig.from_header({})
    with pytest.raises(MalformedError, match="config"):
        MonitorConfig.from_header(3)


def test_observer_judge_and_monitor_have_one_signature() -> None:
    names = list(inspect.signature(Monitor.__call__).parameters)[1:]
    assert names == list(inspect.signature(RunJudge.feed).parameters)[1:]
    assert names == [
        "event", "op", "t_ns", "provider", "request", "conversation_id", "prompt_started_at", "in_flight", "queued",
        "value",
    ]  # fmt: skip
    assert set(EVENT_KINDS) == set(Monitor().counts)


def lives(number: int):
    """Requests that come and go, one after another: six events of two slots, over and over."""
    for turn in range(number):
        t, op, first = turn * 1000, turn * 10, turn * 2
        yield ev("granted", first, op, t, (1, 0))
        yield ev("queued", first + 1, op + 1, t, (1, 1))
        yield ev("released", first, op + 2, t + 10, (1, 1))
        yield ev("recycled", first, op + 3, t + 210, (0, 1))
        yield ev("granted", first + 1, op + 3, t + 210, (1, 0))
        yield ev("cancelled", first + 1, op + 4, t + 220, (0, 0))


def test_memory_is_per_live_slot() -> None:
    monitor = watch(CONFIG, lives(1000))
    monitor.assert_at_rest()
    assert monitor.live_slots == 0


def test_cancelled_waiters_leave_no_memory_behind() -> None:
    monitor = watch(CONFIG, HELD)
    for request in range(2, 2000):
        monitor(*ev("queued", request, 2 * request, 5, (1, 1)))
        monitor(*ev("cancelled", request, 2 * request + 1, 5, (1, 0)))
    monitor.assert_clean()
    assert len(monitor._judge._ledger.books["p"].heap) <= 40


def test_idle_providers_are_forgotten() -> None:
    monitor = Monitor(CONFIG)
    for request in range(2000):
        name = f"q{request}"
        monitor(*ev("granted", request, 2 * request, 5, (1, 0), provider=name))
        monitor(*ev("cancelled", request, 2 * request + 1, 5, (0, 0), provider=name))
    monitor.assert_at_rest()
    assert len(monitor.providers()) < 200


def test_the_machine_alongside_stays_within_its_budget() -> None:
    """W8: at most 100 us of CPU per request, here with room for a slow machine."""
    events = list(lives(500))
    monitor = Monitor(CONFIG, machine=True)
    began = time.process_time()  # counts in steps of up to 10 ms
    for event in events:
        monitor(*event)
    assert (time.process_time() - began) / 1000 < 400e-6


# -- the model's runs ------------------------------------------------------------------------------------------------


def observe(state, events, before, op: int, counts, announced=()):
    """The model's events as an observer would have them; `announced` are the configuration events that it lacks."""
    slots = {slot.request: slot for slot in (*before.slots, *state.ended, *state.slots)}
    touched = {slot.request: slot.touched_ms for slot in before.slots}
    waiting = {slot.request for slot in before.slots if slot.state == "queued"}
    yield from (
        (name, op, state.now_ms * MS, p, None, None, None, *counts.get(p, (0, 0)), v) for name, p, v in announced
    )
    for event in events:
        match event:
            case SlotEvent(name, at_ms, provider, request):
                slot = slots[request]
                in_flight, queued = counts.get(provider, (0, 0))
                was_queued = request in waiting
                in_flight += (name == "granted") - (name == "recycled") - (name == "cancelled" and not was_queued)
                queued += (name == "queued") - was_queued * (name in ("granted", "cancelled", "timed_out", "rejected"))
                counts[provider] = (in_flight, queued)
                (waiting.add if name == "queued" else waiting.discard)(request)
                touch = touched[request] * MS if name == "reclaimed" else None
                prompt = slot.prompt_started_at
                yield name, op, at_ms * MS, provider, slot.arrival, None, prompt, in_flight, queued, touch
            case Paused(at_ms, provider, requested, applied):
                value = (requested / 1000 if type(requested) is int else None, applied * MS)
                yield "paused", op, at_ms * MS, provider, None, None, None, *counts.get(provider, (0, 0)), value
            case Resumed(at_ms, provider):
                yield "resumed", op, at_ms * MS, provider, None, None, None, *counts.get(provider, (0, 0)), None


def random_operation(rng: random.Random, number: int):
    provider = rng.choice("pq")
    request = f"r{rng.randrange(max(number - 12, 0), number + 1)}"
    kind = rng.randrange(16)
    if kind < 6:
        timeout = rng.choice([None, None, 0, 3, 7])
        return Acquire(provider, f"r{number}", None, rng.randrange(4), timeout)
    if kind < 10:
        return Release(request)
    return {
        10: Cancel(request),
        11: Touch(request),
        12: SetLimit(provider, rng.randrange(4)),
        13: rng.choice([RemoveLimit(provider), SetCooldown(provider, rng.choice([None, 0, 2, 9]))]),
        14: RateLimited(provider, rng.choice([None, 0, 3, 8, "NaN", "Infinity"])),
        15: Resume(provider),
    }[kind]


@pytest.mark.parametrize("seed", range(40))
def test_what_the_model_does_is_legal_to_the_monitor(seed: int) -> None:
    """Two readings of the rules, written apart, on random runs; deadlines are noticed late now and then."""
    rng = random.Random(seed)
    settings = Config(
        release_cooldown_ms=rng.choice([0, 4]),
        slot_timeout_ms=rng.choice([None, 6]),
        watchdog_interval_ms=5,
        default_pause_ms=6,
        min_pause_ms=0,
        max_pause_ms=12,
        max_queued=rng.choice([None, 2]),
        default_limit=rng.choice([None, 1, 2]),
    )
    timeout = settings.slot_timeout_ms
    monitor = Monitor(
        MonitorConfig(
            default_limit=settings.default_limit,
            release_cooldown_ns=settings.release_cooldown_ms * MS,
            slot_timeout_ns=None if timeout is None else timeout * MS,
            watchdog_interval_ns=5 * MS,
            default_pause_ns=6 * MS,
            min_pause_ns=0,
            max_pause_ns=12 * MS,
            max_queued=settings.max_queued,
        ),
        machine=seed % 8 == 0,
    )
    state, counts, ops = system.new(settings), {}, itertools.count()

    def do(operation, announced=()) -> None:
        nonlocal state
        before = state
        state, events = system.step(before, operation)
        if any(isinstance(event, Refused) for event in events):
            announced = ()
        for event in observe(state, events, before, next(ops), counts, announced):
            monitor(*event)

    for number in range(150):
        operation = Close() if number == 140 else random_operation(rng, number)
        announced = ()
        match operation:
            case SetLimit(provider, limit):
                announced = (("limit_set", provider, limit),)
            case RemoveLimit(provider):
                announced = (("limit_removed", provider, None),)
            case SetCooldown(provider, cooldown):
                announced = (("cooldown_set", provider, None if cooldown is None else cooldown * MS),)
            case Close():
                announced = (("closed", None, None),)
        if announced:  # the catch-up comes first, as an operation of its own, so that the announcement has its place
            do(system.FireDeadlines())
        do(operation, announced if not state.is_closed else ())
        if rng.random() < 0.5:
            do(system.Settle())
        if rng.random() < 0.5:
            do(system.Elapse(rng.randrange(1, 4)))
            if rng.random() < 0.7:
                do(system.FireDeadlines())
            if not state.is_closed and state.now_ms % 5 == 0:
                do(system.FireDeadlines())
                do(system.Sweep())
    monitor.assert_at_rest()
    assert monitor.counts["closed"] == 1
    assert monitor.counts["granted"] > 0
