"""Slots in an order that they mostly arrive in: the queue of requests, the cooldowns, the timeouts.

What arrives in order goes to the end of a run (O(1)); a straggler goes to a heap (O(log n)); the first one is the
lesser of both heads. A slot's order is (`_key`, `_arrival`): while it is queued its key is its prompt time, while it
cools the end of its cooldown in ns. So in the run the slot is its own entry; only a straggler needs one of its own.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from math import inf
from typing import TYPE_CHECKING, Final, TypeAlias

from provider_concurrency._tags import QUEUED

if TYPE_CHECKING:
    from provider_concurrency.slot import Slot

Entry: TypeAlias = "tuple[float, int, Slot]"  # the key and the arrival number, unique, so that no slot is compared

_FLOOR: Final = 32


class SortedRun:
    """Slots in order.

    A queued one may leave otherwise than by `take_first`: it is dead then, and is dropped in passing. Whoever ends its
    wait calls `discard` once, after the slot's state has changed. Then the dead are swept out if they outnumber the
    living and the floor above, so memory follows the living, at O(1) amortised a discard. The first one is always
    alive, so that another thread may look at it (THR-1).

    An interrupt may come as any call returns (BLK-6): a slot has a name before it leaves its place.
    """

    __slots__ = ("dead", "last", "late", "run")

    def __init__(self) -> None:
        """Starts empty."""
        self.run: deque[Slot] = deque()
        self.late: list[Entry] = []
        self.last = -inf  # no less than the key of the run's last one: what is greater is in order
        self.dead = 0

    def __len__(self) -> int:
        living = len(self.run) + len(self.late) - self.dead
        return living if living > 0 else 0  # another thread may count in the middle of a change

    def __iter__(self) -> Iterator[Slot]:
        """All that it keeps now, the dead ones too, in no order; copied at once, for another thread may ask (THR-1)."""
        run, late = [*self.run], [*self.late]
        return iter([*run, *[entry[2] for entry in late]])

    def push(self, slot: Slot) -> None:
        """Adds a slot."""
        key, last = slot._key, self.last
        if key > last or (key == last and self.run and slot._arrival > self.run[-1]._arrival):
            self.last = key
            self.run.append(slot)
        else:
            heappush(self.late, (key, slot._arrival, slot))

    def first(self) -> Slot | None:
        """The least slot, or None."""
        run, late = self.run, self.late
        if not late:
            return run[0] if run else None
        key, arrival, slot = late[0]  # looked at once: no call and no new object is between here and the end
        if run and ((head := run[0])._key < key or (head._key == key and head._arrival < arrival)):
            return head
        return slot

    def take_first(self) -> Slot:
        """Removes the least slot and returns it; there must be one."""
        run, late = self.run, self.late
        if not late or (run and ((key := run[0]._key) < late[0][0] or (key == late[0][0] and self.first() is run[0]))):
            slot = run[0]
            run.popleft()
            if not run:
                self.last = -inf
        else:
            slot = late[0][2]
            heappop(late)
        if self.dead:
            self._drop_dead()
        return slot

    def discard(self) -> None:
        """One more slot is dead; sweeps them out when they outnumber the living."""
        self.dead += 1
        run, late = self.run, self.late
        if self.dead > _FLOOR and self.dead * 2 > len(run) + len(late):
            run = deque(slot for slot in run if slot._state == QUEUED)
            late = [entry for entry in late if entry[2]._state == QUEUED]
            heapify(late)
            self.run, self.late, self.dead = run, late, 0  # at once, for another thread may look
        elif (run and run[0]._state != QUEUED) or (late and late[0][2]._state != QUEUED):
            self._drop_dead()

    def _drop_dead(self) -> None:
        while (slot := self.first()) is not None and slot._state != QUEUED:
            self.dead -= 1
            if self.run and self.run[0] is slot:
                self.run.popleft()
            else:
                heappop(self.late)


class Timeouts(SortedRun):
    """Queued slots in order of their deadlines, which are no keys of theirs: each is a straggler."""

    __slots__ = ()

    def push(self, slot: Slot) -> None:
        """Adds a slot that has a deadline."""
        assert slot._deadline is not None, "only a request with a timeout has a deadline"
        heappush(self.late, (slot._deadline, slot._arrival, slot))
