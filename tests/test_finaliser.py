"""FIN-1: a release or a touch out of a finaliser may come at any call inside the manager, and does no harm.

The interpreter lets the collector, and so finalisers, in when a Python function begins and when a C function has
returned. `play` puts a finaliser's act at the n-th such moment inside the manager's modules, for every n.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from provider_concurrency import Slot, SlotState
from support import World

MODULES = ("core", "delivery", "loops", "manager", "operation", "provider", "queue", "slot", "surface")


class Meddler:
    """A profile function that acts once, at the n-th event inside the manager."""

    def __init__(self, n: int, act: Callable[[], object]) -> None:
        self.n, self.act = n, act
        self.count = 0

    def __call__(self, frame: Any, event: str, arg: object) -> None:
        name: str = frame.f_globals.get("__name__", "")
        if event in ("call", "c_return") and name.removeprefix("provider_concurrency.") in MODULES:
            self.count += 1
            if self.count == self.n + 1:
                self.act()


def meddle(n: int, act: Callable[[], object], operation: Callable[[], object]) -> int:
    """Runs an operation with an act in the middle of it. Returns how many places for it there were."""
    meddler = Meddler(n, act)
    before = sys.getprofile()
    sys.setprofile(meddler)
    try:
        operation()
    finally:
        sys.setprofile(before)
    return meddler.count


class Scene:
    """Several slots, one of which the finaliser holds; and one operation."""

    def __init__(self, *, watched: bool, cooldown: float, limit: int | None, is_late: bool) -> None:
        limits = {} if limit is None else {"p": limit}
        self.world = World(watched=watched, limits=limits, release_cooldown=cooldown, slot_timeout=5)
        self.victim, self.mine, self.cooling, self.last = (self.world.hold(conversation_id=c) for c in "abcd")
        self.cooling.release()
        self.world.pass_ms(100)
        self.last.release()
        self.got: list[Slot | None] = []
        if is_late:
            self.world.loop.stall_ns(100_000_000)  # `cooling` is due, `last` isn't, and nobody has noticed


OPERATIONS: dict[str, Callable[[Scene], object]] = {
    "release": lambda s: s.mine.release(),
    "release the same": lambda s: s.victim.release(),
    "touch": lambda s: s.mine.touch(),
    "try_acquire": lambda s: s.got.append(s.world.take()),
    "acquire": lambda s: s.got.append(s.world.hold()),
    "status": lambda s: s.world.status(),
    "set_limit": lambda s: s.world.manager.set_limit("p", 3),
    "429": lambda s: s.world.manager.report_rate_limit("p", 1),
    "state": lambda s: s.cooling.state,
}
ACTS: dict[str, Callable[[Scene], object]] = {
    "release": lambda s: s.victim.release(),
    "touch": lambda s: s.victim.touch(),
    "double release": lambda s: (s.victim.release(), s.victim.release()),
}


def play(scene: Scene, operation: Callable[[Scene], object], act: Callable[[Scene], object], n: int) -> int:
    world = scene.world
    with world:
        count = meddle(n, lambda: act(scene), lambda: operation(scene))
        world.loop.settle()
        world.check()
        for slot in (scene.victim, scene.mine, *scene.got):
            if slot is not None:
                slot.release()
        in_flight = world.status()
        assert in_flight is None or in_flight.held == 0
        world.check()
        world.pass_ms(199)
        late = [scene.victim.state, scene.mine.state]
        world.pass_ms(2000)
        assert world.figures() in (None, (0, 0, 0, 0))
        ends = [s.state for s in (scene.victim, scene.mine, scene.cooling, scene.last, *scene.got) if s is not None]
        assert set(ends) == {SlotState.FREE}
        assert late
    return count


@pytest.mark.parametrize("act", ACTS.values(), ids=ACTS.keys())
@pytest.mark.parametrize("operation", OPERATIONS.values(), ids=OPERATIONS.keys())
@pytest.mark.parametrize("watched", [True, False], ids=["watched", "unwatched"])
def test_fin_1_a_finaliser_at_every_call_of_an_operation(
    operation: Callable[[Scene], object], act: Callable[[Scene], object], watched: bool
) -> None:
    for cooldown in (0.2, 0.0):
        for limit, is_late in ((8, True), (8, False), (None, True)):

            def build(cooldown: float = cooldown, limit: int | None = limit, is_late: bool = is_late) -> Scene:
                return Scene(watched=watched, cooldown=cooldown, limit=limit, is_late=is_late)

            n = 0
            while n < play(build(), operation, act, n):
                n += 1
            assert n > 0, "nowhere to meddle"


def take_quietly(world: World, got: list[Slot | None]) -> None:
    with suppress(RuntimeError):  # an operation is under way
        got.append(world.take())


@pytest.mark.parametrize("watched", [True, False], ids=["watched", "unwatched"])
@pytest.mark.parametrize("ask", [World.hold, World.take], ids=["acquire", "try_acquire"])
def test_adm_4_a_finaliser_that_takes_the_last_slot_at_every_call_of_an_acquire(
    ask: Callable[[World], Slot | None], watched: bool
) -> None:
    """Whoever comes first gets it; nobody is granted beside the limit."""
    n, count = 0, 1
    while n < count:
        with World(watched=watched, limits={"p": 2}, release_cooldown=0) as world:
            world.hold()
            got: list[Slot | None] = []

            def act(world: World = world, got: list[Slot | None] = got) -> None:
                take_quietly(world, got)

            def operate(world: World = world, got: list[Slot | None] = got) -> None:
                with suppress(AssertionError):  # `hold` waits in vain if the finaliser was first
                    got.append(ask(world))

            count = meddle(n, act, operate)
            assert world.figures() in ((2, 0, 0, 0), (2, 0, 0, 1))
            world.check()
            assert sum(slot is not None for slot in got) <= 1
        n += 1
    assert n >= 3, "nowhere to meddle"


@pytest.mark.parametrize("watched", [True, False], ids=["watched", "unwatched"])
@pytest.mark.parametrize("cooldown", [0.2, 0.0])
def test_adm_4_a_finaliser_that_takes_a_slot_at_every_call_of_a_release(watched: bool, cooldown: float) -> None:
    """It finds the slot held, or cooling, or free, and nothing in between."""
    n, count = 0, 1
    while n < count:
        with World(watched=watched, limits={"p": 1}, release_cooldown=cooldown) as world:
            held = world.hold()
            got: list[Slot | None] = []
            seen: list[tuple[int, int, int, int] | None] = []

            def act(world: World = world, got: list[Slot | None] = got, seen: list[Any] = seen) -> None:
                take_quietly(world, got)
                seen.append(world.figures())

            count = meddle(n, act, held.release)
            assert all(figures is None or figures[0] + figures[1] <= 1 for figures in seen), seen
            world.check()
        n += 1
    assert n >= 2, "nowhere to meddle"


@pytest.mark.parametrize("watched", [True, False], ids=["watched", "unwatched"])
@pytest.mark.parametrize("end", ["release", "set_limit", "close"])
def test_fin_1_a_finaliser_that_cancels_at_every_call_of_a_grant(end: str, watched: bool) -> None:
    """Nothing is raised, everybody gets an answer, and the slot goes to somebody who still wants it."""
    n, count = 0, 1
    while n < count:
        with World(watched=watched, limits={"p": 1}, release_cooldown=0) as world:
            held = world.hold()
            tasks = [world.ask(prompt_started_at=prompt) for prompt in (1, 2)]
            ends: dict[str, Callable[[], object]] = {
                "release": held.release,
                "set_limit": lambda world=world: world.manager.set_limit("p", 2),  # type: ignore[misc]
                "close": world.manager.close,
            }
            count = meddle(n, tasks[0].cancel, ends[end])
            world.loop.settle()
            world.check()
            if n < count:  # the cancel came
                assert tasks[0].done()
                assert tasks[1].done()
                assert end == "close" or (tasks[0].cancelled(), tasks[1].cancelled()) == (True, False)
        n += 1
    assert n >= 3, "nowhere to meddle"
