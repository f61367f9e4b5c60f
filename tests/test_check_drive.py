"""The judge on subjects with one planted fault each: found, at the right level, with the right rule, and short."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

import fake_subjects
from provider_concurrency_model import levels as bounded
from provider_concurrency_model.check.case import case_of_commands, case_of_scenario
from provider_concurrency_model.check.counterexample import counterexample_of, draw_sequence, scenario_of, tell_steps
from provider_concurrency_model.check.drive import Failed, NotAsked, Passed, drive
from provider_concurrency_model.check.judge import LEVELS, Options, run_level
from provider_concurrency_model.check.keep import find_broken
from provider_concurrency_model.check.shrink import is_sendable, shrink
from provider_concurrency_model.check.subject import InProcess, Session
from provider_concurrency_model.check.verdict import LevelReport, Verdict
from provider_concurrency_model.random_runs import random_run
from provider_concurrency_spec.scenarios import load_all, scenario_from_json, scenario_to_json
from provider_concurrency_spec.vocabulary import (
    Acquire,
    Advance,
    Config,
    Do,
    Hook,
    RateLimited,
    Release,
    Reply,
    Resume,
    SetLimit,
    StatusRow,
    Touch,
    reply_to_json,
)

SMALL = Config(20, None, 50, 20, 0, 100, None, None)


@pytest.fixture(autouse=True)
def small_levels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two live requests are enough for each planted fault, and take a tenth of the time."""
    monkeypatch.setattr(bounded, "LEVELS", {name: replace(item, live=2) for name, item in bounded.LEVELS.items()})


def session_of(kind: type[fake_subjects.Faithful]) -> Session:
    return Session(InProcess(f"fake_subjects:{kind.__name__}"))


def judge(kind: type[fake_subjects.Faithful], level: str, **options: int) -> LevelReport:
    return run_level(session_of(kind), level, Options(**options))


@pytest.mark.parametrize("level", ["scenarios", "settled", "two", "random"])
@pytest.mark.parametrize("kind", [fake_subjects.Faithful, fake_subjects.Verbose])
def test_a_conforming_subject_conforms(kind: type[fake_subjects.Faithful], level: str) -> None:
    report = judge(kind, level, runs=20)
    assert report.verdict is Verdict.CONFORMS
    assert report.cases > 0
    assert not report.skipped
    assert report.counterexamples == []
    if level == "two":
        assert report.edges_driven == report.edges
        assert report.coverage.endswith("(100 %)")
        assert report.witnesses["two providers have a queue"]


FAULTS = [
    (fake_subjects.ForgetsCooldown, "settled", {"REL-1", "REL-3"}),
    (fake_subjects.ForgetsToClose, "two", {"CLO-1"}),
    (fake_subjects.ShortensPauses, "two", {"PAU-1"}),
    (fake_subjects.ForgetsHolders, "resize", {"LIM-3"}),
    (fake_subjects.LeaksUndelivered, "burst", {"CAN-2"}),
    (fake_subjects.FreesTwice, "settled", {"REL-2"}),
    (fake_subjects.GrantsYoungestFirst, "settled", {"ORD-1"}),
    (fake_subjects.LeavesATimer, "two", {"CLO-1", "TIM-4"}),
]


@pytest.mark.parametrize(("kind", "level", "rules"), FAULTS)
def test_a_planted_fault_is_found_in_the_graph(kind: type[fake_subjects.Faithful], level: str, rules: set[str]) -> None:
    report = judge(kind, level)
    assert report.verdict is Verdict.COUNTEREXAMPLE
    (found,) = report.counterexamples
    assert found.is_shortest or len(found.case.steps) <= 2  # which is before the graph begins
    assert rules & set(found.rules)
    assert len(found.case.steps) <= 8
    # Nothing shorter fails: the last step is what it takes.
    shorter = case_of_commands("shorter", level, found.case.config, found.case.commands[:-1])
    assert isinstance(drive(session_of(kind), shorter), Passed)


@pytest.mark.parametrize(("kind", "level", "rules"), FAULTS)
def test_a_planted_fault_is_found_by_a_scenario_of_its_rule(
    kind: type[fake_subjects.Faithful], level: str, rules: set[str]
) -> None:
    report = judge(kind, "scenarios")
    assert report.verdict is Verdict.COUNTEREXAMPLE
    assert any(rules & set(found.rules[:2]) for found in report.counterexamples)


@pytest.mark.parametrize("kind", [fake_subjects.ForgetsCooldown, fake_subjects.FreesTwice])
def test_a_random_failure_is_shrunk_to_what_it_takes(kind: type[fake_subjects.Faithful]) -> None:
    report = judge(kind, "random", runs=50)
    (found,) = report.counterexamples
    assert found.seed is not None
    assert len(found.case.steps) <= 4
    assert is_sendable(found.case.config, found.case.commands)


def test_shrinking_keeps_the_conversation_sendable() -> None:
    queue = Do((SetLimit("p", 1), Acquire("p", "a", None, 1), Acquire("p", "b", None, 1)))
    config = Config(0, None, 50, 20, 0, 100, None, None)
    assert is_sendable(config, [queue, Do((Release("a"),)), Do((Release("b"),))])
    assert not is_sendable(config, [queue, Do((Release("a"), Release("b")))])
    assert not is_sendable(config, [queue, Do((Release("a"), Touch("b")))])
    assert is_sendable(config, [Do((Acquire("p", "a", None, 1), Release("a")))])  # granted in its own acquire


def test_shrinking_keeps_hooks_as_the_rules_have_them() -> None:
    config = Config(0, None, 50, 20, 0, 100, None, None)
    hook = Hook("paused", "p", (SetLimit("p", 2),))
    assert is_sendable(config, [Do((hook,)), Do((RateLimited("p", 20),))])
    assert is_sendable(config, [Do((hook, RateLimited("q", 20), RateLimited("p", 20)))])
    assert not is_sendable(config, [Do((hook, RateLimited("p", 20), Resume("p")))])  # what follows is left open
    assert not is_sendable(config, [Do((Hook("paused", "p", (SetLimit("p", -1),)), RateLimited("p", 20)))])
    queue = Do((SetLimit("p", 1), Acquire("p", "a", None, 1), Acquire("p", "b", None, 1)))
    on_pause = Hook("paused", "p", (Release("b"),))
    assert not is_sendable(config, [queue, Do((on_pause, Release("a"), RateLimited("p", 20)))])


def test_random_runs_are_sendable() -> None:
    for seed in range(60):
        assert is_sendable(*random_run(seed, 40)), seed


def test_shrinking_stops_when_its_time_is_over() -> None:
    session = session_of(fake_subjects.ForgetsCooldown)
    config, commands = random_run(3, 60)
    outcome = drive(session, case_of_commands("long", "random", config, commands))
    assert isinstance(outcome, Failed)
    assert shrink(session, outcome, seconds=0.0) is outcome


def test_scenarios_also_judge_the_invariants() -> None:
    scenario = next(item for item in load_all() if item.name == "cooldown-holds-the-slot-until-200")
    case = case_of_scenario(scenario)
    fine = StatusRow("p", 1, 1, 1, 0, 0, 0, paused=False, paused_for_ms=None)
    wrong = StatusRow("p", 1, 2, 1, 0, 0, 0, paused=False, paused_for_ms=None)
    said = [reply_to_json(Reply(status=(fine,))), reply_to_json(Reply(status=(wrong,)))]
    broken = find_broken(case.config, [Do((SetLimit("p", 1),)), Advance(1)], said)
    assert broken is not None
    assert broken[0] <= 1
    assert all(item.what == "invariant" and item.rule for item in broken[1])


@pytest.fixture
def failure() -> Failed:
    commands = [Do((SetLimit("p", 1), Acquire("p", "a", None, 1), Acquire("p", "b", None, 1))), Do((Release("a"),))]
    outcome = drive(session_of(fake_subjects.ForgetsCooldown), case_of_commands("walk; #1", "settled", SMALL, commands))
    assert isinstance(outcome, Failed)
    return outcome


def test_a_counterexample_is_told_drawn_and_a_scenario(failure: Failed) -> None:
    found = counterexample_of(failure, "fake_subjects:ForgetsCooldown")
    told = "\n".join(tell_steps(found))
    assert "2. do release a" in told
    assert "expected" in told
    assert "actual" in told
    assert found.rules[0] in told
    drawn = draw_sequence(found)
    assert drawn.startswith("sequenceDiagram\n")
    assert "K->>S: do release a" in drawn
    assert ";" not in drawn
    scenario = scenario_of(found)
    assert scenario_from_json(scenario_to_json(scenario), "it.json") == scenario
    again = drive(session_of(fake_subjects.ForgetsCooldown), case_of_scenario(scenario))
    assert isinstance(again, Failed)
    assert again.at == failure.at
    assert isinstance(drive(session_of(fake_subjects.Faithful), case_of_scenario(scenario)), Passed)


BAD_MANNERS = {
    "Raises": "raised KeyError",
    "TalksNonsense": "no object",
    "MixesIds": "has the id",
    "LiesAboutFeatures": "skipped for lack of 'touch'",
    "AcceptsAnyConfig": "accepted",
}


@pytest.mark.parametrize("name", BAD_MANNERS)
def test_bad_manners_are_findings_told_apart(name: str) -> None:
    report = judge(getattr(fake_subjects, name), "scenarios")
    assert report.verdict is Verdict.COUNTEREXAMPLE
    told = [str(item.actual) for found in report.counterexamples for item in found.differences if item.what == "reply"]
    assert any(BAD_MANNERS[name] in text for text in told)


def test_a_failure_at_new_can_be_kept_too() -> None:
    report = judge(fake_subjects.StartsWithState, "scenarios")
    assert report.verdict is Verdict.COUNTEREXAMPLE
    scenario = scenario_of(report.counterexamples[0])
    assert scenario_from_json(scenario_to_json(scenario), "it.json") == scenario
    assert isinstance(drive(session_of(fake_subjects.StartsWithState), case_of_scenario(scenario)), Failed)


def test_a_subject_is_usable_after_it_raised() -> None:
    session = session_of(fake_subjects.Raises)
    commands = [Do((Acquire("p", "a", None, 1),)), Do((Release("a"),)), Do((Release("a"),))]
    case = case_of_commands("twice", "settled", SMALL, commands)
    outcome = drive(session, case)
    assert isinstance(outcome, Failed)
    assert outcome.at == 2
    assert isinstance(drive(session, case_of_commands("once", "settled", SMALL, commands[:2])), Passed)


def test_what_a_subject_lacks_is_skipped_and_said() -> None:
    report = judge(fake_subjects.Minimal, "scenarios")
    assert report.verdict is Verdict.CONFORMS
    assert report.skipped.total() > 0
    assert report.cases + report.skipped.total() == len(load_all())
    case = case_of_scenario(next(item for item in load_all() if "timeout" in item.needs))
    outcome = drive(session_of(fake_subjects.Minimal), case)
    assert isinstance(outcome, NotAsked)
    assert "timeout" in outcome.features


def test_a_level_leaves_out_what_the_subject_lacks() -> None:
    report = judge(fake_subjects.Minimal, "two")
    assert report.verdict is Verdict.CONFORMS
    assert report.edges_driven == report.edges
    assert any("cancel" in note for note in report.notes)


def test_a_level_starts_without_the_settings_that_the_subject_lacks() -> None:
    report = judge(fake_subjects.Minimal, "resize")  # its configuration has a default limit and a bounded queue
    assert report.verdict is Verdict.CONFORMS
    assert "started without the settings that the subject lacks: max_queued, default_limit" in report.notes


def test_a_level_that_is_nothing_without_a_feature_is_skipped_and_no_pass() -> None:
    report = judge(fake_subjects.Minimal, "late")
    assert report.said == "skipped"
    assert report.lacking == ("stall",)
    assert report.skipped == {"stall": 1}
    assert report.verdict is Verdict.UNDETERMINED


@pytest.mark.parametrize("level", LEVELS)
def test_a_spent_budget_is_undetermined(level: str) -> None:
    options = Options(deadline=time.monotonic() - 1)
    report = run_level(session_of(fake_subjects.Faithful), level, options)
    assert report.verdict is Verdict.UNDETERMINED
    assert report.undetermined is not None
    assert "budget" in report.undetermined
