"""The experiment that the release cooldown exists for: real SDK clients against a provider whose counter lags.

    python tests/experiment/lag.py --cooldown 0,100,200,350 --lag 0,100,200,350

Each cell starts a provider, sends `waves` times `limit` requests at once through an OpenAI and an Anthropic client,
half each, and counts the requests that found the provider's counter full, its 429s, and the throughput as a share of
the ideal L/(s+c): limit over service time plus cooldown. Times are milliseconds; a lag is a number, or
uniform:LEAST:MOST, or bimodal:SHORT:LONG:SHARE. `--scale` shrinks every time alike. `--out` writes the table, the
picture and the recorded trace of one overshoot; `--check` fails unless cooldown >= lag, and nothing less, holds.
"""

from __future__ import annotations

import argparse
import asyncio
import io
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anthropic
import httpx2
import openai

sys.path.insert(0, str(Path(__file__).parent.parent))  # it runs as a script, too
sys.path.insert(0, str(Path(__file__).parent))

from picture import draw

from lagging_provider import Behaviour, lagging_provider
from provider_concurrency import ConcurrencyManager
from provider_concurrency.integrations.httpx2 import LimitedTransport, limited_client
from provider_concurrency.trace import Recorder

Client = Callable[[ConcurrencyManager], httpx2.AsyncClient]
QUESTION: Any = [{"role": "user", "content": "why?"}]


@dataclass(frozen=True)
class Setting:
    """What all cells have in common; seconds, before scaling."""

    limit: int = 4
    service: float = 0.4
    penalty: float = 1.0
    waves: int = 4
    scale: float = 1.0


@dataclass
class Cell:
    """One run."""

    cooldown: float  # ms, as asked for
    lag: str  # as asked for
    overshoots: int = 0
    refused: int = 0
    peak: int = 0
    share: float = 0.0
    trace: str = ""
    server: list[tuple[float, str, int]] = field(default_factory=list[tuple[float, str, int]])
    born: float = 0.0  # the trace's zero, on the server's clock

    @property
    def holds(self) -> bool:
        return self.overshoots == 0

    @property
    def longest_lag(self) -> float:
        kind, *numbers = self.lag.split(":")
        return float(kind) if not numbers else float(numbers[1])


class HeadReleasing(LimitedTransport):
    """The planted mistake: the slot is given back one step too early, at the response's head."""

    def _hold(self, response: Any, lease: Any) -> None:
        lease.give_back()


def plant_head(manager: ConcurrencyManager) -> httpx2.AsyncClient:
    return httpx2.AsyncClient(transport=HeadReleasing(manager, provider="umans"), timeout=60.0)


def honest(manager: ConcurrencyManager) -> httpx2.AsyncClient:
    return limited_client(manager, provider="umans")


def scale_lag(lag: str, scale: float) -> str:
    """Milliseconds as they were asked for, as the provider takes them: seconds."""
    kind, *numbers = lag.split(":")
    if not numbers:
        return f"fixed:{float(kind) / 1000 * scale}"
    ends = [str(float(number) / 1000 * scale) for number in numbers[:2]]
    return f"{kind}:{','.join([*ends, *numbers[2:]])}"


async def run_cell(cooldown: float, lag: str, setting: Setting, make_client: Client = honest) -> Cell:
    """One cell; `cooldown` in ms."""
    cell = Cell(cooldown, lag)
    scale = setting.scale
    seconds, service = cooldown / 1000 * scale, setting.service * scale
    penalty = setting.penalty * scale
    behaviour = Behaviour(limit=setting.limit, lag=scale_lag(lag, scale), service=service, penalty=penalty)
    buffer = io.StringIO()
    recorder = Recorder(buffer)
    async with lagging_provider(behaviour) as provider:
        manager = ConcurrencyManager(
            limits={"umans": setting.limit},
            release_cooldown=seconds,
            default_pause=max(penalty, 0.1),
            min_pause=min(penalty, 0.1),
            observer=recorder,
        )
        cell.born = manager._born / 1e9
        recorder.begin(manager)
        http = make_client(manager)
        options: dict[str, Any] = {"api_key": "none", "http_client": http, "max_retries": 50}
        asks = [
            ask_openai(openai.AsyncOpenAI(base_url=f"{provider.url}/v1", **options)),
            ask_anthropic(anthropic.AsyncAnthropic(base_url=provider.url, **options)),
        ]
        for ask in asks:  # the first request of an SDK pays for its set-up
            await ask()
        await asyncio.sleep(cell.longest_lag / 1000 * scale + seconds)
        count = setting.limit * setting.waves
        began = time.monotonic()
        await asyncio.gather(*(asks[number % 2]() for number in range(count)))
        took = time.monotonic() - began
        await http.aclose()
        manager.close()
        figures = provider.figures
    cell.overshoots, cell.refused, cell.peak = figures.overshoots, figures.refused, figures.peak
    cell.share = (count / (took + seconds)) / (setting.limit / (service + seconds))
    cell.trace, cell.server = buffer.getvalue(), figures.events
    return cell


def ask_openai(client: openai.AsyncOpenAI) -> Callable[[], Any]:
    async def ask() -> None:
        async for _ in await client.chat.completions.create(model="m", messages=QUESTION, stream=True):
            pass

    return ask


def ask_anthropic(client: anthropic.AsyncAnthropic) -> Callable[[], Any]:
    async def ask() -> None:
        async with client.messages.stream(model="m", max_tokens=9, messages=QUESTION) as stream:
            async for _ in stream.text_stream:
                pass

    return ask


async def run_all(
    cooldowns: list[float], lags: list[str], setting: Setting, make_client: Client = honest
) -> list[Cell]:
    cells: list[Cell] = []
    for lag in lags:
        for cooldown in cooldowns:
            cells.append(await run_cell(cooldown, lag, setting, make_client))
            print(".", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    return cells


def tabulate(cells: list[Cell], cooldowns: list[float], lags: list[str]) -> str:
    """The cells as a Markdown table, and which cooldown holds for which lag."""
    found = {(cell.cooldown, cell.lag): cell for cell in cells}
    lines = [
        "overshoots / 429s / throughput as a share of the ideal L/(s+c)",
        "",
        "| | " + " | ".join(f"lag {lag} ms" for lag in lags) + " |",
        "|---|" + "---|" * len(lags),
    ]
    for cooldown in cooldowns:
        row = [found[cooldown, lag] for lag in lags]
        shown = [f"{cell.overshoots} / {cell.refused} / {cell.share:.0%}" for cell in row]
        lines.append(f"| cooldown {cooldown:g} ms | " + " | ".join(shown) + " |")
    lines.append("")
    for lag in lags:
        holding = [cooldown for cooldown in cooldowns if found[cooldown, lag].holds]
        lines.append(f"- lag {lag} ms: " + (f"a cooldown of {min(holding):g} ms holds" if holding else "none holds"))
    return "\n".join(lines) + "\n"


def find_mistakes(cells: list[Cell]) -> list[str]:
    """What speaks against "cooldown >= lag holds, and nothing less does"."""
    mistakes: list[str] = []
    for cell in cells:
        where = f"cooldown {cell.cooldown:g} ms, lag {cell.lag} ms: {cell.overshoots} overshoots, peak {cell.peak}"
        if cell.cooldown >= cell.longest_lag and not cell.holds:
            mistakes.append(f"{where}, though the cooldown covers the lag")
        if ":" not in cell.lag and cell.cooldown < cell.longest_lag and cell.holds:
            mistakes.append(f"{where}, though the cooldown is shorter than the lag")
    return mistakes


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cooldown", default="0,100,200,350")
    parser.add_argument("--lag", default="0,100,200,350")
    parser.add_argument("--limit", type=int, default=4)
    parser.add_argument("--service", type=float, default=400.0, help="of one request, ms")
    parser.add_argument("--penalty", type=float, default=1000.0, help="after a 429, ms")
    parser.add_argument("--waves", type=int, default=4)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--plant", choices=["head"], help="give slots back at the response head, a known mistake")
    parser.add_argument("--out", type=Path, help="folder for lag.md, lag.svg and overshoot.ndjson")
    parser.add_argument("--check", action="store_true")
    asked = parser.parse_args(arguments)
    cooldowns = [float(number) for number in asked.cooldown.split(",")]
    lags: list[str] = asked.lag.split(",")
    setting = Setting(asked.limit, asked.service / 1000, asked.penalty / 1000, asked.waves, asked.scale)
    make_client = plant_head if asked.plant else honest
    cells = asyncio.run(run_all(cooldowns, lags, setting, make_client))
    table = tabulate(cells, cooldowns, lags)
    print(table)
    if asked.out is not None:
        asked.out.mkdir(parents=True, exist_ok=True)
        (asked.out / "lag.md").write_text(table)
        overshooting = next((cell for cell in cells if not cell.holds and cell.cooldown > 0), None)
        (asked.out / "lag.svg").write_text(draw(cells, cooldowns, lags, overshooting, setting.limit))
        if overshooting is not None:
            (asked.out / "overshoot.ndjson").write_text(overshooting.trace)
    mistakes = find_mistakes(cells) if asked.check else []
    for mistake in mistakes:
        print(mistake, file=sys.stderr)
    return 1 if mistakes else 0


if __name__ == "__main__":
    sys.exit(main())
