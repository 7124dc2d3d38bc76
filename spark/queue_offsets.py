"""The offset of a stream of a queue's messages: the number of a batch, and everything that the batch is made of.

    {"batch": 3, "queue": "work", "runs": [["orders", "1700000000000-0 1700000000000-1", "1 2"]]}

So a batch that is run again after a crash has the same messages, whoever holds their leases by then. At the end of a
run stand the groups of its messages, if any has one: ``{"alice": "0 1"}`` of those at these places of the run.

Of an instance with partitions the offset says how many it has, and at the head of a run stands the number of its
partition: ``"partitions": 64`` and ``[17, "orders", "1700000000000-0", "1"]``.
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple, Self

from ampsq.base.errors import DefinitionError
from ampsq.base.log_positions import id_text, parse_id
from ampsq.base.values import shown
from ampsq.protocol.limits import BATCH

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["LeasedMessage", "QueueOffset"]


class LeasedMessage(NamedTuple):
    """A message that was leased.

    Attributes:
        topic: its topic.
        id: its ID there.
        delivery: how often it was delivered, 1 the first time.
        group: its group; None of a message that is in none.
        partition: the number of its partition; 0 of an instance without partitions.
    """

    topic: str
    id: str
    delivery: int
    group: str | None = None
    partition: int = 0

    @property
    def log(self) -> tuple[int, str]:
        """The partition and the topic in whose log it is."""
        return self.partition, self.topic


class QueueOffset(NamedTuple):
    """The position of a stream of a queue.

    Attributes:
        batch: how many micro-batches there were.
        queue: whose messages they are.
        messages: those of the last batch, in the order of delivery; of several partitions one after the other.
        partitions: how many the instance has; None: it has none.
    """

    batch: int
    queue: str
    messages: tuple[LeasedMessage, ...]
    partitions: int | None = None

    @classmethod
    def of(cls, offset: object, queue: str, partitions: int | None = None) -> Self:
        """Read an offset.

        Args:
            offset: as Spark kept it.
            queue: whose messages are asked for.
            partitions: how many the instance has; None: it has none.

        Raises:
            DefinitionError: it is of another source, of another queue, or of another number of partitions.
        """
        if not isinstance(offset, dict) or "batch" not in offset:
            raise DefinitionError(
                f"checkpoint: {str(offset)[:80]} is no offset of a queue; allowed: a checkpointLocation of its own"
            )
        if offset.get("queue", queue) != queue:
            raise DefinitionError(
                f"queue: the checkpoint is of {offset['queue']!r}; allowed: that queue, or another checkpointLocation"
            )
        if (found := offset.get("partitions")) != partitions:
            raise DefinitionError(
                f"url: the checkpoint is of {_instance_with(found)}, and the address of {_instance_with(partitions)}; "
                "allowed: the address that it was begun with, or another checkpointLocation"
            )
        try:
            runs = offset.get("runs", ())
            messages = [
                LeasedMessage(topic, id_text(parse_id(stream_id)), int(delivery), groups.get(place), number)
                for number, topic, ids, deliveries, *rest in (runs if partitions else ([0, *run] for run in runs))
                for groups in [_groups_of(*rest)]
                for place, (stream_id, delivery) in enumerate(zip(ids.split(), deliveries.split(), strict=True))
            ]
            _check_partitions(messages, partitions or 1)
            return cls(int(offset["batch"]), queue, tuple(messages), partitions)
        except (AttributeError, TypeError, ValueError) as error:
            raise DefinitionError(
                f"checkpoint: {shown(str(offset))} is no offset of a queue ({error}); allowed: one as Spark keeps it"
            ) from None

    def as_json(self) -> dict[str, object]:
        """As Spark keeps it."""
        runs = []
        for (number, topic), run in groupby(self.messages, key=lambda message: message.log):
            own = list(run)
            ids, deliveries = " ".join(each.id for each in own), " ".join(str(each.delivery) for each in own)
            groups = _places_of(own)
            runs.append([*([number] if self.partitions else []), topic, ids, deliveries, *([groups] if groups else [])])
        of_all = {"partitions": self.partitions} if self.partitions else {}
        return {"batch": self.batch, "queue": self.queue, **of_all, "runs": runs}

    def parts(self, number: int, most: int) -> list[list[Sequence[LeasedMessage]]]:
        """The messages cut for tasks: so many parts or more, none with more than `most`.

        Each part is in pieces, each of which is of one log. Neighbours of a group in one log stay together, so that one
        task has a batch of a group, in its order: a part may have as many more as are in a batch at most, and there may
        be fewer parts.
        """
        size = max(min(-(-len(self.messages) // number), most), 1)
        parts: list[list[Sequence[LeasedMessage]]] = []
        room = 0
        for _, run in groupby(self.messages, key=lambda message: message.log):
            own, first = list(run), 0
            while first < len(own):
                if room <= 0:
                    parts.append([])
                    room = size
                end = first + room
                most_ends = min(len(own), end + BATCH)
                while end < most_ends and own[end].group is not None and own[end].group == own[end - 1].group:
                    end += 1
                parts[-1].append(own[first:end])
                room -= len(parts[-1][-1])
                first = end
        return parts


def _check_partitions(messages: Sequence[LeasedMessage], partitions: int) -> None:
    for each in messages:
        if each.partition not in range(partitions):
            raise ValueError(f"partition {shown(each.partition)} is none of {partitions}")


def _instance_with(partitions: object) -> str:
    return "an instance without partitions" if partitions is None else f"one with {shown(partitions)} partitions"


def _places_of(messages: Sequence[LeasedMessage]) -> dict[str, str]:
    """Return group -> the places of its messages among these."""
    places: dict[str, list[str]] = {}
    for place, message in enumerate(messages):
        if message.group is not None:
            places.setdefault(message.group, []).append(str(place))
    return {group: " ".join(own) for group, own in places.items()}


def _groups_of(places: object = None) -> dict[int, str]:
    """Return place -> group."""
    if places is None:
        return {}
    if not isinstance(places, dict):
        raise TypeError("groups of a run are an object")
    return {int(place): group for group, own in places.items() for place in own.split()}
