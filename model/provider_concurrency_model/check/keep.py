"""Whether a subject's words keep the invariants: a judgement that needs no model, only the subject's own replies."""

from __future__ import annotations

from collections.abc import Sequence

from provider_concurrency_model.check.compare import Difference, read_reply
from provider_concurrency_spec.invariants import RUN_INVARIANTS, TIME_INVARIANTS, Run, Violation, check_step
from provider_concurrency_spec.invariants.kinds import violations
from provider_concurrency_spec.vocabulary import Command, Config, Json, Reply


def find_broken(
    config: Config, commands: Sequence[Command], said: Sequence[Json]
) -> tuple[int, tuple[Difference, ...]] | None:
    """The first step of a conversation that breaks an invariant, and which; None if all are kept.

    `said` are the replies as they came, for the first of the commands or all; a malformed one ends the judgement.
    What only shows in a run as a whole is told at its last step.
    """
    exchanges: list[tuple[Command, Reply]] = []
    for command, raw in zip(commands, said, strict=False):
        reply = read_reply(raw)
        if reply is None:
            break
        exchanges.append((command, reply))
    run = Run.of(config, exchanges)
    for at, step in enumerate(run.steps):
        found = check_step(step)
        if found:
            return at, tuple(map(_difference_of, found))
    found = tuple(violations((*RUN_INVARIANTS, *TIME_INVARIANTS), run))
    return (len(exchanges) - 1, tuple(map(_difference_of, found))) if found else None


def _difference_of(violation: Violation) -> Difference:
    rule = violation.rule_ids[0] if violation.rule_ids else None
    return Difference("invariant", violation.invariant.replace("_", " "), None, "kept", violation.message, rule)
