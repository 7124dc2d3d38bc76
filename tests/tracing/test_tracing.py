"""Spans from publish to handler, with the SDK of OpenTelemetry and real servers."""

from __future__ import annotations

import asyncio

import pytest
from observing import eventually
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from ampsq import Client, Queue
from ampsq.tracing import TracedAsyncClient, TracedClient, processing, traced
from ampsq.worker import Worker

EXPORTER = InMemorySpanExporter()


@pytest.fixture(autouse=True, scope="module")
def provider():
    """The SDK, which is set up once a process and not again."""
    made = TracerProvider()
    made.add_span_processor(SimpleSpanProcessor(EXPORTER))
    trace.set_tracer_provider(made)


@pytest.fixture
def spans():
    """Those that ended since, by kind."""
    EXPORTER.clear()
    return lambda kind: [span for span in EXPORTER.get_finished_spans() if span.kind == kind]


@pytest.fixture
def traced_client(valkey, instance):
    with TracedClient(valkey.url, instance=instance) as client:
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


def test_many_messages_are_one_span(traced_client, spans):
    traced_client.publish_many("orders", range(250))

    (sent,) = spans(SpanKind.PRODUCER)
    assert sent.attributes["messaging.batch.message_count"] == 250


def test_asyncio_has_the_same_spans(valkey, instance, spans):
    async def done():
        async with TracedAsyncClient(valkey.url, instance=instance) as client:
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
