"""What holds on every step of the model (see `properties`): the invariants of the rules, as predicates."""

from __future__ import annotations

from typing import Final

from provider_concurrency_spec.vocabulary import (
    Acquire,
    Advance,
    Close,
    Do,
    Paused,
    Refused,
    RemoveLimit,
    Resume,
    Resumed,
    SetLimit,
    SlotEvent,
    SlotShown,
    Stall,
)

from .graph import Step
from .properties import Property, flat, in_flight, own_or_default, told, waits_for_itself
from .state import find_provider, find_slot

TABLE: Final[dict[str | None, dict[str, str]]] = {
    None: {"granted": "held", "queued": "queued", "timed_out": "timed_out"},
    "queued": {"granted": "held", "cancelled": "cancelled", "timed_out": "timed_out", "rejected": "rejected"},
    "held": {"released": "cooling", "reclaimed": "reclaimed", "cancelled": "cancelled"},
    "cooling": {"recycled": "free"},
    "reclaimed": {"recycled": "free"},
    "free": {},
    "cancelled": {},
    "timed_out": {},
    "rejected": {},
}
"""The slot table of SPEC.md: from state, by event, to state. (A release on a closed manager cools for no time.)"""


def keeps_the_limit(step: Step) -> bool:
    """ADM-6: in_flight <= max(limit, what it was); above the limit it never rises."""
    for item in step.after.providers:
        now = in_flight(step.after, item.name)
        if now > in_flight(step.before, item.name) and now > highest_limit(step, item.name):
            return False
    return True


def highest_limit(step: Step, provider: str) -> float:
    """The highest limit in force at any time during a command."""
    seen = [own_or_default(state, find_provider(state, provider)) for state in (step.before, step.after)]
    for operation in flat(step.command):
        match operation:
            case SetLimit(name, int() as limit) if name == provider:
                seen.append(limit)
            case RemoveLimit(name) if name == provider:
                seen.append(step.before.settings.default_limit)
            case _:
                pass
    return max(float("inf") if limit is None else limit for limit in seen)


def conserves_work(step: Step) -> bool:
    """ADM-5: whoever waits at rest has a reason."""
    waiting = {slot.provider for slot in step.after.slots if slot.state == "queued"}
    for name in waiting:
        item = find_provider(step.after, name)
        limit = own_or_default(step.after, item)
        if item.paused_until_ms is None and (limit is None or in_flight(step.after, name) < limit):
            return False
    return True


def grants_oldest_first(step: Step) -> bool:
    """ORD-1: of two that waited at a provider, the younger isn't granted while the older still waits."""
    granted = {event.request for event in told(step, "granted")}
    if not granted:
        return True
    waited = [slot for slot in step.before.slots if slot.state == "queued"]
    waiting = {slot.request for slot in step.after.slots if slot.state == "queued"}
    return not any(
        (younger.prompt_started_at, younger.arrival) > (older.prompt_started_at, older.arrival)
        for younger in waited
        if younger.request in granted
        for older in waited
        if older.request in waiting and older.provider == younger.provider
    )


def nobody_barges(step: Step) -> bool:
    """ADM-1: while somebody waits from beginning to end, no newcomer of the same age or younger is granted."""
    granted = {event.request for event in told(step, "granted")}
    if not granted or not isinstance(step.command, Do):
        return True
    before = {slot.request for slot in step.before.slots}
    waiting = {slot.request for slot in step.after.slots if slot.state == "queued"}
    newcomers = [slot for slot in step.after.slots if slot.request in granted and slot.request not in before]
    return not any(
        (new.prompt_started_at, new.arrival) > (slot.prompt_started_at, slot.arrival)
        for new in newcomers
        for slot in step.before.slots
        if slot.provider == new.provider and slot.state == "queued" and slot.request in waiting
    )


def follows_the_table(step: Step) -> bool:
    """ACC-2: each request's events lead from its state before to its state after, along the table."""
    states: dict[str, str] = {slot.request: slot.state for slot in (*step.before.slots, *step.before.ended)}
    for event in step.events:
        if isinstance(event, SlotEvent):
            row = TABLE[states.get(event.request)]
            if event.event not in row:
                return False
            states[event.request] = row[event.event]
    after: dict[str, str] = {slot.request: slot.state for slot in (*step.after.slots, *step.after.ended)}
    return after == states


def applies_what_is_due(step: Step) -> bool:
    """TIM-3, REL-3, CAN-3, PAU-5: at rest nothing is due."""
    now_ms = step.after.now_ms
    return all(slot.deadline_ms is None or slot.deadline_ms > now_ms for slot in step.after.slots) and all(
        item.paused_until_ms is None or item.paused_until_ms > now_ms for item in step.after.providers
    )


def cools_to_the_end(step: Step) -> bool:
    """REL-3: a cooldown ends at its deadline, not before and not later; only a close ends it early."""
    if step.after.is_closed:
        return True
    for slot in step.before.slots:
        if slot.state in ("cooling", "reclaimed") and slot.deadline_ms is not None:
            after = find_slot(step.after, slot.request)
            if slot.deadline_ms <= step.after.now_ms:
                is_right = after is not None and after.state == "free"
            else:
                is_right = after == slot
            if not is_right:
                return False
    return True


def never_shortens_a_pause(step: Step) -> bool:
    """PAU-1, PAU-3, PAU-5: a pause ends by its deadline, a resume or a close, and otherwise only grows."""
    for item in step.before.providers:
        until_ms = item.paused_until_ms
        if until_ms is None or until_ms <= step.after.now_ms or step.after.is_closed:
            continue
        after_ms = find_provider(step.after, item.name).paused_until_ms
        if (after_ms is None or after_ms < until_ms) and Resume(item.name) not in flat(step.command):
            return False
    return True


def grants_nothing_while_paused(step: Step) -> bool:
    """ADM-4, PAU-4: a grant at a provider that was paused comes after its pause was told to be over."""
    paused = {item.name for item in step.before.providers if item.paused_until_ms is not None}
    for event in step.events:
        match event:
            case SlotEvent("granted", _, name, _) if name in paused:
                return False
            case Resumed(_, name):
                paused.discard(name)
            case Paused(_, name, _, applied_ms) if applied_ms > 0:
                paused.add(name)
            case _:
                pass
    return True


def forgets_idle_providers(step: Step) -> bool:
    """ACC-3: a provider with nothing of its own and no slot has no state."""
    return all(
        item.limit is not None
        or item.cooldown_ms is not None
        or item.paused_until_ms is not None
        or any(slot.provider == item.name for slot in step.after.slots)
        for item in step.after.providers
    )


def rests_after_close(step: Step) -> bool:
    """CLO-1: on a closed manager nothing waits, cools or is paused."""
    return not step.after.is_closed or (
        all(slot.state == "held" for slot in step.after.slots)
        and all(item.paused_until_ms is None for item in step.after.providers)
    )


def stays_closed(step: Step) -> bool:
    """CLO-1, CLO-2: close is for ever, and nothing is granted, queued or paused after it."""
    if not step.before.is_closed:
        return True
    quiet = all(
        isinstance(event, Refused | SlotShown)
        or (isinstance(event, SlotEvent) and event.event in ("released", "recycled"))
        for event in step.events
    )
    return quiet and step.after.is_closed


def reclaims_only_the_silent(step: Step) -> bool:
    """WAT-1: a reclaimed slot was silent for longer than the timeout; after a sweep no held slot is."""
    timeout_ms, interval_ms = step.before.settings.slot_timeout_ms, step.before.settings.watchdog_interval_ms
    if timeout_ms is None:
        return not told(step, "reclaimed")
    touched = {slot.request: slot.touched_ms for slot in step.before.slots if slot.state == "held"}
    for event in step.events:
        if isinstance(event, SlotEvent) and event.event == "granted":
            touched[event.request] = event.at_ms
        if isinstance(event, SlotEvent) and event.event == "reclaimed":  # noqa: SIM102 two questions
            if event.at_ms - touched[event.request] <= timeout_ms:
                return False
    is_swept = step.after.now_ms % interval_ms == 0
    if isinstance(step.command, Stall):
        is_swept = step.after.now_ms // interval_ms > step.before.now_ms // interval_ms
    return (
        not is_swept
        or step.after.is_closed
        or all(slot.state != "held" or step.after.now_ms - slot.touched_ms <= timeout_ms for slot in step.after.slots)
    )


def refuses_without_a_trace(step: Step) -> bool:
    """TIM-3, ADM-7, CLO-2: a command of one operation that is refused changes nothing."""
    if not any(isinstance(event, Refused) for event in step.events):
        return True
    is_single = isinstance(step.command, Do) and len(step.command.ops) == 1
    return not is_single or (step.after == step.before and len(step.events) == 1)


def tells_time_forward(step: Step) -> bool:
    """TIM-1, TIM-2: events come in order of time, none before the command, none after it; a stall's are all late."""
    times = [event.at_ms for event in step.events]
    if isinstance(step.command, Stall) and any(at_ms != step.after.now_ms for at_ms in times):
        return False
    return not times or (step.before.now_ms <= times[0] and times == sorted(times) and times[-1] <= step.after.now_ms)


def keeps_providers_apart(step: Step) -> bool:
    """ORD-2, PAU-3: a command that names one provider's things leaves the others as they were."""
    if len(step.before.providers) < 2 or isinstance(step.command, Advance | Stall):
        return True
    touched: set[str] = set()
    for operation in flat(step.command):
        if isinstance(operation, Close):
            return True
        slot = find_slot(step.before, getattr(operation, "request", ""))
        touched.add(slot.provider if slot is not None else getattr(operation, "provider", ""))
    return all(
        item in step.after.providers
        and [slot for slot in step.before.slots if slot.provider == item.name]
        == [slot for slot in step.after.slots if slot.provider == item.name]
        for item in step.before.providers
        if item.name not in touched
    )


def helps_the_self_blocked_from_outside(step: Step) -> bool:
    """NST-1: where a provider waits for itself, nobody is granted unless a holder gave up or the limit was changed."""
    gone = {event.request for event in (*told(step, "released"), *told(step, "reclaimed"))}
    freed = {slot.provider for slot in step.before.slots if slot.request in gone}
    freed |= {item.provider for item in flat(step.command) if isinstance(item, SetLimit | RemoveLimit)}
    granted = {event.provider for event in told(step, "granted")}
    return not any(
        waits_for_itself(step.before, item) for item in step.before.providers if item.name in granted - freed
    )


def refuses_what_would_wait_for_itself(step: Step) -> bool:
    """NST-1: with nested="raise" no acquire that has ancestors queues and leaves its provider waiting for itself.

    Asked of a command that is one acquire: the last of several may come to wait for itself by what comes after it.
    """
    match step.command:
        case Do((Acquire(name, request),)) if step.before.settings.nested == "raise":
            queued = [slot for slot in step.after.slots if slot.request == request and slot.state == "queued"]
            nests = any(slot.ancestors for slot in queued)
            return not nests or not waits_for_itself(step.after, find_provider(step.after, name))
        case _:
            return True


ALWAYS: Final = (
    Property("keeps the limit", ("ADM-6", "LIM-2"), keeps_the_limit),
    Property("conserves work", ("ADM-5", "ADM-2"), conserves_work, is_of_state=True),
    Property("grants oldest first", ("ORD-1",), grants_oldest_first),
    Property("nobody barges", ("ADM-1",), nobody_barges),
    Property("follows the table", ("ACC-2", "REL-2"), follows_the_table),
    Property("applies what is due", ("TIM-3", "REL-3", "CAN-3", "PAU-5"), applies_what_is_due, is_of_state=True),
    Property("cools to the end", ("REL-3", "WAT-3"), cools_to_the_end),
    Property("never shortens a pause", ("PAU-1", "PAU-3"), never_shortens_a_pause),
    Property("grants nothing while paused", ("ADM-4", "PAU-4"), grants_nothing_while_paused),
    Property("forgets idle providers", ("ACC-3",), forgets_idle_providers, is_of_state=True),
    Property("rests after close", ("CLO-1",), rests_after_close, is_of_state=True),
    Property("stays closed", ("CLO-1", "CLO-2"), stays_closed),
    Property("reclaims only the silent", ("WAT-1", "WAT-2"), reclaims_only_the_silent),
    Property("refuses without a trace", ("TIM-3", "ADM-7", "CLO-2"), refuses_without_a_trace),
    Property("tells time forward", ("TIM-1", "TIM-2"), tells_time_forward),
    Property("keeps providers apart", ("ORD-2", "PAU-3"), keeps_providers_apart),
    Property("helps the self-blocked from outside", ("NST-1",), helps_the_self_blocked_from_outside),
    Property("refuses what would wait for itself", ("NST-1",), refuses_what_would_wait_for_itself),
)
