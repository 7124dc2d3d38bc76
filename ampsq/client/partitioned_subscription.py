"""A subscription to a queue of all partitions, for threads: one subscription at each, served in turn."""

from __future__ import annotations

import contextlib
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Never

from ampsq.base.errors import AmpsqError, Closed
from ampsq.base.values import Interval
from ampsq.client.partition_rules import SERVED, STEP, PartitionFailures, not_merged, only_for_one
from ampsq.queues.subscription import ManagedSubscription, Message, Subscription, handle_each

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from datetime import timedelta
    from types import EllipsisType

__all__ = ["PartitionedSubscription"]


class PartitionedSubscription(Subscription):
    """Messages of all partitions: iterate over it, or call `get`. Made by `Client.subscribe`; threads may share it.

    Args:
        parts: the subscriptions, one of each partition.
        end: called when it is closed.
    """

    def __init__(self, parts: Sequence[Subscription], end: Callable[[PartitionedSubscription], None]) -> None:
        self._subscriptions, self._end = list(parts), end
        self._parts = [ManagedSubscription.of(each) for each in parts]
        self._failures = PartitionFailures(len(parts))
        self._readers = ThreadPoolExecutor(len(parts), thread_name_prefix="ampsq-partition")
        self._changed = threading.Condition()
        # Those that are being read, and until when. Whose turn it is, and how many messages it has had in it.
        self._reading: dict[int, float] = {}
        self._turn = self._served = 0
        self._closed = False

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {', '.join(str(each.core) for each in self._parts)}>"

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Never:
            only_for_one(name)

    @property
    def id(self) -> str:
        """The names of the subscriptions at the partitions, with commas between."""
        return ", ".join(each.id for each in self._parts)

    @property
    def max_backlog(self) -> int:
        """The effective backlog: what all partitions give together."""
        return sum(each.max_backlog for each in self._subscriptions)

    @property
    def late(self) -> list[Exception]:
        """Acknowledgements of batches that came too late, at most the last thousand of each partition."""
        return [error for each in self._subscriptions for error in each.late]

    def run(self, on_message: Callable[[Message], object]) -> None:
        """Call a function with each message, in a thread, until the subscription is closed."""
        threading.Thread(target=handle_each, args=(self, on_message), name="ampsq-partitions", daemon=True).start()

    def get(self, timeout: timedelta | float | str | None = None) -> Message | None:
        """Wait for the next message, of whichever partition; see `Subscription.get`."""
        until = None if timeout is None else time.monotonic() + Interval.parse(timeout) / 1000
        while True:
            now = time.monotonic()
            left = STEP if until is None else max(until - now, 0.0)
            message = self._next(min(left, STEP))
            if message is not None:
                return message
            with self._changed:
                if self._closed:
                    raise Closed("this subscription was closed")
                self._failures.check()
                # Whoever has read something says so with the lock held, so that nothing is missed in between.
                if any(each.core.inbox.buffer for each in self._parts):
                    continue
                # Each partition is asked at least once, also where nobody waits.
                if not left and not any(end <= now for end in self._reading.values()):
                    return None
                self._changed.wait(left or STEP)

    def _next(self, seconds: float) -> Message | None:
        """Take out the next message that is at hand; partitions that have none are read meanwhile."""
        # One more than there are: the first one may have had its share.
        for _ in range(len(self._parts) + 1):
            number = self._turn
            managed = self._parts[number]
            core = managed.core
            if core.inbox.buffer and self._served < SERVED:
                # Another thread may have taken it meanwhile.
                with contextlib.suppress(IndexError):
                    parts, body = core.inbox.buffer.popleft()
                    self._served += 1
                    return Message(parts, body, core.leases, managed)
            if not core.inbox.buffer and number not in self._reading:
                self._begin_reading(number, seconds)
            self._turn, self._served = (number + 1) % len(self._parts), 0
        return None

    def _begin_reading(self, number: int, seconds: float) -> None:
        with self._changed:
            if number in self._reading or self._closed:
                return
            self._reading[number] = time.monotonic() + seconds
            try:
                self._readers.submit(self._read, number, seconds)
            except RuntimeError:
                # The interpreter ends, and so does the thread that calls a handler.
                del self._reading[number]
                self._closed = True

    def _read(self, number: int, seconds: float) -> None:
        failure: BaseException | None = None
        try:
            self._parts[number].fill(seconds)
        except BaseException as error:  # noqa: BLE001  (who calls `get` is told)
            failure = error
        with self._changed:
            del self._reading[number]
            self._failures.note(number, failure)
            self._changed.notify_all()

    def __iter__(self) -> Iterator[Message]:
        while True:
            try:
                message = self.get()
            except Closed:
                return
            if message is not None:
                yield message

    def flush(self) -> None:
        """Send the acknowledgements collected so far, and wait until they are done."""
        for each in self._subscriptions:
            each.flush()

    def replace(
        self,
        *,
        name: str | None = None,  # noqa: ARG002
        max_backlog: int | None = None,  # noqa: ARG002
        filter: str | EllipsisType | None = ...,  # noqa: A002, ARG002
    ) -> None:
        """Refuse to ask for something else: partitions would do so one after the other."""
        raise not_merged("Subscription.replace")

    def close(self) -> None:
        """End the subscription at all partitions; see `Subscription.close`. It may take a second to be heard of."""
        with self._changed:
            if self._closed:
                return
            self._closed = True
            self._changed.notify_all()
        failures: list[AmpsqError] = []
        for each in self._subscriptions:
            try:
                each.close()
            except AmpsqError as error:
                failures.append(error)
        self._readers.shutdown(wait=False)
        self._end(self)
        if failures:
            raise failures[0]
