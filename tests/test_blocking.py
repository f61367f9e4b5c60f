"""The blocking manager: the same rules as on a loop, with threads that wait."""

from __future__ import annotations

import gc
import inspect
import logging
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any
from weakref import ref

import pytest

from blocking_stage import MakeStage, Stage, result_of, run_program
from provider_concurrency import AcquireTimeoutError, ManagerClosedError, QueueFullError, Slot, SlotState
from provider_concurrency import ConcurrencyManager as LoopManager
from provider_concurrency.threading import ConcurrencyManager
from provider_concurrency.threading_port import Caller, VirtualManager, VirtualWakes
from provider_concurrency.wake import WakeThread
from provider_concurrency_model.check import judge
from provider_concurrency_model.check.subject import InProcess, Session
from provider_concurrency_model.levels import LEVELS as BOUNDED
from provider_concurrency_model.monitor import Monitor


@pytest.fixture
def stage() -> Iterator[MakeStage]:
    made: list[Stage] = []

    def make(**settings: Any) -> Stage:
        made.append(Stage(**settings))
        return made[-1]

    yield make
    for each in made:
        each.finish()


def public(kind: type) -> set[str]:
    return {name for name in dir(kind) if not name.startswith("_")}


def test_a_block_is_entered_once() -> None:
    manager = ConcurrencyManager(limits={"p": 2}, release_cooldown=0)
    block = manager.slot("p", timeout=1)
    with block as held:
        assert held.state is SlotState.HELD
        with pytest.raises(RuntimeError, match=r"manager.slot\(\) returns can be entered only once"):
            block.__enter__()
        assert held.state is SlotState.HELD
    assert held.state is SlotState.FREE
    with pytest.raises(RuntimeError, match="entered only once"), block:
        raise AssertionError("entered")
    assert manager.get_status("p").in_flight == 0  # type: ignore[union-attr]
    manager.close()


def test_the_public_names_are_the_same() -> None:
    assert public(ConcurrencyManager) == public(LoopManager)


@pytest.mark.parametrize("name", ["__init__", *sorted(public(LoopManager))])
def test_the_signatures_are_the_same(name: str) -> None:
    """But for what a call returns: a slot there, a coroutine that ends in one here."""
    here, there = (inspect.signature(getattr(kind, name)) for kind in (ConcurrencyManager, LoopManager))
    assert list(here.parameters.values()) == list(there.parameters.values())


@pytest.mark.parametrize(
    "level", [pytest.param(level, marks=pytest.mark.long if level in BOUNDED else ()) for level in judge.LEVELS]
)
def test_blk_1_the_blocking_manager_conforms(level: str) -> None:
    """Behind protocol 1 on virtual time, with threads that really wait; a blocked one can't be cancelled."""
    report = judge.run_level(
        Session(InProcess("provider_concurrency.threading_port:Port")), level, judge.Options(runs=40)
    )
    assert (report.counterexamples, report.undetermined, report.failed) == ([], None, 0)
    assert report.cases >= 40
    assert set(report.skipped) <= {"cancel"}


# -- the rules -------------------------------------------------------------------------------------------------------


def test_adm_1_and_ord_1_a_request_waits_in_the_order_of_its_prompt(stage: MakeStage) -> None:
    s = stage(limits={"p": 1})
    holder = s.hold()
    young, old = s.ask(prompt_started_at=2), s.ask(prompt_started_at=1)
    assert (young.is_alive(), old.is_alive(), s.figures()) == (True, True, (1, 0, 0, 2))
    holder.release()
    s.pass_ms(199)
    assert (s.figures(), holder.state) == ((0, 1, 0, 2), SlotState.COOLING)
    s.pass_ms(1)
    assert (result_of(old).state, young.is_alive(), holder.state) == (SlotState.HELD, True, SlotState.FREE)
    result_of(old).release()
    s.pass_ms(200)
    assert result_of(young).state is SlotState.HELD
    ends = ["released", "recycled", "granted"]
    assert s.kinds() == ["granted", "queued", "queued", *ends, *ends]


def test_adm_8_and_adm_7(stage: MakeStage) -> None:
    s = stage(limits={"p": 1}, max_queued=1)
    slot = s.manager.try_acquire("p")
    assert slot is not None
    assert s.manager.try_acquire("p") is None
    waiting = s.ask()
    with pytest.raises(QueueFullError):
        s.manager.acquire("p")
    with pytest.raises(AcquireTimeoutError):
        s.manager.acquire("p", timeout=0)
    slot.release()
    s.pass_ms(200)
    assert result_of(waiting).state is SlotState.HELD


def test_can_3_a_timeout(stage: MakeStage) -> None:
    s = stage(limits={"p": 1})
    s.hold()
    waiting = s.ask(timeout=5)
    s.pass_ms(4999)
    assert waiting.is_alive()
    s.pass_ms(1)
    with pytest.raises(AcquireTimeoutError) as caught:
        result_of(waiting)
    assert (caught.value.waited, s.figures()) == (5.0, (1, 0, 0, 0))


def test_clo_1_close_rejects_who_waits(stage: MakeStage) -> None:
    s = stage(limits={"p": 1})
    holder = s.hold()
    waiting = [s.ask(prompt_started_at=n) for n in (2, 1)]
    s.manager.close()
    s.settle()
    for caller in waiting:
        with pytest.raises(ManagerClosedError):
            result_of(caller)
    assert s.kinds() == ["granted", "queued", "queued", "closed", "rejected", "rejected"]
    assert len(s.time) == 0
    with pytest.raises(TimeoutError, match="still held"):
        s.manager.wait_closed(timeout=0)
    closing = threading.Thread(target=s.manager.wait_closed)
    closing.start()
    holder.release()
    closing.join(10)
    assert not closing.is_alive()
    s.manager.wait_closed(timeout=0)
    for call in (s.manager.acquire, s.manager.try_acquire, s.manager.resume, s.manager.remove_limit):
        with pytest.raises(ManagerClosedError):
            call("p")


def test_wat_1_and_wat_3_a_stuck_holder_is_reclaimed(stage: MakeStage, caplog: pytest.LogCaptureFixture) -> None:
    reclaimed: list[Slot] = []
    s = stage(limits={"p": 2}, slot_timeout=10, watchdog_interval=1, on_reclaim=reclaimed.append)
    stuck, alive = s.hold(conversation_id="stuck"), s.hold()
    waiting = s.ask()
    s.pass_ms(9000)
    alive.touch()
    s.pass_ms(2200)
    assert (stuck.reclaimed, alive.reclaimed, reclaimed) == (True, False, [stuck])
    assert result_of(waiting).state is SlotState.HELD
    assert "conversation 'stuck'" in caplog.text
    stuck.release()
    assert s.figures() == (2, 0, 0, 0)


def test_pau_1_to_pau_5(stage: MakeStage) -> None:
    pauses: list[tuple[str, float]] = []
    s = stage(on_pause=lambda *pause: pauses.append(pause))
    s.manager.report_rate_limit("p", 5)
    s.manager.report_rate_limit("p", 2)
    waiting, other = s.ask(), s.hold("q")
    s.pass_ms(4999)
    assert (waiting.is_alive(), other.state) == (True, SlotState.HELD)
    s.pass_ms(1)
    assert result_of(waiting).state is SlotState.HELD
    s.manager.report_rate_limit("p")
    waiting = s.ask()
    s.manager.resume("p")
    s.settle()
    assert (result_of(waiting).state, pauses) == (SlotState.HELD, [("p", 5.0), ("p", 30.0)])


def test_rel_1_the_context_manager_releases_whatever_happens(stage: MakeStage) -> None:
    s = stage(limits={"p": 1}, release_cooldown=0)
    for _ in range(2):
        with suppress(LookupError), s.manager.slot("p", conversation_id="c", timeout=0):
            assert [info.conversation_id for info in s.manager.get_slots("p")] == ["c"]
            raise LookupError
    assert s.figures() == (0, 0, 0, 0)


# -- callbacks -------------------------------------------------------------------------------------------------------


def test_cal_1_on_queued_is_called_once_before_the_wait(stage: MakeStage) -> None:
    s = stage(limits={"p": 1}, release_cooldown=0)
    holder = s.hold()
    seen: list[object] = []

    def release() -> None:
        seen.append(s.figures())
        holder.release()

    caller = s.ask(on_queued=release)
    assert (seen, result_of(caller).state) == ([(1, 0, 0, 1)], SlotState.HELD)


def test_cal_4_an_error_is_logged_and_changes_nothing(stage: MakeStage, caplog: pytest.LogCaptureFixture) -> None:
    s = stage(limits={"p": 1}, release_cooldown=0)
    holder = s.hold()

    def fail() -> None:
        raise LookupError("no such thing")

    caller = s.ask(on_queued=fail)
    holder.release()
    s.settle()
    assert result_of(caller).state is SlotState.HELD
    assert caplog.text.count("LookupError: no such thing") == 1


def test_cal_4_a_keyboard_interrupt_from_on_queued_withdraws_the_request(stage: MakeStage) -> None:
    s = stage(limits={"p": 1}, release_cooldown=0)
    s.hold()

    def interrupt() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        s.manager.acquire("p", on_queued=interrupt)
    assert (s.figures(), s.kinds()) == ((1, 0, 0, 0), ["granted", "queued", "cancelled"])


@pytest.mark.parametrize("call", ["acquire", "set_limit", "status", "close"])
def test_blk_2_a_callback_may_wait_for_a_call_of_another_thread(stage: MakeStage, call: str) -> None:
    """No lock is held while a callback runs, and nobody has to wait for its turn to deliver."""
    s = stage(limits={"p": 2, "q": 1}, release_cooldown=0, on_pause=lambda *_: elsewhere())
    calls = {
        "acquire": lambda: s.manager.acquire("q", timeout=0).release(),
        "set_limit": lambda: s.manager.set_limit("q", 3),
        "status": lambda: s.manager.get_status_all(),
        "close": lambda: s.manager.close(),
    }
    done: list[bool] = []

    def elsewhere() -> None:
        thread = threading.Thread(target=calls[call])
        thread.start()
        thread.join(10)
        done.append(not thread.is_alive())

    s.manager.report_rate_limit("p", 5)
    assert done == [True]


class DeliversUnderTheLock(VirtualManager):
    """A fault: the notifications of a change are delivered before its lock is free."""

    def _change(self, change: Any, *args: Any) -> None:
        with self._lock:
            super()._change(change, *args)
            self._line.deliver()


def cause_every_callback(kind: type[VirtualManager]) -> dict[str, bool]:
    """Every call of user code there is, and whether the manager's lock was taken meanwhile."""
    found: dict[str, bool] = {}

    def note(name: str) -> None:
        found[name] = found.get(name, False) or manager._owns(manager)

    def fail() -> None:
        note("on_queued")
        raise LookupError

    class Report(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            note("the log, of a reclaim" if record.levelno == logging.WARNING else "the log, of a failure")

    clock = VirtualWakes()
    manager = kind(
        clock, limits={"p": 1}, slot_timeout=1, watchdog_interval=1,
        observer=lambda *_: note("observer"), on_reclaim=lambda _: note("on_reclaim"),
        on_pause=lambda *_: note("on_pause"),
    )  # fmt: skip
    logger, handler = logging.getLogger("provider_concurrency"), Report()
    logger.addHandler(handler)
    manager.acquire("p")
    caller = Caller(lambda: manager.acquire("p", on_queued=fail))
    caller.start_quietly()
    clock.advance_ns(3_000_000_000, caller.finish)
    manager.report_rate_limit("p", 1)
    manager.close()
    logger.removeHandler(handler)
    return found


def test_blk_2_no_callback_is_called_under_the_lock() -> None:
    kinds = ("observer", "on_queued", "on_reclaim", "on_pause", "the log, of a reclaim", "the log, of a failure")
    assert cause_every_callback(VirtualManager) == dict.fromkeys(kinds, False)
    assert cause_every_callback(DeliversUnderTheLock) == dict.fromkeys(kinds, True)


# -- what other threads, finalisers and interrupts can do in between -------------------------------------------------


def test_blk_3_a_close_between_the_look_and_the_change(stage: MakeStage) -> None:
    """The wall clock is read after the look whether the manager is open; here another thread closes it then."""
    s = stage(limits={"p": 0}, wall_clock=lambda: s.manager.close() or 1.0)
    with pytest.raises(ManagerClosedError):
        s.manager.acquire("p")
    assert (s.figures(), s.kinds()) == ((0, 0, 0, 0), ["closed"])


def test_blk_3_a_sweep_that_comes_too_late(stage: MakeStage) -> None:
    """Its wake-up was taken off before the manager was closed."""
    s = stage(slot_timeout=1, watchdog_interval=1)
    slot = s.hold()
    ((_, _, sweep),) = s.time._due.values()
    s.time.now_ns += 3_000_000_000
    s.manager.close()
    sweep()
    assert (slot.state, s.kinds()) == (SlotState.HELD, ["granted", "closed"])


def test_fin_1_a_finaliser_within_an_operation_acts_after_it(stage: MakeStage) -> None:
    s = stage(limits={"p": 1}, release_cooldown=0)
    holder = s.hold()
    read = s.manager._clock

    def collect() -> int:  # in the middle of the next operation, under the lock
        s.manager._clock = read
        holder.release()
        return read()

    s.manager._clock = collect
    s.manager.set_limit("q", 1)
    assert (s.figures(), s.kinds()) == ((0, 0, 0, 0), ["granted", "limit_set", "released", "recycled"])


def test_fin_1_a_finaliser_under_the_lock_but_between_operations(stage: MakeStage) -> None:
    """It acts at once; its notifications wait until the lock is free."""
    s = stage(limits={"p": 1}, release_cooldown=0)
    holder = s.hold()
    assert s.manager._within(lambda: (holder.release(), holder.state, len(s.events))) == (None, SlotState.FREE, 1)
    assert s.kinds() == ["granted", "released", "recycled"]


def test_fin_1_a_finaliser_within_another_managers_operation_waits_for_no_lock(stage: MakeStage) -> None:
    """Two managers whose threads finalise each other's slots would deadlock."""
    one, two = stage(), stage(limits={"p": 1}, release_cooldown=0)
    holder = two.hold()
    begun, over = threading.Event(), threading.Event()
    other = threading.Thread(target=lambda: two.manager._within(lambda: (begun.set(), over.wait(10))))
    other.start()
    begun.wait(10)
    one.manager._within(holder.release)  # must return although `other` has the lock of `two`
    assert not over.is_set()
    over.set()
    other.join(10)
    assert two.figures() == (0, 0, 0, 0)
    holder = two.hold()
    one.manager._within(holder.release)  # nobody has it: left to the thread that wakes
    two.pass_ms(0)
    assert two.figures() == (0, 0, 0, 0)


def test_fin_1_a_finaliser_within_another_managers_operation_ends_a_closed_one(stage: MakeStage) -> None:
    one, two = stage(), stage()
    holder = two.hold()
    two.manager.close()
    one.manager._within(holder.release)
    two.pass_ms(0)
    two.manager.wait_closed(0)
    assert len(two.time) == 0


def test_fin_1_no_acquire_from_a_finaliser(stage: MakeStage) -> None:
    s = stage(limits={"p": 1}, release_cooldown=0)
    read = s.manager._clock
    raised: list[str] = []

    def ask() -> int:
        s.manager._clock = read
        try:
            s.manager.acquire("q")
        except RuntimeError as error:
            raised.append(str(error))
        return read()

    s.manager._clock = ask
    s.manager.set_limit("q", 1)
    assert raised == ["called while this thread is changing state (from a finaliser or a signal)"]


def test_can_2_an_interrupt_on_the_way_to_the_caller_gives_the_slot_back(
    stage: MakeStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    s = stage(limits={"p": 1})
    within = s.manager._within

    def interrupted(call: Any, *args: Any) -> None:
        within(call, *args)
        raise KeyboardInterrupt

    monkeypatch.setattr(s.manager, "_within", interrupted)
    for ask in (s.manager.acquire, s.manager.try_acquire):
        with pytest.raises(KeyboardInterrupt):
            ask("p")
    monkeypatch.undo()
    assert (s.figures(), s.kinds()) == ((0, 0, 0, 0), ["granted", "cancelled"] * 2)


def test_can_1_a_keyboard_interrupt_in_the_waiting_main_thread() -> None:
    run_program(
        """
        manager = ConcurrencyManager(limits={"p": 1}, release_cooldown=0)
        holder = manager.acquire("p")
        main = threading.main_thread().ident
        threading.Thread(target=lambda: (
            until(lambda: manager.get_status("p").queued), time.sleep(0.05), signal.pthread_kill(main, signal.SIGINT)
        )).start()
        try:
            manager.acquire("p")
        except KeyboardInterrupt:
            status = manager.get_status("p")
            assert (status.held, status.queued) == (1, 0), status
        else:
            raise AssertionError("not interrupted")
        holder.release()
        manager.acquire("p", timeout=0).release()
        manager.close()
        manager.wait_closed(0)
        """
    )


def test_frk_1_a_forked_child_keeps_configuration_and_pauses() -> None:
    """Another thread has the lock and a third one waits while this one forks."""
    run_program(
        """
        manager = ConcurrencyManager(limits={"p": 1}, release_cooldown=0.01, slot_timeout=9, watchdog_interval=0.01)
        manager.report_rate_limit("q", 50)
        held = manager.acquire("p")
        got, begun, over = [], threading.Event(), threading.Event()
        waiter = threading.Thread(target=lambda: got.append(manager.acquire("p")))
        waiter.start()
        until(lambda: manager.get_status("p").queued)
        locker = threading.Thread(target=lambda: manager._within(lambda: (begun.set(), over.wait(20))))
        locker.start()
        begun.wait(20)

        def check():
            status = manager.get_status("p")
            assert (status.in_flight, status.queued, status.limit) == (0, 0, 1), status
            assert manager.get_status("q").paused
            assert held.state is SlotState.FREE
            held.release()
            slot = manager.acquire("p")
            threading.Timer(0.02, slot.release).start()
            with manager.slot("p", timeout=20):
                assert manager.try_acquire("q") is None
            manager.close()
            manager.wait_closed(20)

        in_child(check)
        over.set()
        locker.join()
        held.release()
        waiter.join()
        assert got[0].state is SlotState.HELD
        manager.close()
        """
    )


def test_frk_1_a_fork_out_of_ones_own_on_queued() -> None:
    """The child is in the middle of an acquire and of a delivery that are the parent's."""
    run_program(
        """
        manager = ConcurrencyManager(limits={"p": 1}, release_cooldown=0)
        held = manager.acquire("p")
        children = []
        def fork():
            children.append(os.fork())
            if children[0]:
                held.release()
        try:
            slot = manager.acquire("p", on_queued=fork)
        except RuntimeError as error:
            os._exit(0 if "forked" in str(error) and not children[0] and manager.try_acquire("p") else 1)
        assert children[0] and slot.state is SlotState.HELD
        assert os.waitpid(children[0], 0)[1] == 0, "the child failed"
        manager.close()
        """
    )


# -- the thread that wakes, on the real clock ------------------------------------------------------------------------


def ended(thread: threading.Thread | None) -> bool:
    assert thread is not None
    thread.join(10)
    return not thread.is_alive()


@pytest.mark.realtime
def test_clo_1_the_wake_thread_ends_at_close() -> None:
    manager = ConcurrencyManager(limits={"p": 1}, release_cooldown=0.01)
    manager.acquire("p").release()
    with manager.slot("p", timeout=10):  # nothing but the wake-up can have granted this
        thread = manager._wakes._thread
    manager.close()
    assert ended(thread)


@pytest.mark.realtime
def test_tim_4_the_wake_thread_ends_with_a_manager_that_nobody_uses() -> None:
    """Although a slot is held, so that sweeps are announced: nobody is left who could want it."""
    manager = ConcurrencyManager(limits={"p": 1}, watchdog_interval=0.01, slot_timeout=None)
    manager.acquire("p")
    thread, gone = manager._wakes._thread, ref(manager)
    del manager
    gc.collect()
    assert ended(thread)
    assert gone() is None


@pytest.mark.realtime
def test_cal_4_what_a_callback_raises_does_not_end_the_wake_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    told = threading.Event()  # by whichever thread delivers, in its own time
    monkeypatch.setattr(logging.getLogger("provider_concurrency"), "exception", lambda _: told.set())

    def leave(slot: Slot) -> None:
        raise SystemExit

    with ConcurrencyManager(limits={"p": 1}, slot_timeout=0.01, watchdog_interval=0.01, on_reclaim=leave) as manager:
        for _ in range(2):
            manager.acquire("p", timeout=10)
        with manager.slot("p", timeout=10):
            assert told.wait(10)


def test_tim_4_wake_ups_that_were_moved_are_not_kept() -> None:
    wakes = WakeThread(threading.RLock())
    with wakes._changed:
        for n in range(1000):
            wakes.set("p", 3600 + n % 7, lambda: None)
            wakes.set(n, 3600, lambda: None)
            wakes.clear(n)
        assert (len(wakes), len(wakes._heap) < 100) == (1, True)
    thread = wakes._thread
    wakes.stop()
    assert ended(thread)


@pytest.mark.realtime
@pytest.mark.parametrize("cooldown", [0.0, 0.002])
def test_8_threads_watched_by_the_monitor(cooldown: float, caplog: pytest.LogCaptureFixture) -> None:
    """Every kind of call from 8 threads: no illegal life, nobody waits beside room, nothing is left."""
    settings: dict[str, Any] = {"limits": {"p": 3, "q": 1}, "release_cooldown": cooldown, "min_pause": 0.0}
    monitor = Monitor.from_seconds(**settings)
    manager = ConcurrencyManager(**settings, observer=monitor)
    end = time.monotonic() + 0.7

    def use(n: int) -> int:
        granted = 0
        for turn in range(100_000):
            if time.monotonic() > end:
                break
            provider = "pq"[(n + turn) % 2]
            try:
                with manager.slot(provider, timeout=0.01 if turn % 3 else None, prompt_started_at=turn) as slot:
                    granted += 1
                    slot.touch()
            except AcquireTimeoutError:
                pass
            if turn % 7 == n % 7:
                manager.set_limit("p", 1 + turn % 3)
            if turn % 50 == n:
                manager.report_rate_limit("q", 0.001)
            if turn % 5 == 0 and (slot := manager.try_acquire("q")) is not None:
                slot.release()
                slot.release()
            manager.get_status_all()
            manager.get_slots(provider)
        return granted

    with ThreadPoolExecutor(8) as pool:
        granted = sum(pool.map(use, range(8)))
    manager.close()
    manager.wait_closed(10)
    monitor.assert_at_rest()
    assert monitor.counts["granted"] >= granted > 100
    assert monitor.live_slots == 0
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []
