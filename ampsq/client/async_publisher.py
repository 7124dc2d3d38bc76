"""The same as `ampsq.client.publisher`, awaited."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any, Never, Self

from ampsq.base.cancellation import run_to_end
from ampsq.base.values import Interval
from ampsq.protocol.encoding import encode_batches
from ampsq.publishing.envelope import Envelope, refuse_publish_arguments
from ampsq.publishing.publishing_batches import PublishingBatches, telling_of_taken
from ampsq.publishing.receipts import AsyncDeletionReceipt, AsyncReceipt, Receipts, Sequences
from ampsq.records.deletion import check_choice, delete_by_key, deletion_calls

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
    from datetime import datetime, timedelta

    from ampsq.client.publisher_core import PublisherCore
    from ampsq.queues.async_subscription import AsyncSubscription
    from ampsq.transport.async_store import AsyncStore

__all__ = ["AsyncPublisher"]


class AsyncPublisher:
    """A publisher with a name, made by `AsyncClient.publisher`: enter it with ``async with``, or await it and close it.

    Without a store its calls wait for each other, each for a whole round trip; see `Publisher`.
    """

    def __init__(
        self, core: PublisherCore[AsyncStore], subscriptions: Callable[[], Sequence[AsyncSubscription]]
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

    def __await__(self) -> Generator[Any, Any, Self]:
        return self.__aenter__().__await__()

    async def publish(
        self,
        topic: str,
        data: Any,
        *,
        headers: Mapping[str, str] | None = None,
        expiration: timedelta | float | str | None = None,
        delay: timedelta | float | str | None = None,
        at: datetime | None = None,
        sequence: int | None = None,
        **unknown: Never,
    ) -> AsyncReceipt:
        """Publish one message; see `Publisher.publish`."""
        if unknown:
            refuse_publish_arguments("publish", unknown, "sequence")
        return await self._publish(topic, data, Envelope.of(headers, expiration, delay, at), sequence)

    async def delta_publish(
        self,
        topic: str,
        data: Any,
        *,
        headers: Mapping[str, str] | None = None,
        expiration: timedelta | float | str | None = None,
        sequence: int | None = None,
        **unknown: Never,
    ) -> AsyncReceipt:
        """Publish a change of a topic's record, merged into it; see `Publisher.delta_publish`."""
        if unknown:
            refuse_publish_arguments("delta_publish", unknown, "sequence")
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
            return AsyncReceipt(topic, taken, guaranteed)
        async with self._lock:
            recorded = await core.parts.store.run(core.plain.publish(topic, data, envelope, sequence, delta=delta))
        return AsyncReceipt(topic, recorded.sequence, recorded.bookmark)

    async def _take(self, take: Callable[[], int]) -> int:
        """Let the store take something in the order of the calls, without holding the event loop up."""
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
        **unknown: Never,
    ) -> Sequence[AsyncReceipt]:
        """Publish many messages; see `Publisher.publish_many`."""
        if unknown:
            refuse_publish_arguments("publish_many", unknown)
        envelope, core, sequences = Envelope.of(headers, expiration, delay, at), self._core, Sequences()
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
            return Receipts(AsyncReceipt, topic, sequences, guaranteed)
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
        return Receipts(AsyncReceipt, topic, sequences, noted.bookmarks)

    async def sow_delete(
        self, topic: str, *, keys: Iterable[Any] | None = None, data: Any = None
    ) -> AsyncDeletionReceipt:
        """Delete records of a topic with a key, once; see `Publisher.sow_delete`."""
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

    async def flush(self, timeout: timedelta | float | str | None = None) -> None:  # noqa: ASYNC109  (as `Publisher`'s)
        """Wait until all that was published up to now is persisted; see `Publisher.flush`."""
        core = self._core
        for subscription in self._subscriptions():
            await subscription.flush()
        if core.guaranteed is not None:
            seconds = None if timeout is None else Interval.parse(timeout) / 1000
            await asyncio.to_thread(core.guaranteed.flush, seconds)

    async def close(self) -> None:
        """Send what the store holds, as far as that is possible in time, and log off; see `Publisher.close`."""
        await run_to_end(asyncio.to_thread(self._core.close))

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
