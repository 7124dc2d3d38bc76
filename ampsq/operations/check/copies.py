"""Checking what an instance keeps of others' messages: where copies are, how far they came, who owns them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ampsq.base.log_positions import parse_id
from ampsq.protocol.calls import check_copies as copy_calls
from ampsq.protocol.calls.check_copies import OwnedMessage
from ampsq.protocol.limits import BATCH
from ampsq.protocol.reads.journals import read_journal
from ampsq.protocol.reads.origin import read_origin
from ampsq.protocol.transitions import MessageEvent

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ampsq.base.bookmarks import Origin
    from ampsq.operations.check.messages import Findings
    from ampsq.protocol.calls.check_copies import CopyFaults
    from ampsq.protocol.reads.journals import QueueEntry

__all__ = ["check_copies", "check_owners"]

#: Entries of a journal that are read at a time.
_PAGE: Final = 200


async def check_copies(instance: str, topics: Sequence[str], findings: Findings, *, repair: bool) -> None:
    """Check what is kept beside the logs of topics that have copies."""
    for topic in topics:
        after = "0-0" if (await copy_calls.has_copies(instance, topic)) else ""
        while after:
            faults: CopyFaults = await copy_calls.check_copies(topic, after, repair=repair)
            for word, number in faults.counts.items():
                findings.add(word, number)
            after = faults.next


async def check_owners(instance: str, queue: str, findings: Findings, *, repair: bool) -> None:
    """Check who owns the messages of a queue against the transfers that its journal has and that still count."""
    if not (await copy_calls.has_links(instance)):
        return
    messages = await _transfers(instance, queue)
    for first in range(0, len(messages), BATCH):
        missing = await copy_calls.check_owners(queue, messages[first : first + BATCH], repair=repair)
        findings.add("owner_missing", missing)


async def _transfers(instance: str, queue: str) -> list[OwnedMessage]:
    """Of each message and bookmark the highest transfer; not of what was settled since."""
    own: Origin = await read_origin(instance)
    found: dict[bytes, dict[bytes, OwnedMessage]] = {}
    after = "0-0"
    while after:
        page: list[QueueEntry] = await read_journal(instance, queue, after, _PAGE)
        for entry in page:
            if entry.how == MessageEvent.TRANSFERRED:
                by = (entry.source or own.at(parse_id(entry.id))).partition("~")[0]
                for ref, epoch, name in zip(entry.refs, entry.epochs, entry.bookmarks, strict=True):
                    source = name.partition(b"~")[2]
                    known = found.setdefault(ref, {}).get(source)
                    if known is None or (epoch, by) > (known.epoch, known.by):
                        found[ref][source] = OwnedMessage(ref, entry.owner.encode(), epoch, by, source)
            elif entry.how != MessageEvent.GIVEN_BACK:
                for ref in entry.refs:
                    found.pop(ref, None)
        after = page[-1].id if len(page) == _PAGE else ""
    return [message for each in found.values() for message in each.values()]
