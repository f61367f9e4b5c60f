"""The operations of the protocol on a draft, and the callbacks that they cause.

`perform` is the only way in: an operation is refused without a trace, or done completely; then the callbacks are
called one by one (CAL-2). What a callback calls comes back in through `perform`.
"""

from __future__ import annotations

from typing import Final, assert_never

from provider_concurrency_spec.vocabulary import (
    OPERATION_NAMES,
    Acquire,
    Cancel,
    Close,
    Hook,
    HookPoint,
    Inspect,
    Operation,
    Paused,
    RateLimited,
    RefusalKind,
    Refused,
    Release,
    RemoveLimit,
    Resume,
    SetCooldown,
    SetLimit,
    SlotShown,
    Touch,
    TryAcquire,
    WallClock,
)

from .draft import Draft, admit, apply_due, can_grant_at_once, end, end_pause, grant, is_stateless, start_cooldown
from .nesting import find_ancestors, is_self_blocked
from .state import ArmedHook, Slot, cooldown_in_force, queue_of
from .validation import (
    InvalidConfigError,
    check_conversation,
    read_count,
    read_duration,
    read_real,
    read_retry_after,
)

WALL_CLOCK_S: Final = 1_700_000_000
"""The epoch time of `new`, for a prompt_started_at that isn't given."""


def perform(draft: Draft, operation: Operation, index: int) -> None:
    """One operation, whole: refused without a trace, or done and its callbacks called."""
    try:
        dispatch(draft, operation, index)
    except InvalidConfigError:
        refuse(draft, operation, index, "invalid")
    finish(draft)


def dispatch(draft: Draft, operation: Operation, index: int) -> None:
    """Finds the function of an operation; those that a closed manager refuses are refused before any look at them."""
    match operation:
        case Release(request):
            release(draft, request)
        case Cancel(request):
            cancel(draft, request)
        case Touch(request):
            touch(draft, request)
        case RateLimited():
            report_rate_limit(draft, operation)
        case Inspect(request):
            inspect(draft, request)
        case Close():
            close(draft)
        case Hook():
            draft.hooks += (ArmedHook(operation, operation.times),)
        case WallClock():
            pass  # TIM-1: decides nothing
        case _ if draft.is_closed:
            refuse(draft, operation, index, "closed")  # CLO-2
        case Acquire():
            acquire(draft, operation, index)
        case TryAcquire():
            try_acquire(draft, operation)
        case SetLimit(name, limit):
            set_limit(draft, name, read_count("limit", limit))
        case RemoveLimit(name):
            set_limit(draft, name, None)  # LIM-3
        case SetCooldown(name, cooldown_ms):
            set_cooldown(draft, name, None if cooldown_ms is None else read_duration("seconds", cooldown_ms))
        case Resume(name):
            resume(draft, name)
        case _:
            assert_never(operation)


def refuse(draft: Draft, operation: Operation, index: int, kind: RefusalKind) -> None:
    """A refusal is told and changes nothing."""
    draft.events.append(Refused(draft.now_ms, OPERATION_NAMES[type(operation)], index, kind))


def request_slot(draft: Draft, operation: Acquire | TryAcquire) -> Slot:
    """A new request, its values checked; its place among the equally old is the next one (ORD-1)."""
    check_conversation(operation.conversation)
    started: int | float = WALL_CLOCK_S + draft.now_ms / 1000
    if operation.prompt_started_at is not None:
        started = read_real("prompt_started_at", operation.prompt_started_at)
    return Slot(
        request=operation.request,
        provider=operation.provider,
        prompt_started_at=started,
        arrival=draft.arrivals + 1,
        state="queued",
        conversation=operation.conversation,
        ancestors=find_ancestors(operation),
    )


def acquire(draft: Draft, operation: Acquire, index: int) -> None:
    """ADM-1, ADM-7, CAN-3, NST-1: granted or timed out at once, refused by a full queue or as nested, or queued."""
    timeout_ms = None if operation.timeout_ms is None else read_duration("timeout", operation.timeout_ms)
    slot = request_slot(draft, operation)
    name = operation.provider
    apply_due(draft, name)
    can_grant = can_grant_at_once(draft, name)
    if not can_grant and timeout_ms != 0 and is_queue_full(draft, name):
        refuse(draft, operation, index, "queue_full")
        return
    if not can_grant and timeout_ms != 0 and must_not_nest(draft, slot):
        refuse(draft, operation, index, "nested")
        return
    draft.arrivals = slot.arrival
    if can_grant:
        grant(draft, slot, is_delivered=True)
    elif timeout_ms == 0:
        end(draft, slot, "timed_out", "timed_out")
    else:
        deadline_ms = None if timeout_ms is None else draft.now_ms + timeout_ms
        draft.live[slot.request] = slot._replace(deadline_ms=deadline_ms)
        draft.emit("queued", slot)
        call_on_queued(draft, slot)


def is_queue_full(draft: Draft, name: str) -> bool:
    """ADM-7: as many wait as may, whatever the newcomer's place would be."""
    max_queued = draft.settings.max_queued
    return max_queued is not None and len(queue_of(draft.live.values(), name)) >= max_queued


def must_not_nest(draft: Draft, newcomer: Slot) -> bool:
    """NST-1: with nested="raise" nobody queues who has ancestors and with whom the provider would be self-blocked."""
    return (
        draft.settings.nested == "raise"
        and bool(newcomer.ancestors)
        and is_self_blocked(draft, newcomer.provider, newcomer)
    )


def call_on_queued(draft: Draft, slot: Slot) -> None:
    """CAL-1: acquire itself calls it, after the enqueueing and before it waits; a grant by then is received at once.

    An acquire that a callback makes has it called at its place in the line (CAL-2, CAL-3).
    """
    draft.line.append(("queued", slot.provider))
    if draft.is_delivering:
        return
    deliver(draft)
    after = draft.live.get(slot.request)
    if after is not None and after.state == "held":
        draft.live[slot.request] = after._replace(is_delivered=True)


def try_acquire(draft: Draft, operation: TryAcquire) -> None:
    """ADM-8: granted at once, or nothing at all."""
    slot = request_slot(draft, operation)
    apply_due(draft, operation.provider)
    if can_grant_at_once(draft, operation.provider):
        draft.arrivals = slot.arrival
        grant(draft, slot, is_delivered=True)


def release(draft: Draft, request: str) -> None:
    """REL-1, REL-2: the first release of a held slot; on a closed manager it is free at once."""
    slot = find_live(draft, request)
    if slot is None or slot.state != "held" or not slot.is_delivered:
        return
    if draft.is_closed:
        draft.emit("released", slot)
        end(draft, slot, "free", "recycled")
    else:
        start_cooldown(draft, slot, "cooling")


def cancel(draft: Draft, request: str) -> None:
    """CAN-1: a queued request leaves now. CAN-2: a grant that nobody received is given back without a cooldown."""
    slot = find_live(draft, request)
    if slot is None or not (slot.state == "queued" or (slot.state == "held" and not slot.is_delivered)):
        return
    end(draft, slot, "cancelled", "cancelled")
    admit(draft, slot.provider)


def touch(draft: Draft, request: str) -> None:
    """WAT-2: a held slot is alive."""
    slot = find_live(draft, request)
    if slot is not None and slot.state == "held" and slot.is_delivered:
        draft.live[request] = slot._replace(touched_ms=draft.now_ms)


def find_live(draft: Draft, request: str) -> Slot | None:
    """A request's live slot after what is due of its provider was applied; None for an unknown or ended one."""
    slot = draft.live.get(request)
    if slot is not None:
        apply_due(draft, slot.provider)
    return draft.live.get(request)


def inspect(draft: Draft, request: str) -> None:
    """Shows a slot, ended or not; nothing for an unknown request."""
    find_live(draft, request)
    for slot in (*draft.live.values(), *draft.ended):
        if slot.request == request:
            draft.events.append(SlotShown(draft.now_ms, request, slot.state, slot.was_reclaimed))


def set_limit(draft: Draft, name: str, limit: int | None) -> None:
    """LIM-1..3: nothing but the number changes; then ADM-2 by spare room."""
    apply_due(draft, name)
    draft.providers[name] = draft.provider(name)._replace(limit=limit)
    admit(draft, name)


def set_cooldown(draft: Draft, name: str, cooldown_ms: int | None) -> None:
    """ACC-4: for releases from now on."""
    apply_due(draft, name)
    draft.providers[name] = draft.provider(name)._replace(cooldown_ms=cooldown_ms)


def report_rate_limit(draft: Draft, operation: RateLimited) -> None:
    """PAU-1, PAU-2: a pause begins or grows, never shrinks; a pause of 0 ends in the call."""
    if draft.is_closed:
        return  # CLO-2
    name = operation.provider
    apply_due(draft, name)
    provider = draft.provider(name)
    cooldown_ms = cooldown_in_force(draft.settings, provider)
    requested, applied_ms = read_retry_after(operation.retry_after_ms, draft.settings, cooldown_ms)
    draft.events.append(Paused(draft.now_ms, name, requested, applied_ms))
    until_ms = draft.now_ms + applied_ms
    if provider.paused_until_ms is not None and until_ms <= provider.paused_until_ms:
        return
    draft.providers[name] = provider._replace(paused_until_ms=until_ms)
    if applied_ms > 0:
        draft.line.append(("paused", name))  # CAL-3
    apply_due(draft, name)


def resume(draft: Draft, name: str) -> None:
    """PAU-5: ends a pause; then ADM-2."""
    apply_due(draft, name)
    if draft.provider(name).paused_until_ms is not None:
        end_pause(draft, name)
        admit(draft, name)


def close(draft: Draft) -> None:
    """CLO-1: rejects who waits in queue order, frees what cools, ends pauses without a word; held slots stay."""
    if draft.is_closed:
        return
    for name in tuple(draft.providers):
        apply_due(draft, name)
    draft.is_closed = True
    for name in tuple(draft.providers):
        for slot in queue_of(draft.live.values(), name):
            end(draft, slot, "rejected", "rejected")
        for slot in tuple(draft.live.values()):
            if slot.provider == name and slot.state in ("cooling", "reclaimed"):
                end(draft, slot, "free", "recycled")
        draft.providers[name] = draft.provider(name)._replace(paused_until_ms=None)


# -- after each operation --------------------------------------------------------------------------------------------


def finish(draft: Draft) -> None:
    """An operation has changed everything: the callbacks, and providers without state are forgotten."""
    deliver(draft)
    for provider in tuple(draft.providers.values()):
        if is_stateless(draft, provider):
            del draft.providers[provider.name]


def deliver(draft: Draft) -> None:
    """CAL-2: one delivery loop, which never nests; first in, first out."""
    if draft.is_delivering:
        return
    draft.is_delivering = True
    while draft.line:
        call_back(draft, *draft.line.pop(0))
    draft.is_delivering = False


def call_back(draft: Draft, point: HookPoint, name: str) -> None:
    """One call of a callback: the hooks armed for it run, in the order of their arming, up to one that throws.

    That it throws changes nothing else (CAL-4).
    """
    for armed in tuple(armed for armed in draft.hooks if armed.hook.on == point and armed.hook.provider == name):
        place = draft.hooks.index(armed)
        left = (ArmedHook(armed.hook, armed.times - 1),) if armed.times > 1 else ()
        draft.hooks = draft.hooks[:place] + left + draft.hooks[place + 1 :]
        for index, operation in enumerate(armed.hook.do):
            perform(draft, operation, index)
        if armed.hook.throw:
            return
