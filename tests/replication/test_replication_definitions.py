"""Applying instances and destinations: what is defined, what comes of applying it again, and what does not fit."""

from __future__ import annotations

import asyncio

import pytest

from ampsq import AsyncClient, Destination, GroupLocalQueue, Instance, LocalQueue, Queue, ReplicatedTopic, Topic, View
from ampsq.base.errors import CatalogChanged, DefinitionError
from ampsq.files.config import load
from ampsq.protocol.calls import catalog as catalog_calls
from ampsq.protocol.calls import queues as calls

NYC = Destination(
    name="nyc-2", group="NYC", sync_type="sync", topics=["orders"], addresses=["redis://me:s3cret@nyc-2:6379"]
)


def catalog(client):
    return client._store.call(catalog_calls.catalog())


def outcomes(done):
    return [outcome for _, outcome in done]


def test_an_instance_and_a_destination_are_defined_changed_and_found_unchanged(client):
    definitions = (NYC, Instance(group="NYC"))

    assert client.apply(*definitions) == [(Instance(group="NYC"), "changed"), (NYC, "new")]
    assert (catalog(client).group, client.admin.destinations()) == ("NYC", {"nyc-2": NYC})
    before = catalog(client)
    assert outcomes(client.apply(*definitions)) == ["unchanged", "unchanged"]
    assert catalog(client) == before

    changed = NYC.model_copy(update={"sync_type": "async", "addresses": ["redis://me:other@nyc-3"]})
    (planned,) = client.admin.plan(changed)
    assert (planned.outcome, planned.changes["sync_type"]) == ("changed", ("sync", "async"))
    assert planned.changes["addresses"] == (["redis://***@nyc-2:6379"], ["redis://***@nyc-3"])
    assert outcomes(client.apply(changed)) == ["changed"]
    assert client.admin.destinations() == {"nyc-2": changed}


def test_an_instance_s_group_is_its_name_until_it_is_given_one_and_when_it_is_taken_back(client):
    assert catalog(client).group == catalog(client).instance == client.instance
    assert outcomes(client.apply(Instance(), Instance(group=client.instance))) == ["unchanged"] * 2
    (planned,) = client.admin.plan(Instance(group="NYC"))
    assert planned.changes == {"group": (None, "NYC")}
    client.apply(Instance(group="NYC"))
    client.apply(Instance())
    assert catalog(client).group == client.instance


def test_a_file_of_another_instance_is_refused(client):
    with pytest.raises(DefinitionError, match=f"Instance 'amps-1': name: this is the instance '{client.instance}'"):
        client.apply(Instance(name="amps-1", group="NYC"))
    client.apply(Instance(name=client.instance, group="NYC"))
    assert catalog(client).group == "NYC"


def test_a_destination_is_removed_once(client):
    client.apply(NYC)
    assert client.admin.remove_destination("nyc-2")
    assert client.admin.destinations() == {}
    assert not client.admin.remove_destination("nyc-2")
    with pytest.raises(DefinitionError, match="is not a name"):
        client.admin.remove_destination("nyc 2")


def test_it_is_the_same_for_who_awaits(client):
    async def work():
        async with AsyncClient(client._store.url, instance=client.instance) as other:
            await other.apply(NYC)
            found = await other.admin.destinations()
            return found, await other.admin.remove_destination("nyc-2")

    assert asyncio.run(work()) == ({"nyc-2": NYC}, True)


@pytest.mark.parametrize(
    ("definition", "reason"),
    [
        (LocalQueue(name="work", underlying_topic="orders"), "a local queue, of which each instance delivers"),
        (View(name="work", underlying_topic="orders", projection=["/a"], grouping=["/a"]), "a view, which every"),
    ],
)
def test_what_each_instance_has_of_its_own_is_not_replicated_by_name(client, definition, reason):
    named = Destination(name="nyc-2", sync_type="async", topics=["orders", "work"])
    with pytest.raises(DefinitionError, match=f"Destination 'nyc-2': topics: 'work' is {reason}.*allowed: .*'orders'"):
        client.apply(definition, named)
    # In whichever order they come
    client.apply(named)
    with pytest.raises(DefinitionError, match=f"'work': name: Destination 'nyc-2' sends it, and it is {reason}"):
        client.apply(definition)
    # A regular expression passes over it
    client.apply(definition, Destination(name="nyc-2", sync_type="async", topics=[".*"]))


def test_a_queue_that_is_sent_cannot_become_a_local_one(client):
    client.apply(Queue(name="work", underlying_topic="orders"))
    client.apply(Destination(name="nyc-2", sync_type="async", topics=["orders", "work"]))
    with pytest.raises(DefinitionError, match="LocalQueue 'work': name: Destination 'nyc-2' sends it"):
        client.apply(LocalQueue(name="work", underlying_topic="orders"))


def test_there_are_64_sync_destinations_at_most_and_any_number_of_others(client):
    many = [Destination(name=f"sync-{number}", sync_type="sync", topics="orders") for number in range(64)]
    client.apply(*many[:63])
    client.apply(many[63], *(NYC.model_copy(update={"name": f"a-{n}", "sync_type": "async"}) for n in range(3)))
    with pytest.raises(DefinitionError, match="'sync' would make 65 of them; allowed: at most 64 sync destinations"):
        client.apply(NYC)
    # One that is there may change
    assert outcomes(client.apply(many[0].model_copy(update={"topics": ["returns"]}))) == ["changed"]


def test_a_group_that_is_a_queue_s_domain_is_not_changed(client):
    queue = GroupLocalQueue(name="work", underlying_topic="orders", initial_owner=client.instance)
    client.apply(Instance(group="NYC"), queue)
    with pytest.raises(DefinitionError, match="group: 'NYC' is the domain of GroupLocalQueue 'work'"):
        client.apply(Instance(group="US"))
    assert outcomes(client.apply(Instance(group="NYC"))) == ["unchanged"]
    # Named, it is the same domain, though the queue has messages
    client.publish("orders", 1)
    client.apply(queue.model_copy(update={"group_local_queue_domain": "NYC"}))
    client.apply(Instance(group="US"))
    assert catalog(client).group == "US"


def test_a_local_queue_works_like_any_other(client):
    client.apply(LocalQueue(name="work", underlying_topic="orders", max_per_subscription_backlog=2))
    client.publish_many("orders", [1, 2])
    with client.subscribe("work", max_backlog=2) as messages:
        for expected in (1, 2):
            message = messages.get(30)
            assert message.data == expected
            message.ack()
    assert client.admin.queue_stats("work").depth == 0


def test_definitions_of_a_file_are_placed_when_they_do_not_fit(client):
    loaded = load("local_queues:\n  - name: work\ndestinations:\n  - {name: nyc-2, sync_type: sync, topics: [work]}\n")
    with pytest.raises(DefinitionError) as refused:
        client.apply(*loaded)
    assert loaded.placed(refused.value).startswith("<text>:4: Destination 'nyc-2': topics: 'work' is a local queue")


def test_two_clients_that_define_at_once_both_succeed(connect):
    one, other = connect(), connect()
    for number in range(5):
        one.apply(Topic(name=f"t-{number}"), Destination(name=f"one-{number}", sync_type="async", topics="orders"))
        other.apply(Destination(name=f"other-{number}", sync_type="async", topics=[ReplicatedTopic(name="orders")]))
    assert len(one.admin.destinations()) == 10
    with pytest.raises(CatalogChanged):
        one._store.call(calls.script_call("define_destination", [0, "nyc-2", "{}"], lambda _: None))
