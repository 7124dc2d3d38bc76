"""Duty: what the figures of queues were, for charts; while nothing changes nothing is read and nothing written."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, ClassVar, Final, NamedTuple

from ampsq.operations.figures import read_queue_figures, sample_of
from ampsq.protocol.calls import queue_history as history_calls
from ampsq.protocol.calls.queue_history import RANGES
from ampsq.protocol.reads.clock import server_time

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ampsq.coordinator.duty import Definitions, Happened
    from ampsq.operations.figures import QueueFigures
    from ampsq.transport.store import Store

__all__ = ["QueueHistory"]

#: Seconds between two samples, of which each bucket of the shortest range has one; reading takes at most one part of
#: so many of the time.
_EVERY: Final = min(RANGES.values()) / 1000
_SHARE: Final = 100
#: Samples that are sent before the first answer is read.
_AHEAD: Final = 64


class _Counts(NamedTuple):
    """Figures that tell whether something happened in a queue."""

    entered: int = 0
    settled: int = 0
    depth: int = 0
    leased: int = 0


class QueueHistory:
    """Writes a sample of each queue that has something in it, or had, every 15 seconds at most.

    What wakes it (a message that comes, a lease that ends, a client that comes or goes) lets it look once; it looks
    again as long as each look finds that something has changed.

    Args:
        definitions: the catalog.
    """

    name = "history"
    wakes: ClassVar[frozenset[Happened]] = frozenset({"news", "due", "clients", "remote"})

    def __init__(self, definitions: Definitions) -> None:
        self._definitions = definitions
        self._seen: dict[str, _Counts] = {}
        self._wanted_at = float("-inf")

    def run_once(self, store: Store) -> float:
        """Take a sample where it is time for one; gives when the next one is, or that only what happens counts."""
        began = time.monotonic()
        if began < self._wanted_at:
            return self._wanted_at - began
        catalog = self._definitions.read(store)
        with store.pipeline() as pipeline:
            figures = store.run(read_queue_figures(catalog, pipeline))
        changed, now = self._take(figures), store.call(server_time())
        with store.pipeline() as pipeline:
            for first in range(0, len(changed), _AHEAD):
                some = changed[first : first + _AHEAD]
                pipeline.post_all(
                    [history_calls.write_sample(store.instance, name, sample_of(figures[name], now)) for name in some]
                )
                for _ in some:
                    pipeline.collect()
        if gone := self._seen.keys() - catalog.queues.keys():
            # They were removed while a sample was on its way, it may be.
            store.call(history_calls.drop_history(store.instance, sorted(gone)))
            for name in gone:
                del self._seen[name]
        took = time.monotonic() - began
        self._wanted_at = began + max(_EVERY, took * _SHARE)
        return self._wanted_at - time.monotonic() if changed else math.inf

    def _take(self, figures: Mapping[str, QueueFigures]) -> list[str]:
        """Note how queues are, and give those that a sample is written of: of all with messages once one changed."""
        counts = {
            name: _Counts(each.entered, each.settled, each.stats.depth, each.stats.leased)
            for name, each in figures.items()
        }
        changed = {name for name, each in counts.items() if self._seen.get(name, _Counts()) != each}
        self._seen.update(counts)
        if not changed:
            return []
        # The oldest message of the others has become older.
        return [name for name, each in counts.items() if name in changed or each.depth]
