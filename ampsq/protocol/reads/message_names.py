"""Where messages are here that bookmarks name, and how messages are named that are here; flows."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ampsq.base.bookmarks import Bookmark, ref_of
from ampsq.protocol.request import script_call
from ampsq.protocol.schema import BATCH

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ampsq.protocol.request import Call

__all__ = ["LocatedMessage", "find_bookmark", "find_bookmarks", "name_message", "name_messages"]


class LocatedMessage(NamedTuple):
    """Where a message is that a bookmark names.

    Attributes:
        bookmark: its name.
        id: of its entry in this instance's log; "" where it is not here. Of a message that was published here it is
            what the bookmark says, whether the log still has that or not.
        may_come: it is not here, and may still come.
    """

    bookmark: Bookmark
    id: str
    may_come: bool

    @property
    def ref(self) -> str:
        """Its place here; "" where it is not here."""
        return ref_of(self.bookmark.topic, self.id) if self.id else ""

    @property
    def absence(self) -> str:
        """Why it is not here, as the end of a sentence."""
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


def _find(bookmarks: Sequence[str]) -> Call[list[bytes]]:
    return script_call("find_bookmarks", list(bookmarks), list[bytes], repeatable=True)


def _name(refs: Sequence[str | bytes]) -> Call[list[bytes]]:
    return script_call("name_messages", list(refs), list[bytes], repeatable=True)


async def find_bookmarks(origin: str, texts: Iterable[Bookmark | str]) -> list[LocatedMessage]:
    """Find the messages that bookmarks name; one call for many of other origins, none for the others.

    Args:
        origin: this instance's; "" where it is not known.
        texts: bookmarks, which people may have given.

    Raises:
        DefinitionError: one is no bookmark.
    """
    bookmarks = [Bookmark.parse(text) for text in texts]
    foreign = [bookmark for bookmark in dict.fromkeys(bookmarks) if bookmark.origin != origin]
    known: dict[str, LocatedMessage] = {}
    for first in range(0, len(foreign), BATCH):
        some = foreign[first : first + BATCH]
        found: list[bytes] = await _find(some)
        for bookmark, word in zip(some, found, strict=True):
            known[bookmark] = LocatedMessage(bookmark, "" if word in (b"+", b"-") else word.decode(), word == b"+")
    return [known.get(bookmark) or LocatedMessage(bookmark, bookmark.id, may_come=False) for bookmark in bookmarks]


async def find_bookmark(origin: str, text: Bookmark | str) -> LocatedMessage:
    """The same of one bookmark."""
    found: list[LocatedMessage] = await find_bookmarks(origin, [text])
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
