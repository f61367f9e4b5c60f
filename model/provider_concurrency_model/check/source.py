"""How a subject was chosen on the command line: by dotted path, or as a command. Other processes open it anew."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import TypeAlias

from provider_concurrency_model.check.stdio import REPLY_SECONDS, START_SECONDS, Stdio
from provider_concurrency_model.check.subject import InProcess, Session


@dataclass(frozen=True, slots=True)
class Dotted:
    """A port in this process, `module:name`."""

    path: str

    @property
    def label(self) -> str:
        """How it is called in reports."""
        return self.path

    @property
    def arguments(self) -> tuple[str, ...]:
        """The words of the command line that choose it again."""
        return ("--subject", self.path)

    def open(self) -> Session:
        """Makes one and greets it; raises SubjectError."""
        return Session(InProcess(self.path), self.arguments)


@dataclass(frozen=True, slots=True)
class CommandLine:
    """A port that is started by a command and speaks over stdio."""

    argv: tuple[str, ...]
    reply_seconds: float = REPLY_SECONDS
    start_seconds: float = START_SECONDS

    @property
    def label(self) -> str:
        """How it is called in reports."""
        return shlex.join(self.argv)

    @property
    def arguments(self) -> tuple[str, ...]:
        """The words of the command line that choose it again."""
        limits: list[str] = []
        if self.reply_seconds != REPLY_SECONDS:
            limits += ["--reply-timeout", f"{self.reply_seconds:g}"]
        if self.start_seconds != START_SECONDS:
            limits += ["--start-timeout", f"{self.start_seconds:g}"]
        return (*limits, "--", *self.argv)

    def open(self) -> Session:
        """Starts it and greets it; raises SubjectError."""
        subject = Stdio(self.argv, self.reply_seconds, self.start_seconds)
        return Session(subject, self.arguments)


Source: TypeAlias = Dotted | CommandLine
