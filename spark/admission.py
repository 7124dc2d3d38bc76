"""Admission: the part of waiting messages that becomes a micro-batch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ampsq.protocol.limits import INDEX_STEP
from ampsq.protocol.reads import log_index
from ampsq.spark.planning import count_of, shares

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ampsq.base.log_positions import Id
    from ampsq.spark.logs import Logs
    from ampsq.spark.planning import LogRange
    from ampsq.spark.read_options import StreamReadOptions

__all__ = ["limit_ranges"]

#: Up to so many entries are gone over rather than looked up: that is exact also where entries were deleted.
_FEW: Final = 2 * INDEX_STEP


def limit_ranges(
    logs: Logs, options: StreamReadOptions, ranges: Sequence[LogRange], sizes: Sequence[int], *, is_patient: bool
) -> list[LogRange]:
    """Return the part of these ranges to read now, by the limits of the options; none while too little waits.

    Args:
        logs: the stream's.
        options: with the limits.
        ranges: what waits in each log.
        sizes: bytes of an entry of each, about.
        is_patient: whether it may wait for more.
    """
    # There is one at least, whatever was deleted.
    counts = [max(count_of(logs, each), 1) for each in ranges]
    if is_patient and sum(counts) < options.min_offsets_per_trigger:
        return []
    limit = options.most_rows or sum(counts)
    waiting = sum(count * size for count, size in zip(counts, sizes, strict=True))
    if options.max_bytes_per_trigger and waiting > options.max_bytes_per_trigger:
        limit = min(limit, max(sum(counts) * options.max_bytes_per_trigger // waiting, 1))
    if sum(counts) <= limit:
        return list(ranges)
    # Where not every log can give one, those whose messages wait longest do.
    order = sorted(range(len(ranges)), key=lambda number: ranges[number].after)
    given = shares([counts[number] for number in order], limit)
    found = []
    for number, share in zip(order, given, strict=True):
        each = ranges[number]
        if share:
            last = logs.store(each.log.address).run(_end(each, share)) if share < counts[number] else each.last
            found.append(each._replace(last=last))
    return found


async def _end(wanted: LogRange, share: int) -> Id:
    """The last one of so many entries of a range."""
    log, after, last, _ = wanted
    place = after
    if share > _FEW:
        rank = await log_index.rank_of(log.topic, after)
        place = await log_index.entry_at(log.address.instance, log.topic, rank + share)
    if place > after:
        return min(place, last)
    # Few, or what was deleted there counts for more than what is left.
    left, ended = min(share, _FEW), False
    while left > 0 and not ended:
        skipped = await log_index.skip_entries(log.topic, place, last, left)
        place, ended = skipped.last, skipped.ended
        left -= skipped.number
    return min(place, last) if place > after else last
