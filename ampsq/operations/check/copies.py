"""Checking what an instance keeps of others' messages: where copies are, how far they came, who owns them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ampsq.base.log_positions import parse_id
from ampsq.protocol.reads.origin import read_origin
from ampsq.protocol.request import command, script_call
from ampsq.protocol.schema import BATCH, FIELDS, VALUES, key

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ampsq.base.bookmarks import Origin
    from ampsq.operations.check.messages import Findings

__all__ = ["check_copies", "check_owners"]

#: What `check_copies.lua` counts, in its order.
_WORDS: Final = ("copy_missing", "received_behind", "told_in_vain", "counting_wrong", "request_stray")
#: Entries of a journal that are read at a time.
_PAGE: Final = 200
_HOW, _REFS, _OWNER, _EPOCHS, _BOOKMARKS, _SOURCE = (
    FIELDS[name].encode() for name in ("how", "refs", "owner", "epochs", "bookmarks", "source")
)
_TRANSFERRED, _GIVEN_BACK = str(VALUES["transferred"]).encode(), str(VALUES["given_back"]).encode()


async def check_copies(instance: str, topics: Sequence[str], findings: Findings, *, repair: bool) -> None:
    """Check what is kept beside the logs of topics that have copies."""
    for topic in topics:
        names = [key(instance, name, topic) for name in ("origins", "same", "deferred")]
        after = "0-0" if (await command(["EXISTS", *names], bool)) else ""
        while after:
            arguments: list[str | int] = ["", topic, after, int(repair)]
            after, *numbers = await script_call("check_copies", arguments, _counts, repeatable=True)
            for word, number in zip(_WORDS, numbers, strict=True):
                findings.add(word, number)


async def check_owners(instance: str, queue: str, findings: Findings, *, repair: bool) -> None:
    """Check who owns the messages of a queue against the transfers that its journal has and that still count."""
    if not (await command(["EXISTS", key(instance, "received"), key(instance, "destinations")], bool)):
        return
    rows = await _transfers(instance, queue)
    for first in range(0, len(rows), BATCH):
        arguments = ["", queue, int(repair), *(text for row in rows[first : first + BATCH] for text in row)]
        findings.add("owner_missing", (await script_call("check_owners", arguments, len, repeatable=True)))


async def _transfers(instance: str, queue: str) -> list[tuple[bytes, bytes, bytes, str, bytes]]:
    """Of each message and bookmark the highest transfer; not of what was settled since."""
    own: Origin = await read_origin(instance)
    found: dict[bytes, dict[bytes, tuple[int, str, bytes]]] = {}
    after = "-"
    while after:
        asked: list[str | int] = ["XRANGE", key(instance, "journal", queue), after, "+", "COUNT", _PAGE]
        page: list[Any] = await command(asked, list)
        for stream_id, flat in page:
            facts = dict(zip(flat[::2], flat[1::2], strict=True))
            refs = facts.get(_REFS, b"").split()
            if facts.get(_HOW) == _TRANSFERRED:
                by = facts.get(_SOURCE, own.at(parse_id(stream_id)).encode()).partition(b"~")[0].decode()
                names = zip(refs, facts[_EPOCHS].split(), facts[_BOOKMARKS].split(), strict=True)
                for ref, epoch, name in names:
                    source = name.partition(b"~")[2]
                    known = found.setdefault(ref, {}).get(source)
                    if known is None or (int(epoch), by) > known[:2]:
                        found[ref][source] = int(epoch), by, facts[_OWNER]
            elif facts.get(_HOW) != _GIVEN_BACK:
                for ref in refs:
                    found.pop(ref, None)
        after = f"({page[-1][0].decode()}" if len(page) == _PAGE else ""
    return [
        (ref, owner, b"%d" % epoch, by, source)
        for ref, each in found.items()
        for source, (epoch, by, owner) in each.items()
    ]


def _counts(reply: Any) -> tuple[Any, ...]:
    return (reply[0].decode(), *reply[1:])
