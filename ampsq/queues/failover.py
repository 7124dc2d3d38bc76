"""A subscription to queues that goes on at another instance: what it had of the former one, and settles no more.

What was delivered and not handed out is that of the former one, which still owns it. So is what was acknowledged and
not answered: should it be delivered at the next one, it is acknowledged there and not handed out.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from ampsq.base.errors import StaleLease
from ampsq.queues.message import delivered_bookmark

if TYPE_CHECKING:
    from ampsq.protocol.calls.queues import Parts, Verb
    from ampsq.queues.lease_table import LeaseTable

__all__ = ["SettledElsewhere"]


class SettledElsewhere:
    """The messages that one subscription acknowledged of an instance which does not know it.

    Attributes:
        bookmarks: theirs; empty as long as nothing failed.
    """

    def __init__(self) -> None:
        self.bookmarks: set[str] = set()

    def leave(self, former: LeaseTable) -> None:
        """Note from here on what is acknowledged of a former instance; nobody asks that one any more."""
        former.left_for = partial(self._note, former.origin)
        for parts in list(former.acks):
            self._note(former.origin, parts)

    def _note(self, origin: str, parts: Parts) -> None:
        self.bookmarks.add(str(delivered_bookmark(parts, origin)))

    def take_out(self, parts: Parts, origin: str) -> bool:
        """Return whether a message was acknowledged before, at another instance: then it is to be here, too."""
        bookmark = str(delivered_bookmark(parts, origin))
        if bookmark not in self.bookmarks:
            return False
        self.bookmarks.discard(bookmark)
        return True

    def refusal(self, origin: str, parts: Parts, verb: Verb) -> StaleLease:
        """Return the error for a message of an instance that the client left; an acknowledgement is remembered."""
        if verb == "acknowledged":
            self._note(origin, parts)
        return StaleLease(bookmark=str(delivered_bookmark(parts, origin)), queue=parts[0].decode(), leased_at=origin)
