"""What moves messages to the server, awaited: the part of a client that publishes and deletes."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any, Never

from ampsq.base.values import Interval
from ampsq.client.async_admin import AsyncAdministration
from ampsq.protocol.encoding import encode_batches
from ampsq.publishing.envelope import Envelope, refuse_arguments
from ampsq.publishing.publishers import Sequences
from ampsq.publishing.publishing_batches import PublishingBatches, telling_of_taken

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from datetime import datetime, timedelta

    from ampsq.base.bookmarks import Bookmark
    from ampsq.publishing.guaranteed import GuaranteedPublisher
    from ampsq.queues.async_subscription import AsyncSubscription

__all__ = ["AsyncPublication"]


class AsyncPublication(AsyncAdministration):
    """The same as `Publication`, awaited; a part of `AsyncClient`."""

    _publishing: asyncio.Lock
    _guaranteed: GuaranteedPublisher | None
    _subscriptions: list[AsyncSubscription]

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
    ) -> Bookmark | int:
        """Record one message; see `Client.publish`."""
        if unknown:
            refuse_arguments("publish", unknown)
        envelope = Envelope.of(headers, expiration, delay, at)
        if self._guaranteed is not None:
            body = await self._store.run(self._session.body(topic, data))
            return await self._take(partial(self._guaranteed.publish, topic, [body], envelope, sequence))
        if not self._session.publisher:
            return await self._store.run(self._session.publish(topic, data, envelope, sequence))
        async with self._publishing:
            return await self._store.run(self._session.publish(topic, data, envelope, sequence))

    async def delta_publish(
        self,
        topic: str,
        data: Any,
        *,
        headers: Mapping[str, str] | None = None,
        expiration: timedelta | float | str | None = None,
        sequence: int | None = None,
        **unknown: Never,
    ) -> Bookmark | int:
        """Record a change of a topic's record, merged into it; see `Client.delta_publish`."""
        if unknown:
            refuse_arguments("delta_publish", unknown)
        envelope = Envelope.of(headers, expiration, None, None)
        if self._guaranteed is not None:
            body = await self._store.run(self._session.body(topic, data))
            return await self._take(partial(self._guaranteed.publish, topic, [body], envelope, sequence, delta=True))
        if not self._session.publisher:
            return await self._store.run(self._session.delta_publish(topic, data, envelope, sequence))
        async with self._publishing:
            return await self._store.run(self._session.delta_publish(topic, data, envelope, sequence))

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
    ) -> Sequence[Bookmark] | Sequence[int]:
        """Record many messages; see `Client.publish_many`."""
        if unknown:
            refuse_arguments("publish_many", unknown)
        envelope = Envelope.of(headers, expiration, delay, at)
        if self._guaranteed is not None:
            sequences = Sequences()
            message_type = await self._store.run(self._session.learn_type(topic))
            with telling_of_taken(sequences):
                for bodies in encode_batches(messages, batch, message_type):
                    self._session.note_large(topic, bodies)
                    first = await self._take(partial(self._guaranteed.publish, topic, bodies, envelope))
                    sequences.add(first, len(bodies))
            await self._store.run(self._session.warn_of_unread())
            return sequences
        noted = PublishingBatches(self.origin)
        async with self._publishing:
            await self._store.run(self._session.learn_type(topic))
            calls = self._session.batches(topic, messages, batch, envelope, noted)
            with noted.telling():
                for call in calls:
                    self._session.note(noted, await self._store.run(self._session.publish_first(topic, call)))
                    break
                async for answer in self._store.stream(calls):
                    self._session.note(noted, answer)
            await self._store.run(self._session.warn_of_unread())
        return noted.bookmarks

    async def _take(self, take: Callable[[], int]) -> int:
        """Let the store take something in the order of the calls, without holding the event loop up."""
        async with self._publishing:
            if self._guaranteed is None or self._guaranteed.may_wait:
                return await asyncio.to_thread(take)
            return take()

    @property
    def last_persisted(self) -> int:
        """The sequence up to which everything is persisted; see `Client.last_persisted`."""
        return self._guaranteed.persisted if self._guaranteed is not None else 0

    async def flush(self, timeout: timedelta | float | str | None = None) -> None:  # noqa: ASYNC109  (as `Client`'s)
        """Wait until what was published and acknowledged up to now is persisted; see `Client.flush`."""
        for subscription in list(self._subscriptions):
            await subscription.flush()
        if self._guaranteed is not None:
            seconds = None if timeout is None else Interval.parse(timeout) / 1000
            await asyncio.to_thread(self._guaranteed.flush, seconds)

    async def sow_delete(
        self,
        topic: str,
        *,
        keys: Iterable[Any] | None = None,
        filter: str | None = None,  # noqa: A002  (AMPS's word)
        data: Any = None,
    ) -> int:
        """Delete records of a topic; see `Client.sow_delete`."""
        if self._guaranteed is not None and filter is None:
            deletions = await self._store.run(self._session.deletions(topic, keys, data))
            return [await self._take(partial(self._guaranteed.take, 1, "sow_delete", each)) for each in deletions][-1]
        async with self._publishing:
            return await self._store.run(self._session.sow_delete(topic, keys, filter, data))
