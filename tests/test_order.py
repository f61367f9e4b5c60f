"""ORD: the oldest prompt first, arrival as the tie-break; starvation is legal and can be seen."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from provider_concurrency import SlotState
from provider_concurrency._tags import CANCELLED, QUEUED
from provider_concurrency.queue import SortedRun
from support import World


def serve(world: World, waiting: dict[str, asyncio.Task]) -> list[str]:  # type: ignore[type-arg]
    """Releases whoever holds until nobody waits; returns the order in which they were served."""
    served: list[str] = []
    while len(served) < len(waiting):
        for slot in list(world.manager._providers["p"].held):
            slot.release()
        world.pass_ms(200)
        served += [name for name, task in waiting.items() if task.done() and name not in served]
    return served


@pytest.mark.parametrize("prompts", list(permutations([100, 200, 300])))
def test_ord_1_oldest_prompt_first(make: Callable[..., World], prompts: tuple[int, ...]) -> None:
    world = make(limits={"p": 1})
    world.hold()
    waiting = {str(prompt): world.ask(prompt_started_at=prompt) for prompt in prompts}
    assert serve(world, waiting) == ["100", "200", "300"]


def test_ord_1_arrival_breaks_ties(make: Callable[..., World]) -> None:
    world = make(limits={"p": 1})
    world.hold()
    waiting = {
        name: world.ask(prompt_started_at=prompt) for name, prompt in zip("abcdef", [2, 1, 2, 1, 2, 1], strict=True)
    }
    assert serve(world, waiting) == list("bdface")


def test_ord_1_without_a_prompt_time_it_is_the_wall_clock(make: Callable[..., World]) -> None:
    world = make(limits={"p": 1})
    world.hold()
    waiting = {"now": world.ask()}
    world.wall_jump = -3600
    waiting["an hour ago by the clock"] = world.ask()
    waiting["older"] = world.ask(prompt_started_at=1.0)
    assert serve(world, waiting) == ["older", "an hour ago by the clock", "now"]


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf"), True, "3", 1j])
def test_bug_19_a_bad_prompt_time_is_refused_and_scrambles_nothing(make: Callable[..., World], bad: object) -> None:
    world = make(limits={"p": 1})
    world.hold()
    waiting = {str(prompt): world.ask(prompt_started_at=prompt) for prompt in (3, 10**400, 1, 2.5, -(2**70))}
    with world.unchanged():
        error = world.ask(prompt_started_at=bad).exception()
    assert isinstance(error, ValueError if isinstance(bad, float) else TypeError)
    assert f"prompt_started_at must be {'finite' if isinstance(bad, float) else 'a number'}, not {bad!r}" == str(error)
    assert serve(world, waiting) == [str(-(2**70)), "1", "2.5", "3", str(10**400)]


def test_ord_1_arrival_is_taken_before_any_callback(make: Callable[..., World]) -> None:
    world = make(limits={"p": 1})
    world.hold()
    waiting: dict[str, asyncio.Task] = {}  # type: ignore[type-arg]

    def ask_from_within() -> None:
        waiting["from within"] = world.ask(prompt_started_at=5)

    waiting["outer"] = world.ask(prompt_started_at=5, on_queued=ask_from_within)
    assert serve(world, waiting) == ["outer", "from within"]


def test_bug_20_starvation_is_legal_and_seen(make: Callable[..., World]) -> None:
    """ORD-3."""
    world = make(limits={"p": 1}, release_cooldown=0)
    held = world.hold()
    young = world.ask(prompt_started_at=100)
    for _ in range(20):
        older = world.ask(prompt_started_at=99)
        held.release()
        world.pass_ms(50)
        held = older.result()
        assert not young.done()
    status = world.status()
    assert status is not None
    assert status.head_wait == 1.0
    held.release()
    world.loop.settle()
    assert young.done()


def test_bug_21_wake_ups_are_as_many_as_grants(make: Callable[..., World]) -> None:
    world = make(limits={"p": 1})
    held = world.hold()
    waiting = []
    for n in range(20):
        world.loop.advance(0.0037)
        waiting.append(world.ask(prompt_started_at=n))
    turns = 0

    def run(ms: int) -> None:
        nonlocal turns
        end = world.loop.time_ns() + ms * 1_000_000
        while (deadline := world.loop.next_deadline_ns()) is not None and deadline <= end:
            world.loop.stall_ns(deadline - world.loop.time_ns())
            while world.loop.step():
                turns += 1
        world.loop.stall_ns(end - world.loop.time_ns())

    for task in waiting:
        held.release()
        run(5000)
        held = task.result()
    assert turns <= 5 * len(waiting) + 5 * 10  # a handful a grant, and some sweeps


# -- the queue itself --------------------------------------------------------------------------------------------------


class Waiting:
    """Stands for a slot in a queue."""

    def __init__(self, key: float, arrival: int) -> None:
        self._state = QUEUED
        self._key = key
        self._arrival = arrival


@settings(max_examples=60, deadline=None, derandomize=True, database=None)
@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("push"), st.integers(0, 5)),
            st.tuples(st.just("pop"), st.just(0)),
            st.tuples(st.just("leave"), st.integers(0, 200)),
        ),
        max_size=200,
    ),
    st.sampled_from([1, 7919]),
)
def test_the_queue_is_a_sorted_list(acts: list[tuple[str, int]], stride: int) -> None:
    """Requests queue in order of their arrival numbers; slots begin to cool in any order of them."""
    run = SortedRun()
    expected: list[Waiting] = []
    for number, (act, value) in enumerate(acts):
        if act == "push":
            slot = Waiting(value, number * stride % 10_007)
            run.push(slot)  # type: ignore[arg-type]
            expected.append(slot)
            expected.sort(key=lambda slot: (slot._key, slot._arrival))
        elif act == "pop" and expected:
            slot = expected.pop(0)
            assert run.first() is slot
            assert run.take_first() is slot
            slot._state = CANCELLED
        elif act == "leave" and expected:
            expected.pop(value % len(expected))._state = CANCELLED
            run.discard()
        assert len(run) == len(expected)
        assert run.first() is (expected[0] if expected else None)
        assert {slot for slot in run if slot._state == QUEUED} == set(expected)


@pytest.mark.parametrize("timeout", [None, 1000.0])
@pytest.mark.parametrize("step", [1, -1])
def test_dead_entries_stay_bounded_by_the_living(make: Callable[..., World], step: int, timeout: float | None) -> None:
    """A long-lived waiter, and behind or before it thousands that leave."""
    world = make(limits={"p": 1})
    world.hold()
    world.ask(prompt_started_at=0)
    p = world.manager._providers["p"]
    for n in range(1, 2000):
        task = world.ask(prompt_started_at=n * step, timeout=timeout)
        task.cancel()
        world.loop.settle()
        assert p.queue is not None
        assert len(p.queue.run) + len(p.queue.late) <= 2 * p.queued + 33
        if p.timeouts is not None:
            assert len(p.timeouts.run) + len(p.timeouts.late) <= 2 * p.queued + 33
    world.check()


def test_dead_timeouts_are_counted_when_a_grant_sweeps_them_out(make: Callable[..., World]) -> None:
    world = make(limits={"p": 1}, release_cooldown=0)
    held = world.hold()
    world.ask(prompt_started_at=1e12, timeout=1e4)
    for n in range(500):
        task = world.ask(prompt_started_at=n, timeout=1e5)
        held.release()
        world.loop.settle()
        held = task.result()
        world.check()
    assert held.state is SlotState.HELD
