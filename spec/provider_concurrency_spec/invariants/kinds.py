"""What an invariant is, and what it looks at: a row, a status, a step, a run.

All in the words of protocol 1, so that the same predicates judge the model, the manager and a port in any language by
what these say themselves. Events of one reply are relied on as far as protocol 1 orders them: each request's own
sequence, and the sequence of grants of a provider; the order of anything else at one instant is not.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Generic, Literal, TypeAlias, TypeVar

from provider_concurrency_spec.vocabulary import (
    Acquire,
    Close,
    Command,
    Config,
    Do,
    Event,
    Hook,
    Operation,
    Raw,
    Refused,
    Reply,
    StatusRow,
    TryAcquire,
)

Scope: TypeAlias = Literal["row", "status", "step", "run"]
Status: TypeAlias = tuple[StatusRow, ...]


@dataclass(frozen=True, slots=True)
class RowSeen:
    """One row of a status at rest, and the configuration it must obey."""

    config: Config
    row: StatusRow

    @property
    def limit_in_force(self) -> int | None:
        """The provider's own limit, else the manager's default; None: no limit (LIM-4)."""
        return self.row.limit if self.row.limit is not None else whole(self.config.default_limit)


@dataclass(frozen=True, slots=True)
class StatusSeen:
    """A whole status at rest."""

    config: Config
    status: Status


@dataclass(frozen=True, slots=True)
class Step:
    """One command with its reply, the status before, and when it began (ms of virtual time).

    `armed`: hooks given in earlier commands, which may run in this one.
    """

    config: Config
    started_ms: int
    before: Status
    command: Command
    reply: Reply
    armed: tuple[Hook, ...] = ()

    @property
    def ended_ms(self) -> int:
        """The time at which the reply was given."""
        return self.started_ms + (0 if isinstance(self.command, Do) else self.command.ms)

    @property
    def events(self) -> tuple[Event, ...]:
        """The reply's events."""
        return self.reply.events

    @property
    def operations(self) -> tuple[Operation, ...]:
        """The operations of the burst itself."""
        return self.command.ops if isinstance(self.command, Do) else ()

    @property
    def accepted(self) -> tuple[Operation, ...]:
        """The operations of the burst that were not refused."""
        refused = {event.index for event in self.events if isinstance(event, Refused)}
        return tuple(op for at, op in enumerate(self.operations) if at not in refused)

    @property
    def hooked(self) -> tuple[Operation, ...]:
        """The operations that callbacks may have run in this step."""
        hooks = (*self.armed, *(op for op in self.operations if isinstance(op, Hook)))
        return tuple(op for hook in hooks for op in flatten(hook.do))

    @property
    def closes(self) -> bool:
        """Whether the manager is or may have been closed in this step."""
        return any(isinstance(op, Close) for op in (*self.operations, *self.hooked))


@dataclass(frozen=True, slots=True)
class Run:
    """A run from `new` on, at time 0 with an empty status."""

    config: Config
    steps: tuple[Step, ...]

    @classmethod
    def of(cls, config: Config, exchanges: Iterable[tuple[Command, Reply]]) -> Run:
        """The run made of these commands and replies."""
        steps: list[Step] = []
        now = 0
        status: Status = ()
        armed: tuple[Hook, ...] = ()
        for command, reply in exchanges:
            step = Step(config, now, status, command, reply, armed)
            steps.append(step)
            now, status = step.ended_ms, reply.status
            armed = (*armed, *(op for op in step.operations if isinstance(op, Hook)))
        return cls(config, tuple(steps))


Subject = TypeVar("Subject")


@dataclass(frozen=True, slots=True)
class Invariant(Generic[Subject]):
    """A named property that holds of every subject; `check` returns None, or what is wrong."""

    name: str
    rule_ids: tuple[str, ...]
    scope: Scope
    description: str
    check: Callable[[Subject], str | None]


@dataclass(frozen=True, slots=True)
class Violation:
    """An invariant that doesn't hold, and how."""

    invariant: str
    rule_ids: tuple[str, ...]
    message: str


def invariant(scope: Scope, *rule_ids: str) -> Callable[[Callable[[Subject], str | None]], Invariant[Subject]]:
    """Makes a predicate an invariant: its name from the function, its description from the docstring."""

    def make(check: Callable[[Subject], str | None]) -> Invariant[Subject]:
        return Invariant(check.__name__, rule_ids, scope, inspect.getdoc(check) or "", check)

    return make


def violations(invariants: Iterable[Invariant[Subject]], subject: Subject) -> Iterator[Violation]:
    """Those of `invariants` that don't hold of `subject`."""
    for each in invariants:
        message = each.check(subject)
        if message is not None:
            yield Violation(each.name, each.rule_ids, message)


def flatten(operations: Iterable[Operation]) -> Iterator[Operation]:
    """The operations and, after each hook, those it runs."""
    for operation in operations:
        yield operation
        if isinstance(operation, Hook):
            yield from flatten(operation.do)


def ancestors_of(operation: Acquire | TryAcquire) -> frozenset[str]:
    """NST-1: the ids on a request's path, its own conversation's left out (or, without one, the innermost block's)."""
    if not isinstance(operation, Acquire) or not operation.path:
        return frozenset()
    whose = operation.path[-1] if operation.conversation is None else operation.conversation
    return frozenset(each for each in operation.path if each != whose)


def whole(value: Raw) -> int | None:
    """`value` if it is a whole number, else None (nothing exact can be said then)."""
    return value if isinstance(value, int) and not isinstance(value, bool) else None
