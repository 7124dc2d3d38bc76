"""Aggregated subscriptions: rows over a queue or topics, each time that one changes.

`RowSubscription` is what an application has in hand. It works on `ManagedRowSubscription`, which has what the
client needs besides, to go on at another instance.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any, Self

from ampsq.base.errors import Closed, Unavailable
from ampsq.base.waiting import MOVING, STEP, time_limit, wait_of
from ampsq.views.upkeep import follow, next_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from datetime import timedelta

    from ampsq.protocol.context import InstanceContext
    from ampsq.transport.store import Store
    from ampsq.views.upkeep import Follower

__all__ = ["ManagedRowSubscription", "RowSubscription"]


class ManagedRowSubscription:
    """One aggregated subscription with what moves it; `RowSubscription` is what an application sees of it.

    Args:
        follower: keeps the rows in step with what they are made of.
        store: runs its flows.
        end: called when it is closed.
    """

    def __init__(
        self,
        follower: Follower,
        store: Store,
        end: Callable[[ManagedRowSubscription], None],
    ) -> None:
        self._follower, self._store, self._end = follower, store, end
        # Those that were read and not handed out.
        self._rows: deque[dict[str, Any]] = deque()
        self._closed = False
        # Whoever reads has it.
        self._lock = threading.Lock()
        # Between leaving an instance and going on at another one.
        self._is_moving = False

    def __repr__(self) -> str:
        view = self._follower.view
        return f"<RowSubscription to {view.underlying_topic[0]!r}: {', '.join(view.projection)}>"

    def get(self, timeout: timedelta | float | str | None) -> dict[str, Any] | None:
        """Wait for the next row; see `RowSubscription.get`."""
        until = time_limit(timeout)
        while True:
            if self._lock.acquire(timeout=wait_of(until)):
                try:
                    if self._rows or self._read(until):
                        return self._rows.popleft()
                finally:
                    self._lock.release()
            if time.monotonic() >= until:
                return None
            if self._is_moving:
                time.sleep(MOVING)

    def _read(self, until: float) -> bool:
        """Wait for rows; whether there are any."""
        if self._closed:
            raise Closed("this subscription was closed")
        try:
            self._rows.extend(self._store.run(next_rows(self._follower, wait_of(until))))
        except Unavailable:
            if not self._is_moving:
                raise
        return bool(self._rows)

    def rows(self) -> Iterator[dict[str, Any]]:
        """Hand out rows until the subscription is closed."""
        while not self._closed:
            try:
                row = self.get(STEP)
            except Closed:
                return
            if row is not None:
                yield row

    # -- at another instance

    def prepare_failover(self, store: Store, context: InstanceContext) -> Callable[[], None]:
        """Begin at another instance; gives what lets it go on there, after `suspend`."""
        follower = store.run(follow(context, self._follower.view))
        return partial(self._resume_at, follower, store)

    def suspend(self) -> None:
        """From here on the instance is out of reach, and what `prepare_failover` gave follows."""
        self._is_moving = True

    def _resume_at(self, follower: Follower, store: Store) -> None:
        with self._lock:
            follower.go_on_from(self._follower)
            self._follower, self._store, self._is_moving = follower, store, False

    # -- the end

    def close(self) -> None:
        """End it; see `RowSubscription.close`."""
        if not self._closed:
            self._closed = True
            self._end(self)


class RowSubscription:
    """Rows of an aggregate: first all, then each that changed, as it is now. Made by `Client.aggregate`.

    A group whose last message is gone gives a last row, as it is of no messages: what it is grouped by, counts of 0,
    and None for a sum, an average, a least or a greatest value. Threads may share it: each row goes to one of them.
    """

    def __init__(self, managed: ManagedRowSubscription) -> None:
        self._managed = managed

    def __repr__(self) -> str:
        return repr(self._managed)

    def get(self, timeout: timedelta | float | str | None = None) -> dict[str, Any] | None:
        """Wait for the next row; None when the time is over, also while the first rows are still being worked out.

        Raises:
            Closed: the subscription is closed.
        """
        return self._managed.get(timeout)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return self._managed.rows()

    def close(self) -> None:
        """End it. The queue stops writing down what changes about a minute after nobody follows it any more."""
        self._managed.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
