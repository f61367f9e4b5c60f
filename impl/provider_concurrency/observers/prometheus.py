"""Prometheus metrics, by provider (extra: `provider-concurrency[prometheus]`).

    metrics = PrometheusObserver()
    manager = ConcurrencyManager(limits={"openai": 4}, observer=metrics)
    metrics.attach(manager)
    prometheus_client.start_http_server(9000)

| metric (prefix `provider_concurrency_`) | type | meaning |
|---|---|---|
| `held`, `cooling`, `queued` | gauge | slots held; slots released or reclaimed that still count; requests that wait |
| `limit` | gauge | the limit in force; no series where there is none |
| `paused` | gauge | 1 while a 429's pause lasts, else 0 |
| `wait_seconds{outcome}` | histogram | from acquire to its grant (0: at once), or to timed_out, cancelled, rejected |
| `hold_seconds` | histogram | from the grant to the release or the reclaim |
| `grants_total`, `reclaims_total` | counter | slots granted; slots that the watchdog took back |
| `rate_limits_total` | counter | 429s reported |

`held + cooling` is in_flight. A series stays once its provider was seen, as Prometheus wants it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge, Histogram

from provider_concurrency.observers._ledger import Figures, Ledger, encodable

if TYPE_CHECKING:
    from provider_concurrency.surface import Surface

__all__ = ["HOLD_BUCKETS", "WAIT_BUCKETS", "PrometheusObserver"]

WAIT_BUCKETS: Final = (0.0, 0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)
"""Seconds; the first bucket is what was granted at once."""
HOLD_BUCKETS: Final = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 40.0, 60.0, 120.0, 300.0, 600.0, 1200.0)
"""Seconds; an answer of an LLM takes from a fraction of a second to many minutes."""


class PrometheusObserver:
    """Keeps the metrics of one manager in a registry (OBS-1, OBS-2, OBS-4).

    `registry`: default prometheus_client's own; `namespace`: the prefix, one for each manager of a registry. Raises
    ValueError if the registry has such metrics already.
    """

    def __init__(
        self,
        *,
        registry: CollectorRegistry = REGISTRY,
        namespace: str = "provider_concurrency",
        wait_buckets: Sequence[float] = WAIT_BUCKETS,
        hold_buckets: Sequence[float] = HOLD_BUCKETS,
    ) -> None:
        """Registers the metrics; the buckets are upper bounds in seconds."""
        self._ledger = Ledger()
        label = ("provider",)

        def gauge(name: str, meaning: str) -> Gauge:
            return Gauge(name, meaning, label, namespace=namespace, registry=registry)

        def counter(name: str, meaning: str) -> Counter:
            return Counter(name, meaning, label, namespace=namespace, registry=registry)

        self._held = gauge("held", "Slots held")
        self._cooling = gauge("cooling", "Slots released or reclaimed that still count against the limit")
        self._queued = gauge("queued", "Requests that wait for a slot")
        self._limit = gauge("limit", "The limit in force; absent: unlimited")
        self._paused = gauge("paused", "1 while a pause after a 429 lasts")
        self._grants = counter("grants", "Slots granted")
        self._reclaims = counter("reclaims", "Slots that the watchdog took back")
        self._rate_limits = counter("rate_limits", "429s reported")
        self._waits = Histogram(
            "wait_seconds",
            "Seconds from acquire to its outcome",
            ("provider", "outcome"),
            namespace=namespace,
            registry=registry,
            buckets=wait_buckets,
        )
        self._holds = Histogram(
            "hold_seconds",
            "Seconds from grant to release or reclaim",
            label,
            namespace=namespace,
            registry=registry,
            buckets=hold_buckets,
        )

    def attach(self, manager: Surface) -> None:
        """Takes over what no event tells: the limits the manager was made with (OBS-2).

        To be called once, before the manager is used; again in a forked child, whose slots are none (FRK-1).
        """
        self._ledger.attach(manager)
        for provider, figures in self._ledger.figures.items():
            self._show(encodable(provider), figures)

    def __call__(
        self,
        event: str,
        op: int,  # noqa: ARG002 - an observer's signature
        t_ns: int,
        provider: str | None,
        request: int | None,
        conversation_id: str | None,  # noqa: ARG002
        prompt_started_at: float | None,  # noqa: ARG002
        in_flight: int,
        queued: int,
        value: object,
    ) -> None:
        """Takes one event in."""
        if provider is None:
            for name, figures in self._ledger.close().items():
                self._show(encodable(name), figures)
            return
        moment = self._ledger.enter(event, t_ns, provider, request, in_flight, queued, value)
        label = encodable(provider)
        if moment.wait is not None:
            self._waits.labels(label, event).observe(moment.wait)
        if moment.hold is not None:
            self._holds.labels(label).observe(moment.hold)
        if event == "granted":
            self._grants.labels(label).inc()
        elif event == "reclaimed":
            self._reclaims.labels(label).inc()
        elif event == "paused":
            self._rate_limits.labels(label).inc()
        elif event == "limit_removed" and moment.figures.limit is None:
            self._limit.remove(label)
        self._show(label, moment.figures)

    def _show(self, label: str, figures: Figures) -> None:
        self._held.labels(label).set(figures.held)
        self._cooling.labels(label).set(figures.cooling)
        self._queued.labels(label).set(figures.queued)
        self._paused.labels(label).set(figures.paused)
        if figures.limit is not None:
            self._limit.labels(label).set(figures.limit)
