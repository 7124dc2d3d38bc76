"""Groups that are paused and resumed, or dropped: what waits of them leaves the queue, what is leased stays."""

from __future__ import annotations

import pytest
from grouped import check_groups, drop, going, grouping, groups_of, lists_of, numbers, paused_groups, put
from judged import journal_of


@pytest.fixture
def queue(world):
    world.queue("work", "orders", grouping=grouping(), lease=5_000)
    return world


def pause(world, group, *, paused=True, queue="work"):
    return world.run("pause_group", world.now, queue, group, int(paused), "nora")


@pytest.mark.parametrize("choice", ["first", "round_robin", "fair"])
def test_of_a_group_that_is_paused_nothing_is_delivered_and_others_go_on(world, choice):
    world.queue("work", "orders", grouping=grouping(5, "pass", choice=choice), lease=5_000)
    put(world, ("a", 1), ("a", 2), ("b", 3))
    assert pause(world, "a") == 1
    subscription = world.subscribe("work", asked=100)
    assert numbers(world.take(subscription, 10)) == [3]
    put(world, ("a", 4), ("b", 5))
    assert 5 in numbers(world.take(subscription, 10) + world.inbox(subscription))
    assert [group for _, group in going(world)] == []
    assert paused_groups(world) == {"a": (world.now, "nora")}
    check_groups(world, concurrency=5, failure="pass", choice=choice)

    assert pause(world, "a", paused=False) == 1

    check_groups(world, concurrency=5, failure="pass", choice=choice)
    assert numbers(world.take(subscription, 10)) == [1, 2, 4]
    assert paused_groups(world) == {}


def test_what_is_leased_stays_so_and_what_comes_back_waits(queue):
    world = queue
    subscription = world.subscribe("work", asked=100)
    put(world, ("a", 1), ("a", 2))
    (first,) = world.take(subscription, 10)
    pause(world, "a")
    world.settle("cancelled", [first])
    assert world.take(subscription, 10) == []
    check_groups(world)
    pause(world, "a", paused=False)
    (again,) = world.take(subscription, 10)
    assert numbers([again]) == [1]
    assert numbers(world.take(subscription, 10, [again])) == [2]


def test_a_group_of_which_nothing_is_there_is_paused_for_what_comes(queue):
    world = queue
    subscription = world.subscribe("work", asked=100)
    assert pause(world, "a") == 1
    assert pause(world, "a") == 0
    put(world, ("a", 1))
    assert world.take(subscription, 10) == []
    world.settle("acknowledged", {"work": [(ref, "") for refs in lists_of(world).values() for ref in refs]})
    check_groups(world)
    assert pause(world, "a", paused=False) == 1
    assert pause(world, "a", paused=False) == 0
    world.take(subscription, 10)
    assert groups_of(world) == {}


def test_a_pause_outlives_a_change_of_the_definition_and_a_release(queue):
    world = queue
    put(world, ("a", 1), ("b", 2))
    pause(world, "a")
    subscription = world.subscribe("work", asked=100)
    world.queue("work", "orders", grouping=grouping(3, "pass", choice="round_robin"), lease=5_000)
    world.sweep_all()
    world.run("release_group", world.now, "work", "a")
    assert numbers(world.take(subscription, 10)) == [2]
    check_groups(world, concurrency=3, failure="pass", choice="round_robin")
    assert paused_groups(world) == {"a": (world.now, "nora")}


def test_a_queue_without_groups_says_so_and_nothing_is_changed(world):
    world.queue("work", "orders")
    world.mark()
    assert pause(world, "a") == -1
    assert world.run("release_group", world.now, "work", "a") == [-1]
    assert world.run("drop_group", world.now, "work", "a", "placed", "", "9-9", 0, "") == ["", -1]
    assert world.changes() == {}


def test_no_line_feed_comes_into_what_is_stored(queue):
    world = queue
    assert world.run("pause_group", world.now, "work", "a", 1, "no\nra") == 1
    assert paused_groups(world) == {"a": (world.now, "no ra")}


@pytest.mark.parametrize("choice", ["first", "round_robin", "fair"])
def test_all_of_a_group_that_waits_is_dropped_wherever_it_waits(world, choice):
    world.queue("work", "orders", grouping=grouping(2, "pass", choice=choice), lease=50_000)
    subscription = world.subscribe("work", asked=100)
    refs = put(world, ("a", 1), ("a", 2), ("b", 3), ("a", 4))
    first, second, other = sorted(world.take(subscription, 10), key=lambda message: message.ref)
    world.settle("cancelled", [second], 9_000)
    world.settle("cancelled", [other], 9_000)
    unread = put(world, ("a", 5), ("b", 6), (None, 7), ("a", 8))
    scheduled = put(world, ("a", 9), due="+60000")
    taken = {message.ref for message in world.take(subscription, 0)}
    left = {ref for ref in (refs[1], refs[3], unread[0], unread[3]) if ref not in world.holders("work")}
    assert drop(world, "a", only_count=True) == len(left)
    assert journal_of(world, "expired") == []

    assert drop(world, "a", reason="closed") == len(left)

    assert not taken
    assert set(journal_of(world, "expired")) == left
    assert drop(world, "a") == 0
    check_groups(world, concurrency=2, failure="pass", choice=choice)
    assert first.ref in world.holders("work")
    world.now += 9_001
    world.sweep_all()
    found = world.take(subscription, 10) + world.inbox(subscription)
    assert sorted(numbers(found)) == [3, 4, 6, 7]
    world.settle("acknowledged", {"work": [(ref, "") for ref in world.holders("work")]})
    world.now += 60_000
    world.sweep_all()
    assert scheduled[0] in {message.ref for message in world.take(subscription, 10) + world.inbox(subscription)}


@pytest.mark.parametrize("failure", ["hold", "stop"])
def test_what_is_dropped_holds_its_group_no_more_and_stops_nothing(world, failure):
    world.queue("work", "orders", grouping=grouping(failure=failure), lease=5_000)
    subscription = world.subscribe("work", asked=100)
    put(world, ("a", 1), ("a", 2))
    world.settle("cancelled", world.take(subscription, 1), 9_000)
    assert drop(world, "a") == 2
    assert groups_of(world) == {}
    put(world, ("a", 3))
    assert numbers(world.take(subscription, 10) + world.inbox(subscription)) == [3]


def test_what_was_released_and_waits_first_is_dropped_too(queue):
    world = queue
    subscription = world.subscribe("work", asked=1)
    put(world, ("a", 1), ("a", 2))
    (first,) = world.take(subscription, 1)
    pause(world, "a")
    world.settle("cancelled", [first])
    world.take(subscription, 1)
    world.run("release_group", world.now, "work", "a")
    check_groups(world)
    assert drop(world, "a") == 2
    check_groups(world)
    assert groups_of(world)["a"][2] == 0


def test_a_large_group_is_dropped_in_parts_and_what_comes_meanwhile_stays(queue):
    world = queue
    subscription = world.subscribe("work", asked=1)
    for number in range(12):
        put(world, *[("a", 100 * number + i) for i in range(100)], ("b", 100 * number))
    pause(world, "a")
    for _ in range(30):
        world.take(subscription, 1, world.take(subscription, 1))
    after, done = world.run("drop_group", world.now, "work", "a", "placed", "", "9999-0", 0, "")
    assert done <= 250
    world.now += 10_000
    put(world, ("a", 9_999))
    number = done
    for source in ("placed", "log orders"):
        while True:
            after, done = world.run("drop_group", world.now, "work", "a", source, after, "9999-0", 0, "")
            assert done <= 250
            number += done
            if not after:
                break
    # The first one was delivered before the group was paused.
    assert number == 1_199
    check_groups(world)
    pause(world, "a", paused=False)
    world.sweep_all()
    left = numbers(world.take(subscription, 1) + world.inbox(subscription))
    assert drop(world, "b") + drop(world, "a") + len(left) <= 13
