"""Two instances that replicate to each other, with coordinators, and servers that tests kill."""

from __future__ import annotations

import contextlib
import json
import threading

from observing import eventually

from ampsq import Client, Destination, Queue, Topic
from ampsq.coordinator import Coordinator
from ampsq.protocol.schema import key

ALWAYS = ["--appendfsync", "always"]


class Pair:
    """Two instances on servers of their own, each replicating to the other, with a coordinator each."""

    def __init__(self, stack, start, prefix, **elements):
        self._stack, self._start, self._prefix = stack, start, prefix
        self.servers = {each: start("valkey", appendonly=True, options=ALWAYS) for each in "ab"}
        # What looks at both from outside.
        self.admins = {each: stack.enter_context(Client(self.url(each), instance=self.name(each))) for each in "ab"}
        for here, there in (("a", "b"), ("b", "a")):
            self.admins[here].apply(
                Topic(name="orders"),
                Topic(name="local"),
                Topic(name="positions", key="/id"),
                Queue(name="work", underlying_topic="orders", max_per_subscription_backlog=10),
                *self.to(there, **elements),
            )
        for each in "ab":
            self._coordinate(each)
        for here, there in (("a", "b"), ("b", "a")):
            self.connected(here, there)

    def name(self, short):
        return f"{self._prefix}-{short}"

    def url(self, short):
        return self.servers[short].url

    def address(self, short):
        return f"{self.url(short)}#{self.name(short)}"

    def to(self, there, **elements):
        given = {
            "name": there,
            "sync_type": "sync",
            "topics": ["orders", "positions", "work"],
            "addresses": [self.address(there)],
        }
        return [Destination(**given | elements)]

    def _coordinate(self, each):
        coordinator = Coordinator(self.url(each), [self.name(each)])
        thread = threading.Thread(target=coordinator.run)
        thread.start()

        def end():
            coordinator.stop()
            thread.join()

        self._stack.callback(end)

    def client(self, **options):
        """A client of both, a first."""
        options = {"heartbeat": "600ms", "retry_timeout": "10s"} | options
        return self._stack.enter_context(Client([self.address("a"), self.address("b")], **options))

    def kill(self, short):
        self.servers[short].process.kill()
        self.servers[short].process.wait()

    def restart(self, short):
        self.servers[short] = self._start(
            "valkey", appendonly=True, data_dir=self.servers[short].directory, options=ALWAYS
        )

    def bodies(self, short, topic="orders"):
        with contextlib.closing(self.servers[short].client()) as redis:
            return [json.loads(fields[b"b"]) for _, fields in redis.xrange(key(self.name(short), "log", topic))]

    def end(self):
        """So that nobody waits for a killed server while everything is closed."""
        for each in "ab":
            if self.servers[each].process.poll() is not None:
                self.restart(each)

    def connected(self, here, there):
        """Wait until the link from here stands."""
        links, redis = key(self.name(here), "links"), self.admins[here]._store.redis
        eventually(lambda: b'"connected"' in (redis.hget(links, f"out {there}") or b""), 30)


def at(pair, client, short):
    return eventually(lambda: client.instance == pair.name(short), 30)
