"""What the manager keeps of one provider."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, cast

from provider_concurrency.errors import UNLIMITED
from provider_concurrency.queue import SortedRun, Timeouts

if TYPE_CHECKING:
    from provider_concurrency.core import Core
    from provider_concurrency.slot import Slot


class Provider:
    """One provider's slots, queue, deadlines and configuration; only the core changes it.

    `cap` is the one place where capacity is computed: `len(held) < cap` is "there is room, no pause, not closed"
    (ADM-1). At rest a non-empty queue means that this is false (ADM-5), so nothing else needs to be asked. `due_at` is
    the same for time: before it, nothing is due (TIM-3).
    """

    __slots__ = ("cap", "ceiling", "cooldown", "cooling", "due_at", "enclosing", "held", "limit", "manager", "name",
                 "own_cooldown", "paused_until", "queue", "reclaimed", "timeouts", "timer", "timer_at")  # fmt: skip

    def __init__(self, manager: Core, name: str) -> None:
        """A provider of which nothing is known yet."""
        self.manager = manager
        self.name = name
        self.own_cooldown: int | None = None  # ns; None: the manager's
        self.cooldown = manager._release_cooldown  # ns, the one in force
        self.held: dict[Slot, int] = {}  # when it was granted (ns), in grant order
        self.cooling: SortedRun | None = None  # by end of cooldown (ns); cooling and reclaimed slots
        self.reclaimed = 0  # how many of those in `cooling` were reclaimed
        self.queue: SortedRun | None = None  # by (prompt_started_at, arrival); None: nobody is queued
        self.enclosing: Counter[str] | None = None  # how many of the queued each conversation encloses (NST-1)
        self.timeouts: Timeouts | None = None  # by deadline (ns), those of the queued that have one
        self.paused_until: int | None = None  # ns
        self.due_at: int | None = None  # the earliest deadline of all that (ns)
        self.timer: object = None  # the one alive timer, if any (TIM-4)
        self.timer_at = 0  # the deadline that it was armed for (ns)
        self.limit: int | None  # its own; None: the manager's default
        self.ceiling: int  # the limit in force
        self.cap: int  # see the class
        self.set_limit(None)

    def set_limit(self, limit: int | None) -> None:
        """Sets its own limit, or with None takes it away; the manager's default is in force then (LIM-3, LIM-4)."""
        self.limit = limit
        default = self.manager._default_limit
        self.ceiling = limit if limit is not None else default if default is not None else UNLIMITED
        self.measure_room()

    def measure_room(self) -> None:
        """Computes `cap`; to be called after every change of limit, pause or cooldowns, and at close (ADM-2)."""
        if self.paused_until is not None or self.manager._closed:
            self.cap = -1
        else:
            self.cap = self.ceiling - (len(self.cooling) if self.cooling is not None else 0)

    @property
    def in_flight(self) -> int:
        """Slots held, cooling or reclaimed."""
        return len(self.held) + (len(self.cooling) if self.cooling is not None else 0)

    @property
    def queued(self) -> int:
        """Requests in the queue."""
        return 0 if self.queue is None else len(self.queue)

    def has_state(self) -> bool:
        """Whether anything is to be remembered of it (ACC-3)."""
        return bool(
            self.held
            or self.cooling
            or self.queue is not None
            or self.paused_until is not None
            or self.limit is not None
            or self.own_cooldown is not None
        )

    def measure_due(self) -> None:
        """Computes `due_at`; to be called after every change of pause, cooldowns or timeouts."""
        self.due_at = self.next_other_deadline()
        slot = self.cooling.first() if self.cooling is not None else None
        if slot is not None and (self.due_at is None or slot._key < self.due_at):
            self.due_at = cast(int, slot._key)

    def next_other_deadline(self) -> int | None:
        """When its pause or a timeout is due next (ns), or None."""
        slot = self.timeouts.first() if self.timeouts is not None else None
        deadline = slot._deadline if slot is not None else None
        if deadline is not None and (self.paused_until is None or deadline < self.paused_until):
            return deadline
        return self.paused_until
