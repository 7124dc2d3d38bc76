"""The knowledge of a server's loop: of each of its instances, and of its rest; and the alarm that wakes it."""

from __future__ import annotations

import contextlib
import math
import socket
import time
import zlib
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from ampsq.coordinator.instance_duties import InstanceDuties

__all__ = ["Alarm", "InstanceInLoop", "ServerRest"]


class InstanceInLoop:
    """An instance in the loop.

    Args:
        duties: what it has to do.
        turns: looks of which it has one while it rests long.

    Attributes:
        duties: what it has to do.
        is_new: its first round was not wanted yet.
        is_running: a round is under way, or waits for a thread.
        is_wanted: another round is wanted after that.
        look_at: when it is to be looked at beside the looks at everything, so that it can rest.
        timer_at: when a round is wanted though nothing happens.
        looked_at: when it was looked at last.
        quiet_since: since when nothing has happened there.
        turn: which looks it has while it rests long.
    """

    def __init__(self, duties: InstanceDuties, turns: int) -> None:
        self.duties = duties
        self.is_running = self.is_wanted = False
        self.look_at = math.inf
        self.timer_at = math.inf
        self.looked_at = 0.0
        self.quiet_since = time.monotonic()
        self.is_new = True
        # Those that come to rest together are not looked at together.
        self.turn = zlib.crc32(duties.store.instance.encode()) % turns

    @property
    def rests_long(self) -> bool:
        """Return whether it is looked at each twenty seconds only."""
        return self.duties.watched.rests_long

    def stir(self, until: float = 0.0) -> None:
        """Look at it each time from now on, until nothing has happened for a while, or longer."""
        self.quiet_since = max(time.monotonic(), until)
        if self.duties.watched.rests_long:
            self.duties.watched.rests_long = False


class ServerRest(NamedTuple):
    """A state in which nothing is to be done at a server, as a look has found it.

    Attributes:
        channels: the channels that clients have to listen to, and whose they are.
        covered: the instances in whose logs entries are waited for.
        turns: the looks that some instance has though it rests.
        until: the number of the look up to which that is enough.
    """

    channels: list[tuple[str, InstanceInLoop]]
    covered: frozenset[str]
    turns: frozenset[int]
    until: int


class Alarm:
    """Wakes the one thread that waits on it, for half of what a condition costs it, which makes a lock for each wait.

    Who rings holds the lock under which the thread has seen that there is nothing to do, and called `arm`: so nothing
    is missed. It may wake for nothing.
    """

    def __init__(self) -> None:
        self._waits, self._rings = socket.socketpair()
        self._rings.setblocking(False)
        self._is_armed = False

    def arm(self) -> None:
        """Let who rings from now on end the next wait."""
        self._is_armed = True

    def ring(self) -> None:
        """Wake the thread, if it waits or is about to."""
        if self._is_armed:
            self._is_armed = False
            # Closed, nobody waits any more.
            with contextlib.suppress(OSError):
                self._rings.send(b"\0")

    def wait(self, seconds: float) -> None:
        """Wait until it rings, at most so many seconds."""
        if seconds > 0:
            self._waits.settimeout(seconds)
            with contextlib.suppress(TimeoutError):
                self._waits.recv(64)
        self._is_armed = False

    def close(self) -> None:
        """Let go of it; the thread waits no more."""
        self._waits.close()
        self._rings.close()
