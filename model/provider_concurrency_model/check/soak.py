"""Runs a real manager on the real event loop in real time, and judges it while it works.

Virtual time shows every boundary; this shows what it can't: real timers, real scheduling, hundreds of tasks that race.
The monitor judges every event, the clients check every rest from their own books, and at the end the manager is closed
in the busiest state there is: nothing may be left of it in the loop's schedule.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import random
import time
import traceback
from collections import Counter
from collections.abc import Callable, Coroutine, Generator, Iterable, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TextIO

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
_MOMENT: Final = 1.0
"""Seconds for what needs no waiting: a slot of an idle provider, the end of whoever was cancelled or rejected."""
_KIT: Final = str(Path(__file__).parents[1])
_CALLS: Final = tuple(name for name in vars(ManagerLike) if not name.startswith("_"))


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
        lacking = [name for name in _CALLS if not callable(getattr(manager, name, None))]
        if lacking:
            raise SubjectError(f"--manager: {options.manager!r} has no {', '.join(lacking)}")
        if recorder is not None:
            recorder.begin(manager)
        started = time.monotonic()
        with _warnings_kept() as warnings:
            _run(lambda: _soak(manager, options, report, tally, tick), report)
        report.seconds = time.monotonic() - started
    _judge_events(report, tally, monitor)
    report.warnings = len(warnings)
    if report.warnings < report.reclaims:
        report.violations.append(f"WAT-5: {report.reclaims} slots were reclaimed, {report.warnings} warnings logged")
    return report


def _run(soak: Callable[[], Coroutine[Any, Any, None]], report: SoakReport) -> None:
    """As asyncio.run, but ends whatever the manager does: raises, exits, or lets its tasks outlive their cancel."""
    loop = asyncio.new_event_loop()
    try:
        loop.run_until_complete(soak())
    except (KeyboardInterrupt, SubjectError):
        raise
    except BaseException as error:  # noqa: BLE001 - whatever it raises is a finding
        report.violations.append(f"the manager raised {_blame(error, report.manager)}, and the soak ended")
    finally:
        left = asyncio.all_tasks(loop)
        for task in left:
            task.cancel()
        if left:
            with suppress(SystemExit):  # told already, or raised by whom nobody asks any more
                loop.run_until_complete(asyncio.wait(left, timeout=_MOMENT))
        loop.close()


def _blame(error: BaseException, manager: str) -> str:
    """What the manager raised. What was raised by the kit's own lines, for lack of a member say, is no verdict."""
    frames = traceback.extract_tb(error.__traceback__)
    if frames and frames[-1].filename.startswith(_KIT):
        raise SubjectError(f"--manager: {manager!r} can't be soaked: {error!r}") from error
    return repr(error)


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
    load = Workload(manager, random.Random(options.seed), loop.time() + options.seconds, report.violations)
    loop.set_exception_handler(lambda _loop, context: load.require(False, f"CAL-4: the loop was told: {context}"))
    homes = [name for name, share in PROVIDERS.items() for _ in range(-(-options.clients * share // 100))]
    first = manager.acquire("first")
    if not inspect.isawaitable(first):
        told = f"acquire gives a {type(first).__name__}, which can't be awaited"
        raise SubjectError(f"--manager: {options.manager!r} can't be soaked: {told}")
    clients = [asyncio.create_task(load.release_once(first), name="first")]
    clients += [asyncio.create_task(load.live(name), name=name) for name in homes[: options.clients]]
    started = loop.time()
    while (passed := loop.time() - started) < options.seconds:
        tick(passed)
        await asyncio.sleep(min(0.1, options.seconds - passed))
        for name in PROVIDERS:
            load.check_rest(name)
    for name in PROVIDERS:
        report.providers[name] = {"highest_limit": load.ceilings[name].highest, "peak": tally.peaks.get(name, 0)}
    await _let_finish(load, clients, options.manager)
    await _judge_stuck(load)
    await _judge_close(load, report)
    report.rests, report.cancellations, report.timeouts = load.rests, load.cancellations, load.timeouts


async def _let_finish(load: Workload, clients: list[asyncio.Task[None]], manager: str) -> None:
    """With the limits opened the clients bring their last request to its end; whoever doesn't was forgotten."""
    for name in PROVIDERS:
        load.change_limit(name, _WIDE)
        load.manager.resume(name)
        load.check_rest(name)
    done, pending = await asyncio.wait(clients, timeout=_GRACE)
    waiting = Counter(task.get_name() for task in pending)
    who = ", ".join(f"{waiting[name]} at {name}" for name in sorted(waiting))
    load.require(not pending, f"ADM-5: {len(pending)} clients still wait {_GRACE} s after the last request: {who}")
    met: Counter[str] = Counter()
    for task in done:
        error = None if task.cancelled() else task.exception()
        if task.cancelled() or error is not None:
            met["a cancel that nobody asked for" if error is None else _blame(error, manager)] += 1
    for told, times in met.items():
        load.require(False, f"{times} clients met {told}")
    for task in pending:
        task.cancel()
    _, deaf = await asyncio.wait(pending, timeout=_MOMENT) if pending else (pending, pending)
    load.require(not deaf, f"CAN-1: {len(deaf)} clients still wait {_MOMENT} s after they were cancelled")


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
    asked = [asyncio.create_task(manager.acquire("last")) for _ in range(2)]
    _, late = await asyncio.wait(asked, timeout=_MOMENT)  # wait_for would wait on for who can't be cancelled
    if late:
        load.require(False, f"ADM-1: last is open and idle, but an acquire still waits after {_MOMENT} s")
        return
    held: list[SlotLike] = [task.result() for task in asked]
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
    _, forgotten = await asyncio.wait(waiting, timeout=_MOMENT)
    for task in forgotten:
        task.cancel()
    load.require(not forgotten, f"CLO-1: {len(forgotten)} of {len(waiting)} still wait {_MOMENT} s after close")
    outcomes = [task.exception() for task in waiting if task.done() and not task.cancelled()]
    rejected = sum(isinstance(outcome, RuntimeError) for outcome in outcomes)
    load.require(rejected == len(waiting), f"CLO-1: of {len(waiting)} waiters {rejected} were rejected: {outcomes!r}")
    for slot in held:
        slot.release()
    manager.report_rate_limit("last")
    closing = asyncio.create_task(_wait_closed(manager))
    await asyncio.wait([closing], timeout=_MOMENT)
    load.require(closing.done(), "CLO-2: wait_closed doesn't return though no slot is held")
    if closing.done():
        closing.result()
    await asyncio.sleep(0)
    report.timers_after_close = _count_timers()
    load.require(not report.timers_after_close, f"CLO-1: {report.timers_after_close} timers are alive after close")
    rows = manager.get_status_all()
    load.require(not any(row.in_flight or row.queued for row in rows.values()), f"CLO-1: after the end: {rows!r}")


async def _wait_closed(manager: ManagerLike) -> None:
    await manager.wait_closed()


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
    for name in ("first", *PROVIDERS, "last"):
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
