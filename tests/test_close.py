"""CLO: close is terminal; everybody who waits is told, nothing stays armed, holders may finish."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from typing import Any

import pytest

from provider_concurrency import ConcurrencyManager, ManagerClosedError, SlotState
from support import World


def busy_world(make: Callable[..., World]) -> dict[str, Any]:
    """A slot held, one cooling with a waiter behind it, a pause running with waiters, timers alive."""
    world = make(limits={"p": 2, "q": 1}, slot_timeout=5, watchdog_interval=1)
    held, cooling = world.hold("p"), world.hold("p")
    world.ask("p", prompt_started_at=2, timeout=50)
    world.ask("p", prompt_started_at=1)
    cooling.release()
    world.manager.set_cooldown("q", 3)
    stuck = world.hold("q")
    world.manager.report_rate_limit("q", 60)
    world.ask("q")
    assert world.timers() == 3
    return {"world": world, "held": held, "cooling": cooling, "stuck": stuck}


def test_clo_1_destroy_clears_everything(make: Callable[..., World]) -> None:
    """The original's last test never awaited what it asserted; a close that does nothing must fail here."""
    parts = busy_world(make)
    world, manager = parts["world"], parts["world"].manager
    waiting = [task for task in asyncio.all_tasks(world.loop) if not task.done()]
    assert len(waiting) == 3
    manager.close()
    assert world.timers() == 0
    assert world.figures("p") == (1, 0, 0, 0)
    assert world.figures("q") == (1, 0, 0, 0)
    assert not world.status("q").paused  # type: ignore[union-attr]
    assert manager.get_cooldown("q") == 3
    assert (parts["held"].state, parts["cooling"].state) == (SlotState.HELD, SlotState.FREE)
    world.loop.settle()
    for task in waiting:
        assert isinstance(task.exception(), ManagerClosedError)
    for slot in (parts["held"], parts["stuck"], parts["cooling"]):
        slot.release()
        slot.release()
        assert slot.state is SlotState.FREE
    assert world.timers() == 0
    world.pass_ms(100_000)
    assert (world.figures("p"), world.figures("q")) == ((0, 0, 0, 0), (0, 0, 0, 0))


def test_clo_1_a_close_that_does_nothing_fails_the_test_above(
    make_unwatched: Callable[..., World], monkeypatch: pytest.MonkeyPatch
) -> None:
    close = ConcurrencyManager.close
    monkeypatch.setattr(ConcurrencyManager, "close", lambda _: None)
    with pytest.raises(AssertionError):
        test_clo_1_destroy_clears_everything(make_unwatched)
    monkeypatch.setattr(ConcurrencyManager, "close", close)


def test_bug_60_waiters_are_rejected_in_queue_order_and_a_second_close_does_nothing(
    make_watched: Callable[..., World],
) -> None:
    world = busy_world(make_watched)["world"]
    world.events.clear()
    world.manager.close()
    assert world.told() == [
        ("closed", None), ("rejected", 4), ("rejected", 3), ("recycled", 2), ("rejected", 6),
    ]  # fmt: skip
    with world.unchanged():
        world.manager.close()


def test_clo_1_what_is_due_is_applied_before(make_watched: Callable[..., World]) -> None:
    world = make_watched(limits={"p": 1})
    holder = world.hold()
    waiter = world.ask()
    holder.release()
    world.loop.stall_ns(200_000_000)
    world.manager.close()
    world.loop.settle()
    assert waiter.result().state is SlotState.HELD


def test_clo_2_an_undelivered_grant_survives_close(make: Callable[..., World]) -> None:
    world = make(limits={"p": 1}, release_cooldown=0)
    holder = world.hold()
    first, second = world.ask(), world.ask()
    holder.release()
    world.manager.close()
    first.cancel()
    world.loop.settle()
    assert first.cancelled()
    assert isinstance(second.exception(), ManagerClosedError)
    assert world.figures() == (0, 0, 0, 0)


@pytest.mark.parametrize("is_valid", [True, False])
def test_bug_62_a_closed_manager_refuses_before_any_validation(make: Callable[..., World], is_valid: bool) -> None:
    world = make(limits={"p": 1})
    manager = world.manager
    manager.close()
    provider: Any = "p" if is_valid else 7
    with world.unchanged():
        for call in (
            lambda: world.take(provider),
            lambda: manager.set_limit(provider, 1),
            lambda: manager.remove_limit(provider),
            lambda: manager.set_cooldown(provider, 1),
            lambda: manager.resume(provider),
        ):
            with pytest.raises(ManagerClosedError):
                call()
        assert isinstance(world.ask(provider).exception(), ManagerClosedError)
        entering = world.loop.start(manager.slot(provider).__aenter__())  # type: ignore[arg-type]
        assert isinstance(entering.exception(), ManagerClosedError)
        manager.report_rate_limit("p", 5)
    assert world.figures() == (0, 0, 0, 0)
    assert manager.get_limits() == {"p": 1}


def test_clo_2_release_and_touch_never_raise(make: Callable[..., World]) -> None:
    world = make()
    slot = world.hold()
    world.manager.close()
    with world.unchanged():
        slot.touch()
    slot.release()
    assert slot.state is SlotState.FREE
    assert world.status() is None
    if world.watched:
        assert world.told() == [("granted", 1), ("closed", None), ("released", 1), ("recycled", 1)]


def test_async_with_manager_closes_it(make: Callable[..., World]) -> None:
    world = make()

    async def use() -> None:
        async with world.manager as manager:
            assert manager is world.manager
        with pytest.raises(ManagerClosedError, match="set_limit: the manager is closed"):
            manager.set_limit("p", 1)

    world.loop.start(use()).result()


# -- wait_closed -------------------------------------------------------------------------------------------------------


def test_clo_2_wait_closed_returns_when_no_slot_is_held(make: Callable[..., World]) -> None:
    world = make()
    first, second = world.hold("p"), world.hold("q")
    waiting = world.loop.start(world.manager.wait_closed())
    world.pass_ms(1000)
    assert not waiting.done()
    world.manager.close()
    first.release()
    world.loop.settle()
    assert not waiting.done()
    second.release()
    world.loop.settle()
    assert waiting.done()
    assert waiting.result() is None
    assert world.loop.start(world.manager.wait_closed(0)).result() is None


def test_clo_2_wait_closed_ends_with_an_undelivered_grant_given_back(make: Callable[..., World]) -> None:
    world = make(limits={"p": 1}, release_cooldown=0)
    holder = world.hold()
    waiter = world.ask()
    waiting = world.loop.start(world.manager.wait_closed())
    holder.release()
    world.manager.close()
    waiter.cancel()
    world.loop.settle()
    assert waiting.done()


def test_clo_2_wait_closed_can_time_out_or_be_cancelled(make: Callable[..., World]) -> None:
    world = make()
    slot = world.hold()
    world.manager.close()
    waiting = world.loop.start(world.manager.wait_closed(timeout=2))
    cancelled = world.loop.start(world.manager.wait_closed())
    cancelled.cancel()
    world.loop.advance(1.999)
    assert cancelled.cancelled()
    assert not waiting.done()
    world.loop.advance(0.001)
    assert isinstance(waiting.exception(), TimeoutError)
    slot.release()
    for bad, error in ((-1, ValueError), ("1", TypeError), (float("nan"), ValueError), (True, TypeError)):
        refused = world.loop.start(world.manager.wait_closed(bad))  # type: ignore[arg-type]
        assert isinstance(refused.exception(), error)


def test_clo_2_wait_closed_of_one_waiter_cancelled_at_the_end(make: Callable[..., World]) -> None:
    world = make()
    slot = world.hold()
    world.manager.close()
    first, second = (world.loop.start(world.manager.wait_closed()) for _ in range(2))
    first.cancel()
    slot.release()  # first's future is done already
    world.loop.settle()
    assert (first.cancelled(), second.done()) == (True, True)


def test_bug_63_release_after_the_loop_is_closed_says_nothing() -> None:
    manager = ConcurrencyManager(limits={"p": 1})
    slot = asyncio.run(manager.acquire("p"))
    slot.release()
    assert slot.state is SlotState.COOLING
    assert os.getpid()
    manager.close()
    assert slot.state is SlotState.FREE
