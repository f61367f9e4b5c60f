"""Runs the lifecycle machine alongside a live manager, as its observer, and names the first illegal transition.

    monitor = Monitor.from_seconds(limits={"p": 4}, release_cooldown=0.2)
    manager = ConcurrencyManager(limits={"p": 4}, release_cooldown=0.2, observer=monitor)
    ...
    monitor.assert_at_rest()

An exception from an observer is only logged by the manager (CAL-4), so findings are recorded; `raising=True` raises at
the event itself, for whoever feeds events by hand. Judging costs a few microseconds per event with the tables, tens
with `machine=True`, which has a real `transitions.Machine` make every transition, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from provider_concurrency_model.findings import MonitorConfig, ObservedEvent, Violation
from provider_concurrency_model.judging import RunJudge
from provider_concurrency_model.ledger import Lateness, ProviderCounts

__all__ = ["Monitor", "MonitorConfig", "ObservedEvent", "ProviderCounts", "Violation", "ViolationError"]

_KEPT: Final = 100


class ViolationError(AssertionError):
    """A rule was broken; `violation` says which, where, and what the slot had been through."""

    def __init__(self, violation: Violation, more: int = 0) -> None:
        """`more`: how many further violations there were."""
        super().__init__(f"{violation}" + f" (and {more} more)" * bool(more))
        self.violation = violation


class Monitor:
    """An observer that judges; one per manager, from before its first operation."""

    def __init__(
        self,
        config: MonitorConfig | None = None,
        *,
        machine: bool = False,
        resumes: bool = True,
        raising: bool = False,
    ) -> None:
        """`config` must be the manager's (None: its defaults); `resumes=False` promises that nobody calls `resume`."""
        self.violations: list[Violation] = []
        self.violation_count = 0
        self._raising = raising
        self._judge = RunJudge(config or MonitorConfig(), self._find, machine=machine, resumes=resumes)

    @classmethod
    def from_seconds(
        cls,
        *,
        limits: Mapping[str, int] | None = None,
        default_limit: int | None = None,
        release_cooldown: float = 0.2,
        slot_timeout: float | None = 300.0,
        watchdog_interval: float = 30.0,
        default_pause: float = 30.0,
        min_pause: float = 1.0,
        max_pause: float = 21_600.0,
        max_queued: int | None = None,
        machine: bool = False,
        resumes: bool = True,
        raising: bool = False,
    ) -> Monitor:
        """A monitor for a manager that was made with the same keywords."""
        config = MonitorConfig.from_seconds(
            limits=limits,
            default_limit=default_limit,
            release_cooldown=release_cooldown,
            slot_timeout=slot_timeout,
            watchdog_interval=watchdog_interval,
            default_pause=default_pause,
            min_pause=min_pause,
            max_pause=max_pause,
            max_queued=max_queued,
        )
        return cls(config, machine=machine, resumes=resumes, raising=raising)

    def __call__(
        self,
        event: str,
        op: int,
        t_ns: int,
        provider: str | None,
        request: int | None,
        conversation_id: str | None,
        prompt_started_at: float | None,
        in_flight: int,
        queued: int,
        value: object,
    ) -> None:
        """Judges one event: the observer's signature."""
        self._judge.feed(
            event, op, t_ns, provider, request, conversation_id, prompt_started_at, in_flight, queued, value
        )

    def _find(self, violation: Violation) -> None:
        self.violation_count += 1
        if len(self.violations) < _KEPT:
            self.violations.append(violation)
        if self._raising:
            raise ViolationError(violation)

    @property
    def first(self) -> Violation | None:
        """The first violation: later ones may be its consequences."""
        return self.violations[0] if self.violations else None

    @property
    def counts(self) -> dict[str, int]:
        """How often each event came."""
        return dict(self._judge.counts)

    @property
    def events(self) -> int:
        """How many events came."""
        return self._judge.events

    @property
    def lateness(self) -> dict[str, Lateness]:
        """How late cooldowns (`recycled`) and pauses (`resumed`) were noticed to be over."""
        return self._judge.lateness

    @property
    def early_resumes(self) -> int:
        """How many pauses ended before their deadline, by `resume` as far as events can tell."""
        return self._judge.early_resumes

    @property
    def live_slots(self) -> int:
        """How many slots haven't ended."""
        return self._judge.live_slots

    def providers(self) -> dict[str, ProviderCounts]:
        """The providers with state as the events tell it, with their peaks."""
        return self._judge.providers()

    def assert_clean(self) -> None:
        """Raises ViolationError with the first violation, if there was one."""
        if self.violations:
            raise ViolationError(self.violations[0], self.violation_count - 1)

    def assert_at_rest(self) -> None:
        """As `assert_clean`, and the last operation is taken as over: nothing may wait beside room now (ADM-5)."""
        self._judge.settle()
        self.assert_clean()
