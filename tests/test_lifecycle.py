"""The lifecycle tables: one source, two engines that agree, drawings that don't depend on the run."""

import os
import re
import subprocess
import sys
from itertools import product
from pathlib import Path

import pytest
from transitions import Machine, MachineError

from provider_concurrency_model.diagrams import BlockError, main, replace_blocks
from provider_concurrency_model.lifecycle import (
    CHARTS,
    IN_FLIGHT_STATES,
    MANAGER_TABLE,
    PROVIDER_TABLE,
    SLOT,
    SLOT_TABLE,
    SLOT_TARGETS,
    Chart,
    build_machine,
    draw_chart,
    draw_lifecycle,
    refusing_rule,
)
from provider_concurrency_model.provider_rules import PROVIDER_ACTIONS
from provider_concurrency_model.slot_rules import SLOT_ACTIONS
from provider_concurrency_spec.vocabulary import SLOT_EVENT_KINDS, SLOT_STATES

ALL_PAIRS = [
    pytest.param(chart, state, event, id=f"{chart.name}-{state}-{event}")
    for chart in CHARTS
    for state, event in product(chart.states, chart.events)
]


class Thing:
    """Anything with a state: the machine is shared, its models aren't registered."""

    def __init__(self, state: str) -> None:
        self.state = state


def fire(machine: Machine, state: str, event: str) -> str | None:
    """The state after an event, None if it is illegal; an illegal one must leave the state as it was."""
    thing = Thing(state)
    try:
        assert machine.events[event].trigger(thing)
    except MachineError:
        assert thing.state == state
        return None
    return thing.state


@pytest.mark.parametrize(("chart", "state", "event"), ALL_PAIRS)
def test_table_and_machine_agree_on_every_pair(chart: Chart, state: str, event: str) -> None:
    assert fire(build_machine(chart), state, event) == chart.table().get((state, event))


@pytest.mark.parametrize(("chart", "state", "event"), ALL_PAIRS)
def test_a_registered_model_obeys_the_same_table(chart: Chart, state: str, event: str) -> None:
    thing = Thing(state)
    machine = build_machine(chart, thing)
    machine.set_state(state, thing)
    target = chart.table().get((state, event))
    if target is None:
        with pytest.raises(MachineError):
            getattr(thing, event)()
        assert thing.state == state
    else:
        assert getattr(thing, event)() is True
        assert thing.state == target


@pytest.mark.parametrize("chart", CHARTS, ids=lambda chart: chart.name)
def test_there_is_no_way_around_the_chart(chart: Chart) -> None:
    machine = build_machine(chart)
    assert set(machine.events) == set(chart.events)
    assert set(machine.states) == set(chart.states)
    assert not machine.ignore_invalid_triggers
    assert {name for name, state in machine.states.items() if state.final} == set(chart.ends)


@pytest.mark.parametrize("chart", CHARTS, ids=lambda chart: chart.name)
def test_every_state_is_reachable_and_every_target_listed(chart: Chart) -> None:
    reached, seen = {chart.initial}, set[str]()
    while reached - seen:
        state = (reached - seen).pop()
        seen.add(state)
        reached |= {leave.to for leave in chart.exits[state]}
    assert seen == set(chart.states)


def test_the_slot_chart_has_the_vocabulary_s_words() -> None:
    assert set(SLOT.states) == {"new", *SLOT_STATES}
    assert set(SLOT.events) == set(SLOT_EVENT_KINDS)
    assert set(SLOT.ends) == {"free", "cancelled", "timed_out", "rejected"}
    assert {"held", "cooling", "reclaimed"} == IN_FLIGHT_STATES


def test_the_whole_slot_table() -> None:
    assert SLOT_TABLE == {
        ("new", "granted"): "held",
        ("new", "queued"): "queued",
        ("new", "timed_out"): "timed_out",
        ("queued", "granted"): "held",
        ("queued", "cancelled"): "cancelled",
        ("queued", "timed_out"): "timed_out",
        ("queued", "rejected"): "rejected",
        ("held", "released"): "cooling",
        ("held", "reclaimed"): "reclaimed",
        ("held", "cancelled"): "cancelled",
        ("cooling", "recycled"): "free",
        ("reclaimed", "recycled"): "free",
    }
    assert PROVIDER_TABLE == {
        ("open", "paused"): "paused",
        ("paused", "paused"): "paused",
        ("paused", "resumed"): "open",
    }
    assert MANAGER_TABLE == {("open", "closed"): "closed"}


def test_each_slot_event_has_one_target_and_each_row_a_judge() -> None:
    """Both are what the judge relies on."""
    assert {(event, target) for (_, event), target in SLOT_TABLE.items()} == set(SLOT_TARGETS.items())
    assert SLOT_ACTIONS.keys() == SLOT_TABLE.keys()
    assert {"paused", "resumed"} <= PROVIDER_ACTIONS.keys()


@pytest.mark.parametrize("chart", CHARTS, ids=lambda chart: chart.name)
def test_every_row_names_its_rules_and_no_pair_twice(chart: Chart) -> None:
    rows = list(chart.rows())
    assert len(chart.table()) == len(rows)
    for _, leave in rows:
        assert leave.rules
        assert all(re.fullmatch("[A-Z]{3}-[0-9]", rule) for rule in leave.rules)
        assert leave.by


def test_what_is_refused_names_a_rule() -> None:
    for state, event in product(SLOT.states, SLOT_EVENT_KINDS):
        if (state, event) not in SLOT_TABLE:
            assert refusing_rule(state, event) == "ACC-2" or state not in SLOT.ends
    assert refusing_rule("cooling", "released") == "REL-1"
    assert refusing_rule("held", "recycled") == "REL-3"
    assert refusing_rule("held", "granted") == "ADM-2"
    assert refusing_rule("free", "granted") == "ACC-2"


def test_the_drawing_has_every_row_and_every_end() -> None:
    for chart in CHARTS:
        drawing = draw_chart(chart)
        assert drawing.startswith("stateDiagram-v2\n")
        for state, leave in chart.rows():
            assert f"    {state} --> {leave.to}: {leave.event} ({', '.join(leave.rules)})\n" in drawing + "\n"
        for end in chart.ends:
            assert f"    {end} --> [*]" in drawing


def test_drawings_don_t_depend_on_the_hash_seed() -> None:
    command = [sys.executable, "-c", "from provider_concurrency_model.lifecycle import *; print(draw_lifecycle())"]
    drawn = {
        subprocess.run(
            command, env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True
        ).stdout
        for seed in ("0", "1", "4711")
    }
    assert drawn == {draw_lifecycle() + "\n"}


# -- generated blocks in documents -----------------------------------------------------------------------------------

DOCUMENT = "# Title\n\n<!-- generated: lifecycle -->\nold\n<!-- end generated: lifecycle -->\n\nThe end.\n"


def test_write_then_check(tmp_path, capsys) -> None:
    path = tmp_path / "SPEC.md"
    path.write_text(DOCUMENT)
    assert main(["--check", str(path)]) == 1
    assert "drifted" in capsys.readouterr().err
    assert path.read_text() == DOCUMENT, "a check changes nothing"
    assert main(["--write", str(path)]) == 0
    assert main(["--check", str(path)]) == 0
    written = path.read_text()
    assert draw_lifecycle() in written
    assert "old" not in written
    assert written.startswith("# Title\n")
    assert written.endswith("\nThe end.\n")


def test_a_file_without_marks_is_an_error_that_names_it(tmp_path, capsys) -> None:
    path = tmp_path / "plain.md"
    path.write_text("# Title\n")
    assert main(["--check", str(path)]) == 2
    assert "plain.md: has no mark" in capsys.readouterr().err
    assert main(["--check", str(tmp_path / "missing.md")]) == 2


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ("<!-- generated: lifecycle -->\n", "no end mark"),
        ("<!-- end generated: lifecycle -->\n", "line 1"),
        ("<!-- generated: lifecycle -->\n<!-- generated: lifecycle -->\n", "line 2"),
        ("<!-- generated: lifecycle -->\n<!-- end generated: other -->\n", "line 2"),
        ("<!-- generated: nonsense -->\n<!-- end generated: nonsense -->\n", "nothing generates the block 'nonsense'"),
    ],
)
def test_broken_marks_are_named(document: str, message: str) -> None:
    with pytest.raises(BlockError, match=message):
        replace_blocks(document)


def test_the_quotient_is_a_picture_that_doesn_t_depend_on_the_hash_seed() -> None:
    command = [
        sys.executable,
        "-c",
        "from provider_concurrency_model.diagrams import *; print(generate_block('quotient'))",
    ]
    drawn = {
        subprocess.run(
            command, env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True
        ).stdout
        for seed in ("0", "1")
    }
    assert len(drawn) == 1
    picture = drawn.pop()
    assert picture.startswith("```mermaid\nstateDiagram-v2\n")
    assert '"2 held, 0 cooling, 1 queued"' in picture


@pytest.mark.parametrize("document", ["spec/SPEC.md", "README.md"])
def test_documents_haven_t_drifted(document: str) -> None:
    path = Path(__file__).parent.parent / document
    assert main(["--check", str(path)]) == 0, f"python -m provider_concurrency_model.diagrams --write {document}"
