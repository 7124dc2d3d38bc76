"""Definitions are removed, whole or not at all; messages stay in the logs of their topics."""

from __future__ import annotations

import asyncio

import pytest
from observing import eventually
from scene import data_of, pick_up

from ampsq import Action, AddressSetting, AsyncClient, Destination, Do, Instance, On, Queue, Topic, Transport, View
from ampsq.base.errors import DefinitionError, QueueInUse
from ampsq.catalog.read_definitions import definitions_left_out

WORK = Queue(name="work", underlying_topic="orders", max_per_subscription_backlog=10)


def names(client):
    return {(type(each).__name__, each.name) for each in client.admin.definitions()} - {("Instance", client.instance)}


def test_everything_that_is_defined_is_read_and_removed(client):
    made = [
        Instance(group="NYC", label="New York, first"),
        Transport(name="low", client_message_age_limit="15s"),
        Topic(name="orders", retention_age="7d"),
        AddressSetting(match="ring.#", default_ring_size=3),
        WORK,
        View(name="totals", underlying_topic="work", projection=["COUNT(*) AS /n"]),
        Action.dead_letter("work", "dead"),
        Destination(name="nyc-2", sync_type="async", topics="orders"),
    ]
    client.apply(*made)
    assert [(type(each), each.to_json()) for each in client.admin.definitions()[1:]] == [
        (type(each), each.to_json()) for each in made[1:]
    ]
    client.admin.remove(*client.admin.definitions())
    # Of the topic its name is left, and of the instance too
    assert names(client) == {("Topic", "orders")}
    assert client.admin.definitions()[0].group is None
    assert definitions_left_out(client.admin.definitions(), []) == []
    # And removing it once more is no fault
    client.admin.remove(*made)


def test_messages_of_a_queue_that_is_removed_stay_in_the_topic(client):
    client.apply(WORK)
    client.publish_many("orders", [1, 2, 3])
    with client.subscribe("work", max_backlog=2) as messages:
        for message in pick_up(messages, 2):
            message.ack(wait=True)
    client.admin.remove(WORK)
    assert "work" not in client.admin.queues()
    with client.subscribe_topic("orders", bookmark="[epoch:now]") as replayed:
        assert [message.data for message in replayed] == [1, 2, 3]
    # A queue of that name is another one
    client.apply(WORK)
    with client.subscribe("work", max_backlog=10) as messages:
        assert data_of(pick_up(messages, 3)) == [1, 2, 3]


def test_what_is_needed_by_what_is_left_is_not_removed_and_nothing_else_either(client):
    letters = Action.dead_letter("work", "dead")
    totals = View(name="totals", underlying_topic="work", projection=["COUNT(*) AS /n"])
    other = Queue(name="other", underlying_topic="orders")
    client.apply(WORK, other, letters, totals)
    before = client.admin.definitions()
    with pytest.raises(DefinitionError, match="Action 'dead-letter-work' needs what is to be removed"):
        client.admin.remove(other, WORK, totals)
    with pytest.raises(
        DefinitionError, match="View 'totals' is over 'work', which is to be removed; allowed: remove both"
    ):
        client.admin.remove(other, WORK, letters)
    assert client.admin.definitions() == before
    # Unless it is said to be something else before
    moved = Action(name=letters.name, on=On.expire(topic="other"), do=Do.publish(topic="dead"))
    client.admin.plan(moved, removing=[WORK, totals])
    client.apply(moved)
    client.admin.remove(WORK, totals)
    assert ("Queue", "work") not in names(client)


def test_a_queue_that_somebody_uses_is_not_removed(client):
    other = Queue(name="other", underlying_topic="orders")
    client.apply(WORK, other)
    with client.subscribe("work"):
        with pytest.raises(QueueInUse, match="subscriptions 1"):
            client.admin.remove(other, WORK)
        with pytest.raises(QueueInUse, match="subscriptions 1"):
            client.admin.plan(removing=[WORK])
        assert {"work", "other"} <= set(client.admin.queues())
    client.admin.remove(other, WORK)
    client.apply(WORK)
    client.publish("work", 1)
    with client.subscribe("work") as messages:
        messages.get(30).cancel(delay="1h")
        eventually(lambda: client.admin.queue_stats("work").delayed)
    with pytest.raises(QueueInUse, match="delayed 1"):
        client.admin.remove(WORK)


def test_a_setting_that_is_removed_says_nothing_of_its_queues_any_more(client):
    ring = AddressSetting(match="ring.#", default_ring_size=1)
    client.apply(ring, Queue(name="ring.a"))
    client.publish_many("ring.a", [1, 2])
    assert data_of(client.sow("ring.a")) == [2]
    client.admin.remove(ring)
    client.publish_many("ring.a", [3, 4])
    assert data_of(client.sow("ring.a")) == [2, 3, 4]
    assert client.admin.address_settings() == {}


def test_a_coordinator_goes_on_when_what_it_works_on_is_removed(client, coordinator):  # noqa: ARG001
    letters = Action.dead_letter("work", "dead")
    totals = View(name="totals", underlying_topic="work", projection=["COUNT(*) AS /n"])
    client.apply(WORK, letters, totals)
    bookmark = client.publish("work", 1)
    client.ack("work", bookmark, "expire")
    eventually(lambda: client.admin.topics()["dead"].messages == 1)
    client.admin.remove(WORK, letters, totals)
    # And what is defined again works again, also what publishes under the same name
    client.apply(WORK, letters, totals)
    client.ack("work", client.publish("work", 2), "expire")
    eventually(lambda: client.admin.topics()["dead"].messages == 2, within=25.0)


def test_the_same_awaited(valkey, instance):
    async def run():
        async with AsyncClient(valkey.url, instance=instance) as client:
            await client.apply(WORK)
            assert WORK in await client.admin.definitions()
            assert [plan.outcome for plan in await client.admin.plan(WORK, removing=[])] == ["unchanged"]
            await client.admin.remove(WORK)
            return await client.admin.definitions()

    assert [each for each in asyncio.run(run()) if isinstance(each, Queue)] == []
