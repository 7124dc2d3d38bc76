"""Changes that a file would make at an instance, which need not be there; no client is opened, nothing is written."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ampsq.catalog.apply import plan_on
from ampsq.catalog.read_definitions import definitions_left_out, definitions_of
from ampsq.catalog.remove import check_removal
from ampsq.catalog.suggestions import with_suggestions
from ampsq.definitions.queue import Queue
from ampsq.protocol.calls import catalog as catalog_calls
from ampsq.protocol.calls import queue_stats as stats_calls
from ampsq.protocol.calls.queue_stats import QueueStats
from ampsq.protocol.reads.instance import is_opened
from ampsq.protocol.reads.server import examine

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ampsq.catalog.apply import Planned
    from ampsq.definitions.queue import Definition
    from ampsq.protocol.calls.catalog import Catalog
    from ampsq.protocol.reads.server import Server

__all__ = ["Comparison", "compare"]


@dataclass(frozen=True, slots=True)
class Comparison:
    """The changes that a file would make.

    Attributes:
        server: where that would be.
        plans: what applying its definitions comes to.
        removed: what is defined and not in it, where that would be removed.
        waiting: queues that would be removed -> messages in them.
    """

    server: Server
    plans: Sequence[Planned]
    removed: Sequence[Definition]
    waiting: Mapping[str, int]

    @property
    def changes(self) -> bool:
        """Return whether anything differs from the file."""
        return bool(self.removed) or any(plan.outcome != "unchanged" for plan in self.plans)


@with_suggestions("queue")
async def compare(instance: str, definitions: list[Definition], *, prune: bool) -> Comparison:
    """Say what applying definitions would do, and refuse what would be refused; nothing is written.

    Args:
        instance: its name; one that is not there is taken as one without definitions.
        definitions: what is to be so.
        prune: remove what is not among them.

    Raises:
        As `Client.apply` and `Admin.remove` do.
    """
    server = await examine(instance)
    if not (await is_opened(instance)):
        plans = await plan_on(_nothing(instance), definitions, server)
        return Comparison(server, plans, (), {})
    catalog = await catalog_calls.catalog()
    removed = definitions_left_out(definitions_of(catalog), definitions) if prune else []
    plans = await plan_on(catalog, definitions, server)
    if removed:
        await check_removal(definitions, removed)
    waiting = {}
    for each in removed:
        if isinstance(each, Queue):
            waiting[each.name] = QueueStats(each.name, (await stats_calls.stats(each.name))).depth
    return Comparison(server, plans, removed, waiting)


def _nothing(instance: str) -> Catalog:
    """Return the catalog of an instance that does not exist yet."""
    return catalog_calls.Catalog(
        version=0,
        topics={},
        queues={},
        actions={},
        patterns={},
        views={},
        settings={},
        transports={},
        destinations={},
        conflated={},
        instance=instance,
        group=instance,
    )
