"""One connection and one thread show that all clients of a process live: shared by whom, and what that costs nobody."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from urllib.parse import quote

import pytest
from observing import eventually

from ampsq import AsyncClient, Client, Queue
from ampsq.base.errors import Unavailable
from ampsq.coordinator.lost_clients import LostClients
from ampsq.protocol.calls import subscriptions as subscription_calls
from ampsq.protocol.keepalive import keepalive_channel
from ampsq.protocol.reads.subscribers import count_listeners
from ampsq.protocol.request import command
from ampsq.protocol.schema import key
from ampsq.transport.store import Store

pytestmark = pytest.mark.default_user(reason="counts the connections of the process, and makes users itself")

WORK = Queue(name="work", underlying_topic="orders")
#: Subscribes, forks a child that sleeps, and says so.
FORKING = """
import os, sys, time
from ampsq import Client
client = Client(sys.argv[1], instance=sys.argv[2])
messages = client.subscribe("work")
child = os.fork()
if child == 0:
    if sys.argv[3] == "again":
        own = Client(sys.argv[1], instance=sys.argv[2])
        own_messages = own.subscribe("work")
    print("child", os.getpid(), flush=True)
    time.sleep(60)  # until it is killed
    os._exit(0)
time.sleep(60)  # until it is killed
"""


@pytest.fixture
def node(start_server):
    """One of its own, so that its connections are those of this test."""
    return start_server("valkey")


@pytest.fixture
def own_store(node, instance):
    with contextlib.closing(Store(node.url, instance)) as store:
        yield store


def subscribed(store):
    """The connections that are subscribed to channels."""
    return [each for each in store.redis.client_list() if int(each["sub"]) or int(each["ssub"])]


def shared_threads():
    return [each for each in threading.enumerate() if each.name == "ampsq-keepalive-shared"]


def listeners(store, client):
    return store.run(count_listeners(store.instance, [client._session.client]))[0]


def deadline(store, messages):
    return store.redis.zscore(key(store.instance, "subscriptions"), messages.id)


def opened(stack, node, instance, number=1, **options):
    """Clients with a subscription each."""
    clients = [stack.enter_context(Client(node.url, instance=instance, **options)) for _ in range(number)]
    clients[0].apply(WORK)
    return clients, [each.subscribe("work") for each in clients]


def test_all_clients_of_a_process_show_by_one_connection_and_one_thread_that_they_live(node, own_store, instance):
    before = len(shared_threads())
    with contextlib.ExitStack() as stack:
        # When 20 clients of two instances have a subscription each
        clients, _ = opened(stack, node, instance, 10)
        others, _ = opened(stack, node, f"{instance}-b", 10)
        # Then one connection is subscribed to a plain and a sharded channel of each
        (connection,) = subscribed(own_store)
        assert (int(connection["sub"]), int(connection["ssub"])) == (20, 20)
        assert len(shared_threads()) == before + 1
        # And the first ones leave without the others
        for each in clients:
            each.close()
        eventually(lambda: [int(each["ssub"]) for each in subscribed(own_store)] == [10])
        assert listeners(own_store, clients[0]) == 0
        assert all(own_store.run(count_listeners(f"{instance}-b", [each._session.client])) == [1] for each in others)
    # And it ends with the last one
    eventually(lambda: not subscribed(own_store))
    eventually(lambda: len(shared_threads()) == before)


def test_clients_of_another_heartbeat_or_user_share_nothing(node, own_store, instance):
    own_store.redis.acl_setuser(
        "other", enabled=True, passwords=["+secret"], commands=["+@all"], keys=["*"], channels=["*"]
    )
    named = node.url.replace("unix://", f"unix://other:{quote('secret')}@")
    with contextlib.ExitStack() as stack:
        opened(stack, node, instance, 2)
        opened(stack, node, instance, 2, heartbeat="1s")
        for _ in range(2):
            stack.enter_context(Client(named, instance=instance)).subscribe("work")
        assert sorted((each["user"], int(each["ssub"])) for each in subscribed(own_store)) == [
            ("default", 2),
            ("default", 2),
            ("other", 2),
        ]


def test_signs_of_life_of_all_clients_are_sent_together(node, own_store, instance):
    with contextlib.ExitStack() as stack:
        _, messages = opened(stack, node, instance, 5, heartbeat="300ms")
        now = own_store.redis.time()[0] * 1000
        # Given subscriptions that are about to end
        for each in messages:
            own_store.redis.zadd(key(instance, "subscriptions"), {each.id: now + 5_000})
        # Then the next sign of life prolongs each, also where the server has forgotten the script
        eventually(lambda: all(deadline(own_store, each) > now + 20_000 for each in messages))
        own_store.redis.script_flush()
        for each in messages:
            own_store.redis.zadd(key(instance, "subscriptions"), {each.id: now + 5_000})
        eventually(lambda: all(deadline(own_store, each) > now + 20_000 for each in messages))


def test_a_connection_that_is_cut_is_made_again_before_anybody_is_taken_for_lost(node, own_store, instance):
    with contextlib.ExitStack() as stack:
        clients, messages = opened(stack, node, instance, 20)
        ids = [each.id for each in messages]
        duty = LostClients(grace=0)
        duty.run_once(own_store)
        # When the connection is cut three times, while a coordinator looks
        for _ in range(3):
            (connection,) = subscribed(own_store)
            own_store.redis.client_kill_filter(_id=connection["id"])
            until = time.monotonic() + 1.0
            while time.monotonic() < until:
                time.sleep(0.3)  # what a coordinator lets pass between two looks
                duty.run_once(own_store)
            eventually(lambda: all(listeners(own_store, each) for each in clients))
        # Then all subscriptions are there
        assert all(deadline(own_store, each) for each in messages)
        assert [each.id for each in messages] == ids


def test_a_client_whose_own_connection_was_lost_joins_again_once(node, own_store, instance):
    def joined():
        return own_store.redis.info("commandstats")["cmdstat_ssubscribe"]["calls"]

    with contextlib.ExitStack() as stack:
        (client, other), _ = opened(stack, node, instance, 2)
        assert joined() == 2
        for number in range(1, 4):
            # When another of its connections is lost, and made again
            route = client._connection.parts.route
            route.failed(route.current, Unavailable("the connection was lost"))
            client.publish("orders", 1)
            # Then it shows life there, which is the same connection, and does not do so again
            eventually(lambda: client._connection.parts.keepalive._server is route.current)  # noqa: B023
            time.sleep(0.5)  # five looks
            assert joined() == 2 + number
            assert listeners(own_store, client) == listeners(own_store, other) == 1
            assert len(subscribed(own_store)) == 1
        # And its thread ends
        eventually(lambda: client._connection.parts.keepalive._thread is None)


def test_a_client_that_is_held_up_delays_no_other_ones_signs_of_life(node, own_store, instance):
    with contextlib.ExitStack() as stack:
        (slow, _), (_, messages) = opened(stack, node, instance, 2, heartbeat="300ms")
        # Given a client one of whose calls is not answered
        keepalive, begun, answered = slow._connection.parts.keepalive, threading.Event(), threading.Event()
        stack.callback(answered.set)

        def wait(flow):
            flow.close()
            begun.set()
            answered.wait(30)
            return True

        keepalive._store.run = wait
        keepalive.end_unanswered(slow._connection.subscriptions[0].core)
        assert begun.wait(10)
        # Then the others' are sent in time
        now = own_store.redis.time()[0] * 1000
        own_store.redis.zadd(key(instance, "subscriptions"), {messages.id: now + 5_000})
        eventually(lambda: deadline(own_store, messages) > now + 20_000, within=5.0)


def test_a_user_of_older_rules_who_may_not_subscribe_to_shards_is_seen_all_the_same(node, own_store, instance):
    own_store.redis.acl_setuser(
        "older",
        enabled=True,
        passwords=["+secret"],
        commands=["+@all", "-ssubscribe", "-sunsubscribe"],
        keys=["*"],
        channels=["*"],
    )
    named = node.url.replace("unix://", "unix://older:secret@")
    with Client(named, instance=instance) as client:
        client.apply(WORK)
        client.subscribe("work")
        (connection,) = subscribed(own_store)
        assert (int(connection["sub"]), int(connection["ssub"])) == (1, 0)
        assert listeners(own_store, client) == 1


def test_a_coordinator_sees_clients_that_are_subscribed_to_shards_alone(node, own_store, instance):
    """As those of a later release, which drops the plain channel."""
    with Client(node.url, instance=instance) as client:
        client.apply(WORK)
        messages = client.subscribe("work")
        shared = client._connection.parts.keepalive._shared
        channel = keepalive_channel(instance, client._session.client)
        with shared._using:
            shared._raw.send_command("UNSUBSCRIBE", channel, check_health=False)
        eventually(lambda: own_store.redis.pubsub_numsub(channel)[0][1] == 0)
        duty = LostClients(grace=0)
        for _ in range(3):
            duty.run_once(own_store)
        assert deadline(own_store, messages)
        # And one that is subscribed to neither is lost
        with shared._using:
            shared._clients.clear()
            shared._raw.send_command("SUNSUBSCRIBE", channel, check_health=False)
        eventually(lambda: own_store.call(command(["PUBSUB", "SHARDNUMSUB", channel], list))[1] == 0)
        for _ in range(3):
            duty.run_once(own_store)
        assert deadline(own_store, messages) is None


@pytest.mark.parametrize("child_works", ["", "again"])
def test_a_forked_process_does_not_show_its_parents_life(node, own_store, instance, child_works):
    with Client(node.url, instance=instance) as client:
        client.apply(WORK)
    program = [sys.executable, "-c", FORKING, node.url, instance, child_works]
    with subprocess.Popen(program, stdout=subprocess.PIPE, text=True) as parent:
        child = int(parent.stdout.readline().split()[1])
        try:
            # Given a parent whose child lives, with a client of its own or without
            both = 2 if child_works else 1
            assert len(subscribed(own_store)) == both
            # When the parent is killed
            parent.send_signal(signal.SIGKILL)
            # Then its connection ends at once
            eventually(lambda: len(subscribed(own_store)) == both - 1, within=5.0)
            os.kill(child, 0)
        finally:
            os.kill(child, signal.SIGKILL)


@pytest.mark.parametrize("kind", [Client, AsyncClient])
def test_a_client_without_subscriptions_shows_no_life(node, own_store, instance, kind):
    async def opened():
        async with AsyncClient(node.url, instance=instance):
            return subscribed(own_store)

    if kind is AsyncClient:
        assert asyncio.run(opened()) == []
    else:
        with Client(node.url, instance=instance):
            assert subscribed(own_store) == []


def test_what_the_server_does_not_know_is_subscribed_again(node, own_store, instance):
    with contextlib.ExitStack() as stack:
        (client,), (messages,) = opened(stack, node, instance, heartbeat="300ms")
        own_store.call(subscription_calls.unsubscribe(messages.id, {}))
        client.publish("orders", 1)
        assert messages.get(10).data == 1
