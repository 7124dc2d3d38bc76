"""Selection of what a destination is sent of everything that is defined: topics and queues."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from ampsq.base.bookmarks import Origin
from ampsq.base.log_positions import parse_id
from ampsq.catalog.sent_streams import sent_queue, sent_topic
from ampsq.definitions.queue import GroupLocalQueue, Queue
from ampsq.protocol.calls.replication import EntryRun
from ampsq.protocol.entries import deletes_record, may_have_source, read_same_entry, source_in
from ampsq.protocol.reads.origin import name_of
from ampsq.topics.message import document_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from ampsq.base.log_positions import Id
    from ampsq.base.message_types import MessageType
    from ampsq.definitions.destination import Destination, ReplicatedTopic
    from ampsq.expressions import Expression
    from ampsq.protocol.calls.catalog import Catalog
    from ampsq.protocol.entries import RawEntry


__all__ = [
    "EntrySelector",
    "LinkSelection",
    "Peer",
    "SourceEntryCopy",
    "chain",
    "published_runs",
    "runs_of",
    "same_queue",
    "select",
    "split_entry",
    "split_same_entry",
]


class LinkSelection(NamedTuple):
    """Names, each with what the destination says of it.

    Attributes:
        topics: those whose messages are sent; also what is named and not there yet.
        queues: those whose journals are sent.
    """

    topics: dict[str, ReplicatedTopic]
    queues: dict[str, ReplicatedTopic]


def select(mine: Catalog, theirs: Catalog, destination: Destination) -> LinkSelection:
    """Choose what a link carries.

    Left out are views, which every instance makes for itself, local queues, and, where a regular expression matches it,
    a group local queue of whose name the other side has one of another domain.

    Args:
        mine: what is defined at the source.
        theirs: what is defined at the other side.
        destination: one of the source's.
    """
    topics: dict[str, ReplicatedTopic] = {}
    named = [topic.name for topic in destination.topics if not topic.is_pattern]
    unknown = [name for name in named if name not in mine.queues]
    for name in dict.fromkeys((*mine.topics, *unknown)):
        chosen = sent_topic(destination, mine, name)
        if chosen is None and name not in mine.topics and name not in mine.views:
            # What is not there has no type yet.
            chosen = next(topic for topic in destination.topics if topic.name == name)
        if chosen is not None:
            topics[name] = chosen
    queues: dict[str, ReplicatedTopic] = {}
    for name, text in mine.queues.items():
        queue = Queue.from_json(text)
        chosen = sent_queue(destination, queue)
        if chosen is None:
            continue
        if not chosen.is_pattern or not _is_of_another_domain(queue, mine, theirs):
            queues[name] = chosen
    return LinkSelection(topics, queues)


def same_queue(queue: Queue, mine: Catalog, other: Queue, theirs: Catalog) -> bool:
    """Say whether two queues of one name are the same: of one kind, and of one domain."""
    return type(queue) is type(other) and queue.domain(mine.group) == other.domain(theirs.group)


def _is_of_another_domain(queue: Queue, mine: Catalog, theirs: Catalog) -> bool:
    text = theirs.queues.get(queue.name)
    if text is None or not isinstance(queue, GroupLocalQueue):
        return False
    other = Queue.from_json(text)
    return isinstance(other, GroupLocalQueue) and not same_queue(queue, mine, other, theirs)


#: Of a stream under no filter.
NO_FILTER = "-"


class Peer(NamedTuple):
    """An instance as links know it: its name, its origin (name and incarnation), its group, its former origins."""

    name: str
    origin: str
    group: str
    former: tuple[tuple[Id, str], ...] = ()

    def origin_at(self, stream_id: Id) -> str:
        """Return the origin that recorded an entry of its own."""
        return Origin(self.origin, self.former).at(stream_id) if self.former else self.origin

    def was(self, origin: str) -> bool:
        """Return whether an origin is a former incarnation of it."""
        return origin != self.origin and name_of(origin) == name_of(self.origin)

    @property
    def hop(self) -> str:
        """Name of the instance in a path: with its incarnation, so that one that was emptied gets back what it had."""
        return f"{self.origin}/{self.group}"


class SourceEntryCopy(NamedTuple):
    """An entry of the source's log.

    Attributes:
        topic: its topic.
        here: its ID in the source's log, as two numbers.
        origin: where it was published.
        id: its ID there.
        path: the instances that it passed before the source, each as ``<origin>/<group>``; "" of what was published
            there.
        names: of its own fields.
        values: of these.
        is_same: it tells that the message came under this bookmark, too, and is in the log under another one.
    """

    topic: str
    here: tuple[int, int]
    origin: str
    id: bytes
    path: str
    names: tuple[bytes, ...]
    values: Sequence[bytes]
    is_same: bool = False


def chain(former: str, expression: str) -> str:
    """The digest of the filters on the way: those before, and one more (its text, "" for none)."""
    if not expression:
        return former
    return hashlib.sha1(f"{former}\n{expression}".encode()).hexdigest()[:12]  # noqa: S324  (no secret: a name)


def split_entry(topic: str, stream_id: bytes, flat: Sequence[bytes], source: Peer) -> SourceEntryCopy:
    """Take an entry of the source's log apart."""
    milliseconds, _, sequence = stream_id.partition(b"-")
    here = int(milliseconds), int(sequence)
    if source_in(flat):
        origin, _, there = flat[-3].partition(b"~")
        return SourceEntryCopy(topic, here, origin.decode(), there, flat[-1].decode(), tuple(flat[:-4:2]), flat[1:-4:2])
    return SourceEntryCopy(topic, here, source.origin_at(here), stream_id, "", tuple(flat[::2]), flat[1::2])


def split_same_entry(topic: str, stream_id: bytes, flat: Sequence[bytes]) -> SourceEntryCopy:
    """Take apart what tells that a message came under another bookmark, too; its value is the ID of the log's entry."""
    here, same = parse_id(stream_id.decode()), read_same_entry(flat)
    return SourceEntryCopy(topic, here, same.origin, same.id, same.path, (), [same.here.encode()], is_same=True)


@dataclass(frozen=True, slots=True)
class EntrySelector:
    """The rule by which entries pass.

    Attributes:
        source: whose log it is.
        destination: where they go.
        passes_group: of a group whether what came directly from it is passed on.
        filters: topic -> its content filter.
        type_of: a topic's message type.
    """

    source: Peer
    destination: Peer
    passes_group: Callable[[str], bool]
    filters: dict[str, Expression]
    type_of: Callable[[str], MessageType]

    def is_routed(self, origin: str, path: str) -> bool:
        """Return whether a message, or a journal's entry, may take this link (seeds, *Replication Message Routing*).

        That is what was published at the source, and what is passed on; never back to where it was, and always back
        to where it was before that began a new incarnation.
        """
        if origin == self.destination.origin:
            return False
        if not path:
            return True
        hops = [hop.partition("/") for hop in path.split(" ")]
        if any(passed == self.destination.origin for passed, _, _ in hops):
            return False
        was_there = self.destination.was(origin) or any(self.destination.was(passed) for passed, _, _ in hops)
        return was_there or self.passes_group(hops[0][2])

    def passes(self, entry: SourceEntryCopy) -> bool:
        """Return whether its content passes the topic's filter.

        A deletion of a record has no content and always does: else a record that was sent would stay there for good.
        """
        if not entry.names:
            return False
        expression = self.filters.get(entry.topic)
        if expression is None or deletes_record(dict(zip(entry.names, entry.values, strict=True))):
            return True
        flat = [text for pair in zip(entry.names, entry.values, strict=True) for text in pair]
        row = (entry.topic, entry.id, flat)
        return expression.matches(document_of(row, entry.origin, self.source.name, self.type_of(entry.topic)))

    def path_of(self, path: str) -> str:
        """The path from here on: the source in front."""
        return f"{self.source.hop} {path}" if path else self.source.hop


def published_runs(
    carried: EntrySelector, topic: str, rows: Sequence[RawEntry], digest_of: Callable[[str, str], str]
) -> list[EntryRun] | None:
    """Entries of one of the source's logs that were all published there, as `runs_of` gives them.

    Nothing is made of each entry but its place in the run: a link spends most of its time on these.

    Args:
        carried: which pass.
        topic: the log's.
        rows: the entries, at least one.
        digest_of: as of `runs_of`.

    Returns:
        The runs; None: an entry came from elsewhere, or each is to be looked at.
    """
    source = carried.source
    if source.former or topic in carried.filters or not carried.is_routed(source.origin, ""):
        return None
    digest, path = digest_of(topic, source.origin), carried.path_of("")
    runs: list[EntryRun] = []
    names: Sequence[bytes] = ()
    entries: list[tuple[bytes, Sequence[bytes]]] = []
    for stream_id, flat in rows:
        if flat[::2] != names:
            if entries:
                runs.append(EntryRun(topic, source.origin, digest, path, b"0-0", entries[-1][0], tuple(names), entries))
            names, entries = flat[::2], []
            if not names or may_have_source(names):
                return None
        entries.append((stream_id, flat[1::2]))
    runs.append(EntryRun(topic, source.origin, digest, path, b"0-0", entries[-1][0], tuple(names), entries))
    return runs


def runs_of(
    carried: EntrySelector, entries: Iterable[SourceEntryCopy], digest_of: Callable[[str, str], str]
) -> list[EntryRun]:
    """Entries of the source's logs, in its order, as `apply` takes them.

    Where each begins, whoever sends them says. What does not pass its filter only raises how far a run is complete;
    what is not routed here leaves no trace.

    Args:
        carried: which pass.
        entries: in the order of the source.
        digest_of: of a topic and an origin the digest of the filters up to the destination.
    """
    runs: list[EntryRun] = []
    form: tuple[str, str, str, tuple[bytes, ...]] | None = None
    # Neighbours mostly came the same way.
    way: tuple[str, str, str] | None = None
    is_routed = is_filtered = False
    rows: list[tuple[bytes, Sequence[bytes]]] = []
    upto = b""

    def close() -> None:
        if form is not None:
            topic, origin, path, names = form
            digest = digest_of(topic, origin)
            runs.append(EntryRun(topic, origin, digest, carried.path_of(path), b"0-0", upto, names, tuple(rows)))

    for entry in entries:
        topic, _, origin, _, path, names, values, _ = entry
        if way != (topic, origin, path):
            way = topic, origin, path
            # What the destination itself published it gets back whole: else nobody could deliver it.
            is_routed, is_own = carried.is_routed(origin, path), carried.destination.was(origin)
            is_filtered = topic in carried.filters and not is_own
        if not is_routed:
            continue
        # Without fields it only says up to where all is there.
        is_wanted = bool(names) and (not is_filtered or carried.passes(entry))
        if form is None or form[:3] != way or (is_wanted and form[3] != names and rows):
            close()
            form, rows = (*way, names), []
        elif is_wanted and not rows:
            form = (*way, names)
        upto = entry.id
        if is_wanted:
            rows.append((upto, values))
    close()
    return runs
