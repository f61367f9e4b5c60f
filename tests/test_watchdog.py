"""WAT: a slot untouched for longer than slot_timeout is taken back at the next sweep, audibly."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from provider_concurrency import Slot, SlotState
from support import World

SETTINGS = {"slot_timeout": 5.0, "watchdog_interval": 1.0}


@pytest.mark.parametrize(
    ("held_at_ms", "reclaimed_at_ms"), [(0, 6000), (1, 6000), (500, 6000), (999, 6000), (1000, 7000)]
)
def test_wat_1_reclaimed_at_the_first_sweep_after_more_than_the_timeout(
    make: Callable[..., World], held_at_ms: int, reclaimed_at_ms: int
) -> None:
    world = make(limits={"p": 1}, **SETTINGS)
    world.pass_ms(held_at_ms)
    slot = world.hold()
    waiter = world.ask()
    world.pass_ms(reclaimed_at_ms - 1 - held_at_ms)
    assert (slot.state, slot.reclaimed) == (SlotState.HELD, False)
    world.pass_ms(1)
    assert (slot.state, slot.reclaimed) == (SlotState.RECLAIMED, True)
    assert world.figures() == (0, 0, 1, 1)
    world.pass_ms(199)
    assert not waiter.done()
    world.pass_ms(1)
    assert (slot.state, slot.reclaimed, waiter.done()) == (SlotState.FREE, True, True)


def test_wat_1_the_timeout_is_strict(make: Callable[..., World]) -> None:
    world = make(slot_timeout=2.0, watchdog_interval=2.0)
    slot = world.hold()
    world.pass_ms(2000)
    assert slot.state is SlotState.HELD  # exactly the timeout is not more
    world.pass_ms(2000)
    assert slot.reclaimed


def test_wat_2_a_touch_keeps_a_live_stream(make: Callable[..., World]) -> None:
    world = make(**SETTINGS)
    slot = world.hold()
    for _ in range(20):
        world.pass_ms(4000)
        slot.touch()
    assert slot.state is SlotState.HELD
    world.pass_ms(6000)
    assert slot.reclaimed
    with world.unchanged():
        slot.touch()


def test_wat_2_a_grant_touches_when_it_is_made(make: Callable[..., World]) -> None:
    world = make(limits={"p": 1}, **SETTINGS)
    first = world.hold()
    waiter = world.ask()
    world.pass_ms(4900)
    first.release()
    world.pass_ms(200)
    second = waiter.result()
    world.pass_ms(5000)
    assert second.state is SlotState.HELD
    world.pass_ms(1000)
    assert second.reclaimed


def test_bug_32_the_late_release_of_a_reclaimed_slot_does_nothing(make: Callable[..., World]) -> None:
    """WAT-3."""
    world = make(limits={"p": 1}, **SETTINGS)
    stuck = world.hold()
    waiter = world.ask()
    world.pass_ms(6100)
    with world.unchanged():
        stuck.release()
    world.pass_ms(100)
    assert waiter.result().state is SlotState.HELD
    with world.unchanged():
        stuck.release()
        stuck.touch()
    with pytest.raises(RuntimeError, match="this one is free"), stuck:
        raise AssertionError("entered")


def test_wat_3_a_cooldown_of_zero_frees_in_the_sweep(make: Callable[..., World]) -> None:
    world = make(limits={"p": 1}, release_cooldown=0, **SETTINGS)
    stuck = world.hold()
    waiter = world.ask()
    world.pass_ms(6000)
    assert (stuck.state, stuck.reclaimed) == (SlotState.FREE, True)
    assert waiter.result().state is SlotState.HELD


def test_wat_1_off_with_none(make: Callable[..., World]) -> None:
    world = make(slot_timeout=None, watchdog_interval=1.0)
    slot = world.hold()
    world.pass_ms(500_000)
    assert slot.state is SlotState.HELD


def test_bug_83_a_failing_reclaim_callback_stops_no_sweep(make: Callable[..., World]) -> None:
    """WAT-4."""
    heard: list[Slot] = []

    def fail(slot: Slot) -> None:
        heard.append(slot)
        raise LookupError

    world = make(on_reclaim=fail, **SETTINGS)
    first, second = world.hold("p"), world.hold("q")
    world.pass_ms(500)
    third = world.hold("q")
    world.pass_ms(5500)
    assert heard == [first, second, third]
    assert [type(failure["exception"]) for failure in world.failures] == [LookupError] * 3
    fourth = world.hold("p")
    world.pass_ms(10_000)
    assert heard == [first, second, third, fourth]
    world.failures.clear()


def test_wat_5_every_reclaim_is_logged_as_a_warning(
    make: Callable[..., World], caplog: pytest.LogCaptureFixture
) -> None:
    world = make(on_reclaim=None, **SETTINGS)
    world.pass_ms(250)
    world.hold("p", conversation_id="c7")
    world.pass_ms(5750)
    (record,) = caplog.records
    assert (record.name, record.levelno) == ("provider_concurrency", logging.WARNING)
    assert record.getMessage() == (
        "provider 'p': reclaimed the slot of conversation 'c7', 5.750 s after its last touch; "
        "the upstream may still be serving it"
    )


def test_wat_5_the_rules_example_is_what_is_logged(
    make: Callable[..., World], caplog: pytest.LogCaptureFixture
) -> None:
    spec = (Path(__file__).parents[1] / "spec" / "SPEC.md").read_text(encoding="utf-8")
    example = re.search(r"^### WAT-5:.*?^\*Example\.\* `(.*?)`\.$", spec, re.MULTILINE | re.DOTALL)
    world = make(slot_timeout=300, watchdog_interval=30)
    world.pass_ms(28_800)
    world.hold("umans", conversation_id="c9")
    world.pass_ms(301_200)
    assert example is not None
    assert caplog.messages == [example[1]]


def test_wat_1_in_order_of_providers_then_of_grants(make_watched: Callable[..., World]) -> None:
    order: list[str | None] = []
    world = make_watched(on_reclaim=lambda slot: order.append(slot.conversation_id), limits={"b": 5}, **SETTINGS)
    for provider, name in [("a", "3"), ("b", "1"), ("a", "4"), ("b", "2"), ("c", "5")]:
        world.hold(provider, conversation_id=name)
    world.pass_ms(6000)
    assert order == ["1", "2", "3", "4", "5"]


def test_wat_1_missed_sweeps_are_not_made_up_for(make_watched: Callable[..., World]) -> None:
    world = make_watched(**SETTINGS)
    slot = world.hold()
    world.loop.stall_ns(4_500_000_000)
    world.loop.settle()
    assert slot.state is SlotState.HELD
    world.pass_ms(500)  # to the grid's 5 s
    assert slot.state is SlotState.HELD
    world.pass_ms(1000)
    assert slot.reclaimed


def test_wat_1_a_sweep_waits_for_what_a_stall_held_back(make: Callable[..., World]) -> None:
    """A stream that a blocked loop held back has its step, and its touch, first; a step of several turns, too."""
    world = make(**SETTINGS)
    chunks: list[asyncio.Future[None]] = []

    async def stream(turns: int) -> Slot:
        slot = await world.manager.acquire("p")
        arrived = world.loop.create_future()
        chunks.append(arrived)
        await arrived
        for _ in range(turns):
            await asyncio.sleep(0)
        slot.touch()
        return slot

    lively, slow = world.loop.start(stream(5)), world.loop.start(stream(20))
    world.loop.stall_ns(10**10)
    for arrived in chunks:
        arrived.set_result(None)
    world.loop.settle()
    assert not lively.result().reclaimed
    assert slow.result().reclaimed


def test_wat_1_a_sweep_judges_a_grant_that_was_never_delivered(make: Callable[..., World]) -> None:
    world = make(limits={"p": 1}, release_cooldown=0, **SETTINGS)
    holder = world.hold()
    with world.loop.running():
        waiting = world.manager.acquire("p")
        waiting.send(None)
    behind = world.ask(prompt_started_at=2e9)
    holder.release()  # the grant is made, and its caller never runs
    world.pass_ms(6000)
    assert behind.done()
    with pytest.raises(StopIteration) as stop:
        waiting.send(None)
    slot = stop.value.value
    assert slot.reclaimed
    with pytest.raises(RuntimeError), slot:
        raise AssertionError("entered")


def test_wat_1_no_sweep_after_close(make: Callable[..., World]) -> None:
    heard: list[Slot] = []
    world = make(on_reclaim=heard.append, **SETTINGS)
    slot = world.hold()
    world.pass_ms(900)
    world.loop.stall_ns(100_000_000)
    for _ in range(4):
        world.loop.step()
    world.manager.close()  # while the sweep waits for its turn
    world.pass_ms(60_000)
    assert (heard, slot.state) == ([], SlotState.HELD)


@pytest.mark.parametrize("cooldown", [0.0, 0.1])
def test_wat_3_on_a_running_clock_each_slot_is_freed_itself(cooldown: float) -> None:
    """Real clocks move between two readings: what became due of a provider during the sweep must not be mixed up."""
    world = World(watched=False, slot_timeout=1.0, watchdog_interval=1.0, limits={"p": 3}, release_cooldown=0.5)
    with world:
        moving = 0

        def clock() -> int:
            nonlocal moving
            moving += 1_000_000
            return world.loop.time_ns() + moving

        world.manager._clock = clock
        stuck, released = world.hold("p"), world.hold("p")
        world.hold("q")
        world.pass_ms(475)
        released.release()  # its cooldown ends while the sweep goes from p to q
        world.manager.set_cooldown("p", cooldown)
        for _ in range(240):
            world.pass_ms(3)
            world.check()
        assert (stuck.reclaimed, released.reclaimed) == (True, False)
        assert (stuck.state, released.state) == (SlotState.FREE, SlotState.FREE)
        assert world.figures() == (0, 0, 0, 0)
        for slot in list(world.manager._providers["q"].held):
            slot.release()
