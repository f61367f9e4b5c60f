"""The soak's clients: what real callers do to a manager, all of it at random, and what must hold after each step.

Every client knows what it holds, so the counts of the manager are checked against those of its users, not only
against themselves. `check_rest` is called whenever no operation is running, which on an event loop is whenever one of
these clients has the floor.
"""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from provider_concurrency_model.check.managers import ManagerLike, SlotLike, StatusLike

_DEFAULT_LIMIT: Final = 6

SETTINGS: Final[dict[str, Any]] = {
    "limits": {"narrow": 1, "few": 3, "many": 12},
    "default_limit": _DEFAULT_LIMIT,
    "release_cooldown": 0.004,
    "slot_timeout": 0.6,
    "watchdog_interval": 0.15,
    "default_pause": 0.05,
    "min_pause": 0.01,
    "max_pause": 0.25,
}
"""The manager's keywords in a soak: everything happens often in a few seconds."""

PROVIDERS: Final[Mapping[str, int]] = {"narrow": 10, "few": 20, "many": 45, "default": 25}
"""Providers, with the share of the clients that each has in per cent; `default` has the manager's default limit."""

_PATIENCE: Final = 0.05
_SERVICE: Final = 0.008
"""Mean seconds that a slot is held."""


@dataclass(slots=True)
class Ceiling:
    """ADM-6: what in_flight may be at most; a lowered limit is reached from above, step by step, never left again."""

    limit: int
    highest: int
    """The highest limit that was ever in force."""
    allowed: int

    def change(self, limit: int, in_flight: int) -> None:
        """Another limit is in force."""
        self.limit = limit
        self.highest = max(self.highest, limit)
        self.allowed = max(limit, in_flight)

    def sink(self, in_flight: int) -> None:
        """What was given up above the limit doesn't come back."""
        self.allowed = max(self.limit, min(self.allowed, in_flight))


@dataclass(slots=True)
class Workload:
    """The clients of one manager and their books."""

    manager: ManagerLike
    rng: random.Random
    until: float
    """`loop.time()` at which the clients stop."""
    violations: list[str] = field(default_factory=list[str])
    rests: int = 0
    ceilings: dict[str, Ceiling] = field(default_factory=dict[str, Ceiling])
    own_limits: dict[str, int] = field(default_factory=lambda: dict(SETTINGS["limits"]))
    holders: dict[str, set[SlotLike]] = field(default_factory=lambda: {name: set() for name in PROVIDERS})
    stuck: list[SlotLike] = field(default_factory=list[SlotLike])
    cancellations: int = 0
    timeouts: int = 0

    def __post_init__(self) -> None:
        """The limits that are in force at the start."""
        for name in PROVIDERS:
            limit = self.own_limits.get(name, _DEFAULT_LIMIT)
            self.ceilings[name] = Ceiling(limit, limit, limit)

    def require(self, condition: bool, told: str) -> None:
        """Notes a violation; the run goes on, so that the report shows whether it was the only one."""
        if not condition and len(self.violations) < 100:
            self.violations.append(told)

    # -- what holds at every rest ------------------------------------------------------------------------------------

    def check_rest(self, name: str) -> None:
        """The standing invariants, read from one status."""
        self.rests += 1
        status = self.manager.get_status(name)
        held = [slot for slot in self.holders[name] if not slot.reclaimed]
        if status is None:
            self.require(not held, f"ACC-3: {name} has no status, but {len(held)} hold a slot")
            self.require(name not in self.own_limits, f"ACC-3: {name} has no status, but a limit")
            return
        self._check_counts(name, status, len(held))
        ceiling = self.ceilings[name]
        self.require(
            status.in_flight <= ceiling.allowed,
            f"ADM-6: {name} has {status.in_flight} in flight, {ceiling.allowed} are allowed",
        )
        ceiling.sink(status.in_flight)
        self.require(
            status.queued == 0 or status.paused or status.in_flight >= ceiling.limit,
            f"ADM-5: {status.queued} wait at {name}, open, {status.in_flight} in flight of {ceiling.limit}",
        )

    def _check_counts(self, name: str, status: StatusLike, held: int) -> None:
        parts = status.held + status.cooling + status.reclaimed
        self.require(
            status.in_flight == parts,
            f"ACC-1: {name} says in_flight {status.in_flight}, its slots in flight are {parts}",
        )
        self.require(status.held >= held, f"ACC-1: {name} says held {status.held}, but {held} hold a slot")
        self.require(
            status.limit == self.own_limits.get(name),
            f"LIM-1: {name} says limit {status.limit}, set was {self.own_limits.get(name)}",
        )
        self.require(
            (status.paused_for is not None) == status.paused,
            f"PAU-5: {name} says paused {status.paused}, for {status.paused_for} s",
        )
        self.require(
            status.paused_for is None or 0 < status.paused_for <= SETTINGS["max_pause"],
            f"PAU-2: {name} is paused for {status.paused_for} s, at most {SETTINGS['max_pause']} s are possible",
        )

    # -- clients -----------------------------------------------------------------------------------------------------

    async def live(self, name: str) -> None:
        """One client of a provider: request after request, each of a random kind, until the time is over."""
        kinds, weights = list(KINDS), list(KINDS.values())
        while asyncio.get_running_loop().time() < self.until:
            act = self.rng.choices(kinds, weights)[0]
            await act(self, name)
            self.check_rest(name)

    async def release_once(self, asked: Awaitable[SlotLike]) -> None:
        """Somebody whose acquire was called before there were other clients."""
        (await asked).release()

    async def _serve(self, name: str, seconds: float, timeout: float | None = None) -> None:
        """Waits for a slot and holds it."""
        prompt = self.rng.choice((None, float(self.rng.randrange(100))))
        slot = await self.manager.acquire(
            name, conversation_id=f"c{self.rng.randrange(20)}", prompt_started_at=prompt, timeout=timeout
        )
        self.holders[name].add(slot)
        try:
            self.check_rest(name)
            await asyncio.sleep(seconds)
        finally:
            slot.release()
            self.holders[name].discard(slot)
            if self.rng.random() < 0.2:
                slot.release()  # the second one does nothing (REL-2)

    async def call(self, name: str) -> None:
        """Acquire, work, release."""
        await self._serve(name, self.rng.expovariate(1 / _SERVICE))

    async def call_impatiently(self, name: str) -> None:
        """The same with a timeout."""
        try:
            await self._serve(name, self.rng.expovariate(1 / _SERVICE), self.rng.choice((0, _PATIENCE, 4 * _PATIENCE)))
        except TimeoutError:
            self.timeouts += 1

    async def call_and_be_cancelled(self, name: str) -> None:
        """The same, cancelled before it runs, while it waits, just granted, or at work (CAN-1, CAN-2)."""
        task = asyncio.create_task(self._serve(name, self.rng.expovariate(1 / _SERVICE)))
        await asyncio.sleep(self.rng.choice((0, 0, self.rng.random() * _PATIENCE)))
        task.cancel()
        self.check_rest(name)
        try:
            await task
        except asyncio.CancelledError:
            self.cancellations += 1

    async def try_once(self, name: str) -> None:
        """A caller that takes a slot only if there is one."""
        slot = self.manager.try_acquire(name, conversation_id="try")
        if slot is None:
            return
        self.holders[name].add(slot)
        self.check_rest(name)
        await asyncio.sleep(0)
        slot.release()
        self.holders[name].discard(slot)

    async def get_stuck(self, name: str) -> None:
        """A caller that never releases: the watchdog must take the slot, and its late release must change nothing."""
        slot = await self.manager.acquire(name, conversation_id="stuck")
        self.stuck.append(slot)

    async def stream(self, name: str) -> None:
        """A long call that shows signs of life: the watchdog must leave it alone (WAT-2)."""
        slot = await self.manager.acquire(name, conversation_id="stream")
        self.holders[name].add(slot)
        lasting, passed = 1.5 * SETTINGS["slot_timeout"], 0.0
        try:
            while passed < lasting:
                await asyncio.sleep(0.1)
                passed += 0.1
                slot.touch()
                self.require(not slot.reclaimed, f"WAT-2: a slot of {name} that is touched every 0.1 s was reclaimed")
        finally:
            slot.release()
            self.holders[name].discard(slot)

    async def report_429(self, name: str) -> None:
        """The upstream refuses, with a Retry-After of any quality; sometimes somebody resumes early."""
        retry_after = self.rng.choice((None, 0.0, 0.02, 0.06, math.nan, -1.0, math.inf, self.rng.random() * 0.1))
        self.manager.report_rate_limit(name, retry_after)
        self.check_rest(name)
        if self.rng.random() < 0.3:
            await asyncio.sleep(0.01)
            self.manager.resume(name)
        await asyncio.sleep(_PATIENCE)

    async def resize(self, name: str) -> None:
        """Somebody changes the limit, or takes it away."""
        limit = None if self.rng.random() < 0.2 and name in self.own_limits else self.rng.choice((0, 1, 2, 4, 8))
        self.change_limit(name, limit)
        self.check_rest(name)
        await asyncio.sleep(_PATIENCE)
        if limit == 0:  # closed for a moment only, or its clients would wait to the end
            self.change_limit(name, 2)

    def change_limit(self, name: str, limit: int | None) -> None:
        """Sets the provider's own limit, or takes it away (None), and enters it in the books."""
        before = self.manager.get_status(name)
        if limit is None:
            self.manager.remove_limit(name)
            del self.own_limits[name]
        else:
            self.manager.set_limit(name, limit)
            self.own_limits[name] = limit
        in_force = _DEFAULT_LIMIT if limit is None else limit
        self.ceilings[name].change(in_force, 0 if before is None else before.in_flight)

    async def change_cooldown(self, name: str) -> None:
        """Somebody changes the cooldown of later releases."""
        self.manager.set_cooldown(name, self.rng.choice((None, 0.0, 0.002, 0.01)))
        self.check_rest(name)
        await asyncio.sleep(0)


KINDS: Final[Mapping[Callable[[Workload, str], Awaitable[None]], float]] = {
    Workload.call: 60,
    Workload.call_impatiently: 15,
    Workload.call_and_be_cancelled: 15,
    Workload.try_once: 10,
    Workload.report_429: 1,
    Workload.resize: 2,
    Workload.change_cooldown: 1,
    Workload.get_stuck: 0.5,
    Workload.stream: 0.5,
}
"""What a client does next, by weight."""
