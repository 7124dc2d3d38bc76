"""Stores of a durable subscription's position: in memory, in an SQLite file, or in Redis.

A message is noted when it is received and let go of when it is handled. The subscription's place is where everything
before it is handled; what is handled out of turn is kept beside it until the place has come there. So whoever is killed
at any moment misses nothing afterwards, and gets again only what was not written down as handled.
"""

from __future__ import annotations

import abc
import inspect
import sqlite3
import threading
import time
import weakref
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar, Final, NamedTuple

from ampsq.base.errors import DefinitionError, NameInUse, Unavailable
from ampsq.base.log_positions import Id, StoredPosition, id_text, parse_id
from ampsq.base.values import path_of
from ampsq.protocol.calls.bookmarks import change_position, read_position, replace_position
from ampsq.protocol.request import Pause

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping, Sequence

    from ampsq.base.log_positions import RunEnd, RunKey

__all__ = [
    "BookmarkStore",
    "BookmarkUpdate",
    "MemoryBookmarkStore",
    "RedisBookmarkStore",
    "SqliteBookmarkStore",
    "SubscriptionName",
]

#: Seconds for which another process may hold the file.
_BUSY: Final = 5.0
#: Seconds before it is tried again.
_PAUSE: Final = 0.01
_TABLES: Final = """
CREATE TABLE IF NOT EXISTS place (
    instance TEXT NOT NULL, subscription TEXT NOT NULL, topic TEXT NOT NULL, id TEXT NOT NULL,
    PRIMARY KEY (instance, subscription, topic)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS beyond (
    instance TEXT NOT NULL, subscription TEXT NOT NULL, topic TEXT NOT NULL, id TEXT NOT NULL,
    PRIMARY KEY (instance, subscription, topic, id)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS passed (
    instance TEXT NOT NULL, subscription TEXT NOT NULL, topic TEXT NOT NULL, origin TEXT NOT NULL, id TEXT NOT NULL,
    PRIMARY KEY (instance, subscription, topic, origin)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS had (
    instance TEXT NOT NULL, subscription TEXT NOT NULL, topic TEXT NOT NULL, publisher TEXT NOT NULL,
    origin TEXT NOT NULL, first INTEGER NOT NULL, last INTEGER NOT NULL, recorded INTEGER NOT NULL,
    PRIMARY KEY (instance, subscription, topic, publisher, origin, first)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS session (
    instance TEXT NOT NULL, subscription TEXT NOT NULL, number INTEGER NOT NULL,
    PRIMARY KEY (instance, subscription)) WITHOUT ROWID;
"""


class SubscriptionName(NamedTuple):
    """A durable subscription: the instance that it reads from, and its own name there.

    Attributes:
        instance: the instance's name.
        subscription: its `sub_id`.
        session: the number of its life: the one that began last is the only one that may write.
    """

    instance: str
    subscription: str
    session: int = 0


@dataclass(frozen=True, slots=True)
class BookmarkUpdate:
    """The changes of a position since it was written down last.

    Attributes:
        topics: topic -> the last ID of the place.
        beyond: topic and ID of what was handled behind the place.
        reached: those of `beyond`, of earlier changes, that the place has come to.
        passed: topic and origin -> the last ID there that is before the place; see `StoredPosition`.
        had: runs of named publishers' numbers that are new, or end elsewhere now; see `StoredPosition`.
        gone: those that are part of another one now, or forgotten.
    """

    topics: Mapping[str, Id] = field(default_factory=dict)
    beyond: tuple[tuple[str, str], ...] = ()
    reached: tuple[tuple[str, str], ...] = ()
    passed: Mapping[tuple[str, str], Id] = field(default_factory=dict)
    had: Mapping[RunKey, RunEnd] = field(default_factory=dict)
    gone: tuple[RunKey, ...] = ()


class BookmarkStore(abc.ABC):
    """Keeps the places of subscriptions: of each, what the session writes that began last.

    A store of one's own defines the methods below with ``async def``. They may await steps of `ampsq.protocol.request`,
    as ``await Pause(0.01)``, and nothing of asyncio: the same store serves synchronous clients.

    Attributes:
        is_beside_logs: whether what is kept of an instance is to be had at that one alone.
    """

    is_beside_logs: ClassVar[bool] = False

    def __init_subclass__(cls) -> None:
        """Refuse generators.

        Raises:
            DefinitionError: a method is a generator, which nothing could await.
        """
        for name in ("load", "begin", "save", "forget", "instances_of"):
            if inspect.isgeneratorfunction(getattr(cls, name)):
                raise DefinitionError(f"{cls.__name__}.{name} is a generator; allowed: `async def {name}`")

    @abc.abstractmethod
    async def load(self, name: SubscriptionName) -> StoredPosition | None:
        """Read what is kept of a subscription; None: nothing."""

    @abc.abstractmethod
    async def begin(self, name: SubscriptionName, kept: StoredPosition) -> None:
        """Keep this, and nothing of before; from here on only this session may `save`."""

    @abc.abstractmethod
    async def save(self, name: SubscriptionName, change: BookmarkUpdate) -> None:
        """Write down a change.

        Raises:
            NameInUse: another session of the subscription began meanwhile; nothing was written.
        """

    async def forget(self, name: SubscriptionName) -> None:
        """Keep nothing of a subscription at an instance where it is not now; needed for clients with several."""
        raise DefinitionError(
            f"{type(self).__name__} has no `forget`, which clients with several instances need; allowed: a store that "
            f"has it, as SqliteBookmarkStore, for {name.subscription!r}"
        )

    async def instances_of(self, subscription: str) -> Sequence[str]:  # noqa: ARG002  (for stores that can tell)
        """Name the instances at which something is kept of a subscription; none where the store cannot tell."""
        return ()


class MemoryBookmarkStore(BookmarkStore):
    """Keeps places as long as the process lives: for subscriptions that are closed and made again in it."""

    def __init__(self) -> None:
        self._kept: dict[tuple[str, str], tuple[int, StoredPosition]] = {}

    async def load(self, name: SubscriptionName) -> StoredPosition | None:
        """See `BookmarkStore.load`."""
        return self._kept[name[:2]][1] if name[:2] in self._kept else None

    async def begin(self, name: SubscriptionName, kept: StoredPosition) -> None:
        """See `BookmarkStore.begin`."""
        self._kept[name[:2]] = name.session, kept

    async def save(self, name: SubscriptionName, change: BookmarkUpdate) -> None:
        """See `BookmarkStore.save`."""
        session, kept = self._kept[name[:2]]
        if session != name.session:
            raise NameInUse(subscription=name.subscription)
        beyond = kept.beyond.union(change.beyond).difference(change.reached)
        topics, passed = {**kept.topics, **change.topics}, {**kept.passed, **change.passed}
        had = {**kept.had, **change.had}
        for run in change.gone:
            had.pop(run, None)
        self._kept[name[:2]] = session, replace(kept, topics=topics, beyond=beyond, passed=passed, had=had)

    async def forget(self, name: SubscriptionName) -> None:
        """See `BookmarkStore.forget`."""
        self._kept.pop(name[:2], None)

    async def instances_of(self, subscription: str) -> Sequence[str]:
        """See `BookmarkStore.instances_of`."""
        return sorted(instance for instance, name in self._kept if name == subscription)


class SqliteBookmarkStore(BookmarkStore):
    """Keeps places in a file, for any number of subscriptions, also of several processes on one machine.

    What was written down survives the process, however it ends. After a crash of the machine the last moments may be
    gone; then some messages come again.

    Args:
        path: the file; it is made if it does not exist.

    Raises:
        DefinitionError: it cannot be opened, or is something else. Later, `Unavailable` of whatever needs the file.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = path_of("path", path)
        self._lock = threading.Lock()
        try:
            # What is between BEGIN and COMMIT is said here.
            self._file = sqlite3.connect(path, timeout=_BUSY, isolation_level=None, check_same_thread=False)
            # It lives as long as the store; from Python 3.13 on one that nobody closes is warned of.
            weakref.finalize(self, self._file.close)
            self._file.execute("PRAGMA journal_mode=WAL")
            self._file.execute("PRAGMA synchronous=NORMAL")
            self._file.executescript(_TABLES)
            # From here on a flow waits, not SQLite.
            self._file.execute("PRAGMA busy_timeout=0")
        except sqlite3.Error as error:
            raise DefinitionError(
                f"bookmark store {str(path)!r}: {error}; allowed: a file that SQLite can write, or one to be made"
            ) from error

    def __repr__(self) -> str:
        return f"SqliteBookmarkStore({str(self._path)!r})"

    async def load(self, name: SubscriptionName) -> StoredPosition | None:
        """See `BookmarkStore.load`."""
        try:
            with self._lock:
                rows = self._file.execute(
                    "SELECT topic, id FROM place WHERE instance = ? AND subscription = ?", name[:2]
                )
                places = {topic: parse_id(text) for topic, text in rows}
                beyond = self._file.execute(
                    "SELECT topic, id FROM beyond WHERE instance = ? AND subscription = ?", name[:2]
                )
                found = frozenset((topic, text) for topic, text in beyond)
                vectors = self._file.execute(
                    "SELECT topic, origin, id FROM passed WHERE instance = ? AND subscription = ?", name[:2]
                )
                passed = {(topic, origin): parse_id(text) for topic, origin, text in vectors}
                runs = self._file.execute(
                    "SELECT topic, publisher, origin, first, last, recorded FROM had"
                    " WHERE instance = ? AND subscription = ?",
                    name[:2],
                )
                had: dict[RunKey, RunEnd] = {tuple(row[:4]): tuple(row[4:]) for row in runs}
        except sqlite3.Error as error:
            raise self._unavailable(error) from error
        # No topic has an empty name.
        return StoredPosition(places.pop(""), places, found, passed, had) if "" in places else None

    async def begin(self, name: SubscriptionName, kept: StoredPosition) -> None:
        """See `BookmarkStore.begin`."""

        def write() -> None:
            self._delete(name)
            self._file.execute("INSERT OR REPLACE INTO session VALUES (?, ?, ?)", name)
            topics = {"": kept.floor, **kept.topics}
            self._write(name, BookmarkUpdate(topics, tuple(kept.beyond), passed=kept.passed, had=kept.had))

        await self._written(write)

    async def forget(self, name: SubscriptionName) -> None:
        """See `BookmarkStore.forget`."""
        await self._written(lambda: self._delete(name))

    async def instances_of(self, subscription: str) -> Sequence[str]:
        """See `BookmarkStore.instances_of`."""
        try:
            with self._lock:
                rows = self._file.execute(
                    "SELECT instance FROM place WHERE subscription = ? AND topic = '' ORDER BY instance",
                    (subscription,),
                )
                return [instance for (instance,) in rows]
        except sqlite3.Error as error:
            raise self._unavailable(error) from error

    def _delete(self, name: SubscriptionName) -> None:
        for table in ("place", "beyond", "passed", "had"):
            self._file.execute(f"DELETE FROM {table} WHERE instance = ? AND subscription = ?", name[:2])  # noqa: S608

    async def save(self, name: SubscriptionName, change: BookmarkUpdate) -> None:
        """See `BookmarkStore.save`."""

        def write() -> None:
            found = self._file.execute(
                "SELECT number FROM session WHERE instance = ? AND subscription = ?", name[:2]
            ).fetchone()
            if found is not None and found[0] != name.session:
                raise NameInUse(subscription=name.subscription)
            self._write(name, change)

        await self._written(write)

    async def _written(self, write: Callable[[], None]) -> None:
        """Let what is written be there as a whole, or not at all; an event loop goes on while others hold the file."""
        until = time.monotonic() + _BUSY
        while True:
            try:
                with self._lock, self._file:
                    self._file.execute("BEGIN IMMEDIATE")
                    write()
            except sqlite3.Error as error:
                if getattr(error, "sqlite_errorcode", None) != sqlite3.SQLITE_BUSY or time.monotonic() >= until:
                    raise self._unavailable(error) from error
            else:
                return
            await Pause(_PAUSE)

    def _unavailable(self, error: sqlite3.Error) -> Unavailable:
        return Unavailable(f"bookmark store {str(self._path)!r}: {error}")

    def _write(self, name: SubscriptionName, change: BookmarkUpdate) -> None:
        self._file.executemany(
            "INSERT OR REPLACE INTO place VALUES (?, ?, ?, ?)",
            [(*name[:2], topic, id_text(last)) for topic, last in change.topics.items()],
        )
        self._file.executemany(
            "INSERT OR REPLACE INTO passed VALUES (?, ?, ?, ?, ?)",
            [(*name[:2], *where, id_text(last)) for where, last in change.passed.items()],
        )
        self._file.executemany(
            "INSERT OR REPLACE INTO beyond VALUES (?, ?, ?, ?)", [(*name[:2], *one) for one in change.beyond]
        )
        self._file.executemany(
            "DELETE FROM beyond WHERE instance = ? AND subscription = ? AND topic = ? AND id = ?",
            [(*name[:2], *one) for one in change.reached],
        )
        self._file.executemany(
            "INSERT OR REPLACE INTO had VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            [(*name[:2], *run, *end) for run, end in change.had.items()],
        )
        self._file.executemany(
            "DELETE FROM had WHERE instance = ? AND subscription = ? AND topic = ? AND publisher = ? AND origin = ?"
            " AND first = ?",
            [(*name[:2], *run) for run in change.gone],
        )

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._file.close()


class RedisBookmarkStore(BookmarkStore):
    """Keeps places beside the logs, on the server: for subscribers that move from machine to machine."""

    is_beside_logs = True

    async def load(self, name: SubscriptionName) -> StoredPosition | None:
        """See `BookmarkStore.load`."""
        return await read_position(name.instance, name.subscription)

    async def begin(self, name: SubscriptionName, kept: StoredPosition) -> None:
        """See `BookmarkStore.begin`."""
        await replace_position(name.instance, name.subscription, name.session, kept)

    async def save(self, name: SubscriptionName, change: BookmarkUpdate) -> None:
        """See `BookmarkStore.save`."""
        await change_position(name.subscription, name.session, change)
