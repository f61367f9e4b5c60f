"""What the manager tells about a provider: frozen copies, made at the reading."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from provider_concurrency.slot import SlotState

__all__ = ["ProviderStatus", "SlotInfo"]


@dataclass(frozen=True, slots=True)
class ProviderStatus:
    """One provider at one moment; a snapshot that never changes.

    `limit` is the provider's own (None: it has the manager's default_limit). `in_flight` = held + cooling +
    reclaimed. `head_wait`: seconds that the request at the head of the queue has waited. `paused_for`: seconds until
    the pause ends; `paused_until`: the same moment in epoch seconds, computed at the reading (TIM-1). Both None when
    the provider isn't paused. `self_blocked`: every slot is held by a conversation around one that waits (NST-1).
    """

    provider: str
    limit: int | None
    in_flight: int
    held: int
    cooling: int
    reclaimed: int
    queued: int
    head_wait: float | None
    paused: bool
    paused_for: float | None
    paused_until: float | None
    self_blocked: bool = False


@dataclass(frozen=True, slots=True)
class SlotInfo:
    """One slot at one moment: who holds it or waits, and for how long.

    `age`: seconds held so far (held), queued so far (queued). `idle`: seconds since the last touch, None unless held.
    """

    state: SlotState
    conversation_id: str | None
    prompt_started_at: float
    age: float
    idle: float | None
