"""Several instances on real servers, of both kinds, and links between them that a test drives step by step."""

from __future__ import annotations

import contextlib
import re
import time

import pytest
from homes import Pair
from sites import World

from ampsq import Client, Topic
from ampsq.base.bookmarks import parse_ref
from ampsq.base.message_types import JSON
from ampsq.expressions import parse
from ampsq.protocol.request import command, script_call
from ampsq.protocol.schema import COMPILED, key
from ampsq.replication.link import Link
from ampsq.replication.selection import EntrySelector, Peer
from ampsq.transport.store import Store


def _decoded(reply):
    if isinstance(reply, bytes):
        return reply.decode()
    return [_decoded(part) for part in reply] if isinstance(reply, list) else reply


class Site:
    """One instance: its scripts, called with the time of the fabric."""

    def __init__(self, fabric, name, group, store):
        self.fabric, self.name, self.group, self.store = fabric, name, group or name, store
        self.origin = self.run("open", fabric.now, name, "one")[0]
        self.peer = Peer(name, self.origin, self.group)
        self.subscriptions = 0

    def run(self, script, *arguments):
        return _decoded(self.store.call(script_call(script, list(arguments), lambda reply: reply)))

    def version(self):
        return _decoded(self.store.redis.hget(self.key("instance"), "catalog"))

    def key(self, name, *parameters):
        return key(self.store.instance, name, *parameters)

    def topic(self, name, *queues):
        self.run("define_topic", self.fabric.now, self.version(), name, "{}", 0, "", "", *queues)

    def queue(self, name, topic, *, owner="*", entry="", priority="", barrier="", **numbers):
        """A queue whose messages belong to their origins, unless `owner` says to whom."""
        values = dict.fromkeys(COMPILED, 0) | {"ratio": 1, "room": 1000} | numbers
        compiled = " ".join(str(values[each]) for each in COMPILED) + f" {topic}"
        trees = [parse(text, "query").json if text else "" for text in (entry, priority, barrier)]
        head = (self.fabric.now, self.version(), name, "{}", topic, compiled, "", *trees, "", 0)
        self.run("define_queue", *head, owner, "", "", "", "", 1, topic)

    def publish(self, topic, *bodies, publisher="", sequence=""):
        """The bookmarks."""
        _, _, first, _, *_ = self.run("publish", self.fabric.now, topic, publisher, sequence, "b", *bodies)
        milliseconds, _, number = first.partition("-")
        return [f"{topic}~{self.origin}~{milliseconds}-{int(number) + i}" for i in range(len(bodies))]

    def subscribe(self, queue, *, backlog=10, filter=None):  # noqa: A002
        self.subscriptions += 1
        wish = ("none", "") if filter is None else (parse(filter, "filter").id, parse(filter, "filter").json)
        client = f"c/{self.subscriptions}"
        return self.run("subscribe", self.fabric.now, "", client, backlog, *wish, "", 600_000, queue)[0]

    def take(self, subscription, wanted=10):
        """Return the delivered messages: (body, queue, ref, token)."""
        elements, _, _ = self.run("take", self.fabric.now, subscription, wanted)
        found = []
        for head, body in zip(elements[::2], elements[1::2], strict=True):
            queue, token, _, _, _, ref = head.partition("\n")[0].split(" ")
            found.append((body, queue, ref, token))
        return found

    def bodies(self, subscription, wanted=10):
        return [body for body, *_ in self.take(subscription, wanted)]

    def settle(self, verb, by, *messages):
        """Acknowledge, or something else; what is refused comes back."""
        queue = messages[0][1]
        refs, tokens = [each[2] for each in messages], [each[3] for each in messages]
        return self.run("settle", self.fabric.now, verb, 0, by, queue, len(refs), *refs, *tokens)

    def log(self, topic):
        """(body, bookmark, path) of each entry, in this instance's order."""
        rows = []
        for stream_id, fields in self.store.redis.xrange(self.key("log", topic)):
            source = fields.get(b"s", f"{self.origin}~{stream_id.decode()}".encode()).decode()
            rows.append((fields[b"b"].decode(), f"{topic}~{source}", fields.get(b"v", b"").decode()))
        return rows

    def journal(self, queue):
        """Return (how, bodies) of each entry."""
        rows = []
        for _, fields in self.store.redis.xrange(self.key("journal", queue)):
            rows.append((fields[b"how"].decode(), [self.body(ref) for ref in fields[b"refs"].decode().split(" ")]))
        return rows

    def body(self, ref):
        topic, stream_id = parse_ref(ref)
        return self.store.redis.xrange(self.key("log", topic), stream_id, stream_id)[0][1][b"b"].decode()

    def remote(self, queue):
        return [self.body(ref.decode()) for ref in self.store.redis.zrange(self.key("remote", queue), 0, -1)]

    def ready(self, queue):
        return [self.body(ref.decode()) for ref in self.store.redis.zrange(self.key("ready", queue), 0, -1)]

    def ask(self, queue):
        """Ask for what has been here long enough."""
        return self.run("request_messages", self.fabric.now + 10_000, queue)

    def sweep(self):
        for _ in range(50):
            if not self.run("sweep", self.fabric.now)[0]:
                return
        raise AssertionError("the sweep never ends")


class Fabric:
    """Instances and the links between them."""

    def __init__(self, stack, urls, prefix):
        self._stack, self._urls, self._prefix = stack, urls, prefix
        self.now = round(time.time() * 1000)
        self.sites, self.links = {}, {}

    def site(self, name, group=None):
        """An instance; those with even numbers are on the other kind of server."""
        url = self._urls[len(self.sites) % len(self._urls)]
        store = self._stack.enter_context(contextlib.closing(Store(url, f"{self._prefix}-{name}", retry_timeout=2.0)))
        self.sites[name] = Site(self, name, group, store)
        return self.sites[name]

    def link(self, source, destination, *topics, queues=(), pass_through=(), filters=None, clock=str):
        """A link that carries these, stepped by `run`; what it calls has the time of `clock`, or its server's."""
        filters = {topic: parse(text, "replication") for topic, text in (filters or {}).items()}
        patterns = [re.compile(text) for text in pass_through]

        def passes(group):
            return any(pattern.search(group) for pattern in patterns)

        carried = EntrySelector(source.peer, destination.peer, passes, filters, lambda _: JSON)
        link = Link(
            destination.name, source.store, destination.store, carried, topics=topics, queues=queues, clock=clock
        )
        self.links[source.name, destination.name] = link
        return link

    def join(self, *sites, topics=("orders",), queues=("work",), **options):
        """Links between each two, both ways."""
        for source in sites:
            for destination in sites:
                if source is not destination:
                    self.link(source, destination, *topics, queues=queues, **options)

    def run(self, rounds=20):
        """Step all links until nothing moves any more."""
        for _ in range(rounds):
            if all(
                not (moved.messages or moved.journal_rows or moved.requests)
                for moved in [each.step() for each in self.links.values()]
            ):
                return
        raise AssertionError("the links never come to rest")


@pytest.fixture
def fabric(_session_servers, instance):
    """A fabric whose instances are in turn on a Valkey and on a Redis."""
    with contextlib.ExitStack() as stack:
        yield Fabric(stack, [_session_servers("valkey").url, _session_servers("redis").url], instance)


@pytest.fixture
def pair(fabric):
    """Two instances with a queue `work` over `orders`, linked both ways."""
    sites = fabric.site("a"), fabric.site("b")
    for site in sites:
        site.topic("orders")
        site.queue("work", "orders")
    fabric.join(*sites)
    return sites


@pytest.fixture
def world(_session_servers, instance):
    """Instances with clients and coordinators: ``world.site(name, definitions...)`` gives the client."""
    with contextlib.ExitStack() as stack:
        yield World(stack, [_session_servers("valkey").url, _session_servers("redis").url], instance)


@pytest.fixture
def homes(start_server, instance):
    """Two instances on servers of their own that may be killed, each with a coordinator and a link to the other."""
    with contextlib.ExitStack() as stack:
        pair = Pair(stack, start_server, instance)
        yield pair
        pair.end()


def command_of(*arguments):
    """A plain command as a call."""
    return command(list(arguments), lambda reply: reply)


class Twin:
    """An instance of a fabric with a client."""

    def __init__(self, site, client):
        self.site, self.client, self.run = site, client, site.run

    def __getattr__(self, name):
        return getattr(self.client, name)

    def foreign(self, topic, **fields):
        """The bookmark of an entry that somebody writes without ampsq."""
        stream_id = self.site.store.redis.xadd(self.site.key("log", topic), fields)
        return f"{topic}~{self.origin}~{stream_id.decode()}"


@pytest.fixture
def twins(fabric, request):
    """Two instances with clients, linked both ways: ``twins(definitions...)`` gives them."""

    def made(*definitions, topics=("orders",), queues=(), filters=None):
        found = []
        for name in ("a", "b"):
            site = fabric.site(name)
            client = Client(site.store.url, instance=site.store.instance)
            request.addfinalizer(client.close)
            client.apply(Topic(name="orders"), *definitions)
            found.append(Twin(site, client))
        fabric.join(found[0].site, found[1].site, topics=topics, queues=queues, filters=filters)
        return found

    return made
