"""Queues that several instances have: who delivers a message, and how it changes owner."""

from __future__ import annotations

from ampsq.base.bookmarks import ref_of
from ampsq.protocol.limits import NO_ROOM


def test_only_the_instance_that_received_a_message_first_delivers_it(fabric, pair):
    a, b = pair
    at_a, at_b = a.subscribe("work"), b.subscribe("work")

    a.publish("orders", "1", "2")
    b.publish("orders", "3")
    fabric.run()

    assert a.bodies(at_a) == ["1", "2"]
    assert b.bodies(at_b) == ["3"]


def test_an_acknowledgement_settles_the_message_everywhere(fabric, pair):
    a, b = pair
    at_a = a.subscribe("work")
    a.publish("orders", "1", "2")
    first, _ = a.take(at_a)

    a.settle("acknowledged", at_a, first)
    fabric.run()

    assert b.remote("work") == ["2"]
    assert b.journal("work") == [("acknowledged", ["1"])]


def test_an_instance_with_room_asks_and_the_owner_without_grants(fabric, pair):
    a, b = pair
    a.publish("orders", "1", "2", "3")
    fabric.run()
    at_b = b.subscribe("work", backlog=2)
    assert b.bodies(at_b) == []

    assert b.ask("work") == 2
    fabric.run()

    assert b.bodies(at_b) == ["1", "2"]
    assert a.remote("work") == ["1", "2"]
    assert a.journal("work") == [("transferred", ["1", "2"])]


def test_subscriptions_of_the_owner_come_first(fabric, pair):
    a, b = pair
    a.publish("orders", "1", "2")
    fabric.run()
    at_b, at_a = b.subscribe("work"), a.subscribe("work")

    b.ask("work")
    fabric.run()

    assert b.bodies(at_b) == []
    assert a.bodies(at_a) == ["1", "2"]


def test_what_is_leased_is_not_granted(fabric, pair):
    a, b = pair
    at_a = a.subscribe("work", backlog=1)
    a.publish("orders", "1", "2")
    fabric.run()
    assert a.bodies(at_a) == ["1"]
    at_b = b.subscribe("work")

    b.ask("work")
    fabric.run()

    assert b.bodies(at_b) == ["2"]


def test_what_another_instance_owns_is_not_settled_by_bookmark_read_or_unread(fabric, pair):
    a, b = pair
    a.publish("orders", "1")
    fabric.run()
    ((stream_id, _),) = b.store.redis.xrange(b.key("log", "orders"))
    by_bookmark = ("acknowledged", 0, "", "work", 1, ref_of("orders", stream_id.decode()), "")

    unread = b.run("settle", fabric.now, *by_bookmark)
    b.bodies(b.subscribe("work"))
    read = b.run("settle", fabric.now, *by_bookmark)

    assert unread[1] == read[1] == "AMPSQ_OWNED_ELSEWHERE"
    assert a.bodies(a.subscribe("work")) == ["1"]


def test_a_message_that_was_granted_is_settled_by_its_new_owner(fabric, pair):
    a, b = pair
    a.publish("orders", "1")
    fabric.run()
    at_b = b.subscribe("work")
    b.ask("work")
    fabric.run()
    (message,) = b.take(at_b)

    b.settle("acknowledged", at_b, message)
    fabric.run()

    assert a.remote("work") == a.ready("work") == []
    at_a = a.subscribe("work")
    assert a.bodies(at_a) == []
    assert a.store.redis.hgetall(a.key("owners", "work")) == {}


def test_a_message_may_come_back_to_where_it_was_published(fabric, pair):
    a, b = pair
    a.publish("orders", "1")
    fabric.run()
    at_b = b.subscribe("work")
    b.ask("work")
    fabric.run()
    (message,) = b.take(at_b)
    b.settle("cancelled", at_b, message)
    b.run("unsubscribe", fabric.now, at_b)
    at_a = a.subscribe("work")

    a.ask("work")
    fabric.run()

    assert a.bodies(at_a) == ["1"]
    assert a.store.redis.hvals(a.key("owners", "work")) == [f"{a.origin} 2 {b.origin}".encode()]


def test_a_late_transfer_of_a_lower_epoch_counts_for_nothing(fabric, pair):
    a, b = pair
    (bookmark,) = a.publish("orders", "1")
    fabric.run()
    row = (f"{a.origin}~9-9", "a/a", "transferred", "", "", "", "", b.origin, "1", 1, bookmark)
    b.run(
        "apply_journal",
        fabric.now,
        "work",
        "",
        f"{a.origin}~9-7",
        "a/a",
        "transferred",
        "",
        "",
        "",
        "",
        b.origin,
        "1",
        1,
        bookmark,
    )
    b.run(
        "apply_journal",
        fabric.now,
        "work",
        "",
        f"{a.origin}~9-8",
        "a/a",
        "transferred",
        "",
        "",
        "",
        "",
        a.origin,
        "2",
        1,
        bookmark,
    )

    changed, _ = b.run("apply_journal", fabric.now, "work", "", *row)

    assert changed == 0
    assert b.remote("work") == ["1"]


def test_what_is_told_before_its_message_waits_for_it(fabric, pair):
    a, b = pair
    at_a = a.subscribe("work")
    (bookmark,) = a.publish("orders", "1")
    a.settle("acknowledged", at_a, *a.take(at_a))
    told = (f"{a.origin}~9-9", "a/a", "acknowledged", "", at_a, "", "", "", "", 1, bookmark)

    assert b.run("apply_journal", fabric.now, "work", "", *told) == [0, 1]
    fabric.link(a, b, "orders").step()
    b.sweep()

    at_b = b.subscribe("work")
    assert b.bodies(at_b) == b.remote("work") == []
    assert b.journal("work") == [("acknowledged", ["1"])]


def test_what_is_told_of_a_message_that_never_comes_is_given_up(fabric, pair):
    a, b = pair
    told = (f"{a.origin}~9-9", "a/a", "acknowledged", "", "s1", "", "", "", "", 1, f"orders~{a.origin}~99-0")
    assert b.run("apply_journal", fabric.now, "work", "", *told) == [0, 1]

    fabric.now += 86_400_000
    b.sweep()

    assert not b.store.redis.exists(b.key("deferred", "orders"))


def test_a_barrier_is_sent_by_each_instance_when_all_before_it_is_settled(fabric):
    sites = a, b = fabric.site("a"), fabric.site("b")
    for site in sites:
        site.topic("orders")
        site.queue("work", "orders", barrier="/end = 1")
    fabric.join(*sites)
    at_a, at_b = a.subscribe("work"), b.subscribe("work")
    a.publish("orders", '{"n":1}', '{"end":1}', '{"n":2}')
    fabric.run()
    (first,) = a.take(at_a)
    assert b.bodies(at_b) == []

    a.settle("acknowledged", at_a, first)
    fabric.run()

    assert a.bodies(at_a) == ['{"end":1}', '{"n":2}']
    assert b.bodies(at_b) == ['{"end":1}']


def test_a_group_local_queue_is_delivered_by_its_initial_owner(fabric):
    sites = a, b = fabric.site("a"), fabric.site("b")
    for site in sites:
        site.topic("orders")
        site.queue("work", "orders", owner="b")
    fabric.join(*sites)
    at_a, at_b = a.subscribe("work"), b.subscribe("work")

    a.publish("orders", "1")
    b.publish("orders", "2")
    fabric.run()

    assert a.bodies(at_a) == []
    assert b.bodies(at_b) == ["2", "1"]


def test_a_local_queue_delivers_everywhere_what_is_recorded_there(fabric):
    sites = a, b = fabric.site("a"), fabric.site("b")
    for site in sites:
        site.topic("orders")
        site.queue("work", "orders", owner="")
    fabric.join(*sites, queues=())
    at_a, at_b = a.subscribe("work"), b.subscribe("work")

    a.publish("orders", "1")
    fabric.run()

    assert a.bodies(at_a) == b.bodies(at_b) == ["1"]


def test_requests_reach_an_owner_two_links_away(fabric):
    sites = a, b, c = fabric.site("a"), fabric.site("b"), fabric.site("c")
    for site in sites:
        site.topic("orders")
        site.queue("work", "orders")
    for one, other in ((a, b), (b, a), (b, c), (c, b)):
        fabric.link(one, other, "orders", queues=["work"], pass_through=[".*"])
    a.publish("orders", "1")
    fabric.run()
    at_c = c.subscribe("work")

    c.ask("work")
    fabric.run()

    (message,) = c.take(at_c)
    c.settle("acknowledged", at_c, message)
    fabric.run()
    assert a.journal("work")[-1] == b.journal("work")[-1] == ("acknowledged", ["1"])
    assert a.remote("work") == b.remote("work") == []


def test_what_the_owner_s_subscriptions_hold_does_not_keep_others_from_what_is_behind_it(fabric, pair):
    a, b = pair
    at_a = a.subscribe("work", backlog=20)
    a.publish("orders", *(str(number) for number in range(25)))
    a.take(at_a, 20)
    fabric.run()
    at_b = b.subscribe("work", backlog=1)

    b.ask("work")
    fabric.run()

    assert b.bodies(at_b) == ["20"]
    assert a.bodies(at_a) == []


def test_nothing_is_asked_for_again_within_a_moment(fabric, pair):
    a, b = pair
    at_a = a.subscribe("work", backlog=3)
    a.publish("orders", "1", "2", "3")
    a.take(at_a, 3)
    fabric.run()
    b.subscribe("work", backlog=2)

    asked = [b.run("request_messages", fabric.now + 10_000 + later, "work") for later in (0, 1, 149, 150, 151)]

    assert asked == [2, 0, 0, 2, 0]


def test_nothing_is_seized_but_by_the_operator_s_word(fabric, pair):
    a, b = pair
    a.publish("orders", "1")
    fabric.run()
    fabric.now += 10_000
    b.sweep()

    b.run("set_proxied_transfer", "work", 1)
    # Nobody is free, or another one is lost
    assert b.run("assume_ownership", fabric.now, "work", 100, "a") == [0, 1]
    at_b = b.subscribe("work")
    assert b.run("assume_ownership", fabric.now, "work", 100, "c") == [0, 1]
    assert b.run("assume_ownership", fabric.now, "work", 100, "a") == [1, 0]

    assert b.bodies(at_b) == ["1"]
    # And the owner that comes back hears of it
    fabric.run()
    assert a.ready("work") == []
    assert a.remote("work") == ["1"] or a.bodies(a.subscribe("work")) == []


def test_a_paused_queue_asks_for_nothing_and_lets_others_have_what_it_owns(fabric, pair):
    a, b = pair
    a.queue("work", "orders", backlog=NO_ROOM)
    at_a, at_b = a.subscribe("work"), b.subscribe("work")
    a.publish("orders", "1")
    b.publish("orders", "2")
    fabric.run()

    assert a.ask("work") == 0
    assert b.ask("work") == 9
    fabric.run()

    # The other one came first: it was there.
    assert b.bodies(at_b) == ["2", "1"]
    assert a.bodies(at_a) == []


def test_what_others_own_does_not_hold_up_a_consumer_that_has_room_for_one(fabric):
    a, b = fabric.site("a"), fabric.site("b")
    for site in (a, b):
        site.topic("orders")
        site.queue("work", "orders")
    a.publish("orders", *(str(number) for number in range(300)))
    fabric.link(a, b, "orders", queues=["work"])
    fabric.run()
    b.publish("orders", "mine")

    by = b.subscribe("work", backlog=1)
    b.sweep()

    # In a call or two, not in one for each that is passed over
    assert b.bodies(by) == ["mine"]
    assert len(b.remote("work")) == 300


def test_what_is_told_before_its_message_comes_is_passed_on_although_later_words_were(fabric):
    a, b, c = (fabric.site(name) for name in "abc")
    for site in (a, b, c):
        site.topic("orders")
        site.queue("work", "orders")
    first, second = a.publish("orders", "1", "2")
    at_a = a.subscribe("work")
    one, two = a.take(at_a)
    # Acknowledged in the other order than they were published
    a.settle("acknowledged", at_a, two)
    a.settle("acknowledged", at_a, one)
    (later, _), (earlier, _) = a.store.redis.xrange(a.key("journal", "work"))
    words = [
        (f"{a.origin}~{at.decode()}", f"{a.origin}/ga", "acknowledged", "", "", "", "", "", "", 1, bookmark)
        for at, bookmark in ((later, second), (earlier, first))
    ]
    # b is told of both before it has the messages, and gets these one by one
    assert b.run("apply_journal", fabric.now, "work", "", *words[0], *words[1]) == [0, 2]
    for bookmark, body in ((first, "1"), (second, "2")):
        place = bookmark.rpartition("~")[2]
        start = "0-0" if bookmark == first else first.rpartition("~")[2]
        run = ("orders", a.origin, "-", f"{a.origin}/ga", start, place, 1, 1, "b", place, body)
        b.run("apply_log", fabric.now, 0, *run)

    fabric.link(b, c, "orders", queues=["work"], pass_through=[".*"])
    fabric.run()

    assert b.remote("work") == c.remote("work") == []
    assert c.bodies(c.subscribe("work")) == []


def test_what_is_told_of_a_message_before_it_comes_keeps_why(fabric, pair):
    a, b = pair
    # Given that b is told of an end before the message is there
    (bookmark,) = a.publish("orders", "1")
    source, path = f"{a.origin}~{fabric.now}-0", f"{a.origin}/a"
    row = (source, path, "expired", "forced_expire no such flight", "", "1:0", "", "", "")
    assert b.run("apply_journal", fabric.now, "work", f"{a.origin} 0-0", *row, 1, bookmark) == [0, 1]

    # When it comes
    fabric.run()

    # Then it ended there, with the reason
    (entry,) = b.store.redis.xrange(b.key("journal", "work"))
    assert entry[1][b"consumer_reason"] == b"no such flight"
    assert b.remote("work") == []
