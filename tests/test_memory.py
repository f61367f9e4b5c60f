"""ACC-3 and FIN-1: what is idle is forgotten, what is held is kept, and memory follows what lives."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable

import pytest

from provider_concurrency import Slot, SlotState
from support import World


@pytest.mark.parametrize("slot_timeout", [300.0, None])
@pytest.mark.parametrize("cooldown", [0.0, 0.2])
def test_acc_3_an_idle_provider_is_forgotten_by_the_next_sweep(
    make: Callable[..., World], cooldown: float, slot_timeout: float | None
) -> None:
    """Bug 30: 10 000 providers used once leave nothing."""
    world = make(release_cooldown=cooldown, slot_timeout=slot_timeout)
    for n in range(1000 if world.watched else 10_000):
        world.hold(f"provider {n}").release()
    world.pass_ms(30_000)
    assert world.manager._providers == {}
    assert world.manager.get_status_all() == {}


def test_acc_3_what_still_cooled_at_the_last_sweep_goes_with_the_next(make: Callable[..., World]) -> None:
    world = make(release_cooldown=10, watchdog_interval=30)
    world.pass_ms(25_000)
    world.hold("cooling").release()
    world.pass_ms(5000)
    assert world.figures("cooling") == (0, 1, 0, 0)
    world.hold("next").release()
    world.pass_ms(30_000)
    assert "cooling" not in world.manager._providers


def test_memory_is_flat_over_many_requests(make_unwatched: Callable[..., World]) -> None:
    world = make_unwatched(limits={"p": 2}, release_cooldown=0.001)

    def use(times: int) -> None:
        for n in range(times):
            slot = world.hold("p", conversation_id="c", timeout=5.0)
            task = world.ask("p", timeout=5.0)
            queued = world.ask("p", timeout=5.0)
            slot.release()
            world.pass_ms(1)
            queued.cancel() if n % 2 else task.result().release()
            world.pass_ms(1)
            for each in (task, queued):
                if each.done() and not each.cancelled():
                    each.result().release()
            world.pass_ms(1)
            world.hold(f"once {n}").release()

    def measure(rounds: int) -> int:
        for _ in range(rounds):
            use(60)
            world.pass_ms(30_000)
        gc.collect()
        return tracemalloc.get_traced_memory()[0]

    tracemalloc.start()
    try:
        before = measure(10)  # until the interpreter has filled its free lists
        assert measure(5) - before < 10_000, "memory grows with the number of requests"
    finally:
        tracemalloc.stop()


def test_fin_1_a_dropped_slot_stays_held_until_it_is_reclaimed(
    make: Callable[..., World], caplog: pytest.LogCaptureFixture
) -> None:
    world = make(limits={"p": 1}, slot_timeout=5, watchdog_interval=1)
    world.hold(conversation_id="forgetful")
    gc.collect()
    assert world.figures() == (1, 0, 0, 0)
    world.pass_ms(5000)
    assert world.figures() == (1, 0, 0, 0)
    assert caplog.records == []
    world.pass_ms(1000)
    assert world.figures() == (0, 0, 1, 0)
    assert "forgetful" in caplog.text
    assert not hasattr(Slot, "__del__")


class Finaliser:
    """Garbage that acts when it is collected."""

    def __init__(self, act: Callable[[], object]) -> None:
        self.act = act
        self.me = self  # so that only the collector finds it

    def __del__(self) -> None:
        self.act()


def test_fin_1_a_release_from_a_finaliser_acts_after_the_running_operation(
    make_watched: Callable[..., World], monkeypatch: pytest.MonkeyPatch
) -> None:
    world = make_watched(limits={"p": 1, "q": 1}, release_cooldown=0)
    held, other = world.hold("p"), world.hold("q")
    waiter, waiter_of_q = world.ask("p"), world.ask("q")
    world.events.clear()
    other_waits = world.ask("p")
    Finaliser(other.release)
    Finaliser(other.touch)
    admit, seen = world.manager._admit, []

    def collect_then_admit(*args: object) -> None:
        if not seen:
            gc.collect()
            seen.append(other._state)
        admit(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(world.manager, "_admit", collect_then_admit)
    held.release()
    assert seen == [0]  # still held while the operation ran
    assert other.state is SlotState.FREE
    assert world.told()[1:] == [
        ("released", 1), ("recycled", 1), ("granted", 3), ("released", 2), ("recycled", 2), ("granted", 4),
    ]  # fmt: skip
    world.loop.settle()
    assert (waiter.done(), waiter_of_q.done(), other_waits.done()) == (True, True, False)


def test_fin_1_an_acquire_from_a_finaliser_within_an_operation_is_refused(
    make_watched: Callable[..., World], monkeypatch: pytest.MonkeyPatch
) -> None:
    world = make_watched(limits={"p": 1, "q": 1}, release_cooldown=0)
    held = world.hold("p")
    cool, errors = world.manager._cool, []

    def meddle(*args: object) -> None:
        with world.loop.running():
            try:
                world.manager.try_acquire("q")
            except RuntimeError as error:
                errors.append(str(error))
            assert world.manager.get_status("q") is not None  # reading is allowed, and applies nothing
        cool(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(world.manager, "_cool", meddle)
    held.release()
    assert errors == ["try_acquire called while the manager is changing state (from a finaliser or a signal)"]
    assert world.figures("q") == (0, 0, 0, 0)


def test_fin_1_under_a_collector_that_runs_all_the_time(make: Callable[..., World]) -> None:
    world = make(limits={"p": 3}, release_cooldown=0.01, slot_timeout=5)
    threshold = gc.get_threshold()
    gc.set_threshold(1)
    try:
        for n in range(300):
            tasks = [world.ask(prompt_started_at=m % 3) for m in range(5)]
            for task in tasks[:3]:
                if task.done():
                    Finaliser(task.result().release)
            tasks[n % 5].cancel()
            world.pass_ms(7)
            for task in tasks:
                if task.done() and not task.cancelled():
                    Finaliser(task.result().release)
            del task, tasks
            world.check()
    finally:
        gc.set_threshold(*threshold)
    gc.collect()
    world.pass_ms(1000)
    for slot in list(world.manager._providers["p"].held):
        slot.release()
    world.pass_ms(1000)
    while world.figures() != (0, 0, 0, 0):
        for slot in list(world.manager._providers["p"].held):
            slot.release()
        world.pass_ms(10)
