"""Instances with clients and coordinators, whose links find their way by definitions."""

from __future__ import annotations

import json
import threading

from ampsq import Client, Destination, Queue, Topic
from ampsq.coordinator import Coordinator
from ampsq.protocol.schema import key


class World:
    """Instances ``a`` to ``f`` on real servers, in turn a Valkey and a Redis; each may have a coordinator."""

    def __init__(self, stack, urls, prefix):
        self._stack, self._urls, self._prefix = stack, urls, prefix
        self._clients, self._ends = {}, {}

    def name(self, short):
        return f"{self._prefix}-{short}"

    def url(self, short):
        return self._urls["abcdef".index(short) % len(self._urls)]

    def address(self, short):
        return f"{self.url(short)}#{self.name(short)}"

    def site(self, short, *definitions, coordinated=True):
        """A client of a new instance."""
        client = self._clients[short] = self._stack.enter_context(Client(self.url(short), instance=self.name(short)))
        if definitions:
            client.apply(*definitions)
        if coordinated:
            self.coordinate(short)
        return client

    def coordinate(self, short):
        """Start a coordinator of an instance."""
        coordinator = Coordinator(self.url(short), [self.name(short)])
        thread = threading.Thread(target=coordinator.run)
        thread.start()

        def end():
            coordinator.stop()
            thread.join()

        self._ends[short] = end
        self._stack.callback(end)

    def leave(self, short):
        """End an instance's coordinator."""
        self._ends.pop(short)()

    def link_of(self, short, field):
        """Return a link's report on itself there."""
        text = self._clients[short]._store.redis.hget(key(self.name(short), "links"), field)
        return json.loads(text) if text else None


def shared(*topics):
    return [
        Topic(name="orders"),
        Queue(name="work", underlying_topic="orders", max_per_subscription_backlog=100),
        *topics,
    ]


def to(world, short, **elements):
    return Destination(
        **{
            "name": f"to-{short}",
            "sync_type": "async",
            "topics": ["orders", "work"],
            "addresses": [world.address(short)],
        }
        | elements
    )
