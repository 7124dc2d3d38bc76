"""A subscription to the records of all partitions, for asyncio: one of each, read together.

This is `ampsq.client.partitioned_record_subscription`, awaited.
"""

# Made from client/partitioned_record_subscription.py by tests/house/test_twins.py --write.

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING, Never

from ampsq.base.errors import AmpsqError, Closed
from ampsq.base.waiting import STEP, time_limit
from ampsq.client.async_tracked_feeds import feeds_of
from ampsq.client.partition_rules import only_for_one
from ampsq.queues.query import QueryResult
from ampsq.records.async_subscription import AsyncManagedRecordSubscription, AsyncRecordSubscription

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence
    from datetime import timedelta

    from ampsq.queues.query import Query
    from ampsq.records.change import RecordChange

__all__ = ["AsyncPartitionedRecordSubscription"]


class AsyncPartitionedRecordSubscription(AsyncRecordSubscription):
    """The records of a topic in all partitions, and then what changes them. Made by `AsyncClient.sow_and_subscribe`.

    The records of each partition are as they were at one message of its log. Their changes come in their order.

    Args:
        parts: the subscriptions of the partitions, and the records that they found.
        query: chooses of these.
        end: called when it is closed.
    """

    def __init__(
        self,
        parts: Sequence[tuple[AsyncManagedRecordSubscription, QueryResult]],
        query: Query,
        end: Callable[[AsyncPartitionedRecordSubscription], None],
    ) -> None:
        self._parts, self._end = [managed for managed, _ in parts], end
        self._feeds = feeds_of(self._parts, "records", self._parts[0].patience)
        numbers = {id(message): number for number, (_, result) in enumerate(parts) for message in result.found}
        # Whose records come first, in the order over all partitions.
        chosen = QueryResult.merged(query, [result for _, result in parts]).messages()
        self._first = deque(numbers[id(message)] for message in chosen)
        for number, managed in enumerate(self._parts):
            managed.core.give([message for message in chosen if numbers[id(message)] == number])

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {', '.join(map(repr, self._parts))}>"

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Never:
            only_for_one(name)

    async def get(self, timeout: timedelta | float | str | None = None) -> RecordChange | None:  # noqa: ASYNC109
        """Wait for the next record or change, of whichever partition; see `AsyncRecordSubscription.get`.

        While some partitions are away, those of the others come.

        Raises:
            Unavailable: no partition could be read for longer than the client's `retry_timeout`.
        """
        return await self._next(time_limit(timeout))

    async def _next(self, until: float) -> RecordChange | None:
        try:
            # Taking from a deque is atomic: nobody gets the same record.
            return self._parts[self._first.popleft()].core.take()
        except IndexError:
            return await self._feeds.get(lambda number: self._parts[number].core.take(), until)

    async def __aiter__(self) -> AsyncIterator[RecordChange]:
        while not self._feeds.closed:
            try:
                change = await self._next(time.monotonic() + STEP)
            except Closed:
                return
            if change is not None:
                yield change

    async def close(self) -> None:
        """End it in all partitions. Safe to call again."""
        if self._feeds.closed:
            return
        failures: list[AmpsqError] = []
        try:
            await self._feeds.close()
            for each in self._parts:
                try:
                    await each.close()
                except AmpsqError as error:
                    failures.append(error)
        finally:
            self._end(self)
        if failures:
            raise failures[0]
