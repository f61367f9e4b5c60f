"""A case: what is sent to a subject and what it must answer, wherever the case comes from.

A scenario file, a walk over the model's graph, a random run and a saved counterexample all become the same thing here:
a configuration and steps, each a command with what its reply must say. So there is one loop that drives and one
comparison, and every finding can be written down as a scenario.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from provider_concurrency_model import system
from provider_concurrency_model.check.compare import Expected
from provider_concurrency_model.check.subject import Message
from provider_concurrency_model.levels import features_of
from provider_concurrency_spec.scenarios import Scenario
from provider_concurrency_spec.vocabulary import (
    Close,
    Command,
    Config,
    Do,
    Feature,
    Hook,
    Json,
    Operation,
    Reply,
    Stall,
    command_to_json,
    config_to_json,
)

EMPTY_REPLY = Expected.of_reply(Reply())
"""What `new` is answered with: nothing has happened, nothing is there."""


@dataclass(frozen=True, slots=True)
class Step:
    """One command and what its reply must say."""

    command: Command
    expected: Expected
    max_timers: int
    """TIM-4, CLO-1: at most one a provider named so far and one for the sweeps; none after close."""


@dataclass(frozen=True, slots=True)
class Case:
    """A conversation with known answers."""

    name: str
    level: str
    config: Config
    steps: tuple[Step, ...]
    rules: tuple[str, ...] = ()
    needs: frozenset[Feature] = frozenset()
    why: str = ""
    checks_invariants: bool = False
    """Whether the subject's own words must also keep the invariants, which needs no model: not where every reply must
    equal one of the model's that was examined already."""
    refused: tuple[Config, ...] = ()
    """Configurations that `new` must refuse, each tried before the run; without steps there is no run."""

    @property
    def commands(self) -> tuple[Command, ...]:
        """The commands alone."""
        return tuple(step.command for step in self.steps)

    @property
    def count(self) -> int:
        """How many messages the case is."""
        return len(self.refused) + (1 + len(self.steps) if self.steps else 0)

    def messages(self, first_id: int) -> Iterator[Message]:
        """The refused configurations, then `new` and every command, with ids in a row."""
        message_id = first_id
        for config in self.refused:
            yield {"id": message_id, "cmd": "new", "config": config_to_json(config)}
            message_id += 1
        if self.steps:
            yield {"id": message_id, "cmd": "new", "config": config_to_json(self.config)}
        for step in self.steps:
            message_id += 1
            yield {"id": message_id, **command_to_json(step.command)}


def case_of_commands(
    name: str, level: str, config: Config, commands: Sequence[Command], *, checks_invariants: bool = False
) -> Case:
    """A case whose answers are the model's; the commands must be for a subject with the features they need.

    Raises InvalidConfigError for a configuration that must be refused.
    """
    state = system.new(config)
    expected: list[Expected] = []
    for command in commands:
        state, reply = system.run(state, command)
        expected.append(Expected.of_reply(reply))
    return Case(
        name=name,
        level=level,
        config=config,
        steps=make_steps(commands, expected),
        checks_invariants=checks_invariants,
    )


def case_of_scenario(scenario: Scenario) -> Case:
    """A case whose answers are the scenario's own: what it doesn't say isn't judged."""
    expected = [
        Expected(
            events=step.expect.events,
            status=step.expect.status,
            unsettled=step.expect.unsettled,
            timers=step.expect.timers,
            timers_max=step.expect.timers_max,
        )
        for step in scenario.steps
    ]
    return Case(
        name=scenario.name,
        level="scenarios",
        config=scenario.config,
        steps=make_steps([step.command for step in scenario.steps], expected),
        rules=scenario.rules,
        needs=frozenset(scenario.needs),
        why=scenario.why,
        checks_invariants=True,
        refused=scenario.refused_configs,
    )


def make_steps(commands: Iterable[Command], expected: Iterable[Expected]) -> tuple[Step, ...]:
    """Puts commands and expectations together and adds the bound on timers."""
    providers: set[str] = set()
    is_closed = False
    steps: list[Step] = []
    for command, reply in zip(commands, expected, strict=True):
        named, closes = _timer_facts(command)
        providers |= named
        is_closed = is_closed or closes
        steps.append(Step(command, reply, 0 if is_closed else len(providers) + 1))
    return tuple(steps)


def needs_of(config: Config, commands: Iterable[Command]) -> frozenset[Feature]:
    """The optional features that a subject must have to be asked this."""
    needs: set[Feature] = set()
    if config.max_queued is not None:
        needs.add("max_queued")
    if config.default_limit is not None:
        needs.add("default_limit")
    if config.nested is not None:
        needs.add("nesting")
    for command in commands:
        needs |= _needs_of_command(command)
    return frozenset(needs)


@lru_cache(maxsize=1 << 16)
def _needs_of_command(command: Command) -> frozenset[Feature]:
    match command:
        case Do(ops):
            return frozenset(feature for op in ops for feature in features_of(op))
        case Stall():
            return frozenset({"stall"})
        case _:
            return frozenset()


@lru_cache(maxsize=1 << 16)
def _timer_facts(command: Command) -> tuple[frozenset[str], bool]:
    """The providers named in a command, and whether it surely closes the manager (a hook may never run)."""
    if not isinstance(command, Do):
        return frozenset(), False
    return frozenset(_providers_in(command.ops)), any(isinstance(op, Close) for op in command.ops)


def _providers_in(operations: Iterable[Operation]) -> Iterator[str]:
    for operation in operations:
        provider: Json = getattr(operation, "provider", None)
        if isinstance(provider, str):
            yield provider
        if isinstance(operation, Hook):
            yield from _providers_in(operation.do)
