"""Good use, checked by mypy --strict; what must be reported stands beside an expected error."""

from __future__ import annotations

from io import StringIO
from typing import assert_type

import httpx2

from provider_concurrency import (
    AcquireTimeoutError,
    ConcurrencyManager,
    ManagerClosedError,
    ProviderConcurrencyError,
    ProviderStatus,
    QueueFullError,
    Slot,
    SlotInfo,
    SlotState,
    threading,
)
from provider_concurrency.events import Event, tee, typed
from provider_concurrency.extension import Host, HostLogger, activate
from provider_concurrency.integrations.httpx2 import limited_client
from provider_concurrency.testing import VirtualLoop
from provider_concurrency.trace import Recorder


def heard(event: Event) -> None:
    assert_type(event.provider, str | None)


def told(slot: Slot) -> None:
    assert_type(slot.state, SlotState)
    assert_type(slot.reclaimed, bool)
    assert_type(slot.provider, str)
    assert_type(slot.conversation_id, str | None)


loop = VirtualLoop()
manager = ConcurrencyManager(
    limits={"p": 3},
    default_limit=None,
    release_cooldown=1,
    slot_timeout=None,
    clock=loop.time_ns,
    observer=tee(typed(heard)),
    on_reclaim=told,
    on_pause=lambda provider, seconds: print(provider.upper(), seconds + 1),
)


async def use() -> None:
    async with manager as same, same.slot("p", conversation_id="c", timeout=1) as slot:
        assert_type(slot, Slot)
        slot.touch()
    assert_type(await manager.acquire("p", prompt_started_at=1, on_queued=lambda: None), Slot)
    with await manager.acquire("p") as held:
        assert_type(held, Slot)
        held.release()
    assert_type(manager.try_acquire("p"), Slot | None)
    await manager.wait_closed(timeout=5)


assert_type(manager.get_status("p"), ProviderStatus | None)
assert_type(manager.get_status_all(), dict[str, ProviderStatus])
assert_type(manager.get_slots("p"), list[SlotInfo])
assert_type(manager.get_limits(), dict[str, int])
assert_type(manager.get_limit("p"), int | None)
assert_type(manager.get_cooldown("p"), float | None)
manager.set_cooldown("p", None)
manager.report_rate_limit("p")
manager.report_rate_limit("p", retry_after=1.5)

blocking = threading.ConcurrencyManager(limits={"p": 3})
with blocking as entered, entered.slot("p", timeout=1) as blocking_slot:
    assert_type(entered, threading.ConcurrencyManager)
    assert_type(blocking_slot, Slot)
    assert_type(next(blocking_slot.guard(iter("ab"))), str)
assert_type(blocking.acquire("p"), Slot)
assert_type(blocking.try_acquire("p"), Slot | None)
assert_type(limited_client(manager, provider="p"), httpx2.AsyncClient)
assert_type(limited_client(blocking, provider="p"), httpx2.Client)
assert_type(limited_client(blocking, httpx2.Client(), acquire_timeout=1), httpx2.Client)

Recorder(StringIO()).begin(manager)
Recorder(StringIO()).begin(blocking)

errors: list[type[ProviderConcurrencyError]] = [AcquireTimeoutError, ManagerClosedError, QueueFullError]
as_timeout: type[TimeoutError] = AcquireTimeoutError
as_runtime: type[RuntimeError] = ManagerClosedError


class MyHost:
    """What a host looks like."""

    def __init__(self, logger: HostLogger) -> None:
        self.logger = logger

    def provide_service(self, name: str, service: object, /) -> None:
        """Takes it."""


def switch_on(logger: HostLogger) -> None:
    host: Host = MyHost(logger)
    activate(host)()


# -- what must be reported ---------------------------------------------------------------------------------------------


async def misuse() -> None:
    with manager.slot("p"):  # E: attr-defined
        pass
    manager.acquire("p")  # E: unused-coroutine
    manager.acquire("p").release()  # E: attr-defined
    with manager.acquire("p") as slot:  # E: attr-defined
        print(slot)
    manager.try_acquire("p").release()  # E: union-attr
    await manager.acquire("p", None)  # E: misc call-arg
    await manager.acquire(7)  # E: arg-type
    manager.set_limit("p", 1.5)  # E: arg-type
    manager.set_limit("p", None)  # E: arg-type
    print(manager.get_status("p").held)  # E: union-attr
    ConcurrencyManager({"p": 1})  # E: misc call-arg
    ConcurrencyManager(on_pause=lambda seconds: None)  # E: arg-type misc
    ConcurrencyManager(colour="red")  # E: call-arg
    Slot().state = SlotState.HELD  # E: misc
    limited_client(manager, httpx2.Client())  # E: call-overload
    limited_client(blocking, httpx2.AsyncClient())  # E: call-overload
    limited_client(blocking, povider="p")  # E: call-overload
    blocking.slot("p").release()  # E: attr-defined
