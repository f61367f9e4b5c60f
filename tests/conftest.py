"""Fixtures of the manager's tests: worlds on virtual time, with an observer and without.

Without an observer the manager may take its short ways, so that every rule is to be shown both ways.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

# pytest's importlib mode leaves this directory off the path; the tests share `support`.
sys.path.insert(0, str(Path(__file__).parent))

pytest.register_assert_rewrite("support")

from support import World  # noqa: E402 - found on the path, and its asserts rewritten, by the lines above


def _worlds(*, watched: bool) -> Iterator[Callable[..., World]]:
    made: list[World] = []

    def make(**settings: object) -> World:
        made.append(World(watched=watched, **settings))
        return made[-1]

    yield make
    for world in made:
        world.finish()


@pytest.fixture(params=[True, False], ids=["watched", "unwatched"])
def make(request: pytest.FixtureRequest) -> Iterator[Callable[..., World]]:
    """Makes worlds; each is audited at the end, and nothing may be left of it."""
    yield from _worlds(watched=request.param)


@pytest.fixture
def make_watched() -> Iterator[Callable[..., World]]:
    """Makes worlds whose events are recorded; for tests that read them."""
    yield from _worlds(watched=True)


@pytest.fixture
def make_unwatched() -> Iterator[Callable[..., World]]:
    """Makes worlds without an observer; for tests of what is only then so."""
    yield from _worlds(watched=False)
