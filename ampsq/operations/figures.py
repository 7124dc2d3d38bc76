"""An instance at one moment: its queues with the ages of what is in them, its links, its actions; read in one go."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from ampsq.base.errors import UnknownQueue
from ampsq.definitions.queue import Queue
from ampsq.operations.actions import actions
from ampsq.protocol.calls import queues as calls
from ampsq.protocol.calls.queue_stats import QueueStats
from ampsq.protocol.request import Collect, Post, script_call
from ampsq.replication.report import read_links

if TYPE_CHECKING:
    from ampsq.operations.actions import ActionState
    from ampsq.protocol.calls.queues import Catalog
    from ampsq.protocol.request import Call
    from ampsq.replication.report import LinkStatus
    from ampsq.transport.pipeline import Pipeline

__all__ = ["Ages", "InstanceFigures", "QueueFigures", "measure", "read_figures"]

#: Calls that are sent before their first reply is read.
_AHEAD: Final = 64


@dataclass(frozen=True, slots=True)
class Ages:
    """How long the oldest messages of a queue have been there, in seconds; None where there is none.

    Attributes:
        message: the oldest message that may be delivered, since it was recorded here. Of a queue with priorities: of
            the next hundred, and the oldest of the least priority.
        leased: the oldest leased message, since it was recorded here.
        lease: the oldest lease, since it was made or last extended; None where leases never lapse. Of more than a
            thousand leases both are of a thousand, by chance.
        deferred: not an age: what other instances told of messages of the queue's topics that are not here yet.
        proxied: not an age: whether this instance may act for owners out of reach.
    """

    message: float | None
    leased: float | None
    lease: float | None
    deferred: int
    proxied: bool

    @property
    def behind(self) -> float:
        """The oldest message that is not settled; 0 where there is none: AMPS's ``seconds_behind``."""
        return max(self.message or 0.0, self.leased or 0.0)


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
        """What left the queue for good since it was defined."""
        return self.stats.settled

    @property
    def entered(self) -> int:
        """What came into the queue since it was defined, as far as it is not owned elsewhere."""
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


def measure(queue: str) -> Call[Ages]:
    """Read how old the oldest of a queue's messages and leases are."""

    def read(reply: list[Any]) -> Ages:
        now, *moments = (int(value) if value else None for value in reply[:4])
        message, leased, lease = (None if ms is None else max((now or 0) - ms, 0) / 1000 for ms in moments)
        return Ages(message, leased, lease, int(reply[4]), bool(reply[5]))

    return script_call("measure_ages", ["", queue], read, repeatable=True)


@lru_cache(maxsize=4096)
def _queue(text: str) -> Queue:
    return Queue.from_json(text)


async def read_figures(instance: str, pipeline: Pipeline) -> InstanceFigures:
    """Read all of it: two short calls a queue, many of them on their way at once, so nothing else waits for long.

    Args:
        instance: its name.
        pipeline: for the calls, of the store that runs this.
    """
    catalog: Catalog = await calls.catalog()
    queues = await _queues(catalog, pipeline)
    links = await read_links(instance, catalog)
    states = await actions(instance)
    return InstanceFigures(catalog.instance, catalog.group, queues, links, states, catalog.defined_only)


async def _queues(catalog: Catalog, pipeline: Pipeline) -> dict[str, QueueFigures]:
    found: dict[str, QueueFigures] = {}
    names = sorted(catalog.queues)
    for first in range(0, len(names), _AHEAD // 2):
        some = names[first : first + _AHEAD // 2]
        for name in some:
            await Post(pipeline, calls.stats(name))
            await Post(pipeline, measure(name))
        for name in some:
            try:
                figures = await Collect(pipeline)
                ages: Ages = await Collect(pipeline)
            except UnknownQueue:
                # Another instance of the name took the place of this one: its catalog comes with the next reading.
                pipeline.close()
                return found
            found[name] = QueueFigures(_queue(catalog.queues[name]), QueueStats(name, figures), ages)
    return found
