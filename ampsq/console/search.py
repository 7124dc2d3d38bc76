"""Search by name over all that instances have, and for a message by its bookmark or its ID: bounded looks."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from ampsq.base.bookmarks import Bookmark, PublisherBookmark
from ampsq.base.errors import AmpsqError, DefinitionError
from ampsq.protocol.calls import catalog as catalog_calls
from ampsq.protocol.context import InstanceContext
from ampsq.protocol.entries import bookmark_of, is_message, read_entry
from ampsq.protocol.reads.message_names import find_bookmark
from ampsq.protocol.reads.streams import find_entry, log_of
from ampsq.protocol.reads.subscribers import count_subscriptions, subscription_facts, subscription_names
from ampsq.protocol.request import Collect, Post

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ampsq.console.observer import Observer
    from ampsq.protocol.calls.catalog import Catalog
    from ampsq.protocol.entries import RawEntry
    from ampsq.protocol.reads.subscribers import StoredSubscription
    from ampsq.transport.pipeline import Pipeline

__all__ = ["KINDS", "SearchHit", "SearchResult", "search_everything"]

#: Kinds of what is found, in their order, each with what people call several of them.
KINDS: Final = {
    "message": "Messages", "queue": "Queues", "topic": "Topics", "view": "Views", "action": "Actions",
    "link": "Links", "subscription": "Subscriptions", "publisher": "Publishers", "instance": "Instances",
}  # fmt: skip
#: Of each kind, how many are shown.
_SHOWN: Final = 10
#: Characters of a text that are looked for.
_LONGEST: Final = 1_000
#: Subscriptions that are read of an instance, and topics whose logs are asked for an ID.
_SUBSCRIPTIONS: Final = 1_000
_LOGS: Final = 1_000
#: Seconds after which no further instance is begun.
_BUDGET: Final = 2.0
_ID: Final = re.compile(r"(0|[1-9]\d{0,19})-(0|[1-9]\d{0,19})")


@dataclass(frozen=True, slots=True)
class SearchHit:
    """One thing that was found.

    Attributes:
        kind: one of `KINDS`.
        name: its name; of a message its bookmark.
        instance: where it is.
        detail: what else is known of it; "" where nothing is.
        page: the address of the page about it.
    """

    kind: str
    name: str
    instance: str
    detail: str
    page: str


@dataclass(frozen=True, slots=True)
class SearchResult:
    """The result of a search.

    Attributes:
        text: what was looked for.
        hits: what was found, by kind; the same name first, then names that begin with it, then others.
        more: kind -> how many more there are.
        unread: instances that were not looked at: the time for one search was over, or they could not be read.
        partly: what was looked at in part alone, in words.
    """

    text: str
    hits: tuple[SearchHit, ...]
    more: dict[str, int]
    unread: tuple[str, ...]
    partly: tuple[str, ...]

    @property
    def by_kind(self) -> dict[str, list[SearchHit]]:
        """Return what was found, by kind, without kinds of which nothing was."""
        found: dict[str, list[SearchHit]] = {}
        for hit in self.hits:
            found.setdefault(hit.kind, []).append(hit)
        return found


def search_everything(observer: Observer, text: str, instance: str | None) -> SearchResult:
    """Look for a text in the names of everything.

    Args:
        observer: has the instances.
        text: a part of a name, in any case; or a message's bookmark, or its ID.
        instance: the one in which is looked; None: in all. Names of instances are looked for in any case.
    """
    text = text.strip()[:_LONGEST]
    if not text:
        return SearchResult("", (), {}, (), ())
    names = observer.instances()
    found = [SearchHit("instance", each, each, "", f"/i/{quote(each, safe='')}/queues") for each in names]
    found = [hit for hit in found if text.lower() in hit.name.lower()]
    unread, partly = [], []
    until = time.monotonic() + _BUDGET
    for name in names if instance is None else [instance]:
        if time.monotonic() >= until:
            unread.append(name)
            continue
        one = _InstanceSearch(observer, name, text)
        try:
            found += one.hits()
        except AmpsqError:
            unread.append(name)
        partly += one.partly
    return _bounded(text, found, unread, partly)


def _bounded(text: str, found: Iterable[SearchHit], unread: Iterable[str], partly: Iterable[str]) -> SearchResult:
    """Order what was found, and leave out what is beyond the bounds."""
    kinds: dict[str, list[SearchHit]] = {kind: [] for kind in KINDS}
    for hit in found:
        kinds[hit.kind].append(hit)
    wanted = text.lower()
    for hits in kinds.values():
        hits.sort(key=lambda hit: (*_rank(hit.name.lower(), wanted), hit.instance))
    shown = tuple(hit for hits in kinds.values() for hit in hits[:_SHOWN])
    more = {kind: len(hits) - _SHOWN for kind, hits in kinds.items() if len(hits) > _SHOWN}
    return SearchResult(text, shown, more, tuple(unread), tuple(partly))


def _rank(name: str, wanted: str) -> tuple[int, str]:
    return (0 if name == wanted else 1 if name.startswith(wanted) else 2), name


class _InstanceSearch:
    """A search in one instance.

    Attributes:
        partly: what was looked at in part alone, in words.
    """

    def __init__(self, observer: Observer, instance: str, text: str) -> None:
        self._observer, self._instance, self._text = observer, instance, text
        self.partly: list[str] = []

    def hits(self) -> Iterator[SearchHit]:
        """Give all that matches; raises `AmpsqError`."""
        # What is away is so before any flow is made, which would be left behind.
        self._observer.client(self._instance)
        catalog = self._observer.run(self._instance, catalog_calls.KnownCatalog().read())
        yield from self._definitions(catalog)
        yield from self._links()
        yield from self._subscriptions()
        yield from self._clients()
        yield from self._messages(catalog)

    def _hit(self, kind: str, name: str, page: str, detail: str = "") -> SearchHit:
        return SearchHit(kind, name, self._instance, detail, f"/i/{quote(self._instance, safe='')}/{page}")

    def _matches(self, *texts: str) -> bool:
        wanted = self._text.lower()
        return any(wanted in each.lower() for each in texts)

    def _definitions(self, catalog: Catalog) -> Iterator[SearchHit]:
        for kind, names, page in (
            ("queue", catalog.queues, "queues"),
            ("view", catalog.views, "topics"),
            ("topic", catalog.topics.keys() - catalog.views.keys(), "topics"),
            ("action", catalog.actions, "actions"),
        ):
            for name in names:
                if self._matches(name):
                    yield self._hit(kind, name, f"{page}/{quote(name, safe='')}")

    def _links(self) -> Iterator[SearchHit]:
        for link in self._observer.reading(self._instance).figures.links:
            peer = link.instance or ""
            if self._matches(link.destination, peer):
                is_out = link.direction == "out"
                name = link.destination if is_out or not peer else peer
                yield self._hit("link", name, "replication", f"{'to' if is_out else 'from'} it, {link.state}")

    def _subscriptions(self) -> Iterator[SearchHit]:
        names, number = self._observer.run(self._instance, _read_names(self._instance))
        if number > len(names):
            self.partly.append(f"{len(names):,} of {number:,} subscriptions of {self._instance}")
        found = self._observer.run_ahead(self._instance, lambda pipeline: _facts(pipeline, self._instance, names))
        for each in found:
            if each is not None and self._matches(each.name, each.client):
                queue = each.queues[0]
                of = f"of {each.client}, to {', '.join(each.queues[:3])}{' and more' if len(each.queues) > 3 else ''}"  # noqa: PLR2004
                yield self._hit("subscription", each.name, f"queues/{quote(queue, safe='')}#subscriptions", of)

    def _clients(self) -> Iterator[SearchHit]:
        admin = self._observer.client(self._instance).admin
        for reader in admin.readers():
            if self._matches(reader.subscription, reader.client):
                page = f"topics/{quote(reader.topics[0], safe='')}#readers" if reader.topics else "topics"
                of = f"of {reader.client}, to topic {', '.join(reader.topics[:3])}"
                yield self._hit("subscription", reader.subscription, page, of)
        for publisher in admin.publishers():
            if self._matches(publisher.name, publisher.client or ""):
                topic = publisher.bookmark.topic if publisher.bookmark else ""
                yield self._hit("publisher", publisher.name, "publishers", f"last message in {topic}" if topic else "")

    def _messages(self, catalog: Catalog) -> Iterator[SearchHit]:
        client = self._observer.client(self._instance)
        context = InstanceContext(client.instance, client.origin)
        if _ID.fullmatch(self._text):
            topics = sorted(catalog.topics)
            if len(topics) > _LOGS:
                self.partly.append(f"the logs of {_LOGS:,} of {len(topics):,} topics of {self._instance}")
            some = topics[:_LOGS]
            for bookmark in self._observer.run_ahead(
                self._instance, lambda pipeline: _with_id(pipeline, context, some, self._text)
            ):
                yield self._message(bookmark, "")
            return
        try:
            bookmark = Bookmark.parse(self._text)
        except DefinitionError:
            return
        if isinstance(bookmark, PublisherBookmark):
            # Its log may have to be read to the beginning: that is done where somebody asks for this one alone.
            known = {each.name for each in client.admin.publishers()}
            if bookmark.publisher in known:
                yield self._message(bookmark, "opening it looks through the logs")
            return
        detail = self._observer.run(self._instance, _recorded(context, bookmark))
        if detail is not None:
            yield self._message(bookmark, detail)

    def _message(self, bookmark: Bookmark, detail: str) -> SearchHit:
        return self._hit("message", str(bookmark), f"messages?bookmark={quote(bookmark, safe='')}", detail)


async def _read_names(instance: str) -> tuple[list[str], int]:
    """Read names of subscriptions, and how many there are."""
    return (await subscription_names(instance, _SUBSCRIPTIONS)), (await count_subscriptions(instance))


async def _facts(pipeline: Pipeline, instance: str, names: list[str]) -> list[StoredSubscription | None]:
    """Read what is known of subscriptions, in one round trip."""
    for name in names:
        await Post(pipeline, subscription_facts(instance, name))
    return [(await Collect(pipeline)) for _ in names]


async def _with_id(pipeline: Pipeline, context: InstanceContext, topics: list[str], stream_id: str) -> list[Bookmark]:
    """Find the messages that have an ID in these topics' logs, in one round trip."""
    for topic in topics:
        await Post(pipeline, find_entry(context.instance, log_of(topic), stream_id))
    found = []
    for topic in topics:
        entry: RawEntry | None = await Collect(pipeline)
        if entry is not None and is_message(entry[1]):
            found.append(bookmark_of(topic, context.origin, stream_id, read_entry(entry[1])[1]))
    return found


async def _recorded(context: InstanceContext, bookmark: Bookmark) -> str | None:
    """Say whether the log has a message; None: it never was of this instance, as far as is known."""
    named = await find_bookmark(context.origin, bookmark)
    if not named.id:
        return None
    entry = await find_entry(context.instance, log_of(named.bookmark.topic), named.id)
    if entry is not None:
        return ""
    catalog = await catalog_calls.catalog()
    return "the log does not have it any more" if bookmark.topic in catalog.topics else None
