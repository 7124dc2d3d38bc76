"""The facts of topics, their readers and records, and of publishers, as the JSON of their pages has them."""

from __future__ import annotations

from ampsq.console.facts import Body, DefinitionField, Facts, Moment, Text, Values

__all__ = [
    "LoggedMessageFacts",
    "PublisherFacts",
    "PublishersFacts",
    "ReaderFacts",
    "RecordFacts",
    "TopicFacts",
    "TopicPageFacts",
    "TopicsFacts",
]


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
        at: when that was recorded, or when it logged on before it recorded anything; null: it never did either.
        client: who is logged on under the name; null: nobody.
        seen: when that client gave its last sign of life.
    """

    name: Text
    sequence: int
    bookmark: Text | None
    at: Moment | None
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
