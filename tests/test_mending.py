"""BLK-6: a KeyboardInterrupt at every single line, and at every call, of a state change of the blocking manager.

A trace or profile function raises it, so that none is left out and every run is the same. Python itself raises it where
a Python function begins and where a C function has returned: before what it returned has a name.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import pytest

from blocking_stage import Stage
from provider_concurrency import ManagerClosedError
from provider_concurrency._tags import COOLING, HANDED, HELD, RECLAIMED
from provider_concurrency.threading import ConcurrencyManager
from provider_concurrency.threading_port import Caller
from support import living

BOOKS = ("core.py", "provider.py", "queue.py")
"""The modules that change state; between two of their lines a change is incomplete."""
BRACKET = (ConcurrencyManager._change.__code__, ConcurrencyManager._guard.__code__)
"""What stands around each change, and calls for the mending."""


@contextmanager
def interrupted_at(place: int, events: Collection[str]) -> Iterator[list[int]]:
    """Raises KeyboardInterrupt at the so-manieth such event of a state change; yields how many are left to go."""
    left = [place]

    def trace(frame: FrameType, event: str, arg: object) -> Any:
        is_closing = frame.f_code.co_name == "<genexpr>" and event == "call"  # it is called to be closed, too
        is_ours = frame.f_code.co_filename.endswith(BOOKS) or frame.f_code in BRACKET
        if is_ours and event in events and not is_closing:
            left[0] -= 1
            if left[0] == 0:
                raise KeyboardInterrupt
        return trace

    start = sys.settrace if "line" in events else sys.setprofile
    start(trace)
    try:
        yield left
    finally:
        start(None)


def audit(stage: Stage) -> None:
    """All books agree, and nobody waits beside room."""
    manager = stage.manager
    assert not manager._busy
    assert not manager._owns(manager)
    for p in manager._providers.values():
        waiting, timed, cooling = living(p.queue), living(p.timeouts), list(p.cooling or ())
        assert p.queued == len(waiting)
        assert p.queue is None or waiting
        assert set(timed) == {slot for slot in waiting if slot._deadline is not None}
        assert p.timeouts is None or len(p.timeouts) == len(timed)
        assert all(slot._state in (HELD, HANDED) for slot in p.held)
        assert p.reclaimed == sum(slot.reclaimed for slot in cooling)
        is_open = p.paused_until is None and not manager._closed
        assert p.cap == (p.ceiling - len(cooling) if is_open else -1)
        assert not waiting or len(p.held) >= p.cap, "a lost wake-up (ADM-5)"
        assert not manager._closed or not (waiting or cooling), "closed by half"


LIVE = (HELD, HANDED, COOLING, RECLAIMED)


def stop() -> None:
    raise KeyboardInterrupt


def put_off(stage: Stage) -> None:
    """A release, in the middle of which a finaliser releases another slot."""
    manager = stage.manager
    held, cool = (next(iter(manager._providers[name].held)) for name in ("p", "cool"))
    read_clock = manager._clock

    def let_a_finaliser_in() -> int:
        manager._clock = read_clock
        cool.release()
        return read_clock()

    manager._clock = let_a_finaliser_in
    held.release()


CHANGES: dict[str, Callable[[Stage], object]] = {
    "acquire at once": lambda s: s.manager.acquire("free", timeout=0.0),
    "try_acquire": lambda s: s.manager.try_acquire("free"),
    "acquire that queues": lambda s: s.manager.acquire("p", on_queued=stop),
    "acquire that queues with a timeout": lambda s: s.manager.acquire("p", timeout=9.0, on_queued=stop),
    "release that hands over": lambda s: s.manager._providers["p"].held.__iter__().__next__().release(),
    "release that cools": lambda s: s.manager._providers["cool"].held.__iter__().__next__().release(),
    "release that was put off": put_off,
    "set_limit that admits": lambda s: s.manager.set_limit("p", 3),
    "report_rate_limit": lambda s: s.manager.report_rate_limit("p", 5.0),
    "timeouts": lambda s: s.pass_ms(7000),
    "reclaims": lambda s: s.pass_ms(40_000),
    "close": lambda s: s.manager.close(),
}


WAITING: dict[str, Callable[[Stage], list[Caller]]] = {
    "in order": lambda s: [s.ask(), s.ask(timeout=6.0)],
    "stragglers": lambda s: [
        s.ask(prompt_started_at=prompt, timeout=t) for prompt, t in ((9, None), (5, 7.0), (3, None))
    ],
    "many that leave": lambda s: (
        [s.ask(prompt_started_at=n % 5, timeout=2.0 + n * 1e-3) for n in range(36)] + [s.ask()]
    ),
}


CASES = [(what, who) for what in CHANGES for who in WAITING if what == "timeouts" or who != "many that leave"]


@pytest.mark.parametrize("events", [("line",), ("call", "c_return")], ids=["line", "call"])
@pytest.mark.parametrize(("what", "who"), CASES)
def test_blk_6_an_interrupt_at_every_line(what: str, events: tuple[str, ...], who: str) -> None:
    line, step = 0, 1
    while True:
        line += step
        step = 1 if line < 400 else 13
        stage = Stage(limits={"p": 1}, release_cooldown=0, slot_timeout=10, watchdog_interval=10, observer=None)
        stage.manager.set_cooldown("cool", 3)
        held, cool = stage.hold(), stage.hold("cool")
        waiting = WAITING[who](stage)
        try:
            with interrupted_at(line, events) as left:
                CHANGES[what](stage)
        except KeyboardInterrupt:
            pass
        books = {slot for p in stage.manager._providers.values() for slot in (*p.held, *(p.cooling or ()))}
        assert all((slot._state in LIVE) is (slot in books) for slot in (held, cool)), f"line {line}: in no book"
        is_over = left[0] > 0
        audit(stage)
        stage.settle()  # whoever isn't queued any more must have been told
        stage.manager.resume("p") if not stage.manager._closed else None
        stage.manager.close()
        audit(stage)
        for caller in waiting:
            caller.finish()
            assert not caller.is_alive(), f"line {line}: a caller was forgotten"
            assert caller.slot is not None or isinstance(caller.error, ManagerClosedError | TimeoutError)
        if is_over:
            break
    assert line > 5
