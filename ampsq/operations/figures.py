"""An instance at one moment: its queues with the ages of what is in them, its links, its actions; read in one go."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from ampsq.base.errors import UnknownQueue
from ampsq.definitions.stored import read_stored_queue
from ampsq.operations.actions import actions
from ampsq.protocol.calls import catalog as catalog_calls
from ampsq.protocol.calls import links as link_calls
from ampsq.protocol.calls import queue_stats as stats_calls
from ampsq.protocol.calls.queue_ages import measure_ages
from ampsq.protocol.calls.queue_history import HistorySample
from ampsq.protocol.calls.queue_stats import QueueStats
from ampsq.protocol.request import Collect, Post

if TYPE_CHECKING:
    from ampsq.definitions.queue import Queue
    from ampsq.definitions.stored import StoredQueue
    from ampsq.operations.actions import ActionState
    from ampsq.operations.group_counting import GroupCounter, GroupFigures
    from ampsq.protocol.calls.catalog import Catalog
    from ampsq.protocol.calls.queue_ages import Ages
    from ampsq.protocol.calls.queue_stats import QueueCounts
    from ampsq.replication.report import LinkStatus
    from ampsq.transport.pipeline import Pipeline

__all__ = ["InstanceFigures", "QueueFigures", "read_figures", "read_queue_figures", "sample_of"]

#: Calls that are sent before their first reply is read.
_AHEAD: Final = 64


@dataclass(frozen=True, slots=True)
class QueueFigures:
    """One queue.

    Attributes:
        text: its definition, as it is stored.
        stats: its figures.
        ages: how old what is in it is.
        groups: how many groups it has, and how they are; None of a queue without groups, or where nobody counts them.
    """

    text: str
    stats: QueueStats
    ages: Ages
    groups: GroupFigures | None = None

    @property
    def definition(self) -> Queue:
        """The queue."""
        return _queue(self.text)

    @property
    def stored(self) -> StoredQueue:
        """The same, without its model."""
        return read_stored_queue(self.text)

    @property
    def behind(self) -> float:
        """Age of the oldest message that is not settled, seconds, also in a group that goes on no more."""
        return max(self.ages.behind, self.groups.oldest if self.groups else 0.0)

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
    from ampsq.definitions.queue import Queue  # noqa: PLC0415 - slow to import

    return Queue.from_json(text)


async def read_figures(instance: str, pipeline: Pipeline, counter: GroupCounter | None = None) -> InstanceFigures:
    """Read all of it: two short calls a queue, many of them on their way at once, so nothing else waits for long.

    Queues with groups take a call more, and more where there are very many groups.

    Args:
        instance: its name.
        pipeline: for the calls, of the store that runs this.
        counter: counts the groups of its queues, from one reading to the next; None: nobody does.
    """
    catalog: Catalog = await catalog_calls.catalog()
    queues = await read_queue_figures(catalog, pipeline)
    if counter is not None:
        grouped = [name for name, each in queues.items() if each.stored.is_grouped]
        for name, groups in (await counter.count(grouped, pipeline)).items():
            queues[name] = replace(queues[name], groups=groups)
    links = await _links(instance, catalog)
    states = await actions(instance)
    return InstanceFigures(catalog.instance, catalog.group, queues, links, states, catalog.defined_only)


async def _links(instance: str, catalog: Catalog) -> tuple[LinkStatus, ...]:
    if not catalog.destinations and not (await link_calls.read_link_reports(instance)).incoming:
        return ()
    from ampsq.replication.report import read_links  # noqa: PLC0415 - needs models, which are slow to import

    return await read_links(instance, catalog)


def sample_of(queue: QueueFigures, now: int) -> HistorySample:
    """Give what a queue's history says of how it is at a time, ms of the server's clock."""
    oldest = round(queue.ages.behind * 1000) if queue.stats.depth else 0
    return HistorySample(now, queue.entered, queue.settled, queue.stats.depth, oldest)


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
            found[name] = QueueFigures(catalog.queues[name], QueueStats(name, figures), ages)
    return found
