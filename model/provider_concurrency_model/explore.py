"""Everything that the model can do within stated bounds, and commands that show all of it to a subject.

    graph = explore(LEVELS["settled"])
    print(graph)                                   # settled: 1008 states, 19338 edges
    assert examine(graph, ALWAYS).violation is None
    for config, commands in graph.walks():         # together they take every edge
        replies = expected(config, commands)       # what a subject has to say

`Graph.vectors` gives the shortest commands to every edge, `quotient` a picture, `random_run` what no bounds hold.
"""

from __future__ import annotations

from collections.abc import Iterable

from provider_concurrency_spec.vocabulary import Command, Config, Reply

from .always import ALWAYS
from .graph import Edge, Graph, Step, Walk, explore
from .levels import LEVELS, Bounds
from .properties import Examination, Property, Violation, examine
from .quotient import Quotient, quotient
from .random_runs import random_run
from .sometimes import SOMETIMES
from .system import new, run

__all__ = [
    "ALWAYS", "LEVELS", "SOMETIMES", "Bounds", "Edge", "Examination", "Graph", "Property", "Quotient", "Step",
    "Violation", "Walk", "examine", "expected", "explore", "quotient", "random_run",
]  # fmt: skip


def expected(config: Config, commands: Iterable[Command]) -> tuple[Reply, ...]:
    """What a subject must reply to each command after `new`; raises InvalidConfigError if `new` must be refused."""
    state = new(config)
    replies: list[Reply] = []
    for command in commands:
        state, reply = run(state, command)
        replies.append(reply)
    return tuple(replies)
