"""`python -m tests.bench [--quick] [--only W1,W2] [--json FILE]`: measures, and prints the table."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from . import (
    cancellation,
    contended,
    cooldowns,
    deep_queue,
    judging,
    many_providers,
    memory,
    uncontended,
    utilisation,
)
from .report import describe_environment, summarise, to_json, write_table
from .rows import Family, Result, run_family

FAMILIES: tuple[Family, ...] = (
    *uncontended.FAMILIES,
    *contended.FAMILIES,
    *deep_queue.FAMILIES,
    *cancellation.FAMILIES,
    *memory.FAMILIES,
    *cooldowns.FAMILIES,
    *utilisation.FAMILIES,
    *judging.FAMILIES,
    *many_providers.FAMILIES,
)


def workload_order(result: Result) -> int:
    """W1, W2, ..., W10: by number."""
    return int(result.row.id.removeprefix("W"))


def run(*, quick: bool, only: Sequence[str]) -> list[Result]:
    """Measures family by family, and tells on stderr where it is."""
    results: list[Result] = []
    for family in FAMILIES:
        if only and not any(row.id in only for row in family.rows):
            continue
        start = time.monotonic()
        results += run_family(family, quick=quick, only=only)
        print(f"{family.name}: {time.monotonic() - start:.1f} s", file=sys.stderr, flush=True)
    return sorted(results, key=workload_order)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; its exit code is 0 whatever the figures are (they are for people and for files)."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="smaller and fewer: a look in CI, not a judgement")
    parser.add_argument("--only", default="", metavar="W1,W2", help="only these workloads")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write everything that was measured to FILE")
    options = parser.parse_args(arguments)
    only = [name.strip().upper() for name in options.only.split(",") if name.strip()]
    known = {row.id for family in FAMILIES for row in family.rows}
    if unknown := set(only) - known:
        parser.error(f"no such workload: {', '.join(sorted(unknown))}")
    start = time.monotonic()
    results = run(quick=options.quick, only=only)
    seconds = time.monotonic() - start
    environment = describe_environment()
    peers = ", ".join(f"{name} {version}" for name, version in environment["peers"].items() if version is not None)
    print(f"{environment['implementation']} {environment['python']} on {environment['machine']}; {peers}\n")
    print(write_table(results))
    print(f"\n{summarise(results)}; {seconds:.0f} s{' (quick: sizes are smaller)' if options.quick else ''}")
    if options.json is not None:
        document = to_json(results, quick=options.quick, seconds=seconds)
        options.json.write_text(json.dumps(document, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
