"""The content of the pages of topics: a page of the list, the last messages of a log, and a replay of it."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from ampsq.base.errors import UnknownTopic
from ampsq.console.lookups import short_text
from ampsq.protocol.calls import catalog as catalog_calls
from ampsq.protocol.encoding import decode_body
from ampsq.protocol.entries import body_in, bookmark_of, headers_in, is_message, read_entry
from ampsq.protocol.reads.streams import last_entries, log_of
from ampsq.queues.query import as_json
from ampsq.topics.retention import read_some_topics

if TYPE_CHECKING:
    from ampsq.base.bookmarks import Bookmark
    from ampsq.base.message_types import MessageType
    from ampsq.client.client import Client
    from ampsq.protocol.context import InstanceContext
    from ampsq.topics.retention import TopicState

__all__ = [
    "TOPICS",
    "LoggedMessage",
    "Replayed",
    "TopicPage",
    "read_last_messages",
    "read_topic",
    "read_topic_page",
    "replay",
]

#: Topics on one page.
TOPICS: Final = 50
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


async def read_topic_page(context: InstanceContext, search: str, page: str) -> TopicPage:
    """Read a page of the topics whose names have a text; a page that is none is the first or the last one."""
    catalog = await catalog_calls.catalog()
    wanted = search.strip().lower()
    names = sorted(name for name in catalog.topics if wanted in name.lower())
    pages = max(-(-len(names) // TOPICS), 1)
    at = min(max(int(page), 1), pages) if page.isdecimal() else 1
    some = names[(at - 1) * TOPICS : at * TOPICS]
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
        raise UnknownTopic(topic=name)
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


def replay(client: Client, topic: str, place: str, filter_: str | None, *, limit: int, seconds: float) -> Replayed:
    """Read a topic from a place on, up to `limit` messages, for so long.

    Args:
        client: of the instance.
        topic: the topic.
        place: a bookmark, a time or ``epoch``: from there up to now; or a range, as in ``[A:B)``.
        filter_: which messages; None: all.
        limit: how many at most.
        seconds: how long at most.

    Raises:
        DefinitionError: there is no such place, or the filter is wrong.
    """
    until = time.monotonic() + seconds
    asked = place if place[:1] in ("[", "(") else f"[{place}:now)"
    found: list[LoggedMessage] = []
    is_whole = False
    with client.subscribe_topic(topic, bookmark=asked, filter=filter_) as subscription:
        while len(found) <= limit and time.monotonic() < until:
            message = subscription.get(min(_SILENCE, max(until - time.monotonic(), 0.0)))
            if message is None:
                is_whole = subscription.completed
                if is_whole:
                    break
                continue
            text = short_text(message.raw, message.data)
            found.append(LoggedMessage(message.bookmark, message.timestamp, message.raw, text, message.headers))
    was_cut = not is_whole and len(found) <= limit
    return Replayed(tuple(found[:limit]), is_whole and len(found) <= limit, was_cut)
