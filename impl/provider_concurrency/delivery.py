"""Notifications: collected while an operation changes state, delivered when the state is complete (CAL-2, CAL-3).

One line per manager, first in, first out. Delivery never nests: what a callback's own calls have to tell goes to the
end of the line. An Exception from a callback is reported once and changes nothing (CAL-4); a KeyboardInterrupt or
SystemExit leaves the delivery after the rest of the line has been delivered, so that no notification is lost.
"""

from __future__ import annotations

import logging
import sys
from _thread import get_ident, start_new_thread
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from provider_concurrency.turn import Turn

log: Final = logging.getLogger("provider_concurrency")

Report = Callable[[Exception, Callable[..., object]], None]
Call = tuple[Callable[..., object], tuple[Any, ...]]


class DeliveryLine:
    """The notifications that wait for delivery."""

    __slots__ = ("_delivering", "_left", "_report", "waiting")

    def __init__(self, report: Report) -> None:
        """`report` is told of each Exception that a callback raises."""
        self.waiting: deque[Call] = deque()
        self._delivering = False
        self._left: int | None = None  # how many calls whoever delivers still makes; None: all
        self._report = report

    def add(self, callback: Callable[..., object], *args: Any) -> None:
        """Puts a call at the end of the line."""
        self.waiting.append((callback, args))

    def deliver(self) -> None:
        """Makes the calls, unless a delivery is under way: that one will make them."""
        if self._delivering:
            return
        self._delivering = True
        interruption: BaseException | None = None
        waiting = self.waiting
        try:
            while waiting and self._left != 0:
                if self._left is not None:
                    self._left -= 1
                callback, args = waiting.popleft()
                try:
                    try:
                        callback(*args)
                    except Exception as error:  # noqa: BLE001 - user code may raise anything; it is reported (CAL-4)
                        self._report(error, callback)
                except BaseException as error:  # noqa: BLE001 - raised below, once the line is empty
                    interruption = error
        finally:  # also after an interrupt between two calls
            self._delivering = False
        if interruption is not None:
            raise interruption

    def forget(self) -> None:
        """Drops everything (a forked child, FRK-1)."""
        self.waiting.clear()
        self._delivering = False


class SharedDeliveryLine(DeliveryLine):
    """The line of a manager that many threads use: whoever finds nobody delivering delivers.

    Until the line is empty, or, once another thread has come by, what stood in it then: whoever delivers wants to
    return to its caller, too. It steps down, and a thread of its own goes on, which ends with the line (BLK-2). The
    turn is asked for, never waited for: a finaliser may come by while its own thread has it (FIN-1).
    """

    __slots__ = ("_is_spared", "_start", "_turn")

    def __init__(
        self,
        report: Report,
        *,
        is_spared: Callable[[], bool] = lambda: False,
        start: Callable[[Callable[[], None]], object] | None = None,
    ) -> None:
        """Nobody delivers.

        `is_spared`: whether the calling thread has better to do than to deliver. `start`: has a function called by
        nobody's thread (default: by a new one).
        """
        super().__init__(report)
        self._is_spared = is_spared
        self._start = start or _start_thread
        self.forget()

    def deliver(self) -> None:
        """Makes the calls, unless another thread does: they will be made."""
        try:
            if self.waiting and not self._is_spared():
                self._deliver(None)
        finally:
            self._pass_on()

    def _pass_on(self) -> None:
        """Has the calls made by a thread of their own, unless somebody makes them already."""
        if self.waiting and not self._turn.owner:  # whoever has the turn passes on when it ends
            try:
                self._start(self._relieve)
            except RuntimeError:  # no more threads
                self._relieve()

    def _relieve(self) -> None:
        """Nobody waits for this thread: it delivers until the line is empty, or somebody else has the turn."""
        while self.waiting:
            try:
                if not self._deliver(sys.maxsize):
                    return
            except BaseException:
                # Also a SystemExit out of a callback: the call that it was for has long returned.
                log.exception("provider_concurrency: a callback raised")

    def _deliver(self, left: int | None) -> bool:
        """Makes the calls, `left` at most (None: until others come by); False if somebody has the turn."""
        if self._turn.run(partial(self._deliver_now, left)):
            return True
        if self._left is None and self._turn.owner != get_ident():
            self._left = len(self.waiting)
        return False

    def _deliver_now(self, left: int | None) -> None:
        self._left, self._delivering = left, False  # it may have been interrupted at its end
        super().deliver()

    def forget(self) -> None:
        """Drops everything; the turn may be a thread's that the child hasn't got (FRK-1)."""
        super().forget()
        self._turn = Turn()
        self._left = None


def _start_thread(run: Callable[[], None]) -> None:
    start_new_thread(run, ())  # not threading's: a finaliser may be here while its own thread has threading's lock
