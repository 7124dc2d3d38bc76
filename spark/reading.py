"""Reading one part of a log in a task: page by page, the next one travels while the last one is made into columns."""

from __future__ import annotations

import contextlib
import gc
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import InputPartition

from ampsq.base.errors import Unavailable
from ampsq.base.log_positions import Id, id_text, next_id
from ampsq.protocol.calls import readers as reader_calls
from ampsq.protocol.calls.retention import hold
from ampsq.protocol.reads.streams import entries_behind, log_of
from ampsq.spark.columns import PageColumns
from ampsq.spark.planning import tell_loss
from ampsq.spark.stores import store_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa
    from pyspark.sql.types import StructType

    from ampsq.protocol.entries import RawEntry
    from ampsq.protocol.request import Call
    from ampsq.spark.logs import InstanceLog
    from ampsq.spark.read_options import ReadOptions
    from ampsq.transport.pipeline import Pipeline
    from ampsq.transport.store import Store

__all__ = ["Hold", "LogPart", "hold_call", "read_part"]

#: Entries of the first page, and bytes of a page, about.
_FIRST_PAGE: Final = 200
_PAGE_BYTES: Final = 4_000_000
#: Entries whose sizes stand for those of a page.
_SAMPLE: Final = 20


@dataclass(frozen=True, slots=True)
class Hold:
    """The hold of a job on a log, which is not trimmed while its tasks run.

    Attributes:
        holder: the job's name.
        after: the log is held from behind this ID.
        period: ms from the last sign of life.
    """

    holder: str
    after: Id
    period: int


@dataclass(frozen=True)
class LogPart(InputPartition):
    """The part of a log that one task reads.

    Attributes:
        log: the log.
        after, last: behind the one ID, up to the other.
        removed: the greatest ID that was removed of the log when the part was made.
        hold: what the task says again from time to time; None: somebody else does.
    """

    log: InstanceLog
    after: Id
    last: Id
    removed: Id
    hold: Hold | None = None


def hold_call(log: InstanceLog, wanted: Hold) -> Call[None]:
    """Keep a log from being trimmed."""
    return hold(log.topic, f"replay {wanted.holder}", id_text(next_id(wanted.after)), wanted.period)


def read_part(part: InputPartition, options: ReadOptions, schema: StructType) -> Iterator[pa.RecordBatch]:
    """Read a part of a log as record batches.

    Raises:
        BookmarkNotFound: some of it was removed since it was planned, and `fail_on_data_loss` says so.
        Unavailable: the server cannot be reached.
    """
    if not isinstance(part, LogPart):
        # Where there is nothing to read, Spark makes up a part.
        return
    store = store_of(part.log.address, options.seconds)
    columns = PageColumns(schema, part.log, options.expression)
    held = float("-inf")
    for batch in _batches(store, part, options.page_rows, columns):
        if part.hold is not None and time.monotonic() > held + part.hold.period / 3000:
            store.call(hold_call(part.log, part.hold))
            held = time.monotonic()
        if batch is not None:
            yield batch
    removed = store.call(reader_calls.lag([(part.log.topic, part.last)]))[0].removed
    if removed > max(part.after, part.removed):
        text = f"{part.log} was trimmed up to {id_text(removed)} while it was read from {id_text(part.after)} on"
        tell_loss(options, text)


def _batches(store: Store, part: LogPart, most: int, columns: PageColumns) -> Iterator[pa.RecordBatch | None]:
    """A batch for each page, None for one that has no messages."""
    count, is_full = min(_FIRST_PAGE, most), True
    with store.pipeline() as pipeline:
        request = _page(part, id_text(part.after), count)
        _post(pipeline, request)
        while is_full:
            with _uncollected():
                page = _collect(store, pipeline, request)
                is_full = len(page) >= count
                if is_full:
                    count = min(_next_count(page), most, count * 10)
                    request = _page(part, page[-1][0].decode(), count)
                    _post(pipeline, request)
                batch = columns.batch(page) if page else None
                del page
            yield batch


@contextlib.contextmanager
def _uncollected() -> Iterator[None]:
    """Let garbage wait: a page is many small lists without a cycle, and looking for one takes as long as reading it."""
    is_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if is_enabled:
            gc.enable()


def _page(part: LogPart, after: str, count: int) -> Call[list[RawEntry]]:
    return entries_behind(part.log.address.instance, log_of(part.log.topic), after, count, until=id_text(part.last))


def _next_count(page: list[RawEntry]) -> int:
    sample = page[:: max(len(page) // _SAMPLE, 1)]
    size = sum(len(text) for _, flat in sample for text in flat) // len(sample)
    return max(_PAGE_BYTES // max(size, 1), 1)


def _post(pipeline: Pipeline, request: Call[list[RawEntry]]) -> None:
    try:
        pipeline.post(request)
    except Unavailable:
        # It is asked for again, as patiently as the options say, when it is needed.
        pipeline.close()


def _collect(store: Store, pipeline: Pipeline, request: Call[list[RawEntry]]) -> list[RawEntry]:
    if pipeline.open_calls:
        try:
            return pipeline.collect()  # type: ignore[return-value]  # the reply to what was posted
        except Unavailable:
            pipeline.close()
    return store.call(request)
