"""A run as Markdown, for the summary of a CI job: the verdict first, what failed with its diagram, all counts."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from provider_concurrency_model.check.counterexample import Counterexample, draw_sequence, replay_command, tell_steps
from provider_concurrency_model.check.describe import make_printable
from provider_concurrency_model.check.report import tell_agreement, tell_verdict
from provider_concurrency_model.check.verdict import LevelReport, RunReport, Verdict
from provider_concurrency_spec.vocabulary import PROTOCOL, SPEC_VERSION

_SIGNS: Final[dict[Verdict, str]] = {
    Verdict.CONFORMS: "✅",
    Verdict.COUNTEREXAMPLE: "❌",
    Verdict.HARNESS_ERROR: "❌",
    Verdict.UNDETERMINED: "⚠️",
}
_SHOWN: Final = 10
"""Counterexamples with steps and diagram; a job's summary has a limit of 1 MiB."""


def report_to_markdown(report: RunReport) -> str:
    """The text of the section."""
    return make_printable("\n".join(_lines(report))) + "\n"


def _lines(report: RunReport) -> Iterator[str]:
    hello = report.hello
    yield f"## {_SIGNS[report.verdict]} provider-concurrency: {report.said}"
    yield ""
    yield _plain(tell_verdict(report))
    yield ""
    yield "| port | language | runtime | kit | spec | protocol | seed | random runs |"
    yield "|---|---|---|---|---|---|---|---|"
    yield _row(
        f"{hello.name} {hello.version}", hello.language, hello.runtime, report.kit, SPEC_VERSION, PROTOCOL, report.seed,
        report.runs,
    )  # fmt: skip
    yield ""
    yield f"Subject: {_code(report.subject)}. Features: {', '.join(sorted(hello.features)) or 'none'}."
    yield ""
    yield "| level | verdict | strength | cases | failed | skipped | replies | states | edges driven | seconds |"
    yield "|---|---|---|--:|--:|--:|--:|--:|--:|--:|"
    for level in report.levels:
        yield _row(*_cells(level))
    yield ""
    yield from _details(report)
    found = [counterexample for level in report.levels for counterexample in level.counterexamples]
    for counterexample in found[:_SHOWN]:
        yield from _tell_counterexample(counterexample)
    if len(found) > _SHOWN:
        others = ", ".join(f"{_plain(one.case.name)} ({one.rules[0]})" for one in found[_SHOWN:])
        yield f"Failed too: {others}."
        yield ""
    yield "<details><summary>Bounds, and what was not checked</summary>"
    yield ""
    for level in report.levels:
        yield f"- {level.level}: {_plain(level.bounds)}"
    for item in report.not_checked:
        yield f"- not checked: {_plain(item)}"
    yield ""
    yield "</details>"


def _cells(level: LevelReport) -> tuple[object, ...]:
    sign = "➖" if level.lacking else _SIGNS[level.verdict]
    states = "" if level.states is None else level.states
    counts = (level.cases, level.failed, level.skipped.total(), level.commands, states, level.coverage)
    return (level.level, f"{sign} {level.said}", level.strength, *counts, f"{level.seconds:.1f}")


def _details(report: RunReport) -> Iterator[str]:
    told: list[str] = []
    for level in report.levels:
        told += [f"{level.level}: skipped {count}: lacks {names}" for names, count in sorted(level.skipped.items())]
        if level.undetermined is not None and not level.lacking:
            told.append(f"{level.level}: undetermined: {level.undetermined}")
        told += [f"{level.level}: {note}" for note in level.notes]
    if report.unreached:
        told.append(f"reached by no level of this run: {', '.join(report.unreached)}")
    if report.agreement is not None:
        told += tell_agreement(report.agreement)
        told.append(f"{report.agreement.file}: {len(report.agreement.confirmed)} known failures are as listed")
    yield from (f"- {_plain(line)}" for line in told)
    if told:
        yield ""


def _tell_counterexample(found: Counterexample) -> Iterator[str]:
    yield f"<details><summary>{', '.join(found.rules)}: {_plain(found.case.level)}: {_plain(found.case.name)}</summary>"
    yield ""
    yield from _fenced("text", tell_steps(found))
    yield ""
    yield from _fenced("mermaid", draw_sequence(found).splitlines())
    yield ""
    yield f"Save it with `--save DIR`; then {_code(replay_command('DIR/FILE', found.chosen_by))}."
    yield ""
    yield "</details>"
    yield ""


def _fenced(language: str, lines: list[str]) -> Iterator[str]:
    """A fence longer than any in the text: a port may say anything."""
    fence = "`" * max(3, *(1 + len(run) for line in lines for run in re.findall("`+", line)), 3)
    yield f"{fence}{language}"
    yield from lines
    yield fence


def _row(*cells: object) -> str:
    return f"| {' | '.join(_plain(str(cell)) for cell in cells)} |"


def _code(text: str) -> str:
    """As code, whatever quotes are in it."""
    return f"`{text}`" if "`" not in text else f"`` {text} ``"


def _plain(text: str) -> str:
    """Text that stays in its cell and is neither markup nor HTML."""
    safe = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace("\n", " ")
    return re.sub(r"([\\`*|\[\]])", r"\\\1", safe)
