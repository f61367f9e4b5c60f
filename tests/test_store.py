"""PER-1..7: what an operator set survives a restart."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import random
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from provider_concurrency import ConcurrencyManager, ManagerClosedError
from provider_concurrency.events import tee
from provider_concurrency.store import JsonFileStore, Keeper, Saved
from provider_concurrency.threading import ConcurrencyManager as BlockingManager

NAMES = ["openai", "", "limits", "version", "cooldowns", "paused_until", "__proto__", 'a"b\n', "\ud800", "ü"]


class MemoryStore:
    """A store of a few lines, as a user would write one; `fails` makes it refuse."""

    def __init__(self, saved: Saved | None = None) -> None:
        self.saved = Saved() if saved is None else saved
        self.saves = 0
        self.fails: BaseException | None = None

    def load(self) -> Saved:
        return self.saved

    def save(self, saved: Saved, /) -> None:
        if self.fails is not None:
            raise self.fails
        self.saved = saved
        self.saves += 1


class Wall:
    """A process's two clocks, set by hand."""

    def __init__(self, wall: float = 1.0e9) -> None:
        self.wall = wall
        self.ns = 0

    def pass_s(self, seconds: float) -> None:
        self.wall += seconds
        self.ns += round(seconds * 1e9)


def start(store: Any, clocks: Wall | None = None, **settings: Any) -> ConcurrencyManager:
    """A process begins: a manager whose settings were restored."""
    clocks = Wall() if clocks is None else clocks
    keeper = Keeper(store)
    manager = ConcurrencyManager(observer=keeper, clock=lambda: clocks.ns, wall_clock=lambda: clocks.wall, **settings)
    keeper.restore(manager)
    return manager


def test_per_1_limits_and_cooldowns_survive_a_restart(tmp_path: Path) -> None:
    store = JsonFileStore(tmp_path / "limits.json")
    first = start(store, limits={"given": 3})
    for n, name in enumerate(NAMES):
        first.set_limit(name, n)
        first.set_cooldown(name, n / 7)
    first.set_cooldown("ü", None)
    first.close()
    second = start(JsonFileStore(tmp_path / "limits.json"), limits={"given": 5})
    assert second.get_limits() == {"given": 5} | {name: n for n, name in enumerate(NAMES)}
    assert {name: second.get_cooldown(name) for name in NAMES} == {name: first.get_cooldown(name) for name in NAMES} | {
        "ü": None
    }
    assert list(tmp_path.iterdir()) == [tmp_path / "limits.json"]


def test_per_1_what_the_constructor_was_given_is_not_the_operators() -> None:
    store = MemoryStore()
    start(store, limits={"p": 3, "q": 1}).set_limit("q", 2)
    assert store.saved == Saved(limits={"q": 2})
    assert start(store, limits={"p": 4, "q": 1}).get_limits() == {"p": 4, "q": 2}


def test_per_1_a_removed_limit_stays_removed() -> None:
    store = MemoryStore()
    first = start(store, limits={"given": 3})
    first.remove_limit("given")
    first.set_limit("own", 1)
    first.remove_limit("own")
    assert store.saved == Saved(limits={"given": None})
    assert start(store, limits={"given": 3}).get_limits() == {}
    assert store.saved == Saved(limits={"given": None})
    assert start(store, limits={}).get_limits() == {}
    assert store.saved == Saved(), "there is nothing left to take away"


def test_per_1_a_cooldown_is_restored_to_the_nanosecond(tmp_path: Path) -> None:
    store = JsonFileStore(tmp_path / "s")
    draw = random.Random(7)
    wanted = {str(n): draw.randrange(10 ** draw.randrange(1, 16)) for n in range(300)}
    store.save(Saved(cooldowns={name: ns / 1e9 for name, ns in wanted.items()}))
    manager = start(store)
    assert {name: manager._providers[name].own_cooldown for name in wanted} == wanted


def test_per_2_what_was_set_before_restore_wins(caplog: pytest.LogCaptureFixture) -> None:
    store = MemoryStore(Saved({"p": 1, "q": 1, "r": 1}, {"p": 1.0, "q": 1.0}, {}))
    keeper = Keeper(store)
    manager = ConcurrencyManager(observer=keeper)
    manager.set_limit("p", 9)
    manager.set_limit("r", 9)
    manager.remove_limit("r")
    manager.set_cooldown("p", 9)
    manager.set_cooldown("q", 9)
    manager.set_cooldown("q", None)
    manager.report_rate_limit("p", 5)
    assert store.saves == 0
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    keeper.restore(manager)
    assert manager.get_limits() == {"p": 9, "q": 1}
    assert (manager.get_cooldown("p"), manager.get_cooldown("q")) == (9, None)
    assert set(store.saved.paused_until) == {"p"}
    with pytest.raises(ValueError, match="already"):
        keeper.restore(manager)


def test_per_2_a_closed_manager_is_refused() -> None:
    store = MemoryStore(Saved({"p": 1}))
    keeper = Keeper(store)
    manager = ConcurrencyManager(observer=keeper)
    manager.close()
    with pytest.raises(ManagerClosedError):
        keeper.restore(manager)
    assert store.saved == Saved({"p": 1})


def test_per_2_restoring_from_within_a_callback_saves_nothing_less() -> None:
    """Its events come after it: the store must not be emptied meanwhile."""
    store = MemoryStore(Saved({"p": 1}, {"q": 1.0}))
    keeper = Keeper(store)
    seen: list[Saved] = []

    def on_pause(*_: object) -> None:
        keeper.restore(manager)
        seen.append(store.saved)

    manager = ConcurrencyManager(observer=keeper, on_pause=on_pause)
    manager.report_rate_limit("r", 5)
    assert seen[0].limits == store.saved.limits == {"p": 1}
    assert seen[0].cooldowns == store.saved.cooldowns == {"q": 1.0}


def test_per_3_a_pauses_remainder_is_restored_by_wall_clock() -> None:
    store, clocks = MemoryStore(), Wall(1000.25)
    first = start(store, clocks)
    first.report_rate_limit("p", 60)
    assert store.saved.paused_until == {"p": 1061.0}
    clocks.pass_s(10)
    first.close()  # ends the pause of this process, not the upstream's
    assert store.saved.paused_until == {"p": 1061.0}
    second = start(store, Wall(1020.0))
    status = second.get_status("p")
    assert status is not None
    assert status.paused_for == 41.0
    assert store.saved.paused_until == {"p": 1061.0}, "no restart makes it longer"
    second.resume("p")
    assert store.saved == Saved()


def test_per_3_a_pause_that_is_over_is_not_restored() -> None:
    store = MemoryStore(Saved(paused_until={"p": 1000.0}))
    assert start(store, Wall(1000.0)).get_status("p") is None
    assert store.saved == Saved()


@pytest.mark.parametrize("until", [1e15, 1.7e308])
def test_per_3_a_remainder_is_clamped_to_max_pause(until: float) -> None:
    """The wall clock was set back, or the file was written by hand."""
    store = MemoryStore(Saved(paused_until={"p": until}))
    status = start(store, Wall(1000.0), max_pause=90.0).get_status("p")
    assert status is not None
    assert status.paused_for == 90.0
    assert store.saved.paused_until == {"p": 1090.0}


def test_per_3_a_burst_of_429s_is_one_save() -> None:
    store, clocks = MemoryStore(), Wall(1000.1)
    manager = start(store, clocks)
    for _ in range(100):
        manager.report_rate_limit("p", 30)
        clocks.pass_s(0.001)
    assert (store.saves, store.saved.paused_until) == (1, {"p": 1031.0})
    manager.report_rate_limit("p", 5)
    assert store.saves == 1, "a shorter report changes nothing (PAU-1)"
    manager.report_rate_limit("p", 300)
    assert (store.saves, store.saved.paused_until) == (2, {"p": 1301.0})


def test_per_3_nothing_is_granted_between_a_restored_limit_and_its_pause() -> None:
    async def main() -> None:
        keeper = Keeper(MemoryStore(Saved({"p": 5}, {}, {"p": 1e12})))
        manager = ConcurrencyManager(limits={"p": 0}, observer=keeper)
        waiter = asyncio.ensure_future(manager.acquire("p"))
        await asyncio.sleep(0)
        keeper.restore(manager)
        await asyncio.sleep(0)
        assert not waiter.done()
        waiter.cancel()
        manager.close()

    asyncio.run(main())


def test_per_4_the_file_is_replaced_as_a_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "limits.json"
    store = JsonFileStore(path)
    store.save(Saved({"p": 1}))
    path.chmod(0o640)
    before = path.read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: (_ for _ in ()).throw(OSError("disk full")))
        with pytest.raises(OSError, match="disk full"):
            store.save(Saved({"p": 2}))
    assert (path.read_bytes(), os.listdir(tmp_path)) == (before, ["limits.json"])
    store.save(Saved({"p": 2}))
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert store.load() == Saved({"p": 2})


def test_per_4_a_process_killed_while_saving_leaves_the_old_or_the_new(tmp_path: Path) -> None:
    path = tmp_path / "limits.json"
    program = (
        "import sys; from provider_concurrency.store import *\nstore = JsonFileStore(sys.argv[1])\n"
        "store.save(Saved({'p': 0})); print('ready', flush=True)\n"
        "for n in range(10**9): store.save(Saved({str(k): n for k in range(1000)}))"
    )
    for delay in (0.01, 0.05, 0.1):
        with subprocess.Popen([sys.executable, "-c", program, str(path)], stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            process.stdout.readline()
            with pytest.raises(subprocess.TimeoutExpired):
                process.wait(delay)
            process.kill()
        saved = JsonFileStore(path).load()
        assert len(saved.limits) in (1, 1000)
        assert len(set(saved.limits.values())) == 1
    assert not list(tmp_path.glob("*.corrupt*"))


def test_per_4_links_and_working_directories_are_followed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link.json").symlink_to(tmp_path / "real" / "file.json")
    monkeypatch.chdir(tmp_path)
    store = JsonFileStore("link.json")
    monkeypatch.chdir("/")
    store.save(Saved({"p": 1}))
    assert (tmp_path / "link.json").is_symlink()
    assert JsonFileStore(tmp_path / "real" / "file.json").load() == Saved({"p": 1})


WHOLE = '{"version": 1, "limits": {"p": 1}}'


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"\xff\xfe",
        b"[]",
        b"null",
        b"[" * 200_000,
        b"{}",
        b'{"version": 2, "limits": {"p": 1}}',
        b'{"version": true, "limits": {"p": 1}}',
        WHOLE.encode()[:-3],
    ],
    ids=["empty", "open", "bytes", "list", "null", "deep", "no-version", "newer", "bool", "torn"],
)
def test_per_5_a_corrupt_file_is_reported_and_kept_aside(
    tmp_path: Path, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "limits.json"
    for n in (1, 2):
        path.write_bytes(content)
        manager = start(JsonFileStore(path))
        assert manager.get_limits() == {}
        assert (tmp_path / f"limits.json.corrupt-{n}").read_bytes() == content
        assert [record.levelno for record in caplog.records] == [logging.WARNING] * n
        assert f"limits.json.corrupt-{n}" in caplog.records[-1].getMessage()
        manager.set_limit("p", n)
        assert JsonFileStore(path).load() == Saved({"p": n})


def test_per_5_what_can_be_understood_counts_and_is_saved_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "limits.json"
    path.write_text(
        '{"version": 1, "limits": {"good": 2, "float": 1.5, "negative": -1, "bool": true, "text": "3"},'
        ' "cooldowns": {"good": 1, "nan": NaN, "huge": 1e10, "null": null},'
        ' "paused_until": {"good": 2e9, "infinite": Infinity, "many digits": 1' + "0" * 400 + ', "list": []}}'
    )
    manager = start(JsonFileStore(path))
    assert manager.get_limits() == {"good": 2}
    assert manager.get_cooldown("good") == 1
    assert list(manager.get_status_all()) == ["good"]
    (record,) = caplog.records
    for name in ("float", "negative", "bool", "text", "nan", "huge", "null", "infinite", "many digits", "list"):
        assert f"[{name!r}]" in record.getMessage()
    written = json.loads(path.read_text())
    assert {name: list(table) for name, table in written.items() if name != "version"} == {
        "limits": ["good"],
        "cooldowns": ["good"],
        "paused_until": ["good"],
    }
    path.write_text('{"version": 1, "limits": [3]}')
    assert JsonFileStore(path).load() == Saved()


def test_per_5_a_link_in_a_loop_cant_be_read(tmp_path: Path) -> None:
    path = tmp_path / "link.json"
    path.symlink_to(path)
    store = JsonFileStore(path)
    with pytest.raises(OSError, match=path.name):
        store.load()


def test_per_5_a_file_that_cant_be_read_is_the_programs_to_handle(tmp_path: Path) -> None:
    keeper = Keeper(JsonFileStore(tmp_path))  # a directory
    manager = ConcurrencyManager(observer=keeper)
    with pytest.raises(OSError, match=tmp_path.name):
        keeper.restore(manager)


def test_per_5_a_stores_illegal_values_are_reported_and_left_out(caplog: pytest.LogCaptureFixture) -> None:
    wrong: Any = Saved({"p": -1, "q": 2, 5: 3}, {"p": "x"}, None)  # type: ignore[dict-item,arg-type]
    assert start(MemoryStore(wrong)).get_limits() == {"q": 2}
    assert "not restored" in caplog.records[0].getMessage()


@pytest.mark.parametrize("make", [ConcurrencyManager, BlockingManager])
def test_per_6_any_name_is_a_key_and_none_collides(tmp_path: Path, make: Callable[..., Any]) -> None:
    path = tmp_path / "limits.json"
    for round_ in (1, 2):
        keeper = Keeper(JsonFileStore(path))
        manager = make(observer=keeper)
        keeper.restore(manager)
        assert set(manager.get_limits()) == (set(NAMES) if round_ == 2 else set())
        for name in NAMES:
            manager.set_limit(name, 1)
        manager.close()
    assert set(json.loads(path.read_text())["limits"]) == set(NAMES)


def test_per_7_a_store_that_fails_disturbs_nobody_and_is_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    store = MemoryStore()
    told: list[str] = []
    keeper = Keeper(store)
    manager = ConcurrencyManager(observer=tee(keeper, lambda event, *_: told.append(event)))
    keeper.restore(manager)
    store.fails = OSError("disk full")
    caplog.set_level(logging.INFO)
    manager.set_limit("p", 1)
    manager.set_limit("p", 1)
    assert manager.get_limits() == {"p": 1}
    assert [(r.levelname, r.name) for r in caplog.records] == [("ERROR", "provider_concurrency.store")] * 2
    store.fails = None
    manager.set_cooldown("q", 1)
    assert store.saved == Saved({"p": 1}, {"q": 1.0})
    assert caplog.records[-1].getMessage() == "saving works again"
    assert told == ["limit_set", "limit_set", "cooldown_set"]


def test_per_7_an_interruption_passes_and_the_next_change_saves_all() -> None:
    store = MemoryStore()
    manager = start(store)
    store.fails = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        manager.set_limit("p", 1)
    store.fails = None
    manager.set_limit("q", 1)
    assert store.saved == Saved({"p": 1, "q": 1})


def test_per_7_requests_save_nothing() -> None:
    async def main() -> None:
        store = MemoryStore()
        keeper = Keeper(store)
        manager = ConcurrencyManager(observer=keeper, release_cooldown=0)
        keeper.restore(manager)
        for _ in range(50):
            async with manager.slot("p"):
                manager.set_limit("p", 1)
        manager.close()
        assert store.saves == 1

    asyncio.run(main())


def test_per_7_a_word_it_doesnt_know_is_nothing_to_save() -> None:
    store = MemoryStore()
    keeper = Keeper(store)
    manager = ConcurrencyManager(observer=keeper)
    keeper.restore(manager)
    keeper("renamed", 1, 0, "p", None, None, None, 0, 0, "q")
    assert store.saves == 0
