"""ACC and ADM: what counts, who is admitted, and that nobody waits beside free room."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from provider_concurrency import AcquireTimeoutError, QueueFullError, SlotState
from support import World


def test_acc_1_what_runs_without_a_limit_counts_under_a_later_one(make: Callable[..., World]) -> None:
    world = make()
    slots = [world.hold() for _ in range(3)]
    world.manager.set_limit("p", 2)
    waiter = world.ask()
    assert world.figures() == (3, 0, 0, 1)
    slots[0].release()
    world.pass_ms(200)
    assert not waiter.done()
    slots[1].release()
    world.pass_ms(200)
    assert waiter.result().state is SlotState.HELD
    assert world.figures() == (2, 0, 0, 0)


@pytest.mark.parametrize("cooldown", [0.0, 0.2])
def test_acc_3_a_provider_without_anything_has_no_status_at_once(make: Callable[..., World], cooldown: float) -> None:
    world = make(release_cooldown=cooldown)
    assert world.status() is None
    slot = world.hold()
    assert world.figures() == (1, 0, 0, 0)
    slot.release()
    if cooldown:
        assert world.figures() == (0, 1, 0, 0)
        world.pass_ms(199)
        assert world.figures() == (0, 1, 0, 0)
        world.pass_ms(1)
    assert world.status() is None
    assert world.manager.get_status_all() == {}
    assert slot.state is SlotState.FREE


@pytest.mark.parametrize(
    "give",
    [
        lambda w: w.manager.set_limit("p", 1),
        lambda w: w.manager.set_cooldown("p", 1),
        lambda w: w.manager.report_rate_limit("p", 1),
    ],
    ids=["limit", "cooldown", "pause"],
)
def test_acc_3_a_limit_a_cooldown_or_a_pause_is_state(
    make: Callable[..., World], give: Callable[[World], None]
) -> None:
    world = make()
    give(world)
    assert world.figures() == (0, 0, 0, 0)
    world.manager.remove_limit("p")
    world.manager.set_cooldown("p", None)
    world.manager.resume("p")
    assert world.status() is None


def test_acc_3_a_refused_request_leaves_no_provider(make: Callable[..., World]) -> None:
    world = make(default_limit=0, max_queued=0)
    with world.unchanged():
        assert isinstance(world.ask().exception(), QueueFullError)
        assert world.take() is None
    assert isinstance(world.ask(timeout=0).exception(), AcquireTimeoutError)
    assert world.manager._providers == {}


def test_bug_30_the_empty_name_is_a_name(make: Callable[..., World]) -> None:
    world = make()
    world.manager.set_limit("", 1)
    world.hold("")
    assert world.take("") is None
    assert world.figures("") == (1, 0, 0, 0)


def test_acc_4_a_cooldown_of_its_own_imposes_no_limit(make: Callable[..., World]) -> None:
    world = make(release_cooldown=0.2)
    manager = world.manager
    manager.set_cooldown("p", 0.5)
    assert (manager.get_cooldown("p"), manager.get_cooldown("q"), manager.get_limit("p")) == (0.5, None, None)
    early, late = world.hold(), world.hold()
    early.release()
    manager.set_cooldown("p", 0.1)  # moves no cooldown that runs
    late.release()
    world.pass_ms(100)
    assert (early.state, late.state) == (SlotState.COOLING, SlotState.FREE)
    world.pass_ms(399)
    assert early.state is SlotState.COOLING
    world.pass_ms(1)
    assert early.state is SlotState.FREE
    manager.set_cooldown("p", None)
    assert manager.get_cooldown("p") is None


def test_adm_1_at_once_up_to_the_limit_then_the_queue(make: Callable[..., World]) -> None:
    world = make(limits={"p": 3})
    for _ in range(3):
        world.hold()
    assert not world.ask().done()
    assert world.figures() == (3, 0, 0, 1)
    assert world.hold("other").state is SlotState.HELD


def test_bug_15_a_newcomer_doesnt_pass_the_queue_though_the_timer_is_late(make: Callable[..., World]) -> None:
    world = make(limits={"p": 1})
    holder = world.hold()
    queued = world.ask()
    holder.release()
    world.loop.stall_ns(200_000_000)
    assert world.take() is None
    newcomer = world.ask()
    world.loop.settle()
    assert (queued.done(), newcomer.done()) == (True, False)


@pytest.mark.parametrize("cooldown", [0.0, 0.2])
def test_bug_13_release_and_acquire_in_one_step_dont_pass_the_queue(
    make: Callable[..., World], cooldown: float
) -> None:
    world = make(limits={"p": 1}, release_cooldown=cooldown)
    holder = world.hold()
    queued = world.ask()
    holder.release()
    world.loop.stall_ns(round(cooldown * 1e9))
    again = world.ask(prompt_started_at=0)  # older, but the grant was made already
    assert world.take() is None
    assert world.figures() == (1, 0, 0, 1)
    world.loop.settle()
    assert (queued.done(), again.done()) == (True, False)


def test_bug_17_a_grant_counts_before_its_caller_runs(make: Callable[..., World]) -> None:
    """ADM-3."""
    world = make(limits={"p": 1}, release_cooldown=0)
    holder = world.hold()
    queued = world.ask()
    holder.release()
    assert not queued.done()
    assert world.figures() == (1, 0, 0, 0)
    assert world.take() is None
    assert [info.state for info in world.manager.get_slots("p")] == [SlotState.HELD]


def test_bug_35_raising_wakes_and_leaves_no_ghost(make: Callable[..., World]) -> None:
    world = make(limits={"p": 1})
    world.hold()
    queued = [world.ask(), world.ask()]
    world.manager.set_limit("p", 3)
    assert world.figures() == (3, 0, 0, 0)
    world.manager.set_limit("p", 4)
    newcomer = world.ask()
    world.loop.settle()
    assert all(task.done() for task in (*queued, newcomer))
    assert world.figures() == (4, 0, 0, 0)


@pytest.mark.parametrize("max_queued", [0, 1, 3])
def test_adm_7_a_full_queue_refuses_and_changes_nothing(make: Callable[..., World], max_queued: int) -> None:
    world = make(limits={"p": 1}, max_queued=max_queued)
    world.hold()
    waiting = [world.ask(prompt_started_at=5) for _ in range(max_queued)]
    with world.unchanged():
        error = world.ask(prompt_started_at=1).exception()  # its place would be the first
    assert isinstance(error, QueueFullError)
    assert (error.provider, error.limit, error.in_flight, error.queued) == ("p", 1, 1, max_queued)
    assert isinstance(world.ask(timeout=0).exception(), AcquireTimeoutError)
    world.ask("q").result()  # another provider's queue is another
    if waiting:
        waiting[0].cancel()
        assert not world.ask().done()


def test_adm_8_try_acquire_grants_iff_acquire_would(make: Callable[..., World]) -> None:
    world = make(limits={"p": 1})
    slot = world.take(conversation_id="c", prompt_started_at=7)
    assert slot is not None
    assert (slot.state, slot.conversation_id, slot.provider) == (SlotState.HELD, "c", "p")
    with world.unchanged():
        assert world.take() is None
    slot.release()
    world.manager.report_rate_limit("p", 5)
    world.pass_ms(200)
    assert world.figures() == (0, 0, 0, 0)
    with world.unchanged():
        assert world.take() is None
    world.manager.resume("p")
    assert world.take() is not None


def test_adm_4_a_refusal_of_try_acquire_tells_nothing(make_watched: Callable[..., World]) -> None:
    world = make_watched(limits={"p": 0})
    assert world.take() is None
    assert world.take("q") is not None
    assert world.told() == [("granted", 2)]


def test_bug_41_a_status_is_a_frozen_copy(make: Callable[..., World]) -> None:
    world = make(limits={"p": 1}, default_limit=7)
    world.hold()
    world.ask(prompt_started_at=1)
    world.pass_ms(250)
    status = world.status()
    assert status is not None
    assert (status.provider, status.limit, status.in_flight, status.held, status.queued) == ("p", 1, 1, 1, 1)
    assert (status.head_wait, status.paused, status.paused_for, status.paused_until) == (0.25, False, None, None)
    world.manager.set_limit("p", 5)
    assert status.limit == 1
    now = world.status()
    assert now is not None
    assert (now.limit, now.queued) == (5, 0)
    assert world.manager.get_status_all() == {"p": now}
    with pytest.raises(AttributeError):
        now.limit = 3  # type: ignore[misc]
    limits = world.manager.get_limits()
    limits["p"] = 99
    assert world.manager.get_limit("p") == 5


def test_status_all_stands_in_the_order_of_getting_state(make: Callable[..., World]) -> None:
    world = make(limits={"b": 1, "a": 1})
    world.hold("z")
    world.hold("c")
    assert list(world.manager.get_status_all()) == ["b", "a", "z", "c"]
    assert world.manager.get_limits() == {"b": 1, "a": 1}


def test_get_slots_tells_who_holds_and_who_waits(make: Callable[..., World]) -> None:
    world = make(limits={"p": 2})
    assert world.manager.get_slots("p") == []
    assert world.manager.get_slots("unknown") == []
    first = world.hold(conversation_id="a")
    world.pass_ms(100)
    world.hold(conversation_id="b", prompt_started_at=3)
    world.ask(conversation_id="late", prompt_started_at=9)
    world.ask(conversation_id="early", prompt_started_at=8)
    gone = world.ask(conversation_id="gone", prompt_started_at=8.5)
    gone.cancel()
    world.pass_ms(100)
    first.touch()
    world.pass_ms(50)
    rows = [(s.state, s.conversation_id, s.prompt_started_at, s.age, s.idle) for s in world.manager.get_slots("p")]
    assert rows == [
        (SlotState.HELD, "a", 1e9, 0.25, 0.05),
        (SlotState.HELD, "b", 3, 0.15, 0.15),
        (SlotState.QUEUED, "early", 8, 0.15, None),
        (SlotState.QUEUED, "late", 9, 0.15, None),
    ]


def test_a_slot_is_what_its_repr_says(make: Callable[..., World]) -> None:
    world = make()
    slot = world.hold()
    assert repr(slot) == "<Slot of 'p': held>"
    slot.release()
    assert repr(slot) == "<Slot of 'p': cooling>"
    assert slot != world.hold()
    assert len({slot, slot}) == 1
