"""What happens to managers when the process forks (FRK-1)."""

from __future__ import annotations

import os
import weakref
from typing import Final, Protocol


class Heir(Protocol):
    """Whoever has threads, loops or timers."""

    def _forget_parent(self) -> None: ...


_heirs: Final[weakref.WeakSet[Heir]] = weakref.WeakSet()


def forget_in_children(heir: Heir) -> None:
    """Has a manager, or what else has threads of its own, forget in every forked child what is its parent's."""
    _heirs.add(heir)


def _forget_parents() -> None:
    for heir in list(_heirs):
        heir._forget_parent()


if hasattr(os, "register_at_fork"):  # pragma: no branch - Windows has no fork
    os.register_at_fork(after_in_child=_forget_parents)
