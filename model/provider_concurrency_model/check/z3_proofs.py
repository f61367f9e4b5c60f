"""What z3 proves about the kernel: each theorem, obligation by obligation.

The transition relation is the kernel's own code (`symbolic`), the claims are in `theorems`. All obligations must hold,
and for no step may the hypotheses be empty: a theorem about nothing is called unknown.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from provider_concurrency_model.check.proof import Outcome, Result, Stopwatch, Texts, load_kernel
from provider_concurrency_model.check.symbolic import Term, UndecidedError, load_z3, trace_all
from provider_concurrency_model.check.theorems import THEOREMS, Obligation, Subject

_TIMEOUT_MS: Final = 10_000


def prove_theorems(texts: Texts, names: tuple[str, ...] = tuple(THEOREMS)) -> Iterator[Result]:
    """The theorems of these names, one by one."""
    module = load_kernel(texts)
    subject = Subject(module, tuple(trace_all(module)))
    for name in names:
        theorem = THEOREMS[name]
        watch = Stopwatch()
        try:
            outcome, detail = discharge(list(theorem.obligations(subject)))
        except UndecidedError as error:
            outcome, detail = "unknown", f"z3 gave up on {error}"
        yield Result(name, "z3", outcome, watch.seconds(), theorem.says, detail)


def discharge(obligations: list[Obligation]) -> tuple[Outcome, str]:
    """Proves every obligation, or shows one state in which it fails."""
    z3 = load_z3()
    solver = z3.Solver()
    solver.set("timeout", _TIMEOUT_MS)
    possible: set[str] = set()
    """The steps that at least one hypothesis leaves a state for."""
    for obligation in obligations:
        solver.push()
        solver.add(obligation.hypothesis)
        if obligation.step not in possible and solver.check() == z3.sat:
            possible.add(obligation.step)
        solver.add(z3.Not(obligation.claim))
        found = solver.check()
        if found == z3.sat:
            return "refuted", tell(obligation, solver.model())
        if found == z3.unknown:
            return "unknown", f"{obligation.step}: {solver.reason_unknown()}"
        solver.pop()
    empty = {obligation.step for obligation in obligations} - possible
    if empty or not obligations:
        return "unknown", f"empty: no state is left for {', '.join(sorted(empty)) or 'any step'}"
    return "proved", f"{len(obligations)} obligations"


def tell(obligation: Obligation, model: Term) -> str:
    """A counterexample."""
    shown = [
        ", ".join(str(model.eval(term, model_completion=True)) for term in point.terms())
        for point in (obligation.before, obligation.after)
    ]
    return f"{obligation.step}: ({shown[0]}) -> ({shown[1]})  (limit, held, cooling, reclaimed, queued, paused, closed)"
