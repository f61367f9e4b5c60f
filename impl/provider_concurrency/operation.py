"""What an operation is: one complete state change, then its notifications (CAL-2).

An operation that arrives while another one changes state (the garbage collector runs a finaliser, FIN-1), or from a
foreign thread (THR-1), waits in `_deferred` and acts right after the running one. What keeps two of them apart is the
shell's: a loop has one thread, threads have a lock.
"""

from __future__ import annotations

import abc
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
        self._deferred: deque[tuple[Callable[..., object], tuple[Any, ...]]] = deque()
        self._line = DeliveryLine(self._report_failure)

    @abc.abstractmethod
    def _operate(self, change: Callable[..., object], *args: Any) -> None:
        """One whole operation; what `change` raises passes through, its notifications are delivered all the same."""

    @abc.abstractmethod
    def _conclude(self) -> None:
        """What was put off acts, then the notifications are delivered."""

    def _run_anywhere(self, change: Callable[..., object], slot: Slot) -> None:
        """One whole operation, run by the owner's thread whoever asks (THR-1)."""
        if self._is_foreign():
            self._hand_over(change, slot)
        else:
            self._operate(change, slot)
