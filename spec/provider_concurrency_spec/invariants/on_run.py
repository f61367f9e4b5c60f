"""What holds of a whole run: each request's way, the counts, the order, the settings, the silence after close."""

from __future__ import annotations

from typing import Final

from provider_concurrency_spec.invariants.kinds import Invariant, RowSeen, Run, Step, ancestors_of, invariant
from provider_concurrency_spec.invariants.on_step import row_of
from provider_concurrency_spec.invariants.replay import NONE_ONLY, Slots, asks_of, settings_along, slot_events
from provider_concurrency_spec.vocabulary import (
    Acquire,
    Close,
    Refused,
    RemoveLimit,
    Resume,
    SetCooldown,
    SetLimit,
    SlotEvent,
    SlotShown,
    SlotStateName,
    TryAcquire,
)


@invariant("run", "ACC-2")
def every_request_walks_the_table(run: Run) -> str | None:
    """A request's events follow the slot table: one way in, one end, nothing after it; and somebody asked for it."""
    asks, slots, last = asks_of(run), Slots(), dict[str, int]()
    for _, event in slot_events(run):
        ask = asks.get(event.request)
        if ask is None or ask.provider != event.provider:
            return f"{event}, but nobody asked {event.provider!r} for it"
        if event.at_ms < last.get(event.request, 0):
            return f"{event} after an event of {last[event.request]}"
        last[event.request] = event.at_ms
        wrong = slots.move(event)
        if wrong is not None:
            return wrong
    return None


@invariant("run", "ACC-1", "ACC-2", "REL-2")
def counts_follow_the_events(run: Run) -> str | None:
    """The status after each step is what the events so far add up to: every grant counted, every end once."""
    slots = Slots()
    for step in run.steps:
        for event in step.events:
            if isinstance(event, SlotEvent):
                slots.move(event)
        counts = slots.count()
        for provider in {*counts, *(row.provider for row in step.reply.status)}:
            row, told = row_of(step.reply.status, provider), counts[provider]
            shown: dict[SlotStateName, int] = {
                "held": row.held,
                "cooling": row.cooling,
                "reclaimed": row.reclaimed,
                "queued": row.queued,
            }
            for state, count in shown.items():
                if told[state] != count:
                    return (
                        f"{provider!r} at {step.ended_ms}: {count} {state} in the status, {told[state]} by the events"
                    )
    return None


@invariant("run", "ADM-3", "CAN-1", "CAN-3", "CLO-1")
def only_the_queued_are_unsettled(run: Run) -> str | None:
    """At rest exactly the callers of queued requests still wait: who was granted or left has been told."""
    slots = Slots()
    for step in run.steps:
        for event in step.events:
            if isinstance(event, SlotEvent):
                slots.move(event)
        queued = {name for name, (_, state) in slots.live.items() if state == "queued"}
        if queued != set(step.reply.unsettled):
            return f"at {step.ended_ms} {sorted(queued)} are queued, but {sorted(step.reply.unsettled)} unsettled"
    return None


@invariant("run", "ORD-1", "ADM-1", "ADM-2")
def grants_go_to_the_head(run: Run) -> str | None:
    """Nobody is granted past a request that waits ahead of it, and nobody at once while anyone waits.

    Judged against those that waited before the step and were not cancelled, rejected or timed out in it: when in the
    step those left isn't told by the events.
    """
    asks, slots = asks_of(run), Slots()
    for step in run.steps:
        told = [event for event in step.events if isinstance(event, SlotEvent)]
        granted = {event.request for event in told if event.event == "granted"}
        gone = {event.request for event in told if event.event in ("cancelled", "timed_out", "rejected")} - granted
        queued = {event.request for event in told if event.event == "queued"}
        waiting = {name: at for name, (at, state) in slots.live.items() if state == "queued" and name not in gone}
        queued |= waiting.keys()
        for event in told:
            slots.move(event)
            if event.event != "granted" or event.request not in asks:
                continue
            waiting.pop(event.request, None)
            for name, provider in waiting.items():
                if provider != event.provider or name not in asks:
                    continue
                if event.request not in queued or asks[name].is_before(asks[event.request]):
                    return f"{event}, though {name!r} was waiting ahead of it"
    return None


@invariant("run", "CLO-1", "CLO-2")
def nothing_happens_after_close(run: Run) -> str | None:
    """After the step of a close: held slots may be released, which frees them at once; everything else is refused.

    Nothing is granted, queued, reclaimed, paused or resumed any more, nothing is pending, no timer is alive.
    """
    closed = False
    for step in run.steps:
        if closed:
            wrong = _wrong_when_closed(step)
            if wrong is not None:
                return f"after close: {wrong}"
        closed = closed or any(isinstance(op, Close) for op in step.operations)
    return None


_REFUSED_WHEN_CLOSED: Final = (Acquire, TryAcquire, SetLimit, RemoveLimit, SetCooldown, Resume)


def _wrong_when_closed(step: Step) -> str | None:
    released: set[str] = set()
    recycled: set[str] = set()
    refused: dict[int, Refused] = {}
    for event in step.events:
        match event:
            case SlotEvent("released", _, _, request):
                released.add(request)
            case SlotEvent("recycled", _, _, request):
                recycled.add(request)
            case Refused() if event.kind == "closed":
                refused[event.index] = event
            case SlotShown():
                pass
            case _:
                return f"{event}"
    if released != recycled:
        return f"released {sorted(released)}, but free are {sorted(recycled)}"
    for at, operation in enumerate(step.operations):
        if isinstance(operation, _REFUSED_WHEN_CLOSED) != (at in refused):
            return f"{operation} was {'' if at in refused else 'not '}refused"
    for row in step.reply.status:
        if row.queued or row.cooling or row.reclaimed or row.paused:
            return f"{row}"
    if step.reply.timers:
        return f"{step.reply.timers} timers are alive"
    return None


@invariant("run", "LIM-1", "LIM-3", "ACC-3", "ACC-4", "PAU-3")
def status_shows_the_settings(run: Run) -> str | None:
    """A row shows the limit set last; there is a row iff a provider has a setting, a slot, a waiter or a pause.

    So no 429, no cooldown and no refused call ever makes, changes or removes a limit.
    """
    for step, settings in settings_along(run):
        rows = {row.provider: row for row in step.reply.status}
        for provider in {*rows, *settings.limits, *settings.cooldowns_after}:
            limits = settings.limits.get(provider, NONE_ONLY)
            row = row_of(step.reply.status, provider)
            if row.limit not in limits:
                return f"{provider!r} at {step.ended_ms} shows limit {row.limit}; set was {limits}"
            cooldowns = settings.cooldowns_after.get(provider, NONE_ONLY)
            if provider in settings.inexact:
                continue
            if provider not in rows and None not in cooldowns:
                return f"{provider!r} at {step.ended_ms} has no row, but a cooldown of its own"
            idle = row.limit is None and not row.in_flight and not row.queued and not row.paused
            if provider in rows and idle and cooldowns == NONE_ONLY:
                return f"{provider!r} at {step.ended_ms} has a row without any state: {row}"
    return None


@invariant("run", "NST-1")
def self_blocked_follows_the_paths(run: Run) -> str | None:
    """self_blocked is what the paths and the events so far make it.

    Some wait, some hold, the limit is reached, and all that counts is held by conversations on a waiter's path.
    """
    asks, slots = asks_of(run), Slots()
    for step in run.steps:
        for event in step.events:
            if isinstance(event, SlotEvent):
                slots.move(event)
        for row in step.reply.status:
            if row.self_blocked is None:
                continue
            mine = [(asks[name].operation, state) for name, (at, state) in slots.live.items()
                    if at == row.provider and name in asks]  # fmt: skip
            awaited = {each for asked, state in mine if state == "queued" for each in ancestors_of(asked)}
            holders = [asked.conversation for asked, state in mine if state == "held"]
            limit = RowSeen(step.config, row).limit_in_force
            is_full = limit is not None and max(limit, 1) <= len(holders) == row.in_flight
            if row.self_blocked != (row.queued > 0 and is_full and awaited.issuperset(holders)):
                return f"{row.provider!r} at {step.ended_ms}: self_blocked is {row.self_blocked}"
    return None


RUN_INVARIANTS: Final[tuple[Invariant[Run], ...]] = (
    every_request_walks_the_table,
    counts_follow_the_events,
    only_the_queued_are_unsettled,
    grants_go_to_the_head,
    nothing_happens_after_close,
    status_shows_the_settings,
    self_blocked_follows_the_paths,
)
