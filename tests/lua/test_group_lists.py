"""Lists of groups: messages that wait for their group and were never delivered stay unread, and are listed in it."""

from __future__ import annotations

import pytest
from grouped import check_groups, drop, going, grouping, groups_of, lists_of, numbers, put

from ampsq.protocol.limits import LISTED_PIECE, NOTED_LEAST

LISTED = "1 1000-3 4 1 1000 0 d1000a3/orders"


@pytest.fixture
def queue(world):
    """A queue of which the first message of a is leased, and that of b: two more of a wait, unread."""
    world.queue("work", "orders", grouping=grouping(), lease=5_000)
    world.subscription = world.subscribe("work", asked=100)
    world.refs = put(world, ("a", 1), ("a", 2), ("b", 3), ("a", 4))
    world.taken = world.take(world.subscription, 10)
    return world


def takes(world, count=10, acks=()):
    """Return the numbers of what is taken; `world.taken` has the messages."""
    world.taken = world.take(world.subscription, count, acks)
    check_groups(world)
    return numbers(world.taken)


def test_what_has_to_wait_is_listed_and_the_cursor_stays_before_it(world):
    world.queue("work", "orders", grouping=grouping(), lease=5_000)
    put(world, ("a", 1), ("a", 2), ("b", 3), ("a", 4))
    subscription = world.subscribe("work", asked=100)
    world.mark()

    assert numbers(world.take(subscription, 10)) == [1, 3]

    first, second, third, fourth = (f"d1000a{number}/orders" for number in range(4))
    assert world.changes() == {
        ":q:work": {"token": "2", "listed": "1 1000-3 4 2 1000 0 d1000a3/orders", "listings": "1"},
        ":q:work:cursors": {"orders": "1000-0 1"},
        ":q:work:ahead": {third: "delivered"},
        ":q:work:groups": {"a": "1 0 2 0 0\nl1 2 0 d1000a1 d1000a3", "b": "1 0 0 0 0"},
        ":q:work:leases": {
            first: f"1 {subscription} 1 6000 5000\na",
            third: f"2 {subscription} 1 6000 5000\nb",
        },
        ":due": {"leases work": 6000},
        ":s:s00000001": {"leased": "2"},
        ":q:work:free:none": {subscription: 0.02},
    }
    assert lists_of(world) == {"a": [second, fourth]}


def test_the_first_of_a_list_leaves_it_when_it_is_given(queue):
    world = queue
    world.mark()
    assert numbers(world.take(world.subscription, 10, world.taken[:1])) == [2]
    assert world.changes() == {
        ":q:work": {"token": "3", "listed": LISTED, "acknowledged": "1"},
        ":q:work:ahead": {"d1000a1/orders": "delivered"},
        ":q:work:groups": {"a": "1 0 1 0 0\nl1 1 0 d1000a3"},
        ":q:work:journal": [{"how": "acknowledged", "reason": "", "refs": "d1000a0/orders", "by": world.subscription}],
        ":q:work:leases": {"d1000a1/orders": f"3 {world.subscription} 1 6000 5000\na", "d1000a0/orders": None},
    }


def test_the_only_one_of_a_list_leaves_it_in_the_call_in_which_another_one_joins(world):
    world.queue("work", "orders", grouping=grouping(choice="round_robin", affinity=30_000), lease=5_000)
    world.subscription = world.subscribe("work", asked=1)
    put(world, ("a", 1), ("a", 2))
    assert takes(world) == [1]
    put(world, ("a", 3))

    assert takes(world, acks=world.taken) == [2]
    assert takes(world, acks=world.taken) == [3]


def test_where_nothing_is_listed_any_more_the_cursor_follows(queue):
    world = queue
    first, other = world.taken
    (second,) = world.take(world.subscription, 10, [first])
    world.mark()
    assert numbers(world.take(world.subscription, 10, [second])) == [4]
    changes = world.changes()
    assert changes[":q:work"] == {"token": "4", "listed": None, "acknowledged": "2"}
    assert changes[":q:work:cursors"] == {"orders": "1000-3 4"}
    assert changes[":q:work:ahead"] is None
    assert changes[":q:work:groups"] == {"a": "1 0 0 0 0"}
    assert takes(world, acks=[other]) == []


def test_what_is_listed_and_settled_otherwise_is_passed_over(queue):
    world = queue
    put(world, ("a", 5))
    assert takes(world) == []
    world.unsubscribe(world.subscription)
    world.mark()

    assert world.settle("acknowledged", {"work": [(world.refs[1], "")]}) == {}

    listed = "1 1000-4 5 3 1000 2 d1000a4/orders"
    changes = world.changes()
    assert (changes[":q:work"]["listed"], changes[":q:work:ahead"]) == (listed, {"d1000a1/orders": "acknowledged"})
    assert ":q:work:groups" not in changes
    world.subscription = world.subscribe("work", asked=100)
    world.now += 6_000
    world.sweep_all()
    assert takes(world) == [1, 3]
    assert takes(world, acks=world.taken) == [4]
    assert takes(world, acks=world.taken) == [5]
    assert takes(world, acks=world.taken) == []
    assert "listed" not in world.state()[":q:work"]


def test_what_is_listed_and_expired_is_passed_over(world):
    world.queue("work", "orders", grouping=grouping(), lease=100_000)
    world.subscription = world.subscribe("work", asked=100)
    put(world, ("a", 1))
    put(world, ("a", 2), ("a", 3), expiration=1_000)
    put(world, ("a", 4))
    assert takes(world) == [1]
    world.now += 2_000
    world.sweep_all()
    assert takes(world, acks=world.taken) == [4]


def test_a_scheduled_message_behind_what_is_listed_comes_when_it_is_due(queue):
    world = queue
    put(world, ("b", 5), due="+3000")
    put(world, ("b", 6))
    assert takes(world, acks=world.taken[1:]) == [6]
    assert " 2 " in world.state()[":q:work"]["listed"]
    world.now = 4_001
    world.sweep_all()
    assert takes(world, acks=world.taken) == [5]
    assert groups_of(world)["b"][:3] == [1, 0, 0]


def test_a_long_list_has_pieces_that_go_one_by_one(world):
    world.queue("work", "orders", grouping=grouping(), lease=5_000)
    world.subscription = world.subscribe("work", asked=100)
    most = 5 * LISTED_PIECE
    put(world, *[("a", number) for number in range(most)])
    assert takes(world) == [0]
    put(world, *[("a", number) for number in range(most, most + 3)])
    assert world.take(world.subscription, 10) == []
    # Two pieces' worth stand in the group's text; what comes later fills the last one up.
    assert sorted(world.state()[":q:work:listed"]) == ["a\x000", "a\x001", "a\x002", "a\x003"]
    assert lists_of(world)["a"] == sorted(lists_of(world)["a"])
    for number in range(1, most + 3):
        assert takes(world, acks=world.taken) == [number]
    assert ":q:work:listed" not in world.state()


def test_a_group_that_stands_still_does_not_keep_what_others_have_noted_for_ever(world):
    world.queue("work", "orders", grouping=grouping(), lease=5_000)
    world.subscription = world.subscribe("work", asked=1_000)
    put(world, ("a", 0), ("a", 1))
    (held,) = world.take(world.subscription, 10)
    number = 2
    for _ in range(2 * NOTED_LEAST // 100):
        put(world, *[(f"g{each}", number + each) for each in range(100)])
        number += 100
        world.take(world.subscription, 100, world.take(world.subscription, 100))
    assert len(world.state().get(":q:work:ahead", {})) <= NOTED_LEAST + 400
    check_groups(world)
    # What kept the cursor has its place now, as what came back has.
    assert lists_of(world) == {}
    assert [*world.state()[":q:work:sorted:none"]] == ["d1000a1/orders"]
    assert takes(world, acks=[held]) == [1]


def test_what_is_listed_counts_as_ready_and_what_is_behind_it_as_unread(queue):
    world = queue
    world.unsubscribe(world.subscription, world.taken[1:])
    put(world, ("b", 5), ("a", 6))
    stats = world.run("read_stats", "work")
    assert (stats[2], stats[4]) == (3, 3), "two that are listed and one that came back; with them one that is noted"
    assert stats[8:10] == ["orders", 5], "all of these, and two that nobody has looked at"


@pytest.mark.parametrize("filter_of_queue", ["/n > 3", ""])
def test_what_is_listed_has_entered_whatever_the_filter_is_later(queue, filter_of_queue):
    world = queue
    world.queue("work", "orders", grouping=grouping(), lease=5_000, entry=filter_of_queue)
    put(world, ("a", 3), ("a", 5))
    found = numbers(world.taken)
    while world.taken:
        found += takes(world, acks=world.taken)
    assert found == [1, 3, 2, 4, *([] if filter_of_queue else [3]), 5]


def test_what_is_listed_is_delivered_by_the_log_where_the_queue_has_more_topics(queue):
    world = queue
    world.queue("work", "orders", grouping=grouping(), lease=5_000, pattern=True)
    found = numbers(world.taken)
    for _ in range(4):
        world.taken = world.take(world.subscription, 10, world.taken)
        found += numbers(world.taken)
    assert sorted(found) == [1, 2, 3, 4]
    assert found.index(2) < found.index(4)
    assert not {":q:work:listed", ":q:work:ahead"} & {*world.state()}


def test_a_queue_that_is_removed_leaves_nothing_of_its_lists(world):
    world.queue("work", "orders", grouping=grouping(), lease=5_000)
    subscription = world.subscribe("work", asked=100)
    put(world, *[("a", number) for number in range(5 * LISTED_PIECE)])
    taken = world.take(subscription, 1)
    assert ":q:work:listed" in world.state()
    world.unsubscribe(subscription, taken)
    world.run("remove_queue", world.version(), "work")
    assert not [name for name in world.state() if name.startswith(":q:work")]


def test_a_long_list_that_is_dropped_leaves_no_piece(world):
    world.queue("work", "orders", grouping=grouping(), lease=5_000)
    subscription = world.subscribe("work", asked=100)
    put(world, *[("a", number) for number in range(5 * LISTED_PIECE)])
    world.take(subscription, 1)
    assert drop(world, "a") == 5 * LISTED_PIECE - 1
    check_groups(world)
    assert ":q:work:listed" not in world.state()


def test_a_group_that_is_dropped_loses_what_is_listed(queue):
    world = queue
    assert drop(world, "a", only_count=True) == 2
    assert drop(world, "a") == 2
    check_groups(world)
    assert going(world) == []
    put(world, ("a", 6))
    assert takes(world, acks=world.taken) == [6]


@pytest.mark.parametrize("choice", ["round_robin", "fair"])
def test_where_groups_take_turns_all_that_waits_is_listed(world, choice):
    world.queue("work", "orders", grouping=grouping(choice=choice), lease=5_000)
    world.subscription = world.subscribe("work", asked=2)
    refs = put(world, *[(group, number) for number in range(3) for group in ("a", "b", "c")])
    assert numbers(world.take(world.subscription, 2)) == [0, 0]
    check_groups(world, choice=choice)
    assert lists_of(world) == {"a": refs[3::3], "b": refs[4::3], "c": refs[2::3]}
    assert ":q:work:sorted:none" not in world.state()
