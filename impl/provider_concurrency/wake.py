"""The one thread that wakes a blocking manager when something is due.

It decides nothing: a wake-up has an operation applied that judges every deadline anew (TIM-2). The thread starts with
the first wake-up that is set, sleeps until the next one, and ends when it is stopped. It works under its owner's lock,
not one of its own: the garbage collector may run a finaliser that releases a slot at any point (FIN-1), and a thread
that holds one lock and then wants the other would deadlock with one that wants them the other way round.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Hashable
from heapq import heapify, heappop, heappush
from typing import Final

log: Final = logging.getLogger("provider_concurrency")

_MAX_WAIT_S: Final = 3600.0
"""No lock is asked to wait for more; whoever is due later is looked at again (TIM-4)."""
_FLOOR: Final = 32
"""So many entries of wake-ups that were cleared or moved may stand in the heap, or as many as there are living ones."""


class WakeThread:
    """At most one wake-up per key, at a time of `time.monotonic`; all calls are made under the owner's lock."""

    def __init__(self, lock: threading.RLock) -> None:
        """No thread yet; `lock` is the owner's."""
        self._changed = threading.Condition(lock)
        self._wakeups: dict[Hashable, tuple[float, Callable[[], object]]] = {}
        self._heap: list[tuple[float, int, Hashable]] = []
        self._made = 0
        self._thread: threading.Thread | None = None

    def __len__(self) -> int:
        """How many wake-ups are set."""
        return len(self._wakeups)

    def set(self, key: Hashable, delay: float, wake: Callable[[], object]) -> None:
        """Has `wake` called in `delay` seconds, in place of the key's former wake-up."""
        at = time.monotonic() + delay
        self._wakeups[key] = (at, wake)
        self._made += 1
        entry = (at, self._made, key)
        heappush(self._heap, entry)
        if len(self._heap) > 2 * len(self._wakeups) + _FLOOR:
            self._drop_dead()
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="provider-concurrency", daemon=True)
            self._thread.start()
        elif self._heap[0] is entry:
            self._changed.notify()

    def clear(self, key: Hashable) -> None:
        """Drops a key's wake-up, if any."""
        self._wakeups.pop(key, None)

    def stop(self) -> None:
        """Drops all wake-ups and ends the thread; a later `set` starts another one. Takes the lock itself."""
        with self._changed:
            self._wakeups.clear()
            self._heap.clear()
            self._thread = None
            self._changed.notify_all()

    def forget(self, lock: threading.RLock) -> None:
        """In a forked child: the thread is the parent's (FRK-1), and so may be the old lock."""
        WakeThread.__init__(self, lock)

    def is_current(self) -> bool:
        """Whether the calling thread is the one that wakes."""
        return threading.current_thread() is self._thread

    def _run(self) -> None:
        me = threading.current_thread()
        while True:
            with self._changed:
                while (wake := self._take_due(me)) is None:
                    if self._thread is not me:
                        return
                    self._changed.wait(self._time_left())
            try:
                wake()
            except BaseException:
                # Also a SystemExit out of an injected clock: it would end this thread, and nobody else wakes anybody.
                log.exception("provider_concurrency: a wake-up raised")

    def _take_due(self, me: threading.Thread) -> Callable[[], object] | None:
        """The next wake-up that is due, taken off; None if there is none or the thread was stopped."""
        while self._thread is me and self._heap:
            entry = heappop(self._heap)  # off first: a finaliser may come by and set another one
            at, _, key = entry
            current = self._wakeups.get(key)
            if current is None or current[0] != at:
                continue
            if at > time.monotonic():
                heappush(self._heap, entry)
                return None
            self._wakeups.pop(key, None)
            return current[1]
        return None

    def _time_left(self) -> float:
        return min(max(self._heap[0][0] - time.monotonic(), 0.0), _MAX_WAIT_S) if self._heap else _MAX_WAIT_S

    def _drop_dead(self) -> None:
        """Rebuilds the heap from the living, so that memory follows them."""
        living: list[tuple[float, int, Hashable]] = []
        for key, (at, _) in list(self._wakeups.items()):
            self._made += 1
            living.append((at, self._made, key))
        heapify(living)
        self._heap = living
