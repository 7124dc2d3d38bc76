"""Verbs for queues that judge their messages: by filter, priority or barrier."""

from __future__ import annotations

import json

import pytest
from world import ref

from ampsq.protocol.limits import BATCH

END = '{"end":1}'
BARRIER = "/end = 1"
SORTED = (":q:work:sorted", ":q:work:filters", ":q:work:places", ":q:work:held")


@pytest.fixture
def plain_queue(world):
    """A world with a queue that has no elements of its own."""
    world.queue("work", "orders")
    return world


@pytest.fixture
def barrier_queue(world):
    """A world with a queue that has barriers."""
    world.queue("work", "orders", barrier=BARRIER, room=1_000)
    return world


def message(number, **fields):
    return json.dumps({"n": number, **fields})


def put(world, *bodies, topic="orders"):
    """Publish; gives the refs."""
    ms, sequence = world.publish(topic, *bodies)[2].split("-")
    return [ref(f"{ms}-{int(sequence) + i}", topic) for i in range(len(bodies))]


def put_many(world, number, topic="orders"):
    places = []
    for first in range(0, number, BATCH):
        places += put(world, *map(message, range(first, min(first + BATCH, number))), topic=topic)
    return places


def numbers(messages):
    return [json.loads(m.body)["n"] for m in messages]


def texts(messages):
    return [message.body for message in messages]


def journal_of(world, how, queue="work"):
    """All refs that were settled in one way, in order."""
    entries = world.state().get(f":q:{queue}:journal", [])
    return [place for entry in entries if entry["how"] == how for place in entry["refs"].split(" ")]


def drain(world, subscription, wanted=500):
    """Take and acknowledge until nothing comes twice, sweeping meanwhile."""
    out, empty = [], 0
    for _ in range(1_000):
        world.sweep_all()
        if taken := world.take(subscription, wanted):
            out += taken
            world.settle("acknowledged", taken, by=subscription)
        empty = 0 if taken else empty + 1
        if empty == 2:
            return out
    raise AssertionError("it never ends")


def traces(world):
    return [suffix for suffix in world.state() if suffix.startswith(SORTED)]
