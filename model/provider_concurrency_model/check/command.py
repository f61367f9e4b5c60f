"""What the commands share: options, one-line errors, JSON to a file or to stdout, a progress bar."""

from __future__ import annotations

import json
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, NoReturn

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from provider_concurrency_model.check.describe import make_printable
from provider_concurrency_model.check.judge import Tick
from provider_concurrency_model.check.source import CommandLine, Dotted, Source
from provider_concurrency_model.check.subject import DEFAULT_SUBJECT, Session, SubjectError
from provider_concurrency_model.check.verdict import Verdict
from provider_concurrency_spec.vocabulary import Json

CommandArgument = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="-- COMMAND",
        help="A port in any language: a command that speaks protocol 1 over stdin and stdout.",
    ),
]
SubjectOption = Annotated[
    str | None,
    typer.Option(
        "--subject",
        metavar="MODULE:NAME",
        help=f"A port in Python: its instances have handle(message) -> reply. Default: {DEFAULT_SUBJECT}.",
    ),
]
ReplyOption = Annotated[
    float, typer.Option("--reply-timeout", min=0.01, metavar="SECONDS", help="A command's time for a reply.")
]
StartOption = Annotated[
    float, typer.Option("--start-timeout", min=0.01, metavar="SECONDS", help="A command's time until it says hello.")
]
JsonOption = Annotated[
    str | None, typer.Option("--json", metavar="FILE", help="Write JSON here; '-': to stdout, instead of text.")
]


def fail(message: str) -> NoReturn:
    """Ends with exit 2 and the message on stderr."""
    typer.echo(make_printable(f"provider-concurrency: {message}"), err=True)
    raise typer.Exit(Verdict.HARNESS_ERROR)


def write_json(value: Json, file: str | None) -> bool:
    """Writes one JSON object, if that was asked for; whether text is still to be printed."""
    if file is None:
        return True
    text = json.dumps(value, indent=2, default=repr) + "\n"
    if file == "-":
        typer.echo(text, nl=False)
        return False
    write_file("--json", Path(file), text)
    return True


def expect_folder(option: str, file: Path | str | None) -> None:
    """Refuses a report's file without a folder before the run instead of after it."""
    if file is not None and file != "-" and not Path(file).parent.is_dir():
        fail(f"{option}: {file}: there is no folder {str(Path(file).parent)!r}")


def write_file(option: str, path: Path, text: str) -> None:
    """Writes a report; where that is impossible the option is named."""
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        fail(f"{option}: {path}: {error.strerror or error}")


def choose_source(subject: str | None, command: list[str] | None, reply_timeout: float, start_timeout: float) -> Source:
    """What is to be judged; the packaged manager where nothing is named."""
    if not command:
        return Dotted(subject or DEFAULT_SUBJECT)
    if subject is not None:
        fail("--subject: names one subject, the command another; give one of them")
    return CommandLine(tuple(command), reply_timeout, start_timeout)


@contextmanager
def open_session(source: Source) -> Generator[Session, None, None]:
    """A greeted subject, ended afterwards; one that can't be judged ends the command."""
    try:
        session = source.open()
    except SubjectError as error:
        fail(str(error))
    try:
        yield session
    except SubjectError as error:
        fail(str(error))
    finally:
        session.close()


@contextmanager
def show_progress() -> Generator[Progress | None, None, None]:
    """A bar on stderr, if that is a terminal."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield None
        return
    columns = (TextColumn("{task.description:>9}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        yield progress


def make_ticker(progress: Progress | None, level: str) -> Tick:
    """Progress of a level."""
    if progress is None:
        return lambda _done, _total: None
    task = progress.add_task(level, total=None)
    return lambda done, total: progress.update(task, completed=done, total=total)


def make_second_ticker(progress: Progress | None, seconds: float) -> Callable[[float], None]:
    """Progress of a soak."""
    if progress is None:
        return lambda _passed: None
    task = progress.add_task("soak", total=round(seconds))
    return lambda passed: progress.update(task, completed=round(passed))
