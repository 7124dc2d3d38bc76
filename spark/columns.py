"""The columns of what is read, and pages of a log as record batches of them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import TypeAdapter, ValidationError
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    BinaryType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from ampsq.base.bookmarks import Origin, recorded_by
from ampsq.base.errors import DefinitionError
from ampsq.protocol.entries import is_message
from ampsq.protocol.entry_columns import own_columns, read_columns
from ampsq.queues.query import as_json
from ampsq.topics.message import document_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ampsq.expressions import Expression
    from ampsq.protocol.entries import RawEntry
    from ampsq.protocol.entry_columns import EntryColumns
    from ampsq.spark.logs import InstanceLog
    from ampsq.spark.queue_offsets import LeasedMessage

__all__ = [
    "LeasedColumns",
    "PageColumns",
    "check_schema",
    "queue_columns",
    "read_schema",
    "topic_columns",
]

#: Up to so many digits a number of milliseconds is one of microseconds that 64 bits hold.
_DIGITS: Final = 15
_LAST_MOMENT: Final = 2**63 - 1
#: Of a queue's messages: how often each was delivered, 1 the first time, and its group.
_OF_QUEUES: Final = (StructField("delivery", IntegerType(), nullable=False), StructField("group", StringType()))


def read_schema(options: Mapping[str, str]) -> StructType:
    """The columns of what is read, by options that are not checked yet: what is wrong with them the reader tells."""
    try:
        include_headers = TypeAdapter(bool).validate_python(options.get("includeHeaders", "false"))
    except ValidationError:
        include_headers = False
    columns = queue_columns if options.get("queue") else topic_columns
    return columns(include_headers=include_headers)


def check_schema(schema: StructType, own: StructType) -> None:
    """See that nobody asks for other columns than those that what is read has.

    Raises:
        DefinitionError: somebody does.
    """
    if schema != own:
        raise DefinitionError(
            "schema: what is read has its own columns; allowed: no .schema(...), but from_json(...) of the value"
        )


def topic_columns(*, include_headers: bool) -> StructType:
    """The columns of a topic's messages."""
    fields = [
        StructField("topic", StringType(), nullable=False),
        StructField("instance", StringType(), nullable=False),
        StructField("bookmark", StringType(), nullable=False),
        StructField("key", BinaryType()),
        StructField("value", BinaryType(), nullable=False),
        StructField("timestamp", TimestampType(), nullable=False),
        StructField("publisher", StringType()),
        StructField("sequence", LongType()),
    ]
    if include_headers:
        fields.append(StructField("headers", MapType(StringType(), StringType())))
    return StructType(fields)


def queue_columns(*, include_headers: bool) -> StructType:
    """The columns of a queue's messages."""
    return StructType([*topic_columns(include_headers=include_headers).fields, *_OF_QUEUES])


class PageColumns:
    """Makes record batches of the entries of one log.

    Args:
        schema: as `read_schema` gives it.
        log: whose entries they are.
        expression: what an entry must match; None: all do.
    """

    def __init__(self, schema: StructType, log: InstanceLog, expression: Expression | None) -> None:
        self._schema = to_arrow_schema(schema, timezone="UTC")
        self._has_headers = "headers" in schema.fieldNames()
        self._log, self._expression = log, expression
        self._topic, self._origin = pa.scalar(f"{log.topic}~"), pa.scalar(f"{log.origin}~")

    def batch(self, entries: Sequence[RawEntry]) -> pa.RecordBatch | None:
        """The messages among these entries as columns; None if there are none."""
        if self._expression is not None:
            entries = [entry for entry in entries if self._matches(entry)]
        found = own_columns(entries)
        if found is None:
            entries = [entry for entry in entries if is_message(entry[1])]
            found = read_columns(entries)
        if not entries:
            return None
        return self._made([entry[0] for entry in entries], found)

    def _matches(self, entry: RawEntry) -> bool:
        stream_id, flat = entry
        log = self._log
        document = document_of((log.topic, stream_id, flat), log.origin, log.address.instance, log.type)
        return self._expression is not None and self._expression.matches(document)

    def _made(self, ids: list[bytes], found: EntryColumns) -> pa.RecordBatch:
        number, texts = len(ids), pa.array(ids, pa.binary()).cast(pa.string())
        columns = [
            pa.repeat(pa.scalar(self._log.topic), number),
            pa.repeat(pa.scalar(self._log.address.instance), number),
            pc.binary_join_element_wise(self._topic, self._sources(texts, found.sources), pa.scalar("")),
            _column(found.keys, number, pa.binary()),
            pa.array(_bodies(found), pa.binary()),
            _moments(texts),
            _column(found.publishers, number, pa.string()),
            _column(found.sequences, number, pa.int64()),
        ]
        if self._has_headers:
            headers = [_headers(each) for each in found.headers or [None] * number]
            columns.append(pa.array(headers, self._schema.field("headers").type))
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)

    def _sources(self, ids: pa.Array, copied: Sequence[bytes | None] | None) -> pa.Array:
        """Return where each message was published first, as bookmarks say it."""
        own = pc.binary_join_element_wise(self._origin, ids, pa.scalar(""))
        origin = self._log.origin
        if isinstance(origin, Origin) and origin.former:
            own = pa.array([f"{recorded_by(origin, text)}~{text}" for text in ids.to_pylist()], pa.string())
        if copied is None:
            return own
        return pc.coalesce(pa.array(copied, pa.binary()).cast(pa.string()), own)


class LeasedColumns(PageColumns):
    """Makes record batches of messages that a queue has leased, what is for it alone included."""

    def __init__(self, schema: StructType, log: InstanceLog) -> None:
        super().__init__(StructType(schema.fields[: -len(_OF_QUEUES)]), log, None)
        self._whole = to_arrow_schema(schema, timezone="UTC")

    def leased(self, entries: Sequence[RawEntry], messages: Sequence[LeasedMessage]) -> pa.RecordBatch:
        """Return entries, all of them messages, as columns, with the number of deliveries and the group of each."""
        plain = self._made([entry[0] for entry in entries], own_columns(entries) or read_columns(entries))
        deliveries = pa.array([each.delivery for each in messages], pa.int32())
        groups = pa.array([each.group for each in messages], pa.string())
        return pa.RecordBatch.from_arrays([*plain.columns, deliveries, groups], schema=self._whole)


def _bodies(found: EntryColumns) -> Sequence[bytes | None]:
    """The bodies of all entries; of one that somebody wrote without ampsq its fields, as JSON."""
    if not found.foreign:
        return found.bodies
    return [
        as_json(found.foreign[number]) if number in found.foreign else body for number, body in enumerate(found.bodies)
    ]


def _headers(text: bytes | None) -> list[tuple[str, str]] | None:
    """Headers as they were published; null for what somebody else wrote there that is none."""
    try:
        found = json.loads(text) if text else None
    except ValueError:
        return None
    return [(name, str(value)) for name, value in found.items()] if isinstance(found, dict) else None


def _column(values: Sequence[bytes | None] | None, number: int, kind: pa.DataType) -> pa.Array:
    if values is None:
        return pa.nulls(number, kind)
    found = pa.array(values, pa.binary())
    # What others wrote under a field of ours may be anything.
    return found if kind == pa.binary() else _cast(found, kind)


def _cast(values: pa.Array, kind: pa.DataType) -> pa.Array:
    try:
        texts = values.cast(pa.string())
        return texts if kind == pa.string() else texts.cast(kind)
    except pa.ArrowInvalid:
        if kind == pa.string():
            return pa.array([None if each is None else each.decode(errors="replace") for each in values.to_pylist()])
        return pa.array([_number(each) for each in values.to_pylist()], kind)


def _number(value: bytes | None) -> int | None:
    return int(value) if value is not None and value.isdigit() and int(value) <= _LAST_MOMENT else None


def _moments(texts: pa.Array) -> pa.Array:
    """Return when entries were recorded, by their IDs."""
    digits = pc.min_max(pc.find_substring(texts, "-")).as_py()
    if digits["min"] == digits["max"] <= _DIGITS:
        numbers = pc.utf8_slice_codeunits(texts, 0, digits["max"]).cast(pa.int64())
        return pc.multiply(numbers, 1000).cast(pa.timestamp("us", tz="UTC"))
    found = [min(int(text.partition("-")[0]) * 1000, _LAST_MOMENT) for text in texts.to_pylist()]
    return pa.array(found, pa.int64()).cast(pa.timestamp("us", tz="UTC"))
