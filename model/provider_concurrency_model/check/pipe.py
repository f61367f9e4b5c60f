"""A child process that speaks in lines: written to without blocking, read with a time limit, killed with its children.

One selector serves all three pipes, so nothing can deadlock: while the child doesn't read, what it writes is read;
while it doesn't write, what it is to be told is kept until it reads. Its stderr is kept in part, for whoever asks why.
The child leads a process group of its own: with it goes whatever it has started. POSIX only.
"""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from typing import IO, Final

LONGEST_LINE: Final = 1 << 20
"""Bytes: a reply is a few kilobytes at most, and a line that never ends must not fill the memory."""

_CHUNK: Final = 1 << 16
_STDERR_KEPT: Final = 1 << 14
_PATIENCE: Final = 0.5
"""Seconds that a child has to end by itself: after its stdout ended, and after SIGTERM."""


class LineTooLongError(Exception):
    """The child writes a line longer than LONGEST_LINE."""


class LineProcess:
    """A running child. Not a word of protocol here: bytes out, lines in."""

    def __init__(self, argv: Sequence[str]) -> None:
        """Starts the child; raises OSError where that is impossible."""
        self._popen = subprocess.Popen(
            argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            start_new_session=True,
        )
        self._stdin, self._stdout, self._stderr = (
            _fd_of(stream) for stream in (self._popen.stdin, self._popen.stdout, self._popen.stderr)
        )
        self._selector = selectors.DefaultSelector()
        for fd in (self._stdin, self._stdout, self._stderr):
            os.set_blocking(fd, False)
        self._selector.register(self._stdout, selectors.EVENT_READ)
        self._selector.register(self._stderr, selectors.EVENT_READ)
        self._unsent = b""
        self._is_waiting_to_send = False
        self._lines: deque[bytes] = deque()
        self._begun = b""
        self._error_tail = b""
        self.is_at_end = False
        """The child's stdout has ended: no line comes any more but those that were read already."""

    @property
    def begun_line(self) -> bytes:
        """What was read of a line that hasn't ended."""
        return self._begun

    def send(self, data: bytes) -> None:
        """Takes data to be written; as much as the pipe has room for is written at once."""
        self._unsent += data
        self._write()

    def read_line(self, seconds: float) -> bytes | None:
        """The next line, without its end; None where none is complete in time, or the output has ended.

        Raises LineTooLongError.
        """
        if self._lines:
            return self._lines.popleft()
        until = time.monotonic() + seconds
        while not self.is_at_end:
            left = until - time.monotonic()
            if not self._pump(max(0.0, left)) and left <= 0:
                return None
            if self._lines:
                return self._lines.popleft()
            if len(self._begun) > LONGEST_LINE:
                raise LineTooLongError
        return None

    def _pump(self, seconds: float) -> bool:
        """Waits until a pipe is ready and serves it; False if none was."""
        ready = self._selector.select(seconds)
        for key, _ in ready:
            if key.fd == self._stdout:
                self._read_stdout()
            elif key.fd == self._stderr:
                self._read_stderr()
            else:
                self._write()
        return bool(ready)

    def _read_stdout(self) -> None:
        chunk = os.read(self._stdout, _CHUNK)
        if not chunk:
            self._selector.unregister(self._stdout)
            self.is_at_end = True
            return
        *lines, self._begun = (self._begun + chunk).split(b"\n")
        self._lines.extend(lines)

    def _read_stderr(self) -> None:
        chunk = os.read(self._stderr, _CHUNK)
        if not chunk:
            self._selector.unregister(self._stderr)
        self._error_tail = (self._error_tail + chunk)[-_STDERR_KEPT:]

    def _write(self) -> None:
        try:
            while self._unsent:
                self._unsent = self._unsent[os.write(self._stdin, self._unsent) :]
        except BlockingIOError:
            pass
        except BrokenPipeError:
            self._unsent = b""  # it will not read; what it has written so far is read to the end
        if bool(self._unsent) is not self._is_waiting_to_send:
            self._is_waiting_to_send = bool(self._unsent)
            if self._is_waiting_to_send:
                self._selector.register(self._stdin, selectors.EVENT_WRITE)
            else:
                self._selector.unregister(self._stdin)

    def stderr_tail(self, lines: int) -> list[str]:
        """The last lines of what the child wrote to stderr so far."""
        while self._is_error_ready():
            self._read_stderr()
        return self._error_tail.decode(errors="replace").splitlines()[-lines:]

    def _is_error_ready(self) -> bool:
        keys = self._selector.get_map()
        if self._stderr not in keys:
            return False
        return any(key.fd == self._stderr for key, _ in self._selector.select(0))

    # -- its end -----------------------------------------------------------------------------------------------------

    def exit_code(self) -> int | None:
        """How the child ended, negative for a signal; None if it is alive, even after a moment's wait."""
        try:
            return self._popen.wait(_PATIENCE)
        except subprocess.TimeoutExpired:
            return None

    def finish(self, last_words: bytes, seconds: float) -> int | None:
        """Says the last words, ends its input, and waits for the child to end by itself; None if it doesn't.

        Whatever is left of it is killed in either case.
        """
        until = time.monotonic() + seconds
        try:
            self.send(last_words)
            while self._unsent and (left := until - time.monotonic()) > 0:
                self._pump(left)
            self._close_stdin()
            while not self.is_at_end and (left := until - time.monotonic()) > 0:
                self._pump(left)
            with suppress(subprocess.TimeoutExpired):
                return self._popen.wait(max(0.0, until - time.monotonic()))
            return None
        finally:
            self.kill()

    def kill(self) -> None:
        """Ends the child and everything that it has started; may be called again."""
        if self._popen.returncode is None:
            self._signal(signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                self._popen.wait(_PATIENCE)
        # A number is not given to a new process while a group bears it, so this reaches its own children or nobody.
        self._signal(signal.SIGKILL)
        self._popen.wait()
        self._selector.close()
        for stream in (self._popen.stdin, self._popen.stdout, self._popen.stderr):
            if stream is not None:
                stream.close()

    def _signal(self, number: signal.Signals) -> None:
        # Nobody may be left; of a group of zombies macOS says that it isn't ours.
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._popen.pid, number)

    def _close_stdin(self) -> None:
        if self._is_waiting_to_send:
            self._selector.unregister(self._stdin)
            self._is_waiting_to_send = False
        if self._popen.stdin is not None:
            self._popen.stdin.close()


def _fd_of(stream: IO[bytes] | None) -> int:
    assert stream is not None, "all three are pipes"
    return stream.fileno()


def say_exit(code: int) -> str:
    """An exit code for people: signals by name."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"killed by signal {-code}"
