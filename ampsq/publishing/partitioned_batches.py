"""Cutting the messages of one `publish_many` into batches, each of one partition; and what became of them."""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from ampsq.base.bookmarks import Bookmark
from ampsq.base.errors import AmpsqError, Unavailable
from ampsq.base.partitions import partition_of_key
from ampsq.publishing.publishing_batches import telling

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence


__all__ = ["PartitionChoice", "PartitionedBatch", "PartitionedBatches"]

#: Messages that are gathered at most, of all partitions together.
_HELD: Final = 64_000
#: Seconds of waiting for more messages, after which those gathered for a partition are sent.
_WAIT: Final = 0.05


class PartitionChoice:
    """The choice of a partition for what is published: by key, group or deduplication ID, else in turn.

    Args:
        total: how many partitions there are.
    """

    def __init__(self, total: int) -> None:
        self._total, self._last = total, -1

    def of(self, *names: str | None) -> int:
        """Return the partition of the first name that is one; without any the next one in turn."""
        for name in names:
            if name is not None:
                return partition_of_key(name, self._total)
        self._last = (self._last + 1) % self._total
        return self._last


@dataclass(slots=True)
class PartitionedBatch:
    """Messages of one partition that are recorded together.

    Attributes:
        partition: its number.
        since: seconds that were waited for messages before its first one came.
        places: of the messages among all of the call.
        messages: these.
    """

    partition: int
    since: float = 0.0
    places: list[int] = field(default_factory=list)
    messages: list[Any] = field(default_factory=list)


class PartitionedBatches:
    """The batches of one `publish_many`.

    Args:
        choice: chooses partitions.
        size: messages of a batch at most.
        key: gives the key of a message; None: all have the one below, or none.
        name: of all messages, which chooses where no function does.
        id_of: gives the deduplication ID of a message, which chooses where there is neither.

    Attributes:
        bookmarks: of the messages, in their order; None: not recorded, or not yet.
    """

    def __init__(
        self,
        choice: PartitionChoice,
        size: int,
        *,
        key: Callable[[Any], str] | None,
        name: str | None,
        id_of: Callable[[Any], str | None] | None,
    ) -> None:
        self._choice, self._size, self._key, self._name, self._id_of = choice, size, key, name, id_of
        self.bookmarks: list[Bookmark | None] = []

    def cut(self, messages: Iterable[Any]) -> Iterator[PartitionedBatch]:
        """Cut messages into batches: full ones, and others where the next messages are long in coming."""
        if self._key is None and self._name is None and self._id_of is None:
            yield from self._in_turn(messages)
            return
        held: dict[int, PartitionedBatch] = {}
        number, waited, before = 0, 0.0, time.monotonic()
        for place, message in enumerate(messages):
            waited += time.monotonic() - before
            self.bookmarks.append(None)
            # In the order in which they were begun.
            while held and waited - (oldest := next(iter(held.values()))).since >= _WAIT:
                number -= len(oldest.messages)
                yield held.pop(oldest.partition)
            partition = self._partition(message)
            batch = held.get(partition) or held.setdefault(partition, PartitionedBatch(partition, waited))
            batch.places.append(place)
            batch.messages.append(message)
            number += 1
            if len(batch.messages) >= self._size or number >= _HELD:
                full = batch if len(batch.messages) >= self._size else max(held.values(), key=_length)
                number -= len(full.messages)
                yield held.pop(full.partition)
            before = time.monotonic()
        yield from held.values()

    @property
    def recorded(self) -> list[Bookmark]:
        """The bookmarks of all messages, in their order, when all are recorded."""
        return [each for each in self.bookmarks if each is not None]

    def _in_turn(self, messages: Iterable[Any]) -> Iterator[PartitionedBatch]:
        batch: PartitionedBatch | None = None
        for place, message in enumerate(messages):
            self.bookmarks.append(None)
            if batch is None:
                batch = PartitionedBatch(self._choice.of())
            batch.places.append(place)
            batch.messages.append(message)
            if len(batch.messages) >= self._size:
                yield batch
                batch = None
        if batch is not None:
            yield batch

    def _partition(self, message: Any) -> int:
        if self._key is not None:
            return self._choice.of(self._key(message))
        if self._name is not None:
            return self._choice.of(self._name)
        return self._choice.of(self._id_of(message) if self._id_of is not None else None)

    def note(self, batch: PartitionedBatch, bookmarks: Sequence[object]) -> None:
        """Note what of a batch is recorded: of its first messages, at least."""
        for place, bookmark in zip(batch.places, bookmarks, strict=False):
            # A client without a publish store gives nothing else.
            self.bookmarks[place] = bookmark if isinstance(bookmark, Bookmark) else None

    @contextlib.contextmanager
    def sending(self, batch: PartitionedBatch) -> Iterator[None]:
        """Note what of a batch is recorded where sending it fails."""
        try:
            yield
        except AmpsqError as error:
            self.note(batch, error.published)
            raise

    @contextlib.contextmanager
    def telling(self) -> Iterator[None]:
        """Have whatever ends the call tell what of it is recorded."""
        try:
            yield
        except AmpsqError as error:
            recorded = sum(each is not None for each in self.bookmarks)
            published = list(self.bookmarks)
            while published and published[-1] is None:
                published.pop()
            parts = [f"{recorded:,} messages of this publish_many are recorded, in several partitions"]
            # What it says of its own batch is said here of all.
            error.published = ()
            in_doubt = isinstance(error, Unavailable) and error.may_have_run
            told = telling(error, parts if recorded else [], published)
            if isinstance(told, Unavailable):
                told.may_have_run = bool(in_doubt or recorded)
            raise told from error.__cause__


def _length(batch: PartitionedBatch) -> int:
    return len(batch.messages)
