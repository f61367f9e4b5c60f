"""The kernel: its contracts on all small counts, and that it is what the whole-system model does on every edge."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from itertools import product
from types import CodeType

import pytest

from provider_concurrency_model import kernel
from provider_concurrency_model.graph import explore
from provider_concurrency_model.kernel import NO_LIMIT, RESIZES, STEPS, Counts
from provider_concurrency_model.levels import LEVELS
from provider_concurrency_model.state import State, find_provider, limit_in_force
from provider_concurrency_model.system import Settle, run, step
from provider_concurrency_spec.vocabulary import (
    Close,
    Command,
    Do,
    Event,
    Paused,
    Refused,
    RemoveLimit,
    Resumed,
    SetLimit,
    SlotEvent,
    SlotShown,
)

pytestmark = pytest.mark.long

LIMITS = (NO_LIMIT, 0, 1, 2, 3)
SMALL = [
    Counts(*numbers, *flags)
    for numbers in product(LIMITS, range(4), range(3), range(3), range(4))
    for flags in product((False, True), repeat=2)
]


@cache
def contract(step: Callable[..., object], kind: str) -> tuple[CodeType, ...]:
    """The `pre` or `post` lines of a function."""
    lines = [line.strip() for line in (step.__doc__ or "").splitlines()]
    head = f"{kind}: "
    return tuple(compile(line.removeprefix(head), head, "eval") for line in lines if line.startswith(head))


def holds(lines: tuple[CodeType, ...], **names: object) -> bool:
    return all(eval(line, vars(kernel), names) for line in lines)


# -- contracts -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*STEPS, "spare", "admit"])
def test_a_step_keeps_its_contract_on_all_small_counts(name: str) -> None:
    function = getattr(kernel, name)
    tried = 0
    for counts in SMALL:
        if holds(contract(function, "pre"), counts=counts):
            tried += 1
            assert holds(contract(function, "post"), counts=counts, __return__=function(counts)), counts
    assert tried > 50


@pytest.mark.parametrize("name", [*RESIZES])
def test_a_resize_keeps_its_contract_on_all_small_counts(name: str) -> None:
    function = RESIZES[name]
    told = function.__code__.co_varnames[1]
    tried = 0
    for counts, limit in product(SMALL, LIMITS):
        names = {"counts": counts, told: limit}
        if holds(contract(function, "pre"), **names):
            tried += 1
            assert holds(contract(function, "post"), **names, __return__=function(counts, limit)), names
    assert tried > 1000


def test_a_sum_is_the_admission_loop() -> None:
    for counts in filter(kernel.is_sound, SMALL):
        looped = counts
        while looped.queued and kernel.is_granting(looped):
            looped = kernel.grant(looped)
        assert kernel.admit(counts) == looped


def test_a_newcomer_always_has_exactly_one_step() -> None:
    for counts in filter(kernel.is_settled, SMALL):
        possible = [name for name in ("take", "queue") if holds(contract(STEPS[name], "pre"), counts=counts)]
        assert len(possible) == (0 if counts.closed else 1), counts


def test_the_kernel_does_not_change_what_it_is_given() -> None:
    counts = Counts(2, 1, 0, 0, 1, True, False)
    kernel.resume(counts)
    assert counts == Counts(2, 1, 0, 0, 1, True, False)


# -- refinement ------------------------------------------------------------------------------------------------------
# An edge of the whole-system model is told by its events. Each of them, read as a step of the kernel, must be one that
# its contract allows there, must be followed by as many grants as the kernel admits, and all together must lead to the
# counts of the state after. A limit's change and close have no events; their place is where the operation is.


def abstract(state: State, name: str) -> Counts:
    """A provider's counts; who they are is forgotten."""
    states = [slot.state for slot in state.slots if slot.provider == name]
    limit = limit_in_force(state.settings, find_provider(state, name))
    return Counts(
        limit=NO_LIMIT if limit is None else limit,
        held=states.count("held"),
        cooling=states.count("cooling"),
        reclaimed=states.count("reclaimed"),
        queued=states.count("queued"),
        paused=find_provider(state, name).paused_until_ms is not None,
        closed=state.is_closed,
    )


class MismatchError(AssertionError):
    """The events aren't the kernel's."""


class Reading:
    """Reads one provider's events as the kernel's steps."""

    def __init__(self, before: State, name: str, events: tuple[Event, ...]) -> None:
        self.name = name
        self.default = NO_LIMIT if before.settings.default_limit is None else before.settings.default_limit
        self.counts = abstract(before, name)
        self.states = {slot.request: str(slot.state) for slot in before.slots}
        self.events = [event for event in events if getattr(event, "provider", name) == name]
        self.at = 0

    def copy(self) -> Reading:
        other = object.__new__(Reading)
        vars(other).update(vars(self))
        other.states = dict(self.states)
        return other

    def take(self, name: str, *extra: int) -> None:
        """One step, and the grants that it makes."""
        function: Callable[..., Counts] = {**STEPS, **RESIZES}[name]
        names = dict(zip(function.__code__.co_varnames, (self.counts, *extra), strict=False))
        if not holds(contract(function, "pre"), **names):
            raise MismatchError(f"{name} isn't possible at {self.counts}")
        before, self.counts = self.counts, function(self.counts, *extra)
        if name not in ("queue", "cancel", "timeout", "close"):
            for _ in range(before.queued - self.counts.queued):
                self.expect("granted", "queued", "held")

    def expect(self, kind: str, state: str, target: str) -> None:
        """The next event must be this one, of a request in this state."""
        event = self.events[self.at] if self.at < len(self.events) else None
        if not isinstance(event, SlotEvent) or (event.event, self.states.get(event.request)) != (kind, state):
            raise MismatchError(f"{kind} of a {state} slot is missing, there is {event}")
        self.states[event.request] = target
        self.at += 1

    def read(self) -> None:
        """The next event."""
        event = self.events[self.at]
        self.at += 1
        match event:
            case Paused():
                self.take("pause")
            case Resumed():
                self.take("resume")
            case SlotEvent():
                self.read_slot(event)
            case Refused() | SlotShown():
                pass

    def read_slot(self, event: SlotEvent) -> None:
        state = self.states.get(event.request, "new")
        was_closed = self.counts.closed
        match event.event, state:
            case "timed_out", "new":  # CAN-3: with timeout 0, where it can't be granted
                if kernel.is_granting(self.counts) and not self.counts.queued:
                    raise MismatchError(f"{event} beside room at {self.counts}")
                return
            case ("granted", "new"):
                self.states[event.request], name = "held", "take"
            case ("queued", "new"):
                self.states[event.request], name = "queued", "queue"
            case ("cancelled", "queued"):
                self.states[event.request], name = "ended", "cancel"
            case ("timed_out", "queued"):
                self.states[event.request], name = "ended", "timeout"
            case ("cancelled", "held"):
                self.states[event.request], name = "ended", "give_back"
            case ("released", "held"):
                self.states[event.request], name = "cooling", "release"
            case ("reclaimed", "held"):
                self.states[event.request], name = "reclaimed", "reclaim"
            case ("recycled", "cooling"):
                self.states[event.request], name = "ended", "recycle"
            case ("recycled", "reclaimed"):
                self.states[event.request], name = "ended", "recycle_reclaimed"
            case _:
                raise MismatchError(f"{event} of a {state} slot at {self.counts}")
        self.take(name)
        if name == "release" and was_closed:
            self.expect("recycled", "cooling", "ended")

    def silently(self, operation: object) -> None:
        """A step without an event of its own."""
        match operation:
            case SetLimit(provider, limit):
                if provider == self.name:
                    if type(limit) is not int:
                        raise MismatchError(f"{operation} must be refused")
                    self.take("set_limit", limit)
            case RemoveLimit(provider):
                if provider == self.name:
                    self.take("remove_limit", self.default)
            case _:
                before = self.counts
                self.take("close")
                for _ in range(before.queued):
                    self.expect("rejected", "queued", "ended")
                for _ in range(before.cooling + before.reclaimed):
                    event = self.events[self.at] if self.at < len(self.events) else None
                    request = event.request if isinstance(event, SlotEvent) else ""
                    self.expect("recycled", self.states.get(request, "cooling"), "ended")


def explains(reading: Reading, silent: tuple[tuple[object, bool], ...], after: Counts) -> str:
    """Why the events, with the silent steps in their order somewhere between, aren't the kernel's; empty if they are.

    The second of each silent pair: whether it must happen (an operation does, a callback may not be called).
    """
    if reading.at == len(reading.events) and not any(must for _, must in silent):
        if reading.counts == after:
            return ""
        if not silent:
            return f"{reading.counts} is read, {after} is there"
    reason = "an operation without effect"
    attempts: list[tuple[Callable[[Reading], None], tuple[tuple[object, bool], ...]]] = []
    if silent:
        (operation, must), *rest = silent
        attempts.append((lambda trial: trial.silently(operation), tuple(rest)))
        if not must:
            attempts.append((lambda _: None, tuple(rest)))
    if reading.at < len(reading.events):
        attempts.append((Reading.read, silent))
    for attempt, left in attempts:
        trial = reading.copy()
        try:
            attempt(trial)
        except MismatchError as mismatch:
            reason = str(mismatch)
            continue
        reason = explains(trial, left, after)
        if not reason:
            return ""
    return reason


def parts(
    before: State, command: Command
) -> Iterator[tuple[State, tuple[Event, ...], tuple[tuple[object, bool], ...], State]]:
    """A command cut at its operations: the state before, the events, what is done silently, the state after."""
    if not isinstance(command, Do):
        after, reply = run(before, command)
        yield before, reply.events, (), after
        return
    state = before
    for index, operation in enumerate(command.ops):
        after, events = step(state, operation, index)
        silent: list[tuple[object, bool]] = []
        is_refused = any(isinstance(event, Refused) for event in events)
        if isinstance(operation, SetLimit | RemoveLimit | Close) and not is_refused:
            silent.append((operation, not (isinstance(operation, Close) and state.is_closed)))
        for armed in state.hooks:
            silent += [(inner, False) for inner in armed.hook.do if isinstance(inner, SetLimit | RemoveLimit | Close)]
        yield state, events, tuple(silent), after
        state = after
    yield state, (), (), step(state, Settle())[0]


@pytest.mark.parametrize("level", LEVELS)
def test_every_edge_of_the_model_is_what_the_kernel_does(level: str) -> None:
    bounds = LEVELS[level]
    graph = explore(bounds)
    steps = 0
    for edge in graph.edges:
        for before, events, silent, after in parts(graph.states[edge.source], edge.command):
            for name in bounds.providers:
                reason = explains(Reading(before, name, events), silent, abstract(after, name))
                assert not reason, (edge.command, before, events, reason)
                steps += 1
    assert steps >= len(graph.edges) > 4000


def test_the_refinement_notices_what_is_not_so() -> None:
    bounds = LEVELS["settled"]
    graph = explore(bounds)
    noticed = 0
    for edge in graph.edges[:2000]:
        for before, events, silent, after in parts(graph.states[edge.source], edge.command):
            counts = abstract(after, "p")
            for wrong in (replace(counts, queued=counts.queued + 1), replace(counts, paused=not counts.paused)):
                assert explains(Reading(before, "p", events), silent, wrong)
            if events and isinstance(events[-1], SlotEvent) and events[-1].event == "granted":
                assert explains(Reading(before, "p", events[:-1]), silent, counts)
                noticed += 1
    assert noticed > 100
