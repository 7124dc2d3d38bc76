"""Waiting until what was recorded is where a level of persistence says, for all who ask, over one connection."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from ampsq.connections.server import examine
from ampsq.errors import Unavailable
from ampsq.flow import Collect, Post, command
from ampsq.publishing.acknowledged import Acknowledged
from ampsq.replication import replication_calls
from ampsq.schema import key

if TYPE_CHECKING:
    from ampsq.connections.server import Server
    from ampsq.flow import Call, Flow
    from ampsq.publishing.flushed import Flushed
    from ampsq.publishing.persisted import Persisted
    from ampsq.store import AsyncStore

__all__ = ["Persisting", "Wanted"]

#: ms of one step, after which it is the next one's turn.
_STEP: Final = 50
#: Seconds between two steps for the same one.
_BETWEEN: Final = 0.01


@dataclass
class Wanted:
    """What somebody waits for.

    Attributes:
        level: how far.
        life: of the connection that watched since before it was recorded.
        recorded: when it was; seconds of the monotonic clock.
        lacking: why it is not there yet.
        mark: set behind it for sync destinations; "" where there are none, None before.
        is_behind: whether the connection that waits for replicas has written something behind it.
    """

    level: Persisted
    life: int
    recorded: float = 0.0
    lacking: str = ""
    mark: str | None = None
    is_behind: bool = False


class Persisting:
    """Waits for disk, replicas and sync destinations.

    Args:
        store: has what was recorded.
        instance: its name.
        server: as it was at connect.
    """

    def __init__(self, store: AsyncStore, instance: str, server: Server) -> None:
        self._store, self._instance, self._server = store, instance, server
        self._channel = store.channel()
        self._marker = key(instance, "marker")
        self._acknowledged = Acknowledged(instance)
        self._flushed: Flushed | None = None
        self._turn = asyncio.Lock()
        # Another one after each failure: a server that came back need not have what was recorded before.
        self._life = 0
        self._place: Any = None

    async def begin(self, level: Persisted) -> Wanted:
        """Begin to watch, before something is recorded.

        Raises:
            ServerUnsuitable: this server cannot reach the level. Unavailable: there is none.
        """
        if not self._server.appendfsync:
            # A coordinator may have noted it meanwhile.
            self._server = await self._store.run(examine(self._instance))
        watched = level.watch(self._server)
        async with self._turn:
            if level.level == "fsync" and self._flushed is None:
                self._flushed = watched
            await self._do(_asked(self._channel, command(["PING"], bool)))
            return Wanted(level, self._life)

    async def wait(self, wanted: Wanted, topic: str, until: float) -> bool:
        """Wait until what was just recorded in a topic is where it is to be; whether it is.

        Args:
            wanted: from `begin`.
            topic: the topic or the queue.
            until: when to give up; seconds of the monotonic clock.

        Raises:
            Unavailable: the server was lost meanwhile, and nobody knows what it has.
        """
        wanted.recorded = time.monotonic()
        while True:
            async with self._turn:
                if wanted.life != self._life or self._place is not self._store.route.current:
                    raise Unavailable("the server was away before it was told to be persisted")
                if await self._do(self._step(wanted, topic)):
                    return True
            if time.monotonic() >= until:
                return False
            await asyncio.sleep(_BETWEEN)

    async def _do(self, flow: Flow[Any]) -> Any:
        try:
            result = await self._store.run(flow)
        except BaseException:
            self._life += 1
            if self._flushed is not None:
                self._flushed.forget()
            raise
        self._place = self._store.route.current
        return result

    def _step(self, wanted: Wanted, topic: str) -> Flow[bool]:
        if wanted.mark is None:
            # Links carry it on while this server flushes.
            needed = yield from self._acknowledged.is_needed(self._channel)
            wanted.mark = (yield from _asked(self._channel, replication_calls.mark())) if needed else ""
        now = time.monotonic()
        if wanted.level.level == "fsync" and self._flushed is not None:
            if not (yield from self._flushed.wait(self._channel, wanted.recorded, now + _STEP / 1000)):
                wanted.lacking = "the server has not flushed its append-only file"
                return False
        elif wanted.level.replicas and not (yield from self._is_replicated(wanted)):
            return False
        mark = wanted.mark
        until = time.monotonic() + _STEP / 1000
        if mark and not (yield from self._acknowledged.wait(self._channel, mark, {f"log {topic}": ""}, until)):
            wanted.lacking = f"{', '.join(self._acknowledged.lacking)} did not acknowledge it"
            return False
        return True

    def _is_replicated(self, wanted: Wanted) -> Flow[bool]:
        if not wanted.is_behind:
            # A server waits for the last write of a connection: this one, behind what was recorded.
            yield from _asked(self._channel, command(["SET", self._marker, "1"], bool))
            wanted.is_behind = True
        number = wanted.level.replicas
        count = yield from _asked(self._channel, command(["WAIT", number, _STEP], int, blocks=_STEP / 1000))
        wanted.lacking = f"{count} of {number} replicas have it"
        return bool(count >= number)


def _asked(channel: Any, call: Call[Any]) -> Flow[Any]:
    yield Post(channel, call)
    return (yield Collect(channel))
