"""REL: a release starts one cooldown, once, and only of its own slot."""

from __future__ import annotations

import asyncio
import copy
import pickle
from collections.abc import Callable

import pytest

from provider_concurrency import Slot, SlotState
from support import World


@pytest.mark.parametrize(("ms", "held"), [(0, False), (199, False), (200, True), (201, True)])
def test_rel_3_a_cooling_slot_counts_up_to_its_deadline(make: Callable[..., World], ms: int, held: bool) -> None:
    world = make(limits={"p": 1}, release_cooldown=0.2)
    holder = world.hold()
    waiter = world.ask()
    holder.release()
    assert world.figures() == (0, 1, 0, 1)
    world.pass_ms(ms)
    assert waiter.done() == held
    assert world.figures() == ((1, 0, 0, 0) if held else (0, 1, 0, 1))
    assert (world.take() is None) is True


def test_rel_1_a_cooldown_of_zero_is_over_in_the_call(make: Callable[..., World]) -> None:
    world = make(limits={"p": 1}, release_cooldown=0)
    holder = world.hold()
    world.ask()
    holder.release()
    assert holder.state is SlotState.FREE
    assert world.figures() == (1, 0, 0, 0)
    if world.watched:
        assert world.told()[-3:] == [("released", 1), ("recycled", 1), ("granted", 2)]


@pytest.mark.parametrize("cooldown", [0.0, 0.2])
@pytest.mark.parametrize("has_waiter", [True, False])
def test_rel_2_a_second_release_does_nothing_for_ever(
    make: Callable[..., World], has_waiter: bool, cooldown: float
) -> None:
    world = make(limits={"p": 1}, release_cooldown=cooldown)
    holder = world.hold()
    if has_waiter:
        world.ask()
    holder.release()
    for _ in range(3):
        with world.unchanged():
            holder.release()
            holder.touch()
        world.pass_ms(100)
    world.pass_ms(10_000)
    with world.unchanged():
        holder.release()


def test_bug_26_a_double_release_counts_once(make: Callable[..., World]) -> None:
    world = make(limits={"p": 2})
    a, _ = world.hold(), world.hold()
    c, d = world.ask(), world.ask()
    for _ in range(3):
        a.release()
    assert world.figures() == (1, 1, 0, 2)
    assert world.timers() <= 2
    world.pass_ms(2000)
    assert (c.done(), d.done()) == (True, False)
    assert world.figures() == (2, 0, 0, 1)


def test_bug_26_a_late_release_frees_no_successor(make: Callable[..., World]) -> None:
    world = make(limits={"p": 1}, release_cooldown=0)
    first = world.hold()
    first.release()
    second = world.hold()
    with world.unchanged():
        first.release()
    assert second.state is SlotState.HELD


def test_rel_3_cooldowns_run_on_during_a_pause(make: Callable[..., World]) -> None:
    world = make(limits={"p": 1})
    holder = world.hold()
    holder.release()
    world.manager.report_rate_limit("p", 5)
    world.pass_ms(200)
    assert holder.state is SlotState.FREE
    assert world.figures() == (0, 0, 0, 0)


def test_rel_3_no_later_configuration_moves_a_cooldown(make: Callable[..., World]) -> None:
    world = make(limits={"p": 1}, release_cooldown=0.2)
    holder = world.hold()
    holder.release()
    world.manager.set_cooldown("p", 10)
    world.manager.set_limit("p", 2)
    world.manager.set_limit("p", 1)
    world.pass_ms(199)
    assert holder.state is SlotState.COOLING
    world.pass_ms(1)
    assert holder.state is SlotState.FREE


def test_each_slot_cools_for_itself(make: Callable[..., World]) -> None:
    world = make(limits={"p": 3})
    slots = [world.hold() for _ in range(3)]
    for slot in reversed(slots):
        slot.release()
        world.pass_ms(50)
    assert world.figures() == (0, 3, 0, 0)
    states = []
    for _ in range(3):
        states.append([slot.state.value for slot in slots])
        world.pass_ms(50)
    assert states == [
        ["cooling", "cooling", "cooling"],
        ["cooling", "cooling", "free"],
        ["cooling", "free", "free"],
    ]
    assert world.figures() == (0, 0, 0, 0)


@pytest.mark.parametrize("cooldown", [0.0, 0.2])
def test_a_shorter_cooldown_may_end_first(make: Callable[..., World], cooldown: float) -> None:
    """REL-3: after set_cooldown a later release may be free first."""
    world = make(release_cooldown=5)
    early, late = world.hold(), world.hold()
    early.release()
    world.manager.set_cooldown("p", cooldown)
    late.release()
    world.pass_ms(200)
    assert (early.state, late.state) == (SlotState.COOLING, SlotState.FREE)
    assert world.figures() == (0, 1, 0, 0)
    world.pass_ms(4800)
    assert early.state is SlotState.FREE


# -- ways to hold a slot -----------------------------------------------------------------------------------------------


def test_with_releases_at_the_end_and_lets_errors_pass(make: Callable[..., World]) -> None:
    world = make()
    slot = world.hold()
    entered: list[Slot] = []

    def use() -> None:
        with slot as same:
            entered.append(same)
            raise LookupError

    with pytest.raises(LookupError):
        use()
    assert entered == [slot]
    assert slot.state is SlotState.COOLING


def test_a_slot_that_isnt_held_refuses_with(make: Callable[..., World]) -> None:
    world = make()
    slot = world.hold()
    slot.release()
    with pytest.raises(RuntimeError, match=r"only a held slot can be entered; this one is cooling"), slot:
        raise AssertionError("entered")
    world.pass_ms(200)
    with pytest.raises(RuntimeError, match="this one is free"), slot:
        raise AssertionError("entered")


def test_async_with_acquires_and_releases(make: Callable[..., World]) -> None:
    world = make(limits={"p": 1})
    seen: list[Slot] = []

    async def use(error: Exception | None = None) -> None:
        async with world.manager.slot("p", conversation_id="c") as slot:
            seen.append(slot)
            assert world.figures() == (1, 0, 0, 0)
            if error is not None:
                raise error

    world.loop.start(use()).result()
    world.pass_ms(200)
    with pytest.raises(LookupError):
        world.loop.start(use(LookupError())).result()
    assert [slot.conversation_id for slot in seen] == ["c", "c"]
    assert world.figures() == (0, 1, 0, 0)


def test_async_with_is_entered_once(make: Callable[..., World]) -> None:
    world = make(limits={"p": 1})
    context = world.manager.slot("p")

    async def use() -> None:
        async with context:
            await asyncio.sleep(1)

    first = world.loop.start(use())
    second = world.loop.start(use())
    assert isinstance(second.exception(), RuntimeError)
    world.loop.advance(2)
    assert first.exception() is None
    assert world.figures() == (0, 0, 0, 0)


def test_async_with_is_entered_once_even_while_it_waits(make: Callable[..., World]) -> None:
    """Two entries would be two slots, and one of them would never be released."""
    world = make(limits={"p": 1})
    holder = world.hold()
    context = world.manager.slot("p")

    async def use() -> None:
        async with context:
            pass

    first, second = world.loop.start(use()), world.loop.start(use())
    assert isinstance(second.exception(), RuntimeError)
    assert world.figures() == (1, 0, 0, 1)
    holder.release()
    world.loop.advance(2)
    assert first.exception() is None
    assert world.figures() == (0, 0, 0, 0)


def test_leaving_without_entering_does_nothing(make: Callable[..., World]) -> None:
    world = make()

    async def leave() -> None:
        assert await world.manager.slot("p").__aexit__(None, None, None) is None

    world.loop.start(leave()).result()


def test_bug_72_a_plain_with_on_slot_is_refused_with_a_hint(make: Callable[..., World]) -> None:
    world = make()
    hint = r"manager\.slot\(\.\.\.\) needs `async with`"
    with world.unchanged(), pytest.raises(TypeError, match=hint), world.manager.slot("p"):  # type: ignore[attr-defined]
        raise AssertionError("entered")
    assert world.manager.slot("p").__exit__(None, None, None) is None  # type: ignore[attr-defined]


@pytest.mark.parametrize("reproduce", [copy.copy, copy.deepcopy, pickle.dumps])
def test_a_slot_cant_be_copied(make: Callable[..., World], reproduce: Callable[[object], object]) -> None:
    world = make(release_cooldown=0)
    slot = world.hold()
    with pytest.raises(TypeError, match="a slot can't be copied"):
        reproduce(slot)
    assert world.figures() == (1, 0, 0, 0)
    slot.release()
    assert slot.state is SlotState.FREE
