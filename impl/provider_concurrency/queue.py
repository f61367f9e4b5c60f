"""Ordered entries that mostly arrive in order: the queue of requests, the cooldowns, the timeouts.

An entry is a tuple (key, arrival number, slot), the arrival number unique, so that entries are totally ordered and
a slot is never compared. What arrives in order goes to the end of a run (O(1)); a straggler goes to a heap
(O(log n)); the first entry is the lesser of both heads.
"""

from __future__ import annotations

from collections import deque
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, TypeAlias

from provider_concurrency._tags import QUEUED

if TYPE_CHECKING:
    from provider_concurrency.slot import Slot

Entry: TypeAlias = "tuple[float, int, Slot]"  # the key: a prompt time, or a deadline in ns


class SortedRun:
    """Entries in order; every entry stays until it is popped."""

    __slots__ = ("late", "run")

    def __init__(self) -> None:
        """Starts empty."""
        self.run: deque[Entry] = deque()
        self.late: list[Entry] = []

    def __len__(self) -> int:
        return len(self.run) + len(self.late)

    def push(self, entry: Entry) -> None:
        """Adds an entry."""
        run = self.run
        if not run or entry > run[-1]:
            run.append(entry)
        else:
            heappush(self.late, entry)

    def first(self) -> Entry | None:
        """The least entry, or None."""
        run, late = self.run, self.late
        if not late:
            return run[0] if run else None
        return run[0] if run and run[0] < late[0] else late[0]

    def take_first(self) -> Entry:
        """Removes the least entry and returns it; there must be one."""
        run, late = self.run, self.late
        return run.popleft() if not late or (run and run[0] < late[0]) else heappop(late)

    def take_due(self, bound: int) -> list[Slot]:
        """Removes the entries whose key is at most `bound`, and returns their slots in order."""
        due: list[Slot] = []
        while self.late and (entry := self.first()) is not None and entry[0] <= bound:
            due.append(self.take_first()[2])
        if not self.late:
            run = self.run
            while run and run[0][0] <= bound:
                due.append(run.popleft()[2])
        return due


class WaitingRun(SortedRun):
    """Entries of queued slots: one whose slot is queued no longer is dead and is dropped in passing.

    Whoever takes a slot out of the queue otherwise than by `take_first` calls `discard` once, after the slot's state
    has changed. Dead entries never outnumber the living by more than the floor below, so memory follows the living, at
    O(1) amortised a discard. The first entry is always alive, so that another thread may look at it (THR-1).
    """

    __slots__ = ("dead",)

    _FLOOR = 32

    def __init__(self) -> None:
        """Starts empty."""
        super().__init__()
        self.dead = 0

    def __len__(self) -> int:
        return len(self.run) + len(self.late) - self.dead

    def take_first(self) -> Entry:
        """Removes the least entry and returns it; there must be one."""
        run, late = self.run, self.late
        entry = run.popleft() if not late or (run and run[0] < late[0]) else heappop(late)
        if self.dead:
            self._drop_dead()
        return entry

    def discard(self) -> None:
        """One more entry is dead; sweeps them out when they outnumber the living."""
        self.dead += 1
        if self.dead > self._FLOOR and self.dead * 2 > len(self.run) + len(self.late):
            self.run = deque(entry for entry in self.run if entry[2]._state == QUEUED)
            self.late = [entry for entry in self.late if entry[2]._state == QUEUED]
            heapify(self.late)
            self.dead = 0
        else:
            run, late = self.run, self.late
            if (run and run[0][2]._state != QUEUED) or (late and late[0][2]._state != QUEUED):
                self._drop_dead()

    def _drop_dead(self) -> None:
        while (entry := self.first()) is not None and entry[2]._state != QUEUED:
            SortedRun.take_first(self)
            self.dead -= 1
