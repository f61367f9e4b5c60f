"""Which chunks of an event stream are signs of life when its keep-alives are not (`keepalives_count=False`, HTT-7).

A server that only sends `: keep-alive` comments, or `event: ping`, shows that the connection lives, not that an answer
is being made. Chunks may cut lines anywhere, so this goes line by line across them and keeps the beginning of each.
"""

from __future__ import annotations

from typing import Final

_PING: Final = (b"event: ping", b"event:ping")
_KEPT: Final = len(b"event: ping\r\n")  # enough of a line to tell "event: ping" from anything longer


class KeepaliveFilter:
    """Says of each chunk of one event stream whether it holds anything but keep-alives."""

    def __init__(self) -> None:
        """At the beginning of a line, outside of any event."""
        self._line = b""  # the beginning of the line that is being read
        self._is_ping = False  # within an event of type ping

    def counts(self, chunk: bytes) -> bool:
        """Whether the chunk, read after all earlier ones, holds a sign of life."""
        found = False
        for number, piece in enumerate(chunk.split(b"\n")):
            if number:
                self._end_line()
            if piece:
                self._line = (self._line + piece[:_KEPT])[:_KEPT]
                found = found or self._is_content()
        return found

    def _end_line(self) -> None:
        line = self._line.rstrip(b"\r")
        self._line = b""
        if not line:
            self._is_ping = False  # an empty line ends an event
        elif line in _PING:
            self._is_ping = True

    def _is_content(self) -> bool:
        """Whether the line, as far as it is known, is anything but a keep-alive; an `event:` line says nothing yet."""
        is_event = self._line.startswith(b"event:") or b"event:".startswith(self._line)
        return not (is_event or self._is_ping or self._line == b"\r" or self._line.startswith(b":"))
