"""The typed calls of checking and rebuilding: arguments in, a `Call` out whose reply is read into plain values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from ampsq.protocol.replies import names
from ampsq.protocol.request import Call, command, script_call
from ampsq.protocol.schema import FIELDS, VALUES, key

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redis.typing import EncodableT

    from ampsq.protocol.entries import RawEntry

__all__ = [
    "NO_FILTER",
    "CountStep",
    "Counts",
    "Entries",
    "GroupPart",
    "IndexPart",
    "LeaseCount",
    "LivePart",
    "LogEnd",
    "LogPage",
    "LogPoint",
    "PausedQueue",
    "RebuildStep",
    "RecheckReply",
    "Room",
    "TimetablePart",
    "check_counts",
    "check_due",
    "check_groups",
    "check_index",
    "check_leased",
    "check_live",
    "check_log",
    "check_queue",
    "check_room",
    "correct_count",
    "correct_delayed",
    "correct_scheduled",
    "count",
    "drop_before_recovery_point",
    "index_names",
    "journal_page",
    "locate",
    "pause_queue",
    "rebuild",
    "rebuilt_keys",
    "recheck",
    "resume_queue",
]

#: The name of the index that has all messages of a queue that judges them.
NO_FILTER: Final = str(VALUES["none"])
#: Entries of a journal that one step reads: they have up to 500 refs each.
_JOURNAL_STEP: Final = 100


class CountStep(NamedTuple):
    """One step of counting a log's entries: where the next begins (None: nowhere), and how many were counted."""

    next: str | None
    number: int


class IndexPart(NamedTuple):
    """A part of a filter's index: where the next begins ("0": nowhere), strangers, and messages that are missing."""

    next: str
    strangers: int
    missing: int


class GroupPart(NamedTuple):
    """A part of a queue's groups: where the next begins ("0": nowhere), and what is wrong.

    Attributes:
        next: the cursor of the next part.
        counts: groups that count another number than there is.
        places: messages that stand wrongly among those of their group.
        is_cut: whether there is too much to count at once.
    """

    next: str
    counts: int
    places: int
    is_cut: bool


class LeaseCount(NamedTuple):
    """A subscription's number of leases by its own note, and by counting; -1 where there is no telling."""

    noted: int
    counted: int


class LogEnd(NamedTuple):
    """The end of a topic's log: the ID of the last entry, and how many were ever added."""

    last: str
    added: int


class PausedQueue(NamedTuple):
    """A queue at the beginning of its rebuild: whether it is a ring, and the end of each topic's log."""

    is_ring: bool
    ends: list[LogEnd]


class RebuildStep(NamedTuple):
    """One step of a rebuild.

    Attributes:
        done: how many messages; -1: the journal is to be read on first.
        kept_out: how many of them the queue's filter kept out.
    """

    done: int
    kept_out: int


class Entries(NamedTuple):
    """A page of a journal: its last ID (None where nothing came), and of each entry how it settled, and its refs."""

    last: str | None
    entries: list[tuple[bytes, list[bytes]]]

    @property
    def is_full(self) -> bool:
        """Return whether there may be more; what came since is not waited for, or a busy journal would have no end."""
        return len(self.entries) >= _JOURNAL_STEP


class LogPage(NamedTuple):
    """A page of a log: where the next begins (None: nowhere), refs, a letter for each; see lua/check/check_log.lua."""

    next: str | None
    refs: list[bytes]
    letters: str


@dataclass(frozen=True, slots=True)
class RecheckReply:
    """Verdicts on some messages: the journal's last ID and a word each; None: the journal has to be read on first."""

    last: str
    words: list[str] | None


class LivePart(NamedTuple):
    """A part of a structure: next cursor, leases of nobody, refs to verify, refs gone from the log, holders, bytes."""

    next: str
    unheld: int
    refs: list[bytes]
    gone: int
    holders: list[str]
    size: int


class TimetablePart(NamedTuple):
    """A part of the timetable: next cursor, bytes, strays, queue -> delayed and scheduled, (queue, ref) to verify."""

    next: str
    size: int
    strays: int
    counts: dict[str, tuple[int, int]]
    refs: list[tuple[str, bytes]]


class Counts(NamedTuple):
    """Numbers noted and counted of delayed and scheduled messages; counted is -1 where that takes several steps."""

    delayed: int
    delayed_counted: int
    scheduled: int
    scheduled_counted: int
    version: str


class Room(NamedTuple):
    """A part of a queue's subscriptions: next cursor, those that do not exist, wrong places, strangers, names."""

    next: str
    gone: int
    wrong: int
    strangers: int
    subscriptions: list[str]


class LogPoint(NamedTuple):
    """A point of a log: the last ID up to there, the last of all, entries ever added, entries there."""

    id: str
    last: str
    added: int
    length: int


def _claimed(claims: Sequence[tuple[bytes, int]]) -> list[EncodableT]:
    out: list[EncodableT] = []
    for pair in claims:
        out += pair
    return out


def _refs(text: bytes) -> list[bytes]:
    return text.split(b" ") if text else []


def journal_page(instance: str, queue: str, after: str) -> Call[Entries]:
    """Read a page of a queue's journal."""
    how, refs = FIELDS["how"].encode(), FIELDS["refs"].encode()

    def read(reply: list[RawEntry]) -> Entries:
        entries = []
        for _, flat in reply:
            fields = dict(zip(flat[::2], flat[1::2], strict=True))
            entries.append((fields[how], _refs(fields.get(refs, b""))))
        return Entries(reply[-1][0].decode() if reply else None, entries)

    journal = key(instance, "journal", queue)
    return command(["XRANGE", journal, f"({after}", "+", "COUNT", _JOURNAL_STEP], read)


def check_log(queue: str, topic: str, after: str, until: str) -> Call[LogPage]:
    """Look where the messages of one page of a log are in a queue."""
    return script_call(
        "check_log",
        [queue, topic, after, until],
        lambda reply: LogPage(reply[0].decode() or None, _refs(reply[1]), reply[2].decode()),
        repeatable=True,
    )


def recheck(queue: str, after: str, claims: Sequence[tuple[bytes, int]], *, repair: bool) -> Call[RecheckReply]:
    """Say what is wrong with messages, all in one moment; the answer may be about the first ones only, at least one.

    Args:
        queue: the queue.
        after: the journal's ID up to which the claims were read.
        claims: the messages.
        repair: mend what is found, one thing a message.
    """

    def read(reply: tuple[int, bytes, *tuple[bytes, ...]]) -> RecheckReply:
        words = None if reply[0] < 0 else [word.decode() for word in reply[2:]]
        return RecheckReply(reply[1].decode(), words)

    return script_call("repair" if repair else "verify", ["", queue, after, *_claimed(claims)], read, repeatable=True)


def check_live(queue: str, source: str, cursor: str, count: int, *, repair: bool) -> Call[LivePart]:
    """Look through a part, about `count`, of one of a queue's structures; see lua/check/check_structure.lua."""
    return script_call(
        "check_structure",
        ["", queue, source, cursor, count, int(repair)],
        lambda reply: LivePart(
            reply[0].decode(),
            reply[1],
            _refs(reply[2]),
            reply[3],
            [name.decode() for name in _refs(reply[4])],
            reply[5],
        ),
        repeatable=True,
    )


def check_due(cursor: str, count: int, *, repair: bool) -> Call[TimetablePart]:
    """Look through a part of the timetable, about `count` entries."""

    def read(reply: tuple[bytes, int, int, int, *tuple[bytes, ...]]) -> TimetablePart:
        following, strangers, missing, number, *rest = reply
        rows = [row.split(b" ") for row in rest[:number]]
        counts = {row[0].decode(): (int(row[1]), int(row[2])) for row in rows}
        refs = [(queue.decode(), ref) for queue, _, ref in (row.partition(b" ") for row in rest[number:])]
        return TimetablePart(following.decode(), strangers, missing, counts, refs)

    return script_call("check_timetable", [cursor, count, int(repair)], read, repeatable=True)


def check_counts(queue: str, *, repair: bool) -> Call[Counts]:
    """Compare a queue's numbers of delayed and scheduled messages with the timetable, if that is short."""
    return script_call(
        "check_delayed_counts",
        [queue, int(repair)],
        lambda reply: Counts(reply[1], reply[2], reply[3], reply[4], reply[5].decode()),
        repeatable=True,
    )


def check_leased(subscription: str, *, repair: bool) -> Call[LeaseCount]:
    """Compare the number of leases that a subscription has noted with what it has."""
    return script_call(
        "check_lease_count",
        [subscription, int(repair)],
        lambda reply: LeaseCount(int(reply[0]), int(reply[1])),
        repeatable=True,
    )


def check_room(queue: str, source: str, cursor: str, *, repair: bool) -> Call[Room]:
    """Look through a part of a queue's `members`, or of those that are free with a filter."""

    def read(reply: tuple[bytes, int, int, int, *tuple[bytes, ...]]) -> Room:
        return Room(reply[0].decode(), reply[1], reply[2], reply[3], names(reply[4:]))

    return script_call("check_free_subscriptions", [queue, source, cursor, int(repair)], read, repeatable=True)


def check_index(queue: str, name: str, source: str, cursor: str, *, repair: bool) -> Call[IndexPart]:
    """Look through a part of a filter's index, or of `all`."""
    return script_call(
        "check_filter_index",
        ["", queue, name, source, cursor, int(repair)],
        lambda reply: IndexPart(reply[0].decode(), int(reply[1]), int(reply[2])),
        repeatable=True,
    )


def check_groups(queue: str, source: str, cursor: str, *, repair: bool) -> Call[GroupPart]:
    """Look through a part of a queue's groups, or of what waits in them."""
    return script_call(
        "check_groups",
        ["", queue, source, cursor, int(repair)],
        lambda reply: GroupPart(reply[0].decode(), int(reply[1]), int(reply[2]), bool(reply[3])),
        repeatable=True,
    )


def check_queue(queue: str, topics: Sequence[str], *, repair: bool) -> Call[dict[str, int]]:
    """Look at what a queue needs as a whole, and at some of its topics: word -> how many."""
    return script_call(
        "check_queue",
        ["", queue, int(repair), *topics],
        lambda reply: {reply[i].decode(): int(reply[i + 1]) for i in range(0, len(reply), 2)},
        repeatable=True,
    )


def correct_delayed(instance: str, queue: str, difference: int) -> Call[None]:
    """Add to the number of delayed messages that a queue has noted."""
    return _add(instance, queue, FIELDS["delayed"], difference)


def correct_scheduled(instance: str, queue: str, difference: int) -> Call[None]:
    """Add to the number of scheduled messages that a queue has noted."""
    return _add(instance, queue, FIELDS["scheduled"], difference)


def _add(instance: str, queue: str, field: str, difference: int) -> Call[None]:
    return Call(None, ["HINCRBY", key(instance, "queue", queue), field, difference], lambda _: None)


def index_names(instance: str, queue: str) -> Call[list[str]]:
    """Read the names of the filters that a queue has an index for; none where it does not judge its messages."""
    return command(
        ["HGET", key(instance, "queue", queue), FIELDS["sorted"]], lambda reply: (reply or b"").decode().split()
    )


def correct_count(queue: str, topic: str, difference: int) -> Call[None]:
    """Add to the number of entries that a queue counts as read in a topic."""
    return script_call("correct_read_count", [queue, topic, difference], lambda _: None)


def drop_before_recovery_point(queue: str, refs: Sequence[bytes]) -> Call[int]:
    """Take messages before the recovery point out of a queue, unless they are leased; gives how many left."""
    return script_call("drop_before_start", [queue, *refs], int, repeatable=True)


def locate(topic: str, point: str) -> Call[LogPoint]:
    """Find a point of a topic's log: an ID, ``+`` or ``-``."""
    return script_call(
        "locate_in_log",
        [topic, point],
        lambda reply: LogPoint(reply[0].decode(), reply[1].decode(), int(reply[2]), int(reply[3])),
        repeatable=True,
    )


def count(topic: str, after: str, until: str) -> Call[CountStep]:
    """Count some entries of a log."""
    return script_call(
        "count_entries",
        [topic, after, until],
        lambda reply: CountStep(reply[0].decode() or None, int(reply[1])),
        repeatable=True,
    )


def rebuilt_keys(instance: str, queue: str) -> list[str]:
    """Name the keys of a queue that a rebuild makes of its journal and logs, for who loses them to measure that."""
    return [key(instance, name, queue) for name in ("cursors", "ahead", "ready", "leases", "attempts", "behind")]


def pause_queue(
    queue: str, owner: str, period: int, cursors: Sequence[tuple[str, str]], *, changed: bool
) -> Call[PausedQueue]:
    """Begin a rebuild."""
    topics = [f"{topic} {cursor}" for topic, cursor in cursors]
    return script_call(
        "begin_rebuild",
        ["", queue, owner, period, int(changed), *topics],
        lambda reply: PausedQueue(
            bool(reply[0]),
            [LogEnd(reply[i].decode(), int(reply[i + 1])) for i in range(1, len(reply), 2)],
        ),
        repeatable=True,
    )


def rebuild(  # noqa: PLR0917  (in the order of the script's head)
    queue: str, owner: str, period: int, after: str, boundary: str, claims: Sequence[tuple[bytes, int]]
) -> Call[RebuildStep]:
    """Rebuild a step."""
    return script_call(
        "rebuild",
        ["", queue, owner, period, after, boundary, *_claimed(claims)],
        lambda reply: RebuildStep(int(reply[0]), int(reply[2])),
        repeatable=True,
    )


def resume_queue(  # noqa: PLR0917  (in the order of the script's head)
    queue: str, owner: str, after: str, boundary: str, kept_out: int | None, cursors: Sequence[tuple[str, str]]
) -> Call[int]:
    """End a rebuild; 0: done, 1: call again, -1: read the journal on and call again."""
    topics = [f"{topic} {cursor}" for topic, cursor in cursors]
    number = "" if kept_out is None else kept_out
    return script_call("end_rebuild", ["", queue, owner, after, boundary, number, *topics], lambda reply: int(reply[0]))
