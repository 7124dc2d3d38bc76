"""Settling messages by name, with no lease on them."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Final

from ampsq.base.errors import DefinitionError, Rejected, Unavailable, UnknownMessage, rejection
from ampsq.base.values import shown
from ampsq.protocol.calls import queues as calls
from ampsq.protocol.limits import BATCH
from ampsq.protocol.reads.message_names import find_bookmarks

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ampsq.base.bookmarks import Bookmark
    from ampsq.protocol.calls.queues import Verb
    from ampsq.protocol.reads.message_names import LocatedMessage
    from ampsq.publishing.settlements import Settlements

__all__ = ["settle_named"]

_VERBS: Final[Mapping[str, Verb]] = {"ack": "acknowledged", "cancel": "cancelled", "expire": "expired"}


async def settle_named(  # noqa: PLR0917  (where, what, how)
    origin: str,
    queue: str,
    bookmarks: Iterable[Bookmark | str],
    option: str,
    reason: str,
    settlements: Settlements | None,
) -> int:
    """Settle messages of a queue by bookmark; gives how many.

    Args:
        origin: of this instance.
        queue: the queue.
        bookmarks: of the messages.
        option: "ack", "cancel" or "expire".
        reason: why, in the caller's words; "" if nothing is said.
        settlements: keeps them until they are answered, where somebody asked for that.

    Raises:
        DefinitionError: there is no such option. Rejected: some were refused, the others are settled. Unavailable: no
            answer; where `may_have_run`, some may be settled.
    """
    if not isinstance(option, str) or option not in _VERBS:
        raise DefinitionError(f"option={shown(option)}: allowed are 'ack', 'cancel' and 'expire'")
    named = await find_bookmarks(origin, bookmarks)
    failures: list[Rejected] = [_not_here(queue, each) for each in named if not each.id]
    names = {each.ref.encode(): each.bookmark for each in named if each.id}
    refs = [each.ref.encode() for each in named if each.id]
    # Not a cancel: made again, it could end a lease that began meanwhile.
    kept = settlements if option != "cancel" else None
    for first in range(0, len(refs), BATCH):
        try:
            refused = await _settle(_VERBS[option], queue, refs[first : first + BATCH], reason, kept)
        except Unavailable as error:
            error.may_have_run = error.may_have_run or first > 0
            raise
        failures += [_refusal(queue, names[ref], code) for ref, code in refused]
    if failures:
        raise _several(failures, len(named) - len(failures))
    return len(refs)


async def _settle(
    verb: Verb, queue: str, refs: list[bytes], reason: str, kept: Settlements | None
) -> list[tuple[bytes, str]]:
    """Settle one batch; gives what was refused, and why."""
    messages = [[queue.encode(), b"", b"", b"", b"", ref] for ref in refs]
    with kept.keeping(verb, messages, None, "", reason) if kept is not None else contextlib.nullcontext():
        refused: list[tuple[bytes, str]] = await calls.settle(
            verb, queue.encode(), refs, [b""] * len(refs), reason=reason
        )
    return refused


def _refusal(queue: str, bookmark: Bookmark, code: str) -> Rejected:
    error = type(rejection(code) or Rejected())
    return error(queue=queue, bookmark=str(bookmark))


def _not_here(queue: str, named: LocatedMessage) -> Rejected:
    return UnknownMessage(queue=queue, bookmark=str(named.bookmark), absent=named.absence)


def _several(failures: list[Rejected], done: int) -> Rejected:
    """The first refusal, telling how many more there were and how many messages were settled."""
    first = failures[0]
    if len(failures) == 1 and not done:
        return first
    return type(first)(**first.detail, refused=len(failures), settled=done)
