"""The administrative methods of the asyncio client give what those of the synchronous one give."""

from __future__ import annotations

import asyncio

import pytest

from ampsq import AsyncClient, Client, Destination, GroupLocalQueue, Instance, Queue, ReplicatedTopic, View


@pytest.fixture
def both(valkey, instance):
    """A synchronous client, and a way to run what a test does with an asyncio one."""

    def run(do):
        async def within():
            async with AsyncClient(valkey.url, instance=instance) as client:
                return await do(client)

        return asyncio.run(within())

    with Client(valkey.url, instance=instance) as client:
        yield client, run


def test_definitions_are_read_alike(both):
    client, run = both
    view = View(name="sums", underlying_topic="orders", projection=["SUM(/n) AS /n"], grouping=["/customer"])
    client.apply(Queue(name="work", underlying_topic="orders"), view)

    async def ask(other):
        return await other.admin.views(), await other.admin.message_type("orders"), await other.admin.readers()

    assert run(ask) == (client.admin.views(), client.admin.message_type("orders"), client.admin.readers())
    assert list(client.admin.views()) == ["sums"]


def test_a_queue_is_paused_and_resumed(both):
    client, run = both
    client.apply(Queue(name="work", underlying_topic="orders"))
    client.publish("orders", 1)

    async def paused(other):
        await other.admin.pause_queue("work")

    async def resumed(other):
        await other.admin.resume_queue("work")

    with client.subscribe("work") as messages:
        run(paused)
        assert messages.get(timeout=0.1) is None
        run(resumed)
        assert messages.get(timeout=30).data == 1


def test_replication_is_reported_and_switched_alike(both):
    client, run = both
    # Nobody is there; what is asked and switched is this instance's own
    client.apply(
        Instance(group="here"),
        GroupLocalQueue(name="shared", underlying_topic="orders", initial_owner="here"),
        Destination(
            name="there",
            group="there",
            sync_type="sync",
            topics=[ReplicatedTopic(name="orders")],
            addresses=["unix:///nowhere.sock"],
        ),
    )

    async def switch(other):
        assert await other.admin.downgrade_replication("there")
        downgraded = await other.admin.sync_states()
        assert await other.admin.upgrade_replication("there")
        return downgraded, await other.admin.sync_states(), await other.admin.replication()

    before, after, report = run(switch)

    assert before["there"].downgraded
    assert after["there"].downgraded is None
    assert [link.destination for link in report.links] == [
        link.destination for link in client.admin.replication().links
    ]


def test_a_name_that_is_not_there_is_refused_alike(both):
    client, run = both
    client.apply(Queue(name="work", underlying_topic="orders"))
    refused = {}

    async def try_each(other):
        for name, given in (
            ("enable_proxied_transfer", "nothing"),
            ("disable_proxied_transfer", "nothing"),
            ("recover_without", "nobody"),
        ):
            for kind, ask in (("async", getattr(other.admin, name)), ("sync", getattr(client.admin, name))):
                try:
                    found = ask(given)
                    refused[kind, name] = await found if kind == "async" else found
                except Exception as error:  # noqa: BLE001  (both are to raise the same, whatever it is)
                    refused[kind, name] = type(error), str(error)

    run(try_each)

    for name in ("enable_proxied_transfer", "disable_proxied_transfer", "recover_without"):
        assert refused["async", name] == refused["sync", name]


def test_an_incarnation_begins_and_listeners_come_and_go(both):
    client, run = both
    former, heard = client.origin, []
    client.add_connection_state_listener(heard.append)
    client.remove_connection_state_listener(heard.append)

    async def begin(other):
        other.add_connection_state_listener(heard.append)
        other.remove_connection_state_listener(heard.append)
        return await other.admin.begin_incarnation()

    origin = run(begin)

    assert origin != former
    assert origin.partition(".")[0] == former.partition(".")[0]
