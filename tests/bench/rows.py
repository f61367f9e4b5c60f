"""What a row of the table is: two cases, how they are compared, and what is demanded of the result."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from .measure import Case, Quartiles, compare, measure

Mark: TypeAlias = Literal["goal", "done", "MISS", ""]
Clock: TypeAlias = Literal["CPU", "wall", "bytes"]


@dataclass(frozen=True, slots=True)
class Figure:
    """How ours and the peer's cost become the one number that is judged."""

    name: str
    of: Callable[[float, float], float]
    is_less_better: bool
    unit: str


RATIO: Final = Figure("ours / peer", lambda ours, peer: ours / peer, is_less_better=True, unit="x")
SPEEDUP: Final = Figure("peer / ours", lambda ours, peer: peer / ours, is_less_better=False, unit="x")
EXCESS: Final = Figure("ours - peer", lambda ours, peer: ours - peer, is_less_better=True, unit="")
COST: Final = Figure("ours", lambda ours, _: ours, is_less_better=True, unit="")
YIELD: Final = Figure("ours", lambda ours, _: ours, is_less_better=False, unit="")


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table; without a goal it is there for scale only."""

    id: str
    what: str
    ours: Case
    peer: Case | None = None
    figure: Figure = RATIO
    goal: float | None = None
    done_at: float | None = None
    unit: str = "ns"
    """Of ours and the peer's figure."""
    clock: Clock = "CPU"
    depends_on_size: bool = False
    """Whether a quick run, which is smaller, can't be judged."""
    note: str = ""

    def cases(self) -> list[Case]:
        """Ours, and the peer if there is one."""
        return [self.ours] if self.peer is None else [self.ours, self.peer]

    def judge(self, median: float, *, quick: bool = False) -> Mark:
        """What a median earns: "goal", "done" (the least that counts), "MISS"; nothing where nothing is demanded."""
        if self.goal is None or self.done_at is None or (quick and self.depends_on_size):
            return ""
        sign = 1 if self.figure.is_less_better else -1
        if sign * median <= sign * self.goal:
            return "goal"
        return "done" if sign * median <= sign * self.done_at else "MISS"


@dataclass(frozen=True, slots=True)
class Family:
    """Rows whose cases are measured together, interleaved."""

    name: str
    rows: tuple[Row, ...]
    rounds: int
    quick_rounds: int


@dataclass(frozen=True, slots=True)
class Result:
    """A row with its figures; all None and `missing` told if a module isn't there."""

    row: Row
    rounds: int
    ours: Quartiles | None
    peer: Quartiles | None
    figure: Quartiles | None
    mark: Mark
    missing: tuple[str, ...] = ()


def run_family(family: Family, *, quick: bool = False, only: Iterable[str] = ()) -> list[Result]:
    """Measures a family's rows; of `only` these ids, if any are given."""
    wanted = set(only)
    rows = [row for row in family.rows if not wanted or row.id in wanted]
    ready = [row for row in rows if not missing_of(row)]
    rounds = family.quick_rounds if quick else family.rounds
    cases = list(dict.fromkeys(case for row in ready for case in row.cases()))
    samples = measure(cases, rounds, quick=quick)
    return [
        conclude(row, rounds, samples, quick=quick) if row in ready else Result(row, 0, None, None, None, "", lacks)
        for row in rows
        for lacks in [missing_of(row)]
    ]


def missing_of(row: Row) -> tuple[str, ...]:
    """The modules that a row lacks."""
    return tuple(dict.fromkeys(module for case in row.cases() for module in case.missing()))


def conclude(row: Row, rounds: int, samples: Mapping[Case, Sequence[float]], *, quick: bool = False) -> Result:
    """A row's result from the samples of its cases."""
    figure = compare(row.figure.of, samples, row.ours, row.peer)
    return Result(
        row=row,
        rounds=rounds,
        ours=Quartiles.of(samples[row.ours]),
        peer=Quartiles.of(samples[row.peer]) if row.peer is not None else None,
        figure=figure,
        mark=row.judge(figure.median, quick=quick),
    )
