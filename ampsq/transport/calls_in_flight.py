"""Calls in flight, and what is repeated of them after a refusal: for pipelines of threads and of asyncio."""

from __future__ import annotations

from collections import deque
from itertools import islice
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

import redis

from ampsq.base.errors import Rejected, ServerFull, TooMuchToRead, Unavailable
from ampsq.transport.errors import translate_error

if TYPE_CHECKING:
    from ampsq.base.errors import AmpsqError
    from ampsq.protocol.request import Call
    from ampsq.transport.route import Route, ServerAddress

__all__ = ["REFUSALS", "AsyncCallRunner", "AsyncLentConnection", "CallRunner", "CallsInFlight", "LentConnection"]

T = TypeVar("T")
#: Say that one call did nothing, and nothing of the others in flight.
REFUSALS: Final = (Rejected, ServerFull)


class LentConnection(Protocol):
    """A connection, as far as a channel needs it."""

    server: ServerAddress

    def send(self, *calls: Call[object]) -> None:
        """Send calls in one write."""

    def read(self, blocks: float) -> object:
        """Read a reply, which the server may hold back for so many seconds."""

    def drop(self) -> None:
        """Close it; it can still be given back."""

    def release(self) -> None:
        """Give it back."""


class AsyncLentConnection(Protocol):
    """The same for asyncio."""

    server: ServerAddress

    async def send(self, *calls: Call[object]) -> None:
        """Send calls in one write."""

    async def read(self, blocks: float) -> object:
        """Read a reply, which the server may hold back for so many seconds."""

    async def drop(self) -> None:
        """Close it; it can still be given back."""

    async def release(self) -> None:
        """Give it back."""


class CallRunner(Protocol):
    """A store, as far as a channel needs it: the way to the server, a connection, and single calls."""

    route: Route

    def take_connection(self) -> LentConnection:
        """Give a connection of one's own."""

    def call(self, call: Call[T]) -> T:
        """Send one call and read its reply."""


class AsyncCallRunner(Protocol):
    """The same for asyncio."""

    route: Route

    async def take_connection(self) -> AsyncLentConnection:
        """Give a connection of one's own."""

    async def call(self, call: Call[T]) -> T:
        """Send one call and read its reply."""


class CallsInFlight:
    """The calls of a pipeline, whichever way it waits: what is repeated after a refusal is decided here.

    Args:
        route: the way to the server.
        follows: False: what the server refuses before it runs is raised, and so is that the instance went elsewhere.
    """

    def __init__(self, route: Route, *, follows: bool) -> None:
        self.route, self.follows = route, follows
        #: Nothing runs on another connection, not even what the server does not know the script of.
        self.is_pinned = False
        self.sent: deque[Call[object]] = deque()
        #: They did not run, nor did any behind them: to be sent before anything else. Nothing is in flight until then.
        self.refused: deque[Call[object]] = deque()

    @property
    def number(self) -> int:
        """Calls posted and not collected."""
        return len(self.sent) + len(self.refused)

    def judge(self, error: redis.ResponseError, place: ServerAddress) -> AmpsqError | None:
        """Say what the answer to the earliest call means; None: it was refused before it ran, and may be sent again."""
        if isinstance(error, redis.exceptions.NoScriptError):
            return Unavailable("the server forgot its scripts; they are loaded again") if self.is_pinned else None
        ours = translate_error(error, self.sent[0], place.url)
        if isinstance(ours, TooMuchToRead) and self.follows and self.sent[0].parts is not None:
            return None
        if isinstance(ours, Unavailable):
            if self.follows and not ours.may_have_run:
                return None
            if isinstance(error, redis.exceptions.MovedError):
                self.route.redirect(place, error)
            ours.may_have_run = ours.may_have_run or len(self.sent) > 1
        return ours

    def is_out_of_turn(self, call: Call[object], error: redis.ResponseError | None) -> bool:
        """Return whether a call behind a refused one did what belongs after it; an error is what it was answered."""
        if error is None:
            return not call.only_reads
        ours = translate_error(error, call, "")
        if isinstance(ours, Unavailable):
            return ours.may_have_run
        return not isinstance(error, redis.exceptions.NoScriptError) and not isinstance(ours, REFUSALS)

    def out_of_turn(self, error: redis.ResponseError, place: ServerAddress) -> Unavailable:
        """Return what to raise then."""
        ours = translate_error(error, self.sent[0], place.url)
        is_forgotten = isinstance(error, redis.exceptions.NoScriptError)
        text = f"{place}: the server forgot its scripts" if is_forgotten else str(ours)
        return Unavailable(f"{text}; meanwhile it ran what was sent later")

    @property
    def is_read_behind(self) -> bool:
        """Return whether a blocked read is sent behind the earliest call, which may run in any order.

        Its reply may take as long as it blocks, so nobody waits for it before the earliest call is sent again.
        """
        return any(call.blocks > 0 for call in islice(self.sent, 1, None))

    def take_refused(self) -> Call[object]:
        """Take the earliest call, which was refused; the calls that were sent after it stay in flight."""
        return self.sent.popleft()

    def hold_back(self) -> Call[object]:
        """Take the earliest call, which was refused like all behind it: they come after it."""
        call = self.sent.popleft()
        self.refused.extend(self.sent)
        self.sent.clear()
        return call

    def explain(self, error: Exception, call: Call[object], place: ServerAddress | None) -> AmpsqError:
        """Say what a failure means: the connection is of no use any more, and what is in flight may have run."""
        ours = translate_error(error, call, place.url if place else "")
        if isinstance(ours, Unavailable):
            ours.may_have_run = ours.may_have_run or any(each is not call for each in self.sent)
            if place is not None:
                self.route.failed(place, ours)
        return ours

    def left(self) -> Unavailable:
        """Return what to raise when the instance is served elsewhere."""
        return Unavailable(f"the connection to {self.route.instance!r} was left: the instance is served elsewhere now")

    def forget(self) -> None:
        """Drop all of them."""
        self.sent.clear()
        self.refused.clear()
