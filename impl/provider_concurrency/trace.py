"""The recorder: an observer that writes every transition as a line of JSON (protocol.md, "Trace").

    with open("run.ndjson", "w") as stream:
        recorder = Recorder(stream)
        manager = ConcurrencyManager(observer=recorder, ...)
        recorder.begin(manager)

`provider-concurrency trace run.ndjson` judges the file.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

if TYPE_CHECKING:
    from provider_concurrency.surface import Surface

__all__ = ["Recorder"]

_SPEC_VERSION: Final = "1.0"


class _Writable(Protocol):
    def write(self, text: str, /) -> object: ...


class Recorder:
    """Writes a trace to a text stream, which stays the caller's to flush and close."""

    def __init__(self, stream: _Writable) -> None:
        """Nothing is written before `begin`."""
        self._stream = stream
        self._seq = 0
        self._begun = False

    def begin(self, manager: Surface) -> None:
        """Writes the header, with the manager's configuration; to be called before the manager is used."""
        self.write_header(manager.describe_settings())

    def write_header(self, config: Mapping[str, object]) -> None:
        """Writes the header with a configuration as `describe_settings` gives it; ValueError if it stands already."""
        if self._begun:
            raise ValueError("the trace has its header already")
        self._begun = True
        wall = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        self._write({"trace": 1, "spec": _SPEC_VERSION, "time_unit": "ns", "wall": wall, "config": dict(config)})

    def __call__(
        self,
        event: str,
        op: int,
        t_ns: int,
        provider: str | None,
        request: int | None,
        conversation_id: str | None,
        prompt_started_at: float | None,
        in_flight: int,
        queued: int,
        value: object,
    ) -> None:
        """Writes one line; RuntimeError before `begin`."""
        if not self._begun:
            raise RuntimeError("Recorder.begin(manager) must be called before the manager is used")
        line: dict[str, object] = {"seq": self._seq, "op": op, "t": t_ns, "event": event}
        self._seq += 1
        if provider is not None:
            line["provider"] = provider
        if request is not None:
            line.update(request=request, conversation=conversation_id, prompt_started_at=prompt_started_at)
        match event:
            case "reclaimed":
                line["last_touch"] = value
            case "paused":
                line["requested"], line["applied"] = cast("tuple[object, object]", value)
            case "limit_set":
                line["limit"] = value
            case "cooldown_set":
                line["cooldown"] = value
            case _:
                pass
        line["post"] = {"in_flight": in_flight, "queued": queued}
        self._write(line)

    def _write(self, line: dict[str, Any]) -> None:
        self._stream.write(json.dumps(line, separators=(",", ":")) + "\n")
