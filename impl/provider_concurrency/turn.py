"""Who of many threads may do what only one may do at a time: asked for, never waited for."""

from __future__ import annotations

from _thread import get_ident
from collections.abc import Callable

__all__ = ["Turn"]


class Turn:
    """Nobody's, or one thread's.

    A lock would do, if no KeyboardInterrupt were raised between its `acquire` and the next instruction, which then
    leaves it taken for ever. Here taking it and saying who has it is one step, and giving it back follows no call, at
    the end of which an interrupt is raised.
    """

    __slots__ = ("_owner",)

    def __init__(self) -> None:
        """Nobody's."""
        self._owner: dict[int, int] = {}

    @property
    def owner(self) -> int:
        """The thread whose turn it is, or 0."""
        return self._owner.get(0, 0)

    def run(self, act: Callable[[], object]) -> bool:
        """Makes the call, unless it is anybody's turn already, this thread's included; returns whether it did."""
        me, owner = get_ident(), self._owner
        if owner.get(0) == me:
            return False
        try:
            if owner.setdefault(0, me) != me:
                return False
            act()
        finally:
            if 0 in owner and owner[0] == me:
                del owner[0]
        return True
