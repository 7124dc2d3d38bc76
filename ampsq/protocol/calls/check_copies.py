"""The calls that check what an instance keeps of others' messages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from ampsq.protocol.request import Call, command, script_call
from ampsq.protocol.schema import key

if TYPE_CHECKING:
    from collections.abc import Iterable

    from redis.typing import EncodableT

__all__ = ["CopyFaults", "OwnedMessage", "check_copies", "check_owners", "has_copies", "has_links"]

#: What the script `check_copies` counts, in its order.
_COUNTED: Final = ("copy_missing", "received_behind", "told_in_vain", "counting_wrong", "request_stray")


@dataclass(frozen=True, slots=True)
class CopyFaults:
    """Differences in a part of the index of copies beside a log.

    Attributes:
        next: where the next part begins; "": there is none.
        counts: word -> how many.
    """

    next: str
    counts: dict[str, int]


class OwnedMessage(NamedTuple):
    """A message of which the journal says that it was transferred.

    Attributes:
        ref: the message.
        owner: to whom it was transferred last.
        epoch: how often its owner has changed.
        by: the origin that says so.
        source: ``<origin>~<id>`` of the bookmark that it was named by.
    """

    ref: bytes
    owner: bytes
    epoch: int
    by: str
    source: bytes


def has_copies(instance: str, topic: str) -> Call[bool]:
    """Ask whether anything is kept beside a topic's log since copies are in it, or are told of."""
    return command(["EXISTS", *(key(instance, name, topic) for name in ("origins", "same", "deferred"))], bool)


def has_links(instance: str) -> Call[bool]:
    """Ask whether an instance has anything of others, or destinations."""
    return command(["EXISTS", key(instance, "received"), key(instance, "destinations")], bool)


def check_copies(topic: str, after: str, *, repair: bool) -> Call[CopyFaults]:
    """Look through a part of what is kept beside the log of a topic that has copies; "0-0": from the beginning on."""

    def read(reply: tuple[bytes, *tuple[int, ...]]) -> CopyFaults:
        following, *counts = reply
        return CopyFaults(following.decode(), dict(zip(_COUNTED, counts, strict=True)))

    return script_call("check_copies", ["", topic, after, int(repair)], read, repeatable=True)


def check_owners(queue: str, messages: Iterable[OwnedMessage], *, repair: bool) -> Call[int]:
    """Look which of some messages, 500 at most, the queue does not know the owner of; gives how many."""
    rows: list[EncodableT] = [value for message in messages for value in message]
    return script_call("check_owners", ["", queue, int(repair), *rows], len, repeatable=True)
