"""The faults that `prove` can plant: mistakes that limiters have really made, and what must notice each.

Every theorem is refuted by at least one of them, and every function of the kernel that changes counts fails its
contract under at least one (tests hold it to both).
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from provider_concurrency_model.check.proof import Fault, UnknownFaultError

_KERNEL_FAULTS: Final = (
    Fault(
        name="one-more-than-the-limit",
        part="kernel",
        function="has_room",
        right="< counts.limit",
        wrong="<= counts.limit",
        refutes=("take", "grant", "guards", "grants", "bound", "shrink law", "invariant found"),
    ),
    Fault(
        name="limit-0-is-none",
        part="kernel",
        function="has_room",
        right="counts.limit < 0",
        wrong="counts.limit <= 0",
        refutes=("take", "grant", "guards", "grants", "bound", "shrink law", "invariant found"),
    ),
    Fault(
        name="cooling-slots-dont-count",
        part="kernel",
        function="in_flight",
        right="counts.held + counts.cooling + counts.reclaimed",
        wrong="counts.held + counts.reclaimed",
        refutes=("release", "grants", "bound", "shrink law", "resizing", "invariant found"),
    ),
    Fault(
        name="a-newcomer-passes-the-queue",
        part="kernel",
        function="take",
        right="    pre: counts.queued == 0\n",
        wrong="",
        refutes=("take", "guards"),
    ),
    Fault(
        name="everybody-queues",
        part="kernel",
        function="queue",
        right="    pre: not is_granting(counts) or counts.queued > 0\n",
        wrong="",
        refutes=("queue", "guards", "work conservation", "invariant found"),
    ),
    Fault(
        name="a-newcomers-grant-isnt-counted",
        part="kernel",
        function="take",
        right="replace(counts, held=counts.held + 1)",
        wrong="replace(counts)",
        refutes=("take", "conservation"),
    ),
    Fault(
        name="a-grant-stays-in-the-queue",
        part="kernel",
        function="grant",
        right="queued=counts.queued - 1, ",
        wrong="",
        refutes=("grant", "conservation", "admission", "ranking"),
    ),
    Fault(
        name="grants-go-on-in-a-pause",
        part="kernel",
        function="spare",
        right="counts.closed or counts.paused",
        wrong="counts.closed",
        refutes=("spare", "grants", "admission", "resizing", "pausing"),
    ),
    Fault(
        name="one-admission-is-enough",
        part="kernel",
        function="admit",
        right="min(counts.queued, spare(counts))",
        wrong="min(counts.queued, spare(counts), 1)",
        refutes=("admit", "work conservation", "admission", "resizing", "invariant found"),
    ),
    Fault(
        name="a-release-frees-at-once",
        part="kernel",
        function="release",
        right=", cooling=counts.cooling + 1",
        wrong="",
        refutes=("release", "conservation", "work conservation", "progress", "invariant found"),
    ),
    Fault(
        name="a-second-release-counts-again",
        part="kernel",
        function="release",
        right="    pre: counts.held > 0\n",
        wrong="",
        refutes=("release", "guards", "soundness", "invariant found"),
    ),
    Fault(
        name="a-sweep-reclaims-the-same-slot-for-ever",
        part="kernel",
        function="reclaim",
        right="held=counts.held - 1, ",
        wrong="",
        refutes=("reclaim", "conservation", "bound", "shrink law", "ranking", "invariant found"),
    ),
    Fault(
        name="the-end-of-a-cooldown-wakes-nobody",
        part="kernel",
        function="recycle",
        right="admit(replace(counts, cooling=counts.cooling - 1))",
        wrong="replace(counts, cooling=counts.cooling - 1)",
        refutes=("recycle", "work conservation", "progress", "invariant found"),
    ),
    Fault(
        name="the-end-of-a-reclaimed-slots-cooldown-wakes-two",
        part="kernel",
        function="recycle_reclaimed",
        right="reclaimed=counts.reclaimed - 1",
        wrong="reclaimed=counts.reclaimed - 2",
        refutes=("recycle_reclaimed", "soundness", "conservation", "invariant found"),
    ),
    Fault(
        name="a-grant-given-back-cools-down",
        part="kernel",
        function="give_back",
        right="held=counts.held - 1",
        wrong="held=counts.held - 1, cooling=counts.cooling + 1",
        refutes=("give_back", "conservation"),
    ),
    Fault(
        name="a-grant-is-spent-on-who-was-cancelled",
        part="kernel",
        function="cancel",
        right="queued=counts.queued - 1",
        wrong="queued=counts.queued - 1, held=counts.held + 1",
        refutes=("cancel", "conservation", "bound", "shrink law", "pausing", "invariant found"),
    ),
    Fault(
        name="who-timed-out-still-waits",
        part="kernel",
        function="timeout",
        right="replace(counts, queued=counts.queued - 1)",
        wrong="replace(counts)",
        refutes=("timeout", "conservation", "ranking"),
    ),
    Fault(
        name="a-pause-evicts-who-holds",
        part="kernel",
        function="pause",
        right="replace(counts, paused=not counts.closed)",
        wrong="replace(counts, held=0, paused=not counts.closed)",
        refutes=("pause", "conservation"),
    ),
    Fault(
        name="a-429-pauses-a-closed-manager",
        part="kernel",
        function="pause",
        right="paused=not counts.closed",
        wrong="paused=True",
        refutes=("pause", "soundness", "pausing", "closing"),
    ),
    Fault(
        name="the-end-of-a-pause-fires-the-whole-queue",
        part="kernel",
        function="resume",
        right="admit(replace(counts, paused=False))",
        wrong="replace(counts, queued=0, held=counts.held + counts.queued, paused=False)",
        refutes=("resume", "grants", "bound", "shrink law", "invariant found"),
    ),
    Fault(
        name="a-raised-limit-admits-by-the-difference",
        part="kernel",
        function="set_limit",
        right="admit(replace(counts, limit=limit))",
        wrong="admit(replace(counts, limit=limit)) if limit <= counts.limit else replace("
        "counts, limit=limit, queued=counts.queued - min(counts.queued, limit - counts.limit), "
        "held=counts.held + min(counts.queued, limit - counts.limit))",
        refutes=("set_limit", "grants", "shrink law", "resizing", "invariant found"),
    ),
    Fault(
        name="a-lowered-limit-evicts",
        part="kernel",
        function="set_limit",
        right="replace(counts, limit=limit)",
        wrong="replace(counts, limit=limit, held=min(counts.held, limit))",
        refutes=("set_limit", "conservation", "resizing"),
    ),
    Fault(
        name="remove_limit-lifts-the-pause",
        part="kernel",
        function="remove_limit",
        right="limit=default",
        wrong="limit=default, paused=False",
        refutes=("remove_limit", "pausing", "resizing"),
    ),
    Fault(
        name="close-forgets-the-queue",
        part="kernel",
        function="close",
        right="queued=0, ",
        wrong="",
        refutes=("close", "soundness", "conservation"),
    ),
    Fault(
        name="close-ends-with-the-last-holder",
        part="kernel",
        function="release",
        right="return replace(counts, held=counts.held - 1)\n",
        wrong="return replace(counts, held=counts.held - 1, closed=counts.held > 1)\n",
        refutes=("release", "closing"),
    ),
)

_TWIN_FAULTS: Final = (
    Fault(
        name="twin-one-more-than-the-limit",
        part="twin",
        function="may_grant",
        right="in_flight < limit",
        wrong="in_flight <= limit",
        refutes=("states",),
    ),
    Fault(
        name="twin-the-end-of-a-cooldown-wakes-nobody",
        part="twin",
        function="set_free",
        right=";\n    admit()",
        wrong="",
        refutes=("states",),
    ),
    Fault(
        name="twin-a-cancelled-request-stays-in-the-queue",
        part="twin",
        function="quit",
        right="leave_queue(request);\n    phase[request] = IDLE",
        wrong="skip",
        refutes=("states",),
    ),
    Fault(
        name="twin-the-end-of-a-pause-wakes-nobody",
        part="twin",
        function="end_pause",
        right=";\n    admit()",
        wrong="",
        refutes=("states",),
    ),
    Fault(
        name="twin-a-swept-slot-cools-like-a-released-one",
        part="twin",
        function="SWEPT",
        right="RECLAIMED",
        wrong="COOLING",
        refutes=("states in detail",),
    ),
    Fault(
        name="twin-first-come-first-served",
        part="twin",
        function="join_queue",
        right="!FIFO &&",
        wrong="false &&",
        refutes=("states", "starvation"),
    ),
    Fault(
        name="twin-last-come-first-served",
        part="twin",
        function="join_queue",
        right="!FIFO && place > 0 && queue[place - 1] > request",
        wrong="place > 0",
        refutes=("states", "no starvation"),
    ),
    Fault(
        name="twin-a-release-while-closed-is-lost",
        part="twin",
        function="release",
        right=":: closed -> set_free(request)",
        wrong=":: closed -> skip",
        refutes=("states in detail",),
    ),
)

FAULTS: Final[Mapping[str, Fault]] = MappingProxyType({fault.name: fault for fault in (*_KERNEL_FAULTS, *_TWIN_FAULTS)})


def find_fault(name: str) -> Fault:
    """The fault of this name; raises UnknownFaultError, which lists them all."""
    try:
        return FAULTS[name]
    except KeyError:
        raise UnknownFaultError(f"unknown fault {name!r}; faults are: {'; '.join(FAULTS)}") from None
