"""A process that has the judge and the model ready, and forks a child for each fault of the manager.

    python server.py DIRECTORY {own|whole}

Imports and the model's part of a level cost more than the judgement of a fault. So they are done once, in a process
that never imports the manager; each child takes the manager from the fault's directory. Requests come as lines of JSON
(`place`, `layers`), answers are the child's own lines (see `layers`) and a last one with its exit `code`.
With `whole` even the model's answers along all walks are worked out before: that pays off when many faults survive.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import sys
import traceback
from typing import Any

from mutants import layers, stage


def main() -> None:
    """Answers requests until there are no more."""
    sys.path.insert(0, sys.argv[1])
    for line in sys.stdin:
        request = json.loads(line)
        for name in request["layers"]:
            prepare(name, is_whole=sys.argv[2] == "whole")
        assert "provider_concurrency" not in sys.modules
        gc.freeze()
        sys.stdout.flush()
        child = os.fork()
        if not child:
            work(request)
        _, status = os.waitpid(child, 0)
        print(json.dumps({"code": os.waitstatus_to_exitcode(status)}), flush=True)


def work(request: dict[str, Any]) -> None:
    """What the child does."""
    code = 1
    try:
        sys.path[0] = request["place"]
        importlib.invalidate_caches()
        layers.run(request["layers"])
        code = 0
    except BaseException:  # noqa: BLE001 - told on stderr; the child must not go on as a server
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        os._exit(code)


def prepare(name: str, *, is_whole: bool) -> None:
    """What a layer needs and no fault of the manager can change."""
    from provider_concurrency_model.check import judge
    from provider_concurrency_model.levels import LEVELS

    level, kept = name.partition(":")[0], stage.KEPT
    if "runs" not in kept:
        kept["runs"] = list(stage.make_runs())
        kept["scenario files"] = judge.load_all()
    if level in LEVELS and level not in kept:
        graph = judge.explore(LEVELS[level])
        paths = list(judge.tour(graph, judge._WALK)) if is_whole else []
        cases = [judge._case_of_path(graph, path, f"walk {number}") for number, path in enumerate(paths, 1)]
        kept[level] = graph, paths, cases


if __name__ == "__main__":
    main()
