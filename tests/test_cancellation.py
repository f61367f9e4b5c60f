"""CAN-1..3: whoever is cancelled leaves at that moment, wherever that is; nothing is lost, nothing is doubled."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from typing import Any

import pytest

from provider_concurrency import AcquireTimeoutError, ConcurrencyManager, ManagerClosedError, Slot, SlotState
from support import World, drive

EAGER = pytest.mark.skipif(sys.version_info < (3, 12), reason="eager tasks came with Python 3.12")

# -- every scenario with a waiter, cancelled at every step of the loop ------------------------------------------------


class Scene:
    """A holder at limit 1, and behind it an older request, the victim and a younger one."""

    def __init__(self, watched: bool, **settings: Any) -> None:
        self.world = World(watched=watched, limits={"p": 1}, **settings)
        self.manager = self.world.manager
        self.holder = self.world.hold()
        self.got: list[str] = []

    async def bystander(self, name: str, prompt: float) -> None:
        try:
            slot = await self.manager.acquire("p", prompt_started_at=prompt)
        except ManagerClosedError:
            return
        with slot:
            self.got.append(name)
            await asyncio.sleep(0.05)


Act = Callable[[Scene], object] | float
"""Something done, or seconds that pass."""

SCENARIOS: dict[str, list[Act]] = {
    "release": [lambda s: s.holder.release(), 0.2],
    "raise": [lambda s: s.manager.set_limit("p", 2), lambda s: s.manager.set_limit("p", 3)],
    "remove": [lambda s: s.manager.remove_limit("p")],
    "close": [lambda s: s.manager.close()],
    "sweep": [3.0, 0.2],
    "resume": [
        lambda s: s.manager.report_rate_limit("p", 5),
        lambda s: s.holder.release(),
        1.0,
        lambda s: s.manager.resume("p"),
    ],
    "pause ends": [
        lambda s: s.manager.report_rate_limit("p", 1),
        lambda s: s.manager.set_limit("p", 2),
        1.0,
    ],
    "stall over a release": [lambda s: s.holder.release(), lambda s: s.world.loop.stall_ns(10**9)],
}


async def plain(manager: ConcurrencyManager, **arguments: Any) -> Slot:
    return await manager.acquire("p", **arguments)


async def under_wait_for(manager: ConcurrencyManager, **arguments: Any) -> Slot:
    return await asyncio.wait_for(manager.acquire("p", **arguments), 1000)


async def under_timeout(manager: ConcurrencyManager, **arguments: Any) -> Slot:
    async with asyncio.timeout(1000):
        return await manager.acquire("p", **arguments)


async def in_a_group(manager: ConcurrencyManager, **arguments: Any) -> Slot:
    async with asyncio.TaskGroup() as group:
        task = group.create_task(manager.acquire("p", **arguments))
    return task.result()


STYLES = {"plain": plain, "wait_for": under_wait_for, "timeout": under_timeout, "group": in_a_group}


def play(acts: list[Act], style: Any, k: int, *, watched: bool, eager: bool = False, cooldown: float = 0.2) -> int:
    """Plays a scenario and cancels the victim at step k. Returns the number of steps that there were."""
    scene = Scene(watched, release_cooldown=cooldown, slot_timeout=2.0, watchdog_interval=1.0)
    with scene.world:
        return play_on(scene, acts, style, k, eager)


def play_on(scene: Scene, acts: list[Act], style: Any, k: int, eager: bool) -> int:
    world, loop = scene.world, scene.world.loop
    step = 0

    async def be_victim() -> None:
        slot = await style(scene.manager, prompt_started_at=2)
        with slot:
            scene.got.append("victim")
            await asyncio.sleep(0.05)

    bystanders = [loop.start(scene.bystander("older", 1))]
    with loop.running():
        arguments = {"eager_start": True} if eager else {}
        victim = asyncio.Task(be_victim(), loop=loop, **arguments)  # type: ignore[arg-type]
    bystanders.append(loop.start(scene.bystander("younger", 3)))

    def tick() -> None:
        nonlocal step
        if step == k:
            undelivered = request_of_victim(world)
            with loop.running():
                victim.cancel()
            if undelivered is not None and style in (plain, under_timeout):
                assert request_of_victim(world) is None, "CAN-1, CAN-2: not in that very call"
            world.check()
        step += 1

    for act in acts:
        drive(loop, tick)
        if isinstance(act, float):
            drive(loop, tick, seconds=act)
        else:
            with loop.running():
                act(scene)
    drive(loop, tick)
    loop.advance(20)

    assert all(task.done() and not task.cancelled() for task in bystanders)
    assert victim.done()
    if not victim.cancelled():
        assert victim.exception() is None or scene.manager._closed
    if not scene.manager._closed:
        assert sorted(scene.got) == ["older"] + ["victim"] * ("victim" in scene.got) + ["younger"]
        assert victim.cancelled() or "victim" in scene.got
        scene.holder.release()
        loop.advance(20)
        status = world.status()
        assert status is None or (status.in_flight, status.queued) == (0, 0)
    return step


def request_of_victim(world: World) -> Slot | None:
    """The victim's slot while it is queued, or granted but not delivered."""
    p = world.manager._providers.get("p")
    if p is None:
        return None
    queued = list(p.queue or ())
    undelivered = [slot for slot in p.held if slot._prompt == 2]
    for slot in (*undelivered, *queued):
        if slot._prompt == 2 and slot._state in UNDELIVERED:
            return slot
    return None


UNDELIVERED = frozenset({1, 2})
"""The tags HANDED and QUEUED."""


@pytest.mark.parametrize("watched", [True, False], ids=["watched", "unwatched"])
@pytest.mark.parametrize("style", STYLES.values(), ids=STYLES.keys())
@pytest.mark.parametrize("acts", SCENARIOS.values(), ids=SCENARIOS.keys())
def test_bug_4_cancelled_at_every_step_nothing_is_lost(acts: list[Act], style: Any, watched: bool) -> None:
    for cooldown in (0.2, 0.0):
        steps = play(acts, style, -1, watched=watched, cooldown=cooldown)
        assert steps > len(acts)
        for k in range(steps):
            play(acts, style, k, watched=watched, cooldown=cooldown)


@EAGER
@pytest.mark.parametrize("style", STYLES.values(), ids=STYLES.keys())
@pytest.mark.parametrize("acts", SCENARIOS.values(), ids=SCENARIOS.keys())
def test_bug_4_an_eager_task_cancelled_at_every_step(acts: list[Act], style: Any) -> None:
    for k in range(-1, play(acts, style, -1, watched=True, eager=True)):
        play(acts, style, k, watched=True, eager=True)


@pytest.mark.parametrize("fault", ["a cancel is noticed late", "an undelivered grant is kept"])
def test_the_sweep_over_every_step_catches_a_fault(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if fault == "a cancel is noticed late":
        monkeypatch.setattr(ConcurrencyManager, "_make_waiter", lambda manager, _: manager._loop.create_future())
    else:
        monkeypatch.setattr(ConcurrencyManager, "_give_back", lambda *_: None)
    acts = SCENARIOS["raise"]
    steps = play(acts, plain, -1, watched=True)
    with pytest.raises(AssertionError):
        [play(acts, plain, k, watched=True) for k in range(steps)]


# -- the very call -----------------------------------------------------------------------------------------------------


def test_can_1_a_queued_request_leaves_in_the_call_of_cancel(make: Callable[..., World]) -> None:
    world = make(limits={"p": 1})
    world.hold()
    first, second = world.ask(), world.ask()
    assert world.figures() == (1, 0, 0, 2)
    first.cancel()
    assert world.figures() == (1, 0, 0, 1)
    assert not first.done()  # its task hasn't run yet
    world.loop.settle()
    assert first.cancelled()
    assert not second.done()
    if world.watched:
        assert world.told()[-1] == ("cancelled", 2)


def test_can_2_an_undelivered_grant_goes_on_in_the_call_of_cancel(make: Callable[..., World]) -> None:
    world = make(limits={"p": 1}, release_cooldown=0)
    holder = world.hold()
    first, second = world.ask(), world.ask()
    holder.release()
    assert world.figures() == (1, 0, 0, 1)  # first has it, and hasn't run yet
    first.cancel()
    assert world.figures() == (1, 0, 0, 0)  # no cooldown between them
    world.loop.settle()
    assert first.cancelled()
    assert second.result().state is SlotState.HELD
    if world.watched:
        assert world.told()[-3:] == [("granted", 2), ("cancelled", 2), ("granted", 3)]


def test_can_2_without_a_waiter_the_slot_is_free_at_once(make: Callable[..., World]) -> None:
    world = make(limits={"p": 1}, release_cooldown=0.2)
    holder = world.hold()
    waiter = world.ask()
    holder.release()
    world.loop.stall_ns(200_000_000)
    assert world.figures() == (1, 0, 0, 0)  # reading it has granted the slot
    waiter.cancel()
    assert world.figures() == (0, 0, 0, 0)
    assert world.take() is not None


def test_can_1_a_cancel_of_a_served_request_changes_nothing(make: Callable[..., World]) -> None:
    world = make(limits={"p": 1}, release_cooldown=0)
    holder = world.hold()
    waiter = world.ask()
    holder.release()
    world.loop.settle()
    with world.unchanged():
        waiter.cancel()
    assert waiter.result().state is SlotState.HELD


@pytest.mark.skipif(sys.version_info < (3, 13), reason="uncancel withdraws a pending cancel since Python 3.13")
@pytest.mark.parametrize("is_granted", [False, True])
def test_can_1_a_cancel_taken_back_finds_the_request_withdrawn(make: Callable[..., World], is_granted: bool) -> None:
    world = make(limits={"p": 1}, release_cooldown=0)
    holder = world.hold()
    waiter, other = world.ask(), world.ask()
    if is_granted:
        holder.release()
    waiter.cancel()
    waiter.uncancel()
    world.loop.settle()
    assert waiter.cancelled()
    assert other.done() == is_granted
    assert world.figures() == (1, 0, 0, 0 if is_granted else 1)


# -- thrown into a hand-driven acquire ---------------------------------------------------------------------------------


class BespokeError(BaseException):
    """Neither an Exception nor one of Python's own."""


THROWN = [asyncio.CancelledError, GeneratorExit, KeyboardInterrupt, SystemExit, BespokeError, ValueError]


@pytest.mark.parametrize("kind", THROWN)
@pytest.mark.parametrize("is_granted", [False, True], ids=["queued", "granted"])
def test_can_1_any_exception_thrown_into_the_wait_leaves_the_queue(
    make: Callable[..., World], kind: type[BaseException], is_granted: bool
) -> None:
    """Bug 7."""
    world = make(limits={"p": 1}, release_cooldown=0)
    holder = world.hold()
    with world.loop.running():
        waiting = world.manager.acquire("p")
        waiting.send(None)
    behind = world.ask()
    if is_granted:
        holder.release()
    assert world.figures() == (1, 0, 0, 1 if is_granted else 2)
    error = kind()
    with pytest.raises(kind) as caught:
        waiting.throw(error)
    assert caught.value is error
    assert world.figures() == (1, 0, 0, 0 if is_granted else 1)
    holder.release()
    world.loop.settle()
    assert behind.result().state is SlotState.HELD
    assert world.figures() == (1, 0, 0, 0)


@pytest.mark.parametrize("is_granted", [False, True])
def test_can_2_cancelling_the_future_itself_withdraws_the_request(make: Callable[..., World], is_granted: bool) -> None:
    world = make(limits={"p": 1}, release_cooldown=0)
    holder = world.hold()
    with world.loop.running():
        waiting = world.manager.acquire("p")
        future = waiting.send(None)
    if is_granted:
        holder.release()
    future.cancel()
    assert world.figures() == (0 if is_granted else 1, 0, 0, 0)
    with pytest.raises(asyncio.CancelledError):
        waiting.send(None)


def test_can_1_a_cancel_that_comes_too_late_is_a_timeout(make: Callable[..., World]) -> None:
    """What is due is applied first (TIM-3): the request had timed out already."""
    world = make(limits={"p": 1})
    world.hold()
    waiter = world.ask(timeout=1)
    world.loop.stall_ns(10**9)
    waiter.cancel()
    assert world.figures() == (1, 0, 0, 0)
    if world.watched:
        assert world.told()[-1] == ("timed_out", 2)
    world.loop.settle()
    assert waiter.cancelled()


def test_can_2_a_cancel_out_of_a_finaliser_in_the_middle_of_the_grant(
    make: Callable[..., World], monkeypatch: pytest.MonkeyPatch
) -> None:
    """FIN-1: it acts right after the running operation, which grants what is cancelled."""
    world = make(limits={"p": 1}, release_cooldown=0)
    holder = world.hold()
    first, second = world.ask(prompt_started_at=1), world.ask(prompt_started_at=2)
    admit = world.manager._admit

    def cancel_then_admit(*args: object) -> None:
        if not first.cancelling():
            first.cancel()
        admit(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(world.manager, "_admit", cancel_then_admit)
    holder.release()
    assert world.figures() == (1, 0, 0, 0)
    world.loop.settle()
    assert first.cancelled()
    assert second.result().state is SlotState.HELD


def test_bug_7_a_closed_coroutine_gives_the_place_back(make: Callable[..., World]) -> None:
    world = make(limits={"p": 1})
    world.hold()
    with world.loop.running():
        waiting = world.manager.acquire("p")
        waiting.send(None)
    assert world.figures() == (1, 0, 0, 1)
    waiting.close()
    assert world.figures() == (1, 0, 0, 0)


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")
def test_bug_72_an_unawaited_acquire_takes_no_place(make: Callable[..., World]) -> None:
    world = make(limits={"p": 1})
    with world.loop.running(), world.unchanged():
        unawaited = world.manager.acquire("p")
        del unawaited


# -- cases from public bug reports -------------------------------------------------------------------------------------


@pytest.mark.parametrize("cooldown", [0.0, 0.2])
def test_bug_2_cancelled_waiter_release_newcomer(make: Callable[..., World], cooldown: float) -> None:
    world = make(limits={"p": 1}, release_cooldown=cooldown)
    holder = world.hold()
    waiter = world.ask()
    with world.loop.running():
        newcomer = world.loop.create_task(world.manager.acquire("p"))
        waiter.cancel()
        holder.release()
    world.loop.advance(cooldown)
    assert newcomer.result().state is SlotState.HELD
    assert world.figures() == (1, 0, 0, 0)


@pytest.mark.parametrize("is_cancel_first", [True, False])
def test_bug_10_the_head_leaves_while_capacity_is_free(make: Callable[..., World], is_cancel_first: bool) -> None:
    world = make(limits={"p": 1})
    world.manager.report_rate_limit("p", 5)
    head, behind = world.ask(prompt_started_at=1), world.ask(prompt_started_at=2)
    acts = [lambda: world.manager.resume("p"), head.cancel]
    with world.loop.running():
        for act in reversed(acts) if is_cancel_first else acts:
            world.loop.call_soon(act)
    world.loop.settle()
    assert head.cancelled()
    assert behind.result().state is SlotState.HELD


@pytest.mark.parametrize("is_cancel_first", [True, False])
def test_bug_10_the_head_leaves_as_its_pause_ends(make: Callable[..., World], is_cancel_first: bool) -> None:
    world = make(limits={"p": 1})
    world.manager.report_rate_limit("p", 5)
    if is_cancel_first:
        world.loop.call_later(5, lambda: head.cancel())
    head, behind = world.ask(prompt_started_at=1), world.ask(prompt_started_at=2)
    if not is_cancel_first:
        world.loop.call_later(5, lambda: head.cancel())
    world.loop.advance(5)
    assert head.cancelled()
    assert behind.result().state is SlotState.HELD


def test_bug_8_a_shielded_acquire_is_the_watchdogs(make: Callable[..., World]) -> None:
    world = make(limits={"p": 1}, slot_timeout=10, watchdog_interval=5)
    holder = world.hold()

    async def shielded() -> None:
        await asyncio.shield(world.manager.acquire("p"))

    caller = world.loop.start(shielded())
    world.loop.step()
    caller.cancel()
    world.loop.settle()
    assert caller.cancelled()
    assert world.figures() == (1, 0, 0, 1)  # the inner task waits on: not specified, and not ours to notice
    holder.release()
    behind = world.ask()
    world.loop.advance(0.2)
    assert not behind.done()
    world.loop.advance(20)
    assert behind.result().state is SlotState.HELD


def test_bug_9_a_slot_given_to_a_task_that_never_starts_is_the_watchdogs(make: Callable[..., World]) -> None:
    world = make(limits={"p": 1}, slot_timeout=10, watchdog_interval=5)

    async def work(slot: Slot) -> None:
        raise AssertionError("never runs")

    with world.loop.running():
        child = world.loop.create_task(work(world.hold()))
    child.cancel()
    world.loop.advance(10)
    assert world.figures() == (1, 0, 0, 0)
    world.loop.advance(5)
    assert world.figures() == (0, 0, 1, 0)
    world.loop.advance(1)
    assert world.take() is not None


def test_bug_23_a_body_that_raises_gives_its_slot_back(make: Callable[..., World]) -> None:
    world = make(limits={"p": 1})

    async def fail() -> None:
        async with world.manager.slot("p"):
            raise LookupError

    for _ in range(100):
        with pytest.raises(LookupError):
            world.loop.start(fail()).result()
        world.loop.advance(0.2)
    assert world.hold().state is SlotState.HELD


def test_bug_24_refusals_move_no_counter(make: Callable[..., World]) -> None:
    world = make(limits={"p": 1}, max_queued=10)
    holder = world.hold()
    waiters = [world.ask(timeout=1.0) for _ in range(10)]
    for _ in range(10):
        assert world.take() is None
        assert type(world.ask().exception()).__name__ == "QueueFullError"
        assert isinstance(world.ask(timeout=0).exception(), AcquireTimeoutError)
    world.loop.advance(1.0)
    assert all(isinstance(task.exception(), AcquireTimeoutError) for task in waiters)
    for task in [world.ask() for _ in range(10)]:
        task.cancel()
    assert world.figures() == (1, 0, 0, 0)
    holder.release()
    world.loop.advance(0.2)
    world.hold()
    assert not world.ask().done()
    assert world.figures() == (1, 0, 0, 1)


def test_bug_33_a_waiter_is_kept_alive_by_its_task_alone(make: Callable[..., World]) -> None:
    import gc

    world = make(limits={"p": 1})
    world.hold().release()
    waiter = world.ask()
    gc.collect()
    world.loop.advance(0.2)
    assert waiter.result().state is SlotState.HELD


def test_bug_70_any_task_may_release(make: Callable[..., World]) -> None:
    world = make(limits={"p": 1}, release_cooldown=0)
    slot = world.hold()

    async def release() -> None:
        slot.release()

    assert world.loop.start(release()).result() is None
    assert world.figures() == (0, 0, 0, 0)


def test_bug_73_wait_for_changes_nothing(make: Callable[..., World]) -> None:
    world = make(limits={"p": 1})

    async def ask() -> Slot:
        return await asyncio.wait_for(world.manager.acquire("p", conversation_id="c"), 1)

    task = world.loop.start(ask())
    world.loop.settle()
    assert (task.result().state, task.result().conversation_id) == (SlotState.HELD, "c")
    task.result().release()


# -- leaving in other ways ---------------------------------------------------------------------------------------------


def test_can_3_the_timeout_is_due_at_its_deadline_not_before(make: Callable[..., World]) -> None:
    world = make(limits={"p": 1})
    world.hold()
    waiter = world.ask(timeout=0.2)
    world.pass_ms(199)
    assert not waiter.done()
    assert world.figures() == (1, 0, 0, 1)
    world.pass_ms(1)
    error = waiter.exception()
    assert isinstance(error, AcquireTimeoutError)
    assert isinstance(error, TimeoutError)
    assert (error.provider, error.limit, error.in_flight, error.queued, error.waited) == ("p", 1, 1, 0, 0.2)
    assert world.figures() == (1, 0, 0, 0)


@pytest.mark.parametrize("timeout_ms", [199, 200, 201])
def test_can_3_what_ends_at_the_same_instant_goes_first(make: Callable[..., World], timeout_ms: int) -> None:
    world = make(limits={"p": 1}, release_cooldown=0.2)
    holder = world.hold()
    waiter = world.ask(timeout=timeout_ms / 1000)
    holder.release()
    world.pass_ms(201)
    assert waiter.done()
    assert (waiter.exception() is None) == (timeout_ms >= 200)


@pytest.mark.parametrize("timeout_ms", [1999, 2000, 2001])
def test_can_3_a_pause_ending_with_the_timeout_goes_first(make: Callable[..., World], timeout_ms: int) -> None:
    world = make()
    world.manager.report_rate_limit("p", 2)
    waiter = world.ask(timeout=timeout_ms / 1000)
    world.pass_ms(2001)
    assert (waiter.exception() is None) == (timeout_ms >= 2000)


def test_can_1_cancelling_one_of_a_conversation_touches_no_other(make: Callable[..., World]) -> None:
    world = make(limits={"p": 1}, release_cooldown=0)
    holder = world.hold(conversation_id="c")
    tasks = [world.ask(conversation_id="c", prompt_started_at=5) for _ in range(3)]
    tasks[1].cancel()
    assert world.figures() == (1, 0, 0, 2)
    holder.release()
    world.loop.settle()
    assert [task.done() and not task.cancelled() for task in tasks] == [True, False, False]


def test_rel_2_a_waiter_that_is_over_makes_no_release_raise(make: Callable[..., World]) -> None:
    """However it ended: its caller gives the slot back when it is told, and the next one gets it."""
    world = make(limits={"p": 1}, release_cooldown=0)
    holder = world.hold()
    first, second = (world.ask(prompt_started_at=prompt) for prompt in (1, 2))
    waiter = next(slot for slot in world.manager._providers["p"].queue or () if slot._prompt == 1)._waiter
    asyncio.Future.cancel(waiter)  # type: ignore[arg-type] # past Waiter.cancel
    holder.release()
    world.loop.settle()
    assert first.cancelled()
    assert second.result().state is SlotState.HELD
