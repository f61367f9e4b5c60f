"""Looking at decoded JSON: what `json.loads` and foreign code hand over is `Any` until somebody looks."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, TypeGuard

from provider_concurrency_spec.schemas import SchemaName, find_faults


def is_object(value: Any) -> TypeGuard[Mapping[str, Any]]:
    """A JSON object."""
    return isinstance(value, Mapping)


def is_array(value: Any) -> TypeGuard[list[Any] | tuple[Any, ...]]:
    """A JSON array (in process a tuple will do)."""
    return isinstance(value, list | tuple)


def is_texts(value: Any) -> TypeGuard[list[str] | tuple[str, ...]]:
    """A JSON array of strings."""
    return is_array(value) and all(isinstance(item, str) for item in value)


def apply_schema(name: SchemaName, value: Any) -> list[str]:
    """What the schema says against a value, seen as the wire would show it (in process arrays may be tuples)."""
    try:
        return find_faults(name, json.loads(json.dumps(value)))
    except (TypeError, ValueError, RecursionError) as error:
        return [f"not JSON: {error}"]
