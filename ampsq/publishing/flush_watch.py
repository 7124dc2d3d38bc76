"""Up to when a server's answers are on its disk, told by what it says of its flushes."""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING, Final, Self

from ampsq.base.errors import FlushingUnknown, ServerUnsuitable
from ampsq.protocol.reads.server import flush_facts, flush_note
from ampsq.protocol.request import Pause, ask
from ampsq.publishing.server_clock import Moment, ServerClock, clock_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from ampsq.protocol.reads.server import FlushFacts, Server
    from ampsq.protocol.request import AnyPipeline

__all__ = ["FlushWatch"]

#: Seconds within which a server that flushes each second begins to: one, and what its own clock may lag behind.
PERIOD: Final = 1.2
#: Seconds within which a coordinator has noted what it saw before we did.
_NOTED: Final = 3.0
#: Seconds between two looks: the least, and the most while somebody waits.
_SOON, _LATER = 0.02, 0.1


class FlushWatch:
    """Watches a server with ``appendfsync everysec``: what it has answered is on its disk some time later.

    It cannot be asked whether a write is. WAITAOF came with Redis 7.2, and what Redis 7.4 made of it, which Valkey 9.1
    still has, answers at once, a second before the flush (mended in Redis by its pull request 13793). But such a server
    begins a flush at the latest a second after it began the last one, unless one is under way, and INFO says whether
    one is. So where none was under way at one look, and more than a second later, at the second look from then, none
    is again, everything answered before the first look is flushed. That holds for every server that is allowed.

    It counts that second by its wall clock. Where that is set back, it flushes nothing until the clock is where it was:
    so the two looks count from then. A clock is known to be set back if it shows less than at any earlier look of this
    program at the same server process, with what has passed since. What was before the first look a coordinator has
    noted (`lasting`), which looks each second; that note is read until the coordinator had its time to make it.

    A fork in between, which opens a new file, makes it begin anew; so does a connection that breaks, since another
    process may answer then.

    Attributes:
        until: what was answered before this moment is on the disk; seconds of the monotonic clock.
    """

    def __init__(self, instance: str, *, pauses_for_saving: bool, clock: Callable[[], float] = time.monotonic) -> None:
        self._instance, self._pauses_for_saving, self._clock = instance, pauses_for_saving, clock
        self.until = 0.0
        self._server_clock = ServerClock()
        self.forget()

    @classmethod
    def watch(cls, server: Server, purpose: str) -> Self | None:
        """Return the watch that tells when answers are on the disk; None where they are before they are given.

        Args:
            server: as it was at connect.
            purpose: what needs it, for the message.

        Raises:
            ServerUnsuitable: nothing there is ever flushed, or only when the operating system likes to.
            FlushingUnknown: nobody has said when it is.
        """
        if not server.appends:
            raise ServerUnsuitable(f"{purpose} needs an append-only file: set appendonly yes at the server")
        if not server.appendfsync:
            raise FlushingUnknown(purpose)
        if server.appendfsync == "no":
            raise ServerUnsuitable(
                f"{purpose} needs a server that flushes its append-only file, and appendfsync is no there: set it to "
                "everysec or always"
            )
        return None if server.never_forgets else cls(server.instance, pauses_for_saving=server.pauses_for_saving)

    def forget(self) -> None:
        """Begin anew; `until` stays."""
        # Moments at which no flush was under way, the oldest first.
        self._calm: deque[Moment] = deque()
        self._last = Moment(0.0, 0.0)
        self._forks = -1

    async def read_info(self, pipeline: AnyPipeline) -> float:
        """Ask the server, unless it was asked a moment ago; gives `until`.

        Args:
            pipeline: a connection that is used for nothing else meanwhile and was there before what is asked about was
                answered: else a server that came back without it would call it flushed.

        Raises:
            Unavailable: the server is gone, and with it what was not flushed.
        """
        asked = self._clock()
        if asked < self._last.asked + _SOON:
            return self.until
        try:
            facts = await ask(pipeline, flush_facts())
            now = Moment(asked, self._clock())
            await self._learn_clock(pipeline, facts, now)
        except BaseException:
            self.forget()
            raise
        self._learn(facts, now)
        return self.until

    async def _learn_clock(self, pipeline: AnyPipeline, facts: FlushFacts, now: Moment) -> None:
        self._server_clock = clock = clock_of(facts.run, self._clock)
        if facts.time is not None:
            held_until = 0.0
            if clock.known_from is None or now.asked < clock.known_from + _NOTED:
                note = await ask(pipeline, flush_note(self._instance))
                held_until = note.held_until if note.run == facts.run else 0.0
            clock.learn(facts.time, now, held_until)

    def _learn(self, facts: FlushFacts, now: Moment) -> None:
        if not facts.is_well or facts.forks != self._forks or (facts.is_saving and self._pauses_for_saving):
            self.forget()
        if facts.is_well and not facts.is_flushing:
            # Before it answered the last look, it has begun the flush that was due then.
            while self._calm and self._due(self._calm[0]) <= self._last.asked:
                self.until = self._calm.popleft().asked
            if not (facts.is_saving and self._pauses_for_saving):
                self._calm.append(now)
        self._last, self._forks = now, facts.forks

    def _due(self, calm: Moment) -> float:
        """Return when the flush that was due after a moment of calm has begun at the latest."""
        return max(calm.answered, self._server_clock.flushes_from) + PERIOD

    @property
    def pause(self) -> float:
        """Seconds after which another look may tell more."""
        if not self._calm:
            return _SOON
        due = self._due(self._calm[0])
        return min(max(due - self._clock(), _SOON), _LATER)

    async def wait(self, pipeline: AnyPipeline, moment: float, until: float) -> bool:
        """Wait until all that was answered before a moment is flushed; whether it is.

        Args:
            pipeline: as for `read_info`.
            moment: in seconds of the monotonic clock.
            until: the same, when to give up.

        Raises:
            Unavailable: as `read_info`.
        """
        while self.until < moment:
            await self.read_info(pipeline)
            left = until - self._clock()
            if self.until >= moment or left <= 0:
                break
            await Pause(min(self.pause, left))
        return self.until >= moment
