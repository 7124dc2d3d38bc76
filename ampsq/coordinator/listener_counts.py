"""Counting who listens on the channels of clients: where nobody does, a client may be gone.

All channels of a client are on one connection, and a server counts its connections. So where there are many channels,
they are counted only if a connection has ended since the last time, and now and then all the same: who leaves a channel
by itself keeps the connection where other clients of its process are on it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Generic, TypeVar, cast

from ampsq.protocol.reads.server import count_ended_connections
from ampsq.protocol.reads.subscribers import count_channel_listeners

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ampsq.protocol.request import Call

__all__ = ["ListenerCounts"]

T = TypeVar("T")
#: Channels of one call.
_CHANNELS: Final = 500
#: Channels from which on they are counted only where a connection has ended, and looks of which one counts them all the
#: same.
_MANY: Final = 100
_COUNTED_EVERY: Final = 8


class ListenerCounts(Generic[T]):
    """The counts of one server, look by look. One thread uses it."""

    def __init__(self) -> None:
        self._channels: list[tuple[str, T]] = []
        # Connections of the server that had ended when all channels were counted last; None: they are to be counted.
        self._ended: int | None = None
        self._looks = 0
        # What was asked last, and the number of ends that was answered.
        self._watches_ends = self._is_counted = False
        self._answered: int | None = None

    def begin(self, channels: list[tuple[str, T]]) -> list[Call[object]]:
        """Return what a look asks; the replies are for `take_in`.

        Args:
            channels: those that clients have to listen to now, and whose they are.
        """
        self._looks += 1
        if channels != self._channels:
            # A new one may have been left before it was known here.
            self._channels, self._ended = channels, None
        self._watches_ends = len(channels) > _MANY
        self._is_counted = not self._watches_ends or self._ended is None or self._looks % _COUNTED_EVERY == 0
        # The ends first: who leaves while channels are counted shows in the next look.
        ends: list[Call[object]] = [count_ended_connections()] if self._watches_ends else []
        return [*ends, *self.calls()] if self._is_counted else ends

    def take_in(self, replies: Iterator[object]) -> tuple[set[T], bool]:
        """Take in the replies to `begin`.

        Returns:
            Whose channels nobody listens to; and whether all channels are to be counted now, by `calls`, since a
            connection has ended.
        """
        self._answered = cast("int", next(replies)) if self._watches_ends else None
        if self._is_counted:
            return self.absent(replies), False
        if self._answered == self._ended:
            return set(), False
        # Until they are counted.
        self._ended = None
        return set(), True

    def calls(self) -> list[Call[object]]:
        """Return what counts all channels; the replies are for `absent`."""
        return [count_channel_listeners([channel for channel, _ in some]) for some in self._parts()]

    def absent(self, replies: Iterator[object]) -> set[T]:
        """Take in the replies to `calls`; gives whose channels nobody listens to."""
        found = {
            whose
            for some in self._parts()
            for (_, whose), number in zip(some, cast("Sequence[int]", next(replies)), strict=True)
            if not number
        }
        self._ended = self._answered
        return found

    def _parts(self) -> list[list[tuple[str, T]]]:
        return [self._channels[first : first + _CHANNELS] for first in range(0, len(self._channels), _CHANNELS)]
