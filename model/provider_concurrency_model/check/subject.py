"""The one way to a subject: request messages of protocol 1 go in, their replies come out, in the same order.

The judge never looks at how a subject works: it takes its words. `Subject.converse` is the whole interface. In process
a reply is made when it is asked for; a subject behind a pipe may write many messages ahead and read the replies as
they come, because the judge names the messages of a case before it looks at the first reply. `Session` adds what
every transport shares: ids, the greeting, and telling replies, skips and errors apart.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeAlias

from provider_concurrency_model.check.untyped import apply_schema, is_object, is_texts
from provider_concurrency_spec.vocabulary import FEATURES, PROTOCOL, SPEC_VERSION, Feature, Json

Message: TypeAlias = dict[str, Json]

_encode: Final = json.JSONEncoder(allow_nan=False).encode
"""Finds what JSON hasn't: values that contain themselves, lie too deep, are too long or no JSON at all."""

DEFAULT_SUBJECT: Final = "provider_concurrency.port:Port"


class SubjectError(Exception):
    """The subject can't be judged at all: not found, not a port, another protocol. A matter of use, not of rules."""


class SubjectBrokeError(Exception):
    """The subject raised, vanished or left the protocol while it was judged: that is a finding about the subject."""

    def __init__(self, told: str, *, fault: str = "subject", remarks: tuple[str, ...] = ()) -> None:
        """`told` is the same in every run; `fault` names the kind, `remarks` say what differs and may help."""
        super().__init__(told)
        self.fault = fault
        self.remarks = remarks


class Subject(Protocol):
    """Whatever answers messages of protocol 1."""

    @property
    def label(self) -> str:
        """How the user named it; stands in reports and in the command that replays a counterexample."""
        ...

    @property
    def breaks(self) -> int:
        """How often it broke, in a case or in what was left of one, so that it had to be made anew."""
        ...

    def converse(self, messages: Iterable[Message]) -> Generator[Json, None, None]:
        """Yields one reply for each message, in order; raises SubjectBrokeError where none can come.

        The caller may stop early (`close` on the iterator); the subject must be usable afterwards.
        """
        ...

    def close(self) -> None:
        """Ends the subject."""
        ...


def load_dotted(dotted: str, argument: str) -> Any:
    """The object at `module:attribute`; raises SubjectError naming the argument when there is none."""
    module_name, colon, attribute = dotted.partition(":")
    if not (module_name and colon and attribute):
        raise SubjectError(f"{argument}: expected module:attribute, not {dotted!r}")
    try:
        found: Any = importlib.import_module(module_name)
    except ImportError as error:
        raise SubjectError(f"{argument}: can't import {module_name!r}: {error}") from error
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # foreign code runs when it is imported, and may raise anything
        raise SubjectError(f"{argument}: importing {module_name!r} raised {error!r}") from error
    for name in attribute.split("."):
        try:
            found = getattr(found, name)
        except AttributeError:
            raise SubjectError(f"{argument}: {module_name!r} has no {attribute!r}") from None
    return found


class InProcess:
    """A port in this process: `dotted` names a class (or factory) whose instances have `handle(message) -> reply`."""

    def __init__(self, dotted: str = DEFAULT_SUBJECT) -> None:
        """Finds the port and makes one."""
        self._label = dotted
        self._make: Callable[[], Any] = load_dotted(dotted, "--subject")
        if not callable(self._make):
            raise SubjectError(f"--subject: {dotted!r} is not a class or factory of ports")
        self._handle: Callable[[Message], Json] = self._start()
        self.breaks = 0
        """How often it raised, or said what isn't JSON."""

    def _start(self) -> Callable[[Message], Json]:
        try:
            handle = self._make().handle
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            raise SubjectError(f"--subject: {self._label!r} gives no port with handle(message): {error!r}") from error
        if not callable(handle):
            raise SubjectError(f"--subject: {self._label!r} gives no port with handle(message): it isn't callable")
        started: Callable[[Message], Json] = handle
        return started

    @property
    def label(self) -> str:
        """The dotted path."""
        return self._label

    def converse(self, messages: Iterable[Message]) -> Generator[Json, None, None]:
        """Hands each message over when its reply is wanted; a port that raises is replaced by a new one.

        Whatever it raises is its fault, SystemExit too: the kit would end without a verdict, with the subject's exit
        code. Only a KeyboardInterrupt is the user's. A reply that no line could carry is refused, as over stdio.
        """
        handle = self._handle
        for message in messages:
            try:
                reply = handle(message)
            except KeyboardInterrupt:
                raise
            except BaseException as error:
                self.breaks += 1
                self._handle = self._start()
                raise SubjectBrokeError(f"raised {type(error).__name__}: {error}") from error
            try:
                _encode(reply)
            except (TypeError, ValueError, RecursionError) as error:
                self.breaks += 1
                raise SubjectBrokeError("a reply that isn't JSON", fault="not JSON", remarks=(str(error),)) from error
            yield reply

    def close(self) -> None:
        """Says bye; an answer isn't needed any more."""
        for _ in self.converse([{"id": -1, "cmd": "bye"}]):
            return


@dataclass(frozen=True, slots=True)
class Hello:
    """How the subject introduced itself."""

    name: str
    version: str
    language: str
    runtime: str
    features: frozenset[Feature]
    unknown_features: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Skipped:
    """The subject says that it lacks a feature."""

    feature: str


@dataclass(frozen=True, slots=True)
class ErrorReply:
    """The subject answered with an error; `kind` is "invalid" for a refused configuration, None for its own trouble."""

    kind: str | None
    message: str


@dataclass(frozen=True, slots=True)
class Nonsense:
    """The reply isn't one of protocol 1."""

    why: str


Special: TypeAlias = Skipped | ErrorReply | Nonsense
"""Every answer that isn't the plain reply to a command."""


def classify(raw: Json, message_id: int) -> Special | None:
    """What kind of answer `raw` is; None for a plain reply (whose members the comparison reads)."""
    if not is_object(raw):
        return Nonsense(f"the reply is no object but of the type {type(raw).__name__}")
    found = raw.get("id")
    if type(found) is not int or found != message_id:
        return Nonsense(f"the reply to message {message_id} has the id {_shorten(found)}")
    if "skip" in raw:
        skip = raw["skip"]
        feature = skip.get("feature") if is_object(skip) else None
        return Skipped(feature) if isinstance(feature, str) else Nonsense(f"the skip names no feature: {_shorten(raw)}")
    if "error" in raw:
        error = raw["error"]
        kind, message = (error.get("kind"), error.get("message")) if is_object(error) else (None, None)
        if not isinstance(message, str):
            return Nonsense(f"the error has no message: {_shorten(raw)}")
        return ErrorReply(kind if isinstance(kind, str) else None, message)
    return None


def _shorten(value: Json, length: int = 200) -> str:
    text = json.dumps(value, default=repr)
    return text if len(text) <= length else text[:length] + "..."


class Session:
    """A greeted subject: numbers the messages and knows the declared features."""

    def __init__(self, subject: Subject, chosen_by: tuple[str, ...] | None = None) -> None:
        """Says hello; raises SubjectError when the subject doesn't answer as protocol 1 wants.

        `chosen_by` are the words of the command line that choose the subject again.
        """
        self.subject = subject
        self.chosen_by = ("--subject", subject.label) if chosen_by is None else chosen_by
        self._next_id = 0
        self.hello = self._greet()

    @property
    def label(self) -> str:
        """The subject's label."""
        return self.subject.label

    def take_ids(self, count: int) -> int:
        """Reserves `count` message ids in a row and returns the first."""
        first = self._next_id
        self._next_id += count
        return first

    def close(self) -> str | None:
        """Ends the subject. One that breaks while saying goodbye has been judged already: how it broke is returned."""
        try:
            self.subject.close()
        except (SubjectBrokeError, SubjectError) as broke:
            return str(broke)
        return None

    def _greet(self) -> Hello:
        try:
            return self._say_hello()
        except SubjectError:
            self.close()
            raise

    def _say_hello(self) -> Hello:
        message_id = self.take_ids(1)
        message: Message = {"id": message_id, "cmd": "hello", "protocol": PROTOCOL, "spec": SPEC_VERSION}
        try:
            raw: Json = next(iter(self.subject.converse([message])), None)
        except SubjectBrokeError as broke:
            told = "".join(f"\n  {remark}" for remark in broke.remarks)
            raise SubjectError(f"subject {self.label!r}: hello: {broke}{told}") from broke
        match classify(raw, message_id):
            case Skipped(feature):
                raise SubjectError(f"subject {self.label!r}: hello was skipped ({feature})")
            case ErrorReply(_, text):
                raise SubjectError(f"subject {self.label!r}: hello was refused: {text}")
            case Nonsense(why):
                raise SubjectError(f"subject {self.label!r}: hello: {why}")
            case None:
                return self._read_hello(raw)

    def _read_hello(self, raw: Mapping[str, Json]) -> Hello:
        where = f"subject {self.label!r}: hello"
        protocol = raw.get("protocol")
        if type(protocol) is not int or protocol != PROTOCOL:
            raise SubjectError(f"{where}: speaks protocol {_shorten(protocol)}, this kit {PROTOCOL}")
        port, features = raw.get("port"), raw.get("features")
        if not is_object(port) or not is_texts(list(port.values())):
            raise SubjectError(f"{where}: port must be an object of texts, not {_shorten(port)}")
        if not is_texts(features):
            raise SubjectError(f"{where}: features must be an array of texts, not {_shorten(features)}")
        faults = apply_schema("hello", raw)
        if faults:
            raise SubjectError(f"{where}: {'; '.join(faults)}")
        declared = set(features)
        return Hello(
            name=port["name"],
            version=port["version"],
            language=port["language"],
            runtime=port["runtime"],
            features=frozenset(feature for feature in FEATURES if feature in declared),
            unknown_features=tuple(sorted(declared - set(FEATURES))),
        )
