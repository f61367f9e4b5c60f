"""CAL-2, BLK-2: one line of notifications for all threads, and nobody is kept delivering those of others."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest

from provider_concurrency.delivery import SharedDeliveryLine
from provider_concurrency.slot import Slot
from provider_concurrency.threading import ConcurrencyManager
from provider_concurrency.turn import Turn

TOTAL = 50


class Tireless(SharedDeliveryLine):
    """A fault: whoever delivers goes on as long as others add calls."""

    def _deliver(self, left: int | None) -> bool:
        return super()._deliver(sys.maxsize)


class Forgetful(SharedDeliveryLine):
    """A fault: whoever steps down tells nobody."""

    def _pass_on(self) -> None:
        """Nothing is passed on."""


class Hasty(SharedDeliveryLine):
    """A fault: who finds somebody delivering delivers beside it."""

    def _deliver(self, left: int | None) -> bool:
        self._turn = Turn()
        return super()._deliver(left)


def no_failure(error: Exception, _: Callable[..., object]) -> None:
    raise error


def in_a_thread(run: Callable[[], object]) -> None:
    thread = threading.Thread(target=run)
    thread.start()
    thread.join(10)
    assert not thread.is_alive()


def deliver_while_others_add(kind: type[SharedDeliveryLine]) -> tuple[list[int], int, bool]:
    """Each call has another thread add the next: the order, how many the first thread made, whether calls nested."""
    relief: list[Callable[[], None]] = []
    line = kind(no_failure, start=relief.append)
    told: list[tuple[int, int]] = []
    inside, nested = 0, False

    def call(number: int) -> None:
        nonlocal inside, nested
        nested |= inside > 0
        inside += 1
        told.append((number, threading.get_ident()))
        if number + 1 < TOTAL:
            in_a_thread(lambda: add(number + 1))
        inside -= 1

    def add(number: int) -> None:
        line.add(call, number)
        line.deliver()

    add(0)
    mine = sum(thread == threading.get_ident() for _, thread in told)
    while relief:
        in_a_thread(relief.pop())
    return [number for number, _ in told], mine, nested


def test_blk_2_who_delivers_steps_down_when_others_come_by() -> None:
    order, mine, nested = deliver_while_others_add(SharedDeliveryLine)
    assert (order, nested) == (list(range(TOTAL)), False)
    assert mine == 2, "its own, and what stood in the line when the other thread came by"


@pytest.mark.parametrize("fault", [Tireless, Forgetful, Hasty])
def test_blk_2_a_planted_fault_is_found(fault: type[SharedDeliveryLine]) -> None:
    order, mine, nested = deliver_while_others_add(fault)
    found = {Tireless: mine > 2, Forgetful: len(order) < TOTAL, Hasty: nested}
    assert found[fault]


def test_blk_2_what_a_callback_adds_itself_is_delivered_before_the_call_returns() -> None:
    """Without other threads nobody steps down."""
    line = SharedDeliveryLine(no_failure, start=lambda _: pytest.fail("nobody came by"))
    told: list[int] = []

    def call(number: int) -> None:
        told.append(number)
        if number < TOTAL:
            line.add(call, number + 1)
            line.deliver()

    line.add(call, 0)
    line.deliver()
    assert told == list(range(TOTAL + 1))


def test_blk_2_a_relief_that_finds_somebody_delivering_ends() -> None:
    line = SharedDeliveryLine(no_failure)
    told: list[str] = []

    def first() -> None:
        in_a_thread(line._relieve)
        told.append("first")

    line.add(first)
    line.add(told.append, "second")
    line.deliver()
    assert told == ["first", "second"]


def test_blk_2_without_a_thread_to_be_had_it_is_delivered_all_the_same() -> None:
    def refuse(_: Callable[[], None]) -> None:
        raise RuntimeError("can't start new thread")

    line = SharedDeliveryLine(no_failure, start=refuse)
    told: list[str] = []

    def come_by() -> None:
        line.add(told.append, "others")
        line.deliver()
        line.add(told.append, "later")

    line.add(in_a_thread, come_by)
    line.deliver()
    assert told == ["others", "later"]


def test_cal_4_an_exit_out_of_a_callback_passes_on_the_rest_and_ends_no_relief(
    caplog: pytest.LogCaptureFixture,
) -> None:
    relief: list[Callable[[], None]] = []
    line = SharedDeliveryLine(no_failure, start=relief.append)
    told: list[str] = []

    def leave(word: str) -> None:
        told.append(word)
        raise SystemExit(word)

    def come_by() -> None:
        for word in ("second", "third", "fourth"):
            line.add(leave, word)
            line.deliver()

    def first() -> None:
        in_a_thread(come_by)
        leave("first")

    line.add(first)
    with pytest.raises(SystemExit, match="second"):  # the last one that this thread made
        line.deliver()
    assert told == ["first", "second"]
    in_a_thread(relief.pop())
    assert told == ["first", "second", "third", "fourth"]
    assert caplog.text.count("a callback raised") == 1


class WakeDelivers(ConcurrencyManager):
    """A fault: the thread that wakes calls the callbacks itself."""

    def _set_up(self) -> None:
        super()._set_up()
        self._line = SharedDeliveryLine(self._report_failure)


def reclaim_while_another_cools(kind: type[ConcurrencyManager]) -> Any:
    """on_reclaim of a stuck slot waits until a cooldown elsewhere has ended: what it found, and in which thread."""
    granted, found = threading.Event(), threading.Event()
    result: list[object] = []

    def on_reclaim(_: Slot) -> None:
        found.set()
        result.append(granted.wait(2))
        result.append(threading.get_ident() != wakes)

    manager = kind(limits={"q": 1}, release_cooldown=0.2, slot_timeout=0.05, watchdog_interval=0.02,
                   on_reclaim=on_reclaim)  # fmt: skip
    manager.acquire("p")
    thread = manager._wakes._thread
    assert thread is not None
    wakes = thread.ident
    assert found.wait(10)
    cooling = manager.acquire("q")
    cooling.release()
    manager.acquire("q", timeout=10)  # nobody but the thread that wakes can grant it
    granted.set()
    manager.close()
    while len(result) < 2:
        threading.Event().wait(0.001)
    return result


@pytest.mark.realtime
def test_blk_4_a_callback_that_takes_its_time_holds_up_no_deadline() -> None:
    assert reclaim_while_another_cools(ConcurrencyManager) == [True, True]


@pytest.mark.realtime
def test_blk_4_a_wake_thread_that_delivers_is_found() -> None:
    assert reclaim_while_another_cools(WakeDelivers) == [False, False]
