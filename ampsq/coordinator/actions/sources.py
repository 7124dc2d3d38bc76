"""From the entries of a stream to numbered events: what each kind of source says, and which of it an action wants."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final, NamedTuple

from ampsq.base.bookmarks import parse_ref
from ampsq.catalog.action_sources import LINKED
from ampsq.coordinator.actions.event import ActionEvent, always, dead_letter_body, iso_time
from ampsq.definitions.action_parts import On
from ampsq.expressions import Document, parse
from ampsq.expressions.unparse import show
from ampsq.protocol.calls.actions import SourcePosition
from ampsq.protocol.calls.records import is_end
from ampsq.protocol.entries import bookmark_of, read_entry
from ampsq.protocol.reads.actions import read_source_position
from ampsq.protocol.reads.logs import read_log_entry
from ampsq.protocol.reads.message_names import name_message
from ampsq.protocol.reads.streams import Stream, entries_behind, entries_between
from ampsq.protocol.schema import FIELDS
from ampsq.queues.dead_letters import embedded
from ampsq.queues.returns import last_reason, read_returns

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ampsq.base.bookmarks import Bookmark
    from ampsq.catalog.action_sources import ActionSource
    from ampsq.definitions.action import Action
    from ampsq.definitions.action_parts import Trigger
    from ampsq.protocol.calls.queues import Catalog
    from ampsq.protocol.entries import RawEntry
    from ampsq.transport.runner import Store

__all__ = ["EventReader", "Slot", "SourceEntry", "place_of", "read_entries", "stream_of"]

_BODY: Final = FIELDS["body"].encode()
_HEADERS: Final = FIELDS["headers"].encode()
_PUBLISHER: Final = FIELDS["publisher"].encode()
#: Messages that are asked for before the first answer is read.
_TOGETHER: Final = 100
#: How a message leaves a queue, as its journal says it, and what follows that.
_LEAVING: Final = {"expire": (b"expired",), "delete": (b"acknowledged", b"delivered")}


class SourceEntry(NamedTuple):
    """An entry of a stream: its ID, its own fields, and its source (`ampsq.protocol.entries.source_in`)."""

    id: str
    fields: dict[bytes, bytes]
    source: str


class _Draft(NamedTuple):
    """An event whose message is still to be read: where that is, and what is known beside it."""

    ref: str
    known: dict[str, bytes]
    facts: dict[str, object] | None = None


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
    """Where an action is in a source; at the beginning of one that it has not seen yet."""
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
        """What an entry has: as many as there are events, those that are wanted filled as far as they can be."""
        match self._source.kind:
            case "journal":
                return self._settled(entry)
            case "deliveries":
                return self._delivered(entry.fields)
            case "happenings":
                return [self._happened(entry.fields)]
            case "overdue":
                return [self._overdue(entry.fields)]
            case _:
                return [self._published(entry)]

    def _settled(self, entry: SourceEntry) -> list[_Draft | ActionEvent | None]:
        trigger, fields = self._source.trigger, entry.fields
        if fields.get(b"how") not in _LEAVING[trigger.word]:
            return []
        refs = fields[b"refs"].decode().split()
        if entry.source:
            # It left the queue at another instance, whose own actions follow that: else each would publish a letter.
            return [None] * len(refs)
        reason = fields.get(b"reason", b"")
        if isinstance(trigger, On.expire):
            named = reason.decode().split(",")
            if trigger.reason and not any(each in trigger.reason for each in named):
                return [None] * len(refs)
        attempts = fields.get(b"attempts", b"").decode().split() or ["1:0"] * len(refs)
        history = fields.get(b"history", b"").decode(errors="replace").split() or ["-"] * len(refs)
        known = {"AMPS_TOPIC": self._source.of.encode()}
        said = fields.get(b"consumer_reason", b"")
        if trigger.word == "delete":
            return [_Draft(ref, {**known, "AMPS_CONSUMER_REASON": said}) for ref in refs]
        drafts: list[_Draft | ActionEvent | None] = []
        for ref, count, came_back in zip(refs, attempts, history, strict=False):
            why = said.decode(errors="replace") or last_reason(read_returns(came_back))
            facts: dict[str, object] = {
                "reason": reason.decode(),
                "consumer_reason": why,
                "attempts": count,
                "history": came_back,
            }
            drafts.append(_Draft(ref, {**known, "AMPS_REASON": reason, "AMPS_CONSUMER_REASON": why.encode()}, facts))
        return drafts

    def _delivered(self, fields: Mapping[bytes, bytes]) -> list[_Draft | ActionEvent | None]:
        if fields.get(b"cause"):
            return []
        clients = fields[b"client"].decode(errors="replace").split()
        return [
            _Draft(
                ref, {"AMPS_TOPIC": self._source.of.encode(), "AMPS_CLIENT_NAME": b"" if who == "-" else who.encode()}
            )
            for ref, who in zip(fields[b"refs"].decode().split(), clients, strict=False)
        ]

    def _published(self, entry: SourceEntry) -> ActionEvent | None:
        stream_id, fields, source = entry
        if is_end(fields):
            return None
        trigger = self._source.trigger
        filter_ = getattr(trigger, "filter", None)
        if filter_ is not None:
            document = Document(
                fields.get(_BODY), fields=fields, topic=self._source.of, stream_id=stream_id, origin=self._origin,
                source=source, instance=self._store.instance, message_type=self._catalog.message_type(self._source.of),
            )  # fmt: skip
            if not parse(filter_, "filter").matches(document):
                return None
        known = {
            "AMPS_TOPIC": self._source.of.encode(),
            "AMPS_TIMESTAMP": iso_time(stream_id.partition("-")[0]).encode(),
            "AMPS_CLIENT_NAME": fields.get(_PUBLISHER, b"") if _BODY in fields else b"",
        }
        return self._event(known, bookmark_of(self._source.of, self._origin, stream_id, source), fields)

    def _overdue(self, fields: Mapping[bytes, bytes]) -> ActionEvent | None:
        topic = fields[b"topic"].decode()
        if not any(isinstance(trigger, On.timeout) and trigger.topic == topic for trigger in self._action.on):
            return None
        known = {
            "AMPS_TOPIC": fields[b"topic"],
            "AMPS_TIMESTAMP": iso_time(fields[b"since"].decode()).encode(),
            "AMPS_SOW_KEY": fields[b"key"],
        }
        bookmark = self._store.run(name_message(topic, fields[b"id"].decode()))
        return self._event(known, bookmark, fields)

    def _happened(self, fields: Mapping[bytes, bytes]) -> ActionEvent | None:
        trigger = self._source.trigger
        if fields[b"what"].decode() != trigger.word or not _concerns(trigger, fields):
            return None
        if isinstance(trigger, LINKED):
            return ActionEvent(self._source.name, 0, {**always(self._store.instance), **_linked(fields)})
        known = {**always(self._store.instance), "AMPS_CLIENT_NAME": fields.get(b"client", b"")}
        if isinstance(trigger, On.subscribe | On.unsubscribe):
            tree = fields.get(b"tree", b"")
            known["AMPS_TOPIC"] = fields[b"topic"]
            known["AMPS_OPTIONS"] = fields[b"options"]
            known["AMPS_FILTER"] = show(json.loads(tree)).encode() if tree else b""
        elif isinstance(trigger, On.event):
            known["AMPS_EVENT"], known["AMPS_DATA"] = fields[b"topic"], fields[b"data"]
        else:
            known["AMPS_CONNECTION_NAME"] = known["AMPS_CLIENT_NAME"]
            if isinstance(trigger, On.disconnect):
                # Of one that was too slow: the limit that it was beyond.
                known["AMPS_REASON"] = fields.get(b"data", b"")
        return ActionEvent(self._source.name, 0, known)

    def _event(self, known: dict[str, bytes], bookmark: Bookmark, fields: Mapping[bytes, bytes]) -> ActionEvent:
        """An event about a message."""
        body = embedded(fields) if _BODY not in fields else fields[_BODY]
        headers = fields.get(_HEADERS, b"") if _BODY in fields else b""
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
                pipeline.post(read_log_entry(self._store.instance, topic, stream_id))
            while pipeline.open_calls:
                found: RawEntry | None = pipeline.collect()
                yield read_entry(found[1] if found else [])


def _linked(fields: Mapping[bytes, bytes]) -> dict[str, bytes]:
    """What is known of the link to a destination."""
    said = json.loads(fields[b"data"])
    return {
        "AMPS_REPLICATION_TRANSPORT_NAME": fields[b"topic"],
        "AMPS_REPLICATION_PEER_NAME": said.get("instance", "").encode(),
        "AMPS_REPLICATION_CLIENT_NAME": said.get("run_by", "").encode(),
        "AMPS_REPLICATION_REMOTE_ADDRESS": said.get("address", "").encode(),
        "AMPS_REPLICATION_GROUP_NAME": said.get("group", "").encode(),
        "AMPS_REASON": said.get("reason", "").encode(),
    }


def _concerns(trigger: Trigger, fields: Mapping[bytes, bytes]) -> bool:
    if isinstance(trigger, On.event):
        return fields[b"topic"].decode() == trigger.event
    if trigger.about is None:
        return True
    queues = fields.get(b"queues", b"").decode().split()
    return any(trigger.follows(queue) for queue in queues) or fields[b"topic"].decode() == trigger.about


def _correlation(headers: bytes) -> bytes:
    """The header of that name, as CORRELATION_ID() reads it."""
    if not headers:
        return b""
    try:
        found = json.loads(headers).get("correlation_id", "")
    except (ValueError, AttributeError):
        return b""
    return found.encode("utf-8", "surrogateescape") if isinstance(found, str) else b""
