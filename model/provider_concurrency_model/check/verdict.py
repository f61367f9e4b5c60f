"""What a run of the judge found, as data: one `LevelReport` a level, one `RunReport` for all of them.

Undetermined is a verdict of its own and never a pass: a level that asked nothing, or stopped before its bounds were
exhausted, says so.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final, Literal, TypeAlias

from provider_concurrency_model.check.counterexample import Counterexample, counterexample_to_json
from provider_concurrency_model.check.subject import Hello
from provider_concurrency_spec.vocabulary import PROTOCOL, SPEC_VERSION, Json

Strength: TypeAlias = Literal["examples", "exhausted", "sampled"]


class Verdict(IntEnum):
    """The exit codes of the command."""

    CONFORMS = 0
    COUNTEREXAMPLE = 1
    HARNESS_ERROR = 2
    UNDETERMINED = 3


@dataclass(slots=True)
class LevelReport:
    """One level's counts. It is filled while the level runs."""

    level: str
    strength: Strength
    bounds: str
    """What the level ranges over, in one line."""
    cases: int = 0
    """Scenarios, walks or runs driven to their end or to a difference."""
    failed: int = 0
    skipped: Counter[str] = field(default_factory=Counter[str])
    """Cases not asked, by the features that the subject lacks."""
    commands: int = 0
    """Replies compared."""
    states: int | None = None
    edges: int | None = None
    edges_driven: int | None = None
    witnesses: dict[str, bool] = field(default_factory=dict[str, bool])
    """The `sometimes` properties: is each interesting state reached?"""
    seconds: float = 0.0
    counterexamples: list[Counterexample] = field(default_factory=list[Counterexample])
    undetermined: str | None = None
    """Why the level can't be called passed though nothing differed."""
    notes: list[str] = field(default_factory=list[str])

    @property
    def verdict(self) -> Verdict:
        """Of this level alone."""
        if self.failed:
            return Verdict.COUNTEREXAMPLE
        if self.undetermined is not None or not self.cases:
            return Verdict.UNDETERMINED
        return Verdict.CONFORMS

    @property
    def coverage(self) -> str:
        """Edges driven of all edges; nothing where a level has no graph."""
        if self.edges is None or self.edges_driven is None:
            return ""
        share = 100.0 * self.edges_driven / self.edges if self.edges else 100.0
        # 99.96 % must not be printed as 100 %.
        text = "100" if self.edges_driven == self.edges else f"{min(share, 99.9):.1f}"
        return f"{self.edges_driven}/{self.edges} ({text} %)"


NOT_CHECKED: Final = (
    "beyond the bounds of each level (more requests, providers or steps than named)",
    "what protocol 1 can't show: TIM-1's clock source, delays and memory, WAT-5, LOP, THR, FIN, FRK, CAL-4 "
    "(SPEC.md names the test for each)",
    "the order of events between two providers (none is promised)",
)


@dataclass(slots=True)
class RunReport:
    """A whole run of `check`."""

    subject: str
    hello: Hello
    seed: int
    levels: list[LevelReport] = field(default_factory=list[LevelReport])
    not_run: tuple[str, ...] = ()
    saved: list[str] = field(default_factory=list[str])
    seconds: float = 0.0
    """Of the whole run; levels may run side by side."""

    @property
    def verdict(self) -> Verdict:
        """A counterexample outweighs everything; a level without a verdict outweighs those that passed."""
        verdicts = {level.verdict for level in self.levels}
        if Verdict.COUNTEREXAMPLE in verdicts:
            return Verdict.COUNTEREXAMPLE
        if not verdicts or Verdict.UNDETERMINED in verdicts:
            return Verdict.UNDETERMINED
        return Verdict.CONFORMS

    @property
    def unreached(self) -> tuple[str, ...]:
        """The witnesses that no level showed: what holds of them holds vacuously."""
        names = dict.fromkeys(name for level in self.levels for name in level.witnesses)
        return tuple(name for name in names if not any(level.witnesses.get(name) for level in self.levels))

    @property
    def not_checked(self) -> tuple[str, ...]:
        """What this run says nothing about."""
        levels = (f"the levels {', '.join(self.not_run)}",) if self.not_run else ()
        lacking = sorted({feature for level in self.levels for feature in level.skipped})
        features = (f"what needs the features the subject lacks: {', '.join(lacking)}",) if lacking else ()
        return (*levels, *features, *NOT_CHECKED)


def report_to_json(report: RunReport) -> dict[str, Json]:
    """The report as `--json` prints it."""
    return {
        "verdict": report.verdict.name.lower(),
        "exit_code": int(report.verdict),
        "spec": SPEC_VERSION,
        "protocol": PROTOCOL,
        "subject": report.subject,
        "port": {
            "name": report.hello.name,
            "version": report.hello.version,
            "language": report.hello.language,
            "runtime": report.hello.runtime,
            "features": sorted(report.hello.features),
        },
        "seed": report.seed,
        "seconds": round(report.seconds, 3),
        "levels": [_level_to_json(level) for level in report.levels],
        "unreached": list(report.unreached),
        "not_checked": list(report.not_checked),
        "saved": report.saved,
    }


def _level_to_json(level: LevelReport) -> dict[str, Json]:
    return {
        "level": level.level,
        "verdict": level.verdict.name.lower(),
        "strength": level.strength,
        "bounds": level.bounds,
        "cases": level.cases,
        "failed": level.failed,
        "skipped": dict(level.skipped),
        "commands": level.commands,
        "states": level.states,
        "edges": level.edges,
        "edges_driven": level.edges_driven,
        "witnesses": level.witnesses,
        "seconds": round(level.seconds, 3),
        "undetermined": level.undetermined,
        "notes": level.notes,
        "counterexamples": [counterexample_to_json(found) for found in level.counterexamples],
    }
