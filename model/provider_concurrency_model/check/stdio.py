"""A subject behind a pipe: any command that speaks protocol 1, one JSON object a line, over stdin and stdout.

Messages are pipelined: up to `WINDOW` are written before the first reply is wanted, so that neither side waits for the
other. A port that leaves the protocol is told why by name (`Fault`), with what it said and the end of its stderr; it
is killed and, for the next conversation, started again and greeted as before. So a crash is a finding of one case.
"""

from __future__ import annotations

import json
import os
import shlex
import time
from collections import deque
from collections.abc import Generator, Iterable, Sequence
from typing import Any, Final, Literal, NoReturn, TypeAlias

from provider_concurrency_model.check.pipe import LONGEST_LINE, LineProcess, LineTooLongError, say_exit
from provider_concurrency_model.check.subject import Message, SubjectBrokeError, SubjectError
from provider_concurrency_model.check.untyped import is_object
from provider_concurrency_spec.vocabulary import Json

Fault: TypeAlias = Literal[
    "ended", "hung", "late", "cut off", "not JSON", "not UTF-8", "split", "two on a line", "too long", "no id",
    "wrong id", "out of order", "answered twice", "other hello",
]  # fmt: skip
"""The ways to leave the protocol; `where` of the difference that reports it."""

REPLY_SECONDS: Final = 10.0
START_SECONDS: Final = 60.0
"""Until hello is answered: run times have to start, and some ports are compiled first."""

WINDOW: Final = 64
"""Messages on their way at once. More wins nothing; and what a failing step is followed by has to be read, too."""

_GRACE: Final = 2.0
"""Seconds more, to tell a late reply from none."""

_FAREWELL: Final = 2.0
_STDERR_LINES: Final = 20
_SPLIT_LINES: Final = 200


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON number")


_encode: Final = json.JSONEncoder(separators=(",", ":")).encode
_decode_first: Final = json.JSONDecoder(parse_constant=_refuse_constant).raw_decode
_UNREADABLE: Final = (ValueError, RecursionError)


def _decode(text: str) -> Json:
    """The value on a line; leaner than json.loads, which trims both ends."""
    if text[:1] != "{":
        text = text.lstrip()
    decoded: tuple[Json, int] = _decode_first(text)
    value, end = decoded
    if end < len(text) and text[end:].strip():
        raise json.JSONDecodeError("Extra data", text, end)
    return value


class Stdio:
    """A port as a command. The process is started with the first conversation and lives on between them."""

    def __init__(
        self, argv: Sequence[str], reply_seconds: float = REPLY_SECONDS, start_seconds: float = START_SECONDS
    ) -> None:
        """Takes the command; nothing is started yet."""
        self._argv = tuple(argv)
        self._reply_seconds = reply_seconds
        self._start_seconds = start_seconds
        self._process: LineProcess | None = None
        self._greeting: tuple[Message, Json] | None = None
        self._last_id = -1
        self.starts = 0
        """How often the command was started."""
        self.breaks = 0
        """How often it was ended before its time."""

    @property
    def label(self) -> str:
        """The command."""
        return shlex.join(self._argv)

    # -- conversations -----------------------------------------------------------------------------------------------

    def converse(self, messages: Iterable[Message]) -> Generator[Json, None, None]:
        """Writes ahead, yields the replies in order; what is still under way when the caller stops is read off."""
        process = self._ensure_started()
        source = iter(messages)
        asked: deque[int] = deque()
        hello: Message | None = None
        is_over, seconds = False, self._reply_seconds
        try:
            while True:
                if len(asked) <= WINDOW // 2 and not is_over:
                    data: list[str] = []
                    for message in source:
                        asked.append(message["id"])
                        data.append(_encode(message))
                        if message["cmd"] == "hello":
                            hello, seconds = message, self._start_seconds
                        if len(asked) == WINDOW:
                            break
                    else:
                        is_over = True
                    if data:
                        process.send(("\n".join(data) + "\n").encode())
                        self._last_id = asked[-1]
                if not asked:
                    return
                reply = self._read_reply(process, asked, seconds)
                asked.popleft()
                if hello is not None and self._greeting is None:
                    self._greeting = hello, reply
                yield reply
        finally:
            self._read_off(process, asked)

    def _read_reply(self, process: LineProcess, asked: deque[int], seconds: float) -> Json:
        try:
            line = process.read_line(seconds)
        except LineTooLongError:
            self._break("too long", f"a line of more than {LONGEST_LINE} bytes", process.begun_line)
        if line is None:
            self._explain_silence(process, asked[0], seconds)
        try:
            reply = _decode(line.decode())
        except _UNREADABLE as error:
            self._explain_line(process, line, error)
        if is_object(reply) and (type(reply.get("id")) is not int or reply["id"] != asked[0]):
            self._explain_id(line, reply, asked)
        return reply

    def _read_off(self, process: LineProcess, asked: deque[int]) -> None:
        """Reads the replies that nobody wants any more; a port that doesn't send them is ended."""
        try:
            while asked and process is self._process:
                line = process.read_line(min(self._reply_seconds, _GRACE))
                if line is None or _id_of(line) != asked.popleft():
                    self._end()
        except LineTooLongError:
            self._end()

    # -- what went wrong ---------------------------------------------------------------------------------------------

    def _break(self, fault: Fault, told: str, line: bytes | None = None, *remarks: str) -> NoReturn:
        """Ends the port and says why; what differs from run to run stands in the remarks."""
        said = [] if line is None else [f"its line: {_shorten(line)}"]
        process = self._process
        stderr = [] if process is None else process.stderr_tail(_STDERR_LINES)
        self._end()
        raise SubjectBrokeError(
            told, fault=fault, remarks=(*said, *remarks, *(f"stderr: {text}" for text in stderr or ["(nothing)"]))
        )

    def _explain_silence(self, process: LineProcess, wanted: int, seconds: float) -> NoReturn:
        if process.is_at_end:
            self._explain_end(process)
        line = self._read_late(process)
        if line is not None and _id_of(line) == wanted:
            self._break("late", f"the reply came after the time limit of {seconds:g} s", line)
        if process.is_at_end:
            self._explain_end(process)
        if process.begun_line:
            self._break("cut off", f"a line without an end within {seconds:g} s", process.begun_line)
        self._break("hung", f"no reply within {seconds:g} s", line)

    def _read_late(self, process: LineProcess) -> bytes | None:
        try:
            return process.read_line(_GRACE)
        except LineTooLongError:
            return None

    def _explain_end(self, process: LineProcess) -> NoReturn:
        code = process.exit_code()
        how = "its stdout was closed, it is still running" if code is None else say_exit(code)
        if process.begun_line:
            self._break("cut off", f"the output ended in the middle of a line: {how}", process.begun_line)
        self._break("ended", f"the port ended without a reply: {how}")

    def _explain_line(self, process: LineProcess, line: bytes, error: Exception) -> NoReturn:
        if isinstance(error, UnicodeDecodeError):
            self._break("not UTF-8", "a line that isn't UTF-8", line)
        count = _count_split(process, line)
        if count is not None:
            self._break("split", f"one reply on {count} lines", line)
        if isinstance(error, json.JSONDecodeError) and error.msg == "Extra data":
            self._break("two on a line", "more than one value on a line", line)
        self._break("not JSON", "a line that isn't JSON", line, str(error))

    def _explain_id(self, line: bytes, reply: Any, asked: deque[int]) -> NoReturn:
        found: Json = reply.get("id")
        if type(found) is not int:
            self._break("no id", "the reply has no id" if found is None else "the id is no whole number", line)
        if found in asked:
            self._break("out of order", f"the reply to a later message (+{found - asked[0]}) came first", line)
        if 0 <= found < asked[0]:
            self._break("answered twice", "a second reply to an earlier message", line)
        self._break("wrong id", "the reply has an id that was never sent", line)

    # -- its life ----------------------------------------------------------------------------------------------------

    def _ensure_started(self) -> LineProcess:
        if self._process is None:
            if not hasattr(os, "killpg"):
                raise SubjectError(f"-- {self.label}: a command needs the pipes and process groups of POSIX (or WSL)")
            try:
                self._process = LineProcess(self._argv)
            except OSError as error:
                raise SubjectError(f"-- {self.label}: can't be started: {error.strerror or error}") from error
            self.starts += 1
            if self._greeting is not None:
                self._greet_again(*self._greeting)
        return self._process

    def _greet_again(self, hello: Message, known: Json) -> None:
        """A port that was started again must be the one that was greeted: its features were believed."""
        for reply in self.converse([hello]):
            if reply != known:
                self._break("other hello", "started again, it answers hello otherwise", _encode(reply).encode())

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            self.breaks += 1
            process.kill()

    def close(self) -> None:
        """Says bye; raises SubjectBrokeError if the port doesn't end by itself, or badly."""
        process, self._process = self._process, None
        if process is None:
            return
        bye = {"id": self._last_id + 1, "cmd": "bye"}
        started = time.monotonic()
        code = process.finish((_encode(bye) + "\n").encode(), _FAREWELL)
        if code is None:
            raise SubjectBrokeError(
                f"{time.monotonic() - started:.0f} s after bye it was still running and was killed", fault="hung"
            )
        if code != 0:
            raise SubjectBrokeError(f"after bye it ended with {say_exit(code)}", fault="ended")


def _count_split(process: LineProcess, line: bytes) -> int | None:
    """Over how many lines a reply is spread that begins with `line`; None if it is something else."""
    if not line.lstrip().startswith(b"{"):
        return None
    text = line
    try:
        for count in range(2, _SPLIT_LINES):
            more = process.read_line(0.1)
            if more is None:
                return None
            text += b"\n" + more
            if _is_json(text):
                return count
    except LineTooLongError:
        pass
    return None


def _is_json(text: bytes) -> bool:
    try:
        _decode(text.decode())
    except _UNREADABLE:
        return False
    return True


def _id_of(line: bytes) -> Json:
    try:
        reply: Json = _decode(line.decode())
    except _UNREADABLE:
        return None
    return reply.get("id") if is_object(reply) else None


def _shorten(line: bytes, length: int = 300) -> str:
    text = line[: 4 * length].decode(errors="replace")
    return text if len(text) <= length and len(line) <= 4 * length else f"{text[:length]}... ({len(line)} bytes)"
