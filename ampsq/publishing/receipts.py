"""Receipts of publishers: a number at once, and a bookmark once the server has persisted the message."""

from __future__ import annotations

import asyncio
import time
from array import array
from collections.abc import Sequence
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar, overload

from ampsq.base.bookmarks import Bookmark
from ampsq.base.errors import DefinitionError
from ampsq.base.values import Interval

if TYPE_CHECKING:
    from datetime import timedelta

    from ampsq.base.bookmarks import Bookmarks

__all__ = [
    "AsyncDeletionReceipt",
    "AsyncPartitionedDeletionReceipt",
    "AsyncReceipt",
    "DeletionReceipt",
    "PartitionedDeletionReceipt",
    "PartitionedOutcomes",
    "Receipt",
    "Receipts",
    "Sequences",
]


class PersistingPublisher(Protocol):
    """A publisher that persists what it took later."""

    def known_bookmark(self, sequence: int) -> Bookmark | None:
        """The bookmark of a message that is persisted and whose answer is kept; else None."""

    def wait_for_bookmark(self, topic: str, sequence: int, timeout: float | None) -> Bookmark:
        """Wait until a message is persisted; gives its bookmark."""

    def wait_for_deleted(self, sequences: Sequence[int], timeout: float | None) -> int:
        """Wait until deletions are persisted; gives how many records they found."""


class _ReceiptView:
    """The number of a message, and who knows its bookmark."""

    __slots__ = ("_partition", "_sequence", "_source", "_topic")

    def __init__(
        self, topic: str, sequence: int, source: Bookmark | PersistingPublisher, partition: int | None = None
    ) -> None:
        self._topic, self._sequence, self._source, self._partition = topic, sequence, source, partition

    def __repr__(self) -> str:
        where = "" if self._partition is None else f" of partition {self._partition}"
        return f"<{type(self).__name__} {self._sequence}{where}, {self._topic}>"

    @property
    def sequence(self) -> int:
        """The message's number among those of its publisher; with partitions, among those in its partition."""
        return self._sequence

    @property
    def partition(self) -> int | None:
        """The partition that has the message; None of an instance without partitions."""
        return self._partition

    @property
    def topic(self) -> str:
        """The topic or the queue that it was published to."""
        return self._topic


class Receipt(_ReceiptView):
    """A message that a `Publisher` took: it has its number at once, and a bookmark once it is persisted."""

    __slots__ = ()

    def bookmark(self, timeout: timedelta | float | str | None = None) -> Bookmark:
        """Wait until the message is persisted, as far as its publisher's `persisted` asks; return its bookmark.

        Args:
            timeout: how long; default as long as it takes.

        Returns:
            The bookmark; one with an empty ID where the reply was lost and the log does not have the message any more.

        Raises:
            NotPersisted: the time is over, or the publisher was closed before; tells why. The message is still sent.
            NameInUse: another client publishes under the publisher's name now.
            AmpsqError: the server refused the message for good; this is what `on_failed_write` was told.
        """
        source = self._source
        if isinstance(source, Bookmark):
            return source
        return source.wait_for_bookmark(self._topic, self._sequence, _seconds(timeout))


class AsyncReceipt(_ReceiptView):
    """A message that an `AsyncPublisher` took; see `Receipt`."""

    __slots__ = ()

    async def bookmark(self, timeout: timedelta | float | str | None = None) -> Bookmark:  # noqa: ASYNC109  (as of `Receipt`)
        """Wait until the message is persisted; return its bookmark. See `Receipt.bookmark`."""
        source = self._source
        if isinstance(source, Bookmark):
            return source
        found = source.known_bookmark(self._sequence)
        if found is not None:
            return found
        return await asyncio.to_thread(source.wait_for_bookmark, self._topic, self._sequence, _seconds(timeout))


class _DeletionView:
    """The numbers of a deletion, and who knows how many records there were."""

    __slots__ = ("_sequences", "_source", "_topic")

    def __init__(self, topic: str, sequences: Sequence[int], source: int | PersistingPublisher) -> None:
        self._topic, self._sequences, self._source = topic, sequences, source

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.sequence}, {self._topic}>"

    @property
    def sequence(self) -> int:
        """The deletion's number among its publisher's messages; of more than 500 records that of its last part."""
        return self._sequences[-1] if self._sequences else 0

    @property
    def topic(self) -> str:
        """The topic whose records are deleted."""
        return self._topic


class DeletionReceipt(_DeletionView):
    """A deletion of records that a `Publisher` took."""

    __slots__ = ()

    def deleted(self, timeout: timedelta | float | str | None = None) -> int:
        """Wait until the deletion is persisted; return how many records there were.

        Those of a call whose reply was lost, and that was therefore sent again, are not counted.

        Args:
            timeout: how long; default as long as it takes.

        Raises:
            NotPersisted, NameInUse, AmpsqError: as of `Receipt.bookmark`.
        """
        source = self._source
        return source if isinstance(source, int) else source.wait_for_deleted(self._sequences, _seconds(timeout))


class AsyncDeletionReceipt(_DeletionView):
    """A deletion of records that an `AsyncPublisher` took; see `DeletionReceipt`."""

    __slots__ = ()

    async def deleted(self, timeout: timedelta | float | str | None = None) -> int:  # noqa: ASYNC109  (as of `DeletionReceipt`)
        """Wait until the deletion is persisted; return how many records there were. See `DeletionReceipt.deleted`."""
        source = self._source
        if isinstance(source, int):
            return source
        return await asyncio.to_thread(source.wait_for_deleted, self._sequences, _seconds(timeout))


class PartitionedDeletionReceipt(DeletionReceipt):
    """A deletion of records in several partitions.

    Args:
        topic: the topic.
        parts: the receipts of the partitions.
    """

    __slots__ = ("_parts",)

    def __init__(self, topic: str, parts: Sequence[DeletionReceipt]) -> None:
        super().__init__(topic, [], 0)
        self._parts = parts

    @property
    def sequence(self) -> int:
        """Refuse to name one number."""
        raise _no_number(self._topic)

    def __repr__(self) -> str:
        return f"<{type(self).__name__}, {self._topic}>"

    def deleted(self, timeout: timedelta | float | str | None = None) -> int:
        """Wait until all partitions have persisted it; return how many records there were in all."""
        until = None if timeout is None else time.monotonic() + Interval.parse(timeout) / 1000
        return sum(each.deleted(None if until is None else max(until - time.monotonic(), 0.0)) for each in self._parts)


class AsyncPartitionedDeletionReceipt(AsyncDeletionReceipt):
    """A deletion of records in several partitions; see `PartitionedDeletionReceipt`."""

    __slots__ = ("_parts",)

    def __init__(self, topic: str, parts: Sequence[AsyncDeletionReceipt]) -> None:
        super().__init__(topic, [], 0)
        self._parts = parts

    @property
    def sequence(self) -> int:
        """Refuse to name one number."""
        raise _no_number(self._topic)

    def __repr__(self) -> str:
        return f"<{type(self).__name__}, {self._topic}>"

    async def deleted(self, timeout: timedelta | float | str | None = None) -> int:  # noqa: ASYNC109  (as of `DeletionReceipt`)
        """Wait until all partitions have persisted it; return how many records there were in all."""
        until, number = None if timeout is None else time.monotonic() + Interval.parse(timeout) / 1000, 0
        for each in self._parts:
            number += await each.deleted(None if until is None else max(until - time.monotonic(), 0.0))
        return number


def _no_number(topic: str) -> DefinitionError:
    return DefinitionError(
        f"sequence of a deletion in all partitions, of {topic!r}: each partition has its own number of it; allowed: "
        "deleted(), which waits until all have it"
    )


def _seconds(timeout: timedelta | float | str | None) -> float | None:
    return None if timeout is None else Interval.parse(timeout) / 1000


class Sequences(Sequence[int]):
    """The numbers of many messages, kept as runs: other threads may have published between them."""

    __slots__ = ("_runs", "_total")

    def __init__(self) -> None:
        self._runs: list[tuple[int, int]] = []
        self._total = 0

    def add(self, first: int, number: int) -> None:
        """Add `number` numbers from `first` on."""
        if not self._runs or self._runs[-1][1] + self._total - self._runs[-1][0] != first:
            self._runs.append((self._total, first))
        self._total += number

    def __len__(self) -> int:
        return self._total

    @overload
    def __getitem__(self, index: int) -> int: ...
    @overload
    def __getitem__(self, index: slice) -> list[int]: ...
    def __getitem__(self, index: int | slice) -> int | list[int]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(self._total))]
        at = index + self._total if index < 0 else index
        if not 0 <= at < self._total:
            raise IndexError(index)
        start, first = next(run for run in reversed(self._runs) if run[0] <= at)
        return first + at - start


AnyReceipt = TypeVar("AnyReceipt", Receipt, AsyncReceipt)
AnyOutcome = TypeVar("AnyOutcome")


class Receipts(Sequence[AnyReceipt], Generic[AnyReceipt]):
    """The receipts of many messages of a topic, made when they are looked at: a million cost nothing until then."""

    __slots__ = ("_kind", "_partition", "_source", "_topic", "sequences")

    def __init__(
        self,
        kind: type[AnyReceipt],
        topic: str,
        sequences: Sequence[int],
        source: Bookmarks | PersistingPublisher,
        partition: int | None = None,
    ) -> None:
        self._kind: type[AnyReceipt] = kind
        self._topic, self.sequences, self._source, self._partition = topic, sequences, source, partition

    @property
    def outcomes(self) -> Sequence[Bookmark | int]:
        """The bookmarks of what is recorded; with a store, the sequences of what it has taken."""
        return self._source if isinstance(self._source, Sequence) else self.sequences

    def __repr__(self) -> str:
        return f"<{len(self)} of {self._kind.__name__}, {self._topic}>"

    def __len__(self) -> int:
        return len(self.sequences)

    @overload
    def __getitem__(self, index: int) -> AnyReceipt: ...
    @overload
    def __getitem__(self, index: slice) -> list[AnyReceipt]: ...
    def __getitem__(self, index: int | slice) -> AnyReceipt | list[AnyReceipt]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        sequence, source = self.sequences[index], self._source
        found = source[index] if isinstance(source, Sequence) else source
        return self._kind(self._topic, sequence, found, self._partition)


class PartitionedOutcomes(Sequence[AnyOutcome], Generic[AnyOutcome]):
    """The outcomes of many messages that are in several partitions, in the order in which they were published.

    Args:
        kind: their word in its representation: bookmarks or receipts.
    """

    __slots__ = ("_batches", "_indexes", "_kind", "_numbers", "_total")

    def __init__(self, kind: str) -> None:
        self._kind, self._total = kind, 0
        self._batches: list[tuple[Sequence[int], Sequence[AnyOutcome]]] = []
        # The batch of each message and its place there; empty until somebody looks at a message.
        self._numbers, self._indexes = array("L"), array("L")

    def add(self, places: Sequence[int], outcomes: Sequence[AnyOutcome]) -> None:
        """Add those of a batch, whose messages have these places among all."""
        self._batches.append((places, outcomes))
        self._total += len(places)

    def _order(self) -> None:
        size = max((places[-1] + 1 for places, _ in self._batches), default=0)
        numbers, indexes = (array("L", bytes(size * array("L").itemsize)) for _ in range(2))
        for number, (places, _) in enumerate(self._batches):
            for index, place in enumerate(places):
                numbers[place], indexes[place] = number, index
        self._numbers, self._indexes = numbers, indexes

    def __repr__(self) -> str:
        return f"<{len(self)} {self._kind} of several partitions>"

    def __len__(self) -> int:
        return self._total

    @overload
    def __getitem__(self, index: int) -> AnyOutcome: ...
    @overload
    def __getitem__(self, index: slice) -> list[AnyOutcome]: ...
    def __getitem__(self, index: int | slice) -> AnyOutcome | list[AnyOutcome]:
        if len(self._numbers) < self._total:
            self._order()
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        return self._batches[self._numbers[index]][1][self._indexes[index]]
