"""Connections that stand and over which nothing passes: noticed within twice the heartbeat, by whoever waits."""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
import time

import pytest
from network import Heard
from observing import eventually

from ampsq import AsyncClient, Client, Queue
from ampsq.base.errors import DefinitionError, NoAnswer, Unavailable

pytestmark = pytest.mark.slow

HEARTBEAT = 0.6
#: Twice the heartbeat, and what a busy machine may add.
NOTICED_WITHIN = 2 * HEARTBEAT + 8
WORK = Queue(name="work", underlying_topic="orders", max_per_subscription_backlog=10)


@pytest.fixture
def node(start_node):
    return start_node()


def test_a_blocked_read_over_a_dead_link_ends_in_time(node, relay_to, connect):
    # Given a consumer that waits for a push, through a relay
    relay = relay_to(node.port)
    client = connect(relay.url, heartbeat=HEARTBEAT, retry_timeout="0s")
    client.apply(WORK)
    messages = client.subscribe("work")
    heard = Heard()
    client.add_connection_state_listener(heard)
    ended = []

    def wait():
        try:
            messages.get(30)
        except Unavailable as error:
            ended.append((time.monotonic(), error))

    waiting = threading.Thread(target=wait)
    waiting.start()
    eventually(lambda: "blocked_clients:1" in node.ask("INFO", "clients"))
    # When the relay falls silent
    silent = time.monotonic()
    relay.silence()
    waiting.join(30)
    # Then the read ends with the cause, and the loss is told, in time
    at, error = ended[0]
    assert isinstance(error, NoAnswer)
    assert at - silent < NOTICED_WITHIN
    heard.wait_for("disconnected")
    assert heard.times[heard.states.index("disconnected")] - silent < NOTICED_WITHIN
    # And when the link is good again, it goes on
    relay.speak()
    client._store.retry_timeout = 10.0
    eventually(lambda: node.ask("PING") == "PONG")
    with connect(node.url) as publisher:
        publisher.publish("orders", 1)
    message = messages.get(30)
    assert message.data == 1
    message.ack(wait=True)


def test_a_consumer_goes_on_over_another_way(node, relay_to, connect):
    # Given two ways to one server
    relay = relay_to(node.port)
    client = connect([relay.url, node.url], heartbeat=HEARTBEAT, retry_timeout="20s")
    client.apply(WORK)
    messages = client.subscribe("work", max_backlog=5)
    assert messages.get(0.05) is None
    with connect(node.url) as publisher:
        # When the first one is dead
        relay.silence()
        publisher.publish("orders", 1)
        started = time.monotonic()
        message = messages.get(20)
        # Then the message comes over the other one, as its first delivery or, where its push was swallowed, again
        assert message.data == 1
        assert time.monotonic() - started < NOTICED_WITHIN + HEARTBEAT + 1.0
        message.ack(wait=True)
        assert publisher.admin.queue_stats("work").depth == 0


def test_an_idle_client_with_a_subscription_notices_a_dead_link(node, relay_to, connect):
    relay = relay_to(node.port)
    client = connect(relay.url, heartbeat=HEARTBEAT)
    client.apply(WORK)
    client.subscribe("work")
    heard = Heard()
    client.add_connection_state_listener(heard)
    heard.wait_for("heartbeat_initiated")
    # Given beats that are answered for a while
    time.sleep(3 * HEARTBEAT)
    assert "disconnected" not in heard.states
    # When nothing passes any more, and nobody calls anything
    silent = time.monotonic()
    relay.silence()
    # Then it is told in time
    heard.wait_for("disconnected")
    assert heard.times[heard.states.index("disconnected")] - silent < NOTICED_WITHIN
    relay.speak()


@pytest.mark.parametrize("call", ["publish", "queue_stats"])
def test_a_call_over_a_dead_link_ends_in_time(node, relay_to, connect, call):
    relay = relay_to(node.port)
    client = connect(relay.url, heartbeat=HEARTBEAT, retry_timeout="0s")
    client.apply(WORK)
    relay.silence()
    started = time.monotonic()
    with pytest.raises(NoAnswer) as raised:
        client.publish("orders", 1) if call == "publish" else client.admin.queue_stats("work")
    assert time.monotonic() - started < NOTICED_WITHIN
    # And says that it may have run
    assert raised.value.may_have_run


def test_the_asyncio_client_notices_the_same(node, relay_to, instance):
    relay = relay_to(node.port)

    async def main():
        async with AsyncClient(relay.url, instance=instance, heartbeat=HEARTBEAT, retry_timeout="0s") as client:
            await client.apply(WORK)
            messages = await client.subscribe("work")
            heard = Heard()
            client.add_connection_state_listener(heard)
            waiting = asyncio.create_task(messages.get(30))
            await asyncio.to_thread(eventually, lambda: "blocked_clients:1" in node.ask("INFO", "clients"))
            silent = time.monotonic()
            relay.silence()
            with pytest.raises(NoAnswer):
                await waiting
            assert time.monotonic() - silent < NOTICED_WITHIN
            await asyncio.sleep(0)
            assert "disconnected" in heard.states
            with pytest.raises(NoAnswer):
                await client.publish("orders", 1)
            relay.speak()
            client._store.retry_timeout = 10.0
            await client.publish("orders", 2)
            assert (await messages.get(30)).data in {1, 2}

    asyncio.run(main())


def test_connections_are_probed_by_the_system_too(node, connect):
    client = connect(node.url, heartbeat="3s")
    line = client._store.take_connection()
    plain = line.raw._sock
    assert plain.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
    assert plain.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 3
    assert plain.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 6000
    line.release()


@pytest.mark.parametrize("value", ["100ms", 11, "1h"])
def test_a_heartbeat_that_helps_nobody_is_refused(value):
    with pytest.raises(DefinitionError, match="allowed is 200ms to 10s"):
        Client("redis://127.0.0.1:1", heartbeat=value)


def test_listeners_are_told_in_order_and_may_use_the_client(node, connect, caplog):
    client = connect(node.url)
    client.apply(WORK)
    told = []

    def use(event):
        told.append((str(event.state), client.admin.queue_stats("work").depth if event.state != "shutdown" else None))

    def fail(event):
        raise ValueError(event.state)

    heard = Heard()
    # Given one listener that uses the client, one that fails, one that is taken away
    client.add_connection_state_listener(use)
    client.add_connection_state_listener(fail)
    client.add_connection_state_listener(heard)
    with caplog.at_level(logging.ERROR, "ampsq"):
        client.subscribe("work")
        heard.wait_for("heartbeat_initiated")
        client.remove_connection_state_listener(heard)
        # When its connections are ended by the server and it goes on
        node.ask("CLIENT", "KILL", "TYPE", "pubsub")
        eventually(lambda: [state for state, _ in told].count("connected") == 2)
        client.close()
    # Then all was told in order; what a listener raised is in the log
    assert [state for state, _ in told][:4] == ["connected", "logged_on", "heartbeat_initiated", "disconnected"]
    assert told[-1] == ("shutdown", None)
    assert "a connection state listener failed at heartbeat_initiated" in caplog.text
    assert heard.states == ["connected", "logged_on", "heartbeat_initiated"]
    assert heard.events[0].address == node.url
