"""The ticket abstraction of the whole-system model, and SPIN's agreement with it."""

from __future__ import annotations

import shutil

import pytest

from provider_concurrency_model.check import spin
from provider_concurrency_model.check.planted import FAULTS
from provider_concurrency_model.check.proof import Fault, read_texts
from provider_concurrency_model.check.prove import run_proofs
from provider_concurrency_model.check.spin import QUESTIONS, SpinError, Verified, read_verdict
from provider_concurrency_model.tickets import (
    Bound,
    Tickets,
    enumerate_tickets,
    find_starvation,
    happen,
    happenings,
    look_at,
    make_state,
)

pytestmark = [pytest.mark.long, pytest.mark.exhaustive]

MISSING = spin.missing_tool()
needs_spin = pytest.mark.skipif(MISSING is not None, reason=str(MISSING))

# -- the model's side ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("bound", "states", "transitions"),
    [
        (Bound(3, 2), 87, 411),
        (Bound(4, 2), 281, 1633),
        (Bound(5, 2), 843, 5783),
        (Bound(6, 3), 4041, 33345),
        (Bound(3, 2, is_fifo=True), 101, 470),
        (Bound(5, 2, is_fifo=True), 2267, 15212),
        (Bound(2, 1, is_detailed=True), 229, 1941),
        (Bound(3, 1, is_detailed=True), 919, 9527),
        (Bound(3, 2, is_detailed=True), 1695, 19320),
    ],
    ids=str,
)
def test_the_number_of_states_is_pinned(bound: Bound, states: int, transitions: int) -> None:
    graph = enumerate_tickets(bound)
    assert (len(graph), sum(map(len, graph.values()))) == (states, transitions)


@pytest.mark.parametrize("bound", [Bound(3, 2), Bound(3, 1, is_fifo=True, is_detailed=True)], ids=str)
def test_the_abstraction_loses_nothing_that_it_shows(bound: Bound) -> None:
    """A state made for tickets looks like them again: concretizing and looking from afar are inverse."""
    for tickets in enumerate_tickets(bound):
        assert look_at(bound, make_state(bound, tickets)) == tickets


@pytest.mark.parametrize("bound", [Bound(4, 2), Bound(3, 1, is_fifo=True, is_detailed=True)], ids=str)
def test_the_rules_hold_in_every_ticket_state(bound: Bound) -> None:
    for tickets, exits in enumerate_tickets(bound).items():
        in_flight = sum(phase in ("handed", "held", "cooling", "reclaimed") for phase in tickets.phases)
        assert not tickets.queue or tickets.paused or in_flight >= tickets.limit  # ADM-5
        assert sorted(tickets.queue) == [place for place, phase in enumerate(tickets.phases) if phase == "queued"]
        assert bound.is_fifo or list(tickets.queue) == sorted(tickets.queue)  # ORD-1
        assert not tickets.closed or {*tickets.phases} <= {"idle", "handed", "held"}  # CLO-1
        for _, target in exits:
            after = sum(phase in ("handed", "held", "cooling", "reclaimed") for phase in target.phases)
            assert after <= max(in_flight, target.limit)  # ADM-6


def test_the_youngest_may_starve_where_the_oldest_goes_first() -> None:
    bound = Bound(3, 1)
    lasso = find_starvation(enumerate_tickets(bound))
    assert lasso is not None
    tickets = Tickets(("idle",) * 3, (), 1)
    for happening in lasso.way:
        tickets = happen(bound, tickets, happening)
    start = tickets
    for happening in lasso.loop:
        assert happening in happenings(bound, tickets)
        assert tickets.phases[2] == "queued"
        tickets = happen(bound, tickets, happening)
    assert tickets == start
    assert {"acquire", "release"} <= {name for name, about in lasso.loop if about == 0}


@pytest.mark.parametrize("bound", [Bound(3, 2, is_fifo=True), Bound(3, 1, is_fifo=True, is_detailed=True)], ids=str)
def test_nobody_starves_where_all_are_equally_old(bound: Bound) -> None:
    assert find_starvation(enumerate_tickets(bound)) is None


# -- reading what SPIN says ------------------------------------------------------------------------------------------

PAN = """1.0 0.0 | acquire 0 | 3.0 0.0
State-vector 20 byte, depth reached 46, errors: 0
       87 states, stored
      325 states, matched
      412 transitions (= stored+matched)
    0.003\tequivalent memory usage for states (stored*(State-vector + overhead))
"""


def test_a_verdict_is_read() -> None:
    assert read_verdict(PAN) == Verified(87, 412, 0, "", frozenset({"1.0 0.0 | acquire 0 | 3.0 0.0"}))


def test_a_failed_assertion_is_read() -> None:
    failed = "pan:1: assertion violated  !(waiting) (at depth 4)\n" + PAN.replace("errors: 0", "errors: 1")
    assert read_verdict(failed).fault == "assertion violated  !(waiting) (at depth 4)"
    assert read_verdict(failed).errors == 1


@pytest.mark.parametrize("report", ["", "Segmentation fault", PAN + "error: max search depth too small\n"])
def test_a_search_that_was_not_exhaustive_is_no_verdict(report: str) -> None:
    with pytest.raises(SpinError):
        read_verdict(report)


def test_without_spin_it_is_skipped_and_exit_3_if_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: None)
    report = run_proofs(["spin"])
    (result,) = report.results
    assert (result.outcome, result.detail) == ("skipped", "spin isn't installed: apt-get install spin")
    assert report.exit_code == 3


def test_a_tool_that_fails_is_no_verdict(tmp_path: object) -> None:
    with pytest.raises(SpinError, match="false ended with 1"):
        spin.call(str(tmp_path), "false")


# -- SPIN itself -----------------------------------------------------------------------------------------------------


@needs_spin
@pytest.mark.parametrize(
    ("name", "bound"), [(name, bound) for name, question in QUESTIONS.items() for bound in question.bounds], ids=str
)
def test_spin_agrees(name: str, bound: Bound) -> None:
    outcome, detail = QUESTIONS[name].answer(read_texts().twin, bound)
    assert outcome == "agrees", detail


@needs_spin
@pytest.mark.parametrize(
    "fault", [fault for fault in FAULTS.values() if fault.part == "twin"], ids=lambda fault: fault.name
)
def test_spin_disagrees_with_a_planted_fault(fault: Fault) -> None:
    for name in fault.refutes:
        outcome, detail = QUESTIONS[name].answer(read_texts(fault).twin, QUESTIONS[name].bounds[0])
        assert outcome == "refuted", detail
