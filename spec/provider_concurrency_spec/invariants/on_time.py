"""What holds of a whole run's times: cooldowns, timeouts, pauses, the watchdog, the timers.

Nothing happens before its deadline. With `advance` it happens at it; after a `stall` it happens at the stall's end,
which is when it is noticed (TIM-2).
"""

from __future__ import annotations

from typing import Final

from provider_concurrency_spec.invariants.kinds import Invariant, Run, Step, invariant, whole
from provider_concurrency_spec.invariants.on_step import row_of
from provider_concurrency_spec.invariants.replay import Settings, Slots, asks_of, settings_along
from provider_concurrency_spec.vocabulary import Do, Event, Paused, Resume, Resumed, SlotEvent, Stall, Touch


def _is_punctual(step: Step, at_ms: int, deadlines: frozenset[int]) -> bool:
    """Whether something with one of these deadlines may be applied at this time in this step."""
    return at_ms in deadlines or (isinstance(step.command, Stall) and at_ms == step.ended_ms > min(deadlines))


@invariant("run", "REL-1", "REL-3", "WAT-3", "TIM-2")
def cooldowns_last_their_time(run: Run) -> str | None:
    """A slot is free its cooldown after the release or the reclaim: not before, and not later than noticed.

    The cooldown is the one in force at that moment; a close cuts it short.
    """
    deadlines: dict[str, frozenset[int]] = {}
    closed = False
    for step, settings in settings_along(run):
        closed = closed or step.closes
        for event in step.events:
            if not isinstance(event, SlotEvent):
                continue
            if event.event in ("released", "reclaimed"):
                lengths = settings.cooldowns_ms(event.provider, run.config.release_cooldown_ms)
                if lengths is not None:
                    deadlines[event.request] = frozenset(event.at_ms + length for length in lengths)
            elif event.event == "recycled":
                due = deadlines.pop(event.request, None)
                if due is not None and not closed and not _is_punctual(step, event.at_ms, due):
                    return f"{event}; its cooldown ends at {sorted(due)}"
        if not closed:
            late = {name: due for name, due in deadlines.items() if max(due) <= step.ended_ms}
            if late:
                return f"still cooling at {step.ended_ms}: {late}"
    return None


@invariant("run", "CAN-3", "TIM-3")
def timeouts_are_punctual(run: Run) -> str | None:
    """A waiter with a timeout leaves when that is due, not before nor later than noticed; without one it never does."""
    asks = asks_of(run)
    deadlines: dict[str, int] = {}
    for step in run.steps:
        for event in step.events:
            if not isinstance(event, SlotEvent):
                continue
            ask = asks.get(event.request)
            timeout = ask.timeout_ms if ask is not None else None
            if event.event == "queued":
                if timeout is not None:
                    deadlines[event.request] = event.at_ms + timeout
                continue
            due = deadlines.pop(event.request, None)
            if event.event == "timed_out":
                if ask is not None and not ask.has_timeout:
                    return f"{event}, but it has no timeout"
                if due is not None and not _is_punctual(step, event.at_ms, frozenset({due})):
                    return f"{event}; its deadline is {due}"
        late = {name: due for name, due in deadlines.items() if due <= step.ended_ms}
        if late:
            return f"still queued at {step.ended_ms}: {late}"
    return None


def _pause_lengths(event: Paused, run: Run, settings: Settings) -> set[int] | None:
    """What PAU-2 allows as `applied_ms`; None: can't be said exactly. A null request may stand for Infinity."""
    config = run.config
    default, least, most = whole(config.default_pause_ms), whole(config.min_pause_ms), whole(config.max_pause_ms)
    cooldowns = settings.cooldowns_ms(event.provider, config.release_cooldown_ms)
    if default is None or least is None or most is None or cooldowns is None:
        return None
    requested = event.requested_ms
    if requested is None:
        lengths = {default, most}
    elif isinstance(requested, bool) or not isinstance(requested, int | float):
        return set()
    elif requested < 0:
        lengths = {default}
    elif isinstance(requested, float) and not requested.is_integer():
        return None
    else:
        lengths = {int(requested)}
    return {min(max(length, least, cooldown), most) for length in lengths for cooldown in cooldowns}


@invariant("run", "PAU-2")
def pauses_have_the_length_of_the_rule(run: Run) -> str | None:
    """applied: what was requested, or the default; at least min_pause and the cooldown in force; at most max_pause."""
    for step, settings in settings_along(run):
        for event in step.events:
            if isinstance(event, Paused):
                allowed = _pause_lengths(event, run, settings)
                if allowed is not None and event.applied_ms not in allowed:
                    return f"{event}; by the rule {sorted(allowed)}"
    return None


@invariant("run", "PAU-1", "PAU-5", "PAU-3")
def pauses_end_when_they_are_due(run: Run) -> str | None:
    """paused_until is the furthest report; the status counts down to it, and the provider resumes exactly there.

    Only a resume or a close ends it earlier. Not judged where a burst both reports and resumes, or a callback resumes.
    """
    until: dict[str, int] = {}
    for step in run.steps:
        told: dict[str, list[Event]] = {}
        for event in step.events:
            if isinstance(event, Paused | Resumed):
                told.setdefault(event.provider, []).append(event)
        for provider in sorted({*until, *told, *(row.provider for row in step.reply.status)}):
            wrong = _follow_pause(step, provider, told.get(provider, []), until)
            if wrong is not None:
                return wrong
    return None


def _follow_pause(step: Step, provider: str, told: list[Event], until: dict[str, int]) -> str | None:
    """Takes a provider's pause through one step; returns what is wrong."""
    shown = row_of(step.reply.status, provider).paused_for_ms
    by_callback = any(isinstance(op, Resume) and op.provider == provider for op in step.hooked)
    if step.closes or by_callback or len({type(event) for event in told}) > 1:
        until.pop(provider, None)
        if shown is not None:
            until[provider] = step.ended_ms + shown
        return None
    for event in told:
        if isinstance(event, Paused):
            until[provider] = max(until.get(provider, event.at_ms), event.at_ms + event.applied_ms)
            continue
        due = until.pop(provider, None)
        if due is None:
            return f"{event}, but it is not paused"
        if not isinstance(step.command, Do) and not _is_punctual(step, event.at_ms, frozenset({due})):
            return f"{event}; the pause ends at {due}"
    due = until.get(provider)
    if due is not None and due <= step.ended_ms:
        return f"{provider!r} was paused until {due}, but hasn't resumed at {step.ended_ms}"
    if shown != (None if due is None else due - step.ended_ms):
        return f"{provider!r} at {step.ended_ms}: paused_for_ms is {shown}, paused until is {due}"
    return None


@invariant("run", "ADM-4", "PAU-4")
def nothing_is_granted_while_paused(run: Run) -> str | None:
    """Between a 429 and the end of its pause there is no grant.

    Judged across steps and instants: within one burst the order of a report and a grant isn't told by the events.
    """
    paused: dict[str, tuple[int, int]] = {}
    for at, step in enumerate(run.steps):
        resumed = {(event.provider, event.at_ms) for event in step.events if isinstance(event, Resumed)}
        for event in step.events:
            if isinstance(event, SlotEvent) and event.event == "granted":
                since = paused.get(event.provider, (at, event.at_ms))
                if since < (at, event.at_ms) and (event.provider, event.at_ms) not in resumed:
                    return f"{event}, though it has been paused since {since[1]}"
            elif isinstance(event, Resumed):
                paused.pop(event.provider, None)
            elif isinstance(event, Paused) and event.applied_ms > 0:
                paused.setdefault(event.provider, (at, event.at_ms))
        for provider in [name for name in paused if not row_of(step.reply.status, name).paused]:
            del paused[provider]
    return None


@invariant("run", "WAT-1", "WAT-2", "TIM-2")
def the_watchdog_reclaims_the_untouched(run: Run) -> str | None:
    """A sweep reclaims exactly the held slots untouched for more than slot_timeout, at the points of its grid.

    After a stall it is one sweep at the stall's end. A slot that a callback may have touched isn't judged.
    """
    limit, interval = whole(run.config.slot_timeout_ms), whole(run.config.watchdog_interval_ms)
    if interval is None or interval <= 0 or (limit is None and run.config.slot_timeout_ms is not None):
        return None
    touched: dict[str, int] = {}
    slots, closed = Slots(), False
    for step in run.steps:
        closed = closed or step.closes
        touched_by_hooks = {op.request for op in step.hooked if isinstance(op, Touch)}
        for op in step.operations:
            if isinstance(op, Touch) and slots.is_held(op.request):
                touched[op.request] = step.started_ms
        for event in step.events:
            if not isinstance(event, SlotEvent):
                continue
            slots.move(event)
            if event.event == "granted":
                touched[event.request] = event.at_ms
                continue
            since = touched.pop(event.request, None)
            if event.event == "reclaimed" and since is not None:
                if limit is None or event.at_ms - since <= limit:
                    return f"{event}, though it was touched at {since} and slot_timeout is {limit}"
                if event.at_ms % interval and not (isinstance(step.command, Stall) and event.at_ms == step.ended_ms):
                    return f"{event}, which is no point of the sweeps' grid"
        point = step.ended_ms // interval * interval
        if closed or limit is None or point <= step.started_ms:
            continue
        judged_at = step.ended_ms if isinstance(step.command, Stall) else point
        for name, since in touched.items():
            if judged_at - since > limit and name not in touched_by_hooks:
                return f"{name!r}, touched last at {since}, wasn't reclaimed by the sweep at {judged_at}"
    return None


@invariant("run", "TIM-4")
def timers_are_few(run: Run) -> str | None:
    """At most one timer per provider and one for the sweeps is alive."""
    providers: set[str] = set()
    for step in run.steps:
        for op in (*step.operations, *step.hooked):
            name = getattr(op, "provider", None)
            if isinstance(name, str):
                providers.add(name)
        if step.reply.timers is not None and step.reply.timers > len(providers) + 1:
            return f"{step.reply.timers} timers are alive at {step.ended_ms} for {len(providers)} providers"
    return None


TIME_INVARIANTS: Final[tuple[Invariant[Run], ...]] = (
    cooldowns_last_their_time,
    timeouts_are_punctual,
    pauses_have_the_length_of_the_rule,
    pauses_end_when_they_are_due,
    nothing_is_granted_while_paused,
    the_watchdog_reclaims_the_untouched,
    timers_are_few,
)
