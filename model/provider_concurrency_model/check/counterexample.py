"""A finding that can be kept: the steps that show it, as text, as a diagram, and as a file that replays it.

The file holds a scenario in the specification's own format (so a port can add it to its suite as it stands), what the
subject answered instead, and the command line that replays it. Another version of the specification may expect other
answers, so its files are refused rather than judged.
"""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from provider_concurrency_model.check.case import EMPTY_REPLY, Case, case_of_scenario
from provider_concurrency_model.check.compare import Difference, Expected, read_reply
from provider_concurrency_model.check.describe import (
    say_command,
    say_config,
    say_difference,
    say_event,
    say_expected,
    say_plain,
)
from provider_concurrency_model.check.drive import Failed
from provider_concurrency_model.check.untyped import is_object
from provider_concurrency_spec.scenarios import (
    Expect,
    Scenario,
    ScenarioStep,
    features_used,
    read_json,
    scenario_from_json,
    scenario_to_json,
)
from provider_concurrency_spec.vocabulary import SPEC_VERSION, Json, MalformedError

FORMAT: Final = 1
_NOTES: Final = 3
"""Differences drawn into a diagram, the most telling; the text has all."""


class UnusableFileError(Exception):
    """A file can't be replayed; the message names the file and why."""


@dataclass(frozen=True, slots=True)
class Counterexample:
    """One finding. The case ends with the step that failed."""

    case: Case
    rules: tuple[str, ...]
    differences: tuple[Difference, ...]
    actual: Json
    subject: str
    seed: int | None = None
    is_shortest: bool = False
    """No shorter path to this fault exists within the bounds of the level."""
    chosen_by: tuple[str, ...] = ()
    """The words of a command line that choose the subject again."""
    remarks: tuple[str, ...] = ()
    """What may help: the end of the subject's stderr, its line, what the schema says."""
    is_at_new: bool = False
    """It is the reply to `new` that differs; the case's steps were not reached."""


def counterexample_of(
    failed: Failed,
    subject: str,
    *,
    seed: int | None = None,
    is_shortest: bool = False,
    chosen_by: tuple[str, ...] | None = None,
) -> Counterexample:
    """The finding without the steps that were not reached."""
    chosen_by = ("--subject", subject) if chosen_by is None else chosen_by
    case = failed.case
    kept = Case(
        name=case.name,
        level=case.level,
        config=case.config,
        # A run that fails at `new` keeps a step: without one it would be no scenario.
        steps=case.steps[: max(failed.at + 1, 0 if case.refused else 1)],
        rules=failed.rules,
        needs=case.needs,
        why=case.why,
        refused=case.refused,
    )
    return Counterexample(
        kept,
        failed.rules,
        failed.differences,
        failed.actual,
        subject,
        seed,
        is_shortest,
        chosen_by,
        failed.remarks,
        failed.at < 0,
    )


# -- for people ------------------------------------------------------------------------------------------------------


def tell_steps(found: Counterexample) -> list[str]:
    """The steps with expected and, at the end, actual: plain lines."""
    lines = [f"{found.case.level}: {found.case.name}", f"rule: {', '.join(found.rules)}"]
    if found.case.why:
        lines.append(f"about: {found.case.why}")
    lines.append(f"config: {say_config(found.case.config)}")
    if found.is_at_new:
        lines.append(" 0. new")
        if not found.case.refused:  # else the difference says what was to be refused
            lines.extend(f"     expected  {line}" for line in say_expected(EMPTY_REPLY))
    for number, step in enumerate(() if found.is_at_new else found.case.steps, 1):
        lines.append(f"{number:2}. {say_command(step.command)}")
        lines.extend(f"     expected  {line}" for line in say_expected(step.expected))
    lines.extend(f"     actual    {line}" for line in _tell_actual(found.actual))
    for difference in found.differences:
        head, wanted, given = say_difference(difference)
        lines.append(f"   {_concerned(difference)}: {head}: expected {wanted}; actual {given}")
    lines.extend(f"     {remark}" for remark in found.remarks)
    return lines


def _concerned(difference: Difference) -> str | None:
    """Who leaves the protocol has broken none of the rules: the rule named elsewhere is that of the operation."""
    return "protocol" if difference.what == "reply" else difference.rule


def _tell_actual(actual: Json) -> list[str]:
    reply = read_reply(actual)
    if reply is None:
        return [say_plain(actual)[:400] if actual is not None else "no reply"]
    return say_expected(Expected.of_reply(reply))


def draw_sequence(found: Counterexample) -> str:
    """A Mermaid sequence diagram: commands to the right, answers to the left, the difference as a note."""
    lines = ["sequenceDiagram", "    participant K as kit", f"    participant S as {_plain(found.subject)}"]
    reached = 0 if found.is_at_new else len(found.case.steps)
    lines.append("    K->>S: new")
    for number, step in enumerate(found.case.steps[:reached], 1):
        lines.append(f"    K->>S: {_plain(say_command(step.command))}")
        told = [say_event(event) for event in step.expected.events or ()]
        if number < reached and told:
            lines.append(f"    S-->>K: {_plain(', '.join(told))}")
    reply = read_reply(found.actual)
    answered = ", ".join(map(say_event, reply.events)) if reply is not None else "(see note)"
    lines.append(f"    S--xK: {_plain(answered or 'no events')}")
    for difference in found.differences[:_NOTES]:
        head, wanted, given = say_difference(difference)
        text = f"{_concerned(difference)}: {head}<br/>expected {_plain(wanted)}<br/>actual {_plain(given)}"
        lines.append(f"    Note over K,S: {text}")
    return "\n".join(lines) + "\n"


def _plain(text: str) -> str:
    """Mermaid ends a message at `;` and reads `#` as an entity and `<` as markup."""
    return text.replace("#", "").replace(";", ",").replace("<", "(").replace(">", ")").replace("\n", " ")


# -- files -----------------------------------------------------------------------------------------------------------


def scenario_of(found: Counterexample) -> Scenario:
    """The same steps as a scenario of the specification's format."""
    scenario = Scenario(
        name=file_stem(found),
        rules=found.rules,
        needs=(),
        why=found.case.why or f"found at level {found.case.level}: {found.case.name}",
        config=found.case.config,
        steps=tuple(ScenarioStep(step.command, _expect_of(step.expected)) for step in found.case.steps),
        refused_configs=found.case.refused,
    )
    return Scenario(
        scenario.name,
        scenario.rules,
        features_used(scenario),
        scenario.why,
        scenario.config,
        scenario.steps,
        scenario.refused_configs,
    )


def _expect_of(expected: Expected) -> Expect:
    return Expect(expected.events, expected.status, expected.unsettled, expected.timers, expected.timers_max)


def file_stem(found: Counterexample) -> str:
    """A name for its file: level, rule, case."""
    words = (found.case.level, *found.rules[:1], found.case.name)
    return re.sub(r"[^a-z0-9]+", "_", "_".join(dict.fromkeys(words)).lower()).strip("_")


def replay_command(path: str, chosen_by: tuple[str, ...]) -> str:
    """The command line that replays a saved counterexample."""
    return shlex.join(["provider-concurrency", "replay", path, *chosen_by])


def counterexample_to_json(found: Counterexample, path: str = "FILE") -> dict[str, Json]:
    """The content of a counterexample's file; `path` is where it is or would be."""
    return {
        "counterexample": FORMAT,
        "spec": SPEC_VERSION,
        "replay": replay_command(path, found.chosen_by),
        "subject": found.subject,
        "level": found.case.level,
        "seed": found.seed,
        "rules": list(found.rules),
        "is_shortest": found.is_shortest,
        "differences": [asdict(difference) for difference in found.differences],
        "remarks": list(found.remarks),
        "actual": found.actual,
        "sequence": draw_sequence(found),
        "scenario": scenario_to_json(scenario_of(found)),
    }


def save(found: Counterexample, folder: Path) -> Path:
    """Writes the file (never over another one) and returns where it is.

    The folder `scenarios` beside it gets the same steps as a scenario file, for the port's own suite.
    """
    scenarios = folder / "scenarios"
    scenarios.mkdir(parents=True, exist_ok=True)
    stem = name = file_stem(found)
    number = 2
    while (folder / f"{name}.json").exists() or (scenarios / f"{name}.json").exists():
        name = f"{stem}_{number}"
        number += 1
    path = folder / f"{name}.json"
    _write(path, counterexample_to_json(found, str(path)))
    _write(scenarios / f"{name}.json", {**scenario_to_json(scenario_of(found)), "name": name})
    return path


def _write(path: Path, value: Json) -> None:
    path.write_text(json.dumps(value, indent=2, default=repr) + "\n", encoding="utf-8")


def load(path: Path) -> Case:
    """The case of a counterexample's file, or of a scenario file; raises UnusableFileError."""
    try:
        value = read_json(path.read_bytes(), str(path))
    except OSError as error:
        raise UnusableFileError(f"{path}: {error.strerror or error}") from error
    except MalformedError as error:
        raise UnusableFileError(str(error)) from error
    if is_object(value) and "counterexample" in value:
        if value["counterexample"] != FORMAT:
            raise UnusableFileError(f"{path}: format {value['counterexample']!r}, this kit reads {FORMAT}")
        if value.get("spec") != SPEC_VERSION:
            raise UnusableFileError(f"{path}: made for spec {value.get('spec')!r}, this kit judges {SPEC_VERSION}")
        value = value.get("scenario")
    try:
        return case_of_scenario(scenario_from_json(value, str(path)))
    except MalformedError as error:
        raise UnusableFileError(str(error)) from error
