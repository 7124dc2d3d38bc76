"""Publish stores: what a publisher has taken from its application and the server has not persisted yet, in order.

`MemoryPublishStore` ends with the process; `FilePublishStore` is an SQLite file that survives it. Both may be used by
several threads. What is sent, when, and what becomes of it is `ampsq.publishing.publishing`'s; here it is only kept.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
from abc import ABC, abstractmethod
from bisect import bisect_right
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import quote

import hiredis

from ampsq.errors import DefinitionError, PublishStoreError
from ampsq.schema import BYTES
from ampsq.supervisor import open_lock, try_lock
from ampsq.values import Interval, parse_count, parse_size

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from datetime import timedelta

__all__ = ["Entry", "FilePublishStore", "MemoryPublishStore", "PublishStore"]

_LAYOUT: Final = 1
#: Seconds for which another process's transaction on the same file is waited for.
_BUSY: Final = 30.0
_TABLES: Final = """
CREATE TABLE IF NOT EXISTS publishers(
    id INTEGER PRIMARY KEY, instance TEXT, name TEXT, last INTEGER, UNIQUE(instance, name)
);
CREATE TABLE IF NOT EXISTS entries(
    publisher INTEGER, last INTEGER, count INTEGER, kind TEXT, arguments BLOB, PRIMARY KEY(publisher, last)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS settlements(id INTEGER PRIMARY KEY, publisher INTEGER, arguments BLOB);
CREATE INDEX IF NOT EXISTS settled_by ON settlements(publisher)
"""


class Entry(NamedTuple):
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

    def part(self, first: int, last: int) -> Entry:
        """The messages of a publish with these numbers; any other kind has one."""
        if first <= self.sequence and last >= self.last:
            return self
        topic, shape, *values = self.arguments
        width, start, end = len(shape), max(first, self.sequence), min(last, self.last)
        some = values[(start - self.sequence) * width : (end - self.sequence + 1) * width]
        return Entry(start, end - start + 1, self.kind, [topic, shape, *some])


class PublishStore(ABC):
    """What every publish store does, and how much it may hold.

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

    def has_room(self) -> bool:
        """Whether it may hold more."""
        return self.held < self.messages and self.held_bytes < self.size

    @property
    @abstractmethod
    def survives(self) -> bool:
        """Whether what it holds is there after the process has ended."""

    @property
    @abstractmethod
    def waits(self) -> bool:
        """Whether `keep` waits for a disk or another process."""

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
    def read(self, after: int, number: int) -> list[Entry]:
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
        self._entries: list[Entry] = []
        self._lasts: list[int] = []
        # Bytes of all that ever came, up to and with each entry: what many hold together is one subtraction.
        self._sizes: list[int] = []
        self._total = 0
        self._settlements: dict[int, list[bytes]] = {}
        self._next_settlement, self._is_open = 1, False

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
            entry = Entry(self.last + 1, count, kind, arguments)
            self.last += count
            self._entries.append(entry)
            self._lasts.append(self.last)
            self._total += size
            self._sizes.append(self._total)
            self.held += count
            self.held_bytes += size
        return entry.sequence

    def read(self, after: int, number: int) -> list[Entry]:
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


class _Group:
    """Entries that one transaction writes, and what became of it."""

    __slots__ = ("done", "error", "rows")

    def __init__(self) -> None:
        self.rows: list[tuple[int, int, str, bytes]] = []
        self.done = False
        self.error: PublishStoreError | None = None


class FilePublishStore(PublishStore):
    """Keeps in an SQLite file, which several publishers may share, one process at a time each.

    Args:
        path: the file; made when it is missing, with three or more beside it, which belong to it.
        messages: as of `PublishStore`.
        size: as of `PublishStore`.
        timeout: as of `PublishStore`.
        fsync: flush the disk before `Client.publish` returns, so that what it took survives a crash of the machine.
            Default False: it survives the process, as what any program has written does.

    Raises:
        PublishStoreError: the file cannot be written, or is none of ours.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        messages: int | str = "10M",
        size: int | str = "1GB",
        timeout: timedelta | float | str = "30s",
        fsync: bool = False,
    ) -> None:
        super().__init__(messages=messages, size=size, timeout=timeout)
        self.path, self._fsync = Path(path), fsync
        self._data: sqlite3.Connection | None = None
        self._held_lock: int | None = None
        self._publisher = 0
        # Guards the group that is being filled and `last`; the other lock, the file. Taken in this order: file, group.
        self._filling = threading.Lock()
        self._group = _Group()
        self._written = 0

    @property
    def survives(self) -> bool:
        """See `PublishStore.survives`."""
        return True

    @property
    def waits(self) -> bool:
        """See `PublishStore.waits`."""
        return True

    def open(self, instance: str, publisher: str) -> None:
        """See `PublishStore.open`."""
        if not self.path.name:
            raise PublishStoreError(f"the publish store {self.path} is a folder; allowed: a file, as in 'till-4.db'")
        if self._held_lock is not None:
            raise PublishStoreError(f"{self.path} is used by another client; give each client its own FilePublishStore")
        lock = self.path.with_name(f"{self.path.name}-{quote(f'{instance}.{publisher}', safe='')}.lock")
        try:
            descriptor = open_lock(lock)
        except OSError as error:
            raise PublishStoreError(
                f"the publish store {self.path} cannot be locked: {lock}: {error.strerror}; allowed: a file in a "
                "folder that is there and may be written to"
            ) from error
        try:
            self._begin(descriptor, instance, publisher)
        except BaseException:
            os.close(descriptor)
            raise
        self._held_lock = descriptor

    def _begin(self, descriptor: int, instance: str, publisher: str) -> None:
        import fcntl  # noqa: PLC0415  (publishing without a file works where there is none)

        if not try_lock(descriptor, fcntl.LOCK_EX):
            raise PublishStoreError(
                f"another process publishes as {publisher!r} from {self.path}; stop it, or use another name"
            )
        with self._faults():
            self._data = sqlite3.connect(self.path, timeout=_BUSY, isolation_level=None, check_same_thread=False)
            self._data.execute("PRAGMA journal_mode=WAL")
            self._data.execute(f"PRAGMA synchronous={'FULL' if self._fsync else 'NORMAL'}")
            found = self._data.execute("PRAGMA user_version").fetchone()[0]
            if found not in {0, _LAYOUT}:
                raise PublishStoreError(f"{self.path} was written by another version: layout {found}, not {_LAYOUT}")
            with self._transaction() as data:
                for table in _TABLES.split(";"):
                    data.execute(table)
                data.execute(f"PRAGMA user_version={_LAYOUT}")
                data.execute("INSERT OR IGNORE INTO publishers VALUES(NULL, ?, ?, 0)", (instance, publisher))
            found = self._data.execute(
                "SELECT id, last FROM publishers WHERE instance=? AND name=?", (instance, publisher)
            ).fetchone()
            self._publisher = found[0]
            held, size, last = self._data.execute(
                "SELECT total(count), total(length(arguments)), ifnull(max(last), 0) FROM entries WHERE publisher=?",
                (self._publisher,),
            ).fetchone()
        self.held, self.held_bytes = int(held), int(size)
        self.last = self._written = max(found[1], last)

    @contextlib.contextmanager
    def _faults(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            ours = PublishStoreError(f"{self.path}: {error}")
            ours.may_pass = isinstance(error, sqlite3.OperationalError)
            raise ours from error

    @property
    def _file(self) -> sqlite3.Connection:
        if self._data is None:
            raise PublishStoreError(f"{self.path} is closed")
        return self._data

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        data = self._file
        with self._lock, self._faults():
            data.execute("BEGIN IMMEDIATE")
            try:
                yield data
                data.execute("COMMIT")
            except BaseException:
                with contextlib.suppress(sqlite3.Error):
                    data.execute("ROLLBACK")
                raise

    def keep(self, count: int, kind: str, arguments: Sequence[bytes]) -> int:
        """See `PublishStore.keep`. Threads that come while another one writes are written by one of them together."""
        packed = _pack(arguments)
        with self._filling:
            group, sequence = self._group, self.last + 1
            self.last += count
            group.rows.append((self.last, count, kind, packed))
        with self._lock:
            if not group.done:
                self._write(group)
        if group.error is not None:
            raise group.error
        return sequence

    def _write(self, group: _Group) -> None:
        """Write a group; when that fails, its numbers and those given since are given again."""
        with self._filling:
            self._group = _Group()
        try:
            with self._transaction() as data:
                data.executemany(
                    f"INSERT INTO entries VALUES({self._publisher}, ?, ?, ?, ?)",
                    group.rows,
                )
        except PublishStoreError as error:
            with self._filling:
                for failed in (group, self._group):
                    failed.error, failed.done = error, True
                self._group, self.last = _Group(), self._written
            return
        group.done = True
        self._written = group.rows[-1][0]
        self.held += sum(row[1] for row in group.rows)
        self.held_bytes += sum(len(row[3]) for row in group.rows)

    def read(self, after: int, number: int) -> list[Entry]:
        """See `PublishStore.read`."""
        entries: list[Entry] = []
        size = 0
        asked = "SELECT last, count, kind, arguments FROM entries WHERE publisher=? AND last>? ORDER BY last LIMIT ?"
        with self._lock, self._faults(), contextlib.closing(self._file.cursor()) as rows:
            for last, count, kind, packed in rows.execute(asked, (self._publisher, after, number)):
                entries.append(Entry(last - count + 1, count, kind, _unpack(packed)))
                size += len(packed)
                # More does not travel in one call, and would be read again for the next one.
                if size > BYTES:
                    break
        return entries

    def discard(self, sequence: int) -> None:
        """See `PublishStore.discard`."""
        which = (self._publisher, sequence)
        with self._transaction() as data:
            held, size = data.execute(
                "SELECT total(count), total(length(arguments)) FROM entries WHERE publisher=? AND last<=?", which
            ).fetchone()
            data.execute("DELETE FROM entries WHERE publisher=? AND last<=?", which)
            data.execute("UPDATE publishers SET last=max(last, ?) WHERE id=?", (sequence, self._publisher))
            self.held -= int(held)
            self.held_bytes -= int(size)

    def lowest(self) -> int:
        """See `PublishStore.lowest`."""
        with self._lock:
            entries = self.read(0, 1)
            return entries[0].sequence if entries else self._written + 1

    def begin_after(self, sequence: int) -> None:
        """See `PublishStore.begin_after`."""
        with self._lock, self._filling:
            self.last = max(self.last, sequence)
            self._written = max(self._written, sequence)

    def keep_settlements(self, settlements: Sequence[Sequence[bytes]]) -> list[int]:
        """See `PublishStore.keep_settlements`."""
        with self._transaction() as data:
            statement = "INSERT INTO settlements VALUES(NULL, ?, ?)"
            rows = [(self._publisher, _pack(arguments)) for arguments in settlements]
            return [int(data.execute(statement, row).lastrowid or 0) for row in rows]

    def settlements(self) -> dict[int, list[bytes]]:
        """See `PublishStore.settlements`."""
        with self._lock, self._faults():
            rows = self._file.execute(
                "SELECT id, arguments FROM settlements WHERE publisher=? ORDER BY id", (self._publisher,)
            ).fetchall()
        return {number: _unpack(packed) for number, packed in rows}

    def forget_settlements(self, numbers: Sequence[int]) -> None:
        """See `PublishStore.forget_settlements`."""
        with self._transaction() as data:
            data.executemany("DELETE FROM settlements WHERE id=?", [(number,) for number in numbers])

    def close(self) -> None:
        """See `PublishStore.close`."""
        with self._lock:
            data, self._data = self._data, None
            if data is not None:
                data.close()
            lock, self._held_lock = self._held_lock, None
            if lock is not None:
                os.close(lock)


def _pack(arguments: Sequence[bytes]) -> bytes:
    """Texts as one, each behind its length: RESP, which hiredis writes and reads in C."""
    words: Any = tuple(arguments)
    return bytes(hiredis.pack_command(words))


def _unpack(packed: bytes) -> list[bytes]:
    reader: Any = hiredis.Reader()
    reader.feed(packed)
    found: list[bytes] = reader.gets()
    return found
