"""Leases that a subscription itself ended, as journal and attempts of a queue show; a flow.

It is asked only after a call was repeated: its first run may have done what the second one was refused for. Who repeats
it may be a later process, which does not know when it was sent first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ampsq.base.bookmarks import parse_ref
from ampsq.protocol.request import command
from ampsq.protocol.schema import FIELDS, VALUES, key

if TYPE_CHECKING:
    from collections.abc import Mapping

    from redis.typing import EncodableT

__all__ = ["settled_by_others", "settled_here"]

_HOW: Final = FIELDS["how"].encode()
_BY: Final = FIELDS["by"].encode()
_REFS: Final = FIELDS["refs"].encode()
_RETURNS: Final = FIELDS["returns"].encode()
_CANCELLED: Final = str(VALUES["cancelled"])
_EXPIRED: Final = str(VALUES["expired"])
_SETTLED: Final = (str(VALUES["acknowledged"]), _EXPIRED)
#: Entries of a journal that one call reads.
_PAGE: Final = 500
#: ms before the call began that are read too: another server may have answered since, whose clock is behind.
_MARGIN: Final = 10_000
#: Pages that are read at most where it is not known when the call was sent: what is further back counts as not known.
_PAGES: Final = 200


async def settled_here(
    instance: str, queue: str, by: str, verb: str, refs: set[bytes], *, seconds: float
) -> set[bytes]:
    """Return those of some refs whose lease a subscription ended itself, as far as the queue tells.

    Args:
        instance: its name.
        queue: the queue.
        by: the subscription's ID.
        verb: ``acknowledged``, ``expired`` or ``cancelled``.
        refs: the messages, a batch at most.
        seconds: since when it may have been: how long ago the call was sent first.
    """
    now = await command(["TIME"], lambda reply: int(reply[0]) * 1000 + int(reply[1]) // 1000)
    since = max(now - int(seconds * 1000) - _MARGIN, 0)
    found = await _cancelled(instance, queue, by, refs, since) if verb == _CANCELLED else set()
    wanted, at, journal = refs - found, "+", key(instance, "journal", queue)
    while wanted:
        asked: list[EncodableT] = ["XREVRANGE", journal, at, since, "COUNT", _PAGE]
        entries: list[tuple[bytes, list[bytes]]] = await command(asked, list)
        for _, flat in entries:
            mine = wanted & _ended_by(dict(zip(flat[::2], flat[1::2], strict=True)), by, verb, since)
            found |= mine
            wanted -= mine
        if len(entries) < _PAGE:
            break
        at = f"({entries[-1][0].decode()}"
    return found


async def settled_by_others(instance: str, queue: str, by: str, refs: set[bytes]) -> set[bytes]:
    """Return those of some refs that the journal says somebody else settled, or time did, and not a subscription.

    What the journal does not tell, since it was trimmed or is too long, is not among them.

    Args:
        instance: its name.
        queue: the queue.
        by: the subscription's ID.
        refs: the messages, a batch at most.
    """
    # Nothing is settled before it is recorded.
    since = min(int(parse_ref(ref.decode())[1].partition("-")[0]) for ref in refs)
    journal, at = key(instance, "journal", queue), "+"
    others: set[bytes] = set()
    mine: set[bytes] = set()
    for _ in range(_PAGES):
        asked: list[EncodableT] = ["XREVRANGE", journal, at, max(since - _MARGIN, 0), "COUNT", _PAGE]
        entries: list[tuple[bytes, list[bytes]]] = await command(asked, list)
        for _, flat in entries:
            entry = dict(zip(flat[::2], flat[1::2], strict=True))
            if entry.get(_HOW, b"").decode() in _SETTLED:
                found = refs.intersection(entry.get(_REFS, b"").split())
                (mine if entry.get(_BY) == by.encode() else others).update(found)
        if len(entries) < _PAGE or mine == refs:
            break
        at = f"({entries[-1][0].decode()}"
    return others - mine


def _ended_by(entry: Mapping[bytes, bytes], by: str, verb: str, since: int) -> set[bytes]:
    """Return the refs of a journal entry that a subscription ended by a verb; a cancel may have expired its message."""
    refs, how = entry.get(_REFS, b"").split(), entry.get(_HOW, b"").decode()
    if verb != _CANCELLED:
        return set(refs) if how == verb and entry.get(_BY) == by.encode() else set()
    if how != _EXPIRED:
        return set()
    returns = entry.get(_RETURNS, b"").decode().split(" ")
    return {ref for ref, told in zip(refs, returns, strict=False) if _was_cancelled(told, by, since)}


async def _cancelled(instance: str, queue: str, by: str, refs: set[bytes], since: int) -> set[bytes]:
    """Return the refs that came back since then because the subscription cancelled them."""
    some = list(refs)
    known: list[bytes | None] = await command(["HMGET", key(instance, "attempts", queue), *some], list)
    return {ref for ref, told in zip(some, known, strict=True) if told and _was_cancelled(told.decode(), by, since)}


def _was_cancelled(told: str, by: str, since: int) -> bool:
    """Return whether one of the returns of a message is a cancel by a subscription since then.

    A return is ``<ms>,<cause>,<subscription>,<client>``; they are the last word of the attempts, with ``;`` between.
    """
    for item in told.rpartition(" ")[2].split(";"):
        at, _, rest = item.partition(",")
        if rest.startswith(f"{_CANCELLED},{by},") and at.isdecimal() and int(at) >= since:
            return True
    return False
