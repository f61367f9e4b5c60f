"""Faults of the model, its tables and its judges: an oracle that is wrong, and an alarm that doesn't ring."""

from __future__ import annotations

from typing import Final

from mutants.fault import Fault

JUDGE: Final = (
    Fault(
        name="model: one more than the limit",
        file="model/draft.py", within="has_room",
        find="< limit", put="<= limit",
        rule="ADM-4", source="incidents 31", layer="settled",
    ),
    Fault(
        name="model: one grant an admission",
        file="model/draft.py", within="admit",
        find="    while is_open", put="    if is_open",
        rule="ADM-5", source="bug report 35", layer="resize",
    ),
    Fault(
        name="model: prompt times don't matter",
        file="model/state.py", within="queue_of",
        find="(slot.prompt_started_at, slot.arrival)", put="slot.arrival",
        rule="ADM-2", source="bug report 20", layer="random",
    ),
    Fault(
        name="model: a slot given back wakes nobody",
        file="model/operations.py", within="cancel",
        find="    admit(draft, slot.provider)\n", put="",
        rule="ADM-2", source="incidents 40", layer="burst",
    ),
    Fault(
        name="model: a pause goes after a patience that ends with it",
        file="model/draft.py", within="apply_due",
        find="(paused_until_ms, 1, 0, None)", put="(paused_until_ms, 3, 0, None)",
        rule="CAN-3", source="own", layer="timed",
    ),
    Fault(
        name="model: silent for exactly the timeout",
        file="model/system.py", within="sweep",
        find="> timeout_ms", put=">= timeout_ms",
        rule="WAT-1", source="incidents 32", layer="timed",
    ),
    Fault(
        name="model: a shorter pause overwrites",
        file="model/operations.py", within="report_rate_limit",
        find="until_ms <= provider.paused_until_ms", put="until_ms == provider.paused_until_ms",
        rule="PAU-1", source="bug report 58", layer="timed",
    ),
    Fault(
        name="model: the sweep goes before what else is due",
        file="model/system.py", within="stall",
        find="    fire_deadlines(draft)\n", put="    sweep(draft)\n    fire_deadlines(draft)\n",
        rule="WAT-1", source="issue 3", layer="late",
    ),
    Fault(
        name="table: a released slot is free at once",
        file="model/lifecycle.py",
        find='Exit("released", "cooling"', put='Exit("released", "free"',
        rule="REL-1", source="own", layer="monitor",
    ),
    Fault(
        name="table: a queued request can't time out",
        file="model/lifecycle.py",
        find='            Exit("timed_out", "timed_out", "its deadline is due", ("CAN-3",)),\n', put="",
        rule="CAN-3", source="original", layer="monitor",
    ),
    Fault(
        name="table: a pause ends the next one",
        file="model/lifecycle.py",
        find='Exit("paused", "paused", "another 429', put='Exit("paused", "open", "another 429',
        rule="PAU-5", source="own", layer="monitor",
    ),
    Fault(
        name="table: close isn't for ever",
        file="model/lifecycle.py",
        find='        "closed": (),\n', put='        "closed": (Exit("closed", "open", "close", ("CLO-1",)),),\n',
        rule="CLO-1", source="own", layer="monitor",
    ),
    Fault(
        name="judge: one more than the limit",
        file="model/slot_rules.py", within="_grant",
        find="book.in_flight >= book.room", put="book.in_flight > book.room",
        rule="ADM-4", source="incidents 31", layer="trace",
    ),
    Fault(
        name="judge: grants in a pause are fine",
        file="model/slot_rules.py", within="_grant",
        find='book.state == "paused"', put='book.state == "closed"',
        rule="ADM-4", source="own", layer="trace",
    ),
    Fault(
        name="judge: a cooldown may end a little early",
        file="model/slot_rules.py", within="recycle_released",
        find="if late_ns < 0:", put="if late_ns < -1_000_000:",
        rule="REL-3", source="bug report 47", layer="trace",
    ),
    Fault(
        name="judge: any waiter may be next",
        file="model/ledger.py", within="pop",
        find='if head.state == "queued":', put="if False:",
        rule="ORD-1", source="bug report 21", layer="trace",
    ),
    Fault(
        name="judge: waiting beside room is fine",
        file="model/judging.py", within="_find_unrest",
        find="elif book.queued and book.in_flight < book.room",
        put="elif book.queued < 0 and book.in_flight < book.room",
        rule="ADM-5", source="incidents 37", layer="trace",
    ),
    Fault(
        name="judge: silent for exactly the timeout",
        file="model/slot_rules.py", within="_check_reclaim",
        find="t_ns - touched <= timeout", put="t_ns - touched < timeout",
        rule="WAT-1", source="incidents 32", layer="monitor",
    ),
    Fault(
        name="judge: a second end is overlooked",
        file="model/judging.py", within="_arrive",
        find="if request > self._newest:", put="if True:",
        rule="ACC-2", source="own", layer="trace",
    ),
    Fault(
        name="judge: a gap in the trace is passed over",
        file="model/check/trace.py", within="judge",
        find='if row.get("seq") != seq:', put="if False:",
        rule="ACC-2", source="own", layer="trace",
    ),
    Fault(
        name="judge: the order of grants isn't compared",
        file="model/check/compare.py", within="_sort_out",
        find=".append(event.request)", put=".append(str(event.at_ms))",
        rule="ORD-1", source="own", layer="tests", tests=("test_check_compare.py", "test_check_drive.py"),
    ),
    Fault(
        name="judge: timers aren't counted",
        file="model/check/compare.py", within="compare",
        find="not 0 <= timers <= max_timers", put="timers < 0",
        rule="TIM-4", source="own", layer="tests", tests=("test_check_compare.py", "test_check_drive.py"),
    ),
    Fault(
        name="judge: undetermined is a pass",
        file="model/check/verdict.py", within="LevelReport",
        find="self.undetermined is None and self.cases > 0", put="self.cases > 0",
        rule="ACC-2", source="formal facts 2.2", layer="tests", tests=("test_check_cli.py", "test_check_drive.py"),
    ),
    Fault(
        name="kernel: cooling slots don't count",
        file="model/kernel.py", within="in_flight",
        find="counts.held + counts.cooling + counts.reclaimed", put="counts.held + counts.reclaimed",
        rule="ADM-4", source="incidents 0", layer="proof",
    ),
    Fault(
        name="kernel: the end of a cooldown wakes nobody",
        file="model/kernel.py", within="recycle",
        find="admit(replace(counts, cooling=counts.cooling - 1))", put="replace(counts, cooling=counts.cooling - 1)",
        rule="ADM-5", source="incidents 37", layer="proof",
    ),
    Fault(
        name="kernel: set_limit admits by the difference",
        file="model/kernel.py", within="set_limit",
        find="admit(replace(counts, limit=limit))",
        put="replace(counts, limit=limit, queued=counts.queued - max(0, min(counts.queued, limit - counts.limit)), "
        "held=counts.held + max(0, min(counts.queued, limit - counts.limit)))",
        rule="ADM-6", source="bug report 34", layer="proof",
    ),
)  # fmt: skip
