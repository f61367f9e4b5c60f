"""For each invariant: the faults that only it notices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from mutants.finding import Finding
from mutants.matrix import write_part
from provider_concurrency_spec.invariants import INVARIANTS


def report_invariants(found: Mapping[str, Finding], path: Path) -> int:
    """Writes the table; 1 if an invariant notices nothing at all."""
    broken = {name: frozenset(finding.all) for name, finding in found.items()}
    lines = ["## Invariant by fault", "", LEGEND, ""]
    lines += ["| invariant | rules | faults noticed | by it alone |", "|---|---|---|---|"]
    silent: list[str] = []
    for each in INVARIANTS:
        noticed = [name for name, names in broken.items() if each.name in names]
        alone = [name for name in noticed if broken[name] == {each.name}]
        if not noticed:
            silent.append(each.name)
        told = "; ".join(alone[:3]) + (f" and {len(alone) - 3} more" if len(alone) > 3 else "")
        if not alone:
            told = tell_redundant(each.name, [(broken[name], name) for name in noticed])
        lines.append(f"| {each.name} | {', '.join(each.rule_ids)} | {len(noticed)} | {told} |")
    lines += ["", f"{len(broken)} faults; noticed by no invariant: {', '.join(n for n, b in broken.items() if not b)}."]
    write_part(path, "invariants", "\n".join(lines))
    print("\n".join(lines))
    for name in silent:
        print(f"WRONG: no fault breaks {name}")
    return 1 if silent else 0


def tell_redundant(invariant: str, noticed: Sequence[tuple[frozenset[str], str]]) -> str:
    """That others notice each of its faults, and who notices the one that the fewest do."""
    if not noticed:
        return "no fault"
    company, name = min(noticed, key=lambda item: (len(item[0]), item[1]))
    return f"redundant: others notice each; fewest: {name} ({', '.join(sorted(company - {invariant}))})"


LEGEND = """\
The invariants alone judge what the manager says in all scenarios and 100 random runs; no model is asked. The last
column names faults that nobody notices when this invariant alone is switched off. A redundant one stays: it says
sooner, and in plainer words, what a long run would show in the end."""
