"""Prints what was seen of real runs: soaks and traces. Tables on a terminal, plain lines elsewhere."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.table import Table

from provider_concurrency_model.check.report import print_lines, print_verdict
from provider_concurrency_model.check.soak import SoakReport
from provider_concurrency_model.check.timeline import TimelineSummary
from provider_concurrency_model.check.trace import TraceVerdict
from provider_concurrency_model.check.verdict import Verdict
from provider_concurrency_spec.vocabulary import Json


def print_soak(report: SoakReport, console: Console) -> None:
    """What a soak saw; the verdict is the last line."""
    columns = ("grants", "peak", "highest_limit", "longest_queue")
    if console.is_terminal:
        table = Table(title=f"provider-concurrency soak: {report.manager}", title_justify="left")
        table.add_column("provider")
        for column in columns:
            table.add_column(column.replace("_", " "), justify="right")
        for name, entry in report.providers.items():
            table.add_row(name, *(str(entry.get(column, "")) for column in columns))
        console.print(table)
    else:
        for name, entry in report.providers.items():
            told = ", ".join(f"{column.replace('_', ' ')} {entry[column]}" for column in columns if column in entry)
            print_lines(console, [f"{name}: {told}"])
    events = ", ".join(f"{count} {event}" for event, count in report.events.most_common())
    waits = ", ".join(f"{name} {wait:g} ms" for name, wait in report.waits_ms.items())
    lines = [
        f"events: {events}",
        f"waits for a slot: {waits}",
        f"cancelled callers {report.cancellations}, timeouts {report.timeouts}",
        f"reclaims {report.reclaims}, warnings logged {report.warnings}",
        f"invariants asserted at {report.rests} rests; every event judged by the monitor",
        f"timers alive before close {report.timers_before_close}, after close {report.timers_after_close}",
        *(f"violation: {told}" for told in report.violations),
        f"violations: {len(report.violations) or 'none'}",
    ]
    if report.recorded is not None:
        lines.append(f"recorded: {report.recorded}; judge it with: provider-concurrency trace {report.recorded}")
    print_lines(console, lines)
    spent = f"{report.events['granted']} grants by {report.clients} clients in {report.seconds:.1f} s"
    print_verdict(console, report.verdict, f"{spent}, seed {report.seed} (sampled, real time: not reproducible)")


def print_trace(verdict: TraceVerdict, file: str, seconds: float, console: Console) -> None:
    """What a trace shows; the verdict is the last line."""
    lines: list[str] = []
    if verdict.events:
        counts = ", ".join(f"{count} {event}" for event, count in verdict.counts.items() if count)
        lines.append(f"{verdict.events} events: {counts}")
    for event, late in verdict.lateness.items():
        if late.count:
            lines.append(
                f"lateness of {late.count} {event}: p50 {late.p50_ns / 1e6:g} ms, p99 {late.p99_ns / 1e6:g} ms, "
                f"max {late.max_ns / 1e6:g} ms (late is allowed, early is not)"
            )
    if verdict.early_resumes:
        lines.append(f"{verdict.early_resumes} pauses ended early: believed to be calls of resume")
    if verdict.live_slots:
        lines.append(f"{verdict.live_slots} slots are alive at the end of the trace")
    lines.extend(f"remark: {remark}" for remark in verdict.remarks)
    lines.extend(f"violation: {violation}" for violation in verdict.violations)
    unlisted = verdict.violation_count - len(verdict.violations)
    if unlisted > 0:
        lines.append(f"and {unlisted} more violations")
    print_lines(console, lines)
    where = f", line {verdict.line}" if verdict.line is not None else ""
    print_verdict(console, Verdict(verdict.exit_code), f"{file}{where}: {verdict.reason}; {seconds:.1f} s")


def trace_to_json(verdict: TraceVerdict, file: str) -> dict[str, Json]:
    """The verdict as `--json` prints it."""
    out: dict[str, Json] = {"file": file, "exit_code": verdict.exit_code, "rule": verdict.rule, **asdict(verdict)}
    out["violations"] = [str(violation) for violation in verdict.violations]
    return out


def describe_timeline(drawn: TimelineSummary | None, path: Path) -> list[str]:
    """What was drawn, or that nothing could be."""
    if drawn is None:
        return [f"no timeline: the trace has no readable header, {path} was not written"]
    notes = "".join(f"; {note}" for note in drawn.notes)
    return [f"timeline: {path}: {drawn.spans} spans of {len(drawn.providers)} providers{notes}"]
