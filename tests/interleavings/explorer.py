"""Runs a program under every schedule that an event loop could choose, within a bound.

asyncio promises only that what is ready runs some time; that it runs first in, first out is habit. `PermutedLoop`
asks, whenever several handles are ready, which one is next. A schedule is the list of those answers (0: the oldest);
an answer other than 0 is a preemption. Schedules are enumerated without repetition: each is made from a shorter one
by one more preemption behind its last.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from provider_concurrency.testing import VirtualLoop

Program = Callable[["PermutedLoop"], None]
"""Runs to its end on the loop it is given, and raises AssertionError when something is wrong."""


@dataclass(slots=True)
class Schedule:
    """The answers given, and how many handles were ready each time."""

    answers: list[int] = field(default_factory=list)
    ready: list[int] = field(default_factory=list)

    @property
    def preemptions(self) -> int:
        """How often another handle than the oldest was chosen."""
        return sum(answer > 0 for answer in self.answers)


class PermutedLoop(VirtualLoop):
    """A virtual loop that runs one handle a turn and asks `choose(n)` which of n ready ones."""

    def __init__(self, choose: Callable[[int], int]) -> None:
        """`choose` is asked only where there is a choice."""
        super().__init__()
        self._choose = choose

    def _turn(self) -> None:
        self._collect_due()
        if not self._ready:
            return
        index = self._choose(len(self._ready)) if len(self._ready) > 1 else 0
        handle = self._ready[index]
        del self._ready[index]
        if not handle.cancelled():
            handle._run()


class Failure(AssertionError):  # noqa: N818 - a finding, not an error of the explorer
    """A program failed under a schedule."""

    def __init__(self, schedule: Schedule, cause: BaseException) -> None:
        """Keeps the schedule: it replays the failure."""
        super().__init__(f"{cause} under schedule {schedule.answers}")
        self.schedule = schedule


def run(program: Program, answers: list[int]) -> Schedule:
    """Runs a program once: with the answers given, then the oldest first. Raises Failure."""
    schedule = Schedule()

    def choose(ready: int) -> int:
        place = len(schedule.answers)
        answer = answers[place] if place < len(answers) else 0
        schedule.answers.append(answer)
        schedule.ready.append(ready)
        return answer

    return _run(program, choose, schedule)


def run_random(program: Program, seed: int) -> Schedule:
    """Runs a program once under a schedule drawn from a seed. Raises Failure."""
    draw = random.Random(seed)
    schedule = Schedule()

    def choose(ready: int) -> int:
        schedule.answers.append(draw.randrange(ready))
        schedule.ready.append(ready)
        return schedule.answers[-1]

    return _run(program, choose, schedule)


def _run(program: Program, choose: Callable[[int], int], schedule: Schedule) -> Schedule:
    loop = PermutedLoop(choose)
    try:
        program(loop)
    except Exception as error:
        raise Failure(schedule, error) from error
    finally:
        loop.close()
    return schedule


def explore(program: Program, preemptions: int | None = None) -> Iterator[Schedule]:
    """Every schedule with at most so many preemptions (None: every schedule there is), each once. Raises Failure."""
    open_prefixes: list[list[int]] = [[]]
    while open_prefixes:
        prefix = open_prefixes.pop()
        schedule = run(program, prefix)
        yield schedule
        if preemptions is None or schedule.preemptions < preemptions:
            for place in range(len(prefix), len(schedule.answers)):
                head = schedule.answers[:place]
                open_prefixes.extend([*head, answer] for answer in range(1, schedule.ready[place]))
