"""A subscription to topics as its client knows it: what is read, chosen, paced and noted; all as flows."""
# Long: one subscription: what it reads, hands out and notes goes together to another instance.

from __future__ import annotations

import contextlib
import logging
import os
import time
import weakref
from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING, Final, TypeAlias

from ampsq.base.bookmarks import Bookmark
from ampsq.base.errors import AmpsqError, DefinitionError, NameInUse
from ampsq.base.log_positions import FIRST, StoredPosition, id_text
from ampsq.base.message_types import JSON
from ampsq.base.values import is_name
from ampsq.protocol.entries import bookmark_of, is_message, number_in, source_in
from ampsq.protocol.reads.clock import server_time
from ampsq.protocol.request import Pause
from ampsq.topics.durable_subscription import DurableClaim, HandledMessages, Received
from ampsq.topics.failover import (
    FailoverPlan,
    asked_at_next_instance,
    begins_at_stored_position,
    forget_at_other_instances,
    group_by_topic,
    load_from_any_instance,
    place_here,
)
from ampsq.topics.fully_durable import Durability
from ampsq.topics.message import document_of
from ampsq.topics.publisher_numbers import HadNumbers
from ampsq.topics.replay import LogReader
from ampsq.topics.slow_reader import LimitedReader, has_limits
from ampsq.topics.version_vector import VersionVector, find_start_positions

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ampsq.base.log_positions import BookmarkSpec, Id
    from ampsq.base.message_types import MessageType
    from ampsq.protocol.context import ClientContext
    from ampsq.protocol.request import AnyPipeline
    from ampsq.topics.bookmark_store import BookmarkStore
    from ampsq.topics.merge import Entry, Request
    from ampsq.topics.reader_reports import Reporting
    from ampsq.topics.replay import NotFound
    from ampsq.topics.subscription_spec import TopicSubscriptionSpec
    from ampsq.topics.version_vector import StartPositions, Vector

__all__ = ["Handed", "TopicSubscriptionCore"]

#: An entry, and what a durable subscription notes of it.
Handed: TypeAlias = "tuple[Entry, Received | None]"
_log = logging.getLogger("ampsq")
#: The topic in a place before there is one: behind the names of others.
_LAST: Final = "zz"
#: Messages of a durable subscription that may be handed out and not handled; then it waits.
_MOST_OPEN: Final = 100_000
#: Seconds of one wait while a subscription is paused or full, and the shortest that is worth sleeping.
_STEP: Final = 0.05
_SHORTEST: Final = 0.0005


class TopicSubscriptionCore:
    """One subscription to topics: `fetch` fills it, `take` empties it.

    Args:
        session: of its client.
        spec: what is asked for.
        save_after: seconds after which what was handled is written down at the latest while messages are asked for.
        reporting: of its client, for limits.

    Attributes:
        id: its name.
        closed: whether it was closed.
        process: the ID of the process that subscribed.
        auto_ack: whether asking for the next message says that the one before it was handled.
        is_paused: whether it hands out nothing for a while.
        reads_ahead: whether the next page is asked for while one is handed out.
    """

    def __init__(
        self, session: ClientContext, spec: TopicSubscriptionSpec, save_after: float, reporting: Reporting
    ) -> None:
        self._session, self._spec, self._save_after, self._reporting = session, spec, save_after, reporting
        self.instance, self.origin = session.instance, session.origin
        self.id = spec.sub_id or session.request()
        self.closed = self.is_paused = False
        self.reads_ahead = True
        self.process = os.getpid()
        self.buffer: deque[Handed] = deque()
        #: What was handed out last.
        self.last: Entry | None = None
        # Where it began, as a bookmark says it.
        self._begun = ""
        self._reader: LogReader | LimitedReader | None = None
        # Read and not taken in yet; None: nothing. It does not come again, so that it stays while something fails.
        self._page: list[Entry] | None = None
        # Of a client with several instances: how far it has come, said so that it holds at all of them.
        self._version_vector = VersionVector(session.origin) if len(session.instances) > 1 else None
        # Of the same: what it has had of named publishers.
        self._had = HadNumbers()
        self._handling: HandledMessages | None = None
        self._name = DurableClaim(spec.store, self.id) if spec.store is not None else None
        # Why it ended: another one of its name began.
        self._superseded: NameInUse | None = None
        self._due_at = time.monotonic() + save_after
        # Who was handed a message and has not asked for the next one: threads or tasks.
        self._handed: weakref.WeakKeyDictionary[object, Received] = weakref.WeakKeyDictionary()
        self.auto_ack = spec.auto_ack
        #: Whether messages go as they are taken, so that whoever iterates need not ask.
        self.is_unpaced = spec.pace is None

    def __repr__(self) -> str:
        return f"{self.id} to {self._spec.name!r}"

    @property
    def completed(self) -> bool:
        """Return whether the end of what was asked for was handed out."""
        return not self.buffer and self._is_read

    @property
    def missed(self) -> tuple[str, ...]:
        """The topics of which something that was asked for had been trimmed."""
        return tuple(sorted(self._reader.missed)) if self._reader is not None else ()

    @property
    def is_ready(self) -> bool:
        """Return whether something can be handed out."""
        return bool(self.buffer) and self._held_back() <= 0

    @property
    def log_keys(self) -> list[str]:
        """The Redis keys of the logs that are read, as far as they are known."""
        return self._reader.log_keys if self._reader is not None else []

    @property
    def is_at_end(self) -> bool:
        """Return whether all that there was is read and handed out, so that only news lets something come."""
        return not self.buffer and self._page is None and self._reader is not None and self._reader.is_at_end

    @property
    def may_learn_topics(self) -> bool:
        """Return whether it reads topics that come, too."""
        return not is_name(self._spec.name)

    @property
    def has_end(self) -> bool:
        """Return whether it ends at some time: it is of ranges."""
        return bool(self._spec.asked.ranges)

    @property
    def next_recorded(self) -> int | None:
        """Time when the message was recorded that is handed out next, ms; None where none is at hand."""
        try:
            return _recorded(self.buffer[0][0])
        except IndexError:
            return None

    @property
    def position(self) -> str:
        """See `TopicSubscription.position`."""
        if self._spec.conflation is not None or self._spec.asked.ranges:
            what = "conflated" if self._spec.conflation is not None else "of ranges"
            raise DefinitionError(
                f"position of subscription {self}: it is {what}, so that no place says what was handed out; allowed: "
                "the bookmark of each message, or a subscription without conflation and ranges"
            )
        if self.last is not None:
            topic, stream_id, flat = self.last
            return str(bookmark_of(topic, self.origin, stream_id.decode(), source_in(flat)))
        return self._begun

    def type_of(self, topic: str) -> MessageType:
        """The message type of a topic."""
        return self._reader.types.get(topic, JSON) if self._reader is not None else JSON

    async def open(self, pipeline: AnyPipeline) -> None:
        """Begin.

        Raises:
            UnknownTopic, BookmarkNotFound: see `LogReader.open`. ServerUnsuitable: it cannot say what is durable.
            NameInUse: another durable subscription of its name began at the same moment.
        """
        spec, kept = self._spec, None
        durability = await self._durability(self.instance)
        if spec.store is not None and spec.asked.needs_store:
            kept = await self._kept(spec.store)
        reader = self._reader_at(self._session, spec.asked, kept, spec.not_found, durability)
        await reader.open(pipeline)
        try:
            self._check_filter(reader)
        except DefinitionError:
            await reader.close(pipeline)
            raise
        if self._version_vector is not None:
            await self._version_vector.chart(self.instance, reader.spans(), reader.settled)
        self._begun = _place_of(spec, reader, self.origin)
        if spec.store is not None:
            await self._begin_durably(reader, spec.store, kept)
        self._reader = reader
        await self._heed_limits()

    @property
    def is_fully_durable(self) -> bool:
        """Return whether only what cannot be lost is handed on: one connection reads; it waits for disk or replicas."""
        return self._spec.fully_durable is not False

    async def _durability(self, instance: str) -> Durability[Request] | None:
        """Return the wait until messages cannot be lost, if that was asked for; the instance can say so."""
        if not self.is_fully_durable:
            return None
        durability: Durability[Request] = Durability(instance, self._spec.fully_durable)
        await durability.examine()
        return durability

    def _reader_at(
        self,
        session: ClientContext,
        asked: BookmarkSpec,
        kept: StoredPosition | None,
        not_found: NotFound,
        durability: Durability[Request] | None,
    ) -> LogReader:
        return LogReader(
            session.instance,
            session.origin,
            self._spec.name,
            asked,
            holder=self.id,
            kept=kept,
            not_found=not_found,
            durability=durability,
            reads_queues=self._spec.reads_queues,
        )

    async def _kept(self, store: BookmarkStore) -> StoredPosition | None:
        found: dict[str, StoredPosition] = await load_from_any_instance(store, self._session, self.id)
        if self._version_vector is None:
            mine = found.get(self.instance)
            if not found or (mine is not None and not mine.passed):
                return mine
            # It was kept at another instance, or by a client of several: it goes on by what holds at all of them.
            self._version_vector = VersionVector(self.origin)
        kept: StoredPosition | None = await place_here(found, self._session, self._version_vector)
        if not begins_at_stored_position(self._spec.asked):
            # What was handled behind where it begins comes again.
            self._version_vector = VersionVector(self.origin)
            return replace(kept, had={}) if kept is not None else None
        return kept

    async def _begin_durably(self, reader: LogReader, store: BookmarkStore, kept: StoredPosition | None) -> None:
        """Take the name over from whoever has it: only now, when nothing is wrong with what was asked for."""
        passed = self._version_vector.passed if self._version_vector is not None else {}
        beyond, had = (kept.beyond, kept.had) if kept is not None else (frozenset[tuple[str, str]](), {})
        begins = StoredPosition(reader.floor, reader.places(), beyond, dict(passed), had)
        if self._name is not None:
            await self._name.begin(self._session, begins)
        if kept is None:
            await forget_at_other_instances(store, self._session, self.id)
        self._handling, self._had = HandledMessages(begins), HadNumbers(had.items())
        reader.needed_from = self._handling.place

    def _check_filter(self, reader: LogReader) -> None:
        binary = sorted(topic for topic, found in reader.types.items() if found.name == "binary")
        if self._spec.filter is not None and binary:
            raise DefinitionError(
                f"filter={self._spec.filter.text!r}: the topic {binary[0]!r} is of message_type binary, which no "
                "filter reads; allowed: no filter, or topics of another message_type"
            )

    def _ended(self, error: NameInUse) -> NameInUse:
        """Another one has the name, the place and the hold on the logs."""
        self._superseded = error
        if self._reader is not None:
            self._reader.holds = False
        self.refuse()
        return error

    # -- limits

    async def _heed_limits(self) -> None:
        """Count for the limits of slow clients from the moment on in which there are any.

        Raises:
            SlowClient: it was disconnected.
        """
        reader = self._reader
        if isinstance(reader, LogReader):
            if reader.transports and has_limits(reader.transports):
                name, is_durable = self._spec.name, self._spec.sub_id is not None
                self._reader = self._reporting.limited(reader, self, name, is_durable=is_durable)
                # Who begins at the end is live from here on.
                await self._reader.measure()
        elif reader is not None and reader.refusal is not None:
            self.refuse()
            raise reader.refusal

    def backlog(self) -> tuple[int, int]:
        """Return bytes and age of the messages that were read and not handed out; see `Consumer`."""
        try:
            oldest = _recorded(self.buffer[0][0])
        except IndexError:
            return 0, 0
        return len(self.buffer) * (self._reader.size if self._reader is not None else 1), oldest

    def refuse(self) -> None:
        """Hand out nothing more; see `Consumer`."""
        self.is_unpaced = False
        self._page = None
        self.buffer.clear()

    # -- reading

    async def fetch(self, pipeline: AnyPipeline, wait: float) -> None:
        """Do what lets a message be handed out, for `wait` seconds at most; `save` goes before."""
        if self._reader is None:
            return
        await self._heed_limits()
        held_back = self._held_back()
        if held_back > 0:
            await Pause(min(held_back, wait))
            return
        if self.buffer:
            return
        until = time.monotonic() + wait
        while not self.buffer and not self._is_read and not self.closed:
            await self._read(self._reader, pipeline, max(until - time.monotonic(), 0.0))
            if time.monotonic() >= until:
                return

    @property
    def _is_read(self) -> bool:
        """True where everything that was asked for is read and taken in."""
        return self._page is None and self._reader is not None and self._reader.completed

    async def _read(self, reader: LogReader | LimitedReader, pipeline: AnyPipeline, wait: float) -> None:
        """Take in the next page, or the one that was read when something failed."""
        if self._page is None:
            self._page = await reader.read(pipeline, wait)
        await self._learn_topics(reader)
        page, self._page = self._page, None
        if page is not None:
            self._receive(page)
        if self.reads_ahead:
            await reader.read_ahead(pipeline)

    async def _learn_topics(self, reader: LogReader | LimitedReader) -> None:
        """Of topics that came, note where they begin so that it holds elsewhere."""
        if self._version_vector is not None and self._version_vector.lacks(reader.number):
            await self._version_vector.chart(self.instance, reader.spans(), reader.settled)

    @property
    def is_full(self) -> bool:
        """Return whether so much was handed out and not handled that nothing more goes."""
        return self._handling is not None and self._handling.open_messages > _MOST_OPEN + len(self.buffer)

    def _held_back(self) -> float:
        """Seconds until something may be handed out that is there; 0: now."""
        if self.is_paused:
            return _STEP
        if self.is_full:
            return _STEP
        if not self.buffer or self._spec.pace is None:
            return 0.0
        left = self._spec.pace.wait(time.monotonic(), _recorded(self.buffer[0][0]))
        return left if left > _SHORTEST else 0.0

    def _wanted(self, entries: list[Entry]) -> list[Entry]:
        """Return the messages of a page that are for the subscription."""
        if self._version_vector is not None:
            entries = self._version_vector.take_in(entries)
        # Mostly an entry is a body, and nothing else.
        wanted = [entry for entry in entries if len(entry[2]) == 2 or is_message(entry[2])]  # noqa: PLR2004
        if self._spec.filter is not None:
            matches, origin, instance = self._spec.filter.matches, self.origin, self.instance
            type_of = self.type_of
            wanted = [entry for entry in wanted if matches(document_of(entry, origin, instance, type_of(entry[0])))]
        return wanted

    def _unhad(self, wanted: list[Entry]) -> list[Entry]:
        """Messages that were not had under another bookmark; they are noted."""
        if self._version_vector is None:
            return wanted
        admit = self._had.admit
        return [
            entry for entry in wanted if (found := number_in(entry[0], entry[2])) is None or admit(found)
        ]  # fmt: skip

    def _receive(self, entries: list[Entry]) -> None:
        """Take in what was read: from here on it is handed out in this order, wherever the subscription goes on."""
        wanted = self._wanted(entries)
        if self._handling is None or self._reader is None:
            self.buffer.extend([(entry, None) for entry in self._unhad(wanted)])
        elif entries:
            if self._version_vector is None:
                passed: Mapping[tuple[str, str], Id] = {}
                page = [Received(entry[0], entry[1]) for entry in wanted]
            else:
                passed = self._version_vector.passed
                page = [self._received(entry) for entry in wanted]
            self._handling.receive(page, self._reader.places(), passed)
            self.buffer.extend([two for two in zip(wanted, page, strict=True) if not two[1].is_handled])

    def _received(self, entry: Entry) -> Received:
        """A message as it is noted, under a name that holds at all instances."""
        topic, stream_id, flat = entry
        publisher_number = number_in(topic, flat)
        # What was had is in a log under another bookmark: the place goes past it behind the one that was handed out.
        is_had = publisher_number is not None and not self._had.admit(publisher_number)
        return Received(topic, stream_id, source_in(flat), publisher_number, is_handled=is_had)

    def take(self, owner: object) -> Handed | None:
        """The next message that may be handed out now.

        Args:
            owner: the thread or task that says by asking for another one that it was handled; None: it is said.
        """
        if self._held_back() > 0:
            return None
        try:
            # Taking from a deque is atomic: threads never get the same message.
            taken = self.buffer.popleft()
        except IndexError:
            return None
        entry, received = taken
        if self._spec.pace is not None:
            self._spec.pace.spend(time.monotonic(), _recorded(entry), len(entry[2][1]))
        if received is not None and self.auto_ack and owner is not None:
            self._handed[owner] = received
        return taken

    # -- what was handled

    def asks(self, owner: object) -> None:
        """Somebody asks for the next message: the former one is handled."""
        if self._handling is not None and (received := self._handed.pop(owner, None)) is not None:
            self._handling.handle(received)

    def handle(self, received: Received | None) -> None:
        """Note that a message was handled."""
        if self._handling is not None and received is not None:
            self._handling.handle(received)

    @property
    def is_due(self) -> bool:
        """Return whether it is time for what is to be done from time to time, also while nothing is read."""
        return time.monotonic() >= self._due_at

    async def attend(self, pipeline: AnyPipeline) -> None:
        """Keep from being trimmed what is not handed on yet; `save` goes before."""
        self._due_at = time.monotonic() + self._save_after
        if self._reader is not None and self._reader.is_hold_due:
            await self._reader.hold(pipeline)

    async def save(self) -> None:
        """Write down what was handled.

        Raises:
            NameInUse: another durable subscription of its name began.
        """
        if self._handling is None or self._name is None:
            return
        if self._superseded is not None:
            raise self._superseded
        try:
            await self._name.note(self._session, self._handling)
        except NameInUse as error:
            raise self._ended(error) from None

    # -- at another instance

    @property
    def is_over(self) -> bool:
        """Return whether nothing of it goes on anywhere."""
        refused = isinstance(self._reader, LimitedReader) and self._reader.refusal is not None
        return self.closed or self._superseded is not None or refused

    async def prepare_failover(
        self, session: ClientContext, reporting: Reporting, pipeline: AnyPipeline
    ) -> FailoverPlan:
        """Find where it goes on at another instance, and begin there; nothing changes here before `resume_at`.

        Args:
            session: of its client there.
            reporting: of its client there.
            pipeline: its own there.

        Raises:
            AmpsqError: it cannot go on there; see `open`.
        """
        version_vector, floor = (
            self._version_vector or VersionVector(self.origin),
            self._reader.floor if self._reader else FIRST,
        )
        durability = await self._durability(session.instance)

        async def find(vectors: Mapping[str, Vector]) -> StartPositions:
            return await find_start_positions(session.instance, session.origin, vectors, self.instance)

        found: StartPositions = await find(version_vector.by_topic)
        now = await server_time()
        asked, kept = asked_at_next_instance(self._spec.asked, now), StoredPosition(floor, found.places)
        # What was trimmed there and not had is told, and nothing else is left out.
        not_found: NotFound = "fail" if self._spec.not_found == "fail" else "epoch"
        reader = self._reader_at(session, asked, kept, not_found, durability)
        if self._handling is None or self._name is None:
            await reader.open(pipeline)
            self._check_filter(reader)
            return FailoverPlan(session, reporting, reader, found, None, None)
        handled = await find(group_by_topic(self._handling.passed))
        there = self._handling.kept_at(floor, handled.places)
        reader.needed_from = there.last_before
        await reader.open(pipeline)
        self._check_filter(reader)
        claimed = await self._name.claim_at(session, there)
        return FailoverPlan(session, reporting, reader, found, claimed, there)

    def resume_at(self, arrival: FailoverPlan) -> None:
        """Go on there; what was taken in and not handed out stays."""
        # It counts as not had, so that it comes again there.
        self._page = None
        if isinstance(self._reader, LimitedReader):
            self._reader.desert()
        self._session, self._reporting, self._reader = arrival.session, arrival.reporting, arrival.reader
        self.instance, self.origin = arrival.session.instance, arrival.session.origin
        if self._version_vector is not None:
            self._version_vector.resume_at(self.origin, arrival.found.doubles)
        if self._handling is not None and self._name is not None and arrival.kept is not None:
            self._handling.resume_at(arrival.kept)
            self._name.claimed, arrival.reader.needed_from = arrival.claimed, self._handling.place

    # -- the rest

    def resume(self) -> None:
        """Hand out again; what was paused is not caught up with in a burst."""
        self.is_paused = False
        if self._spec.pace is not None:
            self._spec.pace.forget()

    async def close(self, pipeline: AnyPipeline) -> None:
        """End: what was handled is written down, the logs are let go; those of a durable one in a minute."""
        try:
            await self._save_last()
            if self._reader is not None:
                # Who is closed in order, to be started anew, must not miss what one that is killed would get.
                await (self._reader.close if self._handling is None else self._reader.close_keeping_logs)(pipeline)
        except AmpsqError as error:
            with contextlib.suppress(ValueError):
                _log.warning("subscription %r: not everything that was handled is written down: %s", self, error)

    async def _save_last(self) -> None:
        """Write down what was handled, unless another one has the name by now."""
        if self._superseded is not None:
            return
        if self._name is not None:
            self._name.look_now()
        try:
            await self.save()
        except NameInUse as error:
            _log.warning("subscription %r: what it handled last is not written down: %s", self, error)


def _place_of(spec: TopicSubscriptionSpec, reader: LogReader, origin: str) -> str:
    """Return the bookmark behind which a reader begins."""
    places = reader.places()
    starts = [end.bookmark for end in spec.asked.starts]
    if len(places) != 1 and starts and None not in starts:
        return ",".join(map(str, starts))
    topic = next(iter(places)) if len(places) == 1 else spec.name if is_name(spec.name) else max(places, default=_LAST)
    return str(Bookmark.of(topic, origin, id_text(places.get(topic, FIRST) if len(places) == 1 else reader.floor)))


def _recorded(entry: Entry) -> int:
    """Return when an entry was recorded, ms."""
    return int(entry[1].partition(b"-")[0])
