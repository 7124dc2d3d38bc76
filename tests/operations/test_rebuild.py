"""A queue whose delivery state is lost is rebuilt from log and journal: the same is settled, the rest is delivered."""

from __future__ import annotations

import collections
import contextlib
import random
import threading
import time

import pytest
from cases import first_ones
from observing import eventually
from scene import rest_of

from ampsq import Client, Queue
from ampsq.base.errors import Rejected
from ampsq.protocol.calls import check as check_calls
from ampsq.protocol.schema import key

STATE = ("cursors", "ahead", "ready", "leases", "attempts", "held", "behind", "places")
KINDS = {
    "plain": {"underlying_topic": "orders"},
    "several-topics": {"underlying_topic": "^orders", "default_publish_target": "orders"},
    "filter": {"underlying_topic": "orders", "filter": "/n > 4"},
    "priority": {"underlying_topic": "orders", "priority": "/n"},
    "large-priority": {"underlying_topic": "orders", "priority": "/n * 4611686018427387904 + 3"},
    "barrier": {"underlying_topic": "orders", "barrier_expression": "/n = 9"},
    "depth": {"underlying_topic": "orders", "target_queue_depth": 1_000},
    "ring": {"underlying_topic": "orders", "ring_size": 30},
    "begun-now": {"underlying_topic": "orders", "recovery_point": "now"},
    "once": {"underlying_topic": "orders", "semantics": "at-most-once", "allow_redelivery_after_crash": True},
}


def lose(redis, instance):
    """All of the delivery state of `work` but its definition."""
    filters = redis.hget(key(instance, "queue", "work"), "sorted") or b""
    names = [key(instance, name, "work") for name in STATE]
    redis.delete(*names, *[key(instance, "sorted", "work", name) for name in filters.decode().split() if name])
    for member in redis.zrange(key(instance, "due"), 0, -1):
        if member.startswith((b"ready work ", b"scheduled work ")):
            redis.zrem(key(instance, "due"), member)
    redis.hdel(key(instance, "queue", "work"), "delayed", "scheduled")


class History:
    """Random operations on a queue, and what they come to."""

    def __init__(self, client, seed, kind):
        self.client, self.dice = client, random.Random(seed)  # noqa: S311
        client.publish_many("orders", [{"n": number} for number in range(3)])
        self.queue = Queue(name="work", max_per_subscription_backlog=50, max_cancels=3, **KINDS[kind])
        client.apply(self.queue)
        self.published, self.settled = [], set()
        self.topics = ["orders", "orders-2"] if kind == "several-topics" else ["orders"]
        with client.subscribe("work", max_backlog=20) as self.messages:
            self.held = []
            for _ in range(60):
                self.dice.choice([self.publish, self.take, self.take, self.settle, self.settle, self.administer])()

    def publish(self):
        bodies = [{"n": self.dice.randrange(10)} for _ in range(self.dice.choice([1, 5, 40]))]
        self.published += self.client.publish_many(self.dice.choice(self.topics), bodies)
        self.published.append(self.client.publish(self.topics[0], {"n": 7}, delay="1h"))

    def take(self):
        self.held += [self.messages.get(0) for _ in range(self.dice.randrange(12))]
        self.held = [message for message in self.held if message is not None]

    def settle(self):
        for _ in range(min(self.dice.randrange(10), len(self.held))):
            message = self.held.pop(self.dice.randrange(len(self.held)))
            with contextlib.suppress(Rejected):
                verb = self.dice.choice(["ack", "ack", "ack", "cancel", "later", "expire"])
                if verb == "ack":
                    message.ack(wait=True)
                elif verb == "expire":
                    message.expire()
                else:
                    message.cancel(delay="1h" if verb == "later" else None)

    def administer(self):
        for bookmark in self.dice.sample(self.published, min(3, len(self.published))):
            with contextlib.suppress(Rejected):
                self.client.ack("work", [bookmark], self.dice.choice(["ack", "expire"]))


def unsettled(client, redis):
    """Return what is in the queue, by log and journal alone, with a judgement of the filter of our own."""
    settled = collections.Counter()
    for _, fields in redis.xrange(key(client.instance, "journal", "work")):
        for ref in fields[b"refs"].decode().split():
            settled[ref] += -1 if fields[b"how"] == b"given_back" else 1
    return {ref for ref, number in settled.items() if number > 0}


def delivered(client):
    with client.subscribe("work", max_backlog=50) as messages:
        found = []
        for _ in range(200):
            batch = rest_of(messages)
            for message in batch:
                found.append(message.bookmark)
                message.ack(wait=True)
            if not batch:
                return found
    raise AssertionError("it never ends")


@first_ones("seed", [1, 2], 1)
@pytest.mark.parametrize("kind", KINDS)
def test_what_was_settled_stays_so_and_the_rest_is_delivered_once(client, redis, kind, seed):
    # Given a queue to which much has happened
    History(client, seed, kind)
    (before,) = client.admin.check("work")
    assert before.clean
    stats = client.admin.queue_stats("work")
    settled = unsettled(client, redis)
    # When all of its delivery state is lost and it is mended
    lose(redis, client.instance)
    assert not client.admin.check("work")[0].clean
    client.admin.check("work", repair=True)
    # Then the durable part is what it was
    (after,) = client.admin.check("work")
    assert (after.clean, after.messages, after.settled) == (True, before.messages, before.settled)
    assert unsettled(client, redis) == settled
    if kind not in ("filter", "barrier"):
        assert client.admin.queue_stats("work").depth == stats.depth
    # And what was not settled is delivered, once each; what was published for later is later
    found = delivered(client)
    assert len(found) == len(set(found))
    rest = client.admin.queue_stats("work")
    assert rest.depth == rest.scheduled == stats.scheduled > 0
    (drained,) = client.admin.check("work")
    kept_out = drained.messages - drained.settled - rest.scheduled
    assert drained.clean
    assert (kept_out > 0) == (kind == "filter")
    barriers = int(redis.hget(key(client.instance, "queue", "work"), "barrier") or 0)
    assert barriers > 0 or kind != "barrier" or rest.held > 0


def test_what_is_delivered_after_a_rebuild_is_in_the_order_of_arrival_over_all_topics(client, redis):
    client.apply(Queue(name="work", underlying_topic="^orders", default_publish_target="orders"))
    bookmarks = [client.publish(f"orders-{number % 3}", number) for number in range(60)]
    client.ack("work", bookmarks[:30:2])
    lose(redis, client.instance)
    client.admin.rebuild("work")
    with client.subscribe("work") as messages:
        found = []
        while (message := messages.get(0.1)) is not None:
            found.append(message.data)
            message.ack(wait=True)
    assert found == [*range(1, 30, 2), *range(30, 60)]


def test_a_rebuild_keeps_leases_delays_and_attempts_that_are_there(client):
    client.apply(Queue(name="work", underlying_topic="orders", max_per_subscription_backlog=10, max_deliveries=5))
    client.publish_many("orders", range(6))
    with client.subscribe("work", max_backlog=2) as messages:
        first, second = messages.get(30), messages.get(30)
        second.cancel()
        second = eventually(lambda: messages.get(0))
        assert second.delivery == 2
        client.admin.rebuild("work")
        first.ack(wait=True)
        second.ack(wait=True)
        assert client.admin.check("work")[0].clean
        assert client.admin.queue_stats("work").depth == 4


def test_a_coordinator_ends_a_rebuild_that_nobody_ended(client, redis, valkey, start_coordinator):  # noqa: ARG001
    # Given a client that died while it rebuilt a queue
    client.apply(Queue(name="work", underlying_topic="orders"))
    client.publish_many("orders", range(5))
    store = client._store
    store.call(check_calls.pause_queue("work", "dead", 0, [("orders", "0-0 0")], changed=False))
    with client.subscribe("work") as messages:
        assert messages.get(0.1) is None
        # When a coordinator is at work, the queue delivers again
        start_coordinator()
        assert [eventually(lambda: messages.get(0.1), within=25.0).data] == [0]
    eventually(lambda: client.admin.check("work")[0].undecided == ())
    assert client.admin.check("work")[0].clean


def test_a_rebuild_under_way_stops_its_queue_alone_and_one_that_was_given_up_is_taken_over(client, redis):
    client.apply(Queue(name="work", underlying_topic="orders"), Queue(name="other", underlying_topic="orders"))
    compiled = redis.hget(key(client.instance, "queue", "work"), "compiled").decode()
    paused = compiled.rpartition(" ")[0] + " ~"
    redis.hset(
        key(client.instance, "queue", "work"), mapping={"compiled": paused, "paused": "orders", "rebuild": "me 5"}
    )
    redis.hset(key(client.instance, "cursors", "work"), "orders", "0-0 0")
    client.publish("orders", 1)
    with client.subscribe("work") as messages, client.subscribe("other") as others:
        assert messages.get(0.1) is None
        assert others.get(30).data == 1
        # A definition that changes meanwhile does not begin to read
        client.apply(Queue(name="work", underlying_topic="orders", max_deliveries=3))
        assert messages.get(0.1) is None
        client.admin.rebuild("work")
        assert eventually(lambda: messages.get(0)).data == 1
    assert redis.hget(key(client.instance, "queue", "work"), "compiled").decode().endswith(" orders")


_dice = random.Random(1)  # noqa: S311


class Traffic:
    """Publishers and consumers of several queues in threads, until the block ends."""

    def __init__(self, url, instance, queues):
        self.url, self.instance, self.queues = url, instance, queues
        self.stopping, self.ending = threading.Event(), threading.Event()
        self.published, self.faults = [], []
        self.acked = {queue.name: collections.Counter() for queue in queues}
        consumers = [(queue, text) for queue in queues for text in (None, "/n < 7")]
        self.threads = [threading.Thread(target=self.guarded, args=(self.publish,))] + [
            threading.Thread(target=self.guarded, args=(self.consume, *each)) for each in consumers
        ]

    def guarded(self, work, *arguments):
        try:
            work(*arguments)
        except Exception as fault:  # noqa: BLE001
            self.faults.append(fault)

    def publish(self):
        with Client(self.url, instance=self.instance) as client:
            while not self.stopping.is_set():
                bodies = [{"n": number % 10} for number in range(_dice.choice([1, 3, 20]))]
                self.published += zip(client.publish_many("orders", bodies), bodies, strict=True)
                time.sleep(0.005)  # the pace

    def consume(self, queue, text):
        acked = self.acked[queue.name]
        with Client(self.url, instance=self.instance) as client:
            while not self.ending.is_set():
                with client.subscribe(queue.name, max_backlog=_dice.choice([1, 20]), filter=text) as messages:
                    left = _dice.randrange(20, 200)
                    # In the end all that was delivered is handled: an at-most-once queue counts it as settled before.
                    while left > 0 or self.ending.is_set():
                        left -= 1
                        if (message := messages.get(0.1)) is None:
                            if self.ending.is_set():
                                break
                            continue
                        chance = _dice.random()
                        if chance < 0.05 and queue.semantics != "at-most-once":
                            message.cancel(delay="100ms" if chance < 0.02 else None)
                        else:
                            message.ack(wait=True)
                            acked[message.bookmark] += 1

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def finish(self, client):
        """No more messages, and all that there are settled."""
        self.stopping.set()
        eventually(lambda: not any(client.admin.queue_stats(queue.name).depth for queue in self.queues), within=200)

    def __exit__(self, *_):
        self.stopping.set()
        self.ending.set()
        for thread in self.threads:
            thread.join()


def busy_queues():
    common = {"underlying_topic": "orders", "lease_period": "30s", "max_per_subscription_backlog": 100}
    return [
        Queue(name="plain", **common),
        Queue(name="prio", priority="/n", **common),
        Queue(name="kept", filter="/n > 5", **common),
        Queue(name="stop", barrier_expression="/n = 9", **common),
        Queue(name="once", semantics="at-most-once", allow_redelivery_after_crash=True, **common),
    ]


@pytest.mark.slow
def test_on_a_healthy_system_under_load_nothing_is_found(client, valkey, coordinator):  # noqa: ARG001
    queues = busy_queues()
    client.apply(*queues)
    with Traffic(valkey.url, client.instance, queues) as traffic:
        until, rounds = time.monotonic() + 4, 0
        while time.monotonic() < until:
            # Mending a healthy queue changes nothing
            for found in client.admin.check(repair=rounds % 2 == 1):
                assert found.differences == (), found
            rounds += 1
    assert traffic.faults == []


@pytest.mark.slow
def test_queues_are_rebuilt_under_load_without_losing_or_doubling_anything(client, valkey, coordinator):  # noqa: ARG001
    queues = [queue for queue in busy_queues() if queue.name != "stop"]
    client.apply(*queues)
    with Traffic(valkey.url, client.instance, queues) as traffic:
        for _ in range(3):
            for queue in queues:
                client.admin.rebuild(queue.name)
        traffic.finish(client)
    assert traffic.faults == []
    for queue in queues:
        wanted = {str(bookmark) for bookmark, body in traffic.published if queue.name != "kept" or body["n"] > 5}
        acked = traffic.acked[queue.name]
        assert set(map(str, acked)) == wanted
        assert set(acked.values()) == {1}
    assert all(found.clean for found in client.admin.check())


def test_a_ring_that_was_made_smaller_evicts_nothing_when_it_is_rebuilt(client, redis):
    client.apply(Queue(name="work", underlying_topic="orders", ring_size=8, max_per_subscription_backlog=20))
    client.publish_many("orders", range(12))
    client.apply(Queue(name="work", underlying_topic="orders", ring_size=5, max_per_subscription_backlog=20))
    assert client.admin.queue_stats("work").depth == 8
    lose(redis, client.instance)
    client.admin.check("work", repair=True)
    assert client.admin.check("work")[0].clean
    assert client.admin.queue_stats("work").depth == 8
    client.publish("orders", 12)
    with client.subscribe("work", max_backlog=20, filter="1 = 1") as messages:
        assert sorted(message.data for message in rest_of(messages)) == [5, 6, 7, 8, 9, 10, 11, 12]


def test_a_rebuilt_queue_ends_lives_on_time(client, redis, coordinator):  # noqa: ARG001
    client.apply(Queue(name="work", underlying_topic="orders", expiration="700ms"))
    bookmarks = client.publish_many("orders", range(5))
    client.ack("work", bookmarks[1:4])
    lose(redis, client.instance)
    client.admin.rebuild("work")
    assert client.admin.queue_stats("work").depth == 2
    eventually(lambda: client.admin.queue_stats("work").expired == 2)
    assert client.admin.check("work")[0].clean
