"""Spans of OpenTelemetry from publish through delivery to handler; needs the extra ``tracing``.

`TracedClient` and `TracedAsyncClient` publish in a span and put its context into the message's headers, as
``traceparent``. `TRACING` are the hooks of a worker: a span of each message, whose parent is the span that published
it, and figures. `processing` and `traced` open such a span around what is done with a message elsewhere; `traced` is
for `on_message`.
Names and attributes are those of OpenTelemetry's conventions for messaging; without an SDK that is set up, nothing is
recorded. A client that is not traced does none of this.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import time
from typing import TYPE_CHECKING, Any, Final, TypeVar

from opentelemetry import context, metrics, propagate, trace
from opentelemetry.trace import Link, SpanKind, Status, StatusCode

from ampsq.client.async_client import AsyncClient
from ampsq.client.async_partitioned_client import AsyncPartitionedClient
from ampsq.client.async_partitioned_publisher import AsyncPartitionedPublisher
from ampsq.client.async_publisher import AsyncPublisher
from ampsq.client.client import Client
from ampsq.client.handler_rules import Hooks
from ampsq.client.partitioned_client import PartitionedClient
from ampsq.client.partitioned_publisher import PartitionedPublisher
from ampsq.client.publisher import Publisher
from ampsq.client.typed_handlers import as_handler

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from opentelemetry.trace import Span

    from ampsq.base.bookmarks import Bookmark
    from ampsq.publishing.receipts import AsyncReceipt, Receipt
    from ampsq.queues.subscription import Message
    from ampsq.topics.subscription import TopicMessage

__all__ = [
    "TRACING",
    "TracedAsyncClient",
    "TracedAsyncPartitionedClient",
    "TracedAsyncPartitionedPublisher",
    "TracedAsyncPublisher",
    "TracedClient",
    "TracedPartitionedClient",
    "TracedPartitionedPublisher",
    "TracedPublisher",
    "processing",
    "traced",
]

Handler = TypeVar("Handler", bound="Callable[..., Any]")

_SYSTEM: Final = "ampsq"


def _tracer() -> trace.Tracer:
    return trace.get_tracer("ampsq")


@contextlib.contextmanager
def _publishing(
    topic: str, headers: Mapping[str, str] | None, count: int | None
) -> Iterator[tuple[Span, dict[str, str]]]:
    """A span of kind producer, and the headers with its context."""
    attributes: dict[str, str | int] = {
        "messaging.system": _SYSTEM,
        "messaging.operation.name": "publish",
        "messaging.operation.type": "send",
        "messaging.destination.name": topic,
    }
    if count is not None:
        attributes["messaging.batch.message_count"] = count
    with _tracer().start_as_current_span(f"publish {topic}", kind=SpanKind.PRODUCER, attributes=attributes) as span:
        carried = dict(headers or {})
        propagate.inject(carried)
        yield span, carried


class TracedPublisher(Publisher):
    """A `Publisher` whose publishes are spans. Their bookmarks may be known only later."""

    def publish(self, topic: str, data: Any, *, headers: Mapping[str, str] | None = None, **others: Any) -> Receipt:
        """As `Publisher.publish`."""
        with _publishing(topic, headers, None) as (span, carried):
            published = super().publish(topic, data, headers=carried, **others)
            span.set_attribute("ampsq.publisher.sequence", published.sequence)
            return published

    def delta_publish(
        self, topic: str, data: Any, *, headers: Mapping[str, str] | None = None, **others: Any
    ) -> Receipt:
        """As `Publisher.delta_publish`."""
        with _publishing(topic, headers, None) as (span, carried):
            published = super().delta_publish(topic, data, headers=carried, **others)
            span.set_attribute("ampsq.publisher.sequence", published.sequence)
            return published

    def publish_many(
        self, topic: str, messages: Iterable[Any], *, headers: Mapping[str, str] | None = None, **others: Any
    ) -> Sequence[Receipt]:
        """As `Publisher.publish_many`: one span for all."""
        with _publishing(topic, headers, 0) as (span, carried):
            published = super().publish_many(topic, messages, headers=carried, **others)
            span.set_attribute("messaging.batch.message_count", len(published))
            return published


class TracedClient(Client):
    """A `Client` whose publishes are spans, those of its publishers too."""

    _publisher_type = TracedPublisher
    _of_partitions = ("ampsq.tracing", "TracedPartitionedClient")

    def publish(self, topic: str, data: Any, *, headers: Mapping[str, str] | None = None, **others: Any) -> Bookmark:
        """As `Client.publish`."""
        with _publishing(topic, headers, None) as (span, carried):
            published = super().publish(topic, data, headers=carried, **others)
            span.set_attribute("messaging.message.id", str(published))
            return published

    def delta_publish(
        self, topic: str, data: Any, *, headers: Mapping[str, str] | None = None, **others: Any
    ) -> Bookmark:
        """As `Client.delta_publish`."""
        with _publishing(topic, headers, None) as (span, carried):
            published = super().delta_publish(topic, data, headers=carried, **others)
            span.set_attribute("messaging.message.id", str(published))
            return published

    def publish_many(
        self, topic: str, messages: Iterable[Any], *, headers: Mapping[str, str] | None = None, **others: Any
    ) -> Sequence[Bookmark]:
        """As `Client.publish_many`: one span for all."""
        with _publishing(topic, headers, 0) as (span, carried):
            published = super().publish_many(topic, messages, headers=carried, **others)
            span.set_attribute("messaging.batch.message_count", len(published))
            return published


class TracedAsyncPublisher(AsyncPublisher):
    """An `AsyncPublisher` whose publishes are spans."""

    async def publish(
        self, topic: str, data: Any, *, headers: Mapping[str, str] | None = None, **others: Any
    ) -> AsyncReceipt:
        """As `Publisher.publish`."""
        with _publishing(topic, headers, None) as (span, carried):
            published = await super().publish(topic, data, headers=carried, **others)
            span.set_attribute("ampsq.publisher.sequence", published.sequence)
            return published

    async def delta_publish(
        self, topic: str, data: Any, *, headers: Mapping[str, str] | None = None, **others: Any
    ) -> AsyncReceipt:
        """As `Publisher.delta_publish`."""
        with _publishing(topic, headers, None) as (span, carried):
            published = await super().delta_publish(topic, data, headers=carried, **others)
            span.set_attribute("ampsq.publisher.sequence", published.sequence)
            return published

    async def publish_many(
        self, topic: str, messages: Iterable[Any], *, headers: Mapping[str, str] | None = None, **others: Any
    ) -> Sequence[AsyncReceipt]:
        """As `Publisher.publish_many`: one span for all."""
        with _publishing(topic, headers, 0) as (span, carried):
            published = await super().publish_many(topic, messages, headers=carried, **others)
            span.set_attribute("messaging.batch.message_count", len(published))
            return published


class TracedAsyncClient(AsyncClient):
    """An `AsyncClient` whose publishes are spans, those of its publishers too."""

    _publisher_type = TracedAsyncPublisher
    _of_partitions = ("ampsq.tracing", "TracedAsyncPartitionedClient")

    async def publish(
        self, topic: str, data: Any, *, headers: Mapping[str, str] | None = None, **others: Any
    ) -> Bookmark:
        """As `Client.publish`."""
        with _publishing(topic, headers, None) as (span, carried):
            published = await super().publish(topic, data, headers=carried, **others)
            span.set_attribute("messaging.message.id", str(published))
            return published

    async def delta_publish(
        self, topic: str, data: Any, *, headers: Mapping[str, str] | None = None, **others: Any
    ) -> Bookmark:
        """As `Client.delta_publish`."""
        with _publishing(topic, headers, None) as (span, carried):
            published = await super().delta_publish(topic, data, headers=carried, **others)
            span.set_attribute("messaging.message.id", str(published))
            return published

    async def publish_many(
        self, topic: str, messages: Iterable[Any], *, headers: Mapping[str, str] | None = None, **others: Any
    ) -> Sequence[Bookmark]:
        """As `Client.publish_many`: one span for all."""
        with _publishing(topic, headers, 0) as (span, carried):
            published = await super().publish_many(topic, messages, headers=carried, **others)
            span.set_attribute("messaging.batch.message_count", len(published))
            return published


class TracedPartitionedPublisher(TracedPublisher, PartitionedPublisher):
    """A publisher of all partitions whose publishes are spans."""


class TracedPartitionedClient(TracedClient, PartitionedClient):
    """A client of all partitions whose publishes are spans; `TracedClient` makes it where partitions are asked for."""

    _whole_publisher_type = TracedPartitionedPublisher


class TracedAsyncPartitionedPublisher(TracedAsyncPublisher, AsyncPartitionedPublisher):
    """The same for asyncio."""


class TracedAsyncPartitionedClient(TracedAsyncClient, AsyncPartitionedClient):
    """The same for asyncio."""

    _whole_publisher_type = TracedAsyncPartitionedPublisher


@contextlib.contextmanager
def processing(message: Message | TopicMessage) -> Iterator[Span]:
    """A span of kind consumer around what is done with a message.

    Its parent is the span that published the message; where another span is open already, that one, with a link to the
    publisher's. An exception is recorded, and goes on.
    """
    span = _started(message)
    with trace.use_span(span, end_on_exit=True, record_exception=False, set_status_on_exception=False):
        try:
            yield span
        except Exception as error:
            _note_error(span, error)
            raise


def _started(message: Message | TopicMessage) -> Span:
    """Start the span of a message that is processed."""
    published = propagate.extract(message.headers)
    creator = trace.get_current_span(published).get_span_context()
    is_open = trace.get_current_span().get_span_context().is_valid
    queue = _source(message)
    attributes: dict[str, str | int] = {
        "messaging.system": _SYSTEM,
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.destination.name": queue,
        "messaging.message.id": str(message.bookmark),
        "messaging.message.body.size": len(message.raw),
        "ampsq.topic": message.topic,
        "ampsq.delivery": getattr(message, "delivery", 1),
    }
    return _tracer().start_span(
        f"process {queue}",
        context=None if is_open else published,
        kind=SpanKind.CONSUMER,
        attributes=attributes,
        links=[Link(creator)] if is_open and creator.is_valid else [],
    )


def _source(message: Message | TopicMessage) -> str:
    return getattr(message, "queue", "") or message.topic


def _note_error(span: Span, error: BaseException) -> None:
    span.record_exception(error)
    span.set_attribute("error.type", type(error).__qualname__)
    span.set_status(Status(StatusCode.ERROR, str(error)))


class _Processing:
    """The spans of messages whose handlers run, and figures of those that ended; for the hooks of any worker."""

    def __init__(self) -> None:
        # By the message itself: of a thread that runs too long, the end is told by another one.
        self._running: dict[int, tuple[Span, float]] = {}
        meter = metrics.get_meter("ampsq")
        self._durations = meter.create_histogram(
            "messaging.process.duration", unit="s", description="How long handlers took."
        )
        self._messages = meter.create_counter(
            "messaging.client.consumed.messages", unit="{message}", description="Messages that handlers were given."
        )

    def begin(self, message: Message) -> None:
        span = _started(message)
        self._running[id(message)] = span, time.monotonic()
        # Hooks and handler have a context of their own, which ends with them: nothing has to be detached.
        context.attach(trace.set_span_in_context(span))

    def end(self, message: Message, error: BaseException | None = None) -> None:
        running = self._running.pop(id(message), None)
        if running is None:
            # It could not be begun, which is logged.
            return
        span, began = running
        attributes = {
            "messaging.system": _SYSTEM,
            "messaging.operation.name": "process",
            "messaging.destination.name": _source(message),
        }
        if error is not None:
            attributes["error.type"] = type(error).__qualname__
            _note_error(span, error)
        self._durations.record(time.monotonic() - began, attributes)
        self._messages.add(1, attributes)
        span.end()


_processing = _Processing()
#: Hooks of workers: a span of kind consumer around each handler, as of `processing`, how long handlers took, and how
#: many messages they were given, by the names of OpenTelemetry's conventions for messaging.
TRACING: Final = Hooks(before=_processing.begin, after=_processing.end, failed=_processing.end)


def traced(handler: Handler) -> Handler:
    """A handler, function or coroutine function, called in a span of its message; see `processing`.

    One that asks for data of a type, as workers give it, may be given too.
    """
    validated = as_handler(handler)
    wrapper: Any
    if inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(type(handler).__call__):

        @functools.wraps(handler)
        async def awaited(message: Message) -> Any:
            with processing(message):
                return await validated(message)

        wrapper = awaited
    else:

        @functools.wraps(handler)
        def called(message: Message) -> Any:
            with processing(message):
                return validated(message)

        wrapper = called
    # Whatever the handler asks for, this takes the message.
    wrapper.__signature__ = inspect.Signature([inspect.Parameter("message", inspect.Parameter.POSITIONAL_OR_KEYWORD)])
    return wrapper  # type: ignore[no-any-return]
