"""Faults of pauses, the watchdog, the clock and close."""

from __future__ import annotations

from typing import Final

from mutants.fault import Fault

TIME: Final = (
    Fault(
        name="a shorter pause overwrites",
        file="impl/core.py", within="_pause",
        find="extends = p.paused_until is None or now + length > p.paused_until", put="extends = True",
        rule="PAU-1", source="bug report 58", layer="timed",
    ),
    Fault(
        name="a pause sets no deadline",
        file="impl/core.py", within="_pause",
        find="            p.measure_due()\n", put="",
        rule="PAU-5", source="incidents 20", layer="scenario",
    ),
    Fault(
        name="a pause may be shorter than the cooldown",
        file="impl/core.py", within="_pause",
        find="settings.min_pause, p.cooldown)", put="settings.min_pause)",
        rule="PAU-2", source="own", layer="scenario",
    ),
    Fault(
        name="a pause may be longer than max_pause",
        file="impl/core.py", within="_pause",
        find="settings.max_pause)", put="max(settings.max_pause, p.cooldown))",
        rule="PAU-2", source="incidents 50", layer="scenario",
    ),
    Fault(
        name="a negative Retry-After is 0",
        file="impl/validation.py", within="read_retry_after",
        find="        return requested, None\n", put="        return requested, 0\n",
        rule="PAU-2", source="original", layer="scenario",
    ),
    Fault(
        name="an infinite Retry-After is the default",
        file="impl/validation.py", within="read_retry_after",
        find="or value != value:", put="or not math.isfinite(value):",
        rule="PAU-2", source="bug report 56", layer="scenario",
    ),
    Fault(
        name="a 429 for a provider without a limit is lost",
        file="impl/core.py", within="_pause",
        find="now = self._catch_up(p)", put="now = self._catch_up(p)\n        if p.limit is None: return",
        rule="PAU-3", source="original", layer="resize",
    ),
    Fault(
        name="a pause stands after close",
        file="impl/core.py", within="_close",
        find="            p.paused_until = None\n", put="",
        rule="CLO-1", source="incidents 56", layer="timed",
    ),
    Fault(
        name="silent for exactly the timeout",
        file="impl/core.py", within="_sweep",
        find="now - slot._touched > self._slot_timeout", put="now - slot._touched >= self._slot_timeout",
        rule="WAT-1", source="incidents 32", layer="timed",
    ),
    Fault(
        name="a touch doesn't count",
        file="impl/core.py", within="_touch",
        find="slot._touched = now = self._catch_up(p)", put="now = self._catch_up(p)",
        rule="WAT-2", source="incidents 32", layer="timed",
    ),
    Fault(
        name="waiting counts as silence",
        file="impl/core.py", within="_grant",
        find="slot._touched = p.held[slot] = now",
        put='p.held[slot] = now; slot._touched = getattr(slot, "_touched", now)',
        rule="WAT-2", source="incidents (c) 3", layer="timed",
    ),
    Fault(
        name="a reclaimed slot is free at once",
        file="impl/core.py", within="_reclaim",
        find="self._cool(p, slot, now)", put="del p.held[slot]; self._recycle(p, slot, now)",
        rule="WAT-3", source="incidents 32", layer="scenario",
    ),
    Fault(
        name="a reclaimed slot's release counts",
        file="impl/core.py", within="_reclaim",
        find="slot._state = RECLAIMED", put="slot._state = HELD",
        rule="WAT-3", source="bug report 32", layer="scenario",
    ),
    Fault(
        name="its holder can't see that a slot was reclaimed",
        file="impl/slot.py", within="reclaimed",
        find="in (RECLAIMED, FREE_RECLAIMED)", put="== RECLAIMED",
        rule="WAT-3", source="original", layer="scenario",
    ),
    Fault(
        name="a reclaim wakes nobody",
        file="impl/core.py", within="_reclaim",
        find="        self._admit(p, now)\n", put="",
        rule="ADM-5", source="bug report 32", layer="scenario",
    ),
    Fault(
        name="one sweep and no more",
        file="impl/core.py", within="_sweep",
        find="if self._sweep_at is None and self._holds_any():", put="if False:",
        rule="WAT-1", source="incidents 1", layer="timed",
    ),
    Fault(
        name="sweeps are counted from the first grant",
        file="impl/core.py", within="_announce_sweep",
        find=" - (now - self._born) % self._interval", put="",
        rule="WAT-1", source="own", layer="timed",
    ),
    Fault(
        name="the sweep judges before pending touches",
        file="impl/loops.py",
        find="_SWEEP_TURNS: Final = 8", put="_SWEEP_TURNS: Final = 0",
        rule="WAT-1", source="incidents 32", layer="tests", tests=("test_watchdog.py",),
    ),
    Fault(
        name="a failing callback ends the sweep",
        file="impl/delivery.py", within="DeliveryLine",
        find="self._report(error, callback)", put="self.waiting.clear(); self._report(error, callback)",
        rule="WAT-4", source="incidents 20", layer="scenario",
    ),
    Fault(
        name="a grant made late is back-dated",
        file="impl/core.py", within="_recycle_due",
        find="self._admit(p, now)", put='self._admit(p, getattr(locals().get("due"), "_key", bound))',
        rule="TIM-2", source="issue 3", layer="late",
    ),
    Fault(
        name="the end of a cooldown is back-dated",
        file="impl/core.py", within="_recycle_due",
        find="self._recycle(p, due, now)", put="self._recycle(p, due, due._key)",
        rule="TIM-2", source="own", layer="late",
    ),
    Fault(
        name="a late reclaim's cooldown is back-dated",
        file="impl/core.py", within="_reclaim",
        find="self._cool(p, slot, now)", put="self._cool(p, slot, slot._touched + self._slot_timeout + 1)",
        rule="TIM-2", source="own", layer="scenario",
    ),
    Fault(
        name="a clock that goes back is believed",
        file="impl/validation.py", within="hold_back",
        find="if now > last:", put="if True:",
        rule="TIM-1", source="bug report 48", layer="tests", tests=("mutants/test_killers.py",),
    ),
    Fault(
        name="a delay may be as long as it likes",
        file="impl/loops.py",
        find="_MAX_DELAY_NS: Final = 86_400 * 1_000_000_000", put="_MAX_DELAY_NS: Final = 1 << 62",
        rule="TIM-4", source="bug report 50", layer="tests", tests=("test_time.py",),
    ),
    Fault(
        name="a reading applies nothing",
        file="impl/surface.py",
        find="            self._apply_due(known)\n", put="",
        rule="TIM-3", source="bug report 17", layer="stateful",
    ),
    Fault(
        name="close does nothing",
        file="impl/core.py", within="_close",
        find="if self._closed:", put="if not self._closed:",
        rule="CLO-1", source="incidents 56", layer="scenario",
    ),
    Fault(
        name="close leaves the waiters waiting",
        file="impl/core.py", within="_close",
        find="                self._settle(slot)\n", put="",
        rule="CLO-1", source="bug report 60", layer="settled",
    ),
    Fault(
        name="close leaves the cooling cooling",
        file="impl/core.py", within="_close",
        find="while p.cooling", put="while False and p.cooling",
        rule="CLO-1", source="incidents 56", layer="settled",
    ),
    Fault(
        name="close leaves the timers",
        file="impl/core.py", within="_close",
        find="            self._disarm(p)\n", put="",
        rule="CLO-1", source="incidents 56", layer="settled",
    ),
    Fault(
        name="a release after close arms a timer",
        file="impl/core.py", within="_release",
        find="self._cool(p, slot, now)", put="self._cool(p, slot, now); self._arm(p, now + p.cooldown, now)",
        rule="CLO-1", source="incidents 56", layer="scenario",
    ),
    Fault(
        name="a closed manager refuses a 429",
        file="impl/surface.py", within="report_rate_limit",
        find=', when_closed=True', put="",
        rule="CLO-2", source="bug report 62", layer="scenario",
    ),
    Fault(
        name="a closed manager still takes requests",
        file="impl/surface.py",
        find="        if self._closed:\n", put="        if False:\n",
        rule="CLO-2", source="original", layer="settled",
    ),
    Fault(
        name="on_pause is called for every 429",
        file="impl/core.py", within="_pause",
        find="elif extends and settings.on_pause is not None:", put="elif settings.on_pause is not None:",
        rule="CAL-3", source="own", layer="scenario",
    ),
    Fault(
        name="on_queued is called before the request is queued",
        file="impl/manager.py", within="_ask_for",
        find="self._operate(self._ask, slot, provider, ticks, on_queued)",
        put="on_queued and on_queued(); self._operate(self._ask, slot, provider, ticks, None)",
        rule="CAL-1", source="incidents 38", layer="scenario",
    ),
    Fault(
        name="delivery nests",
        file="impl/delivery.py",
        find="if self._delivering:", put="if False:",
        rule="CAL-2", source="bug report 81", layer="scenario",
    ),
    Fault(
        name="a raising callback raises through",
        file="impl/delivery.py", within="DeliveryLine",
        find="self._report(error, callback)", put="raise",
        rule="CAL-4", source="incidents 20", layer="scenario",
    ),
    Fault(
        name="any thread may change everything",
        file="impl/loops.py", within="_is_foreign",
        find="get_ident() != self._thread", put="False",
        rule="THR-1", source="bug report 69", layer="tests", tests=("test_threads.py",),
    ),
    Fault(
        name="a forked child keeps the parent's slots",
        file="impl/loops.py", within="_forget_parent",
        find="        self._forget_slots()\n", put="",
        rule="FRK-1", source="bug report 66", layer="tests", tests=("test_fork.py",),
    ),
    Fault(
        name="a reclaim isn't logged",
        file="impl/core.py", within="_reclaim",
        find="            log.warning,\n", put="            log.debug,\n",
        rule="WAT-5", source="incidents 32", layer="tests", tests=("test_watchdog.py",),
    ),
)  # fmt: skip
