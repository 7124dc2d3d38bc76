"""Operation of replication: what an operator sees of it, and does about it."""

from __future__ import annotations

import json

import pytest
from observing import eventually
from sites import shared, to

from ampsq import Instance
from ampsq.base.errors import DefinitionError, UnknownQueue
from ampsq.protocol.schema import key


def link_to(client, name):
    return next(
        link for link in client.admin.replication().links if (link.destination, link.direction) == (name, "out")
    )


def link_from(client, name):
    return next(link for link in client.admin.replication().links if (link.instance, link.direction) == (name, "in"))


def connected(client, name):
    return eventually(lambda: (link := link_to(client, name)).state == "connected" and link, 30)


def test_a_link_says_at_both_ends_who_is_there_and_what_it_brought(world):
    a = world.site("a", *shared(), Instance(group="NYC"), to(world, "b", pass_through=["^NYC$"]))
    b = world.site("b", Instance(group="LDN"), *shared(), to(world, "a"))
    a.publish_many("orders", [{"id": number} for number in range(30)])

    here = eventually(lambda: (link := link_to(a, "to-b")).messages == 30 and not link.behind and link, 30)

    assert (here.instance, here.group, here.state, here.acknowledgement) == (
        world.name("b"),
        "LDN",
        "connected",
        "async",
    )
    assert (here.behind, here.seconds_behind, here.pass_through, here.disconnects) == (0, 0, ("^NYC$",), 0)
    assert here.bytes >= 30 * len('{"id":1}')
    assert here.connected_for >= 0
    assert here.disconnected_ago is None
    there = eventually(lambda: (link := link_from(b, world.name("a"))).messages == 30 and link, 30)
    assert (there.destination, there.state, there.behind, there.address) == ("to-b", "connected", None, None)
    assert a.admin.replication().group == "NYC"


def test_the_direction_that_the_other_side_pulls_is_seen_as_well(world):
    a = world.site("a", *shared(), to(world, "b", name=world.name("b"), addresses=[]))
    b = world.site("b", *shared(), to(world, "a"))
    a.publish("orders", {"id": 1})

    here = eventually(lambda: (link := link_to(a, world.name("b"))).messages == 1 and link, 30)

    assert (here.state, here.instance) == ("connected", world.name("b"))
    assert link_from(b, world.name("a")).state == "connected"


def test_what_a_destination_lacks_is_counted_before_it_was_ever_reached(world):
    a = world.site("a", *shared(), coordinated=False)
    a.publish_many("orders", [{"id": number} for number in range(1500)])
    a.apply(to(world, "b"))

    link = link_to(a, "to-b")

    assert (link.state, link.behind, link.instance, link.connected_for) == ("silent", 1500, None, None)
    assert link.seconds_behind > 0


def test_a_destination_that_nobody_answers_for_waits_and_says_why(world):
    a = world.site("a", *shared(), to(world, "b", addresses=["unix:///tmp/nobody-is-here#b"]))

    link = eventually(lambda: (link := link_to(a, "to-b")).state == "waiting" and link, 30)

    assert "/tmp/nobody-is-here" in link.reason


def test_a_link_whose_coordinator_ended_is_silent_some_seconds_later(world):
    a = world.site("a", *shared(), to(world, "b"))
    world.site("b", *shared(), to(world, "a"), coordinated=False)
    connected(a, "to-b")

    world.leave("a")

    # Nothing is waited for: what it said last is as old as it would be then.
    redis, links = a._store.redis, key(world.name("a"), "links")
    said = json.loads(redis.hget(links, "out to-b"))
    redis.hset(links, "out to-b", json.dumps(said | {"at": said["at"] - 6_000}))
    assert link_to(a, "to-b").state == "silent"


def test_shared_queues_say_who_owns_what_and_how_much_changed_owner(world):
    a = world.site("a", *shared(), to(world, "b"))
    b = world.site("b", *shared(), to(world, "a"))
    a.publish_many("orders", [{"id": number} for number in range(5)])
    with b.subscribe("work", max_backlog=2) as messages:
        taken = [messages.get(30) for _ in range(2)]
        (there,) = eventually(lambda: (queues := b.admin.replication().queues)[0].elsewhere == 3 and queues, 30)
        (here,) = eventually(lambda: (queues := a.admin.replication().queues)[0].transferred_out == 2 and queues, 30)
        assert there.owners == {a.origin: 3}
        assert there.initial_owner == "origin"
        assert there.oldest > 0
        assert (there.transferred_in, there.transferred_out, there.proxied, there.deferred) == (2, 0, False, 0)
        assert (here.elsewhere, here.transferred_in) == (2, 0)
        stats = b.admin.queue_stats("work")
        assert (stats.remote, stats.transferred_in, stats.transferred_out, stats.depth) == (3, 2, 0, 2)
        for message in taken:
            message.ack()


def test_a_queue_of_an_instance_that_replicates_with_nobody_is_not_shown(world):
    a = world.site("a", *shared(), coordinated=False)

    assert a.admin.replication().as_dict() == {
        "instance": a.instance,
        "group": a.instance,
        "links": (),
        "queues": (),
        "recovery": None,
    }


def test_a_sync_destination_is_downgraded_and_upgraded_by_hand_and_seen_so(world):
    a = world.site("a", *shared(), to(world, "b", sync_type="sync"), coordinated=False)

    assert a.admin.downgrade_replication("to-b")
    assert link_to(a, "to-b").acknowledgement == "downgraded"
    assert not a.admin.downgrade_replication("to-b")
    assert a.admin.upgrade_replication("to-b")
    assert link_to(a, "to-b").acknowledgement == "sync"


def test_an_async_destination_cannot_be_downgraded(world):
    a = world.site("a", *shared(), to(world, "b"), coordinated=False)

    with pytest.raises(DefinitionError):
        a.admin.downgrade_replication("to-b")


def test_proxied_transfer_is_enabled_for_a_queue_that_is_there(world):
    a = world.site("a", *shared(), to(world, "b"), coordinated=False)

    a.admin.enable_proxied_transfer("work")
    assert a.admin.replication().queues[0].proxied
    a.admin.disable_proxied_transfer("work")
    assert not a.admin.replication().queues[0].proxied
    with pytest.raises(UnknownQueue):
        a.admin.enable_proxied_transfer("wrok")


def test_what_another_instance_owns_is_remote_before_anybody_subscribes_in_figures_and_report_alike(world):
    # Given messages of two instances, one upon the other, at a third one without any subscription
    names = "abc"
    clients = [
        world.site(at, *shared(), *(to(world, other, pass_through=[".*"]) for other in names if other != at))
        for at in names
    ]
    a, b, c = clients
    for number in range(40):
        (a if number % 4 else b).publish("orders", {"n": number})
    c.publish_many("orders", [{"n": number} for number in range(100, 105)])

    def counted(client):
        stats = client.admin.queue_stats("work")
        (reported,) = client.admin.replication().queues
        return stats.waiting + stats.ready, stats.remote, reported.elsewhere, sum(reported.owners.values())

    # Then each counts what it owns, and what others do
    for client, own in zip(clients, (30, 10, 5), strict=True):
        others = 45 - own
        eventually(lambda: counted(client) == (own, others, others, others), 30)  # noqa: B023  (called at once)
