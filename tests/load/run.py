"""Load and faults, as figures: `python tests/load/run.py [part ...]` prints a Markdown table.

Each part drives a real manager far beyond what a test does, judges the outcome, and names what it measured. It exits
with 1 if any outcome is wrong. Times are those of the machine it runs on; the counts are not.
"""

from __future__ import annotations

import asyncio
import gc
import random
import resource
import signal
import subprocess
import sys
import textwrap
import threading
import time
import tracemalloc
from collections import Counter
from collections.abc import Callable, Iterator

from provider_concurrency import AcquireTimeoutError, ConcurrencyManager, ManagerClosedError, Slot
from provider_concurrency import threading as blocking
from provider_concurrency.testing import VirtualLoop
from provider_concurrency_model.monitor import Monitor

Row = tuple[str, str, bool]
"""What was done, the figures, and whether the outcome is right."""

WAITERS = 100_000


# -- many waiters ----------------------------------------------------------------------------------------------------


def many_waiters() -> Iterator[Row]:
    """1e5 requests that queue at one provider and leave it without a grant; a tenth of it again for the memory."""
    for how in ("cancelled", "timed out", "closed"):
        queue, leave, _, _, right = leave_queue(how, WAITERS)
        leave_queue(how, WAITERS // 10)  # asyncio's own books have grown by then
        tracemalloc.start()
        _, _, kept, rest, _ = leave_queue(how, WAITERS // 10)
        tracemalloc.stop()
        yield (
            f"{WAITERS:,} waiters {how}",
            f"queue {queue:.1f} us each, leave {leave:.1f} us each; {kept} B each queued, {rest} B each afterwards",
            right and rest < 10,
        )


def leave_queue(how: str, count: int) -> tuple[float, float, int, int, bool]:
    """One such run: us to queue and to leave, bytes while queued and afterwards (each), whether all ended rightly."""
    gc.collect()
    loop = VirtualLoop()
    manager = ConcurrencyManager(limits={"p": 1}, clock=loop.time_ns)
    loop.start(manager.acquire("p"))
    before, begun = tracemalloc.get_traced_memory()[0], time.perf_counter()
    tasks = [loop.start(manager.acquire("p", timeout=5.0)) for _ in range(count)]
    queued, kept = time.perf_counter(), tracemalloc.get_traced_memory()[0] - before
    if how == "cancelled":
        for task in tasks:
            task.cancel()
    elif how == "timed out":
        loop.advance(5)
    else:
        manager.close()
    left = time.perf_counter()
    status = manager.get_status("p")
    loop.settle()
    ends = Counter("cancelled" if task.cancelled() else type(task.exception()).__name__ for task in tasks)
    wanted = {"cancelled": "cancelled", "timed out": "AcquireTimeoutError", "closed": "ManagerClosedError"}[how]
    right = status is not None and (status.held, status.queued) == (1, 0) and ends == {wanted: count}
    tasks.clear()
    gc.collect()
    rest = tracemalloc.get_traced_memory()[0] - before
    manager.close()
    loop.close()
    return (queued - begun) / count * 1e6, (left - queued) / count * 1e6, kept // count, rest // count, right


def many_blocked_threads() -> Iterator[Row]:
    """Threads that all wait, then a close, or the end of their timeouts."""
    count = 1000
    for how, wanted in (("closed", ManagerClosedError), ("timed out", AcquireTimeoutError)):
        manager = blocking.ConcurrencyManager(limits={"p": 1})
        manager.acquire("p")
        ends: Counter[type] = Counter()
        due = time.perf_counter() + 4.0

        def wait(
            manager: blocking.ConcurrencyManager = manager,
            ends: Counter[type] = ends,
            due: float | None = due if how == "timed out" else None,
        ) -> None:
            try:
                manager.acquire("p", timeout=None if due is None else max(due - time.perf_counter(), 0.5))
            except (ManagerClosedError, AcquireTimeoutError) as error:
                ends[type(error)] += 1

        threads = [threading.Thread(target=wait) for _ in range(count)]
        for thread in threads:
            thread.start()
        if how == "closed":
            while (status := manager.get_status("p")) is None or status.queued < count:
                time.sleep(0.001)
            due = time.perf_counter()
            manager.close()
        for thread in threads:
            thread.join(30)
        took = time.perf_counter() - due
        manager.close()
        yield (
            f"{count:,} blocked threads {how}",
            f"all back {took * 1e3:.0f} ms after {'the close' if how == 'closed' else 'they were due'}",
            ends == {wanted: count},
        )


def many_providers() -> Iterator[Row]:
    """1e4 providers, each with a holder and a waiter."""
    count = 10_000
    loop = VirtualLoop()
    manager = ConcurrencyManager(default_limit=1, release_cooldown=0.5, clock=loop.time_ns)
    begun = time.perf_counter()
    held = [loop.start(manager.acquire(f"provider {n}")).result() for n in range(count)]
    waiting = [loop.start(manager.acquire(f"provider {n}", timeout=60.0)) for n in range(count)]
    asked = time.perf_counter()
    timers = len(loop.alive_timers())
    statuses = manager.get_status_all()
    read = time.perf_counter()
    for slot in held:
        slot.release()
    loop.advance(0.5)
    moved = time.perf_counter()
    for task in waiting:
        task.result().release()
    loop.advance(60)
    right = len(statuses) == count and not manager._providers and timers <= count + 1
    manager.close()
    loop.close()
    yield (
        f"{count:,} providers",
        f"grant and queue {(asked - begun) / count * 1e6:.0f} us each, {timers:,} timers, status of all "
        f"{(read - asked) * 1e3:.0f} ms, hand-over {(moved - read) / count * 1e6:.0f} us each, "
        f"{len(manager._providers)} remembered a minute later",
        right,
    )


def many_blocking_providers() -> Iterator[Row]:
    """1e4 providers of a blocking manager, each with a slot that cools and an observer that waits for its end."""
    count = 10_000
    told: Counter[str] = Counter()

    def observe(event: str, *_: object) -> None:
        told[event] += 1

    manager = blocking.ConcurrencyManager(default_limit=1, release_cooldown=1.0, observer=observe)
    begun = time.perf_counter()
    for n in range(count):
        manager.acquire(f"provider {n}").release()
    asked = time.perf_counter()
    statuses, wakes = len(manager.get_status_all()), len(manager._wakes)
    read = time.perf_counter()
    while told["recycled"] < count and time.perf_counter() < read + 30:
        time.sleep(0.001)
    over = time.perf_counter()
    left = len(manager.get_status_all())
    manager.close()
    yield (
        f"threads: {count:,} providers that cool at once",
        f"acquire and release {(asked - begun) / count * 1e6:.0f} us each, {wakes:,} wake-ups, status of "
        f"{statuses:,} {(read - asked) * 1e3:.0f} ms, all free {over - asked:.1f} s after the last release",
        told["recycled"] == count and not left and wakes <= count + 1,
    )


# -- callbacks and clocks --------------------------------------------------------------------------------------------


def slow_callbacks() -> Iterator[Row]:
    """An observer that takes 20 ms an event; who isn't called back doesn't wait for it."""
    manager = blocking.ConcurrencyManager(limits={"slow": 1}, observer=lambda *_: time.sleep(0.02), release_cooldown=0)
    over = threading.Event()

    def deliver() -> None:
        while not over.is_set():
            manager.acquire("slow").release()

    deliverer = threading.Thread(target=deliver)
    deliverer.start()
    while not manager._line.waiting:
        time.sleep(0.001)
    waits: list[float] = []
    for n in range(50):
        begun = time.perf_counter()
        manager.get_status("slow")
        manager.set_limit(f"q{n % 5}", 1)
        waits.append(time.perf_counter() - begun)
    over.set()
    deliverer.join(60)
    manager.close()
    waits.sort()
    yield (
        "threads: an observer of 20 ms an event",
        f"another thread's status and set_limit: median {waits[25] * 1e6:.0f} us, longest {waits[-1] * 1e3:.1f} ms",
        waits[25] < 0.02,
    )

    yield deliver_beside_others()

    async def main() -> int:
        reclaimed: list[Slot] = []
        manager = ConcurrencyManager(
            slot_timeout=0.1, watchdog_interval=0.02, on_reclaim=reclaimed.append,
            on_pause=lambda *_: time.sleep(0.3), min_pause=0.0, release_cooldown=0,
        )  # fmt: skip

        async def hold() -> None:
            async with manager.slot("p") as slot:
                for _ in range(40):
                    slot.touch()
                    await asyncio.sleep(0.02)

        holders = [asyncio.create_task(hold()) for _ in range(50)]
        for _ in range(3):
            await asyncio.sleep(0.1)
            manager.report_rate_limit("q", 0.001)
        await asyncio.gather(*holders)
        manager.close()
        return len(reclaimed)

    found = asyncio.run(main())
    yield (
        "asyncio: callbacks that block the loop for 3 x 0.3 s, slot_timeout 0.1 s",
        f"{found} of 50 reclaimed",
        not found,
    )


def deliver_beside_others() -> Row:
    """8 threads that never rest and an observer of 5 ms an event: how long a call keeps the thread that delivers."""
    manager = blocking.ConcurrencyManager(observer=lambda *_: time.sleep(0.005), release_cooldown=0)
    end, longest = time.perf_counter() + 3.0, [0.0] * 8

    def work(n: int) -> None:
        while time.perf_counter() < end:
            begun = time.perf_counter()
            slot = manager.acquire(f"p{n}")
            longest[n] = max(longest[n], time.perf_counter() - begun)
            time.sleep(0.02)  # no more than is delivered meanwhile
            slot.release()

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    manager.close()
    return (
        "threads: 8 that never rest for 3 s, an observer of 5 ms an event",
        f"the longest acquire of any took {max(longest) * 1e3:.0f} ms",
        max(longest) < 1.0,
    )


def stepping_clock() -> Iterator[Row]:
    """A clock that leaps forwards and backwards between any two readings, watched by the monitor."""
    chance, now, steps = random.Random(7), 0, Counter[str]()

    def clock() -> int:
        nonlocal now
        kind = chance.choices(("on", "leap", "back"), (90, 5, 5))[0]
        steps[kind] += 1
        now += {"on": 1_000_000, "leap": 7_200_000_000_000, "back": -3_600_000_000_000}[kind]
        return max(now, 0)

    settings = {"limits": {"p": 2}, "release_cooldown": 0.01}
    monitor = Monitor.from_seconds(**settings)  # type: ignore[arg-type]
    manager = blocking.ConcurrencyManager(**settings, clock=clock, observer=monitor)  # type: ignore[arg-type]
    for turn in range(20_000):
        slot = manager.try_acquire("p")
        if turn % 100 == 0:
            manager.report_rate_limit("p", 0.05)
        if slot is not None:
            slot.touch()
            slot.release()
    manager.close()
    monitor.assert_at_rest()
    yield (
        "a clock that steps by an hour or two",
        f"{steps['leap']:,} leaps, {steps['back']:,} steps back, {monitor.events:,} events, "
        f"{monitor.violation_count} violations",
        monitor.violation_count == 0,
    )


# -- interrupts ------------------------------------------------------------------------------------------------------

LOOP_PROGRAM = """
import asyncio, sys
from provider_concurrency import ConcurrencyManager
manager = ConcurrencyManager(limits={"p": 3}, release_cooldown=0.001)

async def work():
    while True:
        async with manager.slot("p", timeout=5.0):
            await asyncio.sleep(0.0005)

async def main():
    print("ready", flush=True)
    await asyncio.gather(*(work() for _ in range(10)))

try:
    asyncio.run(main())
except KeyboardInterrupt:
    pass
async def after():
    await asyncio.sleep(0.01)
    status = manager.get_status("p")
    assert (status.in_flight, status.queued) == (0, 0), status
    async with manager.slot("p", timeout=1.0):
        pass
asyncio.run(after())
"""

THREAD_PROGRAM = """
import sys, threading, time
from provider_concurrency.threading import ConcurrencyManager
manager = ConcurrencyManager(limits={"p": 3}, release_cooldown=0.001, slot_timeout=1, watchdog_interval=0.2)
over = threading.Event()

def work(hold):
    while not over.is_set():
        with manager.slot("p", timeout=5.0):
            time.sleep(hold)

threads = [threading.Thread(target=work, args=(0.0005,)) for _ in range(4)]
for thread in threads: thread.start()
try:
    print("ready", flush=True)
    work(HOLD)
except KeyboardInterrupt:
    pass
over.set()
for thread in threads: thread.join(10)
assert not any(thread.is_alive() for thread in threads), "hangs"
end = time.monotonic() + 5
while (status := manager.get_status("p")).in_flight or status.queued:  # a slot lost on the way is the watchdog's
    assert time.monotonic() < end, status
    time.sleep(0.01)
for _ in range(3): manager.acquire("p", timeout=2.0)
END
manager.close()
"""

OBSERVED = {
    "slot_timeout=1,": "slot_timeout=1, observer=lambda *_: told.append(1), on_pause=lambda *_: time.sleep(0.0001),",
    "over = threading.Event()": "over = threading.Event(); told = []",
    "        with manager.slot": "        manager.report_rate_limit('q'); del told[:-9]\n        with manager.slot",
    "END": """
told.clear()
manager.set_limit("p", 2)
end = time.monotonic() + 5
while not told:  # somebody still delivers
    assert time.monotonic() < end, "nobody delivers any more"
    time.sleep(0.01)
""",
}
"""What turns THREAD_PROGRAM into one that is mostly interrupted while it delivers."""


def adapt(changes: dict[str, str]) -> str:
    """THREAD_PROGRAM with some of its text replaced."""
    program = THREAD_PROGRAM
    for text, other in changes.items():
        assert text in program, text
        program = program.replace(text, other)
    return program


def interrupts() -> Iterator[Row]:
    """SIGINT at random moments of real programs, which then look at their manager."""
    chance = random.Random(11)
    parts = (
        ("asyncio.run", LOOP_PROGRAM),
        ("main thread that holds slots for 2 ms", adapt({"HOLD": "0.002", "END": ""})),
        (
            "main thread that does nothing but acquire and release",
            adapt({"HOLD": "0", "END": "", "0.0005": "0", "0.001,": "0,"}),
        ),
        ("main thread that is mostly delivering", adapt(OBSERVED | {"HOLD": "0", "0.0005": "0"})),
    )
    for name, program in parts:
        ends: Counter[str] = Counter()
        for _ in range(30):
            process = subprocess.Popen(
                [sys.executable, "-c", textwrap.dedent(program)],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            assert process.stdout is not None
            process.stdout.readline()
            time.sleep(chance.uniform(0.0, 0.1))
            process.send_signal(signal.SIGINT)
            try:
                _, told = process.communicate(timeout=40)
            except subprocess.TimeoutExpired:
                process.kill()
                process.communicate()
                ends["hung"] += 1
            else:
                ends["sound" if process.returncode == 0 else told.strip().splitlines()[-1][:90]] += 1
        yield (f"SIGINT, 30 times: {name}", ", ".join(f"{n} {end}" for end, n in ends.items()), set(ends) == {"sound"})


# -- the garbage collector, memory -----------------------------------------------------------------------------------

COLLECT = """
import gc, sys
from provider_concurrency_model.check.entry import main
gc.freeze()
gc.set_threshold(1)
sys.argv = ["provider-concurrency", "check", "--level", "scenarios,random", "--runs", "60", "--subject", sys.argv[1]]
main()
"""

FINALISERS = """
import gc, threading
from provider_concurrency.threading import ConcurrencyManager
from provider_concurrency_model.monitor import Monitor
settings = {"limits": {"p": 3, "q": 2}, "release_cooldown": 0.0}
monitors = [Monitor.from_seconds(**settings) for _ in range(2)]
managers = [ConcurrencyManager(**settings, observer=monitor) for monitor in monitors]

class Forgetful:
    def __init__(self, slot):
        self.slot, self.me = slot, self  # only the collector finds it
    def __del__(self):
        self.slot.release()

gc.freeze()
gc.set_threshold(1)

def work(n):
    for turn in range(150):
        slot = managers[(n + turn) % 2].acquire("pq"[turn % 2], timeout=20.0)
        slot.touch()
        Forgetful(slot)
        del slot

threads = [threading.Thread(target=work, args=(n,), daemon=True) for n in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join(60)
assert not any(thread.is_alive() for thread in threads), "a deadlock"
gc.collect()
for manager, monitor in zip(managers, monitors):
    manager.get_status("p")
    monitor.assert_at_rest()
    manager.close()
    manager.wait_closed(5)
print(sum(monitor.counts["granted"] for monitor in monitors))
"""


def collector() -> Iterator[Row]:
    """A collection at every allocation."""
    for subject in ("provider_concurrency.port:Port", "provider_concurrency.threading_port:Port"):
        begun = time.perf_counter()
        done = subprocess.run(
            [sys.executable, "-c", COLLECT, subject], capture_output=True, text=True, timeout=300, check=False
        )
        told = "; ".join(line for line in done.stdout.splitlines() if "replies compared" in line) or done.stderr[-90:]
        yield (f"gc.set_threshold(1): {subject}", f"{told} ({time.perf_counter() - begun:.0f} s)", done.returncode == 0)
    done = subprocess.run([sys.executable, "-c", FINALISERS], capture_output=True, text=True, timeout=200, check=False)
    told = f"{done.stdout.strip()} grants" if done.returncode == 0 else done.stderr.strip().splitlines()[-1][:90]
    yield ("gc.set_threshold(1): 4 threads, 2 managers, slots released by finalisers", told, done.returncode == 0)


def resident_kib() -> int:
    """The memory of this process now."""
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * resource.getpagesize() // 1024


def memory() -> Iterator[Row]:
    """1e6 requests, half of which queue; the memory after the first tenth and at the end."""
    total = 1_000_000

    async def on_a_loop() -> tuple[int, int]:
        manager = ConcurrencyManager(limits={"p": 2}, release_cooldown=0)
        done, first = 0, 0

        async def work() -> None:
            nonlocal done, first
            while done < total:
                async with manager.slot("p", timeout=5.0):
                    done += 1
                    if done == total // 10:
                        gc.collect()
                        first = resident_kib()
                    if done % 2:
                        await asyncio.sleep(0)

        await asyncio.gather(*(work() for _ in range(4)))
        manager.close()
        return first, resident_kib()

    def in_threads() -> tuple[int, int]:
        manager = blocking.ConcurrencyManager(limits={"p": 2}, release_cooldown=0)
        first = 0

        def work(count: int) -> None:
            for _ in range(count):
                with manager.slot("p", timeout=5.0):
                    pass

        for share in (total // 10, total - total // 10):
            threads = [threading.Thread(target=work, args=(share // 4,)) for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            first = first or resident_kib()
        manager.close()
        return first, resident_kib()

    runs: dict[str, Callable[[], tuple[int, int]]] = {
        "asyncio": lambda: asyncio.run(on_a_loop()),
        "threads": in_threads,
    }
    for name, run in runs.items():
        begun = time.perf_counter()
        first, last = run()
        each = (time.perf_counter() - begun) / total * 1e6
        yield (
            f"{name}: {total:,} requests",
            f"{first:,} KiB after a tenth, {last:,} KiB at the end, {each:.1f} us each",
            last - first < 1024,
        )


PARTS: dict[str, Callable[[], Iterator[Row]]] = {
    "waiters": many_waiters,
    "threads": many_blocked_threads,
    "providers": many_providers,
    "blocking providers": many_blocking_providers,
    "callbacks": slow_callbacks,
    "clock": stepping_clock,
    "interrupts": interrupts,
    "collector": collector,
    "memory": memory,
}


def main(chosen: list[str]) -> int:
    """Runs the parts that were named, else all of them."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it, and so its children
    print("| what | figures | right |\n|---|---|---|", flush=True)
    all_right = True
    for name in chosen or PARTS:
        for what, figures, right in PARTS[name]():
            all_right &= right
            print(f"| {what} | {figures} | {'yes' if right else 'NO'} |", flush=True)
    return 0 if all_right else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
