"""Faults of release, cooldown, cancellation and timeout."""

from __future__ import annotations

from typing import Final

from mutants.fault import Fault

LEAVING: Final = (
    Fault(
        name="no cooldown",
        file="impl/core.py", within="_cool",
        find="if self._closed or p.cooldown == 0:", put="if self._closed or p.cooldown >= 0:",
        rule="REL-1", source="issue 2", layer="scenario",
    ),
    Fault(
        name="double release frees twice",
        file="impl/slot.py", within="release",
        find="        p = self._provider\n",
        put="        p = self._provider; self._state == COOLING and p.cooling.run.popleft()\n",
        rule="REL-2", source="bug report 26", layer="scenario",
    ),
    Fault(
        name="cooldowns share one timer",
        file="impl/core.py", within="_cool",
        find="slot._key = now + p.cooldown",
        put="slot._key = p.cooling.first()._key if p.cooling else now + p.cooldown",
        rule="REL-3", source="incidents 28", layer="timed",
    ),
    Fault(
        name="cooldowns are taken as sorted",
        file="impl/core.py", within="_cool",
        find="p.cooling.push(", put="p.cooling.run.append(",
        rule="REL-3", source="incidents 37", layer="resize",
    ),
    Fault(
        name="a cooldown is over when its timer fires",
        file="impl/core.py", within="_catch_up",
        find="p.due_at <= now:", put="p.due_at <= now and p.timer is None:",
        rule="TIM-3", source="incidents 37", layer="tests", tests=("test_time.py",),
    ),
    Fault(
        name="due is after the deadline",
        file="impl/core.py", within="_catch_up",
        find="p.due_at <= now:", put="p.due_at < now:",
        rule="REL-3", source="bug report 47", layer="scenario", hangs=True,
    ),
    Fault(
        name="a tick too early",
        file="impl/core.py", within="_cool",
        find="slot._key = now + p.cooldown", put="slot._key = now + p.cooldown - 1_000_000",
        rule="REL-3", source="own", layer="timed",
    ),
    Fault(
        name="set_cooldown(None) means no cooldown",
        file="impl/core.py", within="_set_cooldown",
        find="self._release_cooldown if cooldown is None else cooldown", put="cooldown or 0",
        rule="ACC-4", source="own", layer="scenario",
    ),
    Fault(
        name="a cooldown of its own imposes a limit",
        file="impl/core.py", within="_set_cooldown",
        find="p.own_cooldown = cooldown\n", put="p.own_cooldown = cooldown; p.set_limit(p.limit or 1)\n",
        rule="ACC-4", source="incidents 33", layer="scenario",
    ),
    Fault(
        name="a cancelled waiter stays until its task runs",
        file="impl/loops.py", within="cancel",
        find="slot._provider.manager._cancel_request(slot)", put="pass",
        rule="CAN-1", source="bug report 2", layer="burst",
    ),
    Fault(
        name="a cancel after the grant leaks the slot",
        file="impl/core.py", within="_cancel_request",
        find=" or slot._state == HANDED:", put=":",
        rule="CAN-2", source="bug report 4", layer="burst",
    ),
    Fault(
        name="a slot given back wakes nobody",
        file="impl/core.py", within="_give_back",
        find="self._admit(p, now)", put="pass",
        rule="ADM-2", source="incidents 40", layer="burst",
    ),
    Fault(
        name="a slot given back cools down",
        file="impl/core.py", within="_withdraw",
        find="self._give_back(p, slot, now)", put="slot._state = HELD; self._release(slot)",
        rule="CAN-2", source="formal facts 2.5", layer="burst",
    ),
    Fault(
        name="a cancelled waiter isn't counted out",
        file="impl/core.py", within="_leave_queue",
        find="        p.queue.discard()\n", put="        tag == CANCELLED or p.queue.discard()\n",
        rule="CAN-1", source="incidents 12", layer="burst",
    ),
    Fault(
        name="timeout and grant both happen",
        file="impl/core.py", within="_catch_up",
        find="self._recycle_due(p, now)",
        put="late = p.timeouts and p.timeouts.first(); self._recycle_due(p, now); "
        'late and late._deadline <= now and self._note("timed_out", p, late, now)',
        rule="ACC-2", source="incidents 12", layer="late",
    ),
    Fault(
        name="patience goes before a cooldown that ends with it",
        file="impl/core.py", within="_catch_up",
        find="slot._key == p.due_at:",
        put="slot._key == p.due_at and (not p.timeouts or p.timeouts.first()._deadline != p.due_at):",
        rule="CAN-3", source="issue 3", layer="scenario",
    ),
    Fault(
        name="cooldowns first, whatever is due before them",
        file="impl/core.py", within="_recycle_due",
        find="now if other is None else min(now, other)", put="now",
        rule="TIM-3", source="own", layer="tests", tests=("mutants/test_killers.py",),
    ),
    Fault(
        name="a pause goes before a cooldown that ends with it",
        file="impl/core.py", within="_catch_up",
        find="slot._key == p.due_at:", put="slot._key == p.due_at != p.paused_until:",
        rule="TIM-3", source="own", layer="monitor",
    ),
    Fault(
        name="a timeout doesn't end",
        file="impl/core.py", within="_enqueue",
        find="p.due_at = deadline", put="p.due_at = deadline + self._interval",
        rule="CAN-3", source="bug report 65", layer="settled",
    ),
    Fault(
        name="a timed out request isn't told",
        file="impl/core.py", within="_catch_up",
        find="                self._settle(slot)\n", put="",
        rule="CAN-3", source="bug report 60", layer="scenario",
    ),
    Fault(
        name="a timer isn't moved forward",
        file="impl/core.py", within="_rest",
        find="(p.timer is None or p.due_at < p.timer_at)", put="p.timer is None",
        rule="ADM-3", source="incidents 37", layer="timed",
    ),
    Fault(
        name="the second cooldown strands its waiter",
        file="impl/loops.py", within="_on_timer",
        find="        provider.timer = None\n", put="",
        rule="REL-3", source="incidents 37", layer="scenario",
    ),
    Fault(
        name="the old timer lives on",
        file="impl/loops.py", within="_arm",
        find="        self._disarm(provider)\n", put="",
        rule="TIM-4", source="original", layer="scenario",
    ),
    Fault(
        name="unwatched, cooldowns go before an earlier patience",
        file="impl/core.py", within="_recycle_due",
        find="(slot := run[0])._key <= bound", put="(slot := run[0])._key <= now",
        rule="TIM-3", source="own", layer="tests", tests=("mutants/test_killers.py",),
    ),
    Fault(
        name="the short way's cooldown takes no room",
        file="impl/core.py", within="_start_cooldown",
        find="        p.cap -= 1\n", put="",
        rule="ADM-2", source="own", layer="stateful",
    ),
    Fault(
        name="the short way forgets what is over meanwhile",
        file="impl/core.py", within="_start_cooldown",
        find="if p.due_at + p.cooldown <= now:", put="if False:",
        rule="ACC-3", source="incidents 56", layer="tests", tests=("mutants/test_killers.py",),
    ),
)  # fmt: skip
