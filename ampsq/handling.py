"""What a durable subscription has received, and what of it is handled."""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING

from ampsq.bookmark_store import Change
from ampsq.places import Id, Kept, parse_id

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = ["Handling", "Received"]


class Received:
    """A message that was received, or the end of a page: the places that are reached when all before is handled.

    Attributes:
        topic: its topic.
        id: its ID.
        places: of the end of a page: topic -> the last ID that was read.
        is_handled: whether it was handled.
    """

    __slots__ = ("id", "is_handled", "places", "topic")

    def __init__(self, topic: str, stream_id: bytes, places: Mapping[str, Id] | None = None) -> None:
        self.topic, self.id, self.places = topic, stream_id, places
        self.is_handled = places is not None

    @property
    def name(self) -> tuple[str, str]:
        """Topic and ID."""
        return self.topic, self.id.decode()


class Handling:
    """What a subscription has received and what of it is handled; threads may share it.

    Args:
        kept: what a store has of it.
    """

    def __init__(self, kept: Kept) -> None:
        self._lock = threading.Lock()
        self._open: deque[Received] = deque()
        # IDs as they came, so that only what is written down is looked at closely.
        self._places: dict[str, Id | bytes] = dict(kept.topics)
        self._floor = kept.floor
        # What is handled behind the place: what a store knows of, and what is new.
        self._noted: set[tuple[str, str]] = set(kept.beyond)
        self._new: set[tuple[str, str]] = set()
        self._moved: set[str] = set()
        self._reached: set[tuple[str, str]] = set()

    @property
    def open_messages(self) -> int:
        """Received, and not let go of."""
        return len(self._open)

    def place(self, topic: str) -> Id:
        """Up to where a topic's messages are handled."""
        place = self._places.get(topic, self._floor)
        return parse_id(place) if isinstance(place, bytes) else place

    def receive(self, messages: Iterable[tuple[str, bytes]], places: Mapping[str, Id]) -> list[Received]:
        """Note a page: its messages, and up to where it goes. What was handled before is marked so."""
        page = [Received(topic, stream_id) for topic, stream_id in messages]
        with self._lock:
            if self._noted:
                for one in page:
                    one.is_handled = one.name in self._noted
            self._open.extend(page)
            self._open.append(Received("", b"", {**places}))
            self._advance()
        return page

    def handle(self, one: Received) -> None:
        """Note that a message was handled."""
        with self._lock:
            if one.is_handled:
                return
            one.is_handled = True
            if self._open and one is self._open[0]:
                self._advance()
            else:
                self._new.add(one.name)

    def _advance(self) -> None:
        waiting = self._open
        while waiting and waiting[0].is_handled:
            one = waiting.popleft()
            if one.places is not None:
                moved = {topic: last for topic, last in one.places.items() if self.place(topic) < last}
                self._places.update(moved)
                self._moved.update(moved)
                continue
            # Of one topic they come in order.
            self._places[one.topic] = one.id
            self._moved.add(one.topic)
            if self._new or self._noted:
                self._reach(one.name)

    def _reach(self, name: tuple[str, str]) -> None:
        self._new.discard(name)
        if name in self._noted:
            self._noted.discard(name)
            self._reached.add(name)

    def take_change(self) -> Change | None:
        """What is new since the last time; None: nothing."""
        with self._lock:
            if not (self._moved or self._new or self._reached):
                return None
            topics = {topic: self.place(topic) for topic in self._moved}
            change = Change(topics, tuple(self._new), tuple(self._reached))
            self._noted |= self._new
            self._moved, self._new, self._reached = set(), set(), set()
            return change

    def put_back(self, change: Change) -> None:
        """A change was not written down: it is still new."""
        with self._lock:
            self._moved.update(change.topics)
            for two in change.beyond:
                if two in self._noted:
                    self._noted.discard(two)
                    self._new.add(two)
            self._reached.update(change.reached)
