"""Managers with one planted fault each, for the soak: the real one, overridden at its public surface."""

from __future__ import annotations

import asyncio
import sys
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


class NeverGrants(ConcurrencyManager):
    """ADM-1: every acquire waits."""

    async def acquire(self, *_: Any, **__: Any) -> Any:
        await asyncio.sleep(1000)


class NeverLetsGo(ConcurrencyManager):
    """CAN-1: every acquire waits, whoever cancels it."""

    async def acquire(self, *_: Any, **__: Any) -> Any:
        while True:
            try:
                await asyncio.sleep(1000)
            except asyncio.CancelledError:
                continue


class ForgetsTheLast(ConcurrencyManager):
    """ADM-1: where the soak's end looks, every acquire waits."""

    async def acquire(self, provider: str, **options: Any) -> Any:
        if provider == "last":
            await asyncio.sleep(1000)
        return await super().acquire(provider, **options)


class Raises(ConcurrencyManager):
    """Every acquire raises."""

    async def acquire(self, *_: Any, **__: Any) -> Any:
        raise KeyError("slot")


class RaisesAtStatus(ConcurrencyManager):
    """Every status raises."""

    def get_status(self, provider: str) -> Any:
        raise ZeroDivisionError(provider)


class Abandons(ConcurrencyManager):
    """Every acquire is cancelled, by nobody."""

    async def acquire(self, *_: Any, **__: Any) -> Any:
        raise asyncio.CancelledError


class Exits(ConcurrencyManager):
    """Ends the interpreter, with the exit code of success."""

    def set_limit(self, provider: str, limit: int) -> None:
        raise SystemExit(0)


class ExitsLater(ConcurrencyManager):
    """The same from a callback of the loop."""

    def resume(self, provider: str) -> None:
        asyncio.get_running_loop().call_soon(sys.exit, 0)


class ShowsLittle(ConcurrencyManager):
    """Its statuses lack nearly everything."""

    def get_status(self, provider: str) -> Any:
        return object()


class Unfinished:
    """Has one of the calls."""

    def __init__(self, **_: Any) -> None: ...

    def close(self) -> None: ...


class Unmakeable:
    """Takes no keywords."""
