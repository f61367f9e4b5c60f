"""The experiment's picture, as an SVG that needs no plotting library: the cells, and one overshoot in time."""

from __future__ import annotations

import json
from html import escape
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lag import Cell

GOOD, BAD, MANAGER, PROVIDER, GREY = "#2e7d5b", "#b3392f", "#2457a6", "#c77700", "#767676"
FONT = 'font-family="system-ui, sans-serif"'


def draw(cells: list[Cell], cooldowns: list[float], lags: list[str], overshooting: Cell | None, limit: int) -> str:
    """A table of the cells; below it the manager's and the provider's count around the first overshoot of one."""
    width = max(190 + 140 * len(lags), 760)
    table = _draw_cells(cells, cooldowns, lags)
    height = 90 + 44 * len(cooldowns)
    timeline = ""
    if overshooting is not None:
        timeline = f'<g transform="translate(0 {height})">{_draw_overshoot(overshooting, limit, width)}</g>'
        height += 300
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'{FONT} font-size="13"><rect width="100%" height="100%" fill="#ffffff"/>{table}{timeline}</svg>\n'
    )


def _text(x: float, y: float, content: str, colour: str = "#222222", **more: str) -> str:
    attributes = "".join(f' {name.replace("_", "-")}="{value}"' for name, value in more.items())
    return f'<text x="{x:.1f}" y="{y:.1f}" fill="{colour}"{attributes}>{escape(content)}</text>'


def _draw_cells(cells: list[Cell], cooldowns: list[float], lags: list[str]) -> str:
    found = {(cell.cooldown, cell.lag): cell for cell in cells}
    parts = [_text(20, 28, "Overshoots (429s), and throughput as a share of the ideal", font_weight="bold")]
    parts += [_text(190 + 140 * x, 58, f"lag {lag} ms", GREY) for x, lag in enumerate(lags)]
    for y, cooldown in enumerate(cooldowns):
        top = 70 + 44 * y
        parts.append(_text(20, top + 23, f"cooldown {cooldown:g} ms", GREY))
        for x, lag in enumerate(lags):
            cell = found[cooldown, lag]
            left, colour = 180 + 140 * x, GOOD if cell.holds else BAD
            parts.append(f'<rect x="{left}" y="{top}" width="132" height="36" rx="5" fill="{colour}"/>')
            label = f"{cell.overshoots} ({cell.refused}) · {cell.share:.0%}"
            parts.append(_text(left + 66, top + 23, label, "#ffffff", text_anchor="middle"))
    return "".join(parts)


def _draw_overshoot(cell: Cell, limit: int, width: int) -> str:
    overshoot = next(moment for moment, what, _ in cell.server if what == "overshoot")
    ends = [moment for moment, what, _ in cell.server if what == "end" and moment < overshoot]
    span = overshoot - ends[-min(limit, len(ends))]
    start, stop = overshoot - 2.5 * span, overshoot + 1.2 * span
    lines: list[dict[str, Any]] = [json.loads(line) for line in cell.trace.splitlines()[1:]]
    manager = [(cell.born + line["t"] / 1e9, line["post"]["in_flight"]) for line in lines]
    streams: list[tuple[float, int]] = []
    for line in lines:
        change = {"granted": 1, "released": -1}.get(line["event"], 0)
        streams.append((cell.born + line["t"] / 1e9, (streams[-1][1] if streams else 0) + change))
    provider = [(moment, count) for moment, what, count in cell.server if what in ("begin", "end", "forgotten")]

    def place(moment: float, count: float) -> tuple[float, float]:
        return 60 + (moment - start) / (stop - start) * (width - 100), 240 - count * 160 / (limit + 1)

    def steps(points: list[tuple[float, int]], colour: str, shift: float, dashes: str = "none") -> str:
        count = 0
        path: list[str] = []
        for moment, next_count in [*sorted(points, key=lambda point: point[0]), (stop, -1)]:
            if moment >= start:
                x, y = place(min(moment, stop), count)
                path.append(f"{x:.1f},{y + shift:.1f}")
            if moment > stop or next_count < 0:
                break
            count = next_count
            if moment >= start:
                x, y = place(moment, count)
                path.append(f"{x:.1f},{y + shift:.1f}")
            else:
                x, y = place(start, count)
                path = [f"{x:.1f},{y + shift:.1f}"]
        style = f'fill="none" stroke="{colour}" stroke-width="2.5" stroke-dasharray="{dashes}"'
        return f'<polyline {style} points="{" ".join(path)}"/>'

    title = f"One overshoot: cooldown {cell.cooldown:g} ms, the provider's count lags by {cell.lag} ms"
    x, y = place(overshoot, limit + 1)
    parts = [_text(20, 30, title, font_weight="bold")]
    for count in range(limit + 2):
        _, level = place(start, count)
        colour = BAD if count == limit + 1 else "#dddddd"
        parts.append(f'<line x1="60" x2="{width - 40}" y1="{level:.1f}" y2="{level:.1f}" stroke="{colour}"/>')
        parts.append(_text(40, level + 4, str(count), GREY))
    parts += [
        steps(streams, GREY, 0, "4 3"),
        steps(provider, PROVIDER, -2),
        steps(manager, MANAGER, 2),
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="6" fill="{BAD}"/>',
        _text(x + 12, y - 8, f"request {limit + 1} of {limit}: 429", BAD),
        _text(60, 272, "- - streams open", GREY),
        _text(190, 272, "— the manager's in_flight", MANAGER),
        _text(370, 272, "— the provider's own count", PROVIDER),
        _text(width - 40, 272, f"{(stop - start) * 1000:.0f} ms shown", GREY, text_anchor="end"),
    ]
    return "".join(parts)
