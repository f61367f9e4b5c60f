"""Random walks through the model, for what no bounds hold: many providers, odd values, long bursts, nested callbacks.

The model is walked while the commands are made, so that most of them do something: a release names a slot that is
held, time goes to one before, at or after a deadline. The same seed gives the same run on every Python.

Left out on purpose is what the rules leave open (see `system`): releases and touches of undelivered grants, two armed
hooks for the same callback, refusals inside hooks, whatever follows a called callback in its burst, acquires that may
queue inside hooks while on_queued hooks are about, and reclaim hooks that reach for another provider.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

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
    HookPoint,
    Inspect,
    Operation,
    RateLimited,
    Raw,
    Refused,
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

from .levels import due_in, features_of
from .state import Slot, State
from .system import new, run, step

T = TypeVar("T")

PROVIDERS: Final = ("p", "p", "p", "q", "q", "umans", "")
PROMPTS: Final[tuple[Raw, ...]] = (1, 1, 2, 3, 5, 8, 0, -1, -0.5, 2.5, 1764547200.25, 2**53 - 1)
BAD_PROMPTS: Final[tuple[Raw, ...]] = ("NaN", "Infinity", "-Infinity", True, "5")
TIMEOUTS: Final[tuple[Raw, ...]] = (None, None, None, 0, 1, 2, 5, 20, 200, 201, 10**12)
BAD_TIMEOUTS: Final[tuple[Raw, ...]] = (-1, "NaN", "Infinity", True, 10**12 + 1)
LIMITS: Final[tuple[Raw, ...]] = (0, 1, 1, 2, 2, 3, 5)
BAD_LIMITS: Final[tuple[Raw, ...]] = (-1, 1.5, "NaN", "Infinity", True, None)
COOLDOWNS: Final[tuple[Raw, ...]] = (None, 0, 1, 7, 200)
BAD_COOLDOWNS: Final[tuple[Raw, ...]] = (-1, "NaN", "Infinity", True, 10**12 + 1)
RETRIES: Final[tuple[Raw, ...]] = (None, None, 0, 1, 2, 10, 11, 300, -1, "NaN", "Infinity", "-Infinity", True, "soon")

PATHS: Final[tuple[tuple[str, ...], ...]] = ((), (), ("c1",), ("c1", "c2"), ("c2", "c1"), ("c1", "", "c3"), ("c2",) * 2)

LONGEST_ADVANCE_MS: Final = 5_000
"""Longer waits are stalls: an advance fires every sweep on its way."""


def random_config(rng: random.Random, features: frozenset[Feature]) -> Config:
    """A valid configuration with short times, so that everything happens within a few commands."""
    default_pause = rng.choice((4, 10, 100))
    return Config(
        release_cooldown_ms=rng.choice((0, 1, 5, 200)),
        slot_timeout_ms=rng.choice((None, 3, 10, 500)),
        watchdog_interval_ms=rng.choice((4, 7, 250)),
        default_pause_ms=default_pause,
        min_pause_ms=rng.choice((0, 0, 3)),
        max_pause_ms=rng.choice((default_pause, 150, 21_600_000)),
        max_queued=rng.choice((None, None, 0, 1, 3)) if "max_queued" in features else None,
        default_limit=rng.choice((None, None, 0, 1, 2)) if "default_limit" in features else None,
        nested=rng.choice((None, "queue", "raise")) if "nesting" in features else None,
    )


def random_run(
    seed: int, length: int, features: frozenset[Feature] = frozenset(FEATURES)
) -> tuple[Config, tuple[Command, ...]]:
    """A configuration and `length` commands after its `new`, for a subject with these features."""
    rng = random.Random(seed)
    config = random_config(rng, features)
    maker = Maker(rng, features, new(config))
    commands: list[Command] = []
    while len(commands) < length:
        maker.may_close = len(commands) > length * 0.9
        command = maker.command()
        state, reply = run(maker.state, command)
        is_called = uses_left(maker.state) + uses_armed(command) != uses_left(state)
        if is_called and any(isinstance(event, Refused) for event in reply.events):
            continue
        maker.state = state
        commands.append(command)
    return config, tuple(commands)


def uses_left(state: State) -> int:
    """How often armed hooks will still run."""
    return sum(armed.times for armed in state.hooks)


def uses_armed(command: Command) -> int:
    """How often the hooks that a command arms will run."""
    return sum(item.times for item in command.ops if isinstance(item, Hook)) if isinstance(command, Do) else 0


@dataclass(slots=True)
class Maker:
    """Makes one command after another for the state at hand."""

    rng: random.Random
    features: frozenset[Feature]
    state: State
    may_close: bool = False
    used: int = 0

    def pick(self, values: Sequence[T]) -> T:
        """One of some values."""
        return values[self.rng.randrange(len(values))]

    def chance(self, probability: float) -> bool:
        """Whether something happens."""
        return self.rng.random() < probability

    def name(self) -> str:
        """The name of a new request."""
        self.used += 1
        return f"r{self.used}"

    def command(self) -> Command:
        """A burst, or a step of time that ends around a deadline."""
        if self.chance(0.7):
            return Do(tuple(self.burst()))
        dues = due_in(self.state) or [self.rng.randrange(1, 300)]
        ms = max(0, self.pick(dues[:3] if self.chance(0.7) else dues) + self.pick((-1, 0, 0, 1)))
        if "stall" in self.features and (self.chance(0.3) or ms > LONGEST_ADVANCE_MS):
            return Stall(ms)
        return Advance(min(ms, LONGEST_ADVANCE_MS))

    def burst(self) -> list[Operation]:
        """One to five operations; the loop doesn't run in between, so each is made for the state before it."""
        operations: list[Operation] = []
        state = self.state
        for _ in range(self.pick((1, 1, 1, 2, 2, 3, 5))):
            operation = self.operation(state)
            if features_of(operation) <= self.features:
                operations.append(operation)
                after, _ = step(state, operation)
                if uses_left(after) < uses_left(state):
                    break
                state = after
        return operations

    def operation(self, state: State) -> Operation:
        """An operation that mostly does something."""
        held = [slot for slot in state.slots if slot.state == "held" and slot.is_delivered]
        if self.may_close and self.chance(0.1):
            return Close()
        lot = self.rng.random()
        if lot < 0.34:
            return self.request(state)
        if lot < 0.56 and held:
            return Release(self.pick(held).request)
        if lot < 0.66 and state.slots:
            return Cancel(self.pick(state.slots).request)
        if lot < 0.70 and held:
            return Touch(self.pick(held).request)
        if lot < 0.74:
            return self.repeated(state)
        if lot < 0.78:
            return Inspect(self.pick([*state.slots, *state.ended[-8:]]).request if state.slots else "nobody")
        if lot < 0.82:
            return self.hook(state, held)
        if lot < 0.83:
            return WallClock(self.pick((-3_600_000, 3_600_000)))
        return self.setting()

    def request(self, state: State) -> Operation:
        """An acquire, now and then with a value that is refused."""
        provider = self.pick(PROVIDERS)
        conversation = self.pick((None, "c1", "c2", ""))
        path = self.path(state, provider)
        if path and self.chance(0.6):
            conversation = path[-1]
        prompt = self.pick(BAD_PROMPTS if self.chance(0.03) else PROMPTS)
        if self.chance(0.1):
            return TryAcquire(provider, self.name(), conversation, prompt)
        timeout_ms = self.pick(BAD_TIMEOUTS if self.chance(0.03) else TIMEOUTS)
        return Acquire(provider, self.name(), conversation, prompt, timeout_ms, path)

    def path(self, state: State, provider: str) -> tuple[str, ...]:
        """Where NST-1 is asked for, the blocks around an acquire: often those of all who hold."""
        if state.settings.nested is None:
            return ()
        if self.chance(0.5):
            return self.pick(PATHS)
        held = [slot.conversation for slot in state.slots if slot.provider == provider and slot.state == "held"]
        return (*dict.fromkeys(each for each in held if each is not None), "c3")

    def repeated(self, state: State) -> Operation:
        """Something on a request that is past it, or unknown: nothing happens (ACC-2)."""
        past = [slot.request for slot in state.slots if slot.state in ("queued", "cooling", "reclaimed")]
        past += [slot.request for slot in state.ended[-4:]]
        request = self.pick(past) if past else "nobody"
        return Release(request) if self.chance(0.5) else Touch(request)

    def setting(self) -> Operation:
        """A change of what is configured, or of a pause."""
        provider = self.pick(PROVIDERS)
        is_bad = self.chance(0.1)
        settings: tuple[Operation, ...] = (
            SetLimit(provider, self.pick(BAD_LIMITS if is_bad else LIMITS)),
            SetLimit(provider, self.pick(LIMITS)),
            RemoveLimit(provider),
            SetCooldown(provider, self.pick(BAD_COOLDOWNS if is_bad else COOLDOWNS)),
            RateLimited(provider, self.pick(RETRIES)),
            RateLimited(provider, self.pick(RETRIES)),
            Resume(provider),
        )
        return self.pick(settings)

    def hook(self, state: State, held: list[Slot]) -> Operation:
        """A callback that calls back, or throws, or both."""
        points: tuple[HookPoint, ...] = ("queued", "paused", "reclaimed")
        on, provider = self.pick(points), self.pick(PROVIDERS)
        own = [slot for slot in held if slot.provider == provider or on != "reclaimed"]
        answers: list[Operation] = [RateLimited(provider, self.pick(RETRIES)), Resume(provider), RemoveLimit(provider)]
        answers += [SetLimit(provider, self.pick(LIMITS)), Acquire(provider, self.name(), None, self.pick(PROMPTS), 0)]
        answers.append(Acquire(provider, self.name(), "c3", self.pick(PROMPTS), None, self.path(state, provider)))
        answers += [Release(slot.request) for slot in own]
        answers += [Touch(slot.request) for slot in own[:1]]
        answers += [
            Cancel(slot.request) for slot in state.slots if slot.state == "queued" and slot.provider == provider
        ]
        do = self.rng.sample(answers, k=min(len(answers), self.pick((0, 1, 1, 2, 3))))
        # A hook that asks for slots runs once: a request's name is never used twice.
        asks = any(isinstance(op, Acquire | TryAcquire) for op in do)
        return Hook(on, provider, tuple(do), throw=self.chance(0.3), times=1 if asks else self.pick((1, 1, 2)))
