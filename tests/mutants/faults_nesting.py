"""Faults of nesting: who waits for itself."""

from __future__ import annotations

from typing import Final

from mutants.fault import Fault

NESTING: Final = (
    Fault(
        name="a limit of 0 waits for itself",
        file="impl/nesting.py", within="is_self_blocked",
        find="not 0 < len(p.held) >= p.ceiling", put="not len(p.held) >= p.ceiling",
        rule="NST-1", source="own", layer="scenario",
    ),
    Fault(
        name="what cools blocks like what is held",
        file="impl/nesting.py", within="is_self_blocked",
        find="if p.cooling or not 0 < len(p.held) >= p.ceiling:",
        put="if not 0 < len(p.held) + len(p.cooling) >= p.ceiling:",
        rule="NST-1", source="own", layer="scenario",
    ),
    Fault(
        name="one parent of many blocks all",
        file="impl/nesting.py", within="is_self_blocked",
        find="return all(", put="return any(",
        rule="NST-1", source="own", layer="scenario",
    ),
    Fault(
        name="a holder of whom nothing is known is left out",
        file="impl/nesting.py", within="is_self_blocked",
        find="in list(p.held)", put="in p.held if slot.conversation_id is not None",
        rule="NST-1", source="own", layer="scenario",
    ),
    Fault(
        name="who has left the queue is still enclosed",
        file="impl/nesting.py", within="discount_queued",
        find="p.enclosing -= Counter(ancestors_of(slot))", put="pass",
        rule="NST-1", source="own", layer="tests", tests=("test_nesting.py",),
    ),
    Fault(
        name="a request is its own ancestor",
        file="impl/nesting.py", within="note_ancestors",
        find="each is not None and each != own", put="each is not None",
        rule="NST-1", source="own", layer="random",
    ),
    Fault(
        name="who has no ancestors is refused",
        file="impl/nesting.py", within="would_deadlock",
        find="bool(ancestors_of(slot)) and is_self_blocked", put="is_self_blocked",
        rule="NST-1", source="own", layer="scenario",
    ),
    Fault(
        name="who would wait for itself queues",
        file="impl/core.py", within="_refuse",
        find='self._settings.nested == "raise" and would_deadlock(p, slot)', put="False",
        rule="NST-1", source="own", layer="scenario",
    ),
    Fault(
        name="a block that has ended is an ancestor",
        file="impl/context.py", within="open_blocks",
        find="block = _find_open(block.parent)", put="block = block.parent",
        rule="NST-1", source="own", layer="tests", tests=("test_nesting.py",),
    ),
)  # fmt: skip
