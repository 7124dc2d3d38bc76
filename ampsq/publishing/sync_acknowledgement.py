"""Whether all sync destinations have what was recorded: what *persisted* adds where an instance replicates.

Nothing is polled: links say in the stream `confirmed` how far a destination is, and a downgrade says that nobody waits
for it any more.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from ampsq.protocol.calls import replication as replication_calls
from ampsq.protocol.request import Collect, Post, command
from ampsq.protocol.schema import key

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ampsq.protocol.request import Call

__all__ = ["SCRIPTS", "SyncAcknowledgement"]

#: What a channel that runs nothing else must have loaded.
SCRIPTS = ("set_mark", "find_lacking_destinations")


class SyncAcknowledgement:
    """Waits for the sync destinations of an instance.

    Args:
        instance: its name.

    Attributes:
        lacking: the destinations that did not have everything at the last look.
    """

    def __init__(self, instance: str) -> None:
        self._sync, self._news = key(instance, "sync"), key(instance, "confirmed")
        self.lacking: list[str] = []

    async def is_needed(self, pipeline: Any) -> bool:
        """Whether there is any sync destination at all."""
        number: int = await _ask(pipeline, command(["EXISTS", self._sync], int))
        return number > 0

    async def wait(self, pipeline: Any, mark: str, wanted: Mapping[str, str], until: float) -> bool:
        """Wait until all of them have something, or are downgraded; whether it is so.

        Args:
            pipeline: on which it waits.
            mark: set behind it; "" where `wanted` has the IDs.
            wanted: ``log <topic>`` and ``journal <queue>`` -> ID, see
                `ampsq.protocol.calls.replication.lacking_destinations`.
            until: by the monotonic clock, when to give up.
        """
        # What comes behind this while they are looked at ends the wait at once.
        last = await _ask(pipeline, command(["XREVRANGE", self._news, "+", "-", "COUNT", 1], _last))
        while True:
            self.lacking = await _ask(pipeline, replication_calls.lacking_destinations(mark, wanted))
            left = round((until - time.monotonic()) * 1000)
            if not self.lacking or left <= 0:
                return not self.lacking
            asked: list[str | int] = ["XREAD", "BLOCK", left, "STREAMS", self._news, last]
            last = (await _ask(pipeline, command(asked, _last_read, blocks=left / 1000))) or last


async def _ask(pipeline: Any, call: Call[Any]) -> Any:
    await Post(pipeline, call)
    return await Collect(pipeline)


def _last(reply: Any) -> str:
    return reply[0][0].decode() if reply else "0-0"


def _last_read(reply: Any) -> str:
    # Which form a reply of several streams has depends on the protocol.
    if not reply:
        return ""
    entries = next(iter(reply.values())) if isinstance(reply, dict) else reply[0][1]
    return str(entries[-1][0].decode())
