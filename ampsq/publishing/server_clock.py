"""A server's wall clock beside our monotonic one: whether it was set back, and until when it flushes nothing then."""

from __future__ import annotations

import threading
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Moment", "ServerClock", "clock_of"]

#: Seconds by which a server's clock may be behind what passed here: clocks run at slightly different speeds.
_DRIFT: Final = 0.05
#: Servers whose clocks a program knows at most.
_SERVERS: Final = 256


class Moment(NamedTuple):
    """The time when a server was asked and the time when it had answered, in seconds of the monotonic clock."""

    asked: float
    answered: float


class ServerClock:
    """A server's wall clock beside ours, for all connections of this program: a new one knows what an old one saw.

    Attributes:
        flushes_from: before that moment the server need not flush: its clock was set back.
        held_until: the same by the server's clock, in seconds since 1970; 0: it was never set back.
        known_from: when this program looked at it first; None: not yet.
    """

    def __init__(self) -> None:
        # The most of all looks of the least by which it was ahead of ours, since it was set back last.
        self._ahead = self.flushes_from = float("-inf")
        self.held_until = 0.0
        self.known_from: float | None = None
        self._lock = threading.Lock()

    def learn(self, shown: float, now: Moment, held_until: float = 0.0) -> None:
        """Take in what it showed at some time between a question and its answer, in seconds since 1970.

        Args:
            shown: the time by its clock.
            now: between the two.
            held_until: what another program found, which may have looked at it earlier.
        """
        with self._lock:
            if self.known_from is None:
                self.known_from = now.asked
            behind = self._ahead - (shown - now.asked)
            if behind > _DRIFT:
                held_until = max(held_until, shown + behind)
                self._ahead = float("-inf")
            self._ahead = max(self._ahead, shown - now.answered)
            if held_until > max(self.held_until, shown):
                self.held_until, self.flushes_from = held_until, now.answered + held_until - shown


@lru_cache(maxsize=_SERVERS)
def clock_of(run: str, ours: Callable[[], float]) -> ServerClock:
    """The clock of the server process with that ID beside one of ours."""
    del run, ours  # its name in the cache
    return ServerClock()
