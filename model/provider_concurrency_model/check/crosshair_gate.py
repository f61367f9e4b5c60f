"""CrossHair confirms the kernel's contracts, function by function, over all paths; this gate reads what it says.

CrossHair ends with 0 also for "Not confirmed", for a precondition that is never met, and for a function that has lost
its contract. So the conditions are listed here, and exactly the listed ones must be reported as confirmed. "Confirmed"
means: for all integers, within CrossHair's own model of Python.
"""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import Final

from provider_concurrency_model.check.proof import Outcome, Result, Stopwatch, Texts

CONDITIONS: Final[Mapping[str, int]] = MappingProxyType(
    {
        "take": 3,
        "queue": 3,
        "grant": 5,
        "spare": 2,
        "admit": 5,
        "release": 4,
        "reclaim": 3,
        "recycle": 3,
        "recycle_reclaimed": 3,
        "give_back": 3,
        "cancel": 3,
        "timeout": 3,
        "pause": 3,
        "resume": 3,
        "set_limit": 4,
        "remove_limit": 5,
        "close": 3,
    }
)
"""How many `post` lines each function has: a contract that shrinks must be noticed."""

_MODULE: Final = "kernel_to_confirm"
_CONDITION_TIMEOUT_S: Final = 20
_FUNCTION_TIMEOUT_S: Final = 600
"""By the wall clock, for a CrossHair that hangs; its search is limited in CPU time, whatever else the machine does."""
_LINE: Final = re.compile(r"^(?P<path>.+?):(?P<line>\d+): (?P<kind>info|warning|error): (?P<message>.*)$")


def confirm_contracts(texts: Texts, names: tuple[str, ...] = tuple(CONDITIONS)) -> Iterator[Result]:
    """The contracts of these functions, two at a time."""
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(2) as workers:
        Path(folder, f"{_MODULE}.py").write_text(texts.kernel, encoding="utf-8")
        yield from workers.map(partial(confirm_contract, texts.kernel, folder), names)


def confirm_contract(source: str, folder: str, name: str) -> Result:
    """One function's contract."""
    watch = Stopwatch()
    outcome: Outcome
    command = [
        sys.executable, "-m", "crosshair", "check", "--analysis_kind=PEP316", "--report_all",
        f"--per_condition_timeout={_CONDITION_TIMEOUT_S}", f"{_MODULE}.{name}",
    ]  # fmt: skip
    try:
        done = subprocess.run(
            command,
            env={**os.environ, "PYTHONPATH": os.pathsep.join([folder, *filter(None, [os.environ.get("PYTHONPATH")])])},
            capture_output=True,
            text=True,
            timeout=_FUNCTION_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        outcome, detail = "unknown", f"timeout after {_FUNCTION_TIMEOUT_S} s"
    else:
        outcome, detail = judge(source, name, done.stdout)
        if done.returncode not in (0, 1):
            outcome, detail = "unknown", f"crosshair ended with {done.returncode}: {done.stderr.strip()[-300:]}"
    return Result(name, "crosshair", outcome, watch.seconds(), first_line(source, name), detail)


def judge(source: str, name: str, report: str) -> tuple[Outcome, str]:
    """What a report says about a function: each listed condition must be confirmed, and no other be there."""
    lines = condition_lines(source, name)
    said = read_report(report)
    errors = [message for kind, message in said.values() if kind == "error"]
    if errors:
        return "refuted", errors[0]
    if len(lines) != CONDITIONS.get(name, 0):
        return "unknown", f"{CONDITIONS.get(name, 0)} conditions are listed, the contract has {len(lines)}"
    for line in sorted(set(said) - set(lines)):  # there CrossHair tells of preconditions that are never met
        return "unknown", f"line {line} is no condition of {name}: {said[line][1]}"
    for line in lines:
        _, message = said.get(line, ("info", "not reported"))
        if message != "Confirmed over all paths.":
            return "unknown", f"line {line}: {message}"
    return "proved", f"{len(lines)} conditions"


def read_report(report: str) -> dict[int, tuple[str, str]]:
    """Line -> kind and message; a message may go on over several lines, and an error hides what else is said."""
    said: dict[int, tuple[str, str]] = {}
    line = 0
    for text in report.splitlines():
        if found := _LINE.match(text):
            line = int(found["line"])
            if line not in said or found["kind"] == "error":
                said[line] = found["kind"], found["message"]
        elif line:
            said[line] = said[line][0], f"{said[line][1]} {text.strip()}"
    return said


def condition_lines(source: str, name: str) -> list[int]:
    """Where the `post` lines of a function stand."""
    function = find_function(source, name)
    if function is None:
        return []
    lines = source.splitlines()
    numbers = range(function.lineno, (function.end_lineno or function.lineno) + 1)
    return [number for number in numbers if lines[number - 1].lstrip().startswith("post:")]


def first_line(source: str, name: str) -> str:
    """What a function says of itself."""
    function = find_function(source, name)
    return "" if function is None else (ast.get_docstring(function) or "").partition("\n")[0]


def find_function(source: str, name: str) -> ast.FunctionDef | None:
    """A function of the kernel's text."""
    body = ast.parse(source).body
    return next((node for node in body if isinstance(node, ast.FunctionDef) and node.name == name), None)


def missing_tool() -> str | None:
    """Why CrossHair can't be asked."""
    if find_spec("crosshair") is None:
        return "crosshair-tool isn't installed: pip install 'provider-concurrency[prove]'"
    return None
