"""GRD-1..4 for streams that don't come from our transports: `slot.guard(async_iterator)`."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from provider_concurrency import Slot
from provider_concurrency.errors import ProviderConcurrencyError, SlotReclaimedError
from support import World


class Source:
    """An async generator's stand-in that shows whether it was closed."""

    def __init__(self, *pieces: Any) -> None:
        self.pieces = list(pieces)
        self.closed = 0

    def __aiter__(self) -> AsyncIterator[Any]:
        return self

    async def __anext__(self) -> Any:
        while self.pieces:
            piece = self.pieces.pop(0)
            if isinstance(piece, float):
                await asyncio.sleep(piece)
            elif isinstance(piece, BaseException):
                raise piece
            else:
                return piece
        raise StopAsyncIteration

    async def aclose(self) -> None:
        await asyncio.sleep(0)
        self.closed += 1


def play(world: World, scenario: Callable[[Slot], Any], seconds: float = 0.0) -> asyncio.Task[Any]:
    task = world.loop.start(scenario(world.hold()))
    world.loop.advance(seconds)
    return task


def held(world: World) -> int:
    status = world.status()
    return 0 if status is None else status.held


def test_grd_1_exhausted(make: Callable[..., World]) -> None:
    world, source = make(limits={"p": 1}), Source("a", 1.0, "b")

    async def scenario(slot: Slot) -> list[str]:
        return [item async for item in slot.guard(source)]

    task = play(world, scenario, 0.5)
    assert held(world) == 1
    world.loop.advance(0.6)
    assert task.result() == ["a", "b"]
    assert held(world) == 0


def test_grd_1_closed_twice_by_a_block_that_raises(make: Callable[..., World]) -> None:
    world, source = make(limits={"p": 1}), Source("a", "b")

    async def scenario(slot: Slot) -> None:
        async with slot.guard(source) as stream:
            try:
                async for _ in stream:
                    raise ZeroDivisionError
            finally:
                await stream.aclose()

    task = play(world, scenario)
    assert isinstance(task.exception(), ZeroDivisionError)
    assert (held(world), source.closed) == (0, 1)


def test_grd_1_a_real_generator_is_closed_in_its_own_block(make: Callable[..., World]) -> None:
    world = make(limits={"p": 1})
    steps: list[str] = []

    async def generate() -> AsyncIterator[str]:
        try:
            yield "a"
            yield "b"
        finally:
            await asyncio.sleep(0.1)
            steps.append(f"closed with {held(world)} held")

    async def scenario(slot: Slot) -> None:
        async with slot.guard(generate()) as stream:
            assert await anext(stream) == "a"
        with pytest.raises(StopAsyncIteration):
            await anext(stream)

    play(world, scenario, 0.2).result()
    assert steps == ["closed with 1 held"]
    assert held(world) == 0


@pytest.mark.parametrize("error", [ZeroDivisionError(), asyncio.CancelledError(), KeyError("k")], ids=repr)
def test_grd_1_failed(make: Callable[..., World], error: BaseException) -> None:
    world, source = make(limits={"p": 1}), Source("a", error)

    async def scenario(slot: Slot) -> None:
        async for _ in slot.guard(source):
            pass

    task = play(world, scenario)
    assert task.done()
    assert task.cancelled() or task.exception() is error
    assert (held(world), source.closed) == (0, 1)


def test_grd_1_a_source_that_fails_to_close_keeps_no_slot(make: Callable[..., World]) -> None:
    world = make(limits={"p": 1})

    class Stubborn(Source):
        async def aclose(self) -> None:
            raise ZeroDivisionError

    async def scenario(slot: Slot) -> None:
        with pytest.raises(ZeroDivisionError):
            await slot.guard(Stubborn("a")).aclose()
        assert held(world) == 0

    play(world, scenario).result()


def test_grd_1_a_read_cancelled_while_its_task_goes_on(make: Callable[..., World]) -> None:
    world, source = make(limits={"p": 1}), Source("a", 9.0, "b")

    async def scenario(slot: Slot) -> None:
        stream = slot.guard(source)
        assert await anext(stream) == "a"
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1.0):
                await anext(stream)
        assert (held(world), source.closed) == (0, 1)

    play(world, scenario, 1.0).result()


def test_grd_1_a_generator_closed_by_another_task_in_the_middle_of_a_read(make: Callable[..., World]) -> None:
    world = make(limits={"p": 1})
    steps: list[str] = []

    async def generate() -> AsyncIterator[str]:
        try:
            await asyncio.sleep(9.0)
            yield "a"
        finally:
            steps.append(f"ended with {held(world)} held")

    async def scenario(slot: Slot) -> None:
        stream = slot.guard(generate())
        reader = asyncio.create_task(anext(stream))  # type: ignore[arg-type] # it is a coroutine
        await asyncio.sleep(1.0)
        await stream.aclose()
        with pytest.raises(ProviderConcurrencyError, match="another task closed it"):
            await reader
        assert held(world) == 0

    play(world, scenario, 1.1).result()
    assert steps == ["ended with 1 held"]


@pytest.mark.parametrize("turns", range(5))
def test_grd_1_cancelled_at_any_step(make: Callable[..., World], turns: int) -> None:
    world, source = make(limits={"p": 1}), Source("a", 0.0, "b", 0.0, "c")

    async def scenario(slot: Slot) -> None:
        async with slot.guard(source) as stream:
            async for _ in stream:
                await asyncio.sleep(0)

    task = world.loop.start(scenario(world.hold()))
    for _ in range(turns):
        world.loop.step()
    with world.loop.running():
        task.cancel()
    world.loop.advance(0.1)
    assert task.done()
    assert held(world) == 0


def test_grd_1_a_reading_coroutine_that_is_dropped(make: Callable[..., World]) -> None:
    """GeneratorExit: nothing can be awaited there."""
    world, source = make(limits={"p": 1}), Source(9.0, "a")

    async def scenario(slot: Slot) -> None:
        step = slot.guard(source).__anext__()
        waiting = asyncio.get_running_loop().create_future()
        del waiting
        step.send(None)
        step.close()

    play(world, scenario).result()
    world.loop.advance(0.01)
    assert (held(world), source.closed) == (0, 1)


def test_grd_3_a_forgotten_stream(make: Callable[..., World]) -> None:
    world, source = make(limits={"p": 1}), Source("a", "b")

    async def scenario(slot: Slot) -> None:
        await anext(slot.guard(source))

    def forget() -> None:
        play(world, scenario).result()
        gc.collect()

    with pytest.warns(ResourceWarning, match="neither read to its end nor closed"):
        forget()
    world.loop.advance(0.01)
    assert (held(world), source.closed) == (0, 1)


def test_grd_4_touches_and_reclaims(make: Callable[..., World]) -> None:
    world = make(limits={"p": 1}, slot_timeout=1.0, watchdog_interval=0.5)
    source = Source(*["a", 0.9] * 5, 5.0, "z")

    async def scenario(slot: Slot) -> int:
        count = 0
        try:
            async for _ in slot.guard(source):
                count += 1
        except SlotReclaimedError:
            return count
        raise AssertionError("never reclaimed")

    task = play(world, scenario, 6.0)
    assert task.result() == 5
    assert source.closed == 1


def test_grd_first_timeout(make: Callable[..., World]) -> None:
    world, source = make(limits={"p": 1}), Source(3.0, "a")

    async def scenario(slot: Slot) -> None:
        await anext(slot.guard(source, first_timeout=2.0))

    task = play(world, scenario, 2.0)
    assert isinstance(task.exception(), TimeoutError)
    assert (held(world), source.closed) == (0, 1)


def test_grd_only_a_held_slot_guards(make: Callable[..., World]) -> None:
    world = make(limits={"p": 1})

    async def scenario(slot: Slot) -> None:
        slot.release()
        with pytest.raises(ValueError, match="only a held slot can guard a stream; this one is cooling"):
            slot.guard(Source())

    play(world, scenario).result()
