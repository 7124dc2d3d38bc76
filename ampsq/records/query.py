"""The state of the world of a topic with a key: its records queried in bounded steps; all as flows."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, TypeVar

from ampsq.base.errors import DefinitionError
from ampsq.base.values import shown
from ampsq.expressions import parse
from ampsq.expressions.values import text_of
from ampsq.protocol.calls import records as record_calls
from ampsq.protocol.calls.records import catch_up_records
from ampsq.protocol.limits import BATCH
from ampsq.publishing.topic_key import joined_key
from ampsq.queues.query import QueryResult, SowMessage

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ampsq.definitions.queue import Topic
    from ampsq.definitions.stored import StoredTopic
    from ampsq.expressions import Document
    from ampsq.protocol.calls.records import StoredRecord
    from ampsq.protocol.context import InstanceContext
    from ampsq.queues.query import Query

__all__ = [
    "RecordKey",
    "chosen",
    "key_parts",
    "key_texts",
    "read_records",
    "record_message",
    "sow_records",
]

T = TypeVar("T")
#: What the text of a key of several parts is made of.
_PIECE: Final = re.compile(rb"\\.|\||[^\\|]+", re.DOTALL)


class RecordKey:
    """The key that makes messages of a topic versions of one record; the same as lua/records/lib/record_key.lua.

    Args:
        topic: the topic, with a key.
    """

    def __init__(self, topic: Topic | StoredTopic) -> None:
        self._parts = [parse(text, "filter") for text in topic.key]

    def of(self, document: Document) -> bytes | None:
        """The text of a message's key; None where it does not have one value for each part."""
        texts = []
        for part in self._parts:
            value = part.value(document)
            if value is None or isinstance(value, list):
                return None
            texts.append(text_of(value))
        return joined_key(texts)


def key_parts(text: bytes, number: int) -> list[bytes]:
    """The parts of the text of a key that has so many, if the text is one; the other way round than it is made."""
    if number == 1:
        return [text]
    parts = [b""]
    for piece in _PIECE.findall(text):
        if piece == b"|":
            parts.append(b"")
        else:
            parts[-1] += piece.removeprefix(b"\\")
    return parts


def key_texts(keys: object, topic: Topic | StoredTopic | None = None) -> list[bytes]:
    """The keys that a user names: each a text or a number, or for a key of several parts a tuple of such.

    Args:
        keys: of them; of several parts also the text of a whole key, as messages and records have it.
        topic: whose key it is; None: nobody knows how many parts that has.

    Raises:
        DefinitionError: one of them is none of these, or has other parts than the topic's key.
    """
    if isinstance(keys, str | bytes | int | float):
        keys = [keys]
    if not isinstance(keys, list | tuple | set | frozenset) or not keys:
        raise DefinitionError(f"keys={shown(keys)}: allowed is a list of keys, as in ['7', '8']")
    found = [joined_key([_part(part) for part in (each if isinstance(each, tuple) else (each,))]) for each in keys]
    if topic is not None:
        for each, text in zip(keys, found, strict=True):
            _check_parts(topic, each, text)
    return found


def _check_parts(topic: Topic | StoredTopic, each: object, text: bytes) -> None:
    wanted = len(topic.key)
    parts = len(each) if isinstance(each, tuple) else len(key_parts(text, wanted))
    if parts == wanted:
        return
    allowed = f"tuples of {wanted}, as in {tuple(topic.key)!r}" if wanted > 1 else f"one value, that of {topic.key[0]}"
    raise DefinitionError(
        f"keys: {shown(each)} has {parts} of the parts of the key of {topic.name!r}, which has {wanted}: "
        f"{', '.join(topic.key)}; allowed: {allowed}"
    )


def _part(value: object) -> bytes:
    if isinstance(value, str):
        try:
            return value.encode("utf-8", "surrogateescape")
        except UnicodeEncodeError as error:
            raise DefinitionError(f"keys: {value!r} has half a character; allowed: text that UTF-8 can say") from error
    if isinstance(value, bytes | int | float):
        return text_of(value)
    raise DefinitionError(
        f"keys: {shown(value)} is no key; allowed: a text or a number, or a tuple of them for a key of several parts"
    )


async def read_records(topic: str, tree: str, keys: Sequence[bytes] | None) -> list[StoredRecord]:
    """Read the records that match, each once, as of the step that met it.

    Raises:
        NoRecords: the topic has no key.
    """
    found: dict[bytes, StoredRecord] = {}
    named = [list(keys[first : first + BATCH]) for first in range(0, len(keys), BATCH)] if keys is not None else [[]]
    for some in named:
        after: str | None = ""
        while after is not None:
            page = await record_calls.browse_records(topic, tree, after, some)
            for record in page.records:
                found[record.key] = record
            after = page.next
    return list(found.values())


async def sow_records(
    context: InstanceContext, topic: Topic | StoredTopic, query: Query, keys: Iterable[object] | None = None
) -> QueryResult:
    """Query a topic's records; without `order_by` they come in the order of their last messages.

    Raises:
        NoRecords: the topic has no key. DefinitionError: the keys are none.
    """
    named = None if keys is None else key_texts(keys, topic)
    await catch_up_records(topic.name)
    tree = query.filter.json if query.filter is not None else ""
    records = await read_records(topic.name, tree, named)
    return chosen(context, topic, query, records)


def chosen(
    context: InstanceContext, topic: Topic | StoredTopic, query: Query, records: Iterable[StoredRecord]
) -> QueryResult:
    """Choose of records that match a query's filter those that it gives."""
    selection = QueryResult(query, in_order=False)
    for record in records:
        document = context.document(record.message, topic.type)
        selection.add(record_message(context, topic, record), document, record.message.ref)
    return selection


def record_message(context: InstanceContext, topic: Topic | StoredTopic, record: StoredRecord) -> SowMessage:
    """A record as queries give it."""
    text = record.key.decode("utf-8", "surrogateescape")
    return SowMessage.of(record.message, context.origin, key=text, type=topic.type)
