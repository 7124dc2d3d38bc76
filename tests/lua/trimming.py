"""Verbs for logs that are trimmed."""

from __future__ import annotations

from typing import NamedTuple

from world import decoded, ref

from ampsq.protocol.limits import BATCH

AGE = 1_000
#: By when everything that the tests publish is old.
LATER = 10_000
#: The action that `World.follow_expired` makes of `work`, as the scripts take it.
READERS = ("journal", "work", "action dead-letter-work", "cursor expire work", "expired")


class Step(NamedTuple):
    next: str
    kept: int
    given_up: int
    removed: int
    pinned: str
    by: str


def trim(world, topic="orders", *, age=AGE, size="", count="", after="", passed=0, dry=0, readers=()):
    arguments = (world.version(), topic, age, size, count, after, passed, dry, *readers)
    return Step(*world.run("trim_log", world.now, *arguments))


def log(world, topic="orders"):
    return [decoded(stream_id) for stream_id, _ in world.store.redis.xrange(world.key(f":log:{topic}"))]


def walk(world, name="log orders"):
    return decoded(world.store.redis.hget(world.key(":retention"), name))


def publish(world, number, topic="orders"):
    """IDs of as many messages."""
    ms, sequence = world.publish(topic, *map(str, range(number)))[2].split("-")
    return [f"{ms}-{int(sequence) + i}" for i in range(number)]


def settled(world, *ids, queue="work", topic="orders"):
    assert world.settle("acknowledged", {queue: [(ref(stream_id, topic), "") for stream_id in ids]}) == {}


def read_all(world, queue="work", number=BATCH):
    """Let a queue read its log; gives the messages, which stay leased."""
    return world.take(world.subscribe(queue, asked=number), number)
