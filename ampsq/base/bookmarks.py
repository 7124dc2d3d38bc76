"""The identities of messages: bookmarks for users, refs within one instance, origins."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Self, overload

from ampsq.base.errors import DefinitionError
from ampsq.base.values import NAME_PATTERN, shown

if TYPE_CHECKING:
    from collections.abc import Iterable


__all__ = [
    "Bookmark",
    "Bookmarks",
    "Origin",
    "PublisherBookmark",
    "milliseconds_of_ref",
    "parse_ref",
    "recorded_by",
    "ref_of",
    "split_bookmarks",
]


_BOOKMARK_ALLOWED = (
    "<topic>~<origin>~<stream id>, as in 'orders~nyc-1.t6w1xk~1763640000000-0', or <publisher>|<sequence>, as in "
    "'till|5', with a backslash before each '|', ',', '\\' and space of the name"
)
_REF_ALLOWED = "a ref as ampsq shows it, as in 'm1763640000000b12/orders'"
_ID_ALLOWED = "<milliseconds>-<sequence>, as in '1763640000000-0'"
_MAX_ID_PART = 2**64
_DIGITS = "(0|[1-9][0-9]{0,19})"
_ID = re.compile(f"{_DIGITS}-{_DIGITS}")
_BOOKMARK = re.compile(rf"{NAME_PATTERN.pattern}~[A-Za-z0-9_.-]{{1,255}}\.[A-Za-z0-9]{{1,64}}~{_DIGITS}-{_DIGITS}")
_ESCAPED = re.compile(r"([\\|, ])")
_PUBLISHER_BOOKMARK = re.compile(r"((?:[^\\|, ]|\\.)+)\|(0|[1-9][0-9]{0,15})", re.DOTALL)
_COMMA = re.compile(r"\\.|,", re.DOTALL)
_REF = re.compile(rf"([a-t]){_DIGITS}([a-t]){_DIGITS}/({NAME_PATTERN.pattern})")
# The letter of a number's length: `a` for one digit to `t` for the twenty of an unsigned 64-bit number.
_LETTER = " abcdefghijklmnopqrst"


class Origin(str):
    """Name of an instance, a dot and its incarnation, with its former ones as far as its logs hold anything of them.

    It *is* its text, as a `Bookmark` is.

    Attributes:
        former: those before, the first one first, each with the last ID (both of its numbers) that it recorded.
    """

    __slots__ = ("former",)

    former: tuple[tuple[tuple[int, int], str], ...]

    def __new__(cls, text: str, former: Iterable[tuple[tuple[int, int], str]] = ()) -> Self:
        """Make it of its text and those before."""
        made = super().__new__(cls, text)
        made.former = tuple(former)
        return made

    def at(self, stream_id: tuple[int, int]) -> str:
        """Return the origin under which this instance recorded an entry of its own, which is no copy."""
        return next((origin for last, origin in self.former if stream_id <= last), str(self))


def recorded_by(origin: str, stream_id: str) -> str:
    """The incarnation that recorded what is no copy in the logs of an instance, by its entry's ID."""
    if not isinstance(origin, Origin) or not origin.former:
        return origin
    milliseconds, _, sequence = stream_id.partition("-")
    return origin.at((int(milliseconds), int(sequence)))


class Bookmark(str):
    """The public identity of a message, the same on every instance, for ever.

    Its text is ``<topic>~<origin>~<stream id>``, as in ``orders~nyc-1.t6w1xk~1763640000000-0``. The origin
    is the name of the instance at which the message was first published, a dot, and that instance's
    incarnation.

    It *is* its text: equal to it, hashed like it, ready for JSON and for Redis. The constructor takes a
    text that is known to be a bookmark; `parse` checks one that a person or another program gave. Texts do
    not sort in the order of publication; refs do.
    """

    __slots__ = ()

    @staticmethod
    def parse(text: str) -> Bookmark:
        """Check a text from outside, which may also be a `PublisherBookmark`.

        Raises:
            DefinitionError: the text is neither; the error shows the forms.
        """
        # No bookmark has this sign in it.
        if isinstance(text, str) and "|" in text and _PUBLISHER_BOOKMARK.fullmatch(text):
            return PublisherBookmark(text)
        if not isinstance(text, str) or _BOOKMARK.fullmatch(text) is None or not _fits(text.rpartition("~")[2]):
            raise DefinitionError(f"{shown(text)} is not a bookmark; allowed: {_BOOKMARK_ALLOWED}")
        return Bookmark(text)

    @classmethod
    def parse_own(cls, text: str, origin: str) -> Bookmark:
        """Check a text from outside that should be of a message of this origin.

        Raises:
            DefinitionError: the text is not a bookmark, or one of another origin.
        """
        bookmark = cls.parse(text)
        if bookmark.origin != origin:
            raise DefinitionError(f"bookmark {str(text)!r} is of origin {bookmark.origin}, not of {origin}")
        return bookmark

    @staticmethod
    def of_publisher(publisher: str, sequence: int) -> Bookmark:
        """Name a message by its publisher and the number that it has there."""
        escaped = _ESCAPED.sub(r"\\\1", publisher)
        return PublisherBookmark(f"{escaped}|{sequence}")

    @classmethod
    def of(cls, topic: str, origin: str, stream_id: str) -> Self:
        """Join the three parts, which are known to be right."""
        return cls(f"{topic}~{origin}~{stream_id}")

    @property
    def topic(self) -> str:
        """The topic that the message was published to."""
        return self.partition("~")[0]

    @property
    def origin(self) -> str:
        """Instance name, dot, incarnation of the instance where the message was first published."""
        return self.split("~", 2)[1]

    @property
    def id(self) -> str:
        """The ID of its entry in the origin's log: milliseconds, dash, sequence."""
        return self.rpartition("~")[2]

    def __repr__(self) -> str:
        return f"Bookmark({str(self)!r})"


class PublisherBookmark(Bookmark):
    """A message as its publisher knows it, ``<publisher>|<sequence>``: accepted wherever a bookmark is, and looked for.

    The message may have any topic that is meant where it is named, so that it has none by itself, and no origin.
    """

    __slots__ = ()

    @property
    def publisher(self) -> str:
        """The publisher's name."""
        return re.sub(r"\\(.)", r"\1", self.rpartition("|")[0], flags=re.DOTALL)

    @property
    def sequence(self) -> int:
        """The number that the publisher gave it."""
        return int(self.rpartition("|")[2])

    @property
    def topic(self) -> str:
        """None is known."""
        return ""

    @property
    def origin(self) -> str:
        """None is known."""
        return ""

    @property
    def id(self) -> str:
        """None is known: before all others."""
        return "0-0"


def split_bookmarks(text: str) -> list[str]:
    """Read a list with commas; one with a backslash before it is part of a name."""
    parts, begin = [], 0
    for comma in _COMMA.finditer(text):
        if comma[0] == ",":
            parts.append(text[begin : comma.start()])
            begin = comma.end()
    return [part.strip() for part in [*parts, text[begin:]]]


def _fits(stream_id: str) -> bool:
    """Say whether both parts of a well-formed stream ID are unsigned 64-bit numbers, as Redis demands."""
    milliseconds, _, sequence = stream_id.partition("-")
    return int(milliseconds) < _MAX_ID_PART and int(sequence) < _MAX_ID_PART


def ref_of(topic: str, stream_id: str) -> str:
    """Write a message's place in a queue as a text whose order is the order of arrival.

    Each number of the stream ID is preceded by a letter for its length, so that texts sort as the numbers do:
    ``1763640000000-12`` of ``orders`` is ``m1763640000000b12/orders``. Equal IDs sort by topic.

    Args:
        topic: the topic's name, which is not checked again.
        stream_id: the ID of the entry in this instance's log of the topic.

    Raises:
        DefinitionError: the ID is not ``<milliseconds>-<sequence>`` without leading zeros.
    """
    parts = _ID.fullmatch(stream_id)
    if parts is None:
        raise DefinitionError(f"{shown(stream_id)} is not a stream ID; allowed: {_ID_ALLOWED}")
    milliseconds, sequence = parts[1], parts[2]
    return f"{_LETTER[len(milliseconds)]}{milliseconds}{_LETTER[len(sequence)]}{sequence}/{topic}"


def parse_ref(ref: str) -> tuple[str, str]:
    """Read a ref back.

    Returns:
        The topic and the stream ID.

    Raises:
        DefinitionError: the text is no ref.
    """
    parts = _REF.fullmatch(ref)
    if parts is None or _LETTER[len(parts[2])] != parts[1] or _LETTER[len(parts[4])] != parts[3]:
        raise DefinitionError(f"{shown(ref)} is not a ref; allowed: {_REF_ALLOWED}")
    return parts[5], f"{parts[2]}-{parts[4]}"


def milliseconds_of_ref(ref: bytes) -> int:
    """Return the time in a ref of this instance, ms, without reading the rest of it."""
    # The letter in front says how many digits there are.
    return int(ref[1 : ref[0] - ord("a") + 2])


class Bookmarks(Sequence[Bookmark]):
    """The bookmarks of many published messages, made when they are looked at: a million cost nothing until then."""

    __slots__ = ("_origin", "_runs", "_total")

    def __init__(self, origin: str) -> None:
        self._origin = origin
        # The number of the first one, its topic, and its ID as two parts; or its bookmark.
        self._runs: list[tuple[int, str, Bookmark | tuple[str, int]]] = []
        self._total = 0

    def add_run(self, topic: str, first_id: str, number: int) -> None:
        """Add `number` messages whose IDs follow each other."""
        ms, sequence = first_id.split("-")
        self._runs.append((self._total, topic, (ms, int(sequence))))
        self._total += number

    def add(self, bookmark: Bookmark) -> None:
        """Add one message; one with an empty ID is a duplicate whose first record is not found any more."""
        self._runs.append((self._total, bookmark.topic, bookmark))
        self._total += 1

    def __len__(self) -> int:
        return self._total

    @overload
    def __getitem__(self, index: int) -> Bookmark: ...
    @overload
    def __getitem__(self, index: slice) -> list[Bookmark]: ...
    def __getitem__(self, index: int | slice) -> Bookmark | list[Bookmark]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(self._total))]
        at = index + self._total if index < 0 else index
        if not 0 <= at < self._total:
            raise IndexError(index)
        low, high = 0, len(self._runs)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self._runs[middle][0] <= at else (low, middle)
        start, topic, first = self._runs[low]
        if isinstance(first, Bookmark):
            return first
        return Bookmark.of(topic, self._origin, f"{first[0]}-{first[1] + at - start}")
