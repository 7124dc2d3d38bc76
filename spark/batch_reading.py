"""Reading a range of topics once, as Spark drives it: planned on the driver, read in tasks."""

from __future__ import annotations

import uuid
from datetime import datetime
from itertools import pairwise
from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSourceReader,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from ampsq.base.errors import DefinitionError
from ampsq.base.log_positions import FIRST, Id
from ampsq.spark.columns import check_schema, topic_columns
from ampsq.spark.logs import Logs
from ampsq.spark.planning import LogRange, check_offsets, check_start, located, place_of, split_ranges
from ampsq.spark.read_options import ReadOptions
from ampsq.spark.reading import Hold, LogPart, hold_call, read_part

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql.datasource import Filter, InputPartition
    from pyspark.sql.types import StructType

    from ampsq.protocol.calls.readers import Lag
    from ampsq.spark.logs import InstanceLog
    from ampsq.spark.read_positions import ReadPlace

__all__ = ["BatchReader", "FilteredBatchReader", "batch_reader"]

_LAST: Id = (2**64 - 1, 2**64 - 1)


def batch_reader(options: Mapping[str, str], schema: StructType) -> BatchReader:
    """The reader of a range of topics.

    Raises:
        DefinitionError: an option is wrong. UnknownTopic: there is neither a topic nor a queue of a name.
        BookmarkNotFound: a log has not what is asked for. Unavailable: a server cannot be reached.
    """
    read = ReadOptions.of(options)
    if read.queue:
        raise DefinitionError("queue: of a batch; allowed: readStream, which leases its messages, or the option topic")
    check_schema(schema, topic_columns(include_headers=read.include_headers))
    return (FilteredBatchReader if read.filter_pushdown else BatchReader)(read, schema)


class BatchReader(DataSourceReader):
    """Reads a range of topics; see `batch_reader`."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options, self._schema = options, schema
        self._holder = f"spark-{uuid.uuid4().hex[:12]}"
        self._logs = Logs(options)
        # What is wrong is said before a job starts.
        self._ranges = self._found()

    def _found(self) -> list[LogRange]:
        start, end, logs = self._options.start("earliest"), self._options.end, self._logs.find()
        names = [address.instance for address in self._options.addresses]
        for place in (start, end):
            if isinstance(place, dict):
                check_offsets(place, logs, names)
        found = []
        for log, lag in self._logs.lags(dict.fromkeys(logs, FIRST)).items():
            store = self._logs.store(log.address)
            begin = located(store, log, start)
            after = check_start(self._options, log, place_of(begin, log, lag, is_start=True), lag, begin)
            last = self._end(located(store, log, end), log, lag)
            if after < last:
                found.append(LogRange(log, after, last, lag.removed))
        return found

    def _end(self, place: ReadPlace, log: InstanceLog, lag: Lag) -> Id:
        return min(place_of(place, log, lag, is_start=False), lag.last)

    def _wanted(self) -> list[LogRange]:
        return self._ranges

    def partitions(self) -> Sequence[LogPart]:
        """Hold the logs, and cut what is to be read into parts for the tasks."""
        ranges = self._wanted()
        holds = [Hold(self._holder, each.after, self._options.hold_period) for each in ranges]
        for each, wanted in zip(ranges, holds, strict=True):
            self._logs.store(each.log.address).call(hold_call(each.log, wanted))
        parts = []
        for each, wanted, cuts in zip(ranges, holds, split_ranges(self._logs, self._options, ranges), strict=True):
            ends = pairwise([each.after, *cuts, each.last])
            parts += [LogPart(each.log, after, last, each.removed, wanted) for after, last in ends]
        return parts

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read a part, in a task."""
        return read_part(partition, self._options, self._schema)


class FilteredBatchReader(BatchReader):
    """The same, and lets conditions of the query narrow what is read.

    It is another class since Spark refuses one that could do it where its configuration does not allow it.
    """

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        super().__init__(options, schema)
        self._after, self._last = FIRST, _LAST

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802
        """Take in what narrows the ranges; gives the rest, which Spark applies."""
        return [each for each in filters if not self._push(each)]

    def _push(self, condition: Filter) -> bool:
        name, value = getattr(condition, "attribute", ()), getattr(condition, "value", None)
        if name == ("timestamp",) and isinstance(value, datetime):
            return self._push_moment(condition, round(value.timestamp() * 1_000_000))
        if name not in (("topic",), ("instance",)):
            return False
        if isinstance(condition, EqualTo):
            allowed: set[object] = {value}
        elif isinstance(condition, In):
            allowed = set(condition.value)
        else:
            return False
        self._ranges = [each for each in self._ranges if _attribute(each.log, name[0]) in allowed]
        return True

    def _push_moment(self, condition: Filter, microseconds: int) -> bool:
        """Entries are recorded at whole milliseconds, so that a range of IDs says the same."""
        below, up_to = -(-microseconds // 1000), microseconds // 1000
        match condition:
            case GreaterThan():
                self._after = max(self._after, _before(up_to + 1))
            case GreaterThanOrEqual():
                self._after = max(self._after, _before(below))
            case LessThan():
                self._last = min(self._last, _before(below))
            case LessThanOrEqual():
                self._last = min(self._last, _before(up_to + 1))
            case EqualTo():
                self._after, self._last = max(self._after, _before(below)), min(self._last, _before(up_to + 1))
            case _:
                return False
        return True

    def _wanted(self) -> list[LogRange]:
        narrowed = [
            each._replace(after=max(each.after, self._after), last=min(each.last, self._last)) for each in self._ranges
        ]
        return [each for each in narrowed if each.after < each.last]


def _attribute(log: InstanceLog, name: str) -> str:
    return log.topic if name == "topic" else log.address.instance


def _before(milliseconds: int) -> Id:
    """The last ID before a millisecond."""
    return (milliseconds - 1, 2**64 - 1) if milliseconds > 0 else FIRST
