"""The pytest plugin, on test files of a user's: which of them pass, and what the others are told."""

from __future__ import annotations

import subprocess
import sys
import xml.etree.ElementTree as ET
from importlib.metadata import entry_points
from pathlib import Path

import pytest

PLUGIN = "provider_concurrency_model.check.pytest_plugin"

IS_INSTALLED = any(each.value == PLUGIN for each in entry_points(group="pytest11"))
LOAD = () if IS_INSTALLED else ("-p", PLUGIN)
"""An environment that was installed before the entry point was there doesn't know it."""

HEAD = "import asyncio\nimport pytest\n\n"


def run(folder: Path, source: str, *, ini: str = "") -> dict[str, tuple[str, str]]:
    """Runs a test file in a process of its own: the outcome and the message of each test."""
    (folder / "pytest.ini").write_text(f"[pytest]\nfilterwarnings = error\n{ini}\n", encoding="utf-8")
    (folder / "test_it.py").write_text(HEAD + source, encoding="utf-8")
    report = folder / "report.xml"
    arguments = ["-q", "-p", "no:cacheprovider", *LOAD, f"--junitxml={report}", str(folder)]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert report.exists(), done.stdout + done.stderr
    told: dict[str, tuple[str, str]] = {}
    for case in ET.parse(report).getroot().iter("testcase"):
        fault = next((child for child in case if child.tag in ("failure", "error")), None)
        outcome = ("passed", "") if fault is None else (fault.tag, f"{fault.get('message')} {fault.text}")
        told[case.get("name", "")] = outcome
    return told


USES = """
async def take(manager):
    return manager.try_acquire("p")


async def call(manager, seconds=5.0):
    async with manager.slot("p", conversation_id="c"):
        await asyncio.sleep(seconds)


def test_good(virtual_time, monitored_manager):
    manager = monitored_manager(limits={"p": 1})

    async def both():
        await asyncio.gather(call(manager), call(manager))

    virtual_time.run(both())
    assert virtual_time.now == pytest.approx(10.2)


def test_step_by_step(monitored_manager, virtual_time):
    manager = monitored_manager(limits={"p": 1})
    first, second = (virtual_time.start(call(manager)) for _ in range(2))
    virtual_time.advance(5.1)
    assert first.done() and manager.get_status("p").queued == 1
    virtual_time.advance(5.1)
    assert second.done()


def test_real_time(monitored_manager):
    manager = monitored_manager(limits={"p": 2}, release_cooldown=0.0)
    asyncio.run(call(manager, 0.0))


def test_held(virtual_time, monitored_manager):
    manager = monitored_manager(limits={"p": 1})
    virtual_time.run(manager.acquire("p", conversation_id="lost"))  # line of the leak


def test_held_but_meant(virtual_time, monitored_manager):
    virtual_time.run(take(monitored_manager(may_hold=True)))


def test_waiting(virtual_time, monitored_manager):
    manager = monitored_manager(limits={"p": 0})
    virtual_time.start(call(manager))


def test_reclaimed(virtual_time, monitored_manager):
    manager = monitored_manager(slot_timeout=10.0, watchdog_interval=5.0)
    virtual_time.start(call(manager, 100.0))
    virtual_time.advance(101.0)


def test_reclaimed_but_meant(virtual_time, monitored_manager):
    manager = monitored_manager(slot_timeout=10.0, watchdog_interval=5.0, may_reclaim=True)
    virtual_time.start(call(manager, 100.0))
    virtual_time.advance(101.0)


def test_fails_by_itself(virtual_time, monitored_manager):
    slot = virtual_time.run(take(monitored_manager()))
    assert slot is None


def test_own_observer(virtual_time, monitored_manager):
    seen = []
    manager = monitored_manager(observer=lambda event, *rest: seen.append(event), release_cooldown=0.0)
    virtual_time.run(take(manager)).release()
    assert seen == ["granted", "released", "recycled"]


@pytest.fixture
def slot(virtual_time, monitored_manager):
    slot = virtual_time.run(take(monitored_manager()))
    yield slot
    slot.release()


def test_a_fixture_releases(slot):
    assert not slot.reclaimed


@pytest.fixture
def lost(virtual_time, monitored_manager):
    return virtual_time.run(take(monitored_manager()))


def test_a_fixture_leaks(lost):
    assert lost is not None


def test_unwatched():
    pass
"""


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[str, str]]:
    return run(tmp_path_factory.mktemp("uses"), USES)


@pytest.mark.parametrize(
    "name",
    [
        "test_good", "test_step_by_step", "test_real_time", "test_held_but_meant", "test_reclaimed_but_meant",
        "test_own_observer", "test_a_fixture_releases", "test_unwatched",
    ],
)  # fmt: skip
def test_right_use_passes(outcomes: dict[str, tuple[str, str]], name: str) -> None:
    assert outcomes[name] == ("passed", "")


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("test_held", "still held at the end: a slot of 'p' for conversation 'lost', asked for at"),
        ("test_waiting", "still waiting at the end: a slot of 'p' for conversation 'c'"),
        ("test_reclaimed", "leaked, and taken back by the watchdog: a slot of 'p' for conversation 'c'"),
        ("test_fails_by_itself", "monitored manager: still held at the end"),
    ],
)
def test_wrong_use_fails_the_test_itself(outcomes: dict[str, tuple[str, str]], name: str, told: str) -> None:
    outcome, message = outcomes[name]
    assert outcome == "failure"
    assert told in message


def test_the_line_that_asked_is_named(outcomes: dict[str, tuple[str, str]]) -> None:
    lines = (HEAD + USES).splitlines()
    line = next(number for number, text in enumerate(lines, 1) if "async with manager.slot" in text)
    for name in ("test_waiting", "test_reclaimed"):
        assert f"test_it.py:{line}" in outcomes[name][1]


def test_a_fixture_that_leaks_is_an_error_of_the_clean_up(outcomes: dict[str, tuple[str, str]]) -> None:
    outcome, message = outcomes["test_a_fixture_leaks"]
    assert outcome == "error"
    assert "still held at the end" in message


def test_a_broken_rule_fails_the_test(tmp_path: Path) -> None:
    """With a manager that frees a slot without its having been released, as far as events tell."""
    (tmp_path / "wrong.py").write_text(
        "from provider_concurrency import ConcurrencyManager\n"
        "class Manager(ConcurrencyManager):\n"
        "    def __init__(self, *, observer, **names):\n"
        "        def watch(event, *rest): event == 'released' or observer(event, *rest)\n"
        "        super().__init__(observer=watch, **names)\n",
        encoding="utf-8",
    )
    ini = "provider_concurrency_manager = wrong:Manager\npythonpath = ."
    source = """
def test_it(virtual_time, monitored_manager):
    manager = monitored_manager(limits={"p": 1})

    async def call():
        async with manager.slot("p"):
            pass

    virtual_time.run(call())
    virtual_time.advance(1.0)
    assert manager.get_status("p").in_flight == 0
"""
    outcome, message = run(tmp_path, source, ini=ini)["test_it"]
    assert outcome == "failure"
    assert "a rule was broken: " in message
    assert "recycled request" in message


def test_the_blocking_manager_is_watched_too(tmp_path: Path) -> None:
    source = """
def test_leaks(monitored_manager):
    monitored_manager(limits={"p": 1}).acquire("p", conversation_id="lost")

def test_good(monitored_manager):
    with monitored_manager(limits={"p": 1}).slot("p"):
        pass
"""
    ini = "provider_concurrency_manager = provider_concurrency.threading:ConcurrencyManager"
    told = run(tmp_path, source, ini=ini)
    assert told["test_good"] == ("passed", "")
    assert told["test_leaks"][0] == "failure"
    assert "still held at the end: a slot of 'p' for conversation 'lost'" in told["test_leaks"][1]


def test_a_manager_that_is_not_there_is_named(tmp_path: Path) -> None:
    told = run(tmp_path, "def test_it(monitored_manager): pass\n", ini="provider_concurrency_manager = nowhere:Manager")
    assert told["test_it"][0] == "error"
    assert "ini option provider_concurrency_manager: can't import 'nowhere'" in told["test_it"][1]


def test_loading_the_plugin_imports_nothing_of_the_judge() -> None:
    program = (
        f"import pytest, sys; before = set(sys.modules); import {PLUGIN}; "
        "print(*sorted(name for name in set(sys.modules) - before if not name.startswith('asyncio')))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    own = {name for name in done.stdout.split() if name.startswith(("provider_concurrency", "typer", "transitions"))}
    assert own == {"provider_concurrency_model", "provider_concurrency_model.check", PLUGIN}
