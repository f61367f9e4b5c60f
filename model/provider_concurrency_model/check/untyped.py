"""Type guards for decoded JSON: what `json.loads` and foreign code hand over is `Any` until somebody looks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeGuard


def is_object(value: Any) -> TypeGuard[Mapping[str, Any]]:
    """A JSON object."""
    return isinstance(value, Mapping)


def is_array(value: Any) -> TypeGuard[list[Any] | tuple[Any, ...]]:
    """A JSON array (in process a tuple will do)."""
    return isinstance(value, list | tuple)


def is_texts(value: Any) -> TypeGuard[list[str] | tuple[str, ...]]:
    """A JSON array of strings."""
    return is_array(value) and all(isinstance(item, str) for item in value)
