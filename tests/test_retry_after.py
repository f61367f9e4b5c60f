"""RTA-1..6: the table of SPEC.md ("Retry-After"), line by line, then anything at all."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from email.utils import format_datetime

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from provider_concurrency import ConcurrencyManager
from provider_concurrency.events import Event, typed
from provider_concurrency.retry_after import parse_http_date, parse_retry_after

NOW = datetime(2015, 10, 21, 7, 27, 0, tzinfo=UTC).timestamp()
Lines = list[tuple[str, str]]


def seconds(*lines: tuple[str, str], now: float = NOW) -> float | None:
    found = parse_retry_after(lines, now=now)
    return None if found is None else found.seconds


COUNTS = [
    ("5", 5.0),
    ("0", 0.0),
    ("007", 7.0),
    (" 5\t", 5.0),
    ("1.5", 1.5),
    ("99999999999", 99999999999.0),
    ("9" * 5000, math.inf),
    ("5, 10", 10.0),
    ("10, 5", 10.0),
    ("soon, 5", 5.0),
    (",5,", 5.0),
    ("Wed, 21 Oct 2015 07:28:00 GMT", 60.0),
    ("Wednesday, 21-Oct-15 07:28:00 GMT", 60.0),
    ("Wed Oct 21 07:28:00 2015", 60.0),
    ("Wed, 21 Oct 2015 07:28:00 GMT, 90", 90.0),
    ("30, Wed, 21 Oct 2015 07:28:00 GMT", 60.0),
    ("Wed, 21 Oct 2015 07:26:00 GMT", 0.0),
]
DOES_NOT_COUNT = [
    "",
    " ",
    "-3",
    "+3",
    "1_0",
    "nan",
    "inf",
    "Infinity",
    "1e3",
    "0x10",
    ".5",
    "5.",
    "5s",
    "5 10",
    '"5"',
    "٣",
    "５",
    "5\n",
    "5\0",
    "soon",
    "Wed",
    "Wed, 21 Oct 9999999 07:28:00 GMT",
    "Wed, 21 Oct 0000 07:28:00 GMT",
    "Tue, 31 Feb 2026 07:28:00 GMT",
    "Wed, 21 Oct 2015 24:00:00 GMT",
    "Wed, 21 Oct 2015 07:60:00 GMT",
    "Wed, 21 Oct 2015 07:28:61 GMT",
    "Wed, 21 Okt 2015 07:28:00 GMT",
    "Wed, 21 Oct 2015 07:28 GMT",
    "Wed, 21 Oct 2015 07:28:00 PST",
    "2015-10-21T07:28:00Z",
    "1445412480 GMT",
]


@pytest.mark.parametrize(("value", "expected"), COUNTS, ids=repr)
def test_rta_1_what_counts(value: str, expected: float) -> None:
    assert seconds(("Retry-After", value)) == expected


@pytest.mark.parametrize("value", DOES_NOT_COUNT, ids=repr)
def test_rta_1_what_does_not_count(value: str) -> None:
    assert seconds(("Retry-After", value)) is None
    assert seconds(("retry-after-ms", value)) is None


@pytest.mark.parametrize(
    ("value", "expected"), [("1500", 1.5), ("0", 0.0), ("2.5", 0.0025), ("100, 200", 0.2), ("x, 200", 0.2)]
)
def test_rta_3_milliseconds(value: str, expected: float) -> None:
    assert seconds(("Retry-After-Ms", value)) == expected
    assert seconds(("retry-after-ms", "Wed, 21 Oct 2015 07:28:00 GMT")) is None


def test_rta_5_the_longest_wins_and_a_bad_header_hides_no_good_one() -> None:
    assert seconds(("retry-after", "5"), ("Retry-After", "10")) == 10
    assert seconds(("retry-after", "nan"), ("retry-after", "5")) == 5
    assert seconds(("retry-after-ms", "nan"), ("retry-after", "5")) == 5
    assert seconds(("retry-after-ms", "1200"), ("retry-after", "1")) == 1.2
    assert seconds(("retry-after-ms", "500"), ("retry-after", "30")) == 30
    assert seconds(("x-retry-after", "5")) is None
    assert seconds() is None


@pytest.mark.parametrize(
    "text",
    [
        "Wed, 21 Oct 2015 07:28:00 GMT",
        "Wednesday, 21-Oct-15 07:28:00 GMT",
        "Wed Oct 21 07:28:00 2015",
        "Wed, 21 Oct 2015 07:28:00 -0000",
        "Wed, 21 Oct 2015 07:28:00 +0000",
        "Wed, 21 Oct 2015 09:28:00 +0200",
        "Wed, 21 Oct 2015 07:27:60 GMT",
        "wed, 21 oct 2015 07:28:00 gmt",
        "WEDNESDAY, 21-OCT-15 07:28:00 GMT",
        "Wed, 21 Oct 2015 07:28:00",
        "21 Oct 2015 07:28:00 GMT",
        "Mon, 21 Oct 2015 07:28:00 GMT",  # the weekday is not held against it
    ],
)
def test_bug_52_http_date_in_all_its_forms_is_one_instant(text: str) -> None:
    assert parse_http_date(text) == NOW + 60
    assert seconds(("retry-after", text)) == 60


def test_bug_52_two_digit_years() -> None:
    assert parse_http_date("Sunday, 06-Nov-94 08:49:37 GMT") == 784111777
    assert parse_http_date("Sun Nov  6 08:49:37 1994") == 784111777
    assert parse_http_date("Saturday, 01-Jan-70 00:00:00 GMT") == 0
    assert parse_http_date("Tuesday, 01-Jan-69 00:00:00 GMT") == datetime(2069, 1, 1, tzinfo=UTC).timestamp()


@pytest.mark.parametrize(
    "text",
    [
        "Wed, 21 Oct 9999999 07:28:00 GMT",
        "Wed, 21 Oct 0000 07:28:00 GMT",
        "Tue, 31 Feb 2015 07:28:00 GMT",
        "Sun, 31 Dec 10000 23:59:59 GMT",
    ],
)
def test_bug_55_a_date_out_of_range_does_not_count(text: str) -> None:
    assert seconds(("retry-after", text)) is None
    assert seconds(("retry-after", text), ("retry-after", "7")) == 7


def test_bug_55_the_last_date_there_is_counts() -> None:
    assert seconds(("retry-after", "Fri, 31 Dec 9999 23:59:60 GMT")) == pytest.approx(251_956_970_820)


def test_bug_56_the_cap_is_separate_and_told() -> None:
    whole = parse_retry_after([("retry-after", "45")], now=NOW, cap=60)
    assert whole is not None
    assert (whole.seconds, whole.requested, whole.capped, whole.source) == (45, 45, False, "delta-seconds")
    cut = parse_retry_after([("retry-after", "1000000000000")], now=NOW, cap=60)
    assert cut is not None
    assert (cut.seconds, cut.requested, cut.capped) == (60, 1e12, True)


def test_bug_56_the_manager_honours_45_seconds_in_full_and_tells_what_it_capped() -> None:
    events: list[Event] = []
    manager = ConcurrencyManager(clock=lambda: 0, observer=typed(events.append))
    manager.report_rate_limit("p", seconds(("retry-after", "45")))
    manager.report_rate_limit("p", seconds(("retry-after-ms", "1000000000000000")))
    assert [event.value for event in events] == [(45.0, 45_000_000_000), (1e12, 21_600_000_000_000)]


# -- anything at all ----------------------------------------------------------------------------------------------

names = st.sampled_from(["retry-after", "Retry-After", "RETRY-AFTER-MS", "retry-after-ms", "date"]) | st.text(
    max_size=9
)
dates = st.datetimes(timezones=st.just(UTC)).map(lambda moment: format_datetime(moment, usegmt=True))
pieces = st.sampled_from([value for value, _ in COUNTS if len(value) < 99] + DOES_NOT_COUNT)
values = (
    st.text(max_size=40)
    | st.text("0123456789.,:-+_eE GMTWed,Oct", max_size=40)
    | st.integers(min_value=-10, max_value=10**30).map(str)
    | st.floats().map(repr)
    | dates
    | st.lists(pieces, max_size=4).map(", ".join)
)
lines = st.lists(st.tuples(names, values), max_size=5)
clocks = st.floats() | st.just(NOW)


@settings(deadline=None)  # the long examples
@given(lines, clocks, st.none() | st.floats(min_value=0))
@example([("retry-after", "9" * 50_000)], NOW, None)
@example([("retry-after", "," * 20_000)], NOW, None)
@example([("retry-after", "Wed, " * 10_000)], NOW, None)
def test_rta_1_never_raises_and_never_answers_nonsense(headers: Lines, now: float, cap: float | None) -> None:
    found = parse_retry_after(headers, now=now, cap=cap)
    if found is not None:
        assert 0 <= found.seconds <= found.requested
        assert found.capped == (found.seconds < found.requested)
        assert cap is None or found.seconds <= cap


@given(lines, lines)
def test_rta_5_more_headers_never_shorten(some: Lines, more: Lines) -> None:
    fewer, all_of_them, other_way = seconds(*some), seconds(*some, *more), seconds(*more, *some)
    assert all_of_them == other_way
    assert (fewer or 0) <= (all_of_them or 0)
    assert fewer is None or all_of_them is not None


@given(st.integers(min_value=0, max_value=10**9), values)
def test_rta_5_a_bad_value_on_the_same_line_hides_no_good_one(good: int, other: str) -> None:
    alone = seconds(("retry-after", other))
    assert seconds(("retry-after", f"{other}, {good}")) in (max(alone or 0, good), alone) or alone is None
    assert (seconds(("retry-after", f"{good}, {other}")) or 0) >= good


@given(st.datetimes(min_value=datetime(1970, 1, 1), max_value=datetime(2069, 12, 31, 23, 59, 59)))
def test_rta_4_three_forms_one_instant(moment: datetime) -> None:
    moment = moment.replace(microsecond=0, tzinfo=UTC)
    day, month = f"{moment:%A}", f"{moment:%b}"
    forms = [
        format_datetime(moment, usegmt=True),
        f"{day}, {moment.day:02}-{month}-{moment.year % 100:02} {moment:%H:%M:%S} GMT",
        f"{day[:3]} {month} {moment.day:2} {moment:%H:%M:%S} {moment.year}",
    ]
    assert [parse_http_date(form) for form in forms] == [moment.timestamp()] * 3
