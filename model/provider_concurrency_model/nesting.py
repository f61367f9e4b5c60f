"""NST-1: conversations that wait for slots which only their own ancestors hold.

A conversation is somebody inside somebody: an agent that holds a slot asks for another one on behalf of a sub-agent.
If the whole limit is held by such parents, and all they do is wait for their children, nothing will ever move. The
manager can't know whether a parent waits, but it knows who is inside whom, and says so.
"""

from __future__ import annotations

from provider_concurrency_spec.vocabulary import Acquire, TryAcquire

from .draft import Draft, has_room
from .state import IN_FLIGHT, Slot


def find_ancestors(operation: Acquire | TryAcquire) -> frozenset[str]:
    """The ids on the path, its own conversation's left out: the one it names, else that of the innermost block."""
    if isinstance(operation, TryAcquire) or not operation.path:
        return frozenset()
    own = operation.path[-1] if operation.conversation is None else operation.conversation
    return frozenset(operation.path) - {own}


def is_self_blocked(draft: Draft, name: str, newcomer: Slot | None = None) -> bool:
    """Whether somebody waits, the limit is reached by held slots alone, and each of them is an ancestor's of a waiter.

    `newcomer`: as if it waited, too. Where nobody holds (a limit of 0), nobody waits for itself.
    """
    slots = [slot for slot in draft.live.values() if slot.provider == name]
    waiting = [slot for slot in slots if slot.state == "queued"]
    if newcomer is not None:
        waiting.append(newcomer)
    counting = [slot for slot in slots if slot.state in IN_FLIGHT]
    if not waiting or not counting or has_room(draft, name):
        return False
    awaited = {ancestor for slot in waiting for ancestor in slot.ancestors}
    return all(slot.state == "held" and slot.conversation in awaited for slot in counting)
