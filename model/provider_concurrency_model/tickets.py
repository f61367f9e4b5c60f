"""The whole-system model with time left out: a few requests that come again and again, each in one phase.

A second model checker can't be asked about milliseconds, so here the end of a cooldown, of a pause or of somebody's
patience, and a sweep are events that may happen at any moment. Nothing is decided twice: every step is `system.step`
on a state made for it, in which just that deadline is due and every other one far away; what the step left is then
looked at from afar again. `twin.pml` says the same in Promela, from the rules; SPIN must count what is counted here.

Left out besides the times: callbacks, try_acquire, a provider's own cooldown, a second provider. A plain bound sees
no difference between cooling and reclaimed, grants reach their callers at once, and no 429 comes during a pause.
"""

from __future__ import annotations

from collections.abc import Iterator, Set
from dataclasses import dataclass, replace
from functools import cache
from typing import Final, Literal, NamedTuple, TypeAlias, get_args

from provider_concurrency_spec.vocabulary import (
    Acquire,
    Cancel,
    Close,
    Config,
    Operation,
    RateLimited,
    Release,
    Resume,
    SetLimit,
)

from .state import Provider, Slot, State, queue_of
from .system import Elapse, FireDeadlines, Settle, Sweep, TimeStep, new, step

Phase: TypeAlias = Literal["idle", "queued", "handed", "held", "cooling", "reclaimed"]
"""handed: granted, but its caller, who waited, hasn't run yet (CAN-2)."""

PHASES: Final[tuple[Phase, ...]] = get_args(Phase)

_PATIENCE_MS: Final = 10
_NOW_MS: Final = 100
_FAR_MS: Final = 1_000_000
_PROVIDER: Final = "p"
_CONFIG: Final = Config(
    release_cooldown_ms=_FAR_MS,
    slot_timeout_ms=_PATIENCE_MS,
    watchdog_interval_ms=_PATIENCE_MS,
    default_pause_ms=_FAR_MS,
    min_pause_ms=0,
    max_pause_ms=2 * _FAR_MS,
)


@dataclass(frozen=True, slots=True)
class Bound:
    """How many requests there are, and what may happen to them."""

    requests: int
    limit: int
    """The first limit."""
    is_fifo: bool = False
    """All prompts equally old; else request 0 is the oldest, and so on."""
    is_detailed: bool = False
    """Also timeouts, grants on their way, reclaimed told from cooling, a 429 during a pause, resume, limits from 0 to
    one more, and close."""

    def __str__(self) -> str:
        """For a report."""
        order = "equally old" if self.is_fifo else "oldest first"
        return f"{self.requests} requests, limit {self.limit}, {order}{', detailed' if self.is_detailed else ''}"


class Tickets(NamedTuple):
    """Everything that is left of a state."""

    phases: tuple[Phase, ...]
    queue: tuple[int, ...]
    """Who waits, the head first."""
    limit: int
    paused: bool = False
    closed: bool = False


class Happening(NamedTuple):
    """An event: its name, and the request or limit that it is about."""

    name: str
    about: int = 0


Graph: TypeAlias = dict[Tickets, tuple[tuple[Happening, Tickets], ...]]


def happenings(bound: Bound, tickets: Tickets) -> Iterator[Happening]:
    """Everything that can happen in a state, what changes nothing (a second 429, the same limit) included."""
    is_open = not tickets.closed
    names: tuple[str, ...]
    for request, phase in enumerate(tickets.phases):
        match phase:
            case "idle":
                names = ("acquire",) if is_open else ()
            case "queued":
                names = ("cancel", "timeout") if bound.is_detailed else ("cancel",)
            case "handed":
                names = ("cancel", "sweep") if is_open else ("cancel",)
            case "held":
                names = ("release", "sweep") if is_open else ("release",)
            case "cooling" | "reclaimed":
                names = ("cooled",)
        for name in names:
            yield Happening(name, request)
    if is_open and (bound.is_detailed or not tickets.paused):
        yield Happening("rate_limited")
    if tickets.paused:
        yield Happening("pause_over")
    if bound.is_detailed:
        if "handed" in tickets.phases:
            yield Happening("loop_runs")
        if tickets.paused:
            yield Happening("resume")
        if is_open:
            for limit in range(bound.limit + 2):
                yield Happening("set_limit", limit)
            yield Happening("close")


def happen(bound: Bound, tickets: Tickets, happening: Happening) -> Tickets:
    """What the whole-system model makes of it."""
    state = make_state(bound, tickets)
    request = str(happening.about)
    taken: Operation | TimeStep
    match happening.name:
        case "acquire":
            taken = Acquire(_PROVIDER, request, None, 0 if bound.is_fifo else happening.about)
        case "cancel":
            taken = Cancel(request)
        case "release":
            taken = Release(request)
        case "timeout" | "cooled":
            state, taken = make_due(state, request), FireDeadlines()
        case "sweep":
            state, taken = make_silent(state, request), Sweep()
        case "rate_limited":
            taken = RateLimited(_PROVIDER, _FAR_MS)
        case "pause_over":
            providers = tuple(provider._replace(paused_until_ms=_NOW_MS) for provider in state.providers)
            state, taken = replace(state, providers=providers), FireDeadlines()
        case "resume":
            taken = Resume(_PROVIDER)
        case "set_limit":
            taken = SetLimit(_PROVIDER, happening.about)
        case "close":
            taken = Close()
        case _:
            taken = Settle()
    after, _ = step(state, taken)
    if not bound.is_detailed and any(not slot.is_delivered for slot in after.slots if slot.state == "held"):
        after, _ = step(after, Settle())
    return look_at(bound, after)


def make_due(state: State, request: str) -> State:
    """The same, one deadline now."""
    slots = tuple(slot._replace(deadline_ms=_NOW_MS) if slot.request == request else slot for slot in state.slots)
    return replace(state, slots=slots)


def make_silent(state: State, request: str) -> State:
    """The same, one held slot silent for longer than may be."""
    silent_ms = _NOW_MS - _PATIENCE_MS - 1
    slots = tuple(slot._replace(touched_ms=silent_ms) if slot.request == request else slot for slot in state.slots)
    return replace(state, slots=slots)


@cache
def first_state() -> State:
    """A manager that is new, and not at the beginning of time: somebody must have been silent before."""
    return step(new(_CONFIG), Elapse(_NOW_MS))[0]


def make_state(bound: Bound, tickets: Tickets) -> State:
    """A state of the whole system that looks like this, with every deadline far away."""
    arrivals = {request: place + 1 for place, request in enumerate(tickets.queue)}
    slots: list[Slot] = []
    for request, phase in enumerate(tickets.phases):
        if phase != "idle":
            slots.append(
                Slot(
                    request=str(request),
                    provider=_PROVIDER,
                    prompt_started_at=0 if bound.is_fifo else request,
                    arrival=arrivals.get(request, 0),
                    state="held" if phase == "handed" else phase,
                    deadline_ms=_FAR_MS if phase in ("cooling", "reclaimed") else None,
                    touched_ms=_NOW_MS,
                    is_delivered=phase not in ("queued", "handed"),
                    was_reclaimed=phase == "reclaimed",
                )
            )
    provider = Provider(_PROVIDER, tickets.limit, paused_until_ms=_FAR_MS if tickets.paused else None)
    return replace(
        first_state(), is_closed=tickets.closed, arrivals=len(tickets.queue), providers=(provider,), slots=tuple(slots)
    )


def look_at(bound: Bound, state: State) -> Tickets:
    """A state from afar."""
    phases: list[Phase] = ["idle"] * bound.requests
    for slot in state.slots:
        phases[int(slot.request)] = phase_of(bound, slot)
    provider = state.providers[0]
    assert provider.limit is not None
    return Tickets(
        tuple(phases),
        tuple(int(slot.request) for slot in queue_of(state.slots, _PROVIDER)),
        provider.limit,
        provider.paused_until_ms is not None,
        state.is_closed,
    )


def phase_of(bound: Bound, slot: Slot) -> Phase:
    """A live slot's phase."""
    match slot.state:
        case "queued" | "cooling":
            return slot.state
        case "held":
            return "held" if slot.is_delivered else "handed"
        case "reclaimed":
            return "reclaimed" if bound.is_detailed else "cooling"
        case _:
            raise AssertionError(f"{slot} has ended")


@cache
def enumerate_tickets(bound: Bound) -> Graph:
    """Every state within a bound, breadth first, with all that can happen in it."""
    idle: Phase = "idle"
    first = Tickets((idle,) * bound.requests, (), bound.limit)
    graph: Graph = {}
    waiting = [first]
    found = {first}
    for tickets in waiting:  # grows while it is read
        exits = tuple((happening, happen(bound, tickets, happening)) for happening in happenings(bound, tickets))
        graph[tickets] = exits
        for _, target in exits:
            if target not in found:
                found.add(target)
                waiting.append(target)
    return graph


# -- starvation ------------------------------------------------------------------------------------------------------


class Lasso(NamedTuple):
    """A way from the first state to a loop that can be gone round for ever."""

    way: tuple[Happening, ...]
    loop: tuple[Happening, ...]

    def __str__(self) -> str:
        """For a report."""
        way, loop = (", ".join(f"{name} {about}" for name, about in part) for part in self)
        return f"{way}, then for ever: {loop}"


def find_starvation(graph: Graph) -> Lasso | None:
    """A loop in which the youngest waits all the time while request 0 is held, goes, and is held again (ORD-3).

    Whatever is granted in the loop, it isn't paused then, so that pauses end again and again, too.
    """
    first = next(iter(graph))
    waiting = {tickets for tickets in graph if tickets.phases[-1] == "queued"}
    gone = {tickets for tickets in waiting if tickets.phases[0] == "idle"}
    for start in graph:
        if start in waiting and start.phases[0] == "held" and (away := find_way(graph, start, gone, waiting)):
            back = find_way(graph, away[-1][1], {start}, waiting)
            if back:
                way = find_way(graph, first, {start}, graph.keys())
                return Lasso(tuple(step[0] for step in way), tuple(step[0] for step in (*away, *back)))
    return None


def find_way(
    graph: Graph, start: Tickets, goals: Set[Tickets], allowed: Set[Tickets]
) -> tuple[tuple[Happening, Tickets], ...]:
    """The shortest way to one of the goals through allowed states, each step with where it leads; empty if none."""
    ways: dict[Tickets, tuple[tuple[Happening, Tickets], ...]] = {start: ()}
    for tickets in (waiting := [start]):  # grows while it is read
        for exit_ in graph[tickets]:
            target = exit_[1]
            if target in allowed and target not in ways:
                ways[target] = (*ways[tickets], exit_)
                if target in goals:
                    return ways[target]
                waiting.append(target)
    return ()
