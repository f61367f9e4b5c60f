"""The experiment, small: cooldown >= lag holds, less overshoots, and the planted mistake is found."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent / "experiment"))

import lag

pytestmark = [pytest.mark.realtime, pytest.mark.long]
SMALL = ["--limit", "3", "--waves", "3", "--scale", "0.5", "--service", "200", "--penalty", "300", "--check"]


def test_a_cooldown_holds_if_and_only_if_it_covers_the_lag(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [*SMALL, "--cooldown", "0,100,250", "--lag", "100,250,uniform:50:250", "--out", str(tmp_path)]
    assert lag.main(arguments) == 0
    table = capsys.readouterr().out
    assert "- lag 100 ms: a cooldown of 100 ms holds" in table
    assert "- lag 250 ms: a cooldown of 250 ms holds" in table
    assert (tmp_path / "lag.md").read_text() in table
    assert "the provider's own count" in (tmp_path / "lag.svg").read_text().replace("&#x27;", "'")
    assert '"event":"paused"' in (tmp_path / "overshoot.ndjson").read_text()


def test_bug_75_the_experiment_fails_if_slots_are_given_back_at_the_head(capsys: pytest.CaptureFixture[str]) -> None:
    assert lag.main([*SMALL, "--cooldown", "250", "--lag", "100", "--plant", "head"]) == 1
    assert "though the cooldown covers the lag" in capsys.readouterr().err
