"""SPIN checks the Promela twin and counts its states; the same must be counted in the whole-system model.

Two texts were written from the same rules, one in Python and one in Promela (`tickets`, `twin.pml`), and are explored
by programs that have nothing in common. They must agree on the number of states and of transitions (SPIN counts the
start as one more), on each single transition, and on who may starve: the youngest prompt where the oldest goes first,
which ORD-3 allows, and nobody where all are equally old. And no assertion of the twin may fail.

Equal numbers alone would show little: a cancel that does nothing leaves them all as they are. So the verifier prints
each transition that it takes, and the two graphs are compared edge by edge.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Final

from provider_concurrency_model.check.proof import Outcome, Result, Stopwatch, Texts
from provider_concurrency_model.tickets import PHASES, Bound, Tickets, enumerate_tickets, find_starvation

_TIMEOUT_S: Final = 300
"""For one tool, which needs a few seconds where nothing else runs."""
_STORED: Final = re.compile(r"^\s*(\d+) states, stored", re.MULTILINE)
_TRANSITIONS: Final = re.compile(r"^\s*(\d+) transitions \(=", re.MULTILINE)
_ERRORS: Final = re.compile(r"errors: (\d+)")
_FAULT: Final = re.compile(r"pan:\d+: (.*)$", re.MULTILINE)


class SpinError(RuntimeError):
    """SPIN, the compiler or the verifier couldn't do their work."""


@dataclass(frozen=True, slots=True)
class Verified:
    """What a verifier made by SPIN says."""

    states: int
    transitions: int
    """With the start, as SPIN counts."""
    errors: int
    fault: str = ""
    """The first thing that is wrong, in SPIN's words; empty if nothing is."""
    edges: frozenset[str] = frozenset()
    """Each transition that was taken, as printed; none where a lasso was looked for."""


@dataclass(frozen=True, slots=True)
class Question:
    """Something that both must answer alike."""

    says: str
    bounds: tuple[Bound, ...]
    answer: Callable[[str, Bound], tuple[Outcome, str]]
    """From the twin's text and a bound: the outcome, and both answers side by side."""


# -- the questions ---------------------------------------------------------------------------------------------------


@cache
def draw_edges(bound: Bound) -> tuple[int, frozenset[str]]:
    """The number of states of the whole-system model, and its transitions as the twin prints them."""
    graph = enumerate_tickets(bound)
    shown = {tickets: show(tickets) for tickets in graph}
    edges = [
        f"{shown[source]} | {name} {about} | {shown[target]}"
        for source, exits in graph.items()
        for (name, about), target in exits
    ]
    assert len(set(edges)) == len(edges), "two transitions look alike"
    return len(graph), frozenset(edges)


def show(tickets: Tickets) -> str:
    """A state as the twin prints it: each phase with a place of the queue, then limit, paused, closed."""
    queue = (*tickets.queue, *[0] * len(tickets.phases))
    phases = " ".join(f"{PHASES.index(phase)}.{queue[place]}" for place, phase in enumerate(tickets.phases))
    return f"{phases} {tickets.limit} {tickets.paused:d} {tickets.closed:d}"


def compare_graphs(twin: str, bound: Bound) -> tuple[Outcome, str]:
    """As many states here as there, the same transitions, and no assertion fails."""
    found = verify(twin, bound)
    states, edges = draw_edges(bound)
    detail = f"SPIN {found.states}/{found.transitions}, model {states}/{len(edges)} states/transitions"
    if found.errors:
        return "refuted", f"{detail}; {found.fault}"
    if found.edges != edges:
        ours, theirs = sorted(edges - found.edges)[:1], sorted(found.edges - edges)[:1]
        return "refuted", f"{detail}; only SPIN: {theirs}, only the model: {ours}"
    if (found.states, found.transitions) != (states, len(edges) + 1):
        return "refuted", detail
    return "agrees", detail


def find_lasso(twin: str, bound: Bound) -> tuple[Outcome, str]:
    """Both find that the youngest can wait for ever."""
    found = verify(twin, bound, starves=True)
    lasso = find_starvation(enumerate_tickets(bound))
    if found.errors and "acceptance cycle" in found.fault and lasso is not None:
        return "agrees", str(lasso)
    return "refuted", f"SPIN {found.errors} lasso, model {lasso}"


def find_no_lasso(twin: str, bound: Bound) -> tuple[Outcome, str]:
    """Both find that nobody waits for ever."""
    found = verify(twin, bound, starves=True)
    lasso = find_starvation(enumerate_tickets(bound))
    if not found.errors and lasso is None:
        return "agrees", f"no lasso: SPIN {found.states} states of the product, model none"
    return "refuted", f"SPIN {found.errors} lasso ({found.fault}), model {lasso}"


QUESTIONS: Final[Mapping[str, Question]] = MappingProxyType(
    {
        "states": Question(
            "the Promela twin and the model have the same graph (ADM-1..6, CAN-1, REL-1, PAU-4, WAT-1)",
            (Bound(3, 2), Bound(4, 2), Bound(5, 2), Bound(6, 3), Bound(4, 2, is_fifo=True)),
            compare_graphs,
        ),
        "states in detail": Question(
            "the same with timeouts, grants on their way, changes of the limit, close (CAN-2, CAN-3, LIM-2, CLO-1)",
            (Bound(2, 1, is_detailed=True), Bound(3, 1, is_fifo=True, is_detailed=True), Bound(3, 2, is_detailed=True)),
            compare_graphs,
        ),
        "starvation": Question(
            "not guaranteed: the youngest may wait for ever while older ones come and go (ORD-3)",
            (Bound(3, 1),),
            find_lasso,
        ),
        "no starvation": Question(
            "where all prompts are equally old, nobody waits for ever (ORD-1)",
            (Bound(3, 2, is_fifo=True),),
            find_no_lasso,
        ),
    }
)


def compare_twin(texts: Texts, names: tuple[str, ...] = tuple(QUESTIONS)) -> Iterator[Result]:
    """Puts the questions of these names for each of their bounds; a fault must show at the first."""
    for name in names:
        question = QUESTIONS[name]
        for bound in question.bounds if texts.fault is None else question.bounds[:1]:
            watch = Stopwatch()
            try:
                outcome, detail = question.answer(texts.twin, bound)
            except SpinError as error:
                outcome, detail = "unknown", str(error)
            yield Result(f"{name}: {bound}", "spin", outcome, watch.seconds(), question.says, detail)


# -- SPIN ------------------------------------------------------------------------------------------------------------


def missing_tool() -> str | None:
    """Why SPIN can't be asked."""
    for tool, package in (("spin", "spin"), ("gcc", "gcc")):
        if shutil.which(tool) is None:
            return f"{tool} isn't installed: apt-get install {package}"
    return None


def verify(twin: str, bound: Bound, *, starves: bool = False) -> Verified:
    """Makes a verifier of the twin within a bound, and runs it; raises SpinError."""
    sizes = {"N": bound.requests, "LIMIT": bound.limit, "FIFO": int(bound.is_fifo), "DETAILED": int(bound.is_detailed)}
    macros = [f"-D{name}={value}" for name, value in sizes.items()] + ["-DSTARVES"] * starves
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "twin.pml").write_text(twin, encoding="utf-8")
        call(folder, "spin", "-a", *macros, "twin.pml")
        # Without partial order reduction: it would leave out states, and they are to be counted. Not optimized: the
        # compiler takes longer than the verifier.
        flags = ["-w", "-O0", "-DNOREDUCE"] + ([] if starves else ["-DSAFETY", "-DPRINTF"])
        call(folder, "gcc", *flags, "-o", "pan", "pan.c")
        return read_verdict(call(folder, "./pan", "-m1000000", *(["-a"] if starves else [])))


def call(folder: str, *command: str) -> str:
    """Runs one tool and returns what it says; it must end by itself and well."""
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired:
        raise SpinError(f"timeout: {command[0]} after {_TIMEOUT_S} s") from None
    if done.returncode:
        raise SpinError(f"{command[0]} ended with {done.returncode}: {(done.stderr or done.stdout).strip()[-300:]}")
    return done.stdout


def read_verdict(report: str) -> Verified:
    """Reads what `pan` prints; raises SpinError for a search that didn't reach its end."""
    stored, transitions, errors = (found.search(report) for found in (_STORED, _TRANSITIONS, _ERRORS))
    if not (stored and transitions and errors):
        raise SpinError(f"no verdict: {report.strip()[-300:]}")
    if "max search depth too small" in report or "out of memory" in report:
        raise SpinError("the search wasn't exhaustive: not deep enough, or out of memory")
    fault = _FAULT.search(report)
    edges = frozenset(line for line in report.splitlines() if line.count(" | ") == 2)
    return Verified(int(stored[1]), int(transitions[1]), int(errors[1]), fault[1] if fault else "", edges)
