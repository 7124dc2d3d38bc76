"""Instances with clients and definitions, and their links, which a test steps by hand."""

from __future__ import annotations

import contextlib

from ampsq import Client, Destination, Queue, Topic
from ampsq.protocol.calls import incarnations as incarnation_calls
from ampsq.replication import recovery as recovering
from ampsq.replication.link_directions import make_link
from ampsq.replication.link_ends import read_peer


def shared(*more, kind=Queue, **elements):
    """Return the definitions of all instances: a topic and a queue over it."""
    return [
        Topic(name="orders", retention_age="0s"),
        kind(name="work", underlying_topic="orders", max_per_subscription_backlog=10, lease_period="1h", **elements),
        *more,
    ]


class Linked:
    """Instances, each of which sends everything to all others that it was joined with.

    Args:
        stack: what ends the clients.
        instance: what their names begin with.
        urls: of servers, one an instance, in the order of their names.
    """

    def __init__(self, stack, instance, urls):
        self._stack, self._instance, self._urls = stack, instance, urls
        self.clients = {}

    def name(self, short):
        return f"{self._instance}-{short}"

    def url(self, short):
        return self._urls["abc".index(short) % len(self._urls)]

    def open(self, short, *definitions):
        """A client, in the place of the last one of that name."""
        if short in self.clients:
            self.clients.pop(short).close()
        client = self._stack.enter_context(contextlib.closing(Client(self.url(short), instance=self.name(short))))
        if definitions:
            client.apply(*definitions)
        self.clients[short] = client
        return client

    def join(self, *names, **elements):
        """Everything to everybody, also what came from others."""
        for short in names:
            self.open(short, *shared(**elements), *self.destinations(short, *names))
        return [self.clients[short] for short in names]

    def destinations(self, short, *names):
        """Of one instance, to the others."""
        return [
            Destination(
                name=self.name(other),
                sync_type="async",
                topics=["orders", "work"],
                addresses=[f"{self.url(other)}#{self.name(other)}"],
                pass_through=[".*"],
            )
            for other in names
            if other != short
        ]

    def links(self, *only):
        """A link of each destination that leads to an instance that is here; ``"ab"`` is from a to b."""
        ends = {self.name(short): read_peer(client._store) for short, client in self.clients.items()}
        shorts = {self.name(short): short for short in self.clients}
        for name, end in ends.items():
            for text in end.catalog.destinations.values():
                destination = Destination.from_json(text)
                if destination.name in ends and (not only or shorts[name] + shorts[destination.name] in only):
                    yield make_link(end, ends[destination.name], destination)

    def carry(self, *only):
        """Open links and step them until nothing moves any more."""
        links = list(self.links(*only))
        try:
            for link in links:
                link.open()
            for _ in range(50):
                is_quiet = all(moved.is_idle and not moved.requests for moved in [link.step() for link in links])
                if is_quiet and not self.go_on():
                    return
            raise AssertionError("the links never come to rest")
        finally:
            for link in links:
                link.close()

    def go_on(self):
        """Do what coordinators do for new incarnations; return whether one of them recovers no more."""
        ended = False
        for client in self.clients.values():
            word = client._store.call(incarnation_calls.recovery_word(client.instance))
            ended = ended or (bool(word) and client._store.run(recovering.resume_recovered(client.instance)) is None)
        return ended

    def log(self, short):
        """Return the contents of a topic, by the ids in the bodies."""
        client = self.clients[short]
        rows = client._store.redis.xrange("{" + client.instance + "}:log:orders")
        return [int(fields[b"b"].partition(b":")[2].rstrip(b"}")) for _, fields in rows]


def take(client, number, timeout=30, room=0):
    """A subscription, of more room if that is said, and messages that are delivered, still leased."""
    messages = client.subscribe("work", max_backlog=max(room, number))
    return messages, [messages.get(timeout) for _ in range(number)]


def handle(client, number):
    """Acknowledge as many; gives their ids."""
    messages, found = take(client, number)
    with messages:
        for message in found:
            message.ack(wait=True)
    return [message.data["id"] for message in found]
