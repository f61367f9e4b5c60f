"""Makes a failing run short: delta debugging over its commands, then its operations, then its waits.

Whatever is left out, the rest must be a conversation that the kit may have: the answers are the model's, worked out
anew for each attempt, and no grant is released or touched before it is delivered. Any difference counts as the same
finding: a shorter run that shows another fault is as welcome.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, TypeVar

from provider_concurrency_model import system
from provider_concurrency_model.check.case import case_of_commands
from provider_concurrency_model.check.drive import Failed, drive
from provider_concurrency_model.check.subject import Session
from provider_concurrency_model.random_runs import uses_armed, uses_left
from provider_concurrency_model.state import State
from provider_concurrency_spec.vocabulary import (
    Advance,
    Command,
    Config,
    Do,
    Hook,
    Operation,
    Refused,
    Release,
    Reply,
    SlotEvent,
    Stall,
    Touch,
)

SECONDS: Final = 20.0
"""How long shrinking may take; the shortest run found until then is good enough."""

_Item = TypeVar("_Item")


def shrink(session: Session, failed: Failed, seconds: float = SECONDS) -> Failed:
    """A run that fails too and from which nothing can be left out, as far as the time allows."""
    return _Shrinking(session, failed, time.monotonic() + seconds).run()


def is_sendable(config: Config, commands: Sequence[Command]) -> bool:
    """Whether the kit may send this: nothing that the rules leave open (see `random_runs`).

    No release or touch of a grant that isn't delivered, no refusal where a hook runs, and nothing in a burst after the
    operation that called one.
    """
    state = system.new(config)
    waiting: frozenset[str] = frozenset()
    for command in commands:
        before = state
        state, reply = system.run(before, command)
        operations = command.ops if isinstance(command, Do) else ()
        armed = [each.hook for each in before.hooks]
        if (armed or uses_armed(command)) and not _keeps_hooks_apart(before, command, reply, state):
            return False
        if not _handed_over(reply, waiting).isdisjoint(_used((*operations, *armed))):
            return False
        waiting = frozenset(reply.unsettled)
    return True


def _keeps_hooks_apart(before: State, command: Command, reply: Reply, after: State) -> bool:
    is_called = uses_left(before) + uses_armed(command) != uses_left(after)
    if is_called and any(isinstance(event, Refused) for event in reply.events):
        return False
    state = before
    for operation in command.ops[:-1] if isinstance(command, Do) else ():
        following, _ = system.step(state, operation)
        if uses_left(following) < uses_left(state):
            return False
        state = following
    return True


def _handed_over(reply: Reply, waiting: frozenset[str]) -> frozenset[str]:
    """The requests granted from the queue, which their callers received only when the burst was over."""
    events = [event for event in reply.events if isinstance(event, SlotEvent)]
    queued = waiting | {event.request for event in events if event.event == "queued"}
    return frozenset(event.request for event in events if event.event == "granted" and event.request in queued)


def _used(operations: Iterable[Operation]) -> Iterator[str]:
    for operation in operations:
        match operation:
            case Release(request) | Touch(request):
                yield request
            case Hook():
                yield from _used(operation.do)
            case _:
                pass


class _Shrinking:
    """The best run so far, and what is tried to better it."""

    def __init__(self, session: Session, failed: Failed, until: float) -> None:
        self._session = session
        self._until = until
        self._best = failed
        self._commands: list[Command] = list(failed.case.commands[: failed.at + 1])

    def run(self) -> Failed:
        before: list[Command] = []
        while before != self._commands and time.monotonic() < self._until:
            before = list(self._commands)
            self._leave_out(self._commands, self._try)
            self._leave_out_operations()
            self._wait_less()
        return self._best

    def _try(self, commands: Sequence[Command]) -> bool:
        """Keeps `commands` if they are sendable and fail."""
        case = self._best.case
        if not commands or not is_sendable(case.config, commands):
            return False
        attempt = case_of_commands(
            case.name, case.level, case.config, commands, checks_invariants=case.checks_invariants
        )
        outcome = drive(self._session, attempt)
        if not isinstance(outcome, Failed):
            return False
        self._best = outcome
        self._commands = list(outcome.case.commands[: outcome.at + 1])
        return True

    def _leave_out(self, items: Sequence[_Item], attempt: Callable[[Sequence[_Item]], bool]) -> None:
        """Ever smaller chunks: half of the items, a quarter, ..., single ones."""
        size = max(1, len(items) // 2)
        while size:
            at = 0
            while at < len(items) and time.monotonic() < self._until:
                shorter = [*items[:at], *items[at + size :]]
                if attempt(shorter):
                    items = shorter
                else:
                    at += size
            size //= 2

    def _leave_out_operations(self) -> None:
        """The same inside each burst, from the last to the first."""
        at = len(self._commands) - 1
        while at >= 0:
            command = self._commands[at] if at < len(self._commands) else None
            if isinstance(command, Do) and len(command.ops) > 1:
                place = at

                def attempt(ops: Sequence[Operation], place: int = place) -> bool:
                    return self._try([*self._commands[:place], Do(tuple(ops)), *self._commands[place + 1 :]])

                self._leave_out(command.ops, attempt)
            at -= 1

    def _wait_less(self) -> None:
        """Shorter waits where they do as well."""
        for at, command in enumerate(list(self._commands)):
            if not isinstance(command, Advance | Stall) or at >= len(self._commands):
                continue
            for ms in (1, command.ms // 2, command.ms - 1):
                changed = Advance(ms) if isinstance(command, Advance) else Stall(ms)
                if 0 < ms < command.ms and self._try([*self._commands[:at], changed, *self._commands[at + 1 :]]):
                    break
