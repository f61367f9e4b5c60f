"""The command: exit codes, messages without tracebacks, and output for people and machines."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner

from provider_concurrency_model.check import cli
from provider_concurrency_model.check.judge import LEVELS
from provider_concurrency_model.check.report import print_report
from provider_concurrency_model.check.subject import InProcess, Session
from provider_concurrency_model.check.verdict import LevelReport, RunReport, Verdict
from provider_concurrency_spec import scenarios
from provider_concurrency_spec.vocabulary import SPEC_VERSION

GOOD = "fake_subjects:Faithful"
BAD = "fake_subjects:ForgetsCooldown"


def run(*args: str) -> Any:
    result = CliRunner().invoke(cli.app, args, catch_exceptions=False)
    assert "Traceback" not in result.output
    return result


def test_version() -> None:
    result = run("--version")
    assert result.exit_code == 0
    assert f"spec {SPEC_VERSION}, protocol 1" in result.output


def test_no_arguments_show_the_help() -> None:
    result = run()
    for name in ("check", "soak", "replay", "trace"):
        assert name in result.output


def test_a_conforming_subject_exits_0_and_says_what_was_done() -> None:
    result = run("check", "--level", "scenarios", "--subject", GOOD)
    assert result.exit_code == 0
    assert "CONFORMS" in result.output.splitlines()[-1]
    for word in ("replies compared", "bounds:", "not checked: the levels settled", " s, seed 0"):
        assert word in result.output


def test_a_faulty_subject_exits_1_with_steps_rule_and_diagram() -> None:
    result = run("check", "--level", "scenarios", "--subject", BAD)
    assert result.exit_code == 1
    assert "COUNTEREXAMPLE" in result.output.splitlines()[-1]
    for word in ("counterexample (", "rule: REL-", "expected", "actual", "sequenceDiagram"):
        assert word in result.output


def test_levels_repeat_or_are_separated_by_commas() -> None:
    both = run("check", "--level", "random,scenarios", "--runs", "3", "--subject", GOOD, "--jobs", "1")
    again = run("check", "--level", "random", "--level", "scenarios", "--runs", "3", "--subject", GOOD, "--jobs", "1")
    assert both.exit_code == again.exit_code == 0
    for result in (both, again):
        lines = [line for line in result.output.splitlines() if "conforms (" in line]
        assert [line.split(":")[0] for line in lines] == ["scenarios", "random"]


def test_levels_side_by_side() -> None:
    result = run("check", "--level", "scenarios,random", "--runs", "3", "--subject", GOOD, "--jobs", "2")
    assert result.exit_code == 0
    assert "CONFORMS" in result.output


@pytest.mark.parametrize(
    "subject", ["fake_subjects:OtherProtocol", "fake_subjects:Unmakeable", "fake_subjects:ExitsAtHello"]
)
def test_levels_side_by_side_report_a_bad_subject(subject: str) -> None:
    assert run("check", "--level", "scenarios,random", "--subject", subject, "--jobs", "2").exit_code == 2


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (("--level", "scenarois"), "unknown level scenarois"),
        (("--level", ","), "names no level"),
        (("--subject", "no_such_module:Port"), "can't import 'no_such_module'"),
        (("--subject", "fake_subjects:NoPort"), "no 'NoPort'"),
        (("--subject", "fake_subjects"), "module:attribute"),
        (("--subject", "fake_subjects:Mute"), "isn't callable"),
        (("--subject", "fake_subjects:Unmakeable"), "no licence"),
        (("--subject", "fake_subjects:OtherProtocol"), "protocol 2"),
        (("--subject", "json:__name__"), "not a class or factory"),
        (("--subject", GOOD, "--save", __file__), "not a directory"),
    ],
)
def test_wrong_usage_exits_2_and_names_the_argument(args: tuple[str, ...], told: str) -> None:
    result = run("check", *args)
    assert result.exit_code == 2
    assert told in result.stderr
    assert args[-2] in result.stderr or "subject" in result.stderr
    assert len(result.stderr.splitlines()) == 1


@pytest.mark.parametrize("args", [("--seed", "one"), ("--runs", "0"), ("--colour", "red"), ("--budget", "-1")])
def test_wrong_options_exit_2(args: tuple[str, ...]) -> None:
    assert run("check", *args).exit_code == 2


@pytest.mark.parametrize("levels", ["scenarios", "scenarios,random"])
@pytest.mark.parametrize("name", ["Exits", "Abandons"])
def test_a_subject_that_ends_the_interpreter_is_no_success(levels: str, name: str, tmp_path: Path) -> None:
    """Found: a subject's sys.exit(0) ended the kit with exit code 0, without a word or a report."""
    reports = [tmp_path / "report.json", tmp_path / "junit.xml", tmp_path / "summary.md"]
    files = [part for pair in zip(("--json", "--junit", "--markdown"), map(str, reports), strict=True) for part in pair]
    result = run("check", "--level", levels, "--restarts", "1", "--subject", f"fake_subjects:{name}", *files)
    assert result.exit_code == 1
    assert "COUNTEREXAMPLE" in result.output.splitlines()[-1]
    assert f"raised {'SystemExit: 0' if name == 'Exits' else 'CancelledError'}" in result.output
    assert all(report.stat().st_size for report in reports)


def test_a_replayed_subject_that_ends_the_interpreter_is_no_success() -> None:
    scenario = Path(scenarios.__file__).parent / "scenarios" / "a-timeout-leaves-the-queue-on-its-tick.json"
    result = run("replay", str(scenario), "--subject", "fake_subjects:Exits")
    assert result.exit_code == 1
    assert "COUNTEREXAMPLE" in result.output.splitlines()[-1]


@pytest.mark.parametrize(
    "content", ["raise SystemExit(0)", "class Port:\n    def __init__(self, **_): raise SystemExit(0)"]
)
@pytest.mark.parametrize("command", [("check", "--subject"), ("soak", "--seconds", "1", "--manager")])
def test_what_ends_the_interpreter_before_it_is_asked_is_named(
    command: tuple[str, ...], content: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "leaving.py").write_text(content)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "leaving", raising=False)
    result = run(*command, "leaving:Port")
    assert result.exit_code == 2
    assert command[-1] in result.stderr
    assert "SystemExit(0)" in result.stderr


def test_a_user_may_interrupt_a_subject(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(_self: object, _message: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("fake_subjects.Exits.handle", interrupt)
    assert run("check", "--level", "scenarios", "--subject", "fake_subjects:Exits").exit_code == 130


@pytest.mark.parametrize("name", ["SaysNoJson", "NestsTooDeep", "CountsTooFar", "ContainsItself"])
def test_a_reply_that_no_line_could_carry_is_named(name: str, tmp_path: Path) -> None:
    """Found: a traceback, or no end. Over stdin and stdout the same is named, too."""
    report = tmp_path / "report.json"
    args = ("--level", "scenarios", "--restarts", "1", "--json", str(report), "--subject", f"fake_subjects:{name}")
    result = run("check", *args)
    assert result.exit_code == 1
    assert "protocol: reply (not JSON)" in result.output
    assert json.loads(report.read_text())["exit_code"] == 1


def test_a_spent_budget_exits_3() -> None:
    result = run("check", "--level", "scenarios", "--subject", GOOD, "--budget", "0")
    assert result.exit_code == 3
    assert "UNDETERMINED" in result.output
    assert "budget" in result.output


def test_nothing_run_exits_3() -> None:
    report = RunReport(GOOD, Session(InProcess(GOOD)).hello, 0, [LevelReport("settled", "exhausted", "none")])
    assert report.verdict is Verdict.UNDETERMINED
    assert RunReport(GOOD, report.hello, 0).verdict is Verdict.UNDETERMINED


def test_json_is_one_object_and_nothing_else() -> None:
    result = run("check", "--level", "scenarios", "--subject", BAD, "--json", "-")
    assert result.exit_code == 1
    report = json.loads(result.stdout)
    assert report["verdict"] == "counterexample"
    assert report["exit_code"] == 1
    (level,) = report["levels"]
    assert level["failed"] == len(level["counterexamples"]) > 0
    assert level["counterexamples"][0]["scenario"]["steps"]
    assert report["not_checked"]


def saved(tmp_path: Path) -> Path:
    result = run("check", "--level", "scenarios", "--subject", BAD, "--save", str(tmp_path / "found"))
    assert result.exit_code == 1
    files = sorted((tmp_path / "found").glob("*.json"))
    assert files
    assert f"saved: {files[0]}" in result.output or len(files) > 1
    return files[0]


def test_a_saved_counterexample_is_replayed(tmp_path: Path) -> None:
    path = saved(tmp_path)
    content = json.loads(path.read_text(encoding="utf-8"))
    assert content["replay"] == f"provider-concurrency replay {path} --subject {BAD}"
    assert run(*content["replay"].split()[1:]).exit_code == 1
    fixed = run("replay", str(path), "--subject", GOOD)
    assert fixed.exit_code == 0
    assert "CONFORMS" in fixed.output
    shown = json.loads(run("replay", str(path), "--subject", BAD, "--json", "-").stdout)
    assert shown["rules"] == content["rules"]
    assert json.loads(run("replay", str(path), "--subject", GOOD, "--json", "-").stdout)["verdict"] == "conforms"


def test_saving_never_overwrites(tmp_path: Path) -> None:
    path = saved(tmp_path)
    content = path.read_bytes()
    assert saved(tmp_path) == path
    assert path.read_bytes() == content
    assert path.with_name(f"{path.stem}_2.json").exists()


def test_an_unwritable_folder_is_named() -> None:
    result = run("check", "--level", "scenarios", "--subject", BAD, "--save", f"{__file__}/found")
    assert result.exit_code == 2
    assert "--save" in result.stderr


def test_a_counterexample_without_its_features_is_undetermined(tmp_path: Path) -> None:
    result = run("replay", str(saved(tmp_path)), "--subject", "fake_subjects:Minimal")
    assert result.exit_code in (0, 3)
    content = {"name": "it", "rules": ["WAT-2"], "needs": ["touch"], "why": "why", "config": {}, "steps": [
        {"do": [{"op": "touch", "request": "a"}], "expect": {}},
    ]}  # fmt: skip
    path = tmp_path / "it.json"
    path.write_text(json.dumps(content), encoding="utf-8")
    assert run("replay", str(path), "--subject", "fake_subjects:Minimal").exit_code == 3
    assert run("replay", str(path), "--subject", GOOD).exit_code == 0


@pytest.mark.parametrize(
    ("change", "told"),
    [({"spec": "0.9"}, "spec '0.9'"), ({"counterexample": 99}, "format 99"), ({"scenario": None}, "must be an object")],
)
def test_replay_refuses_other_versions(tmp_path: Path, change: dict[str, object], told: str) -> None:
    path = saved(tmp_path)
    path.write_text(json.dumps({**json.loads(path.read_text(encoding="utf-8")), **change}), encoding="utf-8")
    result = run("replay", str(path), "--subject", GOOD)
    assert result.exit_code == 2
    assert told in result.stderr
    assert str(path) in result.stderr


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("", "not JSON"),
        ("[1]", "must be an object"),
        ("{}", "lacks"),
        ("\x00", "not JSON"),
        ("[" * 200_000, "not JSON"),
        ("NaN", "not JSON: NaN"),
    ],
)
def test_replay_names_a_broken_file(tmp_path: Path, content: str, told: str) -> None:
    path = tmp_path / "broken.json"
    path.write_text(content, encoding="utf-8")
    result = run("replay", str(path), "--subject", GOOD)
    assert result.exit_code == 2
    assert str(path) in result.stderr
    assert told in result.stderr


OPERATION: dict[str, object] = {
    "op": "acquire", "provider": "p", "request": "r", "conversation": None, "prompt_started_at": 1, "timeout_ms": None,
}  # fmt: skip
HOOK: dict[str, object] = {"op": "hook", "on": "queued", "provider": "p", "do": [], "throw": True, "times": 1}
LIMIT: dict[str, object] = {"op": "set_limit", "provider": "p", "limit": 1}
JUMP: dict[str, object] = {"op": "wall_clock", "jump_ms": 1}


@pytest.mark.parametrize("value", [[], {}, [1], {"a": 1}], ids=repr)
@pytest.mark.parametrize(
    ("operation", "field"),
    [(op, key) for op in (OPERATION, HOOK, LIMIT, JUMP) for key in op if key != "op"],
    ids=lambda part: part if isinstance(part, str) else part["op"],
)
def test_replay_names_the_field_whose_value_is_no_scalar(
    operation: dict[str, object], field: str, value: object, tmp_path: Path
) -> None:
    if (field, value) == ("do", []):
        return
    result = replay_scenario(tmp_path, {**operation, field: value})
    assert result.exit_code == 2
    told = result.stderr
    assert f"steps[0]: operation '{operation['op']}': {field} can't be {value!r}" in told or field == "do"
    assert str(tmp_path) in told


@pytest.mark.parametrize(
    ("operation", "field", "value"),
    [
        (OPERATION, "conversation", 5),
        (OPERATION, "provider", None),
        (HOOK, "on", "later"),
        (HOOK, "times", 0),
        (HOOK, "times", True),
        (HOOK, "throw", 1),
        (JUMP, "jump_ms", 1.5),
        (JUMP, "jump_ms", None),
    ],
)
def test_replay_names_the_field_whose_value_its_schema_forbids(
    operation: dict[str, object], field: str, value: object, tmp_path: Path
) -> None:
    result = replay_scenario(tmp_path, {**operation, field: value})
    assert (result.exit_code, f"{field} can't be {value!r}" in result.stderr) == (2, True)


def replay_scenario(tmp_path: Path, *operations: dict[str, object], **more: object) -> Any:
    content = {
        "name": "it", "rules": ["WAT-2"], "needs": ["hooks", "wall_clock"], "why": "why", "config": {},
        "steps": [{"do": list(operations), "expect": {}}], **more,
    }  # fmt: skip
    path = tmp_path / "it.json"
    path.write_text(json.dumps(content), encoding="utf-8")
    return run("replay", str(path), "--subject", GOOD)


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({"needs": [["hooks"]]}, "needs: unknown feature ['hooks']"),
        ({"config": {"max_queued": [1]}}, "config: max_queued can't be [1]"),
        ({"refused_configs": [{"nested": {}}]}, "config: nested can't be {}"),
        ({"steps": [{"advance_ms": 10**400, "expect": {}}]}, "steps[0]: advance_ms must be a whole number from 0"),
        ({"steps": [{"advance_ms": 1, "expect": {"timers": []}}]}, "steps[0]: timers must be"),
    ],
)
def test_replay_names_what_is_wrong_around_the_operations(more: dict[str, object], told: str, tmp_path: Path) -> None:
    result = replay_scenario(tmp_path, **more)
    assert (result.exit_code, told in result.stderr) == (2, True)


@pytest.mark.parametrize(
    ("deep", "told"), [(51, "nested more than 50 deep"), (300, "nested more than 50 deep"), (100_000, "recursion")]
)
def test_replay_refuses_hooks_that_are_nested_too_deeply(deep: int, told: str, tmp_path: Path) -> None:
    opening = '{"op":"hook","on":"queued","provider":"p","do":['
    path = tmp_path / "it.json"
    for depth in (50, deep):
        do = opening * depth + "]}" * depth
        path.write_text(
            f'{{"name":"it","rules":["WAT-2"],"needs":["hooks"],"why":"w","steps":[{{"do":[{do}],"expect":{{}}}}]}}',
            encoding="utf-8",
        )
        result = run("replay", str(path), "--subject", GOOD)
        assert result.exit_code == (0 if depth == 50 else 2)
    assert told in result.stderr


def test_replay_takes_a_number_beyond_every_float(tmp_path: Path) -> None:
    result = replay_scenario(tmp_path, {**OPERATION, "prompt_started_at": 10**400}, needs=[])
    assert result.exit_code == 0


@pytest.mark.parametrize("command", ["replay", "trace"])
def test_a_missing_file_is_named(command: str, tmp_path: Path) -> None:
    result = run(command, str(tmp_path / "missing"))
    assert result.exit_code == 2
    assert f"{tmp_path / 'missing'}: No such file" in result.stderr


def test_a_directory_is_no_file(tmp_path: Path) -> None:
    for command in ("replay", "trace"):
        assert run(command, str(tmp_path)).exit_code == 2


HEADER = {
    "trace": 1, "spec": SPEC_VERSION, "time_unit": "ns", "wall": "2026-01-01T00:00:00Z",
    "config": {
        "limits": {"p": 1}, "default_limit": None, "release_cooldown": 0, "slot_timeout": None,
        "watchdog_interval": 10, "default_pause": 10, "min_pause": 0, "max_pause": 100, "max_queued": None,
    },
}  # fmt: skip


def write_trace(path: Path, *events: dict[str, object], header: dict[str, object] = HEADER) -> Path:
    path.write_text("".join(json.dumps(line) + "\n" for line in (header, *events)), encoding="utf-8")
    return path


def granted(seq: int, request: int, in_flight: int) -> dict[str, object]:
    return {
        "seq": seq, "op": seq, "t": seq, "event": "granted", "provider": "p", "request": request,
        "conversation": None, "prompt_started_at": 1.0, "post": {"in_flight": in_flight, "queued": 0},
    }  # fmt: skip


def test_trace_exit_codes(tmp_path: Path) -> None:
    good = write_trace(tmp_path / "good", granted(0, 1, 1))
    assert run("trace", str(good)).exit_code == 0
    over = run("trace", str(write_trace(tmp_path / "over", granted(0, 1, 1), granted(1, 2, 2))))
    assert over.exit_code == 1
    assert "line 3" in over.output
    assert "ADM-" in over.output
    gap = run("trace", str(write_trace(tmp_path / "gap", granted(0, 1, 1), granted(5, 2, 1))))
    assert gap.exit_code == 3
    other = run("trace", str(write_trace(tmp_path / "other", header={**HEADER, "spec": "9.9"})))
    assert other.exit_code == 2
    assert json.loads(run("trace", str(good), "--json", "-").stdout)["outcome"] == "conforms"


def test_trace_draws_a_timeline(tmp_path: Path) -> None:
    page = tmp_path / "run.html"
    result = run("trace", str(write_trace(tmp_path / "good", granted(0, 1, 1))), "--timeline", str(page))
    assert result.exit_code == 0
    assert "<html" in page.read_text(encoding="utf-8")
    assert f"timeline: {page}" in result.output
    nowhere = run("trace", str(tmp_path / "good"), "--timeline", str(tmp_path / "missing" / "run.html"))
    assert nowhere.exit_code == 2
    assert "missing" in nowhere.stderr
    broken = tmp_path / "broken"
    broken.write_text("garbage\n", encoding="utf-8")
    assert run("trace", str(broken), "--timeline", str(tmp_path / "no.html")).exit_code == 2
    assert not (tmp_path / "no.html").exists()


def test_a_terminal_gets_a_table() -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=200, highlight=False)
    level = LevelReport(
        "two", "exhausted", "2 providers", cases=3, commands=30, states=5, edges=2000, edges_driven=1999
    )
    level.undetermined = "1 edges were not driven"
    level.skipped["touch"] = 4
    level.witnesses = {"somebody waits": True, "nobody waits": False}
    report = RunReport(GOOD, Session(InProcess(GOOD)).hello, 7, [level], not_run=LEVELS[:1], saved=["a.json"])
    print_report(report, console)
    assert isinstance(console.file, io.StringIO)
    text = console.file.getvalue()
    for word in ("edges driven", "1999/2000 (99.9 %)", "UNDETERMINED", "lacks touch", "nobody waits", "saved: a.json"):
        assert word in text
    assert "not checked: what needs the features the subject lacks: touch" in text
