"""What a layer made of a fault."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from mutants.fault import Fault


@dataclass(frozen=True, slots=True)
class Finding:
    """`caught` with the rules named, `survived`, `hung` (it doesn't end), or `broke` (the process ended)."""

    kind: Literal["caught", "survived", "hung", "broke"]
    rules: tuple[str, ...] = ()
    """Of the counterexample that is shown, the most telling first."""
    steps: int | None = None
    """Its length, None where there is none."""
    what: str = ""
    all: tuple[str, ...] = ()
    """What every finding of the layer is called."""

    @property
    def families(self) -> frozenset[str]:
        """The rules' families."""
        return frozenset(rule.partition("-")[0] for rule in self.rules)

    def cell(self) -> str:
        """The entry in the matrix: the rule, and the steps that show it."""
        match self.kind:
            case "survived":
                return "-"
            case "caught":
                return " ".join(str(part) for part in (self.rules[0] if self.rules else "caught", self.steps) if part)
            case kind:
                return kind


def conclude(fault: Fault | None, found: list[dict[str, Any]]) -> Finding:
    """Of all that a layer found: the shortest that names the fault's rule, else its family, else the shortest."""
    if not found:
        return Finding("survived")

    def rank(item: dict[str, Any]) -> tuple[bool, bool, int]:
        rules = item["rules"]
        families = {rule.partition("-")[0] for rule in rules}
        names_rule, names_family = (fault.rule in rules, fault.family in families) if fault else (False, False)
        return not names_family, not names_rule, item["steps"] or 999

    best = min(found, key=rank)
    rules = tuple(dict.fromkeys(best["rules"]))
    return Finding("caught", rules, best["steps"], best["what"], tuple(item["what"] for item in found))
