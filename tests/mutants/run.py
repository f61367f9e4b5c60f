"""Plants every fault of the zoo in a copy of the packages and shows that its layer notices, naming the right rule.

    .venv/bin/python tests/mutants/run.py                  # each fault at its own layer; under 4 minutes on 2 cores
    .venv/bin/python tests/mutants/run.py --all-layers     # the rest of the matrix: what the other layers say
    .venv/bin/python tests/mutants/run.py --all-layers --missing    # of that, what MATRIX.md doesn't say yet
    .venv/bin/python tests/mutants/run.py --invariants     # which invariant is needed for which fault
    .venv/bin/python tests/mutants/run.py --only NAME      # some faults (parts of names), with what was found

What was run is written to MATRIX.md, fault by fault; what wasn't stays there as it was. Exit 1 if a fault survives its
layer, is noticed by the rules of another family, or takes more than eight steps to show; 2 if a fault no longer fits
its file, or a layer finds something where nothing is planted.
"""

from __future__ import annotations

import argparse
import compileall
import json
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import Empty, SimpleQueue
from subprocess import DEVNULL, PIPE, Popen
from threading import Lock
from typing import Any, Final, Self, TypeAlias

TESTS: Final = Path(__file__).resolve().parents[1]
if str(TESTS) not in sys.path:  # run as a script
    sys.path.insert(0, str(TESTS))

from mutants.equivalent import EQUIVALENT  # noqa: E402
from mutants.fault import LAYERS, PACKAGES, AnchorError, Fault  # noqa: E402
from mutants.faults import FAULTS  # noqa: E402
from mutants.finding import Finding, conclude  # noqa: E402
from mutants.invariants import report_invariants  # noqa: E402
from mutants.matrix import read_matrix, write_matrix  # noqa: E402

REPOSITORY: Final = TESTS.parent
MATRIX: Final = Path(__file__).with_name("MATRIX.md")
SOUND: Final = ("scenario", "two", "stateful", "monitor", "trace")
"""What must find nothing where nothing is planted, or no finding means anything."""


class NotSoundError(RuntimeError):
    """A layer finds a fault in the packages as they are."""


class Workshop:
    """A copy of the three packages, from which each fault gets a copy of its own, and servers that judge them."""

    def __init__(self, directory: Path, *, is_whole: bool = False) -> None:
        """Copies the packages as they are now, compiled, so that a run sees one state of a tree that changes."""
        self._directory = directory
        self._base = directory / "base"
        self._mode = "whole" if is_whole else "own"
        self._idle: SimpleQueue[Popen[str]] = SimpleQueue()
        self._servers: list[Popen[str]] = []
        for folder, package in PACKAGES.items():
            source = REPOSITORY / folder / package
            shutil.copytree(source, self._base / package, ignore=shutil.ignore_patterns("__pycache__"))
        compileall.compile_dir(str(self._base), quiet=1)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for server in self._servers:
            server.kill()
            server.communicate()

    def plant(self, fault: Fault | None) -> Path:
        """A directory with the three packages, one line of them exchanged; AnchorError if the fault doesn't fit."""
        place = Path(tempfile.mkdtemp(dir=self._directory, prefix="mutant-"))
        shutil.copytree(self._base, place, dirs_exist_ok=True)
        if fault is not None:
            file = place / fault.path
            file.write_text(fault.apply(file.read_text(encoding="utf-8")), encoding="utf-8")
        return place

    def run(self, fault: Fault | None, layers: Sequence[str]) -> dict[str, Finding]:
        """What each layer says of a fault; one that doesn't load its file says nothing, and isn't asked."""
        place = self.plant(fault)
        try:
            findings = self._run(place, fault, [name for name in layers if not is_blind(name, fault)])
        finally:
            shutil.rmtree(place, ignore_errors=True)
        return {name: findings.get(name, Finding("survived")) for name in layers}

    def _run(self, place: Path, fault: Fault | None, layers: Sequence[str]) -> dict[str, Finding]:
        """Runs layers in one process as far as they get along; where one of them ends it, the rest has a new one."""
        findings: dict[str, Finding] = {}
        while left := [name for name in layers if name not in findings]:
            group = share(left)
            # A server's child takes only the manager anew; and pytest wants to be the first to import anything.
            is_served = (fault is None or fault.file.startswith("impl/")) and group[0] != "tests"
            ask = self._ask_server if is_served else ask_process
            code, ended = ask(place, [self._spell(fault, name) for name in group])
            findings.update((name, conclude(fault, found)) for name, found in zip(group, ended, strict=False))
            if len(ended) < len(group):
                name = group[len(ended)]
                findings[name] = Finding("hung" if code in HUNG else "broke", what=f"exit code {code}, {name}")
        return findings

    def _spell(self, fault: Fault | None, layer: str) -> str:
        """A layer with its argument."""
        if layer == "tests" and fault is not None:
            return f"tests:{','.join(fault.tests)}"
        return f"{layer}:brief" if self._mode == "whole" and layer in (*LEVELS, "monitor", "trace") else layer

    def _ask_server(self, place: Path, layers: Sequence[str]) -> Answer:
        """Has a server do it, which is idle or made for it."""
        try:
            server = self._idle.get_nowait()
        except Empty:
            server = start("server.py", self._base, self._mode)
            self._servers.append(server)
        assert server.stdin is not None
        assert server.stdout is not None
        server.stdin.write(json.dumps({"place": str(place), "layers": layers}) + "\n")
        server.stdin.flush()
        said = []
        for line in server.stdout:
            said.append(json.loads(line))
            if "code" in said[-1]:
                self._idle.put(server)
                return said[-1]["code"], [each["found"] for each in said[:-1]]
        raise NotSoundError(f"the server is gone: it was asked for {', '.join(layers)}")


def ask_process(place: Path, layers: Sequence[str]) -> Answer:
    """Has a process of its own do it."""
    with start("layers.py", place, *layers) as process:
        out, _ = process.communicate()
    return process.returncode, [json.loads(line)["found"] for line in out.splitlines()]


def start(script: str, *arguments: str | Path) -> Popen[str]:
    """A process that talks in lines of JSON."""
    environment = {**os.environ, "PYTHONPATH": str(TESTS), "PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, str(Path(__file__).with_name(script)), *map(str, arguments)]
    return Popen(command, stdin=PIPE, stdout=PIPE, stderr=DEVNULL, text=True, env=environment, cwd=TESTS)


Answer: TypeAlias = tuple[int, list[list[dict[str, Any]]]]
"""Exit code, and for each layer that was over what it found."""

HUNG: Final = (-signal.SIGXCPU, -signal.SIGKILL, -signal.SIGALRM)
"""Too much CPU time, a second later (or out of memory), or waiting without end."""


def share(layers: Sequence[str]) -> Sequence[str]:
    """The first layers that can share a process: pytest and Hypothesis want one of their own."""
    alone = ("stateful", "tests")
    return layers[: 1 if layers[0] in alone else next((at for at, name in enumerate(layers) if name in alone), None)]


def is_blind(layer: str, fault: Fault | None) -> bool:
    """Whether a layer never loads the file that holds the fault."""
    return fault is not None and fault.file in UNSEEN.get(layer, ())


LEVELS: Final = ("scenario", "settled", "burst", "timed", "late", "resize", "two", "random")
OBSERVERS: Final = tuple(
    f"model/{name}.py"
    for name in ("lifecycle", "findings", "judging", "ledger", "slot_rules", "monitor", "check/trace")
)
UNSEEN: Final = {
    **dict.fromkeys(LEVELS, OBSERVERS),
    **dict.fromkeys(("monitor", "trace"), ("model/check/compare.py", "model/check/verdict.py")),
}
"""The files with faults that a layer doesn't load."""


def layers_for(fault: Fault, *, is_whole: bool) -> list[str]:
    """Which layers a fault is shown to: its own, or all others that could see it."""
    if not is_whole:
        return [fault.layer]
    if fault.file == "model/kernel.py":
        return []
    blind = {"proof", "tests", fault.layer} | ({"stateful"} if not fault.file.startswith("impl/") else set())
    return [layer for layer in LAYERS if layer not in blind]


def run_all(
    faults: Sequence[Fault],
    choose: Callable[[Fault], Sequence[str]],
    keep: Callable[[Fault, dict[str, Finding]], None],
    workers: int,
    *,
    is_whole: bool,
) -> dict[str, dict[str, Finding]]:
    """All faults side by side; the results in the order of the zoo. NotSoundError if something is found without one.

    `keep` is told of each as soon as it is known: a run of everything that is broken off isn't lost.
    """
    with (
        tempfile.TemporaryDirectory(prefix="mutants-") as directory,
        Workshop(Path(directory), is_whole=is_whole) as workshop,
        ThreadPoolExecutor(workers) as pool,
    ):
        told = Lock()
        for layer, finding in workshop.run(None, SOUND).items():
            if finding.kind != "survived":
                raise NotSoundError(f"without any fault {layer} says: {finding.kind}, {finding.what}")

        def work(fault: Fault) -> dict[str, Finding]:
            found = workshop.run(fault, choose(fault))
            with told:
                tell(fault, found)
                keep(fault, found)
            return found

        return dict(zip((fault.name for fault in faults), pool.map(work, faults), strict=True))


def keep_cells(fault: Fault, row: dict[str, Finding]) -> None:
    """Changes cells of one row of the matrix."""
    cells = read_matrix(MATRIX)
    cells.setdefault(fault.name, {}).update((layer, finding.cell()) for layer, finding in row.items())
    write_matrix(MATRIX, FAULTS, EQUIVALENT, cells)


def tell(fault: Fault, found: dict[str, Finding]) -> None:
    """One line of progress."""
    said = ", ".join(f"{layer}: {finding.cell()}" for layer, finding in found.items())
    print(f"{fault.name} ({fault.rule}): {said}", flush=True)


def complaints(fault: Fault, finding: Finding) -> Iterable[str]:
    """What is wrong with a fault's end at its own layer."""
    if finding.kind == "survived":
        yield f"survives {fault.layer}"
    elif finding.kind == "broke":
        yield f"ends the process of {fault.layer} ({finding.what})"
    elif (finding.kind == "hung") != fault.hangs:
        yield f"{'hangs' if finding.kind == 'hung' else 'ends'} at {fault.layer} ({finding.what})"
    elif finding.kind == "caught" and finding.rules and fault.family not in finding.families:
        yield f"is caught by {', '.join(finding.rules)}, not by {fault.rule} ({finding.what})"
    elif finding.steps is not None and finding.steps > 8:
        yield f"takes {finding.steps} steps ({finding.what})"


def main(arguments: Sequence[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", action="append", metavar="NAME", help="faults whose name holds this; may be repeated")
    parser.add_argument("--all-layers", action="store_true", help="fill the whole matrix")
    parser.add_argument("--missing", action="store_true", help="only the cells that are empty")
    parser.add_argument("--invariants", action="store_true", help="which invariant is needed for which fault")
    parser.add_argument("--workers", type=int, default=2, help="faults side by side")
    options = parser.parse_args(arguments)
    chosen = [fault for fault in FAULTS if is_chosen(fault, options.only)]
    if not chosen:
        parser.error("no fault has such a name")
    started = time.monotonic()
    try:
        for fault in (*FAULTS, *(each.fault for each in EQUIVALENT)):
            fault.apply((REPOSITORY / fault.file.partition("/")[0] / fault.path).read_text(encoding="utf-8"))
    except AnchorError as error:
        print(f"mutants: {error}", file=sys.stderr)
        return 2
    same = [each.fault for each in EQUIVALENT if options.all_layers and is_chosen(each.fault, options.only)]
    if options.invariants:
        chosen = [fault for fault in chosen if fault.file.startswith("impl/")]

    def choose(fault: Fault) -> list[str]:
        if options.invariants:
            return ["invariants"]
        layers = [*layers_for(fault, is_whole=options.all_layers), *([fault.layer] if fault in same else [])]
        return [layer for layer in layers if not (options.missing and layer in known.get(fault.name, ()))]

    known = read_matrix(MATRIX)

    try:
        found = run_all(
            [*chosen, *same],
            choose,
            (lambda *_: None) if options.invariants else keep_cells,
            options.workers,
            is_whole=options.all_layers,
        )
    except NotSoundError as error:
        print(f"mutants: {error}", file=sys.stderr)
        return 2
    if options.invariants:
        return report_invariants({name: cells["invariants"] for name, cells in found.items()}, MATRIX)
    wrong = [
        f"{fault.name} {complaint}"
        for fault in chosen
        if fault.layer in found[fault.name]
        for complaint in complaints(fault, found[fault.name][fault.layer])
    ]
    wrong += [
        f"{fault.name} isn't equivalent: {layer} says {finding.what}"
        for fault in same
        for layer, finding in found[fault.name].items()
        if finding.kind != "survived"
    ]
    print()
    if options.only is None:
        print(MATRIX.read_text(encoding="utf-8"))
    for line in wrong:
        print(f"WRONG: {line}")
    print(f"{len(chosen)} faults, {len(chosen) - len(wrong)} as they must, {time.monotonic() - started:.0f} s")
    return 1 if wrong else 0


def is_chosen(fault: Fault, parts: Sequence[str] | None) -> bool:
    """Whether its name holds one of the parts."""
    return parts is None or any(part in fault.name for part in parts)


if __name__ == "__main__":
    raise SystemExit(main())
