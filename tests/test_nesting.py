"""NST-1: agents that hold every slot and wait for their own children."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable
from typing import Any
from weakref import ref

import pytest

from blocking_stage import Stage, result_of
from provider_concurrency import ConcurrencyManager, NestedAcquireError, QueueFullError, Slot
from provider_concurrency.context import conversation
from provider_concurrency.threading_port import Caller
from support import World

Make = Callable[..., World]


def ask(world: World, *path: str, provider: str = "p", **arguments: Any) -> asyncio.Task[Slot]:
    """An acquire within blocks, the outermost one first; it carries the innermost one's id."""
    if not path:
        return world.ask(provider, **arguments)
    with conversation(path[0]):
        return ask(world, *path[1:], provider=provider, **{"conversation_id": path[0], **arguments})


def is_blocked(world: World) -> bool:
    status = world.status()
    assert status is not None
    return status.self_blocked


def innermost(world: World, *path: str, **arguments: Any) -> asyncio.Task[Slot]:
    return ask(world, *path, **{"conversation_id": path[-1], **arguments})


def test_nst_1_a_child_that_waits_for_its_parent(make: Make) -> None:
    world = make(limits={"p": 1}, release_cooldown=0)
    parent = world.hold(conversation_id="a")
    assert not is_blocked(world)
    child = innermost(world, "a", "b")
    assert is_blocked(world)
    parent.release()
    assert not is_blocked(world)
    world.loop.settle()
    assert child.result().conversation_id == "b"


@pytest.mark.parametrize("end", ["cancelled", "timed out", "granted"])
def test_nst_1_who_has_left_the_queue_is_enclosed_no_longer(make: Make, end: str) -> None:
    world = make(limits={"p": 1}, release_cooldown=0)
    parent = world.hold(conversation_id="a")
    child = innermost(world, "a", "b", timeout=1.0, prompt_started_at=1)
    world.ask(conversation_id="stranger", prompt_started_at=3)
    assert is_blocked(world)
    if end == "cancelled":
        child.cancel()
    elif end == "timed out":
        world.loop.advance(1.0)
    else:
        again = world.ask(conversation_id="a", prompt_started_at=2)
        parent.release()
        world.loop.settle()
        child.result().release()
        world.loop.settle()
        assert again.done()
    assert not is_blocked(world)


def test_nst_1_a_grandchild_too(make: Make) -> None:
    world = make(limits={"p": 1})
    world.hold(conversation_id="a")
    innermost(world, "a", "b", "c")
    assert is_blocked(world)


def test_nst_1_an_acquire_that_names_another_conversation_than_its_block(make: Make) -> None:
    """It is nested in the block."""
    world = make(limits={"p": 1})
    world.hold(conversation_id="a")
    innermost(world, "a", conversation_id="b")
    assert is_blocked(world)


def test_nst_1_a_request_of_nobody_belongs_to_its_block(make: Make) -> None:
    world = make(limits={"p": 1})
    world.hold(conversation_id="a")
    innermost(world, "a", "b", conversation_id=None)
    assert is_blocked(world)


def test_nst_1_two_families_that_block_only_together(make: Make) -> None:
    world = make(limits={"p": 2})
    world.hold(conversation_id="a"), world.hold(conversation_id="x")
    innermost(world, "a", "b")
    assert not is_blocked(world)  # x has no child that waits: it will end some day
    innermost(world, "x", "y")
    assert is_blocked(world)


@pytest.mark.parametrize(
    ("why", "holders", "path"),
    [
        ("a sibling of the same conversation may end", ["a"], ["a"]),
        ("a stranger may end", ["s"], ["a", "b"]),
        ("of nobody nothing is known", [None], ["a", "b"]),
        ("one of two is a stranger", ["a", "s"], ["a", "b"]),
        ("no block, no path", ["a"], []),
    ],
)
def test_nst_1_what_is_no_block(make: Make, why: str, holders: list[str | None], path: list[str]) -> None:
    world = make(limits={"p": len(holders)})
    for holder in holders:
        world.hold(conversation_id=holder)
    ask(world, *path) if not path else innermost(world, *path)
    assert not is_blocked(world), why


def test_nst_1_what_cools_or_was_reclaimed_comes_back(make: Make) -> None:
    world = make(limits={"p": 2}, slot_timeout=5, watchdog_interval=1)
    world.hold(conversation_id="a"), world.hold(conversation_id="a").release()
    innermost(world, "a", "b")
    assert not is_blocked(world)
    world.pass_ms(200)
    assert not is_blocked(world)  # it was granted
    innermost(world, "a", "b", "c")
    assert is_blocked(world)
    world.pass_ms(5000)  # the watchdog ends it
    world.pass_ms(1000)
    assert not is_blocked(world)


def test_nst_1_room_of_a_paused_provider_is_no_block(make: Make) -> None:
    world = make(limits={"p": 2})
    world.hold(conversation_id="a")
    world.manager.report_rate_limit("p", 5)
    innermost(world, "a", "b")
    assert not is_blocked(world)
    world.manager.set_limit("p", 1)
    assert is_blocked(world)
    world.manager.set_limit("p", 0)
    assert is_blocked(world)


def test_nst_1_a_limit_of_0_blocks_everybody_not_itself(make: Make) -> None:
    world = make(limits={"p": 0})
    innermost(world, "a", "b")
    assert not is_blocked(world)


def test_nst_1_a_child_task_inherits_the_path(make: Make) -> None:
    world = make(limits={"p": 1})

    async def child() -> Slot:
        with conversation("b"):
            return await world.manager.acquire("p", conversation_id="b")

    async def parent() -> None:
        with conversation("a"):
            async with world.manager.slot("p", conversation_id="a"):
                await asyncio.create_task(child())

    task = world.loop.start(parent())
    world.loop.settle()
    assert is_blocked(world)
    task.cancel()
    world.loop.settle()
    assert world.figures() == (0, 1, 0, 0)


def test_nst_1_a_block_that_has_ended_is_no_ancestor(make: Make) -> None:
    """A task may outlive the block that it was started in, or that its own block stands in."""
    world = make(limits={"p": 1})
    world.hold(conversation_id="a")
    go = asyncio.Event()

    async def outlive() -> None:
        await go.wait()
        await world.manager.acquire("p", conversation_id="b")

    async def outlive_in_a_block() -> None:
        with conversation("c"):
            await outlive()

    with conversation("a"):
        tasks = [world.loop.start(outlive()), world.loop.start(outlive_in_a_block())]
        world.loop.settle()
    go.set()
    world.loop.settle()
    status = world.status()
    assert status is not None
    assert status.queued == 2
    assert not is_blocked(world)
    innermost(world, "a", "b")
    assert is_blocked(world)
    for task in tasks:
        task.cancel()
    world.loop.settle()


def test_nst_1_raise_instead_of_queueing(make: Make) -> None:
    world = make(limits={"p": 1, "q": 1}, nested="raise")
    parent = world.hold(conversation_id="a")
    with world.unchanged():
        error = innermost(world, "a", "b").exception()
    assert isinstance(error, NestedAcquireError)
    assert (error.provider, error.limit, error.in_flight, error.queued) == ("p", 1, 1, 0)
    assert innermost(world, "a", "b", provider="q").done()  # there is room
    assert not innermost(world, "a").done()  # a sibling queues
    assert isinstance(innermost(world, "a", "b", timeout=0).exception(), TimeoutError)
    parent.release()
    world.pass_ms(200)


def test_nst_1_only_a_nested_request_is_refused(make: Make) -> None:
    """A stranger that comes to a blocked provider queues: whoever gives up will let it in."""
    world = make(limits={"p": 2}, nested="raise")
    world.hold(conversation_id="a"), world.hold(conversation_id="x")
    child = innermost(world, "a", "b")
    assert not child.done()
    assert isinstance(innermost(world, "x", "y").exception(), NestedAcquireError)
    assert not is_blocked(world)
    world.manager.set_limit("p", 1)
    assert not world.ask(conversation_id="stranger").done()


def test_nst_1_the_queue_bound_comes_first(make: Make) -> None:
    world = make(limits={"p": 1}, nested="raise", max_queued=0)
    world.hold(conversation_id="a")
    assert isinstance(innermost(world, "a", "b").exception(), QueueFullError)


def test_nst_1_threads() -> None:
    """A thread starts without a path; within it, blocks nest as on a loop."""
    s = Stage(limits={"p": 1}, release_cooldown=0)
    parent = s.hold(conversation_id="a")

    def nested() -> Slot:
        with conversation("a"), conversation("b"):
            return s.manager.acquire("p", conversation_id="b")

    caller = Caller(nested)
    s.callers.append(caller)
    caller.start_quietly()
    status = s.status()
    assert status is not None
    assert status.self_blocked
    parent.release()
    s.settle()
    assert result_of(caller).conversation_id == "b"
    s.finish()


@pytest.mark.parametrize(("value", "error"), [("refuse", ValueError), (True, TypeError), (None, TypeError)])
def test_nst_1_the_option_is_judged(value: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match="nested must be"):
        ConcurrencyManager(nested=value)


def test_nst_1_blocks_that_start_each_other_for_ever_keep_nothing() -> None:
    """An agent loop whose every turn is a task started in the turn before: its path must not grow."""
    kept: list[ref[Any]] = []

    class Label(str):
        __slots__ = ("__weakref__",)

    async def turn(left: int) -> None:
        label = Label(left)
        kept.append(ref(label))
        with conversation(label) as block:
            depth = 0
            around = block.parent
            while around is not None:
                depth, around = depth + 1, around.parent
            assert depth <= 2
            if left:
                following.append(asyncio.create_task(turn(left - 1)))
                await asyncio.sleep(0)  # the next one begins within this block, which then ends

    following: list[asyncio.Task[None]] = []

    async def main() -> None:
        await turn(200)
        while following:
            await following.pop(0)

    asyncio.run(main())
    gc.collect()
    assert sum(label() is not None for label in kept) < 5
