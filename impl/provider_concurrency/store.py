"""What an operator set survives a restart: limits, own cooldowns, and the rest of a pause (PER-1..7).

    keeper = Keeper(JsonFileStore("limits.json"))
    manager = ConcurrencyManager(limits={"openai": 4}, observer=keeper)
    keeper.restore(manager)

`Keeper` is an observer (join several with `events.tee`): whoever sets a limit or reports a 429, the manager tells it.
What the constructor was given is the program's, not the operator's: it is never saved, and a later set_limit wins over
it, also after a restart. One process writes a file.
"""

from __future__ import annotations

import json
import logging
import math
import os
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol, TypeVar, cast

from provider_concurrency.validation import check_count, check_duration, check_number

if TYPE_CHECKING:
    from provider_concurrency.surface import Surface

__all__ = ["JsonFileStore", "Keeper", "Saved", "Store"]

T = TypeVar("T")

_log: Final = logging.getLogger("provider_concurrency.store")
_VERSION: Final = 1
_SLACK: Final = 0.001
"""Seconds; two readings of the wall clock that mean the same end of a pause differ by less."""


@dataclass(frozen=True, slots=True)
class Saved:
    """What is kept, by provider.

    `limits`: own limits; None: the operator took the constructor's away. `cooldowns`: own cooldowns in seconds.
    `paused_until`: when a pause ends, epoch seconds.
    """

    limits: Mapping[str, int | None] = field(default_factory=dict[str, "int | None"])
    cooldowns: Mapping[str, float] = field(default_factory=dict[str, float])
    paused_until: Mapping[str, float] = field(default_factory=dict[str, float])


class Store(Protocol):
    """Where what an operator set is kept."""

    def load(self) -> Saved:
        """What was saved last; an empty Saved if nothing was."""
        ...

    def save(self, saved: Saved, /) -> object:
        """Keeps it in place of what was saved before: all of it, or on an error none."""


class JsonFileStore:
    """A file of JSON (PER-4..6).

        {"version": 1, "limits": {"openai": 4}, "cooldowns": {"openai": 0.5}, "paused_until": {"openai": 1767225600}}

    It is replaced as a whole, so that a reader or a crash sees the old or the new one. A file that can't be understood
    is warned of and kept aside as `<name>.corrupt-1`, `-2`, ...; what of it can be understood counts.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Nothing is read or written yet. A symbolic link is followed now; the directory must exist when saving."""
        # Path.resolve raises a RuntimeError for links in a loop (before 3.13); reading it is then load's error.
        self._path = Path(os.path.realpath(path))

    def load(self) -> Saved:
        """What the file says; empty without one. Raises OSError if it can't be read, or not be put aside."""
        try:
            content = self._path.read_bytes()
        except FileNotFoundError:
            return Saved()
        saved, problems = _decode(content)
        if problems:
            aside = self._put_aside()
            _log.warning("%s is corrupt, kept aside as %s: %s", self._path, aside.name, "; ".join(problems))
        return saved

    def save(self, saved: Saved, /) -> None:
        """Replaces the file; when it returns, the new one is on the disk. Raises OSError, and the old one stays."""
        tables = {
            "limits": dict(saved.limits),
            "cooldowns": dict(saved.cooldowns),
            "paused_until": dict(saved.paused_until),
        }
        text = json.dumps({"version": _VERSION, **tables}, indent=2, allow_nan=False) + "\n"
        fresh = self._path.with_name(f".{self._path.name}.{os.getpid()}-{threading.get_ident()}")
        try:
            with fresh.open("w", encoding="ascii") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            if self._path.exists():
                fresh.chmod(self._path.stat().st_mode & 0o7777)
            fresh.replace(self._path)
        except BaseException:
            fresh.unlink(missing_ok=True)
            raise
        _sync_directory(self._path.parent)

    def _put_aside(self) -> Path:
        number = 1
        while True:
            aside = self._path.with_name(f"{self._path.name}.corrupt-{number}")
            try:
                aside.open("x").close()  # takes the name, so that nothing kept aside before is overwritten
            except FileExistsError:
                number += 1
                continue
            self._path.replace(aside)
            return aside


def _sync_directory(directory: Path) -> None:
    """Puts a replacement on the disk; where a directory can't be opened (Windows), the system does it in its time."""
    if os.name == "posix":
        descriptor = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _decode(content: bytes) -> tuple[Saved, list[str]]:
    """What a file's bytes say, and what is wrong with them."""
    try:
        document: object = json.loads(content)
    except (ValueError, RecursionError) as error:  # UnicodeDecodeError is a ValueError
        return Saved(), [f"no JSON ({error})"]
    if not isinstance(document, dict):
        return Saved(), ["no object"]
    members = cast("dict[str, object]", document)
    version = members.get("version")
    if isinstance(version, bool) or version != _VERSION:
        return Saved(), [f"version is {version!r}, not {_VERSION}"]
    problems: list[str] = []
    return _pick(members, problems), problems


def _pick(tables: Mapping[str, object], problems: list[str]) -> Saved:
    """The entries that are legal; what isn't is told in `problems`."""

    def read(table: str, check: Callable[[object], T]) -> dict[str, T]:
        entries = tables.get(table, {})
        if not isinstance(entries, Mapping):
            problems.append(f"{table} is no object")
            return {}
        legal: dict[str, T] = {}
        for provider, value in cast("Mapping[object, object]", entries).items():
            try:
                if not isinstance(provider, str):
                    raise TypeError(f"{provider!r} is no provider's name")  # noqa: TRY301 - told like its siblings
                legal[provider] = check(value)
            except (TypeError, ValueError, OverflowError) as error:
                problems.append(f"{table}[{provider!r}]: {error}")
        return legal

    def check_cooldown(value: object) -> float:
        check_duration("cooldown", value)
        return float(cast(float, value))

    return Saved(
        limits=read("limits", lambda value: None if value is None else check_count("limit", value)),
        cooldowns=read("cooldowns", check_cooldown),
        paused_until=read("paused_until", lambda value: float(check_number("paused_until", value))),
    )


class Keeper:
    """The observer that saves what an operator sets, at once and only when it changed (PER-1, PER-3, PER-7).

    A save blocks the caller whose call is told; a pause is kept to the next whole second, so that a burst of 429s is
    one save. An error of the store is logged and raised to nobody; the next change saves all of it again.
    """

    def __init__(self, store: Store) -> None:
        """Nothing is loaded or saved before `restore`."""
        self._store = store
        self._manager: Surface | None = None
        self._limits: dict[str, int | None] = {}
        self._cooldowns: dict[str, float] = {}
        self._paused_until: dict[str, float] = {}
        self._saved: Saved | None = Saved()  # what the store is known to hold; None: unknown
        self._restoring = False
        self._early: set[str] = set()  # providers whose cooldown was set or taken away before `restore`
        self._warned = False
        self._failing = False

    def restore(self, manager: Surface) -> None:
        """Gives the manager what was saved, and saves from now on; once, after its making and before its use (PER-2).

        What was set before this call wins over what was saved. Pauses come first, so that nothing is granted in
        between. Raises what the store's load raises (without what was saved the program may rather not start),
        ValueError the second time, ManagerClosedError.
        """
        if self._manager is not None:
            raise ValueError("the keeper has restored a manager already")
        loaded = self._store.load()
        problems: list[str] = []
        legal = _pick(
            {"limits": loaded.limits, "cooldowns": loaded.cooldowns, "paused_until": loaded.paused_until}, problems
        )
        if problems:
            _log.warning("not restored: %s", "; ".join(problems))
        self._manager = manager
        made_with = cast("dict[str, int]", manager.describe_settings()["limits"])
        limits = {p: n for p, n in legal.limits.items() if p not in self._limits and (n is not None or p in made_with)}
        cooldowns = {p: s for p, s in legal.cooldowns.items() if p not in self._early}
        self._limits |= limits
        self._cooldowns |= cooldowns
        self._restoring = True
        try:
            self._restore_pauses(manager, legal.paused_until)
            for provider, cooldown in cooldowns.items():
                manager.set_cooldown(provider, cooldown)
            for provider, limit in limits.items():
                if limit is None:
                    manager.remove_limit(provider)
                else:
                    manager.set_limit(provider, limit)
        finally:
            self._restoring = False
        if loaded != Saved():  # saved again in any case: the file may have been put aside, or hold what is over
            self._saved = None
        self._save()

    def __call__(
        self,
        event: str,
        op: int,  # noqa: ARG002 - an observer's signature
        t_ns: int,  # noqa: ARG002
        provider: str | None,
        request: int | None,
        conversation_id: str | None,  # noqa: ARG002
        prompt_started_at: float | None,  # noqa: ARG002
        in_flight: int,  # noqa: ARG002
        queued: int,  # noqa: ARG002
        value: object,
    ) -> None:
        """Takes one event in; only configuration and pauses matter. Raises no Exception."""
        if request is not None or provider is None:  # at a close a running pause is kept: it is for the next start
            return
        match event:
            case "limit_set":
                self._limits[provider] = cast(int, value)
            case "limit_removed":
                self._note_removal(provider)
            case "cooldown_set":
                self._note_cooldown(provider, cast("int | None", value))
            case "paused":
                self._note_pause(provider)
            case "resumed":
                self._paused_until.pop(provider, None)
            case _:
                return
        if self._manager is None:
            if not self._warned:
                _log.warning("%r was configured before Keeper.restore(manager); nothing is saved until then", provider)
                self._warned = True
        elif not self._restoring:
            self._save()

    def _note_removal(self, provider: str) -> None:
        """A removed limit needs an entry only where the program's own would come back with the next start."""
        if self._manager is None or provider in cast("dict[str, int]", self._manager.describe_settings()["limits"]):
            self._limits[provider] = None
        else:
            self._limits.pop(provider, None)

    def _note_cooldown(self, provider: str, cooldown: int | None) -> None:
        if self._manager is None:
            self._early.add(provider)
        if cooldown is None:
            self._cooldowns.pop(provider, None)
        else:
            self._cooldowns[provider] = cooldown / 1e9

    def _note_pause(self, provider: str) -> None:
        """Keeps the end of a running pause, rounded up to a second, unless that is known already (PER-3)."""
        status = None if self._manager is None else self._manager.get_status(provider)
        if status is None or status.paused_until is None:
            return
        until = status.paused_until
        known = self._paused_until.get(provider)
        if known is None or not known - 1.0 - _SLACK <= until <= known + _SLACK:
            self._paused_until[provider] = float(math.ceil(until))

    def _restore_pauses(self, manager: Surface, paused_until: Mapping[str, float]) -> None:
        """The remainder by the wall clock; the manager itself clamps it to max_pause (PAU-2)."""
        wall_now = manager._settings.wall_clock()
        for provider, until in paused_until.items():
            if until > wall_now:
                self._paused_until[provider] = until
                manager.report_rate_limit(provider, until - wall_now)
        for provider in manager.get_status_all():  # what was reported before, and what the manager made of the rest
            self._note_pause(provider)

    def _save(self) -> None:
        saved = Saved(dict(self._limits), dict(self._cooldowns), dict(self._paused_until))
        if saved == self._saved:
            return
        try:
            self._store.save(saved)
        except Exception:  # noqa: BLE001 - whatever a store raises is logged, and the manager goes on (CAL-4)
            _log.exception("what was set could not be saved; the next change tries again")
            self._saved = None
            self._failing = True
            return
        self._saved = saved
        if self._failing:
            _log.info("saving works again")
            self._failing = False
