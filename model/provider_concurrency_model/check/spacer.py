"""Spacer, z3's engine for unbounded reachability, is told the steps and what must never happen, and no invariant.

It has to find one by itself, for every limit, any number of requests and any sequence of steps, changes of the limit
included. It doesn't have to be trusted: what it found is checked again as an inductive invariant, by plain z3.
"""

from __future__ import annotations

from typing import Final

from provider_concurrency_model.check.proof import Outcome, Result, Stopwatch, Texts, load_kernel
from provider_concurrency_model.check.symbolic import Path, Point, Term, load_z3, name_point, trace_all
from provider_concurrency_model.check.theorems import begins, is_at_rest, largest

THEOREM: Final = "invariant found"
SAYS: Final = "Spacer by itself: no count negative, in_flight bounded, nobody waits beside room (ADM-5, ADM-6)"

_TIMEOUT_MS: Final = 20_000


def find_invariant(texts: Texts) -> Result:
    """Asks Spacer whether something bad is reachable, and checks its answer."""
    watch = Stopwatch()
    # The invariants in the contracts are left out: they are what is to be found.
    paths = [path for path in trace_all(load_kernel(texts), is_assuming=False) if path.step != "grant"]
    outcome, detail = search(paths)
    return Result(THEOREM, "z3", outcome, watch.seconds(), SAYS, detail)


def search(paths: list[Path]) -> tuple[Outcome, str]:
    """The verdict, and the invariant or the reason."""
    z3 = load_z3()
    point, mark = name_point(), z3.Int("mark")
    names = [*point.terms(), mark, z3.Int("new_limit")]
    known = z3.Function("Inv", *[term.sort() for term in (*point.terms(), mark)], z3.BoolSort())
    spacer = z3.Fixedpoint()
    spacer.set(engine="spacer", timeout=_TIMEOUT_MS)
    spacer.register_relation(known)
    spacer.declare_var(*names)
    spacer.rule(known(*point.terms(), mark), [begins(point), mark == 0])
    for path in paths:
        spacer.rule(known(*path.after.terms(), mark_after(path, mark)), [known(*point.terms(), mark), path.condition])
    found = spacer.query(z3.And(known(*point.terms(), mark), is_bad(point, mark)))
    if found == z3.unknown:
        return "unknown", str(spacer.reason_unknown())
    if found == z3.sat:
        return "refuted", "something bad is reachable"
    answer = spacer.get_answer()
    invariant = read_invariant(answer, known, [*point.terms(), mark])
    if not is_inductive(invariant, paths, point, mark):
        return "unknown", f"what Spacer found isn't an invariant: {invariant}"
    return "proved", " ".join(str(z3.simplify(invariant)).split())


def mark_after(path: Path, mark: Term) -> Term:
    """in_flight when the limit was last changed."""
    return mark if path.extra is None else path.before.in_flight


def is_bad(point: Point, mark: Term) -> Term:
    """What must never be."""
    z3 = load_z3()
    negative = z3.Or(*[number < 0 for number in (point.held, point.cooling, point.reclaimed, point.queued)])
    above = z3.And(point.is_limited, point.in_flight > largest(point.limit, mark))
    return z3.Or(negative, above, z3.Not(is_at_rest(point)))


def read_invariant(answer: Term, known: Term, terms: list[Term]) -> Term:
    """The definition that Spacer gives the relation: `forall x: Inv(x) == definition`, perhaps among others."""
    z3 = load_z3()
    parts = answer.children() if z3.is_and(answer) else [answer]
    for part in parts:
        if z3.is_quantifier(part) and part.num_vars() == len(terms):
            body = z3.substitute_vars(part.body(), *reversed(terms))
            left, right = body.children()
            return right if z3.eq(left.decl(), known) else left
    raise AssertionError(f"no invariant in {answer}")


def is_inductive(invariant: Term, paths: list[Path], point: Point, mark: Term) -> bool:
    """Holds at the beginning, is kept by every step, and excludes what is bad."""
    z3 = load_z3()
    terms = [*point.terms(), mark]

    def holds(claim: Term) -> bool:
        solver = z3.Solver()
        solver.set("timeout", _TIMEOUT_MS)
        solver.add(z3.Not(claim))
        return bool(solver.check() == z3.unsat)

    def moved(path: Path) -> Term:
        targets = [*path.after.terms(), mark_after(path, mark)]
        return z3.substitute(invariant, *zip(terms, targets, strict=True))

    return (
        holds(z3.Implies(z3.And(begins(point), mark == 0), invariant))
        and holds(z3.Implies(invariant, z3.Not(is_bad(point, mark))))
        and all(holds(z3.Implies(z3.And(invariant, path.condition), moved(path))) for path in paths)
    )
