"""W11: ten thousand providers have limits (their memory is weighed in `memory`)."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from time import thread_time_ns
from typing import Final

from provider_concurrency import ConcurrencyManager

from .measure import Case, on_asyncio
from .rows import Family, Row

_PROVIDERS: Final = 10_000
_SEED: Final = 110


async def _pairs_at(names: Sequence[str], limits: dict[str, int]) -> float:
    """CPU time per pair of acquire and release, one at each of `names` in turn."""
    manager = ConcurrencyManager(limits=limits, release_cooldown=0.0)
    (await manager.acquire(names[0])).release()
    start = thread_time_ns()
    for name in names:
        slot = await manager.acquire(name)
        slot.release()
    cost = thread_time_ns() - start
    assert not any(status.in_flight for status in manager.get_status_all().values())
    return cost / len(names)


def _limits(providers: int) -> dict[str, int]:
    return {f"provider-{number}": 8 for number in range(providers)}


@on_asyncio
async def many(pairs: int, providers: int = _PROVIDERS) -> float:
    limits = _limits(providers)
    return await _pairs_at([*itertools.islice(itertools.cycle(limits), pairs)], limits)


@on_asyncio
async def many_at_random(pairs: int, providers: int = _PROVIDERS) -> float:
    limits = _limits(providers)
    return await _pairs_at(random.Random(_SEED).choices([*limits], k=pairs), limits)


@on_asyncio
async def one(pairs: int) -> float:
    return await _pairs_at(["provider-0"] * pairs, _limits(1))


_MANY: Final = Case("10 000 in turn", many, 20_000, 5_000)
_AT_RANDOM: Final = Case("10 000 at random", many_at_random, 20_000, 5_000)
_ONE: Final = Case("one provider", one, 20_000, 5_000)

FAMILIES: Final = (
    Family(
        "many providers",
        rounds=11,
        quick_rounds=5,
        rows=(
            Row("W11", "acquire at 10 000 providers in turn / at one", _MANY, _ONE, goal=1.1, done_at=1.3),
            Row("W11", "acquire at 10 000 providers at random / at one", _AT_RANDOM, _ONE,
                note="misses the processor's cache"),
        ),
    ),
)  # fmt: skip
