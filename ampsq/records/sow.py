"""Queries by name: the records of a topic, the available messages of a queue, the rows of a view."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ampsq.base.errors import DefinitionError, UnknownQueue
from ampsq.base.values import check_text
from ampsq.definitions.stored import read_stored_queue, read_stored_topic
from ampsq.protocol.calls import catalog as catalog_calls
from ampsq.protocol.reads.definitions import read_definition
from ampsq.queues.browse import sow_queue
from ampsq.records.history import sow_history
from ampsq.records.query import key_texts, sow_records

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from ampsq.base.bookmarks import Bookmark
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
    stored = await read_definition(context.instance, "topics", name)
    topic = read_stored_topic(name, "{}" if stored is None else stored)
    if not topic.key:
        if keys is not None or bookmark is not None:
            raise DefinitionError(
                f"sow of {name!r}: keys and bookmark are for the records of a topic with a key; allowed: such a topic, "
                "or the query without them"
            )
        queue = await read_definition(context.instance, "queues", name)
        if queue is not None:
            return await sow_queue(context, read_stored_queue(queue), query)
        return await _sow_others(context, name, query)
    if bookmark is None:
        return await sow_records(context, topic, query, keys)
    named = None if keys is None else key_texts(keys, topic)
    return await sow_history(context, topic, query, named, bookmark)


async def _sow_others(context: InstanceContext, name: str, query: Query) -> QueryResult:
    """Query the rows of a view, or the records under a conflated topic."""
    # A queue and a topic with a key are queried without the models of definitions, which take long to import.
    from ampsq.definitions.topic import ConflatedTopic  # noqa: PLC0415
    from ampsq.views.upkeep import sow as sow_view  # noqa: PLC0415

    try:
        return await sow_view(context, name, query)
    except UnknownQueue:
        catalog = await catalog_calls.catalog()
        if name not in catalog.conflated:
            raise
        conflated = ConflatedTopic.from_json(catalog.conflated[name])
        return await sow(context, conflated.underlying_topic, query.within(conflated.filter))
