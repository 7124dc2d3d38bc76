"""Filters of queues and of subscriptions: what enters, who gets it, in which order, and what is left of an index."""

from __future__ import annotations

import json

import pytest
from world import ref, wished

from ampsq.errors import AmpsqError, TooManyFilters
from ampsq.schema import BATCH, BYTES, KEEP_FILTER, MAX_FILTERS

SORTED = (":q:work:sorted", ":q:work:filters", ":q:work:places", ":q:work:held")


def message(number, **fields):
    return json.dumps({"n": number, **fields})


def put(world, *bodies, topic="orders"):
    ms, sequence = world.publish(topic, *bodies)[2].split("-")
    return [ref(f"{ms}-{int(sequence) + i}", topic) for i in range(len(bodies))]


def put_many(world, number, topic="orders"):
    places = []
    for first in range(0, number, BATCH):
        places += put(world, *map(message, range(first, min(first + BATCH, number))), topic=topic)
    return places


def numbers(messages):
    return [json.loads(m.body)["n"] for m in messages]


def journal_of(world, how):
    entries = world.state().get(":q:work:journal", [])
    return [place for entry in entries if entry["how"] == how for place in entry["refs"].split(" ")]


def drain(world, subscription, wanted=500):
    """Take and acknowledge until nothing comes twice, sweeping meanwhile."""
    out, empty = [], 0
    for _ in range(1_000):
        world.sweep_all()
        if taken := world.take(subscription, wanted):
            out += taken
            world.settle("acknowledged", taken, by=subscription)
        empty = 0 if taken else empty + 1
        if empty == 2:
            return out
    raise AssertionError("it never ends")


def given(world, queue="work"):
    """Who holds the messages, in the messages' order."""
    return [name for _, name in sorted(world.holders(queue).items(), key=lambda item: (len(item[0]), item[0]))]


def traces(world):
    return [suffix for suffix in world.state() if suffix.startswith(SORTED)]


@pytest.fixture
def queue(world):
    world.queue("work", "orders")
    return world


# -- a queue's filter


def test_what_a_queue_s_filter_refuses_never_enters_costs_no_key_and_is_counted(world):
    world.queue("work", "orders", entry="/n > 1")
    subscription = world.subscribe("work", asked=9)
    world.mark()
    places = put(world, message(1), message(2), "no json", '{"x":1}', message(3))
    inbox = [text for i, n in ((1, 2), (4, 3)) for text in (f"work {n - 1} 1 0 b {places[i]}", message(n))]
    found = world.changes()
    del found[":log:orders"], found[":clock"]
    assert found == {
        ":q:work:cursors": {"orders": "1000-4 5"},
        ":q:work": {"token": "2", "filtered": "3"},
        ":q:work:leases": {places[i]: f"{t} {subscription} 1 0 0" for i, t in ((1, 1), (4, 2))},
        f":s:{subscription}": {"leased": "2"},
        f":s:{subscription}:inbox": inbox,
        ":q:work:free:none": {subscription: 2 / 9},
    }


def test_a_queue_s_filter_sees_the_fields_of_foreign_entries(world):
    world.queue("work", "orders", entry="/who = 'me'")
    world.xadd("orders", "1-1", "who", "me", "x", "1")
    world.xadd("orders", "1-2", "who", "you")
    subscription = world.subscribe("work", asked=9)
    assert [m.fields for m in world.take(subscription, 9)] == [{"who": "me", "x": "1"}]
    assert world.state()[":q:work"]["filtered"] == "1"


def test_a_filter_that_refuses_thousands_gives_what_comes_after_and_ends(world):
    world.queue("work", "orders", entry="/n >= 2990")
    put_many(world, 3_000)
    subscription = world.subscribe("work", asked=20)
    assert numbers(drain(world, subscription)) == list(range(2_990, 3_000))
    assert world.state()[":q:work"]["filtered"] == "2990"
    assert world.sweep() == [0, -1]


@pytest.mark.parametrize("verb", ["acknowledged", "expired"])
def test_settled_ahead_is_neither_judged_nor_counted_as_filtered(world, verb):
    world.queue("work", "orders", entry="/n > 1")
    places = put(world, message(1), message(2), message(3))
    assert world.settle(verb, {"work": [(places[0], ""), (places[1], "")]}) == {}
    subscription = world.subscribe("work", asked=9)
    assert numbers(world.take(subscription, 9)) == [3]
    assert "filtered" not in world.state()[":q:work"]
    assert ":q:work:ahead" not in world.state()
    world.mark()
    refused = world.settle(verb, {"work": [(places[0], "")]})
    assert refused == {places[0]: "AMPSQ_ALREADY_ACKED"}
    assert world.changes() == {}


def test_what_was_refused_cannot_be_settled_afterwards(world):
    world.queue("work", "orders", entry="/n > 1")
    (place,) = put(world, message(1))
    world.subscribe("work")
    put(world, message(2))
    world.mark()
    for verb in ("acknowledged", "expired", "cancelled"):
        assert world.settle(verb, {"work": [(place, "")]}) == {place: "AMPSQ_ALREADY_ACKED"}
    assert world.changes() == {}


@pytest.mark.parametrize("state", ["leased", "ready", "delayed"])
def test_what_is_in_the_queue_stays_when_its_filter_changes(queue, state):
    world = queue
    first = world.subscribe("work", asked=1)
    put(world, message(0), message(1), message(2))
    held = world.take(first)
    world.replace(first, "work", asked=0)
    if state != "leased":
        world.settle("cancelled", held, period=500 if state == "delayed" else 0)
    world.queue("work", "orders", entry="/n > 1")
    if state == "leased":
        world.settle("cancelled", held)
    world.now += 500
    world.sweep_all()
    second = world.subscribe("work", asked=9)
    assert [(n, m.delivery) for m, n in ((m, json.loads(m.body)["n"]) for m in world.take(second, 9))] == [
        (0, 2),
        (2, 1),
    ]
    # And without a filter the queue is plain
    world.queue("work", "orders")
    assert traces(world) == []
    assert "sorted" not in world.state()[":q:work"]


def test_what_is_held_behind_a_barrier_stays_when_the_queue_s_filter_changes(world):
    world.queue("work", "orders", entry="/n >= 0", barrier="/end = 1")
    subscription = world.subscribe("work", asked=9)
    put(world, message(0), message(1, end=1), message(2))
    held = world.take(subscription, 9)
    assert len(world.state()[":q:work:held"]) == 2
    world.queue("work", "orders", entry="/n > 8", barrier="/end = 1")
    put(world, message(3), message(9))
    assert numbers(world.take(subscription, 9, held)) == [1, 2, 9]


def test_the_same_definition_again_changes_nothing_but_the_catalog(world):
    world.queue("work", "orders", entry="/n > 1")
    put(world, message(1), message(2))
    world.subscribe("work", asked=0, filter="/n > 0")
    world.sweep_all()
    world.mark()
    world.queue("work", "orders", entry="/n > 1")
    world.sweep_all()
    assert set(world.changes()) <= {":instance"}


# -- who gets what


def test_a_filter_s_traces_are_these(queue):
    world = queue
    name, tree = wished("/n > 1")
    world.mark()
    subscription = world.subscribe("work", asked=2, filter="/n > 1", client="c/1")
    assert world.changes() == {
        ":instance": {"registered": "1"},
        ":subscriptions": {subscription: 11_000},
        f":s:{subscription}": {
            "queues": "work", "asked": "2", "max": "2", "leased": "0", "client": "c/1", "filter": name, "tree": tree,
        },
        ":q:work": {"sorted": f"none {name}"},
        ":q:work:filters": {f"filter {name}": tree, f"users {name}": "1"},
        ":q:work:subscriptions": {subscription},
        f":q:work:free:{name}": {subscription: 0},
    }  # fmt: skip


def test_asked_again_after_a_lost_reply_the_one_that_was_made_is_answered(queue):
    world = queue
    subscription = world.subscribe("work", filter="/n > 1", client="c/1")
    world.mark()
    assert world.subscribe("work", filter="/n > 1", client="c/1") == subscription
    assert world.changes() == {}


def test_unsubscribed_twice_a_filter_has_one_user_less(queue):
    world = queue
    one, two = (world.subscribe("work", asked=0, filter="/n > 1") for _ in range(2))
    name, _ = wished("/n > 1")
    world.unsubscribe(one)
    world.mark()
    assert world.unsubscribe(one) == 0
    assert world.changes() == {}
    assert world.state()[":q:work:filters"][f"users {name}"] == "1"
    assert world.state()[":q:work:subscriptions"] == {two}


def test_a_message_goes_to_the_best_of_those_whose_filter_allows_it(queue):
    world = queue
    odd = world.subscribe("work", asked=4, filter="/n % 2 = 1")
    small = world.subscribe("work", asked=4, filter="/n < 4")
    everything = world.subscribe("work", asked=4)
    for number in range(8):
        put(world, message(number))
    # Proportional: whose part of the backlog is least, of equals who came first
    assert given(world) == [small, odd, everything, odd, everything, odd, everything, odd]


def test_fast_serves_the_first_of_those_whose_filter_allows_it(world):
    world.queue("work", "orders", fairness="fast")
    odd = world.subscribe("work", asked=2, filter="/n % 2 = 1")
    everything = world.subscribe("work", asked=9)
    put(world, *map(message, range(6)))
    assert given(world) == [everything, odd, everything, odd, everything, everything]


def test_round_robin_takes_turns_among_those_whose_filter_allows_it(world):
    world.queue("work", "orders", fairness="round-robin")
    odd = world.subscribe("work", asked=9, filter="/n % 2 = 1")
    one, two = world.subscribe("work", asked=9), world.subscribe("work", asked=9)
    put(world, *map(message, [1, 1, 1, 1, 2, 2, 2]))
    assert given(world) == [odd, one, two, odd, one, two, one]


@pytest.mark.parametrize("fairness", ["proportional", "round-robin", "fast"])
def test_a_batch_is_given_as_one_by_one_across_filters(world, fairness):
    world.queue("work", "orders", fairness=fairness)
    world.queue("twin", "mirror", fairness=fairness)
    wishes = [(3, "/n % 2 = 0"), (5, None), (2, "/n % 3 = 0"), (4, "/n % 2 = 0"), (3, None), (1, "/n > 5")]
    names = [world.subscribe("work", asked=asked, filter=text) for asked, text in wishes]
    twins = [world.subscribe("twin", asked=asked, filter=text) for asked, text in wishes]
    for number in range(15):
        put(world, message(number))
    put(world, *map(message, range(15)), topic="mirror")
    assert [twins.index(name) for name in given(world, "twin")] == [names.index(name) for name in given(world)]


@pytest.mark.parametrize("number", [7, 8, 9, 15, 16, 17])
def test_with_full_pages_of_subscriptions_nothing_is_lost(queue, number):
    # Given as many subscriptions of one filter as fill pages, and another filter that is free
    world = queue
    names = [world.subscribe("work", filter="/kind = 'a'") for _ in range(number)]
    other = world.subscribe("work", asked=5, filter="/kind = 'b'")
    # When more come than they take
    places = put(world, *[message(i, kind="a") for i in range(number + 3)], message(99, kind="b"))
    world.sweep_all()
    # Then what is left has its place
    assert set(world.holders("work").values()) == {*names, other}
    assert set(world.state()[":q:work:sorted:none"]) == set(places[number : number + 3])
    for name in names:
        held = world.take(name)
        world.take(name, 1, held)
    assert set(world.holders("work")) == set(places[number:])


def test_a_filter_that_nothing_matches_gets_nothing_and_the_others_go_on(queue):
    world = queue
    none = world.subscribe("work", asked=9, filter="/n > 1000")
    other = world.subscribe("work", asked=1)
    put(world, *map(message, range(5)))
    got, held = [], []
    while held := world.take(other, 1, held):
        got += numbers(held)
    assert got == list(range(5))
    assert world.take(none, 9) == []
    assert world.sweep() == [0, -1]


def test_each_gets_its_messages_in_order(queue):
    world = queue
    put_many(world, 600)
    filters = [f"/n % 4 = {k}" for k in range(4)]
    names = [world.subscribe("work", asked=7, filter=text) for text in filters]
    got = {name: [] for name in names}
    for _ in range(400):
        for name in names:
            taken = world.take(name, 7)
            got[name] += numbers(taken)
            if taken:
                world.settle("acknowledged", taken, by=name)
        world.sweep()
    for k, name in enumerate(names):
        assert got[name] == list(range(k, 600, 4))
    assert ":q:work:sorted:none" not in world.state()
    assert not [s for s in world.state() if s.startswith(":q:work:sorted:")]


def test_bodies_that_are_not_json_match_no_filter_and_foreign_entries_do_by_their_fields(queue):
    world = queue
    filtered = world.subscribe("work", asked=9, filter="/a = '1' OR NOT /a = '1' OR /a IS NULL")
    put(world, "no json", "{}")
    world.xadd("orders", "5000-0", "a", "1")
    world.run("notice", world.now, "orders", "")
    assert [(m.kind, m.body) for m in world.take(filtered, 9)] == [("b", "{}"), ("f", "")]
    plain = world.subscribe("work", asked=9)
    assert [m.body for m in world.take(plain, 9)] == ["no json"]


def test_ten_filters_on_one_queue_each_get_theirs(queue):
    world = queue
    names = [world.subscribe("work", asked=100, filter=f"/n % 10 = {k}") for k in range(10)]
    put_many(world, 500)
    world.sweep_all()
    for k, name in enumerate(names):
        assert numbers(world.take(name, 100)) == list(range(k, 500, 10))


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


# -- limits


@pytest.fixture
def crowded(queue):
    queue.names = [queue.subscribe("work", asked=1, filter=f"/n = {k}") for k in range(MAX_FILTERS)]
    return queue


def test_one_filter_too_many_is_refused_without_a_trace(crowded):
    world = crowded
    world.queue("other", "elsewhere")
    world.mark()
    with pytest.raises(AmpsqError) as refusal:
        world.subscribe("other", "work", filter="/n = 99")
    assert refusal.value.code == "AMPSQ_TOO_MANY_FILTERS"
    assert refusal.value.detail == {"queue": "work", "allowed": MAX_FILTERS}
    assert world.changes() == {}
    # A known filter, and none, are still welcome
    world.subscribe("work", filter="/n = 3")
    world.subscribe("work")


def test_a_filter_that_nobody_uses_makes_room_at_once(crowded):
    world = crowded
    world.unsubscribe(world.names[5])
    gone, _ = wished("/n = 5")
    name, _ = wished("/n = 99")
    subscription = world.subscribe("work", filter="/n = 99")
    state = world.state()
    assert gone not in state[":q:work"]["sorted"]
    assert name in state[":q:work"]["sorted"]
    assert sum(f.startswith("filter ") for f in state[":q:work:filters"]) == MAX_FILTERS
    put(world, message(99), message(5), message(6))
    assert numbers(world.take(subscription)) == [99]
    world.now += KEEP_FILTER
    world.sweep_all()
    assert sum(f.startswith("filter ") for f in world.state()[":q:work:filters"]) == MAX_FILTERS


def test_all_filters_at_once_each_get_their_own(crowded):
    world = crowded
    put(world, *map(message, range(MAX_FILTERS)))
    world.sweep_all()
    for k, name in enumerate(world.names):
        assert numbers(world.take(name)) == [k]


# -- several queues


def test_a_filtered_subscription_to_several_queues_is_in_each_one_s_index(world):
    for name, topic in (("a", "letters"), ("b", "orders")):
        world.queue(name, topic)
    name, _ = wished("/n > 1")
    subscription = world.subscribe("a", "b", asked=3, filter="/n > 1")
    for topic in ("letters", "orders"):
        put(world, *map(message, range(4)), topic=topic)
    taken = world.take(subscription, 9)
    assert len(taken) == 3
    state = world.state()
    assert f":q:a:free:{name}" not in state
    assert f":q:b:free:{name}" not in state
    rest = world.take(subscription, 9, taken)
    assert sorted((m.queue, n) for m, n in zip(taken + rest, numbers(taken + rest), strict=True)) == [
        ("a", 2), ("a", 3), ("b", 2), ("b", 3),
    ]  # fmt: skip
    world.unsubscribe(subscription)
    assert {f"filter {queue} {name}" for queue in "ab"} <= set(world.state()[":due"])


def test_a_queue_defined_later_takes_the_pattern_s_filter(world):
    world.queue("work-a", "letters")
    subscription = world.subscribe("work-a", asked=9, filter="/n > 1", pattern="work-.*", version=world.version())
    put(world, *map(message, range(3)), topic="orders") if world.topic("orders") else None
    world.queue("work-b", "orders", subscriptions=[subscription])
    name, _ = wished("/n > 1")
    assert world.state()[":q:work-b"]["sorted"] == f"none {name}"
    put(world, message(3))
    assert [(m.queue, json.loads(m.body)["n"]) for m in world.take(subscription, 9)] == [("work-b", 2), ("work-b", 3)]


def test_at_most_once_queues_give_by_filters_and_remove_as_they_give(world):
    world.queue("work", "orders", once=1, fairness="round-robin")
    odd = world.subscribe("work", asked=2, filter="/n % 2 = 1")
    places = put(world, *map(message, range(6)))
    taken = world.take(odd, 9)
    assert numbers(taken) == [1, 3]
    assert journal_of(world, "delivered") == [places[1], places[3]]
    assert numbers(world.take(odd, 9, taken)) == [5]
    world.unsubscribe(odd)
    world.sweep_all()
    assert world.holders("work") == {}
    assert set(world.state()[":q:work:sorted:none"]) == {places[0], places[2], places[4]}


def test_the_queue_s_own_limit_holds_across_filters(world):
    world.queue("work", "orders", backlog=3)
    odd = world.subscribe("work", asked=9, filter="/n % 2 = 1")
    even = world.subscribe("work", asked=9, filter="/n % 2 = 0")
    put(world, *map(message, range(8)))
    first = world.take(odd, 9)
    world.take(even, 9)
    assert len(world.holders("work")) == 3
    world.take(odd, 1, first[:1])
    assert len(world.holders("work")) == 3


# -- settled by bookmark, missing


@pytest.mark.parametrize("verb", ["acknowledged", "expired"])
def test_what_is_sorted_is_settled_by_bookmark_and_leaves_every_index(queue, verb):
    world = queue
    name, _ = wished("/n > 0")
    subscription = world.subscribe("work", asked=1, filter="/n > 0")
    first, second, third = put(world, *map(message, range(3)))
    world.take(subscription)
    assert set(world.state()[f":q:work:sorted:{name}"]) == {third}
    world.mark()
    assert world.settle(verb, {"work": [(third, ""), (first, "")]}) == {}
    more = {"attempts": "0:0 0:0"} if verb == "expired" else {}
    reason = "forced_expire" if verb == "expired" else ""
    assert world.changes() == {
        ":q:work:sorted:none": None,
        f":q:work:sorted:{name}": None,
        ":q:work:journal": [{"how": verb, "reason": reason, "refs": f"{third} {first}", **more}],
        ":q:work": {verb: "2"},
    }
    world.mark()
    assert world.settle(verb, {"work": [(third, ""), (first, "")]}) == dict.fromkeys(
        (third, first), "AMPSQ_ALREADY_ACKED"
    )
    assert world.settle("cancelled", {"work": [(third, "")]}) == {third: "AMPSQ_ALREADY_ACKED"}
    assert world.changes() == {}
    assert world.holders("work") == {second: subscription}


def test_a_token_for_what_is_sorted_is_stale(queue):
    world = queue
    world.subscribe("work", asked=0, filter="/n > 0")
    reader = world.subscribe("work", asked=1, filter="/n > 99")
    (place,) = put(world, message(1))
    world.take(reader)
    world.mark()
    for verb in ("acknowledged", "expired", "cancelled", "extended", "given_back"):
        assert world.settle(verb, {"work": [(place, "7")]}, period=100) == {place: "AMPSQ_STALE_LEASE"}
    assert world.changes() == {}


def test_what_somebody_removed_from_the_log_is_missing_and_leaves_every_index(queue):
    world = queue
    subscription = world.subscribe("work", asked=1, filter="/n > 0")
    places = put(world, *map(message, range(4)))
    held = world.take(subscription)
    world.store.redis.xdel(world.key(":log:orders"), "1000-2")
    assert [m.ref for m in world.take(subscription, 1, held)] == [places[3]]
    assert journal_of(world, "missing") == [places[2]]
    assert not [s for s in world.state() if s.startswith(":q:work:sorted:") and places[2] in world.state()[s]]


def test_a_reply_of_large_bodies_is_bounded_across_filters(queue):
    world = queue
    reader = world.subscribe("work", asked=1, filter="/n > 99999")
    put(world, *[json.dumps({"n": i, "x": "x" * 100_000}) for i in range(30)])
    for _ in range(20):
        world.take(reader)
    assert len(world.state()[":q:work:sorted:none"]) == 30
    one = world.subscribe("work", asked=40, filter="/n >= 0")
    sizes, got = [], []
    for _ in range(60):
        taken = world.take(one, 40)
        sizes.append(len(taken))
        got += numbers(taken)
        world.sweep()
    assert got == list(range(30))
    assert max(sizes) <= BYTES // 100_000 + 1


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
