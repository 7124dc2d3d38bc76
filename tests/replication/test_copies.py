"""Copying logs: what a copy is, that it comes once, in order, and by which ways."""

from __future__ import annotations

import pytest

from ampsq.base.errors import DestinationAhead, OtherFilter, SequenceGap
from ampsq.protocol.reads.streams import log_of
from ampsq.replication import link_sender as sending


def test_a_copy_has_the_body_and_the_bookmark_of_its_message_everywhere(fabric):
    a, b = fabric.site("a"), fabric.site("b")
    for site in (a, b):
        site.topic("orders")
    fabric.join(a, b, queues=())

    bookmarks = a.publish("orders", "1", "2", "3")
    fabric.run()

    assert [row[:2] for row in a.log("orders")] == list(zip("123", bookmarks, strict=True))
    assert b.log("orders") == [(body, each, "a.one/a") for body, each in zip("123", bookmarks, strict=True)]


def test_each_instance_keeps_the_order_in_which_it_received(fabric):
    a, b = fabric.site("a"), fabric.site("b")
    for site in (a, b):
        site.topic("orders")
    fabric.join(a, b, queues=())

    a.publish("orders", "a1")
    b.publish("orders", "b1")
    fabric.run()
    a.publish("orders", "a2")
    fabric.run()

    assert [row[0] for row in a.log("orders")] == ["a1", "b1", "a2"]
    assert [row[0] for row in b.log("orders")] == ["b1", "a1", "a2"]


def test_what_comes_late_or_twice_changes_nothing(fabric):
    a, b = fabric.site("a"), fabric.site("b")
    for site in (a, b):
        site.topic("orders")
    link = fabric.link(a, b, "orders")
    a.publish("orders", "1", "2")
    link.step()

    # The link forgets where it was: everything is sent again
    a.store.redis.delete(a.key("sent", "b"))
    b_log = b.log("orders")
    again = fabric.link(a, b, "orders")
    again._places[log_of("orders")] = (0, 0)
    again.step()

    assert b.log("orders") == b_log


def test_messages_of_several_topics_come_in_the_order_of_the_source(fabric):
    a, b = fabric.site("a"), fabric.site("b")
    for site in (a, b):
        site.topic("orders")
        site.topic("trades")
    for i in range(6):
        a.publish(("orders", "trades")[i % 2], str(i))

    fabric.link(a, b, "orders", "trades").step()

    found = [
        (entry, fields[b"b"])
        for topic in ("orders", "trades")
        for entry, fields in b.store.redis.xrange(b.key("log", topic))
    ]
    order = sorted(found, key=lambda row: tuple(map(int, row[0].split(b"-"))))
    assert [body for _, body in order] == [b"0", b"1", b"2", b"3", b"4", b"5"]


def test_two_routes_bring_each_message_once_and_none_comes_back(fabric):
    a, b, c = fabric.site("a"), fabric.site("b"), fabric.site("c")
    for site in (a, b, c):
        site.topic("orders")
    fabric.join(a, b, c, queues=(), pass_through=[".*"])

    for site in (a, b, c):
        site.publish("orders", f"{site.name}1", f"{site.name}2")
    fabric.run()

    for site in (a, b, c):
        assert sorted(row[0] for row in site.log("orders")) == ["a1", "a2", "b1", "b2", "c1", "c2"]


def test_without_pass_through_only_what_was_published_there_is_sent(fabric):
    a, b, c = fabric.site("a"), fabric.site("b"), fabric.site("c")
    for site in (a, b, c):
        site.topic("orders")
    fabric.link(a, b, "orders")
    fabric.link(b, c, "orders")

    a.publish("orders", "a1")
    b.publish("orders", "b1")
    fabric.run()

    assert [row[0] for row in c.log("orders")] == ["b1"]


def test_pass_through_goes_by_the_group_that_a_message_directly_came_from(fabric):
    sites = [fabric.site(name, group) for name, group in (("a", "one"), ("b", "two"), ("c", "three"), ("d", "four"))]
    a, b, c, d = sites
    for site in sites:
        site.topic("orders")
    fabric.link(a, b, "orders")
    fabric.link(b, c, "orders", pass_through=["^one$"])
    # What c has came to it from group two, wherever it was published
    fabric.link(c, d, "orders", pass_through=["^one$"])

    a.publish("orders", "a1")
    fabric.run()

    assert c.log("orders")[0][2] == "b.one/two a.one/one"
    assert d.log("orders") == []


def test_a_filter_lets_through_what_matches_and_the_place_goes_on(fabric):
    a, b = fabric.site("a"), fabric.site("b")
    for site in (a, b):
        site.topic("orders")
    link = fabric.link(a, b, "orders", filters={"orders": "/x > 1"})

    a.publish("orders", '{"x":1}', '{"x":2}', '{"x":0}')
    link.step()

    assert [row[0] for row in b.log("orders")] == ['{"x":2}']
    last = a.store.redis.xrevrange(a.key("log", "orders"), count=1)[0][0]
    received = b.store.redis.hget(b.key("received"), f"log orders@{a.origin}")
    assert received.split(b" ")[0] == last


def test_a_second_route_with_another_filter_is_refused(fabric):
    a, b, c = fabric.site("a"), fabric.site("b"), fabric.site("c")
    for site in (a, b, c):
        site.topic("orders")
    fabric.link(a, c, "orders", filters={"orders": "/x > 1"}).step()
    fabric.link(a, b, "orders")
    through = fabric.link(b, c, "orders", pass_through=["a"])
    a.publish("orders", '{"x":1}', '{"x":2}')
    fabric.links["a", "c"].step()
    fabric.links["a", "b"].step()

    with pytest.raises(OtherFilter):
        through.step()

    assert [row[0] for row in c.log("orders")] == ['{"x":2}']


def test_a_widened_filter_brings_what_was_kept_out_and_nothing_twice(fabric):
    a, b = fabric.site("a"), fabric.site("b")
    for site in (a, b):
        site.topic("orders")
    a.publish("orders", '{"x":1}', '{"x":2}', '{"x":3}')
    fabric.link(a, b, "orders", filters={"orders": "/x > 1"}).step()

    wide = fabric.link(a, b, "orders", filters={"orders": "/x > 0"})
    wide.step()
    a.publish("orders", '{"x":0}', '{"x":4}')
    fabric.run()

    assert [row[0] for row in b.log("orders")] == ['{"x":2}', '{"x":3}', '{"x":1}', '{"x":4}']


def test_a_link_goes_on_from_what_the_destination_has(fabric):
    a, b = fabric.site("a"), fabric.site("b")
    for site in (a, b):
        site.topic("orders")
    a.publish("orders", "1", "2")
    fabric.link(a, b, "orders").step()

    # The destination lost everything: it is sent again
    for name in b.store.redis.scan_iter("{" + b.store.instance + "}:*"):
        b.store.redis.delete(name)
    b.run("open", fabric.now, "b", "one")
    b.topic("orders")
    a.publish("orders", "3")
    fabric.link(a, b, "orders").step()

    assert [row[0] for row in b.log("orders")] == ["1", "2", "3"]


def test_a_source_that_lost_what_it_had_sent_is_told_of(fabric):
    a, b = fabric.site("a"), fabric.site("b")
    for site in (a, b):
        site.topic("orders")
    a.publish("orders", "1", "2")
    fabric.link(a, b, "orders").step()
    a.store.redis.delete(a.key("log", "orders"))

    with pytest.raises(DestinationAhead, match="lost it: its last is 0-0"):
        fabric.link(a, b, "orders").step()


def test_a_publisher_that_fails_over_is_heard_in_its_order_everywhere(fabric):
    # Given a publisher at a, known at b, and c, which has not heard of a's last messages
    a, b, c = sites = fabric.site("a"), fabric.site("b"), fabric.site("c")
    for site in sites:
        site.topic("orders")
        site.run("define_destination", site.version(), "other", "{}", 0)
    to_b, to_c, on = fabric.link(a, b, "orders"), fabric.link(a, c, "orders"), fabric.link(b, c, "orders")
    session = a.run("logon", fabric.now, "p", "c", 1, "", "")[0]
    a.run("publish", fabric.now, "orders", "p", f"{session} 1", "b", "1")
    to_c.step()
    a.run("publish", fabric.now, "orders", "p", f"{session} 2", "b", "2")
    to_b.step()
    # When it goes on at b, whose link to c is the faster one
    session = b.run("logon", fabric.now, "p", "c", 3, "", "")[0]
    b.run("publish", fabric.now, "orders", "p", f"{session} 3", "b", "3", "4")
    on.step()
    assert [row[0] for row in c.log("orders")] == ["1"]
    to_c.step()
    on.step()
    # Then its order holds there, too
    assert [row[0] for row in c.log("orders")] == ["1", "2", "3", "4"]


def test_nothing_waits_for_a_message_whose_origin_nobody_carries_here(fabric):
    a, b, c = sites = fabric.site("a"), fabric.site("b"), fabric.site("c")
    for site in sites:
        site.topic("orders")
        site.run("define_destination", site.version(), "other", "{}", 0)
    to_b, on = fabric.link(a, b, "orders"), fabric.link(b, c, "orders")
    session = a.run("logon", fabric.now, "p", "c", 1, "", "")[0]
    a.run("publish", fabric.now, "orders", "p", f"{session} 1", "b", "1")
    to_b.step()
    session = b.run("logon", fabric.now, "p", "c", 2, "", "")[0]
    b.run("publish", fabric.now, "orders", "p", f"{session} 2", "b", "2")

    on.step()

    assert [row[0] for row in c.log("orders")] == ["2"]


@pytest.fixture
def two_topics(fabric):
    """Instances a and b; b is sent one of two topics of a publisher, which has sent 1 and 4 of the other one."""
    a, b = sites = fabric.site("a"), fabric.site("b")
    for site in sites:
        for topic in ("orders", "trades"):
            site.topic(topic)
        site.run("define_destination", site.version(), "other", "{}", 0)
    session = a.run("logon", fabric.now, "p", "c", 1, "", "")[0]
    for number, topic in enumerate(("orders", "trades", "trades", "orders"), 1):
        a.run("publish", fabric.now, topic, "p", f"{session} {number}", "b", str(number))
    fabric.link(a, b, "trades")
    return a, b


def test_a_number_below_one_that_came_as_a_copy_is_recorded(fabric, two_topics):
    _, b = two_topics
    fabric.run()

    session, last, _, reached = b.run("logon", fabric.now, "p", "c", 1, "", "")

    assert (last, reached) == ("3", "0")
    assert b.run("publish", fabric.now, "orders", "p", f"{session} 1", "b", "1")[1::2] == [0, 1]
    assert b.run("publish", fabric.now, "trades", "p", f"{session} 2", "b", "2", "3")[1::2][:2] == [2, 0]
    assert b.run("publish", fabric.now, "orders", "p", f"{session} 4", "b", "4")[1::2] == [0, 1]
    assert b.run("publish", fabric.now, "orders", "p", f"{session} 4", "b", "4", "5")[1::2][:2] == [1, 1]
    assert [row[0] for row in b.log("orders")] == ["1", "4", "5"]
    assert [row[0] for row in b.log("trades")] == ["2", "3"]
    assert b.run("logon", fabric.now, "p", "c", 2, "5", "")[3] == "5"


def test_what_is_recorded_between_others_of_one_call_is_passed_over(fabric, two_topics):
    _, b = two_topics
    fabric.run()
    session = b.run("logon", fabric.now, "p", "c", 1, "", "")[0]

    topic, known, _, new, *places = b.run("publish", fabric.now, "trades", "p", f"{session} 1", "b", *"12345")

    assert (topic, known, new, places) == ("trades", 2, 3, ["", ""])
    assert [row[0] for row in b.log("trades")] == ["2", "3", "1", "4", "5"]
    with pytest.raises(SequenceGap) as refusal:
        b.run("publish", fabric.now, "trades", "p", f"{session} 7", "b", "7")
    assert refusal.value.detail == {"publisher": "p", "expected": "6", "got": "7"}


def test_copies_that_come_in_the_middle_of_a_session_make_no_number_a_duplicate(fabric, two_topics):
    _, b = two_topics
    session = b.run("logon", fabric.now, "p", "c", 1, "", "")[0]
    b.run("publish", fabric.now, "orders", "p", f"{session} 1", "b", "1")

    fabric.run()

    with pytest.raises(SequenceGap):
        b.run("publish", fabric.now, "orders", "p", f"{session} 6", "b", "6")
    assert b.run("publish", fabric.now, "orders", "p", f"{session} 4", "b", "4")[1::2] == [0, 1]
    assert b.run("publish", fabric.now, "orders", "p", f"{session} 1", "b", "1")[1] == 1
    assert [row[0] for row in b.log("orders")] == ["1", "4"]


def test_bookmarks_and_new_messages_of_one_call_are_passed_on_in_their_order(fabric, monkeypatch):
    sites = a, b, c = fabric.site("a"), fabric.site("b"), fabric.site("c")
    for site in sites:
        site.topic("orders")
        site.queue("work", "orders")
    b.publish("orders", "g1", publisher="g", sequence=1)
    a.publish("orders", "h1", publisher="h", sequence=1)
    a.publish("orders", "g1", publisher="g", sequence=1)
    a.publish("orders", "h2", publisher="h", sequence=2)
    for one, other in ((a, b), (b, a), (b, c), (c, b)):
        fabric.link(one, other, "orders", queues=["work"], pass_through=[".*"])

    # What came in one call goes on in several
    fabric.links["a", "b"].step()
    monkeypatch.setattr(sending, "_BATCH", 1)
    fabric.run()

    assert [row[0] for row in c.log("orders")] == [row[0] for row in b.log("orders")]
    assert sorted(row[0] for row in c.log("orders")) == ["g1", "h1", "h2"]
