"""Judges a run by its events alone: the one logic behind the live monitor and the reading of traces.

Each slot event moves its slot along the lifecycle (`lifecycle.SLOT_TABLE`, on request a real `transitions.Machine`
beside it); what one slot's table can't say is checked from counts that are kept independently of the manager's: room,
turn, pauses, cooldowns, close (`slot_rules`, `provider_rules`). Events name their operation; when the next one begins,
the last is over and its providers are at rest, which is when nothing may wait beside room (ADM-5).

Deadlines may be noticed late, never early (TIM-2). What events can't show isn't judged: the deadlines of timeouts,
touches (so not who ought to have been reclaimed, either), refusals, callbacks, and whether a pause that ended early
ended by `resume`: unless its operation is known to be another one, or the run is said to resume nothing, that is
believed, and counted in `early_resumes`.

After a violation the manager's word is taken for what happened, so that one fault isn't reported at every later event.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from provider_concurrency_model.findings import MonitorConfig, Violation
from provider_concurrency_model.ledger import Lateness, Ledger, ProviderBook, ProviderCounts, SlotRecord
from provider_concurrency_model.lifecycle import (
    CHARTS,
    MANAGER,
    MANAGER_TABLE,
    PROVIDER,
    PROVIDER_TABLE,
    SLOT,
    SLOT_TABLE,
    SLOT_TARGETS,
    Chart,
    build_machine,
)
from provider_concurrency_model.provider_rules import PROVIDER_ACTIONS
from provider_concurrency_model.slot_rules import SLOT_ACTIONS, believe
from provider_concurrency_spec.vocabulary import SlotEventKind

_AFTER_CLOSE = frozenset({"rejected", "recycled", "released", "cancelled"})


class RunJudge:
    """Takes a run's events in order; calls `on_violation` for each broken rule."""

    def __init__(
        self,
        config: MonitorConfig,
        on_violation: Callable[[Violation], None],
        *,
        machine: bool = False,
        resumes: bool = True,
    ) -> None:
        """With `machine` the real `transitions.Machine`s run beside the tables; `resumes=False`: nobody resumes."""
        self._ledger = Ledger(config, on_violation, resumes=resumes)
        self._machines = {chart.name: build_machine(chart) for chart in CHARTS} if machine else None
        self._newest = -1  # the highest arrival number: arrivals rise, so a lower one that isn't live has ended
        self._op = -1
        self._touched: list[ProviderBook] = []  # by the operation of the last event
        self._prune_at = 64

    @property
    def counts(self) -> dict[str, int]:
        """How often each event came."""
        return self._ledger.counts

    @property
    def events(self) -> int:
        """How many events were judged."""
        return self._ledger.index + 1

    @property
    def lateness(self) -> dict[str, Lateness]:
        """How long after their deadlines cooldowns (`recycled`) and pauses (`resumed`) were noticed to be over."""
        return self._ledger.lateness

    @property
    def early_resumes(self) -> int:
        """How many pauses ended before their deadline, by `resume` as far as one can tell."""
        return self._ledger.early_resumes

    @property
    def live_slots(self) -> int:
        """How many slots haven't ended: the measure of this judge's memory."""
        return len(self._ledger.slots)

    def providers(self) -> dict[str, ProviderCounts]:
        """The providers with state, in order of their first event."""
        return {name: book.counts() for name, book in self._ledger.books.items()}

    def feed(
        self,
        event: str,
        op: int,
        t_ns: int,
        provider: str | None,
        request: int | None,
        conversation_id: str | None,
        prompt_started_at: float | None,
        in_flight: int,
        queued: int,
        value: object,
    ) -> None:
        """Judges one event; the arguments are the observer's. Raises ValueError for what is no event at all."""
        ledger = self._ledger
        if event not in ledger.counts or (provider is None) is not (event == "closed"):
            raise ValueError(f"no event: {event!r} of provider {provider!r}")
        op_before = self._op
        if op != op_before:
            self.settle()
            self._op = op
        t_before = ledger.t_ns
        ledger.index += 1
        ledger.t_ns = t_ns
        ledger.value = value
        ledger.counts[event] += 1
        ledger.last = (
            event, op, t_ns, provider, request, conversation_id, prompt_started_at, in_flight, queued, value,
        )  # fmt: skip
        if op < op_before:
            ledger.report("CAL-2", f"operation {op} came after operation {op_before}")
        if t_ns < t_before:
            ledger.report("TIM-1", f"time went back from {t_before} ns to {t_ns} ns")
        if provider is None:
            self._close(in_flight, queued)
            return
        book = ledger.books.get(provider)
        if book is None:
            book = ledger.books[provider] = ProviderBook(provider, ledger.config.limits.get(provider), ledger.config)
        if book.op != op:
            book.op = op
            self._touched.append(book)
        if ledger.state == "closed" and event not in _AFTER_CLOSE:
            ledger.report("CLO-1", f"{event} after close")
        before = book.in_flight
        if event not in SLOT_TARGETS:
            self._change_provider(event, book)
        elif request is None:
            raise ValueError(f"no event: {event!r} without a request")
        else:
            slot = ledger.slots.get(request)
            if slot is None:
                slot = self._arrive(event, request, book)
            if slot is not None:
                self._move_slot(event, book, slot)
        if in_flight != book.in_flight or queued != book.queued:
            self._compare_counts(book, before, in_flight, queued)

    # -- operations ---------------------------------------------------------------------------------------------------

    def settle(self) -> None:
        """Judges what holds at rest: the last event was its operation's last, or nothing runs at all."""
        for book in self._touched:
            book.op = -1
            fault = self._find_unrest(book)
            if fault is not None:
                self._ledger.report(*fault)
        self._touched.clear()
        books = self._ledger.books
        if len(books) > self._prune_at:
            self._ledger.books = {name: book for name, book in books.items() if not book.is_idle}
            self._prune_at = 64 + 2 * len(self._ledger.books)

    def find_unrest(self) -> str | None:
        """What would be wrong if the last event were its operation's last."""
        faults = (self._find_unrest(book) for book in self._touched)
        return next((f"{fault[0]}: {fault[1]}" for fault in faults if fault is not None), None)

    def _find_unrest(self, book: ProviderBook) -> tuple[str, str, SlotRecord | None] | None:
        if self._ledger.state == "closed":
            if book.queued or book.in_flight != book.held:
                return "CLO-1", f"{book.name!r} still has slots queued or cooling after close", book.head()
        elif book.queued and book.in_flight < book.room and book.state == "open":
            limit = "no limit" if book.limit is None else f"limit {book.limit}"
            return "ADM-5", f"{book.queued} wait at {book.name!r}: in_flight {book.in_flight}, {limit}", book.head()
        if book.due_at_once:
            return "REL-1", f"a cooldown of 0 at {book.name!r} isn't over when its call is", None
        if book.state == "paused" and book.paused_until <= book.paused_at:
            return "PAU-5", f"a pause of 0 at {book.name!r} isn't over when its call is", None
        return None

    # -- single steps -------------------------------------------------------------------------------------------------

    def _arrive(self, event: str, request: int, book: ProviderBook) -> SlotRecord | None:
        ledger = self._ledger
        if request > self._newest:
            self._newest = request
            slot = ledger.slots[request] = SlotRecord(request, book, ledger.last[5], ledger.last[6])
            return slot
        ended = ledger.ended.get(request)
        if ended is None:
            ledger.report("ACC-2", f"{event} for request {request}, which has ended")
        else:
            ended.history.append(ledger.last[:3])
            ledger.report("ACC-2", f"{event} for {ended}, which has ended ({ended.state})", ended)
        return None

    def _move_slot(self, event: str, book: ProviderBook, slot: SlotRecord) -> None:
        ledger = self._ledger
        slot.history.append((event, self._op, ledger.t_ns))
        if slot.book is not book:
            ledger.report("ACC-1", f"{slot} doesn't belong to {book.name!r}", slot)
            return
        state = slot.state
        target = SLOT_TABLE.get((state, event))
        if self._machines is not None:
            self._run_machine(SLOT, slot, event, target)
        if target is None:
            believe(ledger, book, slot, state, cast(SlotEventKind, event))
        else:
            slot.state = target
            SLOT_ACTIONS[state, event](ledger, book, slot)

    def _change_provider(self, event: str, book: ProviderBook) -> None:
        if event in PROVIDER.events and not self._move(PROVIDER, PROVIDER_TABLE, book, event, "PAU-5"):
            return
        PROVIDER_ACTIONS[event](self._ledger, book)

    def _close(self, in_flight: int, queued: int) -> None:
        self._move(MANAGER, MANAGER_TABLE, self._ledger, "closed", "CLO-1")
        if in_flight or queued:
            self._ledger.report("ACC-1", f"closed counts no slots: in_flight {in_flight}, queued {queued}")
        self._touched = list(self._ledger.books.values())
        for book in self._touched:
            book.op = self._op
            book.state = "open"  # a pause ends without an event
            book.paused_until = 0

    def _compare_counts(self, book: ProviderBook, before: int, in_flight: int, queued: int) -> None:
        """The manager's counts against ours; a known difference isn't told again."""
        extra_in_flight, extra_queued = in_flight - book.in_flight, queued - book.queued
        if (extra_in_flight, extra_queued) == (book.extra_in_flight, book.extra_queued):
            return
        told_before = before + book.extra_in_flight
        book.extra_in_flight, book.extra_queued = extra_in_flight, extra_queued
        counted = f"in_flight {in_flight}, queued {queued}, counted {book.in_flight} and {book.queued}"
        self._ledger.report("ACC-1", f"{book.name!r} says {counted}")
        if in_flight > book.room and in_flight > told_before:
            self._ledger.report("ADM-6", f"{book.name!r} says in_flight rose to {in_flight}, limit {book.limit}")

    def _move(
        self, chart: Chart, table: dict[tuple[str, str], str], thing: ProviderBook | Ledger, event: str, rule: str
    ) -> bool:
        target = table.get((thing.state, event))
        if self._machines is not None:
            self._run_machine(chart, thing, event, target)
        if target is None:
            self._ledger.report(rule, f"{event} is illegal for a {chart.name} that is {thing.state}")
            return False
        thing.state = target
        return True

    def _run_machine(
        self, chart: Chart, thing: SlotRecord | ProviderBook | Ledger, event: str, target: str | None
    ) -> None:
        """Lets the real machine make the transition, and insists that it does what the table says."""
        from transitions import MachineError

        assert self._machines is not None
        moved: str | None
        try:
            self._machines[chart.name].events[event].trigger(thing)
            moved = thing.state
        except MachineError:
            moved = None
        if moved != target:
            raise AssertionError(f"{chart.name}: on {event} the table goes to {target}, the machine to {moved}")
