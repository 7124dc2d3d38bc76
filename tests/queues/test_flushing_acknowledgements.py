"""A flush, and the end of a subscription, wait for acknowledgements that another thread is sending."""

from __future__ import annotations

import time

import pytest
from scene import pick_up, take_ahead

from ampsq import MemoryPublishStore, Queue
from ampsq.base.errors import Unavailable, UnknownSubscription
from ampsq.protocol.calls import queues as calls
from ampsq.protocol.limits import BATCH
from ampsq.protocol.request import Pause
from ampsq.queues.message import head_of


def test_a_flush_waits_for_what_another_thread_is_sending(client):
    # Given an acknowledgement that another thread has sent, and whose answer has not come
    client.apply(Queue(name="work", underlying_topic="orders"))
    client.publish("orders", 1)
    with client.subscribe("work") as messages:
        messages.get(timeout="30s").ack()
        leases = messages._managed.core.leases
        sending = leases.flush(waits=False)
        call = sending.send(None)

        # When it is flushed, then it waits
        flushing = leases.flush()
        assert isinstance(flushing.send(None), Pause)
        assert isinstance(flushing.send(None), Pause)

        # Until the answer is there
        with pytest.raises(StopIteration):
            sending.send(client._store.call(call))
        with pytest.raises(StopIteration):
            flushing.send(None)
        assert client.admin.queue_stats("work").depth == 0


def test_a_flush_sends_what_another_thread_could_not(client):
    # Given an acknowledgement that another thread could not send
    client.apply(Queue(name="work", underlying_topic="orders"))
    client.publish("orders", 1)
    with client.subscribe("work") as messages:
        messages.get(timeout="30s").ack()
        leases = messages._managed.core.leases
        sending = leases.flush(waits=False)
        sending.send(None)
        flushing = leases.flush()
        assert isinstance(flushing.send(None), Pause)
        with pytest.raises(ConnectionError):
            sending.throw(ConnectionError())

        # When the flush goes on, then it sends it
        call = flushing.send(None)
        with pytest.raises(StopIteration):
            flushing.send(client._store.call(call))
        assert client.admin.queue_stats("work").depth == 0


def keeping(connect, number):
    """A client, a publisher that keeps its acknowledgements, and a queue with so many messages."""
    client = connect(ack_timeout="1h")
    till = client.publisher("till", store=MemoryPublishStore())
    client.apply(Queue(name="work", underlying_topic="orders", max_per_subscription_backlog=1000))
    till.publish_many("orders", range(number))
    till.flush("10s")
    return client, till


def test_a_flush_that_fails_behind_an_answer_leaves_nothing_unsent(connect):
    # Given two batches of acknowledgements that are kept, all done by calls whose replies were lost
    number = BATCH + 100
    client, till = keeping(connect, number)
    with client.subscribe("work", max_backlog=number, publisher=till) as messages:
        leases = messages._managed.core.leases
        for message in pick_up(messages, number):
            message.ack()
        sending = leases.flush(waits=False)
        client._store.call(sending.send(None))
        with pytest.raises(ConnectionError):
            sending.throw(ConnectionError())

        # When the first batch is refused, and it is not to be learnt who did it
        flushing = leases.flush()
        flushing.send(client._store.call(flushing.send(None)))
        with pytest.raises(ConnectionError):
            flushing.throw(ConnectionError())

        # Then the second one is still to be sent, and nobody waits for the first one any more
        assert len(leases.acks) == 100
        till.flush("5s")
        assert client.admin.queue_stats("work").acknowledged == number
        assert not messages.late


def closed_within(client, seconds):
    begun = time.monotonic()
    try:
        client.close()
    finally:
        took = time.monotonic() - begun
        assert took < seconds


def test_a_client_of_which_one_subscription_cannot_be_closed_sends_what_the_others_acknowledged(connect, monkeypatch):
    # Given two subscriptions, the second one's acknowledgements with a call that was sent ahead
    client, till = keeping(connect, 300)
    observer = connect()
    first, second = (take_ahead(client.subscribe("work", max_backlog=50, publisher=till)) for _ in range(2))
    for _ in range(60):
        second.get("5s").ack()
    assert any(acks for _, acks in second._managed.core.inbox.ahead.posted)

    # When the first one cannot be closed
    async def fail(_):
        raise Unavailable("it is away")

    monkeypatch.setattr(first._managed.core, "close", fail)
    with pytest.raises(Unavailable, match="it is away"):
        closed_within(client, 5)
    # Then the second one's are there, and it is ended, so that nothing is leased any more
    stats = observer.admin.queue_stats("work")
    assert (stats.acknowledged, stats.leased) == (60, 0)


def test_closing_a_client_does_not_wait_for_an_answer_that_nobody_waits_for(connect):
    # Given an acknowledgement that the server has, whose answer nobody read
    client, till = keeping(connect, 1)
    observer = connect()
    messages = client.subscribe("work", publisher=till)
    parts = head_of(messages.get("5s"))
    till._core.guaranteed.settlements.keep("acknowledged", [parts], None, messages.id)
    client._store.call(calls.settle("acknowledged", parts[0], [parts[5]], [parts[1]], by=messages.id))
    # When the client is closed, then it is asked for once more
    closed_within(client, 5)
    assert observer.admin.queue_stats("work").acknowledged == 1


def test_a_subscription_that_was_ended_while_somebody_fetches_is_not_made_again(client):
    client.apply(Queue(name="work", underlying_topic="orders"))
    messages = client.subscribe("work")
    managed = messages._managed
    fetching = managed.core.inbox.fetch(managed.pipeline, 0.0)
    # Given a call that is sent, and that the subscription is closed before it is answered
    fetching.send(None)
    messages.close()
    # When the server does not know it any more, then nothing is asked of it
    with pytest.raises(StopIteration):
        fetching.throw(UnknownSubscription())
