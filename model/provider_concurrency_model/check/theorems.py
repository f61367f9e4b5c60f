"""The theorems about the kernel, for every number of requests and every limit.

They are written here in z3's words and not with the kernel's predicates: a theorem must not share its subject's
mistake. Each is a list of obligations, hypothesis and claim, one or more for each path of a step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType, ModuleType
from typing import Final, NamedTuple, cast

from provider_concurrency_model.check.symbolic import Path, Point, Term, load_z3, name_point, trace
from provider_concurrency_model.kernel import Counts


class Obligation(NamedTuple):
    """One implication to be proved."""

    step: str
    hypothesis: Term
    claim: Term
    before: Point
    after: Point


@dataclass(frozen=True, slots=True)
class Subject:
    """What theorems are about: a kernel, and its transition relation."""

    module: ModuleType
    paths: tuple[Path, ...]

    def of(self, *names: str) -> list[Path]:
        """The paths of some steps."""
        return [path for path in self.paths if path.step in names]

    def but(self, *names: str) -> list[Path]:
        """The paths of all other steps."""
        return [path for path in self.paths if path.step not in names]


@dataclass(frozen=True, slots=True)
class Theorem:
    """Its name, what it says, and what is to be proved."""

    name: str
    says: str
    obligations: Callable[[Subject], Iterator[Obligation]]


def from_settled(path: Path, holds: Term) -> Obligation:
    """A claim about one path, from any settled state."""
    return Obligation(path.step, load_z3().And(path.condition, is_settled(path.before)), holds, path.before, path.after)


def from_sound(path: Path, holds: Term, assume: Term = True) -> Obligation:
    """A claim about one path, from any sound state."""
    hypothesis = load_z3().And(path.condition, is_sound(path.before), assume)
    return Obligation(path.step, hypothesis, holds, path.before, path.after)


# -- the words of the rules ------------------------------------------------------------------------------------------


def is_sound(point: Point) -> Term:
    """ACC-1, CLO-1: no count is negative, and after close only held slots are left."""
    z3 = load_z3()
    numbers = (point.held, point.cooling, point.reclaimed, point.queued)
    emptied = z3.And(point.queued == 0, point.cooling == 0, point.reclaimed == 0, z3.Not(point.paused))
    return z3.And(point.limit >= -1, *[number >= 0 for number in numbers], z3.Implies(point.closed, emptied))


def is_at_rest(point: Point) -> Term:
    """ADM-5."""
    return load_z3().Or(point.queued == 0, point.paused, point.closed, point.is_full)


def begins(point: Point) -> Term:
    """A new provider, with any limit or none."""
    z3 = load_z3()
    numbers = (point.held, point.cooling, point.reclaimed, point.queued)
    nothing = z3.And(*[number == 0 for number in numbers])
    return z3.And(point.limit >= -1, nothing, z3.Not(point.paused), z3.Not(point.closed))


def is_settled(point: Point) -> Term:
    """Both."""
    return load_z3().And(is_sound(point), is_at_rest(point))


def is_open(point: Point) -> Term:
    """Neither paused nor closed."""
    z3 = load_z3()
    return z3.And(z3.Not(point.paused), z3.Not(point.closed))


def largest(*terms: Term) -> Term:
    """The maximum."""
    first, *rest = terms
    for term in rest:
        first = load_z3().If(term > first, term, first)
    return first


def rank(point: Point) -> Term:
    """The ranking function."""
    return 3 * point.queued + 2 * point.held + point.cooling + point.reclaimed


# -- the theorems ----------------------------------------------------------------------------------------------------

_LEAVING: Final = ("cancel", "timeout")  # the queue, without a grant
_ENDING: Final = ("recycle", "recycle_reclaimed", "give_back", *_LEAVING)
_RESIZES: Final = ("set_limit", "remove_limit")


def guards(subject: Subject) -> Iterator[Obligation]:
    """Each step is possible exactly where the rules say so, hence always exactly one of take and queue."""
    z3 = load_z3()
    p, limit = name_point(), z3.Int("new_limit")
    is_manager_open = z3.Not(p.closed)
    can_grant = z3.And(is_open(p), z3.Not(p.is_full))
    can_take = z3.And(can_grant, p.queued == 0)
    expected: dict[str, Term] = {
        "take": can_take,
        "queue": z3.And(is_manager_open, z3.Not(can_take)),
        "grant": z3.And(can_grant, p.queued > 0),
        "release": p.held > 0,
        "reclaim": z3.And(p.held > 0, is_manager_open),
        "recycle": p.cooling > 0,
        "recycle_reclaimed": p.reclaimed > 0,
        "give_back": p.held > 0,
        "cancel": p.queued > 0,
        "timeout": p.queued > 0,
        "pause": True,
        "resume": p.paused,
        "close": True,
        "set_limit": z3.And(is_manager_open, limit >= 0),
        "remove_limit": z3.And(is_manager_open, limit >= -1),
    }
    for step, guard in expected.items():
        possible = z3.Or(*[path.condition for path in subject.of(step)])
        # A newcomer keeps its place also where somebody waits beside room, which never is; hence not only if settled.
        hypothesis = is_sound(p) if step in ("take", "grant") else is_settled(p)
        yield Obligation(step, hypothesis, possible == guard, p, p)


def sound(subject: Subject) -> Iterator[Obligation]:
    """Inductive."""
    new = name_point()
    yield Obligation("new", begins(new), is_settled(new), new, new)
    for path in subject.paths:
        yield from_sound(path, is_sound(path.after))


def grants(subject: Subject) -> Iterator[Obligation]:
    """Whatever step a grant is part of: the last one that it makes left in_flight at most at the limit."""
    z3 = load_z3()
    for path in subject.but("close", *_LEAVING):
        after = path.after
        granted = z3.Or(after.queued < path.before.queued, path.step in ("take", "grant"))
        allowed = z3.And(is_open(after), z3.Or(z3.Not(after.is_limited), after.in_flight <= after.limit))
        yield from_sound(path, z3.Implies(granted, allowed))


def bounded(subject: Subject) -> Iterator[Obligation]:
    """Inductive, with a mark beside the counts: in_flight when the limit was last changed."""
    z3 = load_z3()
    mark = z3.Int("mark")
    for path in subject.paths:
        before, after = path.before, path.after
        was_bounded = z3.Or(z3.Not(before.is_limited), before.in_flight <= largest(before.limit, mark))
        new_mark = before.in_flight if path.step in _RESIZES else mark
        bound = z3.Or(z3.Not(after.is_limited), after.in_flight <= largest(after.limit, new_mark))
        yield from_sound(path, bound, assume=was_bounded)


def shrinking(subject: Subject) -> Iterator[Obligation]:
    """in_flight' <= max(in_flight, limit'): at or above the limit, an old or a new one, it never rises."""
    z3 = load_z3()
    for path in subject.paths:
        after = path.after
        bound = z3.Implies(after.is_limited, after.in_flight <= largest(path.before.in_flight, after.limit))
        yield from_sound(path, bound)


def conservation(subject: Subject) -> Iterator[Obligation]:
    """A step makes one slot, ends one, or moves one; which, and between which counts, is all that it does."""
    z3 = load_z3()
    for path in subject.paths:
        before, after, step = path.before, path.after, path.step
        granted = after.held - before.held
        ends = z3.If(before.closed, 1, 0) if step == "release" else int(step in _ENDING)
        made = int(step in ("take", "queue"))
        moves: dict[str, Term] = {
            "release": z3.And(after.held == before.held - 1, after.cooling == before.cooling + 1 - ends),
            "reclaim": z3.And(after.held == before.held - 1, after.reclaimed == before.reclaimed + 1),
            "recycle": z3.And(granted >= 0, after.cooling == before.cooling - 1),
            "recycle_reclaimed": z3.And(granted >= 0, after.reclaimed == before.reclaimed - 1),
            "give_back": granted >= -1,
            "take": granted == 1,
            "grant": z3.And(granted == 1, after.queued == before.queued - 1),
            "queue": after.queued == before.queued + 1,
            "cancel": after.queued == before.queued - 1,
            "timeout": after.queued == before.queued - 1,
            "pause": granted == 0,
            "resume": granted >= 0,
            "set_limit": granted >= 0,
            "remove_limit": granted >= 0,
            "close": granted == 0,
        }
        total = after.live == (before.held if step == "close" else before.live + made - ends)
        others = z3.And(
            step in ("release", "recycle", "close") or after.cooling == before.cooling,
            step in ("reclaim", "recycle_reclaimed", "close") or after.reclaimed == before.reclaimed,
            step in _RESIZES or after.limit == before.limit,
        )
        yield from_sound(path, z3.And(total, moves[step], others))


def work_conservation(subject: Subject) -> Iterator[Obligation]:
    """Inductive; `grant` alone is a part of a step."""
    for path in subject.but("grant"):
        yield from_settled(path, is_at_rest(path.after))


def admission(subject: Subject) -> Iterator[Obligation]:
    """By induction over the queue: admitting is granting and then admitting where a grant is possible, else nothing."""
    z3 = load_z3()
    module = subject.module

    def grant_and_admit(counts: Counts) -> Counts:
        return cast("Counts", module.admit(module.grant(counts)))

    grant_and_admit.__doc__ = module.grant.__doc__  # its precondition
    loops = trace(grant_and_admit, module)
    for path in trace(module.admit, module):
        before, after = path.before, path.after
        can_grant = z3.And(is_open(before), z3.Not(before.is_full), before.queued > 0)
        same = [left == right for left, right in zip(before.terms(), after.terms(), strict=True)]
        yield Obligation("admit", path.condition, z3.Or(can_grant, z3.And(*same)), before, after)
        for loop in loops:
            same = [left == right for left, right in zip(loop.after.terms(), after.terms(), strict=True)]
            yield Obligation("admit", z3.And(path.condition, loop.condition), z3.And(*same), before, after)


def resizing(subject: Subject) -> Iterator[Obligation]:
    """As many are admitted as wait and find room, however far the limit was moved."""
    z3 = load_z3()
    for path in subject.of(*_RESIZES):
        before, after = path.before, path.after
        spare = largest(path.extra - before.in_flight, z3.IntVal(0))
        room = z3.If(z3.And(path.extra >= 0, spare < before.queued), spare, before.queued)
        yield from_settled(path, after.held - before.held == z3.If(before.paused, 0, room))
        yield from_settled(path, after.limit == path.extra)


def pausing(subject: Subject) -> Iterator[Obligation]:
    """Only a 429 begins a pause, only its end or close ends it; meanwhile nothing is granted and the rest goes on."""
    z3 = load_z3()
    for path in subject.but("pause", "resume", "close"):
        before, after = path.before, path.after
        unmoved = after.paused == before.paused
        yield from_sound(path, z3.And(unmoved, z3.Or(z3.Not(after.paused), after.held <= before.held)))
    for path in subject.of("pause", "resume"):
        yield from_sound(path, path.after.paused == z3.And(path.step == "pause", z3.Not(path.before.closed)))


def closing(subject: Subject) -> Iterator[Obligation]:
    """Terminal: nothing waits or is granted any more, and held slots only go."""
    z3 = load_z3()
    for path in subject.paths:
        before, after = path.before, path.after
        end = z3.And(after.closed, after.live == after.held, after.held <= before.held, z3.Not(after.paused))
        yield from_sound(path, z3.Implies(before.closed, end))
        yield from_sound(path, after.closed == z3.Or(before.closed, path.step == "close"))


def ranking(subject: Subject) -> Iterator[Obligation]:
    """While open, unpaused, limit >= 1 or none: falls with each step but a newcomer's; never below 0."""
    z3 = load_z3()
    for path in subject.of("grant", "release", "reclaim", *_ENDING):
        before, after = path.before, path.after
        falls = z3.And(rank(after) < rank(before), rank(after) >= 0)
        yield from_sound(path, falls, assume=z3.And(is_open(before), before.limit != 0))


def progress(subject: Subject) -> Iterator[Obligation]:
    """Who waits while open, unpaused and limit >= 1 waits for a slot in flight, whose next step lowers the rank."""
    z3 = load_z3()
    for path in subject.but("grant"):
        after = path.after
        waiting = z3.And(after.queued > 0, is_open(after), after.limit != 0)
        yield from_settled(path, z3.Implies(waiting, after.in_flight > 0))


THEOREMS: Final[Mapping[str, Theorem]] = MappingProxyType({theorem.name: theorem for theorem in (
    Theorem("guards", "a newcomer is granted iff open, room, nobody waits; each step has its guard (ADM-1)", guards),
    Theorem("soundness", "no count is ever negative; a closed manager has only held slots (ACC-1, CLO-1)", sound),
    Theorem("conservation", "besides admissions each step makes, moves or ends one slot (ACC-1, ACC-2)", conservation),
    Theorem("grants", "nothing is granted while paused, closed or in_flight >= limit (ADM-4)", grants),
    Theorem("bound", "in_flight <= max(limit, in_flight when the limit was last changed) (ADM-6)", bounded),
    Theorem("shrink law", "in_flight' <= max(in_flight, limit'), whatever the limit becomes (ADM-6, LIM-2)", shrinking),
    Theorem("work conservation", "at rest nobody waits beside room (ADM-5)", work_conservation),
    Theorem("admission", "the sum is the loop: admission steps until none is possible (ADM-2)", admission),
    Theorem("resizing", "a changed limit admits by spare room, evicts nobody (LIM-2, LIM-3)", resizing),
    Theorem("pausing", "only a 429 pauses, only its end or close ends it; no grants meanwhile (PAU-3, PAU-4)", pausing),
    Theorem("closing", "close is terminal (CLO-1, CLO-2)", closing),
    Theorem("ranking", "3 queued + 2 held + cooling + reclaimed falls with every step but a newcomer's", ranking),
    Theorem("progress", "who waits, waits for somebody in flight: the queue drains when arrivals stop", progress),
)})  # fmt: skip
