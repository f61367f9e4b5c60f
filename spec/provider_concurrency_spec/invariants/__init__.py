"""The invariants: named properties of a status, of a step and of a whole run, each with the rules that it follows from.

`check_status` and `check_step` are for every reply, `check_run` for the end of a run; an empty tuple means that
everything holds.
"""

from __future__ import annotations

from typing import Any, Final

from provider_concurrency_spec.invariants.kinds import (
    Invariant,
    RowSeen,
    Run,
    Scope,
    Status,
    StatusSeen,
    Step,
    Violation,
    violations,
)
from provider_concurrency_spec.invariants.on_run import RUN_INVARIANTS
from provider_concurrency_spec.invariants.on_status import ROW_INVARIANTS, STATUS_INVARIANTS
from provider_concurrency_spec.invariants.on_step import STEP_INVARIANTS
from provider_concurrency_spec.invariants.on_time import TIME_INVARIANTS
from provider_concurrency_spec.vocabulary import Config

INVARIANTS: Final[tuple[Invariant[Any], ...]] = (
    *ROW_INVARIANTS,
    *STATUS_INVARIANTS,
    *STEP_INVARIANTS,
    *RUN_INVARIANTS,
    *TIME_INVARIANTS,
)
"""All of them, by scope."""


def check_status(status: Status, config: Config) -> tuple[Violation, ...]:
    """What is wrong with a status at rest."""
    found = list(violations(STATUS_INVARIANTS, StatusSeen(config, status)))
    for row in status:
        found.extend(violations(ROW_INVARIANTS, RowSeen(config, row)))
    return tuple(found)


def check_step(step: Step) -> tuple[Violation, ...]:
    """What is wrong with one step and with the status it leads to."""
    return (*check_status(step.reply.status, step.config), *violations(STEP_INVARIANTS, step))


def check_run(run: Run) -> tuple[Violation, ...]:
    """What is wrong with a run as a whole and with each of its steps; linear in the run's length."""
    found = [each for step in run.steps for each in check_step(step)]
    found.extend(violations((*RUN_INVARIANTS, *TIME_INVARIANTS), run))
    return tuple(found)


__all__ = [
    "INVARIANTS",
    "ROW_INVARIANTS",
    "RUN_INVARIANTS",
    "STATUS_INVARIANTS",
    "STEP_INVARIANTS",
    "TIME_INVARIANTS",
    "Invariant",
    "RowSeen",
    "Run",
    "Scope",
    "Status",
    "StatusSeen",
    "Step",
    "Violation",
    "check_run",
    "check_status",
    "check_step",
]
