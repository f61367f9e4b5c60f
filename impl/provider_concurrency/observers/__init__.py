"""Observers that tell the world outside: each module imports its own library, this one imports none.

    from provider_concurrency.observers.prometheus import PrometheusObserver

    metrics = PrometheusObserver()
    manager = ConcurrencyManager(limits={"openai": 4}, observer=metrics)
    metrics.attach(manager)

`logs` needs nothing, `prometheus` the extra of that name, `opentelemetry` likewise. Several are joined by
`provider_concurrency.events.tee`. Each is one manager's.
"""

from __future__ import annotations

__all__: list[str] = []
