"""What the judge of a run remembers: a record per live slot, a book per provider, and how late timers were.

Memory is per live slot: an ended slot is forgotten (the last few are kept, so that a message can tell what happened to
them), stale queue entries are swept, and a provider without limit, cooldown, pause and slots is dropped (ACC-3).
"""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from provider_concurrency_model.findings import EVENT_KINDS, Moment, MonitorConfig, ObservedEvent, Violation

UNLIMITED: Final = 1 << 62
"""The room of a provider without a limit; an int, so that the test is one comparison."""

_KEPT_ENDS: Final = 128  # ended slots whose history can still be told


@dataclass(frozen=True, slots=True)
class ProviderCounts:
    """A provider's state as the events tell it; `limit` is the one in force, peaks are since it was last idle."""

    provider: str
    limit: int | None
    in_flight: int
    held: int
    cooling: int
    reclaimed: int
    queued: int
    paused: bool
    peak_in_flight: int
    peak_queued: int


class SlotRecord:
    """A live slot."""

    __slots__ = ("book", "conversation", "due", "history", "prompt", "request", "since", "state", "turn")

    def __init__(self, request: int, book: ProviderBook, conversation: str | None, prompt: float | None) -> None:
        """A request before its first event."""
        self.state = "new"
        self.request = request
        self.book = book
        self.conversation = conversation
        self.prompt = prompt
        self.history: list[Moment] = []
        self.since = 0  # of its present state
        self.due = 0  # of its cooldown
        self.turn = 0  # its place among all grants

    def __lt__(self, other: SlotRecord) -> bool:
        """Arrival order; asked only when a faulty run queues one slot twice."""
        return self.request < other.request

    def __str__(self) -> str:
        """The slot in a message."""
        whose = "" if self.conversation is None else f" (conversation {self.conversation!r})"
        return f"request {self.request} of {self.book.name!r}{whose}"


class ProviderBook:
    """A provider with live slots, a limit, a cooldown or a pause."""

    __slots__ = (
        "applied", "caused", "cooldown", "due_at_once", "extra_in_flight", "extra_queued", "heap", "held", "in_flight",
        "limit", "name", "op", "own_cooldown", "own_limit", "paused_at", "paused_until", "peak_in_flight",
        "peak_queued", "queued", "reclaimed", "room", "state", "swept",
    )  # fmt: skip

    def __init__(self, name: str, own_limit: int | None, config: MonitorConfig) -> None:
        """A provider before its first event."""
        self.name = name
        self.state = "open"
        self.paused_at = 0  # the last report of a 429
        self.paused_until = 0
        self.held = 0
        self.reclaimed = 0
        self.in_flight = 0
        self.queued = 0
        self.peak_in_flight = 0
        self.peak_queued = 0
        self.heap: list[tuple[float, int, SlotRecord]] = []  # ORD-1; those who left early stay until they surface
        self.due_at_once = 0  # slots with a cooldown of 0 that haven't been recycled yet (REL-1)
        self.op = -1  # the last operation that touched it
        self.caused = -1  # the last operation known not to be a `resume`
        # (op, deadline, kind, request) of the last deadline applied (TIM-3)
        self.applied: tuple[int, int, int, int] = (-1, 0, 0, 0)
        self.swept: tuple[int, int] = (-1, 0)  # (op, turn) of the last slot reclaimed (TIM-3)
        self.extra_in_flight = 0  # by how much the manager's own counts are known to differ, so as to say it once
        self.extra_queued = 0
        self.own_cooldown: int | None = None
        self.set_cooldown(None, config)
        self.set_limit(own_limit, config)

    def set_limit(self, own_limit: int | None, config: MonitorConfig) -> None:
        """Notes the provider's own limit, or None for the default one (LIM-4)."""
        self.own_limit = own_limit
        self.limit = config.default_limit if own_limit is None else own_limit
        self.room = UNLIMITED if self.limit is None else self.limit

    def set_cooldown(self, own_cooldown: int | None, config: MonitorConfig) -> None:
        """Notes the provider's own cooldown, or None for the manager's (ACC-4)."""
        self.own_cooldown = own_cooldown
        self.cooldown = config.release_cooldown_ns if own_cooldown is None else own_cooldown

    @property
    def is_idle(self) -> bool:
        """Whether the provider has no state (ACC-3), own or default limit aside."""
        return (
            not self.in_flight
            and not self.queued
            and self.state == "open"
            and self.own_limit is None
            and self.own_cooldown is None
        )

    def push(self, slot: SlotRecord) -> None:
        """Adds a waiter."""
        heapq.heappush(self.heap, (slot.prompt or 0.0, slot.request, slot))

    def pop(self, slot: SlotRecord) -> SlotRecord | None:
        """Takes a waiter off the queue's head; if another one is the head, that one is returned and nothing taken."""
        heap = self.heap
        while heap:
            head = heap[0][2]
            if head is slot:
                heapq.heappop(heap)
                return None
            if head.state == "queued":
                return head
            heapq.heappop(heap)
        return None

    def drop_stale(self) -> None:
        """Keeps the queue's memory in proportion to those who wait; constant time per call on average."""
        if len(self.heap) > 2 * self.queued + 32:
            self.heap = [entry for entry in self.heap if entry[2].state == "queued"]
            heapq.heapify(self.heap)

    def head(self) -> SlotRecord | None:
        """The waiter whose turn it is."""
        return min((entry for entry in self.heap if entry[2].state == "queued"), default=(0, 0, None))[2]

    def counts(self) -> ProviderCounts:
        """A frozen copy for a reader."""
        return ProviderCounts(
            provider=self.name,
            limit=self.limit,
            in_flight=self.in_flight,
            held=self.held,
            cooling=self.in_flight - self.held - self.reclaimed,
            reclaimed=self.reclaimed,
            queued=self.queued,
            paused=self.state == "paused",
            peak_in_flight=self.peak_in_flight,
            peak_queued=self.peak_queued,
        )


class Lateness:
    """By how much something came after its deadline: legal, and worth knowing (TIM-2). Fixed memory.

    The buckets keep the three leading bits, so a quantile is an upper bound at most a quarter too high.
    """

    __slots__ = ("_buckets", "count", "max_ns", "total_ns")

    def __init__(self) -> None:
        """Nothing counted yet."""
        self.count = 0
        self.total_ns = 0
        self.max_ns = 0
        self._buckets: Counter[int] = Counter()

    def add(self, late_ns: int) -> None:
        """Counts one occurrence."""
        self.count += 1
        self.total_ns += late_ns
        if late_ns > self.max_ns:
            self.max_ns = late_ns
        shift = max(late_ns.bit_length() - 3, 0)
        self._buckets[((late_ns >> shift) + 1 << shift) - 1] += 1

    def quantile(self, share: float) -> int:
        """An upper bound of the lateness of that share of all occurrences; 0 when there were none."""
        rank = math.ceil(share * self.count)
        for top, number in sorted(self._buckets.items()):
            rank -= number
            if rank <= 0:
                return min(top, self.max_ns)
        return 0


class Ledger:
    """All that is remembered about a run, and the way findings leave."""

    def __init__(self, config: MonitorConfig, on_violation: Callable[[Violation], None], *, resumes: bool) -> None:
        """A run before its first event; `resumes=False`: nobody calls `resume`, a pause ends by its deadline only."""
        self.config = config
        self.resumes = resumes
        self.state = "open"
        self.index = -1  # of the event being judged
        self.t_ns = 0  # its time
        self.value: object = None  # its value
        self.last: tuple[str, int, int, str | None, int | None, str | None, float | None, int, int, object] = (
            "", -1, 0, None, None, None, None, 0, 0, None,
        )  # fmt: skip
        self.counts: dict[str, int] = dict.fromkeys(EVENT_KINDS, 0)
        self.lateness = {"recycled": Lateness(), "resumed": Lateness()}
        self.early_resumes = 0
        self.grants = 0
        self.books: dict[str, ProviderBook] = {}
        self.slots: dict[int, SlotRecord] = {}
        self.ended: dict[int, SlotRecord] = {}
        self._on_violation = on_violation

    def report(self, rule: str, message: str, slot: SlotRecord | None = None) -> None:
        """Passes on that the last event breaks a rule."""
        history = () if slot is None else tuple(slot.history)
        self._on_violation(Violation(rule, message, self.index, ObservedEvent(*self.last), history))

    def end(self, slot: SlotRecord) -> None:
        """Forgets a slot, though not at once."""
        self.slots.pop(slot.request, None)
        ended = self.ended
        ended[slot.request] = slot
        if len(ended) > _KEPT_ENDS:
            del ended[next(iter(ended))]
