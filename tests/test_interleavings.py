"""The real manager under other schedules than habit's: all within a bound, and some drawn."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from pathlib import Path

import pytest

from interleavings.explorer import Failure, PermutedLoop, explore, run, run_random
from interleavings.programs import PROGRAMS

pytestmark = pytest.mark.long

REAL = [name for name in PROGRAMS if not name.startswith("planted")]
PLANTED = "planted: an admission that awaits"
SMALL = ["two waiters", "timeout meets cooldown", "pause meets cancel", "cancel under wait_for"]


@pytest.mark.parametrize("name", REAL)
def test_every_schedule_with_two_preemptions_keeps_the_rules(name: str) -> None:
    assert sum(1 for _ in explore(PROGRAMS[name], preemptions=2)) > 1


@pytest.mark.parametrize("name", SMALL)
def test_every_schedule_there_is_keeps_the_rules(name: str) -> None:
    bound = 20_000
    assert 1 < sum(1 for _ in itertools.islice(explore(PROGRAMS[name]), bound)) < bound, "not exhausted"


@pytest.mark.parametrize("name", REAL)
def test_drawn_schedules_keep_the_rules(name: str) -> None:
    for seed in range(100):
        run_random(PROGRAMS[name], seed)


def test_schedules_are_enumerated_once() -> None:
    seen = [tuple(schedule.answers) for schedule in explore(PROGRAMS["two waiters"])]
    assert len(seen) == len(set(seen))


def test_three_independent_handles_have_six_schedules() -> None:
    orders: list[str] = []

    def program(loop: PermutedLoop) -> None:
        order: list[str] = []
        for letter in "abc":
            loop.call_soon(order.append, letter)
        loop.settle()
        orders.append("".join(order))

    list(explore(program))
    assert sorted(orders) == ["abc", "acb", "bac", "bca", "cab", "cba"]


def test_an_admission_that_awaits_is_found_and_replays() -> None:
    run(PROGRAMS[PLANTED], [])  # habit's schedule hides it
    with pytest.raises(Failure, match="2 in flight at limit 1") as caught:
        list(explore(PROGRAMS[PLANTED], preemptions=2))
    with pytest.raises(Failure, match="2 in flight at limit 1"):
        run(PROGRAMS[PLANTED], caught.value.schedule.answers)


def test_a_saved_schedule_replays_from_its_file(tmp_path: Path) -> None:
    with pytest.raises(Failure) as caught:
        list(explore(PROGRAMS[PLANTED], preemptions=2))
    path = tmp_path / "schedule.json"
    path.write_text(json.dumps({"program": PLANTED, "answers": caught.value.schedule.answers}))
    assert replay(path) == 1
    path.write_text(json.dumps({"program": PLANTED, "answers": []}))
    assert replay(path) == 0
    path.write_text("{}")
    assert replay(path) == 2
    assert replay(tmp_path / "missing.json") == 2


def replay(path: Path) -> int:
    script = Path(__file__).parent / "interleavings" / "run.py"
    return subprocess.run([sys.executable, script, "--replay", path], check=False, capture_output=True).returncode
