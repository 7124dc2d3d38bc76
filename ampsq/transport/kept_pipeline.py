"""A connection that is kept for asking a server several things at once, now and then: opening one costs more."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from ampsq.base.errors import Unavailable

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from ampsq.protocol.request import Call
    from ampsq.transport.pipeline import Pipeline
    from ampsq.transport.store import Store

__all__ = ["KeptPipeline"]


class KeptPipeline:
    """A pipeline for one thread, which outlives what is asked on it."""

    def __init__(self) -> None:
        self._pipeline: Pipeline | None = None
        self._store: Store | None = None

    def ask(self, store: Store, calls: Sequence[Call[object]]) -> Generator[object]:
        """Ask the server in one write; gives the replies in order.

        Of what the server refuses the error is raised in the place of its reply, after the replies before it. The
        generator has to be closed.

        Args:
            store: says which server; another one than before has a connection of its own.
            calls: what is asked.
        """
        try:
            if calls:
                yield self._first_reply(store, calls)
            for _ in calls[1:]:
                yield self.pipeline(store).collect()
        finally:
            # Replies that nobody reads would be taken for those of the next calls.
            if self._pipeline is not None and self._pipeline.open_calls:
                self.close()

    def _first_reply(self, store: Store, calls: Sequence[Call[object]]) -> object:
        """Send the calls and read the first reply, once more where the connection was ended since its last use."""
        if self._pipeline is not None:
            with contextlib.suppress(Unavailable):
                return self._send(store, calls)
            self.close()
        return self._send(store, calls)

    def _send(self, store: Store, calls: Sequence[Call[object]]) -> object:
        self.pipeline(store).post_all(calls)
        return self.pipeline(store).collect()

    def pipeline(self, store: Store) -> Pipeline:
        """Return the pipeline, on which nothing is in flight while nobody reads what `ask` gives."""
        if self._pipeline is None or self._store is not store:
            self.close()
            self._pipeline, self._store = store.pipeline(), store
        return self._pipeline

    def close(self) -> None:
        """Give the connection back; the next question takes one again."""
        pipeline, self._pipeline = self._pipeline, None
        if pipeline is not None:
            pipeline.close()
