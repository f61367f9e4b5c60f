"""Notifications: collected while an operation changes state, delivered when the state is complete (CAL-2, CAL-3).

One line per manager, first in, first out. Delivery never nests: what a callback's own calls have to tell goes to the
end of the line. An Exception from a callback is reported once and changes nothing (CAL-4); a KeyboardInterrupt or
SystemExit leaves the delivery after the rest of the line has been delivered, so that no notification is lost.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Any

Report = Callable[[Exception, Callable[..., object]], None]
Call = tuple[Callable[..., object], tuple[Any, ...]]


class DeliveryLine:
    """The notifications that wait for delivery."""

    __slots__ = ("_delivering", "_report", "waiting")

    def __init__(self, report: Report) -> None:
        """`report` is told of each Exception that a callback raises."""
        self.waiting: deque[Call] = deque()
        self._delivering = False
        self._report = report

    def add(self, callback: Callable[..., object], *args: Any) -> None:
        """Puts a call at the end of the line."""
        self.waiting.append((callback, args))

    def deliver(self) -> None:
        """Makes the calls, unless a delivery is under way: that one will make them."""
        if not self._begin():
            return
        interruption: BaseException | None = None
        try:
            while (call := self._take()) is not None:
                callback, args = call
                try:
                    try:
                        callback(*args)
                    except Exception as error:  # noqa: BLE001 - user code may raise anything; it is reported (CAL-4)
                        self._report(error, callback)
                except BaseException as error:  # noqa: BLE001 - raised below, once the line is empty
                    interruption = error
        except BaseException:  # from between the calls
            self._delivering = False
            raise
        if interruption is not None:
            raise interruption

    def _begin(self) -> bool:
        """Whether there is something to deliver and nobody does yet."""
        if self._delivering or not self.waiting:
            return False
        self._delivering = True
        return True

    def _take(self) -> Call | None:
        """The next call; None: the line is empty and the delivery over."""
        if self.waiting:
            return self.waiting.popleft()
        self._delivering = False
        return None

    def forget(self) -> None:
        """Drops everything (a forked child, FRK-1)."""
        self.waiting.clear()
        self._delivering = False


class SharedDeliveryLine(DeliveryLine):
    """The line of a manager that many threads use: whoever finds nobody delivering delivers for all.

    The turn is asked for, never waited for: a finaliser may come by while its own thread has it (FIN-1).
    """

    __slots__ = ("_turn",)

    def __init__(self, report: Report) -> None:
        """Nobody delivers."""
        super().__init__(report)
        self._turn = threading.Lock()

    def deliver(self) -> None:
        """Makes the calls, unless another thread does: that one will make them."""
        # Again after the turn: whoever added a call just before it ended has left it to us.
        while self.waiting and (turn := self._turn).acquire(blocking=False):
            try:
                super().deliver()
            finally:
                turn.release()

    def forget(self) -> None:
        """Drops everything; the turn may be a thread's that the child hasn't got (FRK-1)."""
        super().forget()
        self._turn = threading.Lock()
