"""BLK-8: under a sync client the rules of streams and transports hold as under an async one."""

from __future__ import annotations

import gc
import logging
import threading
import time
import warnings
from collections.abc import Callable
from contextlib import closing, suppress
from contextvars import copy_context
from typing import Any

import pytest

from blocking_stage import run_program
from blocking_transport_stage import LIBS, Lib, Stage, both, first_chunk, play, read
from provider_concurrency import AcquireTimeoutError, ManagerClosedError, QueueFullError, threading_guard
from provider_concurrency import ConcurrencyManager as LoopManager
from provider_concurrency.context import conversation
from provider_concurrency.errors import ProviderConcurrencyError, SlotReclaimedError
from provider_concurrency.integrations._blocking import Countdown
from provider_concurrency.integrations.httpx2 import LimitedTransport
from provider_concurrency.threading_guard import Alarms, GuardedIterator, Lease

GZIP = {"content-encoding": "gzip"}
End = Callable[[Stage, Any, Any], None]


def in_a_thread(call: Callable[[], object]) -> None:
    thread = threading.Thread(target=call)
    thread.start()
    thread.join(10)
    assert not thread.is_alive()


def until(holds: Callable[[], bool]) -> None:
    """Lets other threads run until it holds: those that close what was forgotten or reclaimed."""
    end = time.monotonic() + 10
    while not holds():
        assert time.monotonic() < end
        time.sleep(0)


# -- a slot is held until the body is closed --------------------------------------------------------------------------


def exhaust(stage: Stage, client: Any, response: Any) -> None:
    assert read(response) == [b"a", b"b"]


def close_twice(stage: Stage, client: Any, response: Any) -> None:
    first_chunk(response)
    response.close()
    response.close()


def leave_the_block(stage: Stage, client: Any, response: Any) -> None:
    with suppress(ZeroDivisionError), closing(response):
        first_chunk(response)
        raise ZeroDivisionError


def close_from_another_thread(stage: Stage, client: Any, response: Any) -> None:
    first_chunk(response)
    in_a_thread(response.close)


def close_unread(stage: Stage, client: Any, response: Any) -> None:
    response.close()


def close_the_client(stage: Stage, client: Any, response: Any) -> None:
    iterator, _ = first_chunk(response)
    client.close()
    with pytest.raises(ProviderConcurrencyError, match="the transport was closed"):
        next(iterator)


ENDS: list[End] = [exhaust, close_twice, leave_the_block, close_from_another_thread, close_unread, close_the_client]


def hold_until(stage: Stage, end: End) -> None:
    """One request is streamed, a second must wait until the first has ended and its slot has cooled."""
    client = stage.client(lambda request: stage.answer(b"a", 5.0, b"b"))
    second = stage.client(lambda request: stage.answer(b"z"))
    response = stage.open(client)
    later = stage.ask_by(lambda: second.get("http://host/"))
    stage.pass_ms(2000)
    assert len(stage.requests) == 1, "the second request was sent while the first still streamed"
    assert stage.held == 1
    end(stage, client, response)
    ended = stage.now
    stage.pass_ms(200)
    assert later.slot.content == b"z"  # type: ignore[union-attr] # a response, here
    assert stage.started[1] == pytest.approx(ended + 0.2)
    assert stage.seen().count("released") == 2


@both
@pytest.mark.parametrize("end", ENDS, ids=lambda end: end.__name__)
def test_bug_75_the_slot_is_held_until_the_body_has_ended(lib: Lib, end: End) -> None:
    play(lib, lambda stage: hold_until(stage, end))


@pytest.mark.parametrize("lib", LIBS[:1])
def test_bug_75_a_slot_given_back_at_the_head_would_be_noticed(lib: Lib, monkeypatch: pytest.MonkeyPatch) -> None:
    """The mistake, planted: what the test above asserts must then fail."""

    class HeadReleasing(lib.Transport):  # type: ignore[name-defined, misc]
        def _hold(self, response: Any, lease: Any) -> None:
            lease.give_back()

    monkeypatch.setattr(lib, "Transport", HeadReleasing)
    with pytest.raises(AssertionError, match="while the first still streamed"):
        play(lib, lambda stage: hold_until(stage, exhaust))


@both
def test_bug_75_whatever_goes_wrong_gives_the_slot_back(lib: Lib) -> None:
    def fail(response: Any) -> None:
        raise ZeroDivisionError

    def refuse(request: Any) -> Any:
        raise lib.http.PoolTimeout("no connection")

    def scenario(stage: Stage) -> None:
        broken = [
            (lib.http.ReadError, stage.client(lambda _: stage.answer(b"a", lib.http.ReadError("gone")))),
            (
                lib.http.DecodingError,
                stage.client(lambda _: stage.answer(b"no gzip", headers={"content-encoding": "gzip"})),
            ),
            (ZeroDivisionError, stage.client(lambda _: stage.answer(b"a"), event_hooks={"response": [fail]})),
            (KeyboardInterrupt, stage.client(lambda _: stage.answer(b"a", KeyboardInterrupt()))),
            (lib.http.PoolTimeout, stage.client(refuse)),
        ]
        for error, client in broken * 3:
            with pytest.raises(error):
                client.get("http://host/")
            assert stage.held == 0
            stage.pass_ms(200)

    play(lib, scenario)


@both
def test_htt_3_every_redirect_takes_its_own_slot_and_none_deadlocks_at_limit_1(lib: Lib) -> None:
    def scenario(stage: Stage) -> None:
        def hop(request: Any) -> Any:
            if request.url.path == "/":
                return stage.answer(5.0, b"moved", status=307, headers={"location": "/there"})
            return stage.answer(b"there")

        client = stage.client(hop, follow_redirects=True)
        caller = stage.ask_by(lambda: client.get("http://host/"))
        stage.pass_ms(200)
        assert caller.slot.content == b"there"  # type: ignore[union-attr]
        prompts = [event.prompt_started_at for event in stage.events if event.kind == "granted"]
        assert len(prompts) == 2
        assert len(set(prompts)) == 1  # HTT-2

    play(lib, scenario)


@both
def test_htt_1_and_ctx_1_whose_request_it_is(lib: Lib) -> None:
    def scenario(stage: Stage) -> None:
        client = stage.client(lambda _: stage.answer(b"a"), {"provider": {"host": "p", "other": "q"}})
        with conversation("c1", prompt_started_at=7.0):
            client.get("http://host/")
            client.get("http://other/", extensions={"provider_concurrency": {"conversation_id": "c2"}})
        client.get("http://third/")
        granted = [event for event in stage.events if event.kind == "granted"]
        assert [(event.provider, event.conversation_id) for event in granted] == [
            ("p", "c1"), ("q", "c2"), ("third", None),
        ]  # fmt: skip
        assert [event.prompt_started_at for event in granted][:2] == [7.0, 7.0]
        unlimited = stage.client(lambda _: stage.answer(b"a"), {"provider": lambda _: None})
        unlimited.get("http://host/")
        assert len(stage.events) == len([event for event in stage.events if event.provider is not None])

    play(lib, scenario)


@both
def test_ctx_1_a_block_reaches_another_thread_with_its_context_only(lib: Lib) -> None:
    def scenario(stage: Stage) -> None:
        client = stage.client(lambda _: stage.answer(b"a"))
        with conversation("c1"):
            in_a_thread(lambda: client.get("http://host/"))
            stage.pass_ms(200)
            context = copy_context()
            in_a_thread(lambda: context.run(client.get, "http://host/"))
        assert [event.conversation_id for event in stage.events if event.kind == "granted"] == [None, "c1"]

    play(lib, scenario)


@both
def test_grd_1_a_read_that_another_thread_is_in_the_middle_of_is_cut(lib: Lib) -> None:
    """It may be closed from anywhere: the reader closes it, and is told."""

    def scenario(stage: Stage) -> None:
        transport = stage.transport(lambda _: stage.answer(b"a"))
        response = transport.handle_request(lib.http.Request("GET", "http://host/"))
        wire, lease = stage.wires[0], response.stream._lease
        began, told = threading.Event(), []

        def block() -> bytes:
            began.set()
            return wire.near.recv(1)  # returns when it is cut

        def reader() -> None:
            try:
                lease.wait(block)
            except ProviderConcurrencyError as error:
                told.append(str(error))
                lease.close()

        thread = threading.Thread(target=reader)
        thread.start()
        assert began.wait(10)
        with pytest.raises(RuntimeError, match="another thread reads or closes this stream"):
            lease.wait(lambda: None)
        assert stage.held == 1
        response.close()
        thread.join(10)
        assert told == ["the stream was closed behind its reader: another thread closed it"]
        assert (stage.held, stage.bodies[0].closed) == (0, 1)

    play(lib, scenario)


@both
def test_grd_3_a_forgotten_response_is_closed_by_its_finaliser_with_a_warning(lib: Lib) -> None:
    def scenario(stage: Stage) -> None:
        client = stage.client(lambda _: stage.answer(b"a", 5.0, b"b"))

        def forget() -> None:
            stage.open(client)
            gc.collect()

        with pytest.warns(ResourceWarning, match="a stream of provider 'p' was forgotten"):
            forget()
        until(lambda: stage.held == 0)
        assert stage.bodies[0].closed == 1

    play(lib, scenario)


@both
def test_grd_3_httpx_leaves_a_forgotten_response_to_the_collector(lib: Lib) -> None:
    def scenario(stage: Stage) -> None:
        client = stage.client(lambda _: stage.answer(b"a", 5.0, b"b"))
        gc.collect()
        gc.disable()
        try:
            stage.open(client)
            if lib.name != "httpx":
                until(lambda: stage.held == 0)
            assert stage.held == (1 if lib.name == "httpx" else 0)
            gc.collect()
            until(lambda: stage.held == 0)
            assert stage.held == 0
        finally:
            gc.enable()

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        play(lib, scenario)


@pytest.mark.parametrize("lib", LIBS[:1])
@pytest.mark.parametrize("inline", [False, True], ids=["as it is", "with the fault that it closes there and then"])
@pytest.mark.filterwarnings("ignore:a stream of provider")
def test_grd_3_a_finaliser_waits_for_nothing_that_its_own_thread_may_have(
    lib: Lib, inline: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The garbage collector runs it wherever it likes, also while this thread holds the connection pool's lock."""
    if inline:
        monkeypatch.setattr(Lease, "_finish_later", Lease._finish)
    lock, closed = threading.Lock(), []

    def close(body: Any) -> None:
        body.closed += 1
        closed.append(lock.acquire(timeout=0.5))
        if closed[-1]:
            lock.release()

    def scenario(stage: Stage) -> None:
        answers = [stage.answer(b"a")]
        monkeypatch.setattr(type(stage.bodies[0]), "close", close)
        client = stage.client(lambda _: answers.pop())
        with lock:
            stage.open(client)
            gc.collect()
        until(lambda: stage.held == 0)

    play(lib, scenario)
    assert closed == [not inline]


@pytest.mark.parametrize("lib", LIBS[:1])
@pytest.mark.filterwarnings("ignore:a stream of provider")
@pytest.mark.parametrize("trouble", ["no more threads", "a close that fails"])
def test_grd_3_a_forgotten_response_gives_its_slot_back_whatever_goes_wrong(
    lib: Lib, trouble: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    def fail(body: Any) -> None:
        body.closed += 1
        raise lib.http.CloseError("gone")

    def scenario(stage: Stage) -> None:
        answers = [stage.answer(b"a")]
        if trouble == "no more threads":
            monkeypatch.setattr(threading_guard, "start_new_thread", refuse)
        else:
            monkeypatch.setattr(type(stage.bodies[0]), "close", fail)
        caplog.set_level(logging.DEBUG)
        stage.open(stage.client(lambda _: answers.pop()))
        gc.collect()
        until(lambda: stage.held == 0)
        if trouble == "no more threads":
            stage.bodies.clear()  # nobody is left to close it
        else:
            until(lambda: "closing an abandoned stream of provider 'p' failed: CloseError('gone')" in caplog.text)

    play(lib, scenario)


# -- the watchdog -----------------------------------------------------------------------------------------------------


@both
def test_grd_4_a_reclaimed_stream_is_cut_and_closed_and_its_reader_told(lib: Lib) -> None:
    def scenario(stage: Stage) -> None:
        client = stage.client(lambda _: stage.answer(b"a", 5000.0, b"b"))
        response = stage.open(client)
        iterator, _ = first_chunk(response)
        with pytest.raises(SlotReclaimedError, match="provider 'p': the watchdog took the slot back"):
            next(iterator)
        assert stage.now == pytest.approx(330.0)  # the first sweep after more than 300 s
        assert stage.bodies[0].closed == 1
        response.close()  # late, and without effect
        assert stage.seen() == ["granted", "reclaimed"]

    play(lib, scenario)


@pytest.mark.parametrize("lib", LIBS[:1])
def test_grd_4_a_reclaim_that_cuts_nothing_would_be_noticed(lib: Lib, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Lease, "_cut_off", lambda _: None)
    with pytest.raises(AssertionError, match=r"5000\.0 == 330\.0"):
        test_grd_4_a_reclaimed_stream_is_cut_and_closed_and_its_reader_told(lib)


@both
def test_grd_4_a_reclaimed_stream_that_nobody_reads_is_closed_too(lib: Lib) -> None:
    def scenario(stage: Stage) -> None:
        response = stage.open(stage.client(lambda _: stage.answer(b"a", b"b")))
        stage.pass_ms(331_000)
        until(lambda: bool(stage.bodies[0].closed))
        with pytest.raises(SlotReclaimedError):
            read(response)

    play(lib, scenario)


@both
def test_grd_4_what_cannot_be_cut_is_told_when_its_read_returns(lib: Lib) -> None:
    def scenario(stage: Stage) -> None:
        response = stage.open(stage.client(lambda _: stage.answer(b"a", 5000.0, b"b", wired=False)))
        with pytest.raises(SlotReclaimedError):
            read(response)
        assert stage.now == pytest.approx(5000.0)

    play(lib, scenario)


@both
def test_grd_4_abort_reclaimed_false_lets_it_go_on(lib: Lib) -> None:
    def scenario(stage: Stage) -> None:
        client = stage.client(lambda _: stage.answer(b"a", 500.0, b"b"), {"abort_reclaimed": False})
        assert read(stage.open(client)) == [b"a", b"b"]
        assert "reclaimed" in stage.seen()

    play(lib, scenario)


SSE = {"content-type": "text/event-stream; charset=utf-8"}


@both
@pytest.mark.parametrize("counts", [True, False])
def test_htt_7_keep_alives_count_or_not(lib: Lib, counts: bool) -> None:
    def scenario(stage: Stage) -> None:
        pieces: list[Any] = [b"data: a\n\n", *[100.0, b": keep-alive\n\n"] * 6, b"data: b\n\n"]
        client = stage.client(lambda _: stage.answer(*pieces, headers=SSE), {"keepalives_count": counts})
        if counts:
            client.get("http://host/")
        else:
            with pytest.raises(SlotReclaimedError):
                client.get("http://host/")
        assert ("reclaimed" in stage.seen()) is not counts

    play(lib, scenario)


# -- the first byte ---------------------------------------------------------------------------------------------------


def answer_late(stage: Stage, request: Any, head: float, *pieces: Any) -> Any:
    """A head that takes its time, if the request's read timeout allows it, as the libraries' own transports do."""
    read_timeout = request.extensions["timeout"].get("read")
    if read_timeout is not None and read_timeout < head:
        stage.sleep(read_timeout)
        raise stage.lib.http.ReadTimeout("", request=request)
    stage.sleep(head)
    return stage.answer(*pieces)


@both
@pytest.mark.parametrize(("head", "body"), [(11.0, 0.0), (6.0, 5.0), (0.0, 11.0)])
def test_htt_6_the_first_byte_has_its_own_limit_over_head_and_body(lib: Lib, head: float, body: float) -> None:
    def scenario(stage: Stage) -> None:
        client = stage.client(lambda r: answer_late(stage, r, head, body, b"a"), {"first_byte_timeout": 10.0})
        with pytest.raises(lib.http.ReadTimeout, match="no first byte within first_byte_timeout"):
            client.get("http://host/", timeout=600.0)
        assert stage.now == pytest.approx(10.0)
        assert stage.held == 0

    play(lib, scenario)


@both
def test_htt_6_time_that_nobody_waited_does_not_count_and_later_bytes_have_no_limit(lib: Lib) -> None:
    def scenario(stage: Stage) -> None:
        client = stage.client(lambda r: answer_late(stage, r, 2.0, b"a", 20.0, b"b"), {"first_byte_timeout": 10.0})
        response = stage.open(client)
        stage.pass_ms(60_000)
        assert read(response) == [b"a", b"b"]

    play(lib, scenario)


@both
def test_htt_6_a_keep_alive_that_does_not_count_is_no_first_byte(lib: Lib) -> None:
    def scenario(stage: Stage) -> None:
        options = {"first_byte_timeout": 10.0, "keepalives_count": False}
        client = stage.client(lambda _: stage.answer(*[4.0, b": wait\n\n"] * 9, headers=SSE), options)
        with pytest.raises(lib.http.ReadTimeout):
            client.get("http://host/")
        assert stage.now == pytest.approx(10.0)

    play(lib, scenario)


def test_htt_6_no_timeout_of_a_request_is_longer_than_what_is_left() -> None:
    now = [100.0]
    timeouts = Countdown({"connect": 5.0, "read": None, "write": 600.0}, 10.0, lambda: now[0])
    assert [timeouts.get(key) for key in ("connect", "read", "write", "pool")] == [5.0, 10.0, 10.0, 10.0]
    now[0] = 107.0
    assert (timeouts["read"], timeouts.get("connect")) == (3.0, 3.0)
    now[0] = 200.0
    assert timeouts.get("read") == 0.001


@both
def test_htt_6_the_body_is_read_with_the_requests_own_timeouts(lib: Lib) -> None:
    seen: list[Any] = []

    def scenario(stage: Stage) -> None:
        def handler(request: Any) -> Any:
            seen.append(request.extensions["timeout"].get("read"))
            return stage.answer(b"a")

        response = stage.open(stage.client(handler, {"first_byte_timeout": 10.0}, timeout=600.0))
        seen.append(response.request.extensions["timeout"].get("read"))
        read(response)

    play(lib, scenario)
    assert seen == [10.0, 600.0]


@both
@pytest.mark.parametrize(
    ("options", "timeout", "reclaimed"),
    [({}, 600.0, False), ({"first_byte_timeout": 600.0}, None, False), ({}, None, True)],
)
def test_grd_5_a_bounded_wait_for_the_first_byte_is_not_the_watchdogs(
    lib: Lib, options: Any, timeout: float | None, reclaimed: bool
) -> None:
    """A whole answer may take longer to come than any healthy silence of a stream."""

    def scenario(stage: Stage) -> None:
        client = stage.client(lambda r: answer_late(stage, r, 500.0, b"a"), options, timeout=timeout)
        if reclaimed:
            with pytest.raises(SlotReclaimedError):
                client.get("http://host/")
            assert stage.now == pytest.approx(330.1)  # the first sweep after more than 300 s, and a little
        else:
            assert client.get("http://host/").content == b"a"
            assert "reclaimed" not in stage.seen()

    play(lib, scenario)


# -- 429 and our own refusals -----------------------------------------------------------------------------------------


@both
def test_htt_5_the_pause_begins_before_the_slot_is_free(lib: Lib) -> None:
    def scenario(stage: Stage) -> None:
        refusals = [{"retry-after": "5"}]

        def handler(_: Any) -> Any:
            return stage.answer(b"{}", status=429, headers=refusals.pop()) if refusals else stage.answer(b"a")

        client = stage.client(handler)
        response = stage.open(client)
        later = stage.ask_by(lambda: client.get("http://host/"))
        assert later.is_alive()
        response.close()
        stage.pass_ms(4999)
        assert later.is_alive()
        stage.pass_ms(1)
        assert (response.status_code, later.slot.content) == (429, b"a")  # type: ignore[union-attr]
        assert stage.started == [0.0, 5.0]
        assert [kind for kind in stage.seen() if kind != "queued"][:3] == ["granted", "paused", "released"]

    play(lib, scenario, release_cooldown=0.0)


@both
@pytest.mark.parametrize(
    ("verdict", "expected"), [(None, []), (False, []), (True, [7.0]), (3, [3]), (2.5, [2.5]), (1j, [None])]
)
def test_htt_5_a_callable_classifies_and_may_name_its_own_seconds(lib: Lib, verdict: Any, expected: Any) -> None:
    def scenario(stage: Stage) -> None:
        def classify(response: Any) -> Any:
            assert response.read() == b"{}"  # the body may tell
            return verdict

        answer = stage.answer(b"{}", status=429, headers={"retry-after": "7"})
        response = stage.client(lambda _: answer, {"classify": classify}).get("http://host/")
        assert (response.status_code, response.content) == (429, b"{}")
        values: list[Any] = [event.value for event in stage.events if event.kind == "paused"]
        assert [requested for requested, _ in values] == expected
        stage.manager.resume("p")

    play(lib, scenario)


@both
def test_htt_5_a_classifier_that_raises_is_reported_and_the_status_decides(
    lib: Lib, caplog: pytest.LogCaptureFixture
) -> None:
    def scenario(stage: Stage) -> None:
        answer = stage.answer(b"{}", status=529, headers={"retry-after": "7"})
        options = {"classify": lambda _: 1 / 0, "rate_limit_statuses": {529}}
        assert stage.client(lambda _: answer, options).get("http://host/").status_code == 529
        assert [type(error) for error in stage.manager.failures] == [ZeroDivisionError]
        status = stage.status()
        assert status is not None
        assert status.paused_for == 7.0
        stage.manager.resume("p")

    play(lib, scenario)
    assert "ZeroDivisionError" in caplog.text


@both
def test_bug_24_refusals_are_ours_and_change_nothing(lib: Lib) -> None:
    def scenario(stage: Stage) -> None:
        holder = stage.hold()
        waiter = stage.ask()
        full, hasty = stage.client(lambda _: None), stage.client(lambda _: None, {"acquire_timeout": 0.0})
        with pytest.raises(QueueFullError, match="1 requests are queued already"):
            full.get("http://host/")
        with pytest.raises(AcquireTimeoutError):
            hasty.get("http://host/")
        assert (stage.requests, stage.figures()) == ([], (1, 0, 0, 1))
        holder.release()
        stage.pass_ms(200)
        blocking = stage.ask_by(lambda: stage.client(lambda _: None, {"acquire_timeout": 3.0}).get("http://host/"))
        stage.pass_ms(3000)
        assert isinstance(blocking.error, AcquireTimeoutError)
        waiter.slot.release()  # type: ignore[union-attr]
        stage.manager.close()
        with pytest.raises(ManagerClosedError):
            full.get("http://host/")

    play(lib, scenario, max_queued=1)


# -- what is refused --------------------------------------------------------------------------------------------------


@both
def test_the_kinds_are_not_mixed(lib: Lib) -> None:
    stage = Stage(lib)
    with pytest.raises(TypeError, match=r"manager must be a provider_concurrency.threading.ConcurrencyManager, not"):
        lib.Transport(LoopManager())
    with pytest.raises(TypeError, match=r"manager must be a provider_concurrency.manager.ConcurrencyManager, not"):
        LimitedTransport(stage.manager)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="needs a client of the kind Client"):
        lib.limited_client(stage.manager, lib.http.AsyncClient())
    with pytest.raises(TypeError, match="needs a client of the kind AsyncClient"):
        lib.limited_client(LoopManager(), lib.http.Client())
    with pytest.raises(ValueError, match="takes slots already"):
        lib.Transport(stage.manager, lib.Transport(stage.manager))

    async def classify(_: Any) -> bool:
        return True

    with pytest.raises(TypeError, match="must be no coroutine function"):
        lib.Transport(stage.manager, classify=classify)
    stage.finish()


@both
def test_a_client_with_mounts_and_proxies_is_wrapped_as_a_whole(lib: Lib) -> None:
    stage = Stage(lib)
    given = lib.http.Client(mounts={"https://": lib.http.HTTPTransport(), "all://local": None})
    client = lib.limited_client(stage.manager, given, provider="p")
    assert client is given
    assert isinstance(client._transport, lib.Transport)
    assert sorted(type(inner).__name__ for inner in client._mounts.values()) == [
        "BlockingLimitedTransport", "NoneType",
    ]  # fmt: skip
    client.close()
    stage.finish()


# -- streams from elsewhere -------------------------------------------------------------------------------------------


def test_grd_1_a_generator_is_guarded_without_a_transport() -> None:
    stage = Stage(LIBS[0].values[0])  # type: ignore[arg-type]
    steps: list[str] = []

    def generate() -> Any:
        try:
            yield "a"
            yield "b"
        finally:
            steps.append(f"closed with {stage.held} held")

    slot = stage.hold()
    with slot.guard(generate()) as stream:
        assert isinstance(stream, GuardedIterator)
        assert next(stream) == "a"
    with pytest.raises(StopIteration):
        next(stream)
    assert (steps, stage.held) == (["closed with 1 held"], 0)
    with pytest.raises(ValueError, match="only a held slot can guard a stream"):
        slot.guard(iter("a"))
    stage.pass_ms(200)
    assert list(stage.hold().guard(iter("ab"))) == ["a", "b"]
    assert stage.held == 0
    stage.finish()


def test_grd_4_a_guarded_generator_is_touched_and_reclaimed() -> None:
    stage = Stage(LIBS[0].values[0], slot_timeout=1.0, watchdog_interval=0.5)  # type: ignore[arg-type]

    def generate() -> Any:
        for _ in range(5):
            yield "a"
            stage.sleep(0.9)
        stage.sleep(5.0)
        yield "z"

    count = 0
    with pytest.raises(SlotReclaimedError):  # noqa: PT012 - the loop is what raises
        for _ in stage.hold().guard(generate()):
            count += 1
    assert count == 5
    stage.finish()


def test_grd_4_a_guarded_iterator_that_nobody_ever_read_is_closed() -> None:
    stage = Stage(LIBS[0].values[0], slot_timeout=1.0, watchdog_interval=0.5)  # type: ignore[arg-type]
    closed: list[bool] = []

    class Source:
        def __iter__(self) -> Source:
            return self

        def __next__(self) -> str:
            raise AssertionError("nobody reads")

        def close(self) -> None:
            closed.append(True)

    stream = stage.hold().guard(Source())
    stage.pass_ms(1500)
    until(lambda: bool(closed))
    with pytest.raises(SlotReclaimedError):
        next(stream)
    stage.finish()


def test_htt_6_an_alarm_of_a_wait_that_is_over_cuts_no_later_one() -> None:
    stage = Stage(LIBS[0].values[0])  # type: ignore[arg-type]
    cuts: list[int] = []
    lease = Lease(stage.hold(), first_timeout=9.0)
    lease.cut_by(lambda: cuts.append(1))
    lease.wait(lambda: lease._on_late(0))
    with pytest.raises(TimeoutError):
        lease.wait(lambda: (lease._on_late(1), lease._on_late(2)))
    assert cuts == [1], "the alarm of the second wait, in the second wait"
    lease._on_late(2)
    assert cuts == [1], "nobody waits"
    lease.close()
    stage.finish()


def test_grd_a_first_item_that_comes_too_late() -> None:
    stage = Stage(LIBS[0].values[0])  # type: ignore[arg-type]
    ticks = iter((0.0, 3.0))
    lease = Lease(stage.hold(), first_timeout=2.0)
    lease._now = lambda: next(ticks)
    with pytest.raises(TimeoutError, match="no sign of life within first_timeout"):
        next(GuardedIterator(lease, iter("a")))
    assert stage.held == 0
    stage.finish()


@pytest.mark.realtime
def test_the_alarms_thread_starts_with_the_first_and_ends_with_stop() -> None:
    alarms, rung = Alarms(), threading.Event()
    assert alarms._wakes._thread is None
    alarms.set("a", 0.0, rung.set)
    alarms.set("b", 60.0, rung.clear)
    alarms.clear("b")
    assert rung.wait(10)
    thread = alarms._wakes._thread
    assert thread is not None
    alarms.stop()
    thread.join(10)
    assert not thread.is_alive()


def test_frk_1_alarms_ring_in_a_forked_child() -> None:
    run_program(
        """
        from provider_concurrency.threading_guard import Alarms
        alarms, rung = Alarms(), threading.Event()
        alarms.set("a", 60.0, rung.set)  # the parent's thread waits

        def check():
            alarms.set("b", 0.0, rung.set)
            assert rung.wait(20)

        in_child(check)
        assert not rung.is_set()
        alarms.stop()
        """
    )
