"""Drives a subject along one case and judges every reply: the only loop that talks to subjects.

The loop is kept lean, because a run is hundreds of thousands of replies and nearly all are equal to the letter;
whatever is unusual (another shape, a skip, an error, a difference) leaves it for the slow path. A case ends at its
first difference: what follows one would be consequences.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import TypeAlias

from provider_concurrency_model.check.blame import name_rules, rule_of_setting
from provider_concurrency_model.check.case import EMPTY_REPLY, Case
from provider_concurrency_model.check.compare import Difference, Expected, compare
from provider_concurrency_model.check.describe import say_config, say_difference
from provider_concurrency_model.check.keep import find_broken
from provider_concurrency_model.check.subject import (
    ErrorReply,
    Nonsense,
    Session,
    Skipped,
    SubjectBrokeError,
    classify,
)
from provider_concurrency_model.check.untyped import apply_schema
from provider_concurrency_spec.vocabulary import Config, Json


@dataclass(frozen=True, slots=True)
class Passed:
    """Every reply was as expected."""

    steps: int


@dataclass(frozen=True, slots=True)
class Failed:
    """The reply to step `at` (-1: to `new`) differs."""

    case: Case
    at: int
    differences: tuple[Difference, ...]
    actual: Json
    """The reply as it came, None where there was none."""
    remarks: tuple[str, ...] = ()
    """What may help and isn't the same in every run: the end of the subject's stderr, its line, the schema's view."""
    is_broken: bool = False
    """The subject raised, vanished or left the protocol: it had to be made anew."""

    @property
    def rules(self) -> tuple[str, ...]:
        """The scenario's rules, else those that the differences point at; the most telling first in both cases."""
        blamed = tuple(dict.fromkeys(item.rule for item in self.differences if item.rule is not None))
        known = self.case.rules
        return tuple(sorted(known, key=lambda rule: blamed.index(rule) if rule in blamed else len(blamed))) or blamed


@dataclass(frozen=True, slots=True)
class NotAsked:
    """The subject lacks a feature that the case needs, and says so."""

    features: tuple[str, ...]
    steps: int = 0


Outcome: TypeAlias = Passed | Failed | NotAsked


def say_first(failed: Failed) -> str:
    """The first difference in a line: what an expectation file compares."""
    head, wanted, given = say_difference(failed.differences[0])
    return f"{head}: expected {wanted}, got {given}"


def drive(session: Session, case: Case) -> Outcome:
    """Sends the case and compares reply by reply."""
    lacking = sorted(case.needs - session.hello.features)
    if lacking:
        return NotAsked(tuple(lacking))
    needs_timers = "timers" in session.hello.features
    message_id = session.take_ids(case.count)
    said: list[Json] = []
    at = -1
    with closing(session.subject.converse(case.messages(message_id))) as replies:
        try:
            for config in case.refused:
                raw = next(replies)
                if not _is_refusal(raw, message_id):
                    return _failed(case, at, raw, [_not_refused(config, raw, message_id)])
                message_id += 1
            if not case.steps:
                return Passed(0)
            raw = next(replies)
            found = judge_reply(EMPTY_REPLY, raw, message_id, 0, needs_timers)
            if found is not None:
                return conclude(case, at, raw, found, said)
            for at, step in enumerate(case.steps):
                raw = next(replies)
                message_id += 1
                found = judge_reply(step.expected, raw, message_id, step.max_timers, needs_timers)
                said.append(raw)
                if found is not None:
                    return conclude(case, at, raw, found, said)
        except SubjectBrokeError as broke:
            return broken_at(case, at, broke)
        except StopIteration:
            return _failed(case, at, None, [Difference("reply", "subject", None, "a reply", "no reply came")])
    broken = find_broken(case.config, case.commands, said) if case.checks_invariants else None
    if broken is not None:
        return _failed(case, broken[0], said[broken[0]], broken[1])
    return Passed(len(case.steps))


def judge_reply(
    expected: Expected, raw: Json, message_id: int, max_timers: int, needs_timers: bool
) -> Skipped | tuple[Difference, ...] | None:
    """What is wrong with a reply; None for one that conforms."""
    special = classify(raw, message_id)
    match special:
        case None:
            return compare(expected, raw, max_timers=max_timers, needs_timers=needs_timers) or None
        case Skipped():
            return special
        case ErrorReply(kind, message):
            told = f"an error: {message}" if kind is None else f"an error ({kind}): {message}"
            return (Difference("reply", "message", None, "a reply", told),)
        case Nonsense(why):
            return (Difference("reply", "shape", None, "a reply of protocol 1", why),)


def broken_at(case: Case, at: int, broke: SubjectBrokeError) -> Failed:
    """The outcome of a case in which the subject raised, vanished or left the protocol."""
    difference = Difference("reply", broke.fault, None, "a reply", str(broke))
    return replace(_failed(case, at, None, [difference]), remarks=broke.remarks, is_broken=True)


def conclude(case: Case, at: int, raw: Json, found: Skipped | tuple[Difference, ...], said: Sequence[Json]) -> Outcome:
    """The outcome of a case whose reply to step `at` differs; `said` are the replies up to it, for the invariants."""
    if not isinstance(found, Skipped):
        # An invariant that breaks at the same step says more than a difference: it needs no model.
        broken = find_broken(case.config, case.commands, said)
        also = broken[1] if broken is not None and broken[0] == at else ()
        return _failed(case, at, raw, (*found, *also))
    # The case needs only declared features (the caller made sure), so a skip here breaks the promise of hello.
    told = f"skipped for lack of {found.feature!r}"
    return _failed(case, at, raw, [Difference("reply", "message", None, "a reply: its features are declared", told)])


def _failed(case: Case, at: int, raw: Json, differences: Sequence[Difference]) -> Failed:
    command = case.steps[at].command if at >= 0 else None
    remarks = [f"schema: {fault}" for fault in apply_schema("reply", raw)] if raw is not None else []
    if "unsettled" in (kinds := {item.what for item in differences}) and kinds <= {"unsettled", "invariant"}:
        remarks.append("events and status are as expected, only who waits isn't: look at the driver's settle")
    return Failed(case, at, name_rules(differences, command), raw, tuple(remarks))


def _is_refusal(raw: Json, message_id: int) -> bool:
    special = classify(raw, message_id)
    return isinstance(special, ErrorReply) and special.kind == "invalid"


def _not_refused(config: Config, raw: Json, message_id: int) -> Difference:
    special = classify(raw, message_id)
    told = "it was accepted" if special is None else str(special)
    rule = rule_of_setting(config)
    return Difference("reply", f"new with {say_config(config)}", None, "refused as invalid", told, rule)
