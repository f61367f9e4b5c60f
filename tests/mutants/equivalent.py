"""Changes that look like faults and are none: nothing that anybody can see depends on the line, and why.

Each is planted like a fault in `--all-layers`, and must survive; one that is caught was never equivalent.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from mutants.fault import Fault


@dataclass(frozen=True, slots=True)
class Equivalent:
    """A fault that can't be noticed; its `layer` is the one that comes closest."""

    fault: Fault
    why: str


EQUIVALENT: Final = (
    Equivalent(
        Fault(
            name="model: a newcomer passes the queue",
            file="model/draft.py", within="can_grant_at_once",
            find=" and not queue_of(draft.live.values(), name)", put="",
            rule="ADM-1", source="formal facts 2.5", layer="burst",
        ),
        "Every operation begins with `apply_due` and whatever makes room ends with `admit`, so wherever the line is "
        "reached nobody waits while there is room (ADM-5): the third condition follows from the first two. The manager "
        "doesn't ask it at all (`Provider.cap` alone decides). What would make it matter, room that came with a late "
        "timer, is the fault 'a newcomer barges after a late timer'.",
    ),
    Equivalent(
        Fault(
            name="model: missed sweeps are made up for",
            file="model/system.py", within="stall",
            find="if missed > 0:", put="for _ in range(min(missed, 3)):",
            rule="WAT-1", source="own", layer="late",
        ),
        "Sweeps at one instant: the first reclaims every slot that is silent for too long, and whoever is granted by "
        "that, or by its callbacks, is touched now. The second finds nothing. It would matter if the missed sweeps "
        "were back-dated, which is another fault (TIM-2).",
    ),
)  # fmt: skip
