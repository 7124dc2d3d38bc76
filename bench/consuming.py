"""Consumers that are measured: in order, and out of order as handlers of differing length end."""

from __future__ import annotations

import heapq
import itertools
import random
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

    from ampsq.client.client import Client
    from ampsq.queues.subscription import Message

__all__ = ["drain", "drain_out_of_order", "work_out_of_order"]

M = TypeVar("M")
#: Handlers at once.
_CONCURRENCY: Final = 8
#: How many times as long as others the slow ones take, and how many of them there are.
_SLOWER: Final = 400
_SLOW: Final = 0.01


def drain(client: Client, count: int, *, backlog: int = 100, text: str | None = None) -> None:
    """Subscribe to `work`, take and acknowledge so many messages in their order."""
    with client.subscribe("work", max_backlog=backlog, filter=text) as messages:
        for message in itertools.islice(messages, count):
            message.ack()
        messages.flush()


def drain_out_of_order(client: Client, count: int, *, has_slow: bool) -> None:
    """The same by eight handlers at once: each message is acknowledged when its handler ends."""
    with client.subscribe("work", max_backlog=100) as messages:

        def following() -> Message:
            message = messages.get(60)
            if message is None:
                raise AssertionError("a message that was published was not delivered")
            return message

        work_out_of_order(count, following, lambda message: message.ack(), has_slow=has_slow)
        messages.flush()


def work_out_of_order(count: int, following: Callable[[], M], end: Callable[[M], object], *, has_slow: bool) -> None:
    """Give the order in which eight handlers at once would end, whose times are exponential; nobody waits for them.

    Args:
        count: of messages.
        following: gives the next message to a handler.
        end: called with each when its handler has ended.
        has_slow: one of a hundred takes 400 times as long.
    """
    dice = random.Random(7)  # noqa: S311  (data of a measurement)
    running: list[tuple[float, int, M]] = []
    now = 0.0
    for number in range(count):
        if len(running) == _CONCURRENCY:
            now, _, done = heapq.heappop(running)
            end(done)
        duration = dice.expovariate(1) * (_SLOWER if has_slow and dice.random() < _SLOW else 1)
        heapq.heappush(running, (now + duration, number, following()))
    while running:
        end(heapq.heappop(running)[2])
