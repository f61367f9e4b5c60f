"""A port without a virtual clock, for the level `realtime`: our manager, whose time is the process's own.

    provider-concurrency check --level realtime -- python tests/ports/real_time.py

It answers `hello`, `new` and `do`; between two messages it goes on by itself: it fires its timers with nobody asking.
`advance` gets an error reply. With an argument it has a fault: `early` (its clock runs a tenth too fast, `at_ms` is the
true time), `late` (it looks at its timers only when it is asked) or `once` (the same, but only in its first world).
"""

from __future__ import annotations

import json
import os
import select
import sys
import time
from typing import Any

from provider_concurrency.port import Port, _Session
from provider_concurrency.session import Message

FAULT = sys.argv[1] if len(sys.argv) > 1 else ""
IDLE_SECONDS = 60.0


class RealSession(_Session):
    """A manager on a loop that leaps to the real time whenever it is looked at."""

    def __init__(self, config: Message) -> None:
        self.zero = time.monotonic_ns()
        super().__init__(config)

    def catch_up(self) -> None:
        """The loop's time becomes the real one, and what is due is applied late, as it comes."""
        real = time.monotonic_ns() - self.zero
        self._stall(max(0, real * 11 // 10 - self._now_ns() if FAULT == "early" else real - self._now_ns()))

    def seconds_to_next(self) -> float:
        """Until a timer is due."""
        due = self.loop.next_deadline_ns()
        return IDLE_SECONDS if due is None else max(0.0, (due - self._now_ns()) / 1e9)

    def report(self) -> Message:
        reply = super().report()
        if FAULT == "early":
            for event in reply["events"]:
                event["at_ms"] = event["at_ms"] * 10 // 11
        return reply


class RealPort(Port):
    name = "real-time"
    features = tuple(feature for feature in Port.features if feature not in ("stall", "timers"))
    worlds = 0

    def _open(self, config: Message) -> RealSession:
        self.worlds += 1
        return RealSession(config)

    @property
    def session(self) -> RealSession | None:
        session: Any = self._session
        return session

    @property
    def looks_by_itself(self) -> bool:
        return not (FAULT == "late" or (FAULT == "once" and self.worlds == 1))

    def handle(self, message: Message) -> Message:
        if message.get("cmd") in ("advance", "stall"):
            return {"id": message["id"], "error": {"message": "no virtual time"}}
        if self.session is not None:
            self.session.catch_up()
        return super().handle(message)

    def wait(self) -> None:
        """Until there is input; timers fire meanwhile."""
        while True:
            session = self.session if self.looks_by_itself else None
            seconds = IDLE_SECONDS if session is None else session.seconds_to_next()
            if select.select([0], [], [], seconds)[0]:
                return
            if session is not None:
                session.catch_up()


def main() -> None:
    port, rest = RealPort(), b""
    while True:
        port.wait()
        chunk = os.read(0, 1 << 16)
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            message = json.loads(line)
            if message["cmd"] == "bye":
                return
            print(json.dumps(port.handle(message)), flush=True)
        if not chunk:
            return


if __name__ == "__main__":
    main()
