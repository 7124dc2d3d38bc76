"""The state of the world as it was: a topic's records at a message or a time, worked out from its log; all as flows."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from ampsq.base.bookmarks import Bookmark
from ampsq.base.errors import BookmarkNotFound, DefinitionError
from ampsq.base.log_positions import FIRST, id_text, parse_id, previous_id
from ampsq.base.values import shown
from ampsq.protocol.calls.records import catch_up_records, end_in, record_of
from ampsq.protocol.entries import is_message, times_in
from ampsq.protocol.limits import BATCH, BYTES
from ampsq.protocol.reads.message_names import find_bookmark
from ampsq.protocol.reads.streams import entries_behind, log_of, stream_exists, stream_facts
from ampsq.records.query import RecordKey, chosen, read_records

if TYPE_CHECKING:
    from ampsq.base.log_positions import Id
    from ampsq.definitions.queue import Topic
    from ampsq.definitions.stored import StoredTopic
    from ampsq.protocol.calls.records import StoredRecord
    from ampsq.protocol.context import InstanceContext
    from ampsq.queues.query import Query, QueryResult

__all__ = ["LogMoment", "LoggedChange", "change_of", "moment_of", "parse_moment", "records_at", "sow_history"]

_FIRST_READ: Final = 50
_LAST_SEQUENCE: Final = 2**64 - 1
#: Times that a log is read anew since some of it was trimmed meanwhile.
_READS: Final = 10


@dataclass(frozen=True, slots=True)
class LoggedChange:
    """The change that one entry of a topic's log makes to its records.

    Attributes:
        key: of which record.
        record: as it is then; None: it ended.
        how: how it ended, ``deleted`` or ``expired``; "" of a message.
    """

    key: bytes
    record: StoredRecord | None
    how: str


def change_of(
    topic: Topic | StoredTopic, key: RecordKey, context: InstanceContext, stream_id: bytes, flat: list[bytes]
) -> LoggedChange | None:
    """Return the change that an entry makes; None: it makes none, since it has no key or is for one queue alone."""
    record = record_of(topic.name, b"", stream_id, flat)
    if not is_message(flat):
        end = end_in(record.message.fields)
        return None if end is None else LoggedChange(end.key, None, end.how)
    text = key.of(context.document(record.message, topic.type))
    return None if text is None else LoggedChange(text, record_of(topic.name, text, stream_id, flat), "")


@dataclass(frozen=True, slots=True)
class LogMoment:
    """Up to where the log counts: the last ID, and the time, ms."""

    id: Id
    ms: int


async def moment_of(bookmark: object, context: InstanceContext) -> LogMoment:
    """Find the moment that a message's bookmark, whatever its topic, or a time says.

    Raises:
        DefinitionError: it is neither. BookmarkNotFound: the message is not here.
    """
    moment = parse_moment(bookmark)
    if isinstance(moment, LogMoment):
        return moment
    named = await find_bookmark(context.origin, moment)
    if not named.id:
        raise BookmarkNotFound(f"bookmark {str(moment)!r} is not here: {named.absence}")
    milliseconds, sequence = parse_id(named.id)
    return LogMoment((milliseconds, sequence), milliseconds)


def parse_moment(bookmark: object) -> LogMoment | Bookmark:
    """Read a message's bookmark or a time.

    Raises:
        DefinitionError: it is neither.
    """
    if isinstance(bookmark, str) and ("~" in bookmark or "|" in bookmark):
        return Bookmark.parse(bookmark)
    try:
        at = bookmark if isinstance(bookmark, datetime) else datetime.fromisoformat(str(bookmark))
    except ValueError:
        raise DefinitionError(
            f"bookmark={shown(bookmark)}: allowed is a bookmark of a message, or a time as in "
            "'2026-11-20T18:30:00Z' (without an offset it is UTC)"
        ) from None
    if isinstance(bookmark, datetime) and at.tzinfo is None:
        raise DefinitionError(f"bookmark={at.isoformat()} has no time zone; allowed: datetime.now(UTC), for one")
    # No log has an entry from before 1970: an earlier time means the beginning of the log.
    ms = max(round((at.replace(tzinfo=UTC) if at.tzinfo is None else at).timestamp() * 1000), 0)
    return LogMoment((ms, _LAST_SEQUENCE), ms)


@dataclass(slots=True)
class _State:
    """The records read so far, by key, and those of which the log says something up to the moment, and behind it."""

    records: dict[bytes, StoredRecord] = field(default_factory=dict)
    recorded: set[bytes] = field(default_factory=set)
    changed: set[bytes] = field(default_factory=set)


async def sow_history(
    context: InstanceContext, topic: Topic | StoredTopic, query: Query, named: list[bytes] | None, bookmark: object
) -> QueryResult:
    """Query a topic's records as they were; see `records_at`."""
    found = await records_at(context, topic, query, named, bookmark)
    return chosen(context, topic, query, found)


async def records_at(
    context: InstanceContext, topic: Topic | StoredTopic, query: Query, named: list[bytes] | None, bookmark: object
) -> list[StoredRecord]:
    """Find the records that match a query's filter, as they were.

    Where the log was trimmed, what is left of it and the records that did not change since must tell everything.

    Raises:
        BookmarkNotFound: they do not, or the message of the bookmark is not here.
    """
    moment = await moment_of(bookmark, context)
    for _ in range(_READS):
        horizon = await _horizon(context, topic.name)
        state = await _state_at(context, topic, moment, horizon)
        if (await _horizon(context, topic.name)) == horizon:
            break
    unknown = state.changed - state.recorded if horizon > FIRST else set[bytes]()
    if moment.id < horizon or unknown:
        text = f"its record of the key {min(unknown).decode(errors='replace')!r} changed since" if unknown else ""
        raise BookmarkNotFound(
            f"the log of the topic {topic.name!r} was trimmed, so that its records as of {bookmark!s} are not known "
            f"any more{': ' + text if text else ''}; allowed: a later bookmark, or a longer retention of the topic"
        )
    wanted = None if named is None else set(named)
    return [
        record
        for text, record in state.records.items()
        if (wanted is None or text in wanted)
        and not _is_over(topic, record, moment.ms)
        and (query.filter is None or query.filter.matches(context.document(record.message, topic.type)))
    ]


def _is_over(topic: Topic | StoredTopic, record: StoredRecord, ms: int) -> bool:
    times = times_in(record.message.fields)
    life, begins = times.expiration or int(topic.expiration or 0), times.due or int(record.id.partition("-")[0])
    return life > 0 and begins + life <= ms


async def _horizon(context: InstanceContext, topic: str) -> Id:
    """Up to where something of a log was removed; (0, 0): nothing was."""
    await catch_up_records(topic)
    if not (await stream_exists(context.instance, log_of(topic))):
        return FIRST
    facts = await stream_facts(context.instance, log_of(topic))
    if facts.added == facts.length:
        return FIRST
    if facts.first is None:
        return facts.last
    return max(previous_id(facts.first), facts.deleted)


async def _state_at(context: InstanceContext, topic: Topic | StoredTopic, moment: LogMoment, horizon: Id) -> _State:
    """Read the records that did not change since the log was trimmed, and those that the log has."""
    state = _State()
    if horizon > FIRST:
        for record in await read_records(topic.name, "", None):
            if parse_id(record.id) <= min(horizon, moment.id):
                state.records[record.key] = record
    after, count = id_text(horizon) if horizon > FIRST else "", _FIRST_READ
    record_key = RecordKey(topic)
    while True:
        entries = await entries_behind(context.instance, log_of(topic.name), after, count)
        for stream_id, flat in entries:
            change = change_of(topic, record_key, context, stream_id, flat)
            is_behind = parse_id(stream_id) > moment.id
            if is_behind and horizon == FIRST:
                return state
            if change is not None:
                _note(state, change, is_behind=is_behind)
        if len(entries) < count:
            return state
        after = entries[-1][0].decode()
        size = sum(len(text) for _, flat in entries for text in flat)
        count = max(1, min(BATCH, BYTES * len(entries) // max(size, 1)))


def _note(state: _State, change: LoggedChange, *, is_behind: bool) -> None:
    if is_behind:
        state.changed.add(change.key)
        return
    state.recorded.add(change.key)
    if change.record is None:
        state.records.pop(change.key, None)
    else:
        state.records[change.key] = change.record
