"""The call that reads a queue's figures, and these as clients and commands tell them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from ampsq.protocol.replies import texts
from ampsq.protocol.request import script_call
from ampsq.protocol.schema import COMPILED, FIELDS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ampsq.protocol.request import Call

__all__ = [
    "QueueCounts",
    "QueueStats",
    "TopicCounts",
    "stats",
]


class QueueStats:
    """A queue's figures at one moment.

    Attributes:
        depth: messages that are not settled: `waiting`, `ready`, `held`, `delayed`, `scheduled` and, at least once,
            `leased`. In Artemis's words `message_count`, of which `delivering_count` are leased and `scheduled_count`
            delayed or scheduled.
        waiting: recorded and not yet read by the queue; an upper bound where the queue has a filter, where messages
            were put back into another queue of its topic alone or records of the topic ended, and after others
            removed log entries.
        ready: read and waiting: came back, or have their place by priority and filters, or are listed in their groups.
        held: a barrier that waits, and messages read behind it.
        filtered: messages that the queue's filter kept out.
        delayed: come back later.
        scheduled: were published for later.
        leased: delivered and unacknowledged.
        remote: of a queue that several instances share: owned by another one; not a part of `depth`.
        transferred_in, transferred_out: how often a message became this instance's, and became another's.
        delivered, acknowledged, expired, evicted, returned, missing: events since the queue was defined.
        subscriptions: how many it has.
        topics: topic -> messages that it has there unread.
    """

    __slots__ = (
        "acknowledged", "delayed", "delivered", "depth", "evicted", "expired", "filtered", "held", "leased", "missing",
        "name", "ready", "remote", "returned", "scheduled", "subscriptions", "topics", "transferred_in",
        "transferred_out", "waiting",
    )  # fmt: skip

    def __init__(self, name: str, figures: QueueCounts) -> None:
        def count(field: str) -> int:
            return int(figures.fields.get(field, "0"))

        self.name = name
        self.topics = {topic: max(unread, 0) for topic, (unread, _, _) in figures.topics.items()}
        self.waiting = max(sum(self.topics.values()) - figures.ahead, 0)
        self.ready, self.held = figures.ready + figures.sorted, figures.held
        self.leased, self.delayed, self.scheduled = figures.leased, count("delayed"), count("scheduled")
        compiled = dict(zip(COMPILED, figures.fields["compiled"].split(), strict=False))
        # At-most-once removes a message when it delivers it; what is unacknowledged only fills a backlog.
        held = 0 if compiled["once"] == "1" else self.leased
        self.depth = self.waiting + self.ready + self.held + self.delayed + self.scheduled + held
        self.delivered = count("token") - count("skipped")
        self.acknowledged, self.expired = count("acknowledged"), count("expired")
        self.returned, self.missing = count("returned"), count("missing")
        self.filtered, self.evicted = count("filtered"), count("evicted")
        self.remote = figures.remote
        self.transferred_in, self.transferred_out = count("transferred_in"), count("transferred_out")
        self.subscriptions = figures.subscriptions

    @classmethod
    def merged(cls, parts: Sequence[QueueStats]) -> QueueStats:
        """Return the figures of a queue of all partitions, of those of each: sums, each as of its own moment.

        Of `subscriptions` it is the number in the partition that has most: one to all partitions is in each of them.
        """
        made = cls.__new__(cls)
        made.name, made.topics = parts[0].name, {}
        for part in parts:
            for topic, unread in part.topics.items():
                made.topics[topic] = made.topics.get(topic, 0) + unread
        for field in cls.__slots__:
            if field not in ("name", "topics"):
                values = [getattr(part, field) for part in parts]
                setattr(made, field, max(values) if field == "subscriptions" else sum(values))
        return made

    @property
    def message_count(self) -> int:
        """Artemis's name for `depth`."""
        return int(self.depth)

    @property
    def delivering_count(self) -> int:
        """Artemis's name for `leased`."""
        return int(self.leased)

    @property
    def scheduled_count(self) -> int:
        """Artemis's count of what is delivered later: `delayed` and `scheduled`."""
        return int(self.delayed + self.scheduled)

    @property
    def settled(self) -> int:
        """Number of messages that left the queue for good since it was defined."""
        return int(self.acknowledged + self.expired + self.evicted + self.missing)

    @property
    def entered(self) -> int:
        """Number of messages that entered the queue since it was defined, without those owned elsewhere."""
        return int(self.settled + self.depth)

    def __repr__(self) -> str:
        figures = ", ".join(f"{name}={value!r}" for name, value in self.as_dict().items())
        return f"QueueStats({figures})"

    def as_dict(self) -> dict[str, object]:
        """The same as plain values, for JSON."""
        return {name: getattr(self, name) for name in sorted(self.__slots__)}


class TopicCounts(NamedTuple):
    """The place up to which a queue has read a topic.

    Attributes:
        unread: entries behind the last one that it read.
        read_to: the last ID that it read.
        last: the last ID of the topic.
    """

    unread: int
    read_to: str
    last: str


@dataclass(frozen=True, slots=True)
class QueueCounts:
    """One queue's figures.

    Attributes:
        fields: counters and settings as they are stored, for this room.
        leased, ready, ahead, sorted, held, remote: messages, by where they are.
        subscriptions: how many it has.
        topics: how far it has read each of its topics.
    """

    fields: dict[str, str]
    leased: int
    ready: int
    subscriptions: int
    ahead: int
    sorted: int
    held: int
    remote: int
    topics: dict[str, TopicCounts]

    @property
    def delayed(self) -> int:
        """Messages that came back and are delivered later."""
        return int(self.fields.get(FIELDS["delayed"], "0"))

    @property
    def scheduled(self) -> int:
        """Messages that were published for later."""
        return int(self.fields.get(FIELDS["scheduled"], "0"))

    @property
    def is_empty(self) -> bool:
        """True where it has no message, and is not being rebuilt; as lua/definitions/lib/queue_emptiness.lua has it."""
        waiting = (self.leased, self.ready, self.sorted, self.held, self.remote, self.delayed, self.scheduled)
        is_rebuilt = self.fields.get(FIELDS["paused"]) not in (None, "0", "")
        unread = (each.unread > 0 and each.read_to != each.last for each in self.topics.values())
        return not (any(waiting) or is_rebuilt or any(unread))


def _read_figures(reply: tuple[list[bytes], int, int, int, int, int, int, int, *tuple[object, ...]]) -> QueueCounts:
    fields, leased, ready, subscriptions, ahead, placed, held, remote, *rest = reply
    topics: dict[str, TopicCounts] = {}
    for i in range(0, len(rest), 4):
        row: tuple[bytes, int, bytes, bytes] = rest[i : i + 4]  # type: ignore[assignment]  # four in turn
        topics[row[0].decode()] = TopicCounts(row[1], row[2].decode(), row[3].decode())
    return QueueCounts(texts(fields), leased, ready, subscriptions, ahead, placed, held, remote, topics)


def stats(queue: str) -> Call[QueueCounts]:
    """Read one queue's figures."""
    return script_call("read_stats", [queue], _read_figures, repeatable=True)
