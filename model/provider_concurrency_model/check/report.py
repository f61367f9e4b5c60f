"""Prints what a run found: tables on a terminal, plain lines elsewhere. Both say the same."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console
from rich.table import Table
from rich.text import Text

from provider_concurrency_model.check.claims import tell_claims
from provider_concurrency_model.check.counterexample import Counterexample, draw_sequence, tell_steps
from provider_concurrency_model.check.describe import make_printable
from provider_concurrency_model.check.verdict import SAID, Agreement, LevelReport, RunReport, Verdict
from provider_concurrency_spec.vocabulary import PROTOCOL, SPEC_VERSION

_COLOURS: dict[Verdict, str] = {
    Verdict.CONFORMS: "green",
    Verdict.COUNTEREXAMPLE: "red",
    Verdict.HARNESS_ERROR: "red",
    Verdict.UNDETERMINED: "yellow",
}
_SHOWN_AT_MOST = 5
"""Counterexamples printed in full for one level; the others are named."""


def print_report(report: RunReport, console: Console) -> None:
    """Everything about a run; the verdict is the last line."""
    print_lines(console, _tell_subject(report))
    first = next((found for level in report.levels for found in level.counterexamples), None)
    for level in report.levels:
        for found in level.counterexamples[:_SHOWN_AT_MOST]:
            print_counterexample(found, console, is_drawn=found is first)
        if len(level.counterexamples) > _SHOWN_AT_MOST:
            others = ", ".join(
                f"{found.case.name} ({found.rules[0]})" for found in level.counterexamples[_SHOWN_AT_MOST:]
            )
            print_lines(console, [f"{level.level}: failed too: {others}"])
    if console.is_terminal:
        console.print(_table_of(report))
    else:
        for level in report.levels:
            print_lines(console, [_tell_level(level)])
    for level in report.levels:
        print_lines(console, _tell_details(level))
    if report.unreached:
        print_lines(console, [f"reached by no level of this run: {', '.join(report.unreached)}"])
    print_lines(console, [f"not checked: {item}" for item in report.not_checked])
    print_lines(console, list(tell_claims(report)))
    print_lines(console, [f"saved: {path}" for path in report.saved])
    if report.agreement is not None:
        print_lines(console, tell_agreement(report.agreement))
    print_verdict(console, report.verdict, tell_verdict(report), report.said)


def print_counterexample(found: Counterexample, console: Console, *, is_drawn: bool = True) -> None:
    """One finding: its steps and, where the steps of others don't wait behind it, its sequence diagram."""
    shortest = ", the shortest within the bounds" if found.is_shortest else ""
    console.rule(f"counterexample ({len(found.case.steps)} steps{shortest})", align="left", style="red")
    print_lines(console, tell_steps(found))
    diagram = ["", "```mermaid", *draw_sequence(found).splitlines(), "```"] if is_drawn else []
    print_lines(console, [*diagram, ""])


def print_verdict(console: Console, verdict: Verdict, told: str, said: str | None = None) -> None:
    """The last line: the verdict in colour, in its own words or in others, and why."""
    word = (said or SAID[verdict]).upper()
    console.print(Text.assemble((word, f"bold {_COLOURS[verdict]}"), f": {make_printable(told)}"), soft_wrap=True)


def print_lines(console: Console, lines: list[str]) -> None:
    """Plain text, never read as markup, and never wrapped where a machine reads it."""
    for line in lines:
        console.print(Text(make_printable(line)), soft_wrap=True)


def _tell_subject(report: RunReport) -> list[str]:
    hello = report.hello
    lines = [
        f"subject {report.subject}: {hello.name} {hello.version} ({hello.language}, {hello.runtime})",
        f"kit {report.kit}, spec {SPEC_VERSION}, protocol {PROTOCOL}",
        f"features: {', '.join(sorted(hello.features)) or 'none'}",
    ]
    if hello.unknown_features:
        lines.append(f"unknown features, ignored: {', '.join(hello.unknown_features)}")
    return lines


def _table_of(report: RunReport) -> Table:
    table = Table(title=f"provider-concurrency check: {report.subject}", title_justify="left")
    for name in ("level", "verdict", "strength"):
        table.add_column(name)
    for name in ("cases", "failed", "skipped", "replies", "states", "edges driven", "seconds"):
        table.add_column(name, justify="right")
    for level in report.levels:
        table.add_row(
            level.level,
            Text(level.said, style=_COLOURS[level.verdict]),
            level.strength,
            f"{level.cases}",
            f"{level.failed}",
            f"{level.skipped.total()}",
            f"{level.commands}",
            "" if level.states is None else f"{level.states}",
            level.coverage,
            f"{level.seconds:.1f}",
        )
    return table


def _tell_level(level: LevelReport) -> str:
    parts = [f"{level.cases} cases", f"{level.failed} failed", f"{level.skipped.total()} skipped"]
    parts.append(f"{level.commands} replies compared")
    if level.states is not None:
        parts.append(f"{level.states} states")
    if level.coverage:
        parts.append(f"edges driven {level.coverage}")
    parts.append(f"{level.seconds:.1f} s")
    return f"{level.level}: {level.said} ({level.strength}): {', '.join(parts)}"


def _tell_details(level: LevelReport) -> list[str]:
    return list(_each_detail(level))


def _each_detail(level: LevelReport) -> Iterator[str]:
    yield f"{level.level}: bounds: {level.bounds}"
    if level.witnesses:
        reached = [name for name, is_reached in level.witnesses.items() if is_reached]
        yield f"{level.level}: reached {len(reached)} of {len(level.witnesses)} witnesses: {', '.join(reached)}"
    for features, count in sorted(level.skipped.items()):
        yield f"{level.level}: skipped {count}: the subject lacks {features}"
    if level.undetermined is not None and not level.lacking:
        yield f"{level.level}: undetermined: {level.undetermined}"
    for note in level.notes:
        yield f"{level.level}: {note}"


def tell_agreement(agreement: Agreement) -> list[str]:
    """What an expectation file and the run have to say about each other."""
    lines = [f"{agreement.file}: {problem}" for problem in agreement.problems]
    if agreement.unjudged:
        lines.append(f"{agreement.file}: not judged by this run: {', '.join(agreement.unjudged)}")
    return lines


def tell_verdict(report: RunReport) -> str:
    """Why the verdict is what it is, in a line."""
    lacked = report.lacked
    if not lacked:
        return _tell_reason(report)
    features = sorted({feature for features in lacked for feature in features.split(", ")})
    return f"{_tell_reason(report)}; {sum(lacked.values())} skipped for lack of {', '.join(features)}"


def _tell_reason(report: RunReport) -> str:
    spent = f"{sum(level.commands for level in report.levels)} replies in {report.seconds:.1f} s, seed {report.seed}"
    failed = sum(level.failed for level in report.levels)
    agreement = report.agreement
    if agreement is not None and agreement.problems:
        return f"{len(agreement.problems)} times {agreement.file} is not true; {spent}"
    if agreement is not None and agreement.confirmed and report.verdict is Verdict.CONFORMS:
        return f"{len(agreement.confirmed)} known failures, all as listed in {agreement.file}; {spent}"
    match report.verdict:
        case Verdict.CONFORMS:
            judged = [level for level in report.levels if not level.lacking]
            exhausted = [level.level for level in judged if level.strength == "exhausted"]
            sampled = [level.level for level in judged if level.strength in ("examples", "sampled")]
            weak = [level.level for level in judged if level.strength == "real time"]
            told = [f"exhausted within bounds: {', '.join(exhausted)}"] if exhausted else []
            told += [f"examples and samples: {', '.join(sampled)}"] if sampled else []
            told += [f"not in virtual time, which shows more: {', '.join(weak)}"] if weak else []
            return f"{'; '.join(told)}; {spent}"
        case Verdict.COUNTEREXAMPLE:
            rules = dict.fromkeys(
                rule for level in report.levels for found in level.counterexamples for rule in found.rules
            )
            return f"{failed} failed, rules {', '.join(rules)}; {spent}"
        case _:
            open_levels = [level.level for level in report.levels if level.verdict is Verdict.UNDETERMINED]
            return f"nothing can be said about {', '.join(open_levels) or 'any level'}; {spent}"
