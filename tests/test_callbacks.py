"""CAL-1..4: a callback may raise anything and call anything; the state is always complete when it runs."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections import deque
from collections.abc import Callable
from typing import Any

import pytest

from provider_concurrency import ConcurrencyManager, Slot, SlotState
from provider_concurrency.events import Event, typed
from support import World

# -- every hook raising at every call ----------------------------------------------------------------------------------


class HookError(Exception):
    """Raised from a callback by a test."""


class Play:
    """A course of events that calls every hook; `raising` is called at each call of one, with its name."""

    def __init__(self, *, watched: bool = True) -> None:
        self.raising: Callable[[str], None] | None = None
        self.calls: list[str] = []
        self.raised = 0
        self.world = World(
            watched=False,
            limits={"p": 1},
            slot_timeout=3.0,
            watchdog_interval=1.0,
            on_reclaim=lambda slot: self.call("on_reclaim"),
            on_pause=lambda *_: self.call("on_pause"),
            observer=typed(self.observe) if watched else None,
        )
        self.world.watched = watched
        self.tasks: list[asyncio.Task[Slot]] = []

    def observe(self, event: Event) -> None:
        self.world.observe(event)
        self.call("observer")

    def call(self, name: str) -> None:
        self.calls.append(name)
        if self.raising is not None:
            self.raising(name)

    def ask(self, **arguments: Any) -> None:
        self.tasks.append(self.world.ask(on_queued=lambda: self.call("on_queued"), **arguments))

    def run(self) -> None:
        world, manager = self.world, self.world.manager
        held: list[Slot] = []
        for act in (
            lambda: self.ask(),
            lambda: held.append(self.tasks[0].result()) if self.tasks else None,
            lambda: self.ask(prompt_started_at=3.0),
            lambda: self.ask(prompt_started_at=2.0, timeout=0.5),
            lambda: self.ask(prompt_started_at=1.0),
            lambda: self.tasks[-1].cancel() if len(self.tasks) > 3 else None,
            lambda: manager.report_rate_limit("p", 2),
            lambda: manager.report_rate_limit("p", 4),
            lambda: self.until(1.0),
            lambda: [slot.release() for slot in held],
            lambda: self.until(2.0),
            lambda: manager.resume("p"),
            lambda: manager.set_limit("p", 2),
            lambda: manager.set_cooldown("p", 0.1),
            lambda: self.until(6.0),
            lambda: manager.remove_limit("p"),
            lambda: manager.close(),
            lambda: world.loop.settle(),
        ):
            self.attempt(act)

    def until(self, seconds: float) -> None:
        """Passes time up to a moment; to be called again if it was interrupted."""
        self.world.loop.advance_ns(max(round(seconds * 1e9) - self.world.loop.time_ns(), 0))

    def attempt(self, act: Callable[[], object]) -> None:
        while True:
            try:
                with self.world.loop.running():
                    act()
            except (KeyboardInterrupt, SystemExit):
                self.raised += 1
                if self.raised > 1:
                    raise
                act = self.world.loop.settle if act.__code__.co_names[:1] != ("until",) else act  # type: ignore[attr-defined]
            else:
                return


def raise_at(play: Play, n: int, kind: type[BaseException]) -> Callable[[str], None]:
    """A hook that raises at the play's n-th call of a hook."""

    def fail(name: str) -> None:
        if len(play.calls) == n + 1:
            raise kind(name)

    return fail


def list_calls(*, watched: bool) -> list[str]:
    play = Play(watched=watched)
    with play.world:
        play.run()
    return play.calls


def test_the_course_calls_every_hook() -> None:
    assert set(list_calls(watched=True)) == {"observer", "on_queued", "on_pause", "on_reclaim"}
    assert set(list_calls(watched=False)) == {"on_queued", "on_pause", "on_reclaim"}


@pytest.mark.parametrize("watched", [True, False], ids=["watched", "unwatched"])
def test_cal_4_an_exception_is_reported_once(watched: bool) -> None:
    """Raised at any call of any hook, it changes nothing."""
    calm = Play(watched=watched)
    with calm.world:
        calm.run()
        for n in range(len(calm.calls)):
            play = Play(watched=watched)
            play.raising = raise_at(play, n, HookError)
            with play.world:
                play.run()
                assert [type(failure["exception"]) for failure in play.world.failures] == [HookError]
                play.world.failures.clear()
                assert (play.calls, play.world.events) == (calm.calls, calm.world.events)
                assert [str(task) for task in play.tasks if not task.done()] == []
                assert outcomes(play) == outcomes(calm)


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("watched", [True, False], ids=["watched", "unwatched"])
def test_cal_4_keyboard_interrupt_propagates_after_the_state_change(watched: bool, kind: type[BaseException]) -> None:
    for n in range(len(list_calls(watched=watched))):
        play = Play(watched=watched)
        play.raising = raise_at(play, n, kind)
        with play.world as world:
            play.run()
            assert play.raised == 1, f"call {n} ({play.calls[n]}) was swallowed"
            world.check()
            assert world.failures == []


def outcomes(play: Play) -> list[str]:
    return [
        "cancelled" if task.cancelled() else type(task.exception() or task.result()).__name__ for task in play.tasks
    ]


def test_a_notification_lost_at_an_interrupt_would_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    from provider_concurrency.delivery import DeliveryLine

    def deliver(line: Any) -> None:  # the naive way: the rest of the line is dropped
        calls = list(line.waiting)
        line.waiting.clear()
        for callback, args in calls:
            callback(*args)

    monkeypatch.setattr(DeliveryLine, "deliver", deliver)
    with pytest.raises(AssertionError):
        test_cal_4_keyboard_interrupt_propagates_after_the_state_change(True, KeyboardInterrupt)


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
def test_cal_4_an_acquire_interrupted_by_on_queued_leaves_the_queue(
    make: Callable[..., World], kind: type[BaseException]
) -> None:
    world = make(limits={"p": 1})
    world.hold()

    def interrupt() -> None:
        raise kind

    with pytest.raises(kind):
        world.ask(on_queued=interrupt)
    assert world.figures() == (1, 0, 0, 0)


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
def test_cal_4_a_grant_interrupted_by_the_observer_is_given_back(kind: type[BaseException]) -> None:
    def interrupt(event: Event) -> None:
        if event.kind == "granted":
            raise kind

    world = World(limits={"p": 1}, observer=typed(interrupt), watched=False)
    with world:
        with pytest.raises(kind):
            world.take()
        assert world.figures() == (0, 0, 0, 0)
        with pytest.raises(kind):
            world.ask()
        assert world.figures() == (0, 0, 0, 0)


def test_cal_4_the_last_of_two_interrupts_propagates_and_the_line_is_empty() -> None:
    heard: list[str] = []

    def interrupt(event: Event) -> None:
        heard.append(event.kind)
        raise KeyboardInterrupt(event.kind)

    with World(observer=typed(interrupt), watched=False, release_cooldown=0, min_pause=0) as world:
        with pytest.raises(KeyboardInterrupt, match="resumed"):
            world.manager.report_rate_limit("p", 0)
        assert heard == ["paused", "resumed"]
        with pytest.raises(KeyboardInterrupt, match="closed"):
            world.manager.close()


@pytest.mark.parametrize("where", ["no loop", "a loop", "a closed loop"])
def test_cal_4_where_an_exception_is_reported(where: str, caplog: pytest.LogCaptureFixture) -> None:
    def fail(*_: object) -> None:
        raise HookError("meant")

    world = World(on_pause=fail, watched=False)
    if where != "no loop":
        world.hold().release()
        world.pass_ms(200)
    if where == "a closed loop":
        world.loop.close()
    world.manager.report_rate_limit("p", 5)
    logged = [r for r in caplog.records if r.name == "provider_concurrency" and r.levelno == logging.ERROR]
    assert (len(world.failures), len(logged)) == ((1, 0) if where == "a loop" else (0, 1))
    if where == "a loop":
        assert isinstance(world.failures[0]["exception"], HookError)
        assert "fail" in world.failures[0]["message"]
        world.failures.clear()
    else:
        assert logged[0].exc_info is not None
        assert isinstance(logged[0].exc_info[1], HookError)
    assert world.status().paused  # type: ignore[union-attr]
    world.finish()
    world.loop.close()


# -- re-entrancy: as if called right after the outer call returned (CAL-3) ---------------------------------------------


def as_task(world: World) -> object:
    return world.ask(prompt_started_at=0.5)


def as_eager_task(world: World) -> object:
    with world.loop.running():
        return asyncio.Task(world.manager.acquire("p"), loop=world.loop, eager_start=True)  # type: ignore[call-arg]


ACTIONS: dict[str, Callable[[World], object]] = {
    "acquire": as_task,
    "acquire elsewhere": lambda w: w.ask("q"),
    "acquire and cancel": lambda w: w.ask().cancel(),
    "try_acquire": lambda w: w.take(),
    "release": lambda w: [slot.release() for slot in list(w.manager._providers["p"].held)],
    "set_limit up": lambda w: w.manager.set_limit("p", 4),
    "set_limit 0": lambda w: w.manager.set_limit("p", 0),
    "remove_limit": lambda w: w.manager.remove_limit("p"),
    "set_cooldown": lambda w: w.manager.set_cooldown("p", 0),
    "close": lambda w: w.manager.close(),
    "429": lambda w: w.manager.report_rate_limit("p", 7),
    "429 elsewhere": lambda w: w.manager.report_rate_limit("q", 7),
    "resume": lambda w: w.manager.resume("p"),
    "status": lambda w: w.manager.get_status_all(),
}
if sys.version_info >= (3, 12):
    ACTIONS["eager acquire"] = as_eager_task


class Reentry:
    """One outer call that makes a hook run; in it, or right after it, an action."""

    def __init__(self, hook: str, action: Callable[[World], object] | None) -> None:
        self.hook, self.action = hook, action
        self.result: object = None
        self.world = World(
            watched=False,
            limits={"p": 1},
            slot_timeout=0.4,
            watchdog_interval=1.0,
            on_reclaim=lambda _: self.call("on_reclaim"),
            on_pause=lambda *_: self.call("on_pause"),
            observer=typed(self.observe),
        )
        self.world.watched = True
        self.armed = False
        self.world.hold()
        self.world.ask(prompt_started_at=2.0)

    def observe(self, event: Event) -> None:
        self.world.observe(event)
        self.call(f"observer of {event.kind}")

    def call(self, hook: str) -> None:
        if self.armed and hook == self.hook and self.action is not None:
            self.armed = False
            self.result = self.read(self.action(self.world))

    def read(self, result: object) -> object:
        """What the call gave, and what the status says right then."""
        if isinstance(result, asyncio.Task):
            result = result.done()
        elif isinstance(result, Slot):
            result = result.state
        elif isinstance(result, list):
            result = len(result)
        return result, self.world.manager.get_status_all()

    def outer(self) -> None:
        self.armed = True
        with self.world.loop.running():
            HOOKS[self.hook](self)


HOOKS: dict[str, Callable[[Reentry], object]] = {
    "on_queued": lambda r: r.world.ask(prompt_started_at=1.0, on_queued=lambda: r.call("on_queued")),
    "on_pause": lambda r: r.world.manager.report_rate_limit("p", 3),
    "observer of queued": lambda r: r.world.ask(prompt_started_at=1.0),
    "observer of paused": lambda r: r.world.manager.report_rate_limit("p", 3),
    "observer of released": lambda r: [slot.release() for slot in list(r.world.manager._providers["p"].held)],
    "observer of limit_set": lambda r: r.world.manager.set_limit("p", 2),
    "observer of granted": lambda r: r.world.manager.set_limit("p", 2),
    "observer of limit_removed": lambda r: r.world.manager.remove_limit("p"),
    "observer of cooldown_set": lambda r: r.world.manager.set_cooldown("p", 1),
    "observer of closed": lambda r: r.world.manager.close(),
    "observer of rejected": lambda r: r.world.manager.close(),
}


def differ(hook: str, action: Callable[[World], object]) -> None:
    inside, after = Reentry(hook, action), Reentry(hook, None)
    with inside.world, after.world:
        inside.outer()
        assert not inside.armed, "the hook was not called"
        after.outer()
        with after.world.loop.running():
            try:
                after.result = after.read(action(after.world))
            except RuntimeError:  # closed: the callback's call failed likewise
                after.result = None
        if after.world.manager._closed and after.result is None:
            inside.world.failures.clear()
        assert inside.result == after.result
        assert inside.world.events == after.world.events
        inside.world.check()
        for world in (inside.world, after.world):
            world.loop.advance(0.3)
        assert inside.world.events == after.world.events
        assert inside.world.manager.get_status_all() == after.world.manager.get_status_all()


@pytest.mark.parametrize("action", ACTIONS.values(), ids=ACTIONS.keys())
@pytest.mark.parametrize("hook", HOOKS)
def test_bug_81_a_call_from_a_callback_acts_as_if_right_after(hook: str, action: Callable[[World], object]) -> None:
    differ(hook, action)


def test_bug_81_a_delivery_in_the_middle_of_a_change_would_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    from provider_concurrency.delivery import DeliveryLine

    def add(line: Any, callback: Callable[..., object], *args: object) -> None:
        callback(*args)

    monkeypatch.setattr(DeliveryLine, "add", add)
    with pytest.raises((AssertionError, RuntimeError)):
        differ("on_queued", ACTIONS["release"])


@pytest.mark.parametrize("action", ACTIONS.values(), ids=ACTIONS.keys())
def test_cal_3_any_call_from_on_reclaim(action: Callable[[World], object]) -> None:
    done: list[object] = []

    def act(_: Slot) -> None:
        if not done:
            done.append(action(world))
            world.check(in_callback=True)

    world = World(limits={"p": 1}, slot_timeout=0.4, watchdog_interval=1.0, on_reclaim=act)
    with world:
        stuck = world.hold()
        waiter = world.ask()
        world.pass_ms(1000)
        assert stuck.reclaimed
        assert done
        world.check()
        world.pass_ms(20_000)
        assert waiter.done() or world.manager.get_limit("p") == 0


def test_cal_3_a_429_from_on_pause_extends_and_leaves_one_timer(make: Callable[..., World]) -> None:
    told: list[float] = []

    def again(_: str, seconds: float) -> None:
        told.append(seconds)
        if len(told) == 1:
            world.manager.report_rate_limit("p", 9)

    world = make(on_pause=again)
    waiter = world.ask("q")
    waiter.result().release()
    world.manager.report_rate_limit("p", 5)
    waiter = world.ask()
    assert told == [5, 9]
    world.pass_ms(200)
    assert world.timers() <= 2  # p's, and perhaps the sweep's
    world.pass_ms(8799)
    assert not waiter.done()
    world.pass_ms(1)
    assert waiter.done()


# -- order of delivery -------------------------------------------------------------------------------------------------


def test_cal_2_notifications_come_one_by_one_first_in_first_out() -> None:
    heard: list[str] = []
    depth = 0

    def hear(word: str, then: Callable[[], object] | None = None) -> None:
        nonlocal depth
        depth += 1
        assert depth == 1, "a delivery nests"
        heard.append(word)
        if then is not None:
            then()
        depth -= 1

    def observe(event: Event) -> None:
        act: Callable[[], object] | None = None
        if event.kind == "paused" and event.provider == "p":
            act = lambda: (manager.report_rate_limit("q", 5), manager.set_limit("r", 1))  # noqa: E731
        hear(f"{event.kind} {event.provider}", act)

    with World(watched=False, observer=typed(observe), on_pause=lambda name, _: hear(f"on_pause {name}")) as world:
        manager = world.manager
        manager.report_rate_limit("p", 5)
        assert heard == ["paused p", "on_pause p", "paused q", "on_pause q", "limit_set r"]
        assert manager.get_limits() == {"r": 1}


def test_cal_1_on_queued_runs_once_within_acquire_and_only_if_it_queued(make: Callable[..., World]) -> None:
    world = make(limits={"p": 1}, max_queued=1)
    calls: list[object] = []

    def note() -> None:
        calls.append(world.figures())

    holder = world.hold(on_queued=note)
    assert calls == []
    world.ask(timeout=0, on_queued=note).exception()
    assert calls == []
    waiter = world.ask(on_queued=note)
    assert calls == [(1, 0, 0, 1)]  # it stands in the queue already
    world.ask(on_queued=note).exception()  # full
    holder.release()
    world.pass_ms(200)
    assert waiter.result().state is SlotState.HELD
    assert calls == [(1, 0, 0, 1)]


def test_cal_1_a_slot_freed_by_on_queued_is_granted_in_the_call(make: Callable[..., World]) -> None:
    world = make(limits={"p": 1}, release_cooldown=0)
    holder = world.hold()
    waiter = world.ask(on_queued=holder.release)
    newcomer = world.take()
    assert newcomer is None
    assert world.figures() == (1, 0, 0, 0)
    world.loop.settle()
    assert waiter.result().state is SlotState.HELD


@pytest.mark.parametrize(
    ("reports", "told"),
    [
        ([5], [5]),
        ([5, 3], [5]),
        ([5, 5], [5]),
        ([5, 6], [5, 6]),
        ([0], [0.2]),
    ],
)
def test_cal_3_on_pause_tells_when_a_pause_begins_or_is_extended(
    make: Callable[..., World], reports: list[float], told: list[float]
) -> None:
    heard: list[tuple[str, float]] = []
    world = make(on_pause=lambda *args: heard.append(args), min_pause=0)
    for seconds in reports:
        world.manager.report_rate_limit("p", seconds)
    assert heard == [("p", seconds) for seconds in told]


def test_cal_3_on_pause_is_not_called_for_a_pause_of_nothing(make: Callable[..., World]) -> None:
    heard: list[object] = []
    world = make(on_pause=lambda *args: heard.append(args), min_pause=0, release_cooldown=0)
    world.manager.report_rate_limit("p", 0)
    assert heard == []
    assert world.status() is None


def test_cal_3_a_status_read_in_a_callback_of_the_reading_itself_is_the_new_one() -> None:
    """The provider is forgotten by the reading, and made anew by the callback that is told of it."""

    def observe(event: Event) -> None:
        if event.kind == "recycled":
            world.manager.set_limit("p", 3)

    world = World(watched=False, observer=typed(observe))
    with world:
        world.hold().release()
        world.loop.stall_ns(200_000_000)
        status = world.status()
        assert status is not None
        assert status.limit == 3


def test_cal_4_a_broken_exception_handler_doesnt_stop_the_line(make_unwatched: Callable[..., World]) -> None:
    heard: list[str] = []

    def fail(provider: str, _: float) -> None:
        heard.append(provider)
        raise HookError

    world = make_unwatched(on_pause=fail)
    world.hold().release()

    def handler(*_: object) -> None:
        raise KeyboardInterrupt

    world.loop.set_exception_handler(handler)
    with pytest.raises(KeyboardInterrupt):
        world.manager.report_rate_limit("p", 1)
    with pytest.raises(KeyboardInterrupt):
        world.manager.report_rate_limit("q", 1)
    assert heard == ["p", "q"]
    assert isinstance(world.manager, ConcurrencyManager)


def test_cal_4_a_signal_between_two_deliveries_leaves_the_line_usable() -> None:
    """Python raises KeyboardInterrupt wherever it is; the next operation delivers what was left."""
    heard: list[str] = []
    with World(watched=False, on_pause=lambda provider, _: heard.append(provider)) as world:
        interrupts = [KeyboardInterrupt()]

        class Line(deque[Any]):
            def popleft(self) -> Any:
                if interrupts:
                    raise interrupts.pop()
                return super().popleft()

        world.manager._line.waiting = Line()
        with pytest.raises(KeyboardInterrupt):
            world.manager.report_rate_limit("p", 1)
        assert heard == []
        world.manager.report_rate_limit("q", 1)
        assert heard == ["p", "q"]
