"""Lanes of a worker: messages of a batch are handled one after the other, however many handlers there are."""

from __future__ import annotations

import threading
from collections import deque
from typing import Generic, TypeVar

from ampsq.queues.message import MessageView, lane_of, may_begin

__all__ = ["HandlerLanes"]

Handled = TypeVar("Handled", bound=MessageView)


class HandlerLanes(Generic[Handled]):
    """The messages that wait until the one before them in their group has been handled.

    A message of a batch that came back is not handled: it comes again.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: dict[tuple[str, str], deque[Handled]] = {}

    def enter(self, message: Handled) -> bool:
        """Return whether a message may be handled now; else it waits, or is given up."""
        lane = lane_of(message)
        if lane is None:
            return True
        with self._lock:
            if lane in self._waiting:
                self._waiting[lane].append(message)
                return False
            if not may_begin(message):
                return False
            self._waiting[lane] = deque()
            return True

    def next(self, message: Handled) -> Handled | None:
        """Return what follows a message that was handled and settled in its lane; None where nothing does."""
        lane = lane_of(message)
        if lane is None:
            return None
        with self._lock:
            waiting = self._waiting[lane]
            while waiting:
                following = waiting.popleft()
                if may_begin(following):
                    return following
            del self._waiting[lane]
        return None

    def take_waiting(self) -> list[Handled]:
        """Take out all that waits, to be given back."""
        with self._lock:
            taken = [message for waiting in self._waiting.values() for message in waiting]
            for waiting in self._waiting.values():
                waiting.clear()
        return taken
