"""Checking a queue's structures: each entry by itself, and numbers against what they count."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from ampsq.protocol.calls import check as check_calls
from ampsq.protocol.calls import queue_stats as stats_calls
from ampsq.protocol.reads.recovery_points import count_between

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ampsq.operations.check.messages import Recheck
    from ampsq.protocol.calls.check import LivePart
    from ampsq.protocol.request import Flow

__all__ = ["Timetable", "check_state", "check_timetable", "parts"]

#: Looks at a number that is counted in steps: one that is off by the same every time is wrong.
_LOOKS: Final = 3
#: Entries of a structure that the first part has, that any part has at most, and bytes of bodies that it should have.
_FIRST: Final = 8
_MOST: Final = 60
_BYTES: Final = 500_000
_SOURCES: Final = ("ready", "sorted", "held", "remote", "leases", "runs", "ahead", "owners")


@dataclass(slots=True)
class Timetable:
    """The timetable's entries of messages.

    Attributes:
        strays: entries of queues that do not exist.
        counts: queue -> delayed and scheduled messages.
        refs: queue -> refs that look wrong.
    """

    strays: int = 0
    counts: dict[str, tuple[int, int]] = field(default_factory=dict)
    refs: dict[str, list[bytes]] = field(default_factory=dict)


def next_count(count: int, found: int) -> int:
    """Return the number of entries to ask for next, when `count` of them came with so many bytes of bodies."""
    return max(1, min(2 * count, _MOST, _BYTES * count // max(found, 1)))


async def parts(queue: str, source: str, *, repair: bool, visit: Callable[[LivePart], Flow[None]]) -> None:
    """Walk one of a queue's structures, part by part."""
    cursor, count = "0", _FIRST
    while True:
        part: LivePart = await check_calls.check_live(queue, source, cursor, count, repair=repair)
        await visit(part)
        cursor, count = part.next, next_count(count, part.size)
        if cursor == "0":
            return


async def check_timetable(*, repair: bool) -> Timetable:
    """Walk the timetable, which all queues share."""
    found, cursor, count = Timetable(), "0", _FIRST
    while True:
        part = await check_calls.check_due(cursor, count, repair=repair)
        count = next_count(count, part.size)
        found.strays += part.strays
        for queue, (delayed, scheduled) in part.counts.items():
            before = found.counts.get(queue, (0, 0))
            found.counts[queue] = (before[0] + delayed, before[1] + scheduled)
        for queue, ref in part.refs:
            found.refs.setdefault(queue, []).append(ref)
        cursor = part.next
        if cursor == "0":
            return found


async def check_state(recheck: Recheck, timetable: Timetable, topics: Sequence[str]) -> None:
    """Check all structures of a queue."""
    recheck.findings.add("due_stray", timetable.strays)
    timetable.strays = 0
    await recheck.run(timetable.refs.get(recheck.queue, ()))
    holders: Counter[str] = Counter()
    gone = 0
    for source in _SOURCES:
        gone += await _check_source(recheck, source, holders)
    await _check_counts(recheck)
    await _check_indexes(recheck)
    await _check_groups(recheck)
    await _check_subscriptions(recheck, holders)
    for topic in topics:
        await _check_unread(recheck, topic, gone)


async def _check_source(recheck: Recheck, source: str, holders: Counter[str]) -> int:
    gone = 0

    async def visit(part: LivePart) -> None:
        nonlocal gone
        recheck.findings.add("holder_gone", part.unheld)
        holders.update(part.holders)
        gone += part.gone
        if part.refs:
            await recheck.run(part.refs)

    await parts(recheck.queue, source, repair=recheck.repair, visit=visit)
    return gone


# -- numbers


async def _check_counts(recheck: Recheck) -> None:
    found = await check_calls.check_counts(recheck.queue, repair=recheck.repair)
    if found.delayed_counted < 0:
        await _count_in_steps(recheck)
        return
    recheck.findings.add("delayed_count", abs(found.delayed - found.delayed_counted))
    recheck.findings.add("scheduled_count", abs(found.scheduled - found.scheduled_counted))


async def _count_in_steps(recheck: Recheck) -> None:
    """A long timetable is walked; that tells only if nothing changed meanwhile, so it is tried some times."""
    for _ in range(_LOOKS):
        before = await check_calls.check_counts(recheck.queue, repair=False)
        walked = await check_timetable(repair=False)
        after = await check_calls.check_counts(recheck.queue, repair=False)
        delayed, scheduled = walked.counts.get(recheck.queue, (0, 0))
        if (before.delayed, before.scheduled) == (delayed, scheduled):
            return
        if before.version == after.version:
            recheck.findings.add("delayed_count", abs(before.delayed - delayed))
            recheck.findings.add("scheduled_count", abs(before.scheduled - scheduled))
            if recheck.repair:
                instance, queue = recheck.instance, recheck.queue
                if off := delayed - before.delayed:
                    await check_calls.correct_delayed(instance, queue, off)
                if off := scheduled - before.scheduled:
                    await check_calls.correct_scheduled(instance, queue, off)
            return
    recheck.findings.undecided.append(
        "the numbers of delayed and scheduled messages: the timetable is long, and changed at every look"
    )


async def _check_unread(recheck: Recheck, topic: str, gone: int) -> None:
    """The number of entries that a queue has not read, against those that there are.

    What others removed from the log while the queue had not read it is counted until the queue comes there.
    """
    offs = set()
    for _ in range(_LOOKS):
        figures = await stats_calls.stats(recheck.queue)
        if topic not in figures.topics:
            return
        unread, cursor, last = figures.topics[topic]
        counted = await count_between(topic, cursor, last)
        if unread == counted or counted < unread <= counted + gone:
            return
        offs.add(counted - unread)
    if len(offs) == 1:
        off = offs.pop()
        recheck.findings.add("unread_count", abs(off))
        if recheck.repair:
            await check_calls.correct_count(recheck.queue, topic, -off)
    else:
        recheck.findings.undecided.append(f"the number of unread messages of topic {topic}: the log was being trimmed")


# -- filters and subscriptions


async def _filters(recheck: Recheck) -> list[str]:
    """The filters of a queue that judges its messages."""
    names = await check_calls.index_names(recheck.instance, recheck.queue)
    return [each for each in names if each != check_calls.NO_FILTER]


async def _check_indexes(recheck: Recheck) -> None:
    filters = await _filters(recheck)
    for name in filters:
        for source in ("index", "all"):
            cursor = "0"
            while True:
                part = await check_calls.check_index(recheck.queue, name, source, cursor, repair=recheck.repair)
                recheck.findings.add("index_stranger", part.strangers)
                recheck.findings.add("index_missing", part.missing)
                cursor = part.next
                if cursor == "0":
                    break


async def _check_groups(recheck: Recheck) -> None:
    """Check the counts of groups, of a queue that has some, and where their messages stand."""
    for source in ("placed", "listed", "groups", "leases", "going", "lines", "bound", "turns", "batches", "rates"):
        cursor = "0"
        while True:
            part = await check_calls.check_groups(recheck.queue, source, cursor, repair=recheck.repair)
            recheck.findings.add("group_count", part.counts)
            recheck.findings.add("group_place", part.places)
            if part.is_cut:
                recheck.findings.undecided.append("the counts of groups: there are too many leases to count at once")
                return
            cursor = part.next
            if cursor == "0":
                break


async def _check_subscriptions(recheck: Recheck, holders: Counter[str]) -> None:
    filters = await _filters(recheck)
    names: set[str] = set(holders)
    for source in ("all", "members", f" {check_calls.NO_FILTER}", *(f" {each}" for each in filters)):
        cursor = "0"
        while True:
            room = await check_calls.check_room(recheck.queue, source, cursor, repair=recheck.repair)
            recheck.findings.add("member_gone", room.gone)
            recheck.findings.add("member_missing" if source == "all" else "free_wrong", room.wrong)
            recheck.findings.add("free_stranger", room.strangers)
            names.update(room.subscriptions)
            cursor = room.next
            if cursor == "0":
                break
    for name in sorted(names):
        await _check_leased(recheck, name, holders[name])


async def _check_leased(recheck: Recheck, subscription: str, seen: int) -> None:
    """A subscription's number of leases; `seen` is what was seen on the way, of this queue alone."""
    for _ in range(_LOOKS):
        leases = await check_calls.check_leased(subscription, repair=recheck.repair)
        if leases.noted < 0 or leases.noted == leases.counted or (leases.counted < 0 and leases.noted == seen):
            return
        if leases.counted >= 0:
            recheck.findings.add("leased_count")
            return
    recheck.findings.undecided.append(f"the number of leases of {subscription}: there are too many to count at once")
