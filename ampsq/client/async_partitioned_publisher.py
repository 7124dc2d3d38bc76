"""The publisher with a name of all partitions of an instance, for asyncio: one of each partition, and the choice.

This is `ampsq.client.partitioned_publisher`, awaited.
"""

# Made from client/partitioned_publisher.py by tests/house/test_twins.py --write.

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING, Any, Never, Self

from ampsq.base.errors import AmpsqError, Closed, DefinitionError, NotPersisted
from ampsq.base.values import Interval, shown
from ampsq.client.async_publisher import AsyncPublisher
from ampsq.client.partition_rules import not_merged, only_for_one, refuse_the_rest
from ampsq.publishing.envelope import refuse_publish_arguments
from ampsq.publishing.receipts import (
    AsyncDeletionReceipt,
    AsyncPartitionedDeletionReceipt,
    AsyncReceipt,
    PartitionedOutcomes,
    Receipts,
)
from ampsq.records.deletion import check_choice

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from datetime import datetime, timedelta

    from ampsq.client.async_partition_router import AsyncPartitionRouter

__all__ = ["AsyncPartitionedPublisher", "parts_of"]


class AsyncPartitionedPublisher(AsyncPublisher):
    """A publisher with a name in all partitions, made by `AsyncClient.publisher`; see `AsyncPublisher`.

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
        router: AsyncPartitionRouter,
        make: Callable[[int], AsyncPublisher],
        *,
        keeps: bool,
    ) -> None:
        self._name, self._router, self._make = name, router, make
        self._done = "taken" if keeps else "recorded"
        self._parts: list[AsyncPublisher] = []
        self._closed = False

    async def _open(self) -> Self:
        """Open the publishers of all partitions; all or none."""
        if self._closed:
            raise Closed("this publisher was closed")
        if self._parts:
            return self
        try:
            for number in range(self._router.total):
                self._parts.append(await self._make(number))
        except BaseException:
            with contextlib.suppress(AmpsqError):
                await self.close()
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
    def parts(self) -> list[AsyncPublisher]:
        """The publishers of the partitions.

        Raises:
            Closed: it is not open.
        """
        if self._closed or len(self._parts) < self._router.total:
            raise Closed("this publisher is not open")
        return self._parts

    async def __aenter__(self) -> Self:
        return await self._open()

    def is_of(self, router: object) -> bool:
        """Return whether the client that has this router has made it."""
        return self._router is router

    async def publish(
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
    ) -> AsyncReceipt:
        """Publish one message to the partition of its key, or group, or in turn; see `AsyncPublisher.publish`.

        The key is `key`, else what the topic's `partition_by` says. A `sequence` needs one, since the message would be
        in another partition when it is published again.
        """
        if unknown:
            refuse_publish_arguments("publish", unknown, "sequence", "key")
        parts = self.parts
        number, data = await self._router.choose(topic, data, key, group, sequence=sequence)
        receipt = await parts[number].publish(
            topic,
            data,
            headers=headers,
            expiration=expiration,
            delay=delay,
            at=at,
            group=group,
            sequence=sequence,
        )
        await self._router.note_made(topic, number)
        return receipt

    async def delta_publish(
        self,
        topic: str,
        data: Any,
        *,
        headers: Mapping[str, str] | None = None,
        expiration: timedelta | float | str | None = None,
        key: str | None = None,
        sequence: int | None = None,
        **unknown: Never,
    ) -> AsyncReceipt:
        """Publish a change of a record to the partition that has it; see `AsyncPublisher.delta_publish`.

        That is the one of `key`, else of what the topic's `partition_by` or its `key` says.
        """
        if unknown:
            refuse_publish_arguments("delta_publish", unknown, "sequence", "key")
        parts = self.parts
        number, data = await self._router.choose(topic, data, key, sequence=sequence, changes=True)
        receipt = await parts[number].delta_publish(
            topic,
            data,
            headers=headers,
            expiration=expiration,
            sequence=sequence,
        )
        await self._router.note_made(topic, number)
        return receipt

    async def publish_many(
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
    ) -> Sequence[AsyncReceipt]:
        """Publish many messages, gathered for each partition as `AsyncClient.publish_many` does; see `AsyncPublisher`.

        An error's `published` has, for each message, the sequence in its partition, or None where it was not taken.
        """
        if unknown:
            refuse_publish_arguments("publish_many", unknown, "key")
        parts, receipts = self.parts, PartitionedOutcomes[AsyncReceipt]("receipts")
        batches = await self._router.batches(topic, messages, batch, key=key, group=group, done=self._done)
        with batches.telling():
            for each in batches.cut(messages):
                with batches.sending(each):
                    taken = await parts[each.partition].publish_many(
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
                    await self._router.note_made(topic, each.partition)
        return receipts

    async def sow_delete(
        self,
        topic: str,
        *,
        keys: Iterable[Any] | None = None,
        data: Any = None,
    ) -> AsyncDeletionReceipt:
        """Delete records, in whichever partitions they are; see `AsyncPublisher.sow_delete`.

        The receipt's `deleted` is the sum of all partitions; each has its own sequence of it.
        """
        check_choice(topic, keys=keys, data=data)
        taken = [await each.sow_delete(topic, keys=keys, data=data) for each in self.parts]
        return AsyncPartitionedDeletionReceipt(topic, taken)

    async def flush(self, timeout: timedelta | float | str | None = None) -> None:  # noqa: ASYNC109  (as for threads)
        """Wait until all that was published up to now is persisted in all partitions; see `AsyncPublisher.flush`.

        Raises:
            NotPersisted: the time is over; of the first partition where something is missing.
        """
        until = None if timeout is None else time.monotonic() + Interval.parse(timeout) / 1000
        failures: list[AmpsqError] = []
        for number, each in enumerate(self.parts):
            try:
                # What others have is looked at also where one has used up the time.
                await each.flush(None if until is None else max(until - time.monotonic(), 0.0))
            except NotPersisted as error:
                text = f"partition {number}: {error}"
                failures.append(NotPersisted(text, error.first, error.last, error.acknowledgements, error.why))
        if failures:
            raise failures[0]

    async def close(self) -> None:
        """Send what the stores hold, as far as that is possible in time, and log off; see `AsyncPublisher.close`."""
        self._closed = True
        failures: list[AmpsqError] = []
        parts, self._parts = self._parts, []
        for each in parts:
            try:
                await each.close()
            except AmpsqError as error:
                failures.append(error)
        if failures:
            raise failures[0]


refuse_the_rest(AsyncPartitionedPublisher, AsyncPublisher, prefix="AsyncPublisher.")


def parts_of(publisher: AsyncPublisher | None, router: AsyncPartitionRouter) -> list[AsyncPublisher | None]:
    """Return the publishers of the partitions, of one that is to keep acknowledgements; none where there is none.

    Raises:
        DefinitionError: it is none of this client's.
    """
    if publisher is None:
        return [None] * router.total
    if not isinstance(publisher, AsyncPartitionedPublisher) or not publisher.is_of(router):
        raise DefinitionError(
            f"publisher={shown(publisher)}: allowed is one of this client, made with client.publisher(NAME, store=...)"
        )
    return list(publisher.parts)
