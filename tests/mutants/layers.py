"""The layers that may catch a fault, each as a function; run in a process of its own, on packages that hold one.

    python layers.py DIRECTORY LAYER...

The packages are those in DIRECTORY. For each layer that is over a line of JSON goes to stdout: what was found, as a
list of (rules, steps, what). Nothing found: the fault survives this layer. `server` runs them faster.
"""

from __future__ import annotations

import json
import resource
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from io import StringIO
from typing import Any, Final

from mutants.observing import record, watch
from mutants.stage import KEPT, RULE, TESTS, Found, SturdyPort, runs

CPU_SECONDS: Final = {"scenario": 8}
"""What a layer may use, else 90; it needs a tenth at most, and no more than 30 for the shortest counterexample. Then
the system ends the process: the fault hangs it."""

WALL_SECONDS: Final = 900
"""For a layer that waits instead of working."""

MEMORY: Final = 4 << 30
"""Bytes of address space: a fault that tells without end raises MemoryError instead of taking the whole machine."""


def run(names: list[str]) -> None:
    """Runs the layers one by one; each may use so much CPU time, and its overstepping ends the process."""
    for name in names:
        layer, _, arguments = name.partition(":")
        used = sum(resource.getrusage(resource.RUSAGE_SELF)[:2])
        limit = int(used) + CPU_SECONDS.get(layer, 90)
        resource.setrlimit(resource.RLIMIT_CPU, (limit, resource.getrlimit(resource.RLIMIT_CPU)[1]))
        signal.alarm(WALL_SECONDS)
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, resource.getrlimit(resource.RLIMIT_AS)[1]))
        found = FUNCTIONS[layer](*arguments.split(",") if arguments else ())
        print(json.dumps({"layer": name, "found": found}), flush=True)


# -- provider-concurrency check ----------------------------------------------------------------------------------------


def judge_level(level: str, how: str = "") -> list[Found]:
    """One level of `check`: every counterexample that it reports; if it is to be `brief`, as it was found."""
    from provider_concurrency_model.check import judge
    from provider_concurrency_model.check.subject import InProcess, Session

    if KEPT:
        trust_model(judge, level)
    if how == "brief":
        judge.shrink = lambda _, failed: failed
        judge._report_shortest = lambda session, report, _, failed: report.counterexamples.append(
            judge._keep(session, failed)
        )
    report = judge.run_level(Session(InProcess("mutants.stage:SturdyPort")), level, judge.Options())
    found = [
        {"rules": list(each.rules), "steps": None if how else len(each.case.steps), "what": each.case.name}
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
    from provider_concurrency_spec.invariants import Run, check_run
    from provider_concurrency_spec.vocabulary import command_to_json, config_to_json, reply_from_json

    broken: dict[str, Found] = {}
    subject = SturdyPort()

    def converse(config: Any, commands: list[Any]) -> Iterator[tuple[Any, Any]]:
        if "error" in subject.handle({"id": 0, "cmd": "new", "config": config_to_json(config)}):
            return
        for number, command in enumerate(commands, 1):
            yield command, reply_from_json(subject.handle({"id": number, **command_to_json(command)}))

    endless = 0
    for name, config, commands in runs():
        exchanges = []
        try:
            with at_most(RUN_SECONDS):
                for exchange in converse(config, commands):
                    exchanges.append(exchange)  # noqa: PERF402 - what came before an exception is judged
        except Exception as error:  # noqa: BLE001 - whatever the manager raises, or that it doesn't come to an end
            subject = SturdyPort()
            endless += isinstance(error, (TimeoutError, MemoryError)) and len(exchanges) < len(commands)
        for violation in check_run(Run.of(config, exchanges)):
            found = {"rules": list(violation.rule_ids), "steps": None, "what": violation.invariant, "run": name}
            broken.setdefault(violation.invariant, found)
        if endless == ENDLESS_AT_MOST:
            break
    return [broken[name] for name in sorted(broken)]


RUN_SECONDS: Final = 1
"""What one run may use when only some of many hang; it needs a fiftieth."""

ENDLESS_AT_MOST: Final = 10
"""After so many runs that hang the others aren't tried."""


@contextmanager
def at_most(seconds: float) -> Iterator[None]:
    """Raises TimeoutError in a block that uses more CPU time."""

    def stop(*_: object) -> None:
        raise TimeoutError

    signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds, 0.1)  # again and again: it may be raised where all is caught
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)


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
    sys.path.insert(0, sys.argv[1])
    run(sys.argv[2:])
