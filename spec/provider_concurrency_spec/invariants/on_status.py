"""What holds of every status at rest."""

from __future__ import annotations

from typing import Final

from provider_concurrency_spec.invariants.kinds import Invariant, RowSeen, StatusSeen, invariant, whole


@invariant("row", "ACC-1")
def in_flight_is_the_sum(seen: RowSeen) -> str | None:
    """in_flight is what is held, cooling and reclaimed, and no count is negative."""
    row = seen.row
    counts = (row.in_flight, row.held, row.cooling, row.reclaimed, row.queued)
    if min(counts) < 0:
        return f"{row.provider!r} has a negative count: {row}"
    if row.in_flight != row.held + row.cooling + row.reclaimed:
        return f"{row.provider!r}: in_flight {row.in_flight} isn't {row.held} + {row.cooling} + {row.reclaimed}"
    return None


@invariant("row", "LIM-1")
def limit_is_a_count(seen: RowSeen) -> str | None:
    """A limit is at least 0."""
    if seen.row.limit is not None and seen.row.limit < 0:
        return f"{seen.row.provider!r} has limit {seen.row.limit}"
    return None


@invariant("row", "PAU-2", "PAU-5")
def pause_is_ahead_and_bounded(seen: RowSeen) -> str | None:
    """A provider is paused iff it says for how long: for more than 0 (what is due has ended), at most max_pause."""
    row = seen.row
    if row.paused != (row.paused_for_ms is not None):
        return f"{row.provider!r}: paused is {row.paused}, paused_for_ms {row.paused_for_ms}"
    if row.paused_for_ms is None:
        return None
    longest = whole(seen.config.max_pause_ms)
    if row.paused_for_ms <= 0 or (longest is not None and row.paused_for_ms > longest):
        return f"{row.provider!r} is paused for {row.paused_for_ms} ms; max_pause is {longest}"
    return None


@invariant("row", "ADM-5")
def nobody_waits_beside_room(seen: RowSeen) -> str | None:
    """Whoever waits at rest waits for a pause or for room: paused, or in_flight >= limit (no lost wake-up)."""
    row, limit = seen.row, seen.limit_in_force
    if row.queued and not row.paused and (limit is None or row.in_flight < limit):
        return f"{row.queued} wait at {row.provider!r} though it is open with {row.in_flight} of {limit} in flight"
    return None


@invariant("row", "ADM-7")
def queue_is_within_its_bound(seen: RowSeen) -> str | None:
    """No more requests wait at a provider than max_queued."""
    most = whole(seen.config.max_queued)
    if most is not None and seen.row.queued > most:
        return f"{seen.row.queued} wait at {seen.row.provider!r}; max_queued is {most}"
    return None


@invariant("status", "ACC-3")
def one_row_per_provider(seen: StatusSeen) -> str | None:
    """A provider has one row at most."""
    names = [row.provider for row in seen.status]
    twice = sorted({name for name in names if names.count(name) > 1}) if len(set(names)) < len(names) else []
    return f"several rows of {twice}" if twice else None


@invariant("row", "NST-1")
def who_waits_for_itself_waits_for_holders(seen: RowSeen) -> str | None:
    """self_blocked is told iff it is asked for; where it is true somebody waits, and held slots fill the limit."""
    row, limit = seen.row, seen.limit_in_force
    if (row.self_blocked is not None) != (seen.config.nested is not None):
        return f"{row.provider!r}: self_blocked is {row.self_blocked}, nested {seen.config.nested!r}"
    if row.self_blocked and (not 0 < row.held == row.in_flight or not row.queued or limit is None or row.held < limit):
        return f"{row.provider!r} is self-blocked under limit {limit}: {row}"
    return None


ROW_INVARIANTS: Final[tuple[Invariant[RowSeen], ...]] = (
    in_flight_is_the_sum,
    limit_is_a_count,
    pause_is_ahead_and_bounded,
    nobody_waits_beside_room,
    queue_is_within_its_bound,
    who_waits_for_itself_waits_for_holders,
)

STATUS_INVARIANTS: Final[tuple[Invariant[StatusSeen], ...]] = (one_row_per_provider,)
