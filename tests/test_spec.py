"""The specification agrees with itself: SPEC.md, the rule ids, the scenarios, the invariants, the tests it names."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path
from typing import Any

import pytest

from provider_concurrency_spec import scenarios
from provider_concurrency_spec.invariants import INVARIANTS, Run, check_run
from provider_concurrency_spec.rules import RULE_IDS, RULES
from provider_concurrency_spec.vocabulary import (
    FEATURES,
    OPERATION_NAMES,
    Config,
    Do,
    MalformedError,
    Refused,
    config_to_json,
)

ROOT = Path(__file__).parents[1]
SPEC = (ROOT / "spec" / "SPEC.md").read_text(encoding="utf-8")
SCENARIOS = scenarios.load_all()
BY_NAME = {scenario.name: scenario for scenario in SCENARIOS}


def section(title: str) -> str:
    """The text of SPEC.md under a heading of the second level."""
    found = re.search(rf"^## {re.escape(title)}\n(.*?)(?=^## |\Z)", SPEC, re.M | re.S)
    assert found is not None, f"SPEC.md has no section {title!r}"
    return found[1]


def table(title: str) -> list[list[str]]:
    """The cells of a section's first table, without its head."""
    lines = [line for line in section(title).splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines[2:]]


def rule_texts() -> dict[str, str]:
    found = re.findall(r"^### ([A-Z]{3}-\d): [^\n]+\n(.*?)(?=^#|\Z)", SPEC, re.M | re.S)
    return dict(found)


# -- SPEC.md and the rules -------------------------------------------------------------------------------------------


def test_spec_has_a_heading_for_each_rule_in_order() -> None:
    headings = re.findall(r"^### ([A-Z]{3}-\d): (.+)$", SPEC, re.M)
    assert headings == [(rule.id, rule.title) for rule in RULES]
    assert len(set(RULE_IDS)) == len(RULES)


def test_each_rule_has_an_example() -> None:
    texts = rule_texts()
    assert [rule_id for rule_id in RULE_IDS if "\n*Example.* " not in texts[rule_id]] == []


def test_spec_points_at_scenarios_that_show_the_rule() -> None:
    for rule_id, text in rule_texts().items():
        for name in re.findall(r"Scenario:\s`([^`]+)`", text):
            assert name in BY_NAME, f"{rule_id} points at {name}, which doesn't exist"
            assert rule_id in BY_NAME[name].rules, f"{rule_id} points at {name}, which doesn't show it"


def test_spec_mentions_no_unknown_rule() -> None:
    assert set(re.findall(r"\b[A-Z]{3}-\d\b", SPEC)) == set(RULE_IDS)


def test_spec_has_the_places_of_the_generated_parts() -> None:
    for name in ("lifecycle", "quotient", "claims"):
        found = re.findall(rf"^<!-- generated: {name} -->$.*?^<!-- end generated: {name} -->$", SPEC, re.M | re.S)
        assert len(found) == 1, name


def test_spec_explains_the_validation_of_each_setting() -> None:
    arguments = {cell.strip("`") for row in table("Validation") for cell in re.findall(r"`\w+`", row[0])}
    assert {field.removesuffix("_ms") for field in config_to_json(Config())} <= arguments


def test_spec_lists_the_invariants() -> None:
    listed = [(row[0].strip("`"), row[1], tuple(row[2].split(", "))) for row in table("Invariants")]
    assert listed == [(each.name, each.scope, each.rule_ids) for each in INVARIANTS]
    for each in INVARIANTS:
        assert set(each.rule_ids) <= set(RULE_IDS), each.name
        assert " ".join(each.description.split("\n\n")[0].split()) in SPEC, each.name


def test_spec_explains_each_key_of_a_scenario() -> None:
    text = section("Scenario files")
    whole = scenarios.scenario_to_json(BY_NAME["close-leaves-nothing-behind"])
    for key in (
        *whole,
        "do",
        "advance_ms",
        "stall_ms",
        "expect",
        "events",
        "status",
        "unsettled",
        "timers",
        "timers_max",
    ):
        assert f"`{key}`" in text, key


# -- what covers a rule ----------------------------------------------------------------------------------------------


def functions_in(path: Path) -> set[str]:
    """The names of the test functions of a file, those of classes as Class::name."""
    if not path.exists():
        return set()
    tree = ast.parse(path.read_text(encoding="utf-8"))
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    names = {node.name for node in tree.body if isinstance(node, functions)}
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            names |= {f"{node.name}::{inner.name}" for inner in node.body if isinstance(inner, functions)}
    return names


def test_each_rule_is_covered() -> None:
    """A rule has a scenario as far as protocol 1 can show it, and a test that exists as far as it can't."""
    shown = {rule_id for scenario in SCENARIOS for rule_id in scenario.rules}
    rows = table("Rules that protocol 1 can't show")
    tested = {row[0] for row in rows}
    wrong: list[str] = []
    for rule in RULES:
        if (rule.id in shown) != (rule.shown != "not"):
            wrong.append(f"{rule.id} is shown {rule.shown}, but {'has' if rule.id in shown else 'lacks'} scenarios")
        if (rule.id in tested) != (rule.shown != "wholly"):
            wrong.append(f"{rule.id} is shown {rule.shown}, but {'has' if rule.id in tested else 'lacks'} a test's row")
    for rule_id, _, name in rows:
        file, _, test = name.strip("`").partition("::")
        if test not in functions_in(ROOT / file):
            wrong.append(f"{rule_id} names {name}, which doesn't exist")
    assert wrong == []


# -- scenarios -------------------------------------------------------------------------------------------------------


def test_scenarios_are_sorted_and_well_named() -> None:
    names = [scenario.name for scenario in SCENARIOS]
    assert names == sorted(set(names))
    assert [name for name in names if not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", name)] == []


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_a_scenario_survives_its_format(scenario: scenarios.Scenario) -> None:
    text = json.dumps(scenarios.scenario_to_json(scenario), allow_nan=False)
    assert scenarios.load_text(text, f"{scenario.name}.json") == scenario


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_a_scenario_expects_what_the_invariants_allow(scenario: scenarios.Scenario) -> None:
    """Expectations are worked out by hand; the invariants are a second reading of the same rules."""
    for step in scenario.steps:
        assert step.expect.events is not None
        assert step.expect.status is not None
        assert step.expect.unsettled is not None
    run = Run.of(scenario.config, [(step.command, step.expect.to_reply()) for step in scenario.steps])
    assert check_run(run) == ()


def test_each_optional_feature_is_needed_by_a_scenario() -> None:
    assert {feature for scenario in SCENARIOS for feature in scenario.needs} == set(FEATURES)


def test_every_expected_refusal_points_into_its_own_burst() -> None:
    """The index of an error of an operation that a hook runs isn't defined, so no scenario expects one."""
    for scenario in SCENARIOS:
        for step in scenario.steps:
            for event in step.expect.events or ():
                if isinstance(event, Refused):
                    assert isinstance(step.command, Do), scenario.name
                    assert OPERATION_NAMES[type(step.command.ops[event.index])] == event.op, scenario.name


GOOD: dict[str, Any] = {
    "name": "good",
    "rules": ["ADM-1"],
    "needs": [],
    "why": "an example",
    "config": {"release_cooldown_ms": 0},
    "steps": [
        {
            "do": [
                {"op": "acquire", "provider": "p", "request": "r", "conversation": None, "prompt_started_at": 1},
                {"op": "release", "request": "r"},
            ],
            "expect": {
                "events": [{"event": "granted", "at_ms": 0, "provider": "p", "request": "r"}],
                "status": [],
                "unsettled": [],
            },
        },
        {"advance_ms": 5, "expect": {}},
    ],
}


def altered(path: str, value: Any) -> dict[str, Any]:
    """GOOD with the value at a path like steps.0.do replaced, or added."""
    out: dict[str, Any] = json.loads(json.dumps(GOOD))
    *way, last = [int(part) if part.isdigit() else part for part in path.split(".")]
    place: Any = out
    for part in way:
        place = place[part]
    place[last] = value
    return out


def lacking(key: str) -> dict[str, Any]:
    return {name: item for name, item in GOOD.items() if name != key}


def test_the_example_is_good() -> None:
    scenario = scenarios.scenario_from_json(GOOD, "good.json")
    assert scenario.config == Config(release_cooldown_ms=0)
    assert scenario.steps[1].expect == scenarios.Expect()
    assert scenario.steps[1].expect.to_reply().events == ()
    assert scenarios.scenario_from_json(lacking("config"), "good.json").config == Config()
    assert scenarios.scenario_from_json(scenarios.scenario_to_json(scenario), "good.json") == scenario


ACQUIRE = {"op": "acquire", "provider": "p", "request": "r", "conversation": None, "prompt_started_at": 1}


@pytest.mark.parametrize(
    ("value", "named"),
    [
        ([], "scenario must be an object"),
        (lacking("name"), "name"),
        (lacking("rules"), "rules"),
        (lacking("why"), "why"),
        (lacking("steps"), "steps"),
        (altered("name", ""), "name"),
        (altered("rules", []), "rules"),
        (altered("rules", ["ADM-9"]), "ADM-9"),
        (altered("rules", "ADM-1"), "rules"),
        (altered("author", "me"), "author"),
        (altered("needs", ["timers"]), "needs"),
        (altered("needs", ["levitation"]), "needs"),
        (altered("config", {"cooldown": 1}), "cooldown"),
        (altered("steps", []), "steps"),
        (altered("refused_configs", {}), "refused_configs"),
        (altered("steps.1.stall_ms", 5), r"steps\[1\].*exactly one"),
        (altered("steps.1.advance_ms", -5), r"steps\[1\].*advance_ms"),
        (altered("steps.1.advance_ms", 1.5), r"steps\[1\].*advance_ms"),
        (altered("steps.1", {"advance_ms": 5}), r"steps\[1\].*expect"),
        (altered("steps.1", {"expect": {}}), r"steps\[1\].*exactly one"),
        (altered("steps.1", {"stall_ms": True, "expect": {}}), r"steps\[1\].*stall_ms"),
        (altered("steps.1.note", "x"), r"steps\[1\].*note"),
        (altered("steps.0.do", {}), r"steps\[0\].*do"),
        (altered("steps.0.do.1", {"op": "borrow"}), r"steps\[0\].*borrow"),
        (altered("steps.0.do.1", {"op": "release", "request": "r", "force": True}), r"steps\[0\].*force"),
        (
            altered("steps.0.do.1", {"op": "hook", "on": "queued", "provider": "p", "do": [{"op": "close", "x": 1}]}),
            r"steps\[0\].*x",
        ),
        (altered("steps.0.do.1", ACQUIRE), "twice: r"),
        (altered("steps.0.expect.granted", []), r"steps\[0\].*granted"),
        (altered("steps.0.expect.events.0.why", "x"), r"steps\[0\].*why"),
        (altered("steps.0.expect.status", [{"provider": "p"}]), r"steps\[0\].*limit"),
        (altered("steps.0.expect.status", [{"provider": "p", "waiting": 1}]), r"steps\[0\].*waiting"),
        (altered("steps.0.expect.unsettled", [""]), r"steps\[0\].*unsettled"),
        (altered("steps.0.expect.timers_max", -1), r"steps\[0\].*timers_max"),
        (altered("steps.0.expect.timers", "0"), r"steps\[0\].*timers"),
    ],
)
def test_a_malformed_scenario_is_refused_by_file_and_field(value: Any, named: str) -> None:
    with pytest.raises(MalformedError, match=rf"^good\.json: .*{named}"):
        scenarios.scenario_from_json(value, "good.json")


def test_a_file_must_be_json_and_bear_its_scenarios_name() -> None:
    with pytest.raises(MalformedError, match=r"^bad\.json: not JSON"):
        scenarios.load_text("{", "bad.json")
    with pytest.raises(MalformedError, match=r"^other\.json: name is 'good'"):
        scenarios.load_text(json.dumps(GOOD), "other.json")


def test_refused_configurations_may_stand_alone() -> None:
    scenario = BY_NAME["config-refuses-a-bad-slot-timeout"]
    assert scenario.steps == ()
    assert Config(slot_timeout_ms=0) in scenario.refused_configs
