"""What is put right after a state change of a blocking manager that was broken off in its middle.

Python raises KeyboardInterrupt between any two instructions of the main thread. On a loop that doesn't happen
(`asyncio.run` cancels the main task instead); a thread that blocks has no such protector. Every change says first what
becomes of a slot, in its state, then moves it; so the states are believed, and everything else is made to follow.
"""

from __future__ import annotations

from traceback import walk_tb
from typing import TYPE_CHECKING

from provider_concurrency._tags import COOLING, HANDED, HELD, QUEUED, RECLAIMED
from provider_concurrency.nesting import count_queued
from provider_concurrency.queue import SortedRun, Timeouts
from provider_concurrency.slot import Slot

if TYPE_CHECKING:
    from provider_concurrency.core import Core
    from provider_concurrency.provider import Provider


def mend(manager: Core, error: BaseException) -> None:
    """Makes all books agree with the states of the slots; `error` broke the change off."""
    now = manager._clock()
    under_way = _slots_under_way(error)
    for slot in under_way:
        if slot._state in (HANDED, HELD) and slot not in slot._provider.held:  # between the queue and the held
            slot._provider.held[slot] = now
        _tell(manager, slot)
    for p in list(manager._providers.values()):
        _mend_provider(manager, p, [slot for slot in under_way if slot._provider is p], now)
        for slot in list(p.held):
            _tell(manager, slot)
        manager._admit(p, now)
        manager._rest(p, now)
    if manager._closed:  # it may not have got to all of them
        manager._closed = False
        manager._close()
    elif manager._sweep_at is None and manager._holds_any():
        manager._announce_sweep(now)


def _slots_under_way(error: BaseException) -> list[Slot]:
    """The slots that the broken change had in its hands."""
    found: list[object] = [frame.f_locals.get("slot") for frame, _ in walk_tb(error.__traceback__)]
    return [slot for slot in found if isinstance(slot, Slot) and hasattr(slot, "_provider")]


def _tell(manager: Core, slot: Slot) -> None:
    """Wakes the caller of a slot that has left the queue, if nobody has."""
    waiter = getattr(slot, "_waiter", None)
    if slot._state != QUEUED and waiter is not None and waiter.locked():
        manager._settle(slot)


def _mend_provider(manager: Core, p: Provider, under_way: list[Slot], now: int) -> None:
    """`under_way`: those of its slots that the broken change had in its hands."""
    waiting = [] if p.queue is None else [*p.queue]
    waiting += [slot for slot in dict.fromkeys(under_way) if slot not in waiting and hasattr(slot, "_waiter")]
    waiting = [slot for slot in waiting if slot._state == QUEUED]
    p.queue = p.timeouts = p.enclosing = None
    for slot in sorted(waiting, key=lambda slot: (slot._key, slot._arrival)):
        p.queue = p.queue or SortedRun()
        p.queue.push(slot)
        count_queued(p, slot)
        if slot._deadline is not None:
            p.timeouts = p.timeouts or Timeouts()
            p.timeouts.push(slot)
    cooling = [] if p.cooling is None else [*p.cooling]
    p.reclaimed = sum(slot._state == RECLAIMED for slot in cooling)
    for slot in dict.fromkeys((*p.held, *under_way)):
        if slot._state in (COOLING, RECLAIMED) and slot not in cooling:  # its cooldown hadn't begun: it does now
            p.held.setdefault(slot, now)
            p.reclaimed += slot._state == RECLAIMED
            manager._cool(p, slot, now)
        elif slot._state not in (HELD, HANDED):
            p.held.pop(slot, None)
    p.measure_room()
    p.measure_due()
