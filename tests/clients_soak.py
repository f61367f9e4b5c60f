"""Real SDK clients for a while, with everything that goes wrong: nothing may leak, and the provider is never overrun.

    python tests/clients_soak.py --seconds 60 --record soak.ndjson     # in CI
    python tests/clients_soak.py --seconds 600                         # on demand

A lagging provider runs in a process of its own. Workers send whole and streamed requests through the OpenAI and the
Anthropic SDK and read to the end, close early, are cancelled at a random moment, die between two chunks while their
task is kept, forget the stream, or close a client under an open one; the provider stalls, truncates and resets. A
monitor watches alongside, the trace is recorded and judged afterwards. Exit code 1 and a list say what was wrong.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import io
import json
import random
import resource
import sys
import tempfile
import time
import warnings
from collections import Counter, deque
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import anthropic
import httpx2
import openai

from provider_concurrency import AcquireTimeoutError, ConcurrencyManager
from provider_concurrency.context import conversation
from provider_concurrency.errors import ProviderConcurrencyError
from provider_concurrency.events import tee
from provider_concurrency.guard import Lease
from provider_concurrency.integrations.httpx2 import limited_client
from provider_concurrency.trace import Recorder
from provider_concurrency_model.check.trace import judge_trace
from provider_concurrency_model.monitor import Monitor

LIMIT = 4
LAG = "uniform:0.02,0.08"  # seconds
COOLDOWN = 0.25  # the longest lag, and time for the provider to notice that a client is gone
SETTINGS: dict[str, Any] = {
    "limits": {"p": LIMIT},
    "release_cooldown": COOLDOWN,
    "slot_timeout": 1.0,
    "watchdog_interval": 0.25,
    "default_pause": 0.5,
    "min_pause": 0.1,
    "max_queued": 40,
}
QUESTION: Any = [{"role": "user", "content": "why?"}]
Open = Callable[[], Awaitable[Any]]


@dataclass
class Report:
    """What a run has shown; `wrong` is empty if all is well."""

    seconds: float
    outcomes: dict[str, int] = field(default_factory=dict[str, int])
    server: dict[str, Any] = field(default_factory=dict[str, Any])
    events: int = 0
    reclaimed: int = 0
    rss_mib: list[float] = field(default_factory=list[float])
    timers: list[int] = field(default_factory=list[int])
    leases: list[int] = field(default_factory=list[int])
    leases_before: int = 0  # what others in this process have left
    trace: str = ""
    wrong: list[str] = field(default_factory=list[str])


class Soak:
    """The clients, and what they have done."""

    def __init__(self, url: str, manager: ConcurrencyManager, seed: int) -> None:
        self.url, self.manager = url, manager
        self.random = random.Random(seed)
        self.outcomes: Counter[str] = Counter()
        self.dead: deque[asyncio.Task[None]] = deque(maxlen=50)  # kept: their frames still hold streams
        self.http = [self.make_http(), self.make_http(first_byte_timeout=0.5, acquire_timeout=2.0)]
        self.opens = [open_ for http in self.http for open_ in self.make_opens(http)]

    def make_http(self, **options: Any) -> httpx2.AsyncClient:
        # 3 s: the SDKs take 5 s, httpx2's default, for "not set", and wait ten minutes for a provider that stalls
        return limited_client(self.manager, httpx2.AsyncClient(timeout=3.0, verify=False), provider="p", **options)

    def make_opens(self, http: httpx2.AsyncClient) -> list[Open]:
        """Ways to open a stream through a client."""
        options: dict[str, Any] = {"api_key": "none", "http_client": http, "max_retries": 1}
        gpt = openai.AsyncOpenAI(base_url=f"{self.url}/v1", **options)
        claude = anthropic.AsyncAnthropic(base_url=self.url, **options)
        return [
            lambda: gpt.chat.completions.create(model="m", messages=QUESTION, stream=True),
            lambda: claude.messages.create(model="m", max_tokens=9, messages=QUESTION, stream=True),
            lambda: _as_stream(gpt.chat.completions.create(model="m", messages=QUESTION)),
            lambda: _as_stream(claude.messages.create(model="m", max_tokens=9, messages=QUESTION)),
        ]

    async def work(self, until: float, name: str) -> None:
        """One worker: a request after the other, each to its own end."""
        ways = [self.read_all, self.read_all, self.close_early, self.cancel, self.die, self.forget, self.close_client]
        while time.monotonic() < until:
            way, open_ = self.random.choice(ways), self.random.choice(self.opens)
            outcome = way.__name__
            try:
                with conversation(name):
                    await way(open_)
            except AcquireTimeoutError:
                outcome = "acquire timeout"
            except (ProviderConcurrencyError, openai.OpenAIError, anthropic.AnthropicError, httpx2.HTTPError) as error:
                outcome = type(error).__name__
            self.outcomes[outcome] += 1

    async def read_all(self, open_: Open) -> None:
        async for _ in await open_():
            pass

    async def close_early(self, open_: Open) -> None:
        stream = await open_()
        async for _ in stream:
            break
        await stream.close()

    async def cancel(self, open_: Open) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self.random.uniform(0, 0.6)):
                await self.read_all(open_)

    async def die(self, open_: Open) -> None:
        async def consume() -> None:
            async for _ in await open_():
                await asyncio.sleep(0.05)
                if self.random.random() < 0.3:
                    raise ZeroDivisionError

        task = asyncio.create_task(consume())
        self.dead.append(task)
        await asyncio.wait([task], timeout=self.random.uniform(0, 0.6))
        task.cancel()
        await asyncio.wait([task])
        if not task.cancelled():
            task.exception()

    async def forget(self, open_: Open) -> None:
        await open_()

    async def close_client(self, _: Open) -> None:
        http = self.make_http()
        stream = await self.random.choice(self.make_opens(http))()
        async for _ in stream:
            break
        await http.aclose()


class _Whole:
    """A whole answer, treated like a stream of one item."""

    async def __aiter__(self) -> AsyncIterator[str]:
        yield "answer"

    async def close(self) -> None:
        """There is nothing to close."""


async def _as_stream(answer: Awaitable[Any]) -> _Whole:
    await answer
    return _Whole()


@contextlib.asynccontextmanager
async def provider_process(seed: int) -> AsyncIterator[str]:
    program = Path(__file__).parent / "lagging_provider.py"
    behaviour = {"limit": LIMIT, "lag": LAG, "service": 0.1, "penalty": 0.5, "stall": 0.02, "truncate": 0.03,
                 "reset": 0.03, "seed": seed}  # fmt: skip
    arguments = [word for name, value in behaviour.items() for word in (f"--{name}", str(value))]
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(program), *arguments, stdout=asyncio.subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        yield (await process.stdout.readline()).decode().strip()
    finally:
        process.terminate()
        await process.wait()


async def soak(seconds: float, stream: Any, *, workers: int = 16, seed: int = 0) -> Report:
    report = Report(seconds, leases_before=_count_leases())
    monitor, recorder = Monitor.from_seconds(**SETTINGS, resumes=False), Recorder(stream)
    manager = ConcurrencyManager(**SETTINGS, observer=tee(recorder, monitor))
    recorder.begin(manager)
    async with provider_process(seed) as url:
        soak = Soak(url, manager, seed)
        until = time.monotonic() + seconds
        crew = [asyncio.create_task(soak.work(until, f"c{number}")) for number in range(workers)]
        while any(not task.done() for task in crew):
            await asyncio.wait(crew, timeout=max(seconds / 20, 0.5))
            _measure(report)
        for task in crew:
            if (error := task.exception()) is not None:
                report.wrong.append(f"a worker failed: {error!r}")
        for http in soak.http:
            await http.aclose()
        soak.dead.clear()
        gc.collect()
        await asyncio.sleep(2 * COOLDOWN)
        report.wrong += _judge_manager(manager)
        manager.close()
        await manager.wait_closed(timeout=5)
        await asyncio.sleep(0.1)  # closed timers leave the loop's list when it comes to them
        _measure(report)
        report.server = await _read_stats(url)
        report.outcomes = dict(soak.outcomes)
    report.events, report.reclaimed = monitor.events, monitor.counts.get("reclaimed", 0)
    report.wrong += [str(violation) for violation in monitor.violations]
    report.wrong += _judge_server(report.server) + _judge_growth(report)
    return report


async def _read_stats(url: str) -> dict[str, Any]:
    async with httpx2.AsyncClient(verify=False) as client:
        while True:
            stats: dict[str, Any] = (await client.get(f"{url}/stats")).json()
            if stats["count"] == 0:
                return stats
            await asyncio.sleep(0.1)


def _measure(report: Report) -> None:
    loop: Any = asyncio.get_running_loop()
    report.timers.append(sum(not timer.cancelled() for timer in loop._scheduled))
    report.rss_mib.append(_read_rss())
    report.leases.append(_count_leases() - report.leases_before)


def _count_leases() -> int:
    return sum(isinstance(thing, Lease) for thing in gc.get_objects())


def _read_rss() -> float:
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return pages * resource.getpagesize() / 2**20
    except OSError:  # no /proc here: the peak is all there is
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _judge_manager(manager: ConcurrencyManager) -> list[str]:
    status = manager.get_status("p")
    if status is None or (status.in_flight == status.queued == 0):
        return []
    return [f"something is left at the end: {status}", *map(repr, manager.get_slots("p"))]


def _judge_server(stats: dict[str, Any]) -> list[str]:
    wrong: list[str] = []
    if stats["peak"] > LIMIT or stats["overshoots"] or stats["refused"]:
        wrong.append(f"the provider was overrun: {stats}")
    if stats["active"]:
        wrong.append(f"{stats['active']} sessions are still open at the provider")
    return wrong


def _judge_growth(report: Report) -> list[str]:
    """Flat means: the last quarter looks like the second."""
    wrong: list[str] = []
    quarter = max(len(report.rss_mib) // 4, 1)
    early, late = report.rss_mib[quarter : 2 * quarter], report.rss_mib[-quarter:]
    if early and max(late) > max(early) + 8 and report.seconds >= 30:
        wrong.append(f"memory grows: {max(early):.1f} MiB, later {max(late):.1f} MiB")
    if report.timers[-1] > 2:
        wrong.append(f"{report.timers[-1]} timers are left")
    if max(report.timers) > 120:
        wrong.append(f"up to {max(report.timers)} timers were armed at once")
    if report.leases[-1] > 5:
        wrong.append(f"{report.leases[-1]} leases are left")
    return wrong


def judge_file(path: Path, report: Report) -> None:
    """Judges the recorded trace as `provider-concurrency trace` does."""
    with path.open() as lines:
        verdict = judge_trace(lines)
    report.trace = verdict.outcome
    if verdict.outcome != "conforms":
        report.wrong.append(f"the trace: {verdict}")


def run(seconds: float, path: Path | None = None, *, workers: int = 16, seed: int = 0) -> Report:
    warnings.filterwarnings("ignore", "a stream of provider", ResourceWarning)
    with tempfile.TemporaryDirectory() as folder:
        path = path or Path(folder, "soak.ndjson")
        with path.open("w") as stream:
            assert isinstance(stream, io.TextIOBase)
            report = asyncio.run(soak(seconds, stream, workers=workers, seed=seed))
        judge_file(path, report)
    return report


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--workers", type=int, default=16)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--record", type=Path, help="where the trace goes (default: judged, then dropped)")
    asked = parser.parse_args()
    report = run(asked.seconds, asked.record, workers=asked.workers, seed=asked.seed)
    shown = asdict(report)
    for name in ("rss_mib", "timers", "leases"):
        values = shown.pop(name)
        print(f"{name}: " + " ".join(f"{value:.0f}" for value in values))
    print(json.dumps(shown, indent=2))
    return 1 if report.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
