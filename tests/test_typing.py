"""The types: mypy --strict passes on good use, and reports each misuse of tests/typing/api.py where it stands."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from mypy import api

SOURCE = Path(__file__).parent / "typing" / "api.py"
MARK = re.compile(r"# E: ([a-z -]+)$")


@pytest.fixture(scope="module")
def reported(tmp_path_factory: pytest.TempPathFactory) -> dict[int, set[str]]:
    """The error codes that mypy reports, by line."""
    cache = tmp_path_factory.mktemp("mypy")
    config = cache / "mypy.ini"
    config.write_text("[mypy]\nstrict = True\nenable_error_code = unused-awaitable\n")
    options = ["--config-file", str(config), "--cache-dir", str(cache), "--no-error-summary", "--hide-error-context"]
    out, err, _ = api.run([*options, str(SOURCE)])
    assert err == ""
    found: dict[int, set[str]] = {}
    for line in out.splitlines():
        match = re.fullmatch(r".*?api\.py:(\d+): error: .*\[([a-z-]+)\]", line)
        if match is None:
            assert ": note: " in line, line
            continue
        found.setdefault(int(match[1]), set()).add(match[2])
    return found


def expected() -> dict[int, set[str]]:
    marks: dict[int, set[str]] = {}
    for number, line in enumerate(SOURCE.read_text().splitlines(), start=1):
        if match := MARK.search(line):
            marks[number] = set(match[1].split())
    return marks


def test_good_use_passes_and_every_misuse_is_reported(reported: dict[int, set[str]]) -> None:
    for line, codes in expected().items():
        assert reported.get(line, set()) & codes, f"line {line}: expected {codes}, reported {reported.get(line)}"
    assert set(reported) == set(expected())


def test_bug_72_the_two_classic_mistakes_are_among_them() -> None:
    lines = SOURCE.read_text().splitlines()
    marked = {lines[number - 1].strip().split("  #")[0] for number in expected()}
    assert {'with manager.slot("p"):', 'manager.acquire("p")'} <= marked
