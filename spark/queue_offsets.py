"""The offset of a stream of a queue's messages: the number of a batch, and everything that the batch is made of.

    {"batch": 3, "queue": "work", "runs": [["orders", "1700000000000-0 1700000000000-1", "1 2"]]}

So a batch that is run again after a crash has the same messages, whoever holds their leases by then.
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple, Self

from ampsq.base.errors import DefinitionError
from ampsq.base.log_positions import id_text, parse_id
from ampsq.base.values import shown

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["LeasedMessage", "QueueOffset"]


class LeasedMessage(NamedTuple):
    """A message that was leased.

    Attributes:
        topic: its topic.
        id: its ID there.
        delivery: how often it was delivered, 1 the first time.
    """

    topic: str
    id: str
    delivery: int


class QueueOffset(NamedTuple):
    """The position of a stream of a queue.

    Attributes:
        batch: how many micro-batches there were.
        queue: whose messages they are.
        messages: those of the last batch, in the order of delivery.
    """

    batch: int
    queue: str
    messages: tuple[LeasedMessage, ...]

    @classmethod
    def of(cls, offset: object, queue: str) -> Self:
        """Read an offset.

        Raises:
            DefinitionError: it is of another source, or of another queue.
        """
        if not isinstance(offset, dict) or "batch" not in offset:
            raise DefinitionError(
                f"checkpoint: {str(offset)[:80]} is no offset of a queue; allowed: a checkpointLocation of its own"
            )
        if offset.get("queue", queue) != queue:
            raise DefinitionError(
                f"queue: the checkpoint is of {offset['queue']!r}; allowed: that queue, or another checkpointLocation"
            )
        try:
            messages = [
                LeasedMessage(topic, id_text(parse_id(stream_id)), int(delivery))
                for topic, ids, deliveries in offset.get("runs", ())
                for stream_id, delivery in zip(ids.split(), deliveries.split(), strict=True)
            ]
            return cls(int(offset["batch"]), queue, tuple(messages))
        except (AttributeError, TypeError, ValueError) as error:
            raise DefinitionError(
                f"checkpoint: {shown(str(offset))} is no offset of a queue ({error}); allowed: one as Spark keeps it"
            ) from None

    def as_json(self) -> dict[str, object]:
        """As Spark keeps it."""
        runs = []
        for topic, group in groupby(self.messages, key=lambda message: message.topic):
            own = list(group)
            ids, deliveries = " ".join(each.id for each in own), " ".join(str(each.delivery) for each in own)
            runs.append([topic, ids, deliveries])
        return {"batch": self.batch, "queue": self.queue, "runs": runs}

    def parts(self, number: int, most: int) -> list[Sequence[LeasedMessage]]:
        """The messages cut for tasks: so many parts or more, none with more than `most`, each of one topic."""
        size = max(min(-(-len(self.messages) // number), most), 1)
        parts: list[Sequence[LeasedMessage]] = []
        for _, group in groupby(self.messages, key=lambda message: message.topic):
            own = list(group)
            parts += [own[i : i + size] for i in range(0, len(own), size)]
        return parts
