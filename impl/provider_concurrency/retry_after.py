"""How long a response asks us to stay away: `Retry-After` and `retry-after-ms` (RTA-1..6; the table is in SPEC.md).

What arrives was written by servers, proxies and their bugs, and is read in the path of a 429, where an exception or a
too short answer is dearest. So nothing here raises, a value either counts or is as good as absent, and of several that
count the longest wins: no header, bad or good, can shorten what another one asks for.

    found = parse_retry_after([("Retry-After", "Wed, 21 Oct 2015 07:28:00 GMT")], now=time.time())
    manager.report_rate_limit("openai", found.seconds if found else None)
"""

from __future__ import annotations

import calendar
import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date
from typing import Final, Literal, TypeAlias

__all__ = ["RetryAfter", "parse_http_date", "parse_retry_after"]

Source: TypeAlias = Literal["retry-after-ms", "delta-seconds", "http-date"]

# [0-9] throughout: \d would take digits of every script.
_NUMBER: Final = re.compile(r"[0-9]+(?:\.[0-9]+)?")
_WEEKDAY: Final = r"(?:mon|tues?|wed(?:nes)?|thu(?:rs)?|fri|sat(?:ur)?|sun)(?:day)?"
_MONTHS: Final = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_MONTH: Final = f"(?P<month>{'|'.join(_MONTHS)})"
_CLOCK: Final = r"(?P<hour>[0-9]{2}):(?P<minute>[0-9]{2}):(?P<second>[0-9]{2})"
_ZONE: Final = r"(?:\ +(?:gmt|utc|z|(?P<sign>[+-])(?P<zone_hour>[0-9]{2})(?P<zone_minute>[0-9]{2})))?"
_DATES: Final = tuple(
    re.compile(pattern, re.IGNORECASE | re.ASCII)
    for pattern in (
        rf"(?:{_WEEKDAY},\ *)?(?P<day>[0-9]{{1,2}})\ +{_MONTH}\ +(?P<year>[0-9]{{4}})\ +{_CLOCK}{_ZONE}",  # RFC 9110
        rf"(?:{_WEEKDAY},\ *)?(?P<day>[0-9]{{2}})-{_MONTH}-(?P<year>[0-9]{{2}}|[0-9]{{4}})\ +{_CLOCK}{_ZONE}",  # 850
        rf"{_WEEKDAY}\ +{_MONTH}\ +(?P<day>[0-9]{{1,2}})\ +{_CLOCK}\ +(?P<year>[0-9]{{4}}){_ZONE}",  # asctime
    )
)
_LONE_WEEKDAY: Final = re.compile(_WEEKDAY, re.IGNORECASE | re.ASCII)


@dataclass(frozen=True, slots=True)
class RetryAfter:
    """What a response asks for.

    `seconds`: to stay away, >= 0, `cap` applied. `requested`: the same before the cap, infinite if it is too large
    for a float. `capped`: whether the cap made the difference (RTA-6). `source`: the form that was read.
    """

    seconds: float
    requested: float
    capped: bool
    source: Source


def parse_retry_after(headers: Iterable[tuple[str, str]], *, now: float, cap: float | None = None) -> RetryAfter | None:
    """The longest wait that any header asks for, or None where none counts. Never raises (RTA-1).

    `headers`: name and value of each line, names in any case, other names ignored. `now`: epoch seconds, for
    HTTP-dates; a date in the past asks for 0. `cap`: seconds at most (None: no cap).
    """
    longest: tuple[float, Source] | None = None
    for name, value in headers:
        for asked in _read_line(name.lower(), value, now):
            if longest is None or asked[0] > longest[0]:
                longest = asked
    if longest is None:
        return None
    requested, source = longest
    is_capped = cap is not None and requested > cap
    return RetryAfter(cap if is_capped and cap is not None else requested, requested, is_capped, source)


def parse_http_date(value: str) -> float | None:
    """An HTTP-date in any of its three forms as epoch seconds, or None. Never raises (RTA-4).

    A two-digit year is one of the years 1970 to 2069. A numeric zone is applied, a missing one is UTC.
    """
    text = value.strip(" \t")
    for form in _DATES:
        if match := form.fullmatch(text):
            return _measure_date(match)
    return None


def _read_line(name: str, value: str, now: float) -> Iterable[tuple[float, Source]]:
    """What one header line asks for: nothing, one duration, or those of several combined lines (RTA-5)."""
    if name == "retry-after-ms":
        for member in value.split(","):
            if (number := _read_number(member)) is not None:
                yield number / 1000, "retry-after-ms"
    elif name == "retry-after":
        for member in _split_members(value):
            if (number := _read_number(member)) is not None:
                yield number, "delta-seconds"
            elif (moment := parse_http_date(member)) is not None and math.isfinite(now):
                yield max(moment - now, 0.0), "http-date"


def _split_members(value: str) -> Iterable[str]:
    """The members of a combined line; the comma after a weekday belongs to its date."""
    weekday = ""
    for part in value.split(","):
        if _LONE_WEEKDAY.fullmatch(part.strip(" \t")):
            weekday = part + ","
        elif part:
            yield weekday + part
            weekday = ""


def _read_number(text: str) -> float | None:
    """Plain decimal digits, with or without a fraction (RTA-2, RTA-3); too large a number is infinite."""
    text = text.strip(" \t")
    return float(text) if _NUMBER.fullmatch(text) else None


def _measure_date(match: re.Match[str]) -> float | None:
    """Epoch seconds of a date that has the right form; None if there is no such day or time."""
    year, month, day = int(match["year"]), _MONTHS.index(match["month"].lower()) + 1, int(match["day"])
    if len(match["year"]) == 2:
        year += 2000 if year < 70 else 1900
    hour, minute, second = int(match["hour"]), int(match["minute"]), int(match["second"])
    if hour > 23 or minute > 59 or second > 60:  # 60: a leap second
        return None
    try:
        date(year, month, day)
    except ValueError:
        return None
    moment = calendar.timegm((year, month, day, hour, minute, second))
    if match["sign"]:
        offset = int(match["zone_hour"]) * 3600 + int(match["zone_minute"]) * 60
        moment -= offset if match["sign"] == "+" else -offset
    return float(moment)
