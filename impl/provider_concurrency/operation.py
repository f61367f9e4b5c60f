"""What an operation is: one complete state change, then its notifications (CAL-2).

An operation that arrives while another one changes state (the garbage collector runs a finaliser, FIN-1), or from a
foreign thread (THR-1), waits in `_deferred` and acts right after the running one.
"""

from __future__ import annotations

import abc
from collections import deque
from collections.abc import Callable
from typing import Any

from provider_concurrency.delivery import DeliveryLine


class Operations(abc.ABC):
    """The bracket around every state change."""

    def __init__(self) -> None:
        """Nothing is under way."""
        self._op = 0  # operations begun so far; the observer is told
        self._busy = False  # an operation is changing state
        self._home = 0  # the thread whose calls may take the short way past all this; 0: nobody's
        self._deferred: deque[tuple[Callable[..., object], tuple[Any, ...]]] = deque()
        self._line = DeliveryLine(self._report_failure)

    @abc.abstractmethod
    def _report_failure(self, error: Exception, callback: Callable[..., object]) -> None:
        """Reports what a callback raised (CAL-4)."""

    @abc.abstractmethod
    def _before_change(self) -> None:
        """Called at the beginning of each state change."""

    @abc.abstractmethod
    def _after_change(self) -> None:
        """Called at the end of each state change, before its notifications are delivered; sets `_home`."""

    def _operate(self, change: Callable[..., object], *args: Any) -> None:
        """One whole operation; what `change` raises passes through, its notifications are delivered all the same."""
        try:
            self._change(change, *args)
        finally:
            self._conclude()

    def _change(self, change: Callable[..., object], *args: Any) -> None:
        """The state change, at once or, while another one runs, right after that."""
        if self._busy:
            self._deferred.append((change, args))
            return
        self._busy = True
        self._home = 0
        self._op += 1
        try:
            self._before_change()
            change(*args)
        finally:
            self._busy = False
            self._after_change()

    def _conclude(self) -> None:
        """What was put off acts, then the notifications are delivered."""
        if self._busy:
            return
        while self._deferred:
            change, args = self._deferred.popleft()
            self._change(change, *args)
        self._line.deliver()
