"""Cutting the messages of one `publish_many` into batches, each of one partition; and what became of them."""

from __future__ import annotations

import contextlib
import time
from collections import deque
from dataclasses import dataclass, field
from operator import length_hint
from typing import TYPE_CHECKING, Any, Final, cast

from ampsq.base.bookmarks import Bookmark
from ampsq.base.errors import AmpsqError, Unavailable
from ampsq.base.partitions import partition_of_key, partition_of_text
from ampsq.protocol.encoding import batch_bytes, sized_batches
from ampsq.publishing.publishing_batches import telling
from ampsq.publishing.receipts import PartitionedOutcomes
from ampsq.publishing.topic_key import UNSAID, TopicKey

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from ampsq.publishing.deduplication import DeduplicationWindow

__all__ = ["RUN_BYTES", "PartitionChoice", "PartitionedBatch", "PartitionedBatches"]

#: Messages that are gathered at most, and bytes of them, of all partitions together.
_HELD: Final = 64_000
_HELD_BYTES: Final = 64 * 2**20
#: Seconds of waiting for more messages, after which those gathered for a partition are sent.
_WAIT: Final = 0.05
#: Batches in a row that go to one partition at most, where nothing but the turn chooses, and bytes of them: its server
#: has several at hand, and their messages lie side by side in its memory, so that whoever reads them has them sooner.
_RUN: Final = 8
RUN_BYTES: Final = 2**18


class PartitionChoice:
    """The choice of a partition for what is published: by key, group or deduplication ID, else in turn.

    Args:
        total: how many partitions there are.

    Attributes:
        total: as it was given.
    """

    def __init__(self, total: int) -> None:
        self.total, self._last = total, -1

    def of(self, *names: str | bytes | None) -> int:
        """Return the partition of the first name that is one; without any the next one in turn."""
        for name in names:
            if name is not None:
                if isinstance(name, bytes):
                    return partition_of_text(name, self.total)
                return partition_of_key(name, self.total)
        self._last = (self._last + 1) % self.total
        return self._last


@dataclass(slots=True)
class PartitionedBatch:
    """Messages of one partition that are recorded together.

    Attributes:
        partition: its number.
        since: seconds that were waited for messages before its first one came.
        places: of the messages among all of the call.
        bodies: these, encoded.
        ids: their deduplication IDs, "" for none; empty where the call has none.
        size: bytes of the bodies.
        is_ordered: it is sent when the batch before it, of its partition, is answered: they may have messages of a key.
    """

    partition: int
    since: float = 0.0
    places: list[int] | range = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    ids: list[str] = field(default_factory=list)
    size: int = 0
    is_ordered: bool = True

    @property
    def id_of(self) -> Callable[[Any], str | None] | None:
        """A function that gives the IDs, one after the other."""
        ids = iter(self.ids)
        return (lambda _: next(ids) or None) if self.ids else None

    def add(self, place: int, body: bytes, known_as: str | None) -> None:
        """Add a message to what is gathered."""
        self.places.append(place)  # type: ignore[union-attr]  # a range is that of a whole batch
        self.bodies.append(body)
        self.size += len(body)
        if known_as is not None:
            self.ids.append(known_as)


class PartitionedBatches:
    """The batches of one `publish_many`.

    Args:
        choice: chooses partitions.
        size: messages of a batch at most.
        topic_key: gives the key of a message by its topic's definition, and encodes it.
        key: gives the key of a message; None: all have that of their topic, or the one below, or none.
        name: of all messages, which chooses where no key does.
        window: has the function that gives the deduplication ID of a message, which chooses where there is neither.
        done: what becomes of messages, ``recorded``, or ``taken`` by a publish store.
    """

    def __init__(
        self,
        choice: PartitionChoice,
        size: int,
        topic_key: TopicKey = UNSAID,
        *,
        key: Callable[[Any], str] | None = None,
        name: str | None = None,
        window: DeduplicationWindow | None = None,
        done: str = "recorded",
    ) -> None:
        self._choice, self._size, self._topic_key = choice, size, topic_key
        self._key, self._name, self._window, self._done = key, name, window, done
        self._number = 0
        # Places among all messages, and what became of those: bookmarks, or sequences of those that a store has taken.
        self._noted: list[tuple[Sequence[int], Sequence[object]]] = []

    def cut(self, messages: Iterable[Any]) -> Iterator[PartitionedBatch]:
        """Cut messages into batches: full ones, and others where the next messages are long in coming."""
        if self._key is None and not self._topic_key.paths and self._name is None and self._window is None:
            yield from self._in_turn(messages)
            return
        ids: deque[str] = deque()
        if self._window is not None:
            messages = self._window.noting(messages, ids)
        held: dict[int, PartitionedBatch] = {}
        encode, most = self._topic_key.type.encode, batch_bytes(self._topic_key.type)
        number, size, waited, before = 0, 0, 0.0, time.monotonic()
        for place, message in enumerate(messages):
            waited += time.monotonic() - before
            self._number = place + 1
            # In the order in which they were begun.
            while held and waited - (oldest := next(iter(held.values()))).since >= _WAIT:
                number, size = number - len(oldest.bodies), size - oldest.size
                yield held.pop(oldest.partition)
            body = message if type(message) is bytes else encode(message)
            known_as = ids.popleft() if self._window is not None else None
            partition = self._partition(message, body, known_as)
            batch = held.get(partition)
            if batch is None:
                batch = held[partition] = PartitionedBatch(partition, waited)
            batch.add(place, body, known_as)
            number, size = number + 1, size + len(body)
            full: PartitionedBatch | None = None
            if len(batch.bodies) >= self._size or batch.size >= most:
                full = batch
            elif number >= _HELD or size >= _HELD_BYTES:
                full = max(held.values(), key=_length if number >= _HELD else _bytes)
            if full is not None:
                number, size = number - len(full.bodies), size - full.size
                yield held.pop(full.partition)
            before = time.monotonic()
        yield from held.values()

    @property
    def recorded(self) -> Sequence[Bookmark]:
        """The bookmarks of all messages, in their order, when all are recorded; made when they are looked at."""
        found = PartitionedOutcomes[Bookmark]("bookmarks")
        for places, outcomes in self._noted:
            found.add(places, cast("Sequence[Bookmark]", outcomes))
        return found

    @property
    def outcomes(self) -> list[Bookmark | int | None]:
        """The outcomes of the messages, in their order: bookmarks, or sequences, each of its partition.

        None: not recorded or taken, or not yet.
        """
        found: list[Bookmark | int | None] = [None] * self._number
        for places, outcomes in self._noted:
            for place, outcome in zip(places, outcomes, strict=False):
                found[place] = outcome if isinstance(outcome, Bookmark | int) else None
        return found

    def _in_turn(self, messages: Iterable[Any]) -> Iterator[PartitionedBatch]:
        """Give whole batches to partitions in turn, several in a row where there are several for each partition."""
        partition = left = size = 0
        expected = length_hint(messages) // self._size
        for number, (bodies, own) in enumerate(sized_batches(messages, self._size, self._topic_key.type)):
            if not left or size >= RUN_BYTES:
                # As many as each has in equal rounds; where nobody knows how many there will be, as each has had.
                each = max(expected, number) // self._choice.total
                partition, left, size = self._choice.of(), each // -(-each // _RUN) if each else 1, 0
            places = range(self._number, self._number + len(bodies))
            left, size, self._number = left - 1, size + own, places.stop
            yield PartitionedBatch(partition, places=places, bodies=bodies, size=own, is_ordered=False)

    def _partition(self, message: Any, body: bytes, known_as: str | None) -> int:
        if self._key is not None:
            return partition_of_key(self._key(message), self._choice.total)
        return self._choice.of(self._topic_key.text(message, body), self._name, known_as or None)

    def note(self, batch: PartitionedBatch, outcomes: Sequence[object]) -> None:
        """Note what of a batch is recorded: of its first messages, at least."""
        self._noted.append((batch.places, outcomes))

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
            published = self.outcomes
            recorded = sum(each is not None for each in published)
            while published and published[-1] is None:
                published.pop()
            parts = [f"{recorded:,} messages of this publish_many are {self._done}, in several partitions"]
            # What it says of its own batch is said here of all.
            error.published = ()
            in_doubt = isinstance(error, Unavailable) and error.may_have_run
            told = telling(error, parts if recorded else [], published)
            if isinstance(told, Unavailable):
                told.may_have_run = bool(in_doubt or recorded)
            raise told from error.__cause__


def _length(batch: PartitionedBatch) -> int:
    return len(batch.bodies)


def _bytes(batch: PartitionedBatch) -> int:
    return batch.size
