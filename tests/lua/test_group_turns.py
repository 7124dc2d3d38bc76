"""Groups that take turns: round robin, fair shares by weights, and groups that come, go and come again."""

from __future__ import annotations

import itertools

import pytest
from grouped import ANCHOR, check_groups, grouping, groups_of, line, lists_of, numbers, put

#: The same tenants under names in both alphabetical orders: no name is to be better than another.
NAMES = [("a", "m", "z"), ("z", "m", "a")]


def taking_turns(world, choice, *, concurrency=1, failure="hold", weight=None, asked=100):
    elements = grouping(concurrency, failure, choice=choice, weight=weight)
    world.queue("work", "orders", grouping=elements, lease=5_000)
    return world.subscribe("work", asked=asked)


def served(world, subscription, number):
    """Groups of messages that are taken and settled one by one; nothing is pushed before and after."""
    found, done = [], []
    world.replace(subscription, "work", asked=1)
    for _ in range(number):
        done = world.take(subscription, 1, done)
        found += [message.fields.get("ampsq:group", "") for message in done]
    world.replace(subscription, "work", asked=0)
    world.settle("acknowledged", done)
    return found


@pytest.mark.parametrize("names", NAMES)
@pytest.mark.parametrize("choice", ["round_robin", "fair"])
def test_each_group_has_its_turn_however_much_of_another_waits(world, choice, names):
    noisy, other, quiet = names
    subscription = taking_turns(world, choice, asked=0)
    put(world, *[(noisy, n) for n in range(20)], *[(other, n) for n in range(4)], (quiet, 0))
    assert served(world, subscription, 8) == [noisy, other, quiet, noisy, other, noisy, other, noisy]
    check_groups(world, choice=choice)


@pytest.mark.parametrize("names", NAMES)
def test_one_call_takes_in_turn_as_single_ones_do(world, names):
    one, two, _ = names
    subscription = taking_turns(world, "round_robin", concurrency=50, failure="pass")
    put(world, *[(one, n) for n in range(10)], *[(two, n) for n in range(10, 14)])
    assert numbers(world.take(subscription, 12)) == [0, 10, 1, 11, 2, 12, 3, 13, 4, 5, 6, 7]
    check_groups(world, concurrency=50, failure="pass", choice="round_robin")


@pytest.mark.parametrize("names", NAMES)
def test_fair_gives_to_the_smallest_share_of_what_is_leased_by_weight(world, names):
    heavy, light, _ = names
    subscription = taking_turns(world, "fair", concurrency=50, failure="pass", weight="/w")
    put(world, *[(light, n, 1) for n in range(20)], *[(heavy, n, 3) for n in range(100, 120)])
    taken = [message.fields["ampsq:group"] for message in world.take(subscription, 16)]
    assert (taken.count(heavy), taken.count(light)) == (12, 4)
    # Whoever has least goes first, whatever is taken in one call.
    assert taken[:8] == [light, heavy, heavy, heavy, light, heavy, heavy, heavy]
    check_groups(world, concurrency=50, failure="pass", choice="fair")


@pytest.mark.parametrize("names", NAMES)
def test_what_a_group_settles_makes_its_share_smaller_at_once(world, names):
    one, two, _ = names
    subscription = taking_turns(world, "fair", concurrency=9, failure="pass", asked=6)
    put(world, *[(one, n) for n in range(6)], *[(two, n) for n in range(10, 16)])
    taken = world.take(subscription, 6)
    mine = [message for message in taken if message.fields["ampsq:group"] == one]
    world.settle("acknowledged", mine[:2])
    assert [message.fields["ampsq:group"] for message in world.take(subscription, 2)] == [one, one]
    check_groups(world, concurrency=9, failure="pass", choice="fair")


@pytest.mark.parametrize("said", [0, -3, 1_001, None, "much", 10**30])
def test_a_weight_is_a_number_from_1_to_1000_or_it_is_1(world, said):
    taking_turns(world, "fair", weight="/w", asked=0)
    put(world, ("a", 1, said), ("b", 2, 1_000), ("c", 3, 7.9))
    world.sweep_all()
    assert {group: state[6] for group, state in groups_of(world).items()} == {"a": 1, "b": 1_000, "c": 7}


def test_a_group_has_the_weight_of_the_first_that_waits_until_nothing_of_it_waits(world):
    subscription = taking_turns(world, "fair", weight="/w", asked=1)
    put(world, ("a", 1, 5), ("a", 2, 6))
    (first,) = world.inbox(subscription) or world.take(subscription, 1)
    assert groups_of(world)["a"][6] == 5
    world.take(subscription, 1, [first])
    put(world, ("a", 3, 9))
    world.sweep_all()
    assert groups_of(world)["a"][6] == 9
    put(world, ("a", 4, 2))
    world.sweep_all()
    assert groups_of(world)["a"][6] == 9


@pytest.mark.parametrize("names", [("b", "q"), ("y", "c")])
@pytest.mark.parametrize("choice", ["round_robin", "fair"])
def test_a_quiet_group_is_next_beside_many_noisy_ones_though_it_was_served_before(world, choice, names):
    prefix, quiet = names
    subscription = taking_turns(world, choice, asked=0)
    put(world, *[(f"{prefix}{number}", number) for _ in range(5) for number in range(30)])
    served(world, subscription, 40)
    for _ in range(3):
        put(world, (quiet, 1))
        assert served(world, subscription, 1) == [quiet]
        # A round is over before it comes again.
        assert quiet not in served(world, subscription, 31)


@pytest.mark.parametrize("names", [("b", "q"), ("y", "c")])
def test_a_group_that_comes_again_at_once_waits_for_the_others_of_its_round(world, names):
    prefix, greedy = names
    subscription = taking_turns(world, "round_robin", asked=0)
    put(world, (greedy, 0), *[(f"{prefix}{number}", number) for _ in range(4) for number in range(6)])
    found = []
    for _ in range(14):
        found += served(world, subscription, 1)
        if found[-1] == greedy:
            put(world, (greedy, 0))
    assert [place for place, group in enumerate(found) if group == greedy] == [0, 7]
    check_groups(world, choice="round_robin")


def test_however_many_groups_join_those_that_wait_are_not_kept_from_their_turn(world):
    subscription = taking_turns(world, "round_robin", asked=0)
    put(world, *[(f"old{number}", number) for number in range(5)] * 2)
    served(world, subscription, 5)
    found = []
    for number in range(20):
        put(world, (f"new{number}a", 0), (f"new{number}b", 0))
        found += served(world, subscription, 1)
    assert {f"old{number}" for number in range(5)} <= {*found}


def test_a_message_without_a_group_is_a_tenant_of_its_own(world):
    subscription = taking_turns(world, "fair", concurrency=5, failure="pass")
    put(world, *[("a", n) for n in range(3)], (None, 10), (None, 11))
    assert numbers(world.take(subscription, 5)) == [0, 10, 11, 1, 2]
    check_groups(world, concurrency=5, failure="pass", choice="fair")


@pytest.mark.parametrize("choice", ["round_robin", "fair"])
def test_publishing_places_nothing_while_nobody_is_free_and_a_duty_does(world, choice):
    taking_turns(world, choice, asked=0)
    put(world, *[(f"g{number % 7}", number) for number in range(50)])
    assert groups_of(world) == {}
    world.sweep_all()
    assert {group: state[:3] for group, state in groups_of(world).items()} == {
        f"g{number}": [0, 1, 8 if number == 0 else 7] for number in range(7)
    }
    assert [group for group, _ in line(world)] == [f"g{number}" for number in range(7)]


def test_turns_are_kept_until_they_were_reached_and_then_nothing_is_left(world):
    subscription = taking_turns(world, "round_robin", asked=0)
    put(world, ("a", 1), ("b", 2), ("b", 3), ("c", 4))
    served(world, subscription, 2)
    assert set(world.state()[":q:work:turns"]) == {"a"}
    served(world, subscription, 2)
    world.sweep_all()
    state = world.state()
    assert ":q:work:turns" not in state
    assert set(state[":q:work:groups"]) == {ANCHOR}


def test_names_that_come_once_leave_nothing_beside_a_group_that_always_has_something_leased(world):
    subscription = taking_turns(world, "fair", concurrency=1_000, failure="pass", asked=0)
    holder = world.subscribe("work", asked=1)
    put(world, *[("busy", number) for number in range(200)])
    (kept,) = world.inbox(holder)
    for number in range(60):
        put(world, (f"once{number}", 0))
        assert served(world, subscription, 3) == [f"once{number}", "busy", "busy"]
    assert len(world.state().get(":q:work:turns", {})) <= 2
    assert kept.ref in world.holders("work")


def test_a_held_group_gives_what_failed_in_its_turn(world):
    subscription = taking_turns(world, "round_robin", concurrency=2)
    put(world, ("a", 1), ("a", 2), ("a", 3), ("b", 4), ("b", 5), ("b", 6))
    first, _, second, _ = world.take(subscription, 4)
    assert numbers([first, second]) == [1, 2]
    world.settle("cancelled", [first, second])
    assert numbers(world.take(subscription, 4)) == [1, 2]
    check_groups(world, concurrency=2, choice="round_robin")


@pytest.mark.parametrize(("before", "after"), [("first", "fair"), ("fair", "first"), ("first", "round_robin")])
def test_another_choice_puts_all_that_waits_in_its_order(world, before, after):
    subscription = taking_turns(world, before, concurrency=2, failure="pass", asked=1)
    put(world, *[("a", number) for number in range(4)], (None, 4), ("b", 5), (None, 6), ("b", 7))
    (held,) = world.take(subscription, 1) or world.inbox(subscription)
    world.sweep_all()
    world.queue("work", "orders", grouping=grouping(2, "pass", choice=after), lease=5_000)
    world.sweep_all()
    check_groups(world, concurrency=2, failure="pass", choice=after)
    if after == "first":
        assert {score for _, score in line(world)} == {0}
    other = world.subscribe("work", asked=100)
    found = numbers(world.inbox(other) + world.take(other, 100))
    if after == "first":
        assert found == [1, 4, 5, 6, 7]
    else:
        assert sorted(found) == [1, 4, 5, 6, 7]
    assert numbers(world.take(subscription, 1, [held])) == [2]
    check_groups(world, concurrency=2, failure="pass", choice=after)


def test_a_removed_queue_leaves_no_turns(world):
    subscription = taking_turns(world, "round_robin", asked=0)
    put(world, ("a", 1), ("b", 2), ("b", 3))
    served(world, subscription, 1)
    assert ":q:work:turns" in world.state()
    world.unsubscribe(subscription)
    world.run("remove_queue", world.version(), "work")
    assert not [name for name in world.state() if name.startswith(":q:work:turns")]


def test_nothing_but_what_failed_goes_of_a_held_group_that_has_room(world):
    subscription = taking_turns(world, "round_robin", concurrency=3, asked=2)
    put(world, *[("a", number) for number in range(5)])
    first, _ = world.take(subscription, 2)
    world.replace(subscription, "work", asked=5)
    held = world.inbox(subscription)
    world.settle("cancelled", [first])
    assert numbers(held) == [2]
    assert numbers(world.take(subscription, 5)) == [2, 0]
    world.settle("cancelled", held)
    assert numbers(world.take(subscription, 5)) == [2]
    check_groups(world, concurrency=3, choice="round_robin")


@pytest.mark.parametrize("choice", ["round_robin", "fair"])
def test_a_call_gives_places_to_a_bounded_number_of_messages_however_many_groups_there_are(world, choice):
    taking_turns(world, choice, asked=0)
    put(world, *[(f"g{number}", number) for number in range(1_500)])
    placed, more = [0], 1
    while more:
        more, _ = world.sweep()
        placed.append(sum(map(len, lists_of(world).values())))
    steps = [after - before for before, after in itertools.pairwise(placed)]
    assert sum(steps) == 1_500
    # A message of a group of its own is 12 to 15 us of the server.
    assert max(steps) <= 400


@pytest.mark.parametrize("choice", ["first", "round_robin", "fair"])
def test_what_is_next_of_groups_that_a_call_frees_is_given_by_it_without_standing_among_what_may_go(world, choice):
    subscription = taking_turns(world, choice, asked=5)
    put(world, *[(f"g{number // 8}", number) for number in range(40)])
    done = world.take(subscription, 5)
    for _ in range(2):
        done = world.take(subscription, 5, done)
    world.store.redis.config_resetstat()
    done = world.take(subscription, 5, done)
    calls = {name: row["calls"] for name, row in world.store.redis.info("commandstats").items()}
    assert len(done) == 5
    # Nothing of it stood in a sorted set: neither in its place nor among what may go.
    assert "cmdstat_zrem" not in calls
    check_groups(world, choice=choice)


@pytest.mark.parametrize("choice", ["first", "round_robin", "fair"])
def test_what_is_next_of_freed_groups_and_is_not_given_stands_among_what_may_go(world, choice):
    subscription = taking_turns(world, choice, asked=5)
    put(world, *[(f"g{number // 8}", number) for number in range(40)])
    done = world.take(subscription, 5)
    done = world.take(subscription, 5, done)
    world.replace(subscription, "work", asked=2)
    taken = world.take(subscription, 2, done)
    assert len(taken) == 2
    check_groups(world, choice=choice)
    assert len(line(world)) == 3
    # Nobody has room, and nothing is given.
    world.replace(subscription, "work", asked=0)
    assert world.take(subscription, 0, taken) == []
    check_groups(world, choice=choice)
    assert len(line(world)) == 5
