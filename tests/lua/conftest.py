"""`world`: an opened instance on each server, in the words of world.py."""

from __future__ import annotations

import contextlib

import pytest
import redis.exceptions
from world import World


@pytest.fixture
def world(store, snapshot):
    yield World(store, snapshot)
    # A snapshot goes through all keys of the server, so that none of a test that is over is left.
    with contextlib.suppress(redis.exceptions.RedisError):
        store.redis.unlink(f"{{{store.instance}}}", *store.redis.scan_iter(match=f"{{{store.instance}}}*", count=1000))


@pytest.fixture
def leased(world):
    """A queue of two messages, the first of which is leased to a subscription with one place."""

    def build(**numbers):
        world.queue("work", "orders", **({"lease": 5_000} | numbers))
        world.publish("orders", "one", "two")
        world.subscription = world.subscribe("work", asked=1)
        (message,) = world.take(world.subscription)
        world.mark()
        return message

    return build
