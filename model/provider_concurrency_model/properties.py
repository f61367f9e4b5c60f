"""What must always hold, and what must sometimes happen, said about one step of the model.

A property looks at a command from both sides (`graph.Step`): the canonical state before, the events, the state after,
which is at rest. It is written independently of `system`: it counts and compares, it doesn't call. An `always`
property (`always.py`) holds on every edge; a `sometimes` property (`sometimes.py`) has at least one witness, because a
model that never gets anywhere keeps every promise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from provider_concurrency_spec.vocabulary import Command, Do, Hook, Operation, SlotEvent, SlotEventKind

from .graph import Graph, Step
from .state import IN_FLIGHT, Provider, State


@dataclass(frozen=True, slots=True)
class Property:
    """A named claim about a step."""

    name: str
    rules: tuple[str, ...]
    holds: Callable[[Step], bool]
    is_of_state: bool = False
    """Whether it looks at the state after only: then it is asked once for each state, not for each edge."""


@dataclass(frozen=True, slots=True)
class Violation:
    """An `always` property that a step broke, and the shortest commands after `new` that end with that step."""

    name: str
    rules: tuple[str, ...]
    commands: tuple[Command, ...]


@dataclass(frozen=True, slots=True)
class Examination:
    """What was found in a graph."""

    violation: Violation | None
    """The first in breadth-first order; the examination ended there."""
    witnesses: dict[str, tuple[Command, ...]]
    """For each `sometimes` property that happened, the shortest commands after `new` that show it."""


def examine(graph: Graph, always: Iterable[Property], sometimes: Iterable[Property] = ()) -> Examination:
    """Asks every property on every edge of a graph."""
    of_edges = [claim for claim in always if not claim.is_of_state]
    of_states = [claim for claim in always if claim.is_of_state]
    missing = list(sometimes)
    found: dict[str, tuple[Command, ...]] = {}
    for place, (edge, step) in enumerate(graph.steps()):
        is_first = graph.parents[edge.target] == place
        for claim in (*of_edges, *of_states) if is_first else of_edges:
            if not claim.holds(step):
                commands = graph.spell([*graph.path(edge.source), edge])
                return Examination(Violation(claim.name, claim.rules, commands), found)
        for claim in [claim for claim in missing if claim.holds(step)]:
            found[claim.name] = graph.spell([*graph.path(edge.source), edge])
            missing.remove(claim)
    return Examination(None, found)


# -- looking at states -----------------------------------------------------------------------------------------------


def in_flight(state: State, provider: str) -> int:
    """How many slots of a provider count against its limit."""
    return len([slot for slot in state.slots if slot.provider == provider and slot.state in IN_FLIGHT])


def own_or_default(state: State, provider: Provider) -> int | None:
    """The limit in force."""
    return state.settings.default_limit if provider.limit is None else provider.limit


def waits_for_itself(state: State, provider: Provider) -> bool:
    """NST-1: every slot that counts is held, by an ancestor of one who waits, and there are as many as may be."""
    limit = own_or_default(state, provider)
    waiting = [slot for slot in state.slots if slot.provider == provider.name and slot.state == "queued"]
    counting = [slot for slot in state.slots if slot.provider == provider.name and slot.state in IN_FLIGHT]
    if not waiting or not counting or limit is None or len(counting) < limit:
        return False
    return all(
        slot.state == "held" and any(slot.conversation in waiter.ancestors for waiter in waiting) for slot in counting
    )


def flat(command: Command) -> list[Operation]:
    """The operations of a command, those of its hooks included."""
    found: list[Operation] = []
    if isinstance(command, Do):
        for operation in command.ops:
            found.append(operation)
            if isinstance(operation, Hook):
                found += operation.do
    return found


def told(step: Step, event: SlotEventKind) -> list[SlotEvent]:
    """The slot events of a kind."""
    return [item for item in step.events if isinstance(item, SlotEvent) and item.event == event]
