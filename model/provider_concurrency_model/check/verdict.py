"""What a run of the judge found, as data: one `LevelReport` a level, one `RunReport` for all of them.

Undetermined is a verdict of its own and never a pass: a level that asked nothing, or stopped before its bounds were
exhausted, says so.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass, field
from enum import IntEnum
from importlib.metadata import version
from typing import Final, Literal, TypeAlias

from provider_concurrency_model.check.counterexample import Counterexample, counterexample_to_json
from provider_concurrency_model.check.subject import Hello
from provider_concurrency_spec.vocabulary import FEATURES, PROTOCOL, SPEC_VERSION, Json

Strength: TypeAlias = Literal["examples", "exhausted", "sampled", "real time"]


@dataclass(frozen=True, slots=True)
class CaseResult:
    """What became of one case by name; of the levels with thousands of walks only a failure is kept."""

    case: str
    result: Literal["passed", "failed", "skipped"]
    told: str = ""
    """How it failed first, before any shortening, or what it was skipped for; the same in every run."""
    rule: str | None = None


class Verdict(IntEnum):
    """The exit codes of the command."""

    CONFORMS = 0
    COUNTEREXAMPLE = 1
    HARNESS_ERROR = 2
    UNDETERMINED = 3


SAID: Final[dict[Verdict, str]] = {
    Verdict.CONFORMS: "conforms",
    Verdict.COUNTEREXAMPLE: "counterexample",
    Verdict.HARNESS_ERROR: "harness error",
    Verdict.UNDETERMINED: "undetermined",
}


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
    results: list[CaseResult] = field(default_factory=list[CaseResult])
    lacking: tuple[str, ...] = ()
    """Features without which nothing of the level can be asked: it is skipped, and says nothing."""
    undetermined: str | None = None
    """Why the level can't be called passed though nothing differed."""
    notes: list[str] = field(default_factory=list[str])

    @property
    def verdict(self) -> Verdict:
        """Of this level alone."""
        if self.failed:
            return Verdict.COUNTEREXAMPLE
        if not self.is_determined:
            return Verdict.UNDETERMINED
        return Verdict.CONFORMS

    @property
    def is_determined(self) -> bool:
        """Whether the level was carried out as far as it is meant to be."""
        return self.undetermined is None and self.cases > 0

    @property
    def said(self) -> str:
        """Its verdict in a word or two; what was tried in real time only isn't called conforming."""
        if self.lacking:
            return "skipped"
        is_weak = self.strength == "real time" and self.verdict is Verdict.CONFORMS
        return "holds in real time" if is_weak else SAID[self.verdict]

    @property
    def coverage(self) -> str:
        """Edges driven of all edges; nothing where a level has no graph."""
        if self.edges is None or self.edges_driven is None:
            return ""
        share = 100.0 * self.edges_driven / self.edges if self.edges else 100.0
        # 99.96 % must not be printed as 100 %.
        text = "100" if self.edges_driven == self.edges else f"{min(share, 99.9):.1f}"
        return f"{self.edges_driven}/{self.edges} ({text} %)"


@dataclass(frozen=True, slots=True)
class Agreement:
    """How a run and an expectation file agree (`expect`)."""

    file: str
    confirmed: tuple[tuple[str, str], ...] = ()
    """Entries that failed exactly as listed: level and case."""
    problems: tuple[str, ...] = ()
    """What the file says and isn't so, and what it doesn't say."""
    unjudged: tuple[str, ...] = ()
    """Entries of levels that were not run, or not far enough."""


def agreement_to_json(agreement: Agreement) -> dict[str, Json]:
    """As it stands in the report."""
    return {
        "file": agreement.file,
        "confirmed": [f"{level}: {case}" for level, case in agreement.confirmed],
        "problems": list(agreement.problems),
        "unjudged": list(agreement.unjudged),
    }


NOT_CHECKED: Final = (
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
    runs: int = 0
    """Random runs asked for."""
    agreement: Agreement | None = None
    """With an expectation file: whether it tells the truth, which is then what is judged."""
    saved: list[str] = field(default_factory=list[str])
    seconds: float = 0.0
    """Of the whole run; levels may run side by side."""

    @property
    def verdict(self) -> Verdict:
        """A counterexample outweighs everything; a level without a verdict outweighs those that passed.

        A level skipped for lack of a feature is told and judges nothing, unless there is no other. With an expectation
        file the run conforms to the file, or doesn't.
        """
        judged = [level for level in self.levels if not level.lacking]
        if self.agreement is not None:
            if self.agreement.problems:
                return Verdict.COUNTEREXAMPLE
            is_whole = bool(judged) and all(level.is_determined for level in judged)
            return Verdict.CONFORMS if is_whole else Verdict.UNDETERMINED
        verdicts = {level.verdict for level in judged}
        if Verdict.COUNTEREXAMPLE in verdicts:
            return Verdict.COUNTEREXAMPLE
        if not verdicts or Verdict.UNDETERMINED in verdicts:
            return Verdict.UNDETERMINED
        return Verdict.CONFORMS

    @property
    def said(self) -> str:
        """The verdict in a word or two.

        A port with known failures doesn't conform, it fails as expected; nor does one that was only tried in real time.
        """
        if self.agreement is None:
            is_weak = self.verdict is Verdict.CONFORMS and all(each.strength == "real time" for each in self.levels)
            return self.levels[0].said if is_weak else SAID[self.verdict]
        match self.verdict:
            case Verdict.CONFORMS:
                return "as expected" if self.agreement.confirmed else "conforms"
            case Verdict.COUNTEREXAMPLE:
                return "not as expected"
            case other:
                return SAID[other]

    @property
    def kit(self) -> str:
        """The version of this package."""
        return version("provider-concurrency")

    @property
    def lacked(self) -> dict[str, int]:
        """How many cases were skipped, by the features that the subject lacks."""
        found: Counter[str] = Counter()
        for level in self.levels:
            found.update(level.skipped)
        return dict(sorted(found.items()))

    @property
    def unreached(self) -> tuple[str, ...]:
        """The witnesses that no level showed: what holds of them holds vacuously."""
        names = dict.fromkeys(name for level in self.levels for name in level.witnesses)
        return tuple(name for name in names if not any(level.witnesses.get(name) for level in self.levels))

    @property
    def not_checked(self) -> tuple[str, ...]:
        """What this run says nothing about."""
        levels = (f"the levels {', '.join(self.not_run)}",) if self.not_run else ()
        needed = {feature for features in self.lacked for feature in features.split(", ")}
        lacking = [feature for feature in FEATURES if feature in needed or feature not in self.hello.features]
        features = (f"what needs the features the subject lacks: {', '.join(lacking)}",) if lacking else ()
        return (*levels, *features, *NOT_CHECKED)


def report_to_json(report: RunReport) -> dict[str, Json]:
    """The report as `--json` prints it."""
    return {
        "verdict": report.said.replace(" ", "_"),
        "exit_code": int(report.verdict),
        "kit": report.kit,
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
        "runs": report.runs,
        "seconds": round(report.seconds, 3),
        "levels": [_level_to_json(level) for level in report.levels],
        "skipped": report.lacked,
        "expectation": None if report.agreement is None else agreement_to_json(report.agreement),
        "unreached": list(report.unreached),
        "not_checked": list(report.not_checked),
        "saved": report.saved,
    }


def _level_to_json(level: LevelReport) -> dict[str, Json]:
    return {
        "level": level.level,
        "verdict": level.said.replace(" ", "_"),
        "strength": level.strength,
        "bounds": level.bounds,
        "cases": level.cases,
        "failed": level.failed,
        "skipped": dict(level.skipped),
        "results": [asdict(result) for result in level.results],
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
