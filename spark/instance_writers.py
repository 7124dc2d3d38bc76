"""The rows of one task on their way to one instance: cut into calls, several in flight, in order and once.

A `SequencedWriter` records rows as they come, each call only where the rows before it are recorded with the same
checksum: a repeated task passes over what is there and compares, attempts that run at once help each other, and rows in
another order are refused. A `StagedWriter` puts them aside for the commit.
"""

from __future__ import annotations

import uuid
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeVar
from zlib import crc32

from ampsq.base.errors import AmpsqError, RowsDiffer, SequenceGap, TooMuchToRead, Unavailable, UnknownTopic
from ampsq.catalog.first_use import add_published
from ampsq.protocol.calls.jobs import PartitionProgress, StagedRows, stage_rows, write_rows
from ampsq.protocol.limits import BYTES
from ampsq.protocol.replies import number

if TYPE_CHECKING:
    from ampsq.protocol.request import Call
    from ampsq.transport.pipeline import Pipeline
    from ampsq.transport.store import Store

__all__ = ["InstanceWriter", "Job", "SequencedWriter", "StagedWriter", "drain"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Job:
    """The parameters that all tasks of one epoch of a job share.

    Attributes:
        name: the job's, the first part of its partitions' names as publishers.
        epoch: which run, or which micro-batch.
        topic: of all rows; empty where each has its own.
        shape: a letter for each value of a row.
        chunk: rows a call.
        pipeline: calls in flight at once.
        ttl: ms for which rows are kept that were put aside.
    """

    name: str
    epoch: int
    topic: str
    shape: str
    chunk: int
    pipeline: int
    ttl: int


class InstanceWriter(Protocol):
    """The writer of a task's rows for one instance."""

    def write(self, values: list[bytes]) -> None:
        """Take rows' values in turn; they may be sent later."""

    def finish(self) -> StagedRows | None:
        """See that all rows are there; gives what is to be committed, None without rows."""


@dataclass(slots=True)
class _Chunk:
    """Rows of one call: their values, what comes before them, and the checksum with them."""

    values: list[bytes]
    before: PartitionProgress
    after: PartitionProgress


class _Cutter:
    """Cuts values into chunks of whole rows: so many rows, or about as many bytes as a call may have.

    Attributes:
        rows: of a chunk at most; fewer where the server reads them, and refused as many.
    """

    def __init__(self, width: int, rows: int) -> None:
        self._width, self.rows = width, rows
        self._open: list[bytes] = []

    def cut(self, values: list[bytes]) -> list[list[bytes]]:
        """Take values; gives the chunks that are full."""
        values = self._open + values
        step = self._step(values)
        full = len(values) // step * step
        self._open = values[full:]
        return [values[i : i + step] for i in range(0, full, step)]

    def rest(self) -> list[bytes]:
        """Return the values that are left."""
        values, self._open = self._open, []
        return values

    def _step(self, values: list[bytes]) -> int:
        """Values of a chunk: a call's bytes are the server's time, so large rows make small ones while they come."""
        size = max(max(map(len, values), default=0) * self._width, 1)
        return max(min(BYTES // size, self.rows), 1) * self._width


def _checksum(values: list[bytes], before: int) -> int:
    """Of values in turn, behind others: the same however they are cut."""
    return crc32(b"\0".join(values) + b"\0", before) if values else before


class SequencedWriter:
    """Records rows as they come.

    Args:
        store: of the instance.
        job: what is written.
        partition: the task's.
    """

    def __init__(self, store: Store, job: Job, partition: int) -> None:
        self._store, self._job, self._partition = store, job, partition
        self._width = len(job.shape)
        self._cutter = _Cutter(self._width, job.chunk)
        self._calls = store.pipeline()
        # What this attempt has read of its rows; what is known to be recorded, by whomever; and what is under way.
        self._here = PartitionProgress(0, 0)
        self._there: PartitionProgress | None = None
        self._sent: deque[_Chunk] = deque()

    def write(self, values: list[bytes]) -> None:
        """Take rows; raises `RowsDiffer` where others were recorded before."""
        for chunk in self._cutter.cut(values):
            self._write(chunk)

    def finish(self) -> None:
        """See that all rows are recorded, and no others."""
        rest = self._cutter.rest()
        if rest:
            self._write(rest)
        while self._sent:
            self._collect()
        there = self._ask()
        if there.rows >= 0 and there != self._here:
            raise self._differ(there)
        self._calls.close()

    def _ask(self) -> PartitionProgress:
        job = self._job
        return self._store.call(write_rows(job.name, self._partition, job.epoch, PartitionProgress(0, 0)))

    def _differ(self, there: PartitionProgress) -> RowsDiffer:
        return RowsDiffer(
            publisher=f"{self._job.name}/{self._partition}",
            epoch=self._job.epoch,
            rows=self._here.rows,
            recorded=there.rows,
            topic=self._job.topic,
        )

    def _write(self, values: list[bytes]) -> None:
        if self._there is None:
            self._there = self._ask()
        rows = len(values) // self._width
        values = self._pass_over(values, rows)
        if not values:
            return
        after = self._after(values)
        chunk = _Chunk(values, self._here, after)
        self._here = after
        self._post(chunk)
        while len(self._sent) >= self._job.pipeline:
            self._collect()

    def _after(self, values: list[bytes]) -> PartitionProgress:
        """Return this attempt's progress with these values."""
        return PartitionProgress(self._here.rows + len(values) // self._width, _checksum(values, self._here.checksum))

    def _pass_over(self, values: list[bytes], rows: int) -> list[bytes]:
        """Leave out what is recorded, and compare it."""
        there = self._there
        if there is None or there.rows < 0:
            self._here = PartitionProgress(self._here.rows + rows, 0)
            return []
        known = min(there.rows - self._here.rows, rows)
        if known <= 0:
            return values
        cut = known * self._width
        self._here = PartitionProgress(self._here.rows + known, _checksum(values[:cut], self._here.checksum))
        if self._here.rows == there.rows and self._here != there:
            raise self._differ(there)
        return values[cut:]

    def _post(self, chunk: _Chunk) -> None:
        self._sent.append(chunk)
        try:
            self._calls.post(self._call(chunk))
        except Unavailable:
            self._settle()

    def _call(self, chunk: _Chunk) -> Call[PartitionProgress]:
        job = self._job
        return write_rows(
            job.name,
            self._partition,
            job.epoch,
            chunk.before,
            topic=job.topic,
            checksum=chunk.after.checksum,
            shape=job.shape,
            values=chunk.values,
        )

    def _collect(self) -> None:
        """Read the answer to the oldest call; whatever else it is than what was expected is looked into."""
        if not self._calls.open_calls:
            self._settle()
            return
        try:
            there: PartitionProgress = self._calls.collect()  # type: ignore[assignment]  # the oldest call's
        except (Unavailable, SequenceGap, RowsDiffer, UnknownTopic, TooMuchToRead):
            self._settle()
            return
        if there != self._sent[0].after:
            self._settle()
            return
        self._there = there
        self._sent.popleft()

    def _settle(self) -> None:
        """Send what is under way again, one by one, from where the partition is recorded to."""
        drain(self._calls)
        chunks, self._sent = list(self._sent), deque()
        self._here = chunks[0].before
        for chunk in chunks:
            self._write_one(chunk.values)

    def _write_one(self, values: list[bytes]) -> None:
        self._there = self._ask()
        while values := self._pass_over(values, len(values) // self._width):
            some = values[: self._cutter.rows * self._width]
            after = self._after(some)
            try:
                there = _with_topics(self._store, self._call(_Chunk(some, self._here, after)))
            except TooMuchToRead as refusal:
                self._cutter.rows = number(refusal.detail["read"])
                continue
            # Where another attempt was quicker just now, what it wrote is compared.
            self._there = there
            if there == after:
                self._here, values = after, values[len(some) :]


class StagedWriter:
    """Puts rows aside for the commit.

    Args:
        store: of the instance.
        job: what is written.
        partition: the task's.
    """

    def __init__(self, store: Store, job: Job, partition: int) -> None:
        self._store, self._job, self._lane = store, job, f"{store.instance}/{partition}"
        self._width = len(job.shape)
        self._cutter = _Cutter(self._width, job.chunk)
        self._calls = store.pipeline()
        # Tasks' own numbers begin anew with each driver: the names of what another one left behind.
        self._attempt = uuid.uuid4().hex
        # Rows that were taken, and how long the list is with all that is under way.
        self._rows = self._length = 0
        self._sent: deque[list[bytes]] = deque()

    def write(self, values: list[bytes]) -> None:
        """Take rows."""
        for chunk in self._cutter.cut(values):
            self._write(chunk)

    def finish(self) -> StagedRows | None:
        """See that all rows are put aside."""
        rest = self._cutter.rest()
        if rest:
            self._write(rest)
        while self._sent:
            self._collect()
        self._calls.close()
        return StagedRows(self._lane, self._attempt, self._rows, self._length) if self._rows else None

    def _write(self, values: list[bytes]) -> None:
        call = self._call(values)
        self._rows += len(values) // self._width
        self._length += len(values) + 1
        self._sent.append(values)
        try:
            self._calls.post(call)
        except Unavailable:
            self._settle()
        while len(self._sent) >= self._job.pipeline:
            self._collect()

    def _call(self, values: list[bytes]) -> Call[int]:
        job = self._job
        return stage_rows(
            *(job.name, self._lane, self._attempt, self._length, job.ttl),
            topic=job.topic,
            shape=job.shape,
            values=values,
        )

    def _collect(self) -> None:
        if not self._calls.open_calls:
            self._settle()
            return
        try:
            self._calls.collect()
        except (Unavailable, SequenceGap, UnknownTopic, TooMuchToRead):
            self._settle()
            return
        self._sent.popleft()

    def _settle(self) -> None:
        """Send what is under way again, one by one: what is there is not put there twice."""
        drain(self._calls)
        self._length -= sum(len(values) + 1 for values in self._sent)
        while self._sent:
            self._write_one(self._sent.popleft())

    def _write_one(self, values: list[bytes]) -> None:
        while values:
            some = values[: self._cutter.rows * self._width]
            try:
                self._length = _with_topics(self._store, self._call(some))
            except TooMuchToRead as refusal:
                self._cutter.rows = number(refusal.detail["read"])
                continue
            values = values[len(some) :]


def drain(calls: Pipeline) -> None:
    """Read what is still answered, and leave it be: whoever drains asks again, or says it again, call by call."""
    while calls.open_calls:
        try:
            calls.collect()
        except AmpsqError:
            continue


def _with_topics(store: Store, call: Call[T]) -> T:
    """Run a call; topics that are first published to are made."""
    made: set[str] = set()
    while True:
        try:
            return store.call(call)
        except UnknownTopic as error:
            name = str(error.detail["name"])
            if name in made:
                raise
            made.add(name)
            store.run(add_published(name))
