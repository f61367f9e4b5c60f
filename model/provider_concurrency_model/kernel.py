"""The admission arithmetic of one provider: how many slots are where, and nothing else.

Who they are, in which order they wait and what time it is are forgotten; what is left is small enough to be proved for
every number of requests and every limit (`check.z3_proofs`, `check.crosshair_gate`), and a test shows that it is what
the whole-system model does on every explored edge.

The rules in one page (ids as in SPEC.md):

* held, cooling and reclaimed slots are in flight, with a limit or without one (ACC-1).
* A grant needs an open manager, no pause, and room: no limit in force, or in_flight below it (ADM-4). A newcomer
  further needs an empty queue (ADM-1), else it queues; so it is always exactly one of `take` and `queue`.
* `grant` is one admission step; `admit` is all of them that are possible, in one sum (ADM-2). It ends every function
  that can make room, so that between two steps nobody waits beside room: `is_at_rest` (ADM-5).
* A release or a reclaim moves a slot within in_flight; only the end of its cooldown makes room (REL-1, REL-3, WAT-3).
  A grant that its caller never received is given back without one (CAN-2).
* Lowering a limit evicts nobody; raising it admits by spare room, not by the difference (LIM-2).
* A pause stops grants and nothing else (PAU-4). Its length is no matter of counts: here it is there or not.
* close rejects who waits and frees what cools; a held slot released later is free at once, and nothing is granted any
  more (CLO-1, CLO-2).

An acquire that times out at once or is refused changes no count, so it has no function here (CAN-3, ADM-7, ADM-8). A
provider without a limit of its own has the manager's, which `remove_limit` is told (LIM-4).

The contracts are PEP 316 docstrings: they cost nothing at run time, `__return__` is the result. What a function needs
beyond its `pre` lines it doesn't have: out of its precondition a step means nothing. The body of each is written
without loops, dictionaries and floats, which CrossHair can't confirm, and so that it runs on z3's integers, too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final, TypeAlias

NO_LIMIT: Final = -1
"""The limit in force where there is none: an integer, because a union would double every proof's cases."""


@dataclass(frozen=True, slots=True)
class Counts:
    """One provider, counted."""

    limit: int
    """The limit in force; NO_LIMIT without one."""
    held: int
    cooling: int
    reclaimed: int
    queued: int
    paused: bool
    closed: bool
    """The manager's; every provider sees it."""


Step: TypeAlias = Callable[[Counts], Counts]
Resize: TypeAlias = Callable[[Counts, int], Counts]


# -- what can be asked -----------------------------------------------------------------------------------------------


def is_sound(counts: Counts) -> bool:
    """No count is negative, and a closed manager has nothing left but held slots (CLO-1)."""
    return (
        counts.limit >= NO_LIMIT
        and counts.held >= 0
        and counts.cooling >= 0
        and counts.reclaimed >= 0
        and counts.queued >= 0
        and (not counts.closed or (counts.cooling + counts.reclaimed + counts.queued == 0 and not counts.paused))
    )


def in_flight(counts: Counts) -> int:
    """The slots that count against the limit (ACC-1)."""
    return counts.held + counts.cooling + counts.reclaimed


def live(counts: Counts) -> int:
    """All slots that haven't reached their end."""
    return in_flight(counts) + counts.queued


def has_room(counts: Counts) -> bool:
    """No limit in force, or in_flight below it."""
    return counts.limit < 0 or in_flight(counts) < counts.limit


def is_granting(counts: Counts) -> bool:
    """Whether a grant is allowed at all (ADM-4)."""
    return not counts.closed and not counts.paused and has_room(counts)


def is_at_rest(counts: Counts) -> bool:
    """Nobody waits beside room (ADM-5)."""
    return counts.queued == 0 or not is_granting(counts)


def is_settled(counts: Counts) -> bool:
    """How every step leaves the counts, and may expect to find them."""
    return is_sound(counts) and is_at_rest(counts)


def rank(counts: Counts) -> int:
    """How many steps are left at most before nothing is left: each but an arrival, a pause and a limit lowers it."""
    return 3 * counts.queued + 2 * counts.held + counts.cooling + counts.reclaimed


# -- admission -------------------------------------------------------------------------------------------------------


def take(counts: Counts) -> Counts:
    """A newcomer is granted at once: open, room, nobody waits (ADM-1, ADM-3).

    pre: is_sound(counts)
    pre: is_granting(counts)
    pre: counts.queued == 0
    post: is_settled(__return__)
    post: in_flight(__return__) == in_flight(counts) + 1
    post: __return__.limit < 0 or in_flight(__return__) <= __return__.limit
    """
    return replace(counts, held=counts.held + 1)


def queue(counts: Counts) -> Counts:
    """A newcomer queues, because it can't be granted at once (ADM-1).

    pre: is_settled(counts)
    pre: not counts.closed
    pre: not is_granting(counts) or counts.queued > 0
    post: is_settled(__return__)
    post: in_flight(__return__) == in_flight(counts)
    post: live(__return__) == live(counts) + 1
    """
    return replace(counts, queued=counts.queued + 1)


def grant(counts: Counts) -> Counts:
    """One admission step: the head of the queue, whoever it is, takes a slot (ADM-2, ADM-4).

    pre: is_sound(counts)
    pre: is_granting(counts)
    pre: counts.queued > 0
    post: is_sound(__return__)
    post: live(__return__) == live(counts)
    post: in_flight(__return__) == in_flight(counts) + 1
    post: __return__.limit < 0 or in_flight(__return__) <= __return__.limit
    post: rank(__return__) < rank(counts)
    """
    return replace(counts, queued=counts.queued - 1, held=counts.held + 1)


def spare(counts: Counts) -> int:
    """How many may be granted now; without a limit, as many as wait.

    pre: is_sound(counts)
    post: __return__ >= 0
    post: (__return__ > 0 and counts.queued > 0) == (is_granting(counts) and counts.queued > 0)
    """
    if counts.closed or counts.paused:
        return 0
    if counts.limit < 0:
        return counts.queued
    return max(counts.limit - in_flight(counts), 0)


def admit(counts: Counts) -> Counts:
    """Every admission step that is possible (ADM-2): a sum instead of a loop, which is proved to be the loop.

    pre: is_sound(counts)
    post: is_settled(__return__)
    post: live(__return__) == live(counts)
    post: __return__.queued <= counts.queued
    post: __return__.limit < 0 or in_flight(__return__) <= max(in_flight(counts), __return__.limit)
    post: not (counts.paused or counts.closed) or __return__ == counts
    """
    granted = min(counts.queued, spare(counts))
    return replace(counts, queued=counts.queued - granted, held=counts.held + granted)


# -- the end of a slot -----------------------------------------------------------------------------------------------


def release(counts: Counts) -> Counts:
    """The first release of a held slot starts its cooldown (REL-1); on a closed manager it is free at once.

    pre: is_settled(counts)
    pre: counts.held > 0
    post: is_settled(__return__)
    post: in_flight(__return__) == in_flight(counts) - (1 if counts.closed else 0)
    post: __return__.held == counts.held - 1 and __return__.closed == counts.closed
    post: rank(__return__) < rank(counts)
    """
    if counts.closed:
        return replace(counts, held=counts.held - 1)
    return replace(counts, held=counts.held - 1, cooling=counts.cooling + 1)


def reclaim(counts: Counts) -> Counts:
    """A sweep takes a held slot away; it counts like a cooling one (WAT-1, WAT-3).

    pre: is_settled(counts)
    pre: counts.held > 0
    pre: not counts.closed
    post: is_settled(__return__)
    post: in_flight(__return__) == in_flight(counts)
    post: rank(__return__) < rank(counts)
    """
    return replace(counts, held=counts.held - 1, reclaimed=counts.reclaimed + 1)


def recycle(counts: Counts) -> Counts:
    """A released slot's cooldown is over: it is free (REL-3). Then ADM-2.

    pre: is_settled(counts)
    pre: counts.cooling > 0
    post: is_settled(__return__)
    post: live(__return__) == live(counts) - 1 and rank(__return__) < rank(counts)
    post: __return__.limit < 0 or in_flight(__return__) <= max(in_flight(counts) - 1, __return__.limit)
    """
    return admit(replace(counts, cooling=counts.cooling - 1))


def recycle_reclaimed(counts: Counts) -> Counts:
    """A reclaimed slot's cooldown is over (WAT-3). Then ADM-2.

    pre: is_settled(counts)
    pre: counts.reclaimed > 0
    post: is_settled(__return__)
    post: live(__return__) == live(counts) - 1 and rank(__return__) < rank(counts)
    post: __return__.limit < 0 or in_flight(__return__) <= max(in_flight(counts) - 1, __return__.limit)
    """
    return admit(replace(counts, reclaimed=counts.reclaimed - 1))


def give_back(counts: Counts) -> Counts:
    """A grant is cancelled before its caller received it: no cooldown (CAN-2). Then ADM-2.

    pre: is_settled(counts)
    pre: counts.held > 0
    post: is_settled(__return__)
    post: live(__return__) == live(counts) - 1 and rank(__return__) < rank(counts)
    post: __return__.limit < 0 or in_flight(__return__) <= max(in_flight(counts) - 1, __return__.limit)
    """
    return admit(replace(counts, held=counts.held - 1))


def cancel(counts: Counts) -> Counts:
    """A queued request's caller was cancelled: it leaves, and no grant is spent on it (CAN-1).

    pre: is_settled(counts)
    pre: counts.queued > 0
    post: is_settled(__return__)
    post: in_flight(__return__) == in_flight(counts)
    post: rank(__return__) < rank(counts)
    """
    return replace(counts, queued=counts.queued - 1)


def timeout(counts: Counts) -> Counts:
    """A queued request's deadline is due: it leaves (CAN-3).

    pre: is_settled(counts)
    pre: counts.queued > 0
    post: is_settled(__return__)
    post: in_flight(__return__) == in_flight(counts)
    post: rank(__return__) < rank(counts)
    """
    return replace(counts, queued=counts.queued - 1)


# -- pause, limit, close ---------------------------------------------------------------------------------------------


def pause(counts: Counts) -> Counts:
    """A 429 was reported: nothing is granted until `resume` (PAU-1, PAU-4); on a closed manager nothing (CLO-2).

    pre: is_settled(counts)
    post: is_settled(__return__)
    post: live(__return__) == live(counts) and __return__.held == counts.held and __return__.limit == counts.limit
    post: __return__.paused or counts.closed
    """
    return replace(counts, paused=not counts.closed)


def resume(counts: Counts) -> Counts:
    """A pause ends, by its deadline or by hand (PAU-5). Then ADM-2, up to the room there is.

    pre: is_sound(counts)
    pre: counts.paused
    post: is_settled(__return__)
    post: live(__return__) == live(counts)
    post: __return__.limit < 0 or in_flight(__return__) <= max(in_flight(counts), __return__.limit)
    """
    return admit(replace(counts, paused=False))


def set_limit(counts: Counts, limit: int) -> Counts:
    """Another limit is in force (LIM-1): lowering evicts nobody, raising admits by spare room (LIM-2). Then ADM-2.

    pre: is_sound(counts)
    pre: not counts.closed
    pre: limit >= 0
    post: is_settled(__return__)
    post: live(__return__) == live(counts)
    post: in_flight(counts) <= in_flight(__return__) <= max(in_flight(counts), limit)
    post: __return__.limit == limit and __return__.paused == counts.paused
    """
    return admit(replace(counts, limit=limit))


def remove_limit(counts: Counts, default: int) -> Counts:
    """The provider's own limit goes and nothing else: the manager's is in force, or none (LIM-3, LIM-4). Then ADM-2.

    pre: is_sound(counts)
    pre: not counts.closed
    pre: default >= NO_LIMIT
    post: is_settled(__return__)
    post: live(__return__) == live(counts)
    post: __return__.limit == default and __return__.paused == counts.paused
    post: default < 0 or in_flight(__return__) <= max(in_flight(counts), default)
    post: default >= 0 or counts.paused or __return__.queued == 0
    """
    return admit(replace(counts, limit=default))


def close(counts: Counts) -> Counts:
    """Who waits is rejected, what cools is free, a pause ends; held slots stay (CLO-1).

    pre: is_sound(counts)
    post: is_settled(__return__)
    post: __return__.closed
    post: live(__return__) == __return__.held == counts.held
    """
    return replace(counts, cooling=0, reclaimed=0, queued=0, paused=False, closed=True)


STEPS: Final[Mapping[str, Step]] = MappingProxyType({step.__name__: step for step in (
    take, queue, grant, release, reclaim, recycle, recycle_reclaimed, give_back, cancel, timeout, pause, resume, close,
)})  # fmt: skip
"""Everything that changes the counts, but for the limit."""

RESIZES: Final[Mapping[str, Resize]] = MappingProxyType({step.__name__: step for step in (set_limit, remove_limit)})
"""The changes of the limit; each is told the new one."""
