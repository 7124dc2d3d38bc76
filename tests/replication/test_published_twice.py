"""Messages sent to two instances, where the first one lies deep in the log of the second: it is found there."""

from __future__ import annotations

import pytest
from test_trimming import trim

from ampsq.protocol.calls import replication as replication_calls
from ampsq.replication import link_sender as sending

#: More entries than one call looks at.
DEEP = 2_500


@pytest.fixture
def pair(fabric):
    """Two instances with a queue whose messages `a` owns, linked both ways."""
    sites = fabric.site("a"), fabric.site("b")
    for site in sites:
        site.topic("orders")
        site.queue("work", "orders", owner="a")
    fabric.join(*sites, queues=("work",))
    return sites


def send(site, numbers, publisher="till"):
    session = site.run("logon", site.fabric.now, publisher, publisher, numbers[0], "", "")[0]
    for first in range(0, len(numbers), 500):
        some = numbers[first : first + 500]
        site.publish("orders", *map(str, some), publisher=publisher, sequence=f"{session} {some[0]}")


def send_others(site, count):
    for first in range(0, count, 500):
        site.publish("orders", *(f"o{first + i}" for i in range(500)))


def run_links(fabric, rounds=500):
    """Step all links until each has read and applied everything."""
    for _ in range(rounds):
        if all(step.is_idle and not step.requests for step in [each.step() for each in fabric.links.values()]):
            return
    raise AssertionError("the links never come to rest")


def bodies(site):
    return [row[0] for row in site.log("orders")]


def settle_all(fabric, site, count):
    by = site.subscribe("work", backlog=1_000)
    left = count
    while left:
        found = site.take(by, 500)
        assert found
        assert not site.settle("acknowledged", by, *found)
        left -= len(found)
        run_links(fabric)
        site.sweep()


def test_a_message_deep_in_the_log_is_known_by_its_second_bookmark(fabric, pair):
    a, b = pair
    # Given messages that a publisher sent to both, with many others behind them at the second
    send(a, [1, 2, 3])
    send(b, [1, 2, 3])
    send_others(b, DEEP)
    # When links carry everything
    run_links(fabric)
    # Then each is here once, under both bookmarks
    assert sorted(bodies(a)) == sorted(bodies(b))
    assert len(bodies(b)) == DEEP + 3
    assert [fields[b"s"].decode().partition("~")[0] for _, fields in b.store.redis.xrange(b.key("same", "orders"))] == [
        a.origin
    ] * 3
    # And what is settled at one is settled at the other
    settle_all(fabric, a, DEEP + 3)
    assert not a.remote("work")
    assert not b.remote("work")
    assert not b.ready("work")


@pytest.mark.parametrize("size", [1, 7, 500])
def test_they_are_found_by_calls_of_any_size_without_an_end_between(fabric, pair, size, monkeypatch):
    monkeypatch.setattr(sending, "_BATCH", size)
    a, b = pair
    send(a, list(range(1, 21)))
    send(b, list(range(1, 21)))
    send_others(b, DEEP)
    run_links(fabric)
    assert len(bodies(a)) == len(bodies(b)) == 500 * 5 + 20
    assert b.store.redis.xlen(b.key("same", "orders")) == 20


def test_many_of_them_take_calls_in_proportion(fabric, pair, monkeypatch):
    a, b = pair
    count = 6_000
    send(a, list(range(1, count + 1)))
    send(b, list(range(1, count + 1)))
    calls = []
    apply = replication_calls.apply
    monkeypatch.setattr(replication_calls, "apply", lambda *given, **named: calls.append(1) or apply(*given, **named))
    run_links(fabric)
    # 500 messages a call, once; to the first ones go as many calls as the log has thousands of entries.
    assert len(calls) < 8 * count // 500
    assert len(bodies(a)) == len(bodies(b)) == count
    assert b.store.redis.xlen(b.key("same", "orders")) == count
    assert a.store.redis.xlen(a.key("same", "orders")) == count


def test_one_that_came_behind_a_later_number_is_found(fabric):
    a, b, c = (fabric.site(name) for name in "abc")
    for site in (a, b, c):
        site.topic("orders")
    # Given a publisher's 1 that came to c behind its 2, so that its last number is not its last entry
    fabric.link(a, c, "orders")
    fabric.link(b, c, "orders")
    send(a, [1, 2])
    send(b, [1])
    a.store.redis.xdel(a.key("log", "orders"), a.store.redis.xrange(a.key("log", "orders"))[0][0])
    fabric.links["a", "c"].step()
    run_links(fabric)
    assert bodies(c) == ["2", "1"]
    # When a third instance brings the 1 once more
    d = fabric.site("d")
    d.topic("orders")
    send(d, [1])
    fabric.link(d, c, "orders")
    run_links(fabric)
    # Then it is the same message
    assert bodies(c) == ["2", "1"]
    assert c.store.redis.xlen(c.key("same", "orders")) == 1


def test_a_publisher_that_begins_behind_what_is_still_to_come_loses_nothing_of_that(fabric):
    a, b = (fabric.site(name) for name in "ab")
    for site in (a, b):
        site.topic("orders")
    # Given a publisher that goes on at an instance to which nothing was ever replicated
    send(a, list(range(1, 1_201)))
    send(b, [1_201, 1_202])
    # When a link brings all that it sent before, in several calls
    fabric.link(a, b, "orders")
    run_links(fabric)
    # Then each is recorded once
    assert sorted(map(int, bodies(b))) == list(range(1, 1_203))


def test_what_a_search_kept_goes_with_the_last_copy_of_its_origin(fabric, pair):
    a, b = pair
    # Given a message that was sent to both, and one that was sent to one alone
    send(a, [1, 2])
    send(b, [1])
    run_links(fabric)
    assert b.store.redis.hkeys(b.key("searches", "orders")) == [a.origin.encode()]
    settle_all(fabric, a, 2)
    # When both are trimmed
    assert trim(b, a.name) == 2
    # Then nothing is left of it
    assert not b.store.redis.exists(b.key("searches", "orders"))
