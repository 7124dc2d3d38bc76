"""Ownership that an instance gains by its requests: no more than its consumers have room for."""

from __future__ import annotations

import re

import pytest

from ampsq.base.bookmarks import parse_ref
from ampsq.protocol.schema import VALUES, key


def owned(site):
    """Return the number of unleased messages an instance owns: those that wait behind its consumers."""
    return len(site.ready("work"))


def granted(owner, other):
    """Return the number of messages an owner journaled as somebody else's."""
    rows = owner.store.redis.xrange(key(owner.store.instance, "journal", "work"))
    told = [
        fields for _, fields in rows if fields[b"how"] == b"transferred" and fields[b"owner"].decode() == other.origin
    ]
    return sum(len(fields[b"refs"].split()) for fields in told)


def asking(site, fabric, seconds):
    return site.run("request_messages", fabric.now + 10_000 + round(seconds * 1_000), "work")


def said(site):
    """Return an instance's last request for its queue to others."""
    ((_, fields),) = site.store.redis.xrevrange(site.key("requests"), count=1)
    return {name.decode(): value.decode() for name, value in fields.items()}


def named(owner, site, fabric, seconds):
    """Return what an instance takes when an owner offers: arguments of the call that grants it, but the time."""
    assert asking(site, fabric, seconds)
    wish = said(site)
    head = (wish["queues"], wish["owner"], wish["shares"], wish["heard"], wish["place"], wish["wishes"])
    assert owner.run("offer_messages", fabric.now, *head)[0]
    offer = said(owner)
    bookmarks = offer["bookmarks"].split(" ")
    now = fabric.now + 10_000 + round(seconds * 1_000)
    head = (offer["queues"], offer["to"], offer["owner"], offer["offered"], offer["place"])
    assert site.run("claim_messages", now, *head, *bookmarks)
    claim = said(site)
    return ("work", claim["owner"], claim["rooms"], claim["heard"], *claim["bookmarks"].split(" "))


def test_a_slow_consumer_s_instance_owns_no_more_than_it_has_room_for(fabric, pair):
    a, b = pair
    # Given hundreds of messages, the first of which the owner's consumer holds
    at_a = a.subscribe("work", backlog=20)
    a.publish("orders", *(str(number) for number in range(400)))
    a.take(at_a, 20)
    fabric.run()

    # When a consumer of the other instance takes one at a time, and is slow
    at_b = b.subscribe("work", backlog=1)
    waiting, delivered = [], []
    for second in range(20):
        asking(b, fabric, second)
        fabric.run()
        delivered += b.bodies(at_b)
        waiting.append(owned(b))

    # Then nothing waits behind it there, and all the rest is the owner's
    assert delivered == ["20"]
    assert waiting == [0] * 20
    assert granted(a, b) == 1


def test_while_nothing_of_a_grant_comes_no_more_is_granted_than_there_was_room_for(fabric, pair):
    a, b = pair
    a.publish("orders", *(str(number) for number in range(400)))
    fabric.run()
    at_b = b.subscribe("work", backlog=2)

    # When what it takes comes, and the owner's journal does not
    claim = named(a, b, fabric, 0)
    for second in range(8):
        a.run("grant_messages", fabric.now, *claim)
        asking(b, fabric, second)
        fabric.links["b", "a"].step()
    at_once = granted(a, b)
    fabric.run()

    assert at_once == granted(a, b) == 2
    assert b.bodies(at_b) == ["0", "1"]
    assert owned(b) == 0


def test_what_was_named_beyond_the_room_is_granted_when_there_is_room_again(fabric):
    a, b = two_that_share(fabric)
    at_a = a.subscribe("work", backlog=20)
    a.publish("orders", *(str(number) for number in range(60)))
    a.take(at_a, 20)
    fabric.run()
    at_b = b.subscribe("work", backlog=1)

    # Given that one was granted after some seconds
    held = []
    while not held:
        fabric.now += 1_000
        b.run("request_messages", fabric.now, "work")
        fabric.run()
        held = b.take(at_b)

    # When each is settled within moments
    found = []
    for _ in range(15):
        found += [body for body, *_ in held]
        b.settle("acknowledged", at_b, *held)
        fabric.now += 10
        b.run("request_messages", fabric.now, "work")
        fabric.run()
        held = b.take(at_b)

    # Then the next one comes each time, in order
    assert found == [str(number) for number in range(20, 35)]


def two_that_share(fabric):
    """Two instances whose links have the fabric's time."""
    sites = fabric.site("a"), fabric.site("b")
    for site in sites:
        site.topic("orders")
        site.queue("work", "orders")
    fabric.join(*sites, clock=lambda: fabric.now)
    return sites


@pytest.mark.parametrize(("each", "rooms"), [(10, [4, 12, 28]), (375, [4, 9, 9]), (5_000, [4, 4, 4])])
def test_a_consumer_faster_than_a_grant_is_granted_what_it_settles_meanwhile(fabric, each, rooms):
    a, b = two_that_share(fabric)
    # Given a consumer with room for four, of whom each message takes that many ms, and grants that take two seconds
    a.publish("orders", *(str(number) for number in range(100)))
    fabric.run()
    at_b = b.subscribe("work", backlog=4)
    fabric.now += 1_000

    told = []
    for _ in rooms:
        b.run("request_messages", fabric.now, "work")
        told.append(int(said(b)["shares"].split(" ")[1]))
        fabric.now += 2_000
        fabric.run()
        while held := b.take(at_b, 1):
            fabric.now += each
            b.settle("acknowledged", at_b, *held)

    # Then who is slow is granted what it has room for
    assert told == rooms


def test_a_request_that_comes_again_or_late_is_granted_nothing_more(fabric, pair):
    a, b = pair
    a.publish("orders", *(str(number) for number in range(100)))
    fabric.run()
    at_b = b.subscribe("work", backlog=5)
    asked = [named(a, b, fabric, second) for second in range(2)]
    assert [len(each) - 4 for each in asked] == [5, 5]

    # Given that the first was granted, and is known there
    assert a.run("grant_messages", fabric.now, *asked[0]) == [5, 0]
    assert a.run("grant_messages", fabric.now, *asked[0]) == [0, 0]
    fabric.links["a", "b"].step()
    held = b.take(at_b)
    b.settle("acknowledged", at_b, *held)
    newest = named(a, b, fabric, 3)

    # When they come in any order
    counts = [a.run("grant_messages", fabric.now, *each)[0] for each in (asked[1], newest, asked[0], asked[1], newest)]

    # Then only who asked for more when it had room has more
    assert counts == [0, 5, 0, 0, 0]
    assert granted(a, b) == 10


def test_a_request_whose_owner_lost_what_it_granted_is_granted_again(fabric, pair):
    a, b = pair
    a.publish("orders", *(str(number) for number in range(10)))
    fabric.run()
    b.subscribe("work", backlog=3)
    asked, more = named(a, b, fabric, 0), named(a, b, fabric, 1)
    assert a.run("grant_messages", fabric.now, *asked) == [3, 0]

    # A new incarnation of either counts anew
    other = (asked[0], f"{b.name}.other", *asked[2:])
    assert a.run("grant_messages", fabric.now, *other) == [0, 0]
    assert a.run("grant_messages", fabric.now, *more) == [0, 0]
    beyond = a.publish("orders", "11", "12")
    assert a.run("grant_messages", fabric.now, more[0], f"{b.name}.other", *more[2:4], *beyond)[0] == 2


def test_what_was_heard_of_an_owner_s_former_incarnation_is_heard(fabric, pair):
    a, b = pair
    a.publish("orders", *(str(number) for number in range(10)))
    fabric.run()
    b.subscribe("work", backlog=3)
    first = named(a, b, fabric, 0)
    assert a.run("grant_messages", fabric.now, *first) == [3, 0]
    second = (*first[:4], *a.publish("orders", "11", "12", "13"))
    ((last, _),) = a.store.redis.xrevrange(a.key("journal", "work"), count=1)

    # A server that was emptied may journal under IDs that are still its former incarnation's
    heard = f"{a.name}.before~{last.decode()}"

    assert a.run("grant_messages", fabric.now, *second[:3], heard, *second[4:])[0] == 3


def test_who_does_not_say_for_how_many_it_has_room_is_granted_nothing(fabric, pair):
    a, b = pair
    a.publish("orders", "1")
    fabric.run()
    b.subscribe("work")
    b.ask("work")
    ((_, fields),) = b.store.redis.xrange(b.key("requests"))
    b.store.redis.delete(b.key("requests"))
    bookmarks = f"orders~{a.origin}~1-1"
    fields = {name: fields[name] for name in (b"queues", b"owner")} | {b"bookmarks": bookmarks}
    b.store.redis.xadd(b.key("requests"), fields)

    fabric.run()

    assert granted(a, b) == 0
    assert a.bodies(a.subscribe("work")) == ["1"]


@pytest.mark.parametrize("backlog", [1, 3])
def test_the_room_is_divided_among_the_owners_that_are_asked(fabric, backlog):
    sites = a, b, c = fabric.site("a"), fabric.site("b"), fabric.site("c")
    for site in sites:
        site.topic("orders")
        site.queue("work", "orders")
    fabric.join(*sites)
    # Given that the oldest are held where they are
    at_a = a.subscribe("work", backlog=6)
    a.publish("orders", *(f"a{number}" for number in range(6)))
    a.take(at_a, 6)
    fabric.run()
    for number in range(10):
        for site in (a, b):
            site.publish("orders", f"{site.name} free {number}")
            fabric.run()
    at_c = c.subscribe("work", backlog=backlog)

    # Then what is asked for in one call is for as many as there is room, and both owners are asked in time
    found = []
    for second in range(12):
        if asking(c, fabric, second):
            rooms = dict(part.rsplit(" ", 1) for part in re.findall(r"\S+ \d+", said(c)["shares"]))
            assert sum(map(int, rooms.values())) == backlog
            assert rooms.keys() <= {a.origin, b.origin}
        fabric.run()
        assert owned(c) == 0
        held = c.take(at_c)
        found += [body for body, *_ in held]
        if held:
            c.settle("acknowledged", at_c, *held)
            fabric.run()
    assert {body[:6] for body in found} == {"a free", "b free"}


def test_what_waits_here_takes_room_from_what_is_asked_for(fabric, pair):
    a, b = pair
    a.publish("orders", *(str(number) for number in range(10)))
    fabric.run()
    b.subscribe("work", backlog=3)
    # Given two messages that a dispatch left to the timetable
    b.publish("orders", "mine")
    refs = [ref.decode() for ref in b.store.redis.zrange(b.key("remote", "work"), 0, 1)]
    assert [parse_ref(ref)[0] for ref in refs] == ["orders", "orders"]
    b.store.redis.zadd(b.key("due"), {"dispatch work": fabric.now})
    b.store.redis.zadd(b.key("ready", "work"), dict.fromkeys(refs, 0))

    # One is leased, two wait: there is room for none
    assert asking(b, fabric, 0) == 0

    b.store.redis.zrem(b.key("ready", "work"), *refs)
    assert asking(b, fabric, 0) == 2


def test_an_instance_is_asked_for_what_its_last_incarnation_published(fabric):
    # Given many messages of one instance, among them a few of another one, whose incarnation is over
    a, b, c = (fabric.site(name) for name in "abc")
    for site in (a, b, c):
        site.topic("orders")
        site.queue("work", "orders")
    fabric.link(a, b, "orders", queues=("work",))
    fabric.link(c, b, "orders", queues=("work",))
    for number in range(5):
        c.publish("orders", *["other"] * 100)
        if number == 3:
            fabric.run()
            a.publish("orders", "few")
            fabric.run()
    fabric.run()
    b.store.redis.hset(b.key("received"), f"log orders@{a.origin}", f"{VALUES['last_id']} -")
    # When somebody is free, then both are asked, each time. An instance answers to the names of its incarnations too:
    # where one of its messages is looked at, which depends on the time, the request names the incarnation that is over.
    b.subscribe("work", backlog=4)
    for seconds in range(0, 40, 8):
        assert asking(b, fabric, seconds)
        asked = {share.split(" ")[0] for share in re.findall(r"\S+ \d+", said(b)["shares"])}
        assert asked in ({"a", c.origin}, {a.origin, c.origin})
