"""Places of messages that bookmarks name, and names of messages that are here; flows."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ampsq.base.bookmarks import Bookmark, PublisherBookmark, ref_of, split_bookmarks
from ampsq.protocol.calls.catalog import catalog
from ampsq.protocol.limits import BATCH
from ampsq.protocol.request import script_call

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ampsq.protocol.request import Call

__all__ = ["LocatedMessage", "find_bookmark", "find_bookmarks", "name_message", "name_messages"]


class LocatedMessage(NamedTuple):
    """The place of a message that a bookmark names.

    Attributes:
        bookmark: its name; of one that was named by its publisher's number its own, where it is here.
        id: of its entry in this instance's log; "" where it is not here. Of a message that was published here it is
            what the bookmark says, whether the log still has that or not.
        may_come: it is not here, and may still come.
    """

    bookmark: Bookmark
    id: str
    may_come: bool

    @property
    def ref(self) -> str:
        """The message's place here; "" where it is not here."""
        return ref_of(self.bookmark.topic, self.id) if self.id else ""

    @property
    def absence(self) -> str:
        """Reason why it is not here, as the end of a sentence."""
        if isinstance(self.bookmark, PublisherBookmark):
            publisher, sequence = self.bookmark.publisher, self.bookmark.sequence
            return (
                f"no log that was looked through has a message of publisher {publisher!r} with the number {sequence}: "
                "it is to come, or has another topic, or the retention has removed it here"
            )
        topic, origin, stream_id = self.bookmark.topic, self.bookmark.origin, self.bookmark.id
        if self.may_come:
            return (
                f"its origin is {origin}, of whose messages of topic {topic!r} this instance does not have all up to "
                f"{stream_id} yet: where a link brings them, it is to come"
            )
        return (
            f"its origin is {origin}, of whose messages of topic {topic!r} this instance has all up to {stream_id} "
            "that links let through: a link's filter kept it out, or the retention has removed it here"
        )


class _NumbersFound(NamedTuple):
    """One step of looking for publishers' numbers in a log: where the next begins, "" for nowhere, and what was found.

    Attributes:
        next: an ID.
        found: of each message its place among the wanted ones, its ID and its bookmark.
    """

    next: str
    found: list[tuple[int, str, Bookmark]]

    @classmethod
    def of(cls, reply: tuple[bytes, *tuple[int | bytes, ...]]) -> _NumbersFound:
        start, *flat = reply
        rows = zip(flat[::3], flat[1::3], flat[2::3], strict=True)
        return cls(start.decode(), [(int(place), _text(at), Bookmark(_text(name))) for place, at, name in rows])


def _text(part: int | bytes) -> str:
    return part.decode() if isinstance(part, bytes) else str(part)


def _find(bookmarks: Sequence[str]) -> Call[list[bytes]]:
    return script_call("find_bookmarks", list(bookmarks), list[bytes], repeatable=True)


def _name(refs: Sequence[str | bytes]) -> Call[list[bytes]]:
    return script_call("name_messages", list(refs), list[bytes], repeatable=True)


def _find_numbers(topic: str, start: str, named: Sequence[PublisherBookmark]) -> Call[_NumbersFound]:
    names = [text for each in named for text in (str(each.sequence), each.publisher)]
    return script_call("find_numbers", [topic, start, *names], _NumbersFound.of, repeatable=True)


async def find_bookmarks(
    origin: str, texts: Iterable[Bookmark | str], topics: Iterable[str] | None = None
) -> list[LocatedMessage]:
    """Find the messages that bookmarks name; one call for many of other origins, none for the others.

    Those that publishers' numbers name are looked for from the ends of logs on, in calls that are all short.

    Args:
        origin: this instance's; "" where it is not known.
        texts: bookmarks, which people may have given, or several in a text, with commas between.
        topics: where publishers' numbers are looked for; None: in all topics.

    Raises:
        DefinitionError: one is no bookmark.
    """
    named = [Bookmark.parse(part) for text in texts for part in _parts(text)]
    numbers = list(dict.fromkeys(each for each in named if isinstance(each, PublisherBookmark)))
    known: dict[str, LocatedMessage] = await _by_number(numbers, topics) if numbers else {}
    foreign = [each for each in dict.fromkeys(named) if each.origin != origin and each not in numbers]
    for first in range(0, len(foreign), BATCH):
        some = foreign[first : first + BATCH]
        found: list[bytes] = await _find(some)
        for bookmark, word in zip(some, found, strict=True):
            known[bookmark] = LocatedMessage(bookmark, "" if word in (b"+", b"-") else word.decode(), word == b"+")
    return [known.get(bookmark) or LocatedMessage(bookmark, bookmark.id, may_come=False) for bookmark in named]


def _parts(text: Bookmark | str) -> Sequence[str]:
    return [text] if isinstance(text, Bookmark) or not isinstance(text, str) else split_bookmarks(text)


async def _by_number(numbers: Sequence[PublisherBookmark], topics: Iterable[str] | None) -> dict[str, LocatedMessage]:
    """Return the places of messages that are named by their publishers' numbers."""
    known: dict[str, LocatedMessage] = {}
    for topic in list((await catalog()).topics) if topics is None else topics:
        for first in range(0, len(numbers), BATCH):
            start = "+"
            left = [each for each in numbers[first : first + BATCH] if each not in known]
            while left and start:
                start, found = await _find_numbers(topic, start, left)
                for place, stream_id, name in found:
                    known[left[place]] = LocatedMessage(name, stream_id, may_come=False)
                left = [each for each in left if each not in known]
    return {each: known.get(each) or LocatedMessage(each, "", may_come=True) for each in numbers}


async def find_bookmark(
    origin: str, text: Bookmark | str, topics: Iterable[str] | None = None
) -> LocatedMessage:  # fmt: skip
    """The same of one bookmark."""
    found: list[LocatedMessage] = await find_bookmarks(origin, [Bookmark.parse(text)], topics)
    return found[0]


async def name_messages(refs: Sequence[str | bytes]) -> list[Bookmark]:
    """The bookmarks of messages that are here. One that its log does not have is named as if it was published here."""
    names: list[Bookmark] = []
    while len(names) < len(refs):
        found: list[bytes] = await _name(refs[len(names) : len(names) + BATCH])
        names += [Bookmark(name.decode()) for name in found]
    return names


async def name_message(topic: str, stream_id: str) -> Bookmark:
    """The bookmark of the one message that has this ID here."""
    return (await name_messages([ref_of(topic, stream_id)]))[0]
