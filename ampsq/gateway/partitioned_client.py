"""The gateway's client of all partitions of an instance: a gateway's client of each, and what joins them."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, TypeVar, cast

from ampsq.base.errors import AmpsqError, Rejected, Unavailable
from ampsq.client.async_partitioned_client import AsyncPartitionedClient
from ampsq.gateway.client import GatewayClient, PartitionShare, PublishResult
from ampsq.gateway.persistence_waits import PersistingShares
from ampsq.publishing.publishing_batches import telling

if TYPE_CHECKING:
    from collections.abc import Awaitable, Iterable, Sequence

    from ampsq.base.bookmarks import Bookmark
    from ampsq.base.partitions import Partition
    from ampsq.client.async_client import AsyncClient
    from ampsq.gateway.client import PublishRequest
    from ampsq.gateway.deletion import PublisherSequence

__all__ = ["PartitionedGatewayClient"]

_T = TypeVar("_T")


class PartitionedGatewayClient(GatewayClient, AsyncPartitionedClient):
    """A client of all partitions, for all who come in; `GatewayClient` makes it where partitions are asked for."""

    async def _open_at(self, partition: Partition) -> AsyncClient:
        return await GatewayClient._at(partition, self._url, self._options, self._connections)  # noqa: SLF001  (our own)

    @property
    def _each(self) -> list[GatewayClient]:
        return cast("list[GatewayClient]", self.clients)

    async def shares(self, request: PublishRequest) -> list[PartitionShare]:
        """Choose the partition of each message: by its key, else its topic's, its group, its sender, else in turn.

        Sent again, a message has to find the same partition: by the name of its sender where nothing else chooses.
        Messages that nothing chooses for go to one partition together.
        """
        router, topic = self._router, request.topic
        topic_key = await router.topic_key(topic)
        router.forget_unmade(topic)
        options, numbered = request.envelope.options, request.numbered
        group, sender = (options.group or None) if options else None, numbered.publisher if numbered else None
        found: dict[int, tuple[list[int], list[object]]] = {}
        turn: int | None = None
        for place, (given, key) in enumerate(zip(request.data, request.keys, strict=True)):
            name, message = topic_key.choosing_name(topic, given, key, group, sender, changes=request.delta)
            if name is not None:
                partition = router.partition_of(name)
            else:
                partition = turn = router.partition_of(None) if turn is None else turn
            places, messages = found.setdefault(partition, ([], []))
            places.append(place)
            messages.append(message)
        return [PartitionShare(partition, *of_it) for partition, of_it in found.items()]

    async def record(self, request: PublishRequest, shares: Sequence[PartitionShare]) -> PublishResult:
        """Record messages, those of several partitions at once, each partition's in their order; see `GatewayClient`.

        Where a partition refuses, or is away, others may have recorded theirs, which the error says.
        """
        clients, topic = self._each, request.topic
        encoded = [await clients[each.partition].encode(request, each) for each in shares]
        recorded = await _all(
            clients[share.partition].record_batches(request, batches)
            for share, batches in zip(shares, encoded, strict=True)
        )
        failures = [(share, each) for share, each in zip(shares, recorded, strict=True) if isinstance(each, AmpsqError)]
        done = [(share, each) for share, each in zip(shares, recorded, strict=True) if isinstance(each, PublishResult)]
        if failures:
            number = sum(len(each.bookmarks) for _, each in done)
            raise _told(failures, number + sum(each is not None for _, error in failures for each in error.published))
        bookmarks: list[Bookmark | None] = [None] * sum(len(share.places) for share in shares)
        for share, each in done:
            await self._router.note_made(topic, share.partition)
            for place, bookmark in zip(share.places, each.bookmarks, strict=True):
                bookmarks[place] = bookmark
        if done:
            # It is there: from now on its key is known here. If not, the next request asks.
            with contextlib.suppress(Unavailable):
                await self._router.topic_key(topic)
        where = done[0][1].topic if done else topic
        return PublishResult(bookmarks, sum(each.duplicates for _, each in done), request.numbered is not None, where)

    async def delete(
        self, topic: str, keys: Sequence[object] | None, text: str | None, numbered: PublisherSequence | None
    ) -> tuple[int, bool]:
        """Delete records in all partitions, at once; gives how many, and whether all had done it before."""
        answers = await _all(each.delete(topic, keys, text, numbered) for each in self._each)
        failures = [each for each in answers if isinstance(each, AmpsqError)]
        if failures:
            raise _first(failures)
        done = [each for each in answers if not isinstance(each, AmpsqError)]
        return sum(number for number, _ in done), all(was_before for _, was_before in done)

    def wait_for_server(self, seconds: float) -> None:
        """Wait so long for a server that is away, from here on."""
        for each in self._each:
            each.wait_for_server(seconds)

    def persisting(self) -> PersistingShares:
        """Return the object that waits until something is persisted in each partition that has some of it."""
        return PersistingShares.joined(each.persisting() for each in self._each)

    async def ping(self) -> None:
        """Ask whether the server of any partition answers: while one does, others are served."""
        asking = [asyncio.ensure_future(each.ping()) for each in self._each]
        failure: AmpsqError | None = None
        try:
            for each in asyncio.as_completed(asking):
                try:
                    await each
                except AmpsqError as error:
                    failure = error
                else:
                    return
        finally:
            for task in asking:
                task.cancel()
            await asyncio.gather(*asking, return_exceptions=True)
        if failure is not None:
            raise failure

    async def check_rights(self) -> None:
        """Ask for what subscriptions need, in the first partition; raises `NotPermitted`."""
        await self._each[0].check_rights()


async def _all(calls: Iterable[Awaitable[_T]]) -> list[_T | AmpsqError]:
    """Do calls at once; gives what came of each. What is no error of ours is raised when all are over."""
    found = await asyncio.gather(*calls, return_exceptions=True)
    answers: list[_T | AmpsqError] = []
    for each in found:
        if isinstance(each, BaseException) and not isinstance(each, AmpsqError):
            raise each
        answers.append(each)
    return answers


def _first(failures: Sequence[AmpsqError]) -> AmpsqError:
    """Return what to tell of failures in several partitions: a refusal before a server that is away."""
    return next((each for each in failures if not isinstance(each, Unavailable)), failures[0])


def _told(failures: Sequence[tuple[PartitionShare, AmpsqError]], recorded: int) -> AmpsqError:
    """Return the error of a request of which a part failed, which says how much of it is recorded."""
    error = _first([each for _, each in failures])
    share = next(share for share, each in failures if each is error)
    message = error.detail.get("message") if isinstance(error, Rejected) else None
    if isinstance(error, Rejected) and isinstance(message, int) and message in range(len(share.places)):
        # Its number in the request.
        error.renumber(share.places[message])
    parts = [f"{recorded:,} messages of this request are recorded, in all partitions together"] if recorded else []
    return telling(error, parts, ())
