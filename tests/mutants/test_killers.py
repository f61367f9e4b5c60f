"""Tests that some fault of the zoo, or a survivor of SURVIVORS.md, was the first to ask for."""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable
from random import Random
from threading import Thread, get_ident

import pytest

from provider_concurrency import AcquireTimeoutError, ConcurrencyManager, Slot
from provider_concurrency._tags import CANCELLED, COOLING, HANDED, HELD, QUEUED
from provider_concurrency.queue import SortedRun
from provider_concurrency.slot import SlotState
from provider_concurrency.testing import VirtualLoop
from support import MS, World


def test_tim_1_what_begins_while_the_clock_is_back_lasts_its_time() -> None:
    """Bug 48: a cooldown that began in the hour that came twice isn't over when the clock is right again."""
    now = 10**12
    manager = ConcurrencyManager(clock=lambda: now, limits={"p": 1})
    with World(watched=False) as world, world.loop.running():
        slot = manager.try_acquire("p")
        assert slot is not None
        now -= 100 * 10**9
        slot.release()
        now += 100 * 10**9
        assert slot.state is SlotState.COOLING
        now += 200 * MS
        assert slot.state is SlotState.FREE
        manager.close()


@pytest.mark.parametrize("by_reading", [True, False])
def test_tim_3_a_patience_that_ends_between_two_cooldowns(make: Callable[..., World], by_reading: bool) -> None:
    """All three are noticed at once, and still go in order: the second cooldown comes too late for who timed out."""
    world = make(limits={"p": 2})
    first, second = world.hold(), world.hold()
    first.release()
    world.pass_ms(100)
    second.release()
    older = world.ask(prompt_started_at=1)
    younger = world.ask(prompt_started_at=2, timeout=0.15)
    world.loop.stall_ns(500 * MS)  # past the ends at 200, 250 and 300 ms
    if by_reading:
        assert world.figures() == (1, 0, 0, 0)
    world.loop.settle()
    assert older.result().state is SlotState.HELD
    with pytest.raises(AcquireTimeoutError):
        younger.result()


def test_acc_3_cooldowns_that_nobody_looks_at_take_no_memory(make_unwatched: Callable[..., World]) -> None:
    """Without a limit no request ever finds the provider full, and so none looks for what is over."""
    world = make_unwatched()
    for _ in range(1000):
        world.hold().release()
        world.pass_ms(50)
    cooling = world.manager._providers["p"].cooling
    assert cooling is not None
    assert len(cooling) < 20


def test_wat_1_the_grid_begins_when_the_manager_is_made(make: Callable[..., World]) -> None:
    """However late the first grant comes, and whatever the clock said at the beginning."""
    world = make(start_ns=1_700_000_000 * 10**9 + 123, slot_timeout=0.5, watchdog_interval=1)
    world.pass_ms(300)
    slot = world.hold()
    world.pass_ms(699)
    assert not slot.reclaimed
    world.pass_ms(1)
    assert slot.reclaimed


# -- survivors of the mutation tool (SURVIVORS.md) ---------------------------------------------------------------------


def test_acc_3_what_the_last_thing_leaves_is_no_record(make: Callable[..., World]) -> None:
    """Neither when its cooldown is noticed, nor where nobody looks until the sweep."""
    world = make(slot_timeout=None, watchdog_interval=1)
    world.hold("p").release()
    assert "p" in world.manager._providers
    world.pass_ms(200)
    assert world.status("p") is None
    assert "p" not in world.manager._providers
    other = world.hold("q")
    world.hold("p").release()
    world.pass_ms(2000)
    assert list(world.manager._providers) == ["q"]
    other.release()


def test_thr_1_a_reading_from_elsewhere_applies_nothing(make: Callable[..., World]) -> None:
    world = make(limits={"p": 1})
    world.hold().release()
    world.loop.stall_ns(500 * MS)
    seen: list[object] = []
    thread = Thread(target=lambda: seen.append(world.figures()))
    thread.start()
    thread.join()
    assert seen == [(0, 1, 0, 0)]
    assert world.figures() == (0, 0, 0, 0)


def test_tim_4_no_timer_for_a_cooldown_that_nobody_waits_for(make_unwatched: Callable[..., World]) -> None:
    world = make_unwatched(limits={"p": 2})
    world.hold().release()
    world.manager.set_limit("p", 1)
    assert world.timers() == 1  # the sweeps'


def test_can_3_a_cancel_that_finds_it_timed_out_changes_nothing(make: Callable[..., World]) -> None:
    world = make(limits={"p": 1})
    world.hold()
    waiter, next_one = world.ask(timeout=0.1), world.ask()
    world.loop.stall_ns(200 * MS)
    waiter.cancel()
    world.loop.settle()
    assert world.figures() == (1, 0, 0, 1)
    assert [event.kind for event in world.events if event.request == 2] == ["queued", "timed_out"][: 2 * world.watched]
    next_one.cancel()


@pytest.mark.parametrize("watched", [True, False])
def test_fin_1_two_releases_within_an_operation_act_after_it_once(watched: bool) -> None:
    """Both see a held slot, since neither has acted yet; and the operation is over before they act."""
    twice: list[Slot] = []
    loop = VirtualLoop()

    def clock() -> int:
        while twice:
            twice.pop().release()
        return loop.time_ns()

    world = World(watched=watched, loop=loop, clock=clock)
    slot, other = world.hold(), world.hold()
    world.events.clear()
    twice += [slot, slot]
    world.manager.set_limit("p", 3)
    assert world.figures() == (1, 1, 0, 0)
    assert world.kinds() == ["limit_set", "released"][: 2 * watched]
    other.release()
    world.finish()


def test_clo_2_the_last_release_ends_the_wait_for_a_closed_manager(make: Callable[..., World]) -> None:
    world = make()
    first, last = world.hold("p"), world.hold("q")
    world.manager.close()
    waiting = world.loop.start(world.manager.wait_closed())
    first.release()
    world.loop.settle()
    assert not waiting.done()
    last.release()
    world.loop.settle()
    assert waiting.done()


def test_tim_1_events_count_from_the_managers_beginning(make_watched: Callable[..., World]) -> None:
    """And what is nobody's has no figures."""
    world = make_watched(start_ns=5 * 10**9)
    world.pass_ms(1000)
    world.hold()
    world.manager.report_rate_limit("p")
    world.manager.close()
    assert [(event.kind, event.t_ns) for event in world.events] == [
        ("granted", 10**9),
        ("paused", 10**9),
        ("closed", 10**9),
    ]
    assert (world.events[-1].in_flight, world.events[-1].queued) == (0, 0)


@pytest.mark.parametrize(("cooldown", "told"), [(0.0, ["released", "recycled"]), (1e-9, ["released"])])
def test_rel_1_only_a_cooldown_of_0_is_over_in_the_call(
    make_watched: Callable[..., World], cooldown: float, told: list[str]
) -> None:
    world = make_watched(release_cooldown=cooldown)
    slot = world.hold()
    world.events.clear()
    slot.release()
    assert [event.kind for event in world.events] == told


def test_tim_3_cooldowns_that_end_together_end_by_arrival_one_by_one(make_watched: Callable[..., World]) -> None:
    world = make_watched(limits={"p": 2})
    first, second = world.hold(), world.hold()
    second.release()
    first.release()
    world.events.clear()
    world.pass_ms(200)
    assert [(event.kind, event.request, event.in_flight) for event in world.events] == [
        ("recycled", 1, 1),
        ("recycled", 2, 0),
    ]


def test_rel_3_the_short_ways_cooldowns_each_last_their_time(make_unwatched: Callable[..., World]) -> None:
    world = make_unwatched(limits={"p": 3})
    first, second, third = world.hold(), world.hold(), world.hold()
    first.release()  # until 200
    world.pass_ms(100)
    second.release()  # until 300
    world.manager.set_cooldown("p", 0.02)
    third.release()  # until 120
    assert world.take() is None
    for ms, cooling in ((119, 3), (120, 2), (199, 2), (200, 1), (299, 1), (300, 0)):
        world.loop.stall_ns(ms * MS - world.loop.time_ns())
        assert world.figures() == (0, cooling, 0, 0)


def test_rel_3_the_short_way_takes_one_place(make_unwatched: Callable[..., World]) -> None:
    world = make_unwatched(limits={"p": 2})
    world.hold().release()
    world.hold()
    assert world.take() is None


def test_the_short_way_is_short(make_unwatched: Callable[..., World]) -> None:
    """Within one cooldown no release looks for what is over; and whatever the rhythm, it is looked for in the end."""
    world = make_unwatched()
    slots = [world.hold() for _ in range(4)]
    begun = world.manager._op
    for slot in slots:
        slot.release()
        world.pass_ms(40)
    assert world.manager._op == begun
    for _ in range(200):
        world.hold().release()
        world.pass_ms(33)
    cooling = world.manager._providers["p"].cooling
    assert cooling is not None
    assert len(cooling) < 20


@pytest.mark.parametrize("elsewhere", [-1, 1])
def test_thr_1_the_short_way_is_the_home_threads(
    make_unwatched: Callable[..., World], monkeypatch: pytest.MonkeyPatch, elsewhere: int
) -> None:
    world = make_unwatched()
    slot = world.hold()
    begun = world.manager._op
    monkeypatch.setattr("provider_concurrency.slot.get_ident", lambda: get_ident() + elsewhere)
    slot.release()
    assert world.manager._op == begun + 1


def test_tim_3_a_request_finds_what_is_over_applied(make: Callable[..., World]) -> None:
    """Though no timer has fired yet: it is granted at once, and a cancel gives its place to who is next."""
    world = make(limits={"p": 2})
    first, second = world.hold(), world.hold()
    first.release()
    world.loop.stall_ns(300 * MS)
    world.hold()
    waiter, next_one = world.ask(), world.ask()
    second.release()
    world.loop.stall_ns(300 * MS)
    waiter.cancel()
    world.loop.settle()
    assert waiter.cancelled()
    assert next_one.result().state is SlotState.HELD


def test_tim_4_who_queues_beside_a_cooldown_is_woken(make: Callable[..., World]) -> None:
    world = make(limits={"p": 2})
    first, _ = world.hold(), world.hold()
    first.release()
    waiter = world.ask()
    world.pass_ms(200)
    assert waiter.result().state is SlotState.HELD


def test_acc_3_who_is_refused_leaves_no_record(make: Callable[..., World]) -> None:
    world = make(default_limit=0)
    assert isinstance(world.ask(timeout=0).exception(), AcquireTimeoutError)
    assert world.manager._providers == {}


def test_acc_3_who_gives_up_or_gives_back_leaves_no_record(make_watched: Callable[..., World]) -> None:
    world = make_watched(default_limit=0, release_cooldown=0)
    waiter = world.ask()
    waiter.cancel()
    world.loop.settle()
    assert world.manager._providers == {}
    world.manager.set_limit("p", 1)
    slot = world.hold()
    world.manager.remove_limit("p")
    slot.release()
    assert world.manager._providers == {}


def test_tim_3_a_release_comes_after_what_was_over_before_it(make_watched: Callable[..., World]) -> None:
    world = make_watched(limits={"p": 2})
    first, second = world.hold(), world.hold()
    first.release()
    world.loop.stall_ns(300 * MS)
    world.events.clear()
    second.release()
    assert world.told() == [("recycled", 1), ("released", 2)]


def test_tim_4_who_waits_already_is_woken_by_the_cooldown(make: Callable[..., World]) -> None:
    world = make(limits={"p": 2})
    first, _ = world.hold(), world.hold()
    waiter = world.ask()
    first.release()
    world.pass_ms(200)
    assert waiter.result().state is SlotState.HELD


def test_wat_3_reclaimed_slots_end_as_such_where_nobody_listens(make_unwatched: Callable[..., World]) -> None:
    world = make_unwatched(limits={"p": 2}, slot_timeout=0.5, watchdog_interval=1)
    slots = [world.hold(), world.hold()]
    world.pass_ms(1000)
    assert world.figures() == (0, 0, 2, 0)
    world.pass_ms(200)
    assert world.figures() == (0, 0, 0, 0)
    assert [(slot.state, slot.reclaimed) for slot in slots] == [(SlotState.FREE, True)] * 2


@pytest.mark.parametrize("ident", [None, 1, 2**62])
def test_thr_1_whichever_thread_it_is_it_hands_over(
    make: Callable[..., World], monkeypatch: pytest.MonkeyPatch, ident: int | None
) -> None:
    world = make()
    slot = world.hold()
    if ident is not None:
        monkeypatch.setattr("provider_concurrency.slot.get_ident", lambda: ident)
    thread = Thread(target=slot.release)
    thread.start()
    thread.join()
    assert list(world.manager._providers["p"].held) == [slot]
    world.loop.settle()
    assert world.figures() == (0, 1, 0, 0)


def test_can_3_whoever_has_least_patience_leaves_first(make: Callable[..., World]) -> None:
    world = make(limits={"p": 1})
    world.hold()
    waiters = [world.ask(timeout=timeout) for timeout in (0.2, 0.3, 0.1, 0.2, None)]
    for ms, left in ((99, 5), (1, 4), (99, 4), (1, 2), (99, 2), (1, 1)):
        world.pass_ms(ms)
        assert sum(not waiter.done() for waiter in waiters) == left
    waiters[-1].cancel()


def test_adm_6_above_the_limit_nobody_is_granted(make: Callable[..., World]) -> None:
    world = make(limits={"p": 3}, release_cooldown=0)
    slots = [world.hold() for _ in range(3)]
    world.manager.set_limit("p", 1)
    waiter = world.ask()
    for slot in slots:
        assert not waiter.done()
        slot.release()
        world.loop.settle()
    assert waiter.result().state is SlotState.HELD


def test_acc_2_a_second_release_and_a_second_block(make: Callable[..., World]) -> None:
    world = make()
    with world.hold() as slot:
        slot.release()
        slot.release()
    assert world.figures() == (0, 1, 0, 0)
    with pytest.raises(RuntimeError, match="only a held slot can be entered; this one is cooling"):
        slot.__enter__()


def test_operations_are_counted_one_by_one(make_watched: Callable[..., World]) -> None:
    world = make_watched()
    assert world.manager._op == 0
    world.hold().release()
    granted, released = world.events
    assert granted.op is not None
    assert released.op == granted.op + 1


def test_cal_3_on_pause_is_told_the_seconds(make: Callable[..., World]) -> None:
    told: list[tuple[str, float]] = []
    world = make(on_pause=lambda provider, seconds: told.append((provider, seconds)))
    world.manager.report_rate_limit("p", 12.5)
    assert told == [("p", 12.5)]


def test_lim_3_the_observer_is_told_of_limits_that_change(make_watched: Callable[..., World]) -> None:
    world = make_watched()
    world.manager.set_cooldown("p", 1)
    world.manager.remove_limit("p")
    world.manager.set_limit("p", 2)
    world.manager.remove_limit("p")
    world.manager.close()
    assert [(event.kind, event.value) for event in world.events] == [
        ("cooldown_set", 10**9),
        ("limit_set", 2),
        ("limit_removed", None),
        ("closed", None),
    ]


def test_wat_5_the_log_says_how_long(make_watched: Callable[..., World], caplog: pytest.LogCaptureFixture) -> None:
    """To the millisecond, be it months; and the event says when it was touched, by the manager's own time."""
    start, months = 7 * 10**9, 10_000_000
    world = make_watched(start_ns=start, slot_timeout=months - 1, watchdog_interval=months + 3)
    world.pass_ms(3000)
    world.hold()
    world.pass_ms(1000 * months)
    assert "conversation None, 10000000.000 s after" in caplog.text
    assert [event.value for event in world.events if event.kind == "reclaimed"] == [3 * 10**9]


def test_clo_1_what_is_due_goes_before_the_close(make: Callable[..., World]) -> None:
    world = make(limits={"p": 1})
    slot = world.hold()
    waiter = world.ask()
    slot.release()
    world.loop.stall_ns(300 * MS)
    world.manager.close()
    world.loop.settle()
    assert waiter.result().state is SlotState.HELD


def make_slot(key: float, arrival: int) -> Slot:
    """One that is queued."""
    slot = Slot()
    slot._state, slot._key, slot._arrival = QUEUED, key, arrival
    return slot


def order(slot: Slot) -> tuple[float, int]:
    """Its place in a run."""
    return slot._key, slot._arrival


@pytest.mark.parametrize("seed", range(40))
def test_ord_1_a_run_is_a_sorted_list_of_the_living(seed: int) -> None:
    """Whatever comes in order or late and leaves by the front or from the middle; and the dead take no more room."""
    chance = Random(seed)
    run, living = SortedRun(), list[Slot]()
    for number in range(1, 400):
        slot = make_slot(chance.choice([number, number, chance.randrange(400)]), number)
        run.push(slot)
        insort(living, slot, key=order)
        for _ in range(90 if number % 100 == 0 else int(chance.random() < seed / 80)):
            if living:
                assert run.take_first() is living.pop(0)
        if len(living) > 1 and chance.random() < 0.4:
            living.pop(chance.randrange(len(living)))._state = chance.choice([HELD, HANDED, CANCELLED])
            run.discard()
        assert run.first() is (living[0] if living else None)
        assert len(run) == len(living)
        assert bool(run.run or run.late) is bool(living)
        assert run.dead <= 32 or run.dead <= len(living)


@pytest.mark.parametrize("seed", range(20))
def test_rel_3_what_cools_is_taken_in_order(seed: int) -> None:
    """By the end of its cooldown, then by arrival, in whatever order the slots were released."""
    chance = Random(seed)
    run, rest = SortedRun(), list[Slot]()
    arrivals = chance.sample(range(1000), 200)
    for number, arrival in enumerate(arrivals):
        slot = make_slot(number // 3 + chance.choice([0, 0, 0, chance.randrange(50)]), arrival)
        slot._state = COOLING
        run.push(slot)
        insort(rest, slot, key=order)
        while rest and rest[0]._key <= number // 3 - 5:
            assert run.first() is rest[0]
            assert run.take_first() is rest.pop(0)
        assert len(run) == len(rest)


def test_the_dead_are_swept_out_when_they_outnumber_the_living_and_not_before() -> None:
    """That is what makes a discard cheap: each sweep is paid for by as many discards as it looks at slots, about."""
    run, slots = SortedRun(), [make_slot(number, number) for number in (*range(1, 701), *range(-300, 0))]
    for slot in slots:
        run.push(slot)
    in_order = run.run
    for dead, slot in enumerate(slots[100:600], 1):
        slot._state = HELD
        run.discard()
        assert (run.dead, run.run is in_order) == (dead, True)
    slots[0]._state = HELD
    run.discard()
    assert (run.dead, len(run.run), len(run.late)) == (0, 199, 300)


def test_a_run_may_be_swept_empty_beside_stragglers() -> None:
    run, slots = SortedRun(), [make_slot(number, number) for number in (*range(1, 34), -3, -2, -1)]
    for slot in slots:
        run.push(slot)
    for slot in slots[:33]:
        slot._state = CANCELLED
        run.discard()
    assert (len(run.run), len(run.late), run.dead) == (0, 3, 0)
    slots[-1]._state = CANCELLED
    run.discard()
    assert run.first() is slots[33]
    assert len(run) == 2
