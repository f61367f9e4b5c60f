"""PORTING.md tells the truth: its messages fit the schemas, its tables are complete, its commands run as they stand."""

from __future__ import annotations

import json
import re
import shlex
import sys
import tomllib
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.main import get_command
from typer.testing import CliRunner

from provider_concurrency_model.check import cli
from provider_concurrency_model.check.expect import LEVELS, Expectations, Known, read_expectations
from provider_concurrency_model.check.trace import judge_trace
from provider_concurrency_spec.scenarios import load_all
from provider_concurrency_spec.schemas import SchemaName, find_faults, load_schema
from provider_concurrency_spec.vocabulary import FEATURES, OPERATION_NAMES

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "spec" / "PORTING.md").read_text(encoding="utf-8")
OURS = f"{shlex.quote(sys.executable)} -m provider_concurrency.port"


def fences(language: str) -> list[str]:
    return [text for told, text in re.findall(r"^```(\w*)\n(.*?)^```$", PAGE, re.M | re.S) if told == language]


def table_under(heading: str) -> list[list[str]]:
    """The cells of the first table after a text, without its head."""
    after = PAGE.split(heading, 1)[1]
    rows = re.search(r"(?:^\|.*\n)+", after, re.M)
    assert rows is not None
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in rows[0].splitlines()[2:]]


def schema_of(line: str, value: dict[str, Any]) -> SchemaName:
    """What a line of a fence is an example of."""
    if line.startswith("-> "):
        return "request"
    if line.startswith("<- "):
        return "hello" if "port" in value else "reply"
    if "seq" in value or "trace" in value:
        return "trace_line"
    if "op" in value and "index" not in value:
        return "operation"
    return "event" if "event" in value else "status_row"


MESSAGES = [
    line
    for fence in fences("")
    for line in fence.splitlines()
    if re.match(r'(-> |<- )?\{"', line) and "..." not in line
]


@pytest.mark.parametrize("line", MESSAGES)
def test_an_example_fits_its_schema(line: str) -> None:
    value = json.loads(re.sub(r"^(->|<-) ", "", line))
    if schema_of(line, value) == "reply" and not {"events", "skip", "error"} & set(value):
        pytest.fail("neither a reply nor what stands in its place")
    assert find_faults(schema_of(line, value), value) == []


def test_there_is_an_example_of_each_operation_and_command() -> None:
    values = [json.loads(re.sub(r"^(->|<-) ", "", line)) for line in MESSAGES]
    assert {value["op"] for value in values if "op" in value and not {"event", "seq"} & set(value)} == set(
        OPERATION_NAMES.values()
    )
    assert {value["cmd"] for value in values if "cmd" in value} == {"hello", "new", "do", "advance", "stall", "bye"}


def test_the_tables_are_complete() -> None:
    assert [row[0].strip("`") for row in table_under("the kit never asks for another:")] == list(FEATURES)
    assert {row[0].strip("`") for row in table_under("## Operations")} == set(OPERATION_NAMES.values())


def test_the_scenarios_are_counted() -> None:
    scenarios = load_all()
    lean = sum(not scenario.needs for scenario in scenarios)
    assert f"{lean} of the {len(scenarios)} scenario files" in PAGE
    assert f"{lean} scenarios pass, {len(scenarios) - lean} are skipped" in PAGE
    assert set(re.findall(r"\((\d+) of them|\d+ of (?:the )?(\d+) scenario", PAGE)) == {
        (str(len(scenarios)), ""),
        ("", str(len(scenarios))),
    }


def test_every_link_leads_somewhere() -> None:
    headings = re.findall(r"^## (.+)$", PAGE, re.M)
    anchors = {re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings}
    assert set(re.findall(r"\]\(#([^)]+)\)", PAGE)) <= anchors
    assert {path for path in re.findall(r"\]\(([^#)]+)\)", PAGE) if not (ROOT / "spec" / path).exists()} == set()


def test_the_example_of_a_trace_is_one_and_one_that_is_early_is_not() -> None:
    (fence,) = (fence for fence in fences("") if '"trace":1' in fence)
    verdict = judge_trace(fence.splitlines(keepends=True))
    assert (verdict.exit_code, verdict.events, verdict.remarks) == (0, 9, ())
    early = judge_trace(fence.replace('"t":299750000', '"t":299250000').splitlines(keepends=True))
    assert early.rule == "REL-3"


# -- known failures ----------------------------------------------------------------------------------------------------


def test_the_example_of_an_expectation_file_is_one(tmp_path: Path) -> None:
    (text,) = fences("toml")
    path = tmp_path / "port.expect.toml"
    path.write_text(text, encoding="utf-8")
    assert read_expectations(path).known[0].case in {scenario.name for scenario in load_all()}


def test_every_key_of_an_expectation_file_is_explained() -> None:
    rows = {name.strip(" `"): row[1] for row in table_under("## Known failures") for name in row[0].split(",")}
    schema = load_schema("expectation")["properties"]
    assert set(rows) == set(schema) | set(schema["known"]["items"]["properties"])
    empty, entry = Expectations(), Known("a", "PAU-1", "m")
    assert (empty.levels, empty.seed, empty.runs, empty.known) == (LEVELS, None, None, ())
    assert (rows["levels"], rows["seed"], rows["known"]) == ("all", "0, 200", "none")
    assert (rows["level"], rows["note"]) == (f"`{entry.level}`", "none")


# -- commands ----------------------------------------------------------------------------------------------------------


def options_of(words: list[str]) -> set[str]:
    ours = words[: words.index("--")] if "--" in words else words
    return {word for word in ours if word.startswith("--")}


def commands_in(text: str) -> list[list[str]]:
    return [shlex.split(line.split("#")[0]) for line in re.findall(r"^provider-concurrency .*$", text, re.M)]


def test_every_command_exists_with_its_options() -> None:
    known: Any = get_command(cli.app)
    found = [*(words for fence in fences("") for words in commands_in(fence)), *map(shlex.split, ci_commands())]
    assert len(found) >= 7
    for words in found:
        command = known.commands[words[1]]
        assert options_of(words) <= {option for parameter in command.params for option in parameter.opts}, words


def ci_steps() -> list[dict[str, Any]]:
    (text,) = fences("yaml")
    workflow = yaml.safe_load(text)
    assert set(workflow) == {"name", True, "permissions", "jobs"}  # YAML reads `on` as true
    (job,) = workflow["jobs"].values()
    steps: list[dict[str, Any]] = job["steps"]
    return steps


def ci_commands() -> list[str]:
    return [step["run"] for step in ci_steps() if step.get("run", "").startswith("provider-concurrency ")]


def test_the_ci_example_is_a_workflow_that_pins_this_kit() -> None:
    steps = ci_steps()
    assert all(("uses" in step) != ("run" in step) for step in steps)
    assert [step for step in steps if "uses" in step and not re.fullmatch(r"[\w-]+/[\w-]+@v\d+", step["uses"])] == []
    assert f'pip install "provider-concurrency[check]=={version("provider-concurrency")}"' in [
        step.get("run") for step in steps
    ]


def test_the_ci_example_runs_as_it_stands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With our manager for the port, and of all levels only the quickest."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary.md"))
    for step in ci_steps():
        if step.get("run", "").startswith("mkdir "):
            (tmp_path / step["run"].removeprefix("mkdir -p ")).mkdir(parents=True)
    (tmp_path / "port.expect.toml").write_text('levels = ["scenarios"]\n', encoding="utf-8")
    quick, whole = ci_commands()
    assert quick.endswith("-- node driver.mjs")
    assert whole.endswith("-- node driver.mjs")
    for command in (quick, whole.replace("check ", "check --level scenarios ")):
        words = shlex.split(command.replace("node driver.mjs", OURS).replace("$GITHUB_STEP_SUMMARY", "summary.md"))
        result = CliRunner().invoke(cli.app, words[1:], catch_exceptions=False)
        assert result.exit_code == 0, result.output
    written = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    assert written >= {"summary.md", "reports/conformance.xml", "reports/conformance.json"}


def test_the_expectation_example_is_toml_with_what_the_kit_writes() -> None:
    (text,) = fences("toml")
    assert list(tomllib.loads(text)) == ["spec", "levels", "seed", "runs", "known"]
