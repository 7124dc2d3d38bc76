"""Judging a queue's messages one by one, in moments of their own: live state, log and journal read by one script."""

from __future__ import annotations

import sqlite3
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Self

from ampsq.protocol.calls import check as check_calls
from ampsq.protocol.reads.message_names import name_messages
from ampsq.protocol.transitions import MessageEvent

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from ampsq.base.bookmarks import Bookmark
    from ampsq.protocol.calls.check import Entries


__all__ = ["Findings", "Ledger", "Recheck"]

#: Messages of one call.
_BATCH: Final = 100
#: Things that may be wrong with one message at once, and then some.
_ROUNDS: Final = 6
#: Bookmarks that are told of one kind of difference.
_EXAMPLES: Final = 20


@dataclass(slots=True)
class Findings:
    """The faults found: words of `ampsq.operations.check.findings.DIFFERENCES`.

    Attributes:
        numbers: word -> how many.
        examples: word -> some of the bookmarks.
        undecided: what could not be told because too much was going on, a text each.
    """

    numbers: Counter[str] = field(default_factory=Counter)
    examples: dict[str, list[Bookmark]] = field(default_factory=dict)
    undecided: list[str] = field(default_factory=list)

    def wants(self, word: str) -> bool:
        """Return whether the report has room for one more example of a kind."""
        return len(self.examples.get(word, ())) < _EXAMPLES

    def add(self, word: str, number: int = 1, bookmark: Bookmark | None = None) -> None:
        """Note something; nothing where the number is 0."""
        if not number:
            return
        self.numbers[word] += number
        known = self.examples.setdefault(word, [])
        if bookmark is not None and len(known) < _EXAMPLES and bookmark not in known:
            known.append(bookmark)


class Recheck:
    """Judges messages of one queue, and mends them.

    Args:
        instance: where.
        queue: the queue.
        ledger: what its journal says.
        repair: whether to mend what is wrong.

    Attributes:
        findings: what was found.
    """

    def __init__(self, instance: str, queue: str, ledger: Ledger, *, repair: bool) -> None:
        self.instance, self.queue, self.ledger, self.repair = instance, queue, ledger, repair
        self.findings = Findings()

    async def catch_up(self) -> None:
        """Read the journal to its end."""
        while True:
            page = await check_calls.journal_page(self.instance, self.queue, self.ledger.after)
            self.ledger.add(page)
            if not page.is_full:
                return

    async def run(self, refs: Iterable[bytes]) -> None:
        """Say what is wrong with some messages and mend that, until nothing is left of it."""
        pending = list(dict.fromkeys(refs))
        for _ in range(_ROUNDS if self.repair else 1):
            pending = await self._round(pending)
            if not pending:
                return

    async def _round(self, refs: Sequence[bytes]) -> list[bytes]:
        """One thing a message; gives those where something was wrong."""
        wrong, at = [], 0
        while at < len(refs):
            await self.catch_up()
            claims = self.ledger.claims(refs[at : at + _BATCH])
            judged = await check_calls.recheck(self.queue, self.ledger.after, claims, repair=self.repair)
            for (ref, _), word in zip(claims, judged.words or (), strict=False):
                if word:
                    wrong.append(ref)
                    if self.ledger.find(word, ref):
                        example = (await name_messages([ref]))[0] if self.findings.wants(word) else None
                        self.findings.add(word, 1, example)
            at += len(judged.words or ())
        return wrong


#: Kilobytes of memory; what is more goes to a temporary file, which ends with the ledger.
_MEMORY: Final = 32_000
_BACK: Final = MessageEvent.GIVEN_BACK.value.encode()
_TRANSFERRED: Final = MessageEvent.TRANSFERRED.value.encode()


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
        """Return the weight by which each of a page's refs is settled, without those that the journal does not have.

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
        """Yield the remembered refs up to one, in order, `number` at a time."""
        last = b""
        while True:
            rows = self._data.execute(
                "SELECT ref FROM open WHERE ref > ? AND ref <= ? ORDER BY ref LIMIT ?", (last, boundary, number)
            ).fetchall()
            if not rows:
                return
            last = rows[-1][0]
            yield [row[0] for row in rows]
