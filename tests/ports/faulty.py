"""Ports that break the protocol, one way each, chosen by name: what the kit's runner must tell apart.

    provider-concurrency check --level scenarios -- python tests/ports/faulty.py garbage

Each is our manager's driver with one fault planted in what it writes, or in when it does. The names that don't end in
a verdict against the port (`chunks`, `chatty`, `warns`, `clings`) are odd, but within the protocol.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any, Final, TypeAlias

from provider_concurrency.port import Port

Message: TypeAlias = dict[str, Any]
Answer: TypeAlias = Callable[[Port, Message], Iterator[str]]
"""What is written, piece by piece, in answer to a message."""

LONG: Final = 1 << 21


def line_of(reply: Any) -> str:
    return json.dumps(reply, separators=(",", ":")) + "\n"


def does(message: Message, op: str) -> bool:
    """Whether a burst has an operation of that name."""
    return any(each["op"] == op for each in message.get("ops", ()))


def answer_well(port: Port, message: Message) -> Iterator[str]:
    yield line_of(port.handle(message))


# -- the process -----------------------------------------------------------------------------------------------------


def crash(port: Port, message: Message) -> Iterator[str]:
    """Ends with a complaint at the first release."""
    if does(message, "release"):
        print("panic: index out of range", file=sys.stderr, flush=True)
        os._exit(3)
    return answer_well(port, message)


def kill(port: Port, message: Message) -> Iterator[str]:
    """Is killed by a signal at the first release."""
    if does(message, "release"):
        os.kill(os.getpid(), signal.SIGSEGV)
    return answer_well(port, message)


def hang(port: Port, message: Message) -> Iterator[str]:
    """Never comes back from an advance."""
    if message["cmd"] == "advance":
        time.sleep(3600)
    return answer_well(port, message)


def late(port: Port, message: Message) -> Iterator[str]:
    """Takes its time for an advance."""
    if message["cmd"] == "advance":
        time.sleep(0.6)
    return answer_well(port, message)


def cut(port: Port, message: Message) -> Iterator[str]:
    """Ends in the middle of a reply."""
    text = line_of(port.handle(message))
    if message["cmd"] != "advance":
        yield text
        return
    yield text[: len(text) // 2]
    sys.stdout.flush()
    os._exit(0)


def stall(port: Port, message: Message) -> Iterator[str]:
    """Stops in the middle of a reply."""
    text = line_of(port.handle(message))
    yield text[:-1]
    if message["cmd"] == "advance":
        sys.stdout.flush()
        time.sleep(3600)
    yield "\n"


def closes(port: Port, message: Message) -> Iterator[str]:
    """Closes its stdout and lives on."""
    if message["cmd"] == "advance":
        os.close(1)
        time.sleep(3600)
    return answer_well(port, message)


# -- the lines -------------------------------------------------------------------------------------------------------


def garbage(port: Port, message: Message) -> Iterator[str]:
    """A library prints to stdout."""
    if message["cmd"] == "advance":
        yield "[debug] 1 timer fired\n"
    yield from answer_well(port, message)


def nan(port: Port, message: Message) -> Iterator[str]:
    """A number that JSON doesn't have."""
    reply = port.handle(message)
    yield line_of({**reply, "timers": float("nan")} if message["cmd"] == "advance" else reply)


def bytes_(port: Port, message: Message) -> Iterator[str]:
    """A line in another encoding."""
    if message["cmd"] == "advance":
        sys.stdout.flush()
        os.write(1, "Zähler\n".encode("latin-1"))
    yield from answer_well(port, message)


def split(port: Port, message: Message) -> Iterator[str]:
    """A reply printed prettily."""
    yield json.dumps(port.handle(message), indent=2 if message["cmd"] == "advance" else None) + "\n"


def joined(port: Port, message: Message) -> Iterator[str]:
    """Two replies on a line."""
    text = line_of(port.handle(message))
    yield text[:-1] + text if message["cmd"] == "advance" else text


def long(port: Port, message: Message) -> Iterator[str]:
    """A line that fills a memory."""
    reply = port.handle(message)
    yield line_of({**reply, "log": "x" * LONG} if message["cmd"] == "advance" else reply)


def endless(port: Port, message: Message) -> Iterator[str]:
    """A line that never ends."""
    while message["cmd"] == "advance":
        yield "x" * 1000
    yield from answer_well(port, message)


# -- the ids ---------------------------------------------------------------------------------------------------------


def wrong_id(port: Port, message: Message) -> Iterator[str]:
    reply = port.handle(message)
    yield line_of({**reply, "id": reply["id"] + 1000} if message["cmd"] == "advance" else reply)


def no_id(port: Port, message: Message) -> Iterator[str]:
    reply = port.handle(message)
    if message["cmd"] == "advance":
        del reply["id"]
    yield line_of(reply)


def text_id(port: Port, message: Message) -> Iterator[str]:
    reply = port.handle(message)
    yield line_of({**reply, "id": str(reply["id"])} if message["cmd"] == "advance" else reply)


def twice(port: Port, message: Message) -> Iterator[str]:
    """Answers an advance twice."""
    yield line_of(port.handle(message)) * (1 + (message["cmd"] == "advance"))


_kept: list[str] = []


def disorder(port: Port, message: Message) -> Iterator[str]:
    """The reply to an advance waits for the one after it."""
    text = line_of(port.handle(message))
    if message["cmd"] == "advance" and not _kept:
        _kept.append(text)
        return
    yield text
    if _kept:
        yield _kept.pop()


# -- the content -----------------------------------------------------------------------------------------------------


def shape(port: Port, message: Message) -> Iterator[str]:
    """Status rows by name instead of in an array."""
    reply = port.handle(message)
    if "status" in reply:
        reply["status"] = {row["provider"]: row for row in reply["status"]}
    yield line_of(reply)


def array(port: Port, message: Message) -> Iterator[str]:
    """No object at all."""
    reply = port.handle(message)
    yield line_of([reply] if message["cmd"] == "advance" else reply)


def null(port: Port, message: Message) -> Iterator[str]:
    """Nothing but null, once it has said hello."""
    return answer_well(port, message) if message["cmd"] == "hello" else iter([line_of(None)])


def lies(port: Port, message: Message) -> Iterator[str]:
    """Declares `touch` and doesn't have it."""
    skip = {"id": message["id"], "skip": {"feature": "touch"}}
    yield line_of(skip if does(message, "touch") else port.handle(message))


def gives_up(port: Port, message: Message) -> Iterator[str]:
    """Answers with an error."""
    error = {"id": message["id"], "error": {"message": "TypeError: undefined is not a function"}}
    yield line_of(error if does(message, "release") else port.handle(message))


def passes(port: Port, message: Message) -> Iterator[str]:
    """Claims that all is well: every command is answered as if nothing had to happen."""
    if message["cmd"] == "hello":
        return answer_well(port, message)
    return iter([line_of({"id": message["id"], "events": [], "status": [], "unsettled": [], "timers": 0})])


_asked: list[str] = []


def unsettled(port: Port, message: Message) -> Iterator[str]:
    """Never settles: whoever has asked is said to wait still."""
    if message["cmd"] == "new":
        _asked.clear()
    _asked.extend(op["request"] for op in message.get("ops", ()) if op["op"] == "acquire")
    reply = port.handle(message)
    yield line_of({**reply, "unsettled": list(_asked)} if "unsettled" in reply else reply)


def moody(port: Port, message: Message) -> Iterator[str]:
    """Crashes, and has other features when it is started again."""
    reply = port.handle(message)
    if "features" in reply and os.path.exists(sys.argv[2]):
        reply["features"] = []
    if message["cmd"] == "advance":
        with open(sys.argv[2], "w"):
            os._exit(1)
    yield line_of(reply)


def dumb(port: Port, message: Message) -> Iterator[str]:
    """Doesn't even say hello."""
    print("no licence for this machine", file=sys.stderr, flush=True)
    os._exit(78)


# -- odd, but within the protocol --------------------------------------------------------------------------------------


def chunks(port: Port, message: Message) -> Iterator[str]:
    """Three bytes at a time."""
    text = line_of(port.handle(message))
    for at in range(0, len(text), 3):
        yield text[at : at + 3]
        sys.stdout.flush()


def chatty(port: Port, message: Message) -> Iterator[str]:
    """Unknown members, other order, Windows' line ends."""
    reply = port.handle(message)
    yield json.dumps({"log": ["ü", None], **dict(reversed(reply.items()))}, ensure_ascii=False) + "\r\n"


def warns(port: Port, message: Message) -> Iterator[str]:
    """Fills any pipe with its stderr."""
    sys.stderr.write("warning: deprecated\n" * 500)
    sys.stderr.flush()
    return answer_well(port, message)


_children: list[subprocess.Popen[bytes]] = []


def clings(port: Port, message: Message) -> Iterator[str]:
    """Has a child that holds its pipes, ignores SIGTERM, and doesn't go when asked to."""
    if message["cmd"] == "hello":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        program = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(3600)"
        _children.append(subprocess.Popen([sys.executable, "-c", program]))
        print(f"child {_children[0].pid}", file=sys.stderr, flush=True)
    if message["cmd"] == "bye":
        time.sleep(3600)
    return answer_well(port, message)


FAULTS: Final[dict[str, Answer]] = {
    answer.__name__.strip("_"): answer
    for answer in (
        crash, kill, hang, late, cut, stall, closes, garbage, nan, bytes_, split, joined, long, endless, wrong_id,
        no_id, text_id, twice, disorder, shape, array, null, lies, gives_up, passes, unsettled, moody, dumb,
        chunks, chatty, warns, clings,
    )
}  # fmt: skip


def main() -> None:
    answer, port = FAULTS[sys.argv[1]], Port()
    for line in sys.stdin:
        message = json.loads(line)
        if message["cmd"] == "bye" and answer is not clings:
            break
        for piece in answer(port, message):
            sys.stdout.write(piece)
        sys.stdout.flush()


if __name__ == "__main__":
    main()
