"""Subscriptions of one queue as operators see them: whose each is, what it asks for and what it holds."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from ampsq.base.partitions import request_of_all
from ampsq.expressions.unparse import show
from ampsq.protocol.reads.clock import server_time
from ampsq.protocol.reads.subscribers import queue_members, subscription_deadline, subscription_facts
from ampsq.protocol.request import Collect, Post

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ampsq.protocol.reads.subscribers import StoredSubscription
    from ampsq.transport.pipeline import Pipeline

__all__ = ["SUBSCRIBERS", "Subscriber", "merge_subscribers", "read_subscribers"]

#: Subscriptions of a queue that are read, however many it has.
SUBSCRIBERS: Final = 100


@dataclass(frozen=True, slots=True)
class Subscriber:
    """One subscription of a queue.

    Attributes:
        name: its ID.
        client: whose it is.
        leased: messages that it holds, over all of its queues.
        room: how many it may hold.
        queues: how many queues it has.
        filter: what it asks for; "" for everything.
        is_silent: whether it missed its sign of life.
    """

    name: str
    client: str
    leased: int
    room: int
    queues: int
    filter: str
    is_silent: bool


def merge_subscribers(parts: Sequence[Subscriber]) -> list[Subscriber]:
    """Put together the registrations of each subscription in all partitions, in the same order as those of one."""
    found: dict[str, Subscriber] = {}
    for part in parts:
        name = request_of_all(part.client) or part.name
        before = found.get(name)
        if before is not None:
            is_silent = before.is_silent or part.is_silent
            part = replace(before, leased=before.leased + part.leased, is_silent=is_silent)  # noqa: PLW2901
        found[name] = part
    return sorted(found.values(), key=lambda each: (-each.leased, each.name))[:SUBSCRIBERS]


async def read_subscribers(instance: str, queue: str, pipeline: Pipeline) -> list[Subscriber]:
    """Read the subscriptions of a queue, a hundred at most, those that hold most first.

    Args:
        instance: the instance's name.
        queue: the queue's.
        pipeline: for calls on their way together, of the store that runs this.
    """
    names = sorted(await queue_members(instance, queue, SUBSCRIBERS))[:SUBSCRIBERS]
    now = await server_time()
    for name in names:
        await Post(pipeline, subscription_facts(instance, name))
        await Post(pipeline, subscription_deadline(instance, name))
    found = []
    for _ in names:
        facts: StoredSubscription | None = await Collect(pipeline)
        deadline: float = await Collect(pipeline)
        # One that is None ended meanwhile.
        if facts is not None:
            found.append(_subscriber(facts, is_silent=deadline < now))
    return sorted(found, key=lambda each: (-each.leased, each.name))


def _subscriber(facts: StoredSubscription, *, is_silent: bool) -> Subscriber:
    text = show(json.loads(facts.filter)) if facts.filter else ""
    return Subscriber(facts.name, facts.client, facts.leased, facts.max_backlog, len(facts.queues), text, is_silent)
