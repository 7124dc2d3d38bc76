"""The gateway's client: it records for publishers of any name, and waits for where that is to be."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ampsq.base.limits import limits
from ampsq.client.async_client import AsyncClient
from ampsq.gateway.deletion import PublisherSequence, delete_records
from ampsq.gateway.persistence_waits import Persisting, PersistingShares
from ampsq.protocol.calls import publish as publish_calls
from ampsq.protocol.calls.queues import wait_for_push
from ampsq.protocol.encoding import encode_batches
from ampsq.protocol.reads.server import ping
from ampsq.publishing.publishing_batches import PublishingBatches

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ampsq.base.bookmarks import Bookmark
    from ampsq.publishing.envelope import Envelope

__all__ = ["GatewayClient", "Numbered", "PartitionShare", "PublishResult"]

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


class PublishRequest(NamedTuple):
    """Messages that somebody wants to be recorded.

    Attributes:
        topic: the topic or the queue.
        data: of the messages.
        keys: of each, which chooses its partition; None: what its topic says.
        envelope: of all of them.
        numbered: whose they are, recorded once each; None: nobody's, and what is said twice is recorded twice.
        delta: each is merged into the record of its key.
    """

    topic: str
    data: Sequence[object]
    keys: Sequence[str | None]
    envelope: Envelope
    numbered: PublisherSequence | None
    delta: bool = False


class PartitionShare(NamedTuple):
    """Messages of a request that go to one partition; all of them where there are no partitions.

    Attributes:
        partition: its number.
        places: of the messages among those of the request.
        data: the messages.
    """

    partition: int
    places: Sequence[int]
    data: Sequence[object]


class Numbered(NamedTuple):
    """Messages that are recorded in one call.

    Attributes:
        number: of the first one, for who numbers them.
        bodies: the messages, encoded.
    """

    number: int
    bodies: list[bytes]


class GatewayClient(AsyncClient):
    """A client of one instance, for all who come in; where partitions are asked for, one of all of them is made.

    The calls here are the same for both.
    """

    _of_partitions = ("ampsq.gateway.partitioned_client", "PartitionedGatewayClient")

    async def shares(self, request: PublishRequest) -> list[PartitionShare]:
        """Return which partition has which of the messages of a request; nothing is recorded yet.

        Raises:
            DefinitionError: a message cannot be written, or does not say which partition has the record it changes.
        """
        return [PartitionShare(0, range(len(request.data)), request.data)]

    async def record(self, request: PublishRequest, shares: Sequence[PartitionShare]) -> PublishResult:
        """Record messages in their order; a lost reply of those with a number is asked for again.

        Args:
            request: the messages, and
            shares: where they go, from `shares`.
        """
        (share,) = shares
        return await self.record_batches(request, await self.encode(request, share))

    async def encode(self, request: PublishRequest, share: PartitionShare) -> list[Numbered]:
        """Encode messages; what cannot be written is refused before anything is recorded.

        Messages of one call have numbers one after the other. Those of a publisher have the same ones in every
        partition, so where the next one is elsewhere, another call begins.
        """
        kind = await self._store.run(self._session.types.learn(request.topic))
        numbered, places = request.numbered, share.places
        by_place = numbered is not None and not numbered.is_request
        first = numbered.first if numbered is not None else 0
        made: list[Numbered] = []
        for begin, end in _runs(places) if by_place else [(0, len(places))]:
            number = first + (places[begin] if by_place else 0)
            for bodies in encode_batches(share.data[begin:end], _TOGETHER, kind):
                made.append(Numbered(number, bodies))
                number += len(bodies)
        return made

    async def record_batches(self, request: PublishRequest, batches: Sequence[Numbered]) -> PublishResult:
        """Record what is encoded at this instance; see `record`."""
        topic, envelope, numbered = request.topic, request.envelope, request.numbered
        session = self._session
        noted = PublishingBatches(self.origin)
        publisher = numbered.publisher if numbered is not None else ""
        duplicates = 0
        with noted.telling():
            for number, bodies in batches:
                limits().check_bodies(bodies)
                headers = [envelope.headers] * len(bodies) if envelope.headers else []
                call = publish_calls.publish(
                    topic, bodies, headers, publisher, number, options=envelope.options, delta=request.delta
                )
                noted.begin(len(bodies))
                published = await self._store.run(session.plain.publish_first(topic, call))
                session.plain.note(noted, published)
                topic, duplicates = published.topic, duplicates + sum(len(part.duplicates) for part in published.parts)
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

    def persisting(self) -> PersistingShares:
        """Return the object that waits until something is persisted; one is enough for all."""
        return PersistingShares([Persisting(self._store, self.instance, self.server)])

    async def ping(self) -> None:
        """Ask whether the server answers; raises `Unavailable` where it does not."""
        await self._store.call(ping())

    async def check_rights(self) -> None:
        """Ask for what subscriptions need; raises `NotPermitted` where the user of the server lacks it."""
        # No subscription has that name: nothing is ever pushed to it.
        await self._store.call(wait_for_push(self.instance, "s00000000", 1, 0.001))


def _runs(places: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Cut places into such as follow each other: begin and end of each run."""
    begin = 0
    for at in range(1, len(places) + 1):
        if at == len(places) or places[at] != places[at - 1] + 1:
            yield begin, at
            begin = at
