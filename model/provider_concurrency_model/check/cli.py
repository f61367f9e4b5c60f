"""The command `provider-concurrency`.

Exit codes: 0 conforms, 1 counterexample, 2 usage or harness error, 3 undetermined. An error names the argument or the
file that is wrong, without a traceback.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, NoReturn

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from provider_concurrency_model.check.counterexample import (
    UnusableFileError,
    counterexample_of,
    counterexample_to_json,
    load,
    save,
)
from provider_concurrency_model.check.drive import Failed, NotAsked, Passed, drive
from provider_concurrency_model.check.judge import LEVELS, Options, Tick, run_level
from provider_concurrency_model.check.managers import DEFAULT_MANAGER
from provider_concurrency_model.check.report import print_counterexample, print_report, print_verdict
from provider_concurrency_model.check.report_run import describe_timeline, print_soak, print_trace, trace_to_json
from provider_concurrency_model.check.run import run_levels_apart
from provider_concurrency_model.check.soak import SoakOptions, run_soak, soak_to_json
from provider_concurrency_model.check.subject import DEFAULT_SUBJECT, InProcess, Session, SubjectError
from provider_concurrency_model.check.timeline import write_timeline
from provider_concurrency_model.check.trace import judge_trace
from provider_concurrency_model.check.verdict import RunReport, Verdict, report_to_json
from provider_concurrency_spec.vocabulary import PROTOCOL, SPEC_VERSION, Json

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Judges implementations of the per-provider concurrency limiter against its executable model.",
)

SubjectOption = Annotated[
    str, typer.Option("--subject", metavar="MODULE:NAME", help="A port: its instances have handle(message) -> reply.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")]


def fail(message: str) -> NoReturn:
    """Ends with exit 2 and one line on stderr."""
    typer.echo(f"provider-concurrency: {message}", err=True)
    raise typer.Exit(Verdict.HARNESS_ERROR)


def print_json(value: Json) -> None:
    """One JSON object on stdout; nothing else goes there with `--json`."""
    typer.echo(json.dumps(value, indent=2, default=repr))


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"provider-concurrency {version('provider-concurrency')}, spec {SPEC_VERSION}, protocol {PROTOCOL}")
        raise typer.Exit


@app.callback()
def main(
    _version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", callback=_show_version, is_eager=True)
    ] = False,
) -> None:
    """Judges implementations of the per-provider concurrency limiter against its executable model."""


@contextmanager
def _open_session(dotted: str) -> Generator[Session, None, None]:
    try:
        session = Session(InProcess(dotted))
    except SubjectError as error:
        fail(str(error))
    try:
        yield session
    except SubjectError as error:
        fail(str(error))
    finally:
        session.close()


def _read_levels(given: list[str] | None) -> tuple[str, ...]:
    """The levels asked for, in their own order; all by default."""
    asked = {name.strip() for item in given or () for name in item.split(",") if name.strip()}
    unknown = sorted(asked - set(LEVELS))
    if unknown:
        fail(f"--level: unknown level {', '.join(unknown)}; levels are {', '.join(LEVELS)}")
    if given and not asked:
        fail("--level: names no level")
    return tuple(level for level in LEVELS if not asked or level in asked)


@app.command()
def check(
    level: Annotated[
        list[str] | None,
        typer.Option("--level", help=f"Repeat, or separate by commas: {', '.join(LEVELS)}. Default: all."),
    ] = None,
    subject: SubjectOption = DEFAULT_SUBJECT,
    as_json: JsonOption = False,
    seed: Annotated[int, typer.Option(help="Seed of the random runs.")] = 0,
    runs: Annotated[int, typer.Option(min=1, help="Number of random runs.")] = 200,
    jobs: Annotated[int, typer.Option(min=1, help="Levels run side by side, each in its own process.")] = 2,
    budget: Annotated[float | None, typer.Option(min=0, help="Seconds; what is left then is undetermined.")] = None,
    save_to: Annotated[Path | None, typer.Option("--save", metavar="DIR", help="Save counterexamples here.")] = None,
) -> None:
    """Drives a subject along the scenarios and every edge of the model, and compares its own words with the model's."""
    levels = _read_levels(level)
    if save_to is not None and save_to.exists() and not save_to.is_dir():
        fail(f"--save: {str(save_to)!r} is not a directory")
    started = time.monotonic()
    options = Options(seed, runs, deadline=None if budget is None else started + budget)
    console = Console(highlight=False)
    with _open_session(subject) as session:
        report = RunReport(subject, session.hello, seed, not_run=tuple(name for name in LEVELS if name not in levels))
        with _progress() as progress:
            if jobs > 1 and len(levels) > 1:
                report.levels = run_levels_apart(subject, levels, options, jobs, _ticker(progress, "levels"))
            else:
                report.levels = [run_level(session, name, options, _ticker(progress, name)) for name in levels]
    report.seconds = time.monotonic() - started
    found = [counterexample for run in report.levels for counterexample in run.counterexamples]
    if save_to is not None:
        try:
            report.saved = [str(save(counterexample, save_to)) for counterexample in found]
        except OSError as error:
            fail(f"--save: {error.filename}: {error.strerror or error}")
    if as_json:
        print_json(report_to_json(report))
    else:
        print_report(report, console)
    raise typer.Exit(report.verdict)


@app.command()
def replay(
    file: Annotated[Path, typer.Argument(help="A saved counterexample, or a scenario file.")],
    subject: SubjectOption = DEFAULT_SUBJECT,
    as_json: JsonOption = False,
) -> None:
    """Drives a subject along a saved counterexample again."""
    try:
        case = load(file)
    except UnusableFileError as error:
        fail(str(error))
    console = Console(highlight=False)
    with _open_session(subject) as session:
        outcome = drive(session, case)
    match outcome:
        case Passed(steps):
            verdict, told = Verdict.CONFORMS, f"{file}: {steps} steps answered as expected"
        case NotAsked(features):
            verdict, told = Verdict.UNDETERMINED, f"{file}: the subject lacks {', '.join(features)}"
        case Failed():
            found = counterexample_of(outcome, subject)
            verdict, told = Verdict.COUNTEREXAMPLE, f"{file}: step {outcome.at + 1}, rules {', '.join(found.rules)}"
            if as_json:
                print_json(counterexample_to_json(found, str(file)))
                raise typer.Exit(verdict)
            print_counterexample(found, console)
    if as_json:
        print_json({"verdict": verdict.name.lower(), "exit_code": int(verdict), "told": told})
    else:
        print_verdict(console, verdict, told)
    raise typer.Exit(verdict)


@app.command()
def soak(
    seconds: Annotated[float, typer.Option(min=0.1, help="How long requests are made; the end takes a second more.")],
    seed: Annotated[int, typer.Option(help="Seed of the clients' choices.")] = 0,
    record: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the trace here (NDJSON).")] = None,
    manager: Annotated[
        str, typer.Option(metavar="MODULE:NAME", help="The manager's class; made with the library's keywords.")
    ] = DEFAULT_MANAGER,
    clients: Annotated[int, typer.Option(min=1, help="Number of concurrent clients.")] = 200,
    as_json: JsonOption = False,
) -> None:
    """Runs the real manager in real time under load, with the monitor alongside, and closes it at its busiest."""
    console = Console(highlight=False)
    options = SoakOptions(seconds, seed, clients, manager, record)
    try:
        with _progress() as progress:
            report = run_soak(options, _second_ticker(progress, seconds))
    except SubjectError as error:
        fail(str(error))
    if as_json:
        print_json(soak_to_json(report))
    else:
        print_soak(report, console)
    raise typer.Exit(report.verdict)


@app.command()
def trace(
    file: Annotated[Path, typer.Argument(help="A trace (NDJSON) as the manager's recorder writes it.")],
    timeline: Annotated[Path | None, typer.Option(metavar="FILE", help="Draw the trace into this HTML page.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Judges a recorded run, line by line, against the model's lifecycle and rules."""
    started = time.monotonic()
    try:
        with file.open("rb") as lines:
            verdict = judge_trace(lines)
        if timeline is not None and verdict.config is not None:
            with file.open("rb") as lines:
                drawn = write_timeline(lines, timeline)
        else:
            drawn = None
    except OSError as error:
        fail(f"{error.filename}: {error.strerror or error}")
    if as_json:
        print_json(trace_to_json(verdict, str(file)))
    else:
        print_trace(verdict, str(file), time.monotonic() - started, Console(highlight=False))
        if timeline is not None:
            for line in describe_timeline(drawn, timeline):
                typer.echo(line)
    raise typer.Exit(verdict.exit_code)


@contextmanager
def _progress() -> Generator[Progress | None, None, None]:
    """A bar on stderr, if that is a terminal."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield None
        return
    columns = (TextColumn("{task.description:>9}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        yield progress


def _ticker(progress: Progress | None, level: str) -> Tick:
    if progress is None:
        return lambda _done, _total: None
    task = progress.add_task(level, total=None)
    return lambda done, total: progress.update(task, completed=done, total=total)


def _second_ticker(progress: Progress | None, seconds: float) -> Callable[[float], None]:
    if progress is None:
        return lambda _passed: None
    task = progress.add_task("soak", total=round(seconds))
    return lambda passed: progress.update(task, completed=round(passed))
