"""The table of claims: one place, every piece of evidence exists, and a run claims no more than it has shown."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, get_args

import pytest
from typer.testing import CliRunner

from provider_concurrency_model.check import cli
from provider_concurrency_model.check.claims import CLAIMS, NOT_CLAIMED, Strength, claims_of, draw_claims
from provider_concurrency_model.check.judge import ALL_LEVELS
from provider_concurrency_model.check.subject import DEFAULT_SUBJECT, InProcess, Session
from provider_concurrency_model.check.verdict import LevelReport, RunReport

ROOT = Path(__file__).parents[1]
SPEC = (ROOT / "spec" / "SPEC.md").read_text(encoding="utf-8")
RANDOM = next(claim for claim in CLAIMS if claim.levels == ("random",))
EDGES = next(claim for claim in CLAIMS if len(claim.levels) > 1)


def test_the_specification_has_the_table_and_no_other() -> None:
    assert SPEC.count(draw_claims()) == 1
    assert SPEC.count("Not claimed: ") == 1


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.says)
def test_the_evidence_exists(claim: Any) -> None:
    assert claim.strength in get_args(Strength)
    match claim.command.split():
        case ["pytest", file] | ["python", file]:
            assert (ROOT / file).is_file()
        case ["provider-concurrency", command, *rest]:
            shown = CliRunner().invoke(cli.app, [command, "--help"], env={"COLUMNS": "200"}, color=False)
            assert shown.exit_code == 0
            options = [word for word in rest if re.fullmatch("--[a-z]+", word)]
            assert all(option in shown.output for option in options)
        case other:
            assert other == []
            assert "Rules that protocol 1 can't show" in claim.says


def test_every_level_of_check_bears_a_claim() -> None:
    assert {level for claim in CLAIMS for level in claim.levels} == set(ALL_LEVELS)


def report_of(subject: str, **failed: int) -> RunReport:
    """A run of the levels that are named, each with so many failures."""
    levels = [LevelReport(name, "sampled", "", cases=9, failed=count) for name, count in failed.items()]
    return RunReport(subject, Session(InProcess(DEFAULT_SUBJECT)).hello, 0, levels)


def test_a_claim_is_shown_by_a_run_of_all_its_levels_and_refuted_by_a_failure_in_one() -> None:
    graphs = dict.fromkeys(EDGES.levels, 0)
    shown = dict(claims_of(report_of(DEFAULT_SUBJECT, random=0, **graphs)))
    assert (shown[RANDOM], shown[EDGES]) == ("shown by this run", "shown by this run")
    assert tuple(shown) == CLAIMS
    assert all(
        said == f"not by this run: {claim.command}"
        for claim, said in shown.items()
        if claim.command and not claim.levels
    )
    partly = dict(claims_of(report_of(DEFAULT_SUBJECT, settled=0)))
    assert partly[EDGES] == "not by this run: provider-concurrency check"
    refuted = dict(claims_of(report_of(DEFAULT_SUBJECT, random=0, **{**graphs, "late": 1})))
    assert (refuted[RANDOM], refuted[EDGES]) == ("shown by this run", "refuted by this run")


def test_an_undetermined_level_shows_nothing() -> None:
    report = report_of(DEFAULT_SUBJECT, random=0)
    report.levels[0].undetermined = "the budget was spent"
    assert dict(claims_of(report))[RANDOM] == "not by this run: provider-concurrency check --level random"


def test_of_another_subject_only_the_runs_own_claims_are_made() -> None:
    shown = claims_of(report_of("node port.mjs", random=0))
    assert [claim for claim, _ in shown] == [claim for claim in CLAIMS if claim.levels]


def test_check_prints_the_table_and_writes_it() -> None:
    arguments = ["check", "--level", "random", "--runs", "1"]
    lines = CliRunner().invoke(cli.app, arguments).stdout.splitlines()
    assert f"claim: {RANDOM.says} (sampled): shown by this run" in lines
    assert [line for line in lines if line.startswith("not claimed: ")] == [
        f"not claimed: {item}" for item in NOT_CLAIMED
    ]
    assert sum(line.startswith("claim: ") for line in lines) == len(CLAIMS)
    data = json.loads(CliRunner().invoke(cli.app, [*arguments, "--json", "-"]).stdout)
    assert [row["claim"] for row in data["claims"]] == [claim.says for claim in CLAIMS]
    assert data["not_claimed"] == list(NOT_CLAIMED)
