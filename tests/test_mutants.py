"""The mutant zoo: its faults fit their files, its table is complete, and the six faults of issue 2 are caught.

The whole zoo is run by `python tests/mutants/run.py`, which .ci/run does.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from mutants.equivalent import EQUIVALENT
from mutants.fault import LAYERS, PACKAGES, AnchorError, Fault
from mutants.faults import FAULTS, ISSUE_2
from mutants.matrix import read_matrix, read_part
from mutants.run import MATRIX, REPOSITORY, TESTS, UNSEEN, Workshop, complaints, layers_for
from provider_concurrency_spec.invariants import INVARIANTS
from provider_concurrency_spec.rules import RULE_IDS

ALL = (*FAULTS, *(each.fault for each in EQUIVALENT))
BY_NAME = {fault.name: fault for fault in ALL}


def read(fault: Fault) -> str:
    return (REPOSITORY / fault.file.partition("/")[0] / fault.path).read_text(encoding="utf-8")


@pytest.mark.parametrize("fault", ALL, ids=lambda fault: fault.name)
def test_a_fault_fits_its_file_once_and_is_python(fault: Fault) -> None:
    text = read(fault)
    faulty = fault.apply(text)
    assert faulty != text
    compile(faulty, fault.file, "exec")


def test_the_zoo_is_large_and_its_faults_are_told_apart() -> None:
    assert len(FAULTS) >= 55
    assert [name for name, times in Counter(fault.name for fault in ALL).items() if times > 1] == []
    changes = Counter((fault.file, fault.within, fault.find, fault.put) for fault in ALL)
    assert [change for change, times in changes.items() if times > 1] == []


@pytest.mark.parametrize("fault", ALL, ids=lambda fault: fault.name)
def test_a_fault_says_what_it_breaks_whose_it_is_and_who_must_notice(fault: Fault) -> None:
    assert fault.rule in RULE_IDS
    assert fault.layer in LAYERS
    assert fault.source
    assert bool(fault.tests) == (fault.layer == "tests")
    assert all((Path(__file__).parent / file).exists() for file in fault.tests)


@pytest.mark.parametrize("layer", LAYERS)
def test_every_layer_must_catch_something(layer: str) -> None:
    assert any(fault.layer == layer for fault in FAULTS)


def test_every_rule_of_the_limiter_is_broken_by_some_fault() -> None:
    """But for these, each for a reason; the list can't go stale. What carries requests (GRD, HTT) has its own tests."""
    spared = {
        "ORD-2": "a conversation is no key anywhere, so there is no line to be wrong",
        "ORD-3": "says that something is legal",
        "PAU-4": "the faults of PAU-3 and ADM-4 are its two halves",
        "LOP-1": "test_loops.py looks at each sentence of it",
    }
    carriers = {"BLK", "CTX", "GRD", "HTT", "NST", "OBS", "PER", "RTA"}
    rules = {rule for rule in RULE_IDS if rule.partition("-")[0] not in carriers}
    assert rules - {fault.rule for fault in FAULTS} == spared.keys()


def test_the_table_is_complete_and_nobody_survives() -> None:
    cells = read_matrix(MATRIX)
    assert list(cells) == [fault.name for fault in FAULTS], "run tests/mutants/run.py"
    survivors = [fault.name for fault in FAULTS if cells[fault.name].get(fault.layer, "-") in ("-", "broke")]
    assert survivors == []


def test_every_invariant_has_a_row_with_its_fault_or_is_called_redundant() -> None:
    part = read_part(MATRIX.read_text(encoding="utf-8"), "invariants")
    rows = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in part.splitlines() if "|" in line][2:]
    assert [row[0] for row in rows] == [each.name for each in INVARIANTS], "run tests/mutants/run.py --invariants"
    for name, _, noticed, told in rows:
        assert int(noticed) > 0, name
        named = told.removeprefix("redundant: others notice each; fewest: ").split(" (")[0].split("; ")[0]
        assert re.sub(r" and \d+ more$", "", named) in BY_NAME, name


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"find": "no such line"}, "stands 0 times"),
        ({"find": "now"}, "times in impl/core.py, _cool, not once"),
        ({"within": "_warm"}, "_warm is defined 0 times in impl/core.py"),
    ],
)
def test_a_fault_that_no_longer_fits_says_so_with_its_name(changes: dict[str, str], message: str) -> None:
    fault = BY_NAME["no cooldown"]
    with pytest.raises(AnchorError, match=message) as raised:
        replace(fault, **changes).apply(read(fault))
    assert "fault 'no cooldown'" in str(raised.value)


def test_only_the_function_that_is_meant_is_searched() -> None:
    text = "def a():\n    x = 1\n\n\ndef b(\n    y: int,\n) -> None:\n    x = 1\n\n    x = 2\n\n\nz = 0\nx = 1\n"
    fault = replace(BY_NAME["no cooldown"], within="b", find="x = 1", put="x = 3")
    assert fault.apply(text) == text.replace("-> None:\n    x = 1", "-> None:\n    x = 3")


# -- a handful of them, planted ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workshop]:
    with Workshop(tmp_path_factory.mktemp("mutants")) as made:
        yield made


def check(place: Path) -> tuple[int, str]:
    """Exit code and last line of `provider-concurrency check` on the packages in a directory."""
    command = "from provider_concurrency_model.check.entry import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", command, "check", "--level", "scenarios"],
        env={**os.environ, "PYTHONPATH": str(place), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return done.returncode, (done.stdout.splitlines() or [done.stderr])[-1]


def test_without_a_fault_the_copy_conforms(workshop: Workshop) -> None:
    code, verdict = check(workshop.plant(None))
    assert (code, verdict.partition(":")[0]) == (0, "CONFORMS")


@pytest.mark.parametrize("name", ISSUE_2)
def test_each_of_issue_2_s_faults_exits_1_and_is_named(workshop: Workshop, name: str) -> None:
    fault = BY_NAME[name]
    code, verdict = check(workshop.plant(fault))
    assert (code, verdict.partition(":")[0]) == (1, "COUNTEREXAMPLE")
    assert re.search(rf"\brules\b.*\b{fault.rule}\b", verdict)


def test_the_runner_tells_a_survivor_from_a_catch_and_from_a_hang(workshop: Workshop) -> None:
    fault = BY_NAME["no cooldown"]
    caught = workshop.run(fault, ["scenario"])["scenario"]
    assert (caught.kind, list(complaints(fault, caught))) == ("caught", [])
    assert re.match("is caught by REL-1, .*not by ORD-1", next(iter(complaints(replace(fault, rule="ORD-1"), caught))))
    survived = workshop.run(None, ["scenario"])["scenario"]
    assert list(complaints(fault, survived)) == ["survives scenario"]
    hanging = BY_NAME["due is after the deadline"]
    assert hanging.hangs
    assert list(complaints(hanging, caught)) != []


def test_a_fault_is_shown_to_its_own_layer_or_to_all_others_that_could_see_it() -> None:
    fault = BY_NAME["no cooldown"]
    assert layers_for(fault, is_whole=False) == ["scenario"]
    others = [layer for layer in LAYERS if layer not in ("scenario", "proof", "tests")]
    assert layers_for(fault, is_whole=True) == others


@pytest.mark.parametrize("layer", ["scenario", "monitor", "trace"])
def test_what_a_layer_is_said_not_to_load_it_doesnt_load(layer: str) -> None:
    """So that what isn't run in the matrix needn't be. The other levels load what `scenario` loads."""
    roots = os.pathsep.join(str(path) for path in (TESTS, *(REPOSITORY / folder for folder in PACKAGES)))
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            f"import sys; from mutants import layers; layers.run([{layer!r}]); print([*sys.modules])",
        ],
        env={**os.environ, "PYTHONPATH": roots, "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    loaded = done.stdout.splitlines()[-1]
    unseen = [file for file in UNSEEN[layer] if f"'{'.'.join(module_of(file))}'" in loaded]
    assert "'provider_concurrency.core'" in loaded
    assert unseen == []


def module_of(file: str) -> tuple[str, ...]:
    folder, *way = file.removesuffix(".py").split("/")
    return PACKAGES[folder], *way
