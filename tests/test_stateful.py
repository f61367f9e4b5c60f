"""Random courses on virtual time, twice in step: with an observer, and without one (the manager's short ways).

After every rule the standing invariants hold of both (support.World.check, the auditor), and both have answered alike.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from provider_concurrency import ConcurrencyManager, Slot
from provider_concurrency._tags import COOLING, QUEUED
from provider_concurrency.provider import Provider
from provider_concurrency.queue import SortedRun
from support import MS, World

CALM = settings(
    max_examples=60,
    stateful_step_count=40,
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    print_blob=False,
)
FAULTY = settings(CALM, max_examples=100, phases=[Phase.generate])

providers = st.sampled_from(["p", "q"])
requests = st.integers(0, 30)
durations = st.sampled_from([0, 1, 50, 100, 199, 200, 201, 500, 1000, 3000])
seconds = st.sampled_from([0.0, 0.001, 0.1, 0.2, 1.0])
any_float = st.one_of(st.floats(), st.none(), st.sampled_from([0.05, 0.3, 2.0, -1, 10**400, True, "5"]))


class Course(RuleBasedStateMachine):
    """The rules; requests are known by their number, in both worlds."""

    def __init__(self) -> None:
        super().__init__()
        self.worlds: list[World] = []
        self.asked: list[list[asyncio.Task[Slot] | Slot | None]] = [[], []]
        self.before: list[dict[str, int]] = [{}, {}]

    @initialize(
        release_cooldown=st.sampled_from([0.0, 0.2]),
        default_limit=st.sampled_from([None, 0, 1, 2]),
        max_queued=st.sampled_from([None, 0, 2]),
        slot_timeout=st.sampled_from([None, 0.5, 2.0]),
        is_ticking=st.booleans(),
    )
    def begin(self, is_ticking: bool, **configuration: Any) -> None:
        for watched in (True, False):
            world = World(watched=watched, watchdog_interval=1.0, min_pause=0, limits={"p": 1}, **configuration)
            if is_ticking:  # every reading of the clock is a nanosecond later, as on real time
                ticks = itertools.count()
                world.manager._clock = lambda w=world, t=ticks: w.loop.time_ns() + next(t)  # type: ignore[misc]
            self.worlds.append(world)

    def both(self, act: Callable[[World, list[Any]], object]) -> list[Any]:
        """Does it in both worlds, and compares what comes of it."""
        results = []
        for world, asked in zip(self.worlds, self.asked, strict=True):
            try:
                with world.loop.running():
                    results.append(act(world, asked))
            except Exception as error:  # noqa: BLE001 - compared
                results.append(type(error))
        assert results[0] == results[1], "the short ways answer differently"
        return results

    # -- requests ------------------------------------------------------------------------------------------------

    @rule(
        provider=providers,
        prompts=st.lists(st.one_of(st.none(), st.integers(0, 3)), min_size=1, max_size=4),
        timeout=st.sampled_from([None, None, None, 0, 0.1, 0.2, 1.0]),
        hook=st.sampled_from(["", "", "", "", "release", "try", "limit", "429"]),
    )
    def acquire(self, provider: str, prompts: list[int | None], timeout: float | None, hook: str) -> None:
        for prompt in prompts:
            self.both(lambda w, asked, prompt=prompt: ask(w, asked, provider, prompt, timeout, hook))  # type: ignore[misc]
            if hook == "limit":  # lowered in the middle: what was granted before that may exceed it
                self.note_in_flight()
            self.holds()

    @rule(provider=providers)
    def try_acquire(self, provider: str) -> None:
        def act(world: World, asked: list[Any]) -> object:
            slot = world.take(provider)
            asked.append(slot)
            return slot is not None

        self.both(act)

    @rule(number=requests)
    def release(self, number: int) -> None:
        def act(world: World, asked: list[Any]) -> object:
            slot = find(asked, number)
            if slot is None:
                return None
            slot.release()
            before = world.everything()
            slot.release()
            slot.touch()
            assert world.everything() == before, "REL-2: the second release does something"
            return slot.state

        self.both(act)

    @rule(number=requests)
    def touch(self, number: int) -> None:
        def act(_: World, asked: list[Any]) -> object:
            slot = find(asked, number)
            return None if slot is None else (slot.touch(), slot.state)

        self.both(act)

    @rule(number=requests)
    def cancel(self, number: int) -> None:
        """Cancels a request that waits, or hasn't received its slot yet."""

        def act(_: World, asked: list[Any]) -> object:
            waiting = [task for task in asked if isinstance(task, asyncio.Task) and not task.done()]
            return waiting and waiting[number % len(waiting)].cancel()

        self.both(act)

    @rule(provider=providers, number=requests)
    def raise_and_cancel(self, provider: str, number: int) -> None:
        """Grants to the queue, and cancels before the loop has run."""
        self.both(lambda w, _: w.manager.set_limit(provider, 3))
        self.cancel(number)

    # -- the operator --------------------------------------------------------------------------------------------

    @rule(
        provider=providers,
        call=st.one_of(
            st.tuples(st.just("set_limit"), st.integers(0, 3)),
            st.tuples(st.just("set_cooldown"), st.one_of(st.none(), seconds)),
            st.tuples(st.just("report_rate_limit"), any_float),
            st.tuples(st.sampled_from(["resume", "remove_limit"])),
        ),
    )
    def operate(self, provider: str, call: tuple[Any, ...]) -> None:
        self.both(lambda w, _: getattr(w.manager, call[0])(provider, *call[1:]))

    @precondition(lambda self: len(self.asked[0]) > 25)
    @rule()
    def close(self) -> None:
        self.both(lambda w, _: w.manager.close())

    # -- time, and the loop's turn -------------------------------------------------------------------------------

    @rule(ms=durations, how=st.sampled_from(["advance", "advance", "settle", "stall", "step"]))
    def go_on(self, ms: int, how: str) -> None:
        for world in self.worlds:
            if how == "advance":
                world.pass_ms(ms)
            elif how == "stall":
                world.loop.stall_ns(ms * MS)
            elif how == "settle":
                world.loop.settle()
            else:
                world.loop.step()
        if how in ("advance", "settle"):
            self.both(lambda _, asked: [is_done(each) for each in asked])

    @rule()
    def read(self) -> None:
        def act(world: World, asked: list[Any]) -> object:
            return (
                {name: world.figures(name) for name in ("p", "q")},
                {name: s.paused for name, s in world.manager.get_status_all().items()},
                [[info.state for info in world.manager.get_slots(name)] for name in ("p", "q")],
                [slot and (slot.state, slot.reclaimed) for slot in (find(asked, n) for n in range(len(asked)))],
                world.manager.get_limits(),
            )

        self.both(act)

    # -- what holds ----------------------------------------------------------------------------------------------

    @invariant()
    def holds(self) -> None:
        for world, before in zip(self.worlds, self.before, strict=False):
            world.check()
            manager = world.manager
            for name, p in manager._providers.items():
                limit = p.limit if p.limit is not None else manager._settings.default_limit
                if limit is not None and p.in_flight > limit:
                    assert p.in_flight <= before.get(name, 0), "ADM-6: it rises above the limit"
        self.note_in_flight()

    def note_in_flight(self) -> None:
        self.before = [{name: p.in_flight for name, p in w.manager._providers.items()} for w in self.worlds]

    def teardown(self) -> None:
        try:
            for world, asked in zip(self.worlds, self.asked, strict=True):
                self.end(world, asked)
        finally:
            for world in self.worlds:
                if not world.loop.is_closed():
                    world.abandon()

    def end(self, world: World, asked: list[Any]) -> None:
        """Opens everything: whoever waits is served; then nothing may be left."""
        manager = world.manager
        if not manager._closed:
            for name in ("p", "q"):
                manager.set_limit(name, 1000)
                manager.resume(name)
        world.loop.settle()
        assert all(is_done(each) for each in asked), "a request never ends"
        known = {slot for slot in (find(asked, number) for number in range(len(asked))) if slot is not None}
        assert all(known.issuperset(p.held) for p in manager._providers.values()), "a slot that nobody has"
        for number in range(len(asked)):
            slot = find(asked, number)
            if slot is not None:
                slot.release()
        world.pass_ms(5000)
        for name in ("p", "q"):
            assert world.figures(name) in (None, (0, 0, 0, 0))
        world.finish()


def ask(world: World, asked: list[Any], provider: str, prompt: int | None, timeout: float | None, hook: str) -> object:
    """An acquire whose on_queued does something of its own; returns how it stands at once."""

    def on_queued() -> None:
        if hook == "release":
            for slot in list(world.manager._providers[provider].held):
                slot.release()
        elif hook == "try":
            asked.append(world.take(provider))
        elif hook == "limit":
            world.manager.set_limit(provider, 2)
        elif hook == "429":
            world.manager.report_rate_limit(provider, 0.3)

    task = world.ask(provider, conversation_id="c", prompt_started_at=prompt, timeout=timeout, on_queued=on_queued)
    asked.append(task)
    return task.done() and (type(task.exception()) if task.exception() else task.result().state)


def find(asked: list[Any], number: int) -> Slot | None:
    """The slot that a request's caller has received."""
    found = asked[number % len(asked)] if asked else None
    if isinstance(found, asyncio.Task):
        done = found.done() and not found.cancelled() and found.exception() is None
        return found.result() if done else None
    return found


def is_done(request: object) -> bool:
    return not isinstance(request, asyncio.Task) or request.done()


def test_random_courses_keep_every_invariant() -> None:
    run_state_machine_as_test(Course, settings=CALM)


# -- a fault is caught -------------------------------------------------------------------------------------------------


def lose_wake_ups(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ConcurrencyManager, "_admit", lambda *_: None)


def leak_undelivered_grants(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ConcurrencyManager, "_give_back", lambda *_: None)


def keep_timers(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ConcurrencyManager, "_disarm", lambda *_: None)


def serve_the_newest(patch: pytest.MonkeyPatch) -> None:
    push = SortedRun.push

    def push_backwards(run: SortedRun, slot: Slot) -> None:
        if slot._state == QUEUED:
            slot._key = -slot._key
        push(run, slot)

    patch.setattr(SortedRun, "push", push_backwards)


def admit_while_paused(patch: pytest.MonkeyPatch) -> None:
    def measure_room(p: Provider) -> None:
        p.cap = p.ceiling - len(p.cooling or ())

    patch.setattr(Provider, "measure_room", measure_room)


def free_twice(patch: pytest.MonkeyPatch) -> None:
    release = Slot.release

    def release_again(slot: Slot) -> None:
        if slot._state == COOLING:
            slot._provider.cap += 1
        release(slot)

    patch.setattr(Slot, "release", release_again)


def forget_to_watch(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ConcurrencyManager, "_arm", lambda *_: None)


FAULTS = [
    lose_wake_ups,
    leak_undelivered_grants,
    keep_timers,
    serve_the_newest,
    admit_while_paused,
    free_twice,
    forget_to_watch,
]


@pytest.mark.parametrize("plant", FAULTS, ids=lambda plant: plant.__name__)
def test_a_planted_fault_is_caught(
    plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    with pytest.raises(BaseException):  # noqa: B017, PT011 - which invariant notices first is not the point
        run_state_machine_as_test(Course, settings=FAULTY)
