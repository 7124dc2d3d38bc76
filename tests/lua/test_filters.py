"""Filters of subscriptions: who gets what, how many filters there may be, and what is settled by bookmark."""

from __future__ import annotations

import json

import pytest
from judged import journal_of, message, numbers, plain_queue, put, put_many
from world import wished

from ampsq.base.errors import AmpsqError
from ampsq.protocol.limits import BYTES, KEEP_FILTER, MAX_FILTERS


def given(world, queue="work"):
    """Return the holders of the messages, in the messages' order."""
    return [name for _, name in sorted(world.holders(queue).items(), key=lambda item: (len(item[0]), item[0]))]


queue = plain_queue


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
    world.run("scan_foreign_entries", world.now, "orders", "")
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


@pytest.fixture
def crowded(queue):
    queue.names = [queue.subscribe("work", asked=1, filter=f"/n = {k}") for k in range(MAX_FILTERS)]
    return queue


# -- limits


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
