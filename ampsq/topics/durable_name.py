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

    async def begin(self, session: Session, kept: Kept) -> None:
        """Take the name over from whoever has it, and keep this."""
        self.claimed = await self.claim_at(session, kept)

    async def claim_at(self, session: Session, kept: Kept) -> SubscriptionName:
        """Take the name over at another instance, and keep this there, for who may go on there."""
        number = await reader_calls.claim(self._subscription, session.client)
        claimed = SubscriptionName(session.instance, self._subscription, number)
        await self._store.begin(claimed, kept)
        return claimed

    async def note(self, session: Session, handling: Handling) -> None:
        """Write down what was handled, and see from time to time that no other one began.

        Raises:
            NameInUse: one did; this one is over.
        """
        if self.claimed is None:
            return
        if time.monotonic() >= self._checked + _CHECK:
            await self._look(session)
        try:
            await self._write(self.claimed, handling)
        except UnknownSession:
            await self._claim_again(session)
            await self._write(self.claimed, handling)

    def look_now(self) -> None:
        """Let the next `note` look, whenever the last one did."""
        self._checked = float("-inf")

    async def _look(self, session: Session) -> None:
        if self.claimed is None:
            return
        holder = await reader_calls.holder_of(session.instance, self._subscription)
        self._checked = time.monotonic()
        if holder is None or holder[0] < self.claimed.session:
            await self._claim_again(session)
        elif holder[0] > self.claimed.session:
            raise NameInUse(subscription=self._subscription, by=holder[1])

    async def _claim_again(self, session: Session) -> None:
        """The server lost that this one began."""
        if self.claimed is None:
            return
        number = await reader_calls.claim(self._subscription, session.client, self.claimed.session)
        self.claimed, self._is_begun = self.claimed._replace(session=number), False

    async def _write(self, claimed: SubscriptionName, handling: Handling) -> None:
        change = handling.take_change()
        try:
            if not self._is_begun:
                await self._store.begin(claimed, handling.kept)
                self._is_begun = True
            elif change is not None:
                await self._store.save(claimed, change)
        except BaseException:
            if change is not None:
                handling.put_back(change)
            raise
