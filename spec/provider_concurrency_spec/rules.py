"""The rules' ids as data: what SPEC.md explains, scenarios and invariants point at, and a report names.

`shown` says how much of a rule port protocol 1 can show. A rule that it shows wholly or partly has at least one
scenario; what it can't show stands in SPEC.md's table "Rules that protocol 1 can't show", with the test that covers it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

Shown: TypeAlias = Literal["wholly", "partly", "not"]


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule: its id, its title in one line (SPEC.md's heading), and whether protocol 1 can show it."""

    id: str
    title: str
    shown: Shown = "wholly"


RULES: Final[tuple[Rule, ...]] = (
    Rule("ACC-1", "Every grant is counted, limit or not"),
    Rule("ACC-2", "A slot reaches exactly one end"),
    Rule("ACC-3", "An idle provider without settings has no state", "partly"),
    Rule("ACC-4", "A provider may have a cooldown of its own"),
    Rule("ADM-1", "Granted at once, or queued: no barging"),
    Rule("ADM-2", "One admission step grants the head"),
    Rule("ADM-3", "A grant takes its slot inside the causing operation"),
    Rule("ADM-4", "Nothing is granted while paused, closed or full"),
    Rule("ADM-5", "At rest nobody waits beside free room"),
    Rule("ADM-6", "Above the limit in_flight never rises"),
    Rule("ADM-7", "A full queue refuses"),
    Rule("ADM-8", "try_acquire never queues"),
    Rule("ORD-1", "Oldest prompt first, then arrival"),
    Rule("ORD-2", "A conversation is no key"),
    Rule("ORD-3", "Older prompts may starve a younger one"),
    Rule("REL-1", "The first release starts the cooldown"),
    Rule("REL-2", "Release is synchronous and idempotent"),
    Rule("REL-3", "A cooling slot counts to its last tick"),
    Rule("CAN-1", "A cancelled waiter leaves at that moment", "partly"),
    Rule("CAN-2", "A grant nobody received is given back without a cooldown"),
    Rule("CAN-3", "A waiter with a deadline leaves when it is due"),
    Rule("PAU-1", "A shorter report never shortens a pause"),
    Rule("PAU-2", "How long a reported pause is"),
    Rule("PAU-3", "A pause belongs to the provider, limit or not"),
    Rule("PAU-4", "A pause stops grants and nothing else"),
    Rule("PAU-5", "A pause ends by its deadline or by resume"),
    Rule("WAT-1", "A sweep reclaims slots untouched for too long", "partly"),
    Rule("WAT-2", "A grant touches, touch touches again"),
    Rule("WAT-3", "A reclaimed slot counts for the cooldown"),
    Rule("WAT-4", "A failing reclaim callback stops no sweep"),
    Rule("WAT-5", "Every reclaim is logged as a warning", "not"),
    Rule("LIM-1", "A limit is a whole number, 0 admits nobody"),
    Rule("LIM-2", "Lowering evicts nobody, raising admits by spare room"),
    Rule("LIM-3", "remove_limit takes the limit away and nothing else"),
    Rule("LIM-4", "The manager's default limit"),
    Rule("CLO-1", "Close is terminal and leaves nothing behind"),
    Rule("CLO-2", "What a closed manager refuses", "partly"),
    Rule("TIM-1", "Monotonic integer time", "partly"),
    Rule("TIM-2", "Early timers change nothing, late ones are not back-dated", "partly"),
    Rule("TIM-3", "What is due is applied first, in order of deadline"),
    Rule("TIM-4", "At most one timer per provider and one for the sweeps", "partly"),
    Rule("CAL-1", "on_queued is called once, after the enqueueing"),
    Rule("CAL-2", "State first, then notifications in one line"),
    Rule("CAL-3", "A callback may call anything"),
    Rule("CAL-4", "A raising callback changes no outcome", "partly"),
    Rule("LOP-1", "Event loops: none, closed, another", "not"),
    Rule("THR-1", "Other threads may release, touch and read", "not"),
    Rule("FIN-1", "Slots have no finaliser", "not"),
    Rule("FRK-1", "A forked child keeps configuration and pauses", "not"),
    Rule("RTA-1", "A header counts or is absent, and never raises", "not"),
    Rule("RTA-2", "delta-seconds", "not"),
    Rule("RTA-3", "retry-after-ms", "not"),
    Rule("RTA-4", "HTTP-date", "not"),
    Rule("RTA-5", "The longest wins", "not"),
    Rule("RTA-6", "The cap is the manager's, and is told", "not"),
    Rule("GRD-1", "A stream's slot is given back once, when the stream has ended", "not"),
    Rule("GRD-2", "A reader that is gone gives it back", "not"),
    Rule("GRD-3", "A forgotten stream is closed by its finaliser", "not"),
    Rule("GRD-4", "A reclaimed stream is closed at once", "not"),
    Rule("GRD-5", "Signs of life", "not"),
    Rule("HTT-1", "Whose request it is", "not"),
    Rule("HTT-2", "Redirects, auth hops and retries keep the prompt time", "not"),
    Rule("HTT-3", "Every request that reaches the transport takes its own slot", "not"),
    Rule("HTT-4", "The slot is held until the response's body has ended", "not"),
    Rule("HTT-5", "429", "not"),
    Rule("HTT-6", "The first byte has its own limit", "not"),
    Rule("HTT-7", "Keep-alives", "not"),
    Rule("HTT-8", "Our errors stay ours", "not"),
    Rule("CTX-1", "A block says whose its requests are", "not"),
    Rule("CTX-2", "One prompt time a block", "not"),
    Rule("OBS-1", "What an observer remembers", "not"),
    Rule("OBS-2", "attach tells what no event tells", "not"),
    Rule("OBS-3", "One line an event, without secrets", "not"),
    Rule("OBS-4", "Metrics say what the status says", "not"),
    Rule("OBS-5", "OpenTelemetry", "not"),
    Rule("PER-1", "What is kept", "not"),
    Rule("PER-2", "Restoring", "not"),
    Rule("PER-3", "A pause goes on by wall clock", "not"),
    Rule("PER-4", "The file is replaced as a whole", "not"),
    Rule("PER-5", "A corrupt file is reported and kept aside", "not"),
    Rule("PER-6", "Names can't collide", "not"),
    Rule("PER-7", "Saving disturbs nobody", "not"),
    Rule("NST-1", "Who waits for itself is told", "partly"),
    Rule("BLK-1", "Calls that wait block their thread", "not"),
    Rule("BLK-2", "No callback runs under a lock", "not"),
    Rule("BLK-3", "Each call is one moment", "not"),
    Rule("BLK-4", "One thread wakes", "not"),
    Rule("BLK-5", "Finalisers and signal handlers", "not"),
    Rule("BLK-6", "A broken change is mended", "not"),
    Rule("BLK-7", "Fork", "not"),
    Rule("BLK-8", "Streams and transports for threads", "not"),
)
"""Every rule, in the order of SPEC.md."""

RULE_IDS: Final[tuple[str, ...]] = tuple(rule.id for rule in RULES)
