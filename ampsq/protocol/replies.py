"""Replies as plain values, whatever form the server's protocol gives them.

A reader of a reply says of what it is made. A list whose places have their own types is annotated as a tuple.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias, TypeVar

from ampsq.base.log_positions import FIRST, parse_id

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ampsq.base.log_positions import Id
    from ampsq.protocol.entries import RawEntry

__all__ = [
    "RawFacts",
    "RawHash",
    "RawStreams",
    "facts",
    "last_id",
    "name_set",
    "names",
    "number",
    "pairs",
    "plain",
    "streams",
    "text",
    "texts",
]

T = TypeVar("T")
#: A hash, or members and scores: in turn, or as a dict.
RawHash: TypeAlias = "list[bytes] | dict[bytes, bytes]"
#: What ``XINFO`` and the like give: names and values of several kinds, in turn or as a dict.
RawFacts: TypeAlias = "list[object] | dict[object, object]"
#: What ``XREAD`` gives: keys of streams, and of each its entries; None where none has any.
RawStreams: TypeAlias = "Sequence[tuple[bytes, list[RawEntry]]] | dict[bytes, list[RawEntry]] | None"


def plain(reply: T) -> T:
    """Give a reply as it came."""
    return reply


def text(reply: bytes | None) -> str:
    """Read one value; "" where there is none."""
    return reply.decode() if reply else ""


def pairs(reply: RawHash) -> Iterable[tuple[bytes, bytes]]:
    """Names and values of a hash, which come in turn or as a dict."""
    return zip(reply[::2], reply[1::2], strict=True) if isinstance(reply, list) else reply.items()


def facts(reply: RawFacts) -> dict[object, object]:
    """Read facts by their names."""
    return dict(zip(reply[::2], reply[1::2], strict=True)) if isinstance(reply, list) else reply


def number(fact: object) -> int:
    """Read a fact that is a number."""
    if not isinstance(fact, int):
        raise TypeError(f"the server gave {fact!r}, where a number is due")
    return fact


def names(reply: Iterable[bytes]) -> list[str]:
    """Read names, or other texts, in the order in which they came."""
    return [name.decode() for name in reply]


def name_set(reply: Iterable[bytes]) -> set[str]:
    """Read names that are in no order."""
    return {name.decode() for name in reply}


def texts(reply: RawHash) -> dict[str, str]:
    """Read a hash of texts."""
    return {name.decode(): value.decode() for name, value in pairs(reply)}


def last_id(reply: Sequence[RawEntry]) -> Id:
    """Read the ID of the only entry of a page; `FIRST` where there is none."""
    return parse_id(reply[0][0]) if reply else FIRST


def streams(reply: RawStreams) -> Mapping[bytes, list[RawEntry]]:
    """Read what ``XREAD`` gives: of each stream that has news its key, and its entries."""
    return reply if isinstance(reply, dict) else dict(reply or ())
