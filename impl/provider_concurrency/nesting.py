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

from collections import Counter
from typing import TYPE_CHECKING

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


def count_queued(p: Provider, slot: Slot) -> None:
    """A request has joined the queue: its ancestors enclose one more."""
    if ancestors := ancestors_of(slot):
        p.enclosing = p.enclosing or Counter()
        p.enclosing.update(ancestors)


def discount_queued(p: Provider, slot: Slot) -> None:
    """A request has left the queue; to be called while anybody encloses a queued one."""
    assert p.enclosing is not None, "what was counted is there to be discounted"
    p.enclosing -= Counter(ancestors_of(slot))  # which keeps only what is above 0


def is_self_blocked(p: Provider, asking: Slot | None = None) -> bool:
    """Whether somebody waits (or, with `asking`, is about to) and every slot is held by an ancestor of one who does.

    What cools or was reclaimed comes back by itself, and so does a holder of whom nothing is known, or who encloses
    nobody: with one of those it is not for ever.
    """
    if p.cooling or not 0 < len(p.held) >= p.ceiling:
        return False
    enclosing = p.enclosing or frozenset[str]()
    about_to = frozenset[str]() if asking is None else ancestors_of(asking)
    return all(slot.conversation_id in enclosing or slot.conversation_id in about_to for slot in list(p.held))


def would_deadlock(p: Provider, slot: Slot) -> bool:
    """Whether a request that would have to queue is nested, and nobody could ever release for it."""
    note_ancestors(slot)
    return bool(ancestors_of(slot)) and is_self_blocked(p, slot)
