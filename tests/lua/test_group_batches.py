"""Batches of groups: several consecutive messages for one subscription, which come back together."""

from __future__ import annotations

import pytest
from grouped import check_groups, grouping, groups_of, numbers, put

CHOICES = ("first", "round_robin", "fair")


def in_batches(world, batch=3, failure="hold", *, choice="first", asked=100, **elements):
    world.queue(
        "work", "orders", grouping=grouping(1, failure, choice=choice, batch=batch), **({"lease": 5_000} | elements)
    )
    return world.subscribe("work", asked=asked)


def batches(world):
    """Return of each group the numbers of the tokens and the refs of its batch."""
    return {
        group: text.split(" ")[2:] for group, text in world.state().get(":q:work:batches", {}).items()
    }  # fmt: skip


@pytest.mark.parametrize("choice", CHOICES)
def test_so_many_of_a_group_come_together_and_the_next_ones_when_all_are_settled(world, choice):
    subscription = in_batches(world, choice=choice)
    refs = put(world, *[("a", n) for n in range(5)], ("b", 10), ("b", 11))
    taken = world.take(subscription, 50)
    assert numbers(taken) == [0, 1, 2, 10, 11]
    assert batches(world) == {"a": refs[:3], "b": refs[5:]}
    assert world.take(subscription, 50, taken[:2]) == []
    check_groups(world, choice=choice, batch=3)
    assert numbers(world.take(subscription, 50, taken[2:])) == [3, 4]
    check_groups(world, choice=choice, batch=3)


@pytest.mark.parametrize("choice", CHOICES)
def test_a_batch_has_one_subscription_and_no_more_than_that_has_room_for(world, choice):
    first, second = in_batches(world, 10, choice=choice, asked=2), world.subscribe("work", asked=3)
    put(world, *[("a", n) for n in range(6)], *[("b", n) for n in range(10, 16)])
    world.sweep_all()
    given = world.take(first, 50), world.take(second, 50)
    assert sorted(map(numbers, given)) in ([[0, 1], [10, 11, 12]], [[0, 1, 2], [10, 11]])
    check_groups(world, choice=choice, batch=10)


def test_the_group_of_the_oldest_goes_first_with_what_follows_there(world):
    subscription = in_batches(world, 2)
    put(world, ("a", 0), ("b", 1), ("a", 2), ("b", 3), ("a", 4))
    assert numbers(world.take(subscription, 3)) == [0, 2, 1]
    check_groups(world, batch=2)


@pytest.mark.parametrize("how", ["cancel", "lapse", "gone"])
@pytest.mark.parametrize("failure", ["hold", "stop"])
def test_what_is_behind_a_failed_one_comes_back_with_it_and_counts_as_not_delivered(world, failure, how):
    subscription = in_batches(world, 5, failure, policy={"redelivery": 700, "longest": 700})
    put(world, *[("a", n) for n in range(6)])
    taken = world.take(subscription, 50)
    world.settle("acknowledged", taken[:1])
    if how == "cancel":
        world.settle("cancelled", taken[1:2], -1)
    elif how == "lapse":
        world.now += 5_000
        world.sweep_all()
    world.unsubscribe(subscription)
    world.sweep_all()
    assert [ref for ref in world.holders("work") if ref[0] != "."] == []
    check_groups(world, failure=failure, batch=5)
    other = world.subscribe("work", asked=100)
    assert numbers(world.take(other, 50)) == []
    world.now += 701
    world.sweep_all()
    (again,) = world.inbox(other) or world.take(other, 50)
    assert (numbers([again]), again.delivery) == ([1], 2)
    rest = world.take(other, 50, [again])
    assert [(number, message.delivery) for number, message in zip(numbers(rest), rest, strict=True)] == [
        (2, 1), (3, 1), (4, 1), (5, 1),
    ]  # fmt: skip
    # Its tokens are dead.
    assert set(world.settle("acknowledged", taken[2:3]).values()) == {"AMPSQ_STALE_LEASE"}


def test_one_in_the_middle_takes_back_what_is_behind_it_and_leaves_what_is_before_it(world):
    subscription = in_batches(world, 5)
    put(world, *[("a", n) for n in range(5)])
    taken = world.take(subscription, 50)
    world.settle("cancelled", taken[2:3], 9_000)
    assert {ref for ref in world.holders("work") if ref[0] != "."} == {taken[0].ref, taken[1].ref}
    assert world.take(subscription, 50, taken[:1]) == []
    check_groups(world, batch=5)
    # It was not begun: what is before it is not settled. So it does not wait, and counts for nothing.
    again = world.take(subscription, 50, taken[1:2])
    assert [(number, message.delivery) for number, message in zip(numbers(again), again, strict=True)] == [
        (2, 1), (3, 1), (4, 1),
    ]  # fmt: skip


def test_what_was_pushed_and_nobody_picked_up_counts_for_nothing(world):
    subscription = in_batches(world, 3)
    other = world.subscribe("work", asked=5)
    put(world, *[("a", n) for n in range(3)])
    world.sweep_all()
    holder = next(each for each in (subscription, other) if world.inbox(each))
    world.unsubscribe(holder)
    world.sweep_all()
    left = other if holder == subscription else subscription
    again = world.take(left, 50)
    assert [(number, message.delivery) for number, message in zip(numbers(again), again, strict=True)] == [
        (0, 1), (1, 1), (2, 1),
    ]  # fmt: skip
    check_groups(world, batch=3)


@pytest.mark.parametrize("how", ["limit", "expired"])
def test_a_dead_letter_that_stops_its_group_takes_back_what_is_behind_it(world, how):
    subscription = in_batches(world, 3, "stop", deliveries=1)
    put(world, *[("a", n) for n in range(4)])
    taken = world.take(subscription, 50)
    world.settle("cancelled" if how == "limit" else "expired", taken[:1])
    assert groups_of(world)["a"][:1] == [0]
    assert world.take(subscription, 50) == []
    check_groups(world, failure="stop", batch=3)
    world.run("release_group", world.now, "work", "a")
    assert numbers(world.take(subscription, 50)) == [1, 2, 3]


def test_what_an_administrator_expires_leaves_the_rest_of_its_batch(world):
    subscription = in_batches(world, 3)
    put(world, *[("a", n) for n in range(3)])
    taken = world.take(subscription, 50)
    assert world.settle("expired", {"work": [(taken[1].ref, "")]}) == {}
    assert {ref for ref in world.holders("work") if ref[0] != "."} == {taken[0].ref, taken[2].ref}
    assert world.settle("acknowledged", [taken[0], taken[2]]) == {}
    assert batches(world) == {}


@pytest.mark.parametrize("choice", CHOICES)
def test_a_rate_and_a_reply_bound_a_batch(world, choice):
    world.queue("work", "orders", grouping=grouping(1, choice=choice, batch=9), rated="0 0 1000000 2", lease=5_000)
    subscription = world.subscribe("work", asked=100)
    put(world, *[("a", n) for n in range(5)])
    assert numbers(world.take(subscription, 50)) == [0, 1]
    check_groups(world, choice=choice, batch=9, group_rate=(1_000_000, 2))


def test_what_was_leased_by_another_definition_stays_a_batch(world):
    subscription = in_batches(world, 3)
    put(world, *[("a", n) for n in range(5)])
    taken = world.take(subscription, 50)
    world.queue("work", "orders", grouping=grouping(1), lease=5_000)
    world.sweep_all()
    world.settle("cancelled", taken[:1])
    # The first one was delivered again at once, by itself.
    assert {ref for ref in world.holders("work") if ref[0] != "."} == {taken[0].ref}
    assert numbers(world.take(subscription, 50)) == [0]
    check_groups(world)


def test_nothing_is_left_of_batches_once_they_are_settled_or_the_queue_is_gone(world):
    subscription = in_batches(world, 3)
    put(world, *[("a", n) for n in range(3)])
    world.settle("acknowledged", world.take(subscription, 50))
    assert ":q:work:batches" not in world.state()
    put(world, *[("a", n) for n in range(3)])
    taken = world.take(subscription, 50)
    world.settle("acknowledged", taken)
    world.unsubscribe(subscription)
    world.sweep_all()
    world.run("remove_queue", world.version(), "work")
    assert [suffix for suffix in world.state() if suffix.startswith(":q:work")] == []
