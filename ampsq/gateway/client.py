"""The gateway's client: it records for publishers of any name, and waits for where that is to be."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ampsq.base.limits import limits
from ampsq.client.async_client import AsyncClient
from ampsq.gateway.deletion import PublisherSequence, delete_records
from ampsq.gateway.persistence_waits import Persisting
from ampsq.protocol.calls import publish as publish_calls
from ampsq.protocol.encoding import encode_batches
from ampsq.publishing.publishing_batches import PublishingBatches

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ampsq.base.bookmarks import Bookmark
    from ampsq.publishing.envelope import Envelope

__all__ = ["GatewayClient", "PublishResult"]

#: Messages of one call.
_TOGETHER = 100


class PublishResult(NamedTuple):
    """The result of publishing messages.

    Attributes:
        bookmarks: of each; None for one that was recorded before and is not found any more.
        duplicates: how many were recorded before.
        is_numbered: whether that was looked for.
        topic: where they are.
    """

    bookmarks: list[Bookmark | None]
    duplicates: int
    is_numbered: bool
    topic: str


class GatewayClient(AsyncClient):
    """A client of one instance, for all who come in."""

    async def record(
        self,
        topic: str,
        data: Sequence[Any],
        envelope: Envelope,
        numbered: PublisherSequence | None,
        *,
        delta: bool = False,
    ) -> PublishResult:
        """Record messages in their order; those with a number once each, and a lost reply of these is asked for again.

        Args:
            topic: the topic or the queue.
            data: of the messages.
            envelope: of all of them.
            numbered: whose they are; None: nobody's, and what is said twice is recorded twice.
            delta: merge each into the record of its key.
        """
        store, session = self._store, self._session
        # What cannot be written is refused before anything is recorded.
        batches = list(encode_batches(data, _TOGETHER, await store.run(session.types.learn(topic))))
        noted = PublishingBatches(self.origin)
        publisher, number = numbered if numbered is not None else ("", 0)
        duplicates = 0
        with noted.telling():
            for bodies in batches:
                limits().check_bodies(bodies)
                headers = [envelope.headers] * len(bodies) if envelope.headers else []
                call = publish_calls.publish(
                    topic, bodies, headers, publisher, number, options=envelope.options, delta=delta
                )
                noted.begin(len(bodies))
                published = await store.run(session.plain.publish_first(topic, call))
                session.plain.note(noted, published)
                topic, duplicates = published.topic, duplicates + sum(len(part.duplicates) for part in published.parts)
                number += len(bodies)
        bookmarks = [bookmark if bookmark.id else None for bookmark in noted.bookmarks]
        return PublishResult(bookmarks, duplicates, numbered is not None, topic)

    async def delete(
        self, topic: str, keys: Sequence[Any] | None, text: str | None, numbered: PublisherSequence | None
    ) -> tuple[int, bool]:
        """Delete the records of keys, or all, as far as they match a filter; gives how many, and whether it was before.

        Args:
            topic: with a key.
            keys: at most 500; None: all records.
            text: the filter; None: without.
            numbered: one number; None: a repeated deletion deletes what came meanwhile.
        """
        return await self._store.run(delete_records(self._session, topic, keys, text, numbered))

    def wait_for_server(self, seconds: float) -> None:
        """Wait so long for a server that is away, from here on."""
        self._connection.retry_for(seconds)

    def persisting(self) -> Persisting:
        """Return the object that waits until something is persisted; one is enough for all."""
        return Persisting(self._store, self.instance, self.server)
