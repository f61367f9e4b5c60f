"""The benchmark harness: its arithmetic, its table, and that each workload does what it says it does."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.bench import contended, growth, judging, many_providers, uncontended, utilisation
from tests.bench.__main__ import FAMILIES, main
from tests.bench.measure import Case, Quartiles, compare, measure, rotate
from tests.bench.naive import NaiveManager
from tests.bench.report import to_json, write_table
from tests.bench.rows import COST, EXCESS, RATIO, SPEEDUP, YIELD, Family, Mark, Row, run_family

pytestmark = pytest.mark.long

ALL_ROWS = [row for family in FAMILIES for row in family.rows]
ALL_CASES = list({case.name: case for row in ALL_ROWS for case in row.cases()}.values())


def make_case(name: str, *costs: float, needs: tuple[str, ...] = ()) -> Case:
    """A case whose runs cost this and that."""
    left = list(costs)
    return Case(name, lambda _: left.pop(0), size=1, quick_size=1, needs=needs, is_warmed=False)


# -- arithmetic -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sample", "low", "median", "high"),
    [
        ([7.0], 7.0, 7.0, 7.0),
        ([1.0, 3.0], 1.5, 2.0, 2.5),
        ([5.0, 1.0, 4.0, 2.0, 3.0], 2.0, 3.0, 4.0),
        ([1.0, 1.0, 1.0, 100.0], 1.0, 1.0, 25.75),
    ],
)
def test_quartiles(sample: list[float], low: float, median: float, high: float) -> None:
    assert Quartiles.of(sample) == Quartiles(low, median, high)


def test_each_round_begins_with_another_case() -> None:
    assert [rotate("abc", number) for number in range(4)] == [[*"abc"], [*"bca"], [*"cab"], [*"abc"]]
    assert rotate([], 3) == []


def test_rounds_are_interleaved() -> None:
    order: list[str] = []

    def make(name: str) -> Case:
        def run(size: int) -> float:
            order.append(f"{name}{size}")
            return 1.0

        return Case(name, run, size=20, quick_size=10)

    samples = measure([make("a"), make("b")], rounds=3)
    assert order == ["a2", "b2", "a20", "b20", "b20", "a20", "a20", "b20"], "a small warm-up, then rotated rounds"
    assert [len(sample) for sample in samples.values()] == [3, 3]
    order.clear()
    measure([make("a")], rounds=1, quick=True)
    assert order == ["a1", "a10"]


def test_the_ratio_is_taken_in_each_round() -> None:
    """The median of ratios isn't the ratio of medians, and it alone survives a machine that changes its speed."""
    ours, peer = make_case("ours"), make_case("peer")
    samples = {ours: [2.0, 20.0, 200.0], peer: [1.0, 10.0, 100.0]}
    assert compare(RATIO.of, samples, ours, peer) == Quartiles(2.0, 2.0, 2.0)
    assert compare(SPEEDUP.of, samples, ours, peer) == Quartiles(0.5, 0.5, 0.5)
    assert compare(EXCESS.of, samples, ours, peer) == Quartiles(5.5, 10.0, 55.0)
    assert compare(COST.of, samples, ours, None) == Quartiles(11.0, 20.0, 110.0)


@pytest.mark.parametrize(
    ("figure", "goal", "done_at", "median", "mark"),
    [
        (RATIO, 1.0, 1.2, 1.0, "goal"),
        (RATIO, 1.0, 1.2, 1.2, "done"),
        (RATIO, 1.0, 1.2, 1.21, "MISS"),
        (SPEEDUP, 14.0, 10.0, 14.0, "goal"),
        (SPEEDUP, 14.0, 10.0, 13.9, "done"),
        (SPEEDUP, 14.0, 10.0, 9.9, "MISS"),
        (YIELD, 97.0, 96.0, 96.5, "done"),
        (COST, 0.0, 0.0, 1.0, "MISS"),
        (COST, None, None, 1.0, ""),
    ],
)
def test_marks(figure: Any, goal: float | None, done_at: float | None, median: float, mark: Mark) -> None:
    row = Row("W1", "row", make_case("ours"), None, figure, goal, done_at)
    assert row.judge(median) == mark
    assert row.judge(median, quick=True) == mark


def test_a_quick_run_gives_no_mark_where_size_matters() -> None:
    row = Row("W3", "row", make_case("ours"), None, COST, 1.0, 1.0, depends_on_size=True)
    assert row.judge(2.0) == "MISS"
    assert row.judge(2.0, quick=True) == ""


def test_early_grants_are_counted() -> None:
    assert utilisation.count_early([0, 1, 110], [10, 11], limit=2, cooldown=100) == 0
    assert utilisation.count_early([0, 1, 109], [10, 11], limit=2, cooldown=100) == 1
    assert utilisation.count_early([0, 1], [], limit=2, cooldown=100) == 0


# -- the table and the JSON -------------------------------------------------------------------------------------------


def example() -> Family:
    """Two rows, of which one can't run."""
    peer = make_case("peer", 10.0, 10.0, 10.0)
    return Family(
        "example",
        rounds=3,
        quick_rounds=1,
        rows=(
            Row("W1", "known", make_case("ours", 10.0, 11.0, 12.0), peer, goal=1.0, done_at=1.1, note="a note"),
            Row("W2", "unknown", make_case("never", needs=("no_such_module.at_all",)), peer, goal=1.0, done_at=1.0),
        ),
    )


def test_a_row_whose_module_is_missing_says_so() -> None:
    results = run_family(example())
    assert [result.mark for result in results] == ["done", ""]
    assert results[1].missing == ("no_such_module.at_all",)
    table = write_table(results)
    assert "no no_such_module.at_all" in table
    assert len({len(line) for line in table.splitlines()[:4]}) == 1, "all lines are equally long"
    assert "known [1]" in table
    assert table.endswith("[1] a note")


def test_only_some_rows() -> None:
    results = run_family(example(), only=["W1"])
    assert [result.row.id for result in results] == ["W1"]


def test_json_shape() -> None:
    document = json.loads(json.dumps(to_json(run_family(example()), quick=False, seconds=1.25)))
    assert set(document) == {"format", "quick", "seconds", "environment", "rows"}
    known, unknown = document["rows"]
    assert known == {
        "id": "W1",
        "workload": "known",
        "ours": {"name": "ours", "unit": "ns", "low": 10.5, "median": 11.0, "high": 11.5},
        "peer": {"name": "peer", "unit": "ns", "low": 10.0, "median": 10.0, "high": 10.0},
        "figure": {"name": "ours / peer", "low": 1.05, "median": 1.1, "high": 1.15},
        "is_less_better": True,
        "goal": 1.0,
        "done_at": 1.1,
        "mark": "done",
        "clock": "CPU",
        "rounds": 3,
        "missing": [],
        "note": "a note",
    }
    assert unknown["missing"] == ["no_such_module.at_all"]
    assert unknown["figure"] == {"name": "ours / peer", "low": None, "median": None, "high": None}


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.bench.__main__.FAMILIES", (example(),))
    assert main(["--only", "w1", "--json", str(tmp_path / "bench.json")]) == 0
    assert "| W1 " in capsys.readouterr().out
    assert [row["id"] for row in json.loads((tmp_path / "bench.json").read_text())["rows"]] == ["W1"]
    with pytest.raises(SystemExit):
        main(["--only", "W99"])


def test_every_workload_of_the_issue_is_there() -> None:
    assert {row.id for row in ALL_ROWS if row.goal is not None} == {f"W{number}" for number in range(1, 13)}
    for row in ALL_ROWS:
        assert (row.goal is None) == (row.done_at is None)
        if row.goal is not None and row.done_at is not None:
            sign = 1 if row.figure.is_less_better else -1
            assert sign * row.goal <= sign * row.done_at, f"{row.what}: the goal is the stricter one"
            assert row.figure not in (RATIO, SPEEDUP, EXCESS) or row.peer is not None


# -- the workloads ----------------------------------------------------------------------------------------------------

SIZES = {"explore": 1, "system.run alone": 1, "early, asyncio": 40, "early, uvloop": 40}
"""Where a smaller size than this means nothing."""


@pytest.mark.parametrize("case", ALL_CASES, ids=lambda case: case.name)
def test_each_case_runs_one_tiny_round(case: Case) -> None:
    """Each checks its own outcome: every request granted, every slot free again."""
    if lacks := case.missing():
        pytest.skip(f"not installed: {', '.join(lacks)}")
    size = SIZES.get(case.name, 20)
    assert case.run(size) >= 0.0


def test_one_observer_is_told_of_every_transition() -> None:
    events: list[str] = []
    uncontended.acquire_observed(3, observer=lambda event, *_: events.append(event))
    assert events == ["granted", "released", "recycled"] * 3


@pytest.mark.parametrize("run", [contended.slots_by_random_age, contended.slots_in_order, contended.semaphore])
def test_contended_workloads_run_every_task(run: Callable[..., float]) -> None:
    assert run(2, tasks=30) > 0.0


def test_the_recorded_run_queues() -> None:
    """So that a judged trace has every event of a request's life."""
    events = [json.loads(line).get("event") for line in judging.record_run(50)]
    assert {event: events.count(event) for event in ("queued", "granted", "released", "recycled")} == {
        "queued": 42,
        "granted": 50,
        "released": 50,
        "recycled": 50,
    }


def test_many_providers_are_all_used() -> None:
    assert many_providers.many(20, providers=5) > 0.0


def test_a_share_is_at_most_the_ideal() -> None:
    assert 0.0 < utilisation.measure_share(40, "asyncio") <= 100.0


# -- the naive port ---------------------------------------------------------------------------------------------------


def test_the_naive_port_grants_the_oldest_first_and_cools() -> None:
    async def run() -> list[str]:
        manager = NaiveManager({"p": 1}, cooldown=0.001)
        release = await manager.acquire("p")
        order: list[str] = []

        async def ask(name: str, age: int) -> None:
            free = await manager.acquire("p", name, contended.random_datetimes(10)[age])
            order.append(name)
            free()
            free()

        ages = sorted(range(3), key=lambda number: contended.random_datetimes(10)[number])
        tasks = [asyncio.create_task(ask(f"oldest but {ages.index(age)}", age)) for age in range(3)]
        await asyncio.sleep(0)
        release()
        assert manager.in_flight("p") == 1, "it cools"
        await asyncio.gather(*tasks)
        return order

    assert asyncio.run(run()) == ["oldest but 0", "oldest but 1", "oldest but 2"]


def test_the_naive_port_reclaims_what_is_never_released() -> None:
    async def run() -> NaiveManager:
        manager = NaiveManager({"p": 1}, slot_timeout=0.001)
        await manager.acquire("p")
        await manager.acquire("p")  # would wait for ever otherwise
        return manager

    assert asyncio.run(run()).reclaimed == 1


# -- growth curves ----------------------------------------------------------------------------------------------------


def test_growth_is_measured_as_far_as_each_can_bear(monkeypatch: pytest.MonkeyPatch) -> None:
    curves = (growth.Curve("this library", lambda depth: 1_000.0 * depth), growth.Curve("naive port", float, deepest=5))
    monkeypatch.setattr(growth, "PANELS", (growth.Panel("panel", curves),))
    assert growth.measure(depths=(5, 50), repeats=1)["panels"] == [
        {
            "title": "panel",
            "curves": [
                {"name": "this library", "points": [[5, 5.0], [50, 50.0]]},
                {"name": "naive port", "points": [[5, 0.005]]},
            ],
        }
    ]


def test_the_picture_shows_what_was_measured() -> None:
    """The committed data and picture belong together, and to the curves of today."""
    data = json.loads(growth.DATA.read_text())
    assert [panel["title"] for panel in data["panels"]] == [panel.title for panel in growth.PANELS]
    picture = growth.PICTURE.read_text()
    for panel in growth.PANELS:
        assert panel.title in picture
        assert all(curve.name in picture for curve in panel.curves)


def test_drawing_twice_gives_the_same_bytes(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    data = json.loads(growth.DATA.read_text())
    for name in ("one.svg", "two.svg"):
        growth.draw(data, tmp_path / name)
    assert (tmp_path / "one.svg").read_bytes() == (tmp_path / "two.svg").read_bytes()


# -- the one figure that the tests demand -----------------------------------------------------------------------------


# Calls with keyword-only arguments, and the thread and loop checks (THR-1, LOP-1), leave 1.5 to 1.65; less could be had
# only for one of the rules or the signature.
BOUND = 1.75


def test_an_uncontended_pair_costs_about_half_more_than_a_semaphores() -> None:
    """In CPU time, interleaved; a noisy machine gets a few tries, since noise only ever makes it worse."""
    ours, peer = (Case(case.name, case.run, 5_000, 5_000) for case in (uncontended.PAIRS, uncontended.SEMAPHORE))
    medians: list[float] = []
    while len(medians) < 8 and min(medians, default=9.9) > BOUND:
        medians.append(compare(RATIO.of, measure([ours, peer], rounds=7), ours, peer).median)
    assert min(medians) <= BOUND, f"medians of the ratio: {medians}"
