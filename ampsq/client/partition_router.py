"""The way of what is published to its partition, for threads: by its key, its topic's, another name, or in turn.

`ampsq.client.async_partition_router` is made from this file.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from ampsq.base.errors import DefinitionError, Unavailable
from ampsq.base.partitions import check_key_function
from ampsq.base.values import shown
from ampsq.protocol.encoding import check_batches
from ampsq.publishing.partitioned_batches import PartitionChoice, PartitionedBatches
from ampsq.publishing.topic_key import UNSAID, read_topic_key

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from ampsq.client.client import Client
    from ampsq.publishing.deduplication import DeduplicationWindow
    from ampsq.publishing.topic_key import TopicKey

__all__ = ["PartitionRouter"]


class PartitionRouter:
    """The choice of partitions for all that a client of all of them publishes.

    Args:
        total: how many partitions there are.
        clients: gives the clients of the partitions.

    Attributes:
        total: as it was given.
    """

    def __init__(self, total: int, clients: Callable[[], Sequence[Client]]) -> None:
        self.total, self._clients = total, clients
        self._choice = PartitionChoice(total)
        # Of topics that were published to: their keys, once they are defined; and a partition that has a message.
        self._topic_keys: dict[str, TopicKey] = {}
        self._made: dict[str, int] = {}
        # Topics and partitions that they were published to.
        self._used: set[tuple[str, int]] = set()
        # Topics whose keys are needed.
        self._asked: set[str] = set()

    def forget(self) -> None:
        """Ask for the definitions of topics again: some were changed."""
        self._topic_keys.clear()
        self._used.clear()

    def is_made(self, topic: str, number: int) -> bool:
        """Return whether a partition has had a message of a topic from this client."""
        return (topic, number) in self._used

    def note_made(self, topic: str, number: int) -> None:
        """Note a partition that has a topic, and learn the topic's key there, where that was asked for.

        So the next message asks no other partition, which may be away.
        """
        self._used.add((topic, number))
        if topic not in self._topic_keys:
            self._made[topic] = number
            # The message is there already: the next one asks again.
            with contextlib.suppress(Unavailable):
                if topic in self._asked:
                    self.topic_key(topic)

    def forget_unmade(self, topic: str) -> None:
        """Remember nothing of a topic, where nothing is published to it from here: for names that anybody may say."""
        if topic not in self._made:
            self._asked.discard(topic)

    def choose(
        self,
        topic: str,
        data: Any,
        key: str | None,
        *others: str | None,
        sequence: int | None = None,
        changes: bool = False,
    ) -> tuple[int, Any]:
        """Choose the partition of a message: by its key, else its topic's, else by other names, else in turn.

        Args:
            topic: the topic.
            data: what is published.
            key: of the message.
            others: names that choose where there is no key.
            sequence: a number that its publisher gives it.
            changes: it changes a record, which is in one partition.

        Returns:
            The partition, and the data, encoded where they had to be.

        Raises:
            DefinitionError: nothing but the turn chooses, and published again under its number it would be elsewhere;
                or it does not say which partition has the record that it changes.
        """
        topic_key = self.topic_key(topic) if key is None else UNSAID
        name, data = topic_key.choosing_name(topic, data, key, *others, changes=changes)
        if sequence is not None and name is None:
            raise DefinitionError(
                f"sequence={shown(sequence)} counts in one partition, and nothing says which one has the message; "
                "allowed: with key=, group= or the partition_by of its topic"
            )
        return self.partition_of(name), data

    def partition_of(self, name: str | bytes | None) -> int:
        """Return the partition of a name; without one the next one in turn."""
        return self._choice.of(name)

    def batches(
        self,
        topic: str,
        messages: Iterable[Any],
        batch: int,
        *,
        key: Callable[[Any], str] | None,
        group: str | None,
        window: DeduplicationWindow | None = None,
        done: str = "recorded",
    ) -> PartitionedBatches:
        """Begin to cut messages into batches; `PartitionedBatches.cut` does it."""
        check_key_function(key)
        check_batches(messages, batch)
        topic_key = self.topic_key(topic)
        return PartitionedBatches(self._choice, batch, topic_key, key=key, name=group, window=window, done=done)

    def topic_key(self, topic: str) -> TopicKey:
        """Return what a topic's definition says of keys; it is asked for until the topic is there."""
        if not isinstance(topic, str):
            return UNSAID
        self._asked.add(topic)
        found = self._topic_keys.get(topic)
        # One that is made by publishing to it is in the partitions that were published to.
        for number in dict.fromkeys((self._made.get(topic, 0), 0)) if found is None else ():
            each = self._clients()[number]
            found = each._store.run(read_topic_key(each.instance, topic))  # noqa: SLF001  (our own)
            if found is not None:
                # Once there is a message, none of it changes.
                if topic in self._made:
                    self._topic_keys[topic] = found
                break
        return found or UNSAID
