"""The name of a durable subscription: who has it, and who may note a place under it.

Whoever began last has it. A server that came back without its last moments may have lost who that was: then the
subscription that has the higher number claims the name again, and notes its whole place anew.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Final

from ampsq.base.errors import NameInUse, UnknownSession
from ampsq.base.log_positions import FIRST, Id, StoredPosition, parse_id
from ampsq.protocol.calls import readers as reader_calls
from ampsq.topics.bookmark_store import BookmarkUpdate, SubscriptionName
from ampsq.topics.publisher_numbers import HadNumbers

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ampsq.base.log_positions import RunKey
    from ampsq.protocol.context import ClientContext
    from ampsq.protocol.entries import PublisherNumber
    from ampsq.topics.bookmark_store import BookmarkStore


__all__ = ["DurableClaim", "HandledMessages", "Received"]

#: Seconds between two looks whether another durable subscription of the name began.
_CHECK: Final = 1.0


class DurableClaim:
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

    async def begin(self, session: ClientContext, kept: StoredPosition) -> None:
        """Take the name over from whoever has it, and keep this."""
        self.claimed = await self.claim_at(session, kept)

    async def claim_at(self, session: ClientContext, kept: StoredPosition) -> SubscriptionName:
        """Take the name over at another instance, and keep this there, for who may go on there."""
        number = await reader_calls.claim(self._subscription, session.client)
        claimed = SubscriptionName(session.instance, self._subscription, number)
        await self._store.begin(claimed, kept)
        return claimed

    async def note(self, session: ClientContext, handling: HandledMessages) -> None:
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

    async def _look(self, session: ClientContext) -> None:
        if self.claimed is None:
            return
        holder = await reader_calls.holder_of(session.instance, self._subscription)
        self._checked = time.monotonic()
        if holder is None or holder.session < self.claimed.session:
            await self._claim_again(session)
        elif holder.session > self.claimed.session:
            raise NameInUse(subscription=self._subscription, by=holder.client)

    async def _claim_again(self, session: ClientContext) -> None:
        """The server lost that this one began."""
        if self.claimed is None:
            return
        number = await reader_calls.claim(self._subscription, session.client, self.claimed.session)
        self.claimed, self._is_begun = self.claimed._replace(session=number), False

    async def _write(self, claimed: SubscriptionName, handling: HandledMessages) -> None:
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


class Received:
    """A message that was received.

    Attributes:
        topic: its topic.
        id: its ID; empty where it was read at another instance.
        source: of a client with several instances, origin and ID there, as in its bookmark.
        publisher_number: of the same, how its publisher knows it; None of one without a name.
        is_handled: whether it was handled, or is not to be, as it was handed out under another bookmark before.
    """

    __slots__ = ("id", "is_handled", "publisher_number", "source", "topic")

    def __init__(
        self,
        topic: str,
        stream_id: bytes,
        source: str = "",
        publisher_number: PublisherNumber | None = None,
        *,
        is_handled: bool = False,
    ) -> None:
        self.topic, self.id, self.source, self.publisher_number = topic, stream_id, source, publisher_number
        self.is_handled = is_handled

    @property
    def name(self) -> tuple[str, str]:
        """Topic, and its ID as far as that is one everywhere where it may be read."""
        return self.topic, self.source or self.id.decode()


class _PageEnd:
    """The end of a page: up to where its topics were read, here and of each origin."""

    __slots__ = ("passed", "places")

    is_handled = True

    def __init__(self, places: Mapping[str, Id], passed: Mapping[tuple[str, str], Id]) -> None:
        self.places, self.passed = places, passed


class HandledMessages:
    """The messages that a subscription has received, and which of them are handled; threads may share it.

    Args:
        kept: what a store has of it.
    """

    def __init__(self, kept: StoredPosition) -> None:
        self._lock = threading.Lock()
        self._open: deque[Received | _PageEnd] = deque()
        # IDs as they came, so that only what is written down is looked at closely.
        self._places: dict[str, Id | bytes] = dict(kept.topics)
        self._floor = kept.floor
        # What is handled behind the place: what a store knows of, and what is new.
        self._noted: set[tuple[str, str]] = set(kept.beyond)
        self._new: set[tuple[str, str]] = set()
        self._moved: set[str] = set()
        self._reached: set[tuple[str, str]] = set()
        # The same place, of each origin, and what of it is new.
        self._passed: dict[tuple[str, str], Id] = dict(kept.passed)
        self._came: set[tuple[str, str]] = set()
        # What of named publishers is handled, and the runs of it that changed.
        self._had = HadNumbers(kept.had.items())
        self._changed: set[RunKey] = set()

    @property
    def open_messages(self) -> int:
        """Received, and not let go of."""
        return len(self._open)

    def place(self, topic: str) -> Id:
        """Up to where a topic's messages are handled."""
        place = self._places.get(topic, self._floor)
        return parse_id(place) if isinstance(place, bytes) else place

    def receive(
        self, page: Sequence[Received], places: Mapping[str, Id], passed: Mapping[tuple[str, str], Id]
    ) -> None:  # fmt: skip
        """Note a page; what was handled before is marked so.

        Args:
            page: its messages.
            places: up to where it goes.
            passed: the same of each origin, as of `StoredPosition`.
        """
        with self._lock:
            if self._noted:
                for one in page:
                    one.is_handled = one.is_handled or one.name in self._noted
            self._open.extend(page)
            self._open.append(_PageEnd({**places}, {**passed}))
            self._advance()

    def handle(self, one: Received) -> None:
        """Note that a message was handled."""
        with self._lock:
            if one.is_handled:
                return
            one.is_handled = True
            if one.publisher_number is not None:
                self._changed.update(self._had.add(one.publisher_number))
            if self._open and one is self._open[0]:
                self._advance()
            else:
                self._new.add(one.name)

    def _advance(self) -> None:
        waiting = self._open
        while waiting and waiting[0].is_handled:
            one = waiting.popleft()
            if isinstance(one, _PageEnd):
                moved = {topic: last for topic, last in one.places.items() if self.place(topic) < last}
                self._places.update(moved)
                self._moved.update(moved)
                self._pass(one.passed)
                continue
            # Of one topic they come in order.
            if one.id:
                self._places[one.topic] = one.id
                self._moved.add(one.topic)
            if one.source:
                origin, _, text = one.source.partition("~")
                self._pass({(one.topic, origin): parse_id(text)})
            if self._new or self._noted:
                self._reach(one.name)

    def _pass(self, passed: Mapping[tuple[str, str], Id]) -> None:
        further = {where: last for where, last in passed.items() if self._passed.get(where, FIRST) < last}
        self._passed.update(further)
        self._came.update(further)

    def _reach(self, name: tuple[str, str]) -> None:
        self._new.discard(name)
        if name in self._noted:
            self._noted.discard(name)
            self._reached.add(name)

    def take_change(self) -> BookmarkUpdate | None:
        """Return the changes since the last call; None: there are none."""
        with self._lock:
            if not (self._moved or self._new or self._reached or self._came or self._changed):
                return None
            topics = {topic: self.place(topic) for topic in self._moved}
            passed = {where: self._passed[where] for where in self._came}
            ends = {run: self._had.get(run) for run in self._changed}
            had = {run: end for run, end in ends.items() if end is not None}
            gone = tuple(run for run, end in ends.items() if end is None)
            change = BookmarkUpdate(topics, tuple(self._new), tuple(self._reached), passed, had, gone)
            self._noted |= self._new
            self._moved, self._new, self._reached, self._came, self._changed = set(), set(), set(), set(), set()
            return change

    def put_back(self, change: BookmarkUpdate) -> None:
        """A change was not written down: it is still new."""
        with self._lock:
            self._moved.update(change.topics)
            self._came.update(change.passed)
            self._changed.update(change.had, change.gone)
            for two in change.beyond:
                if two in self._noted:
                    self._noted.discard(two)
                    self._new.add(two)
            self._reached.update(change.reached)

    @property
    def kept(self) -> StoredPosition:
        """All of it, as a store keeps it."""
        with self._lock:
            topics = {topic: self.place(topic) for topic in self._places}
            return self._stored(self._floor, topics)

    def _stored(self, floor: Id, topics: Mapping[str, Id]) -> StoredPosition:
        beyond = frozenset(self._noted | self._new)
        return StoredPosition(floor, topics, beyond, dict(self._passed), self._had.runs)

    # -- at another instance

    @property
    def passed(self) -> dict[tuple[str, str], Id]:
        """Topic and origin -> the ID there up to which everything is handled."""
        with self._lock:
            return dict(self._passed)

    def kept_at(self, floor: Id, places: Mapping[str, Id]) -> StoredPosition:
        """Return the position to keep at another instance, where the place is at these IDs."""
        with self._lock:
            return self._stored(floor, places)

    def resume_at(self, kept: StoredPosition) -> None:
        """Go on at another instance, where this is kept; what was received and is not handled stays so."""
        with self._lock:
            for one in self._open:
                if isinstance(one, _PageEnd):
                    one.places = {}
                else:
                    one.id = b""
            self._places, self._floor = dict(kept.topics), kept.floor
            self._moved, self._came = set(kept.topics), set(self._passed)
            self._reached |= kept.beyond - self._noted - self._new
            # Of what was noted since, nothing is kept there.
            self._new |= self._noted - kept.beyond
            self._noted &= kept.beyond
            had = self._had.runs
            self._changed = {run for run in {*had, *kept.had} if had.get(run) != kept.had.get(run)}
