"""The soak on the real manager and on faulty ones, in real time."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from provider_concurrency_model.check.cli import app
from provider_concurrency_model.check.managers import Tally, Tee
from provider_concurrency_model.check.soak import SoakOptions, SoakReport, percentiles, run_soak, soak_to_json
from provider_concurrency_model.check.subject import SubjectError
from provider_concurrency_model.check.verdict import Verdict
from provider_concurrency_model.check.workload import Ceiling

realtime = pytest.mark.realtime


def soak(manager: str, seconds: float = 0.4) -> SoakReport:
    return run_soak(SoakOptions(seconds, clients=40, manager=manager))


@realtime
def test_the_real_manager_survives(tmp_path: Path) -> None:
    ticks: list[float] = []
    path = tmp_path / "run.ndjson"
    report = run_soak(SoakOptions(1.0, seed=3, clients=60, record=path), ticks.append)
    assert report.violations == []
    assert report.verdict is Verdict.CONFORMS
    assert report.timers_before_close is not None
    assert report.timers_before_close > 0
    assert report.timers_after_close == 0
    assert report.events["granted"] > 50
    assert report.rests > report.events["granted"]
    assert report.reclaims == report.events["reclaimed"]
    assert report.warnings >= report.reclaims
    for name in ("narrow", "few", "many", "default"):
        entry = report.providers[name]
        assert 0 < entry["peak"] <= entry["highest_limit"]
    assert list(report.waits_ms) == ["p50", "p90", "p99", "max"]
    assert ticks == sorted(ticks)
    json.dumps(soak_to_json(report))
    traced = CliRunner().invoke(app, ["trace", str(path), "--json", "-"])
    assert traced.exit_code == 0
    assert json.loads(traced.output)["counts"] == {
        **dict.fromkeys(json.loads(traced.output)["counts"], 0),
        **report.events,
    }


@realtime
@pytest.mark.parametrize(
    ("name", "rules"),
    [
        ("AdmitsOneMore", ("LIM-1", "ADM-6")),
        ("ClosesNot", ("CLO-1",)),
        ("LeavesATimer", ("CLO-1",)),
    ],
)
def test_a_planted_fault_is_seen(name: str, rules: tuple[str, ...]) -> None:
    report = soak(f"fake_managers:{name}")
    assert report.verdict is Verdict.COUNTEREXAMPLE
    for rule in rules:
        assert any(told.startswith(rule) for told in report.violations), report.violations


@realtime
@pytest.mark.parametrize(
    ("name", "told"),
    [
        (
            "NeverGrants",
            "ADM-5: 41 clients still wait 0.5 s after the last request: 10 at default, 8 at few, 1 at first",
        ),
        ("NeverGrants", "ADM-1: last is open and idle, but an acquire still waits"),
        ("NeverLetsGo", "CAN-1: 41 clients still wait 1.0 s after they were cancelled"),
        ("ForgetsTheLast", "ADM-1: last is open and idle, but an acquire still waits"),
    ],
)
def test_a_manager_that_grants_nothing_is_not_waited_for(name: str, told: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Found: the soak never ended."""
    from provider_concurrency_model.check import workload

    monkeypatch.setattr("provider_concurrency_model.check.soak._GRACE", 0.5)
    monkeypatch.setattr(workload, "KINDS", {workload.Workload.call: 1})
    started = time.monotonic()
    report = soak(f"fake_managers:{name}")
    assert time.monotonic() - started < 20
    assert report.verdict is Verdict.COUNTEREXAMPLE
    assert any(violation.startswith(told) for violation in report.violations), report.violations


@realtime
# A loop that was left in the middle of its work may leave a coroutine that never began.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore:coroutine:RuntimeWarning")
@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("Raises", "clients met KeyError('slot')"),
        ("RaisesAtStatus", "the manager raised ZeroDivisionError("),
        ("Abandons", "clients met a cancel that nobody asked for"),
        ("Exits", "the manager raised SystemExit(0)"),
        ("ExitsLater", "the manager raised SystemExit(0)"),
    ],
)
def test_a_manager_that_raises_is_a_counterexample(name: str, told: str, tmp_path: Path) -> None:
    """Found: a traceback without a verdict; and exit code 0 where it ended the interpreter."""
    file = tmp_path / "report.json"
    args = ("soak", "--seconds", "0.2", "--clients", "20", "--manager", f"fake_managers:{name}", "--json", str(file))
    result = CliRunner().invoke(app, args, catch_exceptions=False)
    assert result.exit_code == 1
    assert "COUNTEREXAMPLE" in result.output
    report = json.loads(file.read_text())
    assert any(told in violation for violation in report["violations"]), report["violations"]


@realtime
@pytest.mark.parametrize(
    ("manager", "told"),
    [
        ("fake_managers:Unfinished", "has no acquire, try_acquire, report_rate_limit"),
        ("fake_managers:ShowsLittle", "can't be soaked: AttributeError("),
        ("provider_concurrency.threading:ConcurrencyManager", "acquire gives a Slot, which can't be awaited"),
    ],
)
def test_what_is_no_manager_for_a_loop_is_named(manager: str, told: str) -> None:
    """Found: a traceback, and the exit code of a counterexample."""
    result = CliRunner().invoke(app, ["soak", "--seconds", "0.2", "--manager", manager], catch_exceptions=False)
    assert result.exit_code == 2
    assert f"--manager: {manager!r}" in result.stderr
    assert told in result.stderr


@realtime
def test_a_missing_watchdog_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    from provider_concurrency_model.check import workload

    monkeypatch.setattr(workload, "KINDS", {workload.Workload.call: 1, workload.Workload.get_stuck: 1})
    monkeypatch.setattr("provider_concurrency_model.check.soak._GRACE", 0.2)
    report = soak("fake_managers:ReclaimsNobody")
    assert any(told.startswith("WAT-1") for told in report.violations)


@pytest.mark.parametrize(
    ("manager", "told"),
    [
        ("provider_concurrency", "module:attribute"),
        ("no_such_module:Manager", "no_such_module"),
        ("provider_concurrency:NoManager", "NoManager"),
        ("fake_managers:Unmakeable", "can't be made"),
        ("json:__name__", "not a class or factory"),
    ],
)
def test_a_wrong_manager_is_named(manager: str, told: str) -> None:
    with pytest.raises(SubjectError, match=told):
        soak(manager)


def test_a_trace_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    options = SoakOptions(0.1, record=tmp_path / "missing" / "run.ndjson")
    with pytest.raises(SubjectError, match="--record"):
        run_soak(options)


def test_nothing_granted_is_undetermined() -> None:
    assert SoakReport("m", 0, 1).verdict is Verdict.UNDETERMINED


def test_percentiles() -> None:
    assert percentiles([]) == {}
    assert percentiles([5_000_000]) == {"p50": 5.0, "p90": 5.0, "p99": 5.0, "max": 5.0}
    assert percentiles([i * 1_000_000 for i in range(100)]) == {"p50": 50.0, "p90": 90.0, "p99": 99.0, "max": 99.0}


def test_a_lowered_limit_is_never_left_upwards() -> None:
    ceiling = Ceiling(limit=8, highest=8, allowed=8)
    ceiling.change(2, in_flight=6)
    assert (ceiling.allowed, ceiling.highest) == (6, 8)
    ceiling.sink(4)
    ceiling.sink(5)
    assert ceiling.allowed == 4
    ceiling.sink(0)
    assert ceiling.allowed == 2


def test_a_tee_hands_on_and_a_tally_counts() -> None:
    first, second = Tally(), Tally()
    tee = Tee(first, second)
    tee("queued", 1, 10, "p", 1, None, 1.0, 2, 1, None)
    tee("granted", 2, 25, "p", 1, None, 1.0, 3, 0, None)
    tee("granted", 3, 30, "q", 2, None, 1.0, 1, 0, None)
    tee("queued", 4, 30, "q", 3, None, 1.0, 1, 1, None)
    tee("cancelled", 5, 31, "q", 3, None, 1.0, 1, 0, None)
    tee("closed", 6, 40, None, None, None, None, 0, 0, None)
    for tally in (first, second):
        assert tally.counts == {"queued": 2, "granted": 2, "cancelled": 1, "closed": 1}
        assert tally.waits_ns == [15, 0]
        assert tally.peaks == {"p": 3, "q": 1}
        assert tally.longest_queues == {"p": 1, "q": 1}


@realtime
def test_the_command_prints_what_it_saw() -> None:
    result = CliRunner().invoke(app, ["soak", "--seconds", "0.3", "--clients", "20", "--seed", "1"])
    assert result.exit_code == 0, result.output
    assert "CONFORMS" in result.output
    assert "violations: none" in result.output
    assert "after close 0" in result.output
    for word in ("grants", "peak", "waits for a slot", "reclaims", "timers alive"):
        assert word in result.output


@realtime
def test_the_command_exits_1_on_a_violation() -> None:
    args = ["soak", "--seconds", "0.3", "--clients", "20", "--manager", "fake_managers:LeavesATimer", "--json", "-"]
    result = CliRunner().invoke(app, args)
    assert result.exit_code == 1
    assert json.loads(result.output)["verdict"] == "counterexample"


def test_the_command_names_a_wrong_manager() -> None:
    result = CliRunner().invoke(app, ["soak", "--seconds", "1", "--manager", "nowhere:Manager"])
    assert result.exit_code == 2
    assert "--manager" in result.stderr
    assert "Traceback" not in result.stderr
