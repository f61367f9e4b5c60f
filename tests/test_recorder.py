"""The recorder and the typed events: every transition and every configuration change, in order, with its values."""

from __future__ import annotations

import io
import json
import math
from collections.abc import Callable
from typing import Any

import pytest

from provider_concurrency import ConcurrencyManager
from provider_concurrency.events import Event, tee, typed
from provider_concurrency.testing import VirtualLoop
from provider_concurrency.trace import Recorder
from support import World


def record(act: Callable[[World], None], **settings: Any) -> list[dict[str, Any]]:
    stream = io.StringIO()
    recorder = Recorder(stream)
    world = World(watched=False, observer=recorder, **settings)
    recorder.begin(world.manager)
    act(world)
    world.finish()
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def run_a_course(world: World) -> None:
    world.pass_ms(5)
    held = world.hold(conversation_id="c1", prompt_started_at=2)
    waiter = world.ask(conversation_id="c2", prompt_started_at=1.5, timeout=1)
    cancelled = world.ask()
    cancelled.cancel()
    held.release()
    world.pass_ms(200)
    world.manager.report_rate_limit("p", 3)
    world.manager.report_rate_limit("p", math.inf)
    world.manager.set_limit("p", 5)
    world.manager.set_cooldown("p", 0.1)
    world.manager.remove_limit("p")
    world.manager.resume("p")
    world.pass_ms(2000)
    assert waiter.result().reclaimed
    world.manager.close()


def test_a_trace_has_a_header_and_every_event() -> None:
    header, *lines = record(run_a_course, limits={"p": 1}, slot_timeout=1, watchdog_interval=1)
    wall = header.pop("wall")
    assert len(wall) == len("2026-11-29T12:00:00Z")
    assert wall.endswith("Z")
    assert header == {
        "trace": 1, "spec": "1.0", "time_unit": "ns",
        "config": {
            "limits": {"p": 1}, "default_limit": None, "release_cooldown": 200_000_000, "slot_timeout": 10**9,
            "watchdog_interval": 10**9, "default_pause": 30 * 10**9, "min_pause": 10**9,
            "max_pause": 21600 * 10**9, "max_queued": None,
        },
    }  # fmt: skip
    assert [line["seq"] for line in lines] == list(range(len(lines)))
    assert [line["t"] for line in lines] == sorted(line["t"] for line in lines)
    assert [line["op"] for line in lines] == sorted(line["op"] for line in lines)
    assert [(line["event"], line.get("request"), line["post"]) for line in lines] == [
        ("granted", 1, {"in_flight": 1, "queued": 0}),
        ("queued", 2, {"in_flight": 1, "queued": 1}),
        ("queued", 3, {"in_flight": 1, "queued": 2}),
        ("cancelled", 3, {"in_flight": 1, "queued": 1}),
        ("released", 1, {"in_flight": 1, "queued": 1}),
        ("recycled", 1, {"in_flight": 0, "queued": 1}),
        ("granted", 2, {"in_flight": 1, "queued": 0}),
        ("paused", None, {"in_flight": 1, "queued": 0}),
        ("paused", None, {"in_flight": 1, "queued": 0}),
        ("limit_set", None, {"in_flight": 1, "queued": 0}),
        ("cooldown_set", None, {"in_flight": 1, "queued": 0}),
        ("limit_removed", None, {"in_flight": 1, "queued": 0}),
        ("resumed", None, {"in_flight": 1, "queued": 0}),
        ("reclaimed", 2, {"in_flight": 1, "queued": 0}),
        ("recycled", 2, {"in_flight": 0, "queued": 0}),
        ("closed", None, {"in_flight": 0, "queued": 0}),
    ]
    by_event = {line["event"]: line for line in lines}
    assert (lines[0]["conversation"], lines[0]["prompt_started_at"], lines[0]["t"]) == ("c1", 2, 5_000_000)
    assert [(line["requested"], line["applied"]) for line in lines if line["event"] == "paused"] == [
        (3, 3 * 10**9), (None, 21600 * 10**9),
    ]  # fmt: skip
    assert (by_event["limit_set"]["limit"], by_event["cooldown_set"]["cooldown"]) == (5, 100_000_000)
    assert by_event["reclaimed"]["last_touch"] == 205_000_000
    assert "provider" not in by_event["closed"]
    assert {line["provider"] for line in lines if line["event"] != "closed"} == {"p"}


def test_touches_are_not_written() -> None:
    lines = record(lambda world: world.hold().touch())
    assert [line["event"] for line in lines[1:]] == ["granted", "closed", "released", "recycled"]


def test_the_header_stands_once_and_first() -> None:
    stream = io.StringIO()
    recorder = Recorder(stream)
    loop = VirtualLoop()
    loop.set_exception_handler(lambda _, context: failures.append(context["exception"]))
    failures: list[BaseException] = []
    manager = ConcurrencyManager(observer=recorder, clock=loop.time_ns)
    with loop.running():
        slot = manager.try_acquire("p")
    assert [str(error) for error in failures] == ["Recorder.begin(manager) must be called before the manager is used"]
    assert stream.getvalue() == ""
    recorder.begin(manager)
    with pytest.raises(ValueError, match="has its header already"):
        recorder.begin(manager)
    assert slot is not None
    slot.release()
    manager.close()
    assert [json.loads(line).get("seq") for line in stream.getvalue().splitlines()] == [None, 0, 1, 2]
    loop.close()


def test_typed_makes_a_frozen_event_of_every_call() -> None:
    events: list[Event] = []
    typed(events.append)("granted", 3, 17, "p", 5, "c", 1.5, 1, 0, None)
    assert events == [Event("granted", 3, 17, "p", 5, "c", 1.5, 1, 0, None)]
    with pytest.raises(AttributeError):
        events[0].kind = "queued"  # type: ignore[misc]


@pytest.mark.parametrize("failing", [0, 1, 2])
def test_tee_calls_all_of_them_whoever_raises(failing: int) -> None:
    heard: list[str] = []

    def observer(name: str, fails: bool) -> Callable[..., None]:
        def observe(event: str, *_: object) -> None:
            heard.append(f"{name} {event}")
            if fails:
                raise LookupError(name)

        return observe

    both = tee(observer("a", failing > 0), observer("b", failing > 1), observer("c", False))
    arguments = ("granted", 1, 2, "p", 3, None, 1.0, 1, 0, None)
    if failing == 0:
        both(*arguments)
    else:
        with pytest.raises(LookupError if failing == 1 else ExceptionGroup) as caught:
            both(*arguments)
        if failing == 2:
            assert [str(e) for e in caught.value.exceptions] == ["a", "b"]  # type: ignore[attr-defined]
    assert heard == ["a granted", "b granted", "c granted"]


def test_tee_lets_an_interrupt_pass() -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tee(interrupt)("closed", 1, 2, None, None, None, None, 0, 0, None)
