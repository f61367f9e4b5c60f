"""Writes the generated blocks of documents, and checks that they haven't drifted from what generates them.

    python -m provider_concurrency_model.diagrams --check spec/SPEC.md README.md

A block stands between two marks on lines of their own, `<!-- generated: NAME -->` and `<!-- end generated: NAME -->`.
Exit codes: 0 all is as generated (or was written), 1 a block has drifted, 2 a file without marks, a mark without its
end, or a name that nothing generates.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final, cast

_MARK: Final = re.compile(r"^<!-- (end )?generated: ([\w-]+) -->$")


class BlockError(ValueError):
    """A document whose marks can't be followed; the message names what is wrong."""


def _draw_lifecycle() -> str:
    from provider_concurrency_model.lifecycle import draw_lifecycle

    return draw_lifecycle()


def _draw_quotient() -> str:
    """The settled level with three requests, so that the picture can be read."""
    from provider_concurrency_model.explore import LEVELS, explore, quotient

    picture = quotient(explore(replace(LEVELS["settled"], live=3))).to_mermaid()
    return f"```mermaid\n{picture.strip()}\n```"


def _draw_claims() -> str:
    from provider_concurrency_model.check.claims import draw_claims

    return draw_claims()


GENERATORS: Final[Mapping[str, Callable[[], str]]] = {
    "lifecycle": _draw_lifecycle,
    "quotient": _draw_quotient,
    "claims": _draw_claims,
}
"""Block name -> what returns its text as Markdown; each imports what it needs when it is called."""


def generate_block(name: str) -> str:
    """The text of a block; raises BlockError for a name that nothing generates."""
    if name not in GENERATORS:
        raise BlockError(f"nothing generates the block {name!r}; known: {', '.join(sorted(GENERATORS))}")
    return GENERATORS[name]().strip("\n")


def replace_blocks(document: str, generate: Callable[[str], str] = generate_block) -> str:
    """The document with every block's text generated anew; raises BlockError when it has none, or a broken one."""
    lines: list[str] = []
    begun: str | None = None
    names: set[str] = set()
    for number, line in enumerate(document.splitlines(), 1):
        mark = _MARK.match(line)
        if mark is None:
            if begun is None:
                lines.append(line)
            continue
        ends, name = mark[1] is not None, mark[2]
        if ends is not (begun is not None) or (ends and name != begun):
            raise BlockError(
                f"line {number}: {line} doesn't fit, " + (f"{begun!r} is open" if begun else "none is open")
            )
        begun = None if ends else name
        names.add(name)
        lines += [line] if ends else [line, "", *generate(name).splitlines(), ""]
    if begun is not None:
        raise BlockError(f"the block {begun!r} has no end mark")
    if not names:
        raise BlockError("has no mark <!-- generated: NAME -->")
    return "\n".join(lines) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns its exit code."""
    parser = argparse.ArgumentParser(prog="python -m provider_concurrency_model.diagrams", description=__doc__)
    mode = parser.add_mutually_exclusive_group(required=True)
    mode.add_argument("--write", action="store_true", help="replace the blocks")
    mode.add_argument("--check", action="store_true", help="only say whether they have drifted")
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE")
    options = parser.parse_args(arguments)
    worst = 0
    for path in cast("list[Path]", options.files):
        try:
            before = path.read_text(encoding="utf-8")
            after = replace_blocks(before)
        except (BlockError, OSError) as fault:
            print(f"{path}: {fault}", file=sys.stderr)
            worst = 2
            continue
        if before == after:
            print(f"{path}: as generated")
        elif options.write:
            path.write_text(after, encoding="utf-8")
            print(f"{path}: written")
        else:
            print(f"{path}: a generated block has drifted; run with --write", file=sys.stderr)
            worst = max(worst, 1)
    return worst


if __name__ == "__main__":  # pragma: no cover - main is tested
    raise SystemExit(main())
