"""The name of a durable subscription: who has it, and who may note a place under it.

Whoever began last has it. A server that came back without its last moments may have lost who that was: then the
subscription that has the higher number claims the name again, and notes its whole place anew.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from ampsq.errors import NameInUse, UnknownSession
from ampsq.topics import reader_calls
from ampsq.topics.bookmark_store import SubscriptionName

if TYPE_CHECKING:
    from ampsq.flow import Flow
    from ampsq.session import Session
    from ampsq.topics.bookmark_store import BookmarkStore
    from ampsq.topics.handling import Handling
    from ampsq.topics.places import Kept

__all__ = ["DurableName"]

#: Seconds between two looks whether another durable subscription of the name began.
_CHECK: Final = 1.0


class DurableName:
    """A durable subscription's hold on its name.

    Args:
        store: where its places are written down.
        subscription: its `sub_id`.

    Attributes:
        claimed: the name with the session that is its own.
    """

    def __init__(self, store: BookmarkStore, subscription: str) -> None:
        self._store, self._subscription = store, subscription
        self.claimed: SubscriptionName | None = None
        self._checked = time.monotonic()
        # The server knows the session, and the store does not have its place yet.
        self._is_begun = True

    def begin(self, session: Session, kept: Kept) -> Flow[None]:
        """Take the name over from whoever has it, and keep this."""
        self.claimed = yield from self.claim_at(session, kept)

    def claim_at(self, session: Session, kept: Kept) -> Flow[SubscriptionName]:
        """Take the name over at another instance, and keep this there, for who may go on there."""
        number = yield reader_calls.claim(self._subscription, session.client)
        claimed = SubscriptionName(session.instance, self._subscription, number)
        yield from self._store.begin(claimed, kept)
        return claimed

    def note(self, session: Session, handling: Handling) -> Flow[None]:
        """Write down what was handled, and see from time to time that no other one began.

        Raises:
            NameInUse: one did; this one is over.
        """
        if self.claimed is None:
            return
        if time.monotonic() >= self._checked + _CHECK:
            yield from self._look(session)
        try:
            yield from self._write(self.claimed, handling)
        except UnknownSession:
            yield from self._claim_again(session)
            yield from self._write(self.claimed, handling)

    def look_now(self) -> None:
        """Let the next `note` look, whenever the last one did."""
        self._checked = float("-inf")

    def _look(self, session: Session) -> Flow[None]:
        if self.claimed is None:
            return
        holder = yield reader_calls.holder_of(session.instance, self._subscription)
        self._checked = time.monotonic()
        if holder is None or holder[0] < self.claimed.session:
            yield from self._claim_again(session)
        elif holder[0] > self.claimed.session:
            raise NameInUse(subscription=self._subscription, by=holder[1])

    def _claim_again(self, session: Session) -> Flow[None]:
        """The server lost that this one began."""
        if self.claimed is None:
            return
        number = yield reader_calls.claim(self._subscription, session.client, self.claimed.session)
        self.claimed, self._is_begun = self.claimed._replace(session=number), False

    def _write(self, claimed: SubscriptionName, handling: Handling) -> Flow[None]:
        change = handling.take_change()
        try:
            if not self._is_begun:
                yield from self._store.begin(claimed, handling.kept)
                self._is_begun = True
            elif change is not None:
                yield from self._store.save(claimed, change)
        except BaseException:
            if change is not None:
                handling.put_back(change)
            raise
