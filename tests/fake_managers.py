"""Managers with one planted fault each, for the soak: the real one, overridden at its public surface."""

from __future__ import annotations

import asyncio
from typing import Any

from provider_concurrency import ConcurrencyManager


class AdmitsOneMore(ConcurrencyManager):
    """LIM-1, ADM-6: a limit is set one too high."""

    def set_limit(self, provider: str, limit: int) -> None:
        super().set_limit(provider, limit + 1)


class ClosesNot(ConcurrencyManager):
    """CLO-1: close does nothing."""

    def close(self) -> None:
        return


class LeavesATimer(ConcurrencyManager):
    """CLO-1: something is still scheduled after close."""

    def close(self) -> None:
        super().close()
        asyncio.get_running_loop().call_later(60, print)


class ReclaimsNobody(ConcurrencyManager):
    """WAT-1: no watchdog, whatever was asked for."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**{**settings, "slot_timeout": None})


class GrantsNobody(ConcurrencyManager):
    """ADM-1: whoever asks waits."""

    async def acquire(self, *_: Any, **__: Any) -> Any:
        await asyncio.Event().wait()


class Exits(ConcurrencyManager):
    """Leaves the interpreter, as if all were well."""

    def set_limit(self, provider: str, limit: int) -> None:
        raise SystemExit(0)


class Raises(ConcurrencyManager):
    """Can't be asked for anything."""

    async def acquire(self, *_: Any, **__: Any) -> Any:
        raise KeyError("x")


class Unmakeable:
    """Takes no keywords."""
