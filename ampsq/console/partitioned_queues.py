"""Queues of an instance with partitions: the sums of each queue over all partitions, and its figures in each one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ampsq.base.errors import AmpsqError, DefinitionError, Unavailable, UnknownQueue
from ampsq.base.suggestions import nearest
from ampsq.console.charts import rates
from ampsq.operations.figures import QueueFigures
from ampsq.protocol.calls.queue_ages import Ages
from ampsq.protocol.calls.queue_stats import QueueStats

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ampsq.base.partitions import Partition
    from ampsq.console.observer import Observer

__all__ = ["PartitionedQueues", "QueueInPartition", "read_partitioned_queues", "sum_rates"]


@dataclass(frozen=True, slots=True)
class QueueInPartition:
    """A queue in one partition.

    Attributes:
        partition: the partition.
        figures: the queue there.
        rates: messages a second that came in and that left, over the last ten seconds; None while that is not known.
    """

    partition: Partition
    figures: QueueFigures
    rates: tuple[float, float] | None


@dataclass(frozen=True, slots=True)
class PartitionedQueues:
    """The queues of an instance with partitions.

    Attributes:
        total: how many partitions it has.
        parts: queue -> the queue in each partition that was read, by their numbers.
        away: partitions whose figures could not be read, with the reason.
    """

    total: int
    parts: Mapping[str, tuple[QueueInPartition, ...]]
    away: tuple[tuple[Partition, str], ...]

    @property
    def queues(self) -> list[QueueFigures]:
        """Return each queue with its sums, the oldest ages of any partition, and its definition in the first one."""
        return [_sum_of(parts) for parts in self.parts.values()]

    def queue(self, name: str) -> tuple[QueueFigures, tuple[QueueInPartition, ...]]:
        """Return a queue with its sums, and what it is in each partition.

        Raises:
            UnknownQueue: no partition that was read has it.
        """
        if name not in self.parts:
            raise UnknownQueue(queue=name)
        return _sum_of(self.parts[name]), self.parts[name]


def _sum_of(parts: Iterable[QueueInPartition]) -> QueueFigures:
    figures = [each.figures for each in parts]
    return QueueFigures(
        figures[0].text,
        QueueStats.merged([each.stats for each in figures]),
        Ages.merged([each.ages for each in figures]),
    )


def sum_rates(parts: Iterable[QueueInPartition]) -> tuple[float, float] | None:
    """Return messages a second of a queue over all partitions; None while no rate is known."""
    known = [each.rates for each in parts if each.rates is not None]
    return (sum(each[0] for each in known), sum(each[1] for each in known)) if known else None


def read_partitioned_queues(observer: Observer, name: str) -> PartitionedQueues:
    """Read the queues of all partitions that the console shows; those that cannot be read are named with the reason.

    Args:
        observer: has the figures.
        name: of the instance that has partitions.

    Raises:
        DefinitionError: the console shows no partition of such an instance.
        Unavailable: none of them can be read.
    """
    away: list[tuple[Partition, str]] = []
    parts: dict[str, list[QueueInPartition]] = {}
    wholes: set[str] = set()
    found: list[Partition] = []
    for instance in observer.instances():
        queues: Mapping[str, QueueFigures] = {}
        reason = ""
        try:
            queues = observer.reading(instance).figures.queues
        except AmpsqError as error:
            reason = str(error)
        partition = observer.partition(instance)
        if partition is None:
            continue
        wholes.add(partition.name)
        if partition.name != name:
            continue
        found.append(partition)
        if reason:
            away.append((partition, reason))
        for queue, figures in queues.items():
            part = QueueInPartition(partition, figures, rates(observer.moments(instance, queue)))
            parts.setdefault(queue, []).append(part)
    if not found:
        raise DefinitionError(
            f"no instance {name!r} with partitions is shown here; {nearest(name, sorted(wholes), 'instance')}"
        )
    if len(away) == len(found):
        raise Unavailable(f"no partition of {name!r} can be read: {away[0][1]}")
    ordered = {
        queue: tuple(sorted(each, key=lambda part: part.partition.number)) for queue, each in sorted(parts.items())
    }
    away.sort(key=lambda each: each[0].number)
    return PartitionedQueues(found[0].total, ordered, tuple(away))
