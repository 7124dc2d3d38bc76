"""Instances of one name: a destination that leads to its own instance, or to another of the same name, is refused."""

from __future__ import annotations

import asyncio
import time

import pytest
from observing import eventually
from sites import shared, to

from ampsq import AsyncClient, Client, Destination, Instance, MemoryPublishStore
from ampsq.base.errors import DefinitionError, NotPersisted
from ampsq.protocol.calls import catalog as catalog_calls
from ampsq.protocol.calls import definitions as define_calls
from ampsq.protocol.schema import key

#: Seconds: far less than what a publisher would wait for a destination that is only late.
AT_ONCE = 5.0


def define_unchecked(client, destination):
    """Define a destination as a version did that did not look at names."""
    version = client._store.call(catalog_calls.catalog()).version
    call = define_calls.define_destination(
        version, destination.name, destination.to_json(), is_sync=destination.sync_type == "sync"
    )
    client._store.call(call)


@pytest.fixture
def namesake(world):
    """Another instance called as `a` is, on a server of the other kind."""
    with Client(world.url("b"), instance=world.name("a")) as client:
        client.apply(*shared())
        yield client


def leading_to_a(world, short, **elements):
    """A destination of `a` that leads to an instance of its name on the server that ``short`` is on."""
    address = f"{world.url(short)}#{world.name('a')}"
    return Destination(**{"name": "x", "sync_type": "sync", "topics": ["orders"], "addresses": [address]} | elements)


# --- when it is applied


@pytest.mark.parametrize("short", ["a", "b"])
def test_a_destination_whose_address_names_its_own_instance_is_refused_when_it_is_applied(world, short):
    client = world.site("a", coordinated=False)
    wrong = leading_to_a(world, short)
    several = leading_to_a(world, short, addresses=[world.address("c"), *wrong.addresses])

    for refused in (wrong, several):
        with pytest.raises(DefinitionError) as told:
            client.apply(refused)
        assert str(told.value).startswith(f"Destination 'x': addresses: {wrong.addresses[0]} names this instance")
        assert told.value.definition == refused

    assert client.admin.destinations() == {}


def test_a_destination_that_is_called_as_its_own_instance_is_refused_where_the_name_counts(world):
    client = world.site("a", coordinated=False)
    own = world.name("a")
    for wrong in ({"addresses": ["redis://elsewhere"]}, {"addresses": []}):
        with pytest.raises(DefinitionError, match=rf"Destination '{own}': .*allowed: .*the name of another instance"):
            client.apply(leading_to_a(world, "a", name=own, **wrong))

    # It is a name like any other where the addresses name their instances, or the group says who is meant.
    named = Destination(name=own, sync_type="async", topics=["orders"], addresses=[world.address("b")])
    client.apply(named)
    assert client.admin.destinations() == {own: named}
    grouped = Destination(name=own, sync_type="async", topics=["orders"], group="NYC")
    client.apply(grouped)
    assert client.admin.destinations() == {own: grouped}


def test_it_is_refused_for_who_awaits_too(world):
    async def work():
        async with AsyncClient(world.url("a"), instance=world.name("a")) as client:
            with pytest.raises(DefinitionError, match="names this instance"):
                await client.apply(leading_to_a(world, "b"))
            return await client.admin.destinations()

    assert asyncio.run(work()) == {}


# --- when it is found by the link


def refusal_of(world, client):
    """Return the reason of the refused link to the destination `x`, here and in the report."""
    eventually(lambda: (world.link_of("a", "out x") or {}).get("state") == "refused", within=20)
    (link,) = [each for each in client.admin.replication().links if each.destination == "x"]
    assert (link.state, link.connected_for) == ("refused", None)
    assert link.reason == world.link_of("a", "out x")["reason"]
    return link.reason


def test_a_link_to_its_own_instance_is_refused_and_says_so(world):
    client = world.site("a", *shared())
    define_unchecked(client, leading_to_a(world, "a"))

    assert refusal_of(world, client).startswith(f"x leads to {world.name('a')!r} itself")


def test_a_link_to_an_instance_of_the_same_name_is_refused_and_says_so(world, namesake):
    client = world.site("a", *shared())
    client.publish("orders", 1)
    define_unchecked(client, leading_to_a(world, "b"))

    assert refusal_of(world, client).startswith(f"x leads to another instance that is called {world.name('a')!r}, too")
    assert namesake._store.redis.xlen(key(namesake.instance, "log", "orders")) == 0
    assert namesake.admin.replication().links == ()


def test_who_waits_to_be_connected_to_by_a_namesake_is_told(world, namesake):
    client = world.site("a", *shared())
    namesake.apply(Destination(name="chicago", sync_type="sync", topics=["orders"], group=world.name("a")))
    define_unchecked(client, leading_to_a(world, "b"))

    eventually(lambda: [each.state for each in namesake.admin.replication().links] == ["refused"], within=20)
    (link,) = namesake.admin.replication().links
    assert (link.destination, link.direction) == ("chicago", "out")
    assert f"another instance that is called {world.name('a')!r}, too" in link.reason


@pytest.mark.usefixtures("namesake")
def test_a_destination_whose_first_address_leads_to_a_namesake_goes_on_to_the_next_one(world):
    client = world.site("a", *shared())
    # No link has come from it, so that it is not tried before the other one.
    world.site("c", *shared(to(world, "a", topics=["orders"])), coordinated=False)
    wrong = leading_to_a(world, "b").addresses
    define_unchecked(client, leading_to_a(world, "b", addresses=[*wrong, world.address("c")]))

    eventually(lambda: (world.link_of("a", "out x") or {}).get("state") == "connected", within=30)
    assert world.link_of("a", "out x")["instance"] == world.name("c")
    with (
        Client(world.url("a"), instance=world.name("a")) as source,
        source.publisher("till", store=MemoryPublishStore()) as publisher,
    ):
        sequence = publisher.publish("orders", 1).sequence
        publisher.flush("30s")
        assert publisher.last_persisted == sequence


@pytest.mark.usefixtures("namesake")
def test_a_namesake_is_final_only_where_no_other_address_is_left(world):
    client = world.site("a", *shared())
    wrong = leading_to_a(world, "b").addresses
    nobody = "unix:///nobody/is/here#other"
    define_unchecked(client, leading_to_a(world, "b", addresses=[*wrong, nobody]))

    # Whom nobody answers for may come: that is waited for, and both are told.
    def link():
        return world.link_of("a", "out x") or {}

    eventually(lambda: "another instance that is called" in link().get("reason", ""), within=30)
    assert "nobody" in link()["reason"]
    assert (link()["state"], link()["is_final"]) == ("waiting", False)
    with (
        Client(world.url("a"), instance=world.name("a"), retry_timeout=0.1) as source,
        source.publisher("till", store=MemoryPublishStore()) as publisher,
    ):
        publisher.publish("orders", 1)
        begun = time.monotonic()
        with pytest.raises(NotPersisted, match="another instance that is called"):
            publisher.flush("2s")
        assert time.monotonic() - begun >= 2.0
        client.admin.remove_destination("x")
        publisher.flush("30s")

    both = [*wrong, leading_to_a(world, "a").addresses[0]]
    define_unchecked(client, leading_to_a(world, "b", addresses=both))
    eventually(lambda: link().get("is_final"), within=30)
    assert (link()["state"], link()["address"]) == ("refused", ", ".join(map(str, both)))


# --- what a publisher is told


@pytest.mark.usefixtures("namesake")
@pytest.mark.parametrize(
    ("short", "reason"), [("a", "itself"), ("b", "another instance that is called")], ids=["itself", "namesake"]
)
def test_flush_raises_at_once_where_a_sync_destination_never_has_a_second_copy(world, short, reason):
    client = world.site("a", *shared())
    define_unchecked(client, leading_to_a(world, short))
    refusal_of(world, client)
    with (
        Client(world.url("a"), instance=world.name("a")) as source,
        source.publisher("till", store=MemoryPublishStore()) as publisher,
    ):
        sequence = publisher.publish("orders", 1).sequence
        for timeout in (None, "60s"):
            begun = time.monotonic()
            with pytest.raises(NotPersisted, match=rf"sync destination 'x' .*{reason}") as told:
                publisher.flush(timeout)
            assert time.monotonic() - begun < AT_ONCE
            assert "after 60 s" not in str(told.value)
        assert (told.value.first, told.value.last) == (sequence, sequence)

        client.admin.remove_destination("x")
        publisher.flush("30s")
        assert publisher.last_persisted == sequence


@pytest.mark.usefixtures("namesake")
def test_flush_raises_at_once_for_who_awaits_too(world):
    client = world.site("a", *shared())
    define_unchecked(client, leading_to_a(world, "b"))
    refusal_of(world, client)

    async def work():
        async with (
            AsyncClient(world.url("a"), instance=world.name("a")) as source,
            source.publisher("till", store=MemoryPublishStore()) as publisher,
        ):
            await publisher.publish("orders", 1)
            begun = time.monotonic()
            with pytest.raises(NotPersisted, match=r"sync destination 'x' .*another instance that is called"):
                await publisher.flush()
            took = time.monotonic() - begun
            await asyncio.to_thread(client.admin.remove_destination, "x")
            await publisher.flush("30s")
            return took

    assert asyncio.run(work()) < AT_ONCE


@pytest.mark.usefixtures("namesake")
def test_flush_goes_on_waiting_once_the_destination_has_another_address(world):
    client = world.site("a", *shared())
    define_unchecked(client, leading_to_a(world, "b"))
    refusal_of(world, client)
    world.site("c", *shared(to(world, "a", topics=["orders"])))
    with (
        Client(world.url("a"), instance=world.name("a")) as source,
        source.publisher("till", store=MemoryPublishStore()) as publisher,
    ):
        sequence = publisher.publish("orders", 1).sequence
        with pytest.raises(NotPersisted):
            publisher.flush()

        client.apply(leading_to_a(world, "b", addresses=[world.address("c")]))
        publisher.flush("30s")
        assert publisher.last_persisted == sequence


# --- the group of a destination that says none


def test_a_destination_without_group_has_the_group_of_the_instance_that_it_finds(world):
    """`a` passes on to `b` what comes from the group of `c`, which only `c` says."""
    a = world.site(
        "a",
        *shared(),
        to(world, "b", pass_through=["^Three$"]),
        to(world, "c", pass_through=[".*"]),
        coordinated=False,
    )
    world.site("b", Instance(group="Two"), *shared(), to(world, "a", pass_through=[".*"]))
    world.site("c", Instance(group="Three"), *shared(), to(world, "a", pass_through=[".*"]))
    world.coordinate("a")

    def states():
        return {each.destination: each.state for each in a.admin.replication().links if each.direction == "out"}

    eventually(lambda: states() == {"to-b": "connected", "to-c": "connected"}, within=30)


def test_a_link_is_refused_once_a_group_is_found_that_it_does_not_pass_on(world):
    a = world.site("a", *shared(), to(world, "b", pass_through=["^other$"]), to(world, "c", pass_through=[".*"]))
    world.site("b", *shared(), to(world, "a", pass_through=[".*"]))
    world.site("c", Instance(group="Three"), *shared(), to(world, "a", pass_through=[".*"]))

    def reason():
        (link,) = [
            each for each in a.admin.replication().links if (each.destination, each.direction) == ("to-b", "out")
        ]
        return link.reason or ""

    eventually(lambda: "arrives at" in reason() and "from the group 'Three'" in reason(), within=30)
