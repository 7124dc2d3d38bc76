"""Start of a queue in its topics: the place of a recovery point in each log, and how much lies before it."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Final

from ampsq.base.errors import DefinitionError
from ampsq.protocol.calls import check as check_calls
from ampsq.protocol.reads.message_names import find_bookmark
from ampsq.protocol.request import command
from ampsq.protocol.schema import FIELDS, key

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ampsq.definitions.queue import Queue
    from ampsq.protocol.entries import RawEntry
    from ampsq.protocol.request import Call

__all__ = ["Cursors", "count_between", "judged_by_former_filters", "recorded_starts", "starts_of", "starts_of_record"]

#: Topic and cursor, ``<id> <entries up to there>``, as the scripts take them.
Cursors = list[tuple[str, str]]
_START: Final = "-"
_END: Final = "+"
_BEGUN: Final = "start"
_LAST_SEQUENCE: Final = 2**64 - 1


async def _point_of(queue: Queue, topics: Iterable[str]) -> str:
    """The point as a stream ID, the last that is not in the queue."""
    text = queue.recovery_point
    if text == "epoch":
        return _START
    if text in ("now", "creation"):
        return _END
    if "~" in text or "|" in text:
        named = await find_bookmark("", text, topics)
        if not named.id:
            raise DefinitionError(
                f"{queue.titled}: recovery_point: bookmark {text!r} is not here: {named.absence}; allowed: a "
                "bookmark of a message that is here"
            )
        return str(named.id)
    # Everything from this millisecond on.
    before = round(datetime.fromisoformat(text).timestamp() * 1000) - 1
    return f"{before}-{_LAST_SEQUENCE}" if before >= 0 else _START


async def starts_of(queue: Queue, topics: Iterable[str]) -> Cursors:
    """Find where a queue begins in each of its topics by its `recovery_point`; what lies behind is counted in steps.

    Raises:
        DefinitionError: the recovery point is the bookmark of a message that is not here.
    """
    names = list(topics)
    point, out = (await _point_of(queue, names)), []
    for topic in names:
        cursor = await _cursor_at(topic, point)
        out.append((topic, cursor))
    return out


async def starts_of_record(instance: str, queue: str, topics: Iterable[str]) -> Cursors:
    """Find where a queue begins by what was recorded when it was defined, however much of its state is lost."""
    starts = await recorded_starts(instance, queue)
    out = []
    for topic in topics:
        cursor = await _cursor_at(topic, starts.get(topic, _START))
        out.append((topic, cursor))
    return out


async def recorded_starts(instance: str, queue: str) -> dict[str, str]:
    """Topic -> the last ID that is not in the queue, of topics where it does not begin with the first entry."""
    for how, cursors in await _definitions(instance, queue):
        if how == _BEGUN:
            return cursors
    return {}


async def judged_by_former_filters(instance: str, queue: str) -> dict[str, str]:
    """Topic -> the last ID that was judged by a filter that the queue does not have any more."""
    for how, cursors in await _definitions(instance, queue):
        return {} if how == _BEGUN else cursors
    return {}


async def _definitions(instance: str, queue: str) -> list[tuple[str, dict[str, str]]]:
    """Return the changes of the queue's definition, the last one first: how, and the cursors then."""
    asked: Call[list[RawEntry]] = command(["XREVRANGE", key(instance, "definitions", queue), "+", "-"], list)
    entries, out = await asked, []
    for _, flat in entries:
        fields = {flat[i].decode(): flat[i + 1].decode() for i in range(0, len(flat), 2)}
        words = fields[FIELDS["cursors"]].split(" ")
        out.append((fields[FIELDS["how"]], dict(zip(words[::2], words[1::2], strict=True))))
    return out


async def _cursor_at(topic: str, point: str) -> str:
    found = await check_calls.locate(topic, point)
    if found.id == "0-0":
        return f"0-0 {found.added - found.length}"
    behind = await count_between(topic, found.id, found.last)
    return f"{found.id} {max(found.added - behind, 0)}"


async def count_between(topic: str, after: str, until: str) -> int:
    """Count the entries of a log behind an ID up to another, in bounded steps."""
    total, at = 0, after
    while after != until:
        step = await check_calls.count(topic, at, until)
        total += step.number
        if step.next is None:
            break
        at = step.next
    return total
