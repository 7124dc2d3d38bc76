"""Spans from publish to handler, with the SDK of OpenTelemetry and real servers."""

from __future__ import annotations

import asyncio
import contextlib
import threading

import pytest
from observing import eventually
from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import Counter, Histogram, MeterProvider
from opentelemetry.sdk.metrics.export import AggregationTemporality, InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from ampsq import Client, Queue
from ampsq.async_worker import AsyncWorker
from ampsq.tracing import TRACING, TracedAsyncClient, TracedClient, processing, traced
from ampsq.worker import Worker

EXPORTER = InMemorySpanExporter()


READER = InMemoryMetricReader(
    preferred_temporality={Counter: AggregationTemporality.DELTA, Histogram: AggregationTemporality.DELTA}
)


@pytest.fixture(autouse=True, scope="module")
def provider():
    """The SDK, which is set up once a process and not again."""
    metrics.set_meter_provider(MeterProvider([READER]))
    made = TracerProvider()
    made.add_span_processor(SimpleSpanProcessor(EXPORTER))
    trace.set_tracer_provider(made)


@pytest.fixture
def spans():
    """Return a function that gives the spans that ended since, by kind."""
    EXPORTER.clear()
    return lambda kind: [span for span in EXPORTER.get_finished_spans() if span.kind == kind]


@pytest.fixture
def figures():
    """Return a function that gives the number of messages a metric counts since, by their errors."""
    READER.get_metrics_data()

    def read(name):
        if name not in found:
            data = READER.get_metrics_data()
            each = [one for res in data.resource_metrics for scope in res.scope_metrics for one in scope.metrics]
            for one in each:
                found[one.name] = {
                    point.attributes.get("error.type", ""): getattr(point, "count", None) or point.value
                    for point in one.data.data_points
                }
        return found[name]

    found = {}
    return read


@pytest.fixture(params=["", "?partitions=4"])
def traced_client(request, valkey, instance):
    with TracedClient(f"{valkey.url}{request.param}", instance=instance) as client:
        client.apply(Queue(name="work", underlying_topic="orders", max_cancels=1))
        yield client


def test_a_handler_s_span_is_the_child_of_the_span_that_published(traced_client, spans):
    seen = []
    worker = Worker(traced(seen.append), "work", client=traced_client)
    bookmark = traced_client.publish("orders", {"id": 1}, headers={"shop": "7"})

    with traced_client.subscribe("work") as messages, processing(messages.get(30)):
        pass

    (sent,), (handled,) = spans(SpanKind.PRODUCER), spans(SpanKind.CONSUMER)
    assert (sent.name, handled.name) == ("publish orders", "process work")
    assert handled.parent.span_id == sent.context.span_id
    assert handled.context.trace_id == sent.context.trace_id
    assert sent.attributes["messaging.message.id"] == handled.attributes["messaging.message.id"] == str(bookmark)
    assert dict(handled.attributes) | {
        "messaging.system": "ampsq",
        "messaging.destination.name": "work",
        "messaging.operation.type": "process",
        "messaging.message.body.size": 8,
        "ampsq.topic": "orders",
        "ampsq.delivery": 1,
    } == dict(handled.attributes)
    assert worker.handler.__name__ == "append"


def test_headers_of_the_user_s_own_go_along(traced_client):
    traced_client.publish("orders", 1, headers={"shop": "7"})

    with traced_client.subscribe("work") as messages:
        headers = messages.get(30).headers

    assert headers["shop"] == "7"
    assert headers["traceparent"].startswith("00-")


def test_in_a_span_that_is_open_the_publisher_s_is_linked(traced_client, spans):
    traced_client.publish("orders", 1)

    with (
        trace.get_tracer("test").start_as_current_span("mine") as mine,
        traced_client.subscribe("work") as messages,
        processing(messages.get(30)),
    ):
        pass

    (sent,), (handled,) = spans(SpanKind.PRODUCER), spans(SpanKind.CONSUMER)
    assert handled.parent.span_id == mine.get_span_context().span_id
    assert [link.context.span_id for link in handled.links] == [sent.context.span_id]


def test_a_handler_that_raises_has_an_error_in_its_span_and_its_message_is_cancelled(traced_client, spans):
    @traced
    def handle(message):
        raise ValueError(message.data)

    traced_client.publish("orders", 1)
    with traced_client.subscribe("work", on_message=handle):
        eventually(lambda: spans(SpanKind.CONSUMER))
        eventually(lambda: traced_client.admin.queue_stats("work").depth == 0)

    (handled,) = spans(SpanKind.CONSUMER)
    assert handled.status.status_code is StatusCode.ERROR
    assert handled.attributes["error.type"] == "ValueError"
    assert [event.name for event in handled.events] == ["exception"]


@contextlib.contextmanager
def working(worker):
    """A worker in a thread, or with the loop of one."""
    is_async = isinstance(worker, AsyncWorker)
    thread = threading.Thread(target=lambda: asyncio.run(worker.run()) if is_async else worker.run())
    thread.start()
    try:
        yield
    finally:
        worker.stop()
        thread.join()


@pytest.mark.parametrize("kind", [Worker, AsyncWorker])
def test_the_hooks_of_a_worker_make_a_span_of_each_message_and_count_them(traced_client, spans, figures, kind):
    # Given a handler that sees the span, and one of whose messages fails
    seen = []

    def note(message):
        seen.append(trace.get_current_span().get_span_context().span_id)
        if message.data == 2:
            raise ValueError(2)

    async def awaited(message):
        note(message)

    traced_client.publish("orders", 1, key="k")
    traced_client.publish("orders", 2, key="k")
    partitions = "?partitions=4" if traced_client.partitions else ""
    url = f"{traced_client.url}{partitions}#{traced_client.instance}"

    with working(kind(note if kind is Worker else awaited, "work", url=url, hooks=TRACING)):
        eventually(lambda: traced_client.admin.queue_stats("work").depth == 0)
        eventually(lambda: len(spans(SpanKind.CONSUMER)) == 2)

    # Then the spans are those that the handler saw, children of those that published
    good, bad = spans(SpanKind.CONSUMER)
    assert [good.context.span_id, bad.context.span_id] == seen
    assert [each.parent.span_id for each in (good, bad)] == [each.context.span_id for each in spans(SpanKind.PRODUCER)]
    assert (good.status.status_code, bad.status.status_code) == (StatusCode.UNSET, StatusCode.ERROR)
    # And the figures count both
    assert figures("messaging.client.consumed.messages") == {"": 1, "ValueError": 1}
    assert figures("messaging.process.duration") == {"": 1, "ValueError": 1}


def test_a_thread_that_runs_too_long_ends_its_span_when_its_message_is_given_up(traced_client, spans):
    go_on = threading.Event()
    partitions = "?partitions=4" if traced_client.partitions else ""
    url = f"{traced_client.url}{partitions}#{traced_client.instance}"
    worker = Worker(lambda _: go_on.wait(60), "work", url=url, hooks=TRACING, time_limit="200ms")
    traced_client.publish("orders", 1)

    with working(worker):
        try:
            (handled,) = eventually(lambda: spans(SpanKind.CONSUMER))
        finally:
            go_on.set()

    assert handled.attributes["error.type"] == "HandlerTimeLimit"
    assert len(spans(SpanKind.CONSUMER)) == 1


def test_many_messages_are_one_span(traced_client, spans):
    traced_client.publish_many("orders", range(250))

    (sent,) = spans(SpanKind.PRODUCER)
    assert sent.attributes["messaging.batch.message_count"] == 250


@pytest.mark.parametrize("partitions", ["", "?partitions=4"])
def test_asyncio_has_the_same_spans(valkey, instance, spans, partitions):
    async def done():
        async with TracedAsyncClient(f"{valkey.url}{partitions}", instance=instance) as client:
            await client.apply(Queue(name="work", underlying_topic="orders"))
            await client.publish("orders", {"id": 1})
            handled = asyncio.Event()

            @traced
            async def handle(message):
                await message.ack()
                handled.set()

            async with client.subscribe("work", on_message=handle):
                await asyncio.wait_for(handled.wait(), 5)

    asyncio.run(done())

    (sent,), (handled,) = spans(SpanKind.PRODUCER), spans(SpanKind.CONSUMER)
    assert handled.parent.span_id == sent.context.span_id


def test_a_client_that_is_not_traced_adds_nothing(valkey, instance, spans):
    with Client(valkey.url, instance=instance) as client:
        client.apply(Queue(name="work", underlying_topic="orders"))
        client.publish("orders", 1)
        with client.subscribe("work") as messages:
            assert messages.get(30).headers == {}

    assert spans(SpanKind.PRODUCER) == []
