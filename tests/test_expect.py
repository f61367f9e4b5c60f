"""The expectation file: it passes exactly as long as it tells the truth."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from provider_concurrency_model.check import cli
from provider_concurrency_model.check.counterexample import UnusableFileError
from provider_concurrency_model.check.expect import (
    Expectations,
    Known,
    RefusedFixError,
    fix_expectations,
    judge_expectations,
    read_expectations,
    say_changes,
    write_expectations,
)
from provider_concurrency_model.check.judge import LEVELS
from provider_concurrency_model.check.subject import Hello
from provider_concurrency_model.check.verdict import Agreement, CaseResult, LevelReport, RunReport, Verdict

HELLO = Hello("port", "1", "Go", "go1.24", frozenset())
BAD = ("--subject", "fake_subjects:ShortensPauses")
GOOD = ("--subject", "fake_subjects:Faithful")


def a_run(*results: CaseResult, level: str = "scenarios", undetermined: str | None = None) -> RunReport:
    failed = sum(result.result == "failed" for result in results)
    report = LevelReport(level, "examples", "some", cases=9, failed=failed, results=list(results))
    report.undetermined = undetermined
    return RunReport("it", HELLO, 3, [report], runs=50)


def failing(case: str, rule: str = "PAU-1", told: str = "it differs") -> CaseResult:
    return CaseResult(case, "failed", told, rule)


def judge(known: list[Known], report: RunReport) -> Agreement:
    report.agreement = judge_expectations(Expectations(tuple(known)), report, "port.toml")
    return report.agreement


ENTRY = Known("a", "PAU-1", "it differs")


def test_as_listed() -> None:
    report = a_run(failing("a"), CaseResult("b", "passed"), CaseResult("c", "skipped", "the subject lacks touch"))
    agreement = judge([ENTRY], report)
    assert agreement == Agreement("port.toml", (("scenarios", "a"),))
    assert report.verdict is Verdict.CONFORMS
    assert report.said == "as expected"


def test_nothing_listed_and_nothing_fails() -> None:
    report = a_run(CaseResult("a", "passed"))
    assert judge([], report).problems == ()
    assert report.said == "conforms"


@pytest.mark.parametrize(
    ("known", "results", "told"),
    [
        ([ENTRY], [CaseResult("a", "passed")], "a (PAU-1): listed, but passes"),
        ([], [failing("a")], "a (PAU-1): fails, but isn't listed: it differs"),
        ([ENTRY], [CaseResult("a", "skipped", "the subject lacks x")], "listed, but skipped: the subject lacks x"),
        ([ENTRY], [failing("a", told="it is else")], "fails differently: listed 'it differs'; now (PAU-1)"),
        ([ENTRY], [failing("a", rule="PAU-2")], "fails differently"),
        ([ENTRY], [CaseResult("b", "passed")], "listed, but there is no such case"),
    ],
)
def test_whatever_is_not_true_fails(known: list[Known], results: list[CaseResult], told: str) -> None:
    report = a_run(*results)
    (problem,) = judge(known, report).problems
    assert told in problem
    assert problem.startswith("scenarios: a (")
    assert report.verdict is Verdict.COUNTEREXAMPLE
    assert report.said == "not as expected"


def test_a_level_of_walks_is_known_by_its_first_failure() -> None:
    entry = replace(ENTRY, level="settled", case="walk 3")
    assert judge([entry], a_run(failing("walk 3"), level="settled")).problems == ()
    (passing,) = judge([entry], a_run(level="settled")).problems
    assert "listed, but the level passes" in passing
    other, unlisted = judge([entry], a_run(failing("walk 2"), level="settled")).problems
    assert "not reached: the level ended at walk 2" in other
    assert "walk 2 (PAU-1): fails, but isn't listed" in unlisted


def test_levels_that_were_not_run_are_not_judged() -> None:
    report = a_run(failing("a"))
    agreement = judge([ENTRY, replace(ENTRY, level="settled", case="walk 1")], report)
    assert agreement.unjudged == ("settled: walk 1",)
    assert report.verdict is Verdict.CONFORMS


def test_a_level_that_was_broken_off_is_undetermined() -> None:
    report = a_run(failing("a"), undetermined="the budget was spent")
    agreement = judge([ENTRY, replace(ENTRY, case="z")], report)
    assert agreement.confirmed == (("scenarios", "a"),)
    assert agreement.unjudged == ("scenarios: z",)
    assert report.verdict is Verdict.UNDETERMINED
    assert report.said == "undetermined"


def test_a_listed_level_that_is_skipped() -> None:
    report = a_run(level="late", undetermined="skipped")
    report.levels[0].lacking = ("stall",)
    (problem,) = judge([replace(ENTRY, level="late", case="walk 1")], report).problems
    assert "listed, but skipped: the subject lacks stall" in problem


# -- the file ----------------------------------------------------------------------------------------------------------


def test_a_file_is_written_and_read(tmp_path: Path) -> None:
    path = tmp_path / "port.toml"
    odd = Known('q"\\', "PAU-2", 'ü\n\x7f\t\'"""', "settled", "why: #5")
    whole = Expectations((ENTRY, odd), ("scenarios", "settled"), 3, 50)
    write_expectations(path, whole)
    assert read_expectations(path) == whole
    assert path.read_text(encoding="utf-8").startswith("# Known failures.")
    assert path.read_text(encoding="utf-8").count("[[known]]") == 2
    assert tomllib.loads(path.read_text(encoding="utf-8"))["spec"] == "1.0"


def test_a_file_by_hand_needs_only_entries(tmp_path: Path) -> None:
    path = tmp_path / "port.toml"
    path.write_text('[[known]]\nrule = "PAU-1"\ncase = "a"\nmessage = "m"\n', encoding="utf-8")
    assert read_expectations(path) == Expectations((Known("a", "PAU-1", "m"),), LEVELS)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[[known]", "not TOML"),
        ("known = " + "[" * 100_000, "not TOML"),
        ("seed = nan", "seed"),
        ("seed = 2026-01-01", "not JSON"),
        ("[[known]]\nrule = 'PAU-1'\ncase = 'a'\n", "known[0]: 'message' is a required property"),
        ("[[known]]\nrule = 'PAUSE'\ncase = 'a'\nmessage = ''\n", "known[0].rule"),
        ("[[knwon]]\n", "'knwon' was unexpected"),
        ("spec = '0.9'\n", "made for spec 0.9"),
        ("[[known]]\nrule='PAU-1'\ncase='a'\nmessage='m'\n[[known]]\nrule='PAU-2'\ncase='a'\nmessage='m'\n", "twice"),
    ],
)
def test_a_bad_file_is_named(tmp_path: Path, text: str, told: str) -> None:
    path = tmp_path / "port.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(UnusableFileError) as caught:
        read_expectations(path)
    assert told in str(caught.value)
    assert str(path) in str(caught.value)


# -- rewriting ---------------------------------------------------------------------------------------------------------


def test_fixing_keeps_the_notes_and_says_what_changed() -> None:
    old = Expectations((replace(ENTRY, note="mine"), Known("gone", "PAU-2", "x")), ("scenarios",))
    new = fix_expectations(old, a_run(failing("a", told="else"), failing("new", "ORD-1")))
    assert new == Expectations(
        (Known("a", "PAU-1", "else", note="mine"), Known("new", "ORD-1", "it differs")), ("scenarios",)
    )
    assert say_changes(old, new) == "2 known failures (1 added, 1 removed, 1 changed)"
    assert say_changes(None, new) == "2 known failures (2 added, 0 removed, 0 changed)"


def test_fixing_is_refused_on_partial_runs() -> None:
    with pytest.raises(RefusedFixError, match=r"levels that were not run: settled, burst"):
        fix_expectations(Expectations((), ("scenarios", "settled", "burst")), a_run())
    with pytest.raises(RefusedFixError, match=r"not carried out: scenarios \(the budget was spent\)"):
        fix_expectations(None, a_run(undetermined="the budget was spent"))


def test_random_runs_are_kept_by_their_seed() -> None:
    new = fix_expectations(None, a_run(failing("seed 3"), level="random"))
    assert (new.seed, new.runs, new.levels) == (3, 50, ("random",))


# -- the command -------------------------------------------------------------------------------------------------------


def run(*args: str) -> Any:
    result = CliRunner().invoke(cli.app, ["check", "--jobs", "1", *args], catch_exceptions=False)
    assert "Traceback" not in result.output
    return result


def test_from_nothing_to_green_to_stale(tmp_path: Path) -> None:
    path = tmp_path / "port.toml"
    missing = run("--level", "scenarios", *BAD, "--expect", str(path))
    assert missing.exit_code == 2
    assert "No such file" in missing.stderr
    made = run("--level", "scenarios", *BAD, "--expect", str(path), "--fix")
    assert made.exit_code == 0
    assert f"rewritten: {path}: " in made.output
    known = read_expectations(path).known
    assert any(entry.case == "a-shorter-report-never-shortens" and entry.rule == "PAU-1" for entry in known)
    green = run("--level", "scenarios", *BAD, "--expect", str(path))
    assert green.exit_code == 0
    assert f"AS EXPECTED: {len(known)} known failures" in green.output.splitlines()[-1]
    stale = run("--level", "scenarios", *GOOD, "--expect", str(path))
    assert stale.exit_code == 1
    assert stale.output.count("listed, but passes") == len(known)
    assert "NOT AS EXPECTED" in stale.output.splitlines()[-1]


def test_the_file_knows_its_random_runs(tmp_path: Path) -> None:
    path = tmp_path / "port.toml"
    assert run("--level", "random", "--seed", "4", "--runs", "9", *BAD, "--expect", str(path), "--fix").exit_code == 0
    assert run("--level", "random", *BAD, "--expect", str(path)).exit_code == 0
    other = run("--level", "random", "--seed", "5", *BAD, "--expect", str(path))
    assert other.exit_code == 2
    assert "--seed: 5, but the file of --expect was made with 4" in other.stderr
    refused = run("--level", "scenarios", *BAD, "--expect", str(path), "--fix")
    assert refused.exit_code == 2
    assert "stays as it is: the file covers levels that were not run: random" in refused.stderr


def test_fix_needs_a_file() -> None:
    result = run("--level", "scenarios", *GOOD, "--fix")
    assert result.exit_code == 2
    assert "--fix: needs --expect" in result.stderr


def test_an_old_file_can_be_rewritten_but_not_judged_by(tmp_path: Path) -> None:
    path = tmp_path / "port.toml"
    path.write_text("spec = '0.9'\nlevels = ['scenarios']\n", encoding="utf-8")
    assert run("--level", "scenarios", *BAD, "--expect", str(path)).exit_code == 2
    assert run("--level", "scenarios", *BAD, "--expect", str(path), "--fix").exit_code == 0
    assert read_expectations(path).known
    nowhere = run("--level", "scenarios", *BAD, "--expect", str(tmp_path / "no" / "port.toml"), "--fix")
    assert nowhere.exit_code == 2
    assert "--fix: " in nowhere.stderr
