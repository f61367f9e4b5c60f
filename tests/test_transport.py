"""HTT-3, HTT-4, GRD-1..5: a request's slot is taken before it is sent and given back exactly once, whatever happens."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import threading
import warnings
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from provider_concurrency import ConcurrencyManager, guard
from provider_concurrency.errors import ProviderConcurrencyError, SlotReclaimedError
from provider_concurrency.testing import VirtualLoop
from transport_stage import LIBS, Lib, Stage, both, first_chunk, play, read

End = Callable[[Stage, Any, Any], Coroutine[Any, Any, None]]


# -- a slot is held until the body is closed --------------------------------------------------------------------------


async def exhaust(stage: Stage, client: Any, response: Any) -> None:
    assert await read(response) == [b"a", b"b"]


async def close_twice(stage: Stage, client: Any, response: Any) -> None:
    await first_chunk(response)
    await response.aclose()
    await response.aclose()


async def leave_the_block(stage: Stage, client: Any, response: Any) -> None:
    async with contextlib.aclosing(response):
        await first_chunk(response)


async def close_from_another_task(stage: Stage, client: Any, response: Any) -> None:
    await first_chunk(response)
    await asyncio.create_task(response.aclose())  # case 70


async def close_unread(stage: Stage, client: Any, response: Any) -> None:
    await response.aclose()


async def close_the_client(stage: Stage, client: Any, response: Any) -> None:
    iterator, _ = await first_chunk(response)
    await client.aclose()
    with pytest.raises(ProviderConcurrencyError, match="the transport was closed"):
        await anext(iterator)


ENDS: list[End] = [exhaust, close_twice, leave_the_block, close_from_another_task, close_unread, close_the_client]


async def hold_until(stage: Stage, end: End) -> None:
    """One request is streamed, a second must wait until the first has ended and its slot has cooled."""
    client = stage.client(lambda request: stage.answer(b"a", 5.0, b"b"))
    second = stage.client(lambda request: stage.answer(b"z"))
    response = await stage.open(client)
    later = asyncio.create_task(second.get("http://host/"))
    await asyncio.sleep(2.0)
    assert len(stage.requests) == 1, "the second request was sent while the first still streamed"
    assert stage.held == 1
    await end(stage, client, response)
    ended = stage.loop.time()
    assert (await later).content == b"z"
    assert stage.started[1] == pytest.approx(ended + 0.2)
    assert stage.kinds().count("released") == 2


@both
@pytest.mark.parametrize("end", ENDS, ids=lambda end: end.__name__)
def test_bug_75_the_slot_is_held_until_the_body_has_ended(lib: Lib, end: End) -> None:
    play(lib, lambda stage: hold_until(stage, end))


@pytest.mark.parametrize("lib", LIBS[:1])
def test_bug_75_a_slot_given_back_at_the_head_would_be_noticed(lib: Lib) -> None:
    """The mistake, planted: what the test above asserts must then fail."""

    class HeadReleasing(lib.LimitedTransport):  # type: ignore[name-defined, misc]
        def _hold(self, response: Any, lease: Any) -> None:
            lease.give_back()

    honest, lib.LimitedTransport = lib.LimitedTransport, HeadReleasing
    try:
        with pytest.raises(AssertionError, match="while the first still streamed"):
            play(lib, lambda stage: hold_until(stage, exhaust), rest=False)
    finally:
        lib.LimitedTransport = honest


@both
def test_bug_75_a_read_error_gives_the_slot_back(lib: Lib) -> None:
    async def scenario(stage: Stage) -> None:
        client = stage.client(lambda request: stage.answer(b"a", lib.http.ReadError("gone")))
        with pytest.raises(lib.http.ReadError, match="gone"):
            await client.get("http://host/")
        assert stage.held == 0

    play(lib, scenario)


@both
def test_bug_75_a_decode_error_gives_the_slot_back(lib: Lib) -> None:
    async def scenario(stage: Stage) -> None:
        client = stage.client(lambda request: stage.answer(b"no gzip", headers={"content-encoding": "gzip"}))
        with pytest.raises(lib.http.DecodingError):
            await client.get("http://host/")
        assert stage.held == 0

    play(lib, scenario)


@both
def test_bug_75_a_failing_hook_gives_the_slot_back(lib: Lib) -> None:
    async def fail(response: Any) -> None:
        raise ZeroDivisionError

    async def scenario(stage: Stage) -> None:
        client = stage.client(lambda request: stage.answer(b"a"), event_hooks={"response": [fail]})
        with pytest.raises(ZeroDivisionError):
            await client.get("http://host/")
        assert stage.held == 0

    play(lib, scenario)


@both
def test_bug_75_every_redirect_takes_its_own_slot_and_none_deadlocks_at_limit_1(lib: Lib) -> None:
    def hop(stage: Stage, request: Any) -> Any:
        if request.url.path == "/":
            return stage.answer(5.0, b"moved", status=307, headers={"location": "/there"})
        return stage.answer(b"there")

    async def scenario(stage: Stage) -> None:
        client = stage.client(lambda request: hop(stage, request), follow_redirects=True)
        response = await client.get("http://host/")
        assert response.content == b"there"
        assert stage.started == [0.0, 5.2]
        assert stage.prompts() == [1e9, 1e9]  # HTT-2

    play(lib, scenario)


@both
def test_bug_75_every_auth_hop_takes_its_own_slot_and_none_deadlocks_at_limit_1(lib: Lib) -> None:
    class Twice(lib.http.Auth):  # type: ignore[name-defined, misc]
        def auth_flow(self, request: Any) -> Any:
            yield request
            yield request

    async def scenario(stage: Stage) -> None:
        client = stage.client(lambda request: stage.answer(5.0, b"a"), auth=Twice())
        assert (await client.get("http://host/", timeout=None)).content == b"a"
        assert stage.started == [0.0, 5.2]
        assert stage.prompts() == [1e9, 1e9]

    play(lib, scenario)


@both
def test_htt_4_a_body_that_is_there_already_gives_the_slot_back_at_once(lib: Lib) -> None:
    async def scenario(stage: Stage) -> None:
        client = stage.client(lambda request: lib.http.Response(200, text="whole"))
        assert [(await client.get("http://host/")).text for _ in range(3)] == ["whole"] * 3
        assert stage.started == pytest.approx([0.0, 0.2, 0.4])

    play(lib, scenario)


@both
def test_grd_1_a_response_closed_by_another_task_in_the_middle_of_a_read(lib: Lib) -> None:
    async def scenario(stage: Stage) -> None:
        client = stage.client(lambda request: stage.answer(b"a", 5.0, b"b"))
        response = await stage.open(client)
        reader = asyncio.create_task(read(response))
        await asyncio.sleep(1.0)
        await response.aclose()
        assert (stage.held, stage.bodies[0].closed) == (0, 1)
        reader.cancel()
        await asyncio.wait([reader])

    play(lib, scenario)


# -- nothing comes of a request ---------------------------------------------------------------------------------------


@both
def test_bug_77_a_request_that_fails_before_its_head_gives_the_slot_back(lib: Lib) -> None:
    async def fail(request: Any) -> Any:
        await asyncio.sleep(0.01)
        raise lib.http.PoolTimeout("no connection")

    async def scenario(stage: Stage) -> None:
        client = stage.client(fail)
        for _ in range(50):
            with pytest.raises(lib.http.PoolTimeout):
                await client.get("http://host/")
            assert stage.held == 0

    play(lib, scenario)


@both
@pytest.mark.parametrize("turns", range(6))
def test_bug_77_a_request_cancelled_at_any_step_gives_the_slot_back(lib: Lib, turns: int) -> None:
    async def slow(stage: Stage) -> Any:
        await asyncio.sleep(0)
        return stage.answer(b"a", 9.0, b"b")

    async def scenario(stage: Stage) -> None:
        client = stage.client(lambda request: slow(stage))
        for _ in range(50):
            task = asyncio.create_task(client.get("http://host/"))
            for _ in range(turns):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait([task])
            assert task.cancelled()
            assert stage.held == 0

    play(lib, scenario, release_cooldown=0.0)


@both
@pytest.mark.parametrize("turns", range(8))
def test_bug_4_wait_for_around_a_request_loses_no_slot(lib: Lib, turns: int) -> None:
    async def scenario(stage: Stage) -> None:
        client = stage.client(lambda request: stage.answer(b"a"))
        holder = await stage.manager.acquire("p")
        task = asyncio.create_task(asyncio.wait_for(client.get("http://host/"), 5))
        await asyncio.sleep(0.1)
        holder.release()
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        assert stage.held == 0

    play(lib, scenario, release_cooldown=0.0)


@both
def test_bug_23_a_handler_that_raises_at_once_100_times(lib: Lib) -> None:
    def refuse(request: Any) -> Any:
        raise ZeroDivisionError

    async def scenario(stage: Stage) -> None:
        client = stage.client(refuse)
        for _ in range(100):
            with pytest.raises(ZeroDivisionError):
                await client.get("http://host/")
        assert stage.held == 0

    play(lib, scenario)


# -- the consumer is gone ---------------------------------------------------------------------------------------------


@both
@pytest.mark.parametrize("failure", ["cancelled", "failed"])
@pytest.mark.parametrize("reads", [0, 1])
def test_bug_77_a_reader_that_dies_between_two_chunks_gives_the_slot_back(lib: Lib, failure: str, reads: int) -> None:
    async def consume(stage: Stage, client: Any) -> None:
        response = await stage.open(client)
        if reads:
            _iterator, _ = await first_chunk(response)
        await asyncio.sleep(1.0)
        raise ZeroDivisionError

    async def scenario(stage: Stage) -> None:
        client = stage.client(lambda request: stage.answer(b"a", 5.0, b"b"))
        task = asyncio.create_task(consume(stage, client))
        await asyncio.sleep(0.5)
        assert stage.held == 1
        if failure == "cancelled":
            task.cancel()
        await asyncio.wait([task])
        await asyncio.sleep(0.001)
        assert stage.held == 0
        assert stage.bodies[0].closed == 1
        assert task.done()  # it is still here, and with it the frame that holds the response
        task.cancelled() or task.exception()

    play(lib, scenario)


@both
def test_grd_2_a_stream_may_be_handed_on_by_a_task_that_ends_well(lib: Lib) -> None:
    async def begin(stage: Stage, client: Any) -> Any:
        response = await stage.open(client)
        return await first_chunk(response)

    async def scenario(stage: Stage) -> None:
        client = stage.client(lambda request: stage.answer(b"a", 5.0, b"b"))
        iterator, chunk = await asyncio.create_task(begin(stage, client))
        rest = [chunk async for chunk in iterator]
        assert [chunk, *rest] == [b"a", b"b"]

    play(lib, scenario)


@both
def test_grd_2_who_reads_a_stream_that_was_closed_behind_its_reader_is_told(lib: Lib) -> None:
    async def scenario(stage: Stage) -> None:
        client = stage.client(lambda request: stage.answer(b"a", 5.0, b"b"))
        kept: list[Any] = []

        async def begin() -> None:
            response = await stage.open(client)
            kept.append((await first_chunk(response))[0])
            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            await asyncio.create_task(begin())
        await asyncio.sleep(0.001)
        with pytest.raises(ProviderConcurrencyError, match="closed behind its reader: the task that read it has ended"):
            await anext(kept[0])  # and not an end that would make a cut answer look like a whole one

    play(lib, scenario)


@both
def test_grd_2_a_long_lived_task_collects_no_callbacks(lib: Lib) -> None:
    async def scenario(stage: Stage) -> None:
        client = stage.client(lambda request: stage.answer(b"a"))
        before = len(asyncio.current_task()._callbacks or ())  # type: ignore[union-attr]
        for _ in range(20):
            await client.get("http://host/")
        assert len(asyncio.current_task()._callbacks or ()) == before  # type: ignore[union-attr]

    play(lib, scenario)


@both
def test_grd_3_a_forgotten_response_is_closed_by_its_finaliser_with_a_warning(lib: Lib) -> None:
    async def scenario(stage: Stage) -> None:
        client = stage.client(lambda request: stage.answer(b"a", 5.0, b"b"))

        async def forget() -> None:
            await stage.open(client)
            gc.collect()

        with pytest.warns(ResourceWarning, match="a stream of provider 'p' was forgotten"):
            await forget()
        assert stage.held == 1, "given back before it was closed"
        await asyncio.sleep(0.001)
        assert stage.held == 0
        assert stage.bodies[0].closed == 1

    play(lib, scenario)


@both
def test_grd_3_httpx_leaves_a_forgotten_response_to_the_collector(lib: Lib) -> None:
    async def scenario(stage: Stage) -> None:
        client = stage.client(lambda request: stage.answer(b"a", 5.0, b"b"))
        gc.collect()
        gc.disable()
        try:
            await stage.open(client)
            await asyncio.sleep(0.001)
            assert stage.held == (1 if lib.name == "httpx" else 0)
            gc.collect()
            await asyncio.sleep(0.001)
            assert stage.held == 0
        finally:
            gc.enable()

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        play(lib, scenario)


@both
@pytest.mark.filterwarnings("ignore:a stream of provider")
def test_bug_33_the_closing_of_a_forgotten_response_is_kept_alive_and_leaves_nothing(lib: Lib) -> None:
    async def scenario(stage: Stage) -> None:
        client = stage.client(lambda request: stage.answer(b"a", 5.0, b"b"))
        await stage.open(client)
        gc.collect()
        await asyncio.sleep(0)
        gc.collect()
        await asyncio.sleep(0.001)
        assert stage.held == 0
        assert not guard._closing

    play(lib, scenario)


@both
def test_grd_3_the_warning_as_an_error_keeps_no_slot(lib: Lib) -> None:
    async def scenario(stage: Stage) -> None:
        client = stage.client(lambda request: stage.answer(b"a", 5.0, b"b"))
        with warnings.catch_warnings():
            warnings.simplefilter("error", ResourceWarning)
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr("sys.unraisablehook", lambda _: None)
                await stage.open(client)
                gc.collect()
        await asyncio.sleep(0.001)
        assert stage.held == 0

    play(lib, scenario)


@both
@pytest.mark.realtime
@pytest.mark.filterwarnings("ignore:a stream of provider")
def test_bug_69_a_response_forgotten_in_another_thread_wakes_the_loop(lib: Lib) -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        stage = Stage(lib, VirtualLoop(), release_cooldown=0.0)
        stage.loop.close()
        manager = ConcurrencyManager(limits={"p": 1}, release_cooldown=0.0)
        stage.manager, stage.loop = manager, loop  # type: ignore[assignment]
        client = stage.client(lambda request: stage.answer(b"a", 60.0, b"b"))
        box = [await stage.open(client)]
        waiter = asyncio.create_task(manager.acquire("p"))

        def forget() -> None:
            box.clear()
            gc.collect()  # httpx ties a response and its stream into a cycle

        forgetter = threading.Timer(0.05, forget)
        forgetter.start()
        began = loop.time()
        (await asyncio.wait_for(waiter, 5)).release()
        assert loop.time() - began < 2
        await asyncio.to_thread(forgetter.join)  # while one thread collects, another's gc.collect() does nothing

    asyncio.run(scenario())


@both
@pytest.mark.filterwarnings("ignore:a stream of provider")
def test_bug_63_a_response_that_outlives_its_loop_gives_the_slot_back_without_one(lib: Lib) -> None:
    kept: list[Any] = []

    async def scenario(stage: Stage) -> None:
        kept.append(await stage.open(stage.client(lambda request: stage.answer(b"a", 5.0))))

    stage = play(lib, scenario, rest=False)
    assert stage.held == 1
    kept.clear()
    gc.collect()
    assert stage.held == 0


# -- signs of life ----------------------------------------------------------------------------------------------------


@both
def test_htt_7_chunks_keep_the_watchdog_away(lib: Lib) -> None:
    async def scenario(stage: Stage) -> None:
        client = stage.client(lambda request: stage.answer(*[250.0, b"a"] * 4))
        assert (await client.get("http://host/", timeout=None)).content == b"aaaa"
        assert "reclaimed" not in stage.kinds()

    play(lib, scenario)


SSE = {"content-type": "text/event-stream; charset=utf-8"}


@both
def test_htt_7_comments_in_a_compressed_or_other_body_cannot_be_told_and_count(lib: Lib) -> None:
    async def scenario(stage: Stage) -> None:
        for headers in ({"content-type": "text/plain"}, SSE | {"content-encoding": "x-mine"}):
            answer = stage.answer(*[250.0, b": no keep-alive\n"] * 4, headers=headers)
            await read(await stage.open(stage.client(lambda _, answer=answer: answer, {"keepalives_count": False})))
        assert "reclaimed" not in stage.kinds()

    play(lib, scenario)


KEEPALIVES = [b": keep-alive\n\n", b":\r\n\r\n", b"event: ping\ndata: {}\n\n", b"\n"]


@both
@pytest.mark.parametrize("keepalive", KEEPALIVES, ids=repr)
@pytest.mark.parametrize("counts", [True, False])
def test_htt_7_keep_alives_count_or_not(lib: Lib, keepalive: bytes, counts: bool) -> None:
    async def scenario(stage: Stage) -> None:
        client = stage.client(
            lambda request: stage.answer(b"data: a\n\n", *[100.0, keepalive] * 6, b"data: b\n\n", headers=SSE),
            {"keepalives_count": counts},
        )
        if counts:
            await client.get("http://host/")
        else:
            with pytest.raises(SlotReclaimedError):
                await client.get("http://host/")
        assert ("reclaimed" in stage.kinds()) is not counts

    play(lib, scenario)


@both
def test_bug_32_a_reclaimed_stream_is_closed_at_once_and_its_reader_is_told(lib: Lib) -> None:
    async def scenario(stage: Stage) -> None:
        client = stage.client(lambda request: stage.answer(b"a", 5000.0, b"b"))
        response = await stage.open(client)
        iterator, _ = await first_chunk(response)
        with pytest.raises(SlotReclaimedError, match="provider 'p': the watchdog took the slot back"):
            await anext(iterator)
        assert stage.loop.time() == pytest.approx(330.0)  # the first sweep after more than 300 s
        assert stage.bodies[0].closed == 1
        await response.aclose()  # late, and without effect
        assert stage.kinds() == ["granted", "reclaimed"]

    play(lib, scenario)


@both
def test_bug_32_a_reclaimed_stream_that_nobody_reads_is_closed_too(lib: Lib) -> None:
    async def scenario(stage: Stage) -> None:
        client = stage.client(lambda request: stage.answer(b"a", b"b"))
        response = await stage.open(client)
        await asyncio.sleep(331.0)
        assert stage.bodies[0].closed == 1
        with pytest.raises(SlotReclaimedError):
            await read(response)

    play(lib, scenario)


@both
def test_grd_4_abort_reclaimed_false_lets_it_go_on(lib: Lib) -> None:
    async def scenario(stage: Stage) -> None:
        client = stage.client(lambda request: stage.answer(b"a", 500.0, b"b"), {"abort_reclaimed": False})
        assert await read(await stage.open(client)) == [b"a", b"b"]
        assert "reclaimed" in stage.kinds()

    play(lib, scenario)


# -- the first byte ---------------------------------------------------------------------------------------------------


@both
@pytest.mark.parametrize(("head", "body"), [(11.0, 0.0), (6.0, 5.0), (0.0, 11.0)])
def test_htt_6_the_first_byte_has_its_own_limit_over_head_and_body(lib: Lib, head: float, body: float) -> None:
    async def answer(stage: Stage) -> Any:
        await asyncio.sleep(head)
        return stage.answer(body, b"a")

    async def scenario(stage: Stage) -> None:
        client = stage.client(lambda request: answer(stage), {"first_byte_timeout": 10.0})
        with pytest.raises(lib.http.ReadTimeout, match="no first byte within first_byte_timeout"):
            await client.get("http://host/")
        assert stage.loop.time() == pytest.approx(10.0)
        assert stage.held == 0

    play(lib, scenario)


@both
def test_htt_6_time_that_nobody_waited_does_not_count_and_later_bytes_have_no_limit(lib: Lib) -> None:
    async def scenario(stage: Stage) -> None:
        client = stage.client(lambda request: stage.answer(b"a", 20.0, b"b"), {"first_byte_timeout": 10.0})
        response = await stage.open(client)
        await asyncio.sleep(60.0)
        assert await read(response) == [b"a", b"b"]

    play(lib, scenario)


@both
def test_htt_6_a_keep_alive_that_does_not_count_is_no_first_byte(lib: Lib) -> None:
    async def scenario(stage: Stage) -> None:
        options = {"first_byte_timeout": 10.0, "keepalives_count": False}
        client = stage.client(lambda request: stage.answer(*[4.0, b": wait\n\n"] * 9, headers=SSE), options)
        with pytest.raises(lib.http.ReadTimeout):
            await client.get("http://host/")
        assert stage.loop.time() == pytest.approx(10.0)

    play(lib, scenario)


@both
@pytest.mark.parametrize(
    ("options", "timeout", "reclaimed"),
    [({}, 600.0, False), ({"first_byte_timeout": 600.0}, None, False), ({}, None, True)],
)
def test_grd_5_a_bounded_wait_for_the_first_byte_is_not_the_watchdogs(
    lib: Lib, options: Any, timeout: float | None, reclaimed: bool
) -> None:
    """A whole answer may take longer to come than any healthy silence of a stream."""

    async def answer(stage: Stage) -> Any:
        await asyncio.sleep(500.0)
        return stage.answer(b"a")

    async def scenario(stage: Stage) -> None:
        client = stage.client(lambda request: answer(stage), options, timeout=timeout)
        if reclaimed:
            with pytest.raises(SlotReclaimedError):
                await client.get("http://host/")
            assert stage.loop.time() == pytest.approx(330.0)
        else:
            assert (await client.get("http://host/")).content == b"a"

    play(lib, scenario)
