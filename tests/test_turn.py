"""A turn is one thread's at a time, and an interrupt at any moment leaves it nobody's."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest

from provider_concurrency.turn import Turn


class LockTurn(Turn):
    """A fault: what a lock does."""

    __slots__ = ("_lock",)

    def __init__(self) -> None:
        super().__init__()
        self._lock = threading.Lock()

    @property
    def owner(self) -> int:
        return int(self._lock.locked())

    def run(self, act: Callable[[], object]) -> bool:
        if not self._lock.acquire(blocking=False):
            return False
        try:
            act()
        finally:
            self._lock.release()
        return True


def interrupt_everywhere(kind: type[Turn]) -> tuple[int, list[int]]:
    """An interrupt where any call begins or has ended: how many places there were, and which left the turn taken."""
    stuck: list[int] = []
    place = 0
    while True:
        turn, count = kind(), 0

        def interrupt(frame: Any, event: str, _: object, turn: Turn = turn, place: int = place) -> None:
            nonlocal count
            if frame.f_code.co_name in ("run", "work") and event in ("call", "c_return"):
                count += 1
                if count == place + 1:
                    raise KeyboardInterrupt

        def work() -> None:
            len("")

        before = sys.getprofile()
        try:
            sys.setprofile(interrupt)
            turn.run(work)
        except KeyboardInterrupt:
            pass
        finally:
            sys.setprofile(before)
        if turn.owner:
            stuck.append(place)
        if count <= place:
            return place, stuck
        place += 1


def test_an_interrupt_anywhere_leaves_it_nobodys() -> None:
    places, stuck = interrupt_everywhere(Turn)
    assert (places > 4, stuck) == (True, [])


def test_a_turn_that_stays_taken_is_found() -> None:
    assert interrupt_everywhere(LockTurn)[1] != []


def test_one_at_a_time_and_never_within_itself() -> None:
    turn = Turn()
    inside: list[object] = []

    def act() -> None:
        inside.append(turn.owner == threading.get_ident())
        inside.append(turn.run(lambda: pytest.fail("within itself")))
        other = threading.Thread(target=lambda: inside.append(turn.run(lambda: pytest.fail("beside it"))))
        other.start()
        other.join(10)

    assert turn.run(act)
    assert (inside, turn.owner) == ([True, False, False], 0)
    with pytest.raises(ZeroDivisionError):
        turn.run(lambda: 1 / 0)
    assert turn.run(lambda: None)


@pytest.mark.realtime
def test_eight_threads_that_ask_all_the_time() -> None:
    turn, inside, most, got = Turn(), [0], [0], [0] * 8

    def act(n: int) -> None:
        inside[0] += 1
        most[0] = max(most[0], inside[0])
        got[n] += 1
        inside[0] -= 1

    def ask(n: int) -> None:
        for _ in range(3000):
            turn.run(lambda: act(n))

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=ask, args=(n,)) for n in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
    finally:
        sys.setswitchinterval(interval)
    assert (most, turn.owner) == ([1], 0)
    assert 0 < sum(got) <= 24_000  # how many were refused is the scheduler's business
    assert turn.run(lambda: act(0))
