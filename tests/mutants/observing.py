"""The layers that see what an observer sees: the monitor beside a live manager, and the judge of recorded runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from io import StringIO
from itertools import chain, islice
from typing import Any

from mutants.stage import RULE, SAMPLE, Found, SturdyPort, runs


def drive(judge: Callable[[Any], Any], after: Callable[[Any], Found | None]) -> Iterator[Found]:
    """Drives the port along all runs with another observer beside it; yields each run's first finding."""
    from provider_concurrency import port
    from provider_concurrency_spec.vocabulary import command_to_json, config_to_json

    watching: list[Any] = []

    unwatched = port._Session

    class Watched(unwatched):
        def __init__(self, config: Any) -> None:
            self.watcher = judge(config)
            watching[:] = [self.watcher]
            super().__init__(config)
            if hasattr(self.watcher, "begin"):
                self.watcher.begin(self.manager)

        def _observe(self, *event: Any) -> None:
            self.watcher(*event)
            super()._observe(*event)

    def run(commands: list[Any]) -> Found | None:
        is_sample = len(commands) >= SAMPLE  # no counterexample to be shown: only its end is looked at
        for number, command in enumerate(commands, 1):
            subject.handle({"id": number, **command_to_json(command)})
            found = after(watching[0]) if not is_sample or number == len(commands) else None
            if found is not None:
                return {**found, "steps": None if is_sample else number}
        return None

    port._Session = Watched
    try:
        subject = SturdyPort()
        for name, config, commands in runs():
            try:
                if "error" in subject.handle({"id": 0, "cmd": "new", "config": config_to_json(config)}):
                    continue
                found = run(commands)
            except Exception:  # noqa: BLE001 - the manager is at fault, but here only what is observed counts
                subject = SturdyPort()
                continue
            if found is not None:
                yield {**found, "what": name}
    finally:
        port._Session = unwatched


def watch(how: str = "") -> list[Found]:
    """The monitor: silent on every run, and each of its known-bad runs named. If `brief`, the first that isn't so."""
    from provider_concurrency_model.findings import MonitorConfig
    from provider_concurrency_model.monitor import Monitor

    def make(config: Any) -> Monitor:
        return Monitor(config_of(config, MonitorConfig))

    def look(monitor: Monitor) -> Found | None:
        monitor._judge.settle()
        return None if monitor.first is None else {"rules": [monitor.first.rule]}

    return [*islice(chain(miss_bad_events(), drive(make, look)), 1 if how == "brief" else None)]


def config_of(config: dict[str, Any], kind: Any) -> Any:
    """The monitor's configuration for a port's, which is in ms."""
    ns = {
        f"{name.removesuffix('_ms')}_ns": None if value is None else value * 1_000_000
        for name, value in config.items()
        if name.endswith("_ms")
    }
    return kind(**ns, max_queued=config["max_queued"], default_limit=config["default_limit"])


def miss_bad_events() -> Iterator[Found]:
    """What the monitor says of runs that are known to be bad or good (test_monitor.py)."""
    import test_monitor as cases

    for name, case in cases.BAD.items():
        rule = next(part for part in flatten(case) if isinstance(part, str) and RULE.fullmatch(part))
        try:
            cases.test_a_bad_run_is_named(name, False)
        except Exception as error:  # noqa: BLE001 - whatever it is, the case isn't judged as it must be
            yield {"rules": [rule], "steps": None, "what": f"known-bad run: {name} ({type(error).__name__})"}
    for name in cases.GOOD:
        try:
            cases.test_a_good_run_is_clean(name, False)
        except Exception as error:  # noqa: BLE001 - as above
            yield {"rules": RULE.findall(str(error))[:1], "steps": None, "what": f"good run: {name}"}


def flatten(value: Any) -> Iterator[Any]:
    """All that is in nested tuples."""
    if isinstance(value, tuple | list):
        for part in value:
            yield from flatten(part)
    else:
        yield value


def record(how: str = "") -> list[Found]:
    """The recorder and the reading of traces: every run conforms, and each known-bad trace is named; briefly too."""
    from provider_concurrency.trace import Recorder
    from provider_concurrency_model.check.trace import judge_trace

    class Recording(Recorder):
        def __init__(self, _: Any) -> None:
            self.text = StringIO()
            super().__init__(self.text)

    def look(recording: Recording) -> Found | None:
        verdict = judge_trace(recording.text.getvalue().splitlines(keepends=True))
        if verdict.outcome in ("conforms", "undetermined") and not (verdict.events and verdict.outcome != "conforms"):
            return None
        return {"rules": [] if verdict.rule is None else [verdict.rule]}

    return [*islice(chain(miss_bad_traces(), drive(Recording, look)), 1 if how == "brief" else None)]


def miss_bad_traces() -> Iterator[Found]:
    """What is said of traces that are known to be bad or good (test_trace_judge.py)."""
    import test_trace_judge as cases

    for name, (rule, _, _) in cases.VIOLATIONS.items():
        try:
            cases.test_a_violation_exits_1_with_line_and_rule(name)
        except Exception as error:  # noqa: BLE001 - whatever it is, the case isn't judged as it must be
            yield {"rules": [rule], "steps": None, "what": f"known-bad trace: {name} ({type(error).__name__})"}
    for test in (
        cases.test_a_good_run_conforms_with_the_same_counts,
        cases.test_a_missing_seq_is_undetermined,
        cases.test_what_is_no_trace_exits_2,
    ):
        try:
            test()
        except Exception:  # noqa: BLE001 - as above
            yield {"rules": [], "steps": None, "what": test.__name__}
