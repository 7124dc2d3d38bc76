"""An instance at one moment: its queues with the ages of what is in them, its links, its actions; read in one go."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from ampsq.base.errors import UnknownQueue
from ampsq.definitions.queue import Queue
from ampsq.operations.actions import actions
from ampsq.protocol.calls import catalog as catalog_calls
from ampsq.protocol.calls import queue_stats as stats_calls
from ampsq.protocol.calls.queue_ages import measure_ages
from ampsq.protocol.calls.queue_stats import QueueStats
from ampsq.protocol.request import Collect, Post
from ampsq.replication.report import read_links

if TYPE_CHECKING:
    from ampsq.operations.actions import ActionState
    from ampsq.protocol.calls.catalog import Catalog
    from ampsq.protocol.calls.queue_ages import Ages
    from ampsq.protocol.calls.queue_stats import QueueCounts
    from ampsq.replication.report import LinkStatus
    from ampsq.transport.pipeline import Pipeline

__all__ = ["InstanceFigures", "QueueFigures", "read_figures", "read_queue_figures"]

#: Calls that are sent before their first reply is read.
_AHEAD: Final = 64


@dataclass(frozen=True, slots=True)
class QueueFigures:
    """One queue.

    Attributes:
        definition: the queue.
        stats: its figures.
        ages: how old what is in it is.
    """

    definition: Queue
    stats: QueueStats
    ages: Ages

    @property
    def settled(self) -> int:
        """Number of messages that left the queue for good since it was defined."""
        return self.stats.settled

    @property
    def entered(self) -> int:
        """Number of messages that entered the queue since it was defined, without those owned elsewhere."""
        return self.stats.entered


@dataclass(frozen=True, slots=True)
class InstanceFigures:
    """An instance at one moment.

    Attributes:
        instance: its name.
        group: its group.
        queues: by name.
        links: those to its destinations, then those that come in.
        actions: by name.
        defined_only: whether it takes messages for defined topics alone.
    """

    instance: str
    group: str
    queues: dict[str, QueueFigures]
    links: tuple[LinkStatus, ...]
    actions: dict[str, ActionState]
    defined_only: bool = False


@lru_cache(maxsize=4096)
def _queue(text: str) -> Queue:
    return Queue.from_json(text)


async def read_figures(instance: str, pipeline: Pipeline) -> InstanceFigures:
    """Read all of it: two short calls a queue, many of them on their way at once, so nothing else waits for long.

    Args:
        instance: its name.
        pipeline: for the calls, of the store that runs this.
    """
    catalog: Catalog = await catalog_calls.catalog()
    queues = await read_queue_figures(catalog, pipeline)
    links = await read_links(instance, catalog)
    states = await actions(instance)
    return InstanceFigures(catalog.instance, catalog.group, queues, links, states, catalog.defined_only)


async def read_queue_figures(catalog: Catalog, pipeline: Pipeline) -> dict[str, QueueFigures]:
    """Read the queues alone; of a catalog that another instance's took the place of, those up to there."""
    found: dict[str, QueueFigures] = {}
    names = sorted(catalog.queues)
    for first in range(0, len(names), _AHEAD // 2):
        some = names[first : first + _AHEAD // 2]
        for name in some:
            await Post(pipeline, stats_calls.stats(name))
            await Post(pipeline, measure_ages(name))
        for name in some:
            try:
                figures: QueueCounts = await Collect(pipeline)
                ages: Ages = await Collect(pipeline)
            except UnknownQueue:
                # Another instance of the name took the place of this one: its catalog comes with the next reading.
                pipeline.close()
                return found
            found[name] = QueueFigures(_queue(catalog.queues[name]), QueueStats(name, figures), ages)
    return found
