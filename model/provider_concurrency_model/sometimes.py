"""What happens on some step of the model, in at least one level (see `properties`): each is an interesting place."""

from __future__ import annotations

from typing import Final

from provider_concurrency_spec.vocabulary import (
    Acquire,
    Advance,
    Cancel,
    Hook,
    Operation,
    RateLimited,
    Refused,
    Resume,
    Resumed,
    SlotEvent,
    SlotEventKind,
    Stall,
)

from .graph import Step
from .properties import Property, flat, in_flight, own_or_default, told, waits_for_itself


def has(step: Step, kind: type[Operation]) -> bool:
    """Whether a command has an operation of a kind."""
    return any(isinstance(operation, kind) for operation in flat(step.command))


def happen_together(step: Step, *kinds: SlotEventKind) -> bool:
    """Whether slot events of all these kinds happen at one time."""
    times = [{event.at_ms for event in told(step, kind)} for kind in kinds]
    return bool(set[int].intersection(*times))


def is_refused(step: Step, kind: str) -> bool:
    """Whether an operation is refused for a reason."""
    return any(isinstance(event, Refused) and event.kind == kind for event in step.events)


def grants_at_once(step: Step) -> bool:
    """A newcomer is granted and never queued."""
    queued = {event.request for event in told(step, "queued")}
    return has(step, Acquire) and any(event.request not in queued for event in told(step, "granted"))


def grants_from_the_queue(step: Step) -> bool:
    """The end of a cooldown admits the head."""
    return happen_together(step, "recycled", "granted")


def passes_in_the_queue(step: Step) -> bool:
    """A newcomer takes a place before somebody who waits."""
    return any(
        slot.state == "queued" and slot.provider == new.provider and slot.prompt_started_at > new.prompt_started_at
        for new in step.after.slots
        if new.request == "+1" and new.state == "queued"
        for slot in step.before.slots
    )


def leaves_by_cancel(step: Step) -> bool:
    """A queued request is cancelled."""
    waited = {slot.request for slot in step.before.slots if slot.state == "queued"}
    return has(step, Cancel) and any(event.request in waited for event in told(step, "cancelled"))


def gives_back_undelivered(step: Step) -> bool:
    """A request is granted and cancelled in one burst."""
    granted = {event.request for event in told(step, "granted")}
    return any(event.request in granted for event in told(step, "cancelled"))


def times_out(step: Step) -> bool:
    """A request that waited loses its patience."""
    waited = {slot.request for slot in step.before.slots}
    return any(event.request in waited for event in told(step, "timed_out"))


def meets_patience_and_cooldown(step: Step) -> bool:
    """At one instant, punctually, a cooldown ends, its room is given away, and somebody else's patience ends."""
    return isinstance(step.command, Advance) and happen_together(step, "recycled", "granted", "timed_out")


def catches_up_in_order(step: Step) -> bool:
    """After a stall a patience that ended first is over, and then a cooldown's end admits somebody."""
    return isinstance(step.command, Stall) and happen_together(step, "timed_out", "recycled", "granted")


def ends_a_pause_with_a_queue(step: Step) -> bool:
    """A pause ends by its deadline, and somebody waited for it."""
    ends = {event.at_ms for event in step.events if isinstance(event, Resumed)}
    return isinstance(step.command, Advance) and any(event.at_ms in ends for event in told(step, "granted"))


def resumes_a_queue(step: Step) -> bool:
    """`resume` admits somebody."""
    return (
        has(step, Resume) and any(isinstance(event, Resumed) for event in step.events) and bool(told(step, "granted"))
    )


def is_limited_again(step: Step) -> bool:
    """A 429 comes while its provider is paused."""
    paused = {item.name for item in step.before.providers if item.paused_until_ms is not None}
    return any(isinstance(operation, RateLimited) and operation.provider in paused for operation in flat(step.command))


def is_above_the_limit(step: Step) -> bool:
    """More slots are in flight than a lowered limit allows."""
    return any(
        (limit := own_or_default(step.after, item)) is not None and in_flight(step.after, item.name) > limit
        for item in step.after.providers
    )


def cools_unsorted(step: Step) -> bool:
    """A slot that was released later is free earlier than one still cooling (another cooldown was set in between)."""
    kinds = [event.event for event in step.events if isinstance(event, SlotEvent)]
    cooling = [slot.deadline_ms for slot in step.before.slots if slot.state == "cooling" and slot.deadline_ms]
    until = [slot.deadline_ms for slot in step.after.slots if slot.state == "cooling" and slot.deadline_ms]
    return kinds == ["released"] and bool(cooling) and min(until) < min(cooling)


def ends_reclaimed(step: Step) -> bool:
    """A reclaimed slot is free."""
    return any(slot.state == "free" and slot.was_reclaimed for slot in step.after.ended)


def touches_in_time(step: Step) -> bool:
    """At a sweep one slot is reclaimed and another, granted or touched later, isn't."""
    gone = told(step, "reclaimed")
    return bool(gone) and any(slot.state == "held" for slot in step.after.slots)


def frees_in_a_callback(step: Step) -> bool:
    """A callback releases a slot."""
    return has(step, Hook) and bool(told(step, "released"))


def queues_at_both(step: Step) -> bool:
    """Two providers have a queue at the same time."""
    return len({slot.provider for slot in step.after.slots if slot.state == "queued"}) > 1


def comes_to_wait_for_itself(step: Step) -> bool:
    """All slots of a provider are held by ancestors of those who wait."""
    return any(waits_for_itself(step.after, item) for item in step.after.providers)


SOMETIMES: Final = (
    Property("a request is granted at once", ("ADM-1",), grants_at_once),
    Property("the end of a cooldown admits the head", ("ADM-2", "REL-3"), grants_from_the_queue),
    Property("an older prompt passes a younger one", ("ORD-1", "ORD-3"), passes_in_the_queue),
    Property("a queue is full", ("ADM-7",), lambda step: is_refused(step, "queue_full")),
    Property("a queued request is cancelled", ("CAN-1",), leaves_by_cancel),
    Property("an undelivered grant is given back", ("CAN-2",), gives_back_undelivered),
    Property("a request times out", ("CAN-3",), times_out),
    Property("a cooldown and a patience end together", ("CAN-3", "TIM-3"), meets_patience_and_cooldown),
    Property("a late catch-up goes by deadlines", ("TIM-2", "TIM-3"), catches_up_in_order),
    Property("a pause ends with a queue", ("PAU-5",), ends_a_pause_with_a_queue),
    Property("a resume admits", ("PAU-5",), resumes_a_queue),
    Property("a 429 comes while paused", ("PAU-1",), is_limited_again),
    Property("in_flight is above the limit", ("LIM-2", "ADM-6"), is_above_the_limit),
    Property("a later release is free first", ("REL-3", "ACC-4"), cools_unsorted),
    Property("a reclaimed slot ends", ("WAT-1", "WAT-3"), ends_reclaimed),
    Property("a sweep spares a slot", ("WAT-1", "WAT-2"), touches_in_time),
    Property("close rejects somebody", ("CLO-1",), lambda step: bool(told(step, "rejected"))),
    Property("an operation is refused as closed", ("CLO-2",), lambda step: is_refused(step, "closed")),
    Property("an operation is refused as invalid", ("LIM-1",), lambda step: is_refused(step, "invalid")),
    Property("a callback frees a slot", ("CAL-1", "CAL-3"), frees_in_a_callback),
    Property("two providers have a queue", ("ORD-2",), queues_at_both),
    Property("a provider waits for itself", ("NST-1",), comes_to_wait_for_itself),
    Property("an acquire is refused as nested", ("NST-1",), lambda step: is_refused(step, "nested")),
)
