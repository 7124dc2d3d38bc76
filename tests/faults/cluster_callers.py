"""Callers of all that a client offers, each in a thread: what they called, how long it took, and what came of it."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import random
import threading
import time
from collections import Counter
from typing import NamedTuple

import redis

from ampsq import Action, AsyncClient, Client, MemoryPublishStore, Queue, Topic, View, Worker
from ampsq.base.errors import AlreadyAcked, StaleLease, Unavailable, UnknownMessage
from ampsq.coordinator import Coordinator

__all__ = ["Called", "Callers", "define"]

#: Seconds that a call waits for a message at most: one is published all the time.
_WAIT = 20.0
#: Seconds of one look for a message, and of a look at the machine.
_LOOK, _PROBE = 0.25, 0.02


class Called(NamedTuple):
    """One call: when it began by the monotonic clock, and how many seconds it took."""

    name: str
    began: float
    took: float


def define(client):
    """Define what the callers use."""
    client.apply(
        Topic(name="orders"),
        Topic(name="prices", key=["/id"]),
        Topic(name="kept", retention_count=50),
        View(
            name="sums", underlying_topic="prices", projection=["/kind", "SUM(/price) AS /sum"], grouping=["/kind"],
        ),
        Queue(name="work", underlying_topic="orders", lease_period="60s", max_per_subscription_backlog=50),
        Queue(name="swept", underlying_topic="kept", lease_period="60s"),
        Queue(name="poor", underlying_topic="trash", max_cancels=1, max_per_subscription_backlog=5),
        Queue(name="dead", underlying_topic="letters"),
        Action.dead_letter("poor", "letters"),
    )  # fmt: skip


class Callers:
    """All of them: they call while this is entered.

    Args:
        url: of the cluster.
        instance: its name.
        folder: for the file of a publisher's store.
        seed: decides who calls what next.
        idle: gives a node that does not serve the instance, to be asked how busy the machine is.

    Attributes:
        calls: each call that came to its end.
        allowed: what was raised and may be, after a primary was lost.
    """

    def __init__(self, url, instance, folder, seed, idle):
        self._url, self._instance, self._folder, self._seed, self._idle = url, instance, folder, seed, idle
        self.calls, self.allowed, self._raised, self._stalls = [], Counter(), [], []
        self._stop, self._numbers = threading.Event(), itertools.count()
        #: Bodies: what was answered by publishers without a name, what a store took, what was persisted.
        self._answered, self._stored, self._unknown = set(), set(), set()
        self._threads, self._seen, self._found, self._log = [], [], None, _Log()

    # -- calling

    def _call(self, name, function, *arguments, **options):
        began = time.monotonic()
        try:
            return function(*arguments, **options)
        finally:
            self.calls.append(Called(name, began, time.monotonic() - began))

    async def _call_async(self, name, function, *arguments, **options):
        began = time.monotonic()
        try:
            return await function(*arguments, **options)
        finally:
            self.calls.append(Called(name, began, time.monotonic() - began))

    def _next(self, name, get):
        """Wait for the next message; None once it is over. So long as messages are published, it is not long."""
        began = time.monotonic()
        while (message := get(_LOOK)) is None and not self._stop.is_set():
            if time.monotonic() - began > _WAIT:
                raise AssertionError(f"{name}: no message in {_WAIT} s, while messages are published")
        if message is not None:
            self.calls.append(Called(name, began, time.monotonic() - began))
        return message

    def _client(self):
        return Client(self._url, instance=self._instance, retry_timeout="20s", data_dir=self._folder / "data")

    def _rng(self, name):
        return random.Random(f"{self._seed} {name}")  # noqa: S311  (no secret)

    def _take(self, name, number=1):
        return [f"{name}-{next(self._numbers)}" for _ in range(number)]

    def _guard(self, name, error):
        self._raised.append((name, time.monotonic(), error))

    def _repeat(self, name, one):
        """Call again and again; what is raised is noted, and ends nothing."""
        rng = self._rng(name)
        while not self._stop.is_set():
            try:
                one(rng)
            except Exception as error:  # noqa: BLE001  (what it is, the judge looks at)
                self._guard(name, error)
            self._stop.wait(rng.uniform(0.005, 0.05))

    # -- who calls

    def _publish(self):
        with self._client() as client:

            def one(rng):
                bodies = self._take("plain", rng.choice((1, 1, 20)))
                try:
                    if len(bodies) == 1:
                        self._call("publish", client.publish, "orders", bodies[0])
                    else:
                        self._call("publish_many", client.publish_many, "orders", bodies, batch=5)
                except Unavailable:
                    self._unknown.update(bodies)
                    raise
                self._answered.update(bodies)
                self._call("publish to a queue of failures", client.publish, "trash", self._take("trash")[0])
                self._call("publish with a delay", client.publish, "kept", {"odd": rng.randrange(2)}, delay="50ms")
                self._call(
                    "publish a record", client.publish, "prices",
                    {"id": rng.randrange(20), "kind": rng.choice("ab"), "price": rng.randrange(100)},
                )  # fmt: skip
                self._call("delta_publish", client.delta_publish, "prices", {"id": rng.randrange(20), "price": 1})

            self._repeat("publish", one)

    def _publish_for_good(self):
        with (
            self._client() as client,
            client.publisher("till", store=self._folder / "till.db", persisted="replicas=1") as till,
        ):

            def one(rng):
                bodies = self._take("till", rng.choice((1, 10)))
                if len(bodies) == 1:
                    self._call("publisher.publish", till.publish, "orders", bodies[0])
                else:
                    self._call("publisher.publish_many", till.publish_many, "orders", bodies)
                self._stored.update(bodies)
                self._call("publisher.flush", till.flush, "30s")

            self._repeat("publisher", one)
            till.flush("30s")

    def _consume(self):
        with self._client() as client, client.subscribe("work", max_backlog=10) as messages:

            def one(rng):
                if (message := self._next("subscription.get", messages.get)) is None:
                    return
                self._call("extend", message.extend, "90s")
                if rng.random() < 0.2:
                    self._call("cancel", message.cancel)
                else:
                    self._call("ack", message.ack, wait=rng.random() < 0.5)
                if rng.random() < 0.1:
                    self._call("subscription.flush", messages.flush)

            self._repeat("consume", one)

    def _work(self):
        worker = Worker(lambda _message: time.sleep(0.001), "work", url=self._url, instance=self._instance)

        def end():
            self._stop.wait()
            worker.stop()

        threading.Thread(target=end, daemon=True).start()
        try:
            worker.run()
        except Exception as error:  # noqa: BLE001
            self._guard("Worker.run", error)
        self.calls.append(Called("Worker.run", 0.0, 0.0))

    def _sweep(self):
        with self._client() as client:

            def one(rng):
                self._call(
                    "ack with a filter", client.ack, "swept", filter=f"/odd = {rng.randrange(2)}",
                    dry_run=rng.random() < 0.2,
                )  # fmt: skip

            self._repeat("sweep", one)

    def _fail(self):
        with self._client() as client, client.subscribe("poor", max_backlog=5) as messages:

            def one(_rng):
                if (message := self._next("get of a queue of failures", messages.get)) is not None:
                    self._call("cancel for good", message.cancel, reason="poor")

            self._repeat("fail", one)

    def _redrive(self):
        with self._client() as client:

            def one(rng):
                letters = self._call("dead_letters", client.admin.dead_letters, "dead", top_n=5)
                if letters and rng.random() < 0.5:
                    bookmarks = [letter.bookmark for letter in letters]
                    self._call("redrive", client.admin.redrive, "dead", bookmarks=bookmarks)
                self._stop.wait(0.1)

            self._repeat("redrive", one)

    def _look(self):
        with self._client() as client:
            admin = client.admin

            def aggregate():
                with client.aggregate("prices", ["/kind", "SUM(/price) AS /sum"], ["/kind"]) as rows:
                    rows.get(0.01)

            def acknowledge(bookmark):
                # Whoever sweeps that queue, or its topic's retention, may have been sooner.
                with contextlib.suppress(AlreadyAcked, UnknownMessage):
                    client.ack("swept", [bookmark])

            def one(rng):
                bookmark = self._call("publish", client.publish, "kept", {"odd": 2})
                looks = [
                    ("queue_stats", lambda: admin.queue_stats("work")),
                    ("explain", lambda: admin.explain("swept", bookmark)),
                    ("explain a queue", lambda: admin.explain("work")),
                    ("history", lambda: admin.history(bookmark)),
                    ("sow", lambda: client.sow("prices")),
                    ("sow of a view", lambda: client.sow("sums")),
                    ("sow of a queue", lambda: client.sow("work", top_n=5)),
                    ("topics", admin.topics),
                    ("queues", admin.queues),
                    ("definitions", admin.definitions),
                    ("publishers", admin.publishers),
                    ("readers", admin.readers),
                    ("views", admin.views),
                    ("sync_states", admin.sync_states),
                    ("replication", admin.replication),
                    ("check", lambda: admin.check("work")),
                    ("trim", lambda: admin.trim("kept", age="1s")),
                    ("aggregate", aggregate),
                    ("actions", admin.actions),
                    ("destinations", admin.destinations),
                    ("address_settings", admin.address_settings),
                    ("message_type", lambda: admin.message_type("orders")),
                    ("failed_events", lambda: admin.failed_events("dead-letter-poor")),
                    ("ack by bookmark", lambda: acknowledge(bookmark)),
                ]
                for name, look in rng.sample(looks, 4):
                    self._call(name, look)

            self._repeat("look", one)

    def _follow_records(self):
        with self._client() as client:

            def one(rng):
                with self._call("sow_and_subscribe", client.sow_and_subscribe, "prices", oof=True) as changes:
                    for _ in range(rng.randrange(1, 60)):
                        self._next("record.get", changes.get)
                self._call("sow_delete", client.sow_delete, "prices", keys=[rng.randrange(20)])

            self._repeat("records", one)

    def _follow_topic(self):
        with self._client() as client:
            seen = self._seen
            try:
                with self._call("subscribe_topic", client.subscribe_topic, "orders", bookmark="epoch") as messages:
                    while (message := self._next("topic.get", messages.get)) is not None:
                        seen.append(message.data)
            except Exception as error:  # noqa: BLE001
                self._guard("topic", error)

    def _define(self):
        with self._client() as client:
            admin = client.admin

            def one(rng):
                queue = Queue(name="extra", underlying_topic="orders", max_backlog=rng.randrange(10, 100))
                topic = Topic(name="kept", retention_count=rng.randrange(20, 80))
                self._call("apply", client.apply, queue, topic)
                self._call("plan", admin.plan, topic)
                self._call("pause_queue", admin.pause_queue, "extra")
                self._call("resume_queue", admin.resume_queue, "extra")
                self._call("rebuild", admin.rebuild, "extra")
                self._call("remove", admin.remove, queue)
                self._stop.wait(0.2)

            self._repeat("define", one)

    def _be_asyncio(self):
        asyncio.run(self._all_asyncio())

    async def _all_asyncio(self):  # noqa: C901  (one function for each caller)
        rng = self._rng("asyncio")
        async with (
            AsyncClient(self._url, instance=self._instance, retry_timeout="20s") as client,
            client.publisher("async-till", store=MemoryPublishStore(), persisted="replicas=1") as till,
            client.subscribe("work", max_backlog=5) as messages,
        ):

            async def repeat(one):
                while not self._stop.is_set():
                    try:
                        await one()
                    except Exception as error:  # noqa: BLE001
                        self._guard("asyncio", error)
                    await asyncio.sleep(rng.uniform(0.01, 0.06))

            async def publish():
                bodies = self._take("async", 10)
                try:
                    await self._call_async("async publish", client.publish, "orders", bodies[0])
                    await self._call_async("async publish_many", client.publish_many, "orders", bodies[1:], batch=3)
                except Unavailable:
                    self._unknown.update(bodies)
                    raise
                self._answered.update(bodies)

            async def publish_for_good():
                (body,) = self._take("async-till")
                await self._call_async("async publisher.publish", till.publish, "orders", body)
                self._stored.add(body)
                await self._call_async("async publisher.flush", till.flush, "30s")

            async def consume():
                began = time.monotonic()
                if (message := await messages.get(_LOOK)) is not None:
                    self.calls.append(Called("async subscription.get", began, time.monotonic() - began))
                    await self._call_async("async ack", message.ack, wait=True)

            async def follow():
                async with client.subscribe_topic("orders", bookmark="now") as orders:
                    await self._call_async("async topic.get", orders.get, _LOOK)
                async with client.sow_and_subscribe("prices") as changes:
                    await self._call_async("async record.get", changes.get, _LOOK)

            async def administer():
                await self._call_async("async apply", client.apply, Topic(name="kept", retention_count=60))
                await self._call_async("async topics", client.admin.topics)
                await self._call_async("async explain", client.admin.explain, "work")
                await self._call_async("async dead_letters", client.admin.dead_letters, "dead", top_n=3)
                await self._call_async("async check", client.admin.check, "dead")
                await self._call_async("async sow_delete", client.sow_delete, "prices", keys=[21])
                await self._call_async("async delta_publish", client.delta_publish, "prices", {"id": 21, "price": 1})

            async def look():
                await self._call_async("async sow", client.sow, "prices")
                await self._call_async("async queue_stats", client.admin.queue_stats, "work")
                await self._call_async("async ack with a filter", client.ack, "swept", filter="/odd = 2")

            await asyncio.gather(*map(repeat, (publish, publish_for_good, consume, look, follow, administer)))
            await till.flush("30s")

    def _probe(self):
        """How long the machine holds up this process, or a server that has nothing to do with the instance."""
        node = self._idle()
        with contextlib.closing(node.client()) as plain:
            while not self._stop.is_set():
                began = time.monotonic()
                time.sleep(_PROBE)
                try:
                    plain.ping()
                except redis.RedisError:
                    self._stop.wait(_LOOK)
                    continue
                if (late := time.monotonic() - began - _PROBE) > _PROBE:
                    self._stalls.append((began, late))

    # -- all of them

    def __enter__(self):
        logging.getLogger("ampsq").addHandler(self._log)
        self._coordinator = Coordinator(self._url, [self._instance])
        actors = [
            self._coordinator.run, self._probe, self._publish, self._publish_for_good, self._consume, self._work,
            self._sweep, self._fail, self._redrive, self._look, self._follow_records, self._follow_topic, self._define,
            self._be_asyncio,
        ]  # fmt: skip
        for actor in actors:
            self._threads.append(threading.Thread(target=self._run, args=(actor,), daemon=True))
            self._threads[-1].start()
        return self

    def _run(self, actor):
        try:
            actor()
        except BaseException as error:  # noqa: BLE001
            self._guard(actor.__name__, error)

    def __exit__(self, *_):
        # All that was asked for once was answered once, while nothing is disturbed.
        time.sleep(1.0)
        self._stop.set()
        for thread in self._threads[1:]:
            thread.join(60)
            if thread.is_alive():
                self._guard("end", AssertionError(f"{thread} does not end"))
        self._coordinator.stop()
        self._threads[0].join(15)
        logging.getLogger("ampsq").removeHandler(self._log)

    # -- what came of it

    def held_up(self, began, until):
        """Seconds of a time in which the machine held this process up."""
        return sum(late for at, late in self._stalls if began - late < at < until)

    def held_up_most(self):
        return max((late for _, late in self._stalls), default=0.0)

    def missing(self):
        """What every run calls, and this one did not."""
        done = {call.name for call in self.calls}
        return sorted(_ALWAYS - done)

    def recorded(self, url):
        """How many messages the log has; reads it once."""
        if self._found is None:
            with (
                Client(url, instance=self._instance) as client,
                client.subscribe_topic("orders", bookmark="[epoch:now)") as messages,
            ):
                self._found = [message.data for message in iter(lambda: messages.get(2.0), None)]
        return len(self._found)

    def wrong(self, *, killed):
        """What is wrong, and count what was allowed."""
        found = []
        for name, _, error in self._raised:
            if killed and ((isinstance(error, Unavailable) and error.may_have_run) or isinstance(error, StaleLease)):
                self.allowed[type(error).__name__] += 1
            else:
                found.append(f"{name} raised {type(error).__name__}: {str(error)[:300]}")
        found += [f"log: {text[:300]}" for text in self._log.texts]
        self.recorded(self._url)
        counts = Counter(self._found)
        doubled = sorted(body for body, number in counts.items() if number > 1)
        lost = sorted(self._stored - set(counts))
        answered = sorted(self._answered - set(counts))
        if doubled:
            found.append(f"{len(doubled)} messages are recorded more than once: {doubled[:3]}")
        if lost:
            found.append(f"{len(lost)} messages of a store are LOST: {lost[:3]}")
        if answered and not killed:
            found.append(f"{len(answered)} answered messages are LOST: {answered[:3]}")
        if answered:
            self.allowed["answered without a guarantee and lost"] = len(answered)
        unasked = sorted(set(counts) - self._stored - self._answered - self._unknown)
        if unasked:
            found.append(f"{len(unasked)} messages are recorded that nobody published: {unasked[:3]}")
        if not killed and (repeated := len(self._seen) - len(set(self._seen))):
            found.append(f"the reader of the topic had {repeated} messages twice")
        return found


class _Log(logging.Handler):
    """What ours logs with an exception: a fault that nobody expected."""

    def __init__(self):
        super().__init__(logging.ERROR)
        self.texts = []

    def emit(self, record):
        if record.exc_info:
            self.texts.append(f"{record.getMessage()}: {record.exc_info[1]!r}")


#: What every run has to have called.
_ALWAYS = {
    "publish", "publish_many", "publish with a delay", "publish a record", "delta_publish", "publisher.publish",
    "publisher.publish_many", "publisher.flush", "subscription.get", "extend", "cancel", "ack", "Worker.run",
    "ack with a filter", "cancel for good", "dead_letters", "redrive", "sow_and_subscribe", "record.get", "sow_delete",
    "subscribe_topic", "topic.get", "apply", "plan", "pause_queue", "resume_queue", "async publish",
    "async publish_many", "async publisher.publish", "async publisher.flush", "async subscription.get", "async ack",
    "async sow", "async queue_stats", "async ack with a filter", "queue_stats", "history", "sow", "explain",
    "rebuild", "remove", "async topic.get", "async record.get", "async apply", "async check", "async dead_letters",
}  # fmt: skip
