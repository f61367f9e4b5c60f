"""The README tells the truth: its code runs as it stands, its commands are CI's, its generated parts are current."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
SDK = {path.read_text(encoding="utf-8"): path.name for path in sorted((ROOT / "tests" / "examples").glob("*.py"))}


@pytest.mark.realtime
@pytest.mark.parametrize("number", [n for n, block in enumerate(BLOCKS) if block not in SDK])
def test_a_block_of_code_runs_as_it_stands(number: int, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", BLOCKS[number]],
        cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")


def test_the_example_of_a_test_passes_and_fails_when_it_leaks(tmp_path: Path) -> None:
    (block,) = (block for block in BLOCKS if "monitored_manager" in block)
    leaks = block.replace("async with manager.slot(", "if await manager.acquire(")
    for name, text, code in (("good", block, 0), ("leaks", leaks, 1)):
        (tmp_path / f"test_{name}.py").write_text(text, encoding="utf-8")
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"test_{name}.py"],
            cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        assert done.returncode == code, done.stdout
    assert "still held at the end: a slot of 'openai'" in done.stdout
    assert "leaked, and taken back by the watchdog: a slot of 'openai'" in done.stdout


def test_the_sdk_examples_are_those_that_test_examples_runs() -> None:
    assert {SDK[block] for block in BLOCKS if block in SDK} == set(SDK.values()) != set()


def test_ci_takes_its_commands_from_the_readme() -> None:
    commands = re.findall(r"^python3 -m venv .*$", README, re.MULTILINE)
    assert [command.split("&& ")[-1] for command in commands] == [
        ".venv/bin/provider-concurrency check",
        ".venv/bin/pytest -q",
    ]
    ci = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    assert "readme 'pytest'" in ci
    assert "readme 'provider-concurrency check'" in ci


def test_every_file_that_the_readme_names_exists() -> None:
    named = set(re.findall(r"\]\(([^)#:]+)\)", README)) | set(
        re.findall(r"`(?:python )?((?:tests|spec)/[\w./-]+)", README)
    )
    assert {name for name in named if not (ROOT / name).exists()} == set()
    assert len(named) > 8
