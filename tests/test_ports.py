"""The ports that come with the kit: the one for Node conforms, the original differs in exactly the rows of the table.

The rows are SPEC.md's ("Where the original differs"). Each has a run of its own here that shows it and nothing else,
judged against the model; the expectation file lists what the kit finds of them by itself, on all levels.
"""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Generator, Iterable, Iterator
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from typer.testing import CliRunner

from provider_concurrency_model.check import cli
from provider_concurrency_model.check.case import Case, case_of_commands, case_of_scenario
from provider_concurrency_model.check.drive import Failed, Passed, drive
from provider_concurrency_model.check.expect import read_expectations, write_expectations
from provider_concurrency_model.check.source import CommandLine
from provider_concurrency_model.check.subject import Message, Session
from provider_concurrency_model.random_runs import random_run
from provider_concurrency_spec.scenarios import Scenario, load_all
from provider_concurrency_spec.vocabulary import (
    FEATURES,
    Acquire,
    Advance,
    Close,
    Command,
    Config,
    Do,
    Hook,
    Inspect,
    Json,
    RateLimited,
    Release,
    RemoveLimit,
    SetLimit,
    WallClock,
)

PORTS = Path(__file__).parent / "ports"
EXPECTED = PORTS / "original.expect.toml"
SCENARIOS = load_all()
NODE = shutil.which("node")
DRIVER = str(PORTS / "node" / "driver.mjs")
NODE_TESTS = [
    pytest.param(file, id=file.name, marks=pytest.mark.realtime if file.name == "real-time.test.mjs" else ())
    for file in sorted((PORTS / "node" / "test").glob("*.test.mjs"))
]


def load_port(name: str) -> ModuleType:
    """A port's module; ports are programs, not a package."""
    spec = importlib.util.spec_from_file_location(f"ports_{name}", PORTS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


class Handler:
    """A port in this process."""

    breaks = 0

    def __init__(self, label: str, port: Json) -> None:
        self.label = label
        self._port = port

    def converse(self, messages: Iterable[Message]) -> Generator[Json, None, None]:
        for message in messages:
            yield json.loads(json.dumps(self._port.handle(json.loads(json.dumps(message)))))

    def close(self) -> None:
        pass


def case_of(scenario: Scenario) -> Case:
    return case_of_scenario(scenario)


def names(scenario: Scenario) -> str:
    return scenario.name


# -- Node ------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def node() -> Iterator[Session]:
    """The Node port, greeted."""
    if NODE is None:
        pytest.skip("node isn't installed: the Node port can't be run")
    version = subprocess.run([NODE, "--version"], capture_output=True, text=True, check=True).stdout
    if int(version.removeprefix("v").split(".")[0]) < 20:
        pytest.skip(f"the Node port needs node 20 or later, not {version.strip()}")
    session = CommandLine((NODE, DRIVER)).open()
    yield session
    assert session.close() is None


def test_the_node_port_has_every_feature(node: Session) -> None:
    assert node.hello.features == set(FEATURES)
    assert node.hello.unknown_features == ()


@pytest.mark.parametrize("scenario", SCENARIOS, ids=names)
def test_the_node_port_passes_the_scenario(node: Session, scenario: Scenario) -> None:
    outcome = drive(node, case_of(scenario))
    assert isinstance(outcome, Passed), outcome


@pytest.mark.parametrize("seed", range(30))
def test_the_node_port_passes_random_runs(node: Session, seed: int) -> None:
    config, commands = random_run(seed, 40)
    outcome = drive(node, case_of_commands(f"seed {seed}", "random", config, commands, checks_invariants=True))
    assert isinstance(outcome, Passed), outcome


def test_the_node_port_survives_what_is_no_protocol() -> None:
    if NODE is None:
        pytest.skip("node isn't installed: the Node port can't be run")
    lines = [
        '{"id":1,"cmd":"advance","ms":1}',
        "not JSON",
        '{"id":2,"cmd":"dance"}',
        '{"id":3,"cmd":"hello","protocol":1,"spec":"1.0","more":true}',
        '{"id":4,"cmd":"bye"}',
    ]
    done = subprocess.run(
        [NODE, DRIVER],
        input="\n".join(lines) + "\n", capture_output=True, text=True, timeout=20, check=True,
    )  # fmt: skip
    replies = [json.loads(line) for line in done.stdout.splitlines()]
    assert [reply["id"] for reply in replies] == [1, None, 2, 3]
    assert ["error" in reply for reply in replies] == [True, True, True, False]
    assert done.stderr == ""


@pytest.mark.parametrize("file", NODE_TESTS)
def test_the_node_port_passes_its_own_tests(file: Path) -> None:
    """Also what protocol 1 can't show: signals, early and real timers, what keeps a process alive."""
    if NODE is None:
        pytest.skip("node isn't installed: the Node port can't be run")
    done = subprocess.run([NODE, "--test", str(file)], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout


# -- the original ----------------------------------------------------------------------------------------------------

P1 = SetLimit("p", 1)
WATCHED = Config(0, 1000, 500, 30_000, 0, 21_600_000)


def acquire(name: str, prompt: Json = 1) -> Acquire:
    return Acquire("p", name, None, prompt)


ROWS: dict[str, tuple[set[str], Config, tuple[Command, ...]]] = {
    "what ran before a limit is not counted": (
        {"ACC-1"},
        Config(0),
        (Do((acquire("r1"), P1, acquire("r2"))),),
    ),
    "what ran before a limit was removed and set again is not counted": (
        {"LIM-3"},
        Config(0),
        (Do((P1, acquire("r1"))), Do((RemoveLimit("p"), P1, acquire("r2")))),
    ),
    "what on_queued frees passes its own request": (
        {"ADM-5", "CAL-1"},
        Config(0),
        (Do((P1, acquire("r1"), Hook("queued", "p", (Release("r1"),)))), Do((acquire("r2"),))),
    ),
    "who waits when the manager closes waits for ever": (
        {"CLO-1"},
        Config(0),
        (Do((P1, acquire("r1"), acquire("r2"))), Do((Close(),))),
    ),
    "a slot released after close cools": (
        {"CLO-1"},
        Config(200),
        (Do((P1, acquire("r1"), acquire("r2"), Release("r1"))), Advance(200), Do((Close(), Release("r2")))),
    ),
    "acquire after close is granted": ({"CLO-2"}, Config(0), (Do((Close(),)), Do((acquire("r1"),)))),
    "the status after close hides what is held": ({"CLO-1"}, Config(0), (Do((P1, acquire("r1"))), Do((Close(),)))),
    "a shorter report shortens": (
        {"PAU-1"},
        WATCHED,
        (Do((P1, RateLimited("p", 10_000))), Do((RateLimited("p", 1000),))),
    ),
    "a report of 0 ends a pause": (
        {"PAU-1", "PAU-2"},
        WATCHED,
        (Do((P1, RateLimited("p", 10_000), RateLimited("p", 0))),),
    ),
    "a report of -1 is no default": ({"PAU-2"}, WATCHED, (Do((P1, RateLimited("p", -1))),)),
    "a report of NaN is no default": ({"PAU-2"}, WATCHED, (Do((P1, RateLimited("p", "NaN"))),)),
    "a report of more than 2^31 ms ends after 1 ms": (
        {"PAU-2"},
        Config(0, None, 30_000, 30_000, 0, 10**10),
        (Do((P1, RateLimited("p", 2**31))),),
    ),
    "a 429 without a limit is lost": ({"PAU-3"}, WATCHED, (Do((RateLimited("p", 1000),)),)),
    "a removed limit lifts the pause": (
        {"PAU-3", "LIM-3"},
        WATCHED,
        (Do((P1, RateLimited("p", 1000), acquire("r1"), acquire("r2"))), Do((RemoveLimit("p"),))),
    ),
    "a throwing on_pause pauses for ever": (
        {"CAL-4"},
        WATCHED,
        (Do((P1, Hook("paused", "p", (), throw=True), RateLimited("p", 1000))),),
    ),
    "a throwing on_reclaim ends the sweep": (
        {"WAT-4", "CAL-4"},
        WATCHED,
        (
            Do((SetLimit("p", 2), acquire("r1"), acquire("r2"), Hook("reclaimed", "p", (), throw=True))),
            Advance(1500),
        ),
    ),
    "callbacks nest": (
        {"CAL-2"},
        WATCHED,
        (
            Do(
                (
                    P1,
                    SetLimit("q", 1),
                    Hook("paused", "p", (RateLimited("q", 1000), SetLimit("p", 5))),
                    Hook("paused", "q", (P1,)),
                )
            ),
            Do((RateLimited("p", 1000),)),
        ),
    ),
    "a 429 out of on_pause leaves a stray timer": (
        {"CAL-3", "PAU-1"},
        WATCHED,
        (
            Do((P1, Hook("paused", "p", (RateLimited("p", 5000),)))),
            Do((RateLimited("p", 1000),)),
        ),
    ),
    "a jump of the wall clock reclaims": (
        {"TIM-1"},
        WATCHED,
        (Do((P1, acquire("r1"), WallClock(3_600_000))), Advance(500)),
    ),
    "limit 1.5 admits two": ({"LIM-1"}, Config(0), (Do((SetLimit("p", 1.5), acquire("r1"), acquire("r2"))),)),
    "limit NaN hangs everyone": ({"LIM-1"}, Config(0), (Do((SetLimit("p", "NaN"), acquire("r1"))),)),
    "a NaN prompt scrambles the queue": (
        {"ORD-1"},
        Config(0),
        (Do((P1, acquire("r1"), acquire("r2", 2), acquire("r3", "NaN"), acquire("r4", 1))),),
    ),
    "the holder is not told of a reclaim": (
        {"WAT-3"},
        Config(200, 1000, 500, 30_000, 0, 21_600_000),
        (Do((P1, acquire("r1"))), Advance(1500), Do((Inspect("r1"),))),
    ),
}
"""What the row says: the rules it breaks, and a run whose last command shows it."""


@pytest.fixture(scope="module")
def original() -> Session:
    """The original's behaviour, greeted."""
    return Session(Handler("original", load_port("original").Port()))


def test_the_original_has_no_cancel_and_no_timeout(original: Session) -> None:
    """CAN-1, CAN-2, CAN-3: it can't fail what it doesn't have."""
    assert original.hello.features == {"hooks", "wall_clock", "inspect"}


@pytest.mark.parametrize("row", ROWS)
def test_the_original_differs_in_the_row(original: Session, row: str) -> None:
    rules, config, commands = ROWS[row]
    outcome = drive(original, case_of_commands(row, "rows", config, commands))
    assert isinstance(outcome, Failed), f"{sorted(rules)}: the original behaves like the model"
    assert outcome.at == len(commands) - 1, outcome.differences
    # The same run without its last step is no difference: the row and nothing else is seen.
    assert isinstance(drive(original, case_of_commands(row, "rows", config, commands[:-1] or (Advance(1),))), Passed)


def rules_of_the_table() -> set[str]:
    """The rules that the original breaks, as SPEC.md says."""
    text = (Path(__file__).parent.parent / "spec" / "SPEC.md").read_text(encoding="utf-8")
    table = text.split("## Where the original differs")[1].split("Kept:")[0]
    cells = [line.split("|")[1] for line in table.splitlines() if line.startswith("|")]
    return {rule for cell in cells for rule in re.findall(r"[A-Z]{3}-\d", cell)}


def test_the_rows_are_those_of_the_specification() -> None:
    shown = set().union(*(rules for rules, _, _ in ROWS.values()))
    assert rules_of_the_table() == shown | {"CAN-1", "CAN-2", "CAN-3"}


def test_each_row_is_found_by_the_kit_itself() -> None:
    """Each rule of the table has a known failure that shows the row, and its note says which."""
    known = tomllib.loads(EXPECTED.read_text(encoding="utf-8"))["known"]
    noted = {entry["rule"] for entry in known if "note" in entry}
    assert noted == rules_of_the_table() - {"CAN-1", "CAN-2", "CAN-3"}


def check(*arguments: str) -> Any:
    """Runs the command."""
    return CliRunner().invoke(cli.app, ["check", *arguments], catch_exceptions=False)


ORIGINAL = ("--", sys.executable, str(PORTS / "original.py"))


def test_the_original_fails_exactly_what_its_file_says_on_all_levels() -> None:
    result = check("--jobs", "1", "--expect", str(EXPECTED), *ORIGINAL)
    assert result.exit_code == 0, result.output
    assert "AS EXPECTED: " in result.output


def test_a_file_that_leaves_out_a_row_fails(tmp_path: Path) -> None:
    shorter = tmp_path / "original.expect.toml"
    whole = read_expectations(EXPECTED)
    write_expectations(shorter, replace(whole, known=tuple(one for one in whole.known if one.rule != "TIM-1")))
    result = check("--level", "scenarios", "--expect", str(shorter), *ORIGINAL)
    assert result.exit_code == 1
    assert "a-wall-clock-jump-reclaims-nobody (TIM-1): fails, but isn't listed" in result.output


# -- all levels --------------------------------------------------------------------------------------------------------


@pytest.mark.long
def test_our_manager_passes_over_stdio() -> None:
    """Three levels: all of them are run in process, by the same port."""
    result = check("--level", "scenarios,two,random", "--", sys.executable, "-m", "provider_concurrency.port")
    assert result.exit_code == 0, result.output
    assert "the subject lacks" not in result.output


@pytest.mark.long
@pytest.mark.exhaustive
def test_the_node_port_passes_all_levels() -> None:
    if NODE is None:
        pytest.skip("node isn't installed: the Node port can't be run")
    result = check("--", NODE, DRIVER)
    assert result.exit_code == 0, result.output
    assert "the subject lacks" not in result.output


# -- known limiters --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def compare_table() -> Iterator[ModuleType]:
    """The script of the README's table."""
    for package in ("anyio", "aiolimiter"):
        pytest.importorskip(package, reason=f"{package} isn't installed: pip install -r tests/ports/requirements.txt")
    sys.path.insert(0, str(PORTS))
    yield load_port("compare_table")
    sys.path.remove(str(PORTS))


def test_the_limiters_fail_what_they_were_not_made_for(compare_table: ModuleType) -> None:
    verdicts: dict[str, dict[str, set[str]]] = {}
    for line in compare_table.make_table():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 5 and re.match(r"[A-Z]{3}-\d ", cells[0]):
            for name, cell in zip(("ours", "semaphore", "capacity", "rate"), cells[1:], strict=True):
                verdicts.setdefault(name, {}).setdefault(cell.split()[0].strip(":"), set()).add(cells[0].split()[0])
    assert set(verdicts["ours"]) == {"holds"}
    # A released place is free at once, the youngest prompt may be first, a holder that hangs holds for ever.
    for name in ("semaphore", "capacity", "rate"):
        assert {"REL-1", "REL-3", "ORD-1", "WAT-1", "ACC-1", "REL-2"} <= verdicts[name]["fails"]
    # What they are for, they do: the adapters don't make them look worse than they are.
    for name in ("semaphore", "capacity"):
        assert {"ADM-1", "ADM-2", "ADM-3", "ADM-4", "ORD-2", "CAN-1"} <= verdicts[name]["holds"]
    assert {"ADM-6", "LIM-2", "LIM-3", "ADM-8"} <= verdicts["capacity"]["holds"]


def test_the_readme_has_the_table_of_today(compare_table: ModuleType) -> None:
    """With the pinned versions of the limiters; the line that names Python's is of whoever made it last."""
    pinned = dict(re.findall(r"^(\w+)==(.+)$", (PORTS / "requirements.txt").read_text(encoding="utf-8"), re.M))
    if {name: version(name) for name in pinned} != pinned:
        pytest.skip(f"the table is made with {pinned}: pip install -r tests/ports/requirements.txt")
    readme = (PORTS.parent.parent / "README.md").read_text(encoding="utf-8")
    written = readme.split(compare_table.BEGIN)[1].split(compare_table.END)[0].strip().splitlines()
    assert all(f"{name} {its}" in written[0] for name, its in pinned.items())
    assert [line for line in written if not line.startswith("Judged")] == [
        line for line in compare_table.make_table() if not line.startswith("Judged")
    ], "python tests/ports/compare_table.py --write README.md"


def test_the_table_goes_between_the_marks(compare_table: ModuleType, tmp_path: Path) -> None:
    page = tmp_path / "README.md"
    page.write_text(f"before\n{compare_table.BEGIN}\nold\n{compare_table.END}\nafter\n", encoding="utf-8")
    compare_table.put_between_marks(page, ["new"])
    marked = f"before\n{compare_table.BEGIN}\n\nnew\n\n{compare_table.END}\nafter\n"
    assert page.read_text(encoding="utf-8") == marked
    with pytest.raises(SystemExit, match="once each"):
        compare_table.put_between_marks(Path(__file__), ["new"])


def test_a_limiter_answers_over_stdio() -> None:
    pytest.importorskip("anyio")
    pytest.importorskip("aiolimiter")
    session = CommandLine((sys.executable, str(PORTS / "limiters.py"), "asyncio.Semaphore")).open()
    assert session.hello.name == "asyncio.Semaphore"
    case = next(case_of(scenario) for scenario in SCENARIOS if scenario.name == "at-the-limit-queued-until-release")
    assert isinstance(drive(session, case), Passed)
    session.close()
