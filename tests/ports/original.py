"""The original's behaviour, restated as a port of protocol 1: every row of SPEC.md's "Where the original differs".

    provider-concurrency check --level scenarios -- python tests/ports/original.py

`Original` is written from that table (and from what it says was kept), not from the original's code; each row stands in
a comment where it happens. It has no cancel, timeout, touch, resume, max_queued, default_limit, set_cooldown or
try_acquire: rows about these can't fail here, their cases are skipped. `Port` is the driver. The run time's timers are
Node's, because some rows come from there.

One thing is milder: where the original's process ends of an exception in a timer, this one answers on, without its
watchdog.
"""

from __future__ import annotations

import json
import math
import platform
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeAlias

Json: TypeAlias = Any
Emit: TypeAlias = Callable[..., None]

FEATURES = ("hooks", "wall_clock", "inspect")

FLOATS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
LONGEST_TIMER_MS = 2**31 - 1

SWEEPS_LAST = 1
"""Among timers of one instant the watchdog's goes last."""


def to_number(raw: Json) -> float:
    """What JavaScript makes of a value in an arithmetic place: null is 0, true is 1, a text without digits NaN."""
    if raw is None:
        return 0
    if isinstance(raw, str):
        try:
            raw = FLOATS[raw] if raw in FLOATS else float(raw)
        except ValueError:
            return math.nan
    return int(raw) if float(raw).is_integer() else float(raw)


# -- the run time ----------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Timer:
    """One call to come."""

    at_ms: int
    rank: int
    number: int
    callback: Callable[[], None]


class RunTime:
    """Virtual time with Node's timers, and a wall clock that may jump."""

    def __init__(self) -> None:
        self.now_ms = 0
        self.wall_jump_ms = 0
        self._timers: list[Timer] = []
        self._started = 0

    @property
    def wall_ms(self) -> int:
        """Date.now()."""
        return self.now_ms + self.wall_jump_ms

    def start(self, delay: float, callback: Callable[[], None], rank: int = 0) -> Timer:
        """setTimeout: less than 1 ms, more than 2^31 - 1 ms or no number at all is 1 ms."""
        ms = int(delay) if 1 <= delay <= LONGEST_TIMER_MS else 1
        self._started += 1
        timer = Timer(self.now_ms + ms, rank, self._started, callback)
        self._timers.append(timer)
        return timer

    def stop(self, timer: Timer | None) -> None:
        """clearTimeout."""
        if timer in self._timers:
            self._timers.remove(timer)

    def advance(self, ms: int) -> None:
        """Fires timer after timer, each at its time."""
        end_ms = self.now_ms + ms
        while self._timers:
            timer = min(self._timers, key=lambda timer: (timer.at_ms, timer.rank, timer.number))
            if timer.at_ms > end_ms:
                break
            self._timers.remove(timer)
            self.now_ms = timer.at_ms
            timer.callback()
        self.now_ms = end_ms


# -- the original ----------------------------------------------------------------------------------------------------


@dataclass(eq=False, slots=True)
class Slot:
    """One request; `state` and `was_reclaimed` are for the driver's eyes, the original has no such thing."""

    request: str
    provider: str
    prompt_started_at: float
    state: str = "held"
    granted_wall_ms: int = 0
    is_reclaimed: bool = False


@dataclass(eq=False, slots=True)
class Account:
    """What the original knows of a provider: there is one only while it has a limit."""

    limit: float
    in_flight: int = 0
    queue: list[Slot] = field(default_factory=list)
    slots: list[Slot] = field(default_factory=list)
    paused: bool = False
    pause_timer: Timer | None = None


class Original:
    """The manager, with the callbacks of its time: called directly, wherever they come up."""

    def __init__(
        self, run_time: RunTime, config: dict[str, Json], emit: Emit, call: Callable[[str, str], None]
    ) -> None:
        self._run_time = run_time
        self._emit = emit
        self._call = call
        # LIM-1: no validation, here and everywhere.
        self._cooldown = to_number(config["release_cooldown_ms"])
        self._slot_timeout = config["slot_timeout_ms"]
        self._interval = to_number(config["watchdog_interval_ms"])
        self._default_pause = to_number(config["default_pause_ms"])
        self.accounts: dict[str, Account] = {}
        self._cooldown_timers: list[Timer] = []
        self._watchdog: Timer | None = None
        if self._slot_timeout is not None:
            self._watchdog = run_time.start(self._interval, self._tick, SWEEPS_LAST)

    def acquire(self, slot: Slot) -> None:
        """Grants, or queues by prompt."""
        account = self.accounts.get(slot.provider)
        if account is None:
            # ACC-1: without a limit nothing is counted; CLO-2: so it is after destroy.
            slot.state = "uncounted"
            self._emit("granted", slot.provider, request=slot.request)
            return
        if not account.paused and account.in_flight < account.limit:
            # ADM-5: who queues is not looked at, because nobody queues beside room. But see below.
            account.slots.append(slot)
            self._grant(account, slot)
            return
        # ADM-5, CAL-1: the callback comes before the enqueueing; what it frees finds an empty queue.
        slot.state = "queued"
        self._emit("queued", slot.provider, request=slot.request)
        self._call("queued", slot.provider)
        account.slots.append(slot)
        place = next(
            # ORD-1: a NaN is neither more nor less, and stands where it happens to stand.
            (i for i, other in enumerate(account.queue) if other.prompt_started_at > slot.prompt_started_at),
            len(account.queue),
        )
        account.queue.insert(place, slot)

    def _grant(self, account: Account, slot: Slot) -> None:
        account.in_flight += 1
        slot.state = "held"
        slot.granted_wall_ms = self._run_time.wall_ms  # TIM-1: the wall clock decides
        self._emit("granted", slot.provider, request=slot.request)

    def _drain(self, account: Account) -> None:
        while account.queue and not account.paused and account.in_flight < account.limit:
            self._grant(account, account.queue.pop(0))

    def release(self, slot: Slot) -> None:
        """Once; then the cooldown."""
        if slot.state == "uncounted":
            slot.state = "free"
            self._emit("released", slot.provider, request=slot.request)
            self._emit("recycled", slot.provider, request=slot.request)
        elif slot.state == "held":
            self._cool(slot, "released")

    def _cool(self, slot: Slot, event: str) -> None:
        # LIM-3, CLO-1: the account of a slot may be gone; its slots then count nowhere.
        account = next((a for a in self.accounts.values() if slot in a.slots), None)
        slot.state = "cooling"
        self._emit(event, slot.provider, request=slot.request)

        def recycle() -> None:
            slot.state = "free"
            self._emit("recycled", slot.provider, request=slot.request)
            if account is not None:
                account.slots.remove(slot)
                account.in_flight -= 1
                self._drain(account)

        if self._cooldown > 0:
            self._cooldown_timers.append(self._run_time.start(self._cooldown, recycle))  # CLO-1: after destroy, too
        else:
            recycle()

    def set_limit(self, provider: str, limit: Json) -> None:
        """Of a provider that has none yet: with an empty account, whatever is running (ACC-1)."""
        account = self.accounts.setdefault(provider, Account(0))
        account.limit = to_number(limit)
        self._drain(account)

    def remove_limit(self, provider: str) -> None:
        """LIM-3, PAU-3: the account goes, its pause with it, and everybody who waits is let through."""
        account = self.accounts.pop(provider, None)
        if account is None:
            return
        self._run_time.stop(account.pause_timer)
        for slot in account.queue:
            slot.state = "uncounted"
            self._emit("granted", slot.provider, request=slot.request)

    def report_rate_limit(self, provider: str, retry_after: Json) -> None:
        """Pauses, if there is anything to pause."""
        account = self.accounts.get(provider)
        if account is None:
            return  # PAU-3
        # PAU-1, PAU-2: whatever was reported last is taken, as the timer takes it.
        delay = self._default_pause if retry_after is None else to_number(retry_after)
        account.paused = True
        self._run_time.stop(account.pause_timer)
        is_real = isinstance(retry_after, int | float) and not isinstance(retry_after, bool)
        applied = int(delay) if 1 <= delay <= LONGEST_TIMER_MS else 1
        self._emit("paused", provider, requested_ms=retry_after if is_real else None, applied_ms=applied)
        self._call("paused", provider)  # CAL-4: if it throws, no timer ever ends the pause

        def end() -> None:
            if account.paused:
                account.paused = False
                self._emit("resumed", provider)
                self._drain(account)

        account.pause_timer = self._run_time.start(delay, end)  # CAL-3: one that the callback started is forgotten

    def _tick(self) -> None:
        self._watchdog = self._run_time.start(self._interval, self._tick, SWEEPS_LAST)
        for account in list(self.accounts.values()):
            for slot in [slot for slot in account.slots if slot.state == "held"]:
                if self._run_time.wall_ms - slot.granted_wall_ms > to_number(self._slot_timeout):
                    slot.is_reclaimed = True
                    self._cool(slot, "reclaimed")
                    try:
                        self._call("reclaimed", slot.provider)
                    except RuntimeError:
                        self._run_time.stop(self._watchdog)  # WAT-4: the end of the sweep, and of all that follow
                        return

    def destroy(self) -> None:
        """CLO-1: timers stop and everything is forgotten; who waits waits for ever."""
        self._run_time.stop(self._watchdog)
        for timer in (*self._cooldown_timers, *(account.pause_timer for account in self.accounts.values())):
            self._run_time.stop(timer)
        self.accounts.clear()


# -- the driver ------------------------------------------------------------------------------------------------------


class Port:
    """Protocol 1: `handle(message)` answers one message."""

    def __init__(self) -> None:
        self._run_time = RunTime()
        self._events: list[Json] = []
        self._slots: dict[str, Slot] = {}
        self._hooks: list[dict[str, Json]] = []
        self._manager: Original | None = None

    def handle(self, message: dict[str, Json]) -> Json:
        """The reply to a message; an exception becomes an error reply."""
        try:
            return {"id": message["id"], **self._answer(message)}
        except Exception as error:  # noqa: BLE001 - whatever it is, the port answers
            return {"id": message.get("id"), "error": {"message": repr(error)}}

    def _answer(self, message: dict[str, Json]) -> dict[str, Json]:
        cmd = message["cmd"]
        if cmd == "hello":
            port = {"name": "original", "version": "0", "language": "Python", "runtime": platform.python_version()}
            return {"protocol": 1, "port": port, "features": list(FEATURES)}
        if cmd == "new":
            self.__init__()  # type: ignore[misc] # a new world: nothing of the old one is left
            self._manager = Original(self._run_time, message["config"], self._emit, self._call_hooks)
        elif cmd == "do":
            lacking = next((feature for op in message["ops"] if (feature := _lacks(op)) is not None), None)
            if lacking is not None:
                return {"skip": {"feature": lacking}}
            for op in message["ops"]:
                with suppress(RuntimeError):  # a hook throws through the operation into its caller
                    self._perform(op)
        elif cmd == "advance":
            self._run_time.advance(message["ms"])
        elif cmd == "stall":
            return {"skip": {"feature": "stall"}}
        elif cmd != "bye":
            return {"error": {"message": f"unknown command {cmd!r}"}}
        return self._reply()

    def _perform(self, op: dict[str, Json]) -> None:
        manager = self._manager
        if manager is None:
            raise ValueError("do before new")
        match op["op"]:
            case "acquire":
                slot = Slot(op["request"], op["provider"], to_number(op["prompt_started_at"]))
                self._slots[slot.request] = slot
                manager.acquire(slot)
            case "release":
                if op["request"] in self._slots:
                    manager.release(self._slots[op["request"]])
            case "inspect":
                if op["request"] in self._slots:
                    slot = self._slots[op["request"]]
                    # WAT-3: that it was reclaimed can't be seen.
                    state = "held" if slot.state == "uncounted" else slot.state
                    self._emit("slot", None, request=slot.request, state=state, reclaimed=False)
            case "set_limit":
                manager.set_limit(op["provider"], op["limit"])
            case "remove_limit":
                manager.remove_limit(op["provider"])
            case "rate_limited":
                manager.report_rate_limit(op["provider"], FLOATS.get(op["retry_after_ms"], op["retry_after_ms"]))
            case "close":
                manager.destroy()
            case "hook":
                self._hooks.append({"do": [], "throw": False, "times": 1, **op})
            case "wall_clock":
                self._run_time.wall_jump_ms += op["jump_ms"]
            case other:
                raise ValueError(f"unknown operation {other!r}")

    def _call_hooks(self, point: str, provider: str) -> None:
        for hook in [hook for hook in self._hooks if hook["on"] == point and hook["provider"] == provider]:
            hook["times"] -= 1
            if not hook["times"]:
                self._hooks.remove(hook)
            for op in hook["do"]:
                self._perform(op)
            if hook["throw"]:
                raise RuntimeError("a hook throws")

    def _emit(self, event: str, provider: str | None, **members: Json) -> None:
        at: dict[str, Json] = {"event": event, "at_ms": self._run_time.now_ms}
        self._events.append({**at, **({} if provider is None else {"provider": provider}), **members})

    def _reply(self) -> dict[str, Json]:
        events, self._events = self._events, []
        accounts = self._manager.accounts.items() if self._manager is not None else ()
        status = [self._row(provider, account) for provider, account in accounts]
        unsettled = [slot.request for slot in self._slots.values() if slot.state == "queued"]
        return {"events": events, "status": status, "unsettled": unsettled}

    def _row(self, provider: str, account: Account) -> dict[str, Json]:
        held = sum(slot.state == "held" for slot in account.slots)
        reclaimed = sum(slot.state == "cooling" and slot.is_reclaimed for slot in account.slots)
        left_ms = None if account.pause_timer is None else account.pause_timer.at_ms - self._run_time.now_ms
        return {
            "provider": provider,
            "limit": None if math.isnan(account.limit) else account.limit,
            "in_flight": account.in_flight,
            "held": held,
            "cooling": account.in_flight - held - reclaimed,
            "reclaimed": reclaimed,
            "queued": len(account.queue),
            "paused": account.paused,
            "paused_for_ms": left_ms if account.paused else None,
        }


def _lacks(op: dict[str, Json]) -> str | None:
    """The undeclared feature that an operation needs."""
    name = op["op"]
    if name == "acquire" and op.get("timeout_ms") is not None:
        return "timeout"
    if name == "hook":
        return next((feature for inner in op.get("do", ()) if (feature := _lacks(inner)) is not None), None)
    return name if name in ("cancel", "touch", "resume", "set_cooldown", "try_acquire") else None


def main() -> None:
    """One line in, one line out."""
    port = Port()
    for line in sys.stdin:
        message = json.loads(line)
        if message.get("cmd") == "bye":
            break
        print(json.dumps(port.handle(message)), flush=True)


if __name__ == "__main__":
    main()
