"""The timeline page: what it holds, and what a browser draws from it."""

import json
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import pytest

from provider_concurrency_model.check import timeline
from provider_concurrency_model.check.timeline import write_timeline

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="Chromium isn't installed (Debian: apt install chromium)")

HEADER = {
    "trace": 1,
    "spec": "1.0",
    "time_unit": "ns",
    "wall": "2026-11-29T12:00:00Z",
    "config": {
        "limits": {"p": 2},
        "default_limit": None,
        "release_cooldown": 1000,
        "slot_timeout": None,
        "watchdog_interval": 1000,
        "default_pause": 3000,
        "min_pause": 0,
        "max_pause": 9000,
        "max_queued": None,
    },
}

EVENTS = [  # (event, provider, request, t, in_flight, queued, more)
    ("granted", "p", 0, 0, 1, 0, {}),
    ("granted", "p", 1, 0, 2, 0, {}),
    ("queued", "p", 2, 100, 2, 1, {}),
    ("queued", "p", 3, 200, 2, 2, {}),
    ("released", "p", 0, 1000, 2, 2, {}),
    ("paused", "p", None, 1500, 2, 2, {"requested": None, "applied": 3000}),
    ("recycled", "p", 0, 2000, 1, 2, {}),
    ("cancelled", "p", 3, 2500, 1, 1, {}),
    ("reclaimed", "p", 1, 3000, 1, 1, {"last_touch": 0}),
    ("recycled", "p", 1, 4000, 0, 1, {}),
    ("resumed", "p", None, 4500, 0, 1, {}),
    ("granted", "p", 2, 4500, 1, 0, {}),
    ("limit_set", "p", None, 5000, 1, 0, {"limit": 1}),
    ("granted", "<script>alert(1)</script>", 4, 6000, 1, 0, {}),
    ("closed", None, None, 8000, 0, 0, {}),
]


def lines_of(events) -> list[str]:
    rows = [HEADER]
    for seq, (event, provider, request, t, in_flight, queued, more) in enumerate(events):
        row = {"seq": seq, "op": seq, "t": t, "event": event, "provider": provider}
        if request is not None:
            row |= {"request": request, "conversation": f"c</script>{request}", "prompt_started_at": 1.0}
        rows.append({**row, "post": {"in_flight": in_flight, "queued": queued}, **more})
    return [json.dumps(row) + "\n" for row in rows]


def data_of(path: Path):
    """What the page's script reads."""
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', path.read_text(), re.DOTALL)
    assert found is not None
    return json.loads(found[1])


def test_spans_lanes_pauses_and_curves(tmp_path: Path) -> None:
    path = tmp_path / "out.html"
    summary = write_timeline(lines_of(EVENTS), path)
    assert (summary.events, summary.notes) == (15, ())
    data = data_of(path)
    first, second = data["providers"]
    assert (first["name"], second["name"]) == summary.providers == ("p", "<script>alert(1)</script>")
    assert (first["lanes"], first["waiting_lanes"]) == (2, 2)
    queued, held, cooling, reclaimed = range(4)
    assert sorted((span[4], *span[:4]) for span in first["spans"]) == [
        (0, 0, held, 0, 1000),
        (0, 0, cooling, 1000, 2000),
        (1, 1, held, 0, 3000),
        (1, 1, reclaimed, 3000, 4000),
        (2, 0, held, 4500, 8000),
        (2, 2, queued, 100, 4500),
        (3, 3, queued, 200, 2500),
    ]
    assert first["pauses"] == [[1500, 4500]]
    assert first["limits"] == [[0, 2], [5000, 1]]
    assert second["limits"] == [[0, None]]
    assert first["points"][:3] == [[0, 2, 0], [100, 2, 1], [200, 2, 2]]
    assert first["points"][-1] == [4500, 1, 0]
    assert (data["end_ns"], data["closed_ns"]) == (8000, 8000)


def test_the_page_needs_no_network_and_no_name_breaks_out_of_it(tmp_path: Path) -> None:
    path = tmp_path / "out.html"
    write_timeline(lines_of(EVENTS), path)
    page = path.read_text()
    assert "default-src 'none'" in page
    urls = set(re.findall(r"https?://[^\s\"'<>]+", page))
    assert urls == {"http://www.w3.org/2000/svg"}, "the name of a vocabulary, which nothing loads"

    class Tags(HTMLParser):
        seen: list[str] = []  # noqa: RUF012 - one parser

        def handle_starttag(self, tag: str, attrs: object) -> None:
            self.seen.append(tag)

    Tags().feed(page)
    assert Tags.seen.count("script") == 2
    assert not {"link", "img", "iframe"} & set(Tags.seen)


def test_a_pause_that_close_ended_ends_there(tmp_path: Path) -> None:
    path = tmp_path / "out.html"
    write_timeline(lines_of([*EVENTS[:6], ("closed", None, None, 1700, 0, 0, {})]), path)
    assert data_of(path)["providers"][0]["pauses"] == [[1500, 1700]]


def test_a_big_trace_is_capped_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "out.html"
    summary = write_timeline(lines_of(EVENTS), path, max_spans=3)
    assert summary.events == 3
    assert summary.notes == ("drawn up to line 4, 0.0000001 s: 3 spans are the cap",)
    monkeypatch.setattr(timeline, "MAX_LANES", 1)
    monkeypatch.setattr(timeline, "MAX_WAITING_LANES", 1)
    monkeypatch.setattr(timeline, "MAX_PROVIDERS", 1)
    summary = write_timeline(lines_of(EVENTS), path)
    assert summary.notes == ("1 providers beyond the first 1 aren't drawn",)
    (provider,) = data_of(path)["providers"]
    assert provider["note"] == (
        "1 places beyond the first 1 are only in the curves; 1 waiting lanes beyond the first 1 are only in the curves"
    )
    assert {span[0] for span in provider["spans"]} == {0, 1}


def test_a_broken_trace_is_drawn_as_far_as_it_goes(tmp_path: Path) -> None:
    path = tmp_path / "out.html"
    lines = lines_of(EVENTS)
    summary = write_timeline([*lines[:5], lines[5][:20]], path)
    assert summary.events == 4
    assert "drawn up to line 5; line 6 can't be read" in summary.notes[0]
    with pytest.raises(ValueError, match="no trace"):
        write_timeline(["{}\n"], path)
    with pytest.raises(ValueError, match="Expecting value"):
        write_timeline([], path)


def test_events_that_break_the_rules_are_drawn_as_they_say(tmp_path: Path) -> None:
    path = tmp_path / "out.html"
    odd = [
        ("recycled", "p", 9, 10, 0, 0, {}),
        ("granted", "p", 1, 20, 1, 0, {}),
        ("granted", "p", 1, 30, 2, 0, {}),
        ("resumed", "p", None, 40, 2, 0, {}),
        ("closed", None, None, 50, 0, 0, {}),
    ]
    assert write_timeline(lines_of(odd), path).notes == ()
    assert [span[1:4] for span in data_of(path)["providers"][0]["spans"]] == [[1, 20, 30], [1, 30, 50]]


@needs_chromium
def test_chromium_draws_it(tmp_path: Path) -> None:
    path = tmp_path / "out.html"
    write_timeline(lines_of(EVENTS), path)
    assert CHROMIUM is not None
    command = [
        CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
        "--disable-component-update", "--disable-sync", f"--user-data-dir={tmp_path / 'profile'}",
        "--window-size=1000,800", "--dump-dom", path.as_uri(),
    ]  # fmt: skip
    drawn = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
    counted = {kind: len(re.findall(f'<rect class="{kind}"', drawn)) for kind in ("queued", "held", "cooling")}
    assert counted == {"queued": 2, "held": 4, "cooling": 1}
    assert len(re.findall('<rect class="reclaimed"', drawn)) == 1
    assert len(re.findall('<rect class="paused"', drawn)) == 1
    assert len(re.findall('<path class="(?:queue|flight|limit)" d="M[^"]+"', drawn)) == 6, "three curves each"
    assert "8 spans, 8 shapes drawn between 0 s and 0.000008 s" in drawn
    assert "15 events in 0.000008 s; recorded from 2026-11-29T12:00:00Z" in drawn
    assert "&lt;script&gt;alert(1)&lt;/script&gt;</h2>" in drawn
    assert "request 2, conversation c&lt;/script&gt;2\nqueued 0.0000001 s to 0.0000045 s" in drawn
    left, width = map(float, re.findall(r'<rect class="cooling" x="([\d.]+)" y="\d+" width="([\d.]+)"', drawn)[0])
    held = float(re.findall(r'<rect class="held" x="[\d.]+" y="\d+" width="([\d.]+)"', drawn)[0])
    assert abs(width - held) < 0.1, "held for 1000 ns, then cooling for 1000 ns"
    assert abs(left - 56 - held) < 0.1, "beside each other in one lane"
