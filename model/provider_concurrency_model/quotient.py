"""The picture of a level: its graph with everything forgotten but how many slots are held, cooling and queued.

The whole graph is a hairball; counted like this it can be read. Reclaimed slots count as cooling, as they do for the
limit. The closed manager, to which one edge leads from everywhere, is left out.
"""

from __future__ import annotations

from dataclasses import dataclass

from provider_concurrency_spec.vocabulary import OPERATION_NAMES, Command, Do

from .graph import Graph
from .state import State, find_provider


@dataclass(frozen=True, slots=True)
class Quotient:
    """Nodes by their names, edges by (from, to) with the words that lead there."""

    nodes: tuple[str, ...]
    edges: tuple[tuple[str, str, tuple[str, ...]], ...]

    def to_dot(self) -> str:
        """The picture for Graphviz."""
        lines = ["digraph manager {", "  rankdir=LR; node [shape=box, fontname=monospace];"]
        lines += [f'  "{node}"{" [style=filled]" if "paused" in node else ""};' for node in self.nodes]
        lines += [f'  "{source}" -> "{target}" [label="{", ".join(words)}"];' for source, target, words in self.edges]
        return "\n".join([*lines, "}"]) + "\n"

    def to_mermaid(self) -> str:
        """The picture for Markdown."""
        places = {node: f"s{place}" for place, node in enumerate(self.nodes)}
        lines = ["stateDiagram-v2", "    direction LR", "    [*] --> s0"]
        lines += [f'    state "{node}" as {place}' for node, place in places.items()]
        lines += [
            f"    {places[source]} --> {places[target]} : {', '.join(words)}" for source, target, words in self.edges
        ]
        return "\n".join(lines) + "\n"


def quotient(graph: Graph) -> Quotient:
    """The picture of a graph, in breadth-first order; edges that stay in their node are left out."""
    nodes: dict[str, None] = {}
    words: dict[tuple[str, str], set[str]] = {}
    labels = [describe(state, graph.bounds.providers[0]) for state in graph.states]
    for state, label in zip(graph.states, labels, strict=True):
        if not state.is_closed:
            nodes[label] = None
    for edge in graph.edges:
        source, target = labels[edge.source], labels[edge.target]
        if source != target and not graph.states[edge.target].is_closed:
            words.setdefault((source, target), set()).add(word(edge.command))
    return Quotient(tuple(nodes), tuple((*ends, tuple(sorted(kinds))) for ends, kinds in words.items()))


def describe(state: State, provider: str) -> str:
    """A node's name: the counts of one provider, and whether it is paused."""
    states = [slot.state for slot in state.slots if slot.provider == provider]
    cooling = states.count("cooling") + states.count("reclaimed")
    is_paused = find_provider(state, provider).paused_until_ms is not None
    counts = f"{states.count('held')} held, {cooling} cooling, {states.count('queued')} queued"
    return f"{counts}, paused" if is_paused else counts


def word(command: Command) -> str:
    """An edge's label: its operations' words, or "time"."""
    if isinstance(command, Do):
        return " + ".join(OPERATION_NAMES[type(operation)] for operation in command.ops)
    return "time"
