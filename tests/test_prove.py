"""`prove`: the gate's reading of reports, z3 on the kernel's own code, planted faults, exit codes."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from provider_concurrency_model import kernel
from provider_concurrency_model.check import crosshair_gate, planted, prove, spacer, spin, symbolic, theorems
from provider_concurrency_model.check.crosshair_gate import CONDITIONS, judge, read_report
from provider_concurrency_model.check.planted import FAULTS
from provider_concurrency_model.check.proof import (
    Fault,
    Result,
    UnknownEngineError,
    UnknownFaultError,
    plant,
    read_texts,
)
from provider_concurrency_model.check.prove import ProofReport, run_proofs
from provider_concurrency_model.check.z3_proofs import discharge, prove_theorems
from provider_concurrency_model.kernel import Counts

pytestmark = [pytest.mark.long, pytest.mark.exhaustive]

z3: Any = pytest.importorskip("z3", reason="z3-solver isn't installed (extra prove)")

KERNEL_FAULTS = [fault for fault in FAULTS.values() if fault.part == "kernel"]
needs_crosshair = pytest.mark.skipif(
    crosshair_gate.missing_tool() is not None, reason="crosshair-tool isn't installed (extra prove)"
)

# -- the gate's reading of CrossHair's report ------------------------------------------------------------------------

SOURCE = '''
def take(counts):
    """Takes.

    pre: counts.queued == 0
    post: __return__ == 1
    post: __return__ == 2
    post: __return__ == 3
    """
'''
CONFIRMED = "info: Confirmed over all paths."


def report(*messages: str) -> str:
    return "".join(f"/somewhere/kernel.py:{6 + place}: {message}\n" for place, message in enumerate(messages))


def test_all_conditions_confirmed_is_proved() -> None:
    assert judge(SOURCE, "take", report(CONFIRMED, CONFIRMED, CONFIRMED)) == ("proved", "3 conditions")


@pytest.mark.parametrize(
    ("messages", "outcome", "detail"),
    [
        ((CONFIRMED, CONFIRMED), "unknown", "line 8: not reported"),
        ((), "unknown", "line 6: not reported"),
        ((CONFIRMED, "info: Not confirmed.", CONFIRMED), "unknown", "line 7: Not confirmed."),
        (
            (CONFIRMED, CONFIRMED, "info: Unable to meet precondition."),
            "unknown",
            "line 8: Unable to meet precondition.",
        ),
        (
            (CONFIRMED, CONFIRMED, CONFIRMED, CONFIRMED),
            "unknown",
            "line 9 is no condition of take: Confirmed over all paths.",
        ),
        (
            (CONFIRMED, "error: false when calling take(0)", "info: Not confirmed."),
            "refuted",
            "false when calling take(0)",
        ),
    ],
)
def test_anything_but_the_listed_conditions_confirmed_fails(
    messages: tuple[str, ...], outcome: str, detail: str
) -> None:
    assert judge(SOURCE, "take", report(*messages)) == (outcome, detail)


def test_a_condition_taken_out_of_a_contract_is_missed() -> None:
    shorter = SOURCE.replace("    post: __return__ == 3\n", "")
    told = "3 conditions are listed, the contract has 2"
    assert judge(shorter, "take", report(CONFIRMED, CONFIRMED)) == ("unknown", told)


def test_a_contract_that_is_gone_is_missed() -> None:
    assert judge("x = 1\n", "take", "")[0] == "unknown"


def test_an_error_hides_what_else_is_said_of_its_line_and_may_have_several_lines() -> None:
    text = "a.py:6: info: Confirmed over all paths.\na.py:6: error: false when calling take(\n  0)\n"
    assert read_report(text) == {6: ("error", "false when calling take( 0)")}


def test_the_list_of_conditions_is_the_kernels() -> None:
    source = read_texts().kernel
    assert {name: len(crosshair_gate.condition_lines(source, name)) for name in CONDITIONS} == CONDITIONS
    assert source.count("\n    post: ") == sum(CONDITIONS.values())
    assert {*kernel.STEPS, *kernel.RESIZES} <= set(CONDITIONS)


@needs_crosshair
def test_crosshair_confirms_a_contract() -> None:
    results = list(crosshair_gate.confirm_contracts(read_texts(), ("take", "close")))
    assert [(result.theorem, result.outcome) for result in results] == [("take", "proved"), ("close", "proved")]


@needs_crosshair
@pytest.mark.parametrize(
    "name", ["one-more-than-the-limit", "a-release-frees-at-once", "close-forgets-the-queue", "everybody-queues"]
)
def test_crosshair_refutes_a_planted_fault(name: str) -> None:
    found = run_proofs(["crosshair"], name)
    assert found.results
    assert {result.outcome for result in found.results} == {"refuted"}
    assert found.exit_code == 1


@needs_crosshair
def test_crosshair_fails_for_a_precondition_that_is_never_met() -> None:
    fault = Fault("never", "kernel", "close", "pre: is_sound(counts)", "pre: counts.held < 0 <= counts.held", ())
    (result,) = crosshair_gate.confirm_contracts(read_texts(fault), ("close",))
    assert result.outcome == "unknown"
    assert "precondition" in result.detail


# -- z3 on the kernel's own code -------------------------------------------------------------------------------------


def test_the_symbolic_paths_are_what_the_kernel_does() -> None:
    """Each small state that a step's contract allows lies on exactly one path, which leads where the kernel leads."""
    paths = symbolic.trace_all(kernel)
    numbers = product((-1, 0, 1, 2), range(3), range(2), range(2), range(3))
    small = [Counts(*row, *flags) for row in numbers for flags in product((False, True), repeat=2)][::5]
    steps: dict[str, Any] = {**kernel.STEPS, **kernel.RESIZES}
    for name, step in steps.items():
        taken = 0
        mine = [path for path in paths if path.step == name]
        for counts in small:
            extra = (1,) if name in kernel.RESIZES else ()
            names = dict(zip(step.__code__.co_varnames, (counts, *extra), strict=False))
            allowed = all(eval(line, vars(kernel), names) for line in symbolic.preconditions(step))
            ways = [path for path in mine if z3.is_true(evaluate(path.condition, counts, *extra))]
            assert len(ways) == allowed, (name, counts)
            if ways:
                after = step(counts, *extra)
                values = [evaluate(term, counts, *extra) for term in ways[0].after.terms()]
                assert [str(value) for value in values] == [str(value) for value in vars_of(after)], (name, counts)
                taken += 1
        assert taken > 3, name


def vars_of(counts: Counts) -> list[int | bool]:
    return [getattr(counts, name) for name in Counts.__slots__]


def evaluate(term: Any, counts: Counts, extra: int = 0) -> Any:
    values = [(symbolic.name_point().terms()[place], value) for place, value in enumerate(vars_of(counts))]
    swaps = [(name, z3.BoolVal(value) if isinstance(value, bool) else z3.IntVal(value)) for name, value in values]
    return z3.simplify(z3.substitute(term, *swaps, (z3.Int("new_limit"), z3.IntVal(extra))))


def test_everything_is_proved() -> None:
    results = [*prove_theorems(read_texts()), spacer.find_invariant(read_texts())]
    assert {result.theorem: result.outcome for result in results} == dict.fromkeys(
        [*theorems.THEOREMS, spacer.THEOREM], "proved"
    )


@pytest.mark.parametrize("fault", KERNEL_FAULTS, ids=lambda fault: fault.name)
def test_z3_refutes_a_planted_fault(fault: Fault) -> None:
    found = run_proofs(["z3"], fault.name)
    assert found.results
    assert {result.theorem: result.outcome for result in found.results} == dict.fromkeys(
        [result.theorem for result in found.results], "refuted"
    )
    assert found.exit_code == 1


def test_every_theorem_and_every_contract_has_a_fault_that_refutes_it() -> None:
    refuted = {name for fault in FAULTS.values() for name in fault.refutes}
    assert refuted == {*theorems.THEOREMS, spacer.THEOREM, *CONDITIONS, *spin.QUESTIONS}


def test_a_theorem_about_nothing_is_unknown() -> None:
    point = symbolic.name_point()
    empty = theorems.Obligation("never", z3.And(point.held > 0, point.held < 0), point.held == 7, point, point)
    assert discharge([empty]) == ("unknown", "empty: no state is left for never")
    assert discharge([]) == ("unknown", "empty: no state is left for any step")


def test_a_counterexample_names_the_step_and_both_states() -> None:
    results = prove_theorems(read_texts(FAULTS["a-429-pauses-a-closed-manager"]), ("closing",))
    (result,) = results
    assert result.outcome == "refuted"
    assert result.detail.startswith("pause: (")


# -- planting --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", FAULTS.values(), ids=lambda fault: fault.name)
def test_a_fault_changes_its_function_and_nothing_else(fault: Fault) -> None:
    right, wrong = read_texts(), read_texts(fault)
    before, after = (right.kernel, wrong.kernel) if fault.part == "kernel" else (right.twin, wrong.twin)
    assert before != after
    assert len(after) - len(before) == len(fault.wrong) - len(fault.right)
    assert (right.twin == wrong.twin) is (fault.part == "kernel")


def test_a_fault_whose_line_is_gone_is_an_error() -> None:
    with pytest.raises(AssertionError, match="exactly once"):
        plant("def take(counts):\n    return 1\n", Fault("x", "kernel", "take", "return 2", "return 3", ()))


def test_an_unknown_fault_is_told_with_those_that_there_are() -> None:
    with pytest.raises(UnknownFaultError, match=r"unknown fault 'x'; faults are: one-more-than-the-limit;"):
        planted.find_fault("x")


# -- exit codes ------------------------------------------------------------------------------------------------------


def result(engine: Any, outcome: Any) -> Result:
    return Result("theorem", engine, outcome, 0.0, "says", "detail")


@pytest.mark.parametrize(
    ("asked", "outcomes", "code"),
    [
        ((), [("z3", "proved"), ("spin", "agrees")], 0),
        ((), [("z3", "proved"), ("spin", "refuted")], 1),
        ((), [("z3", "unknown"), ("spin", "refuted")], 1),
        ((), [("z3", "unknown"), ("spin", "agrees")], 3),
        ((), [("z3", "proved"), ("spin", "skipped")], 0),
        (("spin",), [("spin", "skipped")], 3),
        (("z3", "spin"), [("z3", "proved"), ("spin", "skipped")], 3),
        ((), [("z3", "proved"), ("spin", "unknown")], 3),
        ((), [("z3", "skipped"), ("spin", "agrees")], 3),
        ((), [("spin", "skipped")], 3),
        ((), [], 3),
    ],
)
def test_exit_codes(asked: Any, outcomes: list[tuple[str, str]], code: int) -> None:
    assert ProofReport(asked, None, [result(*item) for item in outcomes]).exit_code == code


@pytest.mark.parametrize(
    ("outcomes", "code"),
    [
        ([("z3", "refuted"), ("crosshair", "refuted")], 1),
        ([("z3", "refuted"), ("crosshair", "proved")], 3),
        ([("z3", "refuted"), ("crosshair", "skipped")], 3),
        ([], 3),
    ],
)
def test_exit_codes_with_a_planted_fault(outcomes: list[tuple[str, str]], code: int) -> None:
    report = ProofReport((), FAULTS["everybody-queues"], [result(*item) for item in outcomes])
    assert report.exit_code == code


def test_a_missing_engine_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prove, "missing_tool", lambda engine: f"no {engine}")
    lines: list[str] = []
    assert prove.prove(["crosshair"], say=lines.append) == 3
    assert "skipped: no crosshair" in lines[0]
    assert prove.prove(say=lines.append) == 3  # nothing at all is proved


def test_without_spin_the_rest_is_enough_unless_it_was_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    proved = result("z3", "proved")
    monkeypatch.setattr(prove.crosshair_gate, "confirm_contracts", lambda *_: iter([proved]))
    monkeypatch.setattr(prove, "_ask_z3", lambda *_: iter([proved]))
    monkeypatch.setattr(prove, "missing_tool", lambda engine: "no spin" if engine == "spin" else None)
    assert prove.prove(say=lambda _: None) == 0
    assert prove.prove(["z3", "spin"], say=lambda _: None) == 3


def test_an_unknown_engine_is_told() -> None:
    with pytest.raises(UnknownEngineError, match="unknown engine tlc; engines are crosshair, z3, spin"):
        run_proofs(["z3", "tlc"])


def test_what_is_printed() -> None:
    lines: list[str] = []
    assert prove.prove(["z3"], "everybody-queues", lines.append) == 1
    assert [line.split()[0] for line in lines[:2]] == ["guards", "work"]
    assert lines[-1].startswith("the fault everybody-queues was noticed by all of its")


def test_the_report_is_plain_data() -> None:
    report = ProofReport((), None, [result("z3", "proved")])
    told = report.to_json()
    assert told["exit_code"] == 0
    assert told["results"][0]["outcome"] == "proved"
    assert told["not_proved"]
