"""The layers that may catch a fault, each as a function; run in a process of its own, on packages that hold one.

    python layers.py DIRECTORY LAYER...

The packages are those in DIRECTORY. For each layer that is over a line of JSON goes to stdout: what was found, as a
list of (rules, steps, what). Nothing found: the fault survives this layer. `server` runs them faster.
"""

from __future__ import annotations

import json
import re
import resource
import sys
from collections.abc import Callable, Iterator
from functools import partial
from io import StringIO
from pathlib import Path
from typing import Any, Final

TESTS: Final = Path(__file__).resolve().parents[1]
CPU_SECONDS: Final = {"scenario": 8}
"""What a layer may use, else 30; it needs a third at most. Then the system ends the process: the fault hangs it."""

Found = dict[str, Any]
"""`rules`, the most telling first; `steps` of the counterexample, None where there is none; `what` in a few words."""

SAMPLE: Final = 40
"""Commands of a random run."""

RULE: Final = re.compile(r"\b[A-Z]{3}-[1-9]\b")


KEPT: Final[dict[str, Any]] = {}
"""What a server has prepared: the runs, the scenarios, and of each level the graph and some walks with their cases."""


def run(names: list[str]) -> None:
    """Runs the layers one by one; each may use so much CPU time, and its overstepping ends the process."""
    for name in names:
        layer, _, arguments = name.partition(":")
        used = sum(resource.getrusage(resource.RUSAGE_SELF)[:2])
        limit = int(used) + CPU_SECONDS.get(layer, 90)
        resource.setrlimit(resource.RLIMIT_CPU, (limit, resource.getrlimit(resource.RLIMIT_CPU)[1]))
        found = FUNCTIONS[layer](*arguments.split(",") if arguments else ())
        print(json.dumps({"layer": name, "found": found}), flush=True)


# -- provider-concurrency check ----------------------------------------------------------------------------------------


def judge_level(level: str) -> list[Found]:
    """One level of `check`: every counterexample that it reports."""
    from provider_concurrency_model.check import judge
    from provider_concurrency_model.check.subject import InProcess, Session

    if KEPT:
        trust_model(judge, level)
    report = judge.run_level(Session(InProcess("layers:SturdyPort")), level, judge.Options())
    found = [
        {"rules": list(each.rules), "steps": len(each.case.steps), "what": each.case.name}
        for each in report.counterexamples
    ]
    if report.undetermined is not None and report.undetermined.startswith("the model itself"):
        found.append({"rules": RULE.findall(report.undetermined), "steps": None, "what": report.undetermined})
    return found


def trust_model(judge: Any, level: str) -> None:
    """Takes the model's part of a level from what was kept, and its properties as examined."""
    judge.load_all = lambda: KEPT["scenario files"]
    judge._examine_model = lambda *_: None
    if level in KEPT:
        graph, paths, cases = KEPT[level]
        known = {id(path): case for path, case in zip(paths, cases, strict=True)}
        work_out, go_round = judge._case_of_path, judge.tour
        judge.explore = lambda _: graph
        judge.tour = lambda *arguments: iter(paths) if paths else go_round(*arguments)
        judge._case_of_path = lambda graph, path, name: known.get(id(path)) or work_out(graph, path, name)


class SturdyPort:
    """The packaged port; where it would end the process, it raises, and the judge can say after which steps.

    `new` never fails for what the run before it left behind: then the port is replaced.
    """

    def __init__(self) -> None:
        """Makes the port."""
        from provider_concurrency.port import Port

        self._make = Port
        self._port = Port()

    def handle(self, message: dict[str, Any]) -> Any:
        """The port's interface."""
        if message["cmd"] == "new":
            try:
                self._port.shut()
            except (Exception, SystemExit):  # noqa: BLE001 - the last run has been judged
                self._port = self._make()
        try:
            return self._port.handle(message)
        except SystemExit as end:
            raise RuntimeError(f"the port ended the process: {end}") from end


# -- what an observer sees -----------------------------------------------------------------------------------------


def runs() -> list[tuple[str, Any, list[Any]]]:
    """What everybody drives."""
    return KEPT["runs"] if KEPT else list(make_runs())


def make_runs() -> Iterator[tuple[str, Any, list[Any]]]:
    """The commands of all scenarios, the short ones first, then random ones: (name, configuration, commands)."""
    from provider_concurrency_model.random_runs import random_run
    from provider_concurrency_spec.scenarios import load_all

    scenarios = sorted(load_all(), key=lambda scenario: len(scenario.steps))
    for scenario in scenarios:
        if scenario.steps:
            yield scenario.name, scenario.config, [step.command for step in scenario.steps]
    for seed in range(100):
        config, commands = random_run(seed, SAMPLE)
        yield f"seed {seed}", config, list(commands)


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


def watch() -> list[Found]:
    """The monitor: silent on every run, and each of its known-bad runs named."""
    from provider_concurrency_model.findings import MonitorConfig
    from provider_concurrency_model.monitor import Monitor

    def make(config: Any) -> Monitor:
        return Monitor(config_of(config, MonitorConfig))

    def look(monitor: Monitor) -> Found | None:
        monitor._judge.settle()
        return None if monitor.first is None else {"rules": [monitor.first.rule]}

    return [*miss_bad_events(), *drive(make, look)]


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


def record() -> list[Found]:
    """The recorder and the reading of traces: every run conforms, and each known-bad trace is named."""
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

    return [*miss_bad_traces(), *drive(Recording, look)]


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


# -- the others ----------------------------------------------------------------------------------------------------


def walk_at_random() -> list[Found]:
    """The stateful machine of test_stateful.py: two managers in step, with an observer and without."""
    from hypothesis import Phase, settings
    from hypothesis.stateful import run_state_machine_as_test

    from test_stateful import CALM, Course

    course = settings(CALM, phases=[Phase.generate], report_multiple_bugs=False)
    try:
        run_state_machine_as_test(Course, settings=course)
    except BaseException as error:  # noqa: BLE001 - an assertion of the machine, or whatever the manager raises
        text = "\n".join([str(error), *getattr(error, "__notes__", ())])
        told = next(iter(str(error).splitlines()), "")[:80]
        return [{"rules": list(dict.fromkeys(RULE.findall(text))), "steps": None, "what": told or type(error).__name__}]
    return []


def prove() -> list[Found]:
    """The theorems about the kernel, by z3."""
    from provider_concurrency_model.check.prove import run_proofs

    results = [result for result in run_proofs(["z3"]).results if result.outcome == "refuted"]
    return [
        {"rules": RULE.findall(result.says), "steps": None, "what": f"theorem {result.theorem}"} for result in results
    ]


def run_tests(*files: str) -> list[Found]:
    """The project's own tests of what no other layer can see."""
    import pytest

    failed: list[Found] = []

    class Listener:
        def pytest_runtest_logreport(self, report: Any) -> None:
            if report.failed:
                name = report.nodeid.partition("::")[2]
                failed.append({"rules": RULE.findall(report.longreprtext), "steps": None, "what": name})

    paths = [str(TESTS / file) for file in files]
    options = ["-x", "-q", "--no-header", "-p", "no:cacheprovider", "-p", "no:randomly", f"--rootdir={TESTS.parent}"]
    sys.stdout, stdout = StringIO(), sys.stdout
    try:
        code = pytest.main([*options, *paths], plugins=[Listener()])
    finally:
        sys.stdout = stdout
    if code == 2 and not failed:
        failed.append({"rules": [], "steps": None, "what": "the tests can't be imported"})
    elif code not in (0, 1):
        raise RuntimeError(f"pytest ends with {code}: are there tests in {', '.join(files)}?")
    return failed


def ask_invariants() -> list[Found]:
    """The invariants alone, on what the port says in all runs: which are broken, and where first."""
    from provider_concurrency_model.check.compare import read_reply
    from provider_concurrency_spec.invariants import Run, check_run
    from provider_concurrency_spec.vocabulary import command_to_json, config_to_json

    broken: dict[str, Found] = {}
    subject = SturdyPort()
    for name, config, commands in runs():
        if "error" in subject.handle({"id": 0, "cmd": "new", "config": config_to_json(config)}):
            continue
        exchanges = []
        for number, command in enumerate(commands, 1):
            try:
                reply = read_reply(subject.handle({"id": number, **command_to_json(command)}))
            except Exception:  # noqa: BLE001 - what it said before is judged
                subject = SturdyPort()
                break
            if reply is None:
                break
            exchanges.append((command, reply))
        for violation in check_run(Run.of(config, exchanges)):
            found = {"rules": list(violation.rule_ids), "steps": None, "what": violation.invariant, "run": name}
            broken.setdefault(violation.invariant, found)
    return [broken[name] for name in sorted(broken)]


FUNCTIONS: Final[dict[str, Callable[..., list[Found]]]] = {
    "scenario": partial(judge_level, "scenarios"),
    **{name: partial(judge_level, name) for name in ("settled", "burst", "timed", "late", "resize", "two", "random")},
    "stateful": walk_at_random,
    "monitor": watch,
    "trace": record,
    "proof": prove,
    "tests": run_tests,
    "invariants": ask_invariants,
}  # fmt: skip


if __name__ == "__main__":
    sys.modules["layers"] = sys.modules["__main__"]
    sys.path[:0] = [sys.argv[1], str(TESTS)]
    run(sys.argv[2:])
