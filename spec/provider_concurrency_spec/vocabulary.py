"""The words of port protocol 1: configuration, operations, commands, events, status rows, replies.

Everything is frozen and closed: a union lists all its members, so that `match` can end in `assert_never`. Each word
has one JSON form (protocol.md); `to_json` and the `*_from_json` functions are the only codec. Times and durations are
whole milliseconds of virtual time. Operations carry `Raw` numbers, because a bad number is sometimes the point
(1.5, True, "NaN"): judging it is the subject's work, not the codec's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Final, Literal, TypeAlias, TypeGuard, cast, get_args

SPEC_VERSION: Final = "1.0"
PROTOCOL: Final = 1

Raw: TypeAlias = int | float | str | bool | None
"""A number as it stands on the wire; "NaN", "Infinity" and "-Infinity" stand for the floats JSON lacks."""

Json: TypeAlias = Any
"""A decoded JSON value."""

Feature: TypeAlias = Literal[
    "cancel", "timeout", "touch", "resume", "max_queued", "default_limit", "set_cooldown", "try_acquire", "stall",
    "timers", "inspect", "hooks", "wall_clock", "nesting",
]  # fmt: skip
FEATURES: Final[tuple[Feature, ...]] = get_args(Feature)

SlotEventKind: TypeAlias = Literal[
    "granted", "queued", "timed_out", "cancelled", "rejected", "released", "reclaimed", "recycled"
]
SLOT_EVENT_KINDS: Final[tuple[SlotEventKind, ...]] = get_args(SlotEventKind)

RefusalKind: TypeAlias = Literal["invalid", "closed", "queue_full", "nested"]
HookPoint: TypeAlias = Literal["queued", "paused", "reclaimed"]
SlotStateName: TypeAlias = Literal[
    "queued", "held", "cooling", "reclaimed", "free", "cancelled", "timed_out", "rejected"
]
SLOT_STATES: Final[tuple[SlotStateName, ...]] = get_args(SlotStateName)


class MalformedError(ValueError):
    """A JSON value isn't a word of the vocabulary; the message names the field."""


@dataclass(frozen=True, slots=True)
class Config:
    """The configuration sent with `new`; every key is always sent, but `nested` only to ask for NST-1.

    `nested` ("queue" or "raise") opens a world with nesting (feature `nesting`): only there may an acquire have a
    `path`, and only there has a status row `self_blocked`.
    """

    release_cooldown_ms: Raw = 200
    slot_timeout_ms: Raw = 300_000
    watchdog_interval_ms: Raw = 30_000
    default_pause_ms: Raw = 30_000
    min_pause_ms: Raw = 1_000
    max_pause_ms: Raw = 21_600_000
    max_queued: Raw = None
    default_limit: Raw = None
    nested: Raw = None


# -- operations ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Acquire:
    """One request for a slot; started at once as far as it runs without waiting.

    `path` (feature `nesting`): the ids of the conversation blocks that are open around it, the outermost first.
    """

    provider: str
    request: str
    conversation: str | None
    prompt_started_at: Raw
    timeout_ms: Raw = None
    path: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TryAcquire:
    """Takes a slot if acquire would grant at once; otherwise nothing happens (ADM-8)."""

    provider: str
    request: str
    conversation: str | None
    prompt_started_at: Raw


@dataclass(frozen=True, slots=True)
class Release:
    """Releases a held slot (REL-1, REL-2)."""

    request: str


@dataclass(frozen=True, slots=True)
class Cancel:
    """Cancels the caller of a request (CAN-1, CAN-2)."""

    request: str


@dataclass(frozen=True, slots=True)
class Touch:
    """Shows the watchdog that a held slot is alive (WAT-2)."""

    request: str


@dataclass(frozen=True, slots=True)
class Inspect:
    """Asks for a slot's state (feature `inspect`)."""

    request: str


@dataclass(frozen=True, slots=True)
class SetLimit:
    """Gives a provider its own limit (LIM-1)."""

    provider: str
    limit: Raw


@dataclass(frozen=True, slots=True)
class RemoveLimit:
    """Takes a provider's own limit away (LIM-3)."""

    provider: str


@dataclass(frozen=True, slots=True)
class Resume:
    """Ends a pause (PAU-5)."""

    provider: str


@dataclass(frozen=True, slots=True)
class SetCooldown:
    """Gives a provider its own cooldown, or with None takes it away (ACC-4)."""

    provider: str
    cooldown_ms: Raw


@dataclass(frozen=True, slots=True)
class RateLimited:
    """Reports a 429 (PAU-1, PAU-2)."""

    provider: str
    retry_after_ms: Raw


@dataclass(frozen=True, slots=True)
class Close:
    """Closes the manager (CLO-1)."""


@dataclass(frozen=True, slots=True)
class Hook:
    """Runs operations in, or throws from, the subject's real callback (feature `hooks`)."""

    on: HookPoint
    provider: str
    do: tuple[Operation, ...] = ()
    throw: bool = False
    times: int = 1


@dataclass(frozen=True, slots=True)
class WallClock:
    """Makes the wall clock jump (feature `wall_clock`)."""

    jump_ms: int


Operation: TypeAlias = (
    Acquire | TryAcquire | Release | Cancel | Touch | Inspect | SetLimit | RemoveLimit | Resume | SetCooldown
    | RateLimited | Close | Hook | WallClock
)  # fmt: skip

_OPERATIONS: Final[dict[str, type[Operation]]] = {
    "acquire": Acquire,
    "try_acquire": TryAcquire,
    "release": Release,
    "cancel": Cancel,
    "touch": Touch,
    "inspect": Inspect,
    "set_limit": SetLimit,
    "remove_limit": RemoveLimit,
    "resume": Resume,
    "set_cooldown": SetCooldown,
    "rate_limited": RateLimited,
    "close": Close,
    "hook": Hook,
    "wall_clock": WallClock,
}
OPERATION_NAMES: Final[dict[type[Operation], str]] = {kind: name for name, kind in _OPERATIONS.items()}


# -- commands --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Do:
    """A burst: the operations run one after another, the subject's event loop not at all in between."""

    ops: tuple[Operation, ...]


@dataclass(frozen=True, slots=True)
class Advance:
    """Virtual time passes; every deadline on the way fires punctually and the subject settles after each."""

    ms: int


@dataclass(frozen=True, slots=True)
class Stall:
    """A blocked loop: the clock leaps with nothing fired, then what is overdue is applied at the new time."""

    ms: int


Command: TypeAlias = Do | Advance | Stall


# -- events ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SlotEvent:
    """A transition of one request's slot (the table of SPEC.md)."""

    event: SlotEventKind
    at_ms: int
    provider: str
    request: str


@dataclass(frozen=True, slots=True)
class Paused:
    """A 429 was reported on an open manager (PAU-2)."""

    at_ms: int
    provider: str
    requested_ms: Raw
    applied_ms: int


@dataclass(frozen=True, slots=True)
class Resumed:
    """A pause ended, by its deadline or by `resume` (PAU-5)."""

    at_ms: int
    provider: str


@dataclass(frozen=True, slots=True)
class Refused:
    """An operation was refused and changed nothing; `index` is its place in the burst."""

    at_ms: int
    op: str
    index: int
    kind: RefusalKind


@dataclass(frozen=True, slots=True)
class SlotShown:
    """The answer to `inspect`."""

    at_ms: int
    request: str
    state: SlotStateName
    reclaimed: bool


Event: TypeAlias = SlotEvent | Paused | Resumed | Refused | SlotShown


@dataclass(frozen=True, slots=True)
class StatusRow:
    """One provider's state; `limit` is the provider's own, `paused_for_ms` None when open.

    `self_blocked` (NST-1) is None where the configuration doesn't ask for it, and then isn't on the wire.
    """

    provider: str
    limit: int | None
    in_flight: int
    held: int
    cooling: int
    reclaimed: int
    queued: int
    paused: bool
    paused_for_ms: int | None
    self_blocked: bool | None = None


@dataclass(frozen=True, slots=True)
class Reply:
    """What a subject says after a command: its own events, status rows, unsettled requests and alive timers."""

    events: tuple[Event, ...] = ()
    status: tuple[StatusRow, ...] = ()
    unsettled: tuple[str, ...] = ()
    timers: int | None = None


# -- JSON ------------------------------------------------------------------------------------------------------------


def _object(value: Json, what: str) -> Mapping[str, Json]:
    if not isinstance(value, Mapping):
        raise MalformedError(f"{what} must be an object, not {value!r}")
    return cast("Mapping[str, Json]", value)


def _array(value: Json, what: str) -> Sequence[Json]:
    if not isinstance(value, list | tuple):
        raise MalformedError(f"{what} must be an array, not {value!r}")
    return cast("Sequence[Json]", value)


def _take(kind: type[Any], value: Mapping[str, Json], what: str) -> dict[str, Json]:
    """The fields of `kind` from `value`: unknown ones are ignored, missing ones without a default refused."""
    taken: dict[str, Json] = {}
    for field in fields(kind):
        if field.name in value:
            taken[field.name] = value[field.name]
        elif field.default is field.default_factory:  # both MISSING: the field is required
            raise MalformedError(f"{what} lacks {field.name!r}")
    return taken


_NAMES: Final[dict[type[Any], tuple[str, ...]]] = {}


def _names(kind: type[Any]) -> tuple[str, ...]:
    """The fields of a word; asked for each of hundreds of thousands of messages, so they are kept."""
    names = _NAMES.get(kind)
    if names is None:
        names = _NAMES[kind] = tuple(field.name for field in fields(kind))
    return names


def _is_int(value: Json) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_raw(value: Json) -> TypeGuard[Raw]:
    return value is None or isinstance(value, int | float | str)


def _need(condition: bool, what: str, name: str, value: Json) -> None:
    if not condition:
        raise MalformedError(f"{what}: {name} can't be {value!r}")


def config_to_json(config: Config) -> dict[str, Json]:
    """The object sent as `config` with `new`."""
    out = {name: getattr(config, name) for name in _names(Config)}
    if config.nested is None:
        del out["nested"]
    return out


def config_from_json(value: Json) -> Config:
    """Reads a `config` object; missing keys have their defaults, unknown ones are refused (a misspelt key)."""
    taken = _object(value, "config")
    known = set(_names(Config))
    unknown = sorted(set(taken) - known)
    if unknown:
        raise MalformedError(f"config has unknown keys: {', '.join(unknown)}")
    for name, raw in taken.items():
        _need(_is_raw(raw), "config", name, raw)
    return Config(**taken)


def operation_to_json(operation: Operation) -> dict[str, Json]:
    """The object of one operation in `ops`."""
    out: dict[str, Json] = {"op": OPERATION_NAMES[type(operation)]}
    for name in _names(type(operation)):
        item = getattr(operation, name)
        if name == "do":
            out[name] = [operation_to_json(inner) for inner in item]
        elif name != "path":
            out[name] = item
        elif item:
            out[name] = list(item)
    return out


def _is_text(value: Json) -> bool:
    return isinstance(value, str)


_SHAPES: Final[Mapping[str, Callable[[Json], bool]]] = {
    "provider": _is_text,
    "request": _is_text,
    "conversation": lambda value: value is None or isinstance(value, str),
    "path": lambda value: all(map(_is_text, value)),
    "on": lambda value: value in get_args(HookPoint),
    "do": lambda _: True,  # each of them was read
    "throw": lambda value: isinstance(value, bool),
    "times": lambda value: _is_int(value) and value >= 1,
    "jump_ms": _is_int,
}
"""What the fields of an operation may be, as the schema says; all others are Raw, whose judge is the subject."""


def operation_from_json(value: Json) -> Operation:
    """Reads one operation; raises MalformedError naming what is wrong."""
    taken = _object(value, "operation")
    name = taken.get("op")
    kind = _OPERATIONS.get(name) if isinstance(name, str) else None
    if kind is None:
        raise MalformedError(f"unknown operation {name!r}")
    items = _take(kind, taken, f"operation {name!r}")
    what = f"operation {name!r}"
    if kind is Hook:
        items["do"] = tuple(operation_from_json(inner) for inner in _array(items.get("do", ()), "hook: do"))
    if "path" in items:
        items["path"] = tuple(_array(items["path"], "acquire: path"))
    for key, item in items.items():
        _need(_SHAPES.get(key, _is_raw)(item), what, key, item)
    return kind(**items)


def command_to_json(command: Command) -> dict[str, Json]:
    """The command as it stands in a request message, without its id."""
    match command:
        case Do(ops):
            return {"cmd": "do", "ops": [operation_to_json(op) for op in ops]}
        case Advance(ms):
            return {"cmd": "advance", "ms": ms}
        case Stall(ms):
            return {"cmd": "stall", "ms": ms}


def command_from_json(value: Json) -> Command:
    """Reads a `do`, `advance` or `stall` message."""
    taken = _object(value, "command")
    match taken.get("cmd"):
        case "do":
            return Do(tuple(operation_from_json(op) for op in _array(taken.get("ops"), "ops")))
        case "advance" | "stall" as name:
            ms = taken.get("ms")
            if not _is_int(ms) or ms < 0:
                raise MalformedError(f"{name}: ms must be a whole number >= 0, not {ms!r}")
            return Advance(ms) if name == "advance" else Stall(ms)
        case other:
            raise MalformedError(f"unknown command {other!r}")


def event_to_json(event: Event) -> dict[str, Json]:
    """The object of one event in a reply."""
    names: dict[type[Event], str] = {Paused: "paused", Resumed: "resumed", Refused: "error", SlotShown: "slot"}
    out: dict[str, Json] = {"event": names.get(type(event))}
    for name in _names(type(event)):
        out[name] = getattr(event, name)
    return out


def event_from_json(value: Json) -> Event:
    """Reads one event of a reply; raises MalformedError naming what is wrong."""
    taken = _object(value, "event")
    name = taken.get("event")
    what = f"event {name!r}"
    _need(_is_int(taken.get("at_ms")), what, "at_ms", taken.get("at_ms"))
    kinds: dict[Json, type[Event]] = {"paused": Paused, "resumed": Resumed, "error": Refused, "slot": SlotShown}
    kinds.update(dict.fromkeys(SLOT_EVENT_KINDS, SlotEvent))
    if not isinstance(name, str) or name not in kinds:
        raise MalformedError(f"unknown event {name!r}")
    items = _take(kinds[name], taken, what)
    for key in ("provider", "request", "op"):
        if key in items:
            _need(isinstance(items[key], str), what, key, items[key])
    if "requested_ms" in items:
        _need(_is_raw(items["requested_ms"]), what, "requested_ms", items["requested_ms"])
    for key in ("applied_ms", "index"):
        if key in items:
            _need(_is_int(items[key]), what, key, items[key])
    if name == "error":
        _need(items["kind"] in get_args(RefusalKind), what, "kind", items["kind"])
    if name == "slot":
        _need(items["state"] in SLOT_STATES, what, "state", items["state"])
        _need(isinstance(items["reclaimed"], bool), what, "reclaimed", items["reclaimed"])
    return kinds[name](**items)


def status_row_to_json(row: StatusRow) -> dict[str, Json]:
    """The object of one status row in a reply."""
    out = {name: getattr(row, name) for name in _names(StatusRow)}
    if row.self_blocked is None:
        del out["self_blocked"]
    return out


def status_row_from_json(value: Json) -> StatusRow:
    """Reads one status row; raises MalformedError naming what is wrong."""
    items = _take(StatusRow, _object(value, "status row"), "status row")
    _need(isinstance(items["provider"], str), "status row", "provider", items["provider"])
    _need(isinstance(items["paused"], bool), "status row", "paused", items["paused"])
    for key in ("in_flight", "held", "cooling", "reclaimed", "queued"):
        _need(_is_int(items[key]), "status row", key, items[key])
    for key in ("limit", "paused_for_ms"):
        _need(items[key] is None or _is_int(items[key]), "status row", key, items[key])
    if "self_blocked" in items:
        _need(isinstance(items["self_blocked"], bool), "status row", "self_blocked", items["self_blocked"])
    return StatusRow(**items)


def reply_to_json(reply: Reply) -> dict[str, Json]:
    """The reply as it stands in a message, without its id."""
    out: dict[str, Json] = {
        "events": [event_to_json(event) for event in reply.events],
        "status": [status_row_to_json(row) for row in reply.status],
        "unsettled": list(reply.unsettled),
    }
    if reply.timers is not None:
        out["timers"] = reply.timers
    return out


def reply_from_json(value: Json) -> Reply:
    """Reads a reply to `new`, `do`, `advance` or `stall`; raises MalformedError naming what is wrong."""
    taken = _object(value, "reply")
    for key in ("events", "status", "unsettled"):
        if key not in taken:
            raise MalformedError(f"reply lacks {key!r}")
    unsettled = _array(taken["unsettled"], "unsettled")
    _need(all(isinstance(name, str) for name in unsettled), "reply", "unsettled", unsettled)
    timers = taken.get("timers")
    _need(timers is None or _is_int(timers), "reply", "timers", timers)
    return Reply(
        events=tuple(event_from_json(event) for event in _array(taken["events"], "events")),
        status=tuple(status_row_from_json(row) for row in _array(taken["status"], "status")),
        unsettled=tuple(unsettled),
        timers=timers,
    )
