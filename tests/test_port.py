"""Protocol 1 over stdio: one JSON object a line, and no line ends the conversation but `bye`."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from typing import Any

import pytest

from provider_concurrency import port, threading_port
from provider_concurrency.port import Port, serve

CONFIG = {
    "release_cooldown_ms": 200, "slot_timeout_ms": 5000, "watchdog_interval_ms": 1000, "default_pause_ms": 30000,
    "min_pause_ms": 0, "max_pause_ms": 21_600_000, "max_queued": None, "default_limit": None,
}  # fmt: skip


def ask(name: str, **fields: Any) -> dict[str, Any]:
    return {
        "op": "acquire", "provider": "p", "request": name, "conversation": "c", "prompt_started_at": 1,
        "timeout_ms": None, **fields,
    }  # fmt: skip


def row(**fields: Any) -> dict[str, Any]:
    return {
        "provider": "p", "limit": 1, "in_flight": 0, "held": 0, "cooling": 0, "reclaimed": 0, "queued": 0,
        "paused": False, "paused_for_ms": None, **fields,
    }  # fmt: skip


def converse(*lines: str) -> list[dict[str, Any]]:
    """Speaks with the port in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "provider_concurrency.port"],
        input="".join(line + "\n" for line in lines), capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_a_conversation_over_stdio() -> None:
    messages: list[dict[str, Any]] = [
        {"id": 0, "cmd": "hello", "protocol": 1, "spec": "1.0", "unknown": "field"},
        {"id": 1, "cmd": "new", "config": CONFIG},
        {"id": 2, "cmd": "do", "ops": [{"op": "set_limit", "provider": "p", "limit": 1}, ask("r1"), ask("r2")]},
        {"id": 3, "cmd": "do", "ops": [{"op": "release", "request": "r1"}]},
        {"id": 4, "cmd": "advance", "ms": 200},
        {"id": 5, "cmd": "stall", "ms": 7000},
        {"id": 6, "cmd": "do", "ops": [{"op": "close"}, ask("r3")]},
        {"id": 7, "cmd": "bye"},
        {"id": 8, "cmd": "never read"},
    ]
    replies = converse(*(json.dumps(message) for message in messages))
    assert [reply["id"] for reply in replies][:7] == list(range(7))
    hello = replies[0]
    assert (hello["protocol"], hello["port"]["name"], hello["port"]["language"]) == (
        1,
        "provider-concurrency",
        "python",
    )
    assert set(hello["features"]) >= {"cancel", "timeout", "touch", "resume", "hooks", "inspect"}
    assert replies[1] == {"id": 1, "events": [], "status": [], "unsettled": [], "timers": 0}
    events = [[(e["event"], e.get("request"), e["at_ms"]) for e in reply["events"]] for reply in replies[2:7]]
    assert events == [
        [("granted", "r1", 0), ("queued", "r2", 0)],
        [("released", "r1", 0)],
        [("recycled", "r1", 200), ("granted", "r2", 200)],
        [("reclaimed", "r2", 7200)],
        [("recycled", "r2", 7200), ("error", None, 7200)],
    ]
    assert [reply["status"] for reply in replies[2:7]] == [
        [row(in_flight=1, held=1, queued=1)],
        [row(in_flight=1, cooling=1, queued=1)],
        [row(in_flight=1, held=1)],
        [row(in_flight=1, reclaimed=1)],
        [row()],
    ]
    assert [reply["unsettled"] for reply in replies[2:7]] == [["r2"], ["r2"], [], [], []]
    assert replies[6]["timers"] == 0
    assert replies[6]["events"][1] == {"event": "error", "at_ms": 7200, "op": "acquire", "index": 1, "kind": "closed"}


BAD_LINES = [
    ("no json at all", None),
    ("", None),
    ("[1, 2]", None),
    ("7", None),
    ("null", None),
    ('"cmd"', None),
    ('{"id": 5, "cmd": "dance"}', 5),
    ('{"id": 5}', 5),
    ('{"id": 5, "cmd": "do", "ops": []}', 5),  # before new
    ('{"id": 5, "cmd": "advance", "ms": 1}', 5),
    ('{"id": 5, "cmd": "new"}', 5),
    ('{"id": 5, "cmd": "new", "config": {}}', 5),
    ('{"id": 5, "cmd": "new", "config": 7}', 5),
]


def test_a_bad_line_is_answered_and_the_port_lives_on() -> None:
    good = [json.dumps({"id": 1, "cmd": "new", "config": CONFIG}), json.dumps({"id": 2, "cmd": "advance", "ms": 5})]
    replies = converse(*(line for line, _ in BAD_LINES), *good)
    assert [reply["id"] for reply in replies] == [number for _, number in BAD_LINES] + [1, 2]
    assert all(reply["error"]["message"] for reply in replies[: len(BAD_LINES)])
    assert replies[-1]["status"] == []


@pytest.mark.parametrize(
    "message",
    [
        {"cmd": "do"},
        {"cmd": "advance"},
        {"cmd": "stall"},
        {"cmd": "do", "ops": [{"op": "acquire"}]},
        {"cmd": "do", "ops": [{"provider": "p"}]},
        {"cmd": "do", "ops": ["acquire"]},
    ],
)
def test_a_message_that_lacks_something_is_answered_with_an_error(message: dict[str, Any]) -> None:
    subject = Port()
    subject.handle({"id": 1, "cmd": "new", "config": CONFIG})
    reply = subject.handle({"id": 2, **message})
    assert reply["id"] == 2
    assert reply["error"]["message"]
    assert subject.handle({"id": 3, "cmd": "advance", "ms": 1})["status"] == []
    subject.shut()


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("release_cooldown_ms", -1), ("slot_timeout_ms", 0), ("watchdog_interval_ms", "NaN"), ("max_queued", 1.5),
        ("default_limit", True), ("max_pause_ms", 5), ("default_pause_ms", "Infinity"), ("min_pause_ms", None),
    ],
)  # fmt: skip
def test_a_config_that_must_be_refused_is_invalid(key: str, value: object) -> None:
    reply = Port().handle({"id": 1, "cmd": "new", "config": {**CONFIG, key: value}})
    assert reply["id"] == 1
    assert reply["error"]["kind"] == "invalid"


def test_refusals_are_events_and_change_nothing() -> None:
    subject = Port()
    subject.handle({"id": 1, "cmd": "new", "config": {**CONFIG, "max_queued": 0, "default_limit": 0}})
    ops = [
        ask("a"), {"op": "set_limit", "provider": "p", "limit": "NaN"}, ask("b", prompt_started_at="Infinity"),
        ask("c", timeout_ms=-1), {"op": "set_cooldown", "provider": "p", "cooldown_ms": True},
        ask("d", timeout_ms=0),
    ]  # fmt: skip
    reply = subject.handle({"id": 2, "cmd": "do", "ops": ops})
    assert [(e["event"], e.get("kind"), e.get("index")) for e in reply["events"]] == [
        ("error", "queue_full", 0), ("error", "invalid", 1), ("error", "invalid", 2), ("error", "invalid", 3),
        ("error", "invalid", 4), ("timed_out", None, None),
    ]  # fmt: skip
    assert (reply["status"], reply["unsettled"]) == ([], [])
    subject.shut()


def test_every_kind_of_op() -> None:
    subject = Port()
    subject.handle({"id": 1, "cmd": "new", "config": {**CONFIG, "default_limit": 1}})
    trying = {"op": "try_acquire", "provider": "p", "conversation": None, "prompt_started_at": 1}
    told = []
    for ops in (
        [{**trying, "request": "a"}, {**trying, "request": "b"}, {"op": "touch", "request": "a"}],
        [ask("c"), ask("d"), {"op": "cancel", "request": "c"}, {"op": "inspect", "request": "c"}],
        [{"op": "inspect", "request": "a"}, {"op": "inspect", "request": "unknown"}, {"op": "inspect", "request": "d"}],
        [{"op": "release", "request": "unknown"}, {"op": "cancel", "request": "a"}, {"op": "touch", "request": "b"}],
        [{"op": "set_cooldown", "provider": "p", "cooldown_ms": 0}, {"op": "wall_clock", "jump_ms": 5000}],
        [{"op": "rate_limited", "provider": "p", "retry_after_ms": 0.5}, {"op": "remove_limit", "provider": "p"}],
        [{"op": "rate_limited", "provider": "p", "retry_after_ms": "NaN"}, {"op": "resume", "provider": "p"}],
        [{"op": "release", "request": "a"}],
    ):
        reply = subject.handle({"id": 2, "cmd": "do", "ops": ops})
        told.append([{k: v for k, v in e.items() if k not in ("at_ms", "provider")} for e in reply["events"]])
    assert told == [
        [{"event": "granted", "request": "a"}],
        [
            {"event": "queued", "request": "c"}, {"event": "queued", "request": "d"},
            {"event": "cancelled", "request": "c"},
            {"event": "slot", "request": "c", "state": "cancelled", "reclaimed": False},
        ],
        [
            {"event": "slot", "request": "a", "state": "held", "reclaimed": False},
            {"event": "slot", "request": "d", "state": "queued", "reclaimed": False},
        ],
        [],
        [],
        [{"event": "paused", "requested_ms": 0.5, "applied_ms": 0}],
        [{"event": "paused", "requested_ms": None, "applied_ms": 30000}, {"event": "resumed"}],
        [
            {"event": "released", "request": "a"}, {"event": "recycled", "request": "a"},
            {"event": "granted", "request": "d"},
        ],
    ]  # fmt: skip
    assert subject.handle({"id": 3, "cmd": "bye"}) == {"id": 3}


def test_hooks_run_in_the_real_callbacks_and_may_throw() -> None:
    subject = Port()
    subject.handle({"id": 1, "cmd": "new", "config": {**CONFIG, "default_limit": 1}})
    ops = [
        {"op": "hook", "on": "queued", "provider": "p", "do": [{"op": "release", "request": "a"}], "times": 1},
        {"op": "hook", "on": "paused", "provider": "p", "do": [], "throw": True, "times": 2},
        ask("a"), ask("b"), ask("c"),
        {"op": "rate_limited", "provider": "p", "retry_after_ms": 1000},
        {"op": "rate_limited", "provider": "p", "retry_after_ms": 2000},
    ]  # fmt: skip
    reply = subject.handle({"id": 2, "cmd": "do", "ops": ops})
    assert [e["event"] for e in reply["events"]] == ["granted", "queued", "released", "queued", "paused", "paused"]
    assert reply["unsettled"] == ["b", "c"]
    subject.shut()


def test_a_fault_of_the_manager_ends_the_run(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """What the loop's exception handler is told and no hook threw is no conversation's business."""

    def fail(*_: object) -> None:
        if "a fault" not in caplog.text:
            raise LookupError("a fault")

    monkeypatch.setattr(port._Session, "_observe", fail)
    subject = Port()
    subject.handle({"id": 1, "cmd": "new", "config": CONFIG})
    with pytest.raises(SystemExit):
        subject.handle({"id": 2, "cmd": "do", "ops": [ask("a")]})
    assert "a fault" in caplog.text
    session = subject._session
    assert session is not None
    session.loop.set_exception_handler(lambda *_: None)
    subject.shut()


def test_serve_ends_with_the_input() -> None:
    out = io.StringIO()
    serve(io.StringIO('{"id": 1, "cmd": "hello"}\n{"id": 2, "cmd": "bye"}\n{"id": 3, "cmd": "hello"}\n'), out)
    assert [json.loads(line)["id"] for line in out.getvalue().splitlines()] == [1]


# -- nesting (NST-1) -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [Port, threading_port.Port])
def test_nst_1_a_path_is_the_blocks_around_an_acquire(kind: type[Port]) -> None:
    it = kind()
    it.handle({"id": 1, "cmd": "new", "config": {**CONFIG, "nested": "queue"}})
    ops = [
        {"op": "set_limit", "provider": "p", "limit": 1},
        ask("r1", conversation="a", path=["a"]), ask("r2", conversation="b", path=["a", "b"]),
    ]  # fmt: skip
    reply = it.handle({"id": 2, "cmd": "do", "ops": ops})
    assert reply["status"] == [row(in_flight=1, held=1, queued=1, self_blocked=True)]
    it.shut()


@pytest.mark.parametrize("kind", [Port, threading_port.Port])
def test_nst_1_without_nested_no_row_tells_it(kind: type[Port]) -> None:
    it = kind()
    it.handle({"id": 1, "cmd": "new", "config": CONFIG})
    reply = it.handle({"id": 2, "cmd": "do", "ops": [{"op": "set_limit", "provider": "p", "limit": 1}, ask("r1")]})
    assert reply["status"] == [row(in_flight=1, held=1)]
    it.shut()
