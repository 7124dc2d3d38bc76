"""Reading topics on and on, in micro-batches: where each ends, how it is cut, and its parts for the tasks.

An offset has everything that a batch is made of, so that one that is run again after a crash is the same: see
`ampsq.spark.read_positions`. Spark tells neither when a batch is done nor when the stream ends: `latestOffset` is
asked for what comes behind a batch when that one is done for good.
"""

from __future__ import annotations

import time
import uuid
from itertools import pairwise
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceStreamReader
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from ampsq.base.log_positions import FIRST, Id
from ampsq.spark.admission import limit_ranges
from ampsq.spark.columns import check_schema, topic_columns
from ampsq.spark.log_hold import LogHold
from ampsq.spark.logs import Logs
from ampsq.spark.planning import LogRange, check_offsets, check_start, located, place_of, split_ranges
from ampsq.spark.queue_stream import QueueStreamReader
from ampsq.spark.read_options import StreamReadOptions
from ampsq.spark.read_positions import InstanceOffset, offsets_as_json, offsets_of
from ampsq.spark.reading import LogPart, read_part

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql.datasource import InputPartition
    from pyspark.sql.streaming.datasource import ReadLimit
    from pyspark.sql.types import StructType

    from ampsq.protocol.calls.readers import Lag
    from ampsq.spark.logs import InstanceLog
    from ampsq.spark.read_positions import Offsets

__all__ = ["StreamReader", "stream_reader"]


def stream_reader(options: Mapping[str, str], schema: StructType) -> DataSourceStreamReader:
    """The reader of a stream: of topics, or of a queue.

    Raises:
        DefinitionError: an option is wrong. UnknownTopic: there is neither a topic nor a queue of a name.
        Unavailable: a server cannot be reached.
    """
    if options.get("queue") and not any(options.get(name) for name in ("topic", "topics", "topicPattern")):
        return QueueStreamReader(options, schema)
    read = StreamReadOptions.of(options)
    check_schema(schema, topic_columns(include_headers=read.include_headers))
    return StreamReader(read, schema)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads topics; see `stream_reader`."""

    def __init__(self, options: StreamReadOptions, schema: StructType) -> None:
        self._options, self._schema = options, schema
        self._logs = Logs(options)
        self._log_hold: LogHold | None = None
        # With trigger(availableNow=True): up to where.
        self._final: dict[InstanceLog, Id] | None = None
        # Up to where was told that something is missing, and since when too little waits.
        self._reported: dict[InstanceLog, Id] = {}
        self._waits_since: float | None = None
        self._latest: Offsets = {}
        # What is wrong is said when the stream is started.
        self._logs.find()

    def __getstate__(self) -> dict[str, object]:
        """Return the state for tasks: they read, and hold nothing."""
        return {**self.__dict__, "_holding": None}

    # -- where a batch begins and ends

    def initialOffset(self) -> dict[str, object]:  # noqa: N802
        """Return where the stream begins."""
        start, logs = self._options.start("latest"), self._logs.find()
        if isinstance(start, dict):
            check_offsets(start, logs, [address.instance for address in self._options.addresses])
        found = {}
        for log, lag in self._logs.lags(dict.fromkeys(logs, FIRST)).items():
            begin = located(self._logs.store(log.address), log, start)
            found[log] = check_start(self._options, log, place_of(begin, log, lag, is_start=True), lag, begin)
        self._hold(found)
        return offsets_as_json(_moved({}, found))

    def latestOffset(self, start: dict[str, object], limit: ReadLimit) -> dict[str, object]:  # noqa: N802
        """Return where the batch ends that begins there; the same place where there is nothing for one."""
        offsets = offsets_of(start) if start else {}
        places, lags = self._examined(offsets)
        self._hold(places)
        self._latest = _moved(offsets, {log: max(places[log], lags[log].last) for log in places})
        ranges, sizes = [], []
        for log, lag in lags.items():
            last = lag.last if self._final is None else self._final.get(log, FIRST)
            if lag.first is not None and lag.first <= last:
                ranges.append(LogRange(log, places[log], last, lag.removed))
                sizes.append(lag.size)
        if ranges and not isinstance(limit, ReadAllAvailable):
            waits = 0.0 if self._waits_since is None else time.monotonic() - self._waits_since
            is_patient = self._final is None and waits * 1000 < self._options.max_trigger_delay
            ranges = limit_ranges(self._logs, self._options, ranges, sizes, is_patient=is_patient)
            if not ranges and self._waits_since is None:
                self._waits_since = time.monotonic()
        if not ranges:
            return start
        self._waits_since = None
        cuts = dict(zip((each.log for each in ranges), split_ranges(self._logs, self._options, ranges), strict=True))
        return offsets_as_json(_moved(offsets, {each.log: each.last for each in ranges}, cuts, places))

    def _examined(self, offsets: Offsets) -> tuple[dict[InstanceLog, Id], dict[InstanceLog, Lag]]:
        """Return the stream's position in each log, and what lies behind it; a new topic is read from its beginning."""
        places = {}
        for log in self._logs.find():
            places[log] = _place_in(offsets, log)
        lags = self._logs.lags(places)
        for log, lag in lags.items():
            known = self._reported.get(log, FIRST)
            place = check_start(self._options, log, places[log], lag, offsets, known=known)
            if place != places[log]:
                places[log] = place
                lags.update(self._logs.lags({log: place}))
            self._reported[log] = max(known, lag.removed)
        return places, lags

    def _hold(self, places: Mapping[InstanceLog, Id]) -> None:
        if self._log_hold is None:
            name = f"spark-{uuid.uuid4().hex[:12]}"
            self._log_hold = LogHold(self._logs, name, self._options.hold_period)
        self._log_hold.keep(places)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return the limit of a batch, for Spark to hand back; the options say more than it can."""
        if self._options.most_rows:
            return ReadMaxRows(self._options.most_rows)
        if self._options.max_bytes_per_trigger:
            return ReadMaxBytes(self._options.max_bytes_per_trigger)
        if self._options.min_offsets_per_trigger:
            return ReadMinRows(self._options.min_offsets_per_trigger)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Note where the logs end: the stream ends there."""
        lags = self._logs.lags(dict.fromkeys(self._logs.find(), FIRST))
        self._final = {log: lag.last for log, lag in lags.items()}

    def reportLatestOffset(self) -> dict[str, object] | None:  # noqa: N802
        """Return where the logs ended when that was last looked at, for progress reports."""
        return offsets_as_json(self._latest) if self._latest else None

    # -- a batch

    def partitions(self, start: dict[str, object], end: dict[str, object]) -> Sequence[LogPart]:
        """Return the parts of a batch, as its end says."""
        before, after = offsets_of(start) if start else {}, offsets_of(end)
        logs = self._logs.find()
        wanted = {}
        for log in logs:
            name, topic = log.address.instance, log.topic
            ending = after.get(name, InstanceOffset())
            first = ending.begins.get(topic, _place_in(before, log))
            last = _place_in(after, log)
            if first < last:
                wanted[log] = (first, last)
        self._hold({log: first for log, (first, _) in wanted.items()})
        lags = self._logs.lags({log: first for log, (first, _) in wanted.items()})
        parts = []
        for log, (first, last) in wanted.items():
            lag = lags[log]
            check_start(self._options, log, first, lag, after, known=self._reported.get(log, FIRST))
            if last > lag.last:
                # It was there when the batch was made.
                check_start(self._options, log, last, lag, after)
            cuts = after[log.address.instance].cuts.get(log.topic, ())
            ends = [first, *(each for each in cuts if first < each < last), last]
            parts += [LogPart(log, one, other, lag.removed) for one, other in pairwise(ends)]
        return parts

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read a part, in a task."""
        return read_part(partition, self._options, self._schema)

    def commit(self, end: dict[str, object]) -> None:
        """Do nothing: it does not come for every batch."""

    def stop(self) -> None:
        """Let the logs go, if Spark says so; else they are held for the period."""
        if self._log_hold is not None:
            self._log_hold.end()


def _place_in(offsets: Offsets, log: InstanceLog) -> Id:
    """Return the position of a stream in a log; a topic that came is read from its beginning."""
    return offsets.get(log.address.instance, InstanceOffset()).topics.get(log.topic, FIRST)


def _moved(
    offsets: Offsets,
    places: Mapping[InstanceLog, Id],
    cuts: Mapping[InstanceLog, Sequence[Id]] | None = None,
    begins: Mapping[InstanceLog, Id] | None = None,
) -> Offsets:
    """Offsets with other places in some logs, and how the batch up to there begins and is cut."""
    found: Offsets = {name: InstanceOffset(each.origin, dict(each.topics)) for name, each in offsets.items()}
    for log, place in places.items():
        name, topic = log.address.instance, log.topic
        former = found.get(name, InstanceOffset())
        its_cuts, its_begins = dict(former.cuts), dict(former.begins)
        if cuts and cuts.get(log):
            its_cuts[topic] = tuple(cuts[log])
        if begins and begins[log] != _place_in(offsets, log):
            its_begins[topic] = begins[log]
        found[name] = InstanceOffset(log.origin, {**former.topics, topic: place}, its_cuts, its_begins)
    return found
