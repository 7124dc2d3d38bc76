"""A flush, and the end of a subscription, wait for acknowledgements that another thread is sending."""

from __future__ import annotations

import pytest

from ampsq import Queue
from ampsq.protocol.request import Pause


def test_a_flush_waits_for_what_another_thread_is_sending(client):
    # Given an acknowledgement that another thread has sent, and whose answer has not come
    client.apply(Queue(name="work", underlying_topic="orders"))
    client.publish("orders", 1)
    with client.subscribe("work") as messages:
        messages.get(timeout="30s").ack()
        core = messages._core
        sending = core.send_acks()
        call = sending.send(None)

        # When it is flushed, then it waits
        flushing = core.flush()
        assert isinstance(flushing.send(None), Pause)
        assert isinstance(flushing.send(None), Pause)

        # Until the answer is there
        with pytest.raises(StopIteration):
            sending.send(client._store.call(call))
        with pytest.raises(StopIteration):
            flushing.send(None)
        assert client.queue_stats("work").depth == 0


def test_a_flush_sends_what_another_thread_could_not(client):
    # Given an acknowledgement that another thread could not send
    client.apply(Queue(name="work", underlying_topic="orders"))
    client.publish("orders", 1)
    with client.subscribe("work") as messages:
        messages.get(timeout="30s").ack()
        core = messages._core
        sending = core.send_acks()
        sending.send(None)
        flushing = core.flush()
        assert isinstance(flushing.send(None), Pause)
        with pytest.raises(ConnectionError):
            sending.throw(ConnectionError())

        # When the flush goes on, then it sends it
        call = flushing.send(None)
        with pytest.raises(StopIteration):
            flushing.send(client._store.call(call))
        assert client.queue_stats("work").depth == 0
