"""The one thread that wakes a blocking manager when something is due.

It decides nothing: a wake-up has an operation applied that judges every deadline anew (TIM-2). The thread starts with
the first wake-up that is set, sleeps until the next one, and ends when it is stopped or its owner is gone.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable
from heapq import heappop, heappush
from typing import Final

_MAX_WAIT_S: Final = 3600.0
"""No lock is asked to wait for more; whoever is due later is looked at again (TIM-4)."""


class WakeThread:
    """At most one wake-up per key, at a time of `time.monotonic`."""

    def __init__(self) -> None:
        """No thread yet."""
        self._condition = threading.Condition()
        self._wakeups: dict[Hashable, tuple[float, Callable[[], object]]] = {}
        self._heap: list[tuple[float, int, Hashable]] = []  # with entries of wake-ups that were cleared or moved
        self._made = 0
        self._thread: threading.Thread | None = None

    def __len__(self) -> int:
        """How many wake-ups are set."""
        return len(self._wakeups)

    def set(self, key: Hashable, delay: float, wake: Callable[[], object]) -> None:
        """Has `wake` called in `delay` seconds, in place of the key's former wake-up."""
        with self._condition:
            at = time.monotonic() + delay
            self._wakeups[key] = (at, wake)
            self._made += 1
            heappush(self._heap, (at, self._made, key))
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="provider-concurrency", daemon=True)
                self._thread.start()
            else:
                self._condition.notify()

    def clear(self, key: Hashable) -> None:
        """Drops a key's wake-up, if any."""
        with self._condition:
            self._wakeups.pop(key, None)

    def stop(self) -> None:
        """Drops all wake-ups and ends the thread; a later `set` starts another one."""
        with self._condition:
            self._wakeups.clear()
            self._heap.clear()
            self._thread = None
            self._condition.notify_all()

    def forget(self) -> None:
        """In a forked child: the thread is the parent's (FRK-1)."""
        self.__init__()  # type: ignore[misc] # afresh, with a lock that nobody holds

    def _run(self) -> None:
        me = threading.current_thread()
        while True:
            with self._condition:
                wake = self._take_due(me)
                while wake is None:
                    if self._thread is not me:
                        return
                    self._condition.wait(self._time_left())
                    wake = self._take_due(me)
            wake()

    def _take_due(self, me: threading.Thread) -> Callable[[], object] | None:
        """The next wake-up that is due, taken off; None if there is none or the thread was stopped."""
        while self._thread is me and self._heap:
            at, _, key = self._heap[0]
            current = self._wakeups.get(key)
            if current is None or current[0] != at:
                heappop(self._heap)
            elif at <= time.monotonic():
                heappop(self._heap)
                del self._wakeups[key]
                return current[1]
            else:
                return None
        return None

    def _time_left(self) -> float:
        return min(max(self._heap[0][0] - time.monotonic(), 0.0), _MAX_WAIT_S) if self._heap else _MAX_WAIT_S
