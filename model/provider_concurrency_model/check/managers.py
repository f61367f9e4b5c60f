"""What the soak needs from a manager, as protocols: the judge never imports an implementation, it is told where one is.

Any class with the public surface of the Python library can be soaked (`--manager module:Class`). Observers are called
positionally with plain values; `Tee` hands one stream to several, `Tally` counts what the report prints.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol, TypeAlias

Observer: TypeAlias = Callable[
    [str, int, int, str | None, int | None, str | None, float | None, int, int, object], None
]
"""observer(event, op, t_ns, provider, request, conversation_id, prompt_started_at, in_flight, queued, value)"""


class SlotLike(Protocol):
    """A granted slot."""

    @property
    def reclaimed(self) -> bool:
        """The watchdog took it (WAT-3)."""
        ...

    def release(self) -> None:
        """REL-1, REL-2."""
        ...

    def touch(self) -> None:
        """WAT-2."""
        ...


class StatusLike(Protocol):
    """A provider's status."""

    @property
    def limit(self) -> int | None: ...  # noqa: D102 - the words of the specification
    @property
    def in_flight(self) -> int: ...  # noqa: D102
    @property
    def held(self) -> int: ...  # noqa: D102
    @property
    def cooling(self) -> int: ...  # noqa: D102
    @property
    def reclaimed(self) -> int: ...  # noqa: D102
    @property
    def queued(self) -> int: ...  # noqa: D102
    @property
    def paused(self) -> bool: ...  # noqa: D102
    @property
    def paused_for(self) -> float | None: ...  # noqa: D102


class ManagerLike(Protocol):
    """A manager: the part of its surface that the soak uses."""

    async def acquire(
        self,
        provider: str,
        *,
        conversation_id: str | None = None,
        prompt_started_at: float | None = None,
        timeout: float | None = None,
    ) -> SlotLike:
        """ADM-1."""
        ...

    def try_acquire(self, provider: str, *, conversation_id: str | None = None) -> SlotLike | None:
        """ADM-8."""
        ...

    def report_rate_limit(self, provider: str, retry_after: float | None = None) -> None:
        """PAU-1."""
        ...

    def resume(self, provider: str) -> None:
        """PAU-5."""
        ...

    def set_limit(self, provider: str, limit: int) -> None:
        """LIM-1."""
        ...

    def remove_limit(self, provider: str) -> None:
        """LIM-3."""
        ...

    def set_cooldown(self, provider: str, seconds: float | None) -> None:
        """ACC-4."""
        ...

    def get_status(self, provider: str) -> StatusLike | None:
        """The state now."""
        ...

    def get_status_all(self) -> Mapping[str, StatusLike]:
        """All providers with state."""
        ...

    def close(self) -> None:
        """CLO-1."""
        ...

    async def wait_closed(self, timeout: float | None = None) -> object:
        """CLO-2."""
        ...


class RecorderLike(Protocol):
    """A recorder of the manager package: made with a text stream, an observer itself."""

    def begin(self, manager: Any) -> None:
        """Writes the first line, with the manager's configuration; before the manager is used."""
        ...

    def __call__(  # noqa: D102 - the observer's signature
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
        /,
    ) -> None: ...


DEFAULT_MANAGER: Final = "provider_concurrency:ConcurrencyManager"
DEFAULT_RECORDER: Final = "provider_concurrency.trace:Recorder"


class Tee:
    """Hands every event to several observers, in order."""

    def __init__(self, *observers: Observer) -> None:
        """Takes the observers; none may raise."""
        self._observers = observers

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
        """The observer's signature."""
        for observer in self._observers:
            observer(event, op, t_ns, provider, request, conversation_id, prompt_started_at, in_flight, queued, value)


class Tally:
    """Counts events and peaks, and measures how long requests waited."""

    def __init__(self) -> None:
        """Nothing has happened."""
        self.counts: Counter[str] = Counter()
        self.grants: Counter[str] = Counter()
        self.peaks: dict[str, int] = {}
        """The most slots in flight at once, by provider."""
        self.longest_queues: dict[str, int] = {}
        self.waits_ns: list[int] = []
        """Of each grant: 0 for one made at once."""
        self._queued_at: dict[int, int] = {}

    def __call__(
        self,
        event: str,
        _op: int,
        t_ns: int,
        provider: str | None,
        request: int | None,
        _conversation_id: str | None,
        _prompt_started_at: float | None,
        in_flight: int,
        queued: int,
        _value: object,
    ) -> None:
        """The observer's signature."""
        self.counts[event] += 1
        if provider is None:
            return
        self.peaks[provider] = max(self.peaks.get(provider, 0), in_flight)
        self.longest_queues[provider] = max(self.longest_queues.get(provider, 0), queued)
        if request is None:
            return
        if event == "queued":
            self._queued_at[request] = t_ns
        elif event == "granted":
            self.grants[provider] += 1
            self.waits_ns.append(t_ns - self._queued_at.pop(request, t_ns))
        elif event in ("cancelled", "timed_out", "rejected"):
            self._queued_at.pop(request, None)
