"""One line of `logging` for each event.

    manager = ConcurrencyManager(limits={"openai": 4}, observer=LogObserver())

    granted provider='openai' request=3 in_flight=2 queued=0 t=12.503

A conversation's name may be a secret or a person's; it stands in no line unless it is asked for.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final, cast

__all__ = ["LEVELS", "LogObserver"]

LEVELS: Final[Mapping[str, int]] = {
    "granted": logging.DEBUG,
    "queued": logging.DEBUG,
    "released": logging.DEBUG,
    "recycled": logging.DEBUG,
    "cancelled": logging.DEBUG,
    "timed_out": logging.INFO,
    "rejected": logging.INFO,
    "reclaimed": logging.INFO,  # the manager's own warning of it stands in the log already (WAT-5)
    "paused": logging.WARNING,
    "resumed": logging.INFO,
    "limit_set": logging.INFO,
    "limit_removed": logging.INFO,
    "cooldown_set": logging.INFO,
    "closed": logging.INFO,
}
"""What a line's level is, by event: traffic is DEBUG, what an operator did or must hear of is above."""


class LogObserver:
    """Writes each event as one line, and as a dict in the record's attribute `provider_concurrency` (OBS-1, OBS-3).

    `logger`: where to (default: "provider_concurrency.events"); `levels`: instead of LEVELS, for the events that it
    has; `conversations`: whether lines name the conversation. Texts are written as Python literals, so that no name
    can break a line or pretend to be another.
    """

    def __init__(
        self,
        logger: logging.Logger | None = None,
        *,
        levels: Mapping[str, int] | None = None,
        conversations: bool = False,
    ) -> None:
        """Raises ValueError if `levels` has a word that is no event."""
        if unknown := set(levels or ()) - set(LEVELS):
            raise ValueError(f"levels has no such event as {sorted(unknown)}")
        self._logger = logging.getLogger("provider_concurrency.events") if logger is None else logger
        self._levels = {**LEVELS, **(levels or {})}
        self._conversations = conversations

    def __call__(
        self,
        event: str,
        op: int,
        t_ns: int,
        provider: str | None,
        request: int | None,
        conversation_id: str | None,
        prompt_started_at: float | None,  # noqa: ARG002 - an observer's signature
        in_flight: int,
        queued: int,
        value: object,
    ) -> None:
        """Logs one event, if its level is enabled."""
        level = self._levels.get(event, logging.INFO)
        if not self._logger.isEnabledFor(level):
            return
        fields: dict[str, object] = {}
        if provider is not None:
            fields["provider"] = provider
        if request is not None:
            fields["request"] = request
            if self._conversations:
                fields["conversation"] = conversation_id
        fields |= _describe_value(event, t_ns, value)
        if provider is not None:
            fields |= {"in_flight": in_flight, "queued": queued}
        fields["t"] = t_ns / 1e9
        line = " ".join(f"{name}={field!r}" for name, field in fields.items())
        self._logger.log(
            level, "%s %s", event, line, extra={"provider_concurrency": {"event": event, "op": op, **fields}}
        )


def _describe_value(event: str, t_ns: int, value: object) -> dict[str, object]:
    """An event's own value, in seconds where it is a time."""
    match event:
        case "reclaimed":
            return {"idle": (t_ns - cast(int, value)) / 1e9}
        case "paused":
            requested, applied = cast("tuple[float | None, int]", value)
            return {"requested": requested, "seconds": applied / 1e9}
        case "limit_set":
            return {"limit": value}
        case "cooldown_set":
            return {"cooldown": None if value is None else cast(int, value) / 1e9}
        case _:
            return {}
