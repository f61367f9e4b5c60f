"""What is put right after a state change of a blocking manager that was broken off in its middle.

Python raises KeyboardInterrupt between any two instructions of the main thread. On a loop that doesn't happen
(`asyncio.run` cancels the main task instead); a thread that blocks has no such protector. Every change says first what
becomes of a slot, in its state, then moves it; so the states are believed, and everything else is made to follow.
"""

from __future__ import annotations

from traceback import walk_tb
from typing import TYPE_CHECKING

from provider_concurrency._tags import COOLING, FREE, FREE_RECLAIMED, HANDED, HELD, QUEUED, RECLAIMED
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
        _mend_provider(p, [slot for slot in under_way if slot._provider is p and slot._state == QUEUED])
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
    found: list[object] = []
    for frame, _ in walk_tb(error.__traceback__):
        values = frame.f_locals
        found += [values.get("slot"), values.get("queued")]
    return [slot for slot in found if isinstance(slot, Slot) and hasattr(slot, "_provider")]


def _tell(manager: Core, slot: Slot) -> None:
    """Wakes the caller of a slot that has left the queue, if nobody has."""
    waiter = getattr(slot, "_waiter", None)
    if slot._state != QUEUED and waiter is not None and waiter.locked():
        manager._settle(slot)


def _mend_provider(p: Provider, between: list[Slot]) -> None:
    """`between`: requests on their way into the queue or out of it."""
    waiting = list(p.queue or ())
    waiting += [slot for slot in dict.fromkeys(between) if slot not in waiting and hasattr(slot, "_waiter")]
    p.queue = p.timeouts = p.enclosing = None
    for slot in sorted(
        (slot for slot in waiting if slot._state == QUEUED), key=lambda slot: (slot._key, slot._arrival)
    ):
        p.queue = p.queue or SortedRun()
        p.queue.push(slot)
        count_queued(p, slot)
        if slot._deadline is not None:
            p.timeouts = p.timeouts or Timeouts()
            p.timeouts.push(slot)
    cooling = list(p.cooling or ())
    for slot in list(p.held):
        if slot._state not in (HELD, HANDED):
            del p.held[slot]
            if slot not in cooling and slot._state in (COOLING, RECLAIMED):  # its cooldown never began: it ends here
                slot._state = FREE if slot._state == COOLING else FREE_RECLAIMED
    p.reclaimed = sum(slot._state == RECLAIMED for slot in cooling)
    p.measure_room()
    p.measure_due()
