"""Acknowledgement of all sync destinations: the part of *persisted* that is added where an instance replicates.

Nothing is polled: links say in the stream `confirmed` how far a destination is, and a downgrade says that nobody waits
for it any more.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from ampsq.protocol.calls import replication as replication_calls
from ampsq.protocol.reads.destinations import await_news, has_sync, news_end
from ampsq.protocol.request import ask

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ampsq.protocol.request import AnyPipeline

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
        self._instance = instance
        self.lacking: list[str] = []

    async def is_needed(self, pipeline: AnyPipeline) -> bool:
        """Return whether there is any sync destination at all."""
        return await ask(pipeline, has_sync(self._instance))

    async def wait(self, pipeline: AnyPipeline, mark: str, wanted: Mapping[str, str], until: float) -> bool:
        """Wait until all of them have something, or are downgraded; whether it is so.

        Args:
            pipeline: on which it waits.
            mark: set behind it; "" where `wanted` has the IDs.
            wanted: ``log <topic>`` and ``journal <queue>`` -> ID, see
                `ampsq.protocol.calls.replication.lacking_destinations`.
            until: by the monotonic clock, when to give up.
        """
        # What comes behind this while they are looked at ends the wait at once.
        last = await ask(pipeline, news_end(self._instance))
        while True:
            self.lacking = await ask(pipeline, replication_calls.lacking_destinations(mark, wanted))
            left = round((until - time.monotonic()) * 1000)
            if not self.lacking or left <= 0:
                return not self.lacking
            last = (await ask(pipeline, await_news(self._instance, last, left))) or last
