"""The limiter as an extension of a host program: what it is called, what it provides, how it is switched on.

The host offers a logger and takes a service. `activate(host)` makes the manager with the shipped defaults, logs every
reclaim and pause as a warning, registers the manager and returns what closes it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from provider_concurrency.manager import ConcurrencyManager
from provider_concurrency.slot import Slot

__all__ = ["DEFAULTS", "MANIFEST", "Default", "Host", "HostLogger", "Manifest", "activate"]


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a host needs to know of an extension before it activates it."""

    id: str
    name: str
    version: str
    service: str


@dataclass(frozen=True, slots=True)
class Default:
    """A shipped setting and why it is what it is; durations in seconds."""

    value: Any
    reason: str = field(compare=False)


MANIFEST: Final = Manifest(
    id="provider-concurrency",
    name="Provider concurrency",
    version="0.1.0",
    service="provider-concurrency",
)
"""`service` is the name under which the manager is registered."""

DEFAULTS: Final[Mapping[str, Default]] = {
    "release_cooldown": Default(0.2, "upstreams still count a stream for some hundred milliseconds after its end"),
    "slot_timeout": Default(300.0, "longer than any healthy silence of a stream; live ones touch their slot"),
    "watchdog_interval": Default(30.0, "a stuck slot costs at most a tenth more than its timeout"),
    "default_pause": Default(30.0, "a 429 without a usable Retry-After: long enough for the upstream's counter"),
    "min_pause": Default(1.0, "Retry-After: 0 or 1 is common and too short for the upstream to have forgotten"),
    "max_pause": Default(21600.0, "the longest documented penalty is five hours; anything above is a broken header"),
}


class HostLogger(Protocol):
    """The part of a logger that is used; logging.Logger is one."""

    def warning(self, msg: str, /, *args: object) -> object:
        """Logs a warning with %-style arguments."""


class Host(Protocol):
    """What a host program offers to an extension."""

    @property
    def logger(self) -> HostLogger:
        """Where reclaims and pauses are told."""
        ...

    def provide_service(self, name: str, service: object, /) -> object:
        """Makes a service known to the rest of the program."""


def activate(host: Host, **settings: Any) -> Callable[[], None]:
    """Makes the manager, registers it as `MANIFEST.service`, and returns what closes it.

    `settings` are ConcurrencyManager's arguments and win over DEFAULTS. The host's own on_reclaim and on_pause, if
    given, are called after the warning. If the host refuses the service, the manager is closed and the host's error
    passes on.
    """
    on_reclaim: Callable[[Slot], object] | None = settings.pop("on_reclaim", None)
    on_pause: Callable[[str, float], object] | None = settings.pop("on_pause", None)

    def tell_reclaim(slot: Slot) -> None:
        host.logger.warning("%s: a slot was reclaimed from conversation %s", slot.provider, slot.conversation_id)
        if on_reclaim is not None:
            on_reclaim(slot)

    def tell_pause(provider: str, seconds: float) -> None:
        host.logger.warning("%s: rate limited, paused for %.3f s", provider, seconds)
        if on_pause is not None:
            on_pause(provider, seconds)

    arguments = {name: default.value for name, default in DEFAULTS.items()} | settings
    manager = ConcurrencyManager(**arguments, on_reclaim=tell_reclaim, on_pause=tell_pause)
    try:
        host.provide_service(MANIFEST.service, manager)
    except BaseException:
        manager.close()
        raise
    return manager.close
