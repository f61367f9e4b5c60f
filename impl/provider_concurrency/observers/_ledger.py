"""What a metrics observer must remember between two events, the same for every metrics library.

An event tells one transition; a metric wants durations, and figures that no event carries. That is one time stamp for
each request that is queued or held, and five numbers for each provider. The latter stay, as its series does: a figure
that is no longer told would stand in a dashboard at its last value, not at 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from provider_concurrency.surface import Surface

__all__ = ["Figures", "Ledger", "Moment", "encodable"]


@dataclass(slots=True)
class Figures:
    """A provider as its last event left it; `limit` is the one in force, None: unlimited."""

    held: int = 0
    cooling: int = 0
    queued: int = 0
    paused: bool = False
    limit: int | None = None


@dataclass(frozen=True, slots=True)
class Moment:
    """What one event of a provider means for its metrics; durations in seconds, None: nothing ended.

    `wait` ends with a grant or without (timed_out, cancelled, rejected). `hold` ends with a release or a reclaim. A
    grant that its caller never received (CAN-2) has a wait and no hold: nothing was sent upstream.
    """

    figures: Figures
    wait: float | None = None
    hold: float | None = None


class Ledger:
    """The live requests and the figures of one manager, told by its events."""

    def __init__(self) -> None:
        """Knows nothing yet; limits given to the constructor are told by `attach`."""
        self.figures: dict[str, Figures] = {}
        self._limits: dict[str, int] = {}
        self._default_limit: int | None = None
        self._queued_at: dict[int, int] = {}
        self._granted_at: dict[int, int] = {}

    def attach(self, manager: Surface) -> None:
        """Begins anew with the limits and figures of a manager (OBS-2); of what lives already no duration is known."""
        self._default_limit = cast("int | None", manager.describe_settings()["default_limit"])
        self._limits = manager.get_limits()
        self._queued_at.clear()
        self._granted_at.clear()
        self.figures = {name: self._idle(name) for name in self.figures}
        for name, status in manager.get_status_all().items():
            self.figures[name] = figures = self._idle(name)
            figures.held, figures.cooling = status.held, status.cooling + status.reclaimed
            figures.queued, figures.paused = status.queued, status.paused

    def _idle(self, provider: str) -> Figures:
        return Figures(limit=self._limits.get(provider, self._default_limit))

    def live(self) -> int:
        """How many requests it remembers: those queued or held."""
        return len(self._queued_at) + len(self._granted_at)

    def enter(
        self, event: str, t_ns: int, provider: str, request: int | None, in_flight: int, queued: int, value: object
    ) -> Moment:
        """Takes one event of a provider in; what it is called with stands at Observer."""
        figures = self.figures.get(provider)
        if figures is None:
            figures = self.figures[provider] = self._idle(provider)
        wait = hold = None
        if request is not None:
            wait, hold = self._enter_request(figures, event, t_ns, request)
        elif event == "limit_set":
            self._limits[provider] = figures.limit = cast(int, value)
        elif event == "limit_removed":
            self._limits.pop(provider, None)
            figures.limit = self._default_limit
        elif event in ("paused", "resumed"):
            figures.paused = event == "paused"
        figures.queued = queued
        figures.cooling = in_flight - figures.held
        return Moment(figures, wait, hold)

    def close(self) -> Mapping[str, Figures]:
        """The manager is closed: every pause has ended without an event (CLO-1). Gives all figures known."""
        for figures in self.figures.values():
            figures.paused = False
        return self.figures

    def _enter_request(
        self, figures: Figures, event: str, t_ns: int, request: int
    ) -> tuple[float | None, float | None]:
        """(wait, hold) that this event ends."""
        match event:
            case "queued":
                self._queued_at[request] = t_ns
            case "granted":
                figures.held += 1
                self._granted_at[request] = t_ns
                return (t_ns - self._queued_at.pop(request, t_ns)) / 1e9, None
            case "released" | "reclaimed":
                return None, self._end_hold(figures, t_ns, request)
            case "cancelled" if request not in self._queued_at:  # granted, and never received (CAN-2)
                self._end_hold(figures, t_ns, request)
            case "cancelled" | "timed_out" | "rejected":
                return (t_ns - self._queued_at.pop(request, t_ns)) / 1e9, None
            case _:
                pass
        return None, None

    def _end_hold(self, figures: Figures, t_ns: int, request: int) -> float | None:
        figures.held -= 1
        granted_at = self._granted_at.pop(request, None)
        return None if granted_at is None else (t_ns - granted_at) / 1e9


def encodable(text: str) -> str:
    """A name that every exporter can send: lone surrogates, which UTF-8 has no bytes for, are written out."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
