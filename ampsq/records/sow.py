"""Queries by name: the records of a topic, the available messages of a queue, the rows of a view."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ampsq.base.errors import DefinitionError, UnknownQueue
from ampsq.base.values import check_text
from ampsq.definitions.topic import ConflatedTopic
from ampsq.protocol.calls import catalog as catalog_calls
from ampsq.protocol.reads.definitions import read_topic
from ampsq.records.history import sow_history
from ampsq.records.query import key_texts, sow_records
from ampsq.views import upkeep as views

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from ampsq.base.bookmarks import Bookmark
    from ampsq.definitions.queue import Topic
    from ampsq.protocol.context import InstanceContext
    from ampsq.queues.query import Query, QueryResult

__all__ = ["sow"]


async def sow(
    context: InstanceContext,
    name: str,
    query: Query,
    keys: Iterable[object] | None = None,
    bookmark: Bookmark | str | datetime | None = None,
) -> QueryResult:
    """Query what has this name; see `Client.sow`."""
    check_text("name of a topic, queue or view", name)
    topic: Topic | None = await read_topic(context.instance, name)
    if topic is None or not topic.key:
        if keys is not None or bookmark is not None:
            raise DefinitionError(
                f"sow of {name!r}: keys and bookmark are for the records of a topic with a key; allowed: such a topic, "
                "or the query without them"
            )
        try:
            return await views.sow(context, name, query)
        except UnknownQueue:
            catalog = await catalog_calls.catalog()
            if name not in catalog.conflated:
                raise
            conflated = ConflatedTopic.from_json(catalog.conflated[name])
            return await sow(context, conflated.underlying_topic, query.within(conflated.filter))
    if bookmark is None:
        return await sow_records(context, topic, query, keys)
    named = None if keys is None else key_texts(keys, topic)
    return await sow_history(context, topic, query, named, bookmark)
