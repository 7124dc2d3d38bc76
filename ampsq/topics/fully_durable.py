"""Reading only what cannot be lost any more: what a fully durable subscription waits for."""

from __future__ import annotations

import logging
import re
import time
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from ampsq.base.errors import DefinitionError, Unavailable
from ampsq.base.log_positions import FIRST, id_text
from ampsq.base.values import shown
from ampsq.protocol.reads.server import connected_replicas, examine_flushing, ping, wait_for_replicas, write_marker
from ampsq.protocol.reads.streams import last_id, last_ids, log_of
from ampsq.protocol.request import ask
from ampsq.publishing.flush_watch import FlushWatch
from ampsq.publishing.sync_acknowledgement import SyncAcknowledgement
from ampsq.publishing.sync_state import sync_states

if TYPE_CHECKING:
    from ampsq.base.log_positions import Id
    from ampsq.protocol.reads.streams import LogPages
    from ampsq.protocol.request import AnyPipeline, Call
    from ampsq.publishing.sync_state import SyncState

__all__ = ["Durability"]

Asked = TypeVar("Asked")
_log = logging.getLogger("ampsq")
_REPLICAS = re.compile(r"replicas=([1-9][0-9]?)")
_ALLOWED: Final = "False, True or 'fsync' (on the server's disk), or 'replicas=1', with how many replicas must have it"
#: Milliseconds of one wait for disk or replicas.
_WAIT: Final = 1000
_YES: Final = "fsync"
#: Seconds after which it is told that messages wait, and after which it is told again.
_TELL: Final = 5.0
_TELL_AGAIN: Final = 60.0


class Durability(Generic[Asked]):
    """The condition of durability that a message meets before it is handed on; its sync destinations have it, too.

    Args:
        instance: the instance's name.
        spec: `fully_durable` of a subscription: True or ``fsync``: on the server's disk; ``replicas=<n>``: acknowledged
            by so many replicas.

    Raises:
        DefinitionError: it is none of these.
    """

    def __init__(self, instance: str, spec: object) -> None:
        found = _REPLICAS.fullmatch(spec) if isinstance(spec, str) else None
        if spec is not True and spec != _YES and found is None:
            raise DefinitionError(f"fully_durable={shown(spec)}: allowed is {_ALLOWED}")
        self._instance = instance
        self._acknowledged = SyncAcknowledgement(instance)
        self._replicas = int(found[1]) if found else 0
        # None: the server flushes before it answers, or replicas are waited for.
        self._flushed: FlushWatch | None = None
        # Of each topic: everything up to this ID is on the disk.
        self._on_disk: dict[str, Id] = {}
        self._reached: tuple[float, dict[str, Id]] | None = None
        # What was read and is not durable yet, as far as is known.
        self._pending: tuple[Asked, LogPages] | None = None
        # When it is to be told that what was read waits; None: nothing does.
        self._tell_at: float | None = None

    async def examine(self) -> None:
        """See that the server can say what is durable.

        Raises:
            ServerUnsuitable: it cannot. That replicas are missing is only told, in the log: they may come.
        """
        if self._replicas:
            connected = await connected_replicas()
            if connected < self._replicas:
                _log.warning(
                    "fully_durable='replicas=%d': the server has %d replicas connected; until there are enough, and "
                    "they have what was published, nothing is handed out",
                    *(self._replicas, connected),
                )
            return
        self._flushed = FlushWatch.watch(
            (await examine_flushing(self._instance)), "fully_durable (where it is not 'replicas=1')"
        )

    async def read(
        self, pipeline: AnyPipeline, request: Asked, call: Call[LogPages], wait: float
    ) -> tuple[Asked, LogPages] | None:
        """Read pages of logs, and give it when it is durable; None when it is not within `wait` seconds: ask again.

        What is given was asked for by that request, or by the one before that was not answered yet. When the
        connection breaks the server may have come back without what was read: then it is read again.
        """
        until = time.monotonic() + wait
        try:
            if self._pending is None:
                reply = await self._ask(pipeline, call)
                if not reply:
                    return request, reply
                self._pending = request, reply
            if not (await self._is_durable(pipeline, self._pending[1], until)):
                return None
            if not (await self._is_acknowledged(pipeline, self._pending[1], until)):
                return None
            self._tell_at = None
            found, self._pending = self._pending, None
        except Unavailable:
            self.forget()
            # This waits until there is a server again.
            await ping()
            return None
        except BaseException:
            self.forget()
            raise
        return found

    async def _ask(self, pipeline: AnyPipeline, call: Call[LogPages]) -> LogPages:
        if self._flushed is None and not self._replicas:
            return await call
        reply = await ask(pipeline, call)
        if reply and self._replicas:
            # A server waits for the last write of a connection: this one, behind all that was read before on it.
            await ask(pipeline, write_marker(self._instance))
        return reply

    def forget(self) -> None:
        """Forget pages that are read and not durable yet; they are read again, by another connection perhaps."""
        self._pending = self._reached = None
        self._on_disk = {}

    async def _is_durable(self, pipeline: AnyPipeline, reply: LogPages, until: float) -> bool:
        if self._replicas:
            return await self._is_replicated(pipeline, until)
        if self._flushed is None:
            return True
        lasts = last_ids(self._instance, reply)
        if all(self._on_disk.get(topic, FIRST) >= last for topic, last in lasts.items()):
            return True
        if self._reached is None:
            # All of the log, so that the next pages need not wait again.
            ends: dict[str, Id] = {}
            for topic in lasts:
                # One that somebody trimmed away has nothing that could be lost.
                ends[topic] = await ask(pipeline, last_id(self._instance, log_of(topic)))
            self._reached = time.monotonic(), ends
        moment, ends = self._reached
        if await self._flushed.wait(pipeline, moment, until):
            self._on_disk |= ends
            self._reached = None
            return True
        if self._is_to_be_told():
            self._tell("they are not on its disk")
        return False

    async def _is_replicated(self, pipeline: AnyPipeline, until: float) -> bool:
        while True:
            left = max(min(round((until - time.monotonic()) * 1000), _WAIT), 1)
            count = await ask(pipeline, wait_for_replicas(self._replicas, left))
            if count >= self._replicas:
                return True
            if self._is_to_be_told():
                self._tell(f"{count} of {self._replicas} replicas have them")
            if time.monotonic() >= until:
                return False

    async def _is_acknowledged(self, pipeline: AnyPipeline, reply: LogPages, until: float) -> bool:
        if not (await self._acknowledged.is_needed(pipeline)):
            return True
        wanted = {f"log {topic}": id_text(last) for topic, last in last_ids(self._instance, reply).items()}
        if await self._acknowledged.wait(pipeline, "", wanted, until):
            return True
        if self._is_to_be_told():
            states: dict[str, SyncState] = await sync_states(self._instance)
            self._tell("; ".join(str(states[name]) for name in self._acknowledged.lacking if name in states))
        return False

    def _is_to_be_told(self) -> bool:
        """Return whether something has waited for a while, and nobody was told of it lately."""
        now = time.monotonic()
        if self._tell_at is None:
            self._tell_at = now + _TELL
        if now < self._tell_at:
            return False
        self._tell_at = now + _TELL_AGAIN
        return True

    @staticmethod
    def _tell(lacking: str) -> None:
        _log.warning("a fully durable subscription hands out nothing: messages wait on the server, and %s", lacking)
