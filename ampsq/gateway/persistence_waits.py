"""Waiting until what was recorded is where a level of persistence says, for all who ask, over one connection."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Final

from ampsq.base.errors import Unavailable
from ampsq.gateway.persistence_steps import PersistenceSteps, PersistenceWait
from ampsq.protocol.reads.server import examine

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ampsq.protocol.reads.server import Server
    from ampsq.protocol.request import Flow
    from ampsq.publishing.persistence_level import PersistenceLevel
    from ampsq.transport.async_store import AsyncStore

__all__ = ["Persisting", "PersistingShares"]

#: Seconds between two steps for the same one.
_BETWEEN: Final = 0.01


class Persisting:
    """Waits for disk, replicas and sync destinations.

    Args:
        store: has what was recorded.
        instance: its name.
        server: as it was at connect.
    """

    def __init__(self, store: AsyncStore, instance: str, server: Server) -> None:
        self._store, self._instance, self._server = store, instance, server
        self._pipeline = store.pipeline(follows=False)
        self._steps = PersistenceSteps(self._pipeline, instance)
        self._turn = asyncio.Lock()
        # Another one after each failure: a server that came back need not have what was recorded before.
        self._life = 0
        self._place: object = None

    async def begin(self, level: PersistenceLevel) -> PersistenceWait:
        """Begin to watch, before something is recorded.

        Raises:
            ServerUnsuitable: this server cannot reach the level. Unavailable: there is none.
        """
        if not self._server.appendfsync:
            # A coordinator may have noted it meanwhile.
            self._server = await self._store.run(examine(self._instance))
        watched = level.watch(self._server)
        async with self._turn:
            if level.level == "fsync" and self._steps.flushed is None:
                self._steps.flushed = watched
            await self._do(self._steps.connect())
            return PersistenceWait(level, self._life)

    async def wait(self, wanted: PersistenceWait, topic: str, until: float) -> bool:
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
                if await self._do(self._steps.look(wanted, topic)):
                    return True
            if time.monotonic() >= until:
                return False
            await asyncio.sleep(_BETWEEN)

    async def _do(self, flow: Flow[object]) -> object:
        try:
            result = await self._store.run(flow)
        except BaseException:
            self._life += 1
            if self._steps.flushed is not None:
                self._steps.flushed.forget()
            raise
        self._place = self._store.route.current
        return result


class PersistingShares:
    """Waits for what was recorded in several partitions; an instance without them is the only one.

    Args:
        parts: what waits in each.
    """

    def __init__(self, parts: Sequence[Persisting]) -> None:
        self._parts = list(parts)

    @classmethod
    def joined(cls, of_each: Iterable[PersistingShares]) -> PersistingShares:
        """Return one of all partitions."""
        return cls([part for each in of_each for part in each._parts])  # noqa: SLF001  (of its own)

    async def begin(
        self, level: PersistenceLevel, partitions: Iterable[int] | None = None
    ) -> list[tuple[int, PersistenceWait]]:
        """Begin to watch, before something is recorded; see `Persisting.begin`.

        Args:
            level: how far.
            partitions: where it is to be recorded; None: in all.
        """
        numbers = list(range(len(self._parts)) if partitions is None else partitions)
        waits = await asyncio.gather(*(self._parts[number].begin(level) for number in numbers))
        return list(zip(numbers, waits, strict=True))

    async def wait(self, wanted: Sequence[tuple[int, PersistenceWait]], topic: str, until: float) -> str | None:
        """Wait until what was just recorded in a topic is where it is to be; why it is not, else None.

        Args:
            wanted: from `begin`.
            topic: the topic or the queue.
            until: when to give up; seconds of the monotonic clock.

        Raises:
            Unavailable: as of `Persisting.wait`.
        """
        reached = await asyncio.gather(*(self._parts[number].wait(each, topic, until) for number, each in wanted))
        return next((each.lacking for (_, each), is_there in zip(wanted, reached, strict=True) if not is_there), None)
