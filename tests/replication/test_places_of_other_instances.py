"""Places that a client of other instances kept: a durable subscription goes on by them, or is refused and told why."""

from __future__ import annotations

import asyncio
import logging

import pytest
from observing import eventually
from scene import data_of, pick_up
from sites import to

from ampsq import (
    AsyncClient,
    Client,
    MemoryBookmarkStore,
    RedisBookmarkStore,
    ReplicatedTopic,
    SqliteBookmarkStore,
    Topic,
)
from ampsq.base.errors import DefinitionError
from ampsq.protocol.schema import key


def rest_of(messages):
    """Everything that is there; a page of what was had elsewhere has nothing in it."""
    found = []
    while (message := messages.get(0.3)) is not None:
        found.append(message)
    return found


@pytest.fixture(params=["file", "memory"])
def place_store(request, tmp_path):
    return SqliteBookmarkStore(tmp_path / "places.db") if request.param == "file" else MemoryBookmarkStore()


def wish(store):
    return {"bookmark": "most_recent", "sub_id": "audit", "bookmark_store": store, "auto_ack": False}


def linked(world, *ways):
    """The clients of `a` and `b`, with links these ways, as in ``ab``."""
    sites = {each: world.site(each, Topic(name="orders"), Topic(name="other")) for each in "ab"}
    for here, there in ways:
        carried = ReplicatedTopic(name="orders", exclude_validation="replicate" if len(ways) == 1 else None)
        sites[here].apply(to(world, there, topics=[carried]))
    return sites


def publish(world, sites, numbers):
    """At both in turn, so that they have them in different orders; everything is everywhere in the end."""
    for number in numbers:
        sites["ab"[number % 2]].publish("orders", number)
    for each in "ab":
        log = key(world.name(each), "log", "orders")
        eventually(lambda log=log, redis=sites[each]._store.redis: redis.xlen(log) >= len(numbers), 30)


def handle_some(client, store):
    """Five of them are handed out; handles the first two and the fourth. Gives what was handled."""
    with client.subscribe_topic("orders", **wish(store)) as messages:
        taken = pick_up(messages, 5)
        for each in (0, 1, 3):
            taken[each].ack()
        return {taken[each].data for each in (0, 1, 3)}


def test_a_client_of_the_other_instance_goes_on_behind_what_a_client_of_both_handled(world, place_store):
    sites = linked(world, "ab", "ba")
    publish(world, sites, range(8))
    # Given a place that a client of both kept at the first
    with Client([world.address("a"), world.address("b")]) as client:
        handled = handle_some(client, place_store)
    # When a client of the second alone subscribes under the name, then it gets what is not handled, and nothing else
    for _ in range(2):
        # And again by the place that it kept itself
        with sites["b"].subscribe_topic("orders", **wish(place_store)) as messages:
            assert sorted(data_of(rest_of(messages))) == sorted({*range(8)} - handled)
    with sites["b"].subscribe_topic("orders", **wish(place_store)) as messages:
        for each in pick_up(messages, 5):
            each.ack()
    with sites["b"].subscribe_topic("orders", **wish(place_store)) as messages:
        sites["b"].publish("orders", 8)
        assert data_of(rest_of(messages)) == [8]
    # And a client of both knows what was handled there
    with (
        Client([world.address("a"), world.address("b")]) as client,
        client.subscribe_topic("orders", **wish(place_store)) as messages,
    ):
        assert data_of(rest_of(messages)) == [8]


def test_so_does_an_asyncio_client(world, place_store):
    sites = linked(world, "ab", "ba")
    publish(world, sites, range(8))
    with Client([world.address("a"), world.address("b")]) as client:
        handled = handle_some(client, place_store)

    async def main():
        async with AsyncClient(world.url("b"), instance=world.name("b")) as client:
            messages = await client.subscribe_topic("orders", **wish(place_store))
            async with messages:
                return [(await messages.get(5)).data for _ in range(5)], await messages.get(0.2)

    found, last = asyncio.run(main())
    assert sorted(found) == sorted({*range(8)} - handled)
    assert last is None


@pytest.mark.parametrize("ways", [("ab", "ba"), ("ab",), ("ba",)])
def test_a_place_that_a_client_of_the_other_instance_alone_kept_is_refused(world, place_store, ways):
    sites = linked(world, *ways)
    for number in range(4):
        sites["a"].publish("orders", number)
        sites["b"].publish("orders", 10 + number)
    log = key(world.name(ways[0][1]), "log", "orders")
    eventually(lambda: sites[ways[0][1]]._store.redis.xlen(log) == 8, 30)
    # Given a place of the first instance alone
    with sites["a"].subscribe_topic("orders", **wish(place_store)) as messages:
        pick_up(messages, 1)[0].ack()
    # When a client of the second subscribes under the name, then it is told why not, and nothing has changed
    with pytest.raises(DefinitionError, match=r"kept for the instance '.*-a' alone, and does not say where that is at"):
        sites["b"].subscribe_topic("orders", **wish(place_store))
    with sites["a"].subscribe_topic("orders", **wish(place_store)) as messages:
        first = pick_up(messages, 1)[0]
        assert first.data in (1, 10)
    # And another bookmark is taken, and gone on with from then on
    with sites["b"].subscribe_topic("orders", **wish(place_store) | {"bookmark": "epoch"}) as messages:
        pick_up(messages, 1)[0].ack()
        first = pick_up(messages, 1)[0]
    with sites["b"].subscribe_topic("orders", **wish(place_store)) as messages:
        assert pick_up(messages, 1)[0].data == first.data


def test_a_client_of_both_that_begins_there_makes_a_place_known_everywhere(world, place_store):
    sites = linked(world, "ab", "ba")
    publish(world, sites, range(8))
    handled = handle_some(sites["a"], place_store)
    # Given a client of both whose first instance is not the place's
    addresses = [world.address("a"), world.address("b")]
    with (
        Client(addresses[::-1]) as client,
        pytest.raises(DefinitionError, match="does not say where"),
    ):
        client.subscribe_topic("orders", **wish(place_store))
    # When one begins at the place's, then one of the other alone goes on as well
    with Client(addresses) as client, client.subscribe_topic("orders", **wish(place_store)) as messages:
        assert sorted(data_of(rest_of(messages))) == sorted({*range(8)} - handled)
    with sites["b"].subscribe_topic("orders", **wish(place_store)) as messages:
        assert sorted(data_of(rest_of(messages))) == sorted({*range(8)} - handled)


def test_a_place_at_which_nothing_was_read_yet_does_not_hinder(world, place_store):
    sites = linked(world, "ab", "ba")
    with sites["a"].subscribe_topic("orders", **wish(place_store)):
        pass
    publish(world, sites, range(4))
    with sites["b"].subscribe_topic("orders", **wish(place_store)) as messages:
        assert sorted(data_of(rest_of(messages))) == [0, 1, 2, 3]


def test_instances_that_have_nothing_in_common_may_use_one_file(world, place_store, caplog):
    sites = linked(world)
    for each in "ab":
        for number in range(2):
            sites[each].publish("orders", f"{each}{number}")
    with sites["a"].subscribe_topic("orders", **wish(place_store)) as messages:
        pick_up(messages, 1)[0].ack()
    # Then each has a place of its own, and it is said that one begins anew
    with (
        caplog.at_level(logging.WARNING, "ampsq"),
        sites["b"].subscribe_topic("orders", **wish(place_store)) as messages,
    ):
        pick_up(messages, 1)[0].ack()
    assert [record for record in caplog.messages if "begins anew at" in record and "no link between" in record]
    for each in "ab":
        with sites[each].subscribe_topic("orders", **wish(place_store)) as messages:
            assert data_of(rest_of(messages)) == [f"{each}1"]


def test_a_store_on_the_server_keeps_the_places_of_its_instance_alone(world):
    sites = linked(world, "ab", "ba")
    publish(world, sites, range(8))
    with Client([world.address("a"), world.address("b")]) as client:
        handle_some(client, RedisBookmarkStore())
    # Then elsewhere everything is new, as the documents say
    with sites["b"].subscribe_topic("orders", **wish(RedisBookmarkStore())) as messages:
        assert sorted(data_of(rest_of(messages))) == [*range(8)]


@pytest.mark.parametrize("kind", ["file", "memory", "server"])
def test_a_client_of_the_same_instance_alone_goes_on_behind_what_a_client_of_both_handled(world, kind, tmp_path):
    stores = {
        "file": lambda: SqliteBookmarkStore(tmp_path / "places.db"),
        "memory": MemoryBookmarkStore,
        "server": RedisBookmarkStore,
    }
    store = stores[kind]()
    sites = linked(world, "ab", "ba")
    publish(world, sites, range(8))
    with Client([world.address("a"), world.address("b")]) as client:
        handled = handle_some(client, store)
    # Then what was handled behind the place does not come again, either
    with sites["a"].subscribe_topic("orders", **wish(store)) as messages:
        assert sorted(data_of(rest_of(messages))) == sorted({*range(8)} - handled)
