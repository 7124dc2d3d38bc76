"""Rebuilding a queue from log and journal: what is settled stays so, the rest since its recovery point waits again.

The queue reads no log meanwhile; what comes back to it, and every other queue, goes on. First the journal is read,
then the logs in pages. Then a boundary is chosen, the ref up to which the queue will have read: what waits up to
there has to be written to `ready`, what is settled behind it to `ahead`, and the boundary is where that is least.
Both are written in bounded steps, each of which looks at live state and journal of its own moment; then the cursors
move, in one step.
"""

from __future__ import annotations

import secrets
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from ampsq.base.bookmarks import parse_ref, ref_of
from ampsq.catalog.apply import moved_queues, plan
from ampsq.catalog.suggestions import with_suggestions
from ampsq.operations.check.messages import Ledger, Recheck
from ampsq.operations.check.structures import check_timetable, parts
from ampsq.protocol.calls import check as check_calls
from ampsq.protocol.reads.recovery_points import judged_by_former_filters, starts_of, starts_of_record

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ampsq.definitions.queue import Definition
    from ampsq.operations.check.messages import Findings
    from ampsq.protocol.calls.catalog import KnownCatalog
    from ampsq.protocol.calls.check import LivePart
    from ampsq.protocol.reads.recovery_points import Cursors
    from ampsq.protocol.reads.server import Server
    from ampsq.queues.explain import InstanceIdentity

__all__ = ["Rebuilt", "move_queues", "rebuild"]

#: Milliseconds without a step after which somebody else may begin the rebuild anew.
_PERIOD: Final = 15_000
#: Messages of one step.
_BATCH: Final = 250


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """The result of rebuilding a queue.

    Attributes:
        queue: the queue.
        messages: of its logs, since its recovery point.
        settled: how many of those are.
        ready: how many wait in the queue's own keys.
        noted: how many settled ones were noted, behind the place up to which the queue has read.
        seconds: how long it took.
    """

    queue: str
    messages: int
    settled: int
    ready: int
    noted: int
    seconds: float = field(compare=False)


class _Page(NamedTuple):
    """A page of a log: first and last ref, where it is, its messages, how many have to be noted or read."""

    first: bytes
    last: bytes
    topic: str
    after: str
    number: int
    busy: int
    open: int


class _Rebuild:
    """One rebuild under way."""

    def __init__(self, recheck: Recheck, starts: Cursors) -> None:
        self.recheck, self.ledger, self.queue = recheck, recheck.ledger, recheck.queue
        self.starts = dict(starts)
        self.ends: dict[str, check_calls.LogEnd] = {}
        self.is_ring = False
        self.owner = secrets.token_hex(6)
        self.pages: list[_Page] = []
        self.boundary = b""
        self.late: list[bytes] = []
        self.settled = self.ready = self.noted = self.kept_out = 0

    async def pause(self, *, changed: bool) -> None:
        """Take the queue out of the logs."""
        paused = await check_calls.pause_queue(
            self.queue, self.owner, _PERIOD, list(self.starts.items()), changed=changed
        )
        self.is_ring = paused.is_ring
        self.ends = dict(zip(self.starts, paused.ends, strict=True))
        await self.recheck.catch_up()

    async def walk(self) -> None:
        """Look through the logs, and choose the boundary."""
        for topic, cursor in self.starts.items():
            after: str | None = cursor.split(" ")[0]
            while after is not None:
                page = await check_calls.check_log(self.queue, topic, after, self.ends[topic][0])
                if page.refs:
                    await self._note(topic, after, page)
                after = page.next
        formerly = await judged_by_former_filters(self.recheck.instance, self.queue)
        least = max([ref_of(topic, last).encode() for topic, last in formerly.items()], default=b"")
        # What would be read would enter a ring once more, and push others out.
        self._choose(max((page.last for page in self.pages), default=b"") if self.is_ring else least)

    def _choose(self, least: bytes) -> None:
        """Choose the boundary, `least` or later: what former filters judged is not to be judged again."""
        total, best = 0, None if least else 0
        for page in sorted(self.pages, key=lambda page: page.last):
            total += page.open - page.busy
            if (best is None or total < best) and page.last >= least:
                best, self.boundary = total, page.last
        if best is None and self.pages:
            self.boundary = max(page.last for page in self.pages)

    async def _note(self, topic: str, after: str, page: check_calls.LogPage) -> None:
        weights = self.ledger.weights(page.refs)
        settled = [weights.get(ref, 0) > 0 for ref in page.refs]
        pairs = zip(page.refs, page.letters, settled, strict=True)
        waiting = [ref for ref, letter, is_settled in pairs if letter in "wa" and not is_settled]
        self.ledger.keep_open(waiting)
        self.settled += sum(settled)
        busy = len(page.refs) - len(waiting) + page.letters.count("a")
        self.pages.append(_Page(page.refs[0], page.refs[-1], topic, after, len(page.refs), busy, len(waiting)))
        if len(self.pages) % 20 == 0:
            # A sign of life.
            await self._step([])

    async def write(self) -> None:
        """Write what is to be ready, and what is settled behind the boundary."""
        for refs in self.ledger.open_up_to(self.boundary, _BATCH):
            self.ready += len(refs)
            await self._step(refs)
        for page in self.pages:
            if page.last <= self.boundary or not page.busy:
                continue
            last = parse_ref(page.last.decode())[1]
            after: str | None = page.after
            while after is not None:
                found = await check_calls.check_log(self.queue, page.topic, after, last)
                weights = self.ledger.weights(found.refs)
                behind = [
                    ref
                    for ref, letter in zip(found.refs, found.letters, strict=True)
                    if ref > self.boundary and (letter != "w" or weights.get(ref, 0) > 0)
                ]
                self.noted += len(behind)
                await self._step(behind)
                after = found.next

        for source in ("attempts", "lives"):
            await parts(self.queue, source, repair=False, visit=self._read_log_page)

    async def _read_log_page(self, part: LivePart) -> None:
        if part.refs:
            await self._step(part.refs)

    async def _step(self, refs: Sequence[bytes]) -> None:
        at = 0
        while at < len(refs) or not refs:
            claims = self.ledger.claims(refs[at : at + _BATCH])
            boundary = self.boundary.decode()
            step = await check_calls.rebuild(self.queue, self.owner, _PERIOD, self.ledger.after, boundary, claims)
            self.kept_out += step.kept_out
            if step.done < 0:
                await self._read_on()
            elif not refs:
                return
            else:
                at += step.done

    async def finish(self, *, filtered: bool) -> None:
        """Take in what was settled meanwhile, and let the queue read its logs again."""
        cursors, kept_out = (await self._cursors()), self.kept_out if filtered else None
        answer = 1
        while answer != 0:
            await self._read_on()
            while self.late:
                refs, self.late = self.late, []
                await self._step(refs)
            after, boundary = self.ledger.after, self.boundary.decode()
            answer = await check_calls.resume_queue(self.queue, self.owner, after, boundary, kept_out, cursors)

    async def _read_on(self) -> None:
        """The rest of the journal: what was settled since the queue was paused is looked at once more."""
        while True:
            page = await check_calls.journal_page(self.recheck.instance, self.queue, self.ledger.after)
            self.ledger.add(page)
            self.late += [ref for _, found in page.entries for ref in found]
            if not page.is_full:
                return

    async def _cursors(self) -> Cursors:
        """Return the place up to which each topic is read, and the number of entries before it."""
        out = []
        for topic, start in self.starts.items():
            last, behind = start.split(" ")[0], 0
            for page in (page for page in self.pages if page.topic == topic):
                if page.last <= self.boundary:
                    last = parse_ref(page.last.decode())[1]
                elif page.first > self.boundary:
                    behind += page.number
                else:
                    found = await check_calls.check_log(self.queue, topic, page.after, parse_ref(page.last.decode())[1])
                    read = [ref for ref in found.refs if ref <= self.boundary]
                    last = parse_ref(read[-1].decode())[1] if read else last
                    behind += page.number - len(read)
            added = max(self.ends[topic][1] - behind, 0)
            out.append((topic, f"{last} {added}"))
        return out


@with_suggestions("queue")
async def rebuild(
    instance: str, queue: str, topics: Sequence[str], starts: Cursors | None = None, *, filtered: bool
) -> tuple[Rebuilt, Findings]:
    """Rebuild a queue's state from log and journal, in bounded steps.

    Args:
        instance: its name.
        queue: the queue.
        topics: those that feed it.
        starts: where it begins from now on; default where it began.
        filtered: whether it has a filter.

    Raises:
        Rebuilding: somebody else is at it. UnknownQueue: there is no such queue.
    """
    changed, began = starts is not None, time.monotonic()
    if starts is None:
        starts = await starts_of_record(instance, queue, topics)
    with Ledger() as ledger:
        recheck = Recheck(instance, queue, ledger, repair=True)
        work = _Rebuild(recheck, starts)
        await work.pause(changed=changed)
        await work.walk()
        await work.write()
        await work.finish(filtered=filtered)
        if changed:
            await _take_out(queue)
        await _tidy(recheck)
        messages = sum(page.number for page in work.pages)
        ready, seconds = work.ready - work.kept_out, time.monotonic() - began
        return Rebuilt(queue, messages, work.settled, ready, work.noted, seconds), recheck.findings


async def _tidy(recheck: Recheck) -> None:
    """Take away the notes that the cursors have passed."""
    await parts(recheck.queue, "ahead", repair=True, visit=lambda part: recheck.run(part.refs))


async def _take_out(queue: str) -> None:
    """Take out of the queue what lies before its recovery point, but what is leased."""

    async def visit(part: LivePart) -> None:
        if part.refs:
            await check_calls.drop_before_recovery_point(queue, part.refs)

    for source in ("ready", "sorted", "held"):
        await parts(queue, source, repair=False, visit=visit)
    timetable = await check_timetable(repair=False)
    refs = timetable.refs.get(queue, [])
    for first in range(0, len(refs), _BATCH):
        await check_calls.drop_before_recovery_point(queue, refs[first : first + _BATCH])


async def move_queues(
    place: InstanceIdentity, definitions: list[Definition], server: Server | None, known: KnownCatalog
) -> None:
    """Begin anew those queues whose recovery point the definitions change, if all of the definitions can be applied.

    The definitions are applied afterwards: who applies them again after a failure moves the queues again, to no harm.
    """
    moved = await moved_queues(definitions, known)
    if moved:
        await plan(definitions, server)
    for queue, topics in moved:
        starts = await starts_of(queue, topics)
        filtered = queue.filter is not None
        await rebuild(place.instance, queue.name, topics, starts, filtered=filtered)
