"""The JSON Schemas (draft 2020-12) of everything that goes over the wire or into a file.

They stand in `schemas/*.json`, one concept a file, for people, editors and whoever validates in another language; a
test holds them against good and bad messages and against the codec of `vocabulary`, which is what judges (a schema
library takes a hundred times as long). `find_faults` needs the package jsonschema (extra `check`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import cache
from importlib.resources import files
from typing import Any, Final, Literal, Protocol, TypeAlias, get_args

from provider_concurrency_spec.vocabulary import Json

SchemaName: TypeAlias = Literal[
    "words", "config", "operation", "event", "status_row", "request", "hello", "reply", "scenario", "trace_line",
    "counterexample", "expectation",
]  # fmt: skip
SCHEMA_NAMES: Final[tuple[SchemaName, ...]] = get_args(SchemaName)

_SHOWN: Final = 5


class _Validator(Protocol):
    def iter_errors(self, instance: Json) -> Iterable[Any]: ...


def load_schema(name: SchemaName) -> dict[str, Json]:
    """The schema as it stands in its file; references name other files of the folder."""
    text = (files("provider_concurrency_spec") / "schemas" / f"{name}.json").read_text(encoding="utf-8")
    schema: dict[str, Json] = json.loads(text)
    return schema


@cache
def _validator(name: SchemaName) -> _Validator:
    from jsonschema import Draft202012Validator  # type: ignore[import-untyped]  # ships no types

    # One document that holds them all: references among them are resolved inside it.
    whole = {"$defs": {each: load_schema(each) for each in SCHEMA_NAMES}, "$ref": load_schema(name)["$id"]}
    validator: _Validator = Draft202012Validator(whole)
    return validator


def find_faults(name: SchemaName, value: Json) -> list[str]:
    """What is wrong with `value`, most telling first, at most a few: `status[0].limit: -1 is less than ...`.

    Raises ModuleNotFoundError without jsonschema.
    """
    errors = sorted(_validator(name).iter_errors(value), key=lambda error: (-len(error.absolute_path), error.message))
    return [f"{_say_path(error.absolute_path)}: {_shorten(error.message)}" for error in errors[:_SHOWN]]


def _say_path(path: Iterable[str | int]) -> str:
    told = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return told.removeprefix(".") or "the whole"


def _shorten(text: str, length: int = 300) -> str:
    return text if len(text) <= length else text[:length] + "..."
