"""Agents that wait for themselves: parents hold every slot, and their children queue for one (NST-1).

    with conversation("parent"):
        async with manager.slot("openai", conversation_id="parent"):
            with conversation("child"):  # a task started here inherits the path, too
                await manager.acquire("openai", conversation_id="child")  # limit 1: nobody will ever release

The path of a request is its own conversation and the blocks that are open around it. A slot belongs to the
conversation whose id it carries. Only what has to queue is asked for its path, and who holds is looked at when somebody
wants to know: a request that is granted at once pays nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from provider_concurrency._tags import QUEUED
from provider_concurrency.context import open_blocks

if TYPE_CHECKING:
    from provider_concurrency.provider import Provider
    from provider_concurrency.slot import Slot


def note_ancestors(slot: Slot) -> None:
    """Keeps with a request that queues who encloses it; to be called where its caller called acquire."""
    path = [block.id for block in open_blocks()]
    if not path:
        return
    own = path[0] if slot.conversation_id is None else slot.conversation_id
    ancestors = frozenset(each for each in path if each is not None and each != own)
    if ancestors:
        slot._ancestors = ancestors


def ancestors_of(slot: Slot) -> frozenset[str]:
    """The conversations around a request that queued, its own one left out."""
    return getattr(slot, "_ancestors", frozenset())


def is_self_blocked(p: Provider, asking: Slot | None = None) -> bool:
    """Whether somebody waits (or, with `asking`, is about to) and every slot is held by an ancestor of one who does.

    What cools or was reclaimed comes back by itself, and so does a holder of whom nothing is known, or who encloses
    nobody: with one of those it is not for ever.
    """
    if p.cooling or not 0 < len(p.held) >= p.ceiling:
        return False
    if asking is not None:
        waiting = [asking]
    elif p.queue is None:
        return False
    else:
        waiting = []
    owners = {slot.conversation_id for slot in list(p.held)}
    if None in owners:
        return False
    if p.queue is not None:
        waiting += [entry[2] for entry in (*p.queue.run, *p.queue.late) if entry[2]._state == QUEUED]
    for slot in waiting:
        owners -= ancestors_of(slot)
        if not owners:
            return True
    return False


def would_deadlock(p: Provider, slot: Slot) -> bool:
    """Whether a request that would have to queue is nested, and nobody could ever release for it."""
    note_ancestors(slot)
    return bool(ancestors_of(slot)) and is_self_blocked(p, slot)
