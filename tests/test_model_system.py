"""The whole-system model, rule by rule: each test tells commands and everything that must be seen after them."""

from dataclasses import replace
from typing import Any

import pytest

from provider_concurrency_model.state import State, find_slot
from provider_concurrency_model.system import (
    Elapse,
    FireDeadlines,
    InvalidConfigError,
    Settle,
    Sweep,
    new,
    run,
    step,
)
from provider_concurrency_spec.vocabulary import (
    Acquire,
    Advance,
    Cancel,
    Close,
    Command,
    Config,
    Do,
    Event,
    Hook,
    Inspect,
    Operation,
    Paused,
    RateLimited,
    Raw,
    Refused,
    Release,
    RemoveLimit,
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
    WallClock,
)

CONFIG = Config(
    release_cooldown_ms=10,
    slot_timeout_ms=None,
    watchdog_interval_ms=50,
    default_pause_ms=100,
    min_pause_ms=0,
    max_pause_ms=1000,
)
WATCHED = replace(CONFIG, slot_timeout_ms=60)
AT_ONCE = replace(CONFIG, release_cooldown_ms=0)


class Play:
    """A model that is sent commands; it shows events in short form, (at_ms, event, request), and the status rows."""

    def __init__(self, config: Config = CONFIG, *operations: Operation) -> None:
        self.state = new(config)
        self.reply = Reply()
        if operations:
            self.do(*operations)

    def send(self, command: Command) -> list[Any]:
        self.state, self.reply = run(self.state, command)
        return [short(event) for event in self.reply.events]

    def do(self, *operations: Operation) -> list[Any]:
        return self.send(Do(operations))

    def advance(self, ms: int) -> list[Any]:
        return self.send(Advance(ms))

    def stall(self, ms: int) -> list[Any]:
        return self.send(Stall(ms))

    @property
    def rows(self) -> tuple[StatusRow, ...]:
        return self.reply.status


def short(event: Event) -> Any:
    match event:
        case SlotEvent(kind, at_ms, _, request):
            return at_ms, kind, request
        case Resumed(at_ms, _):
            return at_ms, "resumed"
        case Refused(at_ms, op, index, kind):
            return at_ms, kind, op, index
        case Paused() | SlotShown():
            return event


def acquire(request: str, prompt: Raw = 1, timeout: Raw = None, provider: str = "p") -> Acquire:
    return Acquire(provider, request, None, prompt, timeout)


def row(
    held: int = 0, cooling: int = 0, reclaimed: int = 0, queued: int = 0, limit: int | None = 1,
    paused_for: int | None = None, provider: str = "p",
) -> StatusRow:  # fmt: skip
    in_flight = held + cooling + reclaimed
    is_paused = paused_for is not None
    return StatusRow(provider, limit, in_flight, held, cooling, reclaimed, queued, is_paused, paused_for)


LIMIT_1 = SetLimit("p", 1)


# -- accounting ------------------------------------------------------------------------------------------------------


def test_acc_1_grants_without_a_limit_count_for_a_later_one() -> None:
    play = Play(CONFIG, acquire("a"), acquire("b"))
    assert play.do(LIMIT_1, acquire("c")) == [(0, "queued", "c")]
    assert play.rows == (row(held=2, queued=1),)
    assert play.do(Release("a"), Release("b")) == [(0, "released", "a"), (0, "released", "b")]
    assert play.advance(10) == [(10, "recycled", "a"), (10, "recycled", "b"), (10, "granted", "c")]


def test_acc_2_ends_absorb_every_later_call() -> None:
    play = Play(CONFIG, LIMIT_1, acquire("a"), acquire("b"), acquire("c", timeout=0), Cancel("b"), Release("a"))
    play.advance(10)
    before = play.state
    calls = [kind(name) for name in "abcx" for kind in (Release, Cancel, Touch)]
    assert play.do(*calls) == []
    assert play.state == before


def test_acc_3_a_provider_with_nothing_of_its_own_has_no_state() -> None:
    play = Play(CONFIG, acquire("a"))
    assert play.rows == (row(held=1, limit=None),)
    play.do(Release("a"))
    assert play.rows == (row(cooling=1, limit=None),)
    play.advance(10)
    assert not play.rows
    assert not play.state.providers
    for give, take in ((LIMIT_1, RemoveLimit("p")), (SetCooldown("p", 5), SetCooldown("p", None))):
        play.do(give)
        assert len(play.rows) == 1
        play.do(take)
        assert not play.rows


def test_acc_4_an_own_cooldown_decides_from_now_on_and_limits_nobody() -> None:
    play = Play(CONFIG, acquire("a"), acquire("b"), acquire("c"), Release("a"), SetCooldown("p", 3), Release("b"))
    assert play.do(SetCooldown("p", None), Release("c")) == [(0, "released", "c")]
    assert play.advance(20) == [(3, "recycled", "b"), (10, "recycled", "a"), (10, "recycled", "c")]


# -- admission and order ---------------------------------------------------------------------------------------------


def test_adm_1_granted_at_once_only_if_open_with_room_and_nobody_waiting() -> None:
    play = Play(CONFIG, LIMIT_1)
    assert play.do(acquire("a"), acquire("b", 2), acquire("c", 1)) == [
        (0, "granted", "a"), (0, "queued", "b"), (0, "queued", "c"),
    ]  # fmt: skip
    assert play.reply.unsettled == ("b", "c")
    assert play.rows == (row(held=1, queued=2),)


def test_adm_2_and_3_a_slot_is_taken_in_the_operation_that_makes_room() -> None:
    play = Play(AT_ONCE, LIMIT_1, acquire("a"), acquire("b"))
    assert play.do(Release("a"), acquire("c")) == [
        (0, "released", "a"), (0, "recycled", "a"), (0, "granted", "b"), (0, "queued", "c"),
    ]  # fmt: skip
    assert play.rows == (row(held=1, queued=1),)


def test_adm_7_a_full_queue_refuses_whatever_the_place_would_be() -> None:
    play = Play(replace(CONFIG, max_queued=1), LIMIT_1, acquire("a"), acquire("b", 5))
    before = play.state
    assert play.do(acquire("c", 1)) == [(0, "queue_full", "acquire", 0)]
    assert play.state == before
    assert play.do(acquire("d", 1, timeout=0)) == [(0, "timed_out", "d")]


def test_adm_7_a_queue_of_none_lets_pass_who_need_not_wait() -> None:
    play = Play(replace(CONFIG, max_queued=0), LIMIT_1)
    assert play.do(acquire("a"), acquire("b")) == [(0, "granted", "a"), (0, "queue_full", "acquire", 1)]


def test_adm_8_try_acquire_grants_at_once_or_changes_nothing() -> None:
    play = Play(CONFIG, LIMIT_1)
    assert play.do(TryAcquire("p", "a", None, 1)) == [(0, "granted", "a")]
    before = play.state
    assert play.do(TryAcquire("p", "b", None, 0), Inspect("b")) == []
    assert play.state == before


def test_ord_1_oldest_prompt_first_then_arrival() -> None:
    play = Play(AT_ONCE, LIMIT_1, acquire("a"), acquire("b", 7), acquire("c", 5), acquire("d", 5), acquire("e", -0.5))
    granted: list[str] = ["a"]
    for _ in range(4):
        events = play.do(Release(granted[-1]))
        granted += [request for _, kind, request in events if kind == "granted"]
    assert granted == ["a", "e", "c", "d", "b"]


# -- release and cooldown --------------------------------------------------------------------------------------------


def test_rel_3_a_cooling_slot_counts_until_its_deadline_and_not_at_it() -> None:
    play = Play(CONFIG, LIMIT_1, acquire("a"), acquire("b"), Release("a"))
    assert play.advance(9) == []
    assert play.rows == (row(cooling=1, queued=1),)
    assert play.advance(1) == [(10, "recycled", "a"), (10, "granted", "b")]


def test_rel_3_a_later_configuration_pause_or_limit_does_not_move_a_cooldown() -> None:
    play = Play(CONFIG, acquire("a"), Release("a"), SetCooldown("p", 500), RateLimited("p", 900), SetLimit("p", 0))
    assert play.advance(10) == [(10, "recycled", "a")]


# -- leaving the queue -----------------------------------------------------------------------------------------------


def test_can_1_a_cancelled_request_leaves_now_and_takes_no_grant() -> None:
    play = Play(AT_ONCE, LIMIT_1, acquire("a"), acquire("b"), acquire("c"))
    assert play.do(Cancel("b"), Release("a")) == [
        (0, "cancelled", "b"), (0, "released", "a"), (0, "recycled", "a"), (0, "granted", "c"),
    ]  # fmt: skip


def test_can_2_an_undelivered_grant_is_given_back_without_a_cooldown() -> None:
    play = Play(CONFIG, LIMIT_1, acquire("a"), acquire("b"), acquire("c"))
    assert play.do(SetLimit("p", 2), Cancel("b")) == [(0, "granted", "b"), (0, "cancelled", "b"), (0, "granted", "c")]
    assert play.rows == (row(held=2, limit=2),)


def test_can_2_a_delivered_grant_is_not_the_callers_to_cancel() -> None:
    play = Play(CONFIG, LIMIT_1, acquire("a"), acquire("b"))
    assert play.do(Cancel("a")) == []
    play.do(SetLimit("p", 2))
    assert play.do(Cancel("b")) == []
    assert play.rows == (row(held=2, limit=2),)


def test_a_grant_on_its_way_is_neither_released_nor_touched() -> None:
    state, _ = run(new(CONFIG), Do((LIMIT_1, acquire("a"), acquire("b"))))
    state, _ = step(state, SetLimit("p", 2))
    assert step(state, Release("b")) == (state, ())
    assert step(state, Touch("b")) == (state, ())
    settled, _ = step(state, Settle())
    assert step(settled, Release("b"))[1] == (SlotEvent("released", 0, "p", "b"),)


@pytest.mark.parametrize("ms", [19, 20, 21])
def test_can_3_a_request_times_out_when_its_deadline_is_due(ms: int) -> None:
    play = Play(CONFIG, LIMIT_1, acquire("a"), acquire("b", timeout=20))
    assert play.advance(ms) == ([] if ms < 20 else [(20, "timed_out", "b")])


def test_can_3_a_cooldown_that_ends_at_the_same_instant_comes_first() -> None:
    play = Play(CONFIG, LIMIT_1, acquire("a"), acquire("b", timeout=10), acquire("c", timeout=10), Release("a"))
    assert play.advance(10) == [(10, "recycled", "a"), (10, "granted", "b"), (10, "timed_out", "c")]


def test_can_3_a_pause_that_ends_at_the_same_instant_comes_first() -> None:
    play = Play(CONFIG, LIMIT_1, RateLimited("p", 30), acquire("a", timeout=30))
    assert play.advance(30) == [(30, "resumed"), (30, "granted", "a")]


# -- pause -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("retry_after", "requested", "applied"),
    [
        (None, None, 100), ("NaN", None, 100), (-1, -1, 100), ("-Infinity", None, 100), (True, None, 100),
        ("soon", None, 100), (0, 0, 20), (19, 19, 20), (20, 20, 20), (21, 21, 21), (1.5, 1.5, 20), (20.5, 20.5, 21),
        (999, 999, 999), (1000, 1000, 1000), (1001, 1001, 1000), ("Infinity", None, 1000), (2**53 - 1, 2**53 - 1, 1000),
    ],
)  # fmt: skip
def test_pau_2_what_a_429_asks_for_and_what_it_gets(retry_after: Raw, requested: Raw, applied: int) -> None:
    play = Play(replace(CONFIG, min_pause_ms=20))
    assert play.do(RateLimited("p", retry_after)) == [Paused(0, "p", requested, applied)]
    assert play.rows == (row(limit=None, paused_for=applied),)


def test_pau_2_a_pause_is_at_least_the_cooldown_in_force_and_at_most_max_pause() -> None:
    play = Play(CONFIG, SetCooldown("p", 40), SetCooldown("q", 5000))
    assert play.do(RateLimited("p", 7), RateLimited("q", 7)) == [Paused(0, "p", 7, 40), Paused(0, "q", 7, 1000)]


def test_pau_1_a_shorter_report_never_shortens() -> None:
    play = Play(CONFIG, RateLimited("p", 300))
    play.advance(100)
    assert play.do(RateLimited("p", 150)) == [Paused(100, "p", 150, 150)]
    assert play.rows == (row(limit=None, paused_for=200),)
    assert play.do(RateLimited("p", 201)) == [Paused(100, "p", 201, 201)]
    assert play.rows == (row(limit=None, paused_for=201),)


def test_pau_3_a_pause_belongs_to_the_provider_and_makes_no_limit() -> None:
    play = Play(CONFIG, LIMIT_1, acquire("a"), RateLimited("p", 300), acquire("b"))
    assert play.do(RemoveLimit("p")) == []
    assert play.rows == (row(held=1, queued=1, limit=None, paused_for=300),)
    assert play.do(SetLimit("p", 5)) == []
    assert play.do(Resume("p")) == [(0, "resumed"), (0, "granted", "b")]


def test_pau_5_a_pause_ends_at_its_deadline_and_admits_by_room() -> None:
    play = Play(CONFIG, LIMIT_1, RateLimited("p", 30), acquire("a"), acquire("b"))
    assert play.advance(29) == []
    assert play.advance(1) == [(30, "resumed"), (30, "granted", "a")]
    assert play.do(Resume("p"), Resume("unknown")) == []


def test_pau_5_a_pause_of_nothing_ends_in_the_call() -> None:
    play = Play(AT_ONCE)
    assert play.do(RateLimited("p", 0)) == [Paused(0, "p", 0, 0), (0, "resumed")]
    assert play.rows == ()
    play.do(RateLimited("p", 50))
    assert play.do(RateLimited("p", 0)) == [Paused(0, "p", 0, 0)]


# -- watchdog --------------------------------------------------------------------------------------------------------


def test_wat_1_a_sweep_reclaims_what_was_silent_for_longer_than_the_timeout() -> None:
    play = Play(replace(WATCHED, slot_timeout_ms=50), acquire("old"))
    play.advance(1)
    play.do(acquire("young"))
    assert play.advance(49) == []  # at 50 the old one was silent for 50, which is not longer than 50
    assert play.advance(60) == [
        (100, "reclaimed", "old"), (100, "reclaimed", "young"), (110, "recycled", "old"), (110, "recycled", "young"),
    ]  # fmt: skip


def test_wat_2_a_touch_keeps_a_slot() -> None:
    play = Play(WATCHED, acquire("a"), acquire("b"))
    play.advance(90)
    play.do(Touch("a"))
    assert play.advance(10) == [(100, "reclaimed", "b")]
    assert play.rows == (row(held=1, reclaimed=1, limit=None),)


def test_wat_3_a_reclaimed_slot_counts_for_the_cooldown_and_can_be_seen() -> None:
    play = Play(WATCHED, LIMIT_1, acquire("a"), acquire("b"))
    assert play.advance(100) == [(100, "reclaimed", "a")]
    assert play.do(Release("a"), Inspect("a"), Inspect("b"), Inspect("nobody")) == [
        SlotShown(100, "a", "reclaimed", True), SlotShown(100, "b", "queued", False),
    ]  # fmt: skip
    assert play.advance(10) == [(110, "recycled", "a"), (110, "granted", "b")]
    assert play.do(Inspect("a")) == [SlotShown(110, "a", "free", True)]


def test_wat_1_the_sweep_comes_after_everything_else_of_its_instant() -> None:
    play = Play(replace(WATCHED, slot_timeout_ms=49), LIMIT_1, acquire("a"))
    play.advance(40)
    play.do(acquire("b"), Release("a"))
    assert play.advance(10) == [(50, "recycled", "a"), (50, "granted", "b")]
    slot = find_slot(play.state, "b")
    assert slot is not None
    assert (slot.touched_ms, slot.is_delivered) == (50, True)


def test_wat_1_no_timeout_no_sweep() -> None:
    play = Play(CONFIG, acquire("a"))
    assert play.advance(10**9) == []


# -- limits ----------------------------------------------------------------------------------------------------------


def test_lim_1_a_limit_of_0_admits_nobody() -> None:
    play = Play(CONFIG, SetLimit("p", 0))
    assert play.do(acquire("a")) == [(0, "queued", "a")]
    assert play.do(LIMIT_1) == [(0, "granted", "a")]


def test_lim_2_lowering_evicts_nobody_and_raising_admits_by_spare_room() -> None:
    play = Play(AT_ONCE, SetLimit("p", 3), *[acquire(name) for name in "abcdef"])
    assert play.do(SetLimit("p", 1), Release("a"), SetLimit("p", 3)) == [
        (0, "released", "a"), (0, "recycled", "a"), (0, "granted", "d"),
    ]  # fmt: skip
    assert play.rows == (row(held=3, queued=2, limit=3),)


def test_lim_3_remove_limit_takes_the_limit_and_nothing_else() -> None:
    play = Play(CONFIG, LIMIT_1, acquire("a"), acquire("b"), acquire("c"))
    assert play.do(RemoveLimit("p")) == [(0, "granted", "b"), (0, "granted", "c")]
    assert play.do(SetLimit("p", 2), acquire("d")) == [(0, "queued", "d")]
    assert play.rows == (row(held=3, queued=1, limit=2),)


def test_lim_4_the_default_limit_holds_for_who_has_none() -> None:
    play = Play(replace(CONFIG, default_limit=0), acquire("a"), SetLimit("q", 1), acquire("b", provider="q"))
    assert play.rows == (row(queued=1, limit=None), row(held=1, provider="q"))
    assert play.do(SetLimit("p", 1)) == [(0, "granted", "a")]


# -- close -----------------------------------------------------------------------------------------------------------


def test_clo_1_close_rejects_frees_and_keeps_what_is_held() -> None:
    play = Play(
        CONFIG, SetLimit("p", 2), acquire("a"), acquire("b"), Release("a"), acquire("c", 9), acquire("d", 2),
        RateLimited("q", 50), SetCooldown("q", 7),
    )  # fmt: skip
    assert play.do(Close(), Close()) == [(0, "rejected", "d"), (0, "rejected", "c"), (0, "recycled", "a")]
    assert play.rows == (row(held=1, limit=2), row(limit=None, provider="q"))
    assert play.reply.unsettled == ()
    assert play.advance(10**6) == []
    assert play.do(Release("b"), Release("b")) == [(10**6, "released", "b"), (10**6, "recycled", "b")]


def test_clo_2_a_closed_manager_refuses_before_it_looks() -> None:
    play = Play(CONFIG, acquire("a"), Close())
    before = play.state
    refused: list[Operation] = [
        acquire("b", "NaN"), TryAcquire("p", "c", None, 1), SetLimit("p", -1), RemoveLimit("p"), SetCooldown("p", 1),
        Resume("p"),
    ]  # fmt: skip
    names = ["acquire", "try_acquire", "set_limit", "remove_limit", "set_cooldown", "resume"]
    assert play.do(*refused) == [(0, "closed", name, index) for index, name in enumerate(names)]
    assert play.do(RateLimited("p", 5), Touch("a"), Cancel("a"), WallClock(5)) == []
    assert play.state == before


def test_clo_1_a_grant_on_its_way_survives_a_close() -> None:
    play = Play(CONFIG, LIMIT_1, acquire("a"), acquire("b"))
    assert play.do(SetLimit("p", 2), Close()) == [(0, "granted", "b")]
    assert play.do(Release("b")) == [(0, "released", "b"), (0, "recycled", "b")]


# -- time ------------------------------------------------------------------------------------------------------------


def test_tim_2_a_late_grant_touches_now_and_a_late_reclaim_cools_from_now() -> None:
    play = Play(WATCHED, SetLimit("p", 2), acquire("a"), acquire("b"), acquire("c"), Release("a"))
    assert play.stall(1000) == [(1000, "recycled", "a"), (1000, "granted", "c"), (1000, "reclaimed", "b")]
    assert play.advance(10) == [(1010, "recycled", "b")]
    assert play.advance(90) == [(1100, "reclaimed", "c")]


def test_tim_3_a_catch_up_goes_by_deadlines() -> None:
    play = Play(CONFIG, LIMIT_1, acquire("a"), acquire("b", 1, 5), acquire("c", 1, 50), Release("a"))
    assert play.stall(60) == [(60, "timed_out", "b"), (60, "recycled", "a"), (60, "granted", "c")]


def test_tim_3_ties_are_cooldown_pause_timeout() -> None:
    play = Play(CONFIG, LIMIT_1, acquire("a"), acquire("b", 1, 20), acquire("c", 1, 20))
    play.advance(10)
    play.do(Release("a"), RateLimited("p", 10))
    assert play.stall(10) == [(20, "recycled", "a"), (20, "resumed"), (20, "granted", "b"), (20, "timed_out", "c")]


@pytest.mark.parametrize(("ms", "is_swept"), [(48, False), (49, True), (50, True), (500, True)])
def test_a_stall_over_a_point_of_the_grid_is_followed_by_one_sweep(ms: int, is_swept: bool) -> None:
    play = Play(replace(WATCHED, slot_timeout_ms=1), acquire("a"))
    play.state, _ = step(play.state, Elapse(1))
    events = play.stall(ms)
    assert events == ([(ms + 1, "reclaimed", "a")] if is_swept else [])


def test_tim_3_an_operation_applies_first_what_is_due_of_its_provider() -> None:
    state, _ = run(new(CONFIG), Do((LIMIT_1, SetLimit("q", 1), acquire("a"), acquire("x", provider="q"), Release("a"))))
    state, _ = run(state, Do((acquire("b"), Release("x"))))
    late, _ = step(state, Elapse(10))
    after, events = step(late, acquire("c"))
    assert [short(event) for event in events] == [(10, "recycled", "a"), (10, "granted", "b"), (10, "queued", "c")]
    assert step(after, FireDeadlines())[1] == (SlotEvent("recycled", 10, "q", "x"),)
    assert step(late, SetLimit("p", -1)) == (late, (Refused(10, "set_limit", 0, "invalid"),))
    assert step(late, Sweep()) == (late, ())


def test_a_command_is_its_steps_one_after_another() -> None:
    operations: tuple[Operation, ...] = (
        SetLimit("p", 1),
        acquire("a"),
        acquire("b"),
        Release("a"),
        RateLimited("p", 3),
    )
    together, reply = run(new(WATCHED), Do(operations))
    state, events = new(WATCHED), list[Event]()
    for index, operation in enumerate(operations):
        state, told = step(state, operation, index)
        events += told
    assert (step(state, Settle())[0], tuple(events)) == (together, reply.events)
    one, said = run(together, Advance(120))
    for _ in range(120):
        together, _ = run(together, Advance(1))
    assert together == one
    assert len(said.events) == 5  # recycled, resumed, granted at 10; reclaimed at 100; recycled at 110


# -- callbacks -------------------------------------------------------------------------------------------------------


def test_cal_1_on_queued_runs_after_the_enqueueing_and_before_the_wait() -> None:
    play = Play(AT_ONCE, LIMIT_1, acquire("a"), Hook("queued", "p", (Release("a"),)))
    assert play.do(acquire("b")) == [
        (0, "queued", "b"),
        (0, "released", "a"),
        (0, "recycled", "a"),
        (0, "granted", "b"),
    ]
    assert play.do(acquire("c")) == [(0, "queued", "c")]
    assert play.rows == (row(held=1, queued=1),)


def test_cal_1_on_queued_is_not_called_without_queueing() -> None:
    play = Play(CONFIG, LIMIT_1, Hook("queued", "p", (Close(),)), acquire("a"), acquire("b", timeout=0))
    assert not play.state.is_closed
    assert len(play.state.hooks) == 1


def test_cal_2_notifications_stand_in_line_and_the_delivery_never_nests() -> None:
    extended = Hook("paused", "p", (acquire("a"),))
    play = Play(
        CONFIG,
        Hook(
            "paused",
            "p",
            (RateLimited("p", 60), Resume("p"), acquire("b")),
        ),
        extended,
    )
    assert play.do(RateLimited("p", 50)) == [
        Paused(0, "p", 50, 50), Paused(0, "p", 60, 60), (0, "resumed"), (0, "granted", "b"), (0, "granted", "a"),
    ]  # fmt: skip


def test_cal_2_a_sweep_is_complete_before_anybody_hears_of_it() -> None:
    play = Play(WATCHED, acquire("a"), acquire("b"), Hook("reclaimed", "p", (Touch("b"), Release("b"), acquire("c"))))
    assert play.advance(100) == [(100, "reclaimed", "a"), (100, "reclaimed", "b"), (100, "granted", "c")]


def test_cal_3_on_pause_is_called_when_a_pause_begins_or_is_extended() -> None:
    play = Play(AT_ONCE, Hook("paused", "p", (), throw=True, times=3), RateLimited("p", 50), RateLimited("p", 50))
    assert [armed.times for armed in play.state.hooks] == [2]
    play.do(RateLimited("p", 51), RateLimited("q", 5))
    assert [armed.times for armed in play.state.hooks] == [1]
    play.do(Resume("p"), RateLimited("p", 0))
    assert [armed.times for armed in play.state.hooks] == [1]


def test_cal_4_a_throwing_callback_changes_no_outcome() -> None:
    loud, quiet = Play(WATCHED), Play(WATCHED)
    for point in ("queued", "paused", "reclaimed"):
        loud.do(Hook(point, "p", (), throw=True))
    commands: list[Command] = [
        Do((LIMIT_1, acquire("a"), acquire("b"), RateLimited("p", 20))), Advance(100), Advance(10), Do((Release("b"),)),
    ]  # fmt: skip
    for command in commands:
        assert loud.send(command) == quiet.send(command)
    assert loud.state == quiet.state
    assert loud.state.hooks == ()


# -- validation ------------------------------------------------------------------------------------------------------

BAD_DURATIONS: list[Raw] = [-1, "NaN", "Infinity", "-Infinity", True, 10**12 + 1, "20"]
BAD_COUNTS: list[Raw] = [-1, 1.5, 2.0, "NaN", True, "1"]


def refusals() -> list[tuple[str, Raw]]:
    durations = ["release_cooldown_ms", "watchdog_interval_ms", "default_pause_ms", "min_pause_ms", "max_pause_ms"]
    cases: list[tuple[str, Raw]] = [(name, bad) for name in durations for bad in [*BAD_DURATIONS, None]]
    cases += [("slot_timeout_ms", bad) for bad in [*BAD_DURATIONS, 0]]
    cases += [(name, 0) for name in ("watchdog_interval_ms", "default_pause_ms", "max_pause_ms")]
    cases += [(name, bad) for name in ("max_queued", "default_limit") for bad in BAD_COUNTS]
    cases += [("nested", bad) for bad in ("refuse", "", True, 1)]
    cases += [("min_pause_ms", 101), ("default_pause_ms", 1001), ("max_pause_ms", 99)]
    return cases


@pytest.mark.parametrize(("name", "value"), refusals())
def test_validation_refuses_a_configuration_and_names_the_value(name: str, value: Raw) -> None:
    changed: dict[str, Any] = {name: value}
    with pytest.raises(InvalidConfigError, match=repr(value).replace("'", ".")):
        new(replace(CONFIG, **changed))


def test_validation_lets_boundaries_pass_and_rounds_up() -> None:
    settings = new(Config(0, 0.25, 1.5, 10**12, 0, 10**12, 0, 0)).settings
    assert (settings.slot_timeout_ms, settings.watchdog_interval_ms, settings.default_pause_ms) == (1, 2, 10**12)
    assert new(Config()) == State(settings=new(Config()).settings)


def test_validation_refuses_an_operation_without_a_trace() -> None:
    play = Play(CONFIG, LIMIT_1, acquire("a"))
    before = play.state
    bad: list[Operation] = [SetLimit("p", value) for value in [*BAD_COUNTS, None, "Infinity"]]
    bad += [SetCooldown("p", value) for value in BAD_DURATIONS]
    bad += [acquire("b", timeout=value) for value in BAD_DURATIONS]
    bad += [acquire("b", value) for value in ("NaN", "Infinity", "-Infinity", True, "5", float("nan"))]
    odd: Any = 5
    bad += [Acquire("p", "b", odd, 1), TryAcquire("p", "b", None, "NaN")]
    events = play.do(*bad)
    assert [(at_ms, kind, index) for at_ms, kind, _, index in events] == [(0, "invalid", i) for i in range(len(bad))]
    assert play.state == before


def test_a_prompt_time_that_is_not_given_is_now() -> None:
    play = Play(CONFIG, LIMIT_1, acquire("a"), acquire("b", None))
    play.advance(5)
    play.do(acquire("c", None), acquire("d", 1_700_000_000.001))
    assert play.do(SetLimit("p", 4)) == [(5, "granted", "b"), (5, "granted", "d"), (5, "granted", "c")]
