"""Every state change of the manager stands here, and nothing else does.

In prose (the ids are those of SPEC.md):

- An operation first applies what is due of its provider, in order of deadline: cooldowns, then the pause, then
  timeouts (TIM-3). Then it changes state completely, then its notifications are delivered (CAL-2).
- A request is granted at once iff there is room: no pause, not closed, in_flight below the limit. At rest nobody is
  queued while there is room (ADM-5), so that room alone decides (ADM-1). `Provider.cap` is that room, computed in
  one place.
- Whatever can make room ends with the one admission step, `_admit`: while there is room, grant the head (ADM-2).
- A grant takes its slot inside the operation that causes it; the waiting caller is merely told (ADM-3).
- A released slot cools until release + cooldown (REL-1, REL-3), a reclaimed one likewise (WAT-3); a request that is
  cancelled before its caller received the slot gives it back without a cooldown (CAN-2).
- Timers only wake; deadlines decide (TIM-2, PAU-5). At most one timer a provider and one for the sweeps (TIM-4).

The core reads no clock of its own, knows no loop and never waits: the shell (the asyncio manager) supplies timers,
settles waiters and guards threads. Times are integer nanoseconds.
"""

from __future__ import annotations

import logging
from _thread import get_ident
from collections.abc import Callable
from typing import Final

from provider_concurrency._tags import (
    CANCELLED,
    COOLING,
    FREE,
    FREE_RECLAIMED,
    HANDED,
    HELD,
    QUEUED,
    RECLAIMED,
    REJECTED,
    TIMED_OUT,
)
from provider_concurrency.context import current_block
from provider_concurrency.errors import AcquireTimeoutError, NestedAcquireError, QueueFullError, explain
from provider_concurrency.nesting import count_queued, discount_queued, note_ancestors, would_deadlock
from provider_concurrency.operation import Operations
from provider_concurrency.provider import Provider
from provider_concurrency.queue import SortedRun, Timeouts
from provider_concurrency.settings import Settings
from provider_concurrency.slot import Slot

log: Final = logging.getLogger("provider_concurrency")

_FORGOTTEN: Final = {HELD: FREE, HANDED: CANCELLED, QUEUED: CANCELLED, COOLING: FREE, RECLAIMED: FREE_RECLAIMED}
"""How a parent's slots end in a forked child (FRK-1)."""


class Core(Operations):
    """The state of one manager and all its changes."""

    def __init__(self, settings: Settings) -> None:
        """Starts open, with the settings' limits and no slots."""
        super().__init__()
        self._set_up()
        self._settings = settings
        self._default_limit = settings.default_limit
        self._release_cooldown = settings.release_cooldown
        self._slot_timeout = settings.slot_timeout
        self._interval = settings.watchdog_interval
        self._clock = settings.clock
        self._observer = settings.observer
        self._may_refuse = settings.max_queued is not None or settings.nested == "raise"
        self._born = self._clock()  # the origin of the sweep grid and of the observer's times
        self._closed = False
        self._arrivals = 0  # arrival numbers given so far (ORD-1)
        self._sweep_at: int | None = None  # when the announced sweep is due; None: none is announced
        self._providers: dict[str, Provider] = {}
        for name, limit in settings.limits.items():
            self._provider(name).set_limit(limit)

    # -- what a slot or a waiting caller asks for, from any thread ----------------------------------------------------

    def _release_slot(self, slot: Slot) -> None:
        """REL-1, REL-2."""
        if slot._state == HELD:
            self._run_anywhere(self._release, slot)

    def _touch_slot(self, slot: Slot) -> None:
        """WAT-2."""
        if slot._state == HELD:
            self._run_anywhere(self._touch, slot)

    def _cancel_request(self, slot: Slot) -> None:
        """The caller of a request is gone (CAN-1, CAN-2)."""
        if slot._state == QUEUED or slot._state == HANDED:  # `in` would make a tuple each time
            if get_ident() == self._home:  # which spares asking whether the thread is foreign
                self._operate(self._withdraw, slot)
            else:
                self._run_anywhere(self._withdraw, slot)

    # -- state changes (each within an operation) -----------------------------------------------------------------

    def _provider(self, name: str) -> Provider:
        """The provider's record, made if need be."""
        provider = self._providers.get(name)
        if provider is None:
            provider = self._providers[name] = Provider(self, name)
        return provider

    def _take_number(self) -> int:
        """The next arrival number (ORD-1); also what sets apart the cooldowns of slots that nobody can tell apart."""
        self._arrivals += 1
        return self._arrivals

    def _catch_up(self, p: Provider) -> int:
        """Applies what is due, in order of deadline; ties: cooldown, pause, timeout (TIM-3). Returns the time."""
        now = self._clock()
        while p.due_at is not None and p.due_at <= now:
            if p.cooling is not None and (slot := p.cooling.first()) is not None and slot._key == p.due_at:
                self._recycle_due(p, now)
            elif p.paused_until == p.due_at:
                self._end_pause(p, now)
            elif p.timeouts and (slot := p.timeouts.first()):  # pragma: no branch - no other deadlines are left
                self._leave_queue(p, slot, TIMED_OUT, "timed_out", now)
                self._settle(slot)
        return now

    def _catch_up_and_rest(self, p: Provider) -> None:
        """The operation of a timer, and of a reading."""
        self._rest(p, self._catch_up(p))

    def _rest(self, p: Provider, now: int) -> None:
        """Ends a change: arms what has to wake (TIM-4), forgets a provider without state (ACC-3)."""
        is_awaited = p.queue is not None or (self._observer is not None and not self._closed)
        if p.due_at is not None and is_awaited and (p.timer is None or p.due_at < p.timer_at):
            self._arm(p, p.due_at, now)
        if not p.held and not p.has_state() and self._providers.get(p.name) is p:
            del self._providers[p.name]
            self._disarm(p)

    def _admit(self, p: Provider, now: int) -> None:
        """The one admission step (ADM-2): while there is room, grant the head."""
        while (queue := p.queue) is not None and len(p.held) < p.cap:
            slot = queue.take_first()  # a queue without a living entry is None
            slot._state = HANDED
            if slot._deadline is not None or p.enclosing is not None or not (queue.run or queue.late):
                self._left_queue(p, slot)
            self._grant(p, slot, now)
            self._settle(slot)

    def _grant(self, p: Provider, slot: Slot, now: int) -> None:
        """A request takes its slot (ADM-3); the grant touches (WAT-2)."""
        slot._state = HANDED
        slot._touched = p.held[slot] = now
        if self._sweep_at is None:
            self._announce_sweep(now)
        if self._observer is not None:
            self._note("granted", p, slot, now)

    def _ask(self, slot: Slot, name: str, timeout: int | None, on_queued: Callable[[], object] | None) -> None:
        """A request: granted at once, queued, or refused (ADM-1, ADM-7, CAN-3). It is numbered first (ORD-1)."""
        self._arrivals += 1
        slot._arrival = self._arrivals
        p = slot._provider = self._providers.get(name) or self._provider(name)
        now = self._catch_up(p) if p.due_at is not None else self._clock()
        try:
            if len(p.held) < p.cap:
                self._grant(p, slot, now)
            else:
                if timeout == 0 or self._may_refuse:
                    self._refuse(p, slot, timeout, now)
                self._enqueue(p, slot, None if timeout is None else now + timeout, now)
                if on_queued is not None:
                    self._line.add(on_queued)
        finally:
            if p.due_at is not None or not p.held:
                self._rest(p, now)

    def _refuse(self, p: Provider, slot: Slot, timeout: int | None, now: int) -> None:
        """Raises if a request that isn't granted at once may not queue either (CAN-3, ADM-7, NST-1)."""
        if timeout == 0:
            slot._state = TIMED_OUT
            self._note("timed_out", p, slot, now)
            raise explain(AcquireTimeoutError, "no slot was free at once (timeout 0)", p)
        if self._settings.max_queued is not None and p.queued >= self._settings.max_queued:
            raise explain(QueueFullError, f"{p.queued} requests are queued already", p)
        if self._settings.nested == "raise" and would_deadlock(p, slot):
            raise explain(NestedAcquireError, "its own ancestors hold every slot", p)

    def _try(self, slot: Slot, name: str) -> None:
        """A request that never queues: without room its slot is simply not granted (ADM-8)."""
        slot._arrival = self._take_number()
        p = slot._provider = self._provider(name)
        now = self._catch_up(p)
        if len(p.held) < p.cap:
            self._grant(p, slot, now)
        self._rest(p, now)

    def _enqueue(self, p: Provider, slot: Slot, deadline: int | None, now: int) -> None:
        """A request joins the queue in order of (prompt_started_at, arrival) (ORD-1)."""
        assert slot._prompt is not None, "a request that may queue has its prompt time"
        slot._waiter = self._make_waiter(slot)
        slot._key = slot._prompt
        slot._deadline = deadline
        slot._touched = now
        slot._state = QUEUED
        if current_block.get() is not None:
            note_ancestors(slot)
            count_queued(p, slot)
        if p.queue is None:
            p.queue = SortedRun()
        p.queue.push(slot)
        if deadline is not None:
            if p.timeouts is None:
                p.timeouts = Timeouts()
            p.timeouts.push(slot)
            if p.due_at is None or deadline < p.due_at:
                p.due_at = deadline
        if self._observer is not None:
            self._note("queued", p, slot, now)

    def _leave_queue(self, p: Provider, slot: Slot, tag: int, event: str, now: int) -> None:
        """A queued request ends without a grant."""
        assert p.queue is not None, "a queued slot stands in its provider's queue"
        slot._state = tag
        p.queue.discard()
        self._left_queue(p, slot)
        if self._observer is not None:
            self._note(event, p, slot, now)

    def _left_queue(self, p: Provider, slot: Slot) -> None:
        """Clears up after a request that is queued no longer; empty runs go, dead entries and all."""
        if slot._deadline is not None and p.timeouts is not None:
            p.timeouts.discard()
            if slot._deadline == p.due_at:
                p.measure_due()
        if p.enclosing is not None:
            discount_queued(p, slot)
        if p.queue is not None and not p.queue.run and not p.queue.late:
            p.queue = p.timeouts = p.enclosing = None

    def _withdraw(self, slot: Slot) -> None:
        """A request is cancelled before its caller received the slot (CAN-1, CAN-2)."""
        p = slot._provider
        now = self._catch_up(p) if p.due_at is not None else self._clock()
        if slot._state == QUEUED:
            self._leave_queue(p, slot, CANCELLED, "cancelled", now)
        elif slot._state == HANDED:
            self._give_back(p, slot, now)
        if p.due_at is not None or not p.held:
            self._rest(p, now)

    def _give_back(self, p: Provider, slot: Slot, now: int) -> None:
        """An undelivered grant ends without a cooldown: nothing was sent upstream (CAN-2)."""
        del p.held[slot]
        slot._state = CANCELLED
        self._note("cancelled", p, slot, now)
        self._admit(p, now)
        self._note_drained()

    def _release(self, slot: Slot) -> None:
        """The holder gives its slot back (REL-1); the second time nothing happens (REL-2)."""
        if slot._state != HELD:
            return
        p = slot._provider
        now = self._catch_up(p) if p.due_at is not None else self._clock()
        if self._observer is not None:  # while it still stands among the held, since it goes on counting
            self._note("released", p, slot, now)
        slot._state = COOLING
        self._cool(p, slot, now)
        if p.queue is not None:
            self._admit(p, now)
        if p.due_at is not None or not p.held:
            self._rest(p, now)
        if self._closed:
            self._note_drained()

    def _cool(self, p: Provider, slot: Slot, now: int) -> None:
        """Starts the cooldown of a released or reclaimed slot; one of 0 is over at once (REL-1, REL-3)."""
        del p.held[slot]
        if self._closed or p.cooldown == 0:
            self._recycle(p, slot, now)
        else:
            if p.cooling is None:
                p.cooling = SortedRun()
            if self._observer is None:  # a slot that was granted the short way has no number
                slot._arrival = self._take_number()
            slot._key = now + p.cooldown
            p.cooling.push(slot)
            p.measure_room()
            p.measure_due()

    def _start_cooldown(self, p: Provider, slot: Slot) -> None:
        """The short way of `_release` (see Slot.release): nobody waits or listens, so what is over may go later.

        A finaliser may come by at any call, and release this very slot, or take one (FIN-1): so all calls are made
        first, then it is looked whether things still are so, and then nothing is called until all books agree.
        """
        now = self._clock()
        if p.cooling is None:
            fresh = SortedRun()
            if p.cooling is None:
                p.cooling = fresh
        cooling, end = p.cooling, now + p.cooldown
        is_in_order = end > cooling.last  # always, unless the cooldown was shortened
        if slot._state != HELD or p.queue is not None or self._closed or not is_in_order:
            self._operate(self._release, slot)
            return
        slot._state = COOLING
        slot._key = cooling.last = end
        self._arrivals = slot._arrival = self._arrivals + 1
        p.cap -= 1
        del p.held[slot]
        if p.due_at is None or end < p.due_at:
            p.due_at = end
        cooling.run.append(slot)
        if p.due_at + p.cooldown <= now:  # the first has lain about for as long again: now they go, all at once
            self._operate(self._catch_up, p)

    def _recycle_due(self, p: Provider, now: int) -> None:
        """The cooldowns that are due before anything else is (REL-3, TIM-3); then one admission step for all."""
        other = p.next_other_deadline()
        bound = now if other is None else min(now, other)
        if self._observer is None and p.cooling is not None and not p.cooling.late:  # nobody sees each of them go
            run = p.cooling.run
            while run and (slot := run[0])._key <= bound and slot._state == COOLING:
                slot._state = FREE
                run.popleft()
        while p.cooling and (due := p.cooling.first()) is not None and due._key <= bound:
            p.cooling.take_first()
            self._recycle(p, due, now)
        p.measure_room()
        p.measure_due()
        self._admit(p, now)

    def _recycle(self, p: Provider, slot: Slot, now: int) -> None:
        """A slot that counts no longer is free."""
        if slot._state == RECLAIMED:
            p.reclaimed -= 1
            slot._state = FREE_RECLAIMED
        else:
            slot._state = FREE
        if self._observer is not None:
            self._note("recycled", p, slot, now)

    def _touch(self, slot: Slot) -> None:
        """The holder shows that it is alive (WAT-2)."""
        if slot._state == HELD:
            p = slot._provider
            slot._touched = now = self._catch_up(p)
            self._rest(p, now)

    # -- pause ----------------------------------------------------------------------------------------------------

    def _pause(self, name: str, requested: float | None, wanted: int | None) -> None:
        """A 429 (PAU-1, PAU-2); `wanted` is None for "use the default"."""
        if self._closed:
            return
        p = self._provider(name)
        now = self._catch_up(p)
        settings = self._settings
        length = settings.default_pause if wanted is None else wanted
        length = min(max(length, settings.min_pause, p.cooldown), settings.max_pause)
        extends = p.paused_until is None or now + length > p.paused_until
        if extends:
            p.paused_until = now + length
            p.measure_room()
            p.measure_due()
        self._note_provider("paused", p, now, (requested, length))
        if extends and length == 0:
            self._end_pause(p, now)
        elif extends and settings.on_pause is not None:
            self._line.add(settings.on_pause, name, length / 1e9)
        self._rest(p, now)

    def _resume(self, name: str) -> None:
        """An operator ends a pause (PAU-5); of an unknown provider there is nothing to end."""
        p = self._providers.get(name)
        if p is None:
            return
        now = self._catch_up(p)
        if p.paused_until is not None:
            self._end_pause(p, now)
        self._rest(p, now)

    def _end_pause(self, p: Provider, now: int) -> None:
        """The pause is over (PAU-5)."""
        p.paused_until = None
        p.measure_room()
        p.measure_due()
        self._note_provider("resumed", p, now)
        self._admit(p, now)

    # -- configuration --------------------------------------------------------------------------------------------

    def _set_limit(self, name: str, limit: int | None) -> None:
        """A provider gets its own limit, or with None loses it (LIM-1..3); evicts nobody, admits by room."""
        p = self._providers.get(name)
        if p is None:
            if limit is None:
                return
            p = self._provider(name)
        now = self._catch_up(p)
        had = p.limit
        p.set_limit(limit)
        if limit is not None:
            self._note_provider("limit_set", p, now, limit)
        elif had is not None:
            self._note_provider("limit_removed", p, now)
        self._admit(p, now)
        self._rest(p, now)

    def _set_cooldown(self, name: str, cooldown: int | None) -> None:
        """A provider gets its own cooldown for releases from now on, or with None loses it (ACC-4)."""
        p = self._providers.get(name)
        if p is None:
            if cooldown is None:
                return
            p = self._provider(name)
        now = self._catch_up(p)
        p.own_cooldown = cooldown
        p.cooldown = self._release_cooldown if cooldown is None else cooldown
        self._note_provider("cooldown_set", p, now, cooldown)
        self._rest(p, now)

    # -- watchdog -------------------------------------------------------------------------------------------------

    def _announce_sweep(self, now: int) -> None:
        """Arms the next sweep of the grid (WAT-1)."""
        self._sweep_at = now + self._interval - (now - self._born) % self._interval
        self._measure_home()
        self._arm_sweep(now)

    def _sweep(self) -> None:
        """Judges every held slot (WAT-1), after all else that is due (TIM-3), and forgets what is idle (ACC-3)."""
        self._sweep_at = None
        providers = list(self._providers.values())
        now = self._clock()
        for p in providers:
            now = self._catch_up(p)
        for p in providers:
            for slot in list(p.held):
                if self._slot_timeout is not None and now - slot._touched > self._slot_timeout:
                    self._reclaim(p, slot, now)
            self._rest(p, now)
        if self._sweep_at is None and self._holds_any():
            self._announce_sweep(now)
        self._measure_home()

    def _reclaim(self, p: Provider, slot: Slot, now: int) -> None:
        """Takes a stuck holder's slot back (WAT-1, WAT-3, WAT-5)."""
        self._line.add(
            log.warning,
            "provider %r: reclaimed the slot of conversation %r, %.3f s after its last touch; "
            "the upstream may still be serving it",
            p.name,
            slot.conversation_id,
            (now - slot._touched) / 1e9,
        )
        self._note("reclaimed", p, slot, now, slot._touched - self._born)
        slot._state = RECLAIMED
        p.reclaimed += 1
        if (close_stream := getattr(slot, "_on_reclaimed", None)) is not None:
            self._line.add(close_stream)
        if self._settings.on_reclaim is not None:
            self._line.add(self._settings.on_reclaim, slot)
        self._cool(p, slot, now)
        self._admit(p, now)

    # -- close ----------------------------------------------------------------------------------------------------

    def _close(self) -> None:
        """Ends everything but the held slots (CLO-1)."""
        if self._closed:
            return
        providers = list(self._providers.values())
        now = self._clock()
        for p in providers:
            now = self._catch_up(p)
        self._closed = True
        self._measure_home()
        if self._observer is not None:
            self._line.add(self._observer, "closed", self._op, now - self._born, None, None, None, None, 0, 0, None)
        self._sweep_at = None
        self._disarm_sweep()
        for p in providers:
            p.paused_until = None
            while p.queue is not None and (slot := p.queue.first()) is not None:
                self._leave_queue(p, slot, REJECTED, "rejected", now)
                self._settle(slot)
            while p.cooling:
                self._recycle(p, p.cooling.take_first(), now)
            p.measure_room()
            p.measure_due()
            self._disarm(p)
            self._rest(p, now)
        self._note_drained()

    def _note_drained(self) -> None:
        if self._closed and not self._holds_any():
            self._drained()

    def _holds_any(self) -> bool:
        return any(p.held for p in self._providers.values())

    # -- a loop that was closed, a forked child -------------------------------------------------------------------

    def _drop_waiters(self) -> None:
        """The loop of all waiting callers is gone: their requests end as cancelled (LOP-1)."""
        for p in list(self._providers.values()):
            p.timer = None
            now = self._clock()
            while p.queue is not None and (queued := p.queue.first()) is not None:
                self._leave_queue(p, queued, CANCELLED, "cancelled", now)
            for slot in [slot for slot in p.held if slot._state == HANDED]:
                self._give_back(p, slot, now)
            self._rest(p, now)
        self._sweep_at = None

    def _forget_slots(self) -> None:
        """In a forked child: slots, queue and timers belong to the parent; configuration and pauses stay (FRK-1)."""
        self._busy = False
        self._deferred.clear()
        self._line.forget()
        self._sweep_at = None
        for p in list(self._providers.values()):
            runs = [run for run in (p.cooling, p.queue) if run is not None]
            for slot in (*p.held, *(slot for run in runs for slot in run)):
                slot._state = _FORGOTTEN.get(slot._state, slot._state)
            self._disarm(p)
            p.held.clear()
            p.cooling = p.queue = p.timeouts = p.enclosing = None
            p.reclaimed = 0
            p.measure_room()
            p.measure_due()
            if not p.has_state():
                del self._providers[p.name]

    # -- notifications --------------------------------------------------------------------------------------------

    def _note(self, event: str, p: Provider, slot: Slot, now: int, value: object = None) -> None:
        """Collects a slot's event for the observer, with the provider's figures as they are at this moment."""
        if self._observer is not None:  # asked before the call, too, where calls are many
            in_flight = len(p.held) if p.cooling is None else p.in_flight
            told = (event, self._op, now - self._born, p.name, slot._arrival, slot.conversation_id, slot._prompt,
                    in_flight, 0 if p.queue is None else len(p.queue), value)  # fmt: skip
            self._line.waiting.append((self._observer, told))

    def _note_provider(self, event: str, p: Provider, now: int, value: object = None) -> None:
        """Collects a provider's event, likewise."""
        if self._observer is not None:
            told = (event, self._op, now - self._born, p.name, None, None, None, p.in_flight, p.queued, value)
            self._line.waiting.append((self._observer, told))
