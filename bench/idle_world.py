"""Instances as an application has them, of which nothing is asked: their definitions, and the clients that wait there.

``python -m ampsq.bench.idle_world URL NAME ...`` holds a subscription at each instance, prints ``subscribed`` when all
stand, and ends with its standard input.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Final

from ampsq.client.async_client import AsyncClient
from ampsq.client.client import Client
from ampsq.definitions.action import Action
from ampsq.definitions.destination import Destination
from ampsq.definitions.queue import Queue, Topic

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ampsq.queues.async_subscription import AsyncSubscription

__all__ = ["define", "instance_names", "linked_pairs"]

#: Instances that are defined, or opened, at once.
_AT_ONCE: Final = 8
#: Of so many instances two have links to each other.
_INSTANCES_A_PAIR: Final = 20
_DEFINITIONS: Final = (
    Topic(name="orders", retention_age="1h"),
    Topic(name="late"),
    Topic(name="dead"),
    Queue(name="work", underlying_topic="orders", lease_period="60s", max_per_subscription_backlog=10),
    Queue(
        name="chosen",
        underlying_topic="orders",
        filter="/kind = 'chosen'",
        lease_period="2s",
        max_per_subscription_backlog=10,
    ),
    Queue(name="later", underlying_topic="late", lease_period="60s", max_per_subscription_backlog=10),
    Action.dead_letter("chosen", "dead"),
)


def instance_names(number: int) -> list[str]:
    """Return the names of so many instances."""
    return [f"idle-{each}" for each in range(number)]


def linked_pairs(names: Sequence[str]) -> list[tuple[str, str]]:
    """Return which instances have links to each other: a tenth of all, at least two if there are two."""
    pairs = max(len(names) // _INSTANCES_A_PAIR, 1) if len(names) > 1 else 0
    return [(names[2 * each], names[2 * each + 1]) for each in range(pairs)]


def define(url: str, names: Sequence[str]) -> None:
    """Define all instances, some at once: topics, queues, an action, links of a tenth, and a message for tomorrow.

    Args:
        url: the server.
        names: the instances.
    """
    others = {here: there for pair in linked_pairs(names) for here, there in (pair, pair[::-1])}
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        for _ in pool.map(lambda name: _define(url, name, others), names):
            pass


def _define(url: str, name: str, others: Mapping[str, str]) -> None:
    links = []
    if name in others:
        other = others[name]
        links = [Destination(name=other, sync_type="async", topics=["late", "later"], addresses=[f"{url}#{other}"])]
    with Client(url, instance=name) as client:
        client.apply(*_DEFINITIONS, *links)
        client.publish("late", {"due": "tomorrow"}, delay="1d")


async def _hold(url: str, names: Sequence[str]) -> None:
    """Wait for messages of a queue of each instance, until standard input ends."""
    async with AsyncExitStack() as stack:
        free = asyncio.Semaphore(_AT_ONCE)

        async def subscribe(name: str) -> AsyncSubscription:
            async with free:
                client = await stack.enter_async_context(AsyncClient(url, instance=name))
                return await stack.enter_async_context(client.subscribe("work", max_backlog=10))

        consumers = [asyncio.create_task(_consume(each)) for each in await asyncio.gather(*map(subscribe, names))]
        sys.stdout.write("subscribed\n")
        sys.stdout.flush()
        await asyncio.to_thread(sys.stdin.read)
        for consumer in consumers:
            consumer.cancel()
        await asyncio.gather(*consumers, return_exceptions=True)


async def _consume(messages: AsyncSubscription) -> None:
    async for message in messages:
        await message.ack()


if __name__ == "__main__":
    # A connection that is lost, where the server has too much to do, is made again.
    logging.getLogger("ampsq").setLevel(logging.ERROR)
    asyncio.run(_hold(sys.argv[1], sys.argv[2:]))
