"""Counting and splitting logs without reading them, by the sparse index that the server keeps of each; flows.

The index has about every thousandth entry with its rank: how many entries were ever added to the log, up to that one.
What was deleted from the middle of a log is still counted: a difference of ranks is the number of entries, or more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from ampsq.base.log_positions import FIRST, Id, id_text, parse_id
from ampsq.protocol.limits import INDEX_STEP
from ampsq.protocol.request import command, script_call
from ampsq.protocol.schema import key

if TYPE_CHECKING:
    from redis.typing import EncodableT

    from ampsq.protocol.request import Call

__all__ = [
    "IndexPoint",
    "SkippedEntries",
    "complete",
    "cuts",
    "entry_at",
    "find_point",
    "index_step",
    "rank_of",
    "skip_entries",
]

#: From so many entries a part on, a cut may be at the nearest point of the index: a tenth off, at most.
_COARSE: Final = 10 * INDEX_STEP


class IndexPoint(NamedTuple):
    """A point of a log's index: an entry, and its rank."""

    id: Id
    rank: int


class SkippedEntries(NamedTuple):
    """Entries of a log that were gone over: the last one, how many, and whether there are no more."""

    last: Id
    number: int
    ended: bool


def index_step(topic: str) -> Call[bool]:
    """Add to a topic's index what it lacks, a bounded part of it; gives whether more may be lacking."""
    return script_call("index_log", [topic], bool, repeatable=True)


def find_point(topic: str, stream_id: Id) -> Call[IndexPoint]:
    """Find the last point of the index at an ID or before it."""
    return script_call(
        "find_index_point",
        [topic, id_text(stream_id)],
        lambda reply: IndexPoint(parse_id(reply[0]), int(reply[1])),
        repeatable=True,
    )


def skip_entries(topic: str, after: Id, last: Id | None, most: int) -> Call[SkippedEntries]:
    """Go over at most so many entries behind an ID, up to another (None: the end), a bounded part of them."""
    arguments: list[EncodableT] = [topic, id_text(after), "+" if last is None else id_text(last), most]
    return script_call(
        "skip_entries",
        arguments,
        lambda reply: SkippedEntries(parse_id(reply[0]), int(reply[1]), bool(reply[2])),
        repeatable=True,
    )


async def complete(topic: str) -> None:
    """Let a topic's index have all that it lacks: of a log that is older than it, or that others wrote to."""
    while await index_step(topic):
        pass


async def rank_of(topic: str, stream_id: Id) -> int:
    """Return the number of entries that were ever added to a log up to an ID; its index is complete."""
    place, rank = await find_point(topic, stream_id)
    ended = place >= stream_id
    while not ended:
        skipped = await skip_entries(topic, place, stream_id, INDEX_STEP)
        place, ended = skipped.last, skipped.ended
        rank += skipped.number
    return rank


async def entry_at(instance: str, topic: str, rank: int, *, exact: bool = True) -> Id:
    """The ID of the last entry whose rank is at most that one; its index is complete.

    Args:
        instance: the instance's name.
        topic: the topic.
        rank: as `rank_of` gives it.
        exact: False: the nearest point of the index before it will do.
    """
    index = key(instance, "index", topic)
    found: list[bytes] = await command(
        ["ZRANGE", index, rank, "-inf", "BYSCORE", "REV", "LIMIT", 0, 1, "WITHSCORES"], list
    )
    point = IndexPoint(parse_id(found[0]), int(float(found[1]))) if found else await find_point(topic, FIRST)
    place, at = point
    ended = not exact
    while not ended and at < rank:
        skipped = await skip_entries(topic, place, None, rank - at)
        place, ended = skipped.last, skipped.ended
        at += skipped.number
    return place


async def cuts(instance: str, topic: str, after: Id, last: Id, parts: int) -> list[Id]:
    """Return IDs that cut the entries behind one ID up to another into about equal parts; the index is complete.

    Gives IDs strictly between the two, rising: the last one of each part but the last. Fewer, where entries are few.
    """
    if parts < 2:  # noqa: PLR2004
        return []
    first, end = (await rank_of(topic, after)), (await rank_of(topic, last))
    size = (end - first) / parts
    found: list[Id] = []
    for number in range(1, parts):
        rank = first + round(number * size)
        place = await entry_at(instance, topic, rank, exact=size < _COARSE)
        if (found[-1] if found else after) < place < last:
            found.append(place)
    return found
