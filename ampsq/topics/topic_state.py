"""The contents of topics: their logs, queues and records, and what is kept beyond their retention."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Final

from ampsq.definitions.stored import read_stored_queue, read_stored_topic
from ampsq.protocol.calls import catalog as catalog_calls
from ampsq.protocol.calls import retention as retention_calls
from ampsq.protocol.calls.records import count_records
from ampsq.protocol.calls.retention import measure_logs
from ampsq.protocol.entries import bookmark_of
from ampsq.protocol.reads.message_names import name_message

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ampsq.base.bookmarks import Bookmark
    from ampsq.protocol.calls.catalog import Catalog
    from ampsq.protocol.calls.retention import LogFigures

__all__ = ["TopicState", "feeding", "read_some_topics", "read_topics"]

#: Logs that one call measures.
_LOGS: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicState:
    """The content of a topic: its log, its queues, and what is kept beyond its retention, as the last walk found it.

    Attributes:
        messages: in its log.
        bytes: memory of its log.
        first: bookmark of the first message; None of an empty log.
        last: bookmark of the last one.
        queues: names of the queues that it feeds.
        retention: the elements of its retention that are given, by name.
        key: its identifiers; () of a topic without records.
        records: how many it has.
        recorded: messages that were ever recorded in its log.
        kept: messages beyond the retention that are kept, since somebody needs them; of unread ones only the first
            counts.
        pinned_by: who needs the first of those kept; None if none is.
        pinned: its bookmark.
        state: what it is there; "" of others than queues.
    """

    messages: int
    bytes: int
    first: Bookmark | None
    last: Bookmark | None
    queues: tuple[str, ...]
    retention: dict[str, object]
    key: tuple[str, ...]
    records: int
    recorded: int = 0
    kept: int = 0
    pinned_by: str | None = None
    pinned: Bookmark | None = None
    state: str = ""

    def as_dict(self) -> dict[str, object]:
        """Give it as plain values, as JSON has them."""
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        lists = {name: list(value) for name, value in values.items() if isinstance(value, tuple)}
        bookmarks = {name: str(values[name]) for name in ("first", "last", "pinned") if values[name] is not None}
        return {**values, **lists, **bookmarks}


def feeding(catalog: Catalog, topic: str) -> list[str]:
    """The queues that a topic feeds, sorted."""
    return sorted(name for name, text in catalog.queues.items() if read_stored_queue(text).feeds_from(topic))


async def read_topics(instance: str, origin: str) -> dict[str, TopicState]:
    """Read all topics by name; see `Admin.topics`."""
    catalog = await catalog_calls.catalog()
    return await read_some_topics(instance, origin, catalog, sorted(catalog.topics))


async def read_some_topics(instance: str, origin: str, catalog: Catalog, names: Sequence[str]) -> dict[str, TopicState]:
    """Read topics of a catalog, a hundred logs with one call."""
    found: dict[str, TopicState] = {}
    for first in range(0, len(names), _LOGS):
        some = names[first : first + _LOGS]
        for name, log in zip(some, await measure_logs(some), strict=True):
            found[name] = await _read_topic(instance, origin, catalog, name, log)
    return found


async def _read_topic(instance: str, origin: str, catalog: Catalog, name: str, log: LogFigures) -> TopicState:
    topic = read_stored_topic(name, catalog.topics[name])
    state = TopicState(
        messages=log.length,
        bytes=log.bytes,
        first=bookmark_of(name, origin, log.first, log.first_source) if log.first else None,
        last=bookmark_of(name, origin, log.last, log.last_source) if log.last else None,
        queues=tuple(feeding(catalog, name)),
        retention=dict(topic.retention),
        key=topic.key,
        records=await count_records(instance, name),
        recorded=log.added,
    )
    found = await retention_calls.read_remembered_walk(instance, name) if topic.has_retention else None
    if found is None:
        return state
    pinned = await name_message(name, found.pin.id)
    return replace(state, kept=max(found.kept, 1), pinned_by=found.pin.by, pinned=pinned, state=found.pin.state)
