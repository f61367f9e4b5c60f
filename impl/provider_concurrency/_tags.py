"""A slot's state as the core keeps it: small ints, since an enum member costs a class lookup each time.

Two tags say more than the public state: HANDED is `held`, but the caller hasn't received the slot yet (CAN-2);
FREE_RECLAIMED is `free` after a reclaim, so that `slot.reclaimed` stays true (WAT-3).
"""

from __future__ import annotations

from typing import Final

HELD: Final = 0
HANDED: Final = 1
QUEUED: Final = 2
COOLING: Final = 3
RECLAIMED: Final = 4
FREE: Final = 5
FREE_RECLAIMED: Final = 6
CANCELLED: Final = 7
TIMED_OUT: Final = 8
REJECTED: Final = 9
NEW: Final = 10
"""A request that has been neither granted nor queued yet."""
