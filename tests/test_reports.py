"""The reports of a run: text, JSON, JUnit and Markdown say the same, and nothing can break out of them."""

from __future__ import annotations

import io
import json
import xml.etree.ElementTree as ET
from collections import Counter
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner

from provider_concurrency_model.check import cli
from provider_concurrency_model.check.case import case_of_commands
from provider_concurrency_model.check.compare import Difference
from provider_concurrency_model.check.counterexample import Counterexample
from provider_concurrency_model.check.report import print_report
from provider_concurrency_model.check.report_junit import report_to_junit
from provider_concurrency_model.check.report_markdown import report_to_markdown
from provider_concurrency_model.check.subject import Hello
from provider_concurrency_model.check.verdict import Agreement, CaseResult, LevelReport, RunReport, report_to_json
from provider_concurrency_spec.vocabulary import SPEC_VERSION, Config, Do, SetLimit

NASTY = "<b>`|*]]>&\x00\x1b[31m\ud800```\n# it"

HELLO = Hello("my|port", "0.3", "Go", "go1.24", frozenset({"cancel", "touch"}))


def counterexample(case: str) -> Counterexample:
    walked = case_of_commands(case, "scenarios", Config(), [Do((SetLimit("p", 1),))])
    difference = Difference("reply", "not JSON", None, "a reply", NASTY, "PAU-1")
    chosen_by = ("--", "node", "my driver.mjs")
    return Counterexample(walked, ("PAU-1",), (difference,), None, "node", chosen_by=chosen_by, remarks=(NASTY,))


def a_report() -> RunReport:
    scenarios = LevelReport("scenarios", "examples", "4 scenario files", cases=3, failed=2, commands=17, seconds=1.5)
    scenarios.skipped = Counter({"stall, timeout": 1})
    scenarios.results = [
        CaseResult("good", "passed"),
        CaseResult("bad", "failed", NASTY, "PAU-1"),
        CaseResult("known", "failed", "step 1: it differs", "ORD-1"),
        CaseResult("missing", "skipped", "the subject lacks stall, timeout"),
    ]
    scenarios.counterexamples = [counterexample("bad"), counterexample("known")]
    settled = LevelReport("settled", "exhausted", "2 live", cases=5, commands=99, states=7, edges=9, edges_driven=8)
    settled.undetermined = "the budget was spent after 8 of 9 edges"
    late = LevelReport("late", "exhausted", "late", lacking=("stall",), undetermined="skipped: all of it needs stall")
    late.skipped = Counter({"stall": 1})
    two = LevelReport("two", "exhausted", "2 providers", cases=5, commands=9, states=7, edges=9, edges_driven=9)
    two.notes.append(f"a note {NASTY}")
    return RunReport("node my driver.mjs", HELLO, 42, [scenarios, settled, late, two], not_run=("random",), runs=50)


def parse(report: RunReport) -> ET.Element:
    return ET.fromstring(report_to_junit(report).encode())


def cases_of(root: ET.Element, suite: str) -> dict[str, list[str]]:
    found = next(each for each in root if each.get("name") == suite)
    return {case.get("name", ""): [child.tag for child in case] for case in found.iter("testcase")}


def test_junit_tells_everything_apart() -> None:
    root = parse(a_report())
    assert cases_of(root, "scenarios") == {
        "good": [], "bad": ["failure"], "known": ["failure"], "missing": ["skipped"], "(the whole level)": [],
    }  # fmt: skip
    assert cases_of(root, "settled") == {"(the whole level)": ["error"]}
    assert cases_of(root, "late") == {"(the whole level)": ["skipped"]}
    assert cases_of(root, "two") == {"(the whole level)": []}
    counts = {name: root.get(name) for name in ("tests", "failures", "errors", "skipped")}
    assert counts == {"tests": "8", "failures": "2", "errors": "1", "skipped": "2"}
    for suite in root:
        for tag, name in (("failure", "failures"), ("error", "errors"), ("skipped", "skipped")):
            assert len(list(suite.iter(tag))) == int(suite.get(name, "-1"))
        told = {each.get("name"): each.get("value") for each in suite.iter("property")}
        assert (told["seed"], told["kit"], told["spec"]) == ("42", version("provider-concurrency"), SPEC_VERSION)
        assert told["port"] == "my|port 0.3 (Go, go1.24)"
    failure = next(root.iter("failure"))
    assert failure.get("type") == "PAU-1"
    assert "sequenceDiagram" in (failure.text or "")
    assert "\x00" not in report_to_junit(a_report())


def test_undetermined_is_an_error_even_where_nothing_was_asked() -> None:
    root = parse(RunReport("it", HELLO, 0, [LevelReport("two", "exhausted", "none")]))
    (error,) = root.iter("error")
    assert error.get("type") == "undetermined"
    assert error.get("message") == "nothing was asked"


def test_junit_with_an_expectation_file() -> None:
    report = a_report()
    report.agreement = Agreement("port.toml", (("scenarios", "known"),), ("scenarios: bad (PAU-1): fails, but ...",))
    root = parse(report)
    assert cases_of(root, "scenarios")["known"] == ["skipped"]
    assert cases_of(root, "scenarios")["bad"] == ["failure"]
    assert cases_of(root, "expectations") == {"scenarios: bad": ["failure"]}
    report.agreement = Agreement("port.toml", (("scenarios", "known"), ("scenarios", "bad")))
    assert cases_of(parse(report), "expectations") == {"port.toml tells the truth": []}


def test_markdown_has_levels_counts_versions_and_diagrams() -> None:
    text = report_to_markdown(a_report())
    assert text.splitlines()[0] == "## ❌ provider-concurrency: counterexample"
    kit = version("provider-concurrency")
    for line in (
        rf"| my\|port 0.3 | Go | go1.24 | {kit} | {SPEC_VERSION} | 1 | 42 | 50 |",
        "| scenarios | ❌ counterexample | examples | 3 | 2 | 1 | 17 |  |  | 1.5 |",
        "| settled | ⚠️ undetermined | exhausted | 5 | 0 | 0 | 99 | 7 | 8/9 (88.9 %) | 0.0 |",
        "| late | ➖ skipped | exhausted | 0 | 0 | 1 | 0 |  |  | 0.0 |",
        "- scenarios: skipped 1: lacks stall, timeout",
        "- settled: undetermined: the budget was spent after 8 of 9 edges",
        "- not checked: the levels random",
        "Save it with `--save DIR`; then `provider-concurrency replay DIR/FILE -- node 'my driver.mjs'`.",
    ):
        assert line in text.splitlines(), line
    assert text.count("<details>") == text.count("</details>") == 3
    assert "````mermaid" in text or "```mermaid" in text


def test_what_a_port_says_does_not_break_out_of_the_markdown() -> None:
    lines = report_to_markdown(a_report()).splitlines()
    inside = None
    for line in lines:
        fence = line.split("text")[0].split("mermaid")[0]
        if inside is None and fence and set(fence) == {"`"}:
            inside = fence
        elif line == inside:
            inside = None
        elif inside is None:
            assert "<b>" not in line
    assert inside is None


def test_markdown_names_what_it_does_not_show() -> None:
    report = a_report()
    report.levels[0].counterexamples = [counterexample(f"case-{number}") for number in range(12)]
    text = report_to_markdown(report)
    assert "Failed too: case-10 (PAU-1), case-11 (PAU-1)." in text
    report.agreement = Agreement("port.toml", (), ("scenarios: a (PAU-1): listed, but passes",), ("settled: walk 1",))
    text = report_to_markdown(report)
    assert "- port.toml: scenarios: a (PAU-1): listed, but passes" in text
    assert "- port.toml: not judged by this run: settled: walk 1" in text


def test_json_has_it_all() -> None:
    report = a_report()
    told = report_to_json(report)
    json.dumps(told, default=repr)
    assert told["kit"] == version("provider-concurrency")
    assert (told["seed"], told["runs"], told["expectation"]) == (42, 50, None)
    assert told["skipped"] == {"stall": 1, "stall, timeout": 1}
    assert [level["verdict"] for level in told["levels"]] == ["counterexample", "undetermined", "skipped", "conforms"]
    assert told["levels"][0]["results"][1]["rule"] == "PAU-1"
    report.agreement = Agreement("port.toml", (("scenarios", "known"),))
    assert report_to_json(report)["expectation"] == {
        "file": "port.toml", "confirmed": ["scenarios: known"], "problems": [], "unjudged": [],
    }  # fmt: skip


def test_the_text_draws_the_first_counterexample_and_tells_all() -> None:
    stream = io.StringIO()
    print_report(a_report(), Console(file=stream, highlight=False))
    assert stream.getvalue().count("sequenceDiagram") == 1
    assert stream.getvalue().count("counterexample (1 steps)") == 2


def test_what_a_port_says_reaches_no_terminal_as_a_command() -> None:
    for is_terminal in (False, True):
        stream = io.StringIO()
        print_report(a_report(), Console(file=stream, force_terminal=is_terminal, color_system=None, highlight=False))
        stream.getvalue().encode()
        assert "\x1b[31m" not in stream.getvalue()
        assert "\x00" not in stream.getvalue()
    report_to_markdown(a_report()).encode()


def run(*args: str) -> Any:
    result = CliRunner().invoke(cli.app, args, catch_exceptions=False)
    assert "Traceback" not in result.output
    return result


def test_all_at_once(tmp_path: Path) -> None:
    files = {name: tmp_path / name for name in ("json", "junit", "markdown")}
    options = [word for name, path in files.items() for word in (f"--{name}", str(path))]
    level = ("check", "--level", "scenarios", "--subject", "fake_subjects:Minimal")
    result = run(*level, *options)
    assert result.exit_code == 0
    assert "CONFORMS" in result.output
    assert "skipped for lack of cancel, " in result.output.splitlines()[-1]
    assert json.loads(files["json"].read_text(encoding="utf-8"))["verdict"] == "conforms"
    skipped = ET.parse(files["junit"]).getroot().get("skipped")
    assert skipped == str(sum(json.loads(files["json"].read_text(encoding="utf-8"))["skipped"].values()))
    before = files["markdown"].read_text(encoding="utf-8")
    run(*level, *options)
    assert len(files["markdown"].read_text(encoding="utf-8")) > 1.9 * len(before)  # a job's summary has many authors


@pytest.mark.parametrize("option", ["--json", "--junit", "--markdown"])
def test_a_report_that_cannot_be_written_is_named(option: str, tmp_path: Path) -> None:
    result = run(
        "check", "--level", "scenarios", "--subject", "fake_subjects:Minimal", option, str(tmp_path / "no" / "file")
    )
    assert result.exit_code == 2
    assert f"{option}: {tmp_path / 'no' / 'file'}: there is no folder" in result.stderr
    assert not result.stdout  # it says so before the run
    folder = run("check", "--level", "scenarios", "--subject", "fake_subjects:Minimal", option, str(tmp_path))
    assert folder.exit_code == 2
    assert f"{option}: {tmp_path}: Is a directory" in folder.stderr
