"""How a figure is taken: all cases of a family in one process, in rounds whose order rotates.

Neighbours on a shared machine move wall clocks by a factor; so a case counts the CPU time of its own thread, each
round gives one ratio, and the median of these ratios is the figure, with its quartiles. What needs the wall clock says
so in its row.
"""

from __future__ import annotations

import asyncio
import functools
import gc
import statistics
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, TypeVar

T = TypeVar("T")

_WARM_UP_PART = 10
"""The first, uncounted round has a tenth of the size."""


@dataclass(frozen=True, slots=True)
class Case:
    """Something that is measured: `run(size)` does its work, checks it, and returns the cost in its row's unit."""

    name: str
    run: Callable[[int], float]
    size: int
    quick_size: int
    needs: tuple[str, ...] = ()
    """The modules without which it can't run."""
    is_warmed: bool = True
    """Whether it is run once, small, before the first round; not worth it where one run is long or exact."""

    def missing(self) -> list[str]:
        """Those of its modules that aren't there."""
        return [module for module in self.needs if not _has_module(module)]


@dataclass(frozen=True, slots=True)
class Quartiles:
    """The middle of a sample: a quarter of it is below `low`, a quarter above `high`."""

    low: float
    median: float
    high: float

    @classmethod
    def of(cls, sample: Sequence[float]) -> Quartiles:
        """The quartiles of a sample, which has at least one value; of one value all three are it."""
        if len(sample) == 1:
            return cls(sample[0], sample[0], sample[0])
        low, median, high = statistics.quantiles(sample, n=4, method="inclusive")
        return cls(low, median, high)


def rotate(items: Sequence[T], number: int) -> list[T]:
    """The items in their order, beginning with another one in each round, so that none always comes after the same."""
    start = number % len(items) if items else 0
    return [*items[start:], *items[:start]]


def measure(cases: Sequence[Case], rounds: int, *, quick: bool = False) -> dict[Case, list[float]]:
    """Runs every case once per round; the n-th values of all cases belong to the same round."""
    sizes = {case: case.quick_size if quick else case.size for case in cases}
    samples: dict[Case, list[float]] = {case: [] for case in cases}
    for case in cases:
        if case.is_warmed:
            case.run(max(1, sizes[case] // _WARM_UP_PART))
    gc.collect()
    gc.freeze()  # what stood before isn't scanned again with each collection that a case causes
    try:
        for number in range(rounds):
            for case in rotate(cases, number):
                gc.collect()
                samples[case].append(case.run(sizes[case]))
    finally:
        gc.unfreeze()
    return samples


def compare(
    figure: Callable[[float, float], float], samples: Mapping[Case, Sequence[float]], ours: Case, peer: Case | None
) -> Quartiles:
    """The figure of each round, then its quartiles; without a peer the figure is made of ours alone."""
    others = samples[peer] if peer is not None else samples[ours]
    return Quartiles.of([figure(mine, other) for mine, other in zip(samples[ours], others, strict=True)])


def on_asyncio(body: Callable[..., Coroutine[Any, Any, float]]) -> Callable[..., float]:
    """Makes a case's `run` of a coroutine function: each run has a loop of its own."""

    @functools.wraps(body)
    def run(*args: Any, **kwargs: Any) -> float:
        return asyncio.run(body(*args, **kwargs))

    return run


@functools.cache
def _has_module(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except ModuleNotFoundError:  # not even the package that it would be in
        return False
