"""W7: how much of a limit is used when each slot cools, and whether one ever comes back too early; by the wall clock.

The share is that of the ideal L / (s + c), with the service time s as it was, not as it was asked for: a loop that
oversleeps in the service isn't the manager's doing. The caller's own clock counts, before `release` and after
`acquire`: the k-th grant may not come before the (k - L)-th release is c ago.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from time import monotonic_ns
from typing import Final, Literal, TypeAlias

from provider_concurrency import ConcurrencyManager

from .measure import Case
from .rows import COST, YIELD, Family, Row

LoopName: TypeAlias = Literal["asyncio", "uvloop"]

_LIMIT: Final = 8
_WORKERS: Final = 2 * _LIMIT
_SERVICE: Final = 0.005
_COOLDOWN: Final = 0.020
_COOLDOWN_NS: Final = 20_000_000
_SEED: Final = 70


@dataclass(slots=True)
class _Log:
    """When one provider's slots were received and given back."""

    grants: list[int] = field(default_factory=list)
    releases: list[int] = field(default_factory=list)
    service_ns: int = 0

    def count_early(self) -> int:
        """Grants that came before a slot can have cooled."""
        return count_early(self.grants, self.releases, _LIMIT, _COOLDOWN_NS)

    def share(self) -> float:
        """Percent of the slots' time that was service or cooldown; what is missing, they lay idle."""
        used = self.service_ns + len(self.releases) * _COOLDOWN_NS
        return 100 * used / (_LIMIT * (self.releases[-1] - self.grants[0] + _COOLDOWN_NS))


def count_early(grants: list[int], releases: list[int], limit: int, cooldown: int) -> int:
    """How many grants came while `limit` slots were held or cooling."""
    room = zip(sorted(grants)[limit:], sorted(releases), strict=False)
    return sum(granted < released + cooldown for granted, released in room)


async def _use_up(providers: int, grants: int) -> list[_Log]:
    """Keeps every slot of some providers in use until `grants` were made in all."""
    names = [f"provider-{number}" for number in range(providers)]
    manager = ConcurrencyManager(limits=dict.fromkeys(names, _LIMIT), release_cooldown=_COOLDOWN)
    generator = random.Random(_SEED)
    left = itertools.count(grants, -1)
    logs = {name: _Log() for name in names}

    async def work(name: str) -> None:
        log = logs[name]
        while next(left) > 0:
            slot = await manager.acquire(name)
            granted = monotonic_ns()
            await asyncio.sleep(_SERVICE * generator.uniform(0.8, 1.2))
            released = monotonic_ns()
            slot.release()
            log.grants.append(granted)
            log.releases.append(released)
            log.service_ns += released - granted

    await asyncio.gather(*[work(name) for name in names for _ in range(_WORKERS)])
    return list(logs.values())


def _run_on(loop: LoopName, providers: int, grants: int) -> list[_Log]:
    with asyncio.Runner(loop_factory=_loop_factory(loop)) as runner:
        return runner.run(_use_up(providers, grants))


def _loop_factory(loop: LoopName) -> Callable[[], asyncio.AbstractEventLoop]:
    if loop == "asyncio":
        return asyncio.new_event_loop
    import uvloop

    return uvloop.new_event_loop


def measure_share(grants: int, loop: LoopName) -> float:
    """Percent of the ideal throughput at one provider."""
    (log,) = _run_on(loop, 1, grants)
    return log.share()


def count_early_grants(grants: int, loop: LoopName, providers: int = 8) -> float:
    """Early re-admissions, at several providers so that it takes seconds rather than half a minute."""
    logs = _run_on(loop, providers, grants)
    assert sum(len(log.grants) for log in logs) == grants
    return sum(log.count_early() for log in logs)


def _rows(loop: LoopName, needs: tuple[str, ...]) -> tuple[Row, Row]:
    share = Case(f"share, {loop}", lambda size: measure_share(size, loop), 1_000, 320, needs, is_warmed=False)
    early = Case(f"early, {loop}", lambda size: count_early_grants(size, loop), 5_000, 1_000, needs, is_warmed=False)
    return (
        Row("W7", f"share of the ideal L/(s+c), {loop}", share, None, YIELD, goal=97, done_at=96, unit="%",
            clock="wall"),
        Row("W7", f"early re-admissions, {loop}", early, None, COST, goal=0, done_at=0, unit="", clock="wall",
            note="per 5000 grants, two rounds; quick: per 1000, one round"),
    )  # fmt: skip


FAMILIES: Final = (
    Family("utilisation", rounds=2, quick_rounds=1, rows=(*_rows("asyncio", ()), *_rows("uvloop", ("uvloop",)))),
)
