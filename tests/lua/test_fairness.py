"""Fairness: the three models, over one page of free subscriptions and over many."""

from __future__ import annotations

from collections import Counter

import pytest


def subscriptions(world, *backlogs):
    return [world.subscribe("work", asked=asked) for asked in backlogs]


def held(world):
    return Counter(world.holders("work").values())


def served(world, names, count):
    """Publish one by one; the position of who got each."""
    order = []
    for number in range(count):
        before = held(world)
        world.publish("orders", str(number))
        (got,) = held(world) - before
        order.append(names.index(got))
    return order


def test_proportional_chooses_clyde(world):
    # given: Inky holds 1 of 2, Blinky 3 of 4, Clyde 4 of 10
    world.queue("work", "orders", room=10)
    world.queue("others", "elsewhere", room=10)
    ghosts = [world.subscribe("work", "others", asked=asked) for asked in (2, 4, 10)]
    for name, leased in zip(ghosts, (1, 3, 4), strict=True):
        world.store.redis.hset(world.key(f":s:{name}"), "leased", leased)
        maximum = int(world.state()[f":s:{name}"]["max"])
        world.store.redis.zadd(world.key(":q:work:free:none"), {name: leased / maximum})

    # when
    world.publish("orders", "one")

    # then
    assert world.holders("work") == {"d1000a0/orders": ghosts[2]}


def test_proportional_fills_by_the_part_that_is_leased(world):
    world.queue("work", "orders")
    names = subscriptions(world, 2, 4, 10)

    # 0 of 2, 0 of 4, 0 of 10: the first; then who has the least part; equal parts go to who registered first
    assert served(world, names, 8) == [0, 1, 2, 2, 2, 1, 2, 2]


@pytest.mark.parametrize("fairness", ["proportional", "round-robin", "fast"])
def test_equals_are_served_in_the_order_of_registration(world, fairness):
    world.queue("work", "orders", fairness=fairness)
    names = subscriptions(world, 1, 1, 1)

    assert served(world, names, 3) == [0, 1, 2]


def test_fast_fills_the_first_with_room(world):
    world.queue("work", "orders", fairness="fast")
    names = subscriptions(world, 2, 1, 2)

    assert served(world, names, 5) == [0, 0, 1, 2, 2]


def test_round_robin_takes_turns_until_backlogs_are_full(world):
    world.queue("work", "orders", fairness="round-robin")
    names = subscriptions(world, 3, 1, 2)

    assert served(world, names, 6) == [0, 1, 2, 0, 2, 0]


def test_round_robin_takes_turns_within_one_batch_too(world):
    world.queue("work", "orders", fairness="round-robin")
    names = subscriptions(world, 3, 1, 2)

    world.publish("orders", *"abcdef")

    holders = world.holders("work")
    assert [names.index(holders[place]) for place in sorted(holders)] == [0, 1, 2, 0, 2, 0]


def test_round_robin_remembers_the_turn_of_who_was_full(world):
    world.queue("work", "orders", fairness="round-robin")
    names = subscriptions(world, 1, 2)
    world.publish("orders", "a", "b", "c")
    (place,) = [p for p, name in world.holders("work").items() if name == names[0]]

    world.settle("acknowledged", {"work": [(place, "")]})
    world.settle("acknowledged", {"work": [("d1000a1/orders", "")]})

    assert served(world, names, 2) == [0, 1]


@pytest.mark.parametrize("number", [7, 8, 9, 16, 17, 25])
@pytest.mark.parametrize("fairness", ["proportional", "round-robin"])
def test_a_batch_is_spread_over_all_free_subscriptions_however_many(world, number, fairness):
    world.queue("work", "orders", fairness=fairness)
    names = subscriptions(world, *[2] * number)

    world.publish("orders", *map(str, range(number)))

    assert held(world) == dict.fromkeys(names, 1)
    holders = world.holders("work")
    assert [names.index(holders[p]) for p in sorted(holders, key=lambda p: (len(p), p))] == list(range(number))


@pytest.mark.parametrize("number", [9, 17, 25])
def test_a_batch_larger_than_the_room_fills_everybody(world, number):
    world.queue("work", "orders")
    names = subscriptions(world, *[2] * number)

    world.publish("orders", *map(str, range(3 * number)))

    assert held(world) == dict.fromkeys(names, 2)
    assert ":q:work:free:none" not in world.state()


@pytest.mark.parametrize("number", [9, 17, 25])
def test_proportional_over_many_pages_is_the_same_in_a_batch_as_one_by_one(world, number):
    backlogs = [1 + (7 * i) % 5 for i in range(number)]
    messages = sum(backlogs) * 2 // 3
    world.queue("work", "orders", room=10)
    world.queue("twin", "mirror", room=10)
    names = subscriptions(world, *backlogs)
    twins = [world.subscribe("twin", asked=asked) for asked in backlogs]

    one_by_one = served(world, names, messages)
    world.publish("mirror", *map(str, range(messages)))

    holders = world.holders("twin")
    tokens = {int(value.split(" ")[0]): holders[place] for place, value in world.state()[":q:twin:leases"].items()}
    assert [twins.index(tokens[token]) for token in sorted(tokens)] == one_by_one


def test_a_backlog_of_zero_is_never_free(world):
    world.queue("work", "orders")
    none = world.subscribe("work", asked=0)

    world.publish("orders", "one")

    assert world.take(none, 5) == []
    assert world.holders("work") == {}


def test_the_limit_of_a_queue_bounds_what_a_subscription_asks_for(world):
    world.queue("work", "orders", room=2)
    world.subscribe("work", asked=9)

    world.publish("orders", *"abc")

    assert len(world.holders("work")) == 2
