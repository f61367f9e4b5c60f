"""A fault: one line that is wrong, which rule it breaks, who made the mistake before, and which layer must notice."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, TypeAlias

Layer: TypeAlias = Literal[
    "scenario", "settled", "burst", "timed", "late", "resize", "two", "random", "stateful", "monitor", "trace",
    "proof", "tests",
]  # fmt: skip

LAYERS: Final[tuple[Layer, ...]] = (
    "scenario", "settled", "burst", "timed", "late", "resize", "two", "random", "stateful", "monitor", "trace",
    "proof", "tests",
)  # fmt: skip
"""In the order of the matrix. `settled`, `resize` and `two` are the edges of the model without anything special."""

PACKAGES: Final = {
    "impl": "provider_concurrency",
    "model": "provider_concurrency_model",
    "spec": "provider_concurrency_spec",
}
"""The folder of each package in the repository."""


class AnchorError(ValueError):
    """The text of a fault doesn't stand in its file exactly once: the file has changed, the zoo must follow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One changed line."""

    name: str
    file: str
    """Beginning with the folder: impl/core.py is impl/provider_concurrency/core.py."""
    within: str = ""
    """The function (or class) whose text holds the line; empty: the whole file."""
    find: str
    """What stands there, exactly once."""
    put: str
    """What stands there instead."""
    rule: str
    """The rule that it breaks."""
    source: str
    """Of bug-reports.md, incidents.md, formal-facts.md; "original": the table of differences; "issue N"; or "own"."""
    layer: Layer
    """Which must catch it."""
    hangs: bool = False
    """Whether the layer doesn't end: a kill of its own kind."""
    tests: tuple[str, ...] = ()
    """The test files that the layer `tests` runs."""

    @property
    def family(self) -> str:
        """The first part of the rule."""
        return self.rule.partition("-")[0]

    @property
    def path(self) -> Path:
        """The file below a folder that holds the three packages side by side."""
        folder, _, rest = self.file.partition("/")
        return Path(PACKAGES[folder]) / rest

    def apply(self, text: str) -> str:
        """The file's text with the fault; AnchorError where its line isn't found, or is found twice."""
        begin, end = self._find_scope(text)
        scope = text[begin:end]
        if (times := scope.count(self.find)) != 1:
            place = f"{self.file}, {self.within}" if self.within else self.file
            raise AnchorError(f"fault {self.name!r}: {self.find!r} stands {times} times in {place}, not once")
        return text[:begin] + scope.replace(self.find, self.put) + text[end:]

    def _find_scope(self, text: str) -> tuple[int, int]:
        """From the line that begins the function to the next one that is indented no further."""
        if not self.within:
            return 0, len(text)
        heads = list(re.finditer(rf"^( *)(?:async def|def|class) {re.escape(self.within)}\b", text, re.MULTILINE))
        if len(heads) != 1:
            raise AnchorError(
                f"fault {self.name!r}: {self.within} is defined {len(heads)} times in {self.file}, not once"
            )
        head = heads[0]
        # A signature over several lines ends with a bracket at the same depth, which ends nothing.
        end = re.compile(rf"^ {{0,{len(head[1])}}}[^ \n)#]", re.MULTILINE).search(text, head.end())
        return head.start(), len(text) if end is None else end.start()
