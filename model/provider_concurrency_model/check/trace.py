"""Judges a recorded run, line by line: `provider-concurrency trace FILE`.

A trace is a header and one line per event, numbered by `seq` (spec/PORTING.md). Each line is fed to the same judge that
watches live managers (`judging`), in linear time and with memory for live slots only. All judged properties are
prefix-closed: a trace may end anywhere, and what held up to there is what the verdict says. So a last line that was cut
off is a remark; and whether the last operation left its providers at rest isn't judged, because it may not have ended.

Verdicts, by exit code:
0 conforms; 1 a violation, with line and rule; 2 not a trace, or another version of one, with the line;
3 undetermined: a `seq` is missing, or nothing was recorded. A violation before a fault of the file is still one.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from operator import itemgetter
from types import NoneType
from typing import Final, Literal, TypeAlias, cast

from provider_concurrency_model.findings import EVENT_KINDS, MonitorConfig, Violation
from provider_concurrency_model.judging import RunJudge
from provider_concurrency_model.ledger import Lateness, ProviderCounts
from provider_concurrency_spec.vocabulary import SLOT_EVENT_KINDS, SPEC_VERSION, Json, MalformedError

Outcome: TypeAlias = Literal["conforms", "violation", "malformed", "undetermined"]

TRACE_VERSION: Final = 1
EXIT_CODES: Final[dict[Outcome, int]] = {"conforms": 0, "violation": 1, "malformed": 2, "undetermined": 3}

_FIRST_LINE: Final = 2  # of the events; the header is line 1
_UNREADABLE: Final = (ValueError, RecursionError)  # MalformedError, JSONDecodeError, UnicodeDecodeError: ValueErrors

EventFields: TypeAlias = tuple[
    str, int, int, str | None, int | None, str | None, float | None, int, int, object
]  # fmt: skip
"""What an observer receives, in its order."""


@dataclass(frozen=True, slots=True)
class LineViolation:
    """A violation and the line that shows it."""

    line: int
    violation: Violation

    def __str__(self) -> str:
        """The finding, its line first."""
        return f"line {self.line}: {self.violation}"


@dataclass(frozen=True, slots=True)
class LatenessSummary:
    """By how much deadlines were noticed late, in ns; quantiles are upper bounds, at most a quarter too high."""

    count: int
    p50_ns: int
    p99_ns: int
    max_ns: int

    @classmethod
    def of(cls, lateness: Lateness) -> LatenessSummary:
        """The figures of a whole distribution."""
        return cls(lateness.count, lateness.quantile(0.5), lateness.quantile(0.99), lateness.max_ns)


@dataclass(frozen=True, slots=True)
class TraceVerdict:
    """What a trace shows; `reason` is one line for people, `line` where the outcome was decided, if in one place."""

    outcome: Outcome
    reason: str
    line: int | None = None
    events: int = 0
    counts: Mapping[str, int] = field(default_factory=dict[str, int])
    violations: tuple[LineViolation, ...] = ()
    violation_count: int = 0
    remarks: tuple[str, ...] = ()
    lateness: Mapping[str, LatenessSummary] = field(default_factory=dict[str, LatenessSummary])
    early_resumes: int = 0
    providers: Mapping[str, ProviderCounts] = field(default_factory=dict[str, ProviderCounts])
    live_slots: int = 0
    config: MonitorConfig | None = None

    @property
    def exit_code(self) -> int:
        """0 conforms, 1 violation, 2 malformed, 3 undetermined."""
        return EXIT_CODES[self.outcome]

    @property
    def rule(self) -> str | None:
        """The rule that was broken first."""
        return self.violations[0].violation.rule if self.violations else None


def judge_trace(
    lines: Iterable[bytes | str], *, machine: bool = False, resumes: bool = True, keep: int = 20
) -> TraceVerdict:
    """Judges a trace; `lines` may be an open file, read once.

    `machine` runs the real `transitions.Machine`s beside the tables, `resumes=False` says that the recorded program
    never called `resume` (a pause that ends early is a violation then). The first `keep` violations are kept, all are
    counted.
    """
    source = iter(lines)
    first = next(source, None)
    if first is None or not first.strip():
        return TraceVerdict("undetermined", "the trace is empty")
    try:
        config = read_header(parse_line(first))
    except _UNREADABLE as broken:
        if isinstance(broken, MalformedError) or _has_newline(first) or next(source, None) is not None:
            return TraceVerdict("malformed", f"line 1: {broken}", line=1)
        return TraceVerdict("undetermined", "the trace ends inside its header", line=1)
    return _TraceReading(config, machine=machine, resumes=resumes, keep=keep).judge(source)


def read_header(header: Mapping[str, Json]) -> MonitorConfig:
    """The configuration in a trace's first line; raises MalformedError for another version, or no header."""
    if "trace" not in header:
        raise MalformedError("this is no trace: its first line has no field 'trace'")
    for name, known in (("trace", TRACE_VERSION), ("spec", SPEC_VERSION), ("time_unit", "ns")):
        value: Json = header.get(name)
        if type(value) is not type(known) or value != known:
            raise MalformedError(f"{name} {value!r} can't be judged, only {name} {known!r}")
    return MonitorConfig.from_header(header.get("config"))


class _TraceReading:
    """One pass over the event lines."""

    def __init__(self, config: MonitorConfig, *, machine: bool, resumes: bool, keep: int) -> None:
        self._config = config
        self._keep = keep
        self._judge = RunJudge(config, self._find, machine=machine, resumes=resumes)
        self._violations: list[LineViolation] = []
        self._violation_count = 0
        self._remarks: list[str] = []

    def _find(self, violation: Violation) -> None:
        self._violation_count += 1
        if len(self._violations) < self._keep:
            self._violations.append(LineViolation(violation.index + _FIRST_LINE, violation))

    def judge(self, source: Iterator[bytes | str]) -> TraceVerdict:
        """Feeds every line to the judge, until the end or the first line that can't be the next one."""
        feed = self._judge.feed
        seq = 0
        for line in source:
            try:
                row = parse_line(line)
                if row.get("seq") != seq:
                    return self._conclude("undetermined", _tell_gap(row, seq), seq + _FIRST_LINE)
                fields = read_event(row)
            except _UNREADABLE as broken:
                number = seq + _FIRST_LINE
                if isinstance(broken, MalformedError) or _has_newline(line) or next(source, None) is not None:
                    return self._conclude("malformed", f"line {number}: {broken}", number)
                self._remarks.append(f"line {number}, the last, is cut off; what came before it was judged")
                break
            feed(*fields)
            seq += 1
        if not seq:
            return self._conclude("undetermined", "no event was recorded", None)
        unrest = self._judge.find_unrest()
        if unrest is not None:
            self._remarks.append(f"if the last operation was over where the trace ends, it was at fault: {unrest}")
        return self._conclude("conforms", "no rule is broken", None)

    def _conclude(self, outcome: Outcome, reason: str, line: int | None) -> TraceVerdict:
        judge = self._judge
        if self._violations:
            first = self._violations[0]
            if outcome != "conforms":
                self._remarks.append(f"after the violation: {reason}")
            outcome, reason, line = "violation", str(first), first.line
        return TraceVerdict(
            outcome=outcome,
            reason=reason,
            line=line,
            events=judge.events,
            counts=dict(judge.counts),
            violations=tuple(self._violations),
            violation_count=self._violation_count,
            remarks=tuple(self._remarks),
            lateness={name: LatenessSummary.of(lateness) for name, lateness in judge.lateness.items()},
            early_resumes=judge.early_resumes,
            providers=judge.providers(),
            live_slots=judge.live_slots,
            config=self._config,
        )


def read_event(row: Mapping[str, Json]) -> EventFields:
    """An event line as the observer had it; raises MalformedError naming the field that is wrong."""
    try:
        event, op, t_ns, post = row["event"], row["op"], row["t"], row["post"]
        in_flight, queued = post["in_flight"], post["queued"]
        value = _VALUES[event](row) if event in _VALUES else None
    except (KeyError, TypeError):
        raise MalformedError(_find_fault(row)) from None
    provider, request, prompt = row.get("provider"), row.get("request"), row.get("prompt_started_at")
    conversation = row.get("conversation")
    if (
        type(op) is not int
        or type(t_ns) is not int
        or type(in_flight) is not int
        or type(queued) is not int
        or (type(conversation) is not str and conversation is not None)
        or not -_LONGEST <= t_ns <= _LONGEST
        or type(provider) is not (str if event != "closed" else NoneType)
        or (type(request) is not int or type(prompt) not in _NUMBERS if event in _SLOT_KINDS else event not in _KINDS)
    ):
        raise MalformedError(_find_fault(row))
    return event, op, t_ns, provider, request, conversation, prompt, in_flight, queued, value


def _find_fault(row: Mapping[str, Json]) -> str:
    """Which field of an event line is wrong."""
    event: Json = row.get("event")
    if not isinstance(event, str) or event not in _KINDS:
        return f"unknown event {event!r}" if "event" in row else "a line after the first is no event"
    post: Json = row.get("post")
    counts: Mapping[str, Json] = cast("Mapping[str, Json]", post) if isinstance(post, dict) else {}
    wanted: list[tuple[str, Json, frozenset[type]]] = [
        ("op", row.get("op"), _INT),
        ("t", row.get("t"), _INT),
        ("post.in_flight", counts.get("in_flight"), _INT),
        ("post.queued", counts.get("queued"), _INT),
        ("provider", row.get("provider"), _NONE if event == "closed" else _STR),
        ("conversation", row.get("conversation"), _TEXT_OR_NONE),
    ]
    if event in _SLOT_KINDS:
        wanted += [
            ("request", row.get("request"), _INT),
            ("prompt_started_at", row.get("prompt_started_at"), _NUMBERS),
        ]
    for name, value, types in wanted:
        if type(value) not in types:
            return f"{event}: {name} can't be {value!r}"
    if isinstance(t_ns := row.get("t"), int) and not -_LONGEST <= t_ns <= _LONGEST:
        return f"{event}: t is beyond {_LONGEST} ns"
    return f"{event} lacks a field of its own, or it has the wrong type"


def _tell_gap(row: Mapping[str, Json], seq: int) -> str:
    found: Json = row.get("seq")
    if type(found) is not int:
        raise MalformedError("a second header" if "trace" in row else f"seq can't be {found!r}")
    if found < seq:
        raise MalformedError(f"seq {found} came again, or late: {seq} is next")
    missing = f"seq {seq} is" if found == seq + 1 else f"seq {seq} to {found - 1} are"
    return f"{missing} missing before line {seq + _FIRST_LINE}; nothing from there on was judged"


def _read_pause(row: Mapping[str, Json]) -> object:
    requested, applied = row["requested"], row["applied"]
    if (
        type(applied) is not int
        or not 0 <= applied <= _LONGEST
        or (requested is not None and (type(requested) not in _NUMBERS or not -_MOST <= requested <= _MOST))
    ):
        raise MalformedError(f"paused: requested {requested!r}, applied {applied!r}")
    return requested, applied


_INT: Final = frozenset({int})
_STR: Final = frozenset({str})
_NONE: Final = frozenset({NoneType})
_TEXT_OR_NONE: Final = _STR | _NONE
_LONGEST: Final = 2**63
"""Nanoseconds; nearly three centuries from the manager's beginning, and no float overflows."""
_NUMBERS: Final = frozenset({int, float})
_MOST: Final = sys.float_info.max
_VALUES: Final[Mapping[str, Callable[[Mapping[str, Json]], object]]] = {
    "reclaimed": itemgetter("last_touch"),
    "paused": _read_pause,
    "limit_set": itemgetter("limit"),
    "cooldown_set": itemgetter("cooldown"),
}
"""What an event says beyond the common fields; whether it may be so is the judge's matter."""


def _refuse_constant(name: str) -> Json:
    raise ValueError(f"{name} isn't JSON")


_SLOT_KINDS: Final = frozenset[str](SLOT_EVENT_KINDS)
_KINDS: Final = frozenset[str](EVENT_KINDS)
_decode: Final = json.JSONDecoder(parse_constant=_refuse_constant).raw_decode


def parse_line(line: bytes | str) -> dict[str, Json]:
    """The object on a line; raises a ValueError for anything else. Leaner than json.loads, which trims both ends."""
    text = line if isinstance(line, str) else line.decode()
    decoded: tuple[Json, int] = _decode(text)
    row, end = decoded
    if end != len(text) and text[end:].strip():
        raise MalformedError(f"more than one value on a line: {text[end : end + 20]!r}")
    if not isinstance(row, dict):
        raise MalformedError(f"a line holds an object, not {row!r}")
    return cast("dict[str, Json]", row)


def _has_newline(line: bytes | str) -> bool:
    return line.endswith("\n") if isinstance(line, str) else line.endswith(b"\n")
