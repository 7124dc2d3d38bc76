"""Planning of reads: places become ranges of logs, which are cut into parts of about one size, a task each."""

from __future__ import annotations

import logging
import math
from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

from ampsq.base.errors import BookmarkNotFound, DefinitionError
from ampsq.base.log_positions import FIRST, NOW, BookmarkEnd, Id, id_text
from ampsq.base.suggestions import nearest
from ampsq.protocol.reads import log_index
from ampsq.protocol.reads.message_names import find_bookmark

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from ampsq.protocol.calls.readers import Lag
    from ampsq.spark.logs import InstanceLog, Logs
    from ampsq.spark.read_options import ReadOptions
    from ampsq.spark.read_positions import Offsets, ReadPlace
    from ampsq.transport.store import Store

__all__ = [
    "LogRange",
    "check_offsets",
    "check_start",
    "count_of",
    "located",
    "numbers_of_parts",
    "place_of",
    "shares",
    "split_ranges",
    "tell_loss",
]

_log = logging.getLogger("ampsq")
#: The sequence of the last ID before a millisecond, which no message has.
_BEFORE_A_TIME: Final = 2**64 - 1


class LogRange(NamedTuple):
    """A range to read of one log: behind `after`, up to `last`.

    Attributes:
        log: the log.
        after, last: the range.
        removed: the greatest ID that was removed of the log when the range was made.
    """

    log: InstanceLog
    after: Id
    last: Id
    removed: Id


# -- places


def located(store: Store, log: InstanceLog, place: ReadPlace) -> ReadPlace:
    """The same for one log, with the place there of a bookmark of another origin.

    Raises:
        BookmarkNotFound: its message is not on the log's instance.
    """
    if not isinstance(place, BookmarkEnd) or place.bookmark is None or place.bookmark.origin == log.origin:
        return place
    named = store.run(find_bookmark(log.origin, place.bookmark, [log.topic]))
    if not named.id:
        raise BookmarkNotFound(
            f"bookmark {str(place.bookmark)!r} is not on the instance of {log}: {named.absence}; allowed: one of a "
            "message that is there, a timestamp, or the JSON of an offset, which says a place on each instance"
        )
    return replace(place, bookmark=named.bookmark, here=named.id)


def place_of(place: ReadPlace, log: InstanceLog, lag: Lag, *, is_start: bool) -> Id:
    """The last ID of a log that is before a place.

    Args:
        place: as `located` gives it.
        log: the log.
        lag: how far it goes.
        is_start: whether reading begins there; else it ends there.
    """
    if not isinstance(place, BookmarkEnd):
        offset = place.get(log.address.instance)
        return offset.topics.get(log.topic, FIRST) if offset is not None else FIRST
    if place.kind == NOW:
        return lag.last
    # Behind a message, but before a time.
    last = place.cut(lag.last, behind=place.bookmark is not None).last_before(log.topic)
    # Of the times that may be a start some are still to come; a message is behind what other topics have by now.
    is_later = is_start and (place.bookmark is None or place.bookmark.topic == log.topic)
    return last if is_later else min(last, lag.last)


def check_offsets(offsets: Offsets, logs: Collection[InstanceLog], names: Collection[str]) -> None:
    """See that an offset that somebody gave is about what is read.

    Raises:
        DefinitionError: it names an instance or a topic that is not read.
    """
    for name, offset in offsets.items():
        if name not in names:
            raise DefinitionError(f"the offset's instance {name!r}: {nearest(name, names, 'instance')}")
        topics = [log.topic for log in logs if log.address.instance == name]
        for topic in offset.topics:
            if topic not in topics:
                raise DefinitionError(f"the offset's topic {topic!r}: {nearest(topic, topics, 'topic')}")


# -- what is not there any more


def tell_loss(options: ReadOptions, text: str) -> None:
    """Fail, or warn, since something is not there that was asked for.

    Raises:
        BookmarkNotFound: `fail_on_data_loss` says so.
    """
    if options.fail_on_data_loss:
        raise BookmarkNotFound(
            f"{text}; allowed: a later start, or failOnDataLoss=false, which goes on with what is there"
        )
    _log.warning("%s: going on with what is there", text)


def check_start(
    options: ReadOptions, log: InstanceLog, after: Id, lag: Lag, place: ReadPlace, *, known: Id = FIRST
) -> Id:
    """See that a log has everything from a place on; gives from where on it can be read.

    Args:
        options: what to do if not.
        log: the log.
        after: the place in it.
        lag: how far it goes.
        place: how the place was asked for.
        known: up to where was told already that something is missing.

    Raises:
        BookmarkNotFound: it has not, and the options say to fail.
    """
    offset = place.get(log.address.instance) if not isinstance(place, BookmarkEnd) else None
    if offset is not None and offset.origin not in ("", log.origin):
        text = f"{log} is of origin {log.origin}, and the offset is of {offset.origin}, which was lost or is elsewhere"
        tell_loss(options, text)
        return FIRST
    is_own = not isinstance(place, BookmarkEnd) or (place.bookmark is not None and place.bookmark.topic == log.topic)
    if is_own and after > lag.last and after[1] < _BEFORE_A_TIME:
        text = f"{log} goes up to {id_text(lag.last)}, before {id_text(after)}, from where it was to be read"
        tell_loss(options, f"{text}: the server lost its last messages")
        return lag.last
    # The epoch is whatever there is.
    if FIRST < after < lag.removed and known < lag.removed:
        text = f"{log} was trimmed up to {id_text(lag.removed)}, behind {id_text(after)}, from where it was to be read"
        tell_loss(options, text)
    return after


# -- numbers


def numbers_of_parts(counts: Sequence[int], most_rows: int, least: int) -> list[int]:
    """Into how many parts to cut ranges of so many messages.

    Args:
        counts: messages of each range.
        most_rows: of a part, at most.
        least: parts of all ranges together, at least, as far as there are messages.
    """
    numbers = [max(math.ceil(count / most_rows), 1) for count in counts]
    total = sum(counts)
    if total and sum(numbers) < least:
        wanted = [math.ceil(least * count / total) for count in counts]
        numbers = [max(number, min(want, count)) for number, want, count in zip(numbers, wanted, counts, strict=True)]
    return numbers


def shares(counts: Sequence[int], limit: int) -> list[int]:
    """Return the number of messages of each log to admit, in proportion to what they have, `limit` at most together.

    Every log gets one before any gets more; where even that is too many, the first ones do.
    """
    total = sum(counts)
    if total <= limit:
        return list(counts)
    if limit <= len(counts):
        return [1] * limit + [0] * (len(counts) - limit)
    exact = [max(count * limit / total, 1) for count in counts]
    given = [math.floor(each) for each in exact]
    # Those that got one although it is more than their share.
    for number in sorted(range(len(counts)), key=lambda number: -given[number]):
        excess = sum(given) - limit
        if excess <= 0:
            break
        given[number] -= min(excess, given[number] - 1)
    for number in sorted(range(len(counts)), key=lambda number: given[number] - exact[number]):
        if sum(given) < limit and given[number] < counts[number]:
            given[number] += 1
    return given


# -- parts


def split_ranges(logs: Logs, options: ReadOptions, ranges: Sequence[LogRange]) -> list[list[Id]]:
    """Return IDs that cut each range into parts; their indexes are completed first."""
    counts = [count_of(logs, each) for each in ranges]
    numbers = numbers_of_parts(counts, options.max_rows_per_partition, options.min_partitions)
    return [
        logs.store(log.address).run(log_index.cuts(log.address.instance, log.topic, after, last, number))
        for (log, after, last, _), number in zip(ranges, numbers, strict=True)
    ]


def count_of(logs: Logs, wanted: LogRange) -> int:
    """Return the number of entries in a range, or more where some were deleted; its log's index is completed first."""
    store, topic = logs.store(wanted.log.address), wanted.log.topic
    store.run(log_index.complete(topic))
    return store.run(log_index.rank_of(topic, wanted.last)) - store.run(log_index.rank_of(topic, wanted.after))
