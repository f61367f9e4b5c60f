"""Runs the kernel's own functions on z3's integers, so that what is proved is the code itself and no copy of it.

A function is called again and again with symbolic counts. Where it asks whether something is so, the answer is chosen:
first yes, in a later run no, as long as the choices so far leave it possible. Each run ends in a path: the condition
under which the function goes this way, and what it returns then. The paths of a function are its transition relation.
Its precondition is read from the contract that CrossHair checks, and is simply asked first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Any, TypeAlias, cast

from provider_concurrency_model.kernel import Counts

Term: TypeAlias = Any
"""An expression of z3, which has no types to tell."""

_COUNTS = ("limit", "held", "cooling", "reclaimed", "queued")
_FLAGS = ("paused", "closed")


@cache
def load_z3() -> Any:
    """The module `z3`, untyped as it is; raises ModuleNotFoundError without the extra `prove`."""
    return import_module("z3")


class UndecidedError(RuntimeError):
    """z3 couldn't say whether a path is possible."""


class Oracle:
    """Answers a run's questions: as it is told, then yes if that is possible, and notes what else is."""

    def __init__(self, answers: tuple[bool, ...]) -> None:
        """For one run."""
        self.answers = answers
        self.given: tuple[bool, ...] = ()
        self.conditions: list[Term] = []
        self.untried: list[tuple[bool, ...]] = []
        """Beginnings of other runs."""
        self.solver = load_z3().Solver()
        self.solver.set("timeout", 10_000)

    def ask(self, question: Term) -> bool:
        """Chooses an answer and remembers it as a condition of this path."""
        if len(self.given) < len(self.answers):
            answer = self.answers[len(self.given)]
        else:
            answer = self.is_possible(question)
            if answer and self.is_possible(load_z3().Not(question)):
                self.untried.append((*self.given, False))
        self.given = (*self.given, answer)
        self.conditions.append(question if answer else load_z3().Not(question))
        self.solver.add(self.conditions[-1])
        return answer

    def is_possible(self, question: Term) -> bool:
        """Whether the answers so far leave it possible."""
        found = self.solver.check(question)
        if found == load_z3().unknown:
            raise UndecidedError(str(question))
        return bool(found == load_z3().sat)


class Truth:
    """A symbolic bool: asking for its truth chooses a path."""

    def __init__(self, oracle: Oracle, term: Term) -> None:
        """An expression of sort Bool."""
        self.oracle = oracle
        self.term = term

    def __bool__(self) -> bool:
        return self.oracle.ask(self.term)

    def __eq__(self, other: object) -> Any:
        return Truth(self.oracle, self.term == term_of(other))

    __hash__ = None  # type: ignore[assignment]  # an expression is equal to nothing yet


class Integer:
    """A symbolic int, with what the kernel does to ints."""

    def __init__(self, oracle: Oracle, term: Term) -> None:
        """An expression of sort Int."""
        self.oracle = oracle
        self.term = term

    def __add__(self, other: object) -> Integer:
        return Integer(self.oracle, self.term + term_of(other))

    def __sub__(self, other: object) -> Integer:
        return Integer(self.oracle, self.term - term_of(other))

    def __rmul__(self, other: object) -> Integer:
        return Integer(self.oracle, self.term * term_of(other))

    def __lt__(self, other: object) -> Truth:
        return Truth(self.oracle, self.term < term_of(other))

    def __le__(self, other: object) -> Truth:
        return Truth(self.oracle, self.term <= term_of(other))

    def __gt__(self, other: object) -> Truth:
        return Truth(self.oracle, self.term > term_of(other))

    def __ge__(self, other: object) -> Truth:
        return Truth(self.oracle, self.term >= term_of(other))

    def __eq__(self, other: object) -> Any:
        return Truth(self.oracle, self.term == term_of(other))

    __hash__ = None  # type: ignore[assignment]  # an expression is equal to nothing yet


def term_of(value: object) -> Term:
    """The expression of a symbolic value; a plain one is its own."""
    return value.term if isinstance(value, Integer | Truth) else value


@dataclass(frozen=True, slots=True)
class Point:
    """Counts as z3's expressions, with the words in which theorems speak of them."""

    limit: Term
    held: Term
    cooling: Term
    reclaimed: Term
    queued: Term
    paused: Term
    closed: Term

    @property
    def in_flight(self) -> Term:
        """Said again here, and not by the kernel's function: a theorem must not share its subject's mistake."""
        return self.held + self.cooling + self.reclaimed

    @property
    def live(self) -> Term:
        """All slots that haven't ended."""
        return self.in_flight + self.queued

    @property
    def is_limited(self) -> Term:
        """Whether a limit is in force."""
        return self.limit >= 0

    @property
    def is_full(self) -> Term:
        """No room."""
        return load_z3().And(self.limit >= 0, self.in_flight >= self.limit)

    def terms(self) -> list[Term]:
        """All fields in order."""
        return [getattr(self, field.name) for field in fields(self)]


@dataclass(frozen=True, slots=True)
class Path:
    """One way through a function: where it begins, under which condition, and where it ends."""

    step: str
    before: Point
    extra: Term
    """The new limit, for a function that is told one; else None."""
    condition: Term
    after: Point


def name_point(suffix: str = "") -> Point:
    """Counts about which nothing is known."""
    z3 = load_z3()
    return Point(*[z3.Int(name + suffix) for name in _COUNTS], *[z3.Bool(name + suffix) for name in _FLAGS])


INVARIANTS = ("is_sound(counts)", "is_settled(counts)")
"""The `pre` lines that say nothing about when a step is made, only what was so all the time."""


def trace_all(module: ModuleType, *, is_assuming: bool = True) -> list[Path]:
    """The transition relation: every path of every step."""
    paths = [path for step in module.STEPS.values() for path in trace(step, module, is_assuming=is_assuming)]
    resizes = module.RESIZES.values()
    return paths + [path for step in resizes for path in trace(step, module, is_assuming=is_assuming)]


def trace(step: Callable[..., Counts], module: ModuleType, *, is_assuming: bool = True) -> list[Path]:
    """All paths of one of the kernel's functions within its precondition, on request without the invariants in it."""
    z3 = load_z3()
    before = name_point()
    extra = z3.Int("new_limit") if step.__code__.co_argcount > 1 else None
    guards = [line for line in preconditions(step) if is_assuming or line not in INVARIANTS]
    paths: list[Path] = []
    untried: list[tuple[bool, ...]] = [()]
    while untried:
        oracle = Oracle(untried.pop())
        arguments = [lift(oracle, before)] if extra is None else [lift(oracle, before), Integer(oracle, extra)]
        after = step(*arguments) if are_met(guards, step, module, arguments) else None
        untried += oracle.untried
        if after is not None:
            paths.append(Path(step.__name__, before, extra, z3.And(*oracle.conditions), lower(after)))
    return paths


def lift(oracle: Oracle, point: Point) -> Counts:
    """Counts for the kernel that look like ints and bools to it."""
    numbers = {name: Integer(oracle, getattr(point, name)) for name in _COUNTS}
    flags = {name: Truth(oracle, getattr(point, name)) for name in _FLAGS}
    make = cast("Callable[..., Counts]", Counts)
    return make(**numbers, **flags)


def lower(counts: Counts) -> Point:
    """What the kernel made of them as expressions."""
    z3 = load_z3()
    numbers = [term_of(getattr(counts, name)) for name in _COUNTS]
    flags = [term_of(getattr(counts, name)) for name in _FLAGS]
    return Point(
        *[z3.IntVal(term) if isinstance(term, int) else term for term in numbers],
        *[z3.BoolVal(term) if isinstance(term, bool) else term for term in flags],
    )


def are_met(guards: list[str], step: Callable[..., Counts], module: ModuleType, arguments: list[Any]) -> bool:
    """Asks lines of the contract, with the names that the function gives its arguments."""
    names = dict(zip(step.__code__.co_varnames, arguments, strict=False))
    return all(bool(eval(line, module.__dict__, names)) for line in guards)


def preconditions(step: Callable[..., object]) -> Iterator[str]:
    """The `pre` lines of a contract."""
    for line in (step.__doc__ or "").splitlines():
        head, _, expression = line.strip().partition("pre: ")
        if not head and expression:
            yield expression
