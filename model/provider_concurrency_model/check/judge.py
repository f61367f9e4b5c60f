"""Runs the levels: where their cases come from, and how each becomes a `LevelReport`.

`scenarios` are the specification's examples, with their own expectations. `random` samples long runs. Every other level
is a graph of the model that is driven edge by edge: exhausted within its bounds, or undetermined. A level on a graph
ends with its first failing walk: then the shortest way to a failure is looked for, which says more than a count.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Set
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from provider_concurrency_model import levels as bounded
from provider_concurrency_model.always import ALWAYS
from provider_concurrency_model.check.case import Case, case_of_commands, case_of_scenario, needs_of
from provider_concurrency_model.check.counterexample import Counterexample, counterexample_of
from provider_concurrency_model.check.describe import say_kin
from provider_concurrency_model.check.drive import Failed, NotAsked, Outcome, Passed, drive, say_first
from provider_concurrency_model.check.realtime import WINDOW_MS, TooSlowError, drive_in_real_time, plan
from provider_concurrency_model.check.shrink import shrink
from provider_concurrency_model.check.subject import Session
from provider_concurrency_model.check.verdict import CaseResult, LevelReport
from provider_concurrency_model.graph import Edge, Graph, explore, tour
from provider_concurrency_model.properties import examine
from provider_concurrency_model.random_runs import random_run
from provider_concurrency_model.sometimes import SOMETIMES
from provider_concurrency_spec.scenarios import load_all
from provider_concurrency_spec.vocabulary import FEATURES

LEVELS: Final = ("scenarios", *bounded.LEVELS, "random")
REALTIME: Final = "realtime"
"""Weaker than `scenarios`, for subjects without a virtual clock; never part of a whole run."""
ALL_LEVELS: Final = (*LEVELS, REALTIME)

Tick: TypeAlias = Callable[[int, int | None], None]
"""Progress: how much is done, and of how much if that is known."""

_WALK: Final = 400
"""Commands in a walk, about; a model's step costs more the more requests have ended."""

_SEARCH: Final = 30.0
"""Seconds for finding the shortest counterexample in a graph; then the failing walk is shrunk instead."""

_ALIKE: Final = 10
"""So many scenarios that fail in the same words have one cause, and it is none of theirs."""

RESTARTS: Final = 20


@dataclass(frozen=True, slots=True)
class Options:
    """What a run of the judge can be told."""

    seed: int = 0
    runs: int = 200
    """Random runs."""
    length: int = 40
    """Commands of a random run."""
    restarts: int = RESTARTS
    """How often a subject that breaks is made anew for the next scenario; then the rest is undetermined."""
    window_ms: int = WINDOW_MS
    """By how much the level `realtime` lets things be late."""
    deadline: float | None = None
    """`time.monotonic()` at which the budget is spent."""

    @property
    def is_spent(self) -> bool:
        """No time is left."""
        return self.deadline is not None and time.monotonic() >= self.deadline


def run_level(session: Session, level: str, options: Options, tick: Tick = lambda _done, _total: None) -> LevelReport:
    """Runs one of ALL_LEVELS on the subject."""
    started = time.monotonic()
    match level:
        case "scenarios":
            report = _run_scenarios(session, options, tick)
        case "random":
            report = _run_random(session, options, tick)
        case "realtime":
            report = _run_realtime(session, options, tick)
        case _:
            report = _run_graph(session, level, options, tick)
    report.seconds = time.monotonic() - started
    return report


def _run_scenarios(session: Session, options: Options, tick: Tick) -> LevelReport:
    cases = [case_of_scenario(scenario) for scenario in load_all()]
    report = LevelReport("scenarios", "examples", f"{len(cases)} scenario files of the specification")
    before = session.subject.breaks
    for done, case in enumerate(cases):
        if options.is_spent:
            report.undetermined = f"the budget was spent after {done} of {len(cases)} scenarios"
            break
        outcome = drive(session, case)
        count(report, outcome)
        report.results.append(result_of(case.name, outcome))
        if isinstance(outcome, Failed):
            report.counterexamples.append(_keep(session, outcome))
        tick(done + 1, len(cases))
        broken = session.subject.breaks - before
        if broken > options.restarts and done + 1 < len(cases):
            report.undetermined = (
                f"gave up after {done + 1} of {len(cases)} scenarios: the subject broke {broken} times"
            )
            break
    failures = Counter(result.told for result in report.results if result.result == "failed")
    for told, times in failures.most_common(1):
        if times >= _ALIKE and 2 * times > report.failed:
            report.notes.append(f"{times} of {report.failed} fail alike, look there first: {told}")
    if not report.cases and report.undetermined is None:
        report.undetermined = "the subject lacks what every scenario needs"
    return report


def _run_realtime(session: Session, options: Options, tick: Tick) -> LevelReport:
    scenarios, window_ms = load_all(), options.window_ms
    report = LevelReport(REALTIME, "real time", "")
    left_out: dict[str, list[str]] = {}
    before = session.subject.breaks
    for done, scenario in enumerate(scenarios):
        tick(done, len(scenarios))
        if options.is_spent:
            report.undetermined = f"the budget was spent after {done} of {len(scenarios)} scenarios"
            break
        case = plan(scenario, window_ms)
        if isinstance(case, str):
            report.results.append(CaseResult(scenario.name, "skipped", case))
            left_out.setdefault(case, []).append(scenario.name)
            continue
        try:
            outcome, is_repeated = drive_in_real_time(session, case, window_ms)
        except TooSlowError:
            report.undetermined = f"{scenario.name}: this machine is too busy for a window of {window_ms} ms"
            break
        count(report, outcome)
        report.results.append(result_of(scenario.name, outcome))
        if isinstance(outcome, Failed):
            report.counterexamples.append(_keep(session, outcome))
        if is_repeated:
            report.notes.append(f"{scenario.name}: was late, and tried three times")
        broken = session.subject.breaks - before
        if broken > options.restarts:
            report.undetermined = f"gave up after {done + 1} scenarios: the subject broke {broken} times"
            break
    asked = f"{report.cases} of {len(scenarios)} scenarios"
    report.bounds = f"{asked}, with their times scaled; never early, late by at most {window_ms} ms"
    report.notes.append("weaker than virtual time: no deadline is told from one a tick later, and nothing is exhausted")
    report.notes += [f"left out {len(names)}: {told}: {', '.join(names)}" for told, names in left_out.items()]
    return report


def _run_graph(session: Session, level: str, options: Options, tick: Tick) -> LevelReport:
    declared = session.hello.features
    bounds = replace(bounded.LEVELS[level], features=declared)
    start = bounds.config
    unset = [
        name for name in ("max_queued", "default_limit") if name not in declared and getattr(start, name) is not None
    ]
    bounds = replace(bounds, config=replace(start, **dict.fromkeys(unset)))
    report = LevelReport(level, "exhausted", say_bounds(bounds))
    lacking = sorted(needs_of(bounds.config, bounds.setup) - declared)
    if bounds.clock == "late" and "stall" not in declared:
        lacking.append("stall")
    if lacking:
        report.lacking = tuple(lacking)
        report.skipped[", ".join(lacking)] += 1
        report.undetermined = f"skipped: all of it needs {', '.join(lacking)}"
        return report
    if options.is_spent:
        report.undetermined = "the budget was spent before the level began"
        return report
    if unset:
        report.notes.append(f"started without the settings that the subject lacks: {', '.join(unset)}")
    left_out = sorted(set(FEATURES) - declared - {"timers"})
    if left_out:
        report.notes.append(f"commands that need these features are left out: {', '.join(left_out)}")
    graph = explore(bounds)
    report.states, report.edges = len(graph.states), len(graph.edges)
    _drive_graph(session, report, graph, options, tick)
    if not report.failed:
        _examine_model(report, graph)
    return report


def _examine_model(report: LevelReport, graph: Graph) -> None:
    """The model's own properties: an oracle that breaks one proves nothing, nor does one that never gets anywhere."""
    examination = examine(graph, ALWAYS, SOMETIMES)
    report.witnesses = {claim.name: claim.name in examination.witnesses for claim in SOMETIMES}
    if examination.violation is not None:
        broken = examination.violation
        report.undetermined = f"the model itself breaks {', '.join(broken.rules)}: {broken.name}"


def _drive_graph(session: Session, report: LevelReport, graph: Graph, options: Options, tick: Tick) -> None:
    driven: set[int] = set()
    for number, path in enumerate(_paths(graph, driven), 1):
        if options.is_spent:
            report.undetermined = f"the budget was spent after {len(driven)} of {len(graph.edges)} edges"
            break
        outcome = drive(session, _case_of_path(graph, path, f"walk {number}"))
        count(report, outcome)
        if isinstance(outcome, Failed):
            report.results.append(result_of(outcome.case.name, outcome))
            reached = outcome.at - len(graph.bounds.setup)
            driven.update(map(id, path[: max(0, reached)]))
            _report_shortest(session, report, graph, outcome)
            report.notes.append("stopped at the first failing walk")
            break
        driven.update(map(id, path))
        tick(len(driven), len(graph.edges))
    report.edges_driven = len(driven)
    if len(driven) < len(graph.edges) and not report.failed and report.undetermined is None:
        report.undetermined = f"{len(graph.edges) - len(driven)} edges were not driven"


def _paths(graph: Graph, driven: Set[int]) -> Iterator[list[Edge]]:
    """The tour over the graph; then, whatever it left out, each edge at the end of its shortest path."""
    yield from tour(graph, _WALK)
    for edge in graph.edges:
        if id(edge) not in driven:
            yield [*graph.path(edge.source), edge]


def _case_of_path(graph: Graph, path: list[Edge], name: str) -> Case:
    return case_of_commands(name, graph.bounds.level, graph.bounds.config, graph.spell(path))


def _report_shortest(session: Session, report: LevelReport, graph: Graph, failed: Failed) -> None:
    """The first failing edge in breadth-first order has the shortest way to a failure there is."""
    until = time.monotonic() + _SEARCH
    name, bounds = failed.case.name, graph.bounds
    for _, commands in graph.vectors():
        if len(commands) > failed.at + 1 or time.monotonic() > until:
            break
        outcome = drive(session, case_of_commands(name, bounds.level, bounds.config, commands))
        if isinstance(outcome, Failed):
            report.counterexamples.append(_keep(session, outcome, is_shortest=True))
            return
    # Not on a shortest path: it takes a history that the model forgets. Or the search took too long.
    report.counterexamples.append(_keep(session, shrink(session, failed)))


def _run_random(session: Session, options: Options, tick: Tick) -> LevelReport:
    bounds = f"{options.runs} runs of {options.length} commands: many providers, odd values, long bursts"
    report = LevelReport("random", "sampled", bounds)
    for done in range(options.runs):
        if options.is_spent:
            report.undetermined = f"the budget was spent after {done} of {options.runs} runs"
            break
        seed = options.seed + done
        config, commands = random_run(seed, options.length, session.hello.features)
        case = case_of_commands(f"seed {seed}", "random", config, commands, checks_invariants=True)
        outcome = drive(session, case)
        count(report, outcome)
        if isinstance(outcome, Failed):
            report.results.append(result_of(case.name, outcome))
            report.counterexamples.append(_keep(session, shrink(session, outcome), seed=seed))
            report.notes.append("stopped at the first failing run")
            break
        tick(done + 1, options.runs)
    return report


def _keep(session: Session, failed: Failed, *, seed: int | None = None, is_shortest: bool = False) -> Counterexample:
    return counterexample_of(failed, session.label, seed=seed, is_shortest=is_shortest, chosen_by=session.chosen_by)


def result_of(case: str, outcome: Outcome) -> CaseResult:
    """What became of a case, for whoever looks it up by name."""
    match outcome:
        case Passed():
            return CaseResult(case, "passed")
        case Failed():
            return CaseResult(case, "failed", say_first(outcome), outcome.rules[0])
        case NotAsked(features):
            return CaseResult(case, "skipped", f"the subject lacks {', '.join(features)}")


def count(report: LevelReport, outcome: Outcome) -> None:
    """Enters what became of a case."""
    match outcome:
        case Passed(steps):
            report.cases += 1
            report.commands += steps
        case Failed():
            report.cases += 1
            report.commands += outcome.at + 1
            report.failed += 1
        case NotAsked(features):
            report.skipped[", ".join(features)] += 1


def say_bounds(bounds: bounded.Bounds) -> str:
    """The small print of an exhausted level, in one line."""
    parts = [
        f"{bounds.live} live requests",
        f"{len(bounds.providers)} provider{'s' * (len(bounds.providers) > 1)}",
        f"prompts {_texts(bounds.prompts)}",
        f"timeouts {_texts(bounds.timeouts)}",
        *([f"Retry-After {_texts(bounds.retries)}"] if bounds.retries else []),
        f"time: {bounds.clock}",
    ]
    if bounds.limits:
        parts.append(f"limits {_texts(bounds.limits)}")
    if bounds.cooldowns:
        parts.append(f"cooldowns {_texts(bounds.cooldowns)}")
    if bounds.burst > 1:
        parts.append(f"bursts of {bounds.burst}")
    if len(bounds.kin) > 1:
        parts.append(f"conversations {_texts(tuple(say_kin(*kin) for kin in bounds.kin))}")
    flags = (("try_acquire", bounds.tries), ("touch", bounds.touches), ("hooks", bounds.hooks))
    parts.extend(f"with {name}" for name, is_set in flags if is_set)
    if bounds.ghosts:
        parts.append("with calls on the request that ended last")
    return ", ".join(parts)


def _texts(values: tuple[object, ...]) -> str:
    return "/".join("none" if value is None else str(value) for value in values)
