"""HTT-5 and groups F, G of the bug reports as a transport meets them: what a 429 does, whoever sent it and however."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from provider_concurrency import AcquireTimeoutError, ManagerClosedError, QueueFullError
from provider_concurrency.context import conversation
from transport_stage import Lib, Stage, both, play


def refusing(stage: Stage, *headers: tuple[str, str], times: int = 1, status: int = 429) -> Callable[[Any], Any]:
    """A handler that refuses the first `times` requests."""

    def answer(_: Any) -> Any:
        if len(stage.requests) <= times:
            return stage.answer(b"{}", status=status, headers=list(headers))
        return stage.answer(b"a")

    return answer


def pauses(stage: Stage) -> list[Any]:
    """Of each report: what was asked for, and what was applied, both in seconds."""
    values: list[Any] = [event.value for event in stage.events if event.kind == "paused"]
    return [(requested, applied / 1e9) for requested, applied in values]


@both
def test_bug_28_the_slot_cools_before_the_pause_and_the_retry_queues_with_the_original_time(lib: Lib) -> None:
    async def scenario(stage: Stage) -> None:
        client = stage.client(refusing(stage, ("retry-after", "5")))
        with conversation("c1"):
            assert (await client.get("http://host/")).status_code == 429
            assert stage.held == 0
            await asyncio.sleep(1.0)
            younger = asyncio.create_task(stage.manager.acquire("p"))
            retry = asyncio.create_task(client.get("http://host/"))
            assert (await retry).content == b"a"
        (await younger).release()
        assert stage.kinds()[:3] == ["granted", "paused", "released"]
        assert stage.started == [0.0, 5.0]
        assert stage.prompts() == [1e9, 1e9, 1e9 + 1.0]

    play(lib, scenario)


@both
def test_htt_5_the_pause_begins_before_the_slot_is_free(lib: Lib) -> None:
    async def scenario(stage: Stage) -> None:
        client = stage.client(refusing(stage, ("retry-after", "5")))
        results = await asyncio.gather(client.get("http://host/"), client.get("http://host/"))
        assert [result.status_code for result in results] == [429, 200]
        assert stage.started == [0.0, 5.0]

    play(lib, scenario, release_cooldown=0.0)


@both
@pytest.mark.parametrize("value", ["Wed, 21 Oct 9999999 07:28:00 GMT", "Wed, 21 Oct 0000 07:28:00 GMT",
                                   "Tue, 31 Feb 2026 07:28:00 GMT", "-3", "nan", "1_0", ""])  # fmt: skip
def test_bug_55_a_header_out_of_range_is_the_default_pause_and_no_exception(lib: Lib, value: str) -> None:
    async def scenario(stage: Stage) -> None:
        client = stage.client(refusing(stage, ("retry-after", value)))
        assert (await client.get("http://host/")).status_code == 429
        assert stage.held == 0
        assert pauses(stage) == [(None, 30.0)]
        stage.manager.resume("p")

    play(lib, scenario)


@both
def test_bug_52_a_date_is_measured_by_the_managers_wall_clock(lib: Lib) -> None:
    async def scenario(stage: Stage) -> None:
        client = stage.client(refusing(stage, ("retry-after", "Sun, 09 Sep 2001 01:46:55 GMT")))  # 1e9 + 15 s
        await client.get("http://host/")
        assert pauses(stage) == [(15.0, 15.0)]
        await client.get("http://host/")
        assert stage.started == [0.0, 15.0]

    play(lib, scenario)


@both
def test_bug_56_45_seconds_are_honoured_in_full_and_a_cap_is_told(lib: Lib) -> None:
    async def scenario(stage: Stage) -> None:
        client = stage.client(refusing(stage, ("retry-after", "45")))
        await client.get("http://host/")
        await client.get("http://host/")
        assert stage.started == [0.0, 45.0]
        await stage.client(refusing(stage, ("retry-after", "1000000000"), times=9)).get("http://host/")
        assert pauses(stage) == [(45.0, 45.0), (1e9, 21600.0)]
        stage.manager.resume("p")

    play(lib, scenario)


@both
def test_bug_58_a_later_shorter_429_shortens_nothing(lib: Lib) -> None:
    async def answer(stage: Stage, request: Any) -> Any:
        seconds, after = request.headers["x-retry"], float(request.headers["x-after"])
        await asyncio.sleep(after)
        return stage.answer(b"{}", status=429, headers={"retry-after": seconds})

    async def scenario(stage: Stage) -> None:
        client = stage.client(lambda request: answer(stage, request))
        asked = [("5", "0"), ("1", "0.1"), ("x", "0.2"), ("20", "0.3")]
        await asyncio.gather(
            *(client.get("http://host/", headers={"x-retry": retry, "x-after": after}) for retry, after in asked)
        )
        status = stage.status()
        assert status is not None
        assert status.paused_for == pytest.approx(29.9)  # 30 s from 0.2 on, at 0.3
        assert [applied for _, applied in pauses(stage)] == [5.0, 1.0, 30.0, 20.0]
        stage.manager.resume("p")

    play(lib, scenario, limits={"p": 4})


@both
def test_bug_59_the_herd_at_the_end_of_a_pause_is_as_big_as_the_limit(lib: Lib) -> None:
    async def scenario(stage: Stage) -> None:
        client = stage.client(refusing(stage, ("retry-after", "9"), times=2))
        await client.get("http://host/")
        herd = [asyncio.create_task(client.get("http://host/")) for _ in range(20)]
        await asyncio.sleep(9.5)
        sent = len(stage.requests)
        assert sent == 5  # the first, and then four at once, the first of which is refused again
        status = stage.status()
        assert status is not None
        assert (status.paused, status.queued) == (True, 16)
        statuses = [response.status_code for response in await asyncio.gather(*herd)]
        assert (statuses.count(429), statuses.count(200)) == (1, 19)

    play(lib, scenario, limits={"p": 4})


@both
@pytest.mark.parametrize(
    ("verdict", "expected"),
    [(None, []), (False, []), (True, [(7.0, 7.0)]), (3, [(3, 3.0)]), (2.5, [(2.5, 2.5)]), ("x", [(None, 30.0)])],
)
@pytest.mark.parametrize("is_async", [False, True])
def test_htt_5_a_callable_classifies_and_may_name_its_own_seconds(
    lib: Lib, verdict: Any, expected: Any, is_async: bool
) -> None:
    async def scenario(stage: Stage) -> None:
        async def classify_later(response: Any) -> Any:
            assert (await response.aread()) == b"{}"  # the body may tell
            return verdict

        classify = classify_later if is_async else lambda _: verdict
        client = stage.client(refusing(stage, ("retry-after", "7")), {"classify": classify})
        response = await client.get("http://host/")
        assert (response.status_code, response.content) == (429, b"{}")
        assert pauses(stage) == expected
        stage.manager.resume("p")

    play(lib, scenario)


@both
def test_htt_5_a_classifier_that_raises_is_reported_and_the_status_decides(lib: Lib) -> None:
    async def scenario(stage: Stage) -> None:
        failures: list[Any] = []
        stage.loop.set_exception_handler(lambda _, context: failures.append(context["exception"]))
        client = stage.client(refusing(stage, ("retry-after", "7")), {"classify": lambda _: 1 / 0})
        assert (await client.get("http://host/")).status_code == 429
        assert [type(failure) for failure in failures] == [ZeroDivisionError]
        assert pauses(stage) == [(7.0, 7.0)]
        stage.manager.resume("p")

    play(lib, scenario)


@both
def test_htt_5_a_classifier_cancelled_in_the_middle_gives_the_slot_back(lib: Lib) -> None:
    async def scenario(stage: Stage) -> None:
        async def classify(_: Any) -> Any:
            await asyncio.sleep(9)

        client = stage.client(refusing(stage), {"classify": classify})
        task = asyncio.create_task(client.get("http://host/"))
        await asyncio.sleep(1)
        task.cancel()
        await asyncio.wait([task])
        assert stage.held == 0

    play(lib, scenario)


@both
def test_htt_5_other_statuses_on_request(lib: Lib) -> None:
    async def scenario(stage: Stage) -> None:
        options = {"rate_limit_statuses": {429, 529}}
        await stage.client(refusing(stage, ("retry-after", "2"), status=529), options).get("http://host/")
        assert pauses(stage) == [(2.0, 2.0)]
        stage.manager.resume("p")

    play(lib, scenario)


# -- our own refusals -------------------------------------------------------------------------------------------------


@both
def test_bug_24_refusals_are_ours_and_change_nothing(lib: Lib) -> None:
    async def scenario(stage: Stage) -> None:
        holder = await stage.manager.acquire("p")
        waiter = asyncio.create_task(stage.manager.acquire("p"))
        await asyncio.sleep(0)
        full, hasty = stage.client(lambda _: None), stage.client(lambda _: None, {"acquire_timeout": 0.0})
        for _ in range(10):
            with pytest.raises(QueueFullError, match="1 requests are queued already"):
                await full.get("http://host/")
            with pytest.raises(AcquireTimeoutError):
                await hasty.get("http://host/")
        assert stage.requests == []
        status = stage.status()
        assert status is not None
        assert (status.in_flight, status.queued) == (1, 1)
        holder.release()
        (await waiter).release()

    play(lib, scenario, max_queued=1)


@both
def test_htt_8_the_queue_has_its_own_timeout(lib: Lib) -> None:
    async def scenario(stage: Stage) -> None:
        holder = await stage.manager.acquire("p")
        client = stage.client(lambda _: None, {"acquire_timeout": 3.0}, timeout=1.0)
        with pytest.raises(AcquireTimeoutError, match=r"no slot within 3\.000 s"):
            await client.get("http://host/")
        holder.release()

    play(lib, scenario)


@both
def test_bug_60_close_settles_every_request_that_queues(lib: Lib) -> None:
    async def scenario(stage: Stage) -> None:
        client = stage.client(lambda _: stage.answer(b"a", 1.0, b"b"))
        tasks = [asyncio.create_task(client.get("http://host/")) for _ in range(6)]
        await asyncio.sleep(0.5)
        stage.manager.close()
        stage.manager.close()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert [type(result) for result in results[1:]] == [ManagerClosedError] * 5
        assert results[0].content == b"ab"  # type: ignore[union-attr] # who held a slot keeps it
        with pytest.raises(ManagerClosedError):  # case 62
            await client.get("http://host/")

    play(lib, scenario)


@both
def test_bug_81_a_callback_of_the_429_may_close_the_manager(lib: Lib) -> None:
    async def scenario(stage: Stage) -> None:
        client = stage.client(refusing(stage))
        closers.append(stage.manager.close)
        results = await asyncio.gather(*(client.get("http://host/") for _ in range(3)), return_exceptions=True)
        assert results[0].status_code == 429  # type: ignore[union-attr]
        assert [type(result) for result in results[1:]] == [ManagerClosedError] * 2

    closers: list[Callable[[], None]] = []
    play(lib, scenario, on_pause=lambda *_: closers[0]())
