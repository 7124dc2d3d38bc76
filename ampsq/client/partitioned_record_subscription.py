"""A subscription to the records of all partitions, for threads: one of each, read together.

`ampsq.client.async_partitioned_record_subscription` is made from this file.
"""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING, Never

from ampsq.base.errors import AmpsqError, Closed
from ampsq.base.waiting import STEP, time_limit
from ampsq.client.partition_rules import only_for_one
from ampsq.client.tracked_feeds import feeds_of
from ampsq.queues.query import QueryResult
from ampsq.records.subscription import ManagedRecordSubscription, RecordSubscription

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from datetime import timedelta

    from ampsq.queues.query import Query
    from ampsq.records.change import RecordChange

__all__ = ["PartitionedRecordSubscription"]


class PartitionedRecordSubscription(RecordSubscription):
    """The records of a topic in all partitions, and then what changes them. Made by `Client.sow_and_subscribe`.

    The records of each partition are as they were at one message of its log. Their changes come in their order.

    Args:
        parts: the subscriptions of the partitions, and the records that they found.
        query: chooses of these.
        end: called when it is closed.
    """

    def __init__(
        self,
        parts: Sequence[tuple[ManagedRecordSubscription, QueryResult]],
        query: Query,
        end: Callable[[PartitionedRecordSubscription], None],
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

    def get(self, timeout: timedelta | float | str | None = None) -> RecordChange | None:
        """Wait for the next record or change, of whichever partition; see `RecordSubscription.get`.

        While some partitions are away, those of the others come.

        Raises:
            Unavailable: no partition could be read for longer than the client's `retry_timeout`.
        """
        return self._next(time_limit(timeout))

    def _next(self, until: float) -> RecordChange | None:
        try:
            # Taking from a deque is atomic: nobody gets the same record.
            return self._parts[self._first.popleft()].core.take()
        except IndexError:
            return self._feeds.get(lambda number: self._parts[number].core.take(), until)

    def __iter__(self) -> Iterator[RecordChange]:
        while not self._feeds.closed:
            try:
                change = self._next(time.monotonic() + STEP)
            except Closed:
                return
            if change is not None:
                yield change

    def close(self) -> None:
        """End it in all partitions. Safe to call again."""
        if self._feeds.closed:
            return
        failures: list[AmpsqError] = []
        try:
            self._feeds.close()
            for each in self._parts:
                try:
                    each.close()
                except AmpsqError as error:
                    failures.append(error)
        finally:
            self._end(self)
        if failures:
            raise failures[0]
