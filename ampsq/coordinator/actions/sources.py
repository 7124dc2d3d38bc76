"""From the entries of a stream to numbered events: what each kind of source says, and which of it an action wants."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final, NamedTuple

from ampsq.base.bookmarks import parse_ref
from ampsq.catalog.action_sources import LINKED
from ampsq.coordinator.actions.event import ActionEvent, JournalFacts, always, dead_letter_body, iso_time
from ampsq.definitions.action_parts import On
from ampsq.expressions import Document, parse
from ampsq.expressions.unparse import show
from ampsq.protocol.calls.actions import SourcePosition
from ampsq.protocol.calls.links import LinkState
from ampsq.protocol.calls.records import is_end
from ampsq.protocol.entries import body_in, bookmark_of, headers_in, publisher_in, read_entry
from ampsq.protocol.reads.actions import read_source_position
from ampsq.protocol.reads.happenings import Happening, OverdueMatch
from ampsq.protocol.reads.journals import QueueEntry
from ampsq.protocol.reads.message_names import name_message
from ampsq.protocol.reads.streams import Stream, entries_behind, entries_between, find_entry, log_of
from ampsq.protocol.transitions import MessageEvent
from ampsq.queues.dead_letters import embedded
from ampsq.queues.returns import last_reason, read_returns

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ampsq.base.bookmarks import Bookmark
    from ampsq.catalog.action_sources import ActionSource
    from ampsq.definitions.action import Action
    from ampsq.definitions.action_parts import Trigger
    from ampsq.protocol.calls.catalog import Catalog
    from ampsq.protocol.entries import RawEntry
    from ampsq.transport.store import Store

__all__ = ["EventReader", "Slot", "SourceEntry", "place_of", "read_entries", "stream_of"]

#: Messages that are asked for before the first answer is read.
_TOGETHER: Final = 100
#: How a message leaves a queue, as its journal says it, and what follows that.
_LEAVING: Final = {
    "expire": (MessageEvent.EXPIRED,),
    "delete": (MessageEvent.ACKNOWLEDGED, MessageEvent.DELIVERED),
}


class SourceEntry(NamedTuple):
    """An entry of a stream: its ID, its own fields, and its source (`ampsq.protocol.entries.source_in`)."""

    id: str
    fields: dict[bytes, bytes]
    source: str


class _Draft(NamedTuple):
    """An event whose message is still to be read: where that is, and what is known beside it."""

    ref: str
    known: dict[str, bytes]
    facts: JournalFacts | None = None


class Slot(NamedTuple):
    """One step through a source: the event there, None where nothing is wanted, and the place behind it."""

    event: ActionEvent | None
    place: SourcePosition


def stream_of(action: str, source: ActionSource) -> Stream:
    """The stream that a source is read from."""
    return Stream(source.kind, action if source.kind == "overdue" else source.of)


def read_entries(store: Store, stream: Stream, cursor: str, count: int) -> list[SourceEntry]:
    """The entries behind a cursor; if a part of one is done, that one first."""
    whole, is_partly, _ = cursor.partition("+")
    if is_partly:
        found = store.call(entries_between(store.instance, stream, whole, "+", count))
    else:
        found = store.call(entries_behind(store.instance, stream, cursor, count))
    return [SourceEntry(stream_id.decode(), *read_entry(flat)) for stream_id, flat in found]


def place_of(store: Store, action: str, source: str) -> SourcePosition:
    """Return an action's position in a source; at the beginning of one that it has not seen yet."""
    return store.call(read_source_position(store.instance, action, source))


class EventReader:
    """Makes events of the entries of one source.

    Args:
        store: where the instance is.
        action: what wants them.
        source: what they are of.
        origin: the instance's.
        catalog: what is defined.
    """

    def __init__(self, store: Store, action: Action, source: ActionSource, origin: str, catalog: Catalog) -> None:
        self._store, self._action, self._source, self._origin = store, action, source, origin
        self._catalog = catalog

    def slots(self, entries: Sequence[SourceEntry], place: SourcePosition) -> Iterator[Slot]:
        """The events of entries, in order, with their numbers, about a hundred of them read at a time.

        Every event has its number, wanted or not: numbers must not depend on the definition, which another coordinator
        may know in an older form.
        """
        pending: list[tuple[_Draft | ActionEvent | None, SourcePosition]] = []
        for entry in entries:
            drafts = self._drafts(entry)
            partly, _, done = place.cursor.partition("+")
            first = int(done) if done and partly == entry.id else 0
            read = place.read + 1
            if not drafts:
                place = SourcePosition(entry.id, place.sequence, read)
                pending.append((None, place))
            for index in range(first, len(drafts)):
                last = index == len(drafts) - 1
                cursor = entry.id if last else f"{entry.id}+{index + 1}"
                place = SourcePosition(cursor, place.sequence + 1, read if last else place.read)
                pending.append((drafts[index], place))
                if len(pending) >= _TOGETHER:
                    yield from self._filled(pending)
                    pending = []
        yield from self._filled(pending)

    def _drafts(self, entry: SourceEntry) -> list[_Draft | ActionEvent | None]:
        """Draft the events of an entry: as many as there are, those that are wanted filled as far as they can be."""
        match self._source.kind:
            case "journal":
                return self._settled(entry)
            case "deliveries":
                return self._delivered(QueueEntry(entry.id, entry.fields))
            case "happenings":
                return [self._happened(Happening.of(entry.fields))]
            case "overdue":
                return [self._overdue(entry.fields)]
            case _:
                return [self._published(entry)]

    def _settled(self, entry: SourceEntry) -> list[_Draft | ActionEvent | None]:
        trigger, told = self._source.trigger, QueueEntry(entry.id, entry.fields)
        if told.how not in _LEAVING[trigger.word]:
            return []
        refs = [ref.decode() for ref in told.refs]
        if entry.source:
            # It left the queue at another instance, whose own actions follow that: else each would publish a letter.
            return [None] * len(refs)
        reason = told.reason
        if isinstance(trigger, On.expire):
            named = reason.split(",")
            if trigger.reason and not any(each in trigger.reason for each in named):
                return [None] * len(refs)
        attempts = told.attempts or ["1:0"] * len(refs)
        history = told.returns or ["-"] * len(refs)
        known = {"AMPS_TOPIC": self._source.of.encode()}
        said = told.consumer_reason
        if trigger.word == "delete":
            return [_Draft(ref, {**known, "AMPS_CONSUMER_REASON": said.encode()}) for ref in refs]
        drafts: list[_Draft | ActionEvent | None] = []
        for ref, count, came_back in zip(refs, attempts, history, strict=False):
            why = said or last_reason(read_returns(came_back))
            facts: JournalFacts = {
                "reason": reason,
                "consumer_reason": why,
                "attempts": count,
                "history": came_back,
            }
            drafts.append(
                _Draft(ref, {**known, "AMPS_REASON": reason.encode(), "AMPS_CONSUMER_REASON": why.encode()}, facts)
            )
        return drafts

    def _delivered(self, told: QueueEntry) -> list[_Draft | ActionEvent | None]:
        if told.cause:
            return []
        return [
            _Draft(
                ref.decode(),
                {"AMPS_TOPIC": self._source.of.encode(), "AMPS_CLIENT_NAME": b"" if who == "-" else who.encode()},
            )
            for ref, who in zip(told.refs, told.clients, strict=False)
        ]

    def _published(self, entry: SourceEntry) -> ActionEvent | None:
        stream_id, fields, source = entry
        if is_end(fields):
            return None
        trigger = self._source.trigger
        filter_ = getattr(trigger, "filter", None)
        if filter_ is not None:
            document = Document(
                body_in(fields), fields=fields, topic=self._source.of, stream_id=stream_id, origin=self._origin,
                source=source, instance=self._store.instance, message_type=self._catalog.message_type(self._source.of),
            )  # fmt: skip
            if not parse(filter_, "filter").matches(document):
                return None
        known = {
            "AMPS_TOPIC": self._source.of.encode(),
            "AMPS_TIMESTAMP": iso_time(stream_id.partition("-")[0]).encode(),
            "AMPS_CLIENT_NAME": publisher_in(fields),
        }
        return self._event(known, bookmark_of(self._source.of, self._origin, stream_id, source), fields)

    def _overdue(self, fields: Mapping[bytes, bytes]) -> ActionEvent | None:
        match = OverdueMatch.of(fields)
        if not any(isinstance(trigger, On.timeout) and trigger.topic == match.topic for trigger in self._action.on):
            return None
        known = {
            "AMPS_TOPIC": match.topic.encode(),
            "AMPS_TIMESTAMP": iso_time(match.since).encode(),
            "AMPS_SOW_KEY": match.key,
        }
        bookmark = self._store.run(name_message(match.topic, match.id))
        return self._event(known, bookmark, fields)

    def _happened(self, told: Happening) -> ActionEvent | None:
        trigger = self._source.trigger
        if told.what != trigger.word or not _concerns(trigger, told):
            return None
        if isinstance(trigger, LINKED):
            return ActionEvent(self._source.name, 0, {**always(self._store.instance), **_linked(told)})
        known = {**always(self._store.instance), "AMPS_CLIENT_NAME": told.client}
        if isinstance(trigger, On.subscribe | On.unsubscribe):
            known["AMPS_TOPIC"] = told.topic
            known["AMPS_OPTIONS"] = told.options
            known["AMPS_FILTER"] = show(json.loads(told.tree)).encode() if told.tree else b""
        elif isinstance(trigger, On.event):
            known["AMPS_EVENT"], known["AMPS_DATA"] = told.topic, told.data
        else:
            known["AMPS_CONNECTION_NAME"] = known["AMPS_CLIENT_NAME"]
            if isinstance(trigger, On.disconnect):
                # Of one that was too slow: the limit that it was beyond.
                known["AMPS_REASON"] = told.data
        return ActionEvent(self._source.name, 0, known)

    def _event(self, known: dict[str, bytes], bookmark: Bookmark, fields: Mapping[bytes, bytes]) -> ActionEvent:
        """An event about a message."""
        own, headers = body_in(fields), headers_in(fields)
        body = embedded(fields) if own is None else own
        variables = {
            **always(self._store.instance),
            **known,
            "AMPS_DATA": body,
            "AMPS_DATA_LENGTH": b"%d" % len(body),
            "AMPS_CORRELATION_ID": _correlation(headers),
            "AMPS_BOOKMARK": bookmark.encode(),
        }
        return ActionEvent(self._source.name, 0, variables, headers)

    def _filled(self, pending: list[tuple[_Draft | ActionEvent | None, SourcePosition]]) -> Iterator[Slot]:
        """Read the messages that are still to be read, many at a time, and number the events."""
        drafts = [item for item, _ in pending if isinstance(item, _Draft)]
        bodies = iter(self._messages([draft.ref for draft in drafts]))
        for item, place in pending:
            event = item if isinstance(item, ActionEvent) else None
            if isinstance(item, _Draft):
                topic, stream_id = parse_ref(item.ref)
                fields, source = next(bodies)
                event = self._event(item.known, bookmark_of(topic, self._origin, stream_id, source), fields)
                if item.facts is not None:
                    event.letter = dead_letter_body(
                        self._source.of, topic, event.variables["AMPS_BOOKMARK"], item.facts, fields
                    )
            if event is not None:
                event.number = place.sequence
            yield Slot(event, place)

    def _messages(self, refs: Sequence[str]) -> Iterator[tuple[dict[bytes, bytes], str]]:
        with self._store.pipeline() as pipeline:
            for ref in refs:
                topic, stream_id = parse_ref(ref)
                pipeline.post(find_entry(self._store.instance, log_of(topic), stream_id))
            while pipeline.open_calls:
                found: RawEntry | None = pipeline.collect()  # type: ignore[assignment]  # what was posted
                yield read_entry(found[1] if found else [])


def _linked(told: Happening) -> dict[str, bytes]:
    """Return the variables that tell of the link to a destination."""
    said = LinkState.parse(told.data)
    return {
        "AMPS_REPLICATION_TRANSPORT_NAME": told.topic,
        "AMPS_REPLICATION_PEER_NAME": said.instance.encode(),
        "AMPS_REPLICATION_CLIENT_NAME": said.run_by.encode(),
        "AMPS_REPLICATION_REMOTE_ADDRESS": said.address.encode(),
        "AMPS_REPLICATION_GROUP_NAME": said.group.encode(),
        "AMPS_REASON": said.reason.encode(),
    }


def _concerns(trigger: Trigger, told: Happening) -> bool:
    topic = told.topic.decode()
    if isinstance(trigger, On.event):
        return topic == trigger.event
    return trigger.about is None or any(trigger.follows(queue) for queue in told.queues) or topic == trigger.about


def _correlation(headers: bytes) -> bytes:
    """The header of that name, as CORRELATION_ID() reads it."""
    if not headers:
        return b""
    try:
        found = json.loads(headers).get("correlation_id", "")
    except (ValueError, AttributeError):
        return b""
    return found.encode("utf-8", "surrogateescape") if isinstance(found, str) else b""
