"""Steps in which one connection sees records persisted: on disk, at replicas, at sync destinations; its flows."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ampsq.protocol.calls import replication as replication_calls
from ampsq.protocol.reads.server import ping, wait_for_replicas, write_marker
from ampsq.protocol.request import ask
from ampsq.publishing.sync_acknowledgement import SyncAcknowledgement

if TYPE_CHECKING:
    from ampsq.protocol.request import AnyPipeline
    from ampsq.publishing.flush_watch import FlushWatch
    from ampsq.publishing.persistence_level import PersistenceLevel

__all__ = ["PersistenceSteps", "PersistenceWait"]

#: ms of one step, after which it is the next one's turn.
_STEP: Final = 50


@dataclass
class PersistenceWait:
    """The target of one who waits for persistence.

    Attributes:
        level: how far.
        life: of the connection that watched since before it was recorded.
        recorded: when it was; seconds of the monotonic clock.
        lacking: why it is not there yet.
        mark: set behind it for sync destinations; "" where there are none, None before.
        is_behind: whether the connection that waits for replicas has written something behind it.
    """

    level: PersistenceLevel
    life: int
    recorded: float = 0.0
    lacking: str = ""
    mark: str | None = None
    is_behind: bool = False


class PersistenceSteps:
    """Asks over one connection how far something is persisted, a bounded step at a time.

    Args:
        channel: the connection.
        instance: its name.

    Attributes:
        flushed: what watches the server flush; None until somebody waits for that.
    """

    def __init__(self, channel: AnyPipeline, instance: str) -> None:
        self._channel, self._instance = channel, instance
        self._acknowledged = SyncAcknowledgement(instance)
        self.flushed: FlushWatch | None = None

    async def connect(self) -> None:
        """Have the connection open before something is recorded."""
        await ask(self._channel, ping())

    async def look(self, wanted: PersistenceWait, topic: str) -> bool:
        """Return whether what was recorded in a topic is where it is to be; else `wanted.lacking` has the reason."""
        if wanted.mark is None:
            # Links carry it on while this server flushes.
            needed = await self._acknowledged.is_needed(self._channel)
            wanted.mark = (await ask(self._channel, replication_calls.set_mark())) if needed else ""
        now = time.monotonic()
        if wanted.level.level == "fsync" and self.flushed is not None:
            if not (await self.flushed.wait(self._channel, wanted.recorded, now + _STEP / 1000)):
                wanted.lacking = "the server has not flushed its append-only file"
                return False
        elif wanted.level.replicas and not (await self._is_replicated(wanted)):
            return False
        mark = wanted.mark
        until = time.monotonic() + _STEP / 1000
        if mark and not (await self._acknowledged.wait(self._channel, mark, {f"log {topic}": ""}, until)):
            wanted.lacking = f"{', '.join(self._acknowledged.lacking)} did not acknowledge it"
            return False
        return True

    async def _is_replicated(self, wanted: PersistenceWait) -> bool:
        if not wanted.is_behind:
            # A server waits for the last write of a connection: this one, behind what was recorded.
            await ask(self._channel, write_marker(self._instance))
            wanted.is_behind = True
        number = wanted.level.replicas
        count = await ask(self._channel, wait_for_replicas(number, _STEP))
        wanted.lacking = f"{count} of {number} replicas have it"
        return count >= number
