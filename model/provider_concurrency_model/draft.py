"""A state under change, and the changes that everything else is made of: admit, grant, end, cool, apply what is due.

An operation works on a `Draft`: frozen records in dictionaries, replaced and never altered. Capacity is compared in
`has_room` and nowhere else, and slots are granted from the queue in `admit` and nowhere else (ADM-2).
"""

from __future__ import annotations

from typing import Literal

from provider_concurrency_spec.vocabulary import Event, HookPoint, Resumed, SlotEvent, SlotEventKind

from .state import Provider, Slot, State, cooldown_in_force, count_in_flight, limit_in_force, queue_of


class Draft:
    """A state being changed by one step or command; the frozen records in it are replaced, never altered."""

    def __init__(self, state: State) -> None:
        """Starts from a state, which stays as it is."""
        self.settings = state.settings
        self.now_ms = state.now_ms
        self.is_closed = state.is_closed
        self.arrivals = state.arrivals
        self.grants = state.grants
        self.providers = {provider.name: provider for provider in state.providers}
        self.live = {slot.request: slot for slot in state.slots}
        self.ended = state.ended
        self.hooks = state.hooks
        self.events: list[Event] = []
        self.line: list[tuple[HookPoint, str]] = []
        """Callbacks that wait for their turn (CAL-2)."""
        self.is_delivering = False

    def freeze(self) -> State:
        """The state as it is now."""
        return State(
            self.settings, self.now_ms, self.is_closed, self.arrivals, self.grants, tuple(self.providers.values()),
            tuple(self.live.values()), self.ended, self.hooks,
        )  # fmt: skip

    def provider(self, name: str) -> Provider:
        """A provider's record; a new one if it has no state."""
        known = self.providers.get(name)
        if known is None:
            known = self.providers[name] = Provider(name)
        return known

    def emit(self, event: SlotEventKind, slot: Slot) -> None:
        """Tells a slot's transition."""
        self.events.append(SlotEvent(event, self.now_ms, slot.provider, slot.request))


# -- admission -------------------------------------------------------------------------------------------------------


def has_room(draft: Draft, name: str) -> bool:
    """The only place that compares with a limit."""
    limit = limit_in_force(draft.settings, draft.provider(name))
    return limit is None or count_in_flight(draft.live.values(), name) < limit


def is_open(draft: Draft, name: str) -> bool:
    """ADM-4: nothing is granted while paused or closed."""
    return not draft.is_closed and draft.provider(name).paused_until_ms is None


def can_grant_at_once(draft: Draft, name: str) -> bool:
    """ADM-1: open, room, and nobody waits."""
    return is_open(draft, name) and has_room(draft, name) and not queue_of(draft.live.values(), name)


def admit(draft: Draft, name: str) -> None:
    """ADM-2: while open and while there is room, the head of the queue is granted; it is delivered later."""
    while is_open(draft, name) and (queue := queue_of(draft.live.values(), name)) and has_room(draft, name):
        grant(draft, queue[0], is_delivered=False)


def grant(draft: Draft, slot: Slot, *, is_delivered: bool) -> None:
    """A slot is taken inside the operation that causes it (ADM-3), and the grant touches it (WAT-2)."""
    draft.grants += 1
    draft.live[slot.request] = slot._replace(
        state="held", deadline_ms=None, touched_ms=draft.now_ms, grant=draft.grants, is_delivered=is_delivered
    )
    draft.emit("granted", slot)


def end(
    draft: Draft, slot: Slot, state: Literal["free", "cancelled", "timed_out", "rejected"], event: SlotEventKind
) -> None:
    """ACC-2: a slot reaches its one end."""
    draft.live.pop(slot.request, None)
    draft.ended += (slot._replace(state=state, deadline_ms=None),)
    draft.emit(event, slot)


def start_cooldown(draft: Draft, slot: Slot, state: Literal["cooling", "reclaimed"]) -> None:
    """REL-3: the cooldown in force now decides, whatever is configured later; one of 0 is over at once. Then ADM-2."""
    cooldown_ms = cooldown_in_force(draft.settings, draft.provider(slot.provider))
    left = slot._replace(
        state=state,
        deadline_ms=draft.now_ms + cooldown_ms,
        was_reclaimed=slot.was_reclaimed or state == "reclaimed",
    )
    draft.live[slot.request] = left
    draft.emit("reclaimed" if state == "reclaimed" else "released", left)
    if cooldown_ms == 0:
        end(draft, left, "free", "recycled")
    admit(draft, slot.provider)


def apply_due(draft: Draft, name: str) -> None:
    """TIM-3: what is due of a provider, one by one in order of deadline; each may make room."""
    while True:
        due: list[tuple[int, int, int, Slot | None]] = []
        paused_until_ms = draft.provider(name).paused_until_ms
        if paused_until_ms is not None and paused_until_ms <= draft.now_ms:
            due.append((paused_until_ms, 1, 0, None))
        due += [
            (slot.deadline_ms, 2 if slot.state == "queued" else 0, slot.arrival, slot)
            for slot in draft.live.values()
            if slot.provider == name and slot.deadline_ms is not None and slot.deadline_ms <= draft.now_ms
        ]
        if not due:
            return
        _, _, _, first = min(due, key=lambda item: item[:3])
        if first is None:
            end_pause(draft, name)
        elif first.state == "queued":
            end(draft, first, "timed_out", "timed_out")  # CAN-3
        else:
            end(draft, first, "free", "recycled")  # REL-3
        admit(draft, name)


def end_pause(draft: Draft, name: str) -> None:
    """A pause is over and told once."""
    draft.providers[name] = draft.provider(name)._replace(paused_until_ms=None)
    draft.events.append(Resumed(draft.now_ms, name))


def is_stateless(draft: Draft, provider: Provider) -> bool:
    """ACC-3: no limit, cooldown or pause of its own, and no live slot."""
    return (
        provider.limit is None
        and provider.cooldown_ms is None
        and provider.paused_until_ms is None
        and not any(slot.provider == provider.name for slot in draft.live.values())
    )
