"""A publisher with a name, awaited: it numbers messages, keeps them in its store if any, tells what is persisted."""

# Made from client/publisher.py by tests/house/test_twins.py --write.

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any, Never, Self

from ampsq.base.cancellation import run_to_end
from ampsq.base.partitions import check_key_function
from ampsq.base.values import Interval, check_text
from ampsq.protocol.encoding import encode_batches
from ampsq.publishing.envelope import Envelope, refuse_publish_arguments
from ampsq.publishing.publishing_batches import PublishingBatches, telling_of_taken
from ampsq.publishing.receipts import AsyncDeletionReceipt, AsyncReceipt, Receipts, Sequences
from ampsq.records.deletion import check_choice, delete_by_key, deletion_calls

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
    from datetime import datetime, timedelta

    from ampsq.client.publisher_core import PublisherCore
    from ampsq.queues.async_subscription import AsyncManagedSubscription
    from ampsq.transport.async_store import AsyncStore

__all__ = ["AsyncPublisher"]


class AsyncPublisher:
    """A publisher with a name, made by `AsyncClient.publisher`; enter it with ``async with``, or await and close it.

    The server records each of its messages once, in the order of their numbers, however often a call is repeated.

    With a store `publish` returns as soon as that has the message, and what is kept is sent in the background. Without
    one it returns when the message is recorded: a number that overtook another would make that look recorded, so the
    publisher's calls wait for each other, each for a whole round trip. Tasks that need no order and no names publish
    faster with `AsyncClient.publish`, which waits for nobody.
    """

    def __init__(
        self,
        core: PublisherCore[AsyncStore],
        subscriptions: Callable[[], Sequence[AsyncManagedSubscription]],
    ) -> None:
        self._core, self._subscriptions = core, subscriptions
        # Numbers must reach the server in their order.
        self._lock = asyncio.Lock()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._core}>"

    @property
    def name(self) -> str:
        """The name under which it publishes."""
        return self._core.name

    @property
    def last_persisted(self) -> int:
        """The sequence up to which all of its messages are persisted; 0 before the first."""
        return self._core.persisted

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
        """Publish one message: with a store take it, to be recorded whatever happens; without one record it.

        Args:
            topic: as of `AsyncClient.publish`, and so are `data`, `headers`, `expiration`, `delay`, `at` and `group`.
            data: what is published.
            headers: names and values, texts.
            expiration: how long it may be in a queue.
            delay: how long until it is delivered, from when it is recorded, or
            at: when.
            group: its group.
            key: of an instance with partitions, as of `AsyncClient.publish`; without partitions it says nothing.
            sequence: without a store: the message's number; default the next one. A number that is recorded already
                records nothing, and the receipt has the first record's bookmark (with an empty ID where that record is
                too far back to be found).
            unknown: refused, with a word where it is said.

        Returns:
            A receipt: its `sequence` is the message's number, its `bookmark` waits until the message is persisted.

        Raises:
            PublishStoreFull, PublishStoreError: the store did not take it.
            NameInUse: another client publishes under the same name now; what the store took of this one is not sent any
                more.
            Closed: the publisher was closed.
            DefinitionError, Unavailable, ServerFull, MissingKey, UnreadBody: without a store, as of
                `AsyncClient.publish`.
        """
        if unknown:
            refuse_publish_arguments("publish", unknown, "sequence", "key")
        if key is not None:
            check_text("key", key)
        return await self._publish(topic, data, Envelope.of(headers, expiration, delay, at, group), sequence)

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
        """Publish one message that says only what changes of the record of its key; see `AsyncClient.delta_publish`.

        A store keeps the change, which is merged when it is recorded.

        Args:
            topic: as of `AsyncClient.delta_publish`, and so are `data`, `headers`, `expiration` and `key`.
            data: an object that has the key and what changes.
            headers: of the whole message.
            expiration: of the whole message.
            key: that with which the record was published.
            sequence: as of `publish`.
            unknown: refused, as of `publish`.

        Returns:
            A receipt, as of `publish`.

        Raises:
            PublishStoreFull, PublishStoreError, NameInUse, Closed: as of `publish`.
            DeltaNotJson, MissingKey, UnreadBody: without a store, as of `AsyncClient.delta_publish`.
        """
        if unknown:
            refuse_publish_arguments("delta_publish", unknown, "sequence", "key")
        if key is not None:
            check_text("key", key)
        return await self._publish(topic, data, Envelope.of(headers, expiration, None, None), sequence, delta=True)

    async def _publish(
        self, topic: str, data: Any, envelope: Envelope, sequence: int | None, *, delta: bool = False
    ) -> AsyncReceipt:
        core = self._core
        core.check_open()
        parts, guaranteed = core.parts, core.guaranteed
        if guaranteed is not None:
            body = await parts.store.run(parts.session.types.body(topic, data))
            taken = await self._take(partial(guaranteed.publish, topic, [body], envelope, sequence, delta=delta))
            return AsyncReceipt(topic, taken, guaranteed, parts.session.partition)
        async with self._lock:
            recorded = await core.parts.store.run(core.plain.publish(topic, data, envelope, sequence, delta=delta))
        return AsyncReceipt(topic, recorded.sequence, recorded.bookmark, parts.session.partition)

    async def _take(self, take: Callable[[], int]) -> int:
        """Let the store take something in the order of the calls, without holding up the loop."""
        async with self._lock:
            if self._core.guaranteed is None or self._core.guaranteed.may_wait:
                return await asyncio.to_thread(take)
            return take()

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
        """Publish many messages, `batch` (1 to 500) a call.

        `headers`, `expiration`, `delay`, `at` and `group` are those of each; `key` is a function that gives the key of
        each, for an instance with partitions.

        Returns:
            Their receipts, in order, made when they are looked at.

        Raises:
            PublishStoreFull, PublishStoreError, NameInUse, Closed: as of `publish`; `published` has the sequences of
                those that were taken.
            Unavailable, ServerFull, MissingKey, UnreadBody: without a store, as of `AsyncClient.publish_many`;
                `published` has the bookmarks of those that are recorded.
        """
        if unknown:
            refuse_publish_arguments("publish_many", unknown, "key")
        check_key_function(key)
        envelope, core, sequences = Envelope.of(headers, expiration, delay, at, group), self._core, Sequences()
        core.check_open()
        guaranteed = core.guaranteed
        if guaranteed is not None:
            store, types = core.parts.store, core.parts.session.types
            message_type = await store.run(types.learn(topic))
            with telling_of_taken(sequences):
                for bodies in encode_batches(messages, batch, message_type):
                    types.note_large(topic, bodies)
                    taken = await self._take(partial(guaranteed.publish, topic, bodies, envelope))
                    sequences.add(taken, len(bodies))
            await store.run(types.warn_of_unread())
            return Receipts(AsyncReceipt, topic, sequences, guaranteed, core.parts.session.partition)
        async with self._lock:
            store, plain, noted = core.parts.store, core.plain, PublishingBatches(core.parts.session.origin)
            await store.run(plain.prepare(topic))
            first = plain.next_sequence
            calls = plain.batches(topic, messages, batch, envelope, noted)
            with noted.telling():
                for call in calls:
                    plain.note(noted, await store.run(plain.publish_first(topic, call)))
                    break
                async for answer in store.stream(calls):
                    plain.note(noted, answer)
            await store.run(plain.client.types.warn_of_unread())
        sequences.add(first, len(noted.bookmarks))
        return Receipts(AsyncReceipt, topic, sequences, noted.bookmarks, core.parts.session.partition)

    async def sow_delete(
        self,
        topic: str,
        *,
        keys: Iterable[Any] | None = None,
        data: Any = None,
    ) -> AsyncDeletionReceipt:
        """Delete records of a topic with a key, once, in the order of what is published.

        Queues keep their messages. With a store the deletion is kept there, and deletes what is recorded when it is
        done. By a filter: `AsyncClient.sow_delete`.

        Args:
            topic: the topic.
            keys: of the records, as of `AsyncClient.sow`; or
            data: a message with the key of the record.

        Returns:
            A receipt: its `deleted` waits until the deletion is persisted, and gives how many records there were.

        Raises:
            DefinitionError: neither keys nor data, or both. NoRecords, MissingKey: as of `AsyncClient.sow_delete`; with
                a store, from the receipt.
            PublishStoreFull, PublishStoreError, NameInUse, Closed: as of `publish`.
        """
        check_choice(topic, keys=keys, data=data)
        core = self._core
        core.check_open()
        guaranteed = core.guaranteed
        if guaranteed is not None:
            deletions = await core.parts.store.run(deletion_calls(core.parts.session.types, topic, keys, data))
            taken = [await self._take(partial(guaranteed.take, 1, "sow_delete", each)) for each in deletions]
            return AsyncDeletionReceipt(topic, taken, guaranteed)
        async with self._lock:
            number = await core.parts.store.run(delete_by_key(core.plain, topic, keys, data))
            return AsyncDeletionReceipt(topic, [core.plain.next_sequence - 1], number)

    async def flush(self, timeout: timedelta | float | str | None = None) -> None:  # noqa: ASYNC109  (as for threads)
        """Wait until all that was published up to now is persisted, and what was acknowledged with this publisher.

        Without a store all that was published is recorded already.

        Args:
            timeout: how long; default as long as it takes.

        Raises:
            NotPersisted: the time is over, or a sync destination is found to lead to an instance of this one's name, at
                once; tells what is missing, and why. It is still sent.
            NameInUse: another client publishes under this publisher's name now.
        """
        core = self._core
        core.check_process()
        for subscription in self._subscriptions():
            await subscription.flush()
        if core.guaranteed is not None:
            seconds = None if timeout is None else Interval.parse(timeout) / 1000
            await asyncio.to_thread(core.guaranteed.flush, seconds)

    async def close(self) -> None:
        """Send what the store holds, as far as that is possible in time, and log off. Safe to call again.

        Close before what acknowledges with this publisher: a subscription, if there is one.

        Raises:
            NotPersisted: a store in memory holds messages that the server did not persist within the client's
                `retry_timeout`.
        """
        await run_to_end(asyncio.to_thread(self._core.close))

    def __await__(self) -> Generator[Any, Any, Self]:
        return self.__aenter__().__await__()

    async def __aenter__(self) -> Self:
        try:
            # Opened by a thread that nobody can cancel, it is there to be closed.
            await run_to_end(asyncio.to_thread(self._core.open))
        except asyncio.CancelledError:
            await self.close()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
