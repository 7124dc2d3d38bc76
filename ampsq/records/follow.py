"""A query of records and a subscription to what changes them, from one point in time; all as flows.

The log is read from where it stood before the records were looked at, so that what changed meanwhile is put into them:
they are given as they were at the end of that. Then changes come from there on, from the same cursor. Which records a
subscriber was given only its client knows, and so it makes the notices of those that leave its view.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple

from ampsq.base.bookmarks import Bookmark, recorded_by
from ampsq.base.errors import BookmarkNotFound, NoRecords
from ampsq.base.log_positions import FIRST, BookmarkSpec, StoredPosition, id_text, parse_bookmark_spec, parse_id
from ampsq.catalog.suggestions import with_suggestions
from ampsq.protocol.calls.records import catch_up_records
from ampsq.protocol.entries import bookmark_of, source_in
from ampsq.protocol.reads.definitions import read_topic
from ampsq.protocol.request import Pause
from ampsq.queues.query import SowMessage
from ampsq.records.change import as_change
from ampsq.records.conflation import ConflatedChanges
from ampsq.records.history import change_of, moment_of, parse_moment, records_at
from ampsq.records.query import RecordKey, chosen, read_records, record_message
from ampsq.topics.conflation import conflation_asked
from ampsq.topics.failover import asked_at_next_instance
from ampsq.topics.replay import LogReader
from ampsq.topics.version_vector import VersionVector, find_start_positions

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime, timedelta

    from ampsq.base.log_positions import Id
    from ampsq.definitions.queue import Topic
    from ampsq.protocol.calls.records import StoredRecord
    from ampsq.protocol.context import InstanceContext
    from ampsq.protocol.request import AnyPipeline
    from ampsq.queues.query import Query, QueryResult
    from ampsq.records.change import Command, Reason, RecordChange
    from ampsq.records.history import LoggedChange
    from ampsq.topics.merge import Entry
    from ampsq.topics.version_vector import StartPositions

__all__ = ["RecordSubscriptionCore"]

_log = logging.getLogger("ampsq")
#: Times that a log is begun to be read anew since it was trimmed meanwhile.
_BEGINNINGS: Final = 10
#: Of a conflated one: seconds after which it is looked for later changes before an earlier one is handed out, for which
#: the end of the log is read after while something could be, and of one wait while so much waits that nothing is read.
_LOOK: Final = 0.05
_CATCH_UP: Final = 0.25
_STEP: Final = 0.05


class _View(NamedTuple):
    """The parts of one beginning: the reader, the topic, and the key by which it makes records."""

    reader: LogReader
    topic: Topic
    key: RecordKey


class RecordSubscriptionCore:
    """A query of a topic's records, and then what changes them.

    Args:
        context: where the topic is.
        topic: its name.
        query: filter and order of the records; the filter is that of the changes, too.
        oof: tell of records that leave the view.
        name: unlike all others, under which the log is held.
        conflation: as of `Client.sow_and_subscribe`.
        bookmark: the records as they were there, and what changed since; None: now.
        may_move: whether it may go on at another instance: it is noted how far it comes in a way that holds there.

    Attributes:
        topic: the topic's name.
        reads_ahead: whether the next page is asked for while one is handed out.

    Raises:
        DefinitionError: an argument is wrong.
    """

    def __init__(
        self,
        context: InstanceContext,
        topic: str,
        query: Query,
        *,
        oof: bool,
        name: str,
        conflation: timedelta | float | str | None = None,
        bookmark: Bookmark | str | datetime | None = None,
        may_move: bool = False,
    ) -> None:
        self._version_vector = VersionVector(context.origin) if may_move else None
        self._context, self.topic, self._query, self._oof, self._name = context, topic, query, oof, name
        period, _ = conflation_asked(conflation, None, None, None)
        self._conflated = None if period is None else ConflatedChanges(period)
        self._bookmark, self._looked = bookmark, float("-inf")
        if bookmark is not None:
            parse_moment(bookmark)
        # What was read and may be handed out; of a conflated one only the records.
        self._changes: deque[RecordChange] = deque()
        self._view: _View | None = None
        self.reads_ahead = True
        # The records in view and their last messages; without notices nobody asks for them.
        self._known: dict[bytes, Id] = {}

    @with_suggestions("topic")
    async def find(self, pipeline: AnyPipeline) -> QueryResult:
        """Query the records; `give` says which of them are given.

        Raises:
            NoRecords: the topic has no key, or there is no such topic.
            BookmarkNotFound: the records at the bookmark, or what came behind it, are not known any more.
        """
        begun = self._begin(pipeline) if self._bookmark is None else self._begin_at(self._bookmark, pipeline)
        view, records = await begun
        return chosen(self._context, view.topic, self._query, records.values())

    def give(self, found: Sequence[SowMessage]) -> None:
        """Hand out these of the records that were found, and tell of no others that they leave."""
        if self._view is None:
            return
        of_type = self._view.topic.type
        self._changes.extend(as_change(message, "sow", type=of_type) for message in found)
        if self._oof and len(found) < len(self._known):
            given = {_bytes(message.key or "") for message in found}
            self._known = {text: place for text, place in self._known.items() if text in given}

    @property
    def is_ready(self) -> bool:
        """Return whether something can be handed out."""
        return bool(self._changes) or (self._conflated is not None and self._conflated.wait(time.monotonic()) == 0)

    @property
    def log_keys(self) -> list[str]:
        """The Redis key of the log that is read, if it is known."""
        return self._view.reader.log_keys if self._view is not None else []

    @property
    def is_at_end(self) -> bool:
        """Return whether all that there was is read and handed out, so that only news lets something come."""
        return not self._changes and self._view is not None and self._view.reader.is_at_end

    @property
    def may_learn_topics(self) -> bool:
        """Return whether it reads topics that come, too: never."""
        return False

    @property
    def has_end(self) -> bool:
        """Return whether it ends at some time: never."""
        return False

    def take(self) -> RecordChange | None:
        """The next change that may be handed out now, unless a later one of its record may have come."""
        if self._changes:
            return self._changes.popleft()
        now = time.monotonic()
        if self._conflated is None or now > self._looked + _LOOK:
            return None
        return self._conflated.take(now)

    async def fetch(self, pipeline: AnyPipeline, wait: float) -> None:
        """Read what comes, for `wait` seconds at most; nothing is read while something is to be handed out."""
        if self._changes:
            return
        if self._view is None:
            await self._look_anew(pipeline)
        elif self._conflated is None:
            await self._read(pipeline, wait)
        else:
            await self._gather(self._conflated, self._view.reader, pipeline, wait)

    async def _gather(self, conflated: ConflatedChanges, reader: LogReader, pipeline: AnyPipeline, wait: float) -> None:
        """Read up to the end of the log, for a bounded time, so that what is handed out is the latest."""
        started = now = time.monotonic()
        while True:
            until = started + max(wait, _CATCH_UP if reader.is_behind else 0.0)
            due = conflated.wait(now)
            left = max(min(until - now, float("inf") if due is None else due), 0.0)
            if conflated.is_full:
                await Pause(min(left, _STEP))
            else:
                await self._read(pipeline, left)
            self._looked = now = time.monotonic()
            is_done = conflated.wait(now) == 0 and (conflated.is_full or not reader.is_behind)
            if is_done or now >= until:
                return

    async def _read(self, pipeline: AnyPipeline, wait: float) -> None:
        if self._view is None:
            return
        try:
            entries = await self._view.reader.read(pipeline, wait)
        except BookmarkNotFound as error:
            _log.warning("%s; looking at its records anew", error)
            await self._look_anew(pipeline)
            return
        for entry in self._taken(entries):
            change = self._change_of(self._view, entry)
            if change is not None:
                self._tell(self._view, change, entry)
        if self.reads_ahead:
            await self._view.reader.read_ahead(pipeline)

    async def close(self, pipeline: AnyPipeline) -> None:
        """End it: the log is let go."""
        if self._view is not None:
            await self._view.reader.close(pipeline)

    # -- beginning

    async def _begin(self, pipeline: AnyPipeline) -> tuple[_View, dict[bytes, StoredRecord]]:
        """Read all records that match, as they are at the place from where the reader goes on."""
        for attempt in range(_BEGINNINGS):
            topic: Topic | None = await read_topic(self._context.instance, self.topic)
            if topic is None or not topic.key:
                raise NoRecords(topic=self.topic)
            place = await catch_up_records(self.topic)
            view = _View(self._reader(place), topic, RecordKey(topic))
            try:
                await self._open(view.reader, pipeline)
                tree = self._query.filter.json if self._query.filter is not None else ""
                found = await read_records(self.topic, tree, None)
                records = {record.key: record for record in found}
                end = await catch_up_records(self.topic)
                await self._roll_forward(view, pipeline, records, parse_id(place), parse_id(end))
            except BookmarkNotFound:
                if attempt == _BEGINNINGS - 1:
                    raise
                continue
            break
        self._note(view, records)
        return view, records

    async def _begin_at(
        self, bookmark: Bookmark | str | datetime, pipeline: AnyPipeline
    ) -> tuple[_View, dict[bytes, StoredRecord]]:  # fmt: skip
        """Read all records that match as they were; the reader goes on from there."""
        topic: Topic | None = await read_topic(self._context.instance, self.topic)
        if topic is None or not topic.key:
            raise NoRecords(topic=self.topic)
        moment = await moment_of(bookmark, self._context)
        end = await catch_up_records(self.topic)
        view = _View(self._reader(id_text(min(moment.id, parse_id(end)))), topic, RecordKey(topic))
        # The log is held before the records are looked at.
        await self._open(view.reader, pipeline)
        try:
            found = await records_at(self._context, topic, self._query, None, bookmark)
        except BaseException:
            await view.reader.close(pipeline)
            raise
        records = {record.key: record for record in found}
        self._note(view, records)
        return view, records

    async def _open(self, reader: LogReader, pipeline: AnyPipeline) -> None:
        await reader.open(pipeline)
        if self._version_vector is not None:
            self._version_vector = VersionVector(self._context.origin)
            await self._version_vector.chart(self._context.instance, reader.spans(), reader.settled)

    def _taken(self, entries: list[Entry]) -> list[Entry]:
        return entries if self._version_vector is None else self._version_vector.take_in(entries)

    def _note(self, view: _View, records: dict[bytes, StoredRecord]) -> None:
        """Note the records in view from now on."""
        self._view = view
        if self._oof:
            self._known = {text: parse_id(record.id) for text, record in records.items()}

    def _reader(self, place: str) -> LogReader:
        after = "epoch" if parse_id(place) == FIRST else str(Bookmark.of(self.topic, self._context.origin, place))
        context = self._context
        return LogReader(
            context.instance,
            context.origin,
            self.topic,
            parse_bookmark_spec(after),
            holder=self._name,
            not_found="fail",
        )

    async def _roll_forward(
        self, view: _View, pipeline: AnyPipeline, records: dict[bytes, StoredRecord], place: Id, end: Id
    ) -> None:  # fmt: skip
        """Put what changed while the records were read into them."""
        while place < end:
            entries = await view.reader.read(pipeline, 0.0)
            for entry in self._taken(entries):
                place = parse_id(entry[1])
                change = self._change_of(view, entry)
                if change is None or (change.key in records and parse_id(records[change.key].id) >= place):
                    continue
                if change.record is not None and self._matches(view, change.record):
                    records[change.key] = change.record
                else:
                    records.pop(change.key, None)
            if not entries:
                # What came last was removed from the log by somebody else.
                return

    # -- changes

    def _change_of(self, view: _View, entry: Entry) -> LoggedChange | None:
        return change_of(view.topic, view.key, self._context, entry[1], entry[2])

    def _matches(self, view: _View, record: StoredRecord) -> bool:
        if self._query.filter is None:
            return True
        return self._query.filter.matches(self._context.document(record.message, view.topic.type))

    def _tell(self, view: _View, change: LoggedChange, entry: Entry) -> None:
        was_known = change.key in self._known
        if change.record is not None and self._matches(view, change.record):
            if self._oof:
                self._known[change.key] = parse_id(entry[1])
            self._add(change.key, entry[1], self._change(view, change.record, "publish"), was_known=was_known)
        elif self._known.pop(change.key, None) is not None:
            if change.record is not None:
                out = self._change(view, change.record, "oof", "match")
            else:
                reason: Reason = "expired" if change.how == "expired" else "deleted"
                out = self._gone(change.key, reason, entry)
            self._add(change.key, entry[1], out, was_known=True)

    def _add(self, key: bytes, stream_id: bytes, change: RecordChange, *, was_known: bool) -> None:
        if self._conflated is None:
            self._changes.append(change)
        else:
            self._conflated.put(key, stream_id, change, time.monotonic(), is_given=was_known)

    def _change(self, view: _View, record: StoredRecord, command: Command, reason: Reason = "") -> RecordChange:
        message = record_message(self._context, view.topic, record)
        return as_change(message, command, reason, type=view.topic.type)

    def _gone(self, record_key: bytes, reason: Reason, entry: Entry | None) -> RecordChange:
        bookmark = None
        if entry is not None:
            bookmark = bookmark_of(self.topic, self._context.origin, entry[1].decode(), source_in(entry[2]))
        return as_change(SowMessage(b"", self.topic, bookmark, {}, 0, key=_text(record_key)), "oof", reason)

    async def _look_anew(self, pipeline: AnyPipeline) -> None:
        """The log was trimmed behind the cursor: query once more, and tell the differences."""
        passed = self._view.reader.passed(self.topic) if self._view is not None else FIRST
        known, version_vector = self._known, self._version_vector
        view, records = await self._begin(pipeline)
        gone = [text for text in known if text not in records]
        left: list[StoredRecord] = (await read_records(self.topic, "", gone)) if gone else []
        others = {record.key: record for record in left}
        for text in gone:
            out = (
                self._change(view, others[text], "oof", "match")
                if text in others
                else self._gone(text, "deleted", None)
            )
            self._add(text, id_text(passed).encode(), out, was_known=True)
        news = [record for record in records.values() if not self._was_had(record, version_vector, passed)]
        for record in sorted(news, key=lambda each: parse_id(each.id)):
            self._add(
                record.key, record.id.encode(), self._change(view, record, "publish"), was_known=record.key in known
            )

    def _was_had(self, record: StoredRecord, version_vector: VersionVector | None, passed: Id) -> bool:
        """Return whether a record is as it was told, up to a place here or, where that says nothing, everywhere."""
        if version_vector is None:
            return parse_id(record.id) <= passed
        source = record.message.source or f"{recorded_by(self._context.origin, record.id)}~{record.id}"
        return version_vector.has_had(self.topic, source)

    # -- at another instance

    async def prepare_failover(self, context: InstanceContext, pipeline: AnyPipeline) -> Callable[[], None]:
        """Begin at another instance, behind what was had; gives what lets it go on there.

        Args:
            context: where the topic is there.
            pipeline: its own there.

        Raises:
            NoRecords: the topic has no key there.
        """
        topic: Topic | None = await read_topic(context.instance, self.topic)
        if topic is None or not topic.key:
            raise NoRecords(topic=self.topic)
        version_vector = self._version_vector or VersionVector(self._context.origin)
        found: StartPositions = await find_start_positions(
            context.instance, context.origin, version_vector.by_topic, self._context.instance
        )
        asked, kept = asked_at_next_instance(BookmarkSpec(), 0), StoredPosition(FIRST, found.places)
        reader = LogReader(
            context.instance, context.origin, self.topic, asked, holder=self._name, kept=kept, not_found="fail"
        )
        view: _View | None = _View(reader, topic, RecordKey(topic))
        try:
            await reader.open(pipeline)
        except BookmarkNotFound as error:
            _log.warning("%s; looking at its records anew", error)
            view = None

        def move() -> None:
            self._context, self._view = context, view
            version_vector.resume_at(context.origin, found.doubles)

        return move


def _text(record_key: bytes) -> str:
    return record_key.decode("utf-8", "surrogateescape")


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")
