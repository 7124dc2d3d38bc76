"""A queue as a stream: a micro-batch is a set of leases, acknowledged when Spark has done with the batch.

The driver holds the leases and renews them; tasks read the messages from the log. Spark asks for what comes behind a
batch only when that one is done for good, so that is when its messages are acknowledged. Where the driver dies, they
come again: to the batch that is repeated, which its offset describes, or to whoever asks the queue. So each message is
seen at least once; a sink that knows bookmarks makes that once.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Final, NamedTuple

from pydantic import BeforeValidator
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadMaxRows, SupportsTriggerAvailableNow

from ampsq.base.errors import BookmarkNotFound, UnknownQueue
from ampsq.base.values import parse_name
from ampsq.catalog.suggestions import explain_missing_name
from ampsq.definitions.definition import Fault
from ampsq.protocol.calls import catalog as catalog_calls
from ampsq.protocol.reads.origin import read_origin
from ampsq.protocol.reads.streams import entries_between, log_of
from ampsq.queues.query import parse_query_filter
from ampsq.spark.columns import LeasedColumns, check_schema, queue_columns
from ampsq.spark.logs import InstanceLog
from ampsq.spark.options import Options, Whole
from ampsq.spark.queue_leases import QueueLeases
from ampsq.spark.queue_offsets import LeasedMessage, QueueOffset
from ampsq.spark.stores import opened_store, store_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql.streaming.datasource import ReadLimit
    from pyspark.sql.types import StructType

    from ampsq.protocol.entries import RawEntry
    from ampsq.transport.store import Store

__all__ = ["QueuePart", "QueueStreamOptions", "QueueStreamReader"]

_log = logging.getLogger("ampsq")
#: Entries asked for at once, at most; fewer where others lie between a batch's messages.
_PAGE: Final = 1_000


def _expression(value: object) -> str:
    return parse_query_filter(value).text if value else ""


class QueueStreamOptions(Options):
    """The options of a stream of a queue, besides `Options`.

    Attributes:
        queue: the queue; on one instance, or of all partitions of one.
        filter: an expression: what it does not match is left to others.
        max_messages_per_trigger: messages of one micro-batch at most, and those that are held at once, of all
            partitions together. The queue's `max_per_subscription_backlog` bounds it, too. Default 10,000.
        min_partitions: make at least so many partitions of a batch; default 2.
        max_rows_per_partition: and none with more rows; default 5,000.
        include_headers: add the column headers. Default false.
        fail_on_data_loss: fail where a message is not in its log any more (default); false: warn, and leave it out.
    """

    queue: Annotated[str, BeforeValidator(parse_name)]
    filter: Annotated[str, BeforeValidator(_expression)] = ""
    max_messages_per_trigger: Whole = 10_000
    min_partitions: Whole = 2
    max_rows_per_partition: Whole = 5_000
    include_headers: bool = False
    fail_on_data_loss: bool = True

    @classmethod
    def _conflicts(cls, given: Mapping[str, object]) -> Iterator[Fault]:
        yield from super()._conflicts(given)
        if "," in str(given.get("instance", "")):
            yield Fault("instance", "several; allowed: the one that has the queue; a stream for each, and their union")


class _Piece(NamedTuple):
    """Messages of one log."""

    log: InstanceLog
    messages: tuple[LeasedMessage, ...]


@dataclass(frozen=True)
class QueuePart(InputPartition):
    """The part that one task reads: messages of one log or of several."""

    pieces: tuple[_Piece, ...]


class QueueStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads a queue; see the module.

    Raises:
        DefinitionError: an option or the schema is wrong. UnknownQueue: there is no such queue. Unavailable: the
            server cannot be reached.
    """

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        self._options, self._schema = QueueStreamOptions.of(options), schema
        check_schema(schema, queue_columns(include_headers=self._options.include_headers))
        self._leasing: QueueLeases | None = None
        # One, or all partitions of an instance.
        self._addresses = self._options.addresses
        whole = self._addresses[0].partition
        self._partitions = whole.total if whole is not None else None
        self._logs = self._found()

    def _found(self) -> dict[tuple[int, str], InstanceLog]:
        """The logs that feed the queue, by partition and topic, as they are now."""
        found = {}
        for number, address in enumerate(self._addresses):
            store, name = opened_store(address, self._options.seconds), self._options.queue
            catalog = store.call(catalog_calls.catalog())
            if name not in catalog.queues:
                raise UnknownQueue(queue=name).with_explanation(explain_missing_name(catalog, name, "queue"))
            origin = store.call(read_origin(address.instance))
            for topic in catalog.topics:
                found[number, topic] = InstanceLog(address, origin, topic, catalog.message_type(topic))
        return found

    def _offset(self, offset: object) -> QueueOffset:
        return QueueOffset.of(offset, self._options.queue, self._partitions)

    def __getstate__(self) -> dict[str, object]:
        """Return the state for tasks: they read what their parts say, and hold no lease."""
        return {**self.__dict__, "_leasing": None, "_logs": {}}

    @property
    def _leases(self) -> QueueLeases:
        if self._leasing is None:
            options = self._options
            self._leasing = QueueLeases(
                self._addresses[0],
                options.queue,
                options.filter or None,
                options.max_messages_per_trigger,
                options.seconds,
            )
        return self._leasing

    # -- where a batch ends

    def initialOffset(self) -> dict[str, object]:  # noqa: N802
        """Return where a stream begins: before its first batch."""
        return QueueOffset(0, self._options.queue, (), self._partitions).as_json()

    def getDefaultReadLimit(self) -> ReadMaxRows:  # noqa: N802
        """Return the limit of a batch, for Spark to hand back."""
        return ReadMaxRows(self._options.max_messages_per_trigger)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Take no more messages than there are now: the stream ends behind so many."""
        self._leases.bound()

    def latestOffset(self, start: dict[str, object], limit: ReadLimit) -> dict[str, object]:  # noqa: N802
        """Acknowledge what is done, and lease what comes next; the same offset where nothing does."""
        offset = self._offset(start or self.initialOffset())
        self._leases.finish(offset)
        own = self._options.max_messages_per_trigger
        most = min(limit.max_rows, own) if isinstance(limit, ReadMaxRows) else own
        taken = self._leases.take(offset.batch + 1, most)
        return start if taken is None else taken.as_json()

    # -- a batch

    def partitions(self, start: dict[str, object], end: dict[str, object]) -> Sequence[QueuePart]:
        """Return the parts of a batch, as its offset says."""
        offset = self._offset(end)
        if start and self._offset(start).batch >= offset.batch:
            return []
        if any(each.log not in self._logs for each in offset.messages):
            # A topic that came after the stream began.
            self._logs = self._found()
        if gone := sorted({each.log for each in offset.messages} - self._logs.keys()):
            names = ", ".join(f"{topic} of {self._addresses[number]}" for number, topic in gone)
            self._tell_loss(f"topics of a batch are not there any more: {names}")
        parts = []
        for part in offset.parts(self._options.min_partitions, self._options.max_rows_per_partition):
            pieces = [_Piece(self._logs[piece[0].log], tuple(piece)) for piece in part if piece[0].log in self._logs]
            if pieces:
                parts.append(QueuePart(tuple(pieces)))
        return parts

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read a part, in a task."""
        # Where there is nothing to read, Spark makes up a part.
        for piece in partition.pieces if isinstance(partition, QueuePart) else ():
            yield from self._read_piece(*piece)

    def _read_piece(self, log: InstanceLog, messages: Sequence[LeasedMessage]) -> Iterator[pa.RecordBatch]:
        store = store_of(log.address, self._options.seconds)
        columns = LeasedColumns(self._schema, log)
        leased = {each.id.encode(): each for each in messages}
        found = {entry[0]: entry for entry in _entries(store, log, sorted(leased, key=_number))}
        if len(found) < len(leased):
            missing = [each.decode() for each in leased if each not in found]
            text = f"{len(missing)} messages of a batch are not in the log any more, the first {missing[0]}"
            self._tell_loss(f"{log}: {text}")
        entries = [found[each] for each in leased if each in found]
        for first in range(0, len(entries), _PAGE):
            page = entries[first : first + _PAGE]
            yield columns.leased(page, [leased[entry[0]] for entry in page])

    def _tell_loss(self, text: str) -> None:
        if self._options.fail_on_data_loss:
            raise BookmarkNotFound(f"{text}; failOnDataLoss=false leaves them out")
        _log.warning("%s: left out", text)

    def commit(self, end: dict[str, object]) -> None:
        """Do nothing: it does not come for every batch."""

    def stop(self) -> None:
        """Give the leases back, if Spark says so; else they go back when the driver's connection is gone."""
        if self._leasing is not None:
            self._leasing.close()


def _number(stream_id: bytes) -> tuple[int, ...]:
    return tuple(map(int, stream_id.split(b"-")))


def _entries(store: Store, log: InstanceLog, ids: Sequence[bytes]) -> Iterator[RawEntry]:
    """Read entries by their IDs, in order: as pages, as large as others between them allow."""
    wanted, count, at = set(ids), _PAGE, 0
    while at < len(ids):
        count = max(min(count, len(ids) - at), 1)
        first, last_wanted = ids[at].decode(), ids[-1].decode()
        page = store.call(entries_between(store.instance, log_of(log.topic), first, last_wanted, count))
        own = [entry for entry in page if entry[0] in wanted]
        yield from own
        if len(page) < count:
            return
        last = _number(page[-1][0])
        while at < len(ids) and _number(ids[at]) <= last:
            at += 1
        count = min(count * 2, _PAGE) if 2 * len(own) >= len(page) else max(count // 2, 1)
