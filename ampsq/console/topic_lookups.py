"""The content of the pages of topics: a page of the list, the last messages of a log, and a replay of it."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, NamedTuple

from ampsq.base.errors import DefinitionError, UnknownTopic
from ampsq.base.message_types import MessageType
from ampsq.catalog.suggestions import explain_missing_name
from ampsq.console.lookups import short_text
from ampsq.console.queue_list import asked_number
from ampsq.protocol.calls import catalog as catalog_calls
from ampsq.protocol.context import InstanceContext
from ampsq.protocol.encoding import decode_body
from ampsq.protocol.entries import body_in, bookmark_of, headers_in, is_message, read_entry
from ampsq.protocol.reads.streams import last_entries, log_of
from ampsq.queues.query import as_json
from ampsq.topics.topic_state import read_some_topics

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ampsq.base.bookmarks import Bookmark
    from ampsq.client.client import Client
    from ampsq.definitions.queue import View
    from ampsq.protocol.reads.readers import ReaderState
    from ampsq.publishing.publishers import PublisherState
    from ampsq.queues.query import SowMessage
    from ampsq.topics.topic_state import TopicState

__all__ = ["LoggedMessage", "ReplayRequest", "TopicDetails", "TopicPage", "read_details", "read_topic_page"]

#: Topics on one page.
_TOPICS: Final = 50
#: Seconds after which a replay counts as at its end.
_SILENCE: Final = 0.3


@dataclass(frozen=True, slots=True)
class TopicPage:
    """One page of the list of topics.

    Attributes:
        topics: those on it, by name.
        views: which of the instance's topics are views.
        search: what their names have.
        page: its number, from 1.
        pages: how many there are.
        number: of topics on all of them.
        total: of topics that the instance has.
    """

    topics: dict[str, TopicState]
    views: frozenset[str]
    search: str
    page: int
    pages: int
    number: int
    total: int


@dataclass(frozen=True, slots=True)
class LoggedMessage:
    """A message of a topic's log.

    Attributes:
        bookmark: its name.
        at: when it was recorded, by the server's clock.
        raw: its body as it was published; of an entry that somebody wrote without ampsq, its fields as JSON.
        text: its body, in short.
        headers: those that it was published with.
    """

    bookmark: Bookmark
    at: datetime
    raw: bytes
    text: str
    headers: dict[str, str]


class ReplayRequest(NamedTuple):
    """A request to read a topic from a place on.

    Attributes:
        place: a bookmark, a time or ``epoch``: from there up to now; or a range, as in ``[A:B)``; "": epoch.
        filter: which messages; "": all.
        limit: how many at most.
        seconds: how long at most.
    """

    place: str
    filter: str
    limit: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Replayed:
    """The result of a replay.

    Attributes:
        messages: what was read, the first one first.
        is_whole: whether nothing is behind the last one.
        was_cut: whether the time was over before so many were found as were asked for.
    """

    messages: tuple[LoggedMessage, ...]
    is_whole: bool
    was_cut: bool


@dataclass(frozen=True, slots=True)
class TopicDetails:
    """One topic with who reads and publishes, and with messages of its log.

    Attributes:
        state: what its log has, and what is kept.
        view: the definition where it is a view; None elsewhere.
        readers: subscriptions to it that report how far they are.
        publishers: named ones whose last message went to it.
        rows: the first records of a topic with a key, the first rows of a view.
        replayed: what a replay gave; None where none was asked for.
        last: its last messages, the last one first, where no replay was asked for.
        wrong: why there is no replay though one was asked for; "" otherwise.
    """

    state: TopicState
    view: View | None
    readers: list[ReaderState]
    publishers: list[PublisherState]
    rows: list[SowMessage]
    replayed: Replayed | None
    last: list[LoggedMessage]
    wrong: str

    @property
    def messages(self) -> Sequence[LoggedMessage]:
        """Return the messages that are shown."""
        return self.last if self.replayed is None else self.replayed.messages


async def read_topic_page(context: InstanceContext, search: str, page: str) -> TopicPage:
    """Read a page of the topics whose names have a text; a page that is none is the first or the last one."""
    catalog = await catalog_calls.catalog()
    wanted = search.strip().lower()
    names = sorted(name for name in catalog.topics if wanted in name.lower())
    pages = max(-(-len(names) // _TOPICS), 1)
    at = asked_number(page, pages)
    some = names[(at - 1) * _TOPICS : at * _TOPICS]
    found = await read_some_topics(context.instance, context.origin, catalog, some)
    views = frozenset(catalog.views)
    return TopicPage(found, views, search.strip(), at, pages, len(names), len(catalog.topics))


async def read_topic(context: InstanceContext, name: str) -> TopicState:
    """Read one topic.

    Raises:
        UnknownTopic: there is none of that name.
    """
    catalog = await catalog_calls.catalog()
    if name not in catalog.topics:
        raise UnknownTopic(topic=name).with_explanation(explain_missing_name(catalog, name, "topic"))
    return (await read_some_topics(context.instance, context.origin, catalog, [name]))[name]


async def read_last_messages(
    context: InstanceContext, topic: str, message_type: MessageType, count: int
) -> list[LoggedMessage]:
    """Read the last messages of a topic, the last one first; entries for one queue alone are left out."""
    found = []
    for stream_id, flat in await last_entries(context.instance, log_of(topic), count):
        if not is_message(flat):
            continue
        fields, source = read_entry(flat)
        body, headers = body_in(fields), headers_in(fields)
        raw = as_json(fields) if body is None else body
        data = decode_body(raw) if body is None else decode_body(raw, message_type)
        found.append(
            LoggedMessage(
                bookmark_of(topic, context.origin, stream_id.decode(), source),
                datetime.fromtimestamp(int(stream_id.partition(b"-")[0]) / 1000, UTC),
                raw, short_text(raw, data), json.loads(headers) if headers else {},
            )
        )  # fmt: skip
    return found


def read_details(client: Client, name: str, asked: ReplayRequest, rows: int) -> TopicDetails:
    """Read all that the page of a topic shows.

    Args:
        client: of the instance.
        name: the topic.
        asked: the replay; without a place and without a filter the last messages are read.
        rows: how many records or rows, and last messages, at most.

    Raises:
        UnknownTopic: there is none of that name.
    """
    context = InstanceContext(client.instance, client.origin)
    run = client._store.run  # noqa: SLF001  (it has no method for it)
    state, admin = run(read_topic(context, name)), client.admin
    view = admin.views().get(name)
    replayed, wrong = None, ""
    if asked.place or asked.filter:
        try:
            replayed = replay(client, name, asked)
        except DefinitionError as error:
            wrong = str(error)
    form = MessageType.parse(admin.message_type(name))
    return TopicDetails(
        state, view,
        [each for each in admin.readers() if name in each.topics],
        [each for each in admin.publishers() if each.bookmark and each.bookmark.topic == name],
        client.sow(name, top_n=rows) if view is not None or state.key else [],
        replayed, run(read_last_messages(context, name, form, rows)) if replayed is None else [], wrong,
    )  # fmt: skip


def replay(client: Client, topic: str, asked: ReplayRequest) -> Replayed:
    """Read a topic from a place on.

    Raises:
        DefinitionError: there is no such place, or the filter is wrong.
    """
    until = time.monotonic() + asked.seconds
    # A time is taken as pages show it, too.
    place = asked.place.replace(" UTC", "Z") or "epoch"
    range_ = place if place[:1] in {"[", "("} else f"[{place}:now)"
    found: list[LoggedMessage] = []
    is_whole = False
    with client.subscribe_topic(topic, bookmark=range_, filter=asked.filter or None) as subscription:
        while len(found) <= asked.limit and not is_whole and time.monotonic() < until:
            message = subscription.get(min(_SILENCE, max(until - time.monotonic(), 0.0)))
            if message is None:
                is_whole = subscription.completed
                continue
            text = short_text(message.raw, message.data)
            found.append(LoggedMessage(message.bookmark, message.timestamp, message.raw, text, message.headers))
    is_more = len(found) > asked.limit
    return Replayed(tuple(found[: asked.limit]), is_whole and not is_more, not is_whole and not is_more)
