"""The index of a filter: it comes and goes, takes what comes back, and is built in bounded steps."""

from __future__ import annotations

import json

import pytest
from judged import drain, journal_of, message, numbers, plain_queue, put, put_many, traces
from world import wished

from ampsq.base.errors import TooManyFilters
from ampsq.protocol.limits import BATCH, BYTES, KEEP_FILTER, MAX_FILTERS

queue = plain_queue


# -- coming back


@pytest.mark.parametrize("way", ["cancelled", "lapsed", "delayed", "given_back", "unsubscribed", "disconnected"])
def test_what_comes_back_returns_to_its_place_in_every_index_that_it_matches(world, way):
    world.queue("work", "orders", lease=1_000)
    even = world.subscribe("work", asked=1, filter="/n % 2 = 0")
    waiting = world.subscribe("work", asked=0, filter="/n < 10")
    places = put(world, *map(message, range(4)))
    (held,) = world.take(even)
    assert held.ref == places[0]
    if way != "unsubscribed":
        world.replace(even, "work", asked=0, filter="/n % 2 = 0")
    if way in ("cancelled", "given_back"):
        world.settle(way, [held])
    elif way == "delayed":
        world.settle("cancelled", [held], period=300)
        assert places[0] not in {*world.state().get(":q:work:sorted:none", ()), *world.state().get(":q:work:ready", ())}
        world.now += 300
    elif way == "unsubscribed":
        world.unsubscribe(even)
    elif way == "disconnected":
        world.store.redis.delete(world.key(f":s:{even}"))
        world.now += 1_001
    else:
        world.now += 1_001
    world.sweep_all()
    world.replace(waiting, "work", asked=9, filter="/n < 10")
    assert [m.ref for m in world.take(waiting, 9)] == places


def test_leases_that_lapse_expire_at_their_limit_in_a_filtered_queue(world):
    world.queue("work", "orders", lease=1_000, deliveries=2)
    subscription = world.subscribe("work", filter="/n = 1")
    _, place = put(world, message(0), message(1))
    for delivery in (1, 2):
        (held,) = world.take(subscription)
        assert (held.ref, held.delivery) == (place, delivery)
        world.now += 1_001
        world.sweep_all()
    assert journal_of(world, "expired") == [place]
    assert world.take(subscription) == []


# -- the index comes and goes


@pytest.mark.parametrize("read", [False, True])
def test_a_filter_that_appears_while_many_wait_gives_its_messages_from_the_first_on(queue, read):
    world = queue
    put_many(world, 1_500)
    if read:
        former = world.subscribe("work", asked=1, filter="/n > 9999")
        world.sweep_all()
        for _ in range(30):
            world.take(former)
        assert len(world.state()[":q:work:sorted:none"]) == 1_500
    subscription = world.subscribe("work", asked=100, filter="/n % 100 = 99")
    assert numbers(drain(world, subscription)) == list(range(99, 1_500, 100))
    assert not [f for f in world.state()[":q:work:filters"] if f.startswith("place")]


def test_an_index_is_built_from_the_first_on_though_what_it_stopped_at_is_gone(queue):
    # Given 400 that have their places, and an index that is built up to somewhere
    world = queue
    places = put_many(world, 400)
    name, _ = wished("/n >= 300")
    former = world.subscribe("work", asked=1, filter="/n > 9999")
    for _ in range(10):
        world.take(former)
    subscription = world.subscribe("work", asked=200, filter="/n >= 300")
    field = f"place {name}"
    world.store.redis.hset(world.key(":q:work:filters"), field, f"0 {places[127]}")
    # When that place, others before it and after it are settled
    gone = [places[k] for k in (*range(100, 130), 305)]
    assert world.settle("expired", {"work": [(place, "") for place in gone]}) == {}
    # Then the rest of the index is built, and nothing of it is missing or doubled
    assert numbers(drain(world, subscription)) == [n for n in range(300, 400) if n != 305]


def test_an_index_under_way_takes_what_comes_and_what_comes_back(queue):
    world = queue
    put_many(world, 1_000)
    former = world.subscribe("work", asked=5)
    held = world.take(former, 5)
    world.replace(former, "work", asked=0)
    name, _ = wished("/n % 2 = 0")
    sorter = world.subscribe("work", asked=1, filter="/n > 9999")
    for _ in range(20):
        world.take(sorter)
    subscription = world.subscribe("work", asked=500, filter="/n % 2 = 0")
    first = world.take(subscription, 500)
    world.settle("cancelled", held)
    put(world, message(1_000), message(1_001))
    got = numbers(first + drain(world, subscription))
    assert f"place {name}" not in world.state()[":q:work:filters"]
    assert sorted(got) == list(range(0, 1_001, 2))
    assert got[len(first) :] == sorted(got[len(first) :])


def test_a_filter_s_index_is_kept_for_a_minute_after_its_last_user_and_then_dropped(queue):
    world = queue
    name, _ = wished("/n > 1")
    one = world.subscribe("work", asked=0, filter="/n > 1")
    two = world.subscribe("work", asked=0, filter="/n > 1")
    third = world.subscribe("work", asked=2, filter="/n > 99")
    put(world, *map(message, range(4)))
    assert len(world.state()[f":q:work:sorted:{name}"]) == 2
    world.unsubscribe(one)
    world.sweep_all()
    assert ":due" not in world.state()
    world.unsubscribe(two)
    world.sweep_all()
    assert world.state()[":due"] == {f"filter work {name}": 1_000 + KEEP_FILTER}
    # When another user comes in time, it stays
    world.now += KEEP_FILTER - 1
    again = world.subscribe("work", asked=0, filter="/n > 1")
    world.now += 1
    world.sweep_all()
    assert len(world.state()[f":q:work:sorted:{name}"]) == 2
    # When nobody does, it goes with all that is its own
    world.unsubscribe(again)
    world.now += KEEP_FILTER - 1
    world.sweep_all()
    assert f":q:work:sorted:{name}" in world.state()
    world.now += 1
    world.sweep_all()
    other, _ = wished("/n > 99")
    state = world.state()
    assert f":q:work:sorted:{name}" not in state
    assert set(state[":q:work:filters"]) == {f"filter {other}", f"users {other}"}
    assert state[":q:work"]["sorted"] == f"none {other}"
    world.replace(third, "work", asked=9)
    assert numbers(world.take(third, 9)) == [0, 1, 2, 3]


def test_a_queue_is_plain_again_with_every_message_in_order(queue):
    # Given messages that are sorted, ready and delayed
    world = queue
    subscription = world.subscribe("work", asked=4, filter="/n >= 0")
    put(world, *map(message, range(8)))
    held = world.take(subscription, 4)
    world.replace(subscription, "work", asked=0, filter="/n >= 0")
    world.settle("cancelled", held[:1], period=200_000)
    world.settle("cancelled", held[2:3])
    world.sweep_all()
    reader = world.subscribe("work", asked=1, filter="/n > 99")
    world.take(reader)
    world.unsubscribe(reader)
    world.unsubscribe(subscription, {"work": [(m.ref, m.token) for m in (held[1], held[3])]})
    # When the filters' time is over
    world.now += KEEP_FILTER
    world.sweep_all()
    assert traces(world) == []
    assert "sorted" not in world.state()[":q:work"]
    world.sweep_all()
    second = world.subscribe("work", asked=9)
    assert numbers(world.take(second, 9)) == [1, 2, 3, 4, 5, 6, 7]
    world.now += 200_000
    world.sweep_all()
    assert numbers(world.take(second, 9)) == [0]
    assert not {":q:work:ready", ":due"} & set(world.state())


def test_thousands_that_were_sorted_are_in_order_when_the_queue_is_plain_again(queue):
    world = queue
    put_many(world, 2_000)
    reader = world.subscribe("work", asked=1, filter="/n > 99999")
    for _ in range(30):
        world.take(reader)
    assert len(world.state()[":q:work:sorted:none"]) == 2_000
    world.unsubscribe(reader)
    world.now += KEEP_FILTER
    world.sweep_all()
    assert traces(world) == []
    put(world, message(2_000))
    second = world.subscribe("work", asked=1_000)
    assert numbers(drain(world, second)) == list(range(2_001))


def test_more_than_a_call_s_share_ready_and_sorted_is_plain_as_soon_as_that_is_cheap(world):
    # Given 700 that came back and 800 that have their places
    world.queue("work", "orders", room=2_000)
    put_many(world, 700)
    holder = world.subscribe("work", asked=700)
    while len(world.holders("work")) < 700:
        world.take(holder, 350)
    for first in range(700, 1_500, 400):
        put(world, *map(message, range(first, first + 400)))
    reader = world.subscribe("work", asked=1, filter="/n > 99999")
    for _ in range(30):
        world.take(reader)
    world.unsubscribe(reader)
    world.unsubscribe(holder)
    world.sweep_all()
    assert len(world.state()[":q:work:ready"]) == 700
    assert len(world.state()[":q:work:sorted:none"]) == 800
    world.now += KEEP_FILTER
    # When nobody is free, it waits without a busy loop
    assert world.sweep_all() <= 60_000
    assert world.state()[":q:work"]["sorted"] == "none"
    # When somebody takes, all comes in order
    second = world.subscribe("work", asked=500)
    assert numbers(drain(world, second)) == list(range(1_500))
    world.now += 2_000
    world.sweep_all()
    assert traces(world) == []


# -- bounds


def test_thousands_of_ready_ones_that_somebody_removed_are_missing_in_bounded_calls(world):
    world.queue("work", "orders", room=5_000)
    put_many(world, 4_000)
    holder = world.subscribe("work", asked=4_000)
    while world.take(holder, BATCH):
        pass
    world.unsubscribe(holder)
    world.sweep_all()
    assert len(world.state()[":q:work:ready"]) == 4_000
    world.store.redis.xtrim(world.key(":log:orders"), maxlen=0, approximate=False)
    subscription = world.subscribe("work", asked=500, filter="/n > 0")
    counts = [0]
    while counts[-1] < 4_000:
        world.take(subscription, 500)
        counts.append(len(journal_of(world, "missing")))
        assert 0 < counts[-1] - counts[-2] <= 1_500
    world.sweep_all()
    assert ":q:work:ready" not in world.state()


def test_an_index_over_large_bodies_is_built_in_small_steps(queue):
    # Given 60 bodies of 100 kB that have their places
    world = queue
    reader = world.subscribe("work", asked=1, filter="/n > 99999")
    for first in range(0, 60, 10):
        put(world, *[json.dumps({"n": i, "x": "x" * 100_000}) for i in range(first, first + 10)])
    for _ in range(40):
        world.take(reader)
    assert len(world.state()[":q:work:sorted:none"]) == 60
    # When another filter comes, then no call reads much more than a megabyte
    subscription = world.subscribe("work", asked=9, filter="/n % 10 = 7")
    got, most = [], 0
    for _ in range(60):
        before = world.store.redis.info("commandstats")["cmdstat_xrange"]["calls"]
        got += numbers(world.take(subscription, 9))
        most = max(most, world.store.redis.info("commandstats")["cmdstat_xrange"]["calls"] - before)
    assert got == [7, 17, 27, 37, 47, 57]
    assert most <= 25


def test_a_queue_defined_later_has_no_more_filters_than_any(world):
    world.queue("a", "letters")
    world.queue("b", "orders")
    wishes = [("a", k) for k in range(MAX_FILTERS)] + [("b", k) for k in range(100, 105)]
    names = [world.subscribe(queue, filter=f"/n = {k}", pattern=".*", version=world.version()) for queue, k in wishes]
    world.mark()
    with pytest.raises(TooManyFilters):
        world.queue("work", "new", subscriptions=names)
    assert world.changes() == {}


def test_a_reply_over_several_queues_of_large_bodies_is_bounded(world):
    for k in range(4):
        world.queue(f"q{k}", f"t{k}")
        put(world, *["x" * 100_000] * 12, topic=f"t{k}")
    subscription = world.subscribe(*[f"q{k}" for k in range(4)], asked=100)
    assert sum(len(m.body) for m in world.take(subscription, 100)) <= 2 * BYTES
