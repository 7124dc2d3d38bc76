"""Judging a queue's messages one by one, in moments of their own: live state, log and journal read by one script."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from ampsq.checking import check_calls
from ampsq.topics.naming import name_messages

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ampsq.checking.ledger import Ledger
    from ampsq.values import Bookmark

__all__ = ["Findings", "Judge"]

#: Messages of one call.
_BATCH: Final = 100
#: Things that may be wrong with one message at once, and then some.
_ROUNDS: Final = 6
#: Bookmarks that are told of one kind of difference.
_EXAMPLES: Final = 20


@dataclass(slots=True)
class Findings:
    """What was found wrong: words of `ampsq.checking.check_words.DIFFERENCES`.

    Attributes:
        numbers: word -> how many.
        examples: word -> some of the bookmarks.
        undecided: what could not be told because too much was going on, a text each.
    """

    numbers: Counter[str] = field(default_factory=Counter)
    examples: dict[str, list[Bookmark]] = field(default_factory=dict)
    undecided: list[str] = field(default_factory=list)

    def wants(self, word: str) -> bool:
        """Whether one more example of a kind is told."""
        return len(self.examples.get(word, ())) < _EXAMPLES

    def add(self, word: str, number: int = 1, bookmark: Bookmark | None = None) -> None:
        """Note something; nothing where the number is 0."""
        if not number:
            return
        self.numbers[word] += number
        known = self.examples.setdefault(word, [])
        if bookmark is not None and len(known) < _EXAMPLES and bookmark not in known:
            known.append(bookmark)


class Judge:
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

    async def judge(self, refs: Iterable[bytes]) -> None:
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
            judged = await check_calls.judge(self.queue, self.ledger.after, claims, repair=self.repair)
            for (ref, _), word in zip(claims, judged.words or (), strict=False):
                if word:
                    wrong.append(ref)
                    if self.ledger.find(word, ref):
                        example = (await name_messages([ref]))[0] if self.findings.wants(word) else None
                        self.findings.add(word, 1, example)
            at += len(judged.words or ())
        return wrong
