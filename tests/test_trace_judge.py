"""Recorded runs: each kind of verdict with its exit code, line and rule; linear time, memory for live slots only."""

import json
import sys
import time
import tracemalloc
from collections.abc import Iterator
from itertools import count

import pytest

from provider_concurrency_model.check.trace import EXIT_CODES, TraceVerdict, judge_trace

MS = 1_000_000
HEADER = {
    "trace": 1,
    "spec": "1.0",
    "time_unit": "ns",
    "wall": "2026-11-29T12:00:00Z",
    "config": {
        "limits": {"p": 2},
        "default_limit": None,
        "release_cooldown": 200 * MS,
        "slot_timeout": 5000 * MS,
        "watchdog_interval": 1000 * MS,
        "default_pause": 30_000 * MS,
        "min_pause": 0,
        "max_pause": 21_600_000 * MS,
        "max_queued": None,
    },
}


def slot(event, request, op, t_ms, post, **more):
    """A slot event; its prompt is as old as its arrival."""
    return {
        "op": op, "t": round(t_ms * MS), "event": event, "provider": "p", "request": request,
        "conversation": f"c{request}", "prompt_started_at": 1764.0 + request,
        "post": {"in_flight": post[0], "queued": post[1]}, **more,
    }  # fmt: skip


def configured(event, op, t_ms, post, **more):
    return {
        "op": op, "t": round(t_ms * MS), "event": event, "provider": "p",
        "post": {"in_flight": post[0], "queued": post[1]}, **more,
    }  # fmt: skip


RUN = [
    slot("granted", 0, 0, 0, (1, 0)),
    slot("granted", 1, 1, 0, (2, 0)),
    slot("queued", 2, 2, 1, (2, 1)),
    slot("queued", 3, 3, 2, (2, 2)),
    slot("queued", 4, 4, 2, (2, 3)),
    slot("released", 0, 5, 10, (2, 3)),
    slot("timed_out", 4, 6, 100, (2, 2)),
    slot("recycled", 0, 7, 210.5, (1, 2)),
    slot("granted", 2, 7, 210.5, (2, 1)),
    configured("paused", 8, 300, (2, 1), requested=0.5, applied=500 * MS),
    slot("cancelled", 2, 9, 310, (1, 1)),
    configured("resumed", 10, 800, (1, 1)),
    slot("granted", 3, 10, 800, (2, 0)),
    configured("limit_set", 11, 900, (2, 0), limit=1),
    configured("cooldown_set", 12, 900, (2, 0), cooldown=0),
    slot("released", 3, 13, 901, (2, 0)),
    slot("recycled", 3, 13, 901, (1, 0)),
    slot("reclaimed", 1, 14, 7000, (1, 0), last_touch=1500 * MS),
    slot("recycled", 1, 14, 7000, (0, 0)),
    configured("cooldown_set", 15, 7100, (0, 0), cooldown=None),
    configured("limit_removed", 16, 7100, (0, 0)),
    slot("granted", 5, 17, 7100, (1, 0)),
    {"op": 18, "t": 7200 * MS, "event": "closed", "provider": None, "post": {"in_flight": 0, "queued": 0}},
    slot("released", 5, 19, 7300, (1, 0)),
    slot("recycled", 5, 19, 7300, (0, 0)),
]


def encode(row) -> str:
    return json.dumps(row, separators=(",", ":")) + "\n"


def lines_of(events, header=HEADER) -> list[str]:
    return [encode(header), *(encode({"seq": seq, **event}) for seq, event in enumerate(events))]


def judged(events) -> TraceVerdict:
    return judge_trace(lines_of(events))


def test_a_good_run_conforms_with_the_same_counts() -> None:
    verdict = judged(RUN)
    assert (verdict.outcome, verdict.exit_code, verdict.remarks) == ("conforms", 0, ())
    assert verdict.events == len(RUN)
    assert {event: number for event, number in verdict.counts.items() if number} == {
        "granted": 5, "queued": 3, "timed_out": 1, "cancelled": 1, "released": 3, "reclaimed": 1, "recycled": 4,
        "paused": 1, "resumed": 1, "limit_set": 1, "limit_removed": 1, "cooldown_set": 2, "closed": 1,
    }  # fmt: skip
    assert verdict.live_slots == 0
    assert verdict.config is not None
    assert verdict.config.limits == {"p": 2}


@pytest.mark.parametrize("form", [str.encode, str.rstrip, lambda line: line.rstrip("\n").encode()])
def test_lines_may_be_bytes_or_text_with_or_without_their_ends(form) -> None:
    assert judge_trace(form(line) for line in lines_of(RUN)).exit_code == 0


def test_the_machine_may_run_alongside() -> None:
    assert judge_trace(lines_of(RUN), machine=True) == judged(RUN)


def test_late_timers_are_legal_and_told_as_a_distribution() -> None:
    lateness = judged(RUN).lateness
    assert (lateness["recycled"].count, lateness["recycled"].max_ns) == (3, MS // 2)
    assert (lateness["resumed"].count, lateness["resumed"].max_ns) == (1, 0)
    late = [*RUN[:6], slot("recycled", 0, 6, 5000, (1, 3)), slot("granted", 2, 6, 5000, (2, 2))]
    verdict = judged(late)
    assert verdict.exit_code == 0
    assert verdict.lateness["recycled"].p50_ns == verdict.lateness["recycled"].max_ns == 4790 * MS


def replaced(index: int, **changes):
    return [*RUN[:index], {**RUN[index], **changes}, *RUN[index + 1 :]]


FULL = RUN[:5]  # two holders, three waiters, limit 2

VIOLATIONS = {
    "a doubled grant": ("ADM-2", 7, [*FULL, slot("granted", 1, 5, 3, (2, 3))]),
    "a grant past the limit": ("ADM-4", 7, [*FULL, slot("granted", 2, 5, 3, (3, 2))]),
    "a grant during a pause": (
        "ADM-4",
        4,
        [
            RUN[0],
            configured("paused", 1, 5, (1, 0), requested=None, applied=30_000 * MS),
            slot("granted", 1, 2, 6, (2, 0)),
        ],
    ),
    "an early recycle": ("REL-3", 8, [*RUN[:6], slot("recycled", 0, 6, 209.999999, (1, 3))]),
    "a skipped waiter": (
        "ORD-1",
        9,
        [*RUN[:6], slot("recycled", 0, 6, 211, (1, 3)), slot("granted", 3, 6, 211, (2, 2))],
    ),
    "a lost wake-up, at the line before the next operation": (
        "ADM-5",
        8,
        [*RUN[:6], slot("recycled", 0, 6, 211, (1, 3)), slot("queued", 5, 7, 212, (1, 4))],
    ),
    "an early resume inside another operation": (
        "PAU-5",
        4,
        [
            configured("paused", 0, 0, (0, 0), requested=9, applied=9000 * MS),
            configured("paused", 1, 5, (0, 0), requested=0, applied=200 * MS),
            configured("resumed", 1, 5, (0, 0)),
        ],
    ),
    "a wrong count": ("ACC-1", 4, replaced(2, post={"in_flight": 2, "queued": 0})),
    "a second end": ("ACC-2", 19, [*RUN[:17], slot("recycled", 3, 14, 902, (1, 0))]),
    "a grant after close": ("CLO-1", 27, [*RUN, slot("granted", 6, 20, 7400, (1, 0))]),
    "a limit that is none": ("LIM-1", 15, replaced(13, limit=1.5)),
}  # fmt: skip


@pytest.mark.parametrize("name", VIOLATIONS)
def test_a_violation_exits_1_with_line_and_rule(name: str) -> None:
    rule, line, events = VIOLATIONS[name]
    verdict = judged(events)
    assert (verdict.exit_code, verdict.rule, verdict.line) == (1, rule, line), verdict.reason
    assert verdict.reason.startswith(f"line {line}: {rule}: ")
    assert verdict.violations[0].violation.event.event in lines_of(events)[line - 1]


def test_an_early_resume_is_a_violation_where_nobody_resumes() -> None:
    events = [*RUN[:11], configured("resumed", 10, 700, (1, 1)), slot("granted", 3, 10, 700, (2, 0))]
    verdict = judged(events)
    assert (verdict.exit_code, verdict.early_resumes) == (0, 1)
    strict = judge_trace(lines_of(events), resumes=False)
    assert (strict.exit_code, strict.rule, strict.line) == (1, "PAU-5", 13)


def test_a_missing_seq_is_undetermined() -> None:
    lines = lines_of(RUN)
    verdict = judge_trace(lines[:9] + lines[10:])
    assert (verdict.outcome, verdict.exit_code, verdict.line, verdict.events) == ("undetermined", 3, 10, 8)
    assert "seq 8 is missing before line 10" in verdict.reason
    assert "seq 8 to 10 are missing" in judge_trace(lines[:9] + lines[12:]).reason


def test_a_missing_end_is_seen_only_in_what_is_missing() -> None:
    """A trace may end anywhere: every prefix of a good one conforms, and its last operation isn't judged."""
    lines = lines_of(RUN)
    for length in range(2, len(lines)):
        assert judge_trace(lines[:length]).exit_code == 0
    within = judge_trace(lines[:9])
    assert len(within.remarks) == 1
    assert "if the last operation was over" in within.remarks[0]
    assert "ADM-5" in within.remarks[0]


@pytest.mark.parametrize("form", [str, str.encode], ids=["text", "bytes"])
def test_a_cut_last_line_is_a_remark_wherever_it_is_cut(form) -> None:
    lines = lines_of(RUN)
    last = lines[12].replace("c2", "ç2").rstrip("\n")
    for length in range(1, len(form(last))):
        verdict = judge_trace([*lines[:12], form(last)[:length]])
        assert verdict.exit_code == 0
        assert verdict.events == 11
        assert "line 13, the last, is cut off" in verdict.remarks[0]


def test_a_violation_before_the_file_s_own_fault_counts() -> None:
    lines = lines_of(VIOLATIONS["an early recycle"][2])
    cut = judge_trace([*lines, '{"seq":7,'])
    assert (cut.exit_code, cut.line) == (1, 8)
    broken = judge_trace([*lines, "garbage\n"])
    assert (broken.exit_code, broken.line) == (1, 8)
    assert "after the violation: line 9: " in broken.remarks[0]


GARBAGE = {
    "no JSON": ("garbage\n", "Expecting value"),
    "a blank line": ("\n", "Expecting value"),
    "a cut line with more after it": ('{"seq":6,"op":6\n', "delimiter"),
    "broken UTF-8": (b'{"seq":6,"op":6,"event":"\xff"}\n', "utf-8"),
    "nesting without end": ("[" * 100_000 + "\n", ""),
    "no object": ("[1]\n", "an object"),
    "two values": ('{"seq":6}{"seq":7}\n', "more than one value"),
    "a second header": (encode(HEADER), "a second header"),
    "no seq": (encode(RUN[6]), "seq can't be None"),
    "a seq that came before": (encode({"seq": 5, **RUN[6]}), "seq 5 came again"),
    "an unknown event": (encode({"seq": 6, **RUN[6], "event": "touched"}), "unknown event 'touched'"),
    "an event that is no word": (encode({"seq": 6, **RUN[6], "event": []}), "unknown event"),
    "no event": ('{"seq":6}\n', "is no event"),
    "op as text": (encode({"seq": 6, **RUN[6], "op": "6"}), "op can't be '6'"),
    "a time that isn't whole": (encode({"seq": 6, **RUN[6], "t": 1.5}), "t can't be 1.5"),
    "no request": (encode({"seq": 6, **RUN[6], "request": None}), "request can't be None"),
    "no prompt": (encode({"seq": 6, **RUN[6], "prompt_started_at": None}), "prompt_started_at can't be None"),
    "a prompt that is no number": (encode({"seq": 6, **RUN[6], "prompt_started_at": float("nan")}), "NaN"),
    "a conversation that is a list": (
        encode({"seq": 6, **RUN[6], "conversation": ["x"]}),
        "conversation can't be ['x']",
    ),
    "a conversation that is an object": (encode({"seq": 6, **RUN[6], "conversation": {}}), "conversation can't be {}"),
    "a conversation that is a number": (encode({"seq": 6, **RUN[6], "conversation": 5}), "conversation can't be 5"),
    "a provider's event with a conversation": (
        encode({"seq": 6, **RUN[9], "conversation": []}),
        "conversation can't be",
    ),
    "a provider that is a list": (encode({"seq": 6, **RUN[6], "provider": ["p"]}), "provider can't be ['p']"),
    "a request that is a list": (encode({"seq": 6, **RUN[6], "request": [1]}), "request can't be [1]"),
    "a prompt that is an object": (encode({"seq": 6, **RUN[6], "prompt_started_at": {}}), "prompt_started_at can't be"),
    "a time beyond all times": (encode({"seq": 6, **RUN[6], "t": 10**400}), "t is beyond"),
    "no post": (encode({"seq": 6, **RUN[6], "post": None}), "post.in_flight can't be None"),
    "a count that is true": (
        encode({"seq": 6, **RUN[6], "post": {"in_flight": True, "queued": 0}}),
        "post.in_flight can't be True",
    ),
    "closed at a provider": (encode({"seq": 6, **RUN[22], "provider": "p"}), "provider can't be 'p'"),
    "a provider event without one": (encode({"seq": 6, **RUN[9], "provider": None}), "provider can't be None"),
    "a pause without a length": (encode({"seq": 6, **RUN[9], "applied": None}), "applied None"),
    "a pause asked for beyond every float": (encode({"seq": 6, **RUN[9], "requested": 10**400}), "paused: requested 1"),
    "a pause beyond all times": (encode({"seq": 6, **RUN[9], "applied": 10**400}), "paused: requested"),
    "a limit without its value": (
        encode({"seq": 6, **configured("limit_set", 6, 20, (2, 3))}),
        "lacks a field of its own",
    ),
}


@pytest.mark.parametrize("name", GARBAGE)
def test_garbage_in_the_middle_exits_2_naming_the_line(name: str) -> None:
    garbage, message = GARBAGE[name]
    lines = lines_of(RUN)
    verdict = judge_trace([*lines[:7], garbage, *lines[8:]])
    assert (verdict.outcome, verdict.exit_code, verdict.line) == ("malformed", 2, 8), verdict.reason
    assert verdict.reason.startswith("line 8: ")
    assert message in verdict.reason
    assert verdict.events == 6


def test_a_whole_but_wrong_last_line_isn_t_a_cut_one() -> None:
    lines = lines_of(RUN)
    assert judge_trace([*lines[:7], '{"seq":6}']).exit_code == 2
    assert judge_trace([*lines[:7], "garbage\n"]).exit_code == 2


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"trace": 2}, "trace 2 can't be judged"),
        ({"trace": True}, "trace True can't be judged"),
        ({"spec": "1.1"}, "spec '1.1' can't be judged"),
        ({"time_unit": "ms"}, "time_unit 'ms'"),
        ({"config": None}, "config must be an object"),
        ({"config": {**HEADER["config"], "release_cooldown": 0.2}}, "release_cooldown must be a whole number"),
        ({"config": {**HEADER["config"], "limits": {"p": -1}}}, "p must be a whole number"),
        ({"config": {k: v for k, v in HEADER["config"].items() if k != "slot_timeout"}}, "lacks 'slot_timeout'"),
    ],
)  # fmt: skip
def test_another_version_exits_2(changes, message: str) -> None:
    verdict = judge_trace(lines_of(RUN, {**HEADER, **changes}))
    assert (verdict.exit_code, verdict.line) == (2, 1)
    assert message in verdict.reason


def test_what_is_no_trace_exits_2() -> None:
    assert judge_trace(["hello\n", "world\n"]).exit_code == 2
    assert "no field 'trace'" in judge_trace(['{"a":1}\n']).reason


@pytest.mark.parametrize(
    "lines", [[], [""], ["\n"], [encode(HEADER)], [encode(HEADER)[:30]], [encode(HEADER), '{"seq":0,']]
)
def test_nothing_to_judge_is_undetermined(lines) -> None:
    verdict = judge_trace(lines)
    assert (verdict.outcome, verdict.exit_code) == ("undetermined", 3)


def test_violations_are_kept_up_to_a_number_and_all_counted() -> None:
    events = [*RUN[:17], *(slot("recycled", 3, op, 902, (1, 0)) for op in range(14, 100))]
    verdict = judge_trace(lines_of(events), keep=3)
    assert (len(verdict.violations), verdict.violation_count) == (3, 86)
    assert verdict.exit_code == EXIT_CODES["violation"]


# -- cost ------------------------------------------------------------------------------------------------------------


def long_run(events: int) -> Iterator[str]:
    """Two holders and up to eight waiters at limit 2, each slot released, cooled and handed on."""
    yield encode(HEADER)
    seq, op, arrivals = count(), count(), count()
    t_ms = 0
    held: list[int] = []
    queue: list[int] = []

    def line(event: str, request: int, by: int) -> str:
        return encode({"seq": next(seq), **slot(event, request, by, t_ms, (len(held), len(queue)))})

    written = 0
    while written < events:
        while len(queue) < 8:
            request, by = next(arrivals), next(op)
            is_granted = len(held) < 2
            (held if is_granted else queue).append(request)
            yield line("granted" if is_granted else "queued", request, by)
            written += 1
        for _ in range(6):
            t_ms += 1
            yield line("released", held[0], next(op))
            t_ms += 200
            by, freed = next(op), held.pop(0)
            yield line("recycled", freed, by)
            held.append(queue.pop(0))
            yield line("granted", held[-1], by)
            written += 3


@pytest.mark.skipif(sys.gettrace() is not None, reason="a tracer (coverage) slows Python code, and not json.loads")
@pytest.mark.parametrize("form", [str, str.encode], ids=["text", "bytes"])
def test_judging_costs_a_few_times_the_reading(form) -> None:
    """W10: at most 4 to 5 times json.loads. The best of several rounds of each: others share the machine."""
    lines = [form(line) for line in long_run(6_000)]
    reads, judges = [], []
    for _ in range(5):
        began = time.perf_counter()
        for line in lines:
            json.loads(line)
        reads.append(time.perf_counter() - began)
        began = time.perf_counter()
        assert judge_trace(lines).exit_code == 0
        judges.append(time.perf_counter() - began)
    assert min(judges) < 5 * min(reads)


def test_memory_is_for_live_slots_only() -> None:
    """A run ten times as long needs no more."""
    peaks = []
    for events in (800, 8_000):
        tracemalloc.start()
        verdict = judge_trace(long_run(events))
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert verdict.exit_code == 0
        assert verdict.live_slots <= 10
    assert peaks[1] < peaks[0] * 1.2 + 50_000
