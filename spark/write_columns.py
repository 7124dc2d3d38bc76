"""The columns of a frame that is written, and its rows as values of messages."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types

from ampsq.base.errors import DefinitionError
from ampsq.base.suggestions import nearest
from ampsq.base.values import Interval, parse_name
from ampsq.definitions.definition import Fault, report
from ampsq.protocol.encoding import encode_headers
from ampsq.publishing.envelope import encode_group

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

__all__ = ["ALLOWED", "WriteColumns"]

#: Columns and what they may be.
ALLOWED: Final = {
    "value": "binary or string",
    "key": "binary or string",
    "topic": "string",
    "headers": "map<string,string>",
    "group": "string",
    "expiration": "a number of seconds, a string as '30s', or an interval day to second",
    "delay": "a number of seconds, a string as '30s', or an interval day to second",
    "at": "timestamp",
}
_TEXT: Final = (types.BinaryType, types.StringType)
_PERIOD: Final = (types.NumericType, types.StringType, types.DayTimeIntervalType)
#: In the order of a row's values; the topic is the last.
_LETTERS: Final = {
    "value": "b",
    "headers": "h",
    "group": "g",
    "expiration": "e",
    "delay": "d",
    "at": "d",
    "key": "k",
    "topic": "t",
}


@dataclass(frozen=True, slots=True)
class WriteColumns:
    """The columns to write.

    Attributes:
        names: those of `ALLOWED` that the frame has, in the order of a row's values.
        shape: a letter for each value of a row.
    """

    names: tuple[str, ...]
    shape: str

    @classmethod
    def of(cls, schema: types.StructType, *, has_topic: bool) -> WriteColumns:
        """Check a frame's columns.

        Args:
            schema: the frame's.
            has_topic: whether the option `topic` is given.

        Raises:
            DefinitionError: a column is missing, unknown or of the wrong type; the text lists every fault.
        """
        fields = {field.name: field.dataType for field in schema.fields}
        faults = [_unknown_columns(name, fields) for name in fields if name not in ALLOWED]
        if "value" not in fields:
            hint = "select(to_json(struct('*')).alias('value')) makes one of all columns"
            faults.append(Fault("value", f"missing; allowed: a column of {ALLOWED['value']}; {hint}"))
        for name, kind in fields.items():
            if name in ALLOWED and not _is_right(name, kind):
                hint = f"; to_json({name}) makes a text" if isinstance(kind, types.StructType | types.MapType) else ""
                faults.append(Fault(name, f"is {kind.simpleString()}; allowed: {ALLOWED[name]}{hint}"))
        if "delay" in fields and "at" in fields:
            faults.append(Fault("at", "beside delay; allowed: one of the two"))
        if has_topic == ("topic" in fields):
            what = "as a column and as an option" if has_topic else "missing"
            faults.append(Fault("topic", f"{what}; allowed: the option topic, or a column of strings"))
        if faults:
            raise DefinitionError(report("the frame that is written", faults))
        names = tuple(name for name in _LETTERS if name in fields)
        return cls(names, "".join(_LETTERS[name] for name in names))

    @property
    def has_topics(self) -> bool:
        """Return whether each row says its topic."""
        return "topic" in self.names

    def rows(self, batch: pa.RecordBatch) -> tuple[list[bytes], list[bytes | None] | None]:
        """All rows' values in turn, and their keys, if there are any.

        Raises:
            DefinitionError: a value is null where it may not be, or cannot be read.
        """
        columns = [_READERS[name](batch.column(name), name) for name in self.names]
        keys = None
        if "key" in self.names:
            keys = [key or None for key in columns[self.names.index("key")]]
        if len(columns) == 1:
            return columns[0], keys
        return [value for row in zip(*columns, strict=True) for value in row], keys

    def groups(self, values: list[bytes]) -> list[bytes] | None:
        """Return the groups of rows, empty of those that name none; None where the frame has no such column."""
        return values[self.names.index("group") :: len(self.names)] if "group" in self.names else None


def _unknown_columns(name: str, fields: Collection[str]) -> Fault:
    if name == "deduplication_id":
        return Fault(
            name,
            "a job's rows are recorded once without it; allowed: the options publisher and epoch, or "
            "dropDuplicates(['deduplication_id']) and drop(...) before; client.publish knows IDs",
        )
    text = nearest(name, [each for each in ALLOWED if each not in fields] or list(ALLOWED), "column")
    return Fault(name, f"{text}; drop it, or put it into the value: to_json(struct(...))")


def _is_right(name: str, kind: types.DataType) -> bool:
    if name in ("value", "key"):
        return isinstance(kind, _TEXT)
    if name == "headers":
        return (
            isinstance(kind, types.MapType)
            and isinstance(kind.keyType, types.StringType)
            and isinstance(kind.valueType, types.StringType)
        )
    if name in ("expiration", "delay"):
        return isinstance(kind, _PERIOD)
    return isinstance(kind, types.TimestampType if name == "at" else types.StringType)


def _filled(column: pa.Array, name: str) -> pa.Array:
    if column.null_count:
        raise DefinitionError(f"column {name!r}: {column.null_count} rows have none; every row needs one")
    return column


def _bytes(column: pa.Array) -> list[bytes]:
    return column.cast(pa.binary()).to_pylist()  # type: ignore[no-any-return]


def _values(column: pa.Array, name: str) -> list[bytes]:
    return _bytes(_filled(column, name))


def _keys(column: pa.Array, name: str) -> list[bytes]:  # noqa: ARG001
    return [value or b"" for value in column.cast(pa.binary()).to_pylist()]


def _groups(column: pa.Array, name: str) -> list[bytes]:
    for group in pc.unique(column).to_pylist():
        try:
            encode_group(group or "")
        except DefinitionError as error:
            raise DefinitionError(f"column {name!r}: {error}") from None
    return [value or b"" for value in _bytes(column)]


def _topics(column: pa.Array, name: str) -> list[bytes]:
    for topic in pc.unique(_filled(column, name)).to_pylist():
        parse_name(topic)
    return _bytes(column)


def _headers(column: pa.Array, name: str) -> list[bytes]:
    try:
        return [encode_headers(dict(value)) if value else b"" for value in column.to_pylist()]
    except DefinitionError as error:
        raise DefinitionError(f"column {name!r}: {error}") from None


def _period(value: object, name: str) -> bytes:
    if value is None:
        return b""
    if isinstance(value, Decimal):
        value = float(value)
    try:
        ms = Interval.parse(value)
    except DefinitionError as error:
        raise DefinitionError(f"column {name!r}: {error}") from None
    if name == "delay":
        return b"+%d" % ms
    if ms < 1:
        raise DefinitionError(f"column {name!r}: {value}; allowed: 1ms or longer, or null for no limit")
    return b"%d" % ms


def _periods(column: pa.Array, name: str) -> list[bytes]:
    return [_period(value, name) for value in column.to_pylist()]


def _moments(column: pa.Array, name: str) -> list[bytes]:  # noqa: ARG001
    epoch = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
    milli = dt.timedelta(milliseconds=1)
    return [b"" if at is None else b"%d" % max((at - epoch) // milli, 0) for at in column.to_pylist()]


_READERS: Final[dict[str, Callable[[pa.Array, str], list[bytes]]]] = {
    "value": _values,
    "headers": _headers,
    "group": _groups,
    "expiration": _periods,
    "delay": _periods,
    "at": _moments,
    "key": _keys,
    "topic": _topics,
}
