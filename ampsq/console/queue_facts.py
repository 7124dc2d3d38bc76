"""The facts of queues, their groups, subscriptions and waiting messages, as the JSON of their pages has them."""

from __future__ import annotations

from ampsq.console.facts import Body, DefinitionField, Facts, Moment, Text, Values

__all__ = [
    "BrowseFacts",
    "ExplanationFacts",
    "GroupCountsFacts",
    "GroupFacts",
    "GroupsFacts",
    "HistoryFacts",
    "LatencyFacts",
    "MissingPartitionFacts",
    "PartitionedQueueFacts",
    "PartitionedQueuesFacts",
    "PercentileFacts",
    "QueueFacts",
    "QueueInPartitionFacts",
    "QueuePageFacts",
    "QueuedMessageFacts",
    "QueuesFacts",
    "SampleFacts",
    "SubscriberFacts",
]


class GroupCountsFacts(Facts):
    """Figures of the groups of a queue; null while the first look at all of very many goes on.

    Attributes:
        number: groups of which something is leased or has its place, or that stand still.
        leased: those of which something is leased.
        on_hold: those that failed messages hold.
        stopped: those that stand still since a message was given up.
        paused: those that somebody paused.
        oldest: age of the oldest message that has its place, seconds, also of a group that stands still; 0 of none.
        age: seconds since the counting of all but `number` and `oldest` began.
    """

    number: int
    leased: int | None
    on_hold: int | None
    stopped: int | None
    paused: int | None
    oldest: float
    age: float | None


class QueueFacts(Facts):
    """Figures of a queue.

    Attributes:
        name: its name.
        depth: messages that are not settled.
        waiting: recorded and not yet read by the queue.
        ready: read and waiting.
        held: a barrier that waits, and messages read behind it.
        filtered: messages that the queue's filter kept out.
        delayed: come back later.
        scheduled: were published for later.
        leased: delivered and not acknowledged.
        remote: owned by another instance; not a part of `depth`.
        transferred_in: messages that became this instance's.
        transferred_out: messages that became another's.
        delivered: deliveries since the queue was defined.
        acknowledged: acknowledged messages since then.
        expired: messages that expired since then.
        evicted: messages that a full ring gave up since then.
        returned: deliveries that came back since then.
        missing: messages that were gone from their log before they were settled.
        subscriptions: how many it has.
        topics: topic -> messages that it has there unread.
        oldest: age of the oldest message that may be delivered, seconds; null where there is none.
        oldest_lease: age of the oldest lease, seconds; null where there is none.
        behind: age of the oldest message that is not settled, seconds.
        in_per_second: messages a second that came in; null while that is not known.
        out_per_second: messages a second that were settled.
        paused: whether it delivers nothing.
        groups: of a queue with groups, how many it has and how they are; else null.
    """

    name: Text
    depth: int
    waiting: int
    ready: int
    held: int
    filtered: int
    delayed: int
    scheduled: int
    leased: int
    remote: int
    transferred_in: int
    transferred_out: int
    delivered: int
    acknowledged: int
    expired: int
    evicted: int
    returned: int
    missing: int
    subscriptions: int
    topics: dict[Text, int]
    oldest: float | None
    oldest_lease: float | None
    behind: float
    in_per_second: float | None
    out_per_second: float | None
    paused: bool
    groups: GroupCountsFacts | None


class QueuesFacts(Facts):
    """A page of queues.

    Attributes:
        queues: those on it.
        number: of queues on all pages.
        page: its number, from 1.
        pages: how many there are.
    """

    queues: list[QueueFacts]
    number: int
    page: int
    pages: int


class MissingPartitionFacts(Facts):
    """A partition whose figures could not be read, so that the sums lack it.

    Attributes:
        number: from 0.
        instance: the partition's name, by which it is an instance of its own.
        reason: why.
    """

    number: int
    instance: Text
    reason: Text


class PartitionedQueuesFacts(QueuesFacts):
    """A page of queues of an instance with partitions: sums, and the oldest message of any partition.

    Attributes:
        total: how many partitions it has.
        missing: those that the sums lack.
    """

    total: int
    missing: list[MissingPartitionFacts]


class QueueInPartitionFacts(Facts):
    """A queue in one partition.

    Attributes:
        number: of the partition, from 0.
        instance: the partition's name.
        queue: the queue's figures there.
    """

    number: int
    instance: Text
    queue: QueueFacts


class PartitionedQueueFacts(Facts):
    """A queue of an instance with partitions.

    Attributes:
        queue: the sums of its figures, and the oldest ages of any partition.
        partitions: its figures in each partition that was read.
        total: how many partitions the instance has.
        missing: those that the sums lack.
    """

    queue: QueueFacts
    partitions: list[QueueInPartitionFacts]
    total: int
    missing: list[MissingPartitionFacts]


class SampleFacts(Facts):
    """Figures of a queue at one time.

    Attributes:
        at: ms since 1970 by the server's clock.
        entered: messages that had come in since the queue was defined.
        settled: messages that had left it.
        depth: messages that were not settled.
        oldest: ms for which the oldest of these had been there.
    """

    at: int
    entered: int
    settled: int
    depth: int
    oldest: int


class HistoryFacts(Facts):
    """Former figures of a queue.

    Attributes:
        range: `15m`, `6h` or `7d`.
        samples: figures, the earliest first.
    """

    range: Text
    samples: list[SampleFacts]


class PercentileFacts(Facts):
    """Percentiles of how long messages took, in seconds; null where none was measured.

    Attributes:
        samples: how many messages were measured.
        p50: within which half of them took.
        p95: within which 95 of a hundred took.
        p99: within which 99 of a hundred took.
    """

    samples: int
    p50: float | None
    p95: float | None
    p99: float | None


class LatencyFacts(Facts):
    """Lengths of time that messages of a queue took, of about one in a hundred.

    Attributes:
        over: the range: `15m`, `6h` or `7d`.
        delivery: from publishing to the first delivery to an application.
        handling: from a delivery to the acknowledgement.
    """

    over: Text
    delivery: PercentileFacts
    handling: PercentileFacts


class ExplanationFacts(Facts):
    """An explanation of why a message is where it is.

    Attributes:
        queue: in which queue.
        bookmark: the message; null: the queue has none.
        state: its state.
        reason: a word that stays.
        sentence: the same for people; the text may change.
        facts: what it is made of.
    """

    queue: Text
    bookmark: Text | None
    state: Text
    reason: Text
    sentence: Text
    facts: Values


class SubscriberFacts(Facts):
    """A subscription of a queue.

    Attributes:
        name: its ID.
        client: whose it is.
        leased: messages that it holds, over all of its queues.
        room: how many it may hold.
        queues: how many queues it has.
        filter: what it asks for; "" for everything.
        is_silent: whether it missed its sign of life.
    """

    name: Text
    client: Text
    leased: int
    room: int
    queues: int
    filter: Text
    is_silent: bool


class QueuedMessageFacts(Facts):
    """A message of a queue.

    Attributes:
        bookmark: its name.
        topic: its topic.
        body: its text, or `{"base64": ...}`.
        headers: those that it was published with.
        deliveries: deliveries before.
        holder: the subscription that holds it; "" when it waits.
    """

    bookmark: Text | None
    topic: Text
    body: Body
    headers: dict[Text, Text]
    deliveries: int
    holder: Text


class BrowseFacts(Facts):
    """The result of a look at the messages of a queue.

    Attributes:
        leased: messages that subscriptions hold.
        waiting: messages that may be delivered.
        is_whole: whether nothing was left out.
        was_cut: whether the time was over before so many were found as were asked for.
    """

    leased: list[QueuedMessageFacts]
    waiting: list[QueuedMessageFacts]
    is_whole: bool
    was_cut: bool


class QueuePageFacts(QueueFacts):
    """A queue with all that its page shows.

    Attributes:
        history: what it was over time.
        latencies: how long its messages took.
        next: why its next message is where it is.
        subscriptions: who subscribes, a hundred at most, those that hold most first.
        messages: what matches the filter; null where that is wrong.
        wrong: what is wrong with the filter; "" otherwise.
        definition: its definition.
    """

    subscriptions: list[SubscriberFacts]  # type: ignore[assignment]  # the page lists what the figures count
    history: HistoryFacts
    latencies: LatencyFacts
    next: ExplanationFacts
    messages: BrowseFacts | None
    wrong: Text
    definition: DefinitionField


class GroupFacts(Facts):
    """A group of a queue.

    Attributes:
        group: its name.
        leased: messages of it that are leased.
        waiting: messages of it that the queue has read and that wait.
        failed: messages of it that failed and hold it until they are settled.
        stopped: since when it stands still; null: it does not.
        weight: how many messages of it count as one when shares are compared.
        oldest: when the first one of those that wait was recorded; null where none waits.
        paused: since when it is paused; null: it is not.
        paused_by: the client that paused it; "" where nobody did.
        bound_to: the subscription that it is bound to, and its client; "" where it is to none.
        bound_until: until when it is, if nothing of it is leased then; null where it is not bound.
    """

    group: Text
    leased: int
    waiting: int
    failed: int
    stopped: Moment | None
    weight: int
    oldest: Moment | None
    paused: Moment | None
    paused_by: Text
    bound_to: Text
    bound_until: Moment | None


class GroupsFacts(Facts):
    """Groups of a queue.

    Attributes:
        queue: its name.
        groups: those that stand still first, then those that failed messages hold, then by how many wait.
        number: how many groups were looked at of which something is leased or waits, that stand still or are bound.
        is_all: whether these are all of the queue's.
        unread: messages that the queue has not read, which are in no group yet.
        limit: groups in the answer at most.
        next: why the queue's next message is where it is.
    """

    queue: Text
    groups: list[GroupFacts]
    number: int
    is_all: bool
    unread: int
    limit: int
    next: ExplanationFacts
