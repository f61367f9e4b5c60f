"""What happens to managers when the process forks (FRK-1)."""

from __future__ import annotations

import os
import weakref
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from provider_concurrency.shell import Shell

_shells: Final[weakref.WeakSet[Shell]] = weakref.WeakSet()


def forget_in_children(shell: Shell) -> None:
    """Has a manager forget in every forked child what is its parent's."""
    _shells.add(shell)


def _forget_parents() -> None:
    for shell in list(_shells):
        shell._forget_parent()


if hasattr(os, "register_at_fork"):  # pragma: no branch - Windows has no fork
    os.register_at_fork(after_in_child=_forget_parents)
