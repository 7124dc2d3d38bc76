"""Measuring how long messages take: one in a hundred, and the first of each queue between two signs of life.

Nothing is sent for it: what was measured goes with the client's next sign of life, or before its subscription ends. So
a queue with little in it has figures, too, and a client that gets nothing sends nothing.

A message is published when its instance recorded it, by the server's clock. When it was delivered is known by the
client's monotonic clock, which is compared with the server's at each sign of life.
"""

from __future__ import annotations

import random
import time
from collections import deque
from typing import TYPE_CHECKING, Final

from ampsq.base.bookmarks import milliseconds_of_ref
from ampsq.protocol.calls.queue_latencies import Latencies
from ampsq.protocol.encoding import due_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ampsq.protocol.calls.queues import Parts
    from ampsq.queues.clock_comparison import ClockComparison

__all__ = ["LatencySamples"]

#: One message in so many is measured.
_ONE_IN: Final = 100
#: Measurements that are kept until the next sign of life: those of 80,000 messages a second; then the last ones.
_KEPT: Final = 16_384
#: Messages that are being measured at most. Beyond that all are given up: their application forgets to settle.
_OPEN: Final = 1_000
#: Parts of the head of a message that has a body alone.
_PLAIN: Final = 6


def _gap() -> int:
    return int(random.random() * (2 * _ONE_IN - 1)) + 1  # noqa: S311  (no secret)


class LatencySamples:
    """Measurements of the messages of one subscription.

    Messages may be handed out and acknowledged in any thread; they are picked up by one at a time.

    Args:
        clock: the server's.
        gap: gives after how many messages the next one is measured; by chance, so that batches do not always give the
            same place.

    Attributes:
        measured: token -> what is being measured of that message; who finds one here calls `handed_out` or
            `acknowledged`.
        gap: as given.
        until: messages that are picked up before the next one that is measured.
    """

    def __init__(self, clock: ClockComparison, gap: Callable[[], int] = _gap) -> None:
        self._clock = clock
        # Its queue, and when it was handed out by the monotonic clock; 0: not yet.
        self.measured: dict[bytes, tuple[bytes, float]] = {}
        # Queues of which a message was chosen since the last sign of life.
        self._lately: set[bytes] = set()
        self.gap = gap
        self.until = gap()
        # Queue, seconds, and whether they are those from publishing to delivery.
        self._done: deque[tuple[bytes, float, bool]] = deque(maxlen=_KEPT)

    def choose_first(self, parts: Parts) -> None:
        """Measure a message that was picked up, if it is the first of its queue since the last sign of life."""
        if parts[0] not in self._lately:
            self.choose(parts)

    def choose(self, parts: Parts) -> None:
        """Measure a message that was picked up. Of a barrier, which nobody acknowledges, nothing is."""
        if parts[2] == b"0":
            return
        self._lately.add(parts[0])
        if len(self.measured) >= _OPEN:
            self.measured.clear()
        self.measured[parts[1]] = parts[0], 0.0

    def handed_out(self, parts: Parts) -> None:
        """Note that a message is given to the application, which it may be one time only."""
        measured = self.measured.get(parts[1])
        if measured != (parts[0], 0.0):
            return
        at = time.monotonic()
        self.measured[parts[1]] = parts[0], at
        now = self._clock.milliseconds(at)
        if parts[2] == b"1" and now is not None:
            self._done.append((parts[0], max(now - _published(parts), 0.0) / 1000, True))

    def acknowledged(self, parts: Parts) -> None:
        """Note that the application has acknowledged a message."""
        measured = self.measured.pop(parts[1], None)
        if measured is not None and measured[0] == parts[0] and measured[1]:
            self._done.append((parts[0], time.monotonic() - measured[1], False))

    def forget(self, messages: Iterable[Parts]) -> None:
        """Measure no more of messages that left the application otherwise."""
        if self.measured:
            for parts in messages:
                self.measured.pop(parts[1], None)

    def take(self, into: dict[str, Latencies]) -> None:
        """Add what was measured since the last time to what others have, by queue; then the first of each counts."""
        self._lately.clear()
        for _ in range(len(self._done)):
            queue, seconds, is_delivery = self._done.popleft()
            latencies = into.setdefault(queue.decode(), Latencies())
            (latencies.delivery if is_delivery else latencies.handling).add(seconds)


def _published(parts: Parts) -> float:
    """Return when a message could be delivered first, ms: when it was recorded, or is due."""
    # A time of whole milliseconds is half of one later, on average.
    recorded = milliseconds_of_ref(parts[5]) + 0.5
    return recorded if len(parts) == _PLAIN else max(recorded, due_of(parts))
