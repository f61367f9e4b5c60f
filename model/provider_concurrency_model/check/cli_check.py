"""The commands that judge a subject: `check` on the levels, `replay` on one saved case."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from provider_concurrency_model.check.claims import NOT_CLAIMED, claims_to_json
from provider_concurrency_model.check.command import (
    CommandArgument,
    JsonOption,
    ReplyOption,
    StartOption,
    SubjectOption,
    choose_source,
    expect_folder,
    fail,
    make_ticker,
    open_session,
    show_progress,
    write_file,
    write_json,
)
from provider_concurrency_model.check.counterexample import (
    UnusableFileError,
    counterexample_of,
    counterexample_to_json,
    load,
    save,
)
from provider_concurrency_model.check.drive import Failed, NotAsked, Passed, drive
from provider_concurrency_model.check.expect import (
    Expectations,
    RefusedFixError,
    fix_expectations,
    judge_expectations,
    read_expectations,
    say_changes,
    write_expectations,
)
from provider_concurrency_model.check.judge import ALL_LEVELS, LEVELS, REALTIME, RESTARTS, Options, run_level
from provider_concurrency_model.check.realtime import WINDOW_MS
from provider_concurrency_model.check.report import print_counterexample, print_report, print_verdict
from provider_concurrency_model.check.report_junit import report_to_junit
from provider_concurrency_model.check.report_markdown import report_to_markdown
from provider_concurrency_model.check.run import note_farewell, run_levels_apart
from provider_concurrency_model.check.source import Source
from provider_concurrency_model.check.stdio import REPLY_SECONDS, START_SECONDS
from provider_concurrency_model.check.verdict import SAID, RunReport, Verdict, report_to_json

_SEED, _RUNS = 0, 200


def check(
    command: CommandArgument = None,
    level: Annotated[
        list[str] | None,
        typer.Option(
            "--level", help=f"Repeat, or separate by commas: {', '.join(LEVELS)}. Default: all these. Or {REALTIME}."
        ),
    ] = None,
    subject: SubjectOption = None,
    expect: Annotated[
        Path | None, typer.Option("--expect", metavar="FILE", help="Known failures (TOML); passes if all is as listed.")
    ] = None,
    fix: Annotated[bool, typer.Option("--fix", help="Rewrite the file of --expect from this run.")] = False,
    seed: Annotated[int | None, typer.Option(help=f"Seed of the random runs (default {_SEED}).")] = None,
    runs: Annotated[int | None, typer.Option(min=1, help=f"Number of random runs (default {_RUNS}).")] = None,
    jobs: Annotated[int, typer.Option(min=1, help="Levels run side by side, each in its own process.")] = 2,
    budget: Annotated[float | None, typer.Option(min=0, help="Seconds; what is left then is undetermined.")] = None,
    reply_timeout: ReplyOption = REPLY_SECONDS,
    start_timeout: StartOption = START_SECONDS,
    restarts: Annotated[
        int, typer.Option(min=0, help="How often a port that breaks is started again for the next scenario.")
    ] = RESTARTS,
    window: Annotated[
        int, typer.Option(min=1, metavar="MS", help=f"By how much things may be late on the level {REALTIME}.")
    ] = WINDOW_MS,
    json_to: JsonOption = None,
    junit: Annotated[Path | None, typer.Option("--junit", metavar="FILE", help="Write a JUnit report here.")] = None,
    markdown: Annotated[
        Path | None, typer.Option("--markdown", metavar="FILE", help="Append a Markdown report (a job's summary).")
    ] = None,
    save_to: Annotated[Path | None, typer.Option("--save", metavar="DIR", help="Save counterexamples here.")] = None,
) -> None:
    """Drives a subject along the scenarios and every edge of the model, and compares its own words with the model's."""
    levels = _read_levels(level)
    if save_to is not None and save_to.exists() and not save_to.is_dir():
        fail(f"--save: {str(save_to)!r} is not a directory")
    for option, file in (("--json", json_to), ("--junit", junit), ("--markdown", markdown)):
        expect_folder(option, file)
    if fix and expect is None:
        fail("--fix: needs --expect FILE, the file to be rewritten")
    expected = None if expect is None else _read_expected(expect, fix)
    seed, runs = _settle_random(levels, expected, seed, runs, fix)
    source = choose_source(subject, command, reply_timeout, start_timeout)
    started = time.monotonic()
    deadline = None if budget is None else started + budget
    options = Options(seed, runs, restarts=restarts, window_ms=window, deadline=deadline)
    report = _run(source, levels, options, jobs)
    report.seconds = time.monotonic() - started
    if save_to is not None:
        _save(report, save_to)
    told: list[str] = []
    if expect is not None:
        if fix:
            told.append(_fix(expect, expected, report))
            expected = read_expectations(expect)
        assert expected is not None, "a file that is to be judged by was read, or has been written"
        report.agreement = judge_expectations(expected, report, str(expect))
    if junit is not None:
        write_file("--junit", junit, report_to_junit(report))
    if markdown is not None:
        _append("--markdown", markdown, report_to_markdown(report))
    data = {**report_to_json(report), "claims": claims_to_json(report), "not_claimed": list(NOT_CLAIMED)}
    if write_json(data, json_to):
        for line in told:
            typer.echo(line)
        print_report(report, Console(highlight=False))
    raise typer.Exit(report.verdict)


def _read_levels(given: list[str] | None) -> tuple[str, ...]:
    """The levels asked for, in their own order; all by default."""
    asked = {name.strip() for item in given or () for name in item.split(",") if name.strip()}
    unknown = sorted(asked - set(ALL_LEVELS))
    if unknown:
        fail(f"--level: unknown level {', '.join(unknown)}; levels are {', '.join(ALL_LEVELS)}")
    if given and not asked:
        fail("--level: names no level")
    if REALTIME in asked and len(asked) > 1:
        fail(f"--level: {REALTIME} is run by itself: beside others it would wait less exactly")
    return tuple(level for level in ALL_LEVELS if level in (asked or LEVELS))


def _read_expected(path: Path, fix: bool) -> Expectations | None:
    """The file of --expect; None for one that is to be written first."""
    if fix and not path.exists():
        return None
    try:
        return read_expectations(path, any_spec=fix)
    except UnusableFileError as error:
        fail(f"--expect: {error}")


def _settle_random(
    levels: tuple[str, ...], expected: Expectations | None, seed: int | None, runs: int | None, fix: bool
) -> tuple[int, int]:
    """Seed and number of the random runs: as given, else as the expectation file was made, else the usual ones."""
    if expected is None or "random" not in levels:
        return _or(seed, _SEED), _or(runs, _RUNS)
    for option, given, made in (("--seed", seed, expected.seed), ("--runs", runs, expected.runs)):
        if given is not None and made is not None and given != made and not fix:
            fail(f"{option}: {given}, but the file of --expect was made with {made}: its random failures are others")
    return _or(seed, _or(expected.seed, _SEED)), _or(runs, _or(expected.runs, _RUNS))


def _or(value: int | None, otherwise: int) -> int:
    return otherwise if value is None else value


def _run(source: Source, levels: tuple[str, ...], options: Options, jobs: int) -> RunReport:
    not_run = tuple(name for name in LEVELS if name not in levels)
    is_apart = jobs > 1 and len(levels) > 1
    with open_session(source) as session, show_progress() as progress:
        report = RunReport(source.label, session.hello, options.seed, not_run=not_run, runs=options.runs)
        if is_apart:
            session.close()  # each level opens its own
            report.levels = run_levels_apart(source, levels, options, jobs, make_ticker(progress, "levels"))
        else:
            report.levels = [run_level(session, name, options, make_ticker(progress, name)) for name in levels]
            note_farewell(session, report.levels[-1])
    return report


def _save(report: RunReport, folder: Path) -> None:
    found = [counterexample for run in report.levels for counterexample in run.counterexamples]
    try:
        report.saved = [str(save(counterexample, folder)) for counterexample in found]
    except OSError as error:
        fail(f"--save: {error.filename}: {error.strerror or error}")


def _fix(path: Path, old: Expectations | None, report: RunReport) -> str:
    try:
        new = fix_expectations(old, report)
        write_expectations(path, new)
    except RefusedFixError as error:
        fail(f"--fix: {path} stays as it is: {error}")
    except OSError as error:
        fail(f"--fix: {path}: {error.strerror or error}")
    return f"rewritten: {path}: {say_changes(old, new)}"


def _append(option: str, path: Path, text: str) -> None:
    """GitHub's job summary is a file that several steps write to."""
    try:
        with path.open("a", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        fail(f"{option}: {path}: {error.strerror or error}")


def replay(
    file: Annotated[Path, typer.Argument(help="A saved counterexample, or a scenario file.")],
    command: CommandArgument = None,
    subject: SubjectOption = None,
    reply_timeout: ReplyOption = REPLY_SECONDS,
    start_timeout: StartOption = START_SECONDS,
    json_to: JsonOption = None,
) -> None:
    """Drives a subject along a saved counterexample again."""
    try:
        case = load(file)
    except UnusableFileError as error:
        fail(str(error))
    source = choose_source(subject, command, reply_timeout, start_timeout)
    console = Console(highlight=False)
    with open_session(source) as session:
        outcome = drive(session, case)
    match outcome:
        case Passed(steps):
            verdict, told = Verdict.CONFORMS, f"{file}: {steps} steps answered as expected"
        case NotAsked(features):
            verdict, told = Verdict.UNDETERMINED, f"{file}: the subject lacks {', '.join(features)}"
        case Failed():
            found = counterexample_of(outcome, source.label, chosen_by=source.arguments)
            verdict, told = Verdict.COUNTEREXAMPLE, f"{file}: step {outcome.at + 1}, rules {', '.join(found.rules)}"
            if not write_json(counterexample_to_json(found, str(file)), json_to):
                raise typer.Exit(verdict)
            print_counterexample(found, console)
            print_verdict(console, verdict, told)
            raise typer.Exit(verdict)
    if write_json({"verdict": SAID[verdict], "exit_code": int(verdict), "told": told}, json_to):
        print_verdict(console, verdict, told)
    raise typer.Exit(verdict)
