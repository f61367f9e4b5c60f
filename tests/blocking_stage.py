"""What the blocking manager's tests share: a manager on virtual time, callers in threads of their own, an audit."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from collections.abc import Callable
from typing import Any

from provider_concurrency.events import Event, typed
from provider_concurrency.slot import Slot
from provider_concurrency.status import ProviderStatus
from provider_concurrency.threading_port import Caller, VirtualManager, VirtualWakes
from support import WALL, Auditor

MS = 1_000_000


class Stage:
    """A blocking manager on virtual time, what it told, and who asked."""

    def __init__(self, **settings: Any) -> None:
        self.time = VirtualWakes()
        self.events: list[Event] = []
        self.auditor = Auditor(settings.get("limits"), settings.get("default_limit"))
        settings.setdefault("wall_clock", lambda: WALL + self.time.now_ns / 1e9)
        settings.setdefault("observer", typed(self.observe))
        self.manager = VirtualManager(self.time, **settings)
        self.callers: list[Caller] = []
        self.locked: list[str] = []  # callbacks that were called under the lock

    def observe(self, event: Event) -> None:
        self.events.append(event)
        self.auditor(event)
        if self.manager._owns(self.manager):
            self.locked.append(event.kind)

    def ask(self, provider: str = "p", **arguments: Any) -> Caller:
        """Starts an acquire in a thread of its own, up to where it waits."""
        caller = Caller(lambda: self.manager.acquire(provider, **arguments))
        self.callers.append(caller)
        caller.start_quietly()
        caller.finish()
        return caller

    def hold(self, provider: str = "p", **arguments: Any) -> Slot:
        """A slot that must be granted at once."""
        slot = self.manager.acquire(provider, timeout=0, **arguments)
        assert slot is not None
        return slot

    def settle(self) -> None:
        """Every caller whose wait is over has returned."""
        for caller in self.callers:
            caller.finish()

    def pass_ms(self, ms: int) -> None:
        self.time.advance_ns(ms * MS, self.settle)
        self.settle()

    def status(self, provider: str = "p") -> ProviderStatus | None:
        return self.manager.get_status(provider)

    def figures(self, provider: str = "p") -> tuple[int, int, int, int] | None:
        """(held, cooling, reclaimed, queued), or None where there is no state."""
        status = self.status(provider)
        return None if status is None else (status.held, status.cooling, status.reclaimed, status.queued)

    def kinds(self) -> list[str]:
        """The events' words so far, and forgets them."""
        kinds = [event.kind for event in self.events]
        self.events.clear()
        return kinds

    def finish(self) -> None:
        """Ends the stage: nothing may be wrong or left."""
        assert self.auditor.wrong == []
        self.manager.close()
        self.settle()
        assert [caller for caller in self.callers if caller.is_alive()] == []
        assert len(self.time) == 0, "CLO-1: a wake-up is left"
        for p in list(self.manager._providers.values()):
            for slot in list(p.held):
                slot.release()
        assert self.auditor.wrong == []
        assert set(self.auditor.states.values()) <= {"end"}, "ACC-2: a request without an end"
        assert self.locked == [], "a callback was called under the lock"


def result_of(caller: Caller) -> Slot:
    """What a caller got."""
    assert not caller.is_alive(), "it still waits"
    if caller.error is not None:
        raise caller.error
    assert caller.slot is not None
    return caller.slot


PROLOGUE = """
import os, signal, sys, threading, time, warnings
warnings.simplefilter("ignore", DeprecationWarning)  # that a process with threads forks
from provider_concurrency import SlotState
from provider_concurrency.threading import ConcurrencyManager

def in_child(check):
    '''Runs check in a forked child; the parent fails with it.'''
    pid = os.fork()
    if pid == 0:
        try:
            check()
        except BaseException:
            import traceback
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0, "the child failed"

def until(condition):
    '''Lets other threads run until it holds.'''
    while not condition():
        time.sleep(0)
"""


def run_program(program: str) -> None:
    """Runs a program of its own, which must end well and say nothing on stderr."""
    done = subprocess.run(
        [sys.executable, "-c", PROLOGUE + textwrap.dedent(program)],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")


MakeStage = Callable[..., Stage]
