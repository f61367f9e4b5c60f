"""What holds of every single step: the status before, a command, its events, the status after."""

from __future__ import annotations

from typing import Final

from provider_concurrency_spec.invariants.kinds import Invariant, Status, Step, ancestors_of, invariant, whole
from provider_concurrency_spec.vocabulary import (
    OPERATION_NAMES,
    Acquire,
    Close,
    Do,
    RateLimited,
    Refused,
    RemoveLimit,
    Resume,
    Resumed,
    SetLimit,
    SlotEvent,
    Stall,
    StatusRow,
    TryAcquire,
)


def row_of(status: Status, provider: str) -> StatusRow:
    """The provider's row; one without state reads like an empty one (ACC-3)."""
    for row in status:
        if row.provider == provider:
            return row
    return StatusRow(provider, None, 0, 0, 0, 0, 0, paused=False, paused_for_ms=None)


def _providers(step: Step) -> list[str]:
    return sorted({row.provider for row in (*step.before, *step.reply.status)})


@invariant("step", "TIM-1", "TIM-2")
def events_are_stamped_within_the_step(step: Step) -> str | None:
    """Events carry times of their step: a burst takes no time, a stall applies everything at its end."""
    first = step.ended_ms if isinstance(step.command, Stall) else step.started_ms
    for event in step.events:
        if not first <= event.at_ms <= step.ended_ms:
            return f"{event} is stamped outside {first}..{step.ended_ms}"
    return None


@invariant("step", "CLO-2", "ADM-7", "NST-1")
def refusals_name_their_operation(step: Step) -> str | None:
    """A refusal points at an operation of the burst, once; only acquire can find the queue full, or be nested."""
    seen: set[int] = set()
    for event in step.events:
        if not isinstance(event, Refused) or step.hooked:
            continue
        if event.index in seen or not 0 <= event.index < len(step.operations):
            return f"{event} has no place of its own in the burst"
        seen.add(event.index)
        operation = step.operations[event.index]
        if OPERATION_NAMES[type(operation)] != event.op:
            return f"{event}, but operation {event.index} is {operation}"
        if event.kind == "queue_full" and (
            not isinstance(operation, Acquire) or operation.timeout_ms == 0 or step.config.max_queued is None
        ):
            return f"{event}, but {operation} can't find the queue full"
        if event.kind == "nested" and (
            not isinstance(operation, Acquire) or operation.timeout_ms == 0 or step.config.nested != "raise"
        ):
            return f"{event}, but {operation} can't be nested"
    return None


@invariant("step", "ADM-7", "LIM-1", "PAU-2")
def a_refused_burst_changes_nothing(step: Step) -> str | None:
    """A burst of which every operation was refused leaves the status as it was, and tells nothing else."""
    if not isinstance(step.command, Do) or step.accepted or not step.operations:
        return None
    if any(not isinstance(event, Refused) for event in step.events):
        return f"every operation was refused, and yet: {step.events}"
    before, after = ({row.provider: row for row in rows} for rows in (step.before, step.reply.status))
    return None if before == after else f"every operation was refused, but {step.before} became {step.reply.status}"


@invariant("step", "ADM-6", "ADM-4", "LIM-2")
def in_flight_rises_only_to_a_limit(step: Step) -> str | None:
    """in_flight ends at most at the largest limit in force in the step, or where it was before."""
    default = whole(step.config.default_limit)
    for provider in _providers(step):
        before, after = row_of(step.before, provider), row_of(step.reply.status, provider)
        limits: list[int | None] = [row.limit if row.limit is not None else default for row in (before, after)]
        for op in (*step.operations, *step.hooked):
            if isinstance(op, SetLimit) and op.provider == provider:
                limits.append(whole(op.limit))
            elif isinstance(op, RemoveLimit) and op.provider == provider:
                limits.append(default)
        known = [limit for limit in limits if limit is not None]
        if len(known) == len(limits) and after.in_flight > max(before.in_flight, *known):
            return f"{provider!r}: in_flight rose from {before.in_flight} to {after.in_flight}; limits were {limits}"
    return None


@invariant("step", "PAU-1", "PAU-3")
def a_pause_is_never_shortened(step: Step) -> str | None:
    """What was paused is paused to the same instant or longer, unless that came, or resume or close ended it."""
    passed = step.ended_ms - step.started_ms
    resumed = {op.provider for op in (*step.operations, *step.hooked) if isinstance(op, Resume)}
    for before in step.before:
        if before.paused_for_ms is None or before.provider in resumed or step.closes:
            continue
        left, now = before.paused_for_ms - passed, row_of(step.reply.status, before.provider).paused_for_ms
        if left > 0 and (now is None or now < left):
            return f"{before.provider!r} should be paused for {left} ms more, but is for {now}"
    return None


@invariant("step", "PAU-5", "PAU-4")
def a_pause_begins_and_ends_for_a_reason(step: Step) -> str | None:
    """A pause begins only if a 429 was reported; in a burst it ends only by resume, or was one of 0."""
    reported = {op.provider for op in (*step.operations, *step.hooked) if isinstance(op, RateLimited)}
    for row in step.reply.status:
        if row.paused and not row_of(step.before, row.provider).paused and row.provider not in reported:
            return f"{row.provider!r} is paused, but no 429 was reported"
    if isinstance(step.command, Do):
        resumed = {op.provider for op in (*step.operations, *step.hooked) if isinstance(op, Resume)}
        for event in step.events:
            if isinstance(event, Resumed) and event.provider not in resumed | reported:
                return f"{event}, but nothing in the burst can end a pause"
    return None


@invariant("step", "TIM-3", "WAT-1")
def a_sweep_is_no_operation(step: Step) -> str | None:
    """Nothing is reclaimed inside a burst: sweeps run from their timer."""
    for event in step.events:
        if isinstance(event, SlotEvent) and event.event == "reclaimed" and isinstance(step.command, Do):
            return f"{event} in a burst"
    return None


@invariant("step", "ADM-8", "CAN-3")
def who_does_not_wait_never_queues(step: Step) -> str | None:
    """try_acquire ends in a grant or in nothing; an acquire with timeout 0 in a grant or timed out. Neither queues."""
    hurried = {
        op.request: isinstance(op, TryAcquire)
        for op in (*step.operations, *step.hooked)
        if isinstance(op, TryAcquire) or (isinstance(op, Acquire) and op.timeout_ms == 0)
    }
    for event in step.events:
        if isinstance(event, SlotEvent) and event.request in hurried:
            if event.event in ("queued", "rejected"):
                return f"{event}, though it never waits"
            if event.event == "timed_out" and hurried[event.request]:
                return f"{event}, though try_acquire has no timeout"
    return None


@invariant("step", "CLO-1")
def close_leaves_nothing_pending(step: Step) -> str | None:
    """When a burst with a close is over nobody waits, nothing cools, no pause runs, no timer is alive."""
    if not any(isinstance(op, Close) for op in step.operations):
        return None
    for row in step.reply.status:
        if row.queued or row.cooling or row.reclaimed or row.paused:
            return f"closed, but: {row}"
    if step.reply.unsettled:
        return f"closed, but {list(step.reply.unsettled)} still wait"
    if step.reply.timers:
        return f"closed, but {step.reply.timers} timers are alive"
    return None


@invariant("step", "NST-1")
def who_would_wait_for_itself_is_refused(step: Step) -> str | None:
    """With nested="raise" no acquire that has ancestors, alone in its burst, queues and leaves its row self-blocked."""
    match step.command:
        case Do((Acquire() as operation,)) if step.config.nested == "raise" and not step.hooked:
            row = row_of(step.reply.status, operation.provider)
            if operation.request in step.reply.unsettled and row.self_blocked and ancestors_of(operation):
                return f"{operation} queued, and waits for itself"
        case _:
            pass
    return None


STEP_INVARIANTS: Final[tuple[Invariant[Step], ...]] = (
    events_are_stamped_within_the_step,
    refusals_name_their_operation,
    a_refused_burst_changes_nothing,
    in_flight_rises_only_to_a_limit,
    a_pause_is_never_shortened,
    a_pause_begins_and_ends_for_a_reason,
    a_sweep_is_no_operation,
    who_does_not_wait_never_queues,
    close_leaves_nothing_pending,
    who_would_wait_for_itself_is_refused,
)
