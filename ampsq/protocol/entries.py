"""An entry of a log: the fields of its message and, of a copy, where that was published first."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from ampsq.base.bookmarks import Bookmark, recorded_by
from ampsq.protocol.schema import FIELDS, VALUES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = [
    "MessageTimes",
    "PublishedFields",
    "PublisherNumber",
    "RawEntry",
    "SameMessage",
    "body_in",
    "body_of",
    "bookmark_of",
    "deletes_record",
    "ended_record_in",
    "group_in",
    "headers_in",
    "headers_of",
    "is_message",
    "may_have_source",
    "number_in",
    "own_fields",
    "path_in",
    "publisher_in",
    "read_entry",
    "read_publication",
    "read_same_entry",
    "source_in",
    "times_in",
    "with_source",
]

#: An entry as a log has it: its ID, and its fields, names and values in turn.
RawEntry: TypeAlias = "tuple[bytes, list[bytes]]"
_BODY, _HEADERS = FIELDS["body"].encode(), FIELDS["headers"].encode()
_SOURCE, _PATH = FIELDS["source"].encode(), FIELDS["path"].encode()
_ADDRESSED, _EXPIRATION, _DUE = (FIELDS[name].encode() for name in ("addressed", "expiration", "due"))
_GROUP = FIELDS["in_group"].encode()
_HERE, _RECORD, _ENDED = (FIELDS[name].encode() for name in ("here", "record", "ended"))
_NOWHERE, _DELETED = str(VALUES["nowhere"]).encode(), str(VALUES["deleted"]).encode()
_PUBLISHER, _SEQUENCE = FIELDS["publisher"].encode(), FIELDS["sequence"].encode()
#: Fields, names and values in turn, of an entry that says where it was published, and of its message only the body.
_BARE: Final = 6
#: Digits of a number that a field has.
_DIGITS: Final = 18
#: Numbers above it are none of ours: they would not be exact on the server.
_LAST_NUMBER: Final = 2**53
#: Views number their messages at each instance for itself.
_VIEWS: Final = "view:"
_FORM: Final = re.compile(rb"[^~]+~[0-9]+-[0-9]+")


def may_have_source(names: Sequence[bytes]) -> bool:
    """Return whether entries with fields of these names may be copies, so that `source_in` has to tell."""
    return len(names) > 1 and names[-1] == _PATH and names[-2] == _SOURCE


def source_in(flat: Sequence[bytes]) -> str:
    """Return the first place of publication of an entry's message, ``<origin>~<id>``; "" of one published here.

    The last two fields of a copy say that and the way it came, as lua/log/lib/source.lua reads them. An entry that
    somebody wrote without ampsq may end with fields of these names, too.

    Args:
        flat: names and values in turn.
    """
    if len(flat) > 3 and flat[-2] == _PATH and flat[-4] == _SOURCE and _FORM.fullmatch(flat[-3]):  # noqa: PLR2004
        return flat[-3].decode()
    return ""


def with_source(flat: list[bytes], source: str) -> list[bytes]:
    """An entry of a message that was published here, as one that says so."""
    return [*flat, _SOURCE, source.encode(), _PATH, b""]


def own_fields(flat: Sequence[bytes]) -> Sequence[bytes]:
    """The fields that the message itself has, names and values in turn."""
    return flat[:-4] if source_in(flat) else flat


def read_entry(flat: Sequence[bytes]) -> tuple[dict[bytes, bytes], str]:
    """The message's own fields by name, and its source as `source_in` gives it."""
    source = source_in(flat)
    own = flat[:-4] if source else flat
    return dict(zip(own[::2], own[1::2], strict=True)), source


def body_in(fields: Mapping[bytes, bytes]) -> bytes | None:
    """The body of a message; None of an entry that somebody wrote without ampsq."""
    return fields.get(_BODY)


def publisher_in(fields: Mapping[bytes, bytes]) -> bytes:
    """The name of a message's publisher; empty where it has none."""
    return fields.get(_PUBLISHER, b"") if _BODY in fields else b""


def ended_record_in(fields: Mapping[bytes, bytes]) -> bytes:
    """The key of the record that ended, of an entry that tells of such an end."""
    return fields[_RECORD]


def deletes_record(fields: Mapping[bytes, bytes]) -> bool:
    """Return True of an entry that tells that a record was deleted, not of one whose time was over."""
    return fields.get(_ADDRESSED) == _NOWHERE and fields.get(_ENDED) == _DELETED and _RECORD in fields


def headers_in(fields: Mapping[bytes, bytes]) -> bytes:
    """The headers of a message, JSON; empty where it has none."""
    return fields.get(_HEADERS, b"") if _BODY in fields else b""


def group_in(fields: Mapping[bytes, bytes]) -> bytes:
    """The group that a message's publisher said; empty where it said none."""
    return fields.get(_GROUP, b"") if _BODY in fields else b""


def body_of(flat: Sequence[bytes]) -> bytes | None:
    """The body of an entry as a log has it; None of one that somebody wrote without ampsq."""
    return flat[1] if flat[0] == _BODY else None


def headers_of(flat: Sequence[bytes]) -> bytes | None:
    """The headers, JSON, of an entry as a log has it; None where it has none."""
    return dict(zip(flat[2::2], flat[3::2], strict=True)).get(_HEADERS) if flat[0] == _BODY else None


def is_message(flat: Sequence[bytes]) -> bool:
    """Return True where an entry was published to its topic; others are for one queue alone, or no message."""
    return len(flat) == 2 or flat[0] != _BODY or _ADDRESSED not in flat[2::2]  # noqa: PLR2004


class MessageTimes(NamedTuple):
    """The lifetime of a message, and the time when it is due, both in ms; 0 for what it does not say."""

    expiration: int
    due: int


def times_in(fields: Mapping[bytes, bytes]) -> MessageTimes:
    """Read the lifetime and the due time of a message."""
    if _BODY not in fields:
        return MessageTimes(0, 0)
    return MessageTimes(int(fields.get(_EXPIRATION, 0)), int(fields.get(_DUE, 0)))


def path_in(flat: Sequence[bytes]) -> list[str]:
    """The origins that a copy came through, the one that it came from here first."""
    return [hop.partition("/")[0] for hop in flat[-1].decode().split(" ")]


@dataclass(frozen=True, slots=True)
class PublishedFields:
    """The headers and times with which a message was published.

    Attributes:
        size: bytes of its body.
        headers: JSON; "" for none.
        publisher: the publisher's name; "" for none.
        sequence: its publisher's number.
        expiration: ms for which it lives.
        due: ms when it is due.
        addressed: the queue that it is for alone; "" for none.
    """

    size: int
    headers: str
    publisher: str
    sequence: int | None
    expiration: int | None
    due: int | None
    addressed: str


def read_publication(flat: Sequence[bytes]) -> PublishedFields | None:
    """Read what an entry's message was published with; None of an entry that somebody wrote without ampsq."""
    fields, _ = read_entry(flat)
    body = fields.get(_BODY)
    if body is None:
        return None

    def text(name: str) -> str:
        return fields.get(FIELDS[name].encode(), b"").decode(errors="replace")

    def number(name: str) -> int | None:
        found = text(name)
        return int(found) if found.isdecimal() and len(found) <= _DIGITS else None

    return PublishedFields(
        len(body), text("headers"), text("publisher"), number("sequence"), number("expiration"), number("due"),
        text("addressed"),
    )  # fmt: skip


def bookmark_of(topic: str, origin: str, stream_id: str, source: str) -> Bookmark:
    """The bookmark of a message.

    Args:
        topic: its topic.
        origin: of the instance that has it; an `Origin` where that may have been another incarnation.
        stream_id: the ID of its entry there.
        source: as `source_in` gives it.
    """
    return Bookmark(f"{topic}~{source}") if source else Bookmark.of(topic, recorded_by(origin, stream_id), stream_id)


class SameMessage(NamedTuple):
    """A message that is here, and came under another bookmark, too.

    Attributes:
        here: the ID of its entry here.
        origin: of that bookmark.
        id: of that bookmark.
        path: the instances that it passed so, the last one in front.
    """

    here: str
    origin: str
    id: bytes
    path: str


def read_same_entry(flat: Sequence[bytes]) -> SameMessage:
    """Read an entry of the stream of those messages, names and values in turn."""
    facts = dict(zip(flat[::2], flat[1::2], strict=True))
    origin, _, there = facts[_SOURCE].partition(b"~")
    return SameMessage(facts[_HERE].decode(), origin.decode(), there, facts[_PATH].decode())


class PublisherNumber(NamedTuple):
    """A message as its publisher knows it.

    Attributes:
        topic: its topic.
        publisher: its publisher's name.
        origin: of the instance that recorded it.
        number: its sequence.
        recorded: when it was recorded there, ms.
    """

    topic: str
    publisher: str
    origin: str
    number: int
    recorded: int


def number_in(topic: str, flat: Sequence[bytes]) -> PublisherNumber | None:
    """Return an entry's publisher and sequence; None of a message without a named publisher.

    Args:
        topic: its topic.
        flat: names and values in turn; the last ones say where it was published, as `with_source` has it.
    """
    if len(flat) == _BARE or flat[0] != _BODY:
        return None
    # Mostly these are all that an entry has beside its body.
    names = (_PUBLISHER, _SEQUENCE) if flat[2] == _PUBLISHER and flat[4] == _SEQUENCE else flat[2:-4:2]
    try:
        name = flat[2 * names.index(_PUBLISHER) + 3].decode()
        number = int(flat[2 * names.index(_SEQUENCE) + 3])
    except ValueError:
        # It has none, or somebody wrote it without ampsq.
        return None
    if name.startswith(_VIEWS) or not 0 <= number <= _LAST_NUMBER:
        return None
    origin, _, stream_id = flat[-3].partition(b"~")
    return PublisherNumber(topic, name, origin.decode(), number, int(stream_id.partition(b"-")[0]))
