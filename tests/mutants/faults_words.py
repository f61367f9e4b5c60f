"""Faults of what is told: statuses, events and refusals that only an invariant may notice."""

from __future__ import annotations

from typing import Final

from mutants.fault import Fault

WORDS: Final = (
    Fault(
        name="a negative limit is a limit",
        file="impl/validation.py", within="check_count",
        find="if value < 0:", put="if False:",
        rule="LIM-1", source="bug report 43", layer="scenario",
    ),
    Fault(
        name="who was reclaimed counts twice in in_flight",
        file="impl/surface.py", within="_status",
        find="in_flight=p.in_flight,", put="in_flight=p.in_flight + p.reclaimed,",
        rule="ACC-1", source="bug report 32", layer="timed",
    ),
    Fault(
        name="in_flight is what is held",
        file="impl/surface.py", within="_status",
        find="in_flight=p.in_flight,", put="in_flight=len(p.held),",
        rule="ACC-1", source="incidents 54", layer="settled",
    ),
    Fault(
        name="the status says cooling 0",
        file="impl/surface.py", within="_status",
        find="cooling=p.in_flight - len(p.held) - p.reclaimed,", put="cooling=0,",
        rule="ACC-1", source="incidents 54", layer="scenario",
    ),
    Fault(
        name="the default is shown as a limit of one's own",
        file="impl/surface.py", within="_status",
        find="limit=p.limit,", put="limit=p.limit if p.limit is not None else self._default_limit,",
        rule="LIM-4", source="incidents 29", layer="scenario",
    ),
    Fault(
        name="port: a provider has two rows",
        file="impl/session.py", within="report",
        find="in self.manager.get_status_all().values()", put="in 2 * [*self.manager.get_status_all().values()]",
        rule="ACC-3", source="own", layer="scenario",
    ),
    Fault(
        name="port: whatever is refused, the queue was full",
        file="impl/session.py", within="_perform",
        find='self._refuse(op, index, "invalid")', put='self._refuse(op, index, "queue_full")',
        rule="LIM-1", source="own", layer="scenario",
    ),
    Fault(
        name="a pause is shown while somebody waits",
        file="impl/surface.py", within="_status",
        find="paused=paused_for is not None,", put="paused=paused_for is not None and p.queue is not None,",
        rule="PAU-3", source="incidents 54", layer="scenario",
    ),
    Fault(
        name="only the first 429 counts",
        file="impl/core.py", within="_pause",
        find=" or now + length > p.paused_until", put="",
        rule="PAU-1", source="bug report 58", layer="timed",
    ),
    Fault(
        name="429s add up",
        file="impl/core.py", within="_pause",
        find="p.paused_until = now + length\n", put="p.paused_until = (p.paused_until or now) + length\n",
        rule="PAU-1", source="incidents 51", layer="timed",
    ),
    Fault(
        name="a report that doesn't extend isn't told",
        file="impl/core.py", within="_pause",
        find='self._note_provider("paused",', put='extends and self._note_provider("paused",',
        rule="PAU-2", source="own", layer="timed",
    ),
    Fault(
        name="a full queue drops its head",
        file="impl/core.py", within="_refuse",
        find="raise explain(QueueFullError",
        put="p.queue and self._cancel_request(p.queue.first()); raise explain(QueueFullError",
        rule="ADM-7", source="incidents (c) 3", layer="resize",
    ),
    Fault(
        name="timeout 0 waits a turn",
        file="impl/core.py", within="_ask",
        find="if timeout == 0 or self._may_refuse:", put="if self._may_refuse:",
        rule="CAN-3", source="incidents (c) 3", layer="settled",
    ),
    Fault(
        name="every release sweeps, too",
        file="impl/core.py", within="_release",
        find="now = self._catch_up(p)", put="self._sweep(); now = self._catch_up(p)",
        rule="TIM-3", source="incidents 32", layer="timed",
    ),
    Fault(
        name="a reclaimed slot is recycled twice",
        file="impl/core.py", within="_recycle",
        find="p.reclaimed -= 1", put='p.reclaimed -= 1; self._note("recycled", p, slot, now)',
        rule="ACC-2", source="incidents 32", layer="timed",
    ),
    Fault(
        name="a reclaimed slot is no longer counted as one",
        file="impl/core.py", within="_reclaim",
        find="        p.reclaimed += 1\n", put="        p.reclaimed += p.limit is not None\n",
        rule="ACC-1", source="incidents 54", layer="random",
    ),
)  # fmt: skip
