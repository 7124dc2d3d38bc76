"""The options of a reader."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Annotated, Any, Final

from pydantic import BeforeValidator

from ampsq.base.errors import AmpsqError, DefinitionError
from ampsq.base.name_patterns import pattern_of
from ampsq.base.values import Interval, parse_name, parse_size
from ampsq.definitions.definition import Fault
from ampsq.queues.query import parse_query_filter
from ampsq.spark.options import Milliseconds, Options, Whole
from ampsq.spark.read_positions import parse_place

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ampsq.expressions import Expression
    from ampsq.spark.read_positions import ReadPlace

__all__ = ["ReadOptions", "StreamReadOptions"]

_MOST_PAGE: Final = 100_000
#: Shortest time for which a log is held, ms.
_LEAST_HOLD: Final = 100


def _names(value: Any) -> tuple[str, ...]:
    if isinstance(value, tuple):
        return value
    return tuple(dict.fromkeys(parse_name(name.strip()) for name in str(value).split(",")))


def _pattern(value: Any) -> str:
    return pattern_of(str(value)).pattern


def _expression(value: Any) -> str:
    return parse_query_filter(value).text if value else ""


def _name(value: Any) -> str:
    return parse_name(value) if value else ""


class ReadOptions(Options):
    """The options of every reader, besides `Options`.

    Attributes:
        topic: what is read: a topic, or a queue, which stands for its underlying topics; nothing is taken from it.
        topics: or several, with commas between.
        topic_pattern: or those that a regular expression is found in.
        queue: of streams: a queue whose messages are leased and acknowledged.
        starting_bookmark: behind which message to begin: ``earliest`` (or ``epoch``; the default of batches),
            ``latest`` (or ``now``; the default of streams), a bookmark, or the JSON of a stream's offset.
        starting_timestamp: or from when on, the time itself included: ISO with a zone, or milliseconds since 1970.
        ending_bookmark: of batches: the last message, itself included; in the same words; default ``latest``.
        ending_timestamp: or until when, the time itself not included.
        min_partitions: make at least so many partitions, as far as there are messages.
        max_rows_per_partition: and none with more rows, about; default 250,000.
        page_rows: messages asked for at once, at most; default 10,000, or about 4 MB.
        fail_on_data_loss: fail where something is not there any more that was asked for (default); false: warn, and go
            on with what is there.
        filter: an expression; what it does not match is left out before it gets to Spark.
        filter_pushdown: let conditions of the query on topic, instance and timestamp narrow what is read; needs
            spark.sql.python.filterPushdown.enabled. Default false.
        include_headers: add the column headers. Default false.
        hold_period: for how long logs are kept from being trimmed after the job was heard of last; default 10m.
    """

    topic: Annotated[str, BeforeValidator(_name)] = ""
    topics: Annotated[tuple[str, ...], BeforeValidator(_names)] = ()
    topic_pattern: Annotated[str, BeforeValidator(_pattern)] = ""
    queue: Annotated[str, BeforeValidator(_name)] = ""
    starting_bookmark: str = ""
    starting_timestamp: str = ""
    ending_bookmark: str = ""
    ending_timestamp: str = ""
    min_partitions: Whole = 1
    max_rows_per_partition: Whole = 250_000
    page_rows: Whole = 10_000
    fail_on_data_loss: bool = True
    filter: Annotated[str, BeforeValidator(_expression)] = ""
    filter_pushdown: bool = False
    include_headers: bool = False
    hold_period: Milliseconds = 600_000

    @property
    def names(self) -> tuple[str, ...]:
        """The topics or queues that are named; none with a pattern."""
        return (self.topic,) if self.topic else self.topics

    @property
    def expression(self) -> Expression | None:
        """The filter."""
        return parse_query_filter(self.filter) if self.filter else None

    def start(self, default: str) -> ReadPlace:
        """Return the place where reading begins."""
        return parse_place("starting", self.starting_bookmark or default, self.starting_timestamp)

    @property
    def end(self) -> ReadPlace:
        """The place where a batch ends."""
        return parse_place("ending", self.ending_bookmark or "latest", self.ending_timestamp)

    @classmethod
    def _conflicts(cls, given: Mapping[str, Any]) -> Iterator[Fault]:
        yield from super()._conflicts(given)
        what = [name for name in ("topic", "topics", "topic_pattern", "queue") if given.get(name)]
        if len(what) != 1:
            text = f"given beside {', '.join(what[1:])}" if what else "missing"
            yield Fault(what[0] if what else "topic", f"{text}; allowed: one of topic, topics, topic_pattern and queue")
        for end in ("starting", "ending"):
            bookmark, timestamp = str(given.get(f"{end}_bookmark", "")), str(given.get(f"{end}_timestamp", ""))
            if bookmark and timestamp:
                yield Fault(f"{end}_timestamp", f"beside {end}_bookmark; allowed: one of the two")
                continue
            try:
                parse_place(end, bookmark or "latest", timestamp)
            except AmpsqError as error:
                yield Fault(f"{end}_timestamp" if timestamp else f"{end}_bookmark", str(error))
        with contextlib.suppress(DefinitionError):
            if Interval.parse(given.get("hold_period", "10m")) < _LEAST_HOLD:
                yield Fault("hold_period", f"{given['hold_period']}; allowed: 100ms or longer")
        rows = str(given.get("page_rows", 1))
        if rows.isdecimal() and int(rows) > _MOST_PAGE:
            yield Fault("page_rows", f"{rows}; allowed: 1 to {_MOST_PAGE}")


class StreamReadOptions(ReadOptions):
    """The options of a stream, besides `ReadOptions`.

    Attributes:
        max_offsets_per_trigger: messages of one micro-batch at most, over all topics, in proportion to what they have;
            default: all that there are.
        max_rows_per_trigger: the same.
        min_offsets_per_trigger: wait for so many, for `max_trigger_delay` at most.
        max_trigger_delay: default 15m.
        max_bytes_per_trigger: bytes of one micro-batch, about, by the size of the messages seen last.
    """

    max_offsets_per_trigger: Whole = 0
    max_rows_per_trigger: Whole = 0
    min_offsets_per_trigger: Whole = 0
    max_trigger_delay: Milliseconds = 900_000
    max_bytes_per_trigger: Annotated[int, BeforeValidator(parse_size)] = 0

    @property
    def most_rows(self) -> int:
        """Messages of one micro-batch at most; 0: no limit."""
        return self.max_offsets_per_trigger or self.max_rows_per_trigger

    @classmethod
    def _conflicts(cls, given: Mapping[str, Any]) -> Iterator[Fault]:
        yield from super()._conflicts(given)
        if given.get("max_offsets_per_trigger") and given.get("max_rows_per_trigger"):
            yield Fault("max_rows_per_trigger", "beside max_offsets_per_trigger, the same; allowed: one of the two")
        for name in ("ending_bookmark", "ending_timestamp"):
            if given.get(name):
                yield Fault(name, "of a stream, which does not end; allowed: trigger(availableNow=True), or a batch")
        if str(given.get("filter_pushdown", "")).lower() == "true":
            yield Fault("filter_pushdown", "of a stream, where Spark does not offer it; allowed: filter")
