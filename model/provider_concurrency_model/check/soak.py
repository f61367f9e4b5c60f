"""Runs a real manager on the real event loop in real time, and judges it while it works.

Virtual time shows every boundary; this shows what it can't: real timers, real scheduling, hundreds of tasks that race.
The monitor judges every event, the clients check every rest from their own books, and at the end the manager is closed
in the busiest state there is: nothing may be left of it in the loop's schedule.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TextIO

from provider_concurrency_model.check.managers import (
    DEFAULT_MANAGER,
    DEFAULT_RECORDER,
    ManagerLike,
    Observer,
    RecorderLike,
    SlotLike,
    Tally,
    Tee,
)
from provider_concurrency_model.check.subject import SubjectError, load_dotted
from provider_concurrency_model.check.verdict import Verdict
from provider_concurrency_model.check.workload import PROVIDERS, SETTINGS, Workload
from provider_concurrency_model.monitor import Monitor
from provider_concurrency_spec.vocabulary import Json

_CLIENTS: Final = 200
_WIDE: Final = 64
_GRACE: Final = 10.0
"""Seconds in which the last clients must be through; one that isn't has been forgotten (ADM-5)."""


@dataclass(frozen=True, slots=True)
class SoakOptions:
    """What a soak can be told."""

    seconds: float
    seed: int = 0
    clients: int = _CLIENTS
    manager: str = DEFAULT_MANAGER
    record: Path | None = None
    recorder: str = DEFAULT_RECORDER


@dataclass(slots=True)
class SoakReport:
    """What a soak saw."""

    manager: str
    seed: int
    clients: int
    seconds: float = 0.0
    events: Counter[str] = field(default_factory=Counter[str])
    providers: dict[str, dict[str, int]] = field(default_factory=dict[str, dict[str, int]])
    """By provider: grants, peak in flight, highest limit, longest queue."""
    waits_ms: dict[str, float] = field(default_factory=dict[str, float])
    """Percentiles over all grants."""
    rests: int = 0
    cancellations: int = 0
    timeouts: int = 0
    reclaims: int = 0
    warnings: int = 0
    """Logged by the manager: at least one for each reclaim (WAT-5)."""
    violations: list[str] = field(default_factory=list[str])
    timers_before_close: int | None = None
    timers_after_close: int | None = None
    recorded: str | None = None

    @property
    def verdict(self) -> Verdict:
        """A soak in which nothing was granted, or whose timers couldn't be counted, shows nothing."""
        if self.violations:
            return Verdict.COUNTEREXAMPLE
        if not self.events["granted"] or self.timers_after_close is None:
            return Verdict.UNDETERMINED
        return Verdict.CONFORMS


def run_soak(options: SoakOptions, tick: Callable[[float], None] = lambda _seconds: None) -> SoakReport:
    """Soaks the manager; `tick` is told the seconds that have passed. Raises SubjectError if there is no manager."""
    factory: Callable[..., ManagerLike] = load_dotted(options.manager, "--manager")
    if not callable(factory):
        raise SubjectError(f"--manager: {options.manager!r} is not a class or factory of managers")
    report = SoakReport(options.manager, options.seed, options.clients)
    tally, monitor = Tally(), Monitor.from_seconds(**SETTINGS)
    with ExitStack() as files:
        observers: list[Observer] = [tally, monitor]
        recorder = None if options.record is None else _open_recorder(options.recorder, options.record, files)
        if recorder is not None:
            observers.append(recorder)
            report.recorded = str(options.record)
        try:
            manager = factory(**SETTINGS, observer=Tee(*observers))
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            raise SubjectError(f"--manager: {options.manager!r} can't be made: {error!r}") from error
        if recorder is not None:
            recorder.begin(manager)
        started = time.monotonic()
        with _warnings_kept() as warnings:
            try:
                asyncio.run(_soak(manager, options, report, tally, tick))
            except KeyboardInterrupt:
                raise
            except BaseException as error:
                raise SubjectError(f"--manager: {options.manager!r} broke the soak off: {error!r}") from error
        report.seconds = time.monotonic() - started
    _judge_events(report, tally, monitor)
    report.warnings = len(warnings)
    if report.warnings < report.reclaims:
        report.violations.append(f"WAT-5: {report.reclaims} slots were reclaimed, {report.warnings} warnings logged")
    return report


class _Keeper(logging.Handler):
    """Keeps the warnings of the manager's package instead of printing them: in a soak they are expected."""

    def __init__(self, kept: list[str]) -> None:
        super().__init__(logging.WARNING)
        self._kept = kept

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno == logging.WARNING and record.name != "asyncio":
            self._kept.append(record.getMessage())


@contextmanager
def _warnings_kept() -> Generator[list[str], None, None]:
    """What is logged as a warning meanwhile, by whatever logger that propagates."""
    kept: list[str] = []
    keeper = _Keeper(kept)
    logging.getLogger().addHandler(keeper)
    try:
        yield kept
    finally:
        logging.getLogger().removeHandler(keeper)


def _open_recorder(dotted: str, path: Path, files: ExitStack) -> RecorderLike:
    make: Callable[[TextIO], RecorderLike] = load_dotted(dotted, "--record")
    try:
        return make(files.enter_context(path.open("w", encoding="utf-8")))
    except OSError as error:
        raise SubjectError(f"--record: {path}: {error.strerror or error}") from error


async def _soak(
    manager: ManagerLike, options: SoakOptions, report: SoakReport, tally: Tally, tick: Callable[[float], None]
) -> None:
    loop = asyncio.get_running_loop()
    load = Workload(manager, random.Random(options.seed), loop.time() + options.seconds)
    loop.set_exception_handler(lambda _loop, context: load.require(False, f"CAL-4: the loop was told: {context}"))
    homes = [name for name, share in PROVIDERS.items() for _ in range(-(-options.clients * share // 100))]
    clients = [asyncio.create_task(load.live(name)) for name in homes[: options.clients]]
    started = loop.time()
    while (passed := loop.time() - started) < options.seconds:
        tick(passed)
        await asyncio.sleep(min(0.1, options.seconds - passed))
        for name in PROVIDERS:
            load.check_rest(name)
    for name in PROVIDERS:
        report.providers[name] = {"highest_limit": load.ceilings[name].highest, "peak": tally.peaks.get(name, 0)}
    await _let_finish(load, clients)
    await _judge_stuck(load)
    await _judge_close(load, report)
    report.violations.extend(load.violations)
    report.rests, report.cancellations, report.timeouts = load.rests, load.cancellations, load.timeouts


async def _let_finish(load: Workload, clients: list[asyncio.Task[None]]) -> None:
    """With the limits opened the clients bring their last request to its end; whoever doesn't was forgotten."""
    for name in PROVIDERS:
        load.change_limit(name, _WIDE)
        load.manager.resume(name)
        load.check_rest(name)
    done, pending = await asyncio.wait(clients, timeout=_GRACE)
    load.require(not pending, f"ADM-5: {len(pending)} clients still wait {_GRACE} s after the last request was made")
    for task in done:
        error = task.exception()
        load.require(error is None, f"a client met {error!r}")
    for task in pending:
        task.cancel()
    await asyncio.gather(*pending, return_exceptions=True)


async def _judge_stuck(load: Workload) -> None:
    """WAT-1, WAT-3: whoever never released has lost the slot by the second sweep after the timeout."""
    await asyncio.sleep(SETTINGS["slot_timeout"] + 2 * SETTINGS["watchdog_interval"])
    left = sum(not slot.reclaimed for slot in load.stuck)
    load.require(left == 0, f"WAT-1: {left} of {len(load.stuck)} slots that nobody released were never reclaimed")
    for slot in load.stuck:
        slot.release()
    for name in PROVIDERS:
        load.check_rest(name)


async def _judge_close(load: Workload, report: SoakReport) -> None:
    """Closes a manager with slots held and cooling, a queue and a pause; afterwards no timer may be alive (CLO-1)."""
    manager = load.manager
    manager.set_limit("last", 2)
    try:
        async with asyncio.timeout(_GRACE):
            held: list[SlotLike] = [await manager.acquire("last") for _ in range(2)]
    except TimeoutError:
        load.require(False, f"ADM-1: of a provider with room nobody had a slot within {_GRACE} s")
        manager.close()
        return
    waiting = [asyncio.create_task(manager.acquire("last", timeout=30.0)) for _ in range(3)]
    await asyncio.sleep(0)
    held[0].release()
    manager.report_rate_limit("last", SETTINGS["max_pause"])
    report.timers_before_close = _count_timers()
    load.require(report.timers_before_close != 0, "TIM-4: with waiters, a cooldown and a pause no timer is alive")
    manager.close()
    manager.close()
    report.timers_after_close = _count_timers()
    load.require(
        not report.timers_after_close, f"CLO-1: {report.timers_after_close} timers are alive right after close"
    )
    outcomes = await asyncio.gather(*waiting, return_exceptions=True)
    rejected = sum(isinstance(outcome, RuntimeError) for outcome in outcomes)
    load.require(rejected == len(waiting), f"CLO-1: of {len(waiting)} waiters {rejected} were rejected: {outcomes!r}")
    for slot in held:
        slot.release()
    manager.report_rate_limit("last")
    try:
        await asyncio.wait_for(manager.wait_closed(), 1.0)
    except TimeoutError:
        load.require(False, "CLO-2: wait_closed doesn't return though no slot is held")
    await asyncio.sleep(0)
    report.timers_after_close = _count_timers()
    load.require(not report.timers_after_close, f"CLO-1: {report.timers_after_close} timers are alive after close")
    rows = manager.get_status_all()
    load.require(not any(row.in_flight or row.queued for row in rows.values()), f"CLO-1: after the end: {rows!r}")


def _count_timers() -> int | None:
    """The timers in the running loop's schedule that aren't cancelled; None where the loop doesn't show them.

    Nobody else has one when this is called: the clients are through, and `sleep(0)` needs none.
    """
    scheduled: Iterable[asyncio.TimerHandle] | None = getattr(asyncio.get_running_loop(), "_scheduled", None)
    return None if scheduled is None else sum(not handle.cancelled() for handle in scheduled)


def _judge_events(report: SoakReport, tally: Tally, monitor: Monitor) -> None:
    """Enters what the observers saw; the monitor's findings are violations."""
    report.events = tally.counts
    report.reclaims = tally.counts["reclaimed"]
    for name in (*PROVIDERS, "last"):
        entry = report.providers.setdefault(name, {})
        entry["grants"] = tally.grants[name]
        entry.setdefault("peak", tally.peaks.get(name, 0))
        entry["longest_queue"] = tally.longest_queues.get(name, 0)
    report.waits_ms = percentiles(tally.waits_ns)
    report.violations.extend(str(violation) for violation in monitor.violations)
    unlisted = monitor.violation_count - len(monitor.violations)
    if unlisted:
        report.violations.append(f"and {unlisted} more events that the monitor calls illegal")


def percentiles(waits_ns: list[int]) -> dict[str, float]:
    """The median, the tail and the longest of the waits, in ms."""
    if not waits_ns:
        return {}
    ordered = sorted(waits_ns)
    shares: Mapping[str, float] = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "max": 1.0}
    last = len(ordered) - 1
    return {name: round(ordered[min(last, int(share * len(ordered)))] / 1e6, 3) for name, share in shares.items()}


def soak_to_json(report: SoakReport) -> dict[str, Json]:
    """The report as `--json` prints it."""
    return {
        "verdict": report.verdict.name.lower(),
        "exit_code": int(report.verdict),
        "manager": report.manager,
        "seed": report.seed,
        "clients": report.clients,
        "seconds": round(report.seconds, 3),
        "events": dict(report.events),
        "providers": report.providers,
        "waits_ms": report.waits_ms,
        "rests": report.rests,
        "cancellations": report.cancellations,
        "timeouts": report.timeouts,
        "reclaims": report.reclaims,
        "warnings": report.warnings,
        "violations": report.violations,
        "timers_before_close": report.timers_before_close,
        "timers_after_close": report.timers_after_close,
        "recorded": report.recorded,
    }
