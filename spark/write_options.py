"""The options of a writer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BeforeValidator

from ampsq.base.values import parse_name
from ampsq.definitions.definition import Fault
from ampsq.protocol.limits import BATCH
from ampsq.spark.options import Milliseconds, Options, Whole

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["BatchWriteOptions", "WriteOptions"]

Protocol = Literal["staged", "sequence"]


def _name(value: Any) -> str:
    return parse_name(value) if value else ""


def _epoch(value: Any) -> int:
    if not str(value).isdecimal():
        raise ValueError(f"{value!r} is no epoch; allowed: a whole number from 0, higher for each later run")
    return int(value)


class WriteOptions(Options):
    """The options of every writer, besides `Options`.

    Attributes:
        topic: where rows go: a topic, or a queue, whose publish target gets them. Or the column `topic` says so.
        publisher: the job's name; partition 3 publishes as ``<publisher>/3``. Default: a stream's query id; a batch
            job's is made up, so that a job that is submitted again writes again.
        commit_protocol: ``staged`` (default): rows are put aside, and recorded when the job commits; safe with any plan
            and nothing of a failed job is seen. ``sequence``: recorded as they come; fails where rows come in another
            order when a task is repeated.
        chunk_rows: rows a call, 1 to 500; default 500.
        pipeline: calls of a task that are in flight at once; default 4.
        staging_ttl: how long rows that nobody commits are kept; default 1d.
    """

    topic: Annotated[str, BeforeValidator(_name)] = ""
    publisher: Annotated[str, BeforeValidator(_name)] = ""
    commit_protocol: Protocol = "staged"
    chunk_rows: Whole = BATCH
    pipeline: Whole = 4
    staging_ttl: Milliseconds = 86_400_000

    @classmethod
    def _conflicts(cls, given: Mapping[str, Any]) -> Iterator[Fault]:
        yield from super()._conflicts(given)
        rows = str(given.get("chunk_rows", BATCH))
        if rows.isdecimal() and int(rows) > BATCH:
            yield Fault("chunk_rows", f"{rows}; allowed: 1 to {BATCH}")


class BatchWriteOptions(WriteOptions):
    """The options of a batch job's writer, besides `WriteOptions`.

    Attributes:
        epoch: with a publisher: the number of the run, higher for each later one. The same publisher and epoch again
            record nothing twice.
    """

    epoch: Annotated[int, BeforeValidator(_epoch)] = 0

    @classmethod
    def _conflicts(cls, given: Mapping[str, Any]) -> Iterator[Fault]:
        yield from super()._conflicts(given)
        if "epoch" in given and not given.get("publisher"):
            yield Fault("epoch", "without a publisher, whose run it would be; allowed: with the option publisher")
        if given.get("publisher") and "epoch" not in given:
            yield Fault("epoch", "missing beside publisher; allowed: the number of the run, higher for each later one")
