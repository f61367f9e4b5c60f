"""Faults of admission, order, limits and counts."""

from __future__ import annotations

from typing import Final

from mutants.fault import Fault

ADMISSION: Final = (
    Fault(
        name="one more than the limit",
        file="impl/core.py", within="_ask",
        find="if len(p.held) < p.cap:", put="if len(p.held) <= p.cap:",
        rule="ADM-4", source="incidents 30", layer="scenario",
    ),
    Fault(
        name="grants go on in a pause",
        file="impl/provider.py", within="measure_room",
        find="self.paused_until is not None or self.manager._closed", put="self.manager._closed",
        rule="ADM-4", source="bug report 59", layer="two",
    ),
    Fault(
        name="cooling slots take no room",
        file="impl/provider.py", within="measure_room",
        find=" - (len(self.cooling) if self.cooling is not None else 0)", put="",
        rule="REL-3", source="incidents 0", layer="settled",
    ),
    Fault(
        name="one grant an admission",
        file="impl/core.py", within="_admit",
        find="while (queue := p.queue) is not None and", put="if (queue := p.queue) is not None and",
        rule="ADM-5", source="bug report 35", layer="resize",
    ),
    Fault(
        name="the end of a cooldown wakes nobody",
        file="impl/core.py", within="_recycle_due",
        find="self._admit(p, now)", put="pass",
        rule="ADM-5", source="incidents 37", layer="settled",
    ),
    Fault(
        name="the end of a pause wakes nobody",
        file="impl/core.py", within="_end_pause",
        find="self._admit(p, now)", put="pass",
        rule="PAU-5", source="bug report 10", layer="two",
    ),
    Fault(
        name="a newcomer passes a waiter",
        file="impl/core.py", within="_ask",
        find="now = self._catch_up(p)", put="now = self._catch_up(p); p.cap += bool(p.queue and p.timeouts)",
        rule="ADM-1", source="bug report 13", layer="settled",
    ),
    Fault(
        name="a newcomer barges after a late timer",
        file="impl/core.py", within="_recycle_due",
        find="self._admit(p, now)", put="p.timer is None and self._admit(p, now)",
        rule="ADM-1", source="bug report 15", layer="tests", tests=("test_admission.py",),
    ),
    Fault(
        name="the youngest prompt first",
        file="impl/core.py", within="_enqueue",
        find="slot._key = slot._prompt", put="slot._key = -slot._prompt",
        rule="ORD-1", source="bug report 21", layer="settled",
    ),
    Fault(
        name="prompt times don't matter",
        file="impl/core.py", within="_enqueue",
        find="slot._key = slot._prompt", put="slot._key = 0",
        rule="ORD-1", source="bug report 20", layer="settled",
    ),
    Fault(
        name="no tie-break by arrival",
        file="impl/queue.py", within="SortedRun",
        find="self.run.append(slot)",
        put="(self.run.appendleft if self.run and key == self.run[-1]._key else self.run.append)(slot)",
        rule="ORD-1", source="incidents 60", layer="timed",
    ),
    Fault(
        name="a straggler goes to the end",
        file="impl/queue.py", within="SortedRun",
        find="if key > last or", put="if True or",
        rule="ORD-1", source="bug report 19", layer="settled",
    ),
    Fault(
        name="try_acquire goes through a pause",
        file="impl/core.py", within="_try",
        find="len(p.held) < p.cap", put="p.in_flight < p.ceiling",
        rule="ADM-8", source="bug report 13", layer="settled",
    ),
    Fault(
        name="a full queue takes one more",
        file="impl/core.py", within="_refuse",
        find="p.queued >= self._settings.max_queued", put="p.queued > self._settings.max_queued",
        rule="ADM-7", source="incidents (c) 3", layer="resize",
    ),
    Fault(
        name="timeout 0 finds the queue full",
        file="impl/core.py", within="_refuse",
        find="if timeout == 0:",
        put="if timeout == 0 and (self._settings.max_queued is None or p.queued < self._settings.max_queued):",
        rule="ADM-7", source="incidents (c) 3", layer="scenario",
    ),
    Fault(
        name="limit 0 means no limit",
        file="impl/provider.py", within="set_limit",
        find="limit if limit is not None else default if", put="limit if limit else default if",
        rule="LIM-1", source="bug report 37", layer="scenario",
    ),
    Fault(
        name="without a limit of its own there is none",
        file="impl/provider.py", within="set_limit",
        find="default if default is not None else UNLIMITED", put="UNLIMITED",
        rule="LIM-4", source="incidents 29", layer="scenario",
    ),
    Fault(
        name="set_limit admits by the difference",
        file="impl/core.py", within="_set_limit",
        find="self._admit(p, now)",
        put="p.cap = p.cap if None in (had, limit) else len(p.held) + limit - had; self._admit(p, now)",
        rule="LIM-2", source="bug report 34", layer="resize",
    ),
    Fault(
        name="a raised limit wakes nobody",
        file="impl/core.py", within="_set_limit",
        find="self._admit(p, now)", put="pass",
        rule="LIM-2", source="bug report 35", layer="burst",
    ),
    Fault(
        name="remove_limit forgets the holders",
        file="impl/core.py", within="_set_limit",
        find="p.set_limit(limit)", put="p.set_limit(limit); p.held = p.held if limit is not None else {}",
        rule="LIM-3", source="incidents 23", layer="scenario",
    ),
    Fault(
        name="remove_limit lifts the pause",
        file="impl/core.py", within="_set_limit",
        find="p.set_limit(limit)",
        put="p.paused_until = p.paused_until if limit is not None else None; p.set_limit(limit)",
        rule="PAU-3", source="original", layer="resize",
    ),
    Fault(
        name="what ran before a limit isn't counted",
        file="impl/core.py", within="_grant",
        find="p.held[slot] = now", put="p.held[slot] = now; p.limit is None and p.held.pop(slot)",
        rule="ACC-1", source="original", layer="scenario",
    ),
    Fault(
        name="a bool is a limit",
        file="impl/validation.py", within="check_count",
        find="isinstance(value, bool) or not isinstance(value, int)", put="not isinstance(value, int)",
        rule="LIM-1", source="bug report 43", layer="scenario",
    ),
    Fault(
        name="half a slot is a limit",
        file="impl/validation.py", within="check_count",
        find="not isinstance(value, int)", put="not isinstance(value, int | float)",
        rule="LIM-1", source="original", layer="resize",
    ),
    Fault(
        name="NaN is a prompt time",
        file="impl/validation.py", within="check_number",
        find="not math.isfinite(value)", put="math.isinf(value)",
        rule="ORD-1", source="bug report 19", layer="scenario",
    ),
    Fault(
        name="a provider without a limit is forgotten while it cools",
        file="impl/provider.py", within="has_state",
        find="            or self.cooling\n", put="",
        rule="ACC-3", source="bug report 31", layer="scenario",
    ),
    Fault(
        name="an idle provider is kept for ever",
        file="impl/core.py", within="_rest",
        find="del self._providers[p.name]", put="pass",
        rule="ACC-3", source="bug report 30", layer="tests", tests=("test_admission.py", "test_limits.py"),
    ),
    Fault(
        name="the sweep forgets nobody whose cooldown nobody noticed",
        file="impl/core.py", within="_sweep",
        find="            now = self._catch_up(p)\n", put="            pass\n",
        rule="ACC-3", source="issue 3", layer="tests", tests=("mutants/test_killers.py",),
    ),
    Fault(
        name="the short way lets one more in",
        file="impl/manager.py", within="acquire",
        find="len(p.held) <= p.cap", put="len(p.held) <= p.cap + 1",
        rule="ADM-4", source="own", layer="stateful",
    ),
)  # fmt: skip
