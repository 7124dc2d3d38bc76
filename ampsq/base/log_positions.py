"""Places in the logs: what a bookmark subscription may begin and end with, from the texts that say it to the IDs.

A place is a cut through everything that was recorded, between two messages: what is before it and what is behind it.
All topics have one order, that of refs, so that one cut says for each topic which messages are before it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from ampsq.base.bookmarks import Bookmark, PublisherBookmark, split_bookmarks
from ampsq.base.errors import DefinitionError
from ampsq.base.values import shown

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = [
    "EPOCH",
    "FIRST",
    "MOST_RECENT",
    "NOW",
    "BookmarkEnd",
    "BookmarkRange",
    "BookmarkSpec",
    "Id",
    "LogPosition",
    "LogSpan",
    "Place",
    "RunEnd",
    "RunKey",
    "StoredPosition",
    "check_ranges",
    "id_text",
    "next_id",
    "parse_bookmark_spec",
    "parse_id",
    "previous_id",
    "spans_of",
]

#: What a subscription may begin with.
Place: TypeAlias = "Bookmark | datetime | str | int"
#: Both numbers of a stream ID.
Id: TypeAlias = "tuple[int, int]"
#: A run of a named publisher's numbers: topic, publisher, origin, and the first number.
RunKey: TypeAlias = "tuple[str, str, str, int]"
#: Its last number, and when that was recorded, ms.
RunEnd: TypeAlias = "tuple[int, int]"
FIRST: Final[Id] = (0, 0)
_LAST: Final = 2**64 - 1
#: Milliseconds by which clocks may differ: so far a time may lie behind the server's moment in a range up to `NOW`.
_CLOCKS: Final = 60_000
#: Sorts behind every topic's name.
_BEHIND_ALL: Final = "~"
_ALLOWED: Final = (
    "'epoch' (or '0'), 'now' (or '0|1|'), 'most_recent', a bookmark, also as '<publisher>|<sequence>', a time (a "
    "datetime with a time zone, '2026-05-01T09:00:00Z' or '20260501T090000Z'), several of these (the earliest counts), "
    "or ranges of two of them, as in '[epoch:now)': [ and ] with that end, ( and ) without"
)
_COMPACT = re.compile(r"(\d{8})T(\d{6})(\.\d{1,6})?(Z?)")
_RANGE = re.compile(r"([\[(])(.*)([\])])", re.DOTALL)
_WORDS: Final = {"epoch": "epoch", "0": "epoch", "now": "now", "0|1|": "now", "most_recent": "most_recent"}
EPOCH, NOW, MOST_RECENT = "epoch", "now", "most_recent"


def parse_id(text: str | bytes) -> Id:
    """Read a stream ID that a server gave."""
    milliseconds, _, sequence = text.partition("-") if isinstance(text, str) else text.partition(b"-")
    return int(milliseconds), int(sequence)


def id_text(stream_id: Id) -> str:
    """Write a stream ID."""
    return f"{stream_id[0]}-{stream_id[1]}"


def previous_id(stream_id: Id) -> Id:
    """The greatest ID below one."""
    milliseconds, sequence = stream_id
    if sequence:
        return milliseconds, sequence - 1
    return (milliseconds - 1, _LAST) if milliseconds else FIRST


def next_id(stream_id: Id) -> Id:
    """The least ID above one."""
    milliseconds, sequence = stream_id
    return (milliseconds, sequence + 1) if sequence < _LAST else (milliseconds + 1, 0)


class LogPosition(NamedTuple):
    """A place: before or behind the message of a topic that has an ID. Cuts compare as they follow each other.

    Attributes:
        id: the ID.
        topic: the topic; ``""`` is before all of them at that ID, ``~`` behind.
        behind: whether the message is before the cut.
    """

    id: Id
    topic: str = ""
    behind: bool = False

    @classmethod
    def behind_all(cls, stream_id: Id) -> LogPosition:
        """Behind everything up to an ID."""
        return cls(stream_id, _BEHIND_ALL, True)

    def last_before(self, topic: str) -> Id:
        """The last ID of a topic that is before the cut."""
        if topic < self.topic or (topic == self.topic and self.behind):
            return self.id
        return previous_id(self.id)


@dataclass(frozen=True, slots=True)
class StoredPosition:
    """A subscription's position in a bookmark store: everything up to its place is handled.

    Attributes:
        floor: the place in topics that have none of their own.
        topics: topic -> the last ID of the place.
        beyond: topic and ID of what is handled behind the place; of a client with several instances the ID has its
            origin before it, as in a bookmark.
        passed: of a client with several instances: topic and origin -> the last ID there that is before the place.
        had: of the same: the runs of numbers of named publishers whose messages are handled.
    """

    floor: Id
    topics: Mapping[str, Id]
    beyond: frozenset[tuple[str, str]] = frozenset()
    passed: Mapping[tuple[str, str], Id] = field(default_factory=dict)
    had: Mapping[RunKey, RunEnd] = field(default_factory=dict)

    def last_before(self, topic: str) -> Id:
        """The last ID of a topic that is before the place."""
        return self.topics.get(topic, self.floor)


@dataclass(frozen=True, slots=True)
class BookmarkEnd:
    """An end as it was asked for.

    Attributes:
        kind: `EPOCH`, `NOW`, `MOST_RECENT`, ``bookmark`` or ``time``.
        bookmark: of that kind.
        milliseconds: of a time, since 1970.
        here: of a bookmark of another origin, the ID of its message in this instance's log; "" where it is not known.
    """

    kind: str
    bookmark: Bookmark | None = None
    milliseconds: int = 0
    here: str = ""

    def __str__(self) -> str:
        if self.kind == "time":
            text = datetime.fromtimestamp(self.milliseconds / 1000, UTC).isoformat(timespec="milliseconds")
            return text.replace("+00:00", "Z").replace(".000Z", "Z")
        return str(self.bookmark) if self.bookmark is not None else self.kind

    @property
    def id(self) -> Id:
        """The place of a bookmark's message in the log."""
        return parse_id(self.here or (self.bookmark.id if self.bookmark is not None else "0-0"))

    def cut(self, now: Id, *, behind: bool) -> LogPosition:
        """The place, `behind` what the end names or before it; `now` is the last ID that there is."""
        if self.kind == NOW:
            return LogPosition.behind_all(now)
        if self.bookmark is not None:
            return LogPosition(self.id, self.bookmark.topic, behind)
        if self.kind == EPOCH or self.milliseconds <= 0:
            return LogPosition(FIRST)
        return LogPosition.behind_all((self.milliseconds, _LAST)) if behind else LogPosition((self.milliseconds, 0))


class BookmarkRange(NamedTuple):
    """From one end to another; whether each is within."""

    start: BookmarkEnd
    from_start: bool
    end: BookmarkEnd
    to_end: bool


@dataclass(frozen=True, slots=True)
class BookmarkSpec:
    """The parsed `bookmark` of a subscription: starts, of which the earliest counts, or ranges."""

    starts: tuple[BookmarkEnd, ...] = ()
    ranges: tuple[BookmarkRange, ...] = ()

    @property
    def ends(self) -> Iterable[BookmarkEnd]:
        """All ends that are named."""
        yield from self.starts
        for each in self.ranges:
            yield from (each.start, each.end)

    @property
    def needs_store(self) -> bool:
        """Return whether a bookmark store has to say where the subscription begins."""
        return any(end.kind == MOST_RECENT for end in self.ends)


def parse_bookmark_spec(value: object) -> BookmarkSpec:
    """Read what a subscription begins with.

    Args:
        value: an end, a text with several parted by commas, or a list of ends or of ranges.

    Raises:
        DefinitionError: it is none of these; the text says what is allowed.
    """
    texts = list(value) if isinstance(value, list | tuple) else [value]
    parts = [part for text in texts for part in (split_bookmarks(text) if isinstance(text, str) else [text])]
    if not parts:
        raise DefinitionError(f"bookmark={shown(value)} is empty; allowed: {_ALLOWED}")
    found = [_parse_range(part) or _parse_end(part) for part in parts]
    ranges = tuple(each for each in found if isinstance(each, BookmarkRange))
    starts = tuple(each for each in found if isinstance(each, BookmarkEnd))
    if ranges and starts:
        raise DefinitionError(f"bookmark={shown(value)} has ranges beside other places; allowed: one or the other")
    check_ranges(ranges)
    return BookmarkSpec(starts, ranges)


def check_ranges(ranges: Iterable[BookmarkRange], now: int | None = None, origin: str | None = None) -> None:
    """Refuse ranges that end before they begin; one that is only empty is none of them.

    Args:
        ranges: of them.
        now: the server's time, ms; None: it is not known yet, and whatever needs it is left for later.
        origin: of the instance whose log has them; None: it is not known yet. Bookmarks of others are known by their
            places here.

    Raises:
        DefinitionError: one is; the text names both ends.
    """
    for each in ranges:
        if _is_reversed(each.start, each.end, now, origin):
            raise DefinitionError(
                f"bookmark: the range from {each.start} to {each.end} ends before it begins; allowed: the earlier "
                f"place first, as in [{each.end}:{each.start}]"
            )


def _is_reversed(start: BookmarkEnd, end: BookmarkEnd, now: int | None, origin: str | None) -> bool:
    # What was handled may well be behind the end.
    if MOST_RECENT in {start.kind, end.kind} or start.kind == end.kind == NOW:
        return False
    if EPOCH in {start.kind, end.kind}:
        return start.kind != EPOCH
    if NOW not in {start.kind, end.kind}:
        return _have_order(start, end, origin) and start.cut(FIRST, behind=False) > end.cut(FIRST, behind=False)
    if now is None:
        return False
    return _milliseconds(start, now - _CLOCKS) > _milliseconds(end, now) + (_CLOCKS if end.kind == NOW else 0)


def _have_order(start: BookmarkEnd, end: BookmarkEnd, origin: str | None) -> bool:
    """Return whether two given places have a common order: that of this instance, or that of one other."""
    if any(isinstance(each.bookmark, PublisherBookmark) for each in (start, end)):
        return False
    if start.bookmark is not None and end.bookmark is not None and start.bookmark.origin == end.bookmark.origin:
        # One origin's messages come in its own order, wherever they come to.
        return True
    return all(each.bookmark is None or each.here or each.bookmark.origin == origin for each in (start, end))


def _milliseconds(end: BookmarkEnd, now: int) -> int:
    if end.kind == NOW:
        return now
    return end.id[0] if end.bookmark is not None else end.milliseconds


def _parse_range(value: object) -> BookmarkRange | None:
    found = _RANGE.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        return None
    for colon in (place for place, sign in enumerate(found[2]) if sign == ":"):
        # Times have colons of their own: only at one of them both sides are ends.
        try:
            start, end = _parse_end(found[2][:colon].strip()), _parse_end(found[2][colon + 1 :].strip())
        except DefinitionError:
            continue
        return BookmarkRange(start, found[1] == "[", end, found[3] == "]")
    raise DefinitionError(f"bookmark={shown(value)} is not a range of two places; allowed: {_ALLOWED}")


def _parse_end(value: object) -> BookmarkEnd:
    if isinstance(value, datetime):
        return _time(value, value)
    if value == 0 and isinstance(value, int) and not isinstance(value, bool):
        return BookmarkEnd(EPOCH)
    if isinstance(value, str):
        if word := _WORDS.get(value.lower()):
            return BookmarkEnd(word)
        if "~" in value or "|" in value:
            return BookmarkEnd("bookmark", Bookmark.parse(value))
        if time := _read_time(value):
            return _time(time, value)
    raise DefinitionError(f"bookmark={shown(value)} is no place in a log; allowed: {_ALLOWED}")


def _read_time(text: str) -> datetime | None:
    """A time in UTC where the text says nothing else, as in AMPS's form, whose Z may be left out."""
    if compact := _COMPACT.fullmatch(text):
        text = f"{compact[1]}T{compact[2]}{compact[3] or ''}+00:00"
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    return found.replace(tzinfo=UTC) if found.tzinfo is None else found


def _time(time: datetime, given: object) -> BookmarkEnd:
    if time.tzinfo is None:
        raise DefinitionError(f"bookmark={shown(given)} has no time zone; allowed: {_ALLOWED}")
    return BookmarkEnd("time", milliseconds=max(round(time.timestamp() * 1000), 0))


class LogSpan(NamedTuple):
    """A stretch of one topic's log: behind `after`, up to `last`; None: for ever."""

    after: Id
    last: Id | None


def spans_of(asked: BookmarkSpec, topic: str, now: Id, kept: StoredPosition | None) -> list[LogSpan]:
    """Return the stretches of one topic's log that are asked for: they follow each other and do not overlap.

    Args:
        asked: what is asked for.
        topic: the topic.
        now: the last ID of its log when the subscription began; of a topic that came later, the last one of all.
        kept: what a bookmark store says, for `MOST_RECENT`; None: it has nothing, which is the epoch.
    """

    def place(end: BookmarkEnd, *, behind: bool) -> Id:
        if end.kind == MOST_RECENT:
            return kept.last_before(topic) if kept is not None else FIRST
        return end.cut(now, behind=behind).last_before(topic)

    if asked.starts:
        # A bookmark is of a message that was handled, a time of one that was not.
        return [LogSpan(min(place(end, behind=end.bookmark is not None) for end in asked.starts), None)]
    found: list[LogSpan] = []
    for each in asked.ranges:
        span = LogSpan(place(each.start, behind=not each.from_start), place(each.end, behind=each.to_end))
        if span.last is not None and span.after < span.last:
            found.append(span)
    return _united(sorted(found))


def _united(spans: list[LogSpan]) -> list[LogSpan]:
    united: list[LogSpan] = []
    for span in spans:
        if united and united[-1].last is not None and span.after <= united[-1].last:
            united[-1] = LogSpan(united[-1].after, max(united[-1].last, span.last or united[-1].last))
        else:
            united.append(span)
    return united
