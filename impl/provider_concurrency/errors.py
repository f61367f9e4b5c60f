"""What an acquire can raise; every error carries the figures that explain it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from provider_concurrency.provider import Provider

UNLIMITED: Final = sys.maxsize
"""The limit in force where there is none."""

__all__ = [
    "AcquireTimeoutError",
    "ManagerClosedError",
    "NestedAcquireError",
    "ProviderConcurrencyError",
    "QueueFullError",
    "SlotReclaimedError",
]


class ProviderConcurrencyError(Exception):
    """The base of all errors of this library.

    Attributes say how the provider stood when the error was made: `provider` (None where the call names none),
    `limit` (in force; None: unlimited), `in_flight`, `queued` (the request itself not counted) and `waited` (seconds
    that the request was queued).
    """

    def __init__(
        self,
        message: str,
        *,
        provider: str | None = None,
        limit: int | None = None,
        in_flight: int = 0,
        queued: int = 0,
        waited: float = 0.0,
    ) -> None:
        """Keeps the figures beside the message."""
        super().__init__(message)
        self.provider = provider
        self.limit = limit
        self.in_flight = in_flight
        self.queued = queued
        self.waited = waited


class ManagerClosedError(ProviderConcurrencyError, RuntimeError):
    """The manager is closed, or was closed while the request was queued (CLO-1, CLO-2)."""


class QueueFullError(ProviderConcurrencyError):
    """The request would have had to queue, and `max_queued` others already wait at its provider (ADM-7)."""


class NestedAcquireError(ProviderConcurrencyError):
    """The request would have waited for slots that only conversations around it and its like hold (NST-1)."""


class AcquireTimeoutError(ProviderConcurrencyError, TimeoutError):
    """The request was still queued when its `timeout` was over (CAN-3)."""


class SlotReclaimedError(ProviderConcurrencyError):
    """The watchdog took back the slot of a stream that was still open; the stream is closed (GRD-4)."""


ErrorT = TypeVar("ErrorT", bound=ProviderConcurrencyError)


def explain(kind: type[ErrorT], message: str, p: Provider, waited_ns: int = 0) -> ErrorT:
    """An error with the provider's figures as they are now."""
    ceiling = p.ceiling
    limit = None if ceiling == UNLIMITED else ceiling
    paused = ", paused" if p.paused_until is not None else ""
    return kind(
        f"provider {p.name!r}: {message} (limit {limit}, in flight {p.in_flight}, queued {p.queued}{paused})",
        provider=p.name,
        limit=limit,
        in_flight=p.in_flight,
        queued=p.queued,
        waited=waited_ns / 1e9,
    )
