"""The publisher with a name of all partitions of an instance, for threads: one of each partition, and the choice.

`ampsq.client.async_partitioned_publisher` is made from this file.
"""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING, Any, Never, Self

from ampsq.base.errors import AmpsqError, Closed, DefinitionError, NotPersisted
from ampsq.base.values import Interval, shown
from ampsq.client.partition_rules import not_merged, only_for_one, refuse_the_rest
from ampsq.client.publisher import Publisher
from ampsq.publishing.envelope import refuse_publish_arguments
from ampsq.publishing.receipts import (
    DeletionReceipt,
    PartitionedDeletionReceipt,
    PartitionedOutcomes,
    Receipt,
    Receipts,
)
from ampsq.records.deletion import check_choice

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from datetime import datetime, timedelta

    from ampsq.client.partition_router import PartitionRouter

__all__ = ["PartitionedPublisher", "parts_of"]


class PartitionedPublisher(Publisher):
    """A publisher with a name in all partitions, made by `Client.publisher`; see `Publisher`.

    Messages of a key have their order. Each partition numbers its messages by itself, so a receipt names a partition
    and a sequence.

    Args:
        name: under which it publishes in each.
        router: chooses partitions.
        make: opens the publisher of a partition.
        keeps: whether it has a store.
    """

    def __init__(
        self,
        name: str,
        router: PartitionRouter,
        make: Callable[[int], Publisher],
        *,
        keeps: bool,
    ) -> None:
        self._name, self._router, self._make = name, router, make
        self._done = "taken" if keeps else "recorded"
        self._parts: list[Publisher] = []
        self._closed = False

    def _open(self) -> Self:
        """Open the publishers of all partitions; all or none."""
        if self._closed:
            raise Closed("this publisher was closed")
        if self._parts:
            return self
        try:
            for number in range(self._router.total):
                self._parts.append(self._make(number))
        except BaseException:
            with contextlib.suppress(AmpsqError):
                self.close()
            raise
        return self

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._name} in {self._router.total} partitions>"

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Never:
            only_for_one(name)

    @property
    def name(self) -> str:
        """The name under which it publishes."""
        return self._name

    @property
    def last_persisted(self) -> int:
        """Refuse one number for all: each partition has its own, which `PersistedAck` tells."""
        raise not_merged("last_persisted")

    @property
    def parts(self) -> list[Publisher]:
        """The publishers of the partitions.

        Raises:
            Closed: it is not open.
        """
        if self._closed or len(self._parts) < self._router.total:
            raise Closed("this publisher is not open")
        return self._parts

    def is_of(self, router: object) -> bool:
        """Return whether the client that has this router has made it."""
        return self._router is router

    def publish(
        self,
        topic: str,
        data: Any,
        *,
        headers: Mapping[str, str] | None = None,
        expiration: timedelta | float | str | None = None,
        delay: timedelta | float | str | None = None,
        at: datetime | None = None,
        group: str | None = None,
        key: str | None = None,
        sequence: int | None = None,
        **unknown: Never,
    ) -> Receipt:
        """Publish one message to the partition of its key, or group, or in turn; see `Publisher.publish`.

        The key is `key`, else what the topic's `partition_by` says. A `sequence` needs one, since the message would be
        in another partition when it is published again.
        """
        if unknown:
            refuse_publish_arguments("publish", unknown, "sequence", "key")
        parts = self.parts
        number, data = self._router.choose(topic, data, key, group, sequence=sequence)
        receipt = parts[number].publish(
            topic,
            data,
            headers=headers,
            expiration=expiration,
            delay=delay,
            at=at,
            group=group,
            sequence=sequence,
        )
        self._router.note_made(topic, number)
        return receipt

    def delta_publish(
        self,
        topic: str,
        data: Any,
        *,
        headers: Mapping[str, str] | None = None,
        expiration: timedelta | float | str | None = None,
        key: str | None = None,
        sequence: int | None = None,
        **unknown: Never,
    ) -> Receipt:
        """Publish a change of a record to the partition that has it; see `Publisher.delta_publish`.

        That is the one of `key`, else of what the topic's `partition_by` or its `key` says.
        """
        if unknown:
            refuse_publish_arguments("delta_publish", unknown, "sequence", "key")
        parts = self.parts
        number, data = self._router.choose(topic, data, key, sequence=sequence, changes=True)
        receipt = parts[number].delta_publish(
            topic,
            data,
            headers=headers,
            expiration=expiration,
            sequence=sequence,
        )
        self._router.note_made(topic, number)
        return receipt

    def publish_many(
        self,
        topic: str,
        messages: Iterable[Any],
        *,
        batch: int = 100,
        headers: Mapping[str, str] | None = None,
        expiration: timedelta | float | str | None = None,
        delay: timedelta | float | str | None = None,
        at: datetime | None = None,
        group: str | None = None,
        key: Callable[[Any], str] | None = None,
        **unknown: Never,
    ) -> Sequence[Receipt]:
        """Publish many messages, gathered for each partition as `Client.publish_many` does; see `Publisher`.

        An error's `published` has, for each message, the sequence in its partition, or None where it was not taken.
        """
        if unknown:
            refuse_publish_arguments("publish_many", unknown, "key")
        parts, receipts = self.parts, PartitionedOutcomes[Receipt]("receipts")
        batches = self._router.batches(topic, messages, batch, key=key, group=group, done=self._done)
        with batches.telling():
            for each in batches.cut(messages):
                with batches.sending(each):
                    taken = parts[each.partition].publish_many(
                        topic,
                        each.bodies,
                        batch=batch,
                        headers=headers,
                        expiration=expiration,
                        delay=delay,
                        at=at,
                        group=group,
                    )
                    receipts.add(each.places, taken)
                    batches.note(each, taken.outcomes if isinstance(taken, Receipts) else ())
                    self._router.note_made(topic, each.partition)
        return receipts

    def sow_delete(
        self,
        topic: str,
        *,
        keys: Iterable[Any] | None = None,
        data: Any = None,
    ) -> DeletionReceipt:
        """Delete records, in whichever partitions they are; see `Publisher.sow_delete`.

        The receipt's `deleted` is the sum of all partitions; each has its own sequence of it.
        """
        check_choice(topic, keys=keys, data=data)
        taken = [each.sow_delete(topic, keys=keys, data=data) for each in self.parts]
        return PartitionedDeletionReceipt(topic, taken)

    def flush(self, timeout: timedelta | float | str | None = None) -> None:
        """Wait until all that was published up to now is persisted in all partitions; see `Publisher.flush`.

        Raises:
            NotPersisted: the time is over; of the first partition where something is missing.
        """
        until = None if timeout is None else time.monotonic() + Interval.parse(timeout) / 1000
        failures: list[AmpsqError] = []
        for number, each in enumerate(self.parts):
            try:
                # What others have is looked at also where one has used up the time.
                each.flush(None if until is None else max(until - time.monotonic(), 0.0))
            except NotPersisted as error:
                text = f"partition {number}: {error}"
                failures.append(NotPersisted(text, error.first, error.last, error.acknowledgements, error.why))
        if failures:
            raise failures[0]

    def close(self) -> None:
        """Send what the stores hold, as far as that is possible in time, and log off; see `Publisher.close`."""
        self._closed = True
        failures: list[AmpsqError] = []
        parts, self._parts = self._parts, []
        for each in parts:
            try:
                each.close()
            except AmpsqError as error:
                failures.append(error)
        if failures:
            raise failures[0]


refuse_the_rest(PartitionedPublisher, Publisher, prefix="Publisher.")


def parts_of(publisher: Publisher | None, router: PartitionRouter) -> list[Publisher | None]:
    """Return the publishers of the partitions, of one that is to keep acknowledgements; none where there is none.

    Raises:
        DefinitionError: it is none of this client's.
    """
    if publisher is None:
        return [None] * router.total
    if not isinstance(publisher, PartitionedPublisher) or not publisher.is_of(router):
        raise DefinitionError(
            f"publisher={shown(publisher)}: allowed is one of this client, made with client.publisher(NAME, store=...)"
        )
    return list(publisher.parts)
