"""OBS-1..5: the observers, each with the real library, and against what the manager itself says."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any, get_args

import pytest
from opentelemetry import trace
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import InMemoryLogRecordExporter, SimpleLogRecordProcessor
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.semconv._incubating.attributes import gen_ai_attributes
from prometheus_client import CollectorRegistry, generate_latest, start_http_server
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from provider_concurrency import ConcurrencyManager
from provider_concurrency.events import EventKind, tee
from provider_concurrency.observers.logs import LEVELS, LogObserver
from provider_concurrency.observers.opentelemetry import OpenTelemetryObserver
from provider_concurrency.observers.prometheus import PrometheusObserver
from provider_concurrency.threading import ConcurrencyManager as BlockingManager
from support import World

Make = Callable[..., World]
Key = tuple[str, tuple[tuple[str, str], ...]]


def samples(text: str, parse: Callable[[str], Any] = parse_text) -> dict[Key, float]:
    """A scrape as {(name without prefix, labels): value}."""
    return {
        (sample.name.removeprefix("provider_concurrency_"), tuple(sorted(sample.labels.items()))): sample.value
        for family in parse(text)
        for sample in family.samples
    }


def read(registry: CollectorRegistry) -> Callable[..., float | None]:
    """Reads one sample of a registry by its short name and labels."""
    found = samples(generate_latest(registry).decode())

    def get(name: str, provider: str = "p", **labels: str) -> float | None:
        return found.get((name, tuple(sorted({"provider": provider, **labels}.items()))))

    return get


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


@pytest.fixture
def scraped(registry: CollectorRegistry, make_unwatched: Make) -> tuple[World, Callable[[], Callable[..., Any]]]:
    metrics = PrometheusObserver(registry=registry)
    world = make_unwatched(observer=metrics, limits={"p": 1}, release_cooldown=1.0, slot_timeout=20.0)
    metrics.attach(world.manager)
    return world, lambda: read(registry)


# -- Prometheus -------------------------------------------------------------------------------------------------------


def test_obs_2_limits_of_the_constructor_are_there_before_any_event(scraped: Any) -> None:
    _, scrape = scraped
    get = scrape()
    assert [get(name) for name in ("limit", "held", "cooling", "queued", "paused")] == [1, 0, 0, 0, 0]


def test_obs_4_a_requests_life_in_figures(scraped: Any) -> None:
    world, scrape = scraped
    slot = world.hold()
    world.ask()
    world.pass_ms(2000)
    get = scrape()
    assert [get(name) for name in ("held", "cooling", "queued", "grants_total")] == [1, 0, 1, 1]
    assert get("hold_seconds_count") is None
    slot.release()
    world.pass_ms(500)
    get = scrape()
    assert [get(name) for name in ("held", "cooling", "queued", "hold_seconds_sum")] == [0, 1, 1, 2]
    world.pass_ms(500)
    get = scrape()
    assert [get(name) for name in ("held", "cooling", "queued", "grants_total")] == [1, 0, 0, 2]
    assert (get("wait_seconds_sum", outcome="granted"), get("wait_seconds_count", outcome="granted")) == (3, 2)
    assert get("wait_seconds_bucket", outcome="granted", le="0.0") == 1, "granted at once"
    assert get("wait_seconds_bucket", outcome="granted", le="2.5") == 1
    assert get("wait_seconds_bucket", outcome="granted", le="5.0") == 2


def test_obs_4_how_waits_end_otherwise(scraped: Any) -> None:
    world, scrape = scraped
    world.hold()
    world.ask(timeout=1.0)
    world.ask(timeout=0.0)
    gone = world.ask()
    world.pass_ms(3000)
    gone.cancel()
    world.ask()
    world.pass_ms(500)
    world.manager.close()
    get = scrape()
    ends = {end: get("wait_seconds_sum", outcome=end) for end in ("granted", "timed_out", "cancelled", "rejected")}
    assert ends == {"granted": 0, "timed_out": 1, "cancelled": 3, "rejected": 0.5}
    assert get("wait_seconds_count", outcome="timed_out") == 2
    assert [get(name) for name in ("held", "queued")] == [1, 0]


def test_obs_4_a_grant_nobody_received_was_no_use_of_the_upstream(scraped: Any) -> None:
    world, scrape = scraped
    slot = world.hold()
    task = world.ask()
    slot.release()
    world.loop.stall_ns(10**9)
    world.status()  # grants: the task has yet to run
    task.cancel()
    get = scrape()
    assert [get(name) for name in ("held", "cooling", "grants_total", "hold_seconds_count")] == [0, 0, 2, 1]
    assert get("wait_seconds_count", outcome="cancelled") is None


def test_obs_4_reclaims_and_429s(scraped: Any) -> None:
    world, scrape = scraped
    world.hold()
    world.manager.report_rate_limit("p", 40)
    world.manager.report_rate_limit("p", 5)
    get = scrape()
    assert [get(name) for name in ("paused", "rate_limits_total", "reclaims_total")] == [1, 2, None]
    world.pass_ms(30_000)
    get = scrape()
    assert [get(name) for name in ("held", "cooling", "reclaims_total", "hold_seconds_sum")] == [0, 1, 1, 30]
    world.pass_ms(10_000)
    assert scrape()("paused") == 0


def test_obs_4_a_close_ends_pauses(scraped: Any) -> None:
    world, scrape = scraped
    world.manager.report_rate_limit("p", 40)
    world.manager.close()
    assert scrape()("paused") == 0


def test_obs_4_the_limit_in_force(registry: CollectorRegistry) -> None:
    metrics = PrometheusObserver(registry=registry)
    manager = ConcurrencyManager(observer=metrics)
    metrics.attach(manager)
    manager.report_rate_limit("p", 1)
    assert read(registry)("limit") is None
    manager.set_limit("p", 0)
    assert read(registry)("limit") == 0
    manager.remove_limit("p")
    assert read(registry)("limit") is None
    other = CollectorRegistry()
    metrics = PrometheusObserver(registry=other)
    manager = ConcurrencyManager(observer=metrics, default_limit=7, limits={"p": 2})
    metrics.attach(manager)
    manager.set_cooldown("q", 1)
    assert (read(other)("limit"), read(other)("limit", "q")) == (2, 7)
    manager.remove_limit("p")
    assert read(other)("limit") == 7


def test_obs_4_scraped_over_http_by_both_parsers(registry: CollectorRegistry) -> None:
    """Names that HTTP and UTF-8 can't carry as they are spoil no scrape."""
    metrics = PrometheusObserver(registry=registry)
    names = ["openai", "", 'a"b\\\n', "\ud800", "ü"]
    manager = ConcurrencyManager(limits=dict.fromkeys(names, 3), observer=metrics)
    metrics.attach(manager)
    for name in names:
        manager.report_rate_limit(name, 1)
    server, thread = start_http_server(0, "127.0.0.1", registry=registry)
    try:
        url = f"http://127.0.0.1:{server.server_port}/metrics"
        for accept, parse in (("text/plain", parse_text), ("application/openmetrics-text", parse_openmetrics)):
            with urllib.request.urlopen(urllib.request.Request(url, headers={"Accept": accept})) as response:
                assert response.headers["Content-Type"].startswith(accept)
                found = samples(response.read().decode(), parse)
            labels = {dict(labels)["provider"] for (name, labels) in found if name == "limit"}
            assert labels == {"openai", "", 'a"b\\\n', "\\ud800", "ü"}
            assert found["rate_limits_total", (("provider", "openai"),)] == 1
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def test_obs_4_two_managers_of_one_registry_need_two_namespaces(registry: CollectorRegistry) -> None:
    PrometheusObserver(registry=registry)
    with pytest.raises(ValueError, match="Duplicated"):
        PrometheusObserver(registry=registry)
    PrometheusObserver(registry=registry, namespace="other")


def check_figures(world: World, get: Callable[..., Any], names: list[str]) -> None:
    """What is scraped is what the manager says, and get_slots lists as many."""
    for name in names:
        status = world.status(name)
        told = [get(figure, name) or 0 for figure in ("held", "cooling", "queued", "paused")]
        if status is None:
            assert told == [0, 0, 0, 0], name
            continue
        assert told == [status.held, status.cooling + status.reclaimed, status.queued, status.paused], name
        assert get("limit", name) == (2 if status.limit is None else status.limit), name
        states = [info.state.value for info in world.manager.get_slots(name)]
        assert [states.count("held"), states.count("queued")] == [status.held, status.queued]


@pytest.mark.parametrize("seed", range(3))
def test_obs_4_at_any_time_the_figures_are_the_managers(
    make_unwatched: Make, registry: CollectorRegistry, seed: int
) -> None:
    draw = random.Random(seed)
    metrics = PrometheusObserver(registry=registry)
    reader = InMemoryMetricReader()
    telemetry = OpenTelemetryObserver(meter_provider=MeterProvider([reader]), events=False)
    names = ["p", "q", "r"]
    world = make_unwatched(
        observer=tee(metrics, telemetry), limits={"p": 1}, default_limit=2, slot_timeout=4.0, watchdog_interval=1.0
    )
    metrics.attach(world.manager)
    telemetry.attach(world.manager)
    tasks: list[asyncio.Task[Any]] = []
    for _ in range(120):
        name = draw.choice(names)
        match draw.randrange(9):
            case 0 | 1 | 2:
                tasks.append(world.ask(name, timeout=draw.choice([None, 0.0, 1.0])))
            case 3 if tasks:
                draw.choice(tasks).cancel()
            case 4 if done := [t for t in tasks if t.done() and not t.cancelled() and t.exception() is None]:
                draw.choice(done).result().release()
            case 5:
                world.manager.report_rate_limit(name, draw.choice([0, 1, 3]))
            case 6:
                world.manager.set_limit(name, draw.randrange(3))
            case 7:
                world.manager.remove_limit(name)
            case _:
                world.pass_ms(draw.choice([0, 100, 700, 2000]))
        check_figures(world, read(registry), names)
    check_figures(world, telemetry_reader(reader), names)
    for task in tasks:
        task.cancel()
    world.loop.settle()
    for task in tasks:
        if not task.cancelled() and task.exception() is None:
            task.result().release()
    world.pass_ms(10_000)
    assert (metrics._ledger.live(), telemetry._ledger.live(), telemetry._contexts) == (0, 0, {})


def test_obs_1_memory_is_per_live_slot(make_unwatched: Make, registry: CollectorRegistry) -> None:
    metrics = PrometheusObserver(registry=registry)
    telemetry = OpenTelemetryObserver(meter_provider=MeterProvider([InMemoryMetricReader()]))
    world = make_unwatched(observer=tee(metrics, telemetry), release_cooldown=0)
    for n in range(500):
        slot = world.hold()
        assert (metrics._ledger.live(), telemetry._ledger.live(), len(telemetry._contexts)) == (1, 1, 1), n
        slot.release()
    assert (metrics._ledger.live(), telemetry._ledger.live(), len(telemetry._contexts)) == (0, 0, 0)


def test_obs_2_attached_late_or_again_the_figures_are_right(make_unwatched: Make, registry: CollectorRegistry) -> None:
    metrics = PrometheusObserver(registry=registry)
    world = make_unwatched(observer=metrics, limits={"p": 2}, release_cooldown=1.0)
    slots = [world.hold(), world.hold()]
    world.ask()
    slots[0].release()
    metrics.attach(world.manager)
    get = read(registry)
    assert [get(name) for name in ("held", "cooling", "queued", "limit")] == [1, 1, 1, 2]
    slots[1].release()
    assert read(registry)("hold_seconds_count") == 1, "since when it was held isn't known any more"
    world.pass_ms(1000)
    get = read(registry)
    assert [get(name) for name in ("held", "cooling", "queued")] == [1, 0, 0]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")
def test_obs_2_a_forked_child_attaches_again() -> None:
    program = """
import asyncio, os
from prometheus_client import CollectorRegistry
from provider_concurrency import ConcurrencyManager
from provider_concurrency.observers.prometheus import PrometheusObserver
registry = CollectorRegistry()
metrics = PrometheusObserver(registry=registry)
manager = ConcurrencyManager(limits={"p": 2}, observer=metrics)
metrics.attach(manager)
read = lambda name: registry.get_sample_value("provider_concurrency_" + name, {"provider": "p"})
async def main():
    await manager.acquire("p")
    pid = os.fork()
    if pid == 0:
        metrics.attach(manager)
        os._exit(0 if (read("held"), read("limit")) == (0, 2) else 1)
    assert os.waitpid(pid, 0)[1] == 0
    assert (read("held"), read("limit")) == (1, 2)
asyncio.run(main())
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def test_obs_1_a_blocking_manager_is_observed_alike(registry: CollectorRegistry) -> None:
    metrics = PrometheusObserver(registry=registry)
    manager = BlockingManager(limits={"p": 2}, release_cooldown=0, observer=metrics)
    metrics.attach(manager)

    def work() -> None:
        for _ in range(50):
            with manager.slot("p"):
                pass

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    manager.close()
    get = read(registry)
    assert [get(name) for name in ("held", "cooling", "queued", "grants_total")] == [0, 0, 0, 200]
    assert get("hold_seconds_count") == 200


# -- OpenTelemetry ----------------------------------------------------------------------------------------------------


def telemetry_reader(reader: InMemoryMetricReader) -> Callable[..., Any]:
    """Reads metric points by the Prometheus observer's short names, so that both are judged alike."""
    points: dict[tuple[str, frozenset[tuple[str, Any]]], Any] = {}
    data = reader.get_metrics_data()
    for resource in data.resource_metrics if data is not None else ():
        for scope in resource.scope_metrics:
            assert scope.scope.name == "provider_concurrency"
            for metric in scope.metrics:
                for point in metric.data.data_points:
                    name = metric.name.removeprefix("provider_concurrency.")
                    points[name, frozenset((point.attributes or {}).items())] = point
    names = {"held": "slot.count", "cooling": "slot.count", "queued": "slot.pending_requests", "limit": "slot.max"}

    def get(name: str, provider: str = "p", **more: str) -> Any:
        wanted = {"gen_ai.provider.name": provider, **{f"provider_concurrency.{k}": v for k, v in more.items()}}
        if name in ("held", "cooling"):
            wanted["provider_concurrency.slot.state"] = name
        point = points.get((names.get(name, name), frozenset(wanted.items())))
        return None if point is None else getattr(point, "value", None) if hasattr(point, "value") else point

    return get


@pytest.fixture
def exporter() -> InMemoryLogRecordExporter:
    return InMemoryLogRecordExporter()  # type: ignore[no-untyped-call] # the SDK's own gap


@pytest.fixture
def logs(exporter: InMemoryLogRecordExporter) -> Iterator[LoggerProvider]:
    provider = LoggerProvider(shutdown_on_exit=False)
    provider.add_log_record_processor(SimpleLogRecordProcessor(exporter))
    yield provider
    provider.shutdown()


def test_obs_5_metrics_have_the_conventional_attribute(make_unwatched: Make) -> None:
    assert gen_ai_attributes.GEN_AI_PROVIDER_NAME == "gen_ai.provider.name"
    assert gen_ai_attributes.GEN_AI_CONVERSATION_ID == "gen_ai.conversation.id"
    reader = InMemoryMetricReader()
    telemetry = OpenTelemetryObserver(meter_provider=MeterProvider([reader]), events=False)
    world = make_unwatched(observer=telemetry, limits={"p": 1}, release_cooldown=1.0, slot_timeout=20.0)
    telemetry.attach(world.manager)
    get = telemetry_reader(reader)
    assert [get(name) for name in ("limit", "held", "cooling", "queued", "paused")] == [1, 0, 0, 0, 0]
    slot = world.hold(conversation_id="secret")
    world.ask()
    world.ask(timeout=1.0)
    world.pass_ms(2000)
    slot.release()
    world.manager.report_rate_limit("p", 2)
    get = telemetry_reader(reader)
    assert [get(name) for name in ("held", "cooling", "queued", "paused")] == [0, 1, 1, 1]
    assert (get("slot.grants"), get("rate_limits"), get("slot.reclaims")) == (1, 1, None)
    assert get("slot.use_time").sum == 2
    assert get("slot.wait_time", outcome="timed_out").sum == 1
    world.pass_ms(32_000)
    get = telemetry_reader(reader)
    assert get("slot.reclaims") == 1
    assert get("slot.wait_time", outcome="granted").sum == 4


def test_obs_5_every_event_is_a_log_record_with_a_name(
    make_unwatched: Make, logs: LoggerProvider, exporter: InMemoryLogRecordExporter
) -> None:
    telemetry = OpenTelemetryObserver(meter_provider=MeterProvider([]), logger_provider=logs)
    world = make_unwatched(observer=telemetry, release_cooldown=0.5, slot_timeout=20.0)
    world.manager.set_limit("p", 1)
    world.manager.set_cooldown("p", 1.0)
    world.hold(conversation_id="secret")
    world.manager.report_rate_limit("p", 2)
    world.pass_ms(60_000)
    world.manager.set_cooldown("p", None)
    world.manager.remove_limit("p")
    world.manager.close()
    records = [log.log_record for log in exporter.get_finished_logs()]
    assert [record.event_name for record in records] == [
        f"provider_concurrency.{kind}"
        for kind in ("limit_set", "cooldown_set", "granted", "paused", "resumed", "reclaimed", "recycled",
                     "cooldown_set", "limit_removed", "closed")
    ]  # fmt: skip
    by_name = {(record.event_name or "").rpartition(".")[2]: dict(record.attributes or {}) for record in records}
    assert by_name["granted"].pop("provider_concurrency.op")
    assert by_name["granted"] == {
        "gen_ai.provider.name": "p",
        "provider_concurrency.in_flight": 1,
        "provider_concurrency.queued": 0,
        "provider_concurrency.request": 1,
    }
    assert by_name["paused"]["provider_concurrency.pause.requested"] == 2
    assert by_name["paused"]["provider_concurrency.pause.applied"] == 2
    assert by_name["reclaimed"]["provider_concurrency.idle"] == 30
    assert by_name["limit_set"]["provider_concurrency.limit"] == 1
    assert by_name["closed"].keys() == {"provider_concurrency.op"}
    severities = {record.event_name: record.severity_text for record in records}
    assert severities["provider_concurrency.paused"] == severities["provider_concurrency.reclaimed"] == "WARN"
    assert severities["provider_concurrency.granted"] == "DEBUG"
    assert "secret" not in repr(by_name)


def test_obs_5_an_event_stands_in_the_trace_of_its_own_request(
    make_unwatched: Make, logs: LoggerProvider, exporter: InMemoryLogRecordExporter
) -> None:
    """Whoever makes the room causes the grant; the waiting request's trace is what it belongs to."""
    telemetry = OpenTelemetryObserver(meter_provider=MeterProvider([]), logger_provider=logs, conversations=True)
    world = make_unwatched(observer=telemetry, limits={"p": 1}, release_cooldown=0)
    tracer = TracerProvider(shutdown_on_exit=False).get_tracer("test")
    spans: list[int] = []

    def ask(conversation: str) -> asyncio.Task[Any]:
        with tracer.start_as_current_span("request") as span:
            spans.append(span.get_span_context().span_id)
            return world.ask(conversation_id=conversation)

    first, second = ask("a"), ask("b")
    with tracer.start_as_current_span("elsewhere"):
        first.result().release()
    world.loop.settle()
    world.manager.report_rate_limit("p", 1)
    world.pass_ms(1000)
    second.result().release()
    by_request: dict[Any, set[int]] = {}
    for log in exporter.get_finished_logs():
        attributes = dict(log.log_record.attributes or {})
        by_request.setdefault(attributes.get("gen_ai.conversation.id"), set()).add(log.log_record.span_id or 0)
    assert by_request == {"a": {spans[0]}, "b": {spans[1]}, None: {0}}
    assert not trace.get_current_span().get_span_context().is_valid


def test_obs_5_without_an_sdk_nothing_happens() -> None:
    manager = ConcurrencyManager(observer=OpenTelemetryObserver())
    manager.set_limit("\ud800", 1)
    manager.close()


# -- logging ----------------------------------------------------------------------------------------------------------


def test_obs_3_one_line_an_event(make_unwatched: Make, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "provider_concurrency.events")
    world = make_unwatched(observer=LogObserver(), release_cooldown=0.5, slot_timeout=20.0)
    world.manager.set_limit("p", 1)
    world.manager.set_cooldown("p", 1.0)
    world.hold(conversation_id="secret")
    world.ask(timeout=0.25)
    world.manager.report_rate_limit("p")
    world.pass_ms(60_000)
    world.manager.remove_limit("p")
    world.manager.close()
    mine = [record for record in caplog.records if record.name == "provider_concurrency.events"]
    assert [(record.levelname, record.getMessage()) for record in mine] == [
        ("INFO", "limit_set provider='p' limit=1 in_flight=0 queued=0 t=0.0"),
        ("INFO", "cooldown_set provider='p' cooldown=1.0 in_flight=0 queued=0 t=0.0"),
        ("DEBUG", "granted provider='p' request=1 in_flight=1 queued=0 t=0.0"),
        ("DEBUG", "queued provider='p' request=2 in_flight=1 queued=1 t=0.0"),
        ("WARNING", "paused provider='p' requested=None seconds=30.0 in_flight=1 queued=1 t=0.0"),
        ("INFO", "timed_out provider='p' request=2 in_flight=1 queued=0 t=0.25"),
        ("INFO", "resumed provider='p' in_flight=1 queued=0 t=30.0"),
        ("INFO", "reclaimed provider='p' request=1 idle=30.0 in_flight=1 queued=0 t=30.0"),
        ("DEBUG", "recycled provider='p' request=1 in_flight=0 queued=0 t=31.0"),
        ("INFO", "limit_removed provider='p' in_flight=0 queued=0 t=60.0"),
        ("INFO", "closed t=60.0"),
    ]
    fields = vars(mine[2])["provider_concurrency"]
    assert fields.pop("op")
    assert fields == {"event": "granted", "provider": "p", "request": 1, "in_flight": 1, "queued": 0, "t": 0.0}
    assert "secret" not in repr([vars(record) for record in mine])


def test_obs_3_conversations_only_if_asked_and_no_name_breaks_a_line(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    logger = logging.getLogger("elsewhere")
    observer = LogObserver(logger, levels={"granted": logging.WARNING}, conversations=True)

    async def main() -> None:
        manager = ConcurrencyManager(observer=observer)
        (await manager.acquire("a\nb \ud800", conversation_id="c\n1")).release()
        manager.close()

    asyncio.run(main())
    granted = next(record for record in caplog.records if record.name == "elsewhere")
    assert granted.levelname == "WARNING"
    assert "provider='a\\nb \\ud800' request=1 conversation='c\\n1' " in granted.getMessage()
    assert granted.getMessage().isascii()


def test_obs_3_levels_name_every_event_and_nothing_else() -> None:
    assert set(LEVELS) == set(get_args(EventKind))
    with pytest.raises(ValueError, match="granded"):
        LogObserver(levels={"granded": 1})


def test_obs_3_what_isnt_enabled_costs_no_line(make_unwatched: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    logger = logging.getLogger("quiet")
    logger.setLevel(logging.WARNING)
    world = make_unwatched(observer=LogObserver(logger))
    monkeypatch.setattr(logger, "log", lambda *_, **__: pytest.fail("a line was made"))
    world.hold().release()


def test_obs_1_the_package_imports_no_library() -> None:
    program = (
        "import sys, provider_concurrency.observers, provider_concurrency.observers.logs, provider_concurrency.store\n"
        "assert not {'prometheus_client', 'opentelemetry'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
