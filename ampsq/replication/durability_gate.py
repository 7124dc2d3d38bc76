"""Letting through only what the source cannot lose any more: peers see what is durable there, and nothing else."""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING, Final, Generic, Protocol, TypeVar

from ampsq.base.errors import Unavailable
from ampsq.protocol.reads.server import examine_flushing, ping
from ampsq.publishing.flush_watch import FlushWatch

if TYPE_CHECKING:
    from ampsq.transport.pipeline import PinnedPipeline
    from ampsq.transport.store import Store

__all__ = ["DurabilityGate", "GateMaker"]

Page = TypeVar("Page")
#: Seconds of one wait for the disk where there is nothing else to do.
_IDLE: Final = 0.1


class DurabilityGate(Generic[Page]):
    """Pages that were read from a server, given back when they are on its disk.

    A server without an append-only file promises nothing, and one that flushes before it answers has flushed what it
    gives: there pages go through at once.

    Args:
        store: the source.

    Raises:
        ServerUnsuitable: the server leaves flushing to its operating system.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        server = store.run(examine_flushing(store.instance))
        self._flushed = FlushWatch.watch(server, "replication") if server.appends else None
        # Each with the moment at which it was there.
        self._pages: deque[tuple[float, Page]] = deque()
        self._pipeline: PinnedPipeline | None = None
        if self._flushed is not None:
            # Connected before anything is read: else a server that came back without it would say that it is flushed.
            self._pipeline = store.pinned()
            self._pipeline.ask(ping())

    @property
    def is_empty(self) -> bool:
        """Return whether nothing waits."""
        return not self._pages

    def put(self, page: Page) -> None:
        """Take a page that was just read."""
        self._pages.append((time.monotonic(), page))

    def take(self, *, is_idle: bool) -> list[Page]:
        """The pages that are durable by now, in the order in which they were put.

        Args:
            is_idle: there is nothing else to do: wait a little for them.

        Raises:
            Unavailable: the server is gone; what waited is forgotten, and to be read again.
        """
        if not self._pages:
            return []
        until = time.monotonic() if self._flushed is None else self._look(self._flushed, is_idle=is_idle)
        durable = []
        while self._pages and self._pages[0][0] <= until:
            durable.append(self._pages.popleft()[1])
        return durable

    def _look(self, flushed: FlushWatch, *, is_idle: bool) -> float:
        if self._pipeline is None:
            raise Unavailable(f"the connection to {self._store.instance!r} that waits for its disk is closed")
        try:
            if is_idle:
                self._store.run(flushed.wait(self._pipeline, self._pages[0][0], time.monotonic() + _IDLE))
            else:
                self._store.run(flushed.read_info(self._pipeline))
        except Unavailable:
            self.close()
            raise
        return flushed.until

    def close(self) -> None:
        """Forget what waits."""
        self._pages.clear()
        if self._pipeline is not None:
            self._pipeline.close()
            self._pipeline = None


class GateMaker(Protocol):
    """A function that makes the gate of a server, whatever pages are to pass it."""

    def __call__(self, store: Store, /) -> DurabilityGate[Page]:
        """Make it."""
