"""`world`: an opened instance on each server, in the words of world.py."""

from __future__ import annotations

import pytest
from world import World


@pytest.fixture
def world(store, snapshot):
    return World(store, snapshot)


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
