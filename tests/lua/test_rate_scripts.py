"""Rates: how many messages a queue delivers in what time, and each of its groups; what counts, and what comes next."""

from __future__ import annotations

import pytest
from grouped import check_groups, going, grouping, numbers, put
from judged import END

#: Microseconds.
SECOND = 1_000_000
KEYS = (":q:work:rates", ":q:work:later")


def rated(step=0, burst=0, group_step=0, group_burst=0):
    """Microseconds from one message to the next, and bursts, of the queue and of each group."""
    return f"{step} {burst} {group_step} {group_burst}"


def queue_of(world, rates, *, asked=100, **elements):
    world.queue("work", "orders", rated=rates, **({"lease": 60_000} | elements))
    return world.subscribe("work", asked=asked)


def pass_time(world, milliseconds):
    """Let the coordinator do what is due until then."""
    end = world.now + milliseconds
    while True:
        more, wait = world.sweep()
        if not more and (wait < 0 or world.now + wait > end):
            break
        world.now += max(wait, 0)
    world.now = end


def publish(world, number, first=0):
    return put(world, *[(None, first + n) for n in range(number)])


def test_a_burst_comes_at_once_and_then_one_each_interval(world):
    subscription = queue_of(world, rated(100_000, 3))
    publish(world, 10)
    assert numbers(world.inbox(subscription)) == [0, 1, 2]
    world.take(subscription, 10)
    pass_time(world, 99)
    assert numbers(world.inbox(subscription)) == []
    pass_time(world, 1)
    assert numbers(world.inbox(subscription)) == [3]
    pass_time(world, 300)
    assert numbers(world.inbox(subscription)) == [3, 4, 5, 6]


def test_whoever_takes_looks_and_needs_no_sweep(world):
    subscription = queue_of(world, rated(100_000, 1), asked=0)
    world.replace(subscription, "work", asked=100)
    publish(world, 5)
    found = numbers(world.take(subscription, 10))
    for _ in range(3):
        world.now += 100
        found += numbers(world.take(subscription, 10))
    world.now += 99
    assert world.take(subscription, 10) == []
    assert found == [0, 1, 2, 3]


def test_a_bucket_that_was_not_used_holds_no_more_than_its_burst(world):
    subscription = queue_of(world, rated(100_000, 2))
    world.now += 3_600_000
    publish(world, 9)
    assert numbers(world.take(subscription, 10)) == [0, 1]


def test_all_subscriptions_share_the_rate_of_a_queue(world):
    first = queue_of(world, rated(100_000, 2), asked=1)
    second = world.subscribe("work", asked=1)
    third = world.subscribe("work", asked=1)
    publish(world, 5)
    assert sorted(numbers(world.inbox(first) + world.inbox(second) + world.inbox(third))) == [0, 1]


@pytest.mark.parametrize("step", [333_333.333333, 1_428.571429, 7_000])
def test_in_the_long_run_as_many_are_delivered_as_the_rate_says(world, step):
    subscription = queue_of(world, rated(step, 5))
    publish(world, 500)
    publish(world, 500, 500)
    begin, done = world.now, world.take(subscription, 100)
    found = numbers(done)
    look = int(2 * step / 1_000)
    while len(found) < 200:
        world.now += look
        done = world.take(subscription, 100, done)
        found += numbers(done)
        assert len(found) <= 5 + (world.now - begin) * 1_000 / step + 1e-6
    assert len(found) >= 4 + (world.now - begin) * 1_000 / step - 1
    assert found == [*range(len(found))]


def test_a_redelivery_counts_and_what_was_given_back_does_not(world):
    subscription = queue_of(world, rated(100_000, 2))
    publish(world, 4)
    first, second = world.take(subscription, 10)
    assert world.settle("cancelled", [first]) == {}
    assert world.take(subscription, 10) == []
    world.now += 100
    (again,) = world.take(subscription, 10)
    assert again.ref == first.ref
    assert world.settle("given_back", [second, again]) == {}
    assert numbers(world.take(subscription, 10)) == [0, 1]


def test_what_nobody_collected_counts_for_nothing_when_its_subscription_ends(world):
    first = queue_of(world, rated(1_000_000, 3))
    publish(world, 3)
    assert len(world.inbox(first)) == 3
    world.unsubscribe(first)
    second = world.subscribe("work", asked=100)
    world.sweep_all()
    assert numbers(world.take(second, 10)) == [0, 1, 2]


@pytest.mark.parametrize(
    "elements",
    [
        {},
        {"once": 1, "fairness": "round-robin"},
        {"priority": "1"},
        {"entry": "/n >= 0"},
        {"ring": 100},
        {"depth": 1_000},
        {"backlog": 50},
        {"grouping": grouping()},
        {"grouping": grouping(choice="fair")},
        {"policy": {"life": 10_000_000}},
    ],
)
def test_every_kind_of_queue_keeps_to_its_rate(world, elements):
    subscription = queue_of(world, rated(100_000, 2), **elements)
    publish(world, 6)
    world.sweep_all()
    found = numbers(world.inbox(subscription))
    assert found == [0, 1]
    pass_time(world, 250)
    assert numbers(world.inbox(subscription)) == [0, 1, 2, 3]
    world.take(subscription, 10)
    world.now += 1_000
    assert numbers(world.take(subscription, 10)) == [4, 5]


def test_a_filter_of_a_subscription_takes_no_tokens_for_what_it_does_not_match(world):
    queue_of(world, rated(100_000, 2), asked=0)
    subscription = world.subscribe("work", asked=10, filter="/n >= 4")
    publish(world, 8)
    world.sweep_all()
    assert numbers(world.take(subscription, 10)) == [4, 5]


def test_a_barrier_takes_no_token_and_waits_for_what_is_before_it(world):
    subscription = queue_of(world, rated(100_000, 1), barrier="/end = 1")
    publish(world, 2)
    world.publish("orders", END)
    publish(world, 1, 9)
    world.sweep_all()
    done = world.take(subscription, 10)
    assert numbers(done) == [0]
    world.now += 100
    done = world.take(subscription, 10, done)
    assert numbers(done) == [1]
    (barrier,) = world.take(subscription, 10, done)
    assert barrier.body == END
    world.now += 100
    world.sweep_all()
    assert numbers(world.take(subscription, 10)) == [9]


def test_a_full_bucket_leaves_no_key_and_nothing_in_the_timetable(world):
    subscription = queue_of(world, rated(100_000, 3, 200_000, 2), grouping=grouping(5, "pass"))
    put(world, ("a", 1), ("a", 2), ("b", 3), ("b", 4))
    done = []
    for _ in range(5):
        done = world.take(subscription, 10, done)
        pass_time(world, 200)
        done += world.inbox(subscription)
    world.take(subscription, 0, done)
    pass_time(world, 3_000)
    state = world.state()
    assert not {*KEYS} & {*state}
    assert not [member for member in state.get(":due", {}) if member.startswith("rates")]


def test_a_queue_without_a_rate_has_none_of_its_keys(world):
    world.queue("work", "orders", lease=1_000)
    subscription = world.subscribe("work", asked=10)
    publish(world, 3)
    world.take(subscription, 10)
    assert not {*KEYS} & {*world.state()}
    assert "rated" not in world.state()[":q:work"]


@pytest.mark.parametrize(
    ("changed", "wait", "found"),
    [
        (rated(1_000, 1), 1, [2]),
        (rated(1_000, 2), 2, [2, 3]),
        ("", 0, [2, 3, 4]),
        (rated(10 * SECOND, 2), 1_999, [2]),
        (rated(10 * SECOND, 2), 2_000, [2, 3]),
    ],
)
def test_another_rate_holds_at_once(world, changed, wait, found):
    subscription = queue_of(world, rated(SECOND, 2))
    publish(world, 5)
    world.take(subscription, 10)
    assert world.inbox(subscription) == []
    world.queue("work", "orders", lease=60_000, rated=changed)
    pass_time(world, wait)
    assert numbers(world.inbox(subscription)) == found


def test_a_smaller_burst_leaves_no_bucket_that_is_emptier_than_empty(world):
    # Given a bucket of five tokens that were all taken, and nobody who looks at it
    queue_of(world, rated(100_000, 5), asked=5)
    publish(world, 5)
    check = ("check_groups", world.now, "work", "rates", "0", "0")
    assert world.run(*check)[:3] == ["0", 0, 0]
    # When it may hold only one
    world.queue("work", "orders", rated=rated(100_000, 1), lease=60_000)
    # Then it is one that a queue of that rate can have
    assert world.run(*check)[:3] == ["0", 0, 0]


def test_a_queue_that_begins_to_have_a_rate_begins_with_a_full_bucket(world):
    subscription = queue_of(world, "", asked=2)
    publish(world, 9)
    done = world.take(subscription, 2)
    world.queue("work", "orders", lease=60_000, rated=rated(SECOND, 1))
    assert numbers(world.take(subscription, 9, done)) == [2]
    assert world.state()[":instance"]["format"] == "6"


def test_a_clock_that_was_set_back_holds_nobody_up_longer_than_one_interval(world):
    world.now = 10_000_000
    subscription = queue_of(world, rated(100_000, 2, 300_000, 1), grouping=grouping(9, "pass"))
    put(world, *[("a", n) for n in range(4)], *[(None, n) for n in range(10, 14)])
    assert numbers(world.take(subscription, 10)) == [0, 10]
    world.now = 1_000
    found = []
    for _ in range(10):
        world.now += 100
        found += numbers(world.take(subscription, 10))
    assert sorted(found) == [1, 2, 3, 11, 12, 13]


def test_a_paused_queue_takes_no_token(world):
    from ampsq.protocol.limits import NO_ROOM  # noqa: PLC0415

    subscription = queue_of(world, rated(SECOND, 1), backlog=NO_ROOM)
    publish(world, 2)
    assert world.take(subscription, 10) == []
    assert ":q:work:rates" not in world.state()


def test_a_removed_queue_leaves_nothing_of_its_rates(world):
    subscription = queue_of(world, rated(SECOND, 9, SECOND, 1), grouping=grouping(9, "pass"))
    put(world, ("a", 1), ("a", 2))
    world.settle("acknowledged", world.take(subscription, 1))
    assert {*KEYS} <= {*world.state()}
    world.unsubscribe(subscription)
    world.run("remove_queue", world.version(), "work")
    state = world.state()
    assert not [name for name in state if name.startswith(":q:work")]
    assert "rates work" not in state.get(":due", {})


# -- of each group


CHOICES = ["first", "round_robin", "fair"]


def groups_with(world, rates, choice="first", concurrency=9, failure="pass", **elements):
    elements = {"grouping": grouping(concurrency, failure, choice=choice)} | elements
    return queue_of(world, rates, **elements)


@pytest.mark.parametrize("choice", CHOICES)
def test_each_group_has_its_rate_for_itself_and_keeps_back_no_other(world, choice):
    subscription = groups_with(world, rated(0, 0, 100_000, 2), choice)
    put(world, *[("a", n) for n in range(5)], *[("b", n) for n in range(10, 13)], (None, 20), (None, 21), (None, 22))
    found = numbers(world.take(subscription, 100))
    assert sorted(found) == [0, 1, 10, 11, 20, 21, 22]
    world.now += 100
    assert sorted(numbers(world.take(subscription, 100))) == [2, 12]
    pass_time(world, 100)
    assert numbers(world.inbox(subscription)) == [3]
    check_groups(world, concurrency=9, failure="pass", choice=choice, group_rate=(100_000, 2))


@pytest.mark.parametrize("choice", CHOICES)
@pytest.mark.parametrize("concurrency", [1, 2])
def test_a_group_needs_room_and_a_token(world, choice, concurrency):
    subscription = groups_with(world, rated(0, 0, 100_000, 2), choice, concurrency, "hold")
    put(world, *[("a", n) for n in range(5)])
    done = world.take(subscription, 10)
    assert numbers(done) == [*range(concurrency)]
    world.now += 1_000
    assert world.take(subscription, 10) == []
    done = world.take(subscription, 10, done)
    assert numbers(done) == [*range(concurrency, 2 * concurrency)]
    check_groups(world, concurrency=concurrency, choice=choice, group_rate=(100_000, 2))


@pytest.mark.parametrize("choice", CHOICES)
def test_a_group_that_waits_for_its_rate_alone_is_delivered_when_that_is_due(world, choice):
    subscription = groups_with(world, rated(0, 0, SECOND, 1), choice, 1, "hold")
    put(world, ("a", 1), ("a", 2))
    first = world.take(subscription, 10)
    world.take(subscription, 0, first)
    assert going(world) == []
    assert list(world.state()[":q:work:later"]) == ["a"]
    pass_time(world, 999)
    assert world.inbox(subscription) == []
    pass_time(world, 1)
    assert numbers(world.inbox(subscription)) == [2]
    assert ":q:work:later" not in world.state()


@pytest.mark.parametrize("choice", CHOICES)
def test_a_redelivery_of_a_group_counts_and_what_was_given_back_does_not(world, choice):
    subscription = groups_with(world, rated(0, 0, SECOND, 2), choice, 5, "hold")
    put(world, *[("a", n) for n in range(3)])
    first, second = world.take(subscription, 10)
    world.settle("cancelled", [first])
    assert world.take(subscription, 10) == []
    world.settle("given_back", [second])
    assert numbers(world.take(subscription, 10)) == [0]
    check_groups(world, concurrency=5, failure="hold", choice=choice, group_rate=(SECOND, 2))


def test_a_failed_message_that_comes_back_waits_for_the_rate_of_its_group(world):
    subscription = groups_with(world, rated(0, 0, SECOND, 1), "first", 1, "hold")
    put(world, ("a", 1), ("a", 2), ("b", 3))
    first, _ = world.take(subscription, 10)
    world.settle("cancelled", [first], 300)
    pass_time(world, 900)
    assert world.inbox(subscription) == []
    pass_time(world, 100)
    assert numbers(world.inbox(subscription)) == [1]


@pytest.mark.parametrize(("changed", "found"), [(rated(0, 0, 1_000, 1), [1]), (rated(), []), ("", [1, 2])])
@pytest.mark.parametrize("choice", CHOICES)
def test_another_rate_of_groups_holds_at_once(world, choice, changed, found):
    if changed == rated():
        changed, found = rated(0, 0, 3_600 * SECOND, 2), [1]
    subscription = groups_with(world, rated(0, 0, SECOND, 1), choice)
    put(world, *[("a", n) for n in range(3)])
    world.take(subscription, 10)
    world.queue("work", "orders", lease=60_000, rated=changed, grouping=grouping(9, "pass", choice=choice))
    pass_time(world, 1)
    assert numbers(world.take(subscription, 10))[: len(found)] == found
    check_rate = (3_600 * SECOND, 2) if "3600" in changed else (1_000, 1) if changed else None
    check_groups(world, concurrency=9, failure="pass", choice=choice, group_rate=check_rate)


def test_a_rate_of_the_queue_and_one_of_each_group_both_hold(world):
    subscription = groups_with(world, rated(10_000, 3, 100_000, 1))
    put(world, *[(f"g{n % 5}", n) for n in range(10)])
    assert numbers(world.take(subscription, 100)) == [0, 1, 2]
    world.now += 20
    assert numbers(world.take(subscription, 100)) == [3, 4]
    world.now += 20
    assert world.take(subscription, 100) == []
    world.now += 60
    assert numbers(world.take(subscription, 100)) == [5, 6, 7]


def test_many_groups_that_become_due_at_once_come_in_bounded_steps(world):
    subscription = groups_with(world, rated(0, 0, SECOND, 1), asked=2_000)
    for first in range(0, 450, 150):
        put(world, *[(f"g{n}", n) for n in range(first, first + 150)] * 2)
    found = []
    for _ in range(4):
        found += numbers(world.take(subscription, 500))
    assert len(found) == 450
    world.now += 1_000
    world.sweep_all()
    found = []
    for _ in range(4):
        found += numbers(world.take(subscription, 500))
    assert len(found) == 450


@pytest.mark.parametrize("choice", ["first", "round_robin"])
def test_a_release_ends_the_wait_for_the_rate_of_a_group(world, choice):
    world.queue("work", "orders", grouping=grouping(5, "pass", choice=choice), lease=60_000, rated="0 0 10000000 2")
    put(world, *[("a", number) for number in range(5)], ("b", 9))
    subscription = world.subscribe("work", asked=100)
    assert sorted(numbers(world.take(subscription, 10))) == [0, 1, 9]
    assert world.run("release_group", world.now, "work", "b") == [0, 0, 0]

    assert world.run("release_group", world.now, "work", "a") == [0, 0, 1]

    check_groups(world, concurrency=5, failure="pass", choice=choice, group_rate=(10_000_000, 2))
    assert numbers(world.take(subscription, 10)) == [2, 3]
    assert world.take(subscription, 10) == []
    check_groups(world, concurrency=5, failure="pass", choice=choice, group_rate=(10_000_000, 2))
