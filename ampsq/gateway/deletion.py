"""Deleting records for publishers of any name: the flow of `GatewayClient.delete`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ampsq.catalog.suggestions import with_suggestions
from ampsq.protocol.calls import records as record_calls
from ampsq.protocol.calls.records import call_caught_up
from ampsq.protocol.limits import BATCH
from ampsq.protocol.reads.definitions import read_topic
from ampsq.queues.query import parse_query_filter
from ampsq.records.query import key_texts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ampsq.client.session import Session
    from ampsq.protocol.calls.records import Deleted

__all__ = ["PublisherSequence", "delete_records"]


class PublisherSequence(NamedTuple):
    """The sender and the number of a request, so that it is done once however often it is sent.

    Attributes:
        publisher: as the server knows it.
        first: the number of the first message; the next one has one more.
        is_request: the sender is this request alone, known by a key: over partitions each of them numbers what it gets.
    """

    publisher: str
    first: int
    is_request: bool = False


@with_suggestions("topic")
async def delete_records(
    session: Session, topic: str, keys: Sequence[Any] | None, text: str | None, numbered: PublisherSequence | None
) -> tuple[int, bool]:
    """Delete the records of keys, or all, as far as they match a filter; see `GatewayClient.delete`."""
    values: list[bytes] = []
    if keys is not None:
        known = await read_topic(session.instance, topic)
        values = key_texts(list(keys), known if known is not None and known.key else None)
    tree = parse_query_filter(text).json if text is not None else ""
    publisher, sequence = numbered[:2] if numbered is not None else ("", None)
    number = 0
    # Without keys there is always a filter.
    for first in range(0, len(values), BATCH) if keys is not None else (0,):
        after: str | None = ""
        while after is not None:
            call = record_calls.sow_delete(
                topic,
                "filter" if keys is None else "keys",
                values[first : first + BATCH],
                tree,
                after,
                publisher,
                sequence,
            )
            deleted: Deleted = await call_caught_up(call)
            if deleted.repeated:
                return number, True
            number += deleted.number
            after = deleted.next
    return number, False
