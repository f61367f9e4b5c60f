"""The command `provider-concurrency`.

Exit codes: 0 conforms, 1 counterexample, 2 usage or harness error, 3 undetermined. An error names the argument or the
file that is wrong, without a traceback.
"""

from __future__ import annotations

import time
from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from provider_concurrency_model.check.cli_check import check, replay
from provider_concurrency_model.check.cli_prove import prove_command
from provider_concurrency_model.check.command import JsonOption, fail, make_second_ticker, show_progress, write_json
from provider_concurrency_model.check.managers import DEFAULT_MANAGER
from provider_concurrency_model.check.report_run import describe_timeline, print_soak, print_trace, trace_to_json
from provider_concurrency_model.check.soak import SoakOptions, run_soak, soak_to_json
from provider_concurrency_model.check.subject import SubjectError
from provider_concurrency_model.check.timeline import write_timeline
from provider_concurrency_model.check.trace import judge_trace
from provider_concurrency_spec.vocabulary import PROTOCOL, SPEC_VERSION

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Judges implementations of the per-provider concurrency limiter against its executable model.",
)
app.command()(check)
app.command()(replay)
app.command("prove")(prove_command)


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


@app.command()
def soak(
    seconds: Annotated[
        float,
        typer.Option(
            min=0.1,
            help="How long requests are made; the end takes a second more, or twenty if somebody is left waiting.",
        ),
    ],
    seed: Annotated[int, typer.Option(help="Seed of the clients' choices.")] = 0,
    record: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the trace here (NDJSON).")] = None,
    manager: Annotated[
        str, typer.Option(metavar="MODULE:NAME", help="The manager's class; made with the library's keywords.")
    ] = DEFAULT_MANAGER,
    clients: Annotated[int, typer.Option(min=1, help="Number of concurrent clients.")] = 200,
    json_to: JsonOption = None,
) -> None:
    """Runs the real manager in real time under load, with the monitor alongside, and closes it at its busiest."""
    options = SoakOptions(seconds, seed, clients, manager, record)
    try:
        with show_progress() as progress:
            report = run_soak(options, make_second_ticker(progress, seconds))
    except SubjectError as error:
        fail(str(error))
    if write_json(soak_to_json(report), json_to):
        print_soak(report, Console(highlight=False))
    raise typer.Exit(report.verdict)


@app.command()
def trace(
    file: Annotated[Path, typer.Argument(help="A trace (NDJSON): a recorder's, or any port's own (PORTING.md).")],
    timeline: Annotated[Path | None, typer.Option(metavar="FILE", help="Draw the trace into this HTML page.")] = None,
    json_to: JsonOption = None,
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
    if write_json(trace_to_json(verdict, str(file)), json_to):
        print_trace(verdict, str(file), time.monotonic() - started, Console(highlight=False))
        if timeline is not None:
            for line in describe_timeline(drawn, timeline):
                typer.echo(line)
    raise typer.Exit(verdict.exit_code)
