"""The calls of trimming: how much logs have, what is removed from logs and journals, and for whom something stays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple, Self

from ampsq.protocol.request import command, script_call
from ampsq.protocol.schema import FIELDS, key

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from redis.typing import EncodableT

    from ampsq.protocol.request import Call

__all__ = [
    "LOG_START",
    "DiscardStep",
    "JournalTrimStep",
    "LogFigures",
    "Pin",
    "RememberedWalk",
    "RetentionLimits",
    "StreamFollower",
    "TrimStep",
    "discard_unsettled",
    "forget_publishers",
    "hold",
    "measure_logs",
    "pin",
    "read_remembered_walk",
    "trim_journal",
    "trim_log",
]

#: Where a walk from a stream's beginning starts.
LOG_START: Final = "0-0"


@dataclass(frozen=True, slots=True)
class RetentionLimits:
    """Limits of a log: an age (ms), a size (bytes), a number of messages; None: no limit."""

    age: int | None = None
    size: int | None = None
    count: int | None = None

    @property
    def arguments(self) -> list[EncodableT]:
        """`age`, `size`, `count` of the scripts' heads."""
        return ["" if limit is None else int(limit) for limit in (self.age, self.size, self.count)]


class StreamFollower(NamedTuple):
    """A follower that comes to a stream later, and needs it until then.

    Attributes:
        kind: of the stream: ``log``, ``journal`` or ``deliveries``.
        of: whose it is: a topic or a queue.
        who: ``action <name>`` or ``destination <name>``.
        place: the field of its place there.
        hows: of a journal, the words that it wants; "" for all.
    """

    kind: str
    of: str
    who: str
    place: str
    hows: str

    @classmethod
    def action(cls, kind: str, of: str, name: str, source: str, hows: str = "") -> Self:
        """An action that reads a stream as a source."""
        return cls(kind, of, f"action {name}", f"{FIELDS['cursor']} {source}", hows)

    @classmethod
    def destination(cls, kind: str, of: str, name: str) -> Self:
        """A destination that is sent a stream."""
        return cls(kind, of, f"destination {name}", f"{kind} {of}", "")


@dataclass(frozen=True, slots=True)
class Pin:
    """The first message that would be removed, if nobody needed it.

    Attributes:
        id: its entry in the log.
        by: who needs it: a kind (``queue``, ``action``, ``replay``, ``destination``, ``records``) and a name.
        state: what it is there, a word of `ampsq.protocol.transitions.MessageState`, or ``barrier``: sent, and not yet
            forgotten; "" of others than queues.
    """

    id: str
    by: str
    state: str

    @classmethod
    def parse(cls, stream_id: str, who: str) -> Pin | None:
        """Read what the scripts say; None of nothing."""
        if not stream_id:
            return None
        kind, name, *state = who.split(" ")
        return cls(stream_id, f"{kind} {name}", state[0] if state else "")


@dataclass(frozen=True, slots=True)
class TrimStep:
    """The outcome of one step of a walk over a log: where the next begins (None: nowhere), and what was found.

    Attributes:
        next: an ID.
        kept: entries left standing from the walk's beginning to here.
        given_up: entries of this step that are beyond the retention.
        removed: those of them that nobody needed.
        pin: the first one that somebody needs.
    """

    next: str | None
    kept: int
    given_up: int
    removed: int
    pin: Pin | None


class JournalTrimStep(NamedTuple):
    """One step of a walk over a journal: where the next begins (None: nowhere), and how many entries were removed."""

    next: str | None
    removed: int


class RememberedWalk(NamedTuple):
    """The walk that an instance remembers: how many messages it left standing, and the first of them."""

    kept: int
    pin: Pin


class DiscardStep(NamedTuple):
    """The outcome of one step of a walk that lets queues lose messages.

    Attributes:
        next: where the next step begins; None: nowhere.
        passed: entries from the log's head up to there.
        lost: how many messages queues lost.
    """

    next: str | None
    passed: int
    lost: int


def trim_log(  # noqa: PLR0917  (in the order of the script's head)
    version: int,
    topic: str,
    limits: RetentionLimits,
    after: str,
    passed: int,
    readers: Iterable[StreamFollower],
    *,
    dry_run: bool,
) -> Call[TrimStep]:
    """Remove what is beyond limits and nobody needs, a bounded part of it.

    Args:
        version: of the catalog; refused with `CatalogChanged` when it is another one.
        topic: the topic.
        limits: what is given up.
        after: an ID to go on from, "" for the walk that the instance remembers.
        passed: entries from the log's head up to `after`.
        readers: who reads the log later, and the journals of the queues that it feeds.
        dry_run: only count.
    """
    arguments = ["", version, topic, *limits.arguments, after, passed, int(bool(dry_run)), *_flat(readers)]
    return script_call("trim_log", arguments, _trim_step, repeatable=not after)


def _flat(readers: Iterable[StreamFollower]) -> list[EncodableT]:
    return [text for reader in readers for text in reader]


def _trim_step(reply: tuple[bytes, int, int, int, bytes, bytes]) -> TrimStep:
    place, kept, given_up, removed, stream_id, who = reply
    return TrimStep(place.decode() or None, kept, given_up, removed, Pin.parse(stream_id.decode(), who.decode()))


def trim_journal(queue: str, after: str, readers: Iterable[StreamFollower]) -> Call[JournalTrimStep]:
    """Remove what a journal tells of messages that no log has any more, a part of it."""
    return script_call(
        "trim_journal",
        ["", queue, after, *_flat(readers)],
        lambda reply: JournalTrimStep(reply[0].decode() or None, reply[1]),
        repeatable=not after,
    )


def discard_unsettled(version: int, topic: str, limits: RetentionLimits, after: str, passed: int) -> Call[DiscardStep]:
    """Let queues lose what is beyond limits, a part of it.

    Args:
        version: of the catalog; refused with `CatalogChanged` when it is another one.
        topic: the topic.
        limits: what is given up.
        after: an ID to go on from.
        passed: entries from the log's head up to there.
    """
    return script_call(
        "discard_unsettled",
        ["", version, topic, *limits.arguments, after, passed],
        lambda reply: DiscardStep(reply[0].decode() or None, reply[1], reply[2]),
    )


def hold(topic: str, holder: str, stream_id: str | None, period: int = 0) -> Call[None]:
    """Keep a topic's log from an ID on, for `period` ms (0: until told otherwise); None ends that.

    `holder` is a kind and a name: ``replay <name>``, ``destination <name>``, ``action <name>``.
    """
    return script_call("hold_log", ["", topic, holder, stream_id or "", period], lambda _: None, repeatable=True)


def pin(topic: str, holder: str, stream_ids: Sequence[str], *, wanted: bool = True) -> Call[None]:
    """Keep single messages of a topic's log for somebody who comes back to them, or let them go."""
    return script_call("pin_messages", [topic, holder, int(wanted), *stream_ids], lambda _: None, repeatable=True)


def forget_publishers(cursor: str) -> Call[str]:
    """Let go of publishers that were not heard of for `limits.PUBLISHER_AGE`; gives the next cursor, "0" at the end."""
    return script_call("forget_publishers", ["", cursor], lambda reply: str(reply.decode()), repeatable=True)


def read_remembered_walk(instance: str, topic: str) -> Call[RememberedWalk | None]:
    """Read the walk over a topic's log that an instance remembers; None where it left nothing standing."""
    return command(["HMGET", key(instance, "retention"), f"log {topic}", f"pin {topic}"], _remembered)


def _remembered(reply: list[bytes | None]) -> RememberedWalk | None:
    walk, pinned = ((text or b"").decode() for text in reply)
    found = Pin.parse(*pinned.split(" ", 1)) if pinned else None
    return RememberedWalk(int(walk.split(" ")[1]), found) if walk and found else None


class LogFigures(NamedTuple):
    """A log in figures.

    Attributes:
        length: entries that it has.
        added: entries that were ever added to it.
        bytes: its memory, about.
        first: ID of its first entry; "" of an empty log.
        first_source: where the message of that entry was published, ``<origin>~<id>``; "" of one published here.
        last: ID of its last entry.
        last_source: where that message was published.
    """

    length: int
    added: int
    bytes: int
    first: str
    first_source: str
    last: str
    last_source: str


def measure_logs(topics: Sequence[str]) -> Call[list[LogFigures]]:
    """Measure the log of each topic, in the order given; one without a log has zeros. No body is sent."""

    def read(reply: list[tuple[int, int, int, bytes, bytes, bytes, bytes]]) -> list[LogFigures]:
        return [_read(*each) for each in reply]

    return script_call("measure_logs", topics, read, repeatable=True)


def _read(length: int, added: int, size: int, *texts: bytes) -> LogFigures:
    first, first_source, last, last_source = (text.decode() for text in texts)
    return LogFigures(length, added, size, first, first_source, last, last_source)
