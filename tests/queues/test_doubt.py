"""Answers that leave something in doubt, and handlers that end in unusual ways: nothing twice, nothing lost."""

from __future__ import annotations

import asyncio
import inspect
import sys
import threading
import time

import pytest
from observing import eventually
from scene import pick_up, rest_of, take_ahead

from ampsq import AsyncClient, Client, Queue, Worker
from ampsq.base.errors import Closed, DefinitionError, Unavailable
from ampsq.coordinator.lost_clients import LostClients
from ampsq.protocol.calls import duties as duty_calls
from ampsq.protocol.keepalive import keepalive_channel
from ampsq.queues.message import head_of
from ampsq.queues.subscription_core import SubscriptionCore
from ampsq.transport.store import Store


class Moody:
    """A server of the test's own that refuses every script that writes, with one word or another, while it is told to.

    No fault is made up: NOREPLICAS is a server that misses a replica, MISCONF one that could not save its data, and
    READONLY one that was made a replica.
    """

    def __init__(self, server, word):
        self._plain, self.word, self.url = server.client(), word, server.url
        if word == "MISCONF":
            (server.directory / "dump.rdb" / "in-the-way").mkdir(parents=True)
            self.allow()
            self._plain.config_set("save", "3600 1")
            self._plain.bgsave()
            eventually(lambda: self._plain.info("persistence")["rdb_last_bgsave_status"] == "err")

    def refuse(self):
        self._turn("1", "yes", ("127.0.0.1", "1"))

    def allow(self):
        self._turn("0", "no", ("NO", "ONE"))

    def _turn(self, replicas, stop, leader):
        if self.word == "NOREPLICAS":
            self._plain.config_set("min-replicas-to-write", replicas)
        elif self.word == "MISCONF":
            self._plain.config_set("stop-writes-on-bgsave-error", stop)
        else:
            self._plain.execute_command("REPLICAOF", *leader)

    def close(self):
        # One that cannot save its data does not end when it is told to, either.
        self._plain.config_set("save", "")
        self._plain.close()


@pytest.fixture
def moody(start_server):
    """Start one: ``moody("NOREPLICAS")``; it serves until it is told to refuse."""
    made = []

    def make(word):
        made.append(Moody(start_server("valkey"), word))
        return made[-1]

    yield make
    for server in made:
        server.close()


async def now(result):
    """Return what a synchronous or an asynchronous client gives."""
    return await result if inspect.isawaitable(result) else result


def work(**elements):
    return Queue(name="work", **{"max_per_subscription_backlog": 200, **elements})


# -- two takes in flight


async def pull_through_a_refusal(kind, server, instance):
    client = kind(server.url, instance=instance, retry_timeout="300ms")
    if kind is AsyncClient:
        await client.connect()
    try:
        # Given a subscription that asks ahead, and 1,000 messages
        await now(client.apply(work()))
        await now(client.publish_many("work", range(1_000), batch=500))
        messages = take_ahead(await now(client.subscribe("work", max_backlog=200)))
        managed = messages._managed
        inbox, channel = managed.core.inbox, managed.pipeline
        in_flight, doubt = [], inbox.ahead._note_posted_unknown

        def doubt_posted():
            in_flight.append(len(inbox.ahead.posted))
            doubt()

        inbox.ahead._note_posted_unknown = doubt_posted
        seen, refusals, rounds = [], 0, 0
        until = time.monotonic() + 60
        while len(seen) < 1_000:
            rounds += 1
            assert time.monotonic() < until
            # When the server refuses for a while, beginning with the third fetch
            if rounds == 3:
                server.refuse()
            try:
                await now(managed.store.run(inbox.fetch(channel, 0.0)))
            except Unavailable:
                refusals += 1
                server.allow()
            # Then both sides always know of the same calls
            assert channel.open_calls == len(inbox.ahead.posted)
            while inbox.buffer:
                message = await now(messages.get(0))
                seen.append((message.data, head_of(message)[1], message.delivery))
                await now(message.ack())
        await now(messages.flush())
        # And every message was handed out once, under one token
        assert refusals >= 1
        assert in_flight[0] == 2
        assert sorted(data for data, _, _ in seen) == list(range(1_000))
        assert len({token for _, token, _ in seen}) == 1_000
        assert {delivery for _, _, delivery in seen} == {1}
        assert not messages.late
        stats = await now(client.admin.queue_stats("work"))
        assert (stats.acknowledged, stats.depth) == (1_000, 0)
    finally:
        await now(client.close())


@pytest.mark.parametrize("word", ["NOREPLICAS", "MISCONF"])
@pytest.mark.parametrize("kind", [Client, AsyncClient])
def test_two_takes_in_flight_that_are_refused_give_no_message_twice(kind, word, moody, instance):
    asyncio.run(pull_through_a_refusal(kind, moody(word), instance))


@pytest.mark.parametrize("word", ["NOREPLICAS", "MISCONF"])
def test_at_a_server_that_refuses_to_write_everything_can_be_looked_at(word, moody, instance):
    server = moody(word)
    with Client(server.url, instance=instance) as client:
        client.apply(work())
        bookmark = client.publish("work", "before")
    server.refuse()
    try:
        # Also by a client that comes only now
        with Client(server.url, instance=instance, retry_timeout="200ms") as client:
            assert client.admin.queue_stats("work").depth == 1
            assert list(client.admin.queues()) == list(client.admin.topics()) == ["work"]
            assert [message.data for message in client.sow("work")] == ["before"]
            assert client.admin.explain("work", bookmark).reason == "no_subscription"
            assert [event.event for event in client.admin.history(bookmark).events] == ["published"]
    finally:
        server.allow()


@pytest.mark.parametrize(
    ("word", "advice"),
    [
        ("NOREPLICAS", "fewer replicas are connected"),
        ("MISCONF", "its disk is full or broken"),
        ("READONLY", "replica"),
    ],
)
def test_a_server_that_refuses_to_write_is_away_with_what_to_do(word, advice, moody, instance):
    server = moody(word)
    with Client(server.url, instance=instance, retry_timeout="200ms") as client:
        client.apply(work())
        client.publish("work", "before")
        with client.subscribe("work") as messages:
            message = pick_up(messages, 1)[0]
            server.refuse()
            try:
                # In one call, in one that is repeated, and in one whose reply is read later
                with pytest.raises(Unavailable, match=advice):
                    client.publish("work", "refused")
                with pytest.raises(Unavailable):
                    message.ack(wait=True)
                with pytest.raises(Unavailable):
                    client.publish_many("work", ["refused"] * 300, batch=100)
            finally:
                server.allow()
            assert client.publish("work", "after")
        assert client.admin.topics()["work"].messages == 2


# -- settling in doubt


def test_a_cancel_that_nobody_answered_is_not_renewed_and_its_message_comes_back(moody, instance):
    # Given a message whose lease of one second is renewed
    server = moody("NOREPLICAS")
    with Client(server.url, instance=instance, retry_timeout="300ms") as client:
        client.apply(work(lease_period="1s"))
        client.publish("work", 1)
        messages = client.subscribe("work", renew=True)
        message = pick_up(messages, 1)[0]
        time.sleep(1.3)  # longer than the lease
        client._store.call(duty_calls.sweep())
        assert client.admin.queue_stats("work").leased == 1
        # When its cancel is refused as long as the client is patient
        server.refuse()
        with pytest.raises(Unavailable):
            message.cancel()
        server.allow()
        # Then the lease lapses, and the message is delivered again
        eventually(lambda: client._store.call(duty_calls.sweep()) and client.admin.queue_stats("work").returned == 1)
        again = pick_up(messages, 1)[0]
        assert (again.bookmark, again.delivery) == (message.bookmark, 2)
        again.ack(wait=True)


def test_two_threads_that_drain_acknowledgements_lose_none():
    # Given a subscription's acknowledgements, drained by a consumer and by the presence thread at once
    leases = SubscriptionCore("i", "work", 10, "c/1").leases
    drained, failures, stopping = [[], []], [], threading.Event()

    def drain(into):
        try:
            while not stopping.is_set():
                into.extend(leases.drain().get(b"work", ()))
        except BaseException as error:  # noqa: BLE001 - told below
            failures.append(error)

    threads = [threading.Thread(target=drain, args=(into,)) for into in drained]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for thread in threads:
            thread.start()
        # When another thread adds to them for half a second
        until, added = time.monotonic() + 0.5, 0
        while time.monotonic() < until:
            leases.acks.extend([b"work", b"%d" % number] for number in range(added, added + 300))
            added += 300
            while leases.acks and not failures and time.monotonic() < until:
                time.sleep(0)
    finally:
        stopping.set()
        for thread in threads:
            thread.join(30)
        sys.setswitchinterval(interval)
    # Then each was drained once
    assert failures == []
    rest = list(leases.acks)
    found = [int(number) for into in (*drained, rest) for _, number in into]
    assert sorted(found) == list(range(added))


# -- presence


def test_a_subscription_made_after_one_without_a_server_is_cared_for(start_server, instance):
    # Given a client whose first subscription found no server
    server = start_server("valkey", appendonly=True, options=["--appendfsync", "always"])
    with Client(server.url, instance=instance, retry_timeout="200ms", ack_timeout="100ms") as client:
        client.apply(work())
        server.process.kill()
        server.process.wait()
        with pytest.raises(Unavailable):
            client.subscribe("work")
        # When it subscribes again to the server that came back
        server = start_server("valkey", appendonly=True, options=["--appendfsync", "always"], data_dir=server.directory)
        messages = client.subscribe("work")
        client.publish("work", 1)
        pick_up(messages, 1)[0].ack()
        # Then its acknowledgements are sent in time, though nobody asks for more
        eventually(lambda: client.admin.queue_stats("work").acknowledged == 1)
        # And the server sees it, with a sign of life later than the subscription's own
        store = Store(server.url, instance)
        subscriptions = store.key + ":subscriptions"
        eventually(lambda: store.redis.pubsub_numsub(keepalive_channel(instance, client._session.client))[0][1] == 1)
        store.redis.zadd(subscriptions, {messages.id: 1})
        client._connection.parts.keepalive._shared._next_heartbeat = 0.0
        eventually(lambda: store.redis.zscore(subscriptions, messages.id) > 1)
        duty = LostClients(grace=0)
        for _ in range(3):
            duty.run_once(store)
        assert store.redis.zscore(subscriptions, messages.id) is not None
        store.close()


# -- handlers


class Serving:
    """A worker in a thread."""

    def __init__(self, handler, client, **options):
        self.worker = Worker(handler, "work", url=client.url, instance=client.instance, **options)
        self._thread = threading.Thread(target=self.worker.run)

    def __enter__(self):
        self._thread.start()
        return self.worker

    def __exit__(self, *_):
        assert self._thread.is_alive()
        self.worker.stop()
        self._thread.join(30)
        assert not self._thread.is_alive()


@pytest.mark.parametrize("raised", [asyncio.CancelledError, SystemExit, KeyboardInterrupt])
def test_a_coroutine_that_ends_by_more_than_an_exception_cancels_its_message(client, journal, raised):
    # Given a handler out of which something comes that is no Exception
    client.apply(work(max_cancels=2))
    bad, *good = client.publish_many("work", ["bad", 1, 2, 3])

    async def handle(message):
        await asyncio.sleep(0)
        if message.data == "bad":
            raise raised

    with Serving(handle, client, concurrency=2) as worker:
        # Then its message is cancelled, at last for good, and the worker goes on
        eventually(lambda: client.admin.queue_stats("work").depth == 0)
        eventually(lambda: (worker.processed, worker.failed, worker.rejected) == (3, 2, 0))
    assert sorted(journal.entries("work")) == sorted(
        [("expired", "max_cancels", bad), *(("acknowledged", "", bookmark) for bookmark in good)]
    )


class Called:
    """An object whose way of being called is a coroutine function."""

    def __init__(self):
        self.ended = []

    async def __call__(self, message):
        await asyncio.sleep(0.01)  # the handler's work
        self.ended.append(message.data)


@pytest.mark.parametrize("form", ["object", "function", "function in three threads"])
def test_a_coroutine_is_awaited_whatever_it_came_from(client, form):
    client.apply(work())
    client.publish_many("work", range(5))
    called = Called()

    def pass_on(message):
        return called(message)

    handler = called if form == "object" else pass_on
    with Serving(handler, client, concurrency=3 if "three" in form else 1) as worker:
        eventually(lambda: client.admin.queue_stats("work").acknowledged == 5)
        assert (worker.processed, worker.failed) == (5, 0)
    assert sorted(called.ended) == list(range(5))


def test_a_coroutine_that_a_lambda_gives_and_that_raises_cancels_its_message(client, journal):
    client.apply(work(max_cancels=1))
    bookmark = client.publish("work", 1)

    async def fail():
        await asyncio.sleep(0)
        raise ValueError("no")

    with Serving(lambda _: fail(), client):
        eventually(lambda: client.admin.queue_stats("work").expired == 1)
    assert journal.entries("work") == [("expired", "max_cancels", bookmark)]


def generates(message):
    yield message


async def generates_later(message):
    yield message


class Generates:
    def __call__(self, message):
        yield message


@pytest.mark.parametrize("handler", [generates, generates_later, Generates()], ids=["plain", "async", "object"])
def test_a_generator_is_no_handler(handler):
    with pytest.raises(DefinitionError, match="no generator"):
        Worker(handler, "work")


@pytest.mark.parametrize("raises", [False, True])
def test_a_message_that_its_handler_settled_is_left_alone(client, journal, caplog, raises):
    # Given a handler that settles each message in a way of its own, and may raise after that
    client.apply(work())
    first, second = client.publish_many("work", ["expire", "cancel"])

    def handle(message):
        if message.data == "expire":
            message.expire()
        elif message.delivery == 1:
            message.cancel()
        else:
            message.ack(wait=True)
        if raises:
            raise ValueError("too late")

    with Serving(handle, client) as worker:
        eventually(lambda: client.admin.queue_stats("work").depth == 0)
        eventually(lambda: worker.processed + worker.failed == 3)
    # Then that is what became of them, and nothing was tried twice
    assert sorted(journal.entries("work")) == sorted(
        [("expired", "forced_expire", first), ("acknowledged", "", second)]
    )
    assert not [record for record in caplog.records if record.name == "ampsq.worker"]


# -- closing


def test_an_acknowledgement_after_close_says_that_it_came_too_late(client):
    client.apply(work())
    client.publish("work", 1)
    with client.subscribe("work") as messages:
        message = pick_up(messages, 1)[0]
    with pytest.raises(Closed):
        message.ack()
    assert not message.settled
    # The message is back, as what it is: delivered once, and not acknowledged
    with client.subscribe("work") as messages:
        assert [again.delivery for again in (*pick_up(messages, 1), *rest_of(messages))] == [2]


def test_an_asynchronous_subscription_is_awaited_or_entered(valkey, instance):
    async def scenario():
        async with AsyncClient(valkey.url, instance=instance) as client:
            await client.apply(work())
            await client.publish("work", 1)
            async with client.subscribe("work") as messages:
                message = await messages.get(30)
                assert message.data == 1
            assert (await client.admin.queue_stats("work")).subscriptions == 0
            with pytest.raises(Closed):
                await message.ack()
            messages = await client.subscribe("work")
            again = await messages.get(30)
            assert (again.data, again.delivery) == (1, 2)
            await again.ack(wait=True)
            await messages.close()
            stats = await client.admin.queue_stats("work")
            assert (stats.subscriptions, stats.acknowledged) == (0, 1)

    asyncio.run(scenario())
