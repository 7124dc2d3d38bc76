"""Writers as Spark drives them: built on the driver, sent to the tasks, and committed, or not, on the driver.

Spark repeats tasks, runs some of them twice at once, forgets drivers, and calls `abort` also behind a commit that
failed. So nothing here relies on being called once: what counts is decided by the scripts.
"""

from __future__ import annotations

import base64
import uuid
from dataclasses import dataclass, field
from itertools import repeat
from typing import TYPE_CHECKING, ClassVar, Self

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from ampsq.base.errors import DefinitionError, EpochPast, RowsDiffer
from ampsq.catalog.first_use import add_published
from ampsq.protocol.calls import catalog as catalog_calls
from ampsq.protocol.calls.jobs import last_epoch
from ampsq.publishing.topic_key import UNSAID, TopicKey, read_topic_key
from ampsq.spark.commit import commit, discard
from ampsq.spark.instance_writers import Job, SequencedWriter, StagedWriter
from ampsq.spark.stores import choose, opened_store, store_of
from ampsq.spark.write_columns import WriteColumns
from ampsq.spark.write_options import BatchWriteOptions, WriteOptions

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pyarrow as pa
    from pyspark.sql.types import StructType

    from ampsq.protocol.calls.jobs import StagedRows
    from ampsq.spark.instance_writers import InstanceWriter

__all__ = ["BatchWriter", "StreamWriter"]


@dataclass(frozen=True, slots=True)
class TaskCommit(WriterCommitMessage):
    """The report of a finished task to the driver."""

    job: str
    epoch: int
    partition: int
    staged: list[StagedRows]


@dataclass
class _Writing:
    """The common base of batch and streaming writers.

    Attributes:
        options, columns: what was asked for.
        made_up: a name for the job. Made once, on the driver, so that all tasks and attempts of a batch job have it.
    """

    kind: ClassVar[type[WriteOptions]]

    options: WriteOptions
    columns: WriteColumns
    made_up: str = field(default_factory=lambda: f"batch-{_short(uuid.uuid4())}")

    @classmethod
    def of(cls, options: Mapping[str, str], schema: StructType, *, overwrite: bool) -> Self:
        """Check everything, on the driver.

        Raises:
            DefinitionError: an option or a column is wrong.
            Unavailable: a server cannot be reached.
        """
        read = cls.kind.of(options)
        columns = WriteColumns.of(schema, has_topic=bool(read.topic))
        if overwrite:
            raise DefinitionError("mode 'overwrite': a log only grows; allowed: .mode('append')")
        for address in read.addresses:
            store = opened_store(address, read.seconds)
            if read.topic:
                store.run(_known(read.topic))
        return cls(read, columns)

    def _write(self, batches: Iterator[pa.RecordBatch], job: Job) -> TaskCommit:
        """Write one task's rows."""
        options, partition = self.options, _context().partitionId()
        kind = SequencedWriter if options.commit_protocol == "sequence" else StagedWriter
        lanes: list[InstanceWriter] = [
            kind(store_of(each, options.seconds), job, partition) for each in options.addresses
        ]
        for batch in batches:
            values, keys = self.columns.rows(batch)
            if len(lanes) == 1:
                lanes[0].write(values)
            else:
                self._share(lanes, partition, values, keys)
        staged = [lane.finish() for lane in lanes]
        return TaskCommit(job.name, job.epoch, partition, [each for each in staged if each is not None])

    def _share(
        self, lanes: list[InstanceWriter], partition: int, values: list[bytes], keys: list[bytes | None] | None
    ) -> None:
        """Give each instance its rows, in order."""
        addresses, width = self.options.addresses, len(self.columns.shape)
        keys = self._with_groups(values, self._with_topic_keys(values, keys))
        if keys is None:
            lanes[choose(None, partition, addresses)].write(values)
            return
        shares: list[list[bytes]] = [[] for _ in lanes]
        for i, row_key in enumerate(keys):
            shares[choose(row_key, partition, addresses)] += values[i * width : (i + 1) * width]
        for lane, share in zip(lanes, shares, strict=True):
            if share:
                lane.write(share)

    def _with_topic_keys(self, values: list[bytes], keys: list[bytes | None] | None) -> list[bytes | None] | None:
        """Return the keys of rows, with what `partition_by` of their topics says of those that have none."""
        first, width = self.options.addresses[0], len(self.columns.shape)
        if first.partition is None or (keys is not None and all(each is not None for each in keys)):
            return keys
        store, found = store_of(first, self.options.seconds), list(keys or [None] * (len(values) // width))
        known: dict[str, TopicKey] = {}
        for i, row_key in enumerate(found):
            row = values[i * width : (i + 1) * width]
            # The body is the first of a row's values, the topic the last.
            topic = self.options.topic or row[-1].decode()
            if topic not in known:
                known[topic] = store.run(read_topic_key(first.instance, topic)) or UNSAID
            if row_key is None:
                found[i] = known[topic].text(row[0], row[0])
        return found if any(each is not None for each in found) or keys is not None else None

    def _with_groups(self, values: list[bytes], keys: list[bytes | None] | None) -> list[bytes | None] | None:
        """Return the keys of rows, with the groups of those that have none: a group keeps its order in one instance."""
        groups = self.columns.groups(values)
        if groups is None:
            return keys
        own = keys or repeat(None, len(groups))
        return [row_key or group or None for row_key, group in zip(own, groups, strict=True)]

    def _job(self, name: str, epoch: int) -> Job:
        options = self.options
        shape = self.columns.shape
        return Job(name, epoch, options.topic, shape, options.chunk_rows, options.pipeline, options.staging_ttl)

    def _commit(self, messages: list[WriterCommitMessage | None]) -> None:
        done = [message for message in messages if isinstance(message, TaskCommit)]
        if not done:
            return
        stores = [store_of(address, self.options.seconds) for address in self.options.addresses]
        if self.options.commit_protocol == "staged":
            commit(stores, done[0].job, done[0].epoch, [lane for each in done for lane in each.staged])
            return
        for store in stores:
            job, epoch = done[0].job, done[0].epoch
            last = store.call(last_epoch(store.instance, job))
            if last.epoch > epoch:
                raise EpochPast(job=job, epoch=epoch, last=last.epoch)
            if last.epoch == epoch and last.partition >= len(messages):
                raise RowsDiffer(job=job, epoch=epoch, partitions=len(messages), recorded=last.partition + 1)

    def _abort(self, messages: list[WriterCommitMessage | None]) -> None:
        done = [message for message in messages if isinstance(message, TaskCommit)]
        stores = [store_of(address, self.options.seconds) for address in self.options.addresses]
        for job in {each.job for each in done}:
            discard(stores, job, [lane for each in done for lane in each.staged])


class BatchWriter(DataSourceArrowWriter, _Writing):
    """Writes one batch job."""

    kind = BatchWriteOptions

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write one task's rows."""
        epoch = self.options.epoch if isinstance(self.options, BatchWriteOptions) else 0
        return self._write(iterator, self._job(self.options.publisher or self.made_up, epoch))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Let what the tasks wrote count."""
        self._commit(messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Let go of what was put aside; what is recorded, or decided, stays."""
        self._abort(messages)


class StreamWriter(DataSourceStreamArrowWriter, _Writing):
    """Writes micro-batches. It is built anew for each of them, and again for its commit: it keeps nothing."""

    kind = WriteOptions

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write one task's rows."""
        context = _context()
        query, batch = (context.getLocalProperty(name) for name in ("sql.streaming.queryId", "streaming.sql.batchId"))
        if not query or not batch:
            raise DefinitionError("this task belongs to no micro-batch of a stream; write it with format('ampsq')")
        return self._write(iterator, self._job(self.options.publisher or _short(uuid.UUID(query)), int(batch)))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: ARG002, N803
        """Let what the tasks wrote count."""
        self._commit(messages)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: ARG002, N803
        """Let go of what was put aside; what is recorded, or decided, stays."""
        self._abort(messages)


def _context() -> TaskContext:
    context = TaskContext.get()
    if context is None:
        raise DefinitionError("rows are written by tasks of Spark; there is none here")
    return context


def _short(name: uuid.UUID) -> str:
    """A UUID in fewer letters: each message names its publisher."""
    return base64.b32encode(name.bytes).decode().rstrip("=").lower()


async def _known(topic: str) -> None:
    """Make a topic that is first published to."""
    catalog = await catalog_calls.catalog()
    if topic not in catalog.topics and topic not in catalog.queues:
        await add_published(topic)
