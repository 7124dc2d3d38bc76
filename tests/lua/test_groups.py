"""Messages in groups: each group in its order, so many of it at a time, and what a failure does to the others of it."""

from __future__ import annotations

import pytest
from grouped import check_groups, grouping, numbers, put


@pytest.fixture
def queue(world):
    world.queue("work", "orders", grouping=grouping(), lease=5_000)
    return world


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
