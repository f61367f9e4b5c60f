"""`provider-concurrency prove`: the proofs from the command line."""

from __future__ import annotations

from typing import Annotated

import typer

from provider_concurrency_model.check.command import JsonOption, fail, write_json
from provider_concurrency_model.check.proof import UnknownEngineError, UnknownFaultError
from provider_concurrency_model.check.prove import prove, run_proofs


def prove_command(
    engine: Annotated[
        list[str] | None, typer.Option(help="crosshair, z3 or spin; repeatable. One that is asked for must be there.")
    ] = None,
    plant: Annotated[
        str | None, typer.Option(metavar="NAME", help="Plant a fault, or 'all': each must make its theorems fail.")
    ] = None,
    json_to: JsonOption = None,
) -> None:
    """Proves the kernel for every number of requests and every limit, and has a second model checker count the model.

    Exit 0 proved, 1 refuted, 2 usage, 3 undetermined. With a planted fault 1 is what to hope for.
    """
    if json_to is not None and plant == "all":
        fail("--json tells one run; --plant all makes many")
    try:
        if json_to is None:
            raise typer.Exit(prove(engine, plant, typer.echo))
        report = run_proofs(engine, plant)
    except (UnknownEngineError, UnknownFaultError) as error:
        fail(str(error))
    if write_json(report.to_json(), json_to):
        typer.echo(f"exit {report.exit_code}")
    raise typer.Exit(report.exit_code)
