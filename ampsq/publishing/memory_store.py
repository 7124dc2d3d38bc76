"""Publish stores: what a publisher has taken from its application and the server has not persisted yet, in order.

`MemoryPublishStore` ends with the process; `FilePublishStore`, next door, is an SQLite file that survives it. Both may
be used by several threads. What is sent, when, and what becomes of it is `ampsq.publishing.guaranteed`'s; here it is
only kept.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from bisect import bisect_right
from typing import TYPE_CHECKING, NamedTuple

from ampsq.base.errors import DefinitionError, PublishStoreError
from ampsq.base.values import Interval, parse_count, parse_size

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import timedelta

__all__ = ["MemoryPublishStore", "PublishStore", "StoreEntry"]


class StoreEntry(NamedTuple):
    """A call that changes the server and uses up `number` sequences, from `sequence` on.

    Attributes:
        sequence: of its first message.
        number: how many messages it has.
        kind: the script, as ``publish`` or ``sow_delete``.
        arguments: what the script gets behind publisher and sequence; of a publish topic, shape and values.
    """

    sequence: int
    number: int
    kind: str
    arguments: Sequence[bytes]

    @property
    def last(self) -> int:
        """The number of its last message."""
        return self.sequence + self.number - 1

    @property
    def size(self) -> int:
        """Bytes of its arguments."""
        return sum(map(len, self.arguments))

    def part(self, first: int, last: int) -> StoreEntry:
        """The messages of a publish with these numbers; any other kind has one."""
        if first <= self.sequence and last >= self.last:
            return self
        topic, shape, *values = self.arguments
        width, start, end = len(shape), max(first, self.sequence), min(last, self.last)
        some = values[(start - self.sequence) * width : (end - self.sequence + 1) * width]
        return StoreEntry(start, end - start + 1, self.kind, [topic, shape, *some])

    def first(self, size: int) -> StoreEntry:
        """Return its first messages, one at least and then as many as have that size together."""
        if self.number == 1 or self.size <= size:
            return self
        topic, shape, *values = self.arguments
        width, total, number = len(shape), len(topic) + len(shape), 0
        while number < self.number:
            total += sum(map(len, values[number * width : (number + 1) * width]))
            if number and total > size:
                break
            number += 1
        return self.part(self.sequence, self.sequence + number - 1)


class PublishStore(ABC):
    """The common base of publish stores, with the bounds on what they hold.

    Args:
        messages: at most so many messages; a number, or a text as ``100k``.
        size: at most so many bytes of topics, bodies and headers, as ``64MB``.
        timeout: how long `Client.publish` waits for room when it is full; then it raises `PublishStoreFull`.

    Attributes:
        last: the highest sequence that was ever given.
        held: messages that are kept.
        held_bytes: their size.
    """

    def __init__(
        self, *, messages: int | str = "100k", size: int | str = "64MB", timeout: timedelta | float | str = "30s"
    ) -> None:
        self.messages, self.size = parse_count(messages), parse_size(size)
        if not self.messages or not self.size:
            raise DefinitionError(f"messages={messages!r}, size={size!r}: allowed is more than 0")
        self.timeout = Interval.parse(timeout) / 1000
        self.last = self.held = self.held_bytes = 0
        self._lock = threading.RLock()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} with {self.held:,} of {self.messages:,} messages>"

    def divided(self, number: int) -> Sequence[PublishStore]:
        """Return so many stores of this kind, one for each partition of an instance, which share its bounds equally.

        Raises:
            DefinitionError: this kind of store cannot be divided.
        """
        raise DefinitionError(
            f"{type(self).__name__} keeps for one instance, and {number} partitions are asked for; allowed: the path "
            "of a file, FilePublishStore(PATH), MemoryPublishStore()"
        )

    def _take_share(self, whole: PublishStore, number: int) -> None:
        """Take an equal share of the bounds of a store that is divided."""
        self.messages, self.size = max(whole.messages // number, 1), max(whole.size // number, 1)
        self.timeout = whole.timeout

    def has_room(self) -> bool:
        """Return whether it may hold more."""
        return self.held < self.messages and self.held_bytes < self.size

    @property
    @abstractmethod
    def survives(self) -> bool:
        """Return whether what it holds is there after the process has ended."""

    @property
    @abstractmethod
    def waits(self) -> bool:
        """Return whether `keep` waits for a disk or another process."""

    @abstractmethod
    def open(self, instance: str, publisher: str) -> None:
        """Begin to keep for a publisher of an instance; `close` ends it.

        Raises:
            PublishStoreError: it is open already, here or in another process.
        """

    @abstractmethod
    def keep(self, count: int, kind: str, arguments: Sequence[bytes]) -> int:
        """Keep a call under the next `count` numbers; gives the first. It is kept when this returns."""

    @abstractmethod
    def read(self, after: int, number: int) -> list[StoreEntry]:
        """The first entries that have a message behind a sequence, in order: at most `number`, fewer of large ones."""

    @abstractmethod
    def discard(self, sequence: int) -> None:
        """Let go of the entries that have no message behind a sequence."""

    @abstractmethod
    def lowest(self) -> int:
        """The least sequence that is held; the one after `last` when nothing is."""

    @abstractmethod
    def keep_settlements(self, settlements: Sequence[Sequence[bytes]]) -> list[int]:
        """Keep settlements of queue messages; gives a number for each."""

    @abstractmethod
    def settlements(self) -> dict[int, list[bytes]]:
        """All settlements that are kept, by number."""

    @abstractmethod
    def forget_settlements(self, numbers: Sequence[int]) -> None:
        """Let go of settlements."""

    def begin_after(self, sequence: int) -> None:
        """Give higher numbers than this from now on."""
        self.last = max(self.last, sequence)

    @abstractmethod
    def close(self) -> None:
        """End keeping, so that others may open it. Safe to call again."""


class MemoryPublishStore(PublishStore):
    """Keeps in memory: survives the server and the connection, not the process. Arguments as of `PublishStore`."""

    def __init__(
        self, *, messages: int | str = "100k", size: int | str = "64MB", timeout: timedelta | float | str = "30s"
    ) -> None:
        super().__init__(messages=messages, size=size, timeout=timeout)
        self._entries: list[StoreEntry] = []
        self._lasts: list[int] = []
        # Bytes of all that ever came, up to and with each entry: what many hold together is one subtraction.
        self._sizes: list[int] = []
        self._total = 0
        self._settlements: dict[int, list[bytes]] = {}
        self._next_settlement, self._is_open = 1, False
        self._shares: list[MemoryPublishStore] = []

    def divided(self, number: int) -> Sequence[MemoryPublishStore]:
        """See `PublishStore.divided`. What the shares hold is there when it is divided again."""
        if not self._shares:
            self._shares = [MemoryPublishStore() for _ in range(number)]
            for share in self._shares:
                share._take_share(self, number)  # noqa: SLF001  (our own)
        return self._shares

    @property
    def survives(self) -> bool:
        """See `PublishStore.survives`."""
        return False

    @property
    def waits(self) -> bool:
        """See `PublishStore.waits`."""
        return False

    def open(self, instance: str, publisher: str) -> None:  # noqa: ARG002
        """See `PublishStore.open`."""
        if self._is_open:
            raise PublishStoreError("this publish store is used by another client; give each client its own")
        self._is_open = True

    def keep(self, count: int, kind: str, arguments: Sequence[bytes]) -> int:
        """See `PublishStore.keep`."""
        size = sum(map(len, arguments))
        with self._lock:
            if not self._is_open:
                raise PublishStoreError("this publish store is closed")
            entry = StoreEntry(self.last + 1, count, kind, arguments)
            self.last += count
            self._entries.append(entry)
            self._lasts.append(self.last)
            self._total += size
            self._sizes.append(self._total)
            self.held += count
            self.held_bytes += size
        return entry.sequence

    def read(self, after: int, number: int) -> list[StoreEntry]:
        """See `PublishStore.read`."""
        with self._lock:
            at = bisect_right(self._lasts, after)
            return self._entries[at : at + number]

    def discard(self, sequence: int) -> None:
        """See `PublishStore.discard`."""
        with self._lock:
            number = bisect_right(self._lasts, sequence)
            if number:
                self.held -= self._lasts[number - 1] - self._entries[0].sequence + 1
                self.held_bytes = self._total - self._sizes[number - 1]
                del self._entries[:number], self._lasts[:number], self._sizes[:number]

    def lowest(self) -> int:
        """See `PublishStore.lowest`."""
        with self._lock:
            return self._entries[0].sequence if self._entries else self.last + 1

    def keep_settlements(self, settlements: Sequence[Sequence[bytes]]) -> list[int]:
        """See `PublishStore.keep_settlements`."""
        with self._lock:
            numbers = list(range(self._next_settlement, self._next_settlement + len(settlements)))
            self._next_settlement += len(settlements)
            self._settlements.update(zip(numbers, map(list, settlements), strict=True))
            return numbers

    def settlements(self) -> dict[int, list[bytes]]:
        """See `PublishStore.settlements`."""
        with self._lock:
            return dict(self._settlements)

    def forget_settlements(self, numbers: Sequence[int]) -> None:
        """See `PublishStore.forget_settlements`."""
        with self._lock:
            for number in numbers:
                self._settlements.pop(number, None)

    def close(self) -> None:
        """See `PublishStore.close`."""
        with self._lock:
            self._is_open = False
