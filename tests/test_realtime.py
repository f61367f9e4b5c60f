"""The level `realtime`: never early, late within the window, and never taken for more than it is.

All but the last test run on a clock that only the kit's own waiting moves.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from provider_concurrency_model import system
from provider_concurrency_model.check import cli, judge, realtime
from provider_concurrency_model.check.case import Case
from provider_concurrency_model.check.drive import Failed, NotAsked, Passed
from provider_concurrency_model.check.judge import Options, run_level
from provider_concurrency_model.check.realtime import WINDOW_MS, TooSlowError, drive_in_real_time, plan
from provider_concurrency_model.check.subject import InProcess, Message, Session
from provider_concurrency_model.check.verdict import RunReport, Verdict, report_to_json
from provider_concurrency_model.validation import InvalidConfigError
from provider_concurrency_spec.scenarios import load_all
from provider_concurrency_spec.vocabulary import (
    FEATURES,
    Advance,
    Do,
    Event,
    Feature,
    Reply,
    command_from_json,
    config_from_json,
    reply_to_json,
)

SCENARIOS = {scenario.name: scenario for scenario in load_all()}
COOLS = "cooldown-holds-the-slot-until-200"
FROM_OUTSIDE: tuple[Feature, ...] = tuple(feature for feature in FEATURES if feature not in ("stall", "timers"))


class Clock:
    """Stands in for the module `time`."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


CLOCK = Clock()


class Ticking:
    """The model on the clock: it is never asked to advance. Subclasses are late, early, or slow to answer."""

    worlds = 0
    asked: list[str] = []  # noqa: RUF012 - emptied by the fixture

    def due_events(self, events: tuple[Event, ...]) -> tuple[Event, ...]:
        return events

    def handle(self, message: Message) -> Message:
        self.asked.append(message["cmd"])
        match message["cmd"]:
            case "hello":
                port = {"name": "ticking", "version": "1", "language": "x", "runtime": "x"}
                return {"id": message["id"], "protocol": 1, "port": port, "features": list(FROM_OUTSIDE)}
            case "new":
                self.zero, self.worlds = CLOCK.now, self.worlds + 1
                try:
                    self.state = system.new(config_from_json(message["config"]))
                except InvalidConfigError as error:
                    return {"id": message["id"], "error": {"kind": "invalid", "message": str(error)}}
                return {"id": message["id"], **reply_to_json(Reply())}
            case "do":
                now_ms = round((CLOCK.now - self.zero) * 1000)
                self.state, due = system.run(self.state, Advance(now_ms - self.state.now_ms))
                self.state, done = system.run(self.state, command_from_json(message))
                events = (*self.due_events(due.events), *done.events)
                return {"id": message["id"], **reply_to_json(replace(done, events=events))}
            case other:
                raise AssertionError(other)


class Shifted(Ticking):
    by_ms = 0

    def due_events(self, events: tuple[Event, ...]) -> tuple[Event, ...]:
        return tuple(replace(event, at_ms=event.at_ms + self.by_ms) for event in events)


class LateWithin(Shifted):
    by_ms = WINDOW_MS - 1


class TooLate(Shifted):
    by_ms = WINDOW_MS  # what is noticed only when the kit looks again, a window after it was due


class Early(Shifted):
    by_ms = -1


class LateOnce(TooLate):
    def due_events(self, events: tuple[Event, ...]) -> tuple[Event, ...]:
        return super().due_events(events) if self.worlds == 1 else events


class LateTwice(TooLate):
    def due_events(self, events: tuple[Event, ...]) -> tuple[Event, ...]:
        return super().due_events(events) if self.worlds != 2 else events


class Slow(Ticking):
    def handle(self, message: Message) -> Message:
        CLOCK.now += (WINDOW_MS + 1) / 1000
        return super().handle(message)


class FreeAtOnce(Ticking):
    """Knows no cooldown."""

    def handle(self, message: Message) -> Message:
        if message["cmd"] == "new":
            message = {**message, "config": {**message["config"], "release_cooldown_ms": 0}}
        return super().handle(message)


class TakesAnything(Ticking):
    def handle(self, message: Message) -> Message:
        return {"id": message["id"], **reply_to_json(Reply())} if message["cmd"] == "new" else super().handle(message)


class Crashing(Ticking):
    def due_events(self, events: tuple[Event, ...]) -> tuple[Event, ...]:
        raise RuntimeError("boom")


@pytest.fixture(autouse=True)
def _on_the_clock(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    Ticking.asked.clear()
    if "realtime" not in request.keywords:
        monkeypatch.setattr(realtime, "time", CLOCK)


@pytest.fixture
def session() -> Callable[[type[Ticking]], Session]:
    return lambda kind: Session(InProcess(f"{__name__}:{kind.__name__}"))


def case_of(name: str) -> Case:
    case = plan(SCENARIOS[name], WINDOW_MS)
    assert isinstance(case, Case), case
    return case


# -- plans -------------------------------------------------------------------------------------------------------------


def test_looks_that_only_virtual_time_tells_apart_are_one() -> None:
    case = case_of(COOLS)
    waits = [command.ms for command in case.commands if isinstance(command, Advance)]
    instants = [event.at_ms for step in case.steps for event in step.expected.events or ()]
    assert len(waits) == 1  # 199 ms and 1 ms
    assert max(instants) == sum(waits) >= 3 * WINDOW_MS


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("a-late-grant-is-touched-now", "a blocked loop"),
        ("a-cooldown-ending-with-the-timeout-goes-first", "two deadlines at one instant"),
        ("a-timeout-one-before-the-cooldown-ends", "so close together"),
        ("acquire-refuses-bad-timeouts", "its times would be illegal"),
    ],
)
def test_what_real_time_cannot_show_is_left_out(name: str, told: str) -> None:
    left_out = plan(SCENARIOS[name], WINDOW_MS)
    assert isinstance(left_out, str)
    assert told in left_out


def test_a_sweep_at_exactly_the_timeout_keeps_the_slot_though_it_comes_late() -> None:
    config = case_of("exactly-the-timeout-is-not-reclaimed").config
    assert isinstance(config.slot_timeout_ms, int)
    assert isinstance(config.watchdog_interval_ms, int)
    assert WINDOW_MS < config.slot_timeout_ms % config.watchdog_interval_ms < config.watchdog_interval_ms - WINDOW_MS


# -- one case ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [Ticking, LateWithin])
def test_punctual_and_late_within_the_window_pass(kind: type[Ticking], session: Callable[..., Session]) -> None:
    outcome, is_repeated = drive_in_real_time(session(kind), case_of(COOLS), WINDOW_MS)
    assert isinstance(outcome, Passed), outcome
    assert not is_repeated
    assert set(Ticking.asked) == {"hello", "new", "do"}


@pytest.mark.parametrize(("kind", "tries"), [(TooLate, 3), (LateTwice, 3), (Early, 1), (FreeAtOnce, 1)])
def test_too_late_is_tried_three_times_and_early_once(
    kind: type[Ticking], tries: int, session: Callable[..., Session]
) -> None:
    outcome, is_repeated = drive_in_real_time(session(kind), case_of(COOLS), WINDOW_MS)
    assert isinstance(outcome, Failed)
    assert Ticking.asked.count("new") == tries
    assert is_repeated == (tries == 3)
    assert {item.what for item in outcome.differences} & {"request", "grants"}


def test_a_lateness_that_does_not_come_again_is_forgiven_and_told(session: Callable[..., Session]) -> None:
    outcome, is_repeated = drive_in_real_time(session(LateOnce), case_of(COOLS), WINDOW_MS)
    assert isinstance(outcome, Passed)
    assert is_repeated


def test_a_machine_that_is_too_slow_says_nothing_about_the_subject(session: Callable[..., Session]) -> None:
    with pytest.raises(TooSlowError):
        drive_in_real_time(session(Slow), case_of(COOLS), WINDOW_MS)
    assert Ticking.asked.count("new") == 3


def test_a_subject_that_breaks_is_no_matter_of_time(session: Callable[..., Session]) -> None:
    outcome, is_repeated = drive_in_real_time(session(Crashing), case_of(COOLS), WINDOW_MS)
    assert isinstance(outcome, Failed)
    assert outcome.is_broken
    assert not is_repeated


def test_a_configuration_that_is_to_be_refused_is_asked_too(session: Callable[..., Session]) -> None:
    case = case_of("config-refuses-bad-pauses")
    assert not case.steps
    outcome, _ = drive_in_real_time(session(TakesAnything), case, WINDOW_MS)
    assert isinstance(outcome, Failed)
    assert outcome.rules == ("PAU-2",)


def test_what_a_subject_lacks_is_not_asked(session: Callable[..., Session]) -> None:
    case = replace(case_of(COOLS), needs=frozenset({"stall"}))
    assert drive_in_real_time(session(Ticking), case, WINDOW_MS) == (NotAsked(("stall",)), False)


# -- the level ---------------------------------------------------------------------------------------------------------


def test_the_level_passes_and_is_not_called_conforming(session: Callable[..., Session]) -> None:
    judged = session(Ticking)
    level = run_level(judged, "realtime", Options())
    assert level.verdict is Verdict.CONFORMS
    assert level.cases > 100
    assert level.strength == "real time"
    assert any(
        note.startswith("left out 7: a blocked loop") and "a-late-grant-is-touched-now" in note for note in level.notes
    )
    assert len(level.results) == len(SCENARIOS)
    assert level.bounds.startswith(f"{level.cases} of {len(SCENARIOS)} scenarios, ")
    report = RunReport("it", judged.hello, 0, [level])
    assert report.said == "holds in real time"
    told = report_to_json(report)
    assert told["verdict"] == told["levels"][0]["verdict"] == "holds_in_real_time"


def test_a_level_on_a_busy_machine_is_undetermined(session: Callable[..., Session]) -> None:
    level = run_level(session(Slow), "realtime", Options())
    assert level.verdict is Verdict.UNDETERMINED
    assert "too busy for a window of 50 ms" in str(level.undetermined)


def test_after_too_many_crashes_the_rest_is_undetermined(session: Callable[..., Session]) -> None:
    level = run_level(session(Crashing), "realtime", Options(restarts=2))
    assert level.failed == 3
    assert level.undetermined is not None
    assert "the subject broke 3 times" in level.undetermined


def test_the_counterexample_is_the_scaled_run(session: Callable[..., Session]) -> None:
    level = run_level(session(FreeAtOnce), "realtime", Options())
    assert level.verdict is Verdict.COUNTEREXAMPLE
    found = next(each for each in level.counterexamples if each.case.name == COOLS)
    assert found.rules[0] == "REL-3"
    assert all(isinstance(command, Do | Advance) for command in found.case.commands)


def test_it_is_run_by_itself() -> None:
    result = CliRunner().invoke(cli.app, ["check", "--level", "realtime,scenarios"])
    assert result.exit_code == 2
    assert "realtime is run by itself" in result.stderr


PORT = str(Path(__file__).parent / "ports" / "real_time.py")
FEW = (COOLS, "a-later-report-extends", "a-timeout-of-zero-never-queues", "each-slot-has-its-own-cooldown")


@pytest.mark.realtime
@pytest.mark.parametrize(("fault", "code"), [("", 0), ("once", 0), ("late", 1), ("early", 1)])
def test_a_port_on_its_own_clock(fault: str, code: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(judge, "load_all", lambda: tuple(SCENARIOS[name] for name in FEW))
    command: list[Any] = [sys.executable, PORT, *filter(None, [fault])]
    where = tmp_path / "report.json"
    result = CliRunner().invoke(
        cli.app, ["check", "--level", "realtime", "--window", "100", "--json", str(where), "--", *command]
    )
    report = json.loads(where.read_text(encoding="utf-8"))
    if result.exit_code == Verdict.UNDETERMINED:
        pytest.skip(f"nothing to be measured here: {report['levels'][0]['undetermined']}")
    assert result.exit_code == code, result.output
    assert ("HOLDS IN REAL TIME: " in result.output) == (code == 0)
