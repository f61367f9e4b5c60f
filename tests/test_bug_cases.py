"""The table of public bug reports is complete, and its tests exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from bug_cases import CASES, NUMBERS

NAME = re.compile(r"test_bug_(\d+)_\w+")


def find_tests() -> dict[str, int]:
    """Every test in this directory that carries a number: module.name -> number."""
    found: dict[str, int] = {}
    for path in sorted(Path(__file__).parent.glob("test_*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and (match := NAME.fullmatch(node.name)):
                found[f"{path.stem}.{node.name}"] = int(match[1])
    return found


def test_every_number_has_its_case_and_no_other() -> None:
    assert tuple(CASES) == NUMBERS
    assert len(set(NUMBERS)) == len(NUMBERS) == 55


def test_every_case_has_a_test_with_its_number_or_a_reason() -> None:
    for number, case in CASES.items():
        assert case.title, number
        assert case.tests or case.reason, f"case {number} has neither a test nor a reason"
        assert len(set(case.tests)) == len(case.tests), number


def test_every_test_of_the_table_exists_under_its_number() -> None:
    found = find_tests()
    listed = {test: number for number, case in CASES.items() for test in case.tests}
    assert {test: found.get(test) for test in listed} == listed


def test_every_test_with_a_number_stands_in_the_table() -> None:
    listed = {test for case in CASES.values() for test in case.tests}
    assert set(find_tests()) - listed == set()
