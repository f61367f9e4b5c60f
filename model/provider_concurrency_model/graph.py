"""Canonical states, and the graph between them: shortest paths, tours over every edge, vectors.

Time has no end and a request's name is used once, so the reachable states are infinitely many. But a manager doesn't
care what time it is, only how far away each deadline is (and where the sweep's grid lies), nor what a request is
called, only its place. `canonical` forgets the rest: times become relative, the age of a slot that is old enough to
be reclaimed is cut, live requests are renamed to "0", "1", ..., and of the ended ones at most the last is kept. What
it maps to one state, no command can tell apart, so walking every edge of the quotient shows everything within the
bounds. An edge carries its command in the names of its source, and how the target's names are made of them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeAlias

from provider_concurrency_spec.vocabulary import (
    Acquire,
    Cancel,
    Command,
    Config,
    Do,
    Event,
    Hook,
    Inspect,
    Operation,
    Release,
    Reply,
    Touch,
    TryAcquire,
)

from .levels import LAST_ENDED, Bounds, commands
from .state import Slot, State
from .system import new, run

Key: TypeAlias = tuple[object, ...]
Run: TypeAlias = Callable[[State, Command], tuple[State, Reply]]
Walk: TypeAlias = tuple[Config, tuple[Command, ...]]

_RANK = {"queued": 0, "held": 1, "cooling": 2, "reclaimed": 3}


class Edge(NamedTuple):
    """A command in a state, and where it leads."""

    source: int
    target: int
    command: Command
    names: tuple[str, ...]
    """For each request of the target, in order, its name at the source; last the ended one, if the target has one."""


@dataclass(frozen=True, slots=True)
class Step:
    """A command seen from both sides: the canonical state before, the events, and the state after as it came."""

    before: State
    command: Command
    events: tuple[Event, ...]
    after: State


def canonical(state: State, *, ghosts: bool) -> tuple[Key, tuple[str, ...]]:
    """A key that two states share iff no command can tell them apart, and the requests' names in canonical order."""
    now_ms = state.now_ms
    timeout_ms = state.settings.slot_timeout_ms
    rows: list[tuple[str, int, int | float, int, int, int, Key, str]] = []
    for slot in state.slots:
        rank = _RANK[slot.state]
        left_ms = -1 if slot.deadline_ms is None else slot.deadline_ms - now_ms
        age_ms = 0 if rank != 1 or timeout_ms is None else -min(now_ms - slot.touched_ms, timeout_ms + 1)
        started, arrival = (slot.prompt_started_at, slot.arrival) if rank == 0 else (0, 0)
        kin = () if slot.conversation is None and not slot.ancestors else kinship(slot)  # of most there is none
        rows.append((slot.provider, rank, started, arrival, left_ms, age_ms, kin, slot.request))
    rows.sort()
    names = tuple([row[7] for row in rows])
    providers = [
        (
            item.name,
            item.limit,
            item.cooldown_ms,
            None if item.paused_until_ms is None else item.paused_until_ms - now_ms,
        )
        for item in state.providers
    ]
    if len(providers) > 1:
        providers.sort(key=lambda item: item[0])  # their order is promised to nobody (TIM-3)
    phase_ms = 0 if timeout_ms is None or state.is_closed else now_ms % state.settings.watchdog_interval_ms
    ghost: tuple[object, ...] = ()
    if ghosts and state.ended:
        last = state.ended[-1]
        ghost, names = (last.state, last.was_reclaimed), (*names, last.request)
    slots = tuple([(row[0], row[1], row[2], row[4], row[5], row[6]) for row in rows])
    return (state.is_closed, phase_ms, tuple(providers), slots, ghost), names


def kinship(slot: Slot) -> Key:
    """What NST-1 may still ask about a slot: whose a waiter and a holder is, and of a waiter its ancestors."""
    whose = () if slot.conversation is None else (slot.conversation,)
    match slot.state:
        case "queued":
            return (whose, tuple(sorted(slot.ancestors)))
        case "held":
            return whose
        case _:
            return ()


def rebuild(state: State, names: Sequence[str]) -> State:
    """The canonical state itself: requests renamed by their place in `names`, times counted from the sweep's grid."""
    timeout_ms = state.settings.slot_timeout_ms
    now_ms = 0 if timeout_ms is None or state.is_closed else state.now_ms % state.settings.watchdog_interval_ms
    past_ms = state.now_ms - now_ms
    by_name = {slot.request: slot for slot in state.slots}
    slots: list[Slot] = []
    for place, name in enumerate(names[: len(state.slots)]):
        slot = by_name[name]
        is_held = slot.state == "held"
        age_ms = 0 if timeout_ms is None else min(state.now_ms - slot.touched_ms, timeout_ms + 1)
        slots.append(
            Slot(
                request=str(place),
                provider=slot.provider,
                prompt_started_at=slot.prompt_started_at if slot.state == "queued" else 0,
                arrival=place + 1,
                state=slot.state,
                deadline_ms=None if slot.deadline_ms is None else slot.deadline_ms - past_ms,
                touched_ms=now_ms - age_ms if is_held else 0,
                grant=0 if slot.state == "queued" else place + 1,
                is_delivered=slot.is_delivered,
                was_reclaimed=slot.was_reclaimed,
                conversation=slot.conversation if slot.state in ("queued", "held") else None,
                ancestors=slot.ancestors if slot.state == "queued" else frozenset(),
            )
        )
    has_ghost = len(names) > len(slots)
    providers = sorted(state.providers, key=lambda item: item.name)
    return replace(
        state,
        now_ms=now_ms,
        arrivals=len(slots),
        grants=len(slots),
        providers=tuple(
            item if item.paused_until_ms is None else item._replace(paused_until_ms=item.paused_until_ms - past_ms)
            for item in providers
        ),
        slots=tuple(slots),
        ended=(Slot(LAST_ENDED, "p", 0, 0, state.ended[-1].state, was_reclaimed=state.ended[-1].was_reclaimed),)
        if has_ghost
        else (),
    )


@dataclass(frozen=True, slots=True)
class Graph:
    """Everything reachable within the bounds: states in breadth-first order, and the edges out of each."""

    bounds: Bounds
    states: tuple[State, ...]
    edges: tuple[Edge, ...]
    """In breadth-first order: by source, then in the order of `levels.commands`."""
    parents: tuple[int, ...]
    """For each state the edge that found it; -1 for the first."""
    run: Run = run

    def __str__(self) -> str:
        """One line for a report."""
        return f"{self.bounds.level}: {len(self.states)} states, {len(self.edges)} edges"

    def path(self, state: int) -> list[Edge]:
        """The shortest way from the first state."""
        path: list[Edge] = []
        while (edge := self.parents[state]) >= 0:
            path.append(self.edges[edge])
            state = path[-1].source
        return path[::-1]

    def spell(self, path: Sequence[Edge]) -> tuple[Command, ...]:
        """A path from the first state as commands after `new`, its requests named r1, r2, ..."""
        speller = Speller(self.bounds)
        return (*self.bounds.setup, *[speller.spell(edge) for edge in path])

    def vectors(self) -> Iterator[tuple[Edge, tuple[Command, ...]]]:
        """For every edge, in breadth-first order, the shortest commands that end with it."""
        for edge in self.edges:
            yield edge, self.spell([*self.path(edge.source), edge])

    def walks(self, longest: int = 400) -> Iterator[Walk]:
        """Walks from `new` that together take every edge; none has many more commands than `longest`."""
        for path in tour(self, longest):
            yield self.bounds.config, self.spell(path)

    def steps(self) -> Iterator[tuple[Edge, Step]]:
        """Every edge, run again and seen from both sides."""
        for edge in self.edges:
            before = self.states[edge.source]
            after, reply = self.run(before, edge.command)
            yield edge, Step(before, edge.command, reply.events, after)


def explore(bounds: Bounds, run: Run = run) -> Graph:
    """Breadth first from `new` and the bounds' setup, until nothing new is found.

    `run` is the system's; another one is explored in tests that plant a fault.
    """
    first = new(bounds.config)
    for command in bounds.setup:
        first, _ = run(first, command)
    key, names = canonical(first, ghosts=bounds.ghosts)
    places = {key: 0}
    states = [rebuild(first, names)]
    edges: list[Edge] = []
    parents = [-1]
    for source, state in enumerate(states):  # grows while it is read: that is the breadth-first queue
        for command in commands(bounds, state):
            after, _ = run(state, command)
            key, names = canonical(after, ghosts=bounds.ghosts)
            target = places.setdefault(key, len(states))
            if target == len(states):
                states.append(rebuild(after, names))
                parents.append(len(edges))
            edges.append(Edge(source, target, command, names))
    return Graph(bounds, tuple(states), tuple(edges), tuple(parents), run)


def tour(graph: Graph, longest: int) -> Iterator[list[Edge]]:
    """Paths from the first state that together take every edge.

    First long greedy ones on the open manager: an untaken edge here, if possible one whose target has much left to
    do; else the way to the nearest state that has one. From a closed manager there is no way back, so the edges that
    close come after them, each at the end of a shortest path, with what is untaken beyond; and then what is left.
    """
    closing: list[Edge] = []
    untaken: list[list[Edge]] = [[] for _ in graph.states]
    neighbours: list[dict[int, Edge]] = [{} for _ in graph.states]
    for edge in graph.edges:
        if graph.states[edge.target].is_closed and not graph.states[edge.source].is_closed:
            closing.append(edge)
        else:
            untaken[edge.source].append(edge)
            neighbours[edge.source].setdefault(edge.target, edge)
    for source, state in enumerate(graph.states):
        while untaken[source] and not state.is_closed:
            yield stroll(neighbours, untaken, graph.path(source), source, longest)
    for edge in closing:
        yield stroll(neighbours, untaken, [*graph.path(edge.source), edge], edge.target, longest)
    for source in range(len(graph.states)):
        while untaken[source]:
            yield stroll(neighbours, untaken, graph.path(source), source, longest)


def stroll(
    neighbours: list[dict[int, Edge]], untaken: list[list[Edge]], path: list[Edge], here: int, longest: int
) -> list[Edge]:
    """A path prolonged greedily, until nothing untaken can be reached or it is long enough."""
    while len(path) < longest:
        if untaken[here]:
            best = max(range(len(untaken[here])), key=lambda place: len(untaken[untaken[here][place].target]))
            path.append(untaken[here].pop(best))
        elif detour := nearest(neighbours, untaken, here):
            path += detour
        else:
            break
        here = path[-1].target
    return path


def nearest(neighbours: list[dict[int, Edge]], untaken: list[list[Edge]], here: int) -> list[Edge]:
    """The shortest way from `here` to a state with an untaken edge; empty if there is none."""
    arrived: dict[int, Edge | None] = {here: None}
    waiting = deque([here])
    while waiting:
        state = waiting.popleft()
        if untaken[state]:
            way: list[Edge] = []
            while (edge := arrived[state]) is not None:
                way.append(edge)
                state = edge.source
            return way[::-1]
        for target, edge in neighbours[state].items():
            if target not in arrived:
                arrived[target] = edge
                waiting.append(target)
    return []


class Speller:
    """Turns edges into commands whose requests have names of their own, each used once."""

    def __init__(self, bounds: Bounds) -> None:
        """At the first state."""
        self.bounds = bounds
        self.named = ["r0"] if bounds.ghosts else []
        """The names of the requests at the present state, in canonical order."""
        self.used = 0

    def spell(self, edge: Edge) -> Command:
        """The command of the next edge."""
        names = {str(place): name for place, name in enumerate(self.named)}
        if self.bounds.ghosts:
            names[LAST_ENDED] = self.named[-1]
        command = edge.command
        if isinstance(command, Do):
            for operation in command.ops:
                if isinstance(operation, Acquire | TryAcquire):
                    self.used += 1
                    names[operation.request] = f"r{self.used}"
            command = Do(tuple([rename(operation, names) for operation in command.ops]))
        self.named = [names[name] for name in edge.names]
        return command


def rename(operation: Operation, names: dict[str, str]) -> Operation:
    """The same operation on the requests of these names."""
    match operation:
        case Release(request):
            return Release(names[request])
        case Cancel(request):
            return Cancel(names[request])
        case Acquire(provider, request, conversation, prompt, timeout_ms, path):
            return Acquire(provider, names[request], conversation, prompt, timeout_ms, path)
        case TryAcquire(provider, request, conversation, prompt):
            return TryAcquire(provider, names[request], conversation, prompt)
        case Touch(request):
            return Touch(names[request])
        case Inspect(request):
            return Inspect(names[request])
        case Hook(on, provider, do, throw, times):
            return Hook(on, provider, tuple([rename(inner, names) for inner in do]), throw, times)
        case _:
            return operation
