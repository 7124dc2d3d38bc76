"""Acknowledgements of pushed messages travel in one write with the next blocked read; what may happen to them."""

from __future__ import annotations

import asyncio
import contextlib
import threading

import pytest
from observing import eventually

from ampsq import AsyncClient, Client, Queue
from ampsq.base.errors import AlreadyAcked, Closed
from ampsq.protocol.calls.subscriptions import unsubscribe
from ampsq.queues.subscription import ManagedSubscription
from ampsq.transport.async_store import AsyncConnection
from ampsq.transport.store import Connection

#: Seconds within which what is pushed has come.
SOON = 20.0
TOGETHER = ("settle", "BLMPOP")


@pytest.fixture
def writes(monkeypatch):
    """Names of the scripts and commands that are sent, those of one write together."""
    found = []

    def note(calls):
        found.append(tuple(call.script.name if call.script else call.arguments[0] for call in calls))

    plainly, awaited = Connection.send, AsyncConnection.send

    def send(self, *calls, **options):
        note(calls)
        return plainly(self, *calls, **options)

    async def send_later(self, *calls, **options):
        note(calls)
        return await awaited(self, *calls, **options)

    monkeypatch.setattr(Connection, "send", send)
    monkeypatch.setattr(AsyncConnection, "send", send_later)
    return found


@pytest.fixture
def work(client):
    """A client of an instance with a queue, for which nobody acknowledges late."""
    client.apply(Queue(name="work", underlying_topic="orders", max_per_subscription_backlog=10))
    return client


def waits(redis):
    return any(each["cmd"] == "blmpop" for each in redis.client_list())


class Reader:
    """A thread that acknowledges each message as it comes, until the subscription is closed."""

    def __init__(self, messages):
        self.found = []
        self.messages, self.before_ack = messages, lambda _: None
        self.thread = threading.Thread(target=self._read)
        self.thread.start()

    def _read(self):
        with contextlib.suppress(Closed):
            for message in self.messages:
                self.before_ack(message)
                self.found.append(message.data)
                message.ack()


@pytest.fixture
def reading(work, redis):
    """A reader of the queue, and its `publish`: each message is published while the reader waits."""
    with Client(work.url, instance=work.instance) as consumer, consumer.subscribe("work", max_backlog=10) as messages:
        reader = Reader(messages)

        def publish(*bodies):
            for body in bodies:
                number = len(reader.found)
                eventually(lambda: waits(redis), SOON)
                work.publish("orders", body)
                eventually(lambda: len(reader.found) > number, SOON)  # noqa: B023  (called before the next one)

        reader.publish = publish
        try:
            yield reader
        finally:
            messages.close()
            reader.thread.join(SOON)
    assert not reader.thread.is_alive()


def is_acknowledged(client, number):
    stats = client.admin.queue_stats("work")
    return stats.acknowledged == number and stats.leased == 0


def test_the_acknowledgement_of_a_pushed_message_goes_in_one_write_with_the_next_blocked_read(work, reading, writes):
    reading.publish(*range(6))
    eventually(lambda: is_acknowledged(work, 6), SOON)

    assert writes.count(TOGETHER) >= 4
    assert reading.found == [*range(6)]


def test_so_it_does_for_asyncio(work, redis, writes):
    def publish():
        for number in range(6):
            eventually(lambda: waits(redis), SOON)
            work.publish("orders", number)
            eventually(lambda: len(found) > number, SOON)  # noqa: B023  (called before the next one)

    async def read():
        async with AsyncClient(work.url, instance=work.instance) as client:
            messages = await client.subscribe("work", max_backlog=10)
            publishing = asyncio.create_task(asyncio.to_thread(publish))
            async for message in messages:
                found.append(message.data)
                await message.ack()
                if len(found) == len(range(6)):
                    break
            await publishing
            await messages.close()

    found = []
    asyncio.run(asyncio.wait_for(read(), SOON))
    assert found == [*range(6)]
    assert writes.count(TOGETHER) >= 4
    assert is_acknowledged(work, 6)


def test_where_the_server_forgot_its_scripts_all_is_acknowledged_once_and_the_next_message_comes(
    work, reading, redis, writes
):
    reading.publish(0, 1, 2)
    eventually(lambda: waits(redis), SOON)
    redis.script_flush()
    with contextlib.suppress(Exception):
        # Redis before 7 has no functions, and a server that has some runs none of them from here on.
        redis.function_flush()
    reading.publish(3, 4, 5)
    eventually(lambda: is_acknowledged(work, 6), SOON)
    assert reading.found == [*range(6)]
    assert writes.count(TOGETHER) >= 3


def test_a_connection_that_is_lost_while_its_read_waits_loses_and_doubles_nothing(work, reading, redis):
    reading.publish(0, 1, 2)
    for each in redis.client_list():
        if each["cmd"] == "blmpop":
            redis.client_kill_filter(_id=each["id"])
    reading.publish(3, 4, 5)
    eventually(lambda: is_acknowledged(work, 6), SOON)
    assert reading.found == [*range(6)]


def test_an_acknowledgement_that_is_refused_there_is_told_and_the_reader_goes_on(work, reading):
    def settle_first(message):
        if message.data == 2:
            assert work.ack("work", message.bookmark) == 1

    reading.publish(0, 1)
    reading.before_ack = settle_first
    reading.publish(2, 3, 4)
    eventually(lambda: is_acknowledged(work, 5), SOON)
    [late] = reading.messages.late
    assert isinstance(late, AlreadyAcked)
    assert reading.found == [*range(5)]


def test_a_subscription_that_the_server_ended_meanwhile_is_made_again(work, reading):
    def end(_):
        if reading.messages.id == former:
            ManagedSubscription.of(reading.messages).store.call(unsubscribe(reading.messages.id, {}))

    reading.publish(0, 1)
    former = reading.messages.id
    reading.before_ack = end
    reading.publish(2)
    # What it held was given back, and comes again; the reader needs no second message to find that out.
    # The reader needs no message to find that out, and its acknowledgement counts: nobody else had the message.
    eventually(lambda: reading.messages.id != former, SOON)
    reading.publish(3, 4)
    eventually(lambda: is_acknowledged(work, 5), SOON)
    assert reading.found == [*range(5)]


def test_cancelling_a_wait_of_asyncio_loses_nothing(work, redis):
    async def read():
        found = []
        async with AsyncClient(work.url, instance=work.instance) as client:
            messages = await client.subscribe("work", max_backlog=10)
            for number in range(6):
                task = asyncio.create_task(messages.get())
                await asyncio.to_thread(eventually, lambda: waits(redis), SOON)
                if number % 2:
                    # In the middle of a wait that carried an acknowledgement
                    task.cancel()
                    with contextlib.suppress(asyncio.CancelledError):
                        await task
                    task = asyncio.create_task(messages.get())
                await asyncio.to_thread(work.publish, "orders", number)
                message = await task
                found.append(message.data)
                await message.ack()
            await messages.close()
        return found

    assert asyncio.run(asyncio.wait_for(read(), 3 * SOON)) == [*range(6)]
    assert is_acknowledged(work, 6)
