"""Checking a queue: its live state against what log and journal alone say, while traffic goes on.

The journal is read into a ledger, then the logs are walked in pages, with a look where each message is. What seems
wrong is judged once more, by one script that reads live state and the rest of the journal in one moment; only what is
wrong then is a difference. Counters and sets are compared by scripts of their own, each in one moment too.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from ampsq.base.errors import UnknownQueue
from ampsq.base.values import check_text
from ampsq.catalog.suggestions import with_suggestions
from ampsq.definitions.stored import read_stored_queue
from ampsq.operations.check.copies import check_copies, check_owners
from ampsq.operations.check.findings import DIFFERENCES
from ampsq.operations.check.messages import Findings, Ledger, Recheck
from ampsq.operations.check.structures import check_state, check_timetable
from ampsq.protocol.calls import catalog as catalog_calls
from ampsq.protocol.calls import check as check_calls
from ampsq.protocol.reads.recovery_points import recorded_starts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ampsq.base.bookmarks import Bookmark
    from ampsq.definitions.stored import StoredQueue
    from ampsq.operations.check.structures import Timetable
    from ampsq.operations.rebuild import Rebuilt
    from ampsq.protocol.calls.catalog import Catalog
    from ampsq.protocol.calls.check import LogPage
    from ampsq.queues.explain import InstanceIdentity

__all__ = ["CheckReport", "StateDifference", "check", "rebuild_queue"]

#: Suspects that are judged together.
_TOGETHER: Final = 1_000
#: Topics of one look at a queue as a whole.
_TOPICS: Final = 20
#: What only a rebuild mends.
_NEED_REBUILD: Final = ("cursor_missing", "paused")


@dataclass(frozen=True, slots=True)
class StateDifference:
    """One kind of difference between what a queue's live state is and what it should be.

    Attributes:
        name: a stable word of `ampsq.operations.check.findings.DIFFERENCES`.
        number: how many.
        sentence: the same for people, and what was done about it; the text may change.
        bookmarks: of some of the messages, where it is about messages.
    """

    name: str
    number: int
    sentence: str
    bookmarks: tuple[Bookmark, ...] = ()


@dataclass(frozen=True, slots=True)
class CheckReport:
    """The result of checking a queue.

    Attributes:
        queue: the queue.
        messages: of its logs, since its recovery point, that were looked at.
        settled: how many of those the journal settles.
        differences: what was wrong; with `repair` it is mended.
        undecided: what could not be told, because too much was going on or there is too much of it; a text each.
        rebuilt: what a rebuild came to, if there was one.
        repaired: whether what is wrong was mended.
        seconds: how long it took.
        partition: the number of the partition; None of an instance without partitions.
    """

    queue: str
    messages: int
    settled: int
    differences: tuple[StateDifference, ...]
    undecided: tuple[str, ...]
    rebuilt: Rebuilt | None
    repaired: bool
    seconds: float = field(compare=False)
    partition: int | None = None

    @property
    def clean(self) -> bool:
        """Return whether nothing was wrong."""
        return not self.differences

    def as_dict(self) -> dict[str, object]:
        """The same as plain values, for JSON."""
        return {
            "queue": self.queue,
            "messages": self.messages,
            "settled": self.settled,
            "clean": self.clean,
            "repaired": self.repaired,
            "differences": [
                {"name": one.name, "number": one.number, "sentence": one.sentence, "bookmarks": list(one.bookmarks)}
                for one in self.differences
            ],
            "undecided": list(self.undecided),
            "seconds": round(self.seconds, 3),
            "partition": self.partition,
        }


class _Walk:
    """Walks the logs of one queue and has judged what seems wrong."""

    def __init__(self, recheck: Recheck, *, once: bool) -> None:
        self._recheck, self._once = recheck, once
        self._suspects: list[bytes] = []
        self.messages = self.settled = 0

    async def walk(self, topics: Sequence[str]) -> None:
        """Look at all that the logs have now."""
        starts, ends = (await recorded_starts(self._recheck.instance, self._recheck.queue)), []
        for topic in topics:
            found = await check_calls.locate(topic, "+")
            ends.append(found.id)
        for topic, end in zip(topics, ends, strict=True):
            after: str | None = starts.get(topic, "0-0")
            while after is not None:
                page = await check_calls.check_log(self._recheck.queue, topic, after, end)
                self._note(page)
                if len(self._suspects) >= _TOGETHER:
                    await self._have_judged()
                after = page.next
        await self._have_judged()

    def _note(self, page: LogPage) -> None:
        weights = self._recheck.ledger.weights(page.refs)
        self.messages += len(page.refs)
        for ref, letter in zip(page.refs, page.letters, strict=True):
            settled = weights.get(ref, 0) > 0
            self.settled += settled
            wrong = "wo" if self._once else "wol"
            if letter == "!" or letter in (wrong if settled else ("xal" if self._once else "xa")):
                self._suspects.append(ref)

    async def _have_judged(self) -> None:
        suspects, self._suspects = self._suspects, []
        if suspects:
            await self._recheck.run(suspects)


@with_suggestions("queue")
async def check(place: InstanceIdentity, names: Sequence[str] = (), *, repair: bool = False) -> list[CheckReport]:
    """Compare queues' live state with what log and journal alone say; traffic goes on.

    Args:
        place: the instance.
        names: the queues; default all.
        repair: mend what is wrong.

    Raises:
        UnknownQueue: there is no such queue. Rebuilding: somebody else rebuilds it, or began to meanwhile.
    """
    for name in names:
        check_text("queue", name)
    repair = bool(repair)
    catalog = await catalog_calls.catalog()
    for name in names:
        if name not in catalog.queues:
            raise UnknownQueue(queue=name)
    timetable = await check_timetable(repair=repair)
    out = []
    for name in names or sorted(catalog.queues):
        checked = await _check_queue(place, catalog, name, timetable, repair=repair)
        out.append(checked)
    return out


async def _check_queue(
    place: InstanceIdentity, catalog: Catalog, name: str, timetable: Timetable, *, repair: bool
) -> CheckReport:
    began = time.monotonic()
    queue = read_stored_queue(catalog.queues[name])
    topics = sorted(topic for topic in catalog.topics if queue.feeds_from(topic))
    whole = await _check_whole(name, topics, repair=repair)
    rebuilt: Rebuilt | None = None
    with Ledger() as ledger:
        recheck = Recheck(place.instance, name, ledger, repair=repair)
        if "rebuilding" in whole.numbers:
            whole.undecided.append("somebody is rebuilding the queue")
            return _checked(queue, whole, recheck.findings, _Walk(recheck, once=False), None, began, repair=repair)
        if "undefined" in whole.numbers and repair:
            from ampsq.catalog.apply import redefine  # noqa: PLC0415  (seldom wanted, and long to import)

            await redefine(name)
            again = await _check_whole(name, topics, repair=repair)
            whole.numbers.update(again.numbers)
        # Before anything is judged by its owner.
        await check_owners(place.instance, name, whole, repair=repair)
        await check_copies(place.instance, topics, whole, repair=repair)
        if repair and any(word in whole.numbers for word in _NEED_REBUILD):
            from ampsq.operations.rebuild import rebuild  # noqa: PLC0415  (seldom wanted, and long to import)

            rebuilt, findings = await rebuild(place.instance, name, topics, filtered=queue.filter is not None)
            recheck.findings = findings
        walk = _Walk(recheck, once=queue.semantics == "at-most-once")
        if repair or "undefined" not in whole.numbers:
            await recheck.catch_up()
            if rebuilt or not any(word in whole.numbers for word in _NEED_REBUILD):
                await walk.walk(topics)
            await check_state(recheck, timetable, topics)
        return _checked(queue, whole, recheck.findings, walk, rebuilt, began, repair=repair)


async def _check_whole(name: str, topics: Sequence[str], *, repair: bool) -> Findings:
    findings = Findings()
    for first in range(0, max(len(topics), 1), _TOPICS):
        found = await check_calls.check_queue(name, topics[first : first + _TOPICS], repair=repair)
        for word, number in found.items():
            findings.numbers[word] = findings.numbers[word] + number if word == "cursor_missing" else number
    return findings


def _checked(  # noqa: PLR0917
    queue: StoredQueue,
    whole: Findings,
    found: Findings,
    walk: _Walk,
    rebuilt: Rebuilt | None,
    began: float,
    *,
    repair: bool,
) -> CheckReport:
    numbers = whole.numbers + found.numbers
    differences = []
    for word, kind in DIFFERENCES.items():
        if numbers[word]:
            sentence = kind.meaning.format(n=numbers[word]) + (f"; {kind.mended}" if repair else "")
            differences.append(StateDifference(word, numbers[word], sentence, tuple(found.examples.get(word, ()))))
    return CheckReport(
        queue=queue.name,
        messages=rebuilt.messages if rebuilt else walk.messages,
        settled=rebuilt.settled if rebuilt else walk.settled,
        differences=tuple(differences),
        undecided=tuple(whole.undecided + found.undecided),
        rebuilt=rebuilt,
        repaired=repair,
        seconds=time.monotonic() - began,
    )


@with_suggestions("queue")
async def rebuild_queue(place: InstanceIdentity, name: str) -> Rebuilt:
    """Rebuild a queue from log and journal, whatever its state is.

    Raises:
        UnknownQueue: there is no such queue. Rebuilding: somebody else is at it.
    """
    check_text("queue", name)
    catalog = await catalog_calls.catalog()
    if name not in catalog.queues:
        raise UnknownQueue(queue=name)
    queue = read_stored_queue(catalog.queues[name])
    topics = sorted(topic for topic in catalog.topics if queue.feeds_from(topic))
    from ampsq.operations.rebuild import rebuild  # noqa: PLC0415  (the others of this file do without)

    await check_owners(place.instance, name, Findings(), repair=True)
    rebuilt, _ = await rebuild(place.instance, name, topics, filtered=queue.filter is not None)
    await check(place, [name], repair=True)
    return rebuilt
