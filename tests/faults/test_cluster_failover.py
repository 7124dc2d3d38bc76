"""Instances of a cluster whose nodes are lost, or whose slots are moved."""

from __future__ import annotations

import asyncio
import contextlib
import threading

import pytest
from cluster_harness import Cluster
from draining import KINDS, define, drain
from network import Heard
from observing import eventually, is_cared_for

from ampsq import Client
from ampsq.coordinator import Coordinator
from ampsq.protocol.reads.coordinators import list_coordinator, read_coordinators
from ampsq.protocol.reads.instance import is_opened
from ampsq.transport.discovery import slot_of
from ampsq.transport.store import Store

pytestmark = pytest.mark.slow


@pytest.fixture
def coordinate_at():
    """Run coordinators of all instances of a server: ``coordinate_at(url, instance)``."""
    running = []

    def start(url, *instances):
        made = Coordinator(url, instances)
        thread = threading.Thread(target=made.run)
        thread.start()
        running.append((made, thread))

    yield start
    for made, thread in running:
        made.stop()
        thread.join(15)


@pytest.mark.parametrize("kind", KINDS)
def test_an_instance_is_found_in_its_slot_of_a_cluster(kind, start_node, coordinate_at, instance):
    cluster = Cluster(lambda **options: start_node(kind=kind, **options))
    # Given three instances, each of which another node serves
    names = {}
    for number in range(100):
        name = f"{instance}-{number}"
        names.setdefault(cluster.owner(slot_of(name)).port, name)
    assert len(names) == 3
    # When they are used through the address of any one node, plain or as a cluster's
    for url in (cluster.nodes[0].url, f"cluster://{cluster.nodes[1].address},{cluster.nodes[2].address}"):
        for name in names.values():
            with Client(url, instance=name) as client:
                define(client)
                with client.subscribe("work", max_backlog=10) as messages:
                    client.publish_many("orders", range(10))
                    assert drain(messages, 10) == list(range(10))
    # And a coordinator finds all of them, whatever node has the set of their names
    coordinate_at(f"cluster://{cluster.nodes[0].address}")
    for name in names.values():
        with contextlib.closing(Store(cluster.nodes[0].url, name)) as store:
            # The first call is redirected to the node that has its slot.
            assert store.call(is_opened(name))
            assert is_cared_for(store.redis, name, within=40.0)


@pytest.mark.parametrize("kind", KINDS)
def test_a_coordinator_of_a_cluster_that_died_a_minute_ago_is_taken_out_of_the_list(
    kind, start_node, coordinate_at, launch_child, instance
):
    cluster = Cluster(lambda **options: start_node(kind=kind, **options))
    url = "cluster://" + ",".join(node.address for node in cluster.nodes)
    with Client(url, instance=instance), contextlib.closing(Store(url, "", retry_timeout=5.0)) as store:

        def listed():
            return {each.id: each for each in store.call(read_coordinators())}

        # Given a coordinator that is listed, and is killed
        child = launch_child("-m", "ampsq.coordinator", "--url", url)
        (dead,) = eventually(listed, within=40.0)
        child.kill()
        child.wait()
        # When another one is there
        coordinate_at(url)
        (living,) = eventually(lambda: set(listed()) - {dead}, within=40.0)
        # Then it leaves the dead one in the list at first, which may only be slow
        assert dead in listed()
        # And takes it out once its last sign of life is a minute old
        entry = listed()[dead]
        entry.seen -= 61_000
        store.call(list_coordinator(entry))
        eventually(lambda: set(listed()) == {living}, within=20.0)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_cluster_s_failover_is_followed(kind, start_node, coordinate_at, instance):
    # Given a cluster with replicas, a coordinator and a subscription
    cluster = Cluster(lambda **options: start_node(kind=kind, **options), replicas=True)
    owner = cluster.owner(slot_of(instance))
    replica = cluster.replica_of(owner)
    url = "cluster://" + ",".join(node.address for node in cluster.nodes)
    coordinate_at(url, instance)
    with (
        Client(url, instance=instance, heartbeat="1s", retry_timeout="40s") as client,
        client.publisher("till-1") as till,
    ):
        heard = Heard()
        client.add_connection_state_listener(heard)
        define(client)
        messages = client.subscribe("work", max_backlog=10)
        till.publish_many("orders", range(10))
        assert drain(messages, 10) == list(range(10))
        # When the replica takes over by plan, then traffic goes on there
        replica.ask("CLUSTER", "FAILOVER")
        eventually(lambda: replica.ask("ROLE")[0] == "master", within=40.0)
        till.publish_many("orders", range(10, 20))
        assert drain(messages, 10) == list(range(10, 20))
        eventually(lambda: heard.events[-1].address.endswith(f"{replica.address}/"), within=25.0)
        # And when it dies and the former one takes over again, too; presence is seen there: nothing is given back
        eventually(lambda: owner.ask("ROLE")[0] == "slave" and owner.has_link(), within=40.0)
        till.publish("orders", 20)
        message = messages.get(30)
        eventually(lambda: replica.ask("WAIT", 1, 1000) == 1)
        replica.kill()
        eventually(lambda: owner.ask("ROLE")[0] == "master", within=30.0)
        till.publish("orders", 21)
        message.ack(wait=True)
        assert drain(messages, 1) == [21]
        assert client.admin.queue_stats("work").depth == 0
        messages.close()


def test_an_instance_that_is_being_moved_waits_until_it_is_there(start_node, instance):
    # Given an instance with messages, and a slot that is about to move
    cluster = Cluster(start_node)
    slot = slot_of(instance)
    source = cluster.owner(slot)
    target = next(node for node in cluster.nodes if node is not source)
    with Client(source.url, instance=instance, heartbeat="1s", retry_timeout="20s") as client:
        define(client)
        client.publish_many("orders", range(10))
        target.ask("CLUSTER", "SETSLOT", slot, "IMPORTING", source.ask("CLUSTER", "MYID"))
        source.ask("CLUSTER", "SETSLOT", slot, "MIGRATING", target.ask("CLUSTER", "MYID"))
        # When some of its keys have moved, and others have not

        def move(*names):
            source.ask("MIGRATE", "127.0.0.1", target.port, "", 0, 5000, "KEYS", *names)

        move(*source.ask("CLUSTER", "GETKEYSINSLOT", slot, 3))

        async def publish():
            return await asyncio.to_thread(client.publish, "orders", 10)

        async def main():
            publishing = asyncio.create_task(publish())
            await asyncio.sleep(0.5)  # the call is sent, and not answered
            # Then a call does not run on half an instance
            assert not publishing.done()
            while names := source.ask("CLUSTER", "GETKEYSINSLOT", slot, 100):
                move(*names)
            for node in (target, source):
                node.ask("CLUSTER", "SETSLOT", slot, "NODE", target.ask("CLUSTER", "MYID"))
            await publishing

        asyncio.run(main())
        # And runs once all of it has moved
        with client.subscribe("work", max_backlog=20) as messages:
            assert drain(messages, 11) == list(range(11))
