"""The calls of jobs that write whole partitions; see `ampsq.protocol.calls.queues`."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ampsq.protocol.replies import pairs
from ampsq.protocol.request import command, script_call
from ampsq.protocol.schema import key

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redis.typing import EncodableT

    from ampsq.protocol.replies import RawHash
    from ampsq.protocol.request import Call

__all__ = [
    "Committed",
    "DecidedLane",
    "JobProgress",
    "PartitionProgress",
    "StagedRows",
    "commit_job",
    "decided",
    "drop_stages",
    "finish_job",
    "keep_stages",
    "last_epoch",
    "record_stage",
    "stage_rows",
    "write_rows",
]


class PartitionProgress(NamedTuple):
    """Progress of recording a partition in an epoch.

    Attributes:
        rows: how many; -1: a later epoch followed, so all of them.
        checksum: of their values.
    """

    rows: int
    checksum: int


class StagedRows(NamedTuple):
    """Rows of a partition that one attempt has put aside for one instance.

    Attributes:
        lane: ``<instance>/<partition>``.
        attempt: its name.
        rows: how many.
        length: of the list that they are in.
    """

    lane: str
    attempt: str
    rows: int
    length: int = 0


class Committed(NamedTuple):
    """The epoch that is to be recorded now, and the attempts that count in it."""

    epoch: int
    lanes: list[StagedRows]


class DecidedLane(NamedTuple):
    """A lane, ``<instance>/<partition>``, and the attempt that counts in it."""

    lane: str
    attempt: str


class JobProgress(NamedTuple):
    """The last epoch of a job, and the highest partition that wrote in it in sequence; -1: none."""

    epoch: int
    partition: int


def write_rows(
    job: str,
    partition: int,
    epoch: int,
    written: PartitionProgress,
    *,
    topic: str = "",
    checksum: int = 0,
    shape: str = "b",
    values: Sequence[bytes] = (),
) -> Call[PartitionProgress]:
    """Record the next rows of a partition, at most 500; without values, ask how far it is.

    Args:
        job: the job's name.
        partition: its number.
        epoch: the job's epoch.
        written: the rows that come before these.
        topic: theirs, or "" where each row ends with its own.
        checksum: of all rows with these.
        shape: a letter for each value of a row.
        values: the rows' values in turn.
    """

    def read(reply: list[bytes | int]) -> PartitionProgress:
        return PartitionProgress(int(reply[0]), int(reply[1] or 0))

    head: list[EncodableT] = ["", topic, job, partition, epoch, *written, checksum, shape]
    return script_call("write_rows", [*head, *values], read, repeatable=True)


def stage_rows(
    job: str, lane: str, attempt: str, length: int, ttl: int, *, topic: str, shape: str, values: Sequence[bytes]
) -> Call[int]:
    """Put rows aside behind `length` values, for `ttl` ms; gives the length then. The rest is as of `write_rows`."""
    head: list[EncodableT] = ["", topic, job, lane, attempt, length, ttl, shape]
    return script_call("stage_rows", [*head, *values], int, repeatable=True)


def keep_stages(job: str, ttl: int, lanes: Sequence[StagedRows]) -> Call[int]:
    """See that all is there that attempts have put aside, and keep it for `ttl` ms more; gives how many there are."""
    values = [value for lane in lanes for value in (lane.lane, lane.attempt, lane.length)]
    return script_call("keep_stages", [job, ttl, *values], int, repeatable=True)


def commit_job(job: str, epoch: int, lanes: Sequence[StagedRows]) -> Call[Committed | None]:
    """Decide which attempts of an epoch count; None: this epoch is recorded already."""

    def read(reply: list[bytes]) -> Committed | None:
        if not reply:
            return None
        lanes = [
            StagedRows(reply[i].decode(), reply[i + 1].decode(), int(reply[i + 2])) for i in range(1, len(reply), 4)
        ]
        return Committed(int(reply[0]), lanes)

    values = [value for lane in lanes for value in lane[:3]]
    return script_call("commit_job", ["", job, epoch, *values], read, repeatable=True)


def decided(instance: str, job: str) -> Call[set[DecidedLane]]:
    """Read the lanes of all instances that are committed and not recorded yet."""

    def read(reply: RawHash) -> set[DecidedLane]:
        return {DecidedLane(lane.decode(), noted.split()[0].decode()) for lane, noted in pairs(reply)}

    return command(["HGETALL", key(instance, "manifest", job)], read)


def last_epoch(instance: str, job: str) -> Call[JobProgress]:
    """Read how far a job has come."""

    def read(reply: bytes | None) -> JobProgress:
        epoch, highest = (reply or b"-1 -1").split()[:2]
        return JobProgress(int(epoch), int(highest) if highest.isdigit() else -1)

    return command(["HGET", key(instance, "jobs"), job], read)


def record_stage(job: str, epoch: int, lane: str, most: int | None = None) -> Call[int]:
    """Record the next rows of a lane, those of one call and `most` at most; gives how many are left."""
    arguments: list[EncodableT] = ["", job, epoch, lane, "" if most is None else most]
    return script_call("record_stage", arguments, int, repeatable=True)


def finish_job(job: str, epoch: int, lanes: Sequence[str]) -> Call[int]:
    """Let go of lanes that are recorded; gives how many are left."""
    return script_call("finish_job", ["", job, epoch, *lanes], int, repeatable=True)


def drop_stages(job: str, lanes: Sequence[StagedRows]) -> Call[int]:
    """Let go of what attempts that do not count have put aside."""
    names = [value for lane in lanes for value in lane[:2]]
    return script_call("drop_stages", [job, *names], int, repeatable=True)
