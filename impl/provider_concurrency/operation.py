"""What an operation is: one complete state change, then its notifications (CAL-2).

An operation that arrives while another one changes state (the garbage collector runs a finaliser, FIN-1), or from a
foreign thread (THR-1), waits in `_deferred` and acts right after the running one.
"""

from __future__ import annotations

from _thread import get_ident
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from provider_concurrency.delivery import DeliveryLine
from provider_concurrency.shell import Shell

if TYPE_CHECKING:
    from provider_concurrency.slot import Slot


class Operations(Shell):
    """The bracket around every state change."""

    def __init__(self) -> None:
        """Nothing is under way."""
        self._op = 0  # operations begun so far; the observer is told
        self._busy = False  # an operation is changing state
        self._home = 0  # the thread whose calls may take the short way past all this; 0: nobody's
        self._resting_home = 0  # what `_home` is while no operation runs
        self._is_loop_closed: Callable[[], bool] = bool  # of the loop that is served; without one: never
        self._deferred: deque[tuple[Callable[..., object], tuple[Any, ...]]] = deque()
        self._line = DeliveryLine(self._report_failure)

    def _operate(self, change: Callable[..., object], *args: Any) -> None:
        """One whole operation; what `change` raises passes through, its notifications are delivered all the same."""
        try:
            self._change(change, args)
        finally:
            if self._deferred or self._line.waiting:
                self._conclude()

    def _run_anywhere(self, change: Callable[..., object], slot: Slot) -> None:
        """One whole operation, run by the owner's thread whoever asks (THR-1)."""
        if get_ident() == self._home or not self._is_foreign():
            self._operate(change, slot)
        else:
            self._hand_over(change, slot)

    def _change(self, change: Callable[..., object], args: tuple[Any, ...]) -> None:
        """The state change, at once or, while another one runs, right after that."""
        if self._busy:
            self._deferred.append((change, args))
            return
        self._busy = True
        self._home = 0
        self._op += 1
        try:
            if self._is_loop_closed():
                self._lose_loop()
            change(*args)
        finally:
            self._busy = False
            self._home = self._resting_home

    def _conclude(self) -> None:
        """What was put off acts, then the notifications are delivered."""
        if self._busy:
            return
        while self._deferred:
            change, args = self._deferred.popleft()
            self._change(change, args)
        self._line.deliver()
