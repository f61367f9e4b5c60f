"""What the manager's tests share: a manager on virtual time, all that it tells, and an audit of both.

The audit is written from the rules alone: a table of the legal lives of a request, and the figures that each event
must carry. It shares no logic with the manager.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from provider_concurrency import ConcurrencyManager, ProviderStatus, Slot
from provider_concurrency.events import Event, typed
from provider_concurrency.testing import VirtualLoop

MS = 1_000_000
WALL = 1.0e9
"""The wall clock at virtual time 0."""

NEXT: dict[str | None, dict[str, str | None]] = {
    None: {"granted": "held", "queued": "queued", "timed_out": "end"},
    "queued": {"granted": "held", "cancelled": "end", "timed_out": "end", "rejected": "end"},
    "held": {"released": "cooling", "reclaimed": "cooling", "cancelled": "end"},
    "cooling": {"recycled": "end"},
    "end": {},
}
"""The table of rules.md: from a request's state by an event to the next; reclaimed slots cool like released ones."""


class Auditor:
    """An observer that judges every event by the rules; what it finds wrong stands in `wrong`."""

    def __init__(self, limits: dict[str, int] | None, default_limit: int | None) -> None:
        self.wrong: list[str] = []
        self.states: dict[int, str | None] = {}
        self.providers: dict[int, str] = {}
        self.keys: dict[int, tuple[float, int]] = {}
        self.limits: dict[str, int] = dict(limits or {})
        self.default_limit = default_limit
        self.paused: set[str] = set()
        self.closed = False
        self.counts: dict[str, Counter[str | None]] = {}

    def __call__(self, event: Event) -> None:
        if event.request is not None:
            self._judge_slot(event, event.request)
        elif event.kind == "limit_set":
            assert event.provider is not None
            self.limits[event.provider] = event.value  # type: ignore[assignment]
        elif event.kind == "limit_removed":
            assert event.provider is not None
            self.limits.pop(event.provider, None)
        elif event.kind == "paused":
            self.paused.add(event.provider)  # type: ignore[arg-type]
        elif event.kind == "resumed":
            self.expect(event.provider in self.paused, event, "PAU-5: resumed without a pause")
            self.paused.discard(event.provider)  # type: ignore[arg-type]
        elif event.kind == "closed":
            self.expect(not self.closed, event, "CLO-1: closed twice")
            self.closed = True
            self.paused.clear()
        if event.provider is not None:
            figures = self.count(event.provider)
            self.expect(figures == (event.in_flight, event.queued), event, f"the figures are {figures}")

    def expect(self, holds: bool, event: Event, what: str) -> None:
        if not holds:
            self.wrong.append(f"{what}: {event}")

    def count(self, provider: str) -> tuple[int, int]:
        """(in_flight, queued) by the states of the slots."""
        count = self.counts.get(provider, Counter())
        return count["held"] + count["cooling"], count["queued"]

    def waiting(self, provider: str) -> list[int]:
        """The queued requests in order (ORD-1)."""
        return sorted((r for r in self.keys if self.providers[r] == provider), key=self.keys.__getitem__)

    def _judge_slot(self, event: Event, request: int) -> None:
        assert event.provider is not None
        provider = self.providers.setdefault(request, event.provider)
        self.expect(provider == event.provider, event, "a request belongs to one provider")
        before = self.states.get(request)
        if event.kind not in NEXT[before]:
            self.expect(False, event, f"ACC-2: illegal from {before}")
            return
        if event.kind == "granted":
            self.expect(not self.closed, event, "ADM-4: granted while closed")
            self.expect(provider not in self.paused, event, "ADM-4: granted while paused")
            limit = self.limits.get(provider, self.default_limit)
            self.expect(limit is None or event.in_flight <= limit, event, f"ADM-4: above the limit {limit}")
            waiting = self.waiting(provider)
            expected = [request] if before == "queued" else []
            self.expect(waiting[:1] == expected, event, f"ORD-1, ADM-1: these wait: {waiting}")
        if event.kind == "rejected":
            self.expect(self.closed, event, "rejected by an open manager")
            self.expect(self.waiting(provider)[:1] == [request], event, "CLO-1: not in queue order")
        if event.kind == "queued":
            assert event.prompt_started_at is not None
            self.keys[request] = (event.prompt_started_at, request)
        else:
            self.keys.pop(request, None)
        self.states[request] = after = NEXT[before][event.kind]
        count = self.counts.setdefault(provider, Counter())
        count[before] -= 1
        count[after] += 1


class World:
    """A manager on its virtual loop, what was asked of it, and what it told."""

    def __init__(
        self, *, watched: bool = True, start_ns: int = 0, loop: VirtualLoop | None = None, **settings: Any
    ) -> None:
        self.loop = VirtualLoop(start_ns) if loop is None else loop
        self.failures: list[dict[str, Any]] = []
        self.loop.set_exception_handler(self._note_failure)
        self.wall_jump = 0.0
        self.events: list[Event] = []
        self.auditor = Auditor(settings.get("limits"), settings.get("default_limit"))
        self.watched = watched
        settings.setdefault("clock", self.loop.time_ns)
        settings.setdefault("wall_clock", lambda: WALL + self.loop.time() + self.wall_jump)
        if watched:
            settings.setdefault("observer", typed(self.observe))
        self.manager = ConcurrencyManager(**settings)

    def _note_failure(self, _: object, context: dict[str, Any]) -> None:
        if context["message"] != "Task exception was never retrieved":  # a test needn't look at each task
            self.failures.append(context)

    def observe(self, event: Event) -> None:
        self.events.append(event)
        self.auditor(event)

    # -- asking ---------------------------------------------------------------------------------------------------

    def ask(self, provider: str = "p", **arguments: Any) -> asyncio.Task[Slot]:
        """Starts an acquire, up to where it waits."""
        return self.loop.start(self.manager.acquire(provider, **arguments))

    def hold(self, provider: str = "p", **arguments: Any) -> Slot:
        """A slot that must be granted at once."""
        task = self.ask(provider, **arguments)
        assert task.done(), "not granted at once"
        return task.result()

    def take(self, provider: str = "p", **arguments: Any) -> Slot | None:
        """try_acquire, within the loop."""
        with self.loop.running():
            return self.manager.try_acquire(provider, **arguments)

    def pass_ms(self, ms: int) -> None:
        """Lets virtual time pass."""
        self.loop.advance_ns(ms * MS)

    # -- reading --------------------------------------------------------------------------------------------------

    def status(self, provider: str = "p") -> ProviderStatus | None:
        return self.manager.get_status(provider)

    def figures(self, provider: str = "p") -> tuple[int, int, int, int] | None:
        """(held, cooling, reclaimed, queued), or None where there is no state."""
        status = self.status(provider)
        return None if status is None else (status.held, status.cooling, status.reclaimed, status.queued)

    def told(self) -> list[tuple[str, int | None]]:
        """The events so far as (kind, request), and forgets them."""
        told = [(event.kind, event.request) for event in self.events]
        self.events.clear()
        return told

    def kinds(self) -> list[str]:
        """The events' words so far, and forgets them."""
        return [kind for kind, _ in self.told()]

    def timers(self) -> int:
        """How many timers the manager has alive; those of a test's own sleeps and timeouts don't count."""
        modules = [getattr(handle._callback, "__module__", "") for handle in self.loop.alive_timers()]
        return sum(module.startswith("provider_concurrency") for module in modules)

    def everything(self) -> object:
        """The whole state, for "a refused action changes nothing"; reading it applies nothing."""
        manager = self.manager
        return {
            name: (
                p.limit, p.own_cooldown, p.cooldown, p.cap, p.paused_until, dict(p.held), p.reclaimed, p.queued,
                sorted((slot._key, slot._arrival, slot) for slot in p.cooling or ()),
                sorted((slot._key, slot._arrival, slot) for slot in living(p.queue)),
                sorted((slot._deadline, slot._arrival, slot) for slot in living(p.timeouts)),
                {slot: (slot._state, slot._touched) for slot in p.held},
            )
            for name, p in manager._providers.items()
        } | {"": (manager._closed, len(self.events), self.timers())}  # fmt: skip

    @contextmanager
    def unchanged(self) -> Iterator[None]:
        """The block must change nothing."""
        before = self.everything()
        yield
        assert self.everything() == before

    # -- judging --------------------------------------------------------------------------------------------------

    def check(self, *, in_callback: bool = False) -> None:
        """The standing invariants, by looking only: nothing due is applied by that.

        In a callback the auditor may not have been told of everything yet.
        """
        assert self.auditor.wrong == []
        manager = self.manager
        for name, p in manager._providers.items():
            cooling = list(p.cooling or ())
            limit = p.limit if p.limit is not None else manager._settings.default_limit
            waiting, timed = living(p.queue), living(p.timeouts)
            in_flight = len(p.held) + len(cooling)
            assert p.in_flight == in_flight, name
            assert p.reclaimed == sum(slot.reclaimed for slot in cooling), name
            assert p.queued == len(waiting), f"{name}: dead entries are miscounted"
            assert p.queue is None or waiting, f"{name}: an empty queue is None"
            if p.timeouts is not None:
                assert len(p.timeouts) == len(timed), f"{name}: dead timeouts are miscounted"
            assert set(timed) == {slot for slot in waiting if slot._deadline is not None}, name
            is_room = p.paused_until is None and not manager._closed and (limit is None or in_flight < limit)
            assert (len(p.held) < p.cap) == is_room, f"{name}: room is computed wrongly (ADM-2)"
            assert not (waiting and is_room), f"{name}: a lost wake-up (ADM-5)"
            deadlines = [*(slot._key for slot in cooling), *(slot._deadline for slot in timed)]
            deadlines += [p.paused_until] * (p.paused_until is not None)
            if waiting and deadlines and manager._loop is not None and not manager._loop.is_closed():
                assert p.timer is not None, f"{name}: nobody wakes the queue (TIM-2)"
                assert p.timer_at <= max(min(deadlines), self.loop.time_ns()), f"{name}: the queue is woken late"
            if self.watched and not in_callback:
                assert self.auditor.count(name) == (in_flight, len(waiting)), name
        assert self.timers() <= (0 if manager._closed else len(manager._providers) + 1), "too many timers (TIM-4)"

    def __enter__(self) -> World:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.finish()
        else:
            self.abandon()

    def abandon(self) -> None:
        """Ends the world unjudged: the test has failed already."""
        for task in asyncio.all_tasks(self.loop):
            task.cancel()
        with suppress(Exception):
            self.loop.settle()
        self.loop.close()

    def finish(self) -> None:
        """Ends the world: nothing may be wrong or left."""
        if self.loop.is_closed():
            return
        try:
            self._finish()
        except BaseException:
            self.abandon()
            raise
        self.loop.close()

    def _finish(self) -> None:
        self.loop.settle()
        self.check()
        self.manager.close()
        self.check()
        for task in asyncio.all_tasks(self.loop):
            task.cancel()
        self.loop.settle()
        assert self.timers() == 0, "CLO-1: a timer is left"
        assert [failure.get("exception", failure["message"]) for failure in self.failures] == []
        for p in list(self.manager._providers.values()):
            for slot in list(p.held):
                slot.release()
        assert self.auditor.wrong == []
        assert set(self.auditor.states.values()) <= {"end"}, "ACC-2: a request without an end"


def living(run: Any) -> list[Any]:
    """A queue's slots that are still queued."""
    from provider_concurrency._tags import QUEUED

    return [slot for slot in run or () if slot._state == QUEUED]


def drive(loop: VirtualLoop, between: Callable[[], None], seconds: float = 0.0) -> None:
    """Runs for so long and until nothing is ready, and calls `between` before every turn."""
    end = loop.time_ns() + round(seconds * 1e9)
    while True:
        between()
        if not loop.step():
            deadline = loop.next_deadline_ns()
            if deadline is None or deadline > end:
                break
            loop.stall_ns(deadline - loop.time_ns())
    loop.stall_ns(end - loop.time_ns())
