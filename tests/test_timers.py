"""TIM-4: one timer a provider, one for the sweeps, whatever the load."""

from __future__ import annotations

import random
from collections.abc import Callable

from support import World


def test_tim_4_one_timer_a_provider_and_one_for_the_sweeps_under_load(make: Callable[..., World]) -> None:
    world = make(default_limit=3, slot_timeout=5, watchdog_interval=1)
    names = [f"p{n}" for n in range(7)]
    chance = random.Random(1)
    peak = 0
    for _ in range(1500):
        name = chance.choice(names)
        act = chance.randrange(6)
        if act <= 2:
            world.ask(name, timeout=chance.choice([None, 0.3, 2.0]), prompt_started_at=chance.randrange(5))
        elif act == 3:
            for slot in list(world.manager._providers[name].held if name in world.manager._providers else ()):
                slot.release()
        elif act == 4:
            world.manager.report_rate_limit(name, chance.random())
        else:
            world.pass_ms(chance.randrange(100))
        peak = max(peak, world.timers())
        assert world.timers() <= len(names) + 1
    assert peak == len(names) + 1


def test_tim_4_without_anybody_waiting_no_timer_but_the_sweeps(make_unwatched: Callable[..., World]) -> None:
    world = make_unwatched(limits={"p": 1})
    assert world.timers() == 0
    slot = world.hold()
    assert world.timers() == 1
    slot.release()
    world.manager.report_rate_limit("p", 50)
    assert world.timers() == 1
    world.pass_ms(30_000)
    assert world.timers() == 0  # nothing is held: not armed again


def test_tim_4_an_observer_is_told_in_time_though_nobody_waits(make_watched: Callable[..., World]) -> None:
    world = make_watched(limits={"p": 1})
    world.hold().release()
    world.events.clear()
    world.pass_ms(200)
    assert world.told() == [("recycled", 1)]
    world.manager.report_rate_limit("p", 5)
    world.events.clear()
    world.pass_ms(5000)
    assert world.told() == [("resumed", None)]


def test_tim_4_an_earlier_deadline_takes_the_timer_over(make: Callable[..., World]) -> None:
    world = make(limits={"p": 1})
    world.hold()
    slow, quick = world.ask(timeout=50), world.ask(timeout=1)
    assert world.timers() == 2
    world.pass_ms(1000)
    assert (slow.done(), quick.done(), world.timers()) == (False, True, 2)
    world.pass_ms(49_000)
    assert slow.done()


def test_tim_4_the_last_one_to_leave_leaves_no_timer_for_long(make_unwatched: Callable[..., World]) -> None:
    world = make_unwatched(limits={"p": 1}, slot_timeout=None)
    world.hold()
    world.ask(timeout=5).cancel()
    world.pass_ms(5000)
    assert world.timers() <= 1
