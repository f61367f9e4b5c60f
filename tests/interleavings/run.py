"""Explores the programs' schedules, or replays a failing one.

python tests/interleavings/run.py                      every program, every schedule up to the bound
python tests/interleavings/run.py --replay FILE        the schedule that was written when a program failed
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from interleavings.explorer import Failure, explore, run, run_random
from interleavings.programs import PROGRAMS


def save(name: str, failure: Failure, folder: Path) -> Path:
    """Writes a failing schedule, to be replayed."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"schedule-{name.replace(' ', '-').replace(',', '').replace(':', '')}.json"
    path.write_text(json.dumps({"program": name, "answers": failure.schedule.answers, "cause": str(failure.__cause__)}))
    return path


def replay(path: Path) -> None:
    """Runs a saved schedule; raises Failure if it still fails, ValueError if the file is no schedule."""
    try:
        saved = json.loads(path.read_text())
        program, answers = PROGRAMS[saved["program"]], [int(answer) for answer in saved["answers"]]
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path} is no saved schedule: {error!r}") from error
    run(program, answers)


def main() -> int:
    """The command; 0: no failure, 1: a failure, 2: a file that is no schedule."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--replay", type=Path, metavar="FILE")
    parser.add_argument("--preemptions", type=int, default=2, help="per schedule, exhaustively (default 2)")
    parser.add_argument("--runs", type=int, default=5000, help="exhaustive runs per program at most (default 5000)")
    parser.add_argument("--random", type=int, default=500, help="schedules drawn by seed (default 500)")
    parser.add_argument("--save", type=Path, default=Path("counterexamples"), metavar="DIR")
    options = parser.parse_args()
    if options.replay is not None:
        try:
            replay(options.replay)
        except Failure as failure:
            print(failure)
            return 1
        except (OSError, ValueError) as error:
            print(error, file=sys.stderr)
            return 2
        print("the schedule passes")
        return 0
    failed = False
    for name, program in PROGRAMS.items():
        if name.startswith("planted"):
            continue
        try:
            count = sum(1 for _ in itertools.islice(explore(program, options.preemptions), options.runs + 1))
            for seed in range(options.random):
                run_random(program, seed)
        except Failure as failure:
            failed = True
            print(f"{name}: {failure}\n  replay: --replay {save(name, failure, options.save)}")
            continue
        kind = "exhausted" if count <= options.runs else "cut off"
        print(f"{name}: {min(count, options.runs)} schedules ({kind} at {options.preemptions} preemptions), "
              f"{options.random} drawn")  # fmt: skip
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
