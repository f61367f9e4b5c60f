"""The growth curves in the README: cost per request against the depth of the queue, ours beside the peers'.

python -m tests.bench.growth          # measures (some minutes), writes growth.json, draws growth.svg
python -m tests.bench.growth --draw   # draws growth.svg from growth.json, the same bytes each time
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from . import cancellation, deep_queue
from .report import describe_environment

DATA: Final = Path(__file__).with_name("growth.json")
PICTURE: Final = Path(__file__).with_name("growth.svg")

_DEPTHS: Final = (10, 30, 100, 300, 1_000, 3_000, 10_000, 30_000, 100_000)
_REPEATS: Final = 3
_COLOURS: Final = {
    "this library": "#0a5fb4",
    "asyncio.Semaphore": "#c2410c",
    "anyio.CapacityLimiter": "#7c3aed",
    "naive port": "#b91c1c",
    "bare futures": "#6b7280",
}


@dataclass(frozen=True, slots=True)
class Curve:
    """One contestant; `deepest` is where its own cost forbids to go on."""

    name: str
    run: Callable[[int], float]
    """CPU time in ns per request at a depth."""
    deepest: int = 100_000


@dataclass(frozen=True, slots=True)
class Panel:
    """One picture of the three."""

    title: str
    curves: tuple[Curve, ...]


def _push_and_pop(depth: int) -> float:
    return deep_queue.push_and_pop(2_000, depth)


def _sort_and_pop(depth: int) -> float:
    return deep_queue.sort_and_pop(max(3, 20_000 // depth), depth)


PANELS: Final = (
    Panel(
        "to queue and be granted",
        (
            Curve("this library", deep_queue.drain_manager),
            Curve("asyncio.Semaphore", deep_queue.drain_semaphore),
            Curve("anyio.CapacityLimiter", deep_queue.drain_capacity_limiter),
            Curve("naive port", deep_queue.drain_naive, deepest=3_000),
        ),
    ),
    Panel(
        "to be cancelled in the queue",
        (
            Curve("this library", cancellation.cancel_requests),
            Curve("asyncio.Semaphore", cancellation.cancel_semaphore_waiters, deepest=30_000),
            Curve("bare futures", cancellation.cancel_bare_futures),
        ),
    ),
    Panel(
        "the queue alone: push + pop",
        (
            Curve("this library", _push_and_pop),
            Curve("naive port", _sort_and_pop),
        ),
    ),
)


def measure(depths: Sequence[int] = _DEPTHS, repeats: int = _REPEATS) -> dict[str, Any]:
    """Every curve at every depth that it can bear: the median of some runs, in microseconds."""
    panels: list[dict[str, Any]] = []
    for panel in PANELS:
        curves: list[dict[str, Any]] = []
        for curve in panel.curves:
            bearable = [depth for depth in depths if depth <= curve.deepest]
            points = [[depth, _median_us(curve.run, depth, repeats)] for depth in bearable]
            curves.append({"name": curve.name, "points": points})
        panels.append({"title": panel.title, "curves": curves})
        print(f"measured: {panel.title}", file=sys.stderr, flush=True)
    return {"format": 1, "unit": "us", "environment": describe_environment(), "panels": panels}


def _median_us(run: Callable[[int], float], depth: int, repeats: int) -> float:
    costs: list[float] = []
    for _ in range(repeats):
        gc.collect()
        costs.append(run(depth))
    return float(f"{statistics.median(costs) / 1_000:.3g}")


def draw(data: dict[str, Any], picture: Path) -> None:
    """Draws the curves as SVG, its text as text; the same data give the same bytes."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context(
        {"svg.hashsalt": "growth", "svg.fonttype": "none", "font.family": "sans-serif", "font.size": 9}
    ):
        figure = Figure(figsize=(11, 3.8), layout="constrained", facecolor="white")
        axes = figure.subplots(1, len(data["panels"]), squeeze=False)[0]
        for axis, panel in zip(axes, data["panels"], strict=True):
            for curve in panel["curves"]:
                depths, costs = zip(*curve["points"], strict=True)
                axis.loglog(depths, costs, marker=".", label=curve["name"], color=_COLOURS[curve["name"]])
            axis.set_title(panel["title"], fontsize=10)
            axis.set_xlabel("requests in the queue")
            axis.grid(visible=True, which="major", color="#e5e7eb", linewidth=0.6)
            axis.spines[["top", "right"]].set_visible(False)
            axis.legend(frameon=False, fontsize=8)
        axes[0].set_ylabel("CPU time per request, µs")
        environment = data["environment"]
        figure.supxlabel(f"{environment['implementation']} {environment['python']}", fontsize=7, color="#6b7280")
        figure.savefig(picture, format="svg", metadata={"Date": None, "Creator": None})


def main(arguments: Sequence[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.growth", description=__doc__)
    parser.add_argument("--draw", action="store_true", help="don't measure, draw what growth.json holds")
    options = parser.parse_args(arguments)
    if not options.draw:
        DATA.write_text(json.dumps(measure(), indent=1) + "\n")
    draw(json.loads(DATA.read_text()), PICTURE)
    return 0


if __name__ == "__main__":
    sys.exit(main())
