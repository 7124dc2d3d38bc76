"""The list of instances is one key in one slot: where its primary is lost, instances in other slots are well."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import time

import click
import pytest
from cluster_harness import Cluster
from observing import eventually

from ampsq import AsyncClient, Client, Queue
from ampsq.base.errors import Unavailable
from ampsq.cli.names import _ask, _names_of
from ampsq.cli.open_instance import find_instance
from ampsq.console.observer import Observer
from ampsq.operations.doctor.examination import examine
from ampsq.protocol.reads.instances import read_instances
from ampsq.protocol.schema import INSTANCES
from ampsq.transport.discovery import slot_of
from ampsq.transport.store import Store

pytestmark = pytest.mark.slow
#: Seconds for opening a client: what the list is asked for and what everything else takes on a busy machine.
SOON = 6.0


class Divided:
    """A cluster, the node that has the list, and names of instances that another node has."""

    def __init__(self, start_node, kind, instance):
        self.cluster = Cluster(
            lambda **options: start_node(kind=kind, **options), options=["--cluster-require-full-coverage", "no"]
        )
        self.holder = self.cluster.owner(slot_of(INSTANCES))
        self.other = next(node for node in self.cluster.nodes if node is not self.holder)
        names = (f"{instance}-{number}" for number in range(1000))
        mine = (name for name in names if self.cluster.owner(slot_of(name)) is self.other)
        self.first, self.second, self.third, self.missing = (next(mine) for _ in range(4))

    def has_noticed(self):
        """Return whether the others know that a node is lost."""
        return "cluster_slots_fail:0" not in self.other.ask("CLUSTER", "INFO")

    def is_well(self):
        """Return whether each node serves its slots and knows that the others do."""
        said = [node.ask("CLUSTER", "INFO") for node in self.cluster.nodes]
        return all("cluster_state:ok" in each and "cluster_slots_ok:16384" in each for each in said)

    def listed(self):
        return set(self.holder.ask("SMEMBERS", INSTANCES))


@pytest.fixture(params=["redis", "valkey"])
def divided(request, start_node, instance):
    return Divided(start_node, request.param, instance)


def use(client):
    client.apply(Queue(name="work", underlying_topic="orders"))
    client.publish("orders", client.instance)
    with client.subscribe("work") as messages:
        message = messages.get(20)
        assert message.data == client.instance
        message.ack(wait=True)


def open_soon(url, name, **options):
    began = time.monotonic()
    client = Client(url, instance=name, **options)
    assert time.monotonic() - began < SOON
    return client


@pytest.mark.parametrize("noticed", [False, True], ids=["at once", "noticed"])
def test_clients_of_instances_elsewhere_open_and_work(divided, noticed, caplog):
    with Client(divided.other.url, instance=divided.first) as client:
        use(client)
    assert divided.listed() == {divided.first}
    # When the primary that has the list is lost
    divided.holder.kill()
    if noticed:
        eventually(divided.has_noticed, within=30.0)
    # Then an instance that is listed opens, and so does a new one, by any address of the cluster
    known = f"cluster://{','.join(node.address for node in divided.cluster.nodes)}"
    for url, name in ((divided.other.url, divided.first), (divided.other.url, divided.second), (known, divided.second)):
        caplog.clear()
        with open_soon(url, name) as client:
            use(client)
        assert "the next client lists it" in caplog.text
        assert f"connection of instance {name} lost" not in caplog.text

    async def main():
        began = time.monotonic()
        async with AsyncClient(divided.other.url, instance=divided.third) as client:
            assert time.monotonic() - began < SOON
            await client.apply(Queue(name="work", underlying_topic="orders"))
            await client.publish("orders", 1)
            async with client.subscribe("work") as messages:
                message = await messages.get(20)
                assert message.data == 1
                await message.ack(wait=True)

    asyncio.run(main())
    # And when it is back, the next client of an instance lists it
    divided.holder.start()
    eventually(divided.is_well, within=30.0)
    for name in (divided.first, divided.third):
        with Client(divided.other.url, instance=name):
            pass
    assert divided.listed() == {divided.first, divided.third}


def test_a_primary_of_the_list_that_hangs_is_not_waited_for_long(divided):
    with Client(divided.other.url, instance=divided.first):
        pass
    divided.holder.process.send_signal(signal.SIGSTOP)
    try:
        with open_soon(divided.other.url, divided.second) as client:
            use(client)
    finally:
        divided.holder.process.send_signal(signal.SIGCONT)


def test_what_needs_the_list_says_that_it_is_out_of_reach(divided, caplog):
    caplog.set_level(logging.ERROR)
    url = divided.other.url
    with Client(url, instance=divided.first):
        pass
    with contextlib.closing(Store(url, divided.missing, retry_timeout=20.0)) as store:
        observer = Observer(url)
        try:
            assert observer.instances() == [divided.first]
            divided.holder.kill()
            # A command behind which somebody mistyped a name
            opening = find_instance(url, divided.missing)
            assert not opening.is_first
            with pytest.raises(click.UsageError, match="which there are is not known: the list of instances"):
                opening.check(is_named=False)
            # One that is there is found without it
            assert find_instance(url, divided.first).is_there
            # The doctor, and whoever reads the list
            with store.pipeline() as pipeline:
                found = store.run(examine(divided.missing, pipeline, 0.1))
            assert any("which there are is not known: the list of instances" in each.text for each in found)
            with pytest.raises(Unavailable, match=r"the list of instances .* cannot be read"):
                store.run(read_instances())
            # A console goes on with those that it knows
            assert observer.instances() == [divided.first]
            with pytest.raises(Unavailable, match=r"the list of instances .* cannot be read"):
                Observer(url).instances()
        finally:
            observer.stop()


def test_completion_of_instances_without_the_list_is_none(divided):
    class Context:
        params, parent = {"url": divided.other.url, "instance": divided.first}, None

    with Client(divided.other.url, instance=divided.first) as client:
        use(client)

    def completed(kind):
        async def read(instance, _):
            return list(await _names_of(instance, kind))

        found = []
        _ask(Context, read, found)
        return found

    assert completed("instances") == [divided.first]
    divided.holder.kill()
    assert completed("instances") == []
    assert completed("queues") == ["work"]
