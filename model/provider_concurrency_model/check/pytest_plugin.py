"""A pytest plugin: virtual time, and managers that are watched, so that your own tests fail when your use is wrong.

    def test_two_calls_share_a_slot(virtual_time, monitored_manager):
        manager = monitored_manager(limits={"openai": 1})

        async def call():
            async with manager.slot("openai"):
                await asyncio.sleep(5)

        async def both():
            await asyncio.gather(call(), call())

        virtual_time.run(both())
        assert virtual_time.now == 10.2

A test fails when a rule was broken, when a slot is held or a request waits at its end, and when the watchdog had to
take a slot back (somebody lost it). The plugin is loaded into every test run of an environment that has this package,
so it imports nothing but pytest until one of its fixtures is used. The manager and the loop are found by dotted path
(ini options), because the judge never imports an implementation.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Coroutine, Generator, Iterator
from typing import Any, Final, Protocol, TypeVar

import pytest

T = TypeVar("T")

_MANAGER: Final = "provider_concurrency_manager"
_LOOP: Final = "provider_concurrency_loop"
_MONITORED: Final = "monitored_manager"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Where the manager and the virtual loop are."""
    parser.addini(_MANAGER, "the managers' class, module:name", default="provider_concurrency:ConcurrencyManager")
    parser.addini(_LOOP, "the virtual loops' class, module:name", default="provider_concurrency.testing:VirtualLoop")


class LoopLike(Protocol):
    """An event loop whose time moves only when nothing is left to run."""

    def time_ns(self) -> int:
        """The virtual time in nanoseconds."""
        ...

    def advance(self, seconds: float) -> None:
        """Lets time pass, timer by timer."""
        ...

    def settle(self) -> None:
        """Runs what can run without time passing."""
        ...


class VirtualTime:
    """One virtual loop and its clock; nothing in a test that uses it sleeps."""

    def __init__(self, make_loop: Callable[[], Any]) -> None:
        """Makes the loop; it stands still at 0."""
        self.loop: Any = make_loop()
        self._virtual: LoopLike = self.loop
        self._runner = asyncio.Runner(loop_factory=lambda: self.loop)

    @property
    def now(self) -> float:
        """Seconds since the test began."""
        return self._virtual.time_ns() / 1e9

    @property
    def clock(self) -> Callable[[], int]:
        """What a manager takes as its `clock`."""
        return self._virtual.time_ns

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Runs a coroutine to its end; time leaps from timer to timer meanwhile."""
        return self._runner.run(coroutine)

    def start(self, coroutine: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Makes a task of a coroutine and runs everything that can run now."""
        task: asyncio.Task[T] = self._runner.get_loop().create_task(coroutine)
        self._virtual.settle()
        return task

    def advance(self, seconds: float) -> None:
        """Lets time pass for the tasks that were started."""
        self._virtual.advance(seconds)

    def close(self) -> None:
        """Cancels what still runs."""
        self._runner.close()


@pytest.fixture
def virtual_time(request: pytest.FixtureRequest) -> Iterator[VirtualTime]:
    """Virtual time for one test: `virtual_time.run(coroutine)`, or `start` and `advance`."""
    time = VirtualTime(_find(request.config, _LOOP))
    yield time
    time.close()


def _find(config: pytest.Config, option: str) -> Any:
    from provider_concurrency_model.check.subject import SubjectError, load_dotted

    try:
        return load_dotted(str(config.getini(option)), f"ini option {option}")
    except SubjectError as error:
        raise pytest.UsageError(str(error)) from error


# -- managers --------------------------------------------------------------------------------------------------------


class _Slots:
    """An observer that keeps who holds and who waits, with the line that asked."""

    def __init__(self, package: str) -> None:
        self._package = package
        self.held: dict[int, str] = {}
        self.waiting: dict[int, str] = {}
        self.reclaimed: list[str] = []

    def __call__(
        self,
        event: str,
        _op: int,
        t_ns: int,
        provider: str | None,
        request: int | None,
        conversation_id: str | None,
        _prompt_started_at: float | None,
        _in_flight: int,
        _queued: int,
        _value: object,
    ) -> None:
        if request is None:
            return
        told = self.held.pop(request, None) or self.waiting.pop(request, None)
        if told is None:
            whose = "" if conversation_id is None else f" for conversation {conversation_id!r}"
            told = f"a slot of {provider!r}{whose}, asked for at {self._find_caller()}"
        match event:
            case "queued":
                self.waiting[request] = told
            case "granted":
                self.held[request] = told
            case "reclaimed":
                self.reclaimed.append(f"{told}, at {t_ns / 1e9:g} s of the manager's clock")
            case _:
                pass

    def _find_caller(self) -> str:
        """The line outside the library that called: the operation runs inside its caller's stack."""
        frame = sys._getframe(2)
        strangers = (self._package, "asyncio", "contextlib", "provider_concurrency_model")
        while frame.f_back is not None and frame.f_globals.get("__name__", "").split(".")[0] in strangers:
            frame = frame.f_back
        return f"{frame.f_code.co_filename}:{frame.f_lineno}"


class Watch:
    """The managers of one test."""

    def __init__(self, config: pytest.Config, clock: Callable[[], int] | None) -> None:
        """`clock`: that of the test's virtual time, if it has one."""
        self._make: Callable[..., Any] = _find(config, _MANAGER)
        self._package = str(config.getini(_MANAGER)).partition(":")[0].split(".")[0]
        self._clock = clock
        self._watched: list[tuple[Any, _Slots, bool, bool]] = []
        self.is_judged = False

    def make(self, *, may_hold: bool = False, may_reclaim: bool = False, **keywords: Any) -> Any:
        """A manager with these keywords, watched to the end of the test.

        `may_hold`: slots may be held and requests may wait at the end. `may_reclaim`: the watchdog may take slots.
        An `observer` of yours is called, too; under virtual time the manager has its clock.
        """
        from provider_concurrency_model.check.managers import Observer, Tee
        from provider_concurrency_model.monitor import Monitor

        own: Observer | None = keywords.pop("observer", None)
        settings = {name: value for name, value in keywords.items() if name in _MONITOR_KEYWORDS}
        monitor, slots = Monitor.from_seconds(**settings), _Slots(self._package)
        if self._clock is not None:
            keywords.setdefault("clock", self._clock)
        observers = (monitor, slots) if own is None else (monitor, slots, own)
        manager = self._make(**keywords, observer=Tee(*observers))
        self._watched.append((monitor, slots, may_hold, may_reclaim))
        return manager

    def find_broken(self) -> Iterator[str]:
        """Rules that were broken, and slots that were lost on the way."""
        for monitor, slots, _, may_reclaim in self._watched:
            try:
                monitor.assert_at_rest()
            except AssertionError as violation:
                yield f"a rule was broken: {violation}"
            if not may_reclaim:
                yield from (f"leaked, and taken back by the watchdog: {told}" for told in slots.reclaimed)

    def find_left(self) -> Iterator[str]:
        """What is left at the end."""
        for _, slots, may_hold, _ in self._watched:
            if not may_hold:
                yield from (f"still held at the end: {told}" for told in slots.held.values())
                yield from (f"still waiting at the end: {told}" for told in slots.waiting.values())


_MONITOR_KEYWORDS: Final = frozenset({
    "limits", "default_limit", "release_cooldown", "slot_timeout", "watchdog_interval", "default_pause", "min_pause",
    "max_pause", "max_queued",
})  # fmt: skip
"""The manager's keywords by which its events are judged."""

_WATCH: Final = pytest.StashKey[Watch]()


@pytest.fixture
def monitored_manager(request: pytest.FixtureRequest) -> Iterator[Callable[..., Any]]:
    """Makes managers that are watched: `monitored_manager(limits={"p": 1}, ...)`, with the manager's own keywords.

    Judged when the test function ends, or, if another fixture uses it, when that fixture is through.
    """
    has_virtual_time = "virtual_time" in request.fixturenames
    time: VirtualTime | None = request.getfixturevalue("virtual_time") if has_virtual_time else None
    watch = Watch(request.config, None if time is None else time.clock)
    node: pytest.Item = request.node
    node.stash[_WATCH] = watch
    yield watch.make
    if not watch.is_judged:
        _complain([*watch.find_broken(), *watch.find_left()])


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    """Judges as part of the test itself, so that it is the test that fails, not its clean-up."""
    try:
        result = yield
    except BaseException as error:
        watch = item.stash.get(_WATCH, None)
        if watch is not None:
            watch.is_judged = True
            for told in (*watch.find_broken(), *watch.find_left()):
                error.add_note(f"monitored manager: {told}")
        raise
    watch = item.stash.get(_WATCH, None)
    if watch is not None and not _is_used_by_fixtures(item):
        watch.is_judged = True
        _complain([*watch.find_broken(), *watch.find_left()])
    return result


def _is_used_by_fixtures(item: pytest.Item) -> bool:
    """Whether another fixture of the test has a manager: it may release only when it is torn down."""
    info: Any = getattr(item, "_fixtureinfo", None)
    definitions: dict[str, Any] = getattr(info, "name2fixturedefs", {})
    return any(_MONITORED in definition.argnames for each in definitions.values() for definition in each)


def _complain(findings: list[str]) -> None:
    if findings:
        pytest.fail("\n".join(f"monitored manager: {told}" for told in findings), pytrace=False)
