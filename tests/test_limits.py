"""LIM: raising admits by room, lowering evicts nobody, removing takes the limit and nothing else."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from support import World


def test_bug_34_lower_then_raise_while_over_subscribed(make: Callable[..., World]) -> None:
    world = make(limits={"p": 2})
    world.hold(), world.hold()
    waiting = [world.ask(), world.ask()]
    world.manager.set_limit("p", 1)
    world.manager.set_limit("p", 2)
    world.loop.settle()
    assert world.figures() == (2, 0, 0, 2)
    world.manager.set_limit("p", 4)
    world.loop.settle()
    assert all(task.done() for task in waiting)
    assert world.figures() == (4, 0, 0, 0)


def test_lim_2_lowering_evicts_nobody_and_admits_nobody_until_there_is_room(make: Callable[..., World]) -> None:
    world = make(limits={"p": 3}, release_cooldown=0)
    slots = [world.hold() for _ in range(3)]
    waiter = world.ask()
    world.manager.set_limit("p", 1)
    seen = []
    for slot in slots:
        seen.append(world.figures())
        slot.release()
    assert seen == [(3, 0, 0, 1), (2, 0, 0, 1), (1, 0, 0, 1)]
    assert world.figures() == (1, 0, 0, 0)
    world.loop.settle()
    assert waiter.done()


@pytest.mark.parametrize("how", ["limit", "default"])
def test_bug_37_limit_0_admits_nobody(make: Callable[..., World], how: str) -> None:
    world = make(default_limit=0) if how == "default" else make(limits={"p": 0})
    waiter = world.ask()
    assert world.take() is None
    world.pass_ms(100_000)
    assert world.figures() == (0, 0, 0, 1)
    world.manager.set_limit("p", 1)
    world.loop.settle()
    assert waiter.done()


def test_lim_3_removing_a_limit_admits_everybody_and_forgets_nobody(make: Callable[..., World]) -> None:
    world = make(limits={"p": 1})
    world.hold()
    waiting = [world.ask() for _ in range(5)]
    world.manager.remove_limit("p")
    assert world.figures() == (6, 0, 0, 0)
    world.manager.set_limit("p", 2)
    assert world.take() is None
    world.loop.settle()
    assert all(task.done() for task in waiting)


def test_lim_4_the_default_limit_is_for_all_without_one_of_their_own(make: Callable[..., World]) -> None:
    world = make(default_limit=1, limits={"own": 2})
    for provider, limit in [("p", 1), ("q", 1), ("own", 2)]:
        for _ in range(limit):
            world.hold(provider)
        assert world.take(provider) is None
    assert (world.manager.get_limit("p"), world.manager.get_limit("own")) == (None, 2)
    world.manager.set_limit("p", 3)
    assert world.take("p") is not None
    world.manager.remove_limit("p")
    world.manager.remove_limit("own")
    assert (world.take("p"), world.take("own")) == (None, None)


@pytest.mark.parametrize("call", ["remove_limit", "set_cooldown", "resume"])
def test_taking_nothing_away_makes_no_provider(make: Callable[..., World], call: str) -> None:
    world = make()
    arguments = (None,) if call == "set_cooldown" else ()
    with world.unchanged():
        getattr(world.manager, call)("p", *arguments)
    assert world.manager._providers == {}
    if world.watched:
        assert world.events == []


def test_configuration_is_told_with_its_values(make_watched: Callable[..., World]) -> None:
    world = make_watched(limits={"p": 1})
    manager = world.manager
    manager.set_limit("p", 5)
    manager.set_cooldown("p", 1.5)
    manager.set_cooldown("p", None)
    manager.remove_limit("p")
    manager.set_limit("q", 0)
    manager.close()
    manager.close()
    assert [(event.kind, event.provider, event.value) for event in world.events] == [
        ("limit_set", "p", 5),
        ("cooldown_set", "p", 1_500_000_000),
        ("cooldown_set", "p", None),
        ("limit_removed", "p", None),
        ("limit_set", "q", 0),
        ("closed", None, None),
    ]


def test_removing_a_limit_that_isnt_there_tells_nothing(make_watched: Callable[..., World]) -> None:
    world = make_watched()
    world.hold()
    world.events.clear()
    world.manager.remove_limit("p")
    assert world.events == []


def test_bug_31_live_state_is_never_dropped(make: Callable[..., World]) -> None:
    world = make(default_limit=1, slot_timeout=None)
    world.hold()
    world.pass_ms(3_600_000)
    assert world.take() is None
    assert world.figures() == (1, 0, 0, 0)


def test_the_standing_invariants_notice_a_leaked_slot(make: Callable[..., World]) -> None:
    """The helper `check` isn't blind: a miscounted provider is found."""
    world = make(limits={"p": 2})
    slot = world.hold()
    p = world.manager._providers["p"]
    p.cap -= 2
    with pytest.raises(AssertionError, match="room is computed wrongly"):
        world.check()
    p.cap += 2
    slot.release()
