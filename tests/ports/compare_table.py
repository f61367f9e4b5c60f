"""The table rule x limiter of the README: which rules well-known limiters keep, and where they don't.

    python tests/ports/compare_table.py                 # prints it
    python tests/ports/compare_table.py --write README.md  # puts it between the marks

A rule fails with the shortest scenario that is about it first of all and fails; it holds if there is none and a
scenario of it passes (how many of them could be asked is told), and isn't applicable where nothing of it can be asked.
So that one thing is judged at a time, limiters that have neither cooldown nor watchdog nor prompt times are asked
without them, unless the rule is about these; the answers are then the model's.
"""

from __future__ import annotations

import argparse
import platform
import sys
from collections.abc import Generator, Iterable
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final, TypeAlias

from limiters import PORTS, LimiterPort

from provider_concurrency_model.check.case import Case, case_of_commands, case_of_scenario
from provider_concurrency_model.check.describe import say_command, say_difference
from provider_concurrency_model.check.drive import Failed, NotAsked, Passed, drive
from provider_concurrency_model.check.subject import InProcess, Message, Session
from provider_concurrency_spec.rules import RULES, Rule
from provider_concurrency_spec.scenarios import Scenario, load_all
from provider_concurrency_spec.vocabulary import Acquire, Command, Do, TryAcquire

Json: TypeAlias = Any

BEGIN: Final = "<!-- limiters -->"
END: Final = "<!-- end limiters -->"

OF_COOLDOWN_AND_WATCHDOG: Final = frozenset({"REL-1", "REL-3", "WAT-1", "WAT-3"})
OF_PROMPTS: Final = frozenset({"ORD-1", "ORD-3"})
OF_WHAT_THEY_LACK: Final = frozenset({"ACC-3", "TIM-1", "TIM-2", "TIM-3", "TIM-4", "WAT-2", "WAT-4"})
"""The status is the adapter's; who has no deadlines and no watchdog can't have them right or wrong."""


class Adapter:
    """A limiter's port as a subject."""

    breaks = 0

    def __init__(self, port: LimiterPort[Any]) -> None:
        self.label = port.name
        self._port = port

    def converse(self, messages: Iterable[Message]) -> Generator[Json, None, None]:
        """One reply after another."""
        for message in messages:
            yield self._port.handle(message)

    def close(self) -> None:
        """Ends it with its loop."""
        self._port.handle({"id": -1, "cmd": "bye"})


@dataclass(frozen=True, slots=True)
class Finding:
    """What became of a rule: how many of its scenarios were asked and passed, and the counterexample."""

    passed: int = 0
    total: int = 0
    failed: Failed | None = None

    @property
    def verdict(self) -> str:
        """In a word."""
        if self.failed is not None:
            return "fails"
        return "holds" if self.passed else "n/a"

    def __str__(self) -> str:
        if self.failed is not None:
            return f"fails: `{self.failed.case.name}`"
        return f"holds ({self.passed} of {self.total})" if 0 < self.passed < self.total else self.verdict


def judge(session: Session, rule: Rule, scenarios: tuple[Scenario, ...], *, is_whole: bool) -> Finding:
    """All scenarios of a rule; `is_whole`: the subject has everything, and is asked as it stands in the files."""
    its_own = [scenario for scenario in scenarios if rule.id in scenario.rules]
    if not is_whole and rule.id in OF_WHAT_THEY_LACK:
        return Finding(0, len(its_own))
    passed = 0
    failures: list[Failed] = []
    for scenario in its_own:
        if scenario.refused_configs and not is_whole:
            continue
        match drive(session, make_case(scenario, rule, is_whole=is_whole)):
            case Passed():
                passed += 1
            case Failed() as failed if scenario.rules[0] == rule.id and not is_skip(failed.actual):
                failures.append(failed)
            case Failed() | NotAsked():
                pass
    shortest = min(failures, key=lambda failed: sum(count_operations(failed)), default=None)
    return Finding(passed, len(its_own), shortest)


def count_operations(failed: Failed) -> list[int]:
    """How much each step up to the failure does."""
    return [len(command.ops) if isinstance(command, Do) else 1 for command in failed.case.commands[: failed.at + 1]]


def make_case(scenario: Scenario, rule: Rule, *, is_whole: bool) -> Case:
    """The scenario as it stands, or without what the rule isn't about."""
    if is_whole or rule.id in OF_COOLDOWN_AND_WATCHDOG:
        return replace(case_of_scenario(scenario), checks_invariants=is_whole)
    config = replace(scenario.config, release_cooldown_ms=0, slot_timeout_ms=None)
    commands = [step.command for step in scenario.steps]
    if rule.id not in OF_PROMPTS:
        commands = [level_prompts(command) for command in commands]
    return replace(case_of_commands(scenario.name, "compare", config, commands), needs=frozenset(scenario.needs))


def level_prompts(command: Command) -> Command:
    """The command with all good prompt times equal, so that the order is that of arrival."""
    if not isinstance(command, Do):
        return command
    return Do(
        tuple(
            replace(op, prompt_started_at=1)
            if isinstance(op, Acquire | TryAcquire) and not isinstance(op.prompt_started_at, str | bool)
            else op
            for op in command.ops
        )
    )


def is_skip(reply: Json) -> bool:
    """Whether a reply says that something can't be asked."""
    return isinstance(reply, dict) and "skip" in reply


def explain(failed: Failed) -> str:
    """The counterexample in one line: what was asked, what differs."""
    what, expected, actual = say_difference(failed.differences[0])
    return f"after `{say_command(failed.case.steps[failed.at].command)}`: {what}: expected {expected}, got {actual}"


def make_table() -> list[str]:
    """The lines between the marks."""
    scenarios = load_all()
    sessions = [Session(InProcess()), *(Session(Adapter(port())) for port in PORTS)]
    names = ["provider-concurrency", *(port.name for port in PORTS)]
    lines = [f"| rule | {' | '.join(names)} |", f"|---|{'---|' * len(names)}"]
    details: list[str] = []
    counts = [[0, 0, 0] for _ in names]
    for rule in RULES:
        if rule.shown == "not":
            continue
        cells: list[str] = []
        for place, (name, session) in enumerate(zip(names, sessions, strict=True)):
            finding = judge(session, rule, scenarios, is_whole=place == 0)
            cells.append(str(finding))
            counts[place][("holds", "fails", "n/a").index(finding.verdict)] += 1
            if finding.failed is not None:
                details.append(f"- {rule.id}, {name}: {explain(finding.failed)}")
        lines.append(f"| {rule.id} {rule.title} | {' | '.join(cells)} |")
    for session in sessions:
        session.close()
    told = [f"{holds} hold, {fails} fail, {others} n/a" for holds, fails, others in counts]
    lines.append(f"| | {' | '.join(told)} |")
    versions = [f"Python {platform.python_version()}", *(f"{name} {version(name)}" for name in ("anyio", "aiolimiter"))]
    own = f"provider-concurrency {version('provider-concurrency')}"
    return [
        f"Judged over virtual time by the scenarios of the specification ({', '.join([own, *versions])}):",
        "",
        *lines,
        "",
        "n/a: there is no call for it, or it can't be seen from outside; (4 of 6): so many of the rule's scenarios can",
        "be asked. The others were not made for this: the table says what you would have to add.",
        "",
        "<details><summary>The counterexamples</summary>",
        "",
        *details,
        "",
        "</details>",
    ]


def put_between_marks(path: Path, lines: list[str]) -> None:
    """Replaces what stands between the marks in a file."""
    text = path.read_text(encoding="utf-8")
    if text.count(BEGIN) != 1 or text.count(END) != 1:
        raise SystemExit(f"{path}: expected {BEGIN} and {END}, once each")
    before, rest = text.split(BEGIN)
    after = rest.split(END)[1]
    path.write_text("\n".join([before + BEGIN, "", *lines, "", END]) + after, encoding="utf-8")


def main() -> None:
    """Prints the table, or writes it into a file."""
    parser = argparse.ArgumentParser(description="The table rule x limiter.")
    parser.add_argument("--write", type=Path, metavar="FILE", help="put it between the marks of this file")
    path: Path | None = parser.parse_args().write
    lines = make_table()
    if path is None:
        sys.stdout.write("\n".join([BEGIN, "", *lines, "", END, ""]))
    else:
        put_between_marks(path, lines)


if __name__ == "__main__":
    main()
