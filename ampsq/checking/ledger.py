"""What a queue's journal settles, kept outside of memory: journals are in order of settling, logs of arrival."""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING, Final, Self

from ampsq.transitions import Event

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from ampsq.checking.check_calls import Entries

__all__ = ["Ledger"]

#: Kilobytes of memory; what is more goes to a temporary file, which ends with the ledger.
_MEMORY: Final = 32_000
_BACK: Final = Event.GIVEN_BACK.value.encode()
_TRANSFERRED: Final = Event.TRANSFERRED.value.encode()


class Ledger:
    """Ref -> how much it is settled: above 0 it is. At most once, what was given back is not settled any more.

    Attributes:
        after: the journal's ID up to which it was read.
    """

    def __init__(self) -> None:
        self.after = "0-0"
        self._data = sqlite3.connect("", isolation_level=None, check_same_thread=False)
        self._data.execute(f"PRAGMA cache_size=-{_MEMORY}")
        self._data.execute("PRAGMA journal_mode=OFF")
        self._data.execute("CREATE TABLE settled(ref BLOB PRIMARY KEY, weight INTEGER) WITHOUT ROWID")
        self._data.execute("CREATE TABLE open(ref BLOB PRIMARY KEY) WITHOUT ROWID")
        self._data.execute("CREATE TABLE found(word TEXT, ref BLOB, PRIMARY KEY(word, ref)) WITHOUT ROWID")
        self._data.execute("BEGIN")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._data.close()

    def add(self, page: Entries) -> None:
        """Take in a page of the journal."""
        if page.last is None:
            return
        self.after = page.last
        # Who owns a message says nothing about whether it is settled.
        rows = [(ref, -1 if how == _BACK else 1) for how, refs in page.entries if how != _TRANSFERRED for ref in refs]
        self._data.executemany(
            "INSERT INTO settled VALUES(?, ?) ON CONFLICT DO UPDATE SET weight = weight + excluded.weight", rows
        )

    def weights(self, refs: Sequence[bytes]) -> dict[bytes, int]:
        """How much each of a page's refs is settled; those that the journal does not have are left out.

        The refs are of one topic and in order, as in its log.
        """
        if not refs:
            return {}
        found = self._data.execute("SELECT ref, weight FROM settled WHERE ref BETWEEN ? AND ?", (refs[0], refs[-1]))
        return dict(found.fetchall())

    def claims(self, refs: Iterable[bytes]) -> list[tuple[bytes, int]]:
        """Each ref with how much it is settled."""
        out = []
        for ref in refs:
            row = self._data.execute("SELECT weight FROM settled WHERE ref = ?", (ref,)).fetchone()
            out.append((ref, row[0] if row else 0))
        return out

    def keep_open(self, refs: Iterable[bytes]) -> None:
        """Remember messages that nothing settles."""
        self._data.executemany("INSERT OR IGNORE INTO open VALUES(?)", [(ref,) for ref in refs])

    def find(self, word: str, ref: bytes) -> bool:
        """Note that something is wrong with a message; whether that is news."""
        return self._data.execute("INSERT OR IGNORE INTO found VALUES(?, ?)", (word, ref)).rowcount > 0

    def open_up_to(self, boundary: bytes, number: int) -> Iterator[list[bytes]]:
        """What was remembered, up to a ref, in order, `number` at a time."""
        last = b""
        while True:
            rows = self._data.execute(
                "SELECT ref FROM open WHERE ref > ? AND ref <= ? ORDER BY ref LIMIT ?", (last, boundary, number)
            ).fetchall()
            if not rows:
                return
            last = rows[-1][0]
            yield [row[0] for row in rows]
