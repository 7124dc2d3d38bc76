"""The publish store that is an SQLite file: what a publisher took survives its process, and the machine if asked."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
import weakref
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

import hiredis

from ampsq.base.errors import PublishStoreError
from ampsq.base.values import path_of
from ampsq.protocol.limits import BYTES
from ampsq.publishing.memory_store import PublishStore, StoreEntry
from ampsq.server.supervisor import open_lock, try_lock

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from datetime import timedelta

__all__ = ["FilePublishStore"]

_LAYOUT: Final = 1
#: Seconds for which another process's transaction on the same file is waited for.
_BUSY: Final = 30.0
#: What helps where the disk is full.
_FULL: Final = "make room there (df -h); what it cannot keep is not sent"
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
        fsync: flush the disk before `Publisher.publish` returns, so that what it took survives a crash of the machine.
            Default False: it survives the process, as what any program has written does.

    What is in the file is sent when a publisher of the same name is opened with it.

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
        self.path, self._fsync = path_of("path", path), fsync
        self._data: sqlite3.Connection | None = None
        self._held_lock: int | None = None
        self._publisher = 0
        # Guards the group that is being filled and `last`; the other lock, the file. Taken in this order: file, group.
        self._filling = threading.Lock()
        self._group = _Group()
        self._written = 0

    def divided(self, number: int) -> Sequence[FilePublishStore]:
        """See `PublishStore.divided`. All are in the one file, each under the name of its partition."""
        shares = [FilePublishStore(self.path, fsync=self._fsync) for _ in range(number)]
        for share in shares:
            share._take_share(self, number)  # noqa: SLF001  (our own)
            # In one process they wait for each other here, not in the file, which is asked again and again.
            share._lock = self._lock  # noqa: SLF001  (our own)
        return shares

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
            # Also where it is refused below; from Python 3.13 on one that nobody closes is warned of.
            weakref.finalize(self, self._data.close)
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
            helps = f"; {_FULL}" if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL else ""
            ours = PublishStoreError(f"{self.path}: {error}{helps}")
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

    def read(self, after: int, number: int) -> list[StoreEntry]:
        """See `PublishStore.read`."""
        entries: list[StoreEntry] = []
        size = 0
        asked = "SELECT last, count, kind, arguments FROM entries WHERE publisher=? AND last>? ORDER BY last LIMIT ?"
        with self._lock, self._faults(), contextlib.closing(self._file.cursor()) as rows:
            for last, count, kind, packed in rows.execute(asked, (self._publisher, after, number)):
                entries.append(StoreEntry(last - count + 1, count, kind, _unpack(packed)))
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
    return bytes(hiredis.pack_command(tuple(arguments)))  # type: ignore[arg-type]  # its stub knows one word


def _unpack(packed: bytes) -> list[bytes]:
    reader = hiredis.Reader()
    reader.feed(packed)
    found: list[bytes] = reader.gets()
    return found
