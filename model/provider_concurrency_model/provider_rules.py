"""What pauses and changes of configuration must obey, and what they do to a provider's book.

A function per event: `act(ledger, book)`; the event's time and value are in the ledger. Whether a pause may begin or
end at all is a matter of the lifecycle's table.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final, TypeAlias, cast

from provider_concurrency_model.findings import MonitorConfig, seconds_to_ns
from provider_concurrency_model.ledger import Ledger, ProviderBook
from provider_concurrency_model.slot_rules import PAUSE, apply_deadline

ProviderAction: TypeAlias = Callable[[Ledger, ProviderBook], None]


def pause(ledger: Ledger, book: ProviderBook) -> None:
    """The later end counts (PAU-1); the length is what PAU-2 makes of the request."""
    requested, applied = cast("tuple[object, int]", ledger.value)
    if not may_apply(ledger.config, requested, book.cooldown, applied):
        ledger.report("PAU-2", f"a report of {requested!r} s can't pause {book.name!r} for {applied} ns")
    book.caused = book.op
    book.paused_at = ledger.t_ns
    book.paused_until = max(book.paused_until, ledger.t_ns + applied)


def may_apply(config: MonitorConfig, requested: object, cooldown_ns: int, applied_ns: int) -> bool:
    """Whether PAU-2 makes this pause of that request (seconds), one tick of rounding aside."""
    wishes: tuple[int, ...]
    if isinstance(requested, bool) or not isinstance(requested, int | float) or math.isnan(requested):
        # A recorder has no word for Infinity: it says then that nothing was requested.
        wishes = (config.default_pause_ns, config.max_pause_ns)
    elif requested < 0:
        wishes = (config.default_pause_ns,)
    elif math.isinf(requested):
        wishes = (config.max_pause_ns,)
    else:
        wishes = (seconds_to_ns(requested),)
    lengths = (min(max(wish, config.min_pause_ns, cooldown_ns), config.max_pause_ns) for wish in wishes)
    return any(abs(applied_ns - length) <= 1 + (length >> 50) for length in lengths)


def resume(ledger: Ledger, book: ProviderBook) -> None:
    """By the deadline, not before it (PAU-5); earlier only by `resume`, which is an operation of its own."""
    late_ns = ledger.t_ns - book.paused_until
    if late_ns >= 0:
        ledger.lateness["resumed"].add(late_ns)
        apply_deadline(ledger, book, (book.op, book.paused_until, PAUSE, 0), None)
    elif not ledger.resumes or book.caused == book.op:
        ledger.report("PAU-5", f"{book.name!r} resumed {-late_ns} ns before its pause was due at {book.paused_until}")
    else:
        ledger.early_resumes += 1
    book.paused_until = 0


def set_limit(ledger: Ledger, book: ProviderBook) -> None:
    """A limit is an int >= 0 (LIM-1)."""
    book.caused = book.op
    limit = ledger.value
    if type(limit) is not int or limit < 0:
        ledger.report("LIM-1", f"a limit can't be {limit!r}")
    else:
        book.set_limit(limit, ledger.config)


def remove_limit(ledger: Ledger, book: ProviderBook) -> None:
    """The default limit is in force again (LIM-3, LIM-4)."""
    book.caused = book.op
    book.set_limit(None, ledger.config)


def set_cooldown(ledger: Ledger, book: ProviderBook) -> None:
    """A cooldown for releases from now on (ACC-4)."""
    book.caused = book.op
    cooldown = ledger.value
    if cooldown is None:
        book.set_cooldown(None, ledger.config)
    elif type(cooldown) is not int or cooldown < 0:
        ledger.report("ACC-4", f"a cooldown can't be {cooldown!r}")
    else:
        book.set_cooldown(cooldown, ledger.config)


PROVIDER_ACTIONS: Final[dict[str, ProviderAction]] = {
    "paused": pause,
    "resumed": resume,
    "limit_set": set_limit,
    "limit_removed": remove_limit,
    "cooldown_set": set_cooldown,
}
