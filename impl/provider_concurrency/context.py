"""Whose request this is, said once around a block instead of at every call.

    with conversation("c1", prompt_started_at=prompt.sent_at):
        await client.chat.completions.create(...)  # and every retry, redirect and tool round of it

An SDK's signature has no room for a conversation id, and the transport underneath sees only HTTP. A context variable
reaches it: tasks that an SDK starts inherit it, other tasks don't see it.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Final

from provider_concurrency.validation import check_conversation, check_number, check_provider

__all__ = ["Conversation", "conversation", "current_conversation"]


@dataclass(slots=True, eq=False)
class Conversation:
    """One block of `conversation(...)`.

    `id`: for reports, never a key (ORD-2). `provider`: the provider of every request of the block, or None to leave
    that to the transport. `prompt_started_at`: when the user's prompt began, on the manager's scale (epoch seconds
    unless told otherwise); None until the first request of the block has set it (CTX-2). `parent`: the innermost block
    around it that was open when it began (NST-1); `is_over`: it has ended.
    """

    id: str | None
    provider: str | None = None
    prompt_started_at: float | None = None
    parent: Conversation | None = field(default=None, repr=False)
    is_over: bool = False

    def settle_prompt(self, wall_clock: Callable[[], float]) -> float:
        """The prompt time of every request of this block: as given, else the moment of the first one (CTX-2)."""
        if self.prompt_started_at is None:
            self.prompt_started_at = wall_clock()
        return self.prompt_started_at


current_block: Final[ContextVar[Conversation | None]] = ContextVar("provider_concurrency.conversation", default=None)


@contextmanager
def conversation(
    conversation_id: str | None, *, provider: str | None = None, prompt_started_at: float | None = None
) -> Generator[Conversation, None, None]:
    """Requests sent through our transports inside the block belong to this conversation (CTX-1).

    One block a prompt: without `prompt_started_at` the first request of the block fixes it for all later ones, so
    that a retry or a tool round keeps its place (CTX-2). An inner block replaces the outer one entirely, but for the
    path: a request of the inner one that waits for a slot of the outer one is self-blocked (NST-1). Raises TypeError or
    ValueError, naming the argument.
    """
    parent = _find_open(current_block.get())
    if parent is not None:
        parent.parent = _find_open(parent.parent)  # so that blocks that start each other for ever keep none of it
    current = Conversation(
        check_conversation(conversation_id),
        None if provider is None else check_provider(provider),
        None if prompt_started_at is None else check_number("prompt_started_at", prompt_started_at),
        parent,
    )
    token = current_block.set(current)
    try:
        yield current
    finally:
        current.is_over = True
        current_block.reset(token)


def current_conversation() -> Conversation | None:
    """The innermost conversation of the running task, or None."""
    return current_block.get()


def open_blocks() -> Iterator[Conversation]:
    """The path of the running task (NST-1): the blocks around it that haven't ended, the innermost one first."""
    block = _find_open(current_block.get())
    while block is not None:
        yield block
        block = _find_open(block.parent)


def _find_open(block: Conversation | None) -> Conversation | None:
    """The innermost block that hasn't ended: a task may outlive the block that it was started in."""
    while block is not None and block.is_over:
        block = block.parent
    return block
