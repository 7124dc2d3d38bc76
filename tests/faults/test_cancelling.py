"""Cancelled tasks leave nothing behind: a short campaign, of which `cancelling.py` runs longer ones, and its finds."""

from __future__ import annotations

import asyncio
import contextlib
import time

import pytest
from cancelling import Campaign, Interruption, coordinated
from observing import eventually
from scene import take_ahead

from ampsq import AsyncClient, Client, MemoryPublishStore, Queue
from ampsq.protocol.request import command
from ampsq.protocol.schema import key
from ampsq.transport.async_store import AsyncStore
from ampsq.transport.route import ServerAddress

WORK = Queue(name="work", lease_period="1h", max_per_subscription_backlog=50)
PING = ["PING"]


class Moment(Interruption):
    """A cancellation at a wait that a test chooses, and again so many steps of the event loop later."""

    def __init__(self, at, again=None):
        self._at, self._later, self._again = at, 0, again
        self._cancelled, self._task = False, None
        self.waits = self.number = 0


def test_calls_that_are_cancelled_anywhere_leave_nothing_behind(server, instance):
    with coordinated(server.url, instance):
        asyncio.run(Campaign(server.url, instance, seed=1).run(150))


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_many_calls_that_are_cancelled_leave_nothing_behind(server, instance):
    with coordinated(server.url, instance):
        asyncio.run(Campaign(server.url, instance, seed=2).run(1000))


def subscriptions(server, instance):
    with contextlib.closing(server.client()) as redis:
        return redis.zrange(key(instance, "subscriptions"), 0, -1)


@pytest.mark.parametrize("at", range(1, 6))
def test_a_subscription_that_nobody_waited_for_is_ended_while_its_client_lives(valkey, instance, at):
    async def work():
        async with AsyncClient(valkey.url, instance=instance) as client:
            await client.apply(WORK)
            async with client.subscribe("work") as kept:
                given = await Moment(at).run(client.subscribe("work", max_backlog=10)._making)
                for subscription in given:
                    await subscription.close()
                eventually_known = await asyncio.to_thread(
                    eventually, lambda: subscriptions(valkey, instance) == [kept.id.encode()], 5.0
                )
                await client.publish_many("work", range(5))
                got = []
                for _ in range(5):
                    message = await kept.get(2)
                    got.append(message.data)
                    await message.ack(wait=True)
                return eventually_known, got

    assert asyncio.run(work()) == (True, [0, 1, 2, 3, 4])


def test_a_subscription_that_the_server_makes_after_its_client_gave_up_is_ended(valkey, instance):
    """The request was sent on a connection that was closed since, and is carried out later."""
    with Client(valkey.url, instance=instance) as client, Client(valkey.url, instance=instance) as other:
        client.apply(WORK)
        with client.subscribe("work") as kept:
            managed = other.subscribe("work")._managed
            core = managed.core.copy_for(instance, other._session.request(), other.origin)
            managed.close()
            other._connection.parts.keepalive.end_unanswered(core)
            time.sleep(0.5)  # it shows no life meanwhile
            late = core.copy_for(instance, core.registration.client, other.origin)
            other._store.run(late.registration.register())
            assert late.registration.id not in ("", kept.id)
            eventually(lambda: subscriptions(valkey, instance) == [kept.id.encode()], within=5.0)


@pytest.mark.parametrize("again", [None, 0, 1, 2], ids=["once", "again", "after 1", "after 2"])
@pytest.mark.parametrize("at", range(1, 6))
def test_closing_a_client_that_is_cancelled_still_closes_all_of_it(valkey, instance, at, again):
    async def work():
        client = await AsyncClient(valkey.url, instance=instance).connect()
        await client.apply(WORK)
        opened = [await client.subscribe("work", max_backlog=10) for _ in range(3)]
        await client.publish_many("work", range(20))
        taken = await opened[0].get(5)
        store, keepalive = client._store, client._connection.parts.keepalive
        pool = store._connections.used[1]
        await Moment(at, again).run(client.close())
        assert taken is not None
        assert keepalive._shared is None
        assert keepalive._thread is None or not keepalive._thread.is_alive()
        assert store._connections.used is None
        return [each.is_connected for each in (*pool._available_connections, *pool._in_use_connections)]

    assert not any(asyncio.run(work()))
    assert subscriptions(valkey, instance) == []


@pytest.mark.parametrize("at", range(1, 5))
def test_acknowledgements_of_a_client_whose_closing_is_cancelled_are_sent_by_who_keeps_them(valkey, instance, at):
    """Calls that were sent ahead carry them, and nobody reads the replies any more."""

    async def work():
        client = await AsyncClient(valkey.url, instance=instance, ack_timeout="1h").connect()
        till = await client.publisher("till", store=MemoryPublishStore())
        await client.apply(WORK)
        await till.publish_many("work", range(200))
        await till.flush("10s")
        subscription = take_ahead(await client.subscribe("work", max_backlog=50, publisher=till))
        for _ in range(60):
            await (await subscription.get(5)).ack()
        carried = sum(len(acks[b"work"]) for _, acks in subscription._managed.core.inbox.ahead.posted)
        begun = time.monotonic()
        await Moment(at).run(client.close())
        return carried, time.monotonic() - begun

    carried, took = asyncio.run(work())
    assert carried
    assert took < 5
    with Client(valkey.url, instance=instance) as client:
        assert client.admin.queue_stats("work").acknowledged == 60


def test_closing_a_subscription_that_waits_for_another_task_may_be_cancelled(valkey, instance):
    async def work():
        async with AsyncClient(valkey.url, instance=instance) as client:
            await client.apply(WORK)
            subscription = take_ahead(await client.subscribe("work", max_backlog=50))
            # Calls are sent ahead, so that the subscription has a connection of its own.
            await client.publish_many("work", range(100))
            await subscription.get(5)
            assert subscription._managed.pipeline._connection is not None
            subscription._managed.core.inbox.buffer.clear()
            reader = asyncio.create_task(subscription.get(0.3))
            await asyncio.sleep(0)
            assert subscription._managed.lock.locked()
            assert await Moment(1).run(subscription.close()) == []
            await asyncio.wait([reader])
            await asyncio.sleep(0.05)  # its connection comes back
            pool = client._store._connections.used[1]
            return subscription._managed.pipeline._connection, pool._in_use_connections

    assert asyncio.run(work()) == (None, set())
    assert subscriptions(valkey, instance) == []


@pytest.mark.parametrize("verb", ["cancel", "expire"])
@pytest.mark.parametrize("at", range(1, 6))
def test_what_was_to_be_acknowledged_still_is_when_giving_it_back_was_cancelled(valkey, instance, verb, at):
    async def work():
        # The batch goes when it is flushed, so that nothing but the call itself is on its way
        async with AsyncClient(valkey.url, instance=instance, ack_timeout="1h") as client:
            await client.apply(WORK)
            await client.publish_many("work", range(5))
            async with client.subscribe("work", max_backlog=5) as messages:
                held = [await messages.get("5s") for _ in range(5)]
                for message in held:
                    await message.ack()
                    # It has to connect first: early moments are those before anything was sent.
                    await client._store._connections.used[1].disconnect()
                    await Moment(at).run(getattr(message, verb)())
                await messages.flush()
                stats = await client.admin.queue_stats("work")
                assert stats.leased <= stats.returned, "what was settled is not leased, unless it came again"
                return stats.acknowledged, stats.expired + stats.returned

    acknowledged, given_back = asyncio.run(work())
    assert acknowledged + given_back == 5
    assert acknowledged == 5 or at > 1


async def cancelled_at_once(work):
    """Run something in a task that was told to end before its first wait."""

    async def run():
        asyncio.current_task().cancel()
        await work

    task = asyncio.create_task(run())
    await asyncio.wait([task])
    assert task.cancelled()


def test_closing_a_store_that_is_cancelled_closes_its_connections(valkey, instance):
    async def work():
        store = AsyncStore(valkey.url, instance)
        await asyncio.gather(*(store.call(command(PING, bool)) for _ in range(5)))
        pool = store._connections.used[1]
        await cancelled_at_once(store.close())
        return [each.is_connected for each in pool._available_connections]

    assert asyncio.run(work()) == [False] * 5


def test_connections_to_a_server_that_is_left_are_closed_also_by_who_is_cancelled(valkey, instance):
    async def work():
        store = AsyncStore(valkey.url, instance)
        await asyncio.gather(*(store.call(command(PING, bool)) for _ in range(5)))
        former, pool = store._connections.used[1], store._connections
        # The same server after a reconnect.
        await cancelled_at_once(pool.pool(ServerAddress(valkey.url)))
        await store.close()
        return [each.is_connected for each in former._available_connections]

    assert asyncio.run(work()) == [False] * 5


def test_a_pipeline_whose_closing_is_cancelled_never_reads_one_reply_for_another(valkey, instance):
    async def work():
        store = AsyncStore(valkey.url, instance)
        pipeline = store.pipeline()
        await pipeline.post(command(["ECHO", "first"], bytes))
        connection, release = pipeline._connection, type(pipeline._connection).release

        async def slow(connection):
            await asyncio.sleep(0)
            await release(connection)

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(type(connection), "release", slow)
            assert await Moment(1).run(pipeline.close()) == []
        await pipeline.post(command(["ECHO", "second"], bytes))
        assert pipeline.open_calls == 1
        reply = await pipeline.collect()
        await pipeline.close()
        await store.close()
        return reply

    assert asyncio.run(work()) == b"second"


async def kept_until_persisted(valkey, instance):
    """A client, a publisher that keeps its acknowledgements, and a subscription with three messages in hand."""
    client = await AsyncClient(valkey.url, instance=instance, ack_timeout="1h").connect()
    till = await client.publisher("till", store=MemoryPublishStore())
    await client.apply(WORK)
    await till.publish_many("work", range(3))
    subscription = await client.subscribe("work", max_backlog=10, publisher=till)
    return client, till, subscription, [await subscription.get(5) for _ in range(3)]


@pytest.mark.parametrize("at", range(1, 10))
def test_acknowledgements_that_are_answered_a_second_time_while_closing_is_cancelled_hold_nothing_up(
    valkey, instance, at
):
    """Closing asks which settlements of unanswered calls ran; cancelled while it asks, it holds nothing up."""

    async def work():
        client, _, subscription, messages = await kept_until_persisted(valkey, instance)
        for message in messages:
            await message.ack()
        # Done by a call whose reply nobody waited for.
        leases = subscription._managed.core.leases
        sending = leases.flush(waits=False)
        await client._store.call(sending.send(None))
        sending.close()
        assert len(leases.acks) == 3
        begun = time.monotonic()
        await Moment(at).run(client.close())
        return time.monotonic() - begun

    assert asyncio.run(work()) < 5
    with Client(valkey.url, instance=instance) as client:
        assert client.admin.queue_stats("work").acknowledged == 3


@pytest.mark.parametrize("at", range(1, 5))
def test_an_acknowledgement_by_bookmark_that_is_cancelled_is_sent_by_who_keeps_it(valkey, instance, at):
    async def work():
        client, till, _, messages = await kept_until_persisted(valkey, instance)
        bookmarks = [message.bookmark for message in messages]
        given = await Moment(at).run(client.ack("work", bookmarks, publisher=till))
        await till.flush("5s")
        acknowledged = (await client.admin.queue_stats("work")).acknowledged
        await client.close()
        return given, acknowledged

    given, acknowledged = asyncio.run(work())
    # Cancelled before it was sent, it is not kept.
    assert acknowledged == 3 or (not given and at == 1)
