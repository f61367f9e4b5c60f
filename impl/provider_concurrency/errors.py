"""What an acquire can raise; every error carries the figures that explain it."""

from __future__ import annotations

__all__ = ["AcquireTimeoutError", "ManagerClosedError", "ProviderConcurrencyError", "QueueFullError"]


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


class AcquireTimeoutError(ProviderConcurrencyError, TimeoutError):
    """The request was still queued when its `timeout` was over (CAN-3)."""
