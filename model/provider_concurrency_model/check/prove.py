"""The command `prove`: every theorem, which engine says what about it, and how long it took.

Exit codes: 0 all is proved; 1 something is refuted; 2 an engine or a fault that isn't known; 3 undetermined: an engine
gave up or timed out, or its tool isn't installed. A missing SPIN alone is told and forgiven unless it was asked for,
because it can't come from PyPI; nothing else that is undetermined ever passes.

With a planted fault only its theorems are tried, and 1 is the exit code to hope for: it means that all of them noticed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Final

from provider_concurrency_model.check import crosshair_gate, spin
from provider_concurrency_model.check.planted import FAULTS, find_fault
from provider_concurrency_model.check.proof import (
    ENGINES,
    Engine,
    Fault,
    Outcome,
    Result,
    Stopwatch,
    Texts,
    UnknownEngineError,
    read_texts,
)
from provider_concurrency_spec.vocabulary import Json

Watch = Callable[[Result], None]

NOT_PROVED: Final = (
    "that nobody starves under an endless stream of older prompts (ORD-3: it is possible, see starvation)",
    "that the upstream never sees more than the limit after a reclaim: the old call may still run (WAT-5)",
    "anything about lengths of time, callbacks, threads and the parsing of Retry-After: those are tested",
    "more than CrossHair's and z3's models of Python's integers say; spin's answers hold within the bounds they name",
)


@dataclass(frozen=True, slots=True)
class ProofReport:
    """All results, in the order in which they came."""

    asked: tuple[Engine, ...]
    """The engines that were named; none means all."""
    fault: Fault | None
    results: list[Result] = field(default_factory=list[Result])
    watch: Stopwatch = field(default_factory=Stopwatch)

    @property
    def exit_code(self) -> int:
        """0, 1 or 3."""
        outcomes = {result.outcome for result in self.results}
        if self.fault is not None:
            return 1 if outcomes == {"refuted"} else 3
        if "refuted" in outcomes:
            return 1
        forgiven = {"spin"} - set(self.asked)
        lost = [result for result in self.results if result.outcome in ("unknown", "skipped")]
        lost = [result for result in lost if result.outcome == "unknown" or result.engine not in forgiven]
        return 3 if lost or not outcomes & {"proved", "agrees"} else 0

    def to_json(self) -> dict[str, Json]:
        """For `--json`."""
        return {
            "exit_code": self.exit_code,
            "fault": None if self.fault is None else self.fault.name,
            "results": [result.to_json() for result in self.results],
            "not_proved": list(NOT_PROVED),
            "seconds": round(self.watch.seconds(), 1),
        }


# -- asking the engines ----------------------------------------------------------------------------------------------


def run_proofs(
    engines: Sequence[str] | None = None, plant: str | None = None, on_result: Watch | None = None
) -> ProofReport:
    """Proves everything, or with a fault what it must refute.

    `engines` are names of ENGINES; None asks all. Raises UnknownEngineError and UnknownFaultError.
    """
    fault = None if plant is None else find_fault(plant)
    asked = read_engines(engines)
    report = ProofReport(asked, fault)
    texts = read_texts(fault)
    for engine in asked or ENGINES:
        for result in ask_engine(engine, texts):
            report.results.append(result)
            if on_result is not None:
                on_result(result)
    return report


def read_engines(names: Sequence[str] | None) -> tuple[Engine, ...]:
    """The engines of these names, in their own order."""
    unknown = sorted(set(names or ()) - set(ENGINES))
    if unknown:
        raise UnknownEngineError(f"unknown engine {', '.join(unknown)}; engines are {', '.join(ENGINES)}")
    return tuple(engine for engine in ENGINES if engine in (names or ()))


def ask_engine(engine: Engine, texts: Texts) -> Iterator[Result]:
    """One engine's results, or that it is missing."""
    wanted = theorems_of(engine, texts)
    reason = missing_tool(engine)
    if not wanted:
        return
    if reason is not None:
        yield Result(f"all {len(wanted)} theorems", engine, "skipped", 0.0, "", reason)
        return
    match engine:
        case "crosshair":
            yield from crosshair_gate.confirm_contracts(texts, wanted)
        case "z3":
            yield from _ask_z3(texts, wanted)
        case "spin":
            yield from spin.compare_twin(texts, wanted)


def _ask_z3(texts: Texts, wanted: tuple[str, ...]) -> Iterator[Result]:
    from provider_concurrency_model.check import spacer, z3_proofs

    yield from z3_proofs.prove_theorems(texts, tuple(name for name in wanted if name != spacer.THEOREM))
    if spacer.THEOREM in wanted:
        yield spacer.find_invariant(texts)


def theorems_of(engine: Engine, texts: Texts) -> tuple[str, ...]:
    """An engine's theorems; with a fault those that it must refute."""
    from provider_concurrency_model.check import spacer, theorems

    every: dict[Engine, tuple[str, ...]] = {
        "crosshair": tuple(crosshair_gate.CONDITIONS),
        "z3": (*theorems.THEOREMS, spacer.THEOREM),
        "spin": tuple(spin.QUESTIONS),
    }
    return tuple(name for name in every[engine] if texts.fault is None or name in texts.fault.refutes)


def missing_tool(engine: Engine) -> str | None:
    """Why an engine can't be asked."""
    match engine:
        case "crosshair":
            return crosshair_gate.missing_tool()
        case "z3":
            return None if find_spec("z3") else "z3-solver isn't installed: pip install 'provider-concurrency[prove]'"
        case "spin":
            return spin.missing_tool()


# -- telling ---------------------------------------------------------------------------------------------------------

_WORDS: Final[dict[Outcome, str]] = {
    "proved": "proved for all numbers",
    "agrees": "agrees within the bound",
    "refuted": "refuted",
    "unknown": "unknown",
    "skipped": "skipped",
}


def tell_result(result: Result) -> str:
    """One line: theorem, engine, time, verdict, and what there is to see, counts or a counterexample."""
    line = f"{result.theorem:<62} {result.engine:<9} {result.seconds:6.1f} s  {_WORDS[result.outcome]}"
    return line if result.outcome == "proved" else f"{line}: {result.detail}"


def tell_report(report: ProofReport) -> Iterator[str]:
    """What is said after the results."""
    for result in report.results:
        if result.theorem == "invariant found" and result.outcome == "proved":
            yield f"the invariant: {result.detail}"
    counted = {outcome: sum(result.outcome == outcome for result in report.results) for outcome in _WORDS}
    told = ", ".join(f"{count} {outcome}" for outcome, count in counted.items() if count)
    yield f"{told or 'nothing was tried'}, {report.watch.seconds():.0f} s"
    if report.fault is None:
        yield from (f"not proved: {item}" for item in NOT_PROVED)
    elif report.exit_code == 1:
        yield f"the fault {report.fault.name} was noticed by all of its {len(report.results)} theorems (exit 1)"
    else:
        yield f"the fault {report.fault.name} was NOT noticed everywhere (exit 3)"


def prove(
    engines: Sequence[str] | None = None,
    plant: str | None = None,
    say: Callable[[str], None] = print,
) -> int:
    """Runs and prints everything; returns the exit code. `plant="all"` tries every fault."""
    if plant == "all":
        return prove_teeth(engines, say)
    report = run_proofs(engines, plant, lambda result: say(tell_result(result)))
    for line in tell_report(report):
        say(line)
    return report.exit_code


def prove_teeth(engines: Sequence[str] | None, say: Callable[[str], None]) -> int:
    """Plants each fault that concerns the engines; 1 if all were noticed by all of their theorems."""
    noticed: list[bool] = []
    for name in FAULTS:
        report = run_proofs(engines, name)
        if report.results:
            noticed.append(report.exit_code == 1)
            by = ", ".join(f"{result.theorem} ({result.engine}): {result.outcome}" for result in report.results)
            say(f"{name:<52} {'noticed' if noticed[-1] else 'NOT NOTICED'}: {by}")
    say(f"{sum(noticed)} of {len(noticed)} faults noticed")
    return 1 if noticed and all(noticed) else 3
