"""The greeting, and telling replies, skips, errors and nonsense apart."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Generator, Iterable
from typing import Any

import pytest
from rich.console import Console

from provider_concurrency_model.check.report_run import print_soak
from provider_concurrency_model.check.soak import SoakReport
from provider_concurrency_model.check.subject import (
    ErrorReply,
    Message,
    Nonsense,
    Session,
    Skipped,
    SubjectBrokeError,
    SubjectError,
    classify,
)

PORT = {"name": "n", "version": "1", "language": "l", "runtime": "r"}
HELLO = {"id": 0, "protocol": 1, "port": PORT, "features": ["cancel", "levitate"]}


class Scripted:
    """Answers everything with one reply, or breaks."""

    label = "scripted"
    breaks = 0

    def __init__(self, reply: Any) -> None:
        self.reply = reply

    def converse(self, messages: Iterable[Message]) -> Generator[Any, None, None]:
        for _ in messages:
            if self.reply is None:
                raise SubjectBrokeError("it left")
            yield self.reply

    def close(self) -> None:
        raise SubjectBrokeError("it left long ago")


def test_a_hello_is_read() -> None:
    session = Session(Scripted(HELLO))
    assert session.hello.features == {"cancel"}
    assert session.hello.unknown_features == ("levitate",)
    assert (session.take_ids(3), session.take_ids(1)) == (1, 4)
    session.close()  # whoever breaks while saying goodbye has been judged already


@pytest.mark.parametrize(
    ("reply", "told"),
    [
        (None, "it left"),
        ("hi", "no object"),
        ({**HELLO, "id": 1}, "has the id 1"),
        ({**HELLO, "id": False}, "has the id false"),
        ({"id": 0, "skip": {"feature": "hello"}}, "skipped"),
        ({"id": 0, "error": {"message": "not today"}}, "not today"),
        ({**HELLO, "protocol": 2}, "protocol 2"),
        ({**HELLO, "protocol": True}, "protocol true"),
        ({**HELLO, "port": "me"}, "port must be"),
        ({**HELLO, "port": {"name": 1}}, "port must be"),
        ({**HELLO, "features": "all"}, "features must be"),
        ({**HELLO, "features": [1]}, "features must be"),
    ],
)
def test_a_bad_hello_is_a_harness_error(reply: Any, told: str) -> None:
    with pytest.raises(SubjectError, match=told) as caught:
        Session(Scripted(reply))
    assert "'scripted'" in str(caught.value)


@pytest.mark.parametrize(
    ("raw", "kind"),
    [
        ({"id": 5, "events": []}, type(None)),
        ({"id": 5, "skip": {"feature": "touch"}}, Skipped),
        ({"id": 5, "skip": "touch"}, Nonsense),
        ({"id": 5, "error": {"kind": "invalid", "message": "no"}}, ErrorReply),
        ({"id": 5, "error": {"kind": "invalid"}}, Nonsense),
        ({"id": 5, "error": "no"}, Nonsense),
        ({"id": 5.0, "events": []}, Nonsense),
        ({"events": []}, Nonsense),
        (["events"], Nonsense),
        (None, Nonsense),
    ],
)
def test_answers_are_told_apart(raw: Any, kind: type[object]) -> None:
    assert type(classify(raw, 5)) is kind


def test_a_soak_is_a_table_on_a_terminal() -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=160, highlight=False)
    entry = {"grants": 7, "peak": 3, "highest_limit": 4, "longest_queue": 5}
    report = SoakReport("m", 0, 9, events=Counter(granted=7), providers={"few": entry}, violations=["ADM-5: somebody"])
    print_soak(report, console)
    assert isinstance(console.file, io.StringIO)
    text = console.file.getvalue()
    for word in ("longest queue", "few", "violation: ADM-5: somebody", "COUNTEREXAMPLE"):
        assert word in text
