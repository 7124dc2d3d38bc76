"""Trimming where instances share topics and queues: what is kept beside a log goes with it, and memory stays flat."""

from __future__ import annotations

from cases import first_ones

from ampsq.protocol.schema import KEYS


def readers_of(*destinations):
    """Return what `trim_log` and `trim_journal` are told of destinations that are sent everything."""
    rows = []
    for name in destinations:
        rows += ["log", "orders", f"destination {name}", "log orders", ""]
        rows += ["journal", "work", f"destination {name}", "journal work", ""]
    return rows


def trim(site, *destinations):
    """Trim all that nobody needs, as often as there is something; gives how many messages went."""
    removed, readers = 0, readers_of(*destinations)
    # Links record by the clock of the server.
    now = site.fabric.now + 3_600_000
    for _ in range(100):
        step = site.run("trim_log", now, site.version(), "orders", 0, "", "", "0-0", 0, 0, *readers)
        journal = site.run("trim_journal", now, "work", "0-0", *readers[5:10])
        removed += step[3]
        if not step[3] and not journal[1]:
            return removed
    raise AssertionError("there is always more to trim")


def copies(site, origin):
    return [member.decode() for member in site.store.redis.zrange(site.key("copies", "orders", origin), 0, -1)]


def exists(site, name, *parameters):
    return bool(site.store.redis.exists(site.key(name, *parameters)))


def acknowledge(site, subscription, number):
    messages = site.take(subscription, number)
    assert len(messages) == number
    site.settle("acknowledged", subscription, *messages)


def test_where_copies_are_is_forgotten_with_them_and_so_is_an_origin_without_any(fabric, pair):
    a, b = pair
    at_a = a.subscribe("work")
    for body in "12345":
        a.publish("orders", body)
        fabric.run()
    assert len(copies(b, a.origin)) == 5
    acknowledge(a, at_a, 3)
    fabric.run()

    assert trim(b, a.name) == 3
    assert len(copies(b, a.origin)) == 2

    acknowledge(a, at_a, 2)
    fabric.run()
    assert trim(b, a.name) == 2
    assert not exists(b, "copies", "orders", a.origin)
    assert not exists(b, "origins", "orders")


def test_a_run_of_copies_stays_until_its_last_one_is_gone(fabric, pair):
    a, b = pair
    at_a = a.subscribe("work")
    a.publish("orders", "1", "2", "3")
    fabric.run()
    one, two, three = a.take(at_a)
    a.settle("acknowledged", at_a, one, three)
    fabric.run()

    assert trim(b, a.name) == 2
    assert len(copies(b, a.origin)) == 1

    a.settle("acknowledged", at_a, two)
    fabric.run()
    assert trim(b, a.name) == 1
    assert copies(b, a.origin) == []


def test_behind_a_message_that_stays_they_are_forgotten_too(fabric, pair):
    a, b = pair
    at_a = a.subscribe("work")
    for body in "12345":
        a.publish("orders", body)
        fabric.run()
    stuck, *others = a.take(at_a)
    a.settle("acknowledged", at_a, *others)
    fabric.run()

    assert trim(b, a.name) == 4
    assert [body for body, *_ in b.log("orders")] == ["1"]
    assert len(copies(b, a.origin)) == 1
    # And what is told of the one that stays finds it
    a.settle("acknowledged", at_a, stuck)
    fabric.run()
    assert trim(b, a.name) == 1


def test_the_next_copies_are_passed_over_and_found_as_ever(fabric, pair):
    a, b = pair
    at_a = a.subscribe("work")
    a.publish("orders", "1", "2")
    fabric.run()
    acknowledge(a, at_a, 2)
    fabric.run()
    trim(b, a.name)

    # Given that all is sent once more
    fabric.links[a.name, b.name].open()
    a.store.redis.delete(a.key("sent", b.name))
    fabric.links[a.name, b.name].open()
    (bookmark,) = a.publish("orders", "3")
    fabric.run()

    assert [(body, each) for body, each, _ in b.log("orders")] == [("3", bookmark)]
    acknowledge(a, at_a, 1)
    fabric.run()
    assert trim(b, a.name) == 1


def test_a_filter_that_is_widened_does_not_bring_back_what_was_trimmed(fabric):
    a, b = fabric.site("a"), fabric.site("b")
    for site in (a, b):
        site.topic("orders")
        site.queue("work", "orders")
    fabric.link(a, b, "orders", queues=["work"], filters={"orders": "/n > 1"})
    fabric.link(b, a, "orders", queues=["work"])
    at_a = a.subscribe("work")
    a.publish("orders", '{"n": 0}', '{"n": 1}', '{"n": 2}', '{"n": 3}')
    fabric.run()
    acknowledge(a, at_a, 4)
    fabric.run()
    assert trim(b, a.name) == 2
    a.publish("orders", '{"n": 4}', '{"n": 1}')

    fabric.link(a, b, "orders", queues=["work"])
    fabric.run()

    assert [body for body, *_ in b.log("orders")] == ['{"n": 4}', '{"n": 1}']


def test_owners_of_what_is_gone_are_forgotten(fabric):
    a, b = fabric.site("a"), fabric.site("b")
    for site in (a, b):
        site.topic("orders")
        site.queue("work", "orders", once=1)
    fabric.join(a, b)
    a.publish("orders", "1", "2")
    fabric.run()
    at_b = b.subscribe("work")
    assert b.ask("work") == 10
    fabric.run()
    acknowledge(b, at_b, 2)
    fabric.run()
    assert exists(a, "owners", "work")
    assert exists(b, "owners", "work")

    assert (trim(a, b.name), trim(b, a.name)) == (2, 2)

    assert not exists(a, "owners", "work")
    assert not exists(b, "owners", "work")
    assert not exists(b, "asked", "work")


def test_a_destination_that_is_away_keeps_at_both_ends_what_it_needs(fabric, pair):
    a, b = pair
    at_a = a.subscribe("work")
    a.publish("orders", "1", "2")
    fabric.run()
    acknowledge(a, at_a, 2)

    # Given that B does not know yet what became of them
    assert trim(a, b.name) == trim(b, a.name) == 0

    fabric.run()
    assert trim(a, b.name) == trim(b, a.name) == 2


def test_what_is_told_of_a_copy_names_it_by_its_bookmark_however_late(fabric):
    # Given B between A and C, which is away
    a, b, c = fabric.site("a"), fabric.site("b"), fabric.site("c")
    for site in (a, b, c):
        site.topic("orders")
        site.queue("work", "orders")
    fabric.link(a, b, "orders", queues=["work"], pass_through=["."])
    fabric.link(b, a, "orders", queues=["work"], pass_through=["."])
    a.publish("orders", "1", "2")
    fabric.run()
    at_b = b.subscribe("work", backlog=1)
    assert b.ask("work") == 1
    fabric.run()
    acknowledge(b, at_b, 1)
    fabric.run()
    assert trim(b, a.name, c.name) == 0

    fabric.link(b, c, "orders", queues=["work"], pass_through=["."])
    fabric.run()

    assert c.remote("work") == ["2"]
    assert c.journal("work")[-1] == ("acknowledged", ["1"])
    assert trim(b, a.name, c.name) == 1


def test_that_a_message_came_under_two_bookmarks_is_kept_until_all_are_told(fabric, pair):
    a, b = pair
    for site in (b, a):
        site.publish("orders", "1", publisher="p", sequence=1)
    fabric.link(b, a, "orders", queues=["work"]).step()
    at_a = a.subscribe("work")
    messages = a.take(at_a)
    a.settle("acknowledged", at_a, *messages)
    assert a.store.redis.xlen(a.key("same", "orders")) == 1
    last, _ = a.store.redis.xrevrange(a.key("log", "orders"), count=1)[0]
    journaled, _ = a.store.redis.xrevrange(a.key("journal", "work"), count=1)[0]
    a.run("report_sent", b.name, "log orders", last, "journal work", journaled)

    assert trim(a, b.name) == 1
    assert a.store.redis.xlen(a.key("same", "orders")) == 1

    ((told, _),) = a.store.redis.xrange(a.key("same", "orders"))
    a.run("report_sent", b.name, "same orders", told)
    a.publish("orders", "2")
    a.settle("acknowledged", at_a, *a.take(at_a))
    journaled, _ = a.store.redis.xrevrange(a.key("journal", "work"), count=1)[0]
    last, _ = a.store.redis.xrevrange(a.key("log", "orders"), count=1)[0]
    a.run("report_sent", b.name, "log orders", last, "journal work", journaled)
    assert trim(a, b.name) == 1
    assert a.store.redis.xlen(a.key("same", "orders")) == 0


#: Streams that are capped by themselves.
CAPPED = ("requests", "marks", "confirmed", "happenings")


def sizes(site):
    """Elements of every key of an instance."""
    prefix = "{" + site.store.instance + "}"
    redis, out = site.store.redis, {}
    capped = {prefix + KEYS[name].suffix for name in CAPPED}
    counts = {"hash": redis.hlen, "zset": redis.zcard, "stream": redis.xlen, "list": redis.llen, "set": redis.scard}
    for name in redis.scan_iter(match=prefix.replace("[", "\\[") + "*", count=1000):
        kind = redis.type(name).decode()
        if name.decode() not in capped:
            out[name.decode().removeprefix(prefix)] = counts[kind](name) if kind in counts else 1
    return out


def pass_messages(fabric, workers):
    """Publish, deliver wherever there is room, trim; gives how many messages went at either instance."""
    a, b = workers
    a.publish("orders", *(str(i) for i in range(20)))
    for i in range(10):
        b.publish("orders", f"b{i}")
    handled = 1
    while handled:
        fabric.run()
        handled = 0
        for site, worker in workers.items():
            messages = site.take(worker, 10)
            handled += len(messages)
            if messages:
                site.settle("acknowledged", worker, *messages)
            site.ask("work")
    fabric.run()
    return trim(a, b.name), trim(b, a.name)


@first_ones("once", [0, 1], 1)
def test_memory_is_the_same_after_thousands_of_messages_as_after_hundreds(fabric, once):
    # Given two instances, each with a subscription, that publish, deliver each other's messages and trim
    a, b = fabric.site("a"), fabric.site("b")
    for site in (a, b):
        site.topic("orders")
        site.queue("work", "orders", once=once)
    fabric.join(a, b)
    # One that is leased for ever at either keeps what is about it, and nothing else
    holders = {site: site.subscribe("work", backlog=1) for site in (a, b)}
    for site in (a, b):
        site.publish("orders", "stuck")
    stuck = 1 if once else 2
    fabric.run()
    assert [site.bodies(holder, 1) for site, holder in holders.items()] == [["stuck"], ["stuck"]]
    workers = {site: site.subscribe("work", backlog=40) for site in (a, b)}

    for _ in range(20):
        pass_messages(fabric, workers)
    before = [sizes(a), sizes(b)]
    # When 1,500 more came and went
    for _ in range(50):
        removed = pass_messages(fabric, workers)

    assert removed == (30, 30)
    assert [sizes(a), sizes(b)] == before
    assert [len(site.log("orders")) for site in (a, b)] == [stuck, stuck]
