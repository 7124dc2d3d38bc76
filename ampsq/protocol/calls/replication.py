"""The calls of replication: what links read of a source and apply at a destination.

See `ampsq.protocol.calls.queues`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from ampsq.protocol.reads.streams import Stream
from ampsq.protocol.replies import names, texts
from ampsq.protocol.request import Call, command, script_call
from ampsq.protocol.schema import FIELDS, key

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from redis.typing import EncodableT

    from ampsq.protocol.replies import RawHash

__all__ = [
    "MARKED",
    "MARKS",
    "Applied",
    "AppliedJournal",
    "EntryRun",
    "JournalPage",
    "JournalRow",
    "Now",
    "OldestUnacknowledged",
    "ReceivedStream",
    "apply",
    "apply_journal",
    "begin_sending",
    "behind_since",
    "downgrade",
    "lacking_destinations",
    "read_journal",
    "read_received",
    "report_sent",
    "set_mark",
]


#: The stream of marks behind what is waited for: a link that has read one has read all before it.
MARKS: Final = Stream("marks")
#: Under which name `report_sent` takes the mark up to which a destination has everything.
MARKED: Final = FIELDS["marked"]
#: Milliseconds as scripts take them; "" for the server's time.
Now = int | str


class Applied(NamedTuple):
    """The result of `apply`.

    Attributes:
        recorded: entries that are here now.
        before: entries that were here before.
        doubled: how many of those under another bookmark, since their publisher sent them to two instances.
        waits: whether the rest waits for an earlier message of a publisher, which comes from elsewhere.
        goes_on: whether the rest is to be sent again at once: the next call goes on looking through the log for what
            its publisher sent to two instances.
    """

    recorded: int
    before: int
    doubled: int
    waits: bool
    goes_on: bool


class AppliedJournal(NamedTuple):
    """The outcome of `apply_journal`: how many messages changed, and how many are still to come."""

    changed: int
    missing: int


class OldestUnacknowledged(NamedTuple):
    """The time of the oldest message that a destination has not acknowledged, None where it has all; and now; in ms."""

    oldest: int | None
    now: int


class ReceivedStream(NamedTuple):
    """Up to which ID an instance has a stream of another one, and the digest of the filters that it passed."""

    id: str
    digest: str


@dataclass(frozen=True, slots=True)
class EntryRun:
    """Entries of one origin's log that came the same way and have the same fields.

    Attributes:
        topic: the topic.
        origin: where they were published.
        filter: the digest of the filters that they passed, ``-`` for none.
        path: the instances that they passed, the last one in front, as ``<origin>/<group>``.
        start: the ID of the origin behind which it begins.
        upto: the ID of the origin up to which this run is complete; at least that of its last entry.
        names: of the fields.
        entries: of each its ID there and its values.
    """

    topic: str
    origin: str
    filter: str
    path: str
    start: bytes
    upto: bytes
    names: Sequence[bytes] = ()
    entries: Sequence[tuple[bytes, Sequence[bytes]]] = ()

    def arguments(self) -> list[EncodableT]:
        """The run as `apply` takes it."""
        found: list[EncodableT] = [self.topic, self.origin, self.filter, self.path, self.start, self.upto]
        found += (len(self.entries), len(self.names), *self.names)
        for stream_id, values in self.entries:
            found.append(stream_id)
            found += values
        return found


@dataclass(frozen=True, slots=True)
class JournalRow:
    """One entry of a queue's journal as other instances take it: twelve texts and the bookmarks.

    Attributes:
        source: ``<origin>~<id>`` of who journaled it.
        path: the instances that it passed, the last one in front.
        texts: how; reason, and behind a space what a consumer said; by, attempts, returns, owner, epochs.
        bookmarks: of the messages.
        late: who passes it on was told before the messages came: it may stand behind later ones of its origin.
    """

    source: bytes
    path: bytes
    texts: Sequence[bytes]
    bookmarks: Sequence[bytes]
    late: bool = False

    @property
    def origin(self) -> str:
        """Origin of the instance that journaled it."""
        return self.source.partition(b"~")[0].decode()

    def arguments(self, path: str) -> Iterable[EncodableT]:
        """The row as `apply_journal` takes it; the path with the sender in front."""
        number = f"{len(self.bookmarks)}{' late' if self.late else ''}"
        head: list[EncodableT] = [self.source, path, *self.texts, number]
        yield from (*head, *self.bookmarks)


class JournalPage(NamedTuple):
    """A page of a queue's journal: where to go on (None: nothing was new), what is told, whether there is more."""

    after: str | None
    rows: list[JournalRow]
    is_more: bool


def apply(runs: Iterable[EntryRun], *, refill: bool = False, now: Now = "") -> Call[Applied]:
    """Record copies; at most 500 entries and a megabyte.

    Args:
        runs: in the order in which the source received them.
        refill: a filter was widened: what is at or below `received` may be missing.
        now: milliseconds; default the server's time.
    """
    arguments: list[EncodableT] = [now, int(refill)]
    for run in runs:
        arguments += run.arguments()
    return script_call(
        "apply_log",
        arguments,
        lambda reply: Applied(*reply[:3], *map(bool, reply[3:])),
        repeatable=True,
    )


def apply_journal(
    queue: str, starts: str, rows: Iterable[tuple[JournalRow, str]], *, now: Now = ""
) -> Call[AppliedJournal]:
    """Follow another instance's journal.

    Args:
        queue: the queue.
        starts: origins and the IDs behind which their rows begin, parted by spaces.
        rows: what is told, each with its path from here on.
        now: milliseconds; default the server's time.
    """
    arguments: list[EncodableT] = [now, queue, starts, *(value for row, path in rows for value in row.arguments(path))]
    return script_call(
        "apply_journal", arguments, lambda reply: AppliedJournal(int(reply[0]), int(reply[1])), repeatable=True
    )


def read_journal(queue: str, after: str, count: int) -> Call[JournalPage]:
    """Read a queue's journal on, its messages named by bookmarks; about `count` of them."""
    return script_call("read_journal", [queue, after, count], _page, repeatable=True)


def set_mark() -> Call[str]:
    """Set a mark behind everything that was recorded; "" where no destination is waited for."""
    return script_call("set_mark", [], bytes.decode, repeatable=True)


def lacking_destinations(after: str, wanted: Mapping[str, str]) -> Call[list[str]]:
    """Find the sync destinations that do not have everything up to a mark, or to places, yet.

    Args:
        after: the mark; "" without one.
        wanted: ``log <topic>`` and ``journal <queue>`` -> the ID that is waited for, "" where that is the mark's to
            say; destinations that do not carry any of them are left out. Empty: everything.
    """
    pairs = [text for pair in wanted.items() for text in pair]
    return script_call("find_lacking_destinations", [after, *pairs], names, repeatable=True)


def behind_since(destination: str, names: Iterable[str] = ()) -> Call[OldestUnacknowledged]:
    """Read since when a destination has not acknowledged the oldest message that it is sent.

    Args:
        destination: its name.
        names: ``log <topic>`` of what it is to be sent, also where no link has said so yet.
    """

    def read(reply: list[bytes | int]) -> OldestUnacknowledged:
        return OldestUnacknowledged(int(reply[0]) if reply[0] else None, int(reply[1]))

    return script_call("find_oldest_unacknowledged", ["", destination, *names], read, repeatable=True)


def downgrade(destination: str, *, enabled: bool) -> Call[bool]:
    """Wait for a sync destination no more, or again; says whether that changed something."""
    return script_call("downgrade", ["", destination, int(enabled)], bool, repeatable=True)


def report_sent(destination: str, places: Mapping[str, str]) -> Call[None]:
    """Note up to where a destination has what it is sent.

    Args:
        destination: its name.
        places: `MARKED` -> the mark up to which it has everything; ``log <topic>`` and the like -> ID.
    """
    arguments: list[EncodableT] = [destination, *(text for pair in places.items() for text in pair)]
    return script_call("report_sent", arguments, lambda _: None, repeatable=True)


def begin_sending(destination: str, peer: str, version: int, places: Mapping[str, str]) -> Call[None]:
    """Note who a destination is, and that it is sent just these streams.

    Args:
        destination: its name.
        peer: the origin of the instance there.
        version: of the catalog that says so.
        places: up to where it has each, as of `report_sent`.
    """
    return report_sent(destination, {FIELDS["peer"]: peer, FIELDS["catalog"]: str(version), **places})


def read_received(instance: str) -> Call[dict[str, ReceivedStream]]:
    """Read what an instance has of others, by ``<kind> <name>@<origin>``."""
    return command(["HGETALL", key(instance, "received")], _received)


def _received(reply: RawHash) -> dict[str, ReceivedStream]:
    found = {}
    for name, value in texts(reply).items():
        stream_id, _, digest = value.partition(" ")
        found[name] = ReceivedStream(stream_id, digest)
    return found


def _page(reply: tuple[bytes, list[list[bytes]], int]) -> JournalPage:
    rows = [JournalRow(row[0], row[1], tuple(row[2:9]), tuple(row[10:]), row[9].endswith(b"late")) for row in reply[1]]
    return JournalPage(reply[0].decode() or None, rows, bool(reply[2]))
