"""MATRIX.md: read back, so that a run of some faults changes their cells only, and written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from mutants.equivalent import Equivalent
from mutants.fault import LAYERS, Fault, Layer

Cells = Mapping[str, Mapping[str, str]]
"""By fault and layer."""

BEGIN: Final = "<!-- {} begin -->"
END: Final = "<!-- {} end -->"

LEGEND: Final = """\
Each row is one wrong line. **Bold**: the layer that must catch it, with the rule that it names and the steps of its
shortest counterexample after `new` (random, stateful and proofs sample or reason, they have none). The other layers
(`--all-layers`) stop at the first difference, and their cells name its rule, which needn't be the fault's own: what is
seen first may be a consequence. `-` the fault survives the layer (or stands in a file that the layer doesn't load);
`hung` the layer doesn't end; `broke` its process ends; empty: not asked."""


def read_matrix(path: Path) -> dict[str, dict[str, str]]:
    """The cells in the file; nothing if there is no file yet."""
    if not path.exists():
        return {}
    cells: dict[str, dict[str, str]] = {}
    for line in read_part(path.read_text(encoding="utf-8"), "matrix").splitlines():
        row = [part.strip() for part in line.strip("|").split("|")]
        if len(row) == len(LAYERS) + 3 and row[0] not in ("fault", "---"):
            cells[row[0]] = {
                layer: cell.strip("*") for layer, cell in zip(LAYERS, row[3:], strict=True) if cell.strip("*")
            }
    return cells


def read_part(text: str, name: str) -> str:
    """What stands between the marks of a part."""
    _, _, rest = text.partition(BEGIN.format(name))
    return rest.partition(END.format(name))[0]


def write_part(path: Path, name: str, body: str) -> None:
    """Puts a part between its marks; the rest of the file stays."""
    text = path.read_text(encoding="utf-8") if path.exists() else "# The mutant zoo\n\nWritten by run.py; don't edit.\n"
    begin, end = BEGIN.format(name), END.format(name)
    if begin not in text:
        text += f"\n{begin}\n{end}\n"
    before, _, rest = text.partition(begin)
    _, _, after = rest.partition(end)
    path.write_text(f"{before}{begin}\n{body.strip()}\n{end}{after}", encoding="utf-8")


def fill(row: Mapping[str, str]) -> list[tuple[Layer, str]]:
    """A cell for every layer."""
    return [(layer, row.get(layer, "")) for layer in LAYERS]


def write_matrix(path: Path, faults: Sequence[Fault], equivalent: Sequence[Equivalent], cells: Cells) -> None:
    """The whole table, in the order of the zoo, and what is equivalent."""
    lines = ["## Fault by layer", "", LEGEND, ""]
    lines.append(f"| {' | '.join(('fault', 'rule', 'source', *LAYERS))} |")
    lines.append(f"|{'---|' * (len(LAYERS) + 3)}")
    for fault in faults:
        row = cells.get(fault.name, {})
        shown = [f"**{cell}**" if layer == fault.layer and cell else cell for layer, cell in fill(row)]
        lines.append(f"| {' | '.join((fault.name, fault.rule, fault.source, *shown))} |")
    caught = [fault for fault in faults if cells.get(fault.name, {}).get(fault.layer, "-") != "-"]
    lines += ["", f"{len(faults)} faults, {len(caught)} caught by the layer that must."]
    write_part(path, "matrix", "\n".join(lines))
    lines = ["## Equivalent", "", "Changes that nothing can notice; `--all-layers` shows that they survive.", ""]
    for each in equivalent:
        fault = each.fault
        change = f"`{fault.find.strip()}` becomes `{fault.put.strip()}`"
        lines.append(f"- **{fault.name}** ({fault.rule}, {fault.file}: {change}). {each.why}")
    write_part(path, "equivalent", "\n".join(lines))
