"""What is explored: bounds, and the commands that they allow in a state.

A level is a question put to the manager, and its `Bounds` are the answer's small print: how many requests live at
once, which values the commands carry, how time passes. Everything within the bounds is tried, nothing outside.

* `settled`: one operation, then the loop runs; time goes from deadline to deadline.
* `burst`: two operations without the loop in between, hooks among them.
* `timed`: small digital clocks; time goes by one, and to one before, at and after each deadline; sweeps and touches.
* `late`: the loop is blocked past one deadline, or past several.
* `resize`: limits, cooldowns, a default limit, a bounded queue.
* `two`: two providers, which must not touch each other.
* `nested`, `nested-raise`: conversations inside conversations, which wait for themselves or are refused.

Commands name requests by place: "0", "1", ... are the live ones in the order of a canonical state, "-" the last one
that ended, "+1" and "+2" new ones. A release or touch of a grant that is not delivered is never among them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Literal, TypeAlias

from provider_concurrency_spec.vocabulary import (
    FEATURES,
    Acquire,
    Advance,
    Cancel,
    Close,
    Command,
    Config,
    Do,
    Feature,
    Hook,
    Inspect,
    Operation,
    RateLimited,
    Raw,
    Release,
    RemoveLimit,
    Resume,
    SetCooldown,
    SetLimit,
    Stall,
    Touch,
    TryAcquire,
    WallClock,
)

from .state import State, find_provider
from .system import step

LAST_ENDED: Final = "-"
"""The name of the request that ended last."""

Kin: TypeAlias = tuple[str | None, tuple[str, ...]]

Clock: TypeAlias = Literal["deadline", "ticks", "late"]


KIN: Final[tuple[Kin, ...]] = (("a", ("a",)), ("b", ("a", "b")), ("a", ("b", "a")), (None, ("a", "b")))
"""An outermost one, one inside it, the two the other way round, and one that doesn't say whose its slot is."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a level explores; printed with its counts, because a proof within bounds is one with its bounds told."""

    level: str
    config: Config
    live: int
    """How many requests are alive at once."""
    prompts: tuple[int, ...]
    """The values of prompt_started_at."""
    timeouts: tuple[int | None, ...]
    """The values of an acquire's timeout."""
    retries: tuple[Raw, ...]
    """The values of retry_after."""
    setup: tuple[Command, ...]
    """What comes after `new` and before the first state; its requests are named r0."""
    clock: Clock = "deadline"
    providers: tuple[str, ...] = ("p",)
    limits: tuple[Raw, ...] = ()
    """The values of set_limit; with any, remove_limit is tried, too."""
    cooldowns: tuple[Raw, ...] = ()
    """The values of set_cooldown."""
    burst: int = 1
    """How many operations a `Do` has."""
    tries: bool = False
    """Whether try_acquire is tried."""
    touches: bool = False
    """Whether touch is tried."""
    ghosts: bool = False
    """Whether the request that ended last is released, touched, cancelled and inspected again."""
    hooks: bool = False
    """Whether callbacks call back."""
    kin: tuple[Kin, ...] = ((None, ()),)
    """Who asks: a conversation, and the path of the blocks around it."""
    features: frozenset[Feature] = frozenset(FEATURES)
    """Commands that need another feature are left out."""


LEVELS: Final[Mapping[str, Bounds]] = MappingProxyType(
    {
        bounds.level: bounds
        for bounds in (
            Bounds(
                level="settled",
                config=Config(20, None, 50, 20, 0, 100, None, None),
                live=4,
                prompts=(1, 2),
                timeouts=(None, 0, 20),
                retries=(None,),
                setup=(Do((SetLimit("p", 2), Acquire("p", "r0", None, 1), Release("r0"))), Advance(20)),
                tries=True,
                ghosts=True,
            ),
            Bounds(
                level="burst",
                config=Config(20, None, 50, 20, 0, 100, None, None),
                live=3,
                prompts=(1, 2),
                timeouts=(None,),
                retries=(None,),
                setup=(Do((SetLimit("p", 1),)),),
                limits=(1, 2),
                burst=2,
                hooks=True,
            ),
            Bounds(
                level="timed",
                config=Config(2, 1, 2, 2, 0, 4, None, None),
                live=3,
                prompts=(1,),
                timeouts=(None, 2),
                retries=(3, 1),
                setup=(Do((SetLimit("p", 2),)),),
                clock="ticks",
                touches=True,
            ),
            Bounds(
                level="late",
                config=Config(2, 1, 2, 2, 0, 4, None, None),
                live=3,
                prompts=(1,),
                timeouts=(1, 3),
                retries=(3,),
                setup=(Do((SetLimit("p", 1),)),),
                clock="late",
            ),
            Bounds(
                level="resize",
                config=Config(20, None, 50, 20, 0, 100, 2, 1),
                live=3,
                prompts=(1,),
                timeouts=(None,),
                retries=(20,),
                setup=(),
                limits=(0, 1, 2, 1.5),
                cooldowns=(0, 40, None),
            ),
            Bounds(
                level="two",
                config=Config(20, None, 50, 20, 0, 100, None, None),
                live=4,
                prompts=(1,),
                timeouts=(None,),
                retries=(20, 40),
                setup=(Do((SetLimit("p", 1), SetLimit("q", 1))),),
                providers=("p", "q"),
            ),
            Bounds(
                level="nested",
                config=Config(20, None, 50, 20, 0, 100, None, None, "queue"),
                live=3,
                prompts=(1,),
                timeouts=(None,),
                retries=(),
                setup=(Do((SetLimit("p", 2),)),),
                limits=(0, 2),
                kin=KIN,
            ),
            Bounds(
                level="nested-raise",
                config=Config(20, None, 50, 20, 0, 100, 2, None, "raise"),
                live=3,
                prompts=(1,),
                timeouts=(None, 0),
                retries=(),
                setup=(Do((SetLimit("p", 2),)),),
                limits=(0, 2),
                kin=KIN,
            ),
        )
    }
)
"""The bounds that `check` drives, by level; the levels `scenarios` and `random` have none."""


def commands(bounds: Bounds, state: State) -> Iterator[Command]:
    """Every command that the bounds allow in a canonical state, in a fixed order."""
    if bounds.burst == 1:
        for operation in operations(bounds, state, fresh="+1"):
            yield Do((operation,))
    else:
        yield from bursts(bounds, state)
    yield from time_commands(bounds, state)


def bursts(bounds: Bounds, state: State) -> Iterator[Do]:
    """Two operations without the loop in between, and hooks with what calls them."""
    for first in operations(bounds, state, fresh="+1"):
        between, _ = step(state, first)
        for second in operations(bounds, between, fresh="+2"):
            yield Do((first, second))
    if bounds.hooks and allowed(bounds, Hook("queued", "p")):
        yield from hooked(bounds, state)


def hooked(bounds: Bounds, state: State) -> Iterator[Do]:
    """A callback that calls back, or throws, and the operation that is sure to call it (CAL-1..4)."""
    name = bounds.providers[0]
    provider = find_provider(state, name)
    if state.is_closed:
        return
    answers: list[tuple[Operation, ...]] = [(), (Close(),), (Resume(name),), (RemoveLimit(name),)]
    answers += [(Release(slot.request),) for slot in state.slots if slot.state == "held"]
    answers += [(Cancel(slot.request),) for slot in state.slots if slot.state == "queued"]
    newcomer = Acquire(name, "+1", None, bounds.prompts[0])
    queues = any(slot.request == "+1" and slot.state == "queued" for slot in step(state, newcomer)[0].slots)
    for answer in answers:
        if not all(allowed(bounds, operation) for operation in answer):
            continue
        throw = not answer
        if queues and len(state.slots) < bounds.live:
            yield Do((Hook("queued", name, answer, throw), newcomer))
        if provider.paused_until_ms is None:
            yield Do((Hook("paused", name, answer, throw), RateLimited(name, bounds.retries[0])))


def operations(bounds: Bounds, state: State, fresh: str) -> Iterator[Operation]:
    """Every single operation; `fresh` is the name of a new request."""
    for operation in every_operation(bounds, state, fresh):
        if allowed(bounds, operation):
            yield operation


def every_operation(bounds: Bounds, state: State, fresh: str) -> Iterator[Operation]:
    """Every single operation, whatever features it needs."""
    for name in bounds.providers:
        yield from requests(bounds, state, name, fresh)
        for retry in bounds.retries:
            yield RateLimited(name, retry)
        if state.is_closed or find_provider(state, name).paused_until_ms is not None:
            yield Resume(name)
        for limit in bounds.limits:
            yield SetLimit(name, limit)
        if bounds.limits:
            yield RemoveLimit(name)
        for cooldown in bounds.cooldowns:
            yield SetCooldown(name, cooldown)
    for slot in state.slots:
        yield Cancel(slot.request)
        if slot.state != "held" or slot.is_delivered:
            yield Release(slot.request)
            if bounds.touches:
                yield Touch(slot.request)
    if bounds.ghosts and state.ended:
        ended = state.ended[-1].request
        yield from (Release(ended), Cancel(ended), Touch(ended), Inspect(ended))
    yield Close()


def requests(bounds: Bounds, state: State, name: str, fresh: str) -> Iterator[Operation]:
    """Each kind of acquire, as long as the number of live requests stays within the bounds."""
    for prompt in bounds.prompts:
        for timeout_ms in bounds.timeouts:
            for conversation, path in bounds.kin:
                operation = Acquire(name, fresh, conversation, prompt, timeout_ms, path)
                if stays_within(bounds, state, operation):
                    yield operation
    if bounds.tries:
        attempt = TryAcquire(name, fresh, None, bounds.prompts[0])
        if stays_within(bounds, state, attempt):
            yield attempt


def stays_within(bounds: Bounds, state: State, operation: Acquire | TryAcquire) -> bool:
    """Whether no more than `live` requests live after a request; above, only those that find no place are tried."""
    return len(state.slots) < bounds.live or len(step(state, operation)[0].slots) <= bounds.live


def time_commands(bounds: Bounds, state: State) -> Iterator[Command]:
    """How time passes in a level."""
    dues = due_in(state)
    match bounds.clock:
        case "deadline":
            if dues:
                yield Advance(dues[0])
        case "ticks":
            around = {1} | {due + offset for due in dues for offset in (-1, 0, 1)}
            for ms in sorted(around - {0}):
                yield Advance(ms)
        case "late":
            yield Advance(1)
            if "stall" in bounds.features:
                for ms in sorted({due + offset for due in dues for offset in (0, 1)}):
                    yield Stall(ms)


def due_in(state: State) -> list[int]:
    """How far away each deadline is, and the sweep that reclaims each held slot if nobody touches it."""
    if state.is_closed:
        return []
    now_ms = state.now_ms
    dues = {slot.deadline_ms - now_ms for slot in state.slots if slot.deadline_ms is not None}
    dues |= {item.paused_until_ms - now_ms for item in state.providers if item.paused_until_ms is not None}
    timeout_ms, interval_ms = state.settings.slot_timeout_ms, state.settings.watchdog_interval_ms
    if timeout_ms is not None:
        for slot in state.slots:
            if slot.state == "held":
                sweep_ms = (max(slot.touched_ms + timeout_ms, now_ms) // interval_ms + 1) * interval_ms
                dues.add(sweep_ms - now_ms)
    return sorted(dues)


def features_of(operation: Operation) -> frozenset[Feature]:
    """The optional features that a subject needs for an operation."""
    match operation:
        case Acquire(timeout_ms=None, path=()) | Release() | SetLimit() | RemoveLimit() | RateLimited() | Close():
            return frozenset()
        case Acquire():
            asked: set[Feature] = set() if operation.timeout_ms is None else {"timeout"}
            if operation.path:
                asked.add("nesting")
            return frozenset(asked)
        case TryAcquire():
            return frozenset({"try_acquire"})
        case Cancel():
            return frozenset({"cancel"})
        case Touch():
            return frozenset({"touch"})
        case Inspect():
            return frozenset({"inspect"})
        case Resume():
            return frozenset({"resume"})
        case SetCooldown():
            return frozenset({"set_cooldown"})
        case WallClock():
            return frozenset({"wall_clock"})
        case Hook():
            needed: set[Feature] = {"hooks"}
            return frozenset(needed.union(*[features_of(inner) for inner in operation.do]))


def allowed(bounds: Bounds, operation: Operation) -> bool:
    """Whether the subject has the features that an operation needs."""
    return len(bounds.features) == len(FEATURES) or features_of(operation) <= bounds.features
