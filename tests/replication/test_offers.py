"""Offers of an owner to an instance that is free elsewhere, and what that one takes of it."""

from __future__ import annotations

import json

from ampsq.expressions import parse
from ampsq.protocol.limits import KEEP_FILTER, MAX_FILTERS
from ampsq.protocol.schema import key


def asked(site, fabric, later=10_000):
    """Let an instance ask; gives for how many."""
    return site.run("request_messages", fabric.now + later, "work")


def bodies(first, last, **more):
    return [json.dumps({"n": number, **more}) for number in range(first, last)]


def published(site, fabric, count, **more):
    for first in range(0, count, 500):
        site.publish("orders", *bodies(first, min(first + 500, count), **more))
    # A step of which nothing passes a filter, or whose call still runs, moves nothing.
    for _ in range(4):
        fabric.run()


def filters(site):
    """Names of filters that a queue has indexes for."""
    return {
        name.decode().partition(" ")[2]
        for name in site.store.redis.hkeys(key(site.store.instance, "filters", "work"))
        if name.startswith(b"filter ")
    }


def wish(site, by, lines, *, room=5, place="", now=None):
    """Let an owner offer: what the call gives."""
    texts = "\n".join(f"{each.id} 5 {each.json}" if each else "none 5 " for each in lines)
    shares = f"{site.origin} {room}"
    return site.run("offer_messages", now or site.fabric.now, "work", by.origin, shares, "", place, texts)


def test_what_a_filter_keeps_from_an_instance_does_not_hide_what_it_has(fabric):
    a, b = fabric.site("a"), fabric.site("b")
    for site in (a, b):
        site.topic("orders")
        site.queue("work", "orders")
    # Given that of 1,500 messages the last three come to the other instance
    fabric.link(a, b, "orders", queues=["work"], filters={"orders": "/n >= 1497"})
    fabric.link(b, a, "orders", queues=["work"])
    published(a, fabric, 1_500)
    at_b = b.subscribe("work", backlog=2)
    assert len(b.log("orders")) == 3

    asked(b, fabric)
    fabric.run()

    # Then it gets two of these, and none of all others is its own
    assert [json.loads(body)["n"] for body in b.bodies(at_b)] == [1_497, 1_498]
    assert [how for how, _ in a.journal("work")] == ["transferred"]


def test_what_lies_before_the_begin_of_a_queue_stays_with_its_owner(fabric):
    a, b = fabric.site("a"), fabric.site("b")
    for site in (a, b):
        site.topic("orders")
        site.queue("work", "orders")
    fabric.link(a, b, "orders", queues=["work"])
    fabric.link(b, a, "orders", queues=["work"])
    published(a, fabric, 600)
    # Given a queue that begins behind what is there, at the other instance
    last = b.store.redis.xrevrange(b.key("log", "orders"), count=1)[0][0].decode()
    b.store.redis.hset(key(b.store.instance, "cursors", "work"), "orders", f"{last} 600")
    a.publish("orders", *bodies(600, 603))
    fabric.run()
    at_b = b.subscribe("work", backlog=5)

    asked(b, fabric)
    fabric.run()

    assert [json.loads(body)["n"] for body in b.bodies(at_b)] == [600, 601, 602]
    assert sum(len(named) for how, named in a.journal("work") if how == "transferred") == 3


def test_an_offer_alone_changes_no_owner(fabric, pair):
    a, b = pair
    published(a, fabric, 10)

    assert wish(a, b, [None]) == [5, 0]

    assert len(a.ready("work")) == 10
    assert a.journal("work") == []


def test_an_offer_to_somebody_else_is_nothing_to_an_instance(fabric, pair):
    a, b = pair
    (bookmark,) = a.publish("orders", "1")
    fabric.run()
    b.subscribe("work")
    before = b.store.redis.xlen(b.key("requests"))

    assert b.run("claim_messages", fabric.now, "work", "c.one", a.origin, 5, "", bookmark) == 0
    assert b.store.redis.xlen(b.key("requests")) == before
    assert b.run("claim_messages", fabric.now, "work", b.origin, a.origin, 5, "", bookmark) == 1


def test_a_filter_that_another_instance_asks_with_is_kept_for_a_while_and_then_the_queue_is_plain_again(fabric, pair):
    a, b = pair
    published(a, fabric, 50)
    chosen = parse("/n >= 48", "filter")

    assert wish(a, b, [chosen]) == [2, 0]
    assert filters(a) == {chosen.id}
    assert len(a.store.redis.zrange(a.key("sorted", "work", chosen.id), 0, -1)) == 2

    fabric.now += KEEP_FILTER + 1
    a.sweep()
    assert filters(a) == set()
    assert len(a.ready("work")) == 50
    assert len(a.bodies(a.subscribe("work", backlog=50), 50)) == 50


def test_filters_asked_with_elsewhere_leave_room_for_those_of_subscriptions(fabric, pair):
    a, b = pair
    published(a, fabric, 5)
    others = [parse(f"/n = {number} OR /n = 1", "filter") for number in range(MAX_FILTERS + 1)]
    for each in others[:-1]:
        wish(a, b, [each])

    # One more waits, while the others are asked with
    assert wish(a, b, [others[-1]]) == [0, 0]
    assert len(filters(a)) == MAX_FILTERS

    # A subscription does not, and what was not asked with for a while makes room
    a.subscribe("work", filter="/n = 4")
    assert len(filters(a)) == MAX_FILTERS
    fabric.now += 20_000
    assert wish(a, b, [others[-1]])[0] > 0
