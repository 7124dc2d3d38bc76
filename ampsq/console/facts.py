"""The facts of every page, as its JSON has them: models from which the OpenAPI document is made, too.

Names of members stay; new ones are added. A page gives what it has, and its model takes from that what it promises.
"""
# Long: one model a page, beside those of its parts.

from __future__ import annotations

import base64
import json
from datetime import datetime, timedelta
from typing import Annotated, TypeAlias

from pydantic import BaseModel, BeforeValidator, ConfigDict, PlainSerializer, WithJsonSchema

from ampsq.definitions.definition import Definition

__all__ = [
    "ActionFacts",
    "ActionPageFacts",
    "ActionsFacts",
    "BrowseFacts",
    "DefinitionFacts",
    "ExplanationFacts",
    "Facts",
    "FailedEventFacts",
    "FaultFacts",
    "GroupFacts",
    "GroupsFacts",
    "HistoryFacts",
    "LatencyFacts",
    "LetterFacts",
    "LetterQueueFacts",
    "LetterQueuesFacts",
    "LettersFacts",
    "LinkStatusFacts",
    "LoggedMessageFacts",
    "MessageEventFacts",
    "MessageFacts",
    "MessageStateFacts",
    "OverviewFacts",
    "OverviewInstanceFacts",
    "OverviewLinkFacts",
    "OwnershipFacts",
    "PercentileFacts",
    "PublisherFacts",
    "PublishersFacts",
    "QuestionFacts",
    "QueueFacts",
    "QueuePageFacts",
    "QueuedMessageFacts",
    "QueuesFacts",
    "ReaderFacts",
    "RecordFacts",
    "RecoveryFacts",
    "RefusalFacts",
    "ReplicationFacts",
    "SampleFacts",
    "SearchFacts",
    "SearchHitFacts",
    "SubscriberFacts",
    "TopicFacts",
    "TopicPageFacts",
    "TopicsFacts",
]


def _text(value: object) -> object:
    """Give a bookmark, and whatever else is a text, as a plain one; halves of pairs, which UTF-8 lacks, as escapes."""
    return value.encode("utf-8", "backslashreplace").decode() if isinstance(value, str) else value


def _texts(value: object) -> object:
    """Do the same with all texts of a value."""
    if isinstance(value, dict):
        return {_text(name): _texts(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_texts(each) for each in value]
    return _text(value)


def _body(value: object) -> object:
    """Give a body as its text; one that is no text as ``{"base64": ...}``."""
    if not isinstance(value, bytes):
        return value
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(value).decode()}


def _definition(value: object) -> object:
    """Give a definition by its kind and its elements, without passwords."""
    if not isinstance(value, Definition):
        return value
    elements = json.loads(json.dumps(value.public_elements(), default=str))
    return _texts({"kind": type(value).__name__, "name": value.name, **elements})


def _seconds(value: object) -> object:
    return value.total_seconds() if isinstance(value, timedelta) else value


Text: TypeAlias = Annotated[str, BeforeValidator(_text)]
Values: TypeAlias = Annotated[dict[str, object], BeforeValidator(_texts)]
Body: TypeAlias = Annotated[str | dict[str, str], BeforeValidator(_body)]
Seconds: TypeAlias = Annotated[float, BeforeValidator(_seconds)]
Moment: TypeAlias = Annotated[
    datetime,
    PlainSerializer(lambda moment: moment.isoformat(), return_type=str),
    WithJsonSchema({"type": "string", "format": "date-time"}),
]


class Facts(BaseModel):
    """The common base: what an object has, taken by its names and checked."""

    model_config = ConfigDict(frozen=True, extra="forbid", from_attributes=True)


class FaultFacts(Facts):
    """A fault, as `ampsq doctor` finds it.

    Attributes:
        check: what was looked at.
        subject: what is wrong: its kind and its name.
        text: what is wrong with it.
        why: why that matters.
        mend: what mends it.
        page: address of the page about it; "" where there is none.
    """

    check: Text
    subject: Text
    text: Text
    why: Text
    mend: Text
    page: Text


class OverviewLinkFacts(Facts):
    """A link of an instance, in short.

    Attributes:
        direction: `to` or `from`.
        peer: the instance at the other end, or the destination's name while none is known.
        state: as of the page on replication, or `downgraded`.
        reason: why it is not connected; "" where it is.
        behind: messages and journal entries that it lacks; null of an incoming link.
    """

    direction: Text
    peer: Text
    state: Text
    reason: Text
    behind: int | None


class OverviewInstanceFacts(Facts):
    """State of one instance.

    Attributes:
        name: its name.
        unreachable: why its figures could not be read; "" where they could.
        health: `well`, `wrong`, `unreachable`, or `unknown` until it is examined.
        faults: what is wrong.
        checks: how many things were found to be well.
        per_second_in: messages a second that came in, over the last ten seconds; null while that is not known.
        per_second_out: messages a second that were settled.
        queues: how many it has.
        depth: messages that are not settled, of all queues.
        oldest: seconds for which the oldest of them has been there; null where there is none.
        oldest_queue: in which queue that is.
        dead_letters: those that wait.
        links: its links, both directions.
        coordinators: those that care for it, as `host:process`.
    """

    name: Text
    unreachable: Text
    health: Text
    faults: list[FaultFacts]
    checks: int
    per_second_in: float | None
    per_second_out: float | None
    queues: int
    depth: int
    oldest: float | None
    oldest_queue: Text
    dead_letters: int
    links: list[OverviewLinkFacts]
    coordinators: list[Text]


class OverviewFacts(Facts):
    """The overview.

    Attributes:
        server: what is wrong with the server.
        is_examined: whether the server was looked at.
        instances: those of this page; those with something wrong first, then by name.
        number: of instances on all pages.
        wrong: how many of all have something wrong, or could not be reached.
        page: its number, from 1.
        pages: how many there are.
    """

    server: list[FaultFacts]
    is_examined: bool
    instances: list[OverviewInstanceFacts]
    number: int
    wrong: int
    page: int
    pages: int


class SearchHitFacts(Facts):
    """One thing that was found.

    Attributes:
        kind: `message`, `queue`, `topic`, `view`, `action`, `link`, `subscription`, `publisher` or `instance`.
        name: its name; of a message its bookmark.
        instance: where it is.
        detail: what else is known of it; "" where nothing is.
        page: address of the page about it.
    """

    kind: Text
    name: Text
    instance: Text
    detail: Text
    page: Text


class SearchFacts(Facts):
    """The result of a search.

    Attributes:
        text: what was looked for.
        hits: what was found, ten of each kind at most.
        more: kind -> how many more there are.
        unread: instances that were not looked at: the time was over, or they could not be read.
        partly: what was looked at in part alone, in words.
    """

    text: Text
    hits: list[SearchHitFacts]
    more: dict[Text, int]
    unread: list[Text]
    partly: list[Text]


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


class DefinitionFacts(Facts):
    """A definition, with the elements that differ from the defaults; passwords are left out.

    Attributes:
        kind: as `Queue` or `View`.
        name: its name.
    """

    model_config = ConfigDict(extra="allow")

    kind: Text
    name: Text


DefinitionField: TypeAlias = Annotated[DefinitionFacts, BeforeValidator(_definition)]


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
    """

    group: Text
    leased: int
    waiting: int
    failed: int
    stopped: Moment | None
    weight: int
    oldest: Moment | None


class GroupsFacts(Facts):
    """Groups of a queue.

    Attributes:
        queue: its name.
        groups: those that stand still first, then those that failed messages hold, then by how many wait.
        number: how many groups were looked at, of which something is leased, waits or stands still.
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


class TopicFacts(Facts):
    """A topic.

    Attributes:
        name: its name.
        view: whether it is a view.
        in_per_second: messages a second; null while that is not known.
        messages: messages that its log has.
        bytes: memory of these, about.
        first: the first one; null where there is none.
        last: the last one.
        queues: queues that it feeds.
        retention: limit -> its value.
        key: where each record has its key; empty: the topic has no records.
        records: how many records it has.
        recorded: messages ever recorded.
        kept: messages beyond the retention that somebody needs.
        pinned_by: who needs the first of those; null where nobody does.
        pinned: its bookmark.
        state: what it is there; "" of others than queues.
    """

    name: Text
    view: bool
    in_per_second: float | None
    messages: int
    bytes: int
    first: Text | None
    last: Text | None
    queues: list[Text]
    retention: Values
    key: list[Text]
    records: int
    recorded: int
    kept: int
    pinned_by: Text | None
    pinned: Text | None
    state: Text


class TopicsFacts(Facts):
    """A page of topics.

    Attributes:
        topics: those on it, by name.
        number: of topics on all pages.
        page: its number, from 1.
        pages: how many there are.
    """

    topics: list[TopicFacts]
    number: int
    page: int
    pages: int


class ReaderFacts(Facts):
    """A subscription to topics that reports how far it is.

    Attributes:
        client: whose it is.
        transport: whose limits count for it.
        subscription: its name.
        topics: what it reads.
        state: `online`, `durable`, `offline` or `disconnected`.
        behind: bytes that it has not read.
        spooled: bytes of these on disk.
        oldest: seconds for which the oldest of these has waited; null where none does.
        reason: why it is not online; null where it is.
    """

    client: Text
    transport: Text
    subscription: Text
    topics: list[Text]
    state: Text
    behind: int
    spooled: int
    oldest: float | None
    reason: Text | None


class PublisherFacts(Facts):
    """A publisher that has a name.

    Attributes:
        name: its name.
        sequence: of its last message.
        bookmark: its last message; null where that is gone.
        at: when that was recorded.
        client: who is logged on under the name; null: nobody.
        seen: when that client gave its last sign of life.
    """

    name: Text
    sequence: int
    bookmark: Text | None
    at: Moment
    client: Text | None
    seen: Moment | None


class PublishersFacts(Facts):
    """Publishers that have a name.

    Attributes:
        publishers: all of them, by name.
    """

    publishers: list[PublisherFacts]


class RecordFacts(Facts):
    """A record of a topic with a key, or a row of a view.

    Attributes:
        key: its key; null where there is none.
        bookmark: the message that made it what it is; null of a row.
        body: its text, or `{"base64": ...}`.
    """

    key: Text | None
    bookmark: Text | None
    body: Body


class LoggedMessageFacts(Facts):
    """A message of a topic's log.

    Attributes:
        bookmark: its name.
        at: when it was recorded.
        headers: those that it was published with.
        body: its text, or `{"base64": ...}`.
    """

    bookmark: Text
    at: Moment
    headers: dict[Text, Text]
    body: Body


class TopicPageFacts(TopicFacts):
    """A topic with all that its page shows.

    Attributes:
        readers: subscriptions to it that report how far they are.
        publishers: publishers whose last message went to it.
        definition: the definition of a view; null of another topic.
        records: the first records or rows.
        messages: what the replay gave, or the last messages, the newest first.
        wrong: why there is no replay though one was asked for; "" otherwise.
    """

    readers: list[ReaderFacts]
    publishers: list[PublisherFacts]
    definition: DefinitionField | None
    records: list[RecordFacts]  # type: ignore[assignment]  # the page lists what the figures count
    messages: list[LoggedMessageFacts]  # type: ignore[assignment]
    wrong: Text


class MessageEventFacts(Facts):
    """A thing that happened to a message.

    Attributes:
        at: ms since 1970 by the server's clock; null where nobody wrote it down.
        queue: in which queue; "" for what happened to the message itself.
        event: a word that stays, as `published` or `delivered`.
        by: the subscription or publisher; "" where it is not known.
        details: what else is known.
    """

    at: int | None
    queue: Text
    event: Text
    by: Text
    details: Values


class MessageStateFacts(Facts):
    """The state of a message in one queue.

    Attributes:
        queue: the queue.
        state: a word that stays.
        sentence: why, for people; the text may change.
    """

    queue: Text
    state: Text
    sentence: Text


class MessageFacts(Facts):
    """A message.

    Attributes:
        bookmark: its name.
        recorded: whether this instance's log has it.
        events: what happened to it, the earliest first.
        queues: where it is in each queue that its topic feeds.
        body: its text, JSON over several lines, cut where it is very long; null where the log does not have it.
        bytes: length of the body.
        headers: those that it was published with.
        explained: why it is where it is in the queue that was asked for; null where none was.
    """

    bookmark: Text
    recorded: bool
    events: list[MessageEventFacts]
    queues: list[MessageStateFacts]
    body: Text | None
    bytes: int
    headers: dict[Text, Text]
    explained: ExplanationFacts | None


class LetterQueueFacts(Facts):
    """A queue of dead letters.

    Attributes:
        queue: its name.
        letters: messages in it.
        oldest: age of the oldest one, seconds; null where there is none.
    """

    queue: Text
    letters: int
    oldest: float | None


class LetterQueuesFacts(Facts):
    """Queues of dead letters.

    Attributes:
        queues: those over topics that actions publish to.
    """

    queues: list[LetterQueueFacts]


class LetterFacts(Facts):
    """A dead letter.

    Attributes:
        bookmark: its name.
        original: the message that was given up.
        queue: the queue that gave it up.
        topic: the topic that it came from.
        reasons: why it was given up.
        consumer_reason: what the consumer said of it; "" where it said nothing.
        deliveries: how often it was delivered.
        group: its group; null where it is of none.
        headers: those that it was published with.
        age: seconds since it was given up.
        body: its text, or `{"base64": ...}`.
    """

    bookmark: Text
    original: Text | None
    queue: Text
    topic: Text
    reasons: list[Text]
    consumer_reason: Text
    deliveries: int
    group: Text | None
    headers: dict[Text, Text]
    age: Seconds
    body: Body


class LettersFacts(Facts):
    """Dead letters of a queue.

    Attributes:
        letters: those that match the filter, the oldest first.
        more: whether there are more.
        wrong: what is wrong with the filter; "" otherwise.
    """

    letters: list[LetterFacts]
    more: bool
    wrong: Text


class LinkStatusFacts(Facts):
    """One direction of a link.

    Attributes:
        destination: the destination that makes it.
        direction: `out` or `in`.
        instance: the instance at the other end; null while none is known.
        group: its group; null where that is not known.
        address: where it is; null where that is not known.
        state: `connected`, `waiting`, `refused` or `silent`.
        acknowledgement: `sync`, `async` or `downgraded`.
        pass_through: groups whose messages go on over it.
        connected_for: seconds; null where it is not connected.
        behind: messages and journal entries that it lacks, at most; null of an incoming link.
        seconds_behind: age of the oldest of them; null of an incoming link.
        messages: copies since it was connected.
        bytes: bytes sent since then.
        messages_per_second: copies over the last second.
        bytes_per_second: bytes sent over the last second.
        disconnects: how often the connection was lost.
        disconnected_ago: seconds since it was lost last; null where it never was.
        reason: why it is not connected; null where it is.
    """

    destination: Text
    direction: Text
    instance: Text | None
    group: Text | None
    address: Text | None
    state: Text
    acknowledgement: Text
    pass_through: list[Text]
    connected_for: float | None
    behind: int | None
    seconds_behind: float | None
    messages: int
    bytes: int
    messages_per_second: int
    bytes_per_second: int
    disconnects: int
    disconnected_ago: float | None
    reason: Text | None


class OwnershipFacts(Facts):
    """A queue that several instances have.

    Attributes:
        queue: its name.
        initial_owner: `origin` of a distributed queue, an instance's name of a group local one.
        owned: messages that were read, and wait to be delivered here.
        elsewhere: messages that were read, and that another instance owns.
        owners: of the oldest 500 of these who owns how many.
        oldest: seconds for which the oldest of these has been here; null where there is none.
        usual: seconds from a message's arrival until its owner has settled it, on average.
        transferred_in: how often a message became this instance's.
        transferred_out: how often one was given to another.
        deferred: reports on messages that have not arrived yet.
        proxied: whether this instance may act for owners out of reach.
        carried_to: destinations that are sent what is settled and transferred of it.
    """

    queue: Text
    initial_owner: Text
    owned: int
    elsewhere: int
    owners: dict[Text, int]
    oldest: float | None
    usual: float
    transferred_in: int
    transferred_out: int
    deferred: int
    proxied: bool
    carried_to: list[Text]


class RecoveryFacts(Facts):
    """A recovery of an instance whose last incarnation is not known yet.

    Attributes:
        since: ms of the server when it began.
        queues: queues that are held.
        waits_for: destinations that were not read to the end yet.
        left_out: destinations that it does not wait for, by the operator's word.
    """

    since: int
    queues: list[Text]
    waits_for: list[Text]
    left_out: list[Text]


class ReplicationFacts(Facts):
    """Links of an instance, and who owns messages of shared queues.

    Attributes:
        instance: its name.
        group: its group.
        links: those to its destinations, then those that come in.
        queues: queues that are not this instance's alone.
        recovery: what a new incarnation waits for; null where it waits for nothing.
    """

    instance: Text
    group: Text
    links: list[LinkStatusFacts]
    queues: list[OwnershipFacts]
    recovery: RecoveryFacts | None


class ActionFacts(Facts):
    """An action and how far it has come.

    Attributes:
        name: its name.
        waiting: entries of its sources that it has not looked at yet.
        done: events on which it acted to the end.
        failed: events that failed and are tried again.
        error: why the last one failed, or why the action waited last; "" for never.
        definition: its definition.
    """

    name: Text
    waiting: int
    done: int
    failed: int
    error: Text
    definition: DefinitionField


class ActionsFacts(Facts):
    """Actions of an instance.

    Attributes:
        actions: all of them, by name.
    """

    actions: list[ActionFacts]


class FailedEventFacts(Facts):
    """An event that an action failed at.

    Attributes:
        number: by which it is retried or dropped.
        source: what it is of, as `expire work`.
        step: where it failed: the index of the step, -1 for the conditions.
        what: the word of that step.
        error: why.
        tries: how often it was tried.
        failed: when it failed first.
        next: when it is tried again.
        variables: name -> value.
    """

    number: int
    source: Text
    step: int
    what: Text
    error: Text
    tries: int
    failed: Text
    next: Text
    variables: dict[Text, Text]


class ActionPageFacts(ActionFacts):
    """An action with what it failed at.

    Attributes:
        events: failed events, the first 500.
    """

    events: list[FailedEventFacts]


class QuestionFacts(Facts):
    """The question before a change, which JSON does not make.

    Attributes:
        change: the change.
        asks: what will happen, for people.
        messages: how many messages it would concern; null where that is not counted.
        given: what it is about.
    """

    change: Text
    asks: Text
    messages: int | None
    given: dict[Text, Text]


class RefusalFacts(Facts):
    """A refusal: what was asked for is wrong, is not there, or cannot be had now.

    Attributes:
        title: what kind of refusal it is.
        error: what was wrong, what is allowed and what to do.
    """

    title: Text
    error: Text
