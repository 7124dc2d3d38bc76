"""Messages in groups: each group in its order, so many of it at a time, and what a failure does to the others of it."""

from __future__ import annotations

import re

import pytest
from grouped import check_groups, going, grouping, groups_of, numbers, put
from judged import journal_of

from ampsq.base.errors import GroupedQueue, QueueNotEmpty


@pytest.fixture
def queue(world):
    world.queue("work", "orders", grouping=grouping(), lease=5_000)
    return world


def with_policy(world, failure, concurrency=1, **elements):
    world.queue("work", "orders", grouping=grouping(concurrency, failure), **({"lease": 5_000} | elements))
    return world.subscribe("work", asked=100)


def test_one_of_each_group_is_given_at_a_time_and_the_oldest_first(queue):
    world = queue
    subscription = world.subscribe("work", asked=100)
    put(world, ("a", 1), ("a", 2), ("b", 3), ("a", 4), ("c", 5), ("b", 6))

    taken = world.take(subscription, 10)

    assert numbers(taken) == [1, 3, 5]
    check_groups(world)
    first, second, third = taken
    assert numbers(world.take(subscription, 10, [second])) == [6]
    assert numbers(world.take(subscription, 10, [first, third])) == [2]
    check_groups(world)


def test_a_concurrency_counts_over_all_subscriptions(world):
    first = with_policy(world, "pass", 2)
    second = world.subscribe("work", asked=100)
    put(world, *[("a", number) for number in range(6)])
    taken = world.take(first, 10) + world.take(second, 10)
    assert numbers(taken) == [0, 1]
    check_groups(world, concurrency=2, failure="pass")


def test_what_is_in_no_group_is_neither_ordered_nor_limited(queue):
    world = queue
    put(world, (None, 1), ("", 2), ("a", 3), (None, 4), ("a", 5))
    assert numbers(world.take(world.subscribe("work", asked=100), 10)) == [1, 2, 3, 4]


def test_a_number_and_its_text_are_one_group(queue):
    world = queue
    put(world, (1, 1), ("1", 2))
    assert numbers(world.take(world.subscribe("work", asked=100), 10)) == [1]


@pytest.mark.parametrize("name", ["x" * 300, "a\x00b"])
def test_a_name_that_is_too_long_or_has_a_nul_is_its_checksum(queue, name):
    world = queue
    put(world, (name, 1), (name, 2))
    assert numbers(world.take(world.subscribe("work", asked=100), 10)) == [1]
    (found,) = groups_of(world)
    assert found.startswith("#")
    assert len(found) == 41


@pytest.mark.parametrize("failure", ["hold", "stop"])
@pytest.mark.parametrize("cause", ["cancel", "lapse", "gone"])
def test_a_failure_holds_its_group_and_keeps_its_place(world, failure, cause):
    subscription = with_policy(world, failure, policy={"redelivery": 700, "longest": 700})
    put(world, ("a", 1), ("a", 2), ("b", 3))
    first, _ = world.take(subscription, 10)
    if cause == "cancel":
        world.settle("cancelled", [first], -1)
    elif cause == "lapse":
        world.now += 5_000
        world.sweep_all()
    else:
        world.unsubscribe(subscription)
        world.sweep_all()
        subscription = world.subscribe("work", asked=100)
    assert "a" not in {group for _, group in going(world)}
    assert 2 not in numbers(world.take(subscription, 10))
    check_groups(world, failure=failure)
    world.now += 701
    world.sweep_all()
    again = [
        message for message in world.take(subscription, 10) + world.inbox(subscription) if message.ref == first.ref
    ]
    assert numbers(again) == [1]
    assert numbers(world.take(subscription, 10, again)) == [2]
    check_groups(world, failure=failure)


def test_with_pass_the_others_go_on_and_it_comes_back_to_its_place(world):
    subscription = with_policy(world, "pass")
    put(world, ("a", 1), ("a", 2), ("a", 3))
    (first,) = world.take(subscription, 10)
    world.settle("cancelled", [first], 1_000)
    (second,) = world.take(subscription, 10)
    assert numbers([second]) == [2]
    world.now += 1_001
    world.sweep_all()
    check_groups(world, failure="pass")
    assert numbers(world.take(subscription, 10, [second])) == [1]


def test_what_failed_goes_before_what_is_scheduled_and_comes_due(queue):
    world = queue
    subscription = world.subscribe("work", asked=100)
    put(world, ("a", 9), due="+2000")
    world.now += 10
    put(world, ("a", 1), ("a", 2))
    (first,) = world.take(subscription, 10)
    world.settle("cancelled", [first], 4_000)
    world.now += 2_500
    world.sweep_all()
    assert world.take(subscription, 10) == []
    world.now += 2_500
    world.sweep_all()
    (again,) = world.take(subscription, 10) or world.inbox(subscription)
    assert numbers([again]) == [1]
    (due,) = world.take(subscription, 10, [again])
    assert numbers([due]) == [9]


@pytest.mark.parametrize(("failure", "is_stopped"), [("hold", False), ("pass", False), ("stop", True)])
@pytest.mark.parametrize("how", ["limit", "expired"])
def test_a_dead_letter_lets_the_next_one_go_or_stops_the_group(world, failure, is_stopped, how):
    subscription = with_policy(world, failure, deliveries=1)
    refs = put(world, ("a", 1), ("a", 2), ("b", 3))
    first, _ = world.take(subscription, 10)
    world.settle("cancelled" if how == "limit" else "expired", [first])
    assert journal_of(world, "expired") == [refs[0]]
    if is_stopped:
        assert world.take(subscription, 10) == []
        assert groups_of(world)["a"][4] == world.now
        assert world.run("release_group", world.now, "work", "a") == [0, world.now, 0]
        check_groups(world, failure=failure)
    assert numbers(world.take(subscription, 10)) == [2]
    assert world.run("release_group", world.now, "work", "a") == [0, 0, 0]


def test_a_release_ends_a_hold_and_leaves_the_failed_one_its_delay(queue):
    world = queue
    subscription = world.subscribe("work", asked=100)
    put(world, ("a", 1), ("a", 2))
    (first,) = world.take(subscription, 10)
    world.settle("cancelled", [first], 9_000)
    assert world.run("release_group", world.now, "work", "a") == [1, 0, 0]
    assert numbers(world.take(subscription, 10)) == [2]
    check_groups(world)


def test_a_held_message_whose_life_is_over_lets_its_group_go_on(world):
    subscription = with_policy(world, "stop", policy={"life": 3_000})
    put(world, ("a", 1))
    world.now += 2_500
    put(world, ("a", 2))
    (first,) = world.take(subscription, 10)
    world.settle("cancelled", [first], 400)
    world.now += 600
    world.sweep_all()
    found = world.take(subscription, 10) or world.inbox(subscription)
    assert numbers(found) == [2]
    assert groups_of(world)["a"][3:] == [0, 0]


@pytest.mark.parametrize("where", ["waiting", "delayed", "parked"])
@pytest.mark.parametrize("verb", ["acknowledged", "expired"])
def test_what_is_settled_by_its_bookmark_holds_nothing_and_nothing_waits_for_it(queue, where, verb):
    world = queue
    subscription = world.subscribe("work", asked=100)
    refs = put(world, ("a", 1), ("a", 2), ("a", 3))
    if where == "delayed":
        world.settle("cancelled", world.take(subscription, 1), 9_000)
        gone, left = refs[0], [2]
    elif where == "parked":
        (first,) = world.take(subscription, 10)
        gone = refs[1]
        assert world.settle(verb, {"work": [(gone, "")]}) == {}
        assert numbers(world.take(subscription, 10, [first])) == [3]
        check_groups(world)
        return
    else:
        gone, left = refs[0], [2]
    assert world.settle(verb, {"work": [(gone, "")]}) == {}
    assert numbers(world.take(subscription, 10)) == left
    check_groups(world)


def test_an_entry_that_somebody_removed_is_missing_and_the_next_one_goes(queue):
    world = queue
    subscription = world.subscribe("work", asked=100)
    refs = put(world, ("a", 1), ("a", 2), ("a", 3))
    (first,) = world.take(subscription, 10)
    world.store.redis.xdel(world.key(":log:orders"), "1000-1")
    assert numbers(world.take(subscription, 10, [first])) == [3]
    assert journal_of(world, "missing") == [refs[1]]
    check_groups(world)


def test_no_group_hides_another_however_much_of_it_waits(queue):
    world = queue
    subscription = world.subscribe("work", asked=100)
    for number in range(20):
        put(world, *[("hot", 100 * number + i) for i in range(100)])
    put(world, ("cold", 9_999))
    found = []
    for _ in range(40):
        found += world.take(subscription, 10)
        world.sweep_all()
        found += world.inbox(subscription)
    assert 9_999 in numbers(found)
    assert sum(number < 9_999 for number in set(numbers(found))) == 1
    check_groups(world)


def test_a_group_that_is_empty_leaves_no_key(queue):
    world = queue
    before = {suffix for suffix in world.state() if suffix.startswith(":q:work:")}
    subscription = world.subscribe("work", asked=100)
    put(world, ("a", 1), ("a", 2), ("b", 3))
    taken = world.take(subscription, 10)
    world.settle("cancelled", taken[:1], 100)
    world.now += 200
    world.sweep_all()
    for _ in range(4):
        items = {"work": [(ref, "") for ref in world.holders("work") if ref[0] != "."]}
        if items["work"]:
            world.settle("acknowledged", items)
        world.take(subscription, 10)
    left = {suffix for suffix in world.state() if suffix.startswith(":q:work:")}
    extra = {":q:work:journal", ":q:work:subscriptions", ":q:work:free:none"}
    assert left - before <= extra
    assert groups_of(world) == {}


def test_a_subscription_with_a_filter_is_refused_and_nothing_is_changed(queue):
    world = queue
    plain = world.subscribe("work")
    world.mark()
    with pytest.raises(GroupedQueue):
        world.subscribe("work", filter="/n > 1")
    with pytest.raises(GroupedQueue):
        world.replace(plain, "work", filter="/n > 1")
    assert world.changes() == {}


@pytest.mark.parametrize("changed", ["", grouping(by="/n"), grouping(by="")])
@pytest.mark.parametrize("where", ["unread", "leased", "delayed"])
def test_other_groups_are_refused_while_a_message_is_there_and_nothing_is_changed(queue, changed, where):
    world = queue
    put(world, ("a", 1))
    if where != "unread":
        taken = world.take(world.subscribe("work", asked=9), 1)
        if where == "delayed":
            world.settle("cancelled", taken, 9_000)
    world.mark()
    with pytest.raises(QueueNotEmpty):
        world.queue("work", "orders", grouping=changed, lease=5_000)
    assert world.changes() == {}


def test_an_instance_that_has_had_groups_has_a_format_that_the_release_before_refuses(world):
    world.queue("plain", "orders")
    assert world.state()[":instance"]["format"] == "5"
    world.queue("work", "orders", grouping=grouping())
    assert world.state()[":instance"]["format"] == "6"
    put(world, ("a", 1))
    assert numbers(world.take(world.subscribe("work"), 1)) == [1]


def test_a_queue_that_is_removed_leaves_nothing_of_its_groups(queue):
    world = queue
    subscription = world.subscribe("work", asked=9)
    put(world, ("a", 1), ("a", 2))
    world.settle("acknowledged", world.take(subscription, 1))
    world.unsubscribe(subscription)
    world.sweep_all()
    world.run("remove_queue", world.version(), "work")
    assert [suffix for suffix in world.state() if suffix.startswith(":q:work")] == []


def test_groups_are_listed_in_parts_and_by_name(queue):
    world = queue
    subscription = world.subscribe("work", asked=100)
    refs = put(world, ("a", 1), ("a", 2), ("b", 3))
    world.take(subscription, 10)
    cursor, *rows = world.run("list_groups", "work", 0, 100)
    assert cursor == "0"
    assert sorted(rows[i : i + 10] for i in range(0, len(rows), 10)) == [
        ["a", 1, 0, 1, 0, 0, 1, "", 0, ""],
        ["b", 1, 0, 0, 0, 0, 1, "", 0, ""],
    ]
    assert world.run("list_groups", "work", 0, 100, "a", "c") == ["0", "a", 1, 0, 1, 0, 0, 1, refs[1], 0, ""]
    world.run("pause_group", world.now, "work", "c", 1, "nora")
    assert world.run("list_groups", "work", 0, 100, "c") == ["0", "c", 0, 0, 0, 0, 0, 1, "", world.now, "nora"]


def test_groups_are_counted_in_parts_with_their_oldest_message(queue):
    world = queue
    assert world.run("count_groups", world.now, "work", 0, 100) == [str(world.now), "0", 0, 0, 0, 0, 0, ""]
    subscription = world.subscribe("work", asked=100)
    refs = put(world, ("a", 1), ("a", 2), ("b", 3), ("b", 4))
    _, second = world.take(subscription, 10)
    # It holds its group, and comes at once again.
    world.settle("cancelled", [second])
    world.run("pause_group", world.now, "work", "c", 1, "nora")
    oldest = re.match(r"[a-z](\d+)", refs[1])[1]
    assert world.run("count_groups", world.now, "work", 0, 100) == [str(world.now), "0", 3, 2, 1, 0, 1, oldest]


def test_a_queue_without_groups_counts_none(world):
    world.queue("work", "orders")
    assert world.run("count_groups", world.now, "work", 0, 100) == [str(world.now), "0", 0, 0, 0, 0, 0, ""]
