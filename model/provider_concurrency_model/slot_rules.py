"""What each transition of a slot must obey beyond the lifecycle's table, and what it does to the counts (ACC-1).

A function per row of the table, called after its event was found legal: `act(ledger, book, slot)`; the event's time and
value are in the ledger. Only a grant raises in_flight, so that ADM-6 needs no check of its own here: it can break only
where ADM-4 does, or where the manager's own count does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

from provider_concurrency_model.ledger import Ledger, ProviderBook, SlotRecord
from provider_concurrency_model.lifecycle import IN_FLIGHT_STATES, SLOT_TARGETS, refusing_rule
from provider_concurrency_spec.vocabulary import SlotEventKind

SlotAction: TypeAlias = Callable[[Ledger, ProviderBook, SlotRecord], None]

COOLDOWN: Final = 0
PAUSE: Final = 1  # after a cooldown that is due at the same instant (TIM-3)


def grant_newcomer(ledger: Ledger, book: ProviderBook, slot: SlotRecord) -> None:
    """At once only if nobody waits (ADM-1)."""
    book.caused = book.op
    if book.queued:
        ledger.report("ADM-1", f"{slot} was granted at once while {book.queued} waited", slot)
    _grant(ledger, book, slot)


def grant_waiter(ledger: Ledger, book: ProviderBook, slot: SlotRecord) -> None:
    """The head first (ORD-1)."""
    skipped = book.pop(slot)
    book.queued -= 1
    if skipped is not None:
        ledger.report("ORD-1", f"{slot} was granted before {skipped}, whose turn it was", slot)
    _grant(ledger, book, slot)


def _grant(ledger: Ledger, book: ProviderBook, slot: SlotRecord) -> None:
    """Neither while paused nor without room (ADM-4)."""
    if book.state == "paused":
        ledger.report("ADM-4", f"{slot} was granted while paused until {book.paused_until} ns", slot)
    if book.in_flight >= book.room:
        ledger.report("ADM-4", f"{slot} was granted at in_flight {book.in_flight}, limit {book.limit}", slot)
    book.in_flight += 1
    book.held += 1
    if book.in_flight > book.peak_in_flight:
        book.peak_in_flight = book.in_flight
    ledger.grants += 1
    slot.turn = ledger.grants
    slot.since = ledger.t_ns


def queue(ledger: Ledger, book: ProviderBook, slot: SlotRecord) -> None:
    """Only what couldn't be granted (ADM-1), and no more than may (ADM-7)."""
    _check_not_grantable(ledger, book, slot)
    most = ledger.config.max_queued
    if most is not None and book.queued >= most:
        ledger.report("ADM-7", f"{slot} queued while {book.queued} waited, max_queued {most}", slot)
    slot.since = ledger.t_ns
    book.push(slot)
    book.queued += 1
    if book.queued > book.peak_queued:
        book.peak_queued = book.queued


def turn_away(ledger: Ledger, book: ProviderBook, slot: SlotRecord) -> None:
    """Timeout 0: only what couldn't be granted (ADM-1)."""
    _check_not_grantable(ledger, book, slot)
    ledger.end(slot)


def _check_not_grantable(ledger: Ledger, book: ProviderBook, slot: SlotRecord) -> None:
    book.caused = book.op
    if not book.queued and book.state == "open" and book.in_flight < book.room:
        ledger.report("ADM-1", f"{slot} wasn't granted at once, though nothing stood in its way", slot)


def time_out_waiter(ledger: Ledger, book: ProviderBook, slot: SlotRecord) -> None:
    """When it was due isn't in the events (CAN-3)."""
    book.queued -= 1
    book.drop_stale()
    ledger.end(slot)


def cancel_waiter(ledger: Ledger, book: ProviderBook, slot: SlotRecord) -> None:
    """It no longer counts (CAN-1)."""
    book.caused = book.op
    book.queued -= 1
    book.drop_stale()
    ledger.end(slot)


def cancel_holder(ledger: Ledger, book: ProviderBook, slot: SlotRecord) -> None:
    """An undelivered grant gives its slot back without a cooldown (CAN-2)."""
    book.caused = book.op
    book.in_flight -= 1
    book.held -= 1
    ledger.end(slot)


def reject(ledger: Ledger, book: ProviderBook, slot: SlotRecord) -> None:
    """Only by close, in queue order (CLO-1)."""
    if ledger.state == "open":
        ledger.report("CLO-1", f"{slot} was rejected by an open manager", slot)
    skipped = book.pop(slot)
    book.queued -= 1
    if skipped is not None:
        ledger.report("CLO-1", f"{slot} was rejected before {skipped}, whose turn it was", slot)
    ledger.end(slot)


def release(ledger: Ledger, book: ProviderBook, slot: SlotRecord) -> None:
    """Its cooldown starts (REL-1)."""
    book.held -= 1
    _start_cooldown(ledger, book, slot)


def reclaim(ledger: Ledger, book: ProviderBook, slot: SlotRecord) -> None:
    """Strictly after slot_timeout without a touch, by a sweep (WAT-1), in grant order (TIM-3); then as a release."""
    _check_reclaim(ledger, slot, ledger.value)
    if book.swept[0] == book.op and slot.turn < book.swept[1]:
        ledger.report("TIM-3", f"a sweep reclaimed {slot} after a slot that was granted later", slot)
    book.swept = (book.op, slot.turn)
    book.held -= 1
    book.reclaimed += 1
    _start_cooldown(ledger, book, slot)


def _check_reclaim(ledger: Ledger, slot: SlotRecord, touched: object) -> None:
    timeout, interval, t_ns = ledger.config.slot_timeout_ns, ledger.config.watchdog_interval_ns, ledger.t_ns
    if timeout is None:
        ledger.report("WAT-1", f"{slot} was reclaimed though the watchdog is off", slot)
    elif type(touched) is not int or not slot.since <= touched <= t_ns:
        ledger.report("WAT-2", f"{slot}, granted at {slot.since} ns, can't have been touched at {touched!r}", slot)
    elif t_ns - touched <= timeout:
        ledger.report("WAT-1", f"{slot} was reclaimed {t_ns - touched} ns after a touch, slot_timeout {timeout}", slot)
    elif t_ns < interval:
        ledger.report("WAT-1", f"{slot} was reclaimed before the first sweep at {interval} ns", slot)


def _start_cooldown(ledger: Ledger, book: ProviderBook, slot: SlotRecord) -> None:
    """With the length in force now; nothing later moves it (REL-3)."""
    book.caused = book.op
    slot.since = ledger.t_ns
    slot.due = ledger.t_ns + book.cooldown
    if not book.cooldown:
        book.due_at_once += 1


def recycle_released(ledger: Ledger, book: ProviderBook, slot: SlotRecord) -> None:
    """Not before its cooldown is due (REL-3), unless the manager is closed (CLO-1)."""
    if ledger.state == "open":
        late_ns = ledger.t_ns - slot.due
        if late_ns < 0:
            ledger.report("REL-3", f"{slot} was recycled {-late_ns} ns before its cooldown was due at {slot.due}", slot)
        else:
            ledger.lateness["recycled"].add(late_ns)
        if slot.history[-2][1] != book.op:  # else a cooldown of 0, over inside the call that began it
            apply_deadline(ledger, book, (book.op, slot.due, COOLDOWN, slot.request), slot)
    book.in_flight -= 1
    if slot.due == slot.since:
        book.due_at_once -= 1
    ledger.end(slot)


def recycle_reclaimed(ledger: Ledger, book: ProviderBook, slot: SlotRecord) -> None:
    """As a released one (WAT-3)."""
    book.reclaimed -= 1
    recycle_released(ledger, book, slot)


def apply_deadline(
    ledger: Ledger, book: ProviderBook, deadline: tuple[int, int, int, int], slot: SlotRecord | None
) -> None:
    """An operation applies what is due in order of deadline; ties: cooldown, pause; then by arrival (TIM-3)."""
    last = book.applied
    if last[0] == deadline[0] and deadline < last:
        ledger.report("TIM-3", f"what was due at {deadline[1]} ns came after what was due at {last[1]} ns", slot)
    book.applied = deadline


def believe(ledger: Ledger, book: ProviderBook, slot: SlotRecord, state: str, event: SlotEventKind) -> None:
    """Reports an event that the table has no row for, then takes the manager's word for it."""
    ledger.report(refusing_rule(state, event), f"{event} is illegal for {slot}, which is {state}", slot)
    target = slot.state = SLOT_TARGETS[event]
    for name, step in ((state, -1), (target, 1)):
        book.queued += step * (name == "queued")
        book.in_flight += step * (name in IN_FLIGHT_STATES)
        book.held += step * (name == "held")
        book.reclaimed += step * (name == "reclaimed")
    if state in ("cooling", "reclaimed") and slot.due == slot.since:
        book.due_at_once -= 1
    if target == "queued":
        book.push(slot)
    elif target in ("cooling", "reclaimed"):
        _start_cooldown(ledger, book, slot)
    elif target != "held":
        ledger.end(slot)


SLOT_ACTIONS: Final[dict[tuple[str, str], SlotAction]] = {
    ("new", "granted"): grant_newcomer,
    ("new", "queued"): queue,
    ("new", "timed_out"): turn_away,
    ("queued", "granted"): grant_waiter,
    ("queued", "cancelled"): cancel_waiter,
    ("queued", "timed_out"): time_out_waiter,
    ("queued", "rejected"): reject,
    ("held", "released"): release,
    ("held", "reclaimed"): reclaim,
    ("held", "cancelled"): cancel_holder,
    ("cooling", "recycled"): recycle_released,
    ("reclaimed", "recycled"): recycle_reclaimed,
}
"""One for every row of `lifecycle.SLOT_TABLE` (a test holds the two together)."""
