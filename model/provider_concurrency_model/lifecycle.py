"""The lifecycle of a slot, a provider and a manager, as data. All that runs or draws it is made from these tables.

A **slot** is what one request becomes. It is granted at once, or it waits, or with timeout 0 it ends at once (ADM-1,
CAN-3). A waiting one is granted by an admission step, or leaves: cancelled, timed out, or rejected by close (ADM-2,
CAN-1, CAN-3, CLO-1). A held one is released by its holder, reclaimed by a sweep, or cancelled before its caller
received it; nothing was sent upstream then, so there is no cooldown (REL-1, WAT-1, CAN-2). Released and reclaimed slots
count until their cooldown is over, or close, and are free then (REL-3, WAT-3, CLO-1). Every end is final: it absorbs
all later calls without an event (ACC-2). A closed manager's held slot goes the same way, released and recycled in one
call. A refused request (invalid, closed, queue full, try_acquire without luck) never becomes a slot, so it has no row.

A **provider** is open or paused. Every report of a 429 is an event, also one that doesn't extend the pause; a pause
ends once, by its deadline or by resume, and close ends it without an event (PAU-1, PAU-2, PAU-5, CLO-1).

A **manager** is open or closed, and closed for ever (CLO-1).

What the tables don't say, because it isn't a matter of one slot: whether there was room, whose turn it was, and when
the cooldown was over. `judging` knows that.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from provider_concurrency_spec.vocabulary import SlotEventKind, SlotStateName

if TYPE_CHECKING:
    from transitions import Machine
    from transitions.core import TransitionConfig

SlotState: TypeAlias = Literal["new"] | SlotStateName
"""A slot's state; "new" is the request before its first event, which no status ever shows."""

ChartName: TypeAlias = Literal["slot", "provider", "manager"]


@dataclass(frozen=True, slots=True)
class Exit:
    """One row: by `event` the thing goes `to` another state; `by` says what causes it, `rules` why it may."""

    event: str
    to: str
    by: str
    rules: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Chart:
    """A state chart: every state with its exits; a state without any is an end."""

    name: ChartName
    initial: str
    exits: Mapping[str, tuple[Exit, ...]]

    @property
    def states(self) -> tuple[str, ...]:
        """All states, in the order of the table."""
        return tuple(self.exits)

    @property
    def events(self) -> tuple[str, ...]:
        """All events, each once, in the order of the table."""
        return tuple(dict.fromkeys(leave.event for _, leave in self.rows()))

    @property
    def ends(self) -> tuple[str, ...]:
        """The states that nothing leaves."""
        return tuple(state for state, exits in self.exits.items() if not exits)

    def rows(self) -> Iterator[tuple[str, Exit]]:
        """Each row with the state that it leaves."""
        for state, exits in self.exits.items():
            for leave in exits:
                yield state, leave

    def table(self) -> dict[tuple[str, str], str]:
        """The plain form, for speed: (state, event) -> next state; a pair that isn't there is illegal."""
        return {(state, leave.event): leave.to for state, leave in self.rows()}


SLOT: Final = Chart(
    name="slot",
    initial="new",
    exits={
        "new": (
            Exit("granted", "held", "acquire or try_acquire, granted at once", ("ADM-1", "ADM-8")),
            Exit("queued", "queued", "acquire, not grantable", ("ADM-1", "ORD-1")),
            Exit("timed_out", "timed_out", "acquire with timeout 0, not grantable", ("ADM-7", "CAN-3")),
        ),
        "queued": (
            Exit("granted", "held", "admission step", ("ADM-2", "ADM-3")),
            Exit("cancelled", "cancelled", "its caller was cancelled", ("CAN-1",)),
            Exit("timed_out", "timed_out", "its deadline is due", ("CAN-3",)),
            Exit("rejected", "rejected", "close", ("CLO-1",)),
        ),
        "held": (
            Exit("released", "cooling", "release", ("REL-1",)),
            Exit("reclaimed", "reclaimed", "sweep", ("WAT-1", "WAT-3")),
            Exit("cancelled", "cancelled", "cancelled before its caller received it", ("CAN-2",)),
        ),
        "cooling": (Exit("recycled", "free", "cooldown due, or close", ("REL-3", "CLO-1")),),
        "reclaimed": (Exit("recycled", "free", "cooldown due, or close", ("WAT-3", "CLO-1")),),
        "free": (),
        "cancelled": (),
        "timed_out": (),
        "rejected": (),
    },
)

PROVIDER: Final = Chart(
    name="provider",
    initial="open",
    exits={
        "open": (Exit("paused", "paused", "a 429 was reported", ("PAU-1", "PAU-2")),),
        "paused": (
            Exit("paused", "paused", "another 429: the later end counts", ("PAU-1", "PAU-2")),
            Exit("resumed", "open", "deadline due, or resume", ("PAU-5",)),
        ),
    },
)

MANAGER: Final = Chart(
    name="manager",
    initial="open",
    exits={
        "open": (Exit("closed", "closed", "close", ("CLO-1",)),),
        "closed": (),
    },
)

CHARTS: Final[tuple[Chart, ...]] = (SLOT, PROVIDER, MANAGER)

SLOT_TABLE: Final = SLOT.table()
PROVIDER_TABLE: Final = PROVIDER.table()
MANAGER_TABLE: Final = MANAGER.table()

SLOT_TARGETS: Final[dict[str, str]] = {leave.event: leave.to for _, leave in SLOT.rows()}
"""Where each slot event leads. An event has one target from wherever it is legal (a test holds it to that)."""

IN_FLIGHT_STATES: Final = frozenset({"held", "cooling", "reclaimed"})
"""The states that count in in_flight."""

_EVENT_RULES: Final[dict[SlotEventKind, str]] = {
    "granted": "ADM-2",  # grants the head of the queue, or a newcomer
    "queued": "ADM-1",  # only a newcomer queues
    "timed_out": "CAN-3",  # only what is still queued
    "cancelled": "CAN-2",  # only what is queued, or held and not yet received
    "rejected": "CLO-1",  # only what is queued
    "released": "REL-1",  # only the first release of a held slot
    "reclaimed": "WAT-1",  # only a held slot
    "recycled": "REL-3",  # only after a release or a reclaim
}


def refusing_rule(state: str, event: SlotEventKind) -> str:
    """The rule that an illegal slot event breaks: ends absorb everything (ACC-2), else what the event asks for."""
    return "ACC-2" if not SLOT.exits[state] else _EVENT_RULES[event]


def build_machine(chart: Chart = SLOT, model: object | None = None) -> Machine:
    """Makes the `transitions.Machine` of a chart; needs the extra `check`.

    Without a model it is shared: `machine.events[event].trigger(slot)` moves any object that has a `state`, without
    the cost of registering it, and raises `transitions.MachineError` where the table has no row. There is no way
    around the chart: no `to_*` shortcuts, and what is illegal is never silently ignored.
    """
    from transitions import Machine

    rows: list[TransitionConfig] = [
        {"trigger": leave.event, "source": state, "dest": leave.to} for state, leave in chart.rows()
    ]
    return Machine(
        model=model,
        states=[{"name": state, "final": not exits} for state, exits in chart.exits.items()],
        transitions=rows,
        initial=chart.initial,
        auto_transitions=False,
        ignore_invalid_triggers=False,
        name=chart.name,
    )


def draw_chart(chart: Chart) -> str:
    """The chart as a Mermaid `stateDiagram-v2`, rule ids on the edges; the same text from every run.

    Drawn here and not by `transitions`' GraphMachine: its text is stable, too, but marks an active state in red,
    knows no ends, and has no place for rules.
    """
    lines = ["stateDiagram-v2", f"    [*] --> {chart.initial}"]
    lines += [f"    {state} --> {leave.to}: {leave.event} ({', '.join(leave.rules)})" for state, leave in chart.rows()]
    lines += [f"    {end} --> [*]" for end in chart.ends]
    return "\n".join(lines)


def draw_lifecycle() -> str:
    """The three charts as a block of Markdown."""
    drawings = [f"The {chart.name}:\n\n```mermaid\n{draw_chart(chart)}\n```" for chart in CHARTS]
    return "\n\n".join(drawings)
