"""The explorer: pinned sizes, properties on every edge, walks over all edges, planted faults, random runs."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from itertools import islice, pairwise
from typing import Any

import pytest

from provider_concurrency_model import draft as draft_module
from provider_concurrency_model import operations as operations_module
from provider_concurrency_model import system as system_module
from provider_concurrency_model.draft import Draft, end, grant, has_room
from provider_concurrency_model.explore import (
    ALWAYS,
    LEVELS,
    SOMETIMES,
    Bounds,
    Edge,
    Graph,
    examine,
    expected,
    explore,
    quotient,
    random_run,
)
from provider_concurrency_model.graph import canonical, tour
from provider_concurrency_model.levels import features_of
from provider_concurrency_model.state import Slot, State, queue_of
from provider_concurrency_model.system import new, run
from provider_concurrency_spec.vocabulary import (
    FEATURES,
    Acquire,
    Advance,
    Command,
    Config,
    Do,
    Feature,
    Hook,
    Refused,
    Release,
    Reply,
    SetLimit,
    SlotEvent,
    Stall,
    TryAcquire,
)

PINNED = {
    "settled": (1008, 19338),
    "burst": (169, 21930),
    "timed": (1187, 18492),
    "late": (690, 8877),
    "resize": (864, 14256),
    "two": (589, 8609),
    "nested": (409, 4515),
    "nested-raise": (323, 5087),
}


@cache
def graph_of(level: str) -> Graph:
    return explore(LEVELS[level])


@cache
def tour_of(level: str) -> list[list[Edge]]:
    return list(tour(graph_of(level), longest=400))


@pytest.mark.parametrize("level", LEVELS)
def test_the_reachable_states_and_edges_are_pinned(level: str) -> None:
    graph = graph_of(level)
    assert (len(graph.states), len(graph.edges)) == PINNED[level]
    assert str(graph) == f"{level}: {len(graph.states)} states, {len(graph.edges)} edges"


def test_always_on_every_edge_and_sometimes_on_some() -> None:
    witnesses: dict[str, tuple[Command, ...]] = {}
    for level in LEVELS:
        examination = examine(graph_of(level), ALWAYS, [claim for claim in SOMETIMES if claim.name not in witnesses])
        assert examination.violation is None
        witnesses |= examination.witnesses
    assert set(witnesses) == {claim.name for claim in SOMETIMES}
    assert max(len(commands) for commands in witnesses.values()) <= 9


def test_walks_take_every_edge_and_are_what_a_check_can_afford() -> None:
    total = 0
    for level in LEVELS:
        graph = graph_of(level)
        paths = tour_of(level)
        assert {id(edge) for path in paths for edge in path} == {id(edge) for edge in graph.edges}
        assert all(before.target == edge.source for path in paths for before, edge in pairwise(path))
        assert all(path[0].source == 0 for path in paths)
        steps = sum(len(path) + len(graph.bounds.setup) for path in paths)
        assert steps < 3 * len(graph.edges)
        total += steps
    assert total < 250_000


@pytest.mark.parametrize("level", ["burst", "late", "two", "nested-raise"])
def test_walks_pass_through_the_states_of_the_graph(level: str) -> None:
    """The canonical form forgets only what no command can tell: a walk with real names and times stays on its path."""
    graph = graph_of(level)
    bounds = graph.bounds
    keys = [canonical(state, ghosts=bounds.ghosts)[0] for state in graph.states]
    for path in list(tour(graph, longest=60))[::40]:
        state = new(bounds.config)
        commands = graph.spell(path)
        for command in commands[: len(bounds.setup)]:
            state, _ = run(state, command)
        for edge, command in zip(path, commands[len(bounds.setup) :], strict=True):
            state, reply = run(state, command)
            assert canonical(state, ghosts=bounds.ghosts)[0] == keys[edge.target]
            shown = run(graph.states[edge.source], edge.command)[1]
            assert kinds(reply) == kinds(shown)


def kinds(reply: Reply) -> list[Any]:
    """A reply without names and times."""
    events = [(type(event), getattr(event, "event", None), getattr(event, "provider", None)) for event in reply.events]
    return [events, len(reply.unsettled), sorted(reply.status, key=lambda row: row.provider)]


def test_a_vector_is_the_shortest_way_to_its_edge() -> None:
    graph = graph_of("two")
    vectors = list(islice(graph.vectors(), 2000))
    assert [edge for edge, _ in vectors] == list(graph.edges[:2000])
    lengths = [len(commands) for _, commands in vectors]
    assert lengths == sorted(lengths)
    assert vectors[0][1] == (Do((SetLimit("p", 1), SetLimit("q", 1))), Do((Acquire("p", "r1", None, 1, None),)))


def test_request_names_are_used_once_and_in_order() -> None:
    for _, commands in islice(graph_of("burst").walks(), 60):
        names = [item.request for command in commands if isinstance(command, Do) for item in command.ops
                 if isinstance(item, Acquire | TryAcquire)]  # fmt: skip
        assert names == [f"r{number}" for number in range(1, len(names) + 1)]


def test_exploring_runs_each_command_once() -> None:
    """So that it costs about what the model costs: canonical forms are cheap, nothing is run twice."""
    calls = 0

    def counting(state: State, command: Command) -> tuple[State, Reply]:
        nonlocal calls
        calls += 1
        return run(state, command)

    bounds = replace(LEVELS["late"], live=2)
    graph = explore(bounds, counting)
    assert calls == len(graph.edges) + len(bounds.setup)


def test_a_subject_without_features_is_sent_nothing_that_needs_them() -> None:
    for bounds in LEVELS.values():
        plain = explore(replace(bounds, live=2, features=frozenset()))
        for edge in plain.edges:
            if isinstance(edge.command, Do):
                assert all(not features_of(operation) for operation in edge.command.ops)
            else:
                assert not isinstance(edge.command, Stall)
    assert features_of(Hook("queued", "p", (TryAcquire("p", "x", None, 1),))) == {"hooks", "try_acquire"}


@pytest.mark.parametrize("lacking", ["cancel", "resume"])
def test_a_subject_without_one_feature_is_sent_no_hook_that_needs_it(lacking: Feature) -> None:
    features = frozenset(FEATURES) - {lacking}
    graph = explore(replace(LEVELS["burst"], live=2, features=features))
    needed = [features_of(op) for edge in graph.edges if isinstance(edge.command, Do) for op in edge.command.ops]
    assert any("hooks" in each for each in needed)
    assert all(each <= features for each in needed)


def test_bounds_can_be_printed() -> None:
    text = str(LEVELS["late"])
    assert "level='late'" in text
    assert "clock='late'" in text


def test_expected_is_what_the_model_replies() -> None:
    commands: tuple[Command, ...] = (
        Do((SetLimit("p", 1), Acquire("p", "a", None, 1))),
        Do((Release("a"),)),
        Advance(9),
    )
    replies = expected(LEVELS["timed"].config, commands)
    assert [event.event for reply in replies for event in reply.events if isinstance(event, SlotEvent)] == [
        "granted", "released", "recycled",
    ]  # fmt: skip
    assert [row.cooling for reply in replies for row in reply.status] == [0, 1, 0]


# -- the picture -----------------------------------------------------------------------------------------------------


def test_the_picture_of_a_small_level() -> None:
    picture = quotient(explore(replace(LEVELS["settled"], live=3)))
    assert (len(picture.nodes), len(picture.edges)) == (25, 81)
    assert picture.to_mermaid().startswith("stateDiagram-v2\n    direction LR\n    [*] --> s0\n")
    assert picture.to_dot().count("->") == len(picture.edges)
    assert '"2 held, 0 cooling, 0 queued" -> "2 held, 0 cooling, 1 queued" [label="acquire"];' in picture.to_dot()


# -- planted faults --------------------------------------------------------------------------------------------------


def one_too_many(draft: Draft, name: str) -> bool:
    limit = draft.provider(name).limit
    return has_room(draft, name) or (limit is not None and sum(s.state == "held" for s in draft.live.values()) == limit)


def admit_the_youngest(draft: Draft, name: str) -> None:
    while (
        draft_module.is_open(draft, name)
        and (queue := queue_of(draft.live.values(), name))
        and draft_module.has_room(draft, name)
    ):
        grant(draft, queue[-1], is_delivered=False)


def admit_nobody(draft: Draft, name: str) -> None: ...


def free_at_once(draft: Draft, slot: Slot, state: Any) -> None:
    end(draft, slot, "free", "recycled")
    draft_module.admit(draft, slot.provider)


def open_while_paused(draft: Draft, name: str) -> bool:
    return not draft.is_closed


def keep_everything(draft: Draft, provider: Any) -> bool:
    return False


def sweep_at_the_timeout(draft: Draft) -> None:
    timeout_ms = draft.settings.slot_timeout_ms
    if timeout_ms is not None and not draft.is_closed:
        for slot in tuple(draft.live.values()):
            if slot.state == "held" and draft.now_ms - slot.touched_ms >= timeout_ms:
                draft_module.start_cooldown(draft, slot, "reclaimed")


@pytest.mark.parametrize(
    ("level", "places", "fault", "rule"),
    [
        ("settled", ["draft.has_room"], one_too_many, "ADM-6"),
        ("settled", ["draft.admit", "operations.admit"], admit_the_youngest, "ORD-1"),
        ("resize", ["draft.admit", "operations.admit"], admit_nobody, "ADM-5"),
        ("settled", ["draft.start_cooldown", "operations.start_cooldown"], free_at_once, "ACC-2"),
        ("settled", ["draft.is_open"], open_while_paused, "ADM-4"),
        ("resize", ["operations.is_stateless"], keep_everything, "ACC-3"),
        ("timed", ["system.sweep"], sweep_at_the_timeout, "WAT-1"),
    ],
)
def test_a_planted_fault_breaks_a_property(
    monkeypatch: pytest.MonkeyPatch, level: str, places: list[str], fault: Callable[..., Any], rule: str
) -> None:
    modules = {"draft": draft_module, "operations": operations_module, "system": system_module}
    for place in places:
        module, name = place.split(".")
        monkeypatch.setattr(modules[module], name, fault)
    bounds = replace(
        LEVELS[level], live=3, prompts=(1, 2), timeouts=(None,), limits=(), cooldowns=(), tries=False, ghosts=False,
        setup=() if level == "resize" else (Do((SetLimit("p", 1),)),),
    )  # fmt: skip
    violation = examine(explore(bounds), ALWAYS).violation
    assert violation is not None
    assert rule in violation.rules
    assert len(violation.commands) <= 8


def nest_anywhere(_draft: Draft, _newcomer: Slot) -> bool:
    return False


def barge(draft: Draft, name: str) -> bool:
    return bool(queue_of(draft.live.values(), name)) or draft_module.can_grant_at_once(draft, name)


@pytest.mark.parametrize(
    ("level", "place", "fault", "name"),
    [
        ("nested-raise", "must_not_nest", nest_anywhere, "refuses what would wait for itself"),
        ("nested", "can_grant_at_once", barge, "helps the self-blocked from outside"),
    ],
)
def test_a_planted_fault_of_nesting_breaks_its_property(
    monkeypatch: pytest.MonkeyPatch, level: str, place: str, fault: Callable[..., Any], name: str
) -> None:
    monkeypatch.setattr(operations_module, place, fault)
    violation = examine(explore(LEVELS[level]), [claim for claim in ALWAYS if claim.name == name]).violation
    assert violation is not None
    assert len(violation.commands) <= 8


def test_kin_is_told_apart_only_where_it_matters() -> None:
    """A slot that cools is nobody's, and who is granted has no ancestors any more."""
    config = Config(release_cooldown_ms=20, nested="queue")
    keys: list[Any] = []
    for conversation, path in (("a", ("a",)), ("b", ("a", "b")), (None, ())):
        state, _ = run(new(config), Do((Acquire("p", "r", conversation, 1, None, path),)))
        held = canonical(state, ghosts=False)[0]
        keys += [held, canonical(run(state, Do((Release("r"),)))[0], ghosts=False)[0]]
    assert len(set(keys[0::2])) == 3
    assert len(set(keys[1::2])) == 1
    lone, nested = (run(new(config), Do((Acquire("p", "r", "b", 1, None, path),)))[0] for path in ((), ("a", "b")))
    assert canonical(lone, ghosts=False) == canonical(nested, ghosts=False)


def test_a_model_whose_timers_never_fire_breaks_a_property() -> None:
    def stuck(state: State, command: Command) -> tuple[State, Reply]:
        if isinstance(command, Do):
            return run(state, command)
        return system_module.step(state, system_module.Elapse(min(command.ms, 5)))[0], Reply()

    violation = examine(explore(replace(LEVELS["two"], live=1, providers=("p",)), stuck), ALWAYS).violation
    assert violation is not None
    assert violation.rules == ("TIM-3", "REL-3", "CAN-3", "PAU-5")


# -- random runs -----------------------------------------------------------------------------------------------------


def test_a_random_run_is_decided_by_its_seed() -> None:
    assert random_run(5, 40) == random_run(5, 40)
    assert random_run(5, 40) != random_run(6, 40)


def test_random_runs_go_everywhere() -> None:
    seen: Counter[Any] = Counter()
    for seed in range(40):
        config, commands = random_run(seed, 60)
        assert len(commands) == 60
        for command in commands:
            seen[type(command).__name__] += 1
            if isinstance(command, Do):
                seen.update(type(operation).__name__ for operation in command.ops)
        for reply in expected(config, commands):
            for event in reply.events:
                seen[event.event if isinstance(event, SlotEvent) else type(event).__name__] += 1
                if isinstance(event, Refused):
                    seen[event.kind] += 1
    words = [
        "granted", "queued", "timed_out", "cancelled", "rejected", "released", "reclaimed", "recycled", "Paused",
        "Resumed", "SlotShown", "invalid", "closed", "queue_full", "nested", "Do", "Advance", "Stall", "Acquire",
        "TryAcquire", "Release", "Cancel", "Touch", "Inspect", "SetLimit", "RemoveLimit", "SetCooldown", "RateLimited",
        "Resume", "Hook", "Close",
    ]  # fmt: skip
    assert [word for word in words if seen[word] < 5] == []


def test_a_random_run_without_features_needs_none() -> None:
    config, commands = random_run(3, 100, frozenset())
    assert (config.max_queued, config.default_limit) == (None, None)
    for command in commands:
        assert not isinstance(command, Stall)
        if isinstance(command, Do):
            assert all(not features_of(operation) for operation in command.ops)
    assert frozenset(FEATURES) == LEVELS["settled"].features


def test_a_random_run_never_touches_a_grant_on_its_way() -> None:
    """Such a release would do nothing in the model and is not the kit's to send: a burst releases what it saw held."""
    for seed in range(10):
        config, commands = random_run(seed, 60)
        state = new(config)
        for command in commands:
            if isinstance(command, Do):
                between = state
                for operation in command.ops:
                    if isinstance(operation, Release):
                        slot = next((s for s in between.slots if s.request == operation.request), None)
                        assert slot is None or slot.state != "held" or slot.is_delivered
                    between, _ = system_module.step(between, operation)
            state, _ = run(state, command)


def test_every_level_is_a_small_question() -> None:
    assert [bounds.level for bounds in LEVELS.values()] == list(LEVELS)
    assert all(isinstance(bounds, Bounds) and bounds.live <= 4 for bounds in LEVELS.values())
