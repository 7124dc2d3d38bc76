"""Deleting records of a topic with a key, by keys, messages or a filter, in bounded steps; all as flows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from ampsq.base.errors import DefinitionError
from ampsq.base.values import parse_name, shown
from ampsq.catalog.suggestions import with_suggestions
from ampsq.protocol.calls import records as record_calls
from ampsq.protocol.calls.records import call_caught_up
from ampsq.protocol.limits import BATCH
from ampsq.protocol.reads.definitions import read_topic
from ampsq.records.query import key_texts

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ampsq.expressions import Expression
    from ampsq.protocol.calls.records import Deleted
    from ampsq.publishing.plain import PlainPublisher, TopicTypes

__all__ = ["check_choice", "delete_by_key", "delete_matching", "deletion_calls"]


@with_suggestions("topic")
async def delete_by_key(publisher: PlainPublisher, topic: str, keys: Iterable[Any] | None, data: Any) -> int:
    """Delete the records of keys, or the one of a message's key; gives how many there were.

    Args:
        publisher: numbers the calls, where it has a name, so that each is done once.
        topic: the topic.
        keys: of the records; or
        data: the message.
    """
    await publisher.open()
    how: Literal["keys", "data"] = "data" if keys is None else "keys"
    if keys is not None:
        known = await read_topic(publisher.client.instance, parse_name(topic))
        values = key_texts(keys, known if known is not None and known.key else None)
    else:
        values = [(await publisher.client.types.body(topic, data))]
    number = 0
    for first in range(0, len(values), BATCH):
        call = record_calls.sow_delete(
            topic,
            how,
            values[first : first + BATCH],
            publisher=publisher.name,
            sequence=publisher.take_number(),
        )
        deleted: Deleted = await call_caught_up(call)
        number += deleted.number
    return number


@with_suggestions("topic")
async def delete_matching(topic: str, filter: Expression) -> int:  # noqa: A002  (AMPS's word)
    """Delete the records that match a filter, each as of the step that meets it; gives how many there were."""
    number, after = 0, ""
    while True:
        call = record_calls.sow_delete(topic, "filter", (), filter.json, after)
        deleted: Deleted = await call_caught_up(call)
        number += deleted.number
        if deleted.next is None:
            return number
        after = deleted.next


async def deletion_calls(types: TopicTypes, topic: str, keys: Iterable[Any] | None, data: Any) -> list[list[bytes]]:
    """Write a deletion by keys or data as a publish store keeps it: the arguments of one call each."""
    how, values = ("keys", key_texts(keys)) if keys is not None else ("data", [(await types.body(topic, data))])
    head = [parse_name(topic).encode(), how.encode()]
    return [[*head, *values[first : first + BATCH]] for first in range(0, len(values), BATCH)]


def check_choice(topic: str, **choice: object) -> None:
    """Refuse a deletion that does not say one of some ways what is deleted.

    Raises:
        DefinitionError: none or several of them are given.
    """
    given = [name for name, value in choice.items() if value is not None]
    if len(given) != 1:
        *names, last = choice
        raise DefinitionError(
            f"sow_delete of {shown(topic)} got {' and '.join(given) or 'nothing'}; "
            f"allowed: one of {', '.join(names)} and {last}"
        )
