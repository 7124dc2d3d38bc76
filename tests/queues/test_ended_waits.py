"""Waiting for messages in one long blocked read, which whoever closes or changes the subscription ends."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import threading
import time

import pytest
from observing import eventually, is_cared_for
from scene import pick_up

from ampsq import Client, Queue
from ampsq.base.errors import Closed
from ampsq.client.async_client import AsyncClient
from ampsq.protocol.calls import queues as calls
from ampsq.protocol.calls.subscriptions import end_wait, unsubscribe
from ampsq.protocol.reads.subscribers import inbox_deliveries
from ampsq.protocol.schema import END_OF_WAIT, key
from ampsq.queues.async_subscription import AsyncManagedSubscription
from ampsq.queues.subscription import ManagedSubscription
from ampsq.worker import Worker

#: Seconds within which a wait that is ended has ended; by itself it would go on for two more.
AT_ONCE = 1.5
#: Of a client whose signs of life are answered twice a second.
QUICK = {"heartbeat": "200ms", "retry_timeout": "20s"}


def waits_long(redis):
    """Return whether somebody has waited for messages in one read for two seconds."""
    return any(each["cmd"] == "blmpop" and int(each["idle"]) >= 2 for each in redis.client_list())


@pytest.fixture
def attended(client, redis, instance, request):
    """An instance with a queue, where a coordinator does what is due: nobody has to wake up for that."""
    client.apply(Queue(name="work", underlying_topic="orders", max_per_subscription_backlog=10))
    request.getfixturevalue("coordinator")
    assert is_cared_for(redis, instance)
    return client


class Reader:
    """A thread that calls `get` until the subscription is closed."""

    def __init__(self, messages):
        self.found, self.error = [], None
        self.thread = threading.Thread(target=self._read, args=(messages,))
        self.thread.start()

    def _read(self, messages):
        try:
            while True:
                if (message := messages.get()) is not None:
                    message.ack(wait=True)
                    self.found.append(message.data)
        except Closed as error:
            self.error = error


def took(work):
    began = time.monotonic()
    work()
    return time.monotonic() - began


def test_closing_ends_the_wait_of_another_thread_at_once(attended, redis):
    messages = attended.subscribe("work")
    reader = Reader(messages)
    eventually(lambda: waits_long(redis))
    assert took(messages.close) < AT_ONCE
    reader.thread.join(AT_ONCE)
    assert isinstance(reader.error, Closed)
    # What ended the wait is no message, and nothing is left of it
    assert reader.found == []
    assert not redis.exists(key(attended.instance, "inbox", messages.id))


def test_several_threads_that_wait_for_messages_of_one_subscription_all_end(attended, redis):
    messages = attended.subscribe("work")
    readers = [Reader(messages) for _ in range(3)]
    eventually(lambda: waits_long(redis))
    assert took(messages.close) < AT_ONCE
    for reader in readers:
        reader.thread.join(AT_ONCE)
        assert isinstance(reader.error, Closed)


def test_replacing_ends_the_wait_and_what_it_asks_for_comes(attended, redis):
    with attended.subscribe("work", filter="/n < 0") as messages:
        reader = Reader(messages)
        attended.publish("orders", {"n": 1})
        eventually(lambda: waits_long(redis))
        assert took(lambda: messages.replace(filter="/n > 0")) < AT_ONCE
        eventually(lambda: reader.found == [{"n": 1}], AT_ONCE)
    reader.thread.join()


def test_a_message_ends_the_wait_and_one_behind_a_mark_comes_too(attended, redis):
    with attended.subscribe("work", max_backlog=10) as messages:
        reader = Reader(messages)
        eventually(lambda: waits_long(redis))
        with redis.pipeline() as both:
            # Both lie in the inbox before the read is answered
            both.rpush(key(attended.instance, "inbox", messages.id), END_OF_WAIT, "")
            both.execute()
        attended.publish("orders", 1)
        eventually(lambda: reader.found == [1], AT_ONCE)
    reader.thread.join()


def test_a_get_with_a_time_limit_ends_in_time_beside_one_that_waits(attended, redis):
    with attended.subscribe("work") as messages:
        reader = Reader(messages)
        eventually(lambda: waits_long(redis))
        assert took(lambda: messages.get(0.1)) < AT_ONCE
    reader.thread.join()


def test_a_worker_without_messages_stops_at_once(attended, redis):
    worker = Worker(lambda _: None, "work", client=attended)
    thread = threading.Thread(target=worker.run)
    thread.start()
    eventually(lambda: waits_long(redis))
    worker.stop()
    thread.join(2 * AT_ONCE)
    assert not thread.is_alive()


def test_what_ends_a_wait_is_no_message_to_anybody_who_finds_it(attended, redis):
    with attended.subscribe("work", max_backlog=10) as messages:
        managed = ManagedSubscription.of(messages)
        ask = managed.store.call
        # Where nobody waits, it stays in the inbox: it is not counted, a take drops it, and so does who pushes again
        assert ask(end_wait(messages.id))
        assert ask(inbox_deliveries(attended.instance, messages.id)) == 0
        attended.publish("orders", 1)
        assert ask(calls.resume(messages.id, b"work", "0", [])) == "0"
        assert [message.data for message in pick_up(messages, 1)] == [1]
        assert not redis.exists(key(attended.instance, "inbox", messages.id))
        assert ask(end_wait(messages.id))
        assert messages.get(0.2) is None
        assert not any(report.differences for report in attended.admin.check("work"))
    # Of one that is gone there is no inbox, and none is made
    assert not attended.admin.queue_stats("work").leased
    assert not ask_anew(attended, messages.id)
    assert not redis.exists(key(attended.instance, "inbox", messages.id))


def ask_anew(client, subscription):
    """Ask for the end of a wait of a subscription that is gone, by another one's connection."""
    with client.subscribe("work") as other:
        return ManagedSubscription.of(other).store.call(end_wait(subscription))


def test_for_asyncio_closing_and_replacing_end_the_wait_of_another_task_at_once(attended, valkey, redis):
    async def main():
        async with AsyncClient(valkey.url, instance=attended.instance) as client:
            messages = await client.subscribe("work", filter="/n < 0", max_backlog=10)
            waiting = asyncio.create_task(messages.get())
            attended.publish("orders", {"n": 1})
            await asyncio.to_thread(eventually, lambda: waits_long(redis))
            async with asyncio.timeout(AT_ONCE):
                await messages.replace(filter="/n > 0")
                message = await waiting
            assert message.data == {"n": 1}
            await message.ack(wait=True)
            readers = [asyncio.create_task(messages.get()) for _ in range(3)]
            await asyncio.to_thread(eventually, lambda: waits_long(redis))
            async with asyncio.timeout(AT_ONCE):
                assert await messages.get(0.1) is None
            async with asyncio.timeout(AT_ONCE):
                await messages.close()
                ended = await asyncio.gather(*readers, return_exceptions=True)
            assert {type(each) for each in ended} == {Closed}

    asyncio.run(main())


# -- what ends a wait that nobody ends


@pytest.fixture
def quick(request, connect):
    """A client there whose signs of life are answered twice a second: with all well its wait is a minute long."""
    request.getfixturevalue("attended")
    return connect(**QUICK)


def blocked_reads(redis):
    """Return how long each read has waited for messages, in seconds, with its connection's number."""
    return {each["id"]: int(each["idle"]) for each in redis.client_list() if each["cmd"] == "blmpop"}


def waits_for_a_minute(managed):
    return managed.core.inbox.duties.longest_wait > 5 and managed.core.inbox.attention.now


@pytest.fixture
def waiting(quick):
    """A subscription with a thread that waits for a minute, and the client that has it."""
    with quick.subscribe("work", max_backlog=10) as messages:
        reader = Reader(messages)
        managed = ManagedSubscription.of(messages)
        eventually(lambda: waits_for_a_minute(managed))
        yield messages, reader
    reader.thread.join()


def test_while_all_is_well_nothing_is_asked_for_longer_than_the_heartbeat(waiting, redis):
    calls_before = redis.info("commandstats")["cmdstat_blmpop"]["calls"]
    eventually(lambda: max(blocked_reads(redis).values(), default=0) >= 3)
    assert redis.info("commandstats")["cmdstat_blmpop"]["calls"] - calls_before <= 1
    messages, _ = waiting
    assert took(lambda: messages.replace(max_backlog=5)) < AT_ONCE


def test_without_a_coordinator_who_waits_does_what_is_due(waiting, attended, coordinator):
    _, reader = waiting
    attended.publish("orders", "later", delay="3s")
    coordinator.stop()
    eventually(lambda: reader.found == ["later"], 12)


def test_a_subscription_that_is_gone_is_made_again_by_who_waits(waiting, attended):
    messages, reader = waiting
    ManagedSubscription.of(messages).store.call(unsubscribe(messages.id, {}))
    attended.publish("orders", 1)
    eventually(lambda: reader.found == [1], 10)


def test_a_lost_read_that_the_server_goes_on_with_takes_no_message(waiting, attended, valkey, redis):
    messages, reader = waiting
    # Given one that waits for the same inbox, as the server sees a connection that is lost and still stands there
    (ours,) = blocked_reads(redis)
    managed = ManagedSubscription.of(messages)
    with socket.socket(socket.AF_UNIX) as lost:
        lost.connect(valkey.url.removeprefix("unix://"))
        inbox = key(attended.instance, "inbox", messages.id)
        words = ["BLMPOP", "60", "1", inbox, "LEFT", "COUNT", "2"]
        lost.sendall(f"*{len(words)}\r\n".encode() + b"".join(f"${len(w)}\r\n{w}\r\n".encode() for w in words))
        eventually(lambda: len(blocked_reads(redis)) == 2)
        # When the client's own is lost, what ends a wait ends the other one, too
        redis.client_kill_filter(_id=ours)
        lost.settimeout(10)
        assert END_OF_WAIT.encode() in lost.recv(1000)
        eventually(lambda: waits_for_a_minute(managed))
        attended.publish("orders", 1)
        eventually(lambda: reader.found == [1], 10)


@pytest.mark.parametrize("is_async", [False, True], ids=["threads", "asyncio"])
def test_a_server_that_hangs_ends_the_wait(start_server, coordinate, instance, is_async):
    server = start_server("valkey")
    with Client(server.url, instance=instance) as client:
        client.apply(Queue(name="work", underlying_topic="orders"))
    coordinate(server.url)
    if is_async:
        asyncio.run(wait_at_hung_server(server, instance))
        return
    with Client(server.url, instance=instance, **QUICK) as client, client.subscribe("work") as messages:
        reader = Reader(messages)
        managed = ManagedSubscription.of(messages)
        eventually(lambda: waits_for_a_minute(managed))
        with hung(server):
            eventually(lambda: not managed.core.inbox.attention.now, 5)
        client.publish("orders", 1)
        eventually(lambda: reader.found == [1], 10)
    reader.thread.join()


async def wait_at_hung_server(server, instance):
    async with (
        AsyncClient(server.url, instance=instance, **QUICK) as client,
        client.subscribe("work") as messages,
    ):
        waiting = asyncio.create_task(messages.get())
        managed = AsyncManagedSubscription.of(messages)
        await asyncio.to_thread(eventually, lambda: waits_for_a_minute(managed))
        with hung(server):
            await asyncio.to_thread(eventually, lambda: not managed.core.inbox.attention.now, 5)
        await client.publish("orders", 1)
        async with asyncio.timeout(10):
            assert (await waiting).data == 1


@contextlib.contextmanager
def hung(server):
    """Have a server answer nobody."""
    server.process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        server.process.send_signal(signal.SIGCONT)
