"""Callers of all that a client offers, each in a thread of its own."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import threading
import time

import redis
from cluster_calls import LOOK, Called, Calls

from ampsq import Action, AsyncClient, Client, MemoryPublishStore, Queue, Topic, View, Worker
from ampsq.base.errors import AlreadyAcked, Unavailable, UnknownMessage
from ampsq.coordinator import Coordinator

__all__ = ["Callers", "define"]

#: Seconds between two looks at how busy the machine is.
_PROBE = 0.02


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
        noted: what they called.
    """

    def __init__(self, url, instance, folder, seed, idle):
        self._url, self._instance, self._folder, self._seed, self._idle = url, instance, folder, seed, idle
        self._stop, self._threads = threading.Event(), []
        self.noted = Calls(instance, self._stop)

    def _client(self):
        return Client(self._url, instance=self._instance, retry_timeout="20s", data_dir=self._folder / "data")

    def _rng(self, name):
        return random.Random(f"{self._seed} {name}")  # noqa: S311  (no secret)

    def _repeat(self, name, one):
        """Call again and again; what is raised is noted, and ends nothing."""
        rng = self._rng(name)
        while not self._stop.is_set():
            try:
                one(rng)
            except Exception as error:  # noqa: BLE001  (what it is, the judge looks at)
                self.noted.note(name, error)
            self._stop.wait(rng.uniform(0.005, 0.05))

    # -- who calls

    def _publish(self):
        with self._client() as client:

            def one(rng):
                bodies = self.noted.take("plain", rng.choice((1, 1, 20)))
                try:
                    if len(bodies) == 1:
                        self.noted.call("publish", client.publish, "orders", bodies[0])
                    else:
                        self.noted.call("publish_many", client.publish_many, "orders", bodies, batch=5)
                except Unavailable:
                    self.noted.unknown.update(bodies)
                    raise
                self.noted.answered.update(bodies)
                self.noted.call("publish to a queue of failures", client.publish, "trash", self.noted.take("trash")[0])
                self.noted.call("publish with a delay", client.publish, "kept", {"odd": rng.randrange(2)}, delay="50ms")
                self.noted.call(
                    "publish a record", client.publish, "prices",
                    {"id": rng.randrange(20), "kind": rng.choice("ab"), "price": rng.randrange(100)},
                )  # fmt: skip
                self.noted.call("delta_publish", client.delta_publish, "prices", {"id": rng.randrange(20), "price": 1})

            self._repeat("publish", one)

    def _publish_for_good(self):
        with (
            self._client() as client,
            client.publisher("till", store=self._folder / "till.db", persisted="replicas=1") as till,
        ):

            def one(rng):
                bodies = self.noted.take("till", rng.choice((1, 10)))
                if len(bodies) == 1:
                    self.noted.call("publisher.publish", till.publish, "orders", bodies[0])
                else:
                    self.noted.call("publisher.publish_many", till.publish_many, "orders", bodies)
                self.noted.stored.update(bodies)
                self.noted.call("publisher.flush", till.flush, "30s")

            self._repeat("publisher", one)
            till.flush("30s")

    def _consume(self):
        with self._client() as client, client.subscribe("work", max_backlog=10) as messages:

            def one(rng):
                if (message := self.noted.wait_for("subscription.get", messages.get)) is None:
                    return
                self.noted.call("extend", message.extend, "90s")
                if rng.random() < 0.2:
                    self.noted.call("cancel", message.cancel)
                else:
                    self.noted.call("ack", message.ack, wait=rng.random() < 0.5)
                if rng.random() < 0.1:
                    self.noted.call("subscription.flush", messages.flush)

            self._repeat("consume", one)

    def _work(self):
        # The handler's work.
        worker = Worker(lambda _message: time.sleep(0.001), "work", url=self._url, instance=self._instance)

        def end():
            self._stop.wait()
            worker.stop()

        threading.Thread(target=end, daemon=True).start()
        try:
            worker.run()
        except Exception as error:  # noqa: BLE001
            self.noted.note("Worker.run", error)
        self.noted.calls.append(Called("Worker.run", 0.0, 0.0))

    def _sweep(self):
        with self._client() as client:

            def one(rng):
                self.noted.call(
                    "ack with a filter", client.ack, "swept", filter=f"/odd = {rng.randrange(2)}",
                    dry_run=rng.random() < 0.2,
                )  # fmt: skip

            self._repeat("sweep", one)

    def _fail(self):
        with self._client() as client, client.subscribe("poor", max_backlog=5) as messages:

            def one(_rng):
                if (message := self.noted.wait_for("get of a queue of failures", messages.get)) is not None:
                    self.noted.call("cancel for good", message.cancel, reason="poor")

            self._repeat("fail", one)

    def _redrive(self):
        with self._client() as client:

            def one(rng):
                letters = self.noted.call("dead_letters", client.admin.dead_letters, "dead", top_n=5)
                if letters and rng.random() < 0.5:
                    bookmarks = [letter.bookmark for letter in letters]
                    self.noted.call("redrive", client.admin.redrive, "dead", bookmarks=bookmarks)
                self._stop.wait(0.1)

            self._repeat("redrive", one)

    def _look(self):
        with self._client() as client:
            admin, asked = client.admin, []

            def aggregate():
                with client.aggregate("prices", ["/kind", "SUM(/price) AS /sum"], ["/kind"]) as rows:
                    rows.get(0.01)

            def acknowledge(bookmark):
                # Whoever sweeps that queue, or its topic's retention, may have been sooner.
                with contextlib.suppress(AlreadyAcked, UnknownMessage):
                    client.ack("swept", [bookmark])

            def one(rng):
                bookmark = self.noted.call("publish", client.publish, "kept", {"odd": 2})
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
                # Each in turn, in an order by chance: so all of them are called, also where few rounds are made.
                asked[:] = asked or rng.sample([name for name, _ in looks], len(looks))
                for name in [asked.pop() for _ in range(min(4, len(asked)))]:
                    self.noted.call(name, dict(looks)[name])

            self._repeat("look", one)

    def _follow_records(self):
        with self._client() as client:

            def one(rng):
                with self.noted.call("sow_and_subscribe", client.sow_and_subscribe, "prices", oof=True) as changes:
                    for _ in range(rng.randrange(1, 60)):
                        self.noted.wait_for("record.get", changes.get)
                self.noted.call("sow_delete", client.sow_delete, "prices", keys=[rng.randrange(20)])

            self._repeat("records", one)

    def _follow_topic(self):
        with self._client() as client:
            seen = self.noted.seen
            try:
                with self.noted.call("subscribe_topic", client.subscribe_topic, "orders", bookmark="epoch") as messages:
                    while (message := self.noted.wait_for("topic.get", messages.get)) is not None:
                        seen.append(message.data)
            except Exception as error:  # noqa: BLE001
                self.noted.note("topic", error)

    def _define(self):
        with self._client() as client:
            admin = client.admin

            def one(rng):
                queue = Queue(name="extra", underlying_topic="orders", max_backlog=rng.randrange(10, 100))
                topic = Topic(name="kept", retention_count=rng.randrange(20, 80))
                self.noted.call("apply", client.apply, queue, topic)
                self.noted.call("plan", admin.plan, topic)
                self.noted.call("pause_queue", admin.pause_queue, "extra")
                self.noted.call("resume_queue", admin.resume_queue, "extra")
                self.noted.call("rebuild", admin.rebuild, "extra")
                self.noted.call("remove", admin.remove, queue)
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
                        self.noted.note("asyncio", error)
                    await asyncio.sleep(rng.uniform(0.01, 0.06))  # the pace

            async def publish():
                bodies = self.noted.take("async", 10)
                try:
                    await self.noted.call_async("async publish", client.publish, "orders", bodies[0])
                    await self.noted.call_async(
                        "async publish_many", client.publish_many, "orders", bodies[1:], batch=3
                    )
                except Unavailable:
                    self.noted.unknown.update(bodies)
                    raise
                self.noted.answered.update(bodies)

            async def publish_for_good():
                (body,) = self.noted.take("async-till")
                await self.noted.call_async("async publisher.publish", till.publish, "orders", body)
                self.noted.stored.add(body)
                await self.noted.call_async("async publisher.flush", till.flush, "30s")

            async def consume():
                began = time.monotonic()
                if (message := await messages.get(LOOK)) is not None:
                    self.noted.calls.append(Called("async subscription.get", began, time.monotonic() - began))
                    await self.noted.call_async("async ack", message.ack, wait=True)

            async def follow():
                async with client.subscribe_topic("orders", bookmark="now") as orders:
                    await self.noted.call_async("async topic.get", orders.get, LOOK)
                async with client.sow_and_subscribe("prices") as changes:
                    await self.noted.call_async("async record.get", changes.get, LOOK)

            async def administer():
                await self.noted.call_async("async apply", client.apply, Topic(name="kept", retention_count=60))
                await self.noted.call_async("async topics", client.admin.topics)
                await self.noted.call_async("async explain", client.admin.explain, "work")
                await self.noted.call_async("async dead_letters", client.admin.dead_letters, "dead", top_n=3)
                await self.noted.call_async("async check", client.admin.check, "dead")
                await self.noted.call_async("async sow_delete", client.sow_delete, "prices", keys=[21])
                await self.noted.call_async(
                    "async delta_publish", client.delta_publish, "prices", {"id": 21, "price": 1}
                )

            async def look():
                await self.noted.call_async("async sow", client.sow, "prices")
                await self.noted.call_async("async queue_stats", client.admin.queue_stats, "work")
                await self.noted.call_async("async ack with a filter", client.ack, "swept", filter="/odd = 2")

            await asyncio.gather(*map(repeat, (publish, publish_for_good, consume, look, follow, administer)))
            await till.flush("30s")

    def _probe(self):
        """Note how long the machine holds up this process, or a server that has nothing to do with the instance."""
        node = self._idle()
        with contextlib.closing(node.client()) as plain:
            while not self._stop.is_set():
                began = time.monotonic()
                time.sleep(_PROBE)  # the pace
                try:
                    plain.ping()
                except redis.RedisError:
                    self._stop.wait(LOOK)
                    continue
                if (late := time.monotonic() - began - _PROBE) > _PROBE:
                    self.noted.stalls.append((began, late))

    # -- all of them

    def __enter__(self):
        logging.getLogger("ampsq").addHandler(self.noted.log)
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
            self.noted.note(actor.__name__, error)

    def __exit__(self, *_):
        # All that was asked for once was answered once, while nothing is disturbed.
        time.sleep(1.0)
        self._stop.set()
        for thread in self._threads[1:]:
            thread.join(60)
            if thread.is_alive():
                self.noted.note("end", AssertionError(f"{thread} does not end"))
        self._coordinator.stop()
        self._threads[0].join(15)
        logging.getLogger("ampsq").removeHandler(self.noted.log)
