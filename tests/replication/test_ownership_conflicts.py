"""Messages that were published twice, and transfers that contradict each other: one owner, everywhere the same."""

from __future__ import annotations

import pytest

from ampsq.base.errors import Gap


def test_what_a_publisher_sent_to_two_instances_is_one_message(fabric, pair):
    a, b = pair
    a.publish("orders", "1", "2", publisher="p", sequence=1)
    fabric.links["a", "b"].step()
    a.publish("orders", "3", publisher="p", sequence=3)
    # It fails over before that was replicated, and sends it again
    b.publish("orders", "3", publisher="p", sequence=3)
    fabric.run()

    assert [row[0] for row in a.log("orders")] == ["1", "2", "3"]
    assert [row[0] for row in b.log("orders")] == ["1", "2", "3"]


def test_a_message_published_twice_is_owned_by_the_lower_id_s_origin_and_settled_once(fabric, pair):
    a, b = pair
    a.publish("orders", "1", publisher="p", sequence=1)
    fabric.now += 5
    b.publish("orders", "1", publisher="p", sequence=1)
    fabric.run()
    at_a, at_b = a.subscribe("work"), b.subscribe("work")

    assert b.bodies(at_b) == []
    a.settle("acknowledged", at_a, *a.take(at_a))
    fabric.run()

    assert b.journal("work") == [("acknowledged", ["1"])]
    assert b.remote("work") == b.ready("work") == []


def transfer(a, owner, epoch, bookmark, by=None):
    """A row of a journal that makes somebody the owner."""
    source = f"{(by or a).origin}~9-0"
    return (source, "x/x", "transferred", "", "", "", "", owner.origin, str(epoch), 1, bookmark)


def test_of_two_transfers_of_one_epoch_that_of_the_higher_origin_counts_everywhere(fabric):
    sites = a, b, c = fabric.site("a"), fabric.site("b"), fabric.site("c")
    for site in sites:
        site.topic("orders")
        site.queue("work", "orders")
    fabric.link(a, b, "orders")
    fabric.link(a, c, "orders")
    (bookmark,) = a.publish("orders", "1")
    fabric.run()
    rows = transfer(a, b, 1, bookmark, by=b), transfer(a, c, 1, bookmark, by=c)

    for row in rows:
        a.run("apply_journal", fabric.now, "work", "", *row)
    d = fabric.site("d")
    d.topic("orders")
    d.queue("work", "orders")
    fabric.link(a, d, "orders").step()
    for row in reversed(rows):
        d.run("apply_journal", fabric.now, "work", "", *row)

    owners = [site.store.redis.hvals(site.key("owners", "work")) for site in (a, d)]
    assert owners[0] == owners[1] == [f"{c.origin} 1 {c.origin}".encode()]


def test_a_call_that_begins_behind_what_is_here_is_refused(fabric, pair):
    a, b = pair
    (bookmark,) = a.publish("orders", "1")
    stream_id = bookmark.rpartition("~")[2]
    late = ("apply_log", fabric.now, 0, "orders", a.origin, "-", "a/a", stream_id, "9999999999999-0", 0, 0)

    with pytest.raises(Gap):
        b.run(*late)
    with pytest.raises(Gap):
        b.run("apply_journal", fabric.now, "work", f"{a.origin} 5-0", *transfer(a, b, 1, bookmark))

    assert not b.store.redis.exists(b.key("received"))


def test_a_lower_bookmark_voids_what_was_transferred_under_the_higher_one(fabric):
    sites = a, b, c = fabric.site("a"), fabric.site("b"), fabric.site("c")
    for site in sites:
        site.topic("orders")
        site.queue("work", "orders")
    a.publish("orders", "1", publisher="p", sequence=1)
    fabric.now += 5
    b.publish("orders", "1", publisher="p", sequence=1)
    # b grants its copy to c before it hears of a's
    for one, other in ((b, c), (c, b)):
        fabric.link(one, other, "orders", queues=["work"], pass_through=[".*"])
    fabric.run()
    at_c = c.subscribe("work")
    c.ask("work")
    fabric.run()
    held = c.take(at_c)
    assert [body for body, *_ in held] == ["1"]

    fabric.join(a, b, c, pass_through=[".*"])
    fabric.run()

    # One owner from now on, and what c holds ends the message everywhere
    assert [site.store.redis.hlen(site.key("owners", "work")) for site in sites] == [0, 0, 0]
    c.settle("acknowledged", at_c, *held)
    fabric.run()
    at_a = a.subscribe("work")
    assert a.bodies(at_a) == []
    assert [site.remote("work") for site in sites] == [[], [], []]


def test_every_bookmark_of_a_message_is_passed_on(fabric):
    sites = a, b, c = fabric.site("a"), fabric.site("b"), fabric.site("c")
    for site in sites:
        site.topic("orders")
        site.queue("work", "orders")
    a.publish("orders", "1", publisher="p", sequence=1)
    fabric.now += 5
    b.publish("orders", "1", publisher="p", sequence=1)
    for one, other in ((a, b), (b, a), (b, c), (c, b)):
        fabric.link(one, other, "orders", queues=["work"], pass_through=[".*"])

    fabric.run()
    at_a = a.subscribe("work")
    a.settle("acknowledged", at_a, *a.take(at_a))
    fabric.run()

    assert [row[0] for row in c.log("orders")] == ["1"]
    assert c.remote("work") == c.ready("work") == []
    assert c.journal("work") == [("acknowledged", ["1"])]


def test_what_was_published_twice_and_trimmed_since_does_not_come_again(fabric, pair):
    a, b = pair
    a.run("define_destination", a.version(), "b", "{}", 0)
    for each in (a, b):
        session = each.run("logon", fabric.now, "p", "c", 1, "", "")[0]
        each.run("publish", fabric.now, "orders", "p", f"{session} 1", "b", "1")
    a.store.redis.xtrim(a.key("log", "orders"), maxlen=0)

    fabric.links["b", "a"].step()

    assert a.log("orders") == []
