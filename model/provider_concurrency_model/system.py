"""The whole manager as an oracle: what must be seen after each operation and after each command.

The rules in one page (ids as in SPEC.md):

* A request becomes a slot: queued, held, cooling, reclaimed, and one of the ends free, cancelled, timed_out, rejected.
  held, cooling and reclaimed slots are in flight. Ends absorb everything (ACC-2).
* acquire grants at once if the provider is open, has room, and nobody waits (ADM-1); else it queues by
  (prompt_started_at, arrival) (ORD-1), or is refused by a full queue (ADM-7), or with no patience times out at once.
* `admit` is the only other place where slots are granted: the head of the queue, while open and while there is room
  (ADM-2). It runs after everything that can make room: an end of a cooldown or of a pause, a cancelled grant, another
  limit, a leaving of the queue.
* A release or a reclaim starts the cooldown in force now; one of 0 is over in the call (REL-1, REL-3, WAT-3).
* A row tells whether a provider's slots are all held by ancestors of those who wait; with nested="raise" an acquire
  that would make it so is refused (NST-1, `nesting`).
* A pause only grows until it is due or resumed (PAU-1, PAU-5). A sweep reclaims what was silent for too long (WAT-1).
* close rejects who waits, frees what cools, and nothing is ever granted again (CLO-1, CLO-2).
* An operation first applies what is due of its provider, by deadline; ties: cooldown, pause, timeout; then by arrival
  (TIM-3). What is noticed late happens now (TIM-2).
* An operation changes state completely; then its callbacks run one by one, and what they call does the same, its own
  callbacks at the end of the line (CAL-2, CAL-3). A callback that throws changes nothing (CAL-4).

Time and the loop are steps of their own, and a command is a sequence of steps:

* `Elapse`: the clock moves, nothing fires.  `FireDeadlines`: every provider applies what is due.  `Sweep`: one sweep.
  `Settle`: the loop runs, and grants from the queue reach their callers.
* Do = its operations, Settle.  Advance = for each instant on the way at which something is due: Elapse, FireDeadlines,
  Settle, and on the grid Sweep, Settle.  Stall = Elapse, FireDeadlines, Settle, and if a point of the grid was reached
  or passed, Sweep, Settle.

Where the rules leave a choice, the model decides: a pause of 0 is reported as `paused` and at once as `resumed`;
the on_queued of an acquire that a callback makes is called at its place in the line (CAL-2, CAL-3); a grant made by
one's own on_queued counts as inside one's own acquire, if it was called there; a sweep over all providers is one
operation; a refusal inside a hook tells its place in the hook's `do`; prompt_started_at null is the fixed wall clock
below plus the virtual time. The kit sends nothing that depends on the last two, nor a release or touch of a grant that
is not delivered (here it does nothing).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias, assert_never

from provider_concurrency_spec.vocabulary import Advance, Command, Config, Do, Event, Operation, Reply, Stall

from .draft import Draft, apply_due, start_cooldown
from .nesting import is_self_blocked
from .operations import finish, perform
from .state import State, status_row
from .validation import InvalidConfigError, read_config

__all__ = [
    "Elapse", "FireDeadlines", "InvalidConfigError", "Settle", "State", "Sweep", "TimeStep", "new", "run", "step",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Elapse:
    """The clock moves by `ms` and nothing fires: a blocked loop, or the way to the next deadline."""

    ms: int


@dataclass(frozen=True, slots=True)
class FireDeadlines:
    """Every provider applies what is due now (TIM-3), in order of creation."""


@dataclass(frozen=True, slots=True)
class Sweep:
    """The watchdog looks at every held slot (WAT-1)."""


@dataclass(frozen=True, slots=True)
class Settle:
    """The loop runs: grants from the queue reach their callers."""


TimeStep: TypeAlias = Elapse | FireDeadlines | Sweep | Settle


# -- the entrances ---------------------------------------------------------------------------------------------------


def new(config: Config) -> State:
    """A manager at 0 ms; raises InvalidConfigError for a configuration that must be refused."""
    return State(read_config(config))


def step(state: State, operation: Operation | TimeStep, index: int = 0) -> tuple[State, tuple[Event, ...]]:
    """One operation inside a burst, or one step of time: the loop doesn't run after it.

    `index` is the operation's place in its burst, told if it is refused. Grants from the queue stay undelivered until
    a `Settle`.
    """
    draft = Draft(state)
    match operation:
        case Elapse(ms):
            draft.now_ms += ms
        case FireDeadlines():
            fire_deadlines(draft)
        case Sweep():
            sweep(draft)
        case Settle():
            settle(draft)
        case _:
            perform(draft, operation, index)
    return draft.freeze(), tuple(draft.events)


def run(state: State, command: Command) -> tuple[State, Reply]:
    """A whole command of the protocol and the reply to it (without timers: the model has none)."""
    draft = Draft(state)
    match command:
        case Do(operations):
            for index, operation in enumerate(operations):
                perform(draft, operation, index)
            settle(draft)
        case Advance(ms):
            advance(draft, ms)
        case Stall(ms):
            stall(draft, ms)
        case _:
            assert_never(command)
    live = draft.live.values()
    rows = tuple(
        [
            status_row(live, provider, draft.now_ms, tell_self_blocked(draft, provider.name))
            for provider in tuple(draft.providers.values())
        ]
    )
    unsettled = tuple([slot.request for slot in live if slot.state == "queued"])
    return draft.freeze(), Reply(tuple(draft.events), rows, unsettled)


def tell_self_blocked(draft: Draft, name: str) -> bool | None:
    """NST-1, for a status row; None where the configuration doesn't ask for it."""
    return None if draft.settings.nested is None else is_self_blocked(draft, name)


# -- time ------------------------------------------------------------------------------------------------------------


def advance(draft: Draft, ms: int) -> None:
    """Time passes from deadline to deadline, each punctual; a sweep comes after everything else of its instant."""
    end_ms = draft.now_ms + ms
    while (instant_ms := next_instant(draft)) is not None and instant_ms <= end_ms:
        draft.now_ms = instant_ms
        fire_deadlines(draft)
        settle(draft)
        if instant_ms % draft.settings.watchdog_interval_ms == 0:
            sweep(draft)
            settle(draft)
    draft.now_ms = end_ms


def stall(draft: Draft, ms: int) -> None:
    """The loop is blocked for `ms`: what became due is applied at the end (TIM-2), and at most one sweep is made up."""
    interval_ms = draft.settings.watchdog_interval_ms
    missed = (draft.now_ms + ms) // interval_ms - draft.now_ms // interval_ms
    draft.now_ms += ms
    fire_deadlines(draft)
    settle(draft)
    if missed > 0:
        sweep(draft)
        settle(draft)


def next_instant(draft: Draft) -> int | None:
    """The next time at which something may happen by itself: a deadline, or a sweep while slots are held."""
    instants = [slot.deadline_ms for slot in draft.live.values() if slot.deadline_ms is not None]
    instants += [item.paused_until_ms for item in draft.providers.values() if item.paused_until_ms is not None]
    if can_sweep(draft) and any(slot.state == "held" for slot in draft.live.values()):
        interval_ms = draft.settings.watchdog_interval_ms
        instants.append((draft.now_ms // interval_ms + 1) * interval_ms)
    return min(instants, default=None)


def fire_deadlines(draft: Draft) -> None:
    """Every provider applies what is due of it."""
    for name in tuple(draft.providers):
        apply_due(draft, name)
    finish(draft)


def settle(draft: Draft) -> None:
    """The loop runs: who was granted a slot from the queue receives it."""
    for slot in tuple(draft.live.values()):
        if slot.state == "held" and not slot.is_delivered:
            draft.live[slot.request] = slot._replace(is_delivered=True)


def can_sweep(draft: Draft) -> bool:
    """WAT-1, CLO-1: not without a slot timeout, nor after close."""
    return draft.settings.slot_timeout_ms is not None and not draft.is_closed


def sweep(draft: Draft) -> None:
    """WAT-1: reclaims each held slot that was silent for longer than the timeout, then calls who wants to know."""
    timeout_ms = draft.settings.slot_timeout_ms
    if timeout_ms is None or not can_sweep(draft):
        return
    for name in tuple(draft.providers):
        held = [slot for slot in draft.live.values() if slot.provider == name and slot.state == "held"]
        for slot in sorted(held, key=lambda slot: slot.grant):
            if draft.now_ms - slot.touched_ms > timeout_ms:
                start_cooldown(draft, slot, "reclaimed")
                draft.line.append(("reclaimed", name))
    finish(draft)
