"""Publishing without a store, as flows: each call is answered when its messages are recorded."""

from __future__ import annotations

import contextlib
import logging
from collections import deque
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from ampsq.base.bookmarks import Bookmark
from ampsq.base.errors import AmpsqError, DefinitionError, RecordsBehind, Unavailable, UnknownTopic
from ampsq.base.limits import limits
from ampsq.base.message_types import JSON, SMALL_BODY, MessageType
from ampsq.base.values import check_text, is_name, parse_name
from ampsq.catalog.first_use import add_published
from ampsq.protocol.calls import publish as publish_calls
from ampsq.protocol.calls.records import call_caught_up, catch_up_records
from ampsq.protocol.encoding import sized_batches
from ampsq.protocol.limits import BATCH
from ampsq.protocol.reads import instance as instance_reads
from ampsq.protocol.reads.definitions import read_definition
from ampsq.protocol.reads.publishers import read_last_sequence

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from ampsq.protocol.calls.publish import Published
    from ampsq.protocol.request import Call
    from ampsq.publishing.deduplication import DeduplicationWindow
    from ampsq.publishing.envelope import Envelope
    from ampsq.publishing.publishing_batches import PublishingBatches

__all__ = ["PlainPublisher", "PublishingClient", "RecordedMessage", "TopicTypes"]

_log = logging.getLogger("ampsq")
#: Scripts count with 53 bits.
_LAST_SEQUENCE: Final = 2**53 - 2 * BATCH


class TopicTypes:
    """The message types of topics that a client publishes to, as flows; threads and tasks share it.

    Args:
        instance: the instance's name.

    Attributes:
        learnt: those that were asked for and are fixed, by topic.
    """

    def __init__(self, instance: str) -> None:
        self._instance = instance
        self.learnt: dict[str, MessageType] = {}
        # Topics that large bodies were published to, with the largest, and those of which that was looked at.
        self._large: dict[str, int] = {}
        self._warned: set[str] = set()

    async def learn(self, topic: str) -> MessageType:
        """The message type of what is about to be published to, asked for once: a first message fixes it."""
        if not isinstance(topic, str):
            return JSON
        if topic not in self.learnt:
            found = await self.read(topic)
            if found is None:
                return JSON
            self.learnt[topic] = found
        return self.learnt.get(topic, JSON)

    def known(self, topic: str) -> MessageType:
        """The same as far as it was learnt."""
        return self.learnt.get(topic, JSON)

    def forget(self, topic: str) -> None:
        """Ask for a topic's type again: it is made anew."""
        self.learnt.pop(topic, None)

    def forget_all(self) -> None:
        """Ask for all types again: a topic was changed."""
        self.learnt.clear()

    async def read(self, name: str) -> MessageType | None:
        """Read the message type of a topic or a queue; None where there is none of this name."""
        if not isinstance(name, str) or not is_name(name):
            return None
        definition = await read_definition(self._instance, "topics", name)
        if definition is None:
            definition = await read_definition(self._instance, "queues", name)
        return None if definition is None else MessageType.of_definition(definition)

    async def body(self, topic: str, data: Any) -> bytes:
        """Encode data as the topic's type does; bytes go as they are, and the type is not asked for."""
        body = data if isinstance(data, bytes) else (await self.learn(topic)).encode(data)
        if len(body) > SMALL_BODY:
            await self.warn_of_large(topic, body)
        return body

    async def warn_of_large(self, topic: str, body: bytes) -> None:
        """Log a warning, once a topic, where a large body is larger than expressions read there."""
        self.note_large(topic, [body])
        await self.warn_of_unread()

    def note_large(self, topic: str, bodies: Sequence[bytes]) -> None:
        """Note the largest of bodies that are published, if it is large, for `warn_of_unread`."""
        largest = max(map(len, bodies), default=0)
        if largest > SMALL_BODY and topic not in self._warned and isinstance(topic, str):
            self._large[topic] = max(largest, self._large.get(topic, 0))

    @property
    def has_large(self) -> bool:
        """Return whether `warn_of_unread` has bodies to look at."""
        return bool(self._large)

    async def warn_of_unread(self) -> None:
        """Log a warning, once a topic, where a body that was noted is larger than expressions read there."""
        # Another thread may warn of some of them meanwhile.
        for topic in list(self._large):
            largest = self._large.pop(topic, 0)
            try:
                definition = await read_definition(self._instance, "topics", topic)
                limit = await instance_reads.expression_limit(self._instance)
            except Unavailable:
                # What it would warn of may be recorded already: a publish does not fail for it.
                return
            limit = MessageType.of_definition(definition, limit).expression_limit
            if largest > limit and topic not in self._warned:
                self._warned.add(topic)
                _log.warning(
                    "%s: a body of %s bytes is larger than its expression_limit of %s: no filter matches it, and its "
                    "priority is the lowest (this is said once a topic)",
                    topic, f"{largest:,}", f"{limit:,}",
                )  # fmt: skip


class PublishingClient(Protocol):
    """A client at one instance, as far as its publishers need it.

    Attributes:
        confirmed_id: an ID that the server has confirmed.
        types: the message types of topics.
    """

    confirmed_id: str
    types: TopicTypes

    @property
    def instance(self) -> str:
        """The instance's name."""

    @property
    def origin(self) -> str:
        """The origin of messages that are published here."""


class RecordedMessage(NamedTuple):
    """The outcome of publishing one message.

    Attributes:
        sequence: its publisher's number; 0 without a name.
        bookmark: its bookmark, or that of the message which had this number before.
    """

    sequence: int
    bookmark: Bookmark


class PlainPublisher:
    """Records messages; a publisher with a name numbers them, so that the server records each of them once.

    Without a name it keeps nothing from one call to the next: threads and tasks use it at once. With one, who calls
    takes turns with the others from the call to its answer: a number that overtakes another makes that look recorded.

    Args:
        client: the client at its instance.
        name: the publisher's; "" without one.
        former: the same publisher at another instance.

    Attributes:
        client: as it was given.
        next_sequence: the number of the next message, as far as the server was asked.
        recorded: the highest number that was answered.
    """

    def __init__(self, client: PublishingClient, name: str = "", former: PlainPublisher | None = None) -> None:
        self.client, self.name = client, name
        # Numbers that were given at another instance are not given anew.
        self.next_sequence: int = former.next_sequence if former is not None else 1
        self.recorded: int = former.recorded if former is not None else 0
        self._is_open = not name

    async def open(self) -> None:
        """Ask the server, once, behind which number the name begins; without a name there is nothing to ask."""
        if not self._is_open:
            last = await read_last_sequence(self.client.instance, self.name)
            self.next_sequence = max(last + 1, self.next_sequence)
            self._is_open = True

    async def publish(
        self, topic: str, data: Any, envelope: Envelope, sequence: int | None = None, *, delta: bool = False
    ) -> RecordedMessage:
        """Record one message; see `Client.publish`. With `delta` it is merged into the record of its key."""
        if not self._is_open:
            await self.open()
        # As `TopicTypes.body`, `_call` and `Bookmark.of` do it, in one: a type is known but for the first message, and
        # most bodies are small.
        types = self.client.types
        if not isinstance(topic, str):
            parse_name(topic)
        kind = types.learnt.get(topic)
        body = data if isinstance(data, bytes) else (kind or await types.learn(topic)).encode(data)
        if len(body) > SMALL_BODY:
            await types.warn_of_large(topic, body)
        if len(body) > limits().body_size:
            limits().check_bodies([body])
        first = self._number(sequence, 1) if self.name else 0
        headers = [envelope.headers] if envelope.headers else []
        call = publish_calls.publish(topic, [body], headers, self.name, first, options=envelope.options, delta=delta)
        published = await self.publish_first(topic, call)
        self.recorded = max(self.recorded, first)
        former = None if published.number else published.duplicates[0]
        recorded = former or Bookmark(f"{published.topic}~{self.client.origin}~{published.first_id}")
        return RecordedMessage(first, recorded)

    async def publish_once(self, topic: str, data: Any, envelope: Envelope, window: DeduplicationWindow) -> Bookmark:
        """Record one message unless its ID is known; see `Client.publish`. The publisher has no name."""
        body = await self.client.types.body(topic, data)
        published = await self.publish_first(topic, self._call_once(topic, [body], envelope, window, [window.id]))
        known = None if published.number else published.duplicates[0]
        return known or Bookmark(f"{published.topic}~{self.client.origin}~{published.first_id}")

    def _call_once(
        self, topic: str, bodies: Sequence[bytes], envelope: Envelope, window: DeduplicationWindow, ids: Sequence[str]
    ) -> Call[Published]:
        limits().check_bodies(bodies)
        headers = [envelope.headers] * len(bodies) if envelope.headers else []
        return publish_calls.publish_once(topic, bodies, headers, ids, window.period, options=envelope.options)

    async def publish_first(self, topic: str, call: Call[Published]) -> Published:
        """Run a call, the first one of several, so that the topic exists for the others."""
        published: Published
        try:
            published = await call
        except (RecordsBehind, UnknownTopic) as refusal:
            published = await self.publish_again(topic, call, refusal)
        if published.rest:
            # Too much to read in one call: the topic was given a key since its type was asked for.
            self.client.types.forget_all()
        if published.number:
            self.client.confirmed_id = published.first_id
        return published

    async def publish_again(
        self, topic: str, call: Call[Published], refusal: RecordsBehind | UnknownTopic
    ) -> Published:
        """Run a call again when what it was refused for is mended: records follow the log, or the topic is made."""
        if isinstance(refusal, RecordsBehind):
            await catch_up_records(str(refusal.detail["topic"]))
            with contextlib.suppress(UnknownTopic):
                return await call_caught_up(call)
        self.client.types.forget(topic)
        await add_published(topic)
        published: Published = await call
        return published

    def _number(self, sequence: int | None, number: int) -> int:
        """Give away so many numbers; gives the first of them."""
        first = self.next_sequence if sequence is None else sequence
        if not isinstance(first, int) or isinstance(first, bool) or not 1 <= first <= _LAST_SEQUENCE:
            raise DefinitionError(f"sequence={first!r}: allowed is a whole number from 1 to {_LAST_SEQUENCE}")
        self.next_sequence = max(self.next_sequence, first + number)
        return first

    def take_number(self) -> int | None:
        """Give away a number for something that is to be done once; None without a name."""
        return self._number(None, 1) if self.name else None

    def _call(
        self, topic: str, bodies: Sequence[bytes], envelope: Envelope, sequence: int | None, *, delta: bool = False
    ) -> tuple[int, Call[Published]]:
        """Make a call; gives the number of its first message, too."""
        limits().check_bodies(bodies)
        first = self._number(sequence, len(bodies)) if self.name else 0
        headers = [envelope.headers] * len(bodies) if envelope.headers else []
        call = publish_calls.publish(topic, bodies, headers, self.name, first, options=envelope.options, delta=delta)
        return first, call

    async def prepare(self, topic: str) -> None:
        """Ask the server for what `batches` needs."""
        await self.open()
        await self.client.types.learn(topic)

    def batches(
        self,
        topic: str,
        messages: Iterable[Any],
        size: int,
        envelope: Envelope,
        noted: PublishingBatches,
        *,
        window: DeduplicationWindow | None = None,
    ) -> Iterator[Call[Published]]:
        """Cut messages into calls of at most `size` messages and about a megabyte; `prepare` comes first.

        With a window, those whose ID is known are not recorded.
        """
        check_text("topic", topic)
        ids: deque[str] = deque()
        if window is not None:
            messages = window.noting(messages, ids)
        types = self.client.types
        kind = types.known(topic)
        for bodies, total in sized_batches(messages, size, kind):
            if total > SMALL_BODY:
                types.note_large(topic, bodies)
            if window is None:
                _, call = self._call(topic, bodies, envelope, None)
            else:
                call = self._call_once(topic, bodies, envelope, window, [ids.popleft() for _ in bodies])
            # Of JSON a batch is never too much to read; of others it depends on what is in it.
            call.is_sent_ahead = not kind.is_read_whole or kind.name == "json"
            noted.begin(len(bodies))
            yield call
            if noted.is_over:
                return

    def batch(self, topic: str, bodies: Sequence[bytes], total: int, envelope: Envelope) -> Call[Published]:
        """Make the call that records a batch, of so many bytes; the publisher has no name.

        Raises:
            DefinitionError: a body is too large.
        """
        if total > SMALL_BODY:
            self.client.types.note_large(topic, bodies)
        return self._call(topic, bodies, envelope, None)[1]

    def note(self, noted: PublishingBatches, answer: Published | AmpsqError) -> None:
        """Note what became of one call."""
        noted.add(answer)
        if not isinstance(answer, AmpsqError):
            self.note_published(answer)

    def note_published(self, answer: Published) -> None:
        """Note what one call has recorded."""
        if answer.rest:
            self.client.types.forget_all()
        for part in answer.parts:
            if part.number:
                self.client.confirmed_id = part.first_id
        if self.name:
            # A call of a publisher with a name is answered before the next one is made.
            self.recorded = max(self.recorded, self.next_sequence - 1)
