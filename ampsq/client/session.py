"""What a client knows and does apart from its subscriptions, as flows: `Client` and `AsyncClient` share all of it."""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import secrets
import socket
from typing import TYPE_CHECKING, Any, Final

from ampsq.base.bookmarks import Bookmark
from ampsq.base.errors import (
    AmpsqError,
    DefinitionError,
    Unavailable,
    UnknownQueue,
    UnknownTopic,
)
from ampsq.base.limits import limits
from ampsq.base.message_types import JSON, SMALL_BODY, MessageType
from ampsq.base.values import check_text, is_name, list_of, parse_name, shown
from ampsq.catalog.apply import apply, plan
from ampsq.catalog.definition_checks import settings_of
from ampsq.catalog.first_use import add_published
from ampsq.catalog.remove import check_removal
from ampsq.catalog.suggestions import with_suggestions
from ampsq.definitions.queue import Queue, View
from ampsq.operations.rebuild import move_queues
from ampsq.protocol.calls import actions as action_calls
from ampsq.protocol.calls import publish as publish_calls
from ampsq.protocol.calls import queues as calls
from ampsq.protocol.calls.queue_stats import QueueStats
from ampsq.protocol.calls.records import call_caught_up
from ampsq.protocol.context import InstanceContext
from ampsq.protocol.encoding import encode_batches
from ampsq.protocol.reads import instance as instance_reads
from ampsq.protocol.reads.definitions import read_definition, read_topic
from ampsq.protocol.reads.instances import list_instance
from ampsq.protocol.reads.origin import next_incarnation, read_origin
from ampsq.protocol.reads.publishers import read_last_sequence
from ampsq.protocol.reads.readers import read_readers
from ampsq.protocol.reads.server import Server, examine
from ampsq.protocol.schema import BATCH
from ampsq.publishing.guaranteed import FailoverGuard, GuaranteedPublisher
from ampsq.publishing.session import Identity
from ampsq.queues.acknowledge_by_bookmark import settle_named
from ampsq.queues.browse import ack_matching
from ampsq.queues.dead_letters import dead_letter_filter, dead_letters_by_bookmark, read_dead_letters
from ampsq.queues.query import parse_query_filter
from ampsq.queues.redrive import RedriveRequest, redrive
from ampsq.queues.returns import checked_reason
from ampsq.records.follow import RecordSubscriptionCore
from ampsq.records.query import Publisher, delete_matching, delete_records, key_texts
from ampsq.records.sow import sow
from ampsq.topics.retention import read_topics, trim
from ampsq.views.upkeep import aggregated, follow

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from datetime import datetime, timedelta

    from ampsq.catalog.apply import Outcome, Planned
    from ampsq.definitions.address_setting import AddressSetting
    from ampsq.definitions.queue import Definition
    from ampsq.protocol.calls.publish import Published
    from ampsq.protocol.reads.readers import ReaderState
    from ampsq.protocol.request import Call
    from ampsq.publishing.envelope import Envelope
    from ampsq.publishing.guarantee_options import Guarantee
    from ampsq.publishing.publishing_batches import PublishingBatches
    from ampsq.publishing.settlements import Settlements
    from ampsq.queues.dead_letters import DeadLetter
    from ampsq.queues.query import Query, SowMessage
    from ampsq.queues.redrive import Redriven
    from ampsq.records.query import How
    from ampsq.topics.retention import Trimmed
    from ampsq.transport.instances import InstanceAddress
    from ampsq.transport.route import Route
    from ampsq.views.upkeep import Follower

__all__ = ["Session"]

_log = logging.getLogger("ampsq")
#: Scripts count with 53 bits.
_LAST_SEQUENCE: Final = 2**53 - 2 * BATCH


class Session:
    """A client's identity, its publisher's sequence, and what it knows of the server.

    Args:
        instance: the instance's name.
        publisher: makes publishing repeatable: its messages are numbered, and recorded once each. One process at a
            time may use a publisher's name.
        former: of the same client, at another instance.
        instances: the names of all instances where the client may work.
    """

    def __init__(
        self, instance: str, publisher: str | None, former: Session | None = None, instances: Sequence[str] = ()
    ) -> None:
        self.instance = parse_name(instance)
        self.publisher = parse_name(publisher) if publisher is not None else ""
        made = f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"
        self.client: str = former.client if former is not None else made
        self.origin: str = ""
        self.server: Server | None = None
        #: An ID that the server has confirmed, so that a server that lost it is noticed.
        self.confirmed_id = ""
        #: Whether its coming was told to actions, so that its leaving is to be seen.
        self.has_listeners = False
        #: Keeps acknowledgements until they are answered, if somebody asked for that.
        self.settlements: Settlements | None = None
        self.instances = tuple(instances) or (self.instance,)
        # Names that are used at one instance are not used anew at another one.
        requests = former._requests if former is not None else itertools.count(1)  # noqa: SLF001  (our own)
        self._requests: itertools.count[int] = requests
        self._types: dict[str, MessageType] = {}
        # Topics that large bodies were published to, with the largest, and those of which that was looked at.
        self._large: dict[str, int] = {}
        self._warned: set[str] = set()
        self._next_sequence: int = former._next_sequence if former is not None else 1  # noqa: SLF001  (our own)

    def request(self) -> str:
        """A name for one request that may be repeated."""
        return f"{self.client}/{next(self._requests)}"

    async def connect(self) -> None:
        """Check the server and make the instance ready.

        Raises:
            ServerUnsuitable: the server is too old or would lose messages. FormatMismatch: the instance was written by
                an incompatible version. Unavailable: there is no server.
        """
        self.server = await examine(self.instance)
        for note in self.server.notes:
            _log.warning("%s %s: %s", self.server.kind, self.server.version, note)
        # One that is there is only looked at: a server with a full disk still allows that.
        if not (await instance_reads.has_format(self.instance)):
            await calls.open_instance(self.instance, next_incarnation())
        self.origin = await read_origin(self.instance)
        await list_instance(self.instance)
        if await instance_reads.has_listeners(self.instance):
            self.has_listeners = True
            await action_calls.emit_event("connect", self.client)
        if self.publisher:
            last = await read_last_sequence(self.instance, self.publisher)
            self._next_sequence = max(last + 1, self._next_sequence)

    def guarantee(
        self,
        guarantee: Guarantee,
        route: Route,
        revive: Callable[[], None] | None,
        instances: Sequence[InstanceAddress] = (),
        *,
        is_careful: bool = True,
    ) -> GuaranteedPublisher:
        """Begin to publish with a guarantee; settlements are kept as well from here on.

        Args:
            guarantee: what is asked for.
            route: the way to the server.
            revive: what can bring it back.
            instances: where a client may work, if at several instances.
            is_careful: refuse an instance that lacks what was told to be persisted.
        """
        several = (
            FailoverGuard(instances[0].instance, self.origin, is_careful=is_careful) if len(instances) > 1 else None
        )
        identity = Identity(self.publisher, self.client)
        publishing = GuaranteedPublisher(identity, route, self.instance, guarantee, revive, several)
        self.settlements = publishing.settlements
        return publishing

    async def announce_disconnect(self) -> None:
        """Tell the actions that ask for it that this client goes, as far as there is still somebody to tell."""
        with contextlib.suppress(AmpsqError):
            await action_calls.emit_event("disconnect", self.client)

    # -- definitions

    async def apply(self, definitions: Iterable[Definition]) -> list[tuple[Definition, Outcome]]:
        """Define topics, queues, views and actions; see `Client.apply`."""
        wanted = list(definitions)
        server = await self._server()
        await move_queues(self, wanted, server)
        return await apply(wanted, server)

    async def plan(self, definitions: Iterable[Definition], removing: Iterable[Definition]) -> list[Planned]:
        """Say what `apply` would do; see `Client.plan`."""
        wanted, removed = list(definitions), list_of("removing", removing, "[Queue(name='work')]")
        planned = await plan(wanted, (await self._server()))
        if removed:
            await check_removal(wanted, removed)
        return planned

    async def _server(self) -> Server | None:
        """The server as it was at connect, or looked at again where a coordinator may have noted more of it."""
        if self.server is not None and self.server.appends and not self.server.appendfsync:
            self.server = await examine(self.instance)
        return self.server

    @with_suggestions("queue")
    async def pause(self, queue: str, *, paused: bool) -> bool:
        """Have a queue deliver, or not; see `Client.pause_queue`."""
        check_text("queue", queue)
        catalog = await calls.catalog()
        if queue not in catalog.queues:
            raise UnknownQueue(queue=queue)
        defined = Queue.from_json(catalog.queues[queue])
        wanted = type(defined)(**{**defined.elements(), "name": queue, "paused": paused})
        outcomes = await self.apply([wanted])
        return any(outcome != "unchanged" for _, outcome in outcomes)

    # -- publishing

    async def learn_type(self, topic: str) -> MessageType:
        """The message type of what is about to be published to, asked for once: a first message fixes it."""
        if not isinstance(topic, str):
            return JSON
        if topic not in self._types:
            found = await self.message_type(topic)
            if found is None:
                return JSON
            self._types[topic] = found
        return self._types[topic]

    async def body(self, topic: str, data: Any) -> bytes:
        """What is published of data; bytes go as they are, and the topic's type is not asked for."""
        body = data if isinstance(data, bytes) else (await self.learn_type(topic)).encode(data)
        if len(body) > SMALL_BODY:
            self.note_large(topic, [body])
            await self.warn_of_unread()
        return body

    def note_large(self, topic: str, bodies: Sequence[bytes]) -> None:
        """Note the largest of bodies that are published, if it is large, for `warn_of_unread`."""
        largest = max(map(len, bodies), default=0)
        if largest > SMALL_BODY and topic not in self._warned and isinstance(topic, str):
            self._large[topic] = max(largest, self._large.get(topic, 0))

    async def warn_of_unread(self) -> None:
        """Log a warning, once a topic, where a body that was noted is larger than expressions read there."""
        while self._large:
            topic, largest = self._large.popitem()
            try:
                definition = await read_definition(self.instance, "topics", topic)
                limit = await instance_reads.expression_limit(self.instance)
            except Unavailable:
                # What it would warn of may be recorded already: a publish does not fail for it.
                return
            limit = MessageType.of_definition(definition, limit).expression_limit
            if largest > limit:
                self._warned.add(topic)
                _log.warning(
                    "%s: a body of %s bytes is larger than its expression_limit of %s: no filter matches it, and its "
                    "priority is the lowest (this is said once a topic)",
                    topic, f"{largest:,}", f"{limit:,}",
                )  # fmt: skip

    async def message_type(self, name: str) -> MessageType | None:
        """The message type of a topic or a queue; None where there is none of this name."""
        if not isinstance(name, str) or not is_name(name):
            return None
        definition = await read_definition(self.instance, "topics", name)
        if definition is None:
            definition = await read_definition(self.instance, "queues", name)
        return None if definition is None else MessageType.of_definition(definition)

    async def publish(self, topic: str, data: Any, envelope: Envelope, sequence: int | None) -> Bookmark:
        """Record one message; see `Client.publish`."""
        body = await self.body(topic, data)
        return await self._publish_one(topic, self._publish_call(topic, [body], envelope, sequence))

    async def delta_publish(self, topic: str, data: Any, envelope: Envelope, sequence: int | None) -> Bookmark:
        """Record one message, merged into the record of its key; see `Client.delta_publish`."""
        body = await self.body(topic, data)
        call = self._publish_call(topic, [body], envelope, sequence, delta=True)
        return await self._publish_one(topic, call)

    async def _publish_one(self, topic: str, call: Call[Published]) -> Bookmark:
        published = await self._published(topic, call)
        if published.number:
            return Bookmark.of(published.topic, self.origin, published.first_id)
        return published.duplicates[0] or Bookmark.of(published.topic, self.origin, "")

    async def publish_first(self, topic: str, call: Call[Published]) -> Published:
        """Run the first call of a batch, so that the topic exists for the others."""
        return await self._published(topic, call)

    async def _published(self, topic: str, call: Call[Published]) -> Published:
        published: Published
        try:
            published = await call_caught_up(call)
        except UnknownTopic:
            self._types.pop(topic, None)
            await add_published(topic)
            published = await call
        if published.rest:
            # Too much to read in one call: the topic was given a key since its type was asked for.
            self._types.clear()
        if published.number:
            self.confirmed_id = published.first_id
        return published

    def _publish_call(
        self, topic: str, bodies: Sequence[bytes], envelope: Envelope, sequence: int | None, *, delta: bool = False
    ) -> Call[Published]:
        first = self._next_sequence if sequence is None else sequence
        if sequence is not None and not self.publisher:
            raise DefinitionError("sequence needs a publisher: Client(publisher=NAME)")
        if not isinstance(first, int) or isinstance(first, bool) or not 1 <= first <= _LAST_SEQUENCE:
            raise DefinitionError(f"sequence={first!r}: allowed is a whole number from 1 to {_LAST_SEQUENCE}")
        limits().check_bodies(bodies)
        self._next_sequence = max(self._next_sequence, first + len(bodies))
        headers = [envelope.headers] * len(bodies) if envelope.headers else []
        return publish_calls.publish(topic, bodies, headers, self.publisher, first, times=envelope.times, delta=delta)

    def batches(
        self, topic: str, messages: Iterable[Any], size: int, envelope: Envelope, noted: PublishingBatches
    ) -> Iterator[Call[Published]]:
        """Cut messages into calls of at most `size` messages and about a megabyte; `learn_type` comes first."""
        check_text("topic", topic)
        kind = self._types.get(topic, JSON)
        for bodies in encode_batches(messages, size, kind):
            self.note_large(topic, bodies)
            call = self._publish_call(topic, bodies, envelope, None)
            # Of JSON a batch is never too much to read; of others it depends on what is in it.
            call.is_sent_ahead = not kind.is_read_whole or kind.name == "json"
            noted.begin(len(bodies))
            yield call
            if noted.is_over:
                return

    def note(self, noted: PublishingBatches, answer: Published | AmpsqError) -> None:
        """Note what became of one call."""
        noted.add(answer)
        if isinstance(answer, AmpsqError):
            return
        if answer.rest:
            self._types.clear()
        for part in answer.parts:
            if part.number:
                self.confirmed_id = part.first_id

    # -- settling and looking

    @with_suggestions("queue")
    async def ack(
        self,
        queue: str,
        bookmarks: Iterable[Bookmark | str] | str | None,
        option: str,
        filter: str | None = None,  # noqa: A002  (AMPS's word)
        *,
        reason: str | None = None,
        dry_run: bool = False,
    ) -> int:
        """Settle messages by bookmark or filter; see `Client.ack`."""
        why = checked_reason(reason)
        if isinstance(bookmarks, str):
            bookmarks = [bookmarks]
        if (bookmarks is None) == (filter is None):
            raise DefinitionError("ack needs bookmarks or a filter, one of them")
        if filter is not None:
            return await ack_matching(self.context, queue, filter, option, reason=why, dry_run=dry_run)
        if dry_run:
            raise DefinitionError("dry_run=True counts what a filter matches; allowed with filter")
        return await settle_named(self.origin, queue, _listed(bookmarks or ()), option, why, self.settlements)

    @property
    def context(self) -> InstanceContext:
        """Where messages are, for walks and queries."""
        return InstanceContext(self.instance, self.origin)

    @with_suggestions("queue", "view")
    async def sow(
        self, name: str, query: Query, keys: Iterable[Any] | None, bookmark: Bookmark | str | datetime | None
    ) -> list[SowMessage]:
        """Query a topic's records, a queue or a view; see `Client.sow`."""
        return await sow(self.context, name, query, keys, bookmark)

    def follow_records(
        self,
        topic: str,
        query: Query,
        *,
        oof: bool,
        conflation: timedelta | float | str | None,
        bookmark: Bookmark | str | datetime | None,
    ) -> RecordSubscriptionCore:
        """A query of a topic's records and of what changes them, not begun yet; see `Client.sow_and_subscribe`."""
        return RecordSubscriptionCore(
            self.context,
            topic,
            query,
            oof=oof,
            name=self.request(),
            conflation=conflation,
            bookmark=bookmark,
            may_move=len(self.instances) > 1,
        )

    @with_suggestions("topic")
    async def sow_delete(
        self,
        topic: str,
        keys: Iterable[Any] | None,
        filter: str | None,  # noqa: A002  (AMPS's word)
        data: Any,
    ) -> int:
        """Delete records of a topic; see `Client.sow_delete`."""
        if filter is not None:
            _check_choice(topic, keys, filter, data)
            return await delete_matching(topic, parse_query_filter(filter))
        if keys is not None and (known := (await read_topic(self.instance, parse_name(topic)))) is not None:
            key_texts(keys, known if known.key else None)
        how, values = await self._deletion(topic, keys, data)
        return await delete_records(topic, how, values, self._next_publisher)

    async def deletions(self, topic: str, keys: Iterable[Any] | None, data: Any) -> list[list[bytes]]:
        """The same by keys or data as a publish store keeps it: the arguments of one call each."""
        how, values = await self._deletion(topic, keys, data)
        head = [parse_name(topic).encode(), how.encode()]
        return [[*head, *values[first : first + BATCH]] for first in range(0, len(values), BATCH)]

    async def _deletion(self, topic: str, keys: Iterable[Any] | None, data: Any) -> tuple[How, list[bytes]]:
        _check_choice(topic, keys, None, data)
        if keys is not None:
            return "keys", key_texts(keys)
        return "data", [(await self.body(topic, data))]

    def _next_publisher(self) -> Publisher:
        """A number of this session's publisher, if it has one, for something that is to be done once."""
        if not self.publisher:
            return Publisher()
        self._next_sequence += 1
        return Publisher(self.publisher, self._next_sequence - 1)

    @with_suggestions("queue")
    async def dead_letters(
        self,
        queue: str,
        filter: str | None,  # noqa: A002  (AMPS's word)
        *,
        source: str | None,
        reason: str | None,
        top_n: int | None,
        bookmarks: Iterable[Bookmark | str] | str | None,
    ) -> list[DeadLetter]:
        """Look at dead letters; see `Client.dead_letters`."""
        if bookmarks is not None:
            if (filter, source, reason, top_n) != (None, None, None, None):
                raise DefinitionError("bookmarks say which letters; filter, source, reason and top_n go without them")
            return await dead_letters_by_bookmark(self.context, queue, _listed(bookmarks))
        return await read_dead_letters(self.context, queue, dead_letter_filter(filter, source, reason), top_n)

    @with_suggestions("queue")
    async def redrive(self, queue: str, **wishes: Any) -> Redriven:
        """Put dead letters back; see `Client.redrive`."""
        bookmarks = wishes.pop("bookmarks")
        wishes["bookmarks"] = None if bookmarks is None else _listed(bookmarks)
        return await redrive(self.context, RedriveRequest(queue, self.request(), **wishes))

    @with_suggestions("queue", "topic")
    async def aggregate(
        self,
        name: str,
        projection: Sequence[str],
        grouping: Sequence[str],
        filter: str | None,  # noqa: A002
    ) -> Follower:
        """Begin to follow an aggregate; see `Client.aggregate`."""
        return await follow(self.context, aggregated(name, projection, grouping, filter))

    @with_suggestions("queue")
    async def queue_stats(self, queue: str) -> QueueStats:
        """Read a queue's figures."""
        figures = await calls.stats(queue)
        return QueueStats(queue, figures)

    async def views(self) -> dict[str, View]:
        """Read the definitions of all views."""
        catalog = await calls.catalog()
        return {name: View.from_json(text) for name, text in sorted(catalog.views.items())}

    async def readers(self) -> list[ReaderState]:
        """See `Client.readers`."""
        return await read_readers(self.instance)

    async def address_settings(self) -> dict[str, AddressSetting]:
        """Read all address settings."""
        catalog = await calls.catalog()
        return {setting.match: setting for setting in sorted(settings_of(catalog), key=lambda each: each.match)}

    async def queues(self) -> dict[str, Queue]:
        """Read the definitions of all queues."""
        catalog = await calls.catalog()
        return {name: Queue.from_json(text) for name, text in sorted(catalog.queues.items())}

    async def topics(self) -> dict[str, dict[str, Any]]:
        """Read all topics; see `Client.topics`."""
        return await read_topics(self.instance, self.origin)

    async def trim(self, topic: str, age: timedelta | float | str | None, *, dry_run: bool) -> Trimmed:
        """Remove what a topic's retention gives up; see `Client.trim`."""
        return await trim(self.instance, topic, age, dry_run=dry_run)


def _listed(bookmarks: Iterable[Bookmark | str] | str) -> list[Bookmark | str]:
    return [bookmarks] if isinstance(bookmarks, str) else list_of("bookmarks", bookmarks, "['orders~...~1-0']")


def _check_choice(topic: str, keys: object, filter: object, data: object) -> None:  # noqa: A002
    given = [name for name, value in (("keys", keys), ("filter", filter), ("data", data)) if value is not None]
    if len(given) != 1:
        raise DefinitionError(
            f"sow_delete of {shown(topic)} got {' and '.join(given) or 'nothing'}; "
            "allowed: one of keys, filter and data"
        )
