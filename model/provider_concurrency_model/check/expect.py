"""The expectation file of a port: known failures by level, case and rule, each with its message.

A port's CI stays green exactly as long as the file tells the truth. A listed case that passes, is skipped, fails
differently or doesn't exist, and a failing case that isn't listed, are problems; so the file can't go stale. `--fix`
rewrites it from a complete run; the entries' notes are kept. On the levels other than `scenarios` only the first
failure is known by name, because there a level ends.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import tomli_w

from provider_concurrency_model.check.counterexample import UnusableFileError
from provider_concurrency_model.check.judge import ALL_LEVELS, LEVELS
from provider_concurrency_model.check.untyped import apply_schema
from provider_concurrency_model.check.verdict import Agreement, CaseResult, LevelReport, RunReport
from provider_concurrency_spec.vocabulary import SPEC_VERSION, Json

_HEAD: Final = """\
# Known failures. A run with --expect passes exactly as long as this file tells the truth.
# Rewritten by --fix from a complete run; `note` is yours, and kept.

"""


class RefusedFixError(Exception):
    """The file must not be rewritten from this run; the message says why."""


@dataclass(frozen=True, slots=True)
class Known:
    """One known failure."""

    case: str
    rule: str
    message: str
    level: str = "scenarios"
    note: str | None = None


@dataclass(frozen=True, slots=True)
class Expectations:
    """The content of a file."""

    known: tuple[Known, ...] = ()
    levels: tuple[str, ...] = LEVELS
    """What it covers: of these levels it lists every failure."""
    seed: int | None = None
    runs: int | None = None
    """The random runs that it was made from."""


def read_expectations(path: Path, *, any_spec: bool = False) -> Expectations:
    """Reads a file; raises UnusableFileError naming it, also for another version of the specification."""
    try:
        value = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UnusableFileError(f"{path}: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise UnusableFileError(f"{path}: not TOML: {error}") from error
    faults = apply_schema("expectation", value)
    if faults:
        raise UnusableFileError(f"{path}: {'; '.join(faults)}")
    spec = value.get("spec", SPEC_VERSION)
    if spec != SPEC_VERSION and not any_spec:
        raise UnusableFileError(f"{path}: made for spec {spec}, this kit judges {SPEC_VERSION}; look at it with --fix")
    entries: list[Mapping[str, Json]] = value.get("known", [])
    known = tuple(Known(**entry) for entry in entries)
    twice = sorted({f"{one.level}: {one.case}" for one in known if sum(_is_same(one, each) for each in known) > 1})
    if twice:
        raise UnusableFileError(f"{path}: listed twice: {', '.join(twice)}")
    levels: list[str] = value.get("levels", list(LEVELS))
    return Expectations(known, tuple(levels), value.get("seed"), value.get("runs"))


def _is_same(one: Known, other: Known) -> bool:
    return (one.level, one.case) == (other.level, other.case)


def judge_expectations(expected: Expectations, report: RunReport, file: str) -> Agreement:
    """Compares a run with what is expected of it."""
    problems: list[str] = []
    confirmed: list[tuple[str, str]] = []
    unjudged: list[str] = []
    known = {(entry.level, entry.case): entry for entry in expected.known}
    levels = {level.level: level for level in report.levels}
    for entry in expected.known:
        level = levels.get(entry.level)
        if level is None or level.undetermined is not None:
            # A level that was broken off says nothing about those of its cases that it didn't reach.
            if level is not None and level.lacking:
                problems.append(_say(entry, f"listed, but skipped: the subject lacks {', '.join(level.lacking)}"))
                continue
            if level is None or _result_of(level, entry.case) is None:
                unjudged.append(f"{entry.level}: {entry.case}")
                continue
        told = _find_problem(entry, level)
        if told is None:
            confirmed.append((entry.level, entry.case))
        else:
            problems.append(_say(entry, told))
    for level in report.levels:
        for result in level.results:
            if result.result == "failed" and (level.level, result.case) not in known:
                told = f"fails, but isn't listed: {result.told}"
                problems.append(f"{level.level}: {result.case} ({result.rule}): {told}")
    return Agreement(file, tuple(confirmed), tuple(problems), tuple(unjudged))


def _say(entry: Known, told: str) -> str:
    return f"{entry.level}: {entry.case} ({entry.rule}): {told}"


def _result_of(level: LevelReport, case: str) -> CaseResult | None:
    return next((result for result in level.results if result.case == case), None)


def _find_problem(entry: Known, level: LevelReport) -> str | None:
    """What is wrong with an entry; None if it fails as listed."""
    result = _result_of(level, entry.case)
    if result is None:
        if level.level == "scenarios":
            return "listed, but there is no such case"
        others = ", ".join(each.case for each in level.results)
        return f"listed, but not reached: the level ended at {others}" if others else "listed, but the level passes"
    match result.result:
        case "passed":
            return "listed, but passes"
        case "skipped":
            return f"listed, but skipped: {result.told}"
        case "failed" if (result.rule, result.told) != (entry.rule, entry.message):
            return f"fails differently: listed {entry.message!r}; now ({result.rule}) {result.told!r}"
        case "failed":
            return None


# -- rewriting -------------------------------------------------------------------------------------------------------


def fix_expectations(old: Expectations | None, report: RunReport) -> Expectations:
    """What the file should say after this run; raises RefusedFixError if the run doesn't cover what the file does."""
    ran = tuple(level.level for level in report.levels)
    uncovered = [] if old is None else [level for level in ALL_LEVELS if level in old.levels and level not in ran]
    if uncovered:
        raise RefusedFixError(f"the file covers levels that were not run: {', '.join(uncovered)}")
    broken_off = [f"{one.level} ({one.undetermined})" for one in report.levels if not one.lacking and one.undetermined]
    if broken_off:
        raise RefusedFixError(f"levels were not carried out: {', '.join(broken_off)}")
    notes = {(entry.level, entry.case): entry.note for entry in (old.known if old is not None else ())}
    known = tuple(
        replace(entry, note=notes.get((entry.level, entry.case)))
        for level in report.levels
        for entry in _known_of(level)
    )
    is_random = "random" in ran
    return Expectations(known, ran, report.seed if is_random else None, report.runs if is_random else None)


def _known_of(level: LevelReport) -> Iterator[Known]:
    for result in level.results:
        if result.result == "failed":
            yield Known(result.case, result.rule or "ACC-1", result.told, level.level)


def expectations_to_json(expected: Expectations) -> dict[str, Json]:
    """The object that the file reads to."""
    out: dict[str, Json] = {"spec": SPEC_VERSION, "levels": list(expected.levels)}
    out |= {name: value for name, value in (("seed", expected.seed), ("runs", expected.runs)) if value is not None}
    out["known"] = [_entry_to_json(entry) for entry in expected.known]
    return out


def _entry_to_json(entry: Known) -> dict[str, Json]:
    out: dict[str, Json] = {"level": entry.level, "rule": entry.rule, "case": entry.case, "message": entry.message}
    return out if entry.note is None else {**out, "note": entry.note}


def write_expectations(path: Path, expected: Expectations) -> None:
    """Writes the file; raises OSError."""
    whole = expectations_to_json(expected)
    entries: list[Mapping[str, Json]] = whole.pop("known")
    # Each in a table of its own, whatever its length, so that a change is a change of few lines.
    tables = [f"\n[[known]]\n{tomli_w.dumps(entry)}" for entry in entries]
    path.write_text(_HEAD + tomli_w.dumps(whole) + "".join(tables), encoding="utf-8")


def say_changes(old: Expectations | None, new: Expectations) -> str:
    """What a rewriting changed, in a line."""
    before = _by_name(() if old is None else old.known)
    after = _by_name(new.known)
    added = sum(name not in before for name in after)
    removed = sum(name not in after for name in before)
    changed = sum(replace(before[name], note=None) != replace(after[name], note=None) for name in before.keys() & after)
    return f"{len(after)} known failures ({added} added, {removed} removed, {changed} changed)"


def _by_name(known: Iterable[Known]) -> dict[tuple[str, str], Known]:
    return {(entry.level, entry.case): entry for entry in known}
