"""W1 and W12: there is room, so that a request is granted at once; one pair of acquire and release after the other."""

from __future__ import annotations

import asyncio
import time
from _thread import get_ident
from collections.abc import Callable
from time import thread_time_ns
from typing import Any, Final

from provider_concurrency import ConcurrencyManager, Slot
from provider_concurrency.settings import Observer

from .measure import Case, on_asyncio
from .naive import NaiveManager
from .rows import SPEEDUP, Family, Row

PROVIDER: Final = "openai"
_LIMIT: Final = 8
_COOLDOWN: Final = 100e-6
"""So short that slots cool down while the case runs: each release starts one cooldown and ends another."""


def make_manager(**settings: Any) -> ConcurrencyManager:
    """A manager with one limited provider and, unless told otherwise, no cooldown."""
    return ConcurrencyManager(**{"limits": {PROVIDER: _LIMIT}, "release_cooldown": 0.0, **settings})


def expect_idle(manager: ConcurrencyManager) -> None:
    """Nothing is held, queued or cooling any more."""
    status = manager.get_status(PROVIDER)
    assert status is not None
    assert status.in_flight == status.queued == 0


# -- the manager ------------------------------------------------------------------------------------------------------


@on_asyncio
async def acquire_and_release(pairs: int) -> float:
    manager = make_manager()
    start = thread_time_ns()
    for _ in range(pairs):
        slot = await manager.acquire(PROVIDER)
        slot.release()
    cost = thread_time_ns() - start
    expect_idle(manager)
    return cost / pairs


@on_asyncio
async def acquire_as_in_production(pairs: int) -> float:
    manager = make_manager()
    start = thread_time_ns()
    for _ in range(pairs):
        slot = await manager.acquire(PROVIDER, conversation_id="c", prompt_started_at=1.7e9, timeout=60.0)
        slot.release()
    cost = thread_time_ns() - start
    expect_idle(manager)
    return cost / pairs


@on_asyncio
async def acquire_with_timeout(pairs: int) -> float:
    manager = make_manager()
    start = thread_time_ns()
    for _ in range(pairs):
        slot = await manager.acquire(PROVIDER, timeout=60.0)
        slot.release()
    cost = thread_time_ns() - start
    expect_idle(manager)
    return cost / pairs


@on_asyncio
async def slot_block(pairs: int) -> float:
    manager = make_manager()
    start = thread_time_ns()
    for _ in range(pairs):
        async with manager.slot(PROVIDER):
            pass
    cost = thread_time_ns() - start
    expect_idle(manager)
    return cost / pairs


@on_asyncio
async def try_and_release(pairs: int) -> float:
    manager = make_manager()
    (await manager.acquire(PROVIDER)).release()  # try_acquire alone never meets the loop
    start = thread_time_ns()
    for _ in range(pairs):
        slot = manager.try_acquire(PROVIDER)
        assert slot is not None
        slot.release()
    cost = thread_time_ns() - start
    expect_idle(manager)
    return cost / pairs


def ignore_event(
    event: str, op: int, t_ns: int, provider: str | None, request: int | None, conversation_id: str | None,
    prompt_started_at: float | None, in_flight: int, queued: int, value: object,
) -> None:  # fmt: skip
    """An observer that costs nothing but its call."""


@on_asyncio
async def acquire_observed(pairs: int, observer: Observer = ignore_event) -> float:
    manager = make_manager(observer=observer)
    start = thread_time_ns()
    for _ in range(pairs):
        slot = await manager.acquire(PROVIDER)
        slot.release()
    cost = thread_time_ns() - start
    expect_idle(manager)
    return cost / pairs


@on_asyncio
async def acquire_and_cool(pairs: int) -> float:
    manager = make_manager(limits={PROVIDER: pairs + 1}, release_cooldown=_COOLDOWN)
    start = thread_time_ns()
    for _ in range(pairs):
        slot = await manager.acquire(PROVIDER)
        slot.release()
    await asyncio.sleep(2 * _COOLDOWN)
    manager.get_status(PROVIDER)  # applies what has cooled since the last release
    cost = thread_time_ns() - start
    expect_idle(manager)
    return cost / pairs


# -- what can't be spared ---------------------------------------------------------------------------------------------


class _Unsparable:
    """What the rules alone ask of a request that is granted at once, without a manager around it.

    A signature by keyword, arguments that are looked at, a provider by name, the right thread at both ends (THR-1), an
    open loop (LOP-1), a time (WAT-2), a handle that is counted (ACC-1) and may be released twice (REL-2).
    """

    def __init__(self) -> None:
        self._held: dict[str, dict[Slot, int]] = {PROVIDER: {}}
        self._home = get_ident()
        self._loop = asyncio.get_running_loop()
        self._clock = time.monotonic_ns

    async def acquire(
        self,
        provider: str,
        *,
        conversation_id: str | None = None,
        prompt_started_at: float | None = None,
        timeout: float | None = None,
        on_queued: Callable[[], object] | None = None,
    ) -> Slot:
        slot = Slot()
        held = self._held[provider]
        assert get_ident() == self._home
        assert not self._loop.is_closed()
        assert conversation_id is None
        assert prompt_started_at is None
        assert timeout is None
        assert on_queued is None
        read_clock = self._clock
        held[slot] = read_clock()
        assert len(held) <= _LIMIT
        return slot

    def release(self, slot: Slot) -> None:
        held = self._held[PROVIDER]
        if get_ident() == self._home and slot in held:
            del held[slot]


@on_asyncio
async def unsparable_pairs(pairs: int) -> float:
    rules = _Unsparable()
    start = thread_time_ns()
    for _ in range(pairs):
        slot = await rules.acquire(PROVIDER)
        rules.release(slot)
    return (thread_time_ns() - start) / pairs


# -- the peers --------------------------------------------------------------------------------------------------------


@on_asyncio
async def semaphore_pairs(pairs: int) -> float:
    semaphore = asyncio.Semaphore(_LIMIT)
    start = thread_time_ns()
    for _ in range(pairs):
        await semaphore.acquire()
        semaphore.release()
    return (thread_time_ns() - start) / pairs


@on_asyncio
async def semaphore_block(pairs: int) -> float:
    semaphore = asyncio.Semaphore(_LIMIT)
    start = thread_time_ns()
    for _ in range(pairs):
        async with semaphore:
            pass
    return (thread_time_ns() - start) / pairs


@on_asyncio
async def capacity_limiter_pairs(pairs: int) -> float:
    import anyio

    limiter = anyio.CapacityLimiter(_LIMIT)
    start = thread_time_ns()
    for _ in range(pairs):
        await limiter.acquire()
        limiter.release()
    return (thread_time_ns() - start) / pairs


@on_asyncio
async def aiolimiter_acquires(pairs: int) -> float:
    from aiolimiter import AsyncLimiter

    limiter = AsyncLimiter(1e9, 1.0)
    start = thread_time_ns()
    for _ in range(pairs):
        await limiter.acquire()
    return (thread_time_ns() - start) / pairs


@on_asyncio
async def naive_pairs(pairs: int) -> float:
    manager = NaiveManager({PROVIDER: _LIMIT})
    start = thread_time_ns()
    for _ in range(pairs):
        release = await manager.acquire(PROVIDER)
        release()
    cost = thread_time_ns() - start
    assert manager.in_flight(PROVIDER) == 0
    return cost / pairs


@on_asyncio
async def naive_pairs_that_cool(pairs: int) -> float:
    manager = NaiveManager({PROVIDER: pairs + 1}, cooldown=_COOLDOWN)
    start = thread_time_ns()
    for number in range(pairs):
        release = await manager.acquire(PROVIDER)
        release()
        if number % 100 == 0:
            await asyncio.sleep(0)  # its timers need the loop
    while manager.in_flight(PROVIDER):  # noqa: ASYNC110 - turns of the loop are what is timed
        await asyncio.sleep(_COOLDOWN)
    return (thread_time_ns() - start) / pairs


# -- the rows ---------------------------------------------------------------------------------------------------------


def _pairs(name: str, run: Callable[[int], float], *, slow: bool = False, needs: tuple[str, ...] = ()) -> Case:
    return Case(name, run, 3_000 if slow else 20_000, 1_000 if slow else 5_000, needs)


PAIRS: Final = _pairs("acquire, release", acquire_and_release)
SEMAPHORE: Final = _pairs("asyncio.Semaphore", semaphore_pairs)
_BLOCK: Final = _pairs("async with slot()", slot_block)
_SEMAPHORE_BLOCK: Final = _pairs("async with Semaphore", semaphore_block)
_TRY: Final = _pairs("try_acquire, release", try_and_release)
_OBSERVED: Final = _pairs("observed", acquire_observed)
_COOLING: Final = _pairs("with cooldown", acquire_and_cool)
_TIMED: Final = _pairs("acquire(timeout=)", acquire_with_timeout)
_PRODUCTION: Final = _pairs("all arguments", acquire_as_in_production)
_UNSPARABLE: Final = _pairs("the rules' part", unsparable_pairs)
_LIMITER: Final = _pairs("anyio.CapacityLimiter", capacity_limiter_pairs, slow=True, needs=("anyio",))
_AIOLIMITER: Final = _pairs("aiolimiter", aiolimiter_acquires, needs=("aiolimiter",))
_NAIVE: Final = _pairs("naive port", naive_pairs, slow=True)
_NAIVE_COOLING: Final = _pairs("naive port, cooldown", naive_pairs_that_cool, slow=True)

FAMILIES: Final = (
    Family(
        "uncontended",
        rounds=25,
        quick_rounds=9,
        rows=(
            Row("W1", "acquire + release by name", PAIRS, SEMAPHORE, goal=1.05, done_at=1.25),
            Row("W1", "async with slot()", _BLOCK, _SEMAPHORE_BLOCK, goal=0.95, done_at=1.10),
            Row("W1", "try_acquire + release", _TRY, SEMAPHORE, goal=0.90, done_at=1.10),
            Row("W1", "with one observer", _OBSERVED, SEMAPHORE, goal=1.70, done_at=2.10,
                note="three events a pair: granted, released, recycled"),
            Row("W1", "with cooldown and its expiry", _COOLING, SEMAPHORE, goal=2.2, done_at=2.8,
                note="each release starts one cooldown and ends another"),
            Row("W1", "acquire(timeout=) / acquire", _TIMED, PAIRS, goal=1.05, done_at=1.15),
            Row("W1", "what the rules alone ask of a pair", _UNSPARABLE, SEMAPHORE,
                note="no manager: a handle, a clock, checks of arguments, thread and loop"),
            Row("W1", "with conversation, prompt, timeout", _PRODUCTION, SEMAPHORE),
            Row("W1", "against aiolimiter", PAIRS, _AIOLIMITER, note="a rate limiter: no release, acquire alone"),
            Row("W1", "cooldown, against the naive port", _COOLING, _NAIVE_COOLING, SPEEDUP),
            Row("W12", "against anyio.CapacityLimiter", PAIRS, _LIMITER, SPEEDUP, goal=14, done_at=10),
            Row("W12", "against the naive port", PAIRS, _NAIVE, SPEEDUP, goal=7, done_at=5),
        ),
    ),
)  # fmt: skip
