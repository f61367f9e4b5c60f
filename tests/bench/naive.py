"""The original limiter, ported line by line without a thought for speed: what the manager would be otherwise.

The queue is a list that is sorted anew for each request; each held slot has a watchdog timer of its own, each
released one a cooldown timer; a request is a dataclass with a `datetime`, and its release a closure.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime

Release = Callable[[], None]


@dataclass(eq=False)
class _Waiting:
    conversation_id: str
    prompt_started_at: datetime
    granted: asyncio.Future[Release]


@dataclass
class _Provider:
    limit: int
    in_flight: int = 0
    queue: list[_Waiting] = field(default_factory=list)
    cooldowns: set[asyncio.TimerHandle] = field(default_factory=set)


class NaiveManager:
    """Grants the oldest prompt first, `limit` at once, each slot cooling for `cooldown` seconds."""

    def __init__(self, limits: dict[str, int], *, cooldown: float = 0.0, slot_timeout: float = 300.0) -> None:
        self.reclaimed = 0
        self._cooldown = cooldown
        self._slot_timeout = slot_timeout
        self._providers = {name: _Provider(limit) for name, limit in limits.items()}

    async def acquire(
        self, provider: str, conversation_id: str = "", prompt_started_at: datetime | None = None
    ) -> Release:
        """Waits for a slot; what it returns releases it."""
        state = self._providers[provider]
        started = prompt_started_at if prompt_started_at is not None else datetime.now(UTC)
        if state.in_flight < state.limit and not state.queue:
            return self._grant(state)
        waiting = _Waiting(conversation_id, started, asyncio.get_running_loop().create_future())
        state.queue.append(waiting)
        state.queue.sort(key=lambda entry: entry.prompt_started_at)
        try:
            return await waiting.granted
        except asyncio.CancelledError:
            if waiting in state.queue:
                state.queue.remove(waiting)
            elif waiting.granted.done() and not waiting.granted.cancelled():
                waiting.granted.result()()
            raise

    def in_flight(self, provider: str) -> int:
        """Slots held or cooling."""
        return self._providers[provider].in_flight

    def _grant(self, state: _Provider) -> Release:
        state.in_flight += 1
        is_released = False

        def release() -> None:
            nonlocal is_released
            if is_released:
                return
            is_released = True
            watchdog.cancel()
            if self._cooldown > 0:
                cool_down()
            else:
                self._free(state)

        def cool_down() -> None:
            def end() -> None:
                state.cooldowns.discard(handle)
                self._free(state)

            handle = loop.call_later(self._cooldown, end)
            state.cooldowns.add(handle)

        def reclaim() -> None:
            self.reclaimed += 1
            release()

        loop = asyncio.get_running_loop()
        watchdog = loop.call_later(self._slot_timeout, reclaim)
        return release

    def _free(self, state: _Provider) -> None:
        state.in_flight -= 1
        while state.queue and state.in_flight < state.limit:
            waiting = state.queue.pop(0)
            if not waiting.granted.done():
                waiting.granted.set_result(self._grant(state))
