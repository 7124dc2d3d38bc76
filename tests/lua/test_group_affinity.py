"""Affinity of groups: the next messages of a group go to the subscription that got the last one."""

from __future__ import annotations

import json

import pytest
from grouped import bindings, check_groups, drop, grouping, groups_of, numbers, paused_groups, put

CHOICES = ("first", "round_robin", "fair")
AFFINITY = 30_000


def bound_queue(world, concurrency=1, *, choice="first", affinity=AFFINITY, batch=None, failure="hold", **elements):
    world.queue(
        "work", "orders", grouping=grouping(concurrency, failure, choice=choice, batch=batch, affinity=affinity),
        **({"lease": 5_000} | elements),
    )  # fmt: skip


def bound_to_one(world, *groups, asked=1, **elements):
    """Return a subscription to which groups are bound of which nothing is there, and one that came later."""
    bound_queue(world, **elements)
    first = world.subscribe("work", asked=asked)
    for number, group in enumerate(groups):
        put(world, (group, number))
        world.settle("acknowledged", world.take(first))
    return first, world.subscribe("work", asked=asked)


def behind_a_full_one(world, **elements):
    """Let a message of a group wait for its subscription, which is full, and one of another group for a free one.

    Returns:
        The subscription that is full, the other one, and the message that this has.
    """
    first, second = bound_to_one(world, "a", **elements)
    put(world, ("b", 2), ("c", 3), ("a", 4), ("d", 5))
    assert numbers(world.take(first)) == [2]
    (other,) = world.take(second)
    assert numbers([other]) == [3]
    return first, second, other


def begins(world):
    """Return of each message that is leased whether its group began with it."""
    leases = world.state().get(":q:work:leases", {})
    return {ref: " b\n" in value for ref, value in leases.items() if ref[0] != "."}


def check(world, **elements):
    check_groups(world, affinity=AFFINITY, **elements)


@pytest.mark.parametrize("choice", CHOICES)
def test_the_next_message_of_a_group_goes_to_whom_the_last_one_went(world, choice):
    bound_queue(world, choice=choice)
    first, second = (world.subscribe("work", asked=1) for _ in range(2))
    refs = put(world, ("a", 1), ("a", 2))
    (one,) = world.take(first)
    assert bindings(world) == {"a": (first, world.now + AFFINITY)}
    assert begins(world) == {refs[0]: True}
    world.settle("acknowledged", [one])
    # The other one has as much room, and had no message yet.
    (next_one,) = world.inbox(first)
    assert (numbers([next_one]), world.inbox(second)) == ([2], [])
    assert begins(world) == {refs[1]: False}
    check(world, choice=choice)


@pytest.mark.parametrize("choice", CHOICES)
def test_a_bound_group_waits_for_its_full_subscription_while_others_have_something_else(world, choice):
    _, second, other = behind_a_full_one(world, choice=choice)
    check(world, choice=choice)
    (got,) = world.take(second, 1, [other])
    assert numbers([got]) == [5]
    check(world, choice=choice)
    # Nothing else is left: the group moves.
    (got,) = world.take(second, 1, [got])
    assert (numbers([got]), bindings(world)["a"][0]) == ([4], second)
    assert begins(world)[got.ref]
    check(world, choice=choice)


@pytest.mark.parametrize("choice", CHOICES)
def test_of_what_somebody_has_room_for_the_next_one_of_the_queue_is_next(world, choice):
    first, second = bound_to_one(world, "a", "b", asked=2, choice=choice)
    put(world, ("a", 1), ("b", 2), ("a", 3), ("x", 4), ("b", 5))
    assert numbers(world.take(second, 2)) == [4]
    got = world.take(first, 2)
    assert numbers(got) == [1, 2]
    assert numbers(world.take(first, 2, got)) == [3, 5]
    check(world, choice=choice)


@pytest.mark.parametrize("choice", CHOICES)
def test_from_a_concurrency_of_two_on_a_group_with_a_leased_message_never_moves(world, choice):
    bound_queue(world, 3, choice=choice, failure="pass")
    first = world.subscribe("work", asked=1)
    put(world, *[("a", n) for n in range(4)])
    (got,) = world.take(first)
    second = world.subscribe("work", asked=1)
    assert world.take(second) == []
    assert groups_of(world)["a"][:3] == [1, 1, 3]
    assert world.state()[":q:work:lines"] == {first: 1}
    check(world, concurrency=3, choice=choice, failure="pass")
    assert numbers(world.take(first, 1, [got])) == [1]
    assert world.take(second) == []


@pytest.mark.parametrize("choice", CHOICES)
def test_the_order_is_that_of_the_choice_from_a_concurrency_of_two_on(world, choice):
    bound_queue(world, 3, choice=choice, failure="pass")
    subscription = world.subscribe("work", asked=50)
    put(world, ("z", 0))
    world.settle("acknowledged", world.take(subscription, 50))
    world.run("pause_group", world.now, "work", "z", 1, "")
    put(world, ("z", 1), ("z", 7))
    world.unsubscribe(subscription)
    subscription = world.subscribe("work", asked=50)
    put(world, ("a", 1), ("b", 2), ("a", 3), (None, 4), ("b", 5), ("a", 6))
    world.sweep_all()
    turns = [1, 2, 4, 3, 5, 6]
    got = world.take(subscription, 50)
    assert numbers(got) == {"first": [1, 2, 3, 4, 5, 6], "round_robin": turns, "fair": turns}[choice]
    check(world, concurrency=3, choice=choice, failure="pass")


@pytest.mark.parametrize("choice", CHOICES)
def test_a_batch_binds_once(world, choice):
    bound_queue(world, choice=choice, batch=3)
    first = world.subscribe("work", asked=3)
    put(world, *[("a", n) for n in range(7)])
    got = world.take(first, 3)
    assert (numbers(got), [begins(world)[each.ref] for each in got]) == ([0, 1, 2], [True, False, False])
    assert world.take(world.subscribe("work", asked=3), 3) == []
    again = world.take(first, 3, got)
    assert (numbers(again), any(begins(world).values())) == ([3, 4, 5], False)
    check(world, choice=choice, batch=3)


def test_a_binding_ends_when_its_time_is_over_and_nothing_is_leased(world):
    bound_queue(world, lease=0)
    first = world.subscribe("work", asked=1)
    put(world, ("a", 1))
    (got,) = world.take(first)
    world.now += AFFINITY + 1
    world.sweep_all()
    # It lasts while the message is leased.
    assert bindings(world)["a"][0] == first
    check(world)
    world.settle("acknowledged", [got])
    assert bindings(world) == {}
    put(world, ("a", 2))
    (got,) = world.take(first)
    assert begins(world)[got.ref]
    world.settle("acknowledged", [got])
    assert groups_of(world)["a"][:3] == [0, 0, 0]
    world.now += AFFINITY
    world.sweep_all()
    assert (groups_of(world), bindings(world)) == ({}, {})
    left = (":q:work:bound", ":q:work:lines")
    assert not [suffix for suffix in world.state() if suffix in left or suffix.startswith(":q:work:going:")]
    assert "affinity work" not in world.state().get(":due", {})


def test_what_waits_for_a_full_subscription_is_everybodys_when_its_time_is_over(world):
    _, second, other = behind_a_full_one(world, lease=0)
    world.now += AFFINITY
    world.sweep_all()
    # It is the oldest again, and before what is bound to nobody.
    assert numbers(world.take(second, 1, [other])) == [4]
    check(world)


@pytest.mark.parametrize("how", ["unsubscribe", "replace"])
def test_a_subscription_that_leaves_the_queue_binds_nothing(world, how):
    world.queue("other", "others")
    first, second, other = behind_a_full_one(world, lease=0)
    # What is unread is placed when somebody looks for something.
    (other,) = world.take(second, 1, [other])
    put(world, ("d", 6))
    world.sweep_all()
    if how == "unsubscribe":
        world.unsubscribe(first)
    else:
        world.replace(first, "other")
    # That of what it holds ends when that comes back.
    assert set(bindings(world)) == {"b", "c", "d"}
    world.sweep_all()
    # What it had is the oldest of all, where its client is gone.
    assert numbers(world.take(second, 1, [other])) == ([2] if how == "unsubscribe" else [4])
    check(world)


def test_a_subscription_that_is_replaced_and_keeps_the_queue_keeps_its_groups(world):
    first, second = bound_to_one(world, "a", asked=2)
    world.replace(first, "work", asked=1)
    put(world, ("a", 2))
    assert (numbers(world.inbox(first)), world.inbox(second)) == ([2], [])
    check(world)


def test_a_lease_that_lapses_ends_the_binding_of_its_group(world):
    first, second = bound_to_one(world, "a", asked=2)
    put(world, ("a", 1), ("a", 2))
    world.take(first)
    world.now += 5_000
    world.sweep_all()
    # Its holder has room, and may be stuck: both are asked as ever.
    ((holder, (got,)),) = [(each, world.inbox(each)) for each in (first, second) if world.inbox(each)]
    assert (numbers([got]), begins(world)[got.ref]) == ([1], True)
    assert bindings(world)["a"][0] == holder
    check(world)


def test_a_cancelled_message_comes_back_to_the_same_one(world):
    first, second = bound_to_one(world, "a")
    put(world, ("a", 1))
    got = world.take(first)
    world.settle("cancelled", got)
    assert (numbers(world.inbox(first)), world.inbox(second)) == ([1], [])
    assert begins(world) == {got[0].ref: False}
    check(world)


def test_a_release_ends_a_binding_and_nothing_else(world):
    first, second, other = behind_a_full_one(world, lease=0)
    world.settle("acknowledged", [other])
    (other,) = world.take(second)
    put(world, ("e", 6))
    assert (numbers([other]), bindings(world)["a"][0]) == ([5], first)
    assert world.run("release_group", world.now, "work", "a") == [0, 0, 0, 1]
    assert world.run("release_group", world.now, "work", "a") == [0, 0, 0]
    assert numbers(world.take(second, 1, [other])) == [4]
    check(world)


def test_a_release_says_of_a_binding_to_one_that_is_gone_that_there_was_none(world):
    first, _ = bound_to_one(world, "a", failure="stop")
    put(world, ("a", 1))
    world.settle("expired", world.take(first))
    world.unsubscribe(first)
    stopped = groups_of(world)["a"][4]
    assert stopped > 0
    assert world.run("release_group", world.now, "work", "a") == [0, stopped, 0]
    check(world)


def test_a_group_is_listed_with_its_binding(world):
    bound_queue(world)
    first = world.subscribe("work", asked=1, client="crew/1")
    put(world, ("a", 1))
    world.take(first)
    said = f"{first} {world.now + AFFINITY} "
    assert world.run("list_groups", "work", 0, 100)[-1] == said
    assert world.run("list_groups", "work", 0, 1, "a")[-1] == f"{said}crew/1"


def test_a_pause_and_a_binding_stand_beside_each_other(world):
    first, second = bound_to_one(world, "a")
    world.run("pause_group", world.now, "work", "a", 1, "nora\ns9 of 99")
    assert (paused_groups(world)["a"][1], bindings(world)["a"][0]) == ("nora s9 of 99", first)
    put(world, ("a", 2))
    assert [world.take(each) for each in (first, second)] == [[], []]
    check(world)
    world.run("pause_group", world.now, "work", "a", 0, "")
    world.sweep_all()
    assert numbers(world.inbox(first)) == [2]
    check(world)


def test_what_is_dropped_of_a_bound_group_leaves_its_line(world):
    _, second, other = behind_a_full_one(world)
    assert numbers(world.take(second, 1, [other])) == [5]
    assert [suffix for suffix in world.state() if suffix.startswith(":q:work:going:")] != []
    assert drop(world, "a") == 1
    assert [suffix for suffix in world.state() if suffix.startswith(":q:work:going:")] == []
    check(world)


@pytest.mark.parametrize("choice", CHOICES)
def test_affinity_comes_and_goes_with_the_definition(world, choice):
    first, second, other = behind_a_full_one(world, choice=choice, lease=0)
    (other,) = world.take(second, 1, [other])
    put(world, ("e", 6))
    bound_queue(world, choice=choice, affinity=1_000, lease=0)
    world.sweep_all()
    assert bindings(world)["a"] == (first, world.now + 1_000)
    check(world, choice=choice)
    bound_queue(world, choice=choice, affinity=None, lease=0)
    world.sweep_all()
    assert bindings(world) == {}
    check_groups(world, choice=choice)
    assert numbers(world.take(second, 1, [other])) == [4]
    bound_queue(world, choice=choice, lease=0)
    world.sweep_all()
    assert bindings(world) == {}
    check(world, choice=choice)


def test_a_clock_that_was_set_back_binds_nobody_for_longer(world):
    world.now += 1_000_000
    first, _ = bound_to_one(world, "a", lease=0)
    world.now -= 900_000
    world.take(first)
    assert bindings(world)["a"] == (first, world.now + AFFINITY)
    check(world)


def test_a_large_body_that_is_pushed_says_that_its_group_begins(world):
    bound_queue(world)
    holder = world.subscribe("work", asked=2)
    for number in (1, 2):
        world.publish("orders", json.dumps({"g": "a", "n": number, "x": "x" * 100_000}))
    world.sweep_all()
    (got,) = world.take(holder)
    assert got.fields == {"ampsq:begins": "1", "ampsq:group": "a"}
    (got,) = world.take(holder, 1, [got])
    assert got.fields == {"ampsq:group": "a"}


def test_of_many_subscriptions_each_gets_what_is_its(world):
    bound_queue(world, lease=0)
    ids, got = [], []
    for place in range(40):
        ids.append(world.subscribe("work", asked=1))
        put(world, (f"g{place}", place))
        got += world.take(ids[-1])
    world.settle("acknowledged", got)
    put(world, *[(f"g{place}", place) for place in reversed(range(40))])
    assert [numbers(world.inbox(each)) for each in ids] == [[place] for place in range(40)]
    check(world)


def test_what_is_older_than_a_message_that_came_due_and_is_read_after_it_has_its_place_before_it(world):
    _, second, other = behind_a_full_one(world, lease=0)
    put(world, ("a", 6), due="+100")
    world.now += 100
    world.sweep_all()
    (other,) = world.take(second, 1, [other])
    assert numbers([other]) == [5]
    check(world)
    assert numbers(world.take(second, 1, [other])) == [4]


def test_a_queue_that_is_removed_leaves_nothing_of_its_bindings(world):
    first, second, other = behind_a_full_one(world, lease=0)
    world.settle("acknowledged", [other])
    world.unsubscribe(second)
    world.unsubscribe(first)
    world.sweep_all()
    world.run("remove_queue", world.version(), "work")
    assert [suffix for suffix in world.state() if suffix.startswith(":q:work")] == []
    assert not [member for member in world.state().get(":due", {}) if member.startswith("affinity")]
