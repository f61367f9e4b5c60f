"""The public calls that every kind of manager has: configuration, 429s, status, close.

They judge their arguments, refuse a closed manager (CLO-2) and a foreign thread (THR-1), and run one operation of the
core. What waits (acquire, wait_closed) is the shell's.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Literal, cast

from provider_concurrency._tags import HANDED, HELD, QUEUED, TIMED_OUT
from provider_concurrency.core import Core
from provider_concurrency.errors import AcquireTimeoutError, ManagerClosedError, explain
from provider_concurrency.nesting import is_self_blocked
from provider_concurrency.provider import Provider
from provider_concurrency.settings import Observer, read_settings
from provider_concurrency.slot import Slot, SlotState
from provider_concurrency.status import ProviderStatus, SlotInfo
from provider_concurrency.validation import (
    check_conversation,
    check_count,
    check_duration,
    check_number,
    check_provider,
    read_retry_after,
)


class Surface(Core):
    """The core's synchronous public face, and the synchronous halves of acquire."""

    def __init__(
        self,
        *,
        limits: Mapping[str, int] | None = None,
        default_limit: int | None = None,
        release_cooldown: float = 0.2,
        slot_timeout: float | None = 300.0,
        watchdog_interval: float = 30.0,
        default_pause: float = 30.0,
        min_pause: float = 1.0,
        max_pause: float = 21600.0,
        max_queued: int | None = None,
        nested: Literal["queue", "raise"] = "queue",
        clock: Callable[[], int] = time.monotonic_ns,
        wall_clock: Callable[[], float] = time.time,
        observer: Observer | None = None,
        on_reclaim: Callable[[Slot], object] | None = None,
        on_pause: Callable[[str, float], object] | None = None,
    ) -> None:
        """Durations are seconds; see the class. Raises TypeError or ValueError, naming the argument."""
        super().__init__(
            read_settings(
                limits=limits,
                default_limit=default_limit,
                release_cooldown=release_cooldown,
                slot_timeout=slot_timeout,
                watchdog_interval=watchdog_interval,
                default_pause=default_pause,
                min_pause=min_pause,
                max_pause=max_pause,
                max_queued=max_queued,
                nested=nested,
                clock=clock,
                wall_clock=wall_clock,
                observer=observer,
                on_reclaim=on_reclaim,
                on_pause=on_pause,
            )
        )

    def _admit_call(self, what: str, *, when_closed: bool = False) -> None:
        """Refuses a foreign thread, and after close what only an open manager does."""
        if self._is_foreign():
            raise RuntimeError(f"{what} must be called from the thread of the manager's event loop")
        if self._closed and not when_closed:
            raise ManagerClosedError(f"{what}: the manager is closed")

    def describe_settings(self) -> dict[str, object]:
        """What the manager was made with, as it stands in a trace's header; durations in nanoseconds."""
        return self._settings.describe()

    # -- requests -------------------------------------------------------------------------------------------------

    def _judge_request(self, what: str, slot: Slot, provider: object) -> None:
        """Refuses a request when closed (CLO-2), then for its arguments: the provider's, and those in the slot."""
        if self._closed:
            raise ManagerClosedError(f"{what}: the manager is closed", provider=str(provider))
        check_provider(provider)
        check_conversation(slot.conversation_id)
        if slot._prompt is not None:
            check_number("prompt_started_at", slot._prompt)

    def _receive(self, slot: Slot) -> Slot:
        """The slot of a request whose wait is over, now its caller's; or the error that says how the wait ended."""
        if slot._state == HANDED:
            slot._state = HELD
            return slot
        if slot.reclaimed:  # swept before its caller ran; `with` refuses it
            return slot
        waited = self._clock() - slot._touched
        if slot._state == TIMED_OUT:
            raise explain(AcquireTimeoutError, f"no slot within {waited / 1e9:.3f} s", slot._provider, waited)
        raise explain(ManagerClosedError, "closed while the request was queued", slot._provider, waited)

    # -- configuration --------------------------------------------------------------------------------------------

    def set_limit(self, provider: str, limit: int) -> None:
        """Gives a provider its own limit: an int >= 0, 0 admits nobody (LIM-1, LIM-2).

        Lowering evicts nobody; raising admits at once by the room there is. Raises TypeError, ValueError,
        ManagerClosedError.
        """
        self._admit_call("set_limit")
        self._operate(self._set_limit, check_provider(provider), check_count("limit", limit))

    def remove_limit(self, provider: str) -> None:
        """Takes a provider's own limit away and nothing else: slots keep counting, a pause stays (LIM-3).

        The manager's default_limit applies from then on (LIM-4). Raises TypeError, ManagerClosedError.
        """
        self._admit_call("remove_limit")
        self._operate(self._set_limit, check_provider(provider), None)

    def get_limit(self, provider: str) -> int | None:
        """A provider's own limit, or None where the manager's default_limit applies. From any thread (THR-1)."""
        known = self._providers.get(check_provider(provider))
        return known.limit if known is not None else None

    def get_limits(self) -> dict[str, int]:
        """The own limits of all providers that have one. From any thread (THR-1)."""
        limits = [(p.name, p.limit) for p in list(self._providers.values())]  # read once: another thread may set it
        return {name: limit for name, limit in limits if limit is not None}

    def set_cooldown(self, provider: str, seconds: float | None) -> None:
        """Gives a provider its own cooldown in seconds for releases from now on; None: the manager's again (ACC-4).

        Raises TypeError, ValueError, ManagerClosedError.
        """
        self._admit_call("set_cooldown")
        cooldown = None if seconds is None else check_duration("seconds", seconds)
        self._operate(self._set_cooldown, check_provider(provider), cooldown)

    def get_cooldown(self, provider: str) -> float | None:
        """A provider's own cooldown in seconds, or None where the manager's applies. From any thread (THR-1)."""
        known = self._providers.get(check_provider(provider))
        cooldown = known.own_cooldown if known is not None else None  # read once: another thread may set it
        return None if cooldown is None else cooldown / 1e9

    # -- 429 ------------------------------------------------------------------------------------------------------

    def report_rate_limit(self, provider: str, retry_after: float | None = None) -> None:
        """Tells that the provider answered 429: everybody pauses (PAU-1..4).

        `retry_after`: seconds; anything that is no number >= 0 means the manager's default_pause, and nothing about
        it raises. The pause is at least max(min_pause, the cooldown in force) and at most max_pause; a shorter one
        never shortens a running one. On a closed manager nothing happens. Raises TypeError if provider is no str.
        """
        self._admit_call("report_rate_limit", when_closed=True)
        requested, wanted = read_retry_after(retry_after, self._settings.max_pause)
        self._operate(self._pause, check_provider(provider), requested, wanted)

    def resume(self, provider: str) -> None:
        """Ends a pause now; nothing happens if there is none (PAU-5). Raises TypeError, ManagerClosedError."""
        self._admit_call("resume")
        self._operate(self._resume, check_provider(provider))

    # -- status ---------------------------------------------------------------------------------------------------

    def get_status(self, provider: str) -> ProviderStatus | None:
        """How a provider stands now, or None if there is nothing to remember of it (ACC-3).

        What is due is applied first (TIM-3), unless another thread reads (THR-1).
        """
        known = self._catch_up_with(provider)
        return self._status(known) if known is not None and known.has_state() else None

    def get_status_all(self) -> dict[str, ProviderStatus]:
        """The statuses of all providers with state, in the order in which they got it."""
        found = {name: self.get_status(name) for name in list(self._providers)}
        return {name: status for name, status in found.items() if status is not None}

    def get_slots(self, provider: str) -> list[SlotInfo]:
        """Who holds a slot of a provider, in grant order, then who waits, in queue order; with ages in seconds."""
        known = self._catch_up_with(provider)
        return self._list_slots(known) if known is not None else []

    def _catch_up_with(self, provider: str) -> Provider | None:
        """A provider's record after what is due of it was applied."""
        known = self._providers.get(check_provider(provider))
        if known is not None:
            self._apply_due(known)
            known = self._providers.get(provider)  # a callback may have made it anew
        return known

    def _list_slots(self, p: Provider) -> list[SlotInfo]:
        now, wall = self._clock(), self._settings.wall_clock()
        infos: list[SlotInfo] = []
        for slot, granted_at in list(p.held.items()):
            age, idle = max(now - granted_at, 0) / 1e9, max(now - slot._touched, 0) / 1e9
            prompt = wall - age if slot._prompt is None else slot._prompt
            infos.append(SlotInfo(SlotState.HELD, slot.conversation_id, prompt, age, idle))
        # Another thread reads while requests are granted: then a slot's key may be a cooldown's end.
        queued = [slot for slot in p.queue or () if slot._state == QUEUED]
        waiting = [(cast(float, slot._prompt), slot._arrival, slot) for slot in queued]
        for prompt, _, slot in sorted(waiting):
            age = max(now - slot._touched, 0) / 1e9
            infos.append(SlotInfo(SlotState.QUEUED, slot.conversation_id, prompt, age, None))
        return infos

    def _status(self, p: Provider) -> ProviderStatus:
        now = self._clock()
        head = p.queue.first() if p.queue is not None else None
        paused_for = None if p.paused_until is None else max(p.paused_until - now, 0) / 1e9
        return ProviderStatus(
            provider=p.name,
            limit=p.limit,
            in_flight=p.in_flight,
            held=len(p.held),
            cooling=p.in_flight - len(p.held) - p.reclaimed,
            reclaimed=p.reclaimed,
            queued=p.queued,
            head_wait=max(now - head._touched, 0) / 1e9 if head is not None else None,
            paused=paused_for is not None,
            paused_for=paused_for,
            paused_until=None if paused_for is None else self._settings.wall_clock() + paused_for,
            self_blocked=is_self_blocked(p),
        )

    # -- close ----------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Ends the manager for good: idempotent, synchronous, no timer is left (CLO-1).

        Queued requests are rejected with ManagerClosedError; held slots stay the holders' to release.
        """
        self._admit_call("close", when_closed=True)
        self._operate(self._close)
