"""What is claimed of the packaged manager, how strongly, what shows it; and what isn't claimed.

The one place: the table in SPEC.md is generated from it, and `check` prints it with what its own run adds.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from provider_concurrency_model.check.subject import DEFAULT_SUBJECT
from provider_concurrency_model.check.verdict import RunReport, Verdict
from provider_concurrency_model.levels import LEVELS
from provider_concurrency_spec.vocabulary import Json

Strength: TypeAlias = Literal["proved for all N", "exhausted within bound", "sampled", "decided", "tested by example"]
"""From strong to weak, but for `decided`: of these very things it is known, and nothing follows for others."""


@dataclass(frozen=True, slots=True)
class Claim:
    """One line of the table."""

    says: str
    strength: Strength
    of: str
    """What the strength holds of: the object of a proof, the bound, what was decided; may be empty."""
    command: str
    """What shows it; empty: the tests that the table lists."""
    levels: tuple[str, ...] = ()
    """The levels of `check` that show it; such a claim is made of any subject, the others of the packaged manager."""

    @property
    def how_strong(self) -> str:
        """Strength and what it holds of."""
        return f"{self.strength}: {self.of}" if self.of else self.strength


_NESTED: Final = ("nested", "nested-raise")
"""Apart, since a port may lack the feature that they need."""

CLAIMS: Final = (
    Claim(
        "It behaves as every scenario of the specification says, on virtual time",
        "decided", "these runs", "provider-concurrency check --level scenarios", ("scenarios",),
    ),
    Claim(
        "It equals the model on every edge of the explored graphs: settled, bursts of two, digital clocks, a blocked "
        "loop, resizing, two providers",
        "exhausted within bound", "as the report prints", "provider-concurrency check",
        tuple(level for level in LEVELS if level not in _NESTED),
    ),
    Claim(
        "It equals the model on every edge of the graphs of conversations that nest and wait for themselves or are "
        "refused",
        "exhausted within bound", "as the report prints", "provider-concurrency check --level nested,nested-raise",
        _NESTED,
    ),
    Claim(
        "It equals the model, and obeys the invariants, on random runs of many providers, odd values and nested "
        "callbacks",
        "sampled", "", "provider-concurrency check --level random", ("random",),
    ),
    Claim(
        "The limit, conservation, work conservation, the shrink law and the drain of the queue hold for any number of "
        "requests and any limit",
        "proved for all N", "the counter kernel", "provider-concurrency prove",
    ),
    Claim(
        "The model's counters are the kernel's on every explored edge",
        "exhausted within bound", "the same", "pytest tests/test_kernel.py",
    ),
    Claim(
        "A second model checker finds the same states, transitions and verdicts",
        "exhausted within bound", "ten bounds", "provider-concurrency prove --engine spin",
    ),
    Claim(
        "The invariants hold on random runs, and every request ends exactly once",
        "sampled", "", "pytest tests/test_stateful.py",
    ),
    Claim(
        "Cancelled at every step of the event loop, in every scenario with a waiter, nothing is lost and nothing "
        "counted twice",
        "exhausted within bound", "the scenarios", "pytest tests/test_cancellation.py",
    ),
    Claim(
        "Small programs keep the rules under every order of the loop's ready queue with at most two preemptions",
        "exhausted within bound", "the programs; larger orders sampled", "python tests/interleavings/run.py",
    ),
    Claim(
        "The blocking manager does the same on every level, with threads that wait, but that nobody cancels them",
        "exhausted within bound", "as the report prints",
        "provider-concurrency check --subject provider_concurrency.threading_port:Port",
    ),
    Claim(
        "Concurrent histories of the blocking manager, three threads with three calls each, are linearizable",
        "sampled", "", "pytest tests/test_linearizability.py",
    ),
    Claim(
        "On the real loop and clock, under load, no rule is broken and no timer is left",
        "sampled", "", "provider-concurrency soak",
    ),
    Claim(
        "A given log obeyed the rules",
        "decided", "this log", "provider-concurrency trace FILE",
    ),
    Claim(
        "The lifecycle tables, the state machine built from them and the diagrams are the same",
        "decided", "all pairs", "pytest tests/test_lifecycle.py",
    ),
    Claim(
        'What the table "Rules that protocol 1 can\'t show" lists',
        "tested by example", "", "",
    ),
    Claim(
        "The checker bites: each planted fault is caught by the layer that is said to catch it",
        "decided", "the zoo", "python tests/mutants/run.py",
    ),
    Claim(
        "A port in another language conforms",
        "exhausted within bound", "on its virtual clock", "provider-concurrency check -- COMMAND",
    ),
    Claim(
        "On a clock of its own it keeps the scenarios that real time can show: never early, late within a window",
        "decided", "these runs", "provider-concurrency check --level realtime -- COMMAND", ("realtime",),
    ),
)  # fmt: skip

NOT_CLAIMED: Final = (
    "freedom from starvation under endless older prompts (ORD-3)",
    "that the upstream stays within the limit after a reclaim (WAT-5: the old request may still run)",
    "anything finer than a tick",
    "the parsing of HTTP headers beyond the tests",
    "what CrossHair's model of Python leaves out",
    "anything beyond the bounds that a report prints",
    "free-threaded builds",
)


def draw_claims() -> str:
    """The block of SPEC.md."""
    lines = ["| claim | strength | shown by |", "|---|---|---|"]
    for claim in CLAIMS:
        command = f"`{claim.command}`" if claim.command else TESTS
        lines.append(f"| {claim.says} | {claim.how_strong} | {command} |")
    return "\n".join([*lines, "", f"Not claimed: {'; '.join(NOT_CLAIMED)}."])


TESTS: Final = "the tests named there"


# -- in the report of a run ------------------------------------------------------------------------------------------


def claims_of(report: RunReport) -> tuple[tuple[Claim, str], ...]:
    """The claims that concern the run's subject, and what shows each: this run, or what is to be run for it."""
    is_packaged = report.subject == DEFAULT_SUBJECT
    return tuple((claim, _shown_by(claim, report)) for claim in CLAIMS if is_packaged or claim.levels)


def _shown_by(claim: Claim, report: RunReport) -> str:
    verdicts = [level.verdict for level in report.levels if level.level in claim.levels]
    if Verdict.COUNTEREXAMPLE in verdicts:
        return "refuted by this run"
    if claim.levels and verdicts == [Verdict.CONFORMS] * len(claim.levels):
        return "shown by this run"
    return f"not by this run: {claim.command or TESTS}"


def tell_claims(report: RunReport) -> Iterator[str]:
    """The table in lines: claim, strength, evidence; then what isn't claimed."""
    for claim, shown in claims_of(report):
        yield f"claim: {claim.says} ({claim.how_strong}): {shown}"
    yield from (f"not claimed: {item}" for item in NOT_CLAIMED)


def claims_to_json(report: RunReport) -> list[Json]:
    """The same as data."""
    return [
        {"claim": claim.says, "strength": claim.strength, "of": claim.of, "shown": shown}
        for claim, shown in claims_of(report)
    ]
