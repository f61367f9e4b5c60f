"""OpenTelemetry metrics and events (extra: `provider-concurrency[opentelemetry]`, the API alone).

    telemetry = OpenTelemetryObserver()
    manager = ConcurrencyManager(limits={"openai": 4}, observer=telemetry)
    telemetry.attach(manager)

The metrics are shaped after the semantic conventions of `db.client.connection.*`, the pool that is most like a
limiter; the provider is `gen_ai.provider.name`. All names begin with `provider_concurrency.`:

| metric | instrument, unit | meaning |
|---|---|---|
| `slot.count` | observable up-down counter, {slot} | in flight, by `provider_concurrency.slot.state` (held, cooling) |
| `slot.max` | observable gauge, {slot} | the limit in force; nothing where there is none |
| `slot.pending_requests` | observable up-down counter, {request} | requests that wait |
| `paused` | observable gauge, 1 | 1 while a 429's pause lasts |
| `slot.wait_time` | histogram, s | to the grant, or to what `provider_concurrency.outcome` says |
| `slot.use_time` | histogram, s | from the grant to the release or the reclaim |
| `slot.grants`, `slot.reclaims`, `rate_limits` | counters | grants; slots taken back by the watchdog; 429s |

Every event is also a log record with an event name (`provider_concurrency.granted`), in the trace of the request that
it tells of. A span event would land in the span of whoever made the room, which is somebody else's.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final, cast

from opentelemetry import context as context_api
from opentelemetry import metrics, trace
from opentelemetry._logs import LogRecord, SeverityNumber, get_logger

from provider_concurrency.observers._ledger import Figures, Ledger, encodable

if TYPE_CHECKING:
    from opentelemetry._logs import LoggerProvider
    from opentelemetry.context import Context
    from opentelemetry.metrics import CallbackOptions, MeterProvider, Observation

    from provider_concurrency.surface import Surface

__all__ = ["OpenTelemetryObserver"]

_SCOPE: Final = "provider_concurrency"
_PROVIDER: Final = "gen_ai.provider.name"
_CONVERSATION: Final = "gen_ai.conversation.id"
_ENDS: Final = frozenset({"recycled", "cancelled", "timed_out", "rejected"})
_SEVERITIES: Final = {"paused": SeverityNumber.WARN, "reclaimed": SeverityNumber.WARN} | dict.fromkeys(
    ("timed_out", "rejected", "resumed", "limit_set", "limit_removed", "cooldown_set", "closed"), SeverityNumber.INFO
)
"""All others are DEBUG: they are traffic."""


class OpenTelemetryObserver:
    """Emits the metrics and events of one manager (OBS-1..OBS-5).

    `meter_provider`, `logger_provider`: default the global ones; `events`: whether log records are emitted;
    `conversations`: whether they name the conversation (never the metrics: each value would be a series).
    """

    def __init__(
        self,
        *,
        meter_provider: MeterProvider | None = None,
        logger_provider: LoggerProvider | None = None,
        events: bool = True,
        conversations: bool = False,
    ) -> None:
        """Makes the instruments; raises nothing, and costs little, where no SDK is configured."""
        self._ledger = Ledger()
        self._contexts: dict[int, Context] = {}  # of live requests
        self._logger = get_logger(_SCOPE, logger_provider=logger_provider) if events else None
        self._conversations = conversations
        meter = metrics.get_meter(_SCOPE, meter_provider=meter_provider)
        self._waits = meter.create_histogram(f"{_SCOPE}.slot.wait_time", "s", "Time from acquire to its outcome")
        self._uses = meter.create_histogram(f"{_SCOPE}.slot.use_time", "s", "Time from grant to release or reclaim")
        self._grants = meter.create_counter(f"{_SCOPE}.slot.grants", "{slot}", "Slots granted")
        self._reclaims = meter.create_counter(f"{_SCOPE}.slot.reclaims", "{slot}", "Slots the watchdog took back")
        self._rate_limits = meter.create_counter(f"{_SCOPE}.rate_limits", "{response}", "429s reported")
        meter.create_observable_up_down_counter(
            f"{_SCOPE}.slot.count", [self._observe_slots], "{slot}", "Slots in flight"
        )
        meter.create_observable_gauge(
            f"{_SCOPE}.slot.max", [self._observer_of(lambda f: f.limit)], "{slot}", "The limit in force"
        )
        meter.create_observable_up_down_counter(
            f"{_SCOPE}.slot.pending_requests",
            [self._observer_of(lambda f: f.queued)],
            "{request}",
            "Requests that wait for a slot",
        )
        meter.create_observable_gauge(
            f"{_SCOPE}.paused", [self._observer_of(lambda f: int(f.paused))], "1", "1 while a pause after a 429 lasts"
        )

    def attach(self, manager: Surface) -> None:
        """Takes over what no event tells: the limits the manager was made with (OBS-2).

        To be called once, before the manager is used; again in a forked child, whose slots are none (FRK-1).
        """
        self._contexts.clear()
        self._ledger.attach(manager)

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
        """Takes one event in."""
        if provider is None:
            self._ledger.close()
        else:
            self._measure(event, t_ns, provider, request, in_flight, queued, value)
        if self._logger is None:
            return
        attributes: dict[str, str | int | float] = {f"{_SCOPE}.op": op}
        if provider is not None:
            attributes |= {
                _PROVIDER: encodable(provider),
                f"{_SCOPE}.in_flight": in_flight,
                f"{_SCOPE}.queued": queued,
            }
        if request is not None:
            attributes[f"{_SCOPE}.request"] = request
        if self._conversations and conversation_id is not None:
            attributes[_CONVERSATION] = encodable(conversation_id)
        attributes |= _describe_value(event, t_ns, value)
        severity = _SEVERITIES.get(event, SeverityNumber.DEBUG)
        self._logger.emit(
            LogRecord(
                timestamp=time.time_ns(),
                context=self._context_of(event, request),
                severity_number=severity,
                severity_text=severity.name,
                event_name=f"{_SCOPE}.{event}",
                attributes=attributes,
            )
        )

    def _measure(
        self, event: str, t_ns: int, provider: str, request: int | None, in_flight: int, queued: int, value: object
    ) -> None:
        moment = self._ledger.enter(event, t_ns, provider, request, in_flight, queued, value)
        attributes = {_PROVIDER: encodable(provider)}
        if moment.wait is not None:
            self._waits.record(moment.wait, {**attributes, f"{_SCOPE}.outcome": event})
        if moment.hold is not None:
            self._uses.record(moment.hold, attributes)
        if event == "granted":
            self._grants.add(1, attributes)
        elif event == "reclaimed":
            self._reclaims.add(1, attributes)
        elif event == "paused":
            self._rate_limits.add(1, attributes)

    def _context_of(self, event: str, request: int | None) -> Context:
        """The trace that an event belongs to: the one in which its request began to live.

        Later events of a request are told from anywhere, also from another request's call. A pause ends by a timer,
        in nobody's trace.
        """
        if request is None:
            return _NOBODYS if event == "resumed" else context_api.get_current()
        context = self._contexts.get(request)
        if context is None:
            context = self._contexts[request] = context_api.get_current()
        if event in _ENDS:
            del self._contexts[request]
        return context

    def _observer_of(self, read: Callable[[Figures], int | None]) -> Callable[[CallbackOptions], Iterable[Observation]]:
        def observe(_: CallbackOptions) -> Iterable[Observation]:
            for provider, figures in list(self._ledger.figures.items()):  # read from the exporter's thread
                figure = read(figures)
                if figure is not None:
                    yield metrics.Observation(figure, {_PROVIDER: encodable(provider)})

        return observe

    def _observe_slots(self, _: CallbackOptions) -> Iterable[Observation]:
        for provider, figures in list(self._ledger.figures.items()):
            for state, figure in (("held", figures.held), ("cooling", figures.cooling)):
                yield metrics.Observation(figure, {_PROVIDER: encodable(provider), f"{_SCOPE}.slot.state": state})


_NOBODYS: Final = trace.set_span_in_context(trace.INVALID_SPAN, context_api.Context())
"""Not simply empty: the API takes an empty context for "the current one"."""


def _describe_value(event: str, t_ns: int, value: object) -> dict[str, float]:
    """An event's own value, in seconds where it is a time; nothing where there is none."""
    match event:
        case "reclaimed":
            return {f"{_SCOPE}.idle": (t_ns - cast(int, value)) / 1e9}
        case "paused":
            requested, applied = cast("tuple[float | None, int]", value)
            asked = {} if requested is None else {f"{_SCOPE}.pause.requested": float(requested)}
            return {**asked, f"{_SCOPE}.pause.applied": applied / 1e9}
        case "limit_set":
            return {f"{_SCOPE}.limit": cast(int, value)}
        case "cooldown_set" if value is not None:
            return {f"{_SCOPE}.cooldown": cast(int, value) / 1e9}
        case _:
            return {}
