"""Manager and model in lockstep: Hypothesis chooses, both answer, the first word that differs is a counterexample.

Deterministic as it stands; `pytest tests/test_lockstep.py --hypothesis-seed=N` with LOCKSTEP_EXAMPLES=1000 looks
further. What a failure shrinks to is saved in `counterexamples/`, for `provider-concurrency replay FILE`.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, rule, run_state_machine_as_test

import fake_subjects
from provider_concurrency_model import system
from provider_concurrency_model.check.case import Case, case_of_commands
from provider_concurrency_model.check.compare import Expected, compare
from provider_concurrency_model.check.counterexample import counterexample_of, load, save
from provider_concurrency_model.check.drive import Failed, Outcome, drive
from provider_concurrency_model.check.subject import InProcess, Session
from provider_concurrency_spec import vocabulary as words

EXAMPLES = int(os.environ.get("LOCKSTEP_EXAMPLES", "50"))
SETTINGS = settings(
    max_examples=EXAMPLES,
    stateful_step_count=30,
    deadline=None,
    derandomize="LOCKSTEP_EXAMPLES" not in os.environ,
    database=None,
    phases=[Phase.generate, Phase.shrink],
    suppress_health_check=list(HealthCheck),
)
CONFIG = words.Config(
    release_cooldown_ms=20, slot_timeout_ms=50, watchdog_interval_ms=30, default_pause_ms=40, min_pause_ms=0,
    max_pause_ms=1000, max_queued=3, default_limit=None, nested="raise",
)  # fmt: skip
NEAR = sorted({max(edge + by, 0) for edge in (0, 20, 30, 40, 50) for by in (-1, 0, 1)})
"""One tick before, at and after each length that the configuration knows."""
PROVIDERS = st.sampled_from(["p", "q"])
TIMES = st.sampled_from(NEAR)
KIN: Any = st.sampled_from([(None, ()), ("a", ("a",)), ("b", ("a", "b"))])
"""A conversation, and the blocks around its acquire."""


def lockstep_of(subject: Any) -> type[RuleBasedStateMachine]:
    """The machine for a subject: whatever has `handle(message)`."""

    class Lockstep(RuleBasedStateMachine):
        requests = Bundle("requests")
        last: tuple[words.Command, ...] = ()
        """What the last run did; after a failure that is the shrunk one."""

        @initialize()
        def begin(self) -> None:
            self.port = subject()
            self.made = self.sent = 0
            self.done: list[words.Command] = []
            type(self).last = ()
            self.state = system.new(CONFIG)
            self.send({"cmd": "new", "config": words.config_to_json(CONFIG)})

        def send(self, message: dict[str, Any]) -> Any:
            self.sent += 1
            return self.port.handle({"id": self.sent, **message})

        def run(self, command: words.Command) -> None:
            self.done.append(command)
            type(self).last = tuple(self.done)
            self.state, reply = system.run(self.state, command)
            raw = self.send(words.command_to_json(command))
            found = compare(Expected.of_reply(reply), raw, max_timers=3, needs_timers=False)
            assert not found, found

        def name(self) -> str:
            self.made += 1
            return f"r{self.made}"

        @rule(target=requests, provider=PROVIDERS, prompt=st.integers(0, 3), timeout=st.none() | TIMES, kin=KIN)
        def acquire(self, provider: str, prompt: int, timeout: int | None, kin: tuple[str | None, Any]) -> str:
            name = self.name()
            self.run(words.Do((words.Acquire(provider, name, kin[0], prompt, timeout, kin[1]),)))
            return name

        @rule(target=requests, provider=PROVIDERS)
        def try_acquire(self, provider: str) -> str:
            name = self.name()
            self.run(words.Do((words.TryAcquire(provider, name, None, 1),)))
            return name

        @rule(request=requests)
        def release(self, request: str) -> None:
            self.run(words.Do((words.Release(request),)))

        @rule(request=consumes(requests), other=requests)
        def cancel_in_a_burst(self, request: str, other: str) -> None:
            self.run(words.Do((words.Release(other), words.Cancel(request))))

        @rule(request=requests)
        def touch(self, request: str) -> None:
            self.run(words.Do((words.Touch(request),)))

        @rule(provider=PROVIDERS, limit=st.integers(0, 2) | st.none())
        def set_limit(self, provider: str, limit: int | None) -> None:
            change = words.RemoveLimit(provider) if limit is None else words.SetLimit(provider, limit)
            self.run(words.Do((change,)))

        @rule(provider=PROVIDERS, cooldown=st.none() | TIMES)
        def set_cooldown(self, provider: str, cooldown: int | None) -> None:
            self.run(words.Do((words.SetCooldown(provider, cooldown),)))

        @rule(provider=PROVIDERS, retry_after=st.none() | TIMES)
        def rate_limited(self, provider: str, retry_after: int | None) -> None:
            self.run(words.Do((words.RateLimited(provider, retry_after),)))

        @rule(provider=PROVIDERS)
        def resume(self, provider: str) -> None:
            self.run(words.Do((words.Resume(provider),)))

        @rule(ms=TIMES)
        def advance(self, ms: int) -> None:
            self.run(words.Advance(ms))

        @rule(ms=TIMES)
        def stall(self, ms: int) -> None:
            self.run(words.Stall(ms))

        def teardown(self) -> None:
            if hasattr(self, "port"):
                self.send({"cmd": "bye"})

    return Lockstep


def judge(dotted: str, case: Case) -> Outcome:
    """What the judge says of one case."""
    session = Session(InProcess(dotted))
    try:
        return drive(session, case)
    finally:
        session.close()


def run_lockstep(dotted: str, subject: Any, folder: Path) -> Path | None:
    """Runs the machine; after a failure, where the shrunk run was saved."""
    machine: Any = lockstep_of(subject)
    try:
        run_state_machine_as_test(machine, settings=SETTINGS)
    except AssertionError:
        failed = judge(dotted, case_of_commands("lockstep", "random", CONFIG, machine.last))
        assert isinstance(failed, Failed), "the shrunk run must fail again"
        return save(counterexample_of(failed, dotted), folder)
    return None


def test_the_manager_and_the_model_answer_alike() -> None:
    from provider_concurrency.port import Port

    saved = run_lockstep("provider_concurrency.port:Port", Port, Path("counterexamples"))
    assert saved is None, f"provider-concurrency replay {saved}"


@pytest.mark.parametrize("fault", ["ForgetsCooldown", "FreesTwice"])
def test_a_planted_fault_is_found_and_saved_to_be_replayed(fault: str, tmp_path: Path) -> None:
    dotted = f"fake_subjects:{fault}"
    saved = run_lockstep(dotted, getattr(fake_subjects, fault), tmp_path)
    assert saved is not None, "not found"
    case = load(saved)
    assert 1 <= len(case.steps) <= 8, "shrunk"
    assert isinstance(judge(dotted, case), Failed)
    assert not isinstance(judge("provider_concurrency.port:Port", case), Failed)
