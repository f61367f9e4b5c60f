"""What the core leaves to whoever runs it: waiting, timers, threads. It decides nothing of the rules."""

from __future__ import annotations

import abc
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from provider_concurrency.provider import Provider
    from provider_concurrency.slot import Slot


class Shell(abc.ABC):
    """The calls that the core makes; the asyncio manager answers them with a loop."""

    @abc.abstractmethod
    def _set_up(self) -> None:
        """Called once, before anything else, by the core's constructor."""

    @abc.abstractmethod
    def _forget_parent(self) -> None:
        """Called in a forked child: threads, loops and timers are the parent's (FRK-1)."""

    @abc.abstractmethod
    def _arm(self, provider: Provider, deadline: int, now: int) -> None:
        """Arms the provider's one timer for `deadline`, in place of the one that it has."""

    @abc.abstractmethod
    def _disarm(self, provider: Provider) -> None:
        """Cancels the provider's timer, if any."""

    @abc.abstractmethod
    def _arm_sweep(self, now: int) -> None:
        """Arms the sweeps' timer for `_sweep_at`."""

    @abc.abstractmethod
    def _disarm_sweep(self) -> None:
        """Cancels the sweeps' timer, if any."""

    @abc.abstractmethod
    def _make_waiter(self, slot: Slot) -> object:
        """What the caller of a slot that is about to queue will wait for; raises if it can't (LOP-1)."""

    @abc.abstractmethod
    def _settle(self, slot: Slot) -> None:
        """Tells the waiting caller of a slot that has just left the queue; its state says how."""

    @abc.abstractmethod
    def _drained(self) -> None:
        """Told on a closed manager when no slot is held any more."""

    @abc.abstractmethod
    def _is_foreign(self) -> bool:
        """Whether the calling thread isn't the owner's (THR-1)."""

    @abc.abstractmethod
    def _apply_due(self, provider: Provider) -> None:
        """Applies what is due of a provider that somebody reads; from a foreign thread nothing (THR-1)."""

    @abc.abstractmethod
    def _hand_over(self, change: Callable[..., object], *args: Any) -> None:
        """From a foreign thread: has the owner run an operation, and wakes it (THR-1)."""

    @abc.abstractmethod
    def _report_failure(self, error: Exception, callback: Callable[..., object]) -> None:
        """Reports what a callback raised (CAL-4)."""

    @abc.abstractmethod
    def _measure_home(self) -> None:
        """Called when a sweep was announced or the last one is over, and at close: who may take the short ways?"""
