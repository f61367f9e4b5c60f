"""W8 to W10: what it costs to watch a manager, to explore the model, and to judge a recorded run."""

from __future__ import annotations

import asyncio
import functools
import io
import json
from time import thread_time_ns
from typing import TYPE_CHECKING, Any, Final

from provider_concurrency.settings import Observer
from provider_concurrency.trace import Recorder

from .contended import random_ages
from .measure import Case, on_asyncio
from .rows import COST, Family, Row
from .uncontended import PROVIDER, expect_idle, make_manager

if TYPE_CHECKING:
    from provider_concurrency import ConcurrencyManager
    from provider_concurrency_model.graph import Graph

_LIMIT: Final = 8
_BATCH: Final = 200
_LEVELS: Final = ("settled", "timed", "two")
_EVENTS_EACH: Final = 4
"""Of a request: queued, granted, released, recycled."""


# -- W8: the monitor --------------------------------------------------------------------------------------------------


async def _serve(manager: ConcurrencyManager, requests: int) -> None:
    """Requests in batches, of which nearly all queue."""
    ages = random_ages(requests)

    async def work(age: float) -> None:
        slot = await manager.acquire(PROVIDER, conversation_id="c", prompt_started_at=age)
        await asyncio.sleep(0)
        slot.release()

    for first in range(0, requests, _BATCH):
        await asyncio.gather(*[work(age) for age in ages[first : first + _BATCH]])


async def _serve_observed(requests: int, observer: Observer) -> float:
    manager = make_manager(observer=observer)
    start = thread_time_ns()
    await _serve(manager, requests)
    cost = thread_time_ns() - start
    expect_idle(manager)
    return cost / 1_000 / requests


@on_asyncio
async def serve_monitored(requests: int, **how: Any) -> float:
    """CPU time per request in microseconds, the request's own included."""
    from provider_concurrency_model.monitor import Monitor

    monitor = Monitor.from_seconds(limits={PROVIDER: _LIMIT}, release_cooldown=0.0, **how)
    cost = await _serve_observed(requests, monitor)
    monitor.assert_at_rest()
    assert monitor.events >= 3 * requests
    return cost


def serve_with_machine(requests: int) -> float:
    """The same with a real `transitions.Machine` for each slot."""
    return serve_monitored(requests, machine=True)


@on_asyncio
async def serve_alone(requests: int) -> float:
    manager = make_manager()
    start = thread_time_ns()
    await _serve(manager, requests)
    return (thread_time_ns() - start) / 1_000 / requests


# -- W9: the explorer -------------------------------------------------------------------------------------------------


@functools.cache
def _graph(level: str) -> Graph:
    from provider_concurrency_model.graph import explore
    from provider_concurrency_model.levels import LEVELS

    return explore(LEVELS[level])


def explore_levels(levels: int) -> float:
    """CPU time per edge in microseconds: states found, named and told apart."""
    from provider_concurrency_model.graph import explore
    from provider_concurrency_model.levels import LEVELS

    edges = 0
    start = thread_time_ns()
    for level in _LEVELS[:levels]:
        graph = explore(LEVELS[level])
        edges += len(graph.edges)
    cost = thread_time_ns() - start
    assert edges == sum(len(_graph(level).edges) for level in _LEVELS[:levels])
    return cost / 1_000 / edges


def run_the_same_pairs(levels: int) -> float:
    """CPU time per edge in microseconds of the system alone."""
    from provider_concurrency_model.system import run

    cost, edges = 0, 0
    for level in _LEVELS[:levels]:
        graph = _graph(level)
        pairs = [(graph.states[edge.source], edge.command) for edge in graph.edges]
        edges += len(pairs)
        start = thread_time_ns()
        for state, command in pairs:
            run(state, command)
        cost += thread_time_ns() - start
    return cost / 1_000 / edges


# -- W10: recorded runs -----------------------------------------------------------------------------------------------


@functools.cache
def record_run(requests: int) -> tuple[str, ...]:
    """The lines of a trace, header first."""

    async def run() -> str:
        stream = io.StringIO()
        recorder = Recorder(stream)
        manager = make_manager(observer=recorder)
        recorder.begin(manager)
        await _serve(manager, requests)
        return stream.getvalue()

    return tuple(asyncio.run(run()).splitlines(keepends=True))


def judge_lines(requests: int) -> float:
    """CPU time per line in microseconds, parsing included."""
    from provider_concurrency_model.check.trace import judge_trace

    lines = record_run(requests)
    start = thread_time_ns()
    verdict = judge_trace(lines)
    cost = thread_time_ns() - start
    assert verdict.outcome == "conforms", verdict.reason
    assert verdict.events == len(lines) - 1
    return cost / 1_000 / len(lines)


def parse_lines(requests: int) -> float:
    """CPU time per line in microseconds of json.loads alone."""
    lines = record_run(requests)
    loads = json.loads
    start = thread_time_ns()
    for line in lines:
        loads(line)
    return (thread_time_ns() - start) / 1_000 / len(lines)


# -- the rows ---------------------------------------------------------------------------------------------------------

_MONITOR: Final = ("provider_concurrency_model.monitor",)
_EXPLORER: Final = ("provider_concurrency_model.graph", "provider_concurrency_model.levels")
_TRACE: Final = ("provider_concurrency_model.check.trace",)

_MONITORED: Final = Case("monitored", serve_monitored, 4_000, 1_000, _MONITOR)
_MACHINE: Final = Case("monitored by transitions", serve_with_machine, 4_000, 1_000, _MONITOR)
_ALONE: Final = Case("unwatched", serve_alone, 4_000, 1_000)
_EXPLORED: Final = Case("explore", explore_levels, 3, 1, _EXPLORER, is_warmed=False)
_RUN: Final = Case("system.run alone", run_the_same_pairs, 3, 1, _EXPLORER, is_warmed=False)
_JUDGED: Final = Case("judge_trace", judge_lines, 5_000, 1_000, _TRACE)
_PARSED: Final = Case("json.loads", parse_lines, 5_000, 1_000, _TRACE)

FAMILIES: Final = (
    Family(
        "monitor",
        rounds=7,
        quick_rounds=3,
        rows=(
            Row("W8", "a request with the monitor attached", _MONITORED, None, COST, goal=100, done_at=200, unit="us",
                note="the request itself included"),
            Row("W8", "the same, a transitions.Machine each", _MACHINE, None, COST, goal=100, done_at=200, unit="us"),
            Row("W8", "monitored / unwatched", _MONITORED, _ALONE, unit="us"),
        ),
    ),
    Family(
        "explorer",
        rounds=2,
        quick_rounds=1,
        rows=(
            Row("W9", "explore / system.run on the same pairs", _EXPLORED, _RUN, goal=1.5, done_at=2, unit="us",
                note=f"per edge, levels {', '.join(_LEVELS)}; quick: the first"),
        ),
    ),
    Family(
        "traces",
        rounds=7,
        quick_rounds=3,
        rows=(Row("W10", "judging a trace / json.loads", _JUDGED, _PARSED, goal=4, done_at=5, unit="us"),),
    ),
)  # fmt: skip
