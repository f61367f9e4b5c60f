"""The limiter as an extension of a host: defaults with reasons, warnings, one service, one way to close."""

from __future__ import annotations

import logging
import re
from importlib.metadata import version
from typing import Any

import pytest

from provider_concurrency import ConcurrencyManager, ManagerClosedError
from provider_concurrency.extension import DEFAULTS, MANIFEST, Default, activate
from provider_concurrency.testing import VirtualLoop


class FakeHost:
    def __init__(self, *, refuses: bool = False) -> None:
        self.logger = logging.getLogger("host")
        self.services: dict[str, Any] = {}
        self.refuses = refuses

    def provide_service(self, name: str, service: object, /) -> None:
        self.services[name] = service
        if self.refuses:
            raise LookupError("taken")


def test_activation_registers_a_manager_with_the_shipped_defaults() -> None:
    host = FakeHost()
    close = activate(host)
    assert list(host.services) == [MANIFEST.service]
    manager = host.services[MANIFEST.service]
    assert isinstance(manager, ConcurrencyManager)
    described = manager.describe_settings()
    for name, default in DEFAULTS.items():
        assert described[name] == round(default.value * 1e9), name
    close()
    close()
    with pytest.raises(ManagerClosedError):
        manager.set_limit("p", 1)


def test_the_defaults_are_the_managers_own_and_each_has_its_reason() -> None:
    bare = ConcurrencyManager().describe_settings()
    for name, default in DEFAULTS.items():
        assert bare[name] == round(default.value * 1e9), name
        assert len(default.reason) > 20
    assert Default(1, "a") == Default(1, "b")


def test_settings_win_over_the_defaults() -> None:
    host = FakeHost()
    close = activate(host, release_cooldown=0.5, limits={"p": 3})
    manager = host.services[MANIFEST.service]
    assert manager.get_limits() == {"p": 3}
    assert manager.describe_settings()["release_cooldown"] == 500_000_000
    close()


@pytest.mark.parametrize("has_callbacks", [True, False])
def test_reclaims_and_pauses_are_warnings_and_the_hosts_callbacks_run_too(
    caplog: pytest.LogCaptureFixture, has_callbacks: bool
) -> None:
    host, loop, heard = FakeHost(), VirtualLoop(), []
    callbacks: dict[str, Any] = {}
    if has_callbacks:
        callbacks = {
            "on_reclaim": lambda slot: heard.append(slot.conversation_id),
            "on_pause": lambda *args: heard.append(args),
        }
    close = activate(host, clock=loop.time_ns, slot_timeout=5, watchdog_interval=1, **callbacks)
    manager = host.services[MANIFEST.service]
    loop.start(manager.acquire("p", conversation_id="c7")).result()
    manager.report_rate_limit("q", 2)
    loop.advance(6)
    warned = [r.getMessage() for r in caplog.records if r.name == "host" and r.levelno == logging.WARNING]
    assert warned == ["q: rate limited, paused for 2.000 s", "p: a slot was reclaimed from conversation c7"]
    assert heard == ([("q", 2.0), "c7"] if has_callbacks else [])
    close()
    loop.close()


def test_a_host_that_refuses_the_service_closes_the_manager() -> None:
    host = FakeHost(refuses=True)
    with pytest.raises(LookupError, match="taken"):
        activate(host)
    with pytest.raises(ManagerClosedError):
        host.services[MANIFEST.service].set_limit("p", 1)


def test_a_wrong_setting_registers_nothing() -> None:
    host = FakeHost()
    with pytest.raises(ValueError, match="release_cooldown"):
        activate(host, release_cooldown=-1)
    with pytest.raises(TypeError):
        activate(host, colour="red")
    assert host.services == {}


def test_the_manifest_says_the_distributions_version() -> None:
    assert MANIFEST.version == version("provider-concurrency")
    assert re.fullmatch(r"[a-z-]+", MANIFEST.id)
