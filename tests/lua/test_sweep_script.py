"""sweep: lease passes, delays that are over, dispatches left over; late, twice, as the clock goes back."""

from __future__ import annotations

import itertools

import pytest
from world import came_back, ref

from ampsq.protocol.limits import RETURNED

FIRST, SECOND, THIRD = ref("1000-0"), ref("1000-1"), ref("1000-2")


@pytest.fixture
def leased(world):
    """Two of three messages leased for 5 s at 1,000 ms; nobody else is free."""
    world.queue("work", "orders", lease=5_000)
    world.publish("orders", "one", "two", "three")
    world.subscription = world.subscribe("work", asked=2)
    world.messages = world.take(world.subscription, 2)
    world.mark()
    return world


def test_a_sweep_with_nothing_due_changes_nothing(world):
    world.queue("work", "orders")
    world.mark()

    assert world.sweep() == [0, -1]
    assert world.changes() == {}


def test_a_sweep_before_the_deadline_changes_nothing_and_says_when_to_come_back(leased):
    leased.now = 5_999

    assert leased.sweep() == [0, 1]
    assert leased.changes() == {}


def test_a_lapsed_lease_goes_back_and_is_delivered_again(leased):
    leased.now = 6_000

    assert leased.sweep() == [0, 5_000]

    assert leased.changes() == {
        ":q:work:leases": {
            FIRST: f"3 {leased.subscription} 2 11000 5000",
            SECOND: f"4 {leased.subscription} 2 11000 5000",
        },
        ":q:work:attempts": dict.fromkeys((FIRST, SECOND), f"1 0 lapsed {came_back((6_000, 'lapsed'))}"),
        ":q:work": {"token": "4", "returned": "2"},
        ":due": {"leases work": 11_000.0},
        f":s:{leased.subscription}:inbox": [
            *("work 3 2 11000 b d1000a0/orders", "one"),
            *("work 4 2 11000 b d1000a1/orders", "two"),
        ],
    }


def test_a_second_sweep_at_the_same_time_changes_nothing(leased):
    leased.now = 6_000
    leased.sweep()
    leased.mark()

    assert leased.sweep() == [0, 5_000]
    assert leased.changes() == {}


def test_a_pass_leaves_what_has_not_lapsed_and_comes_back_for_the_earliest(leased):
    leased.now = 2_000
    leased.settle("extended", leased.messages[1:], period=6_000)
    leased.now = 6_000
    leased.mark()

    assert leased.sweep() == [0, 2_000]

    changes = leased.changes()
    assert changes[":q:work:leases"] == {FIRST: f"3 {leased.subscription} 2 11000 5000"}
    assert changes[":due"] == {"leases work": 8_000.0}


def test_passes_over_one_queue_are_at_least_100_ms_apart(leased):
    leased.settle("extended", leased.messages[1:], period=5_030)
    leased.now = 6_000

    assert leased.sweep() == [0, 100]


def test_when_nothing_is_leased_any_more_no_pass_is_due(leased):
    leased.settle("acknowledged", leased.messages)
    (third,) = leased.take(leased.subscription)
    leased.settle("acknowledged", [third])
    leased.now = 6_000

    assert leased.sweep() == [0, -1]
    assert ":due" not in leased.state()


def test_a_clock_that_went_back_does_not_keep_a_lease_longer_than_its_length(leased):
    leased.now = 500
    leased.store.redis.zadd(leased.key(":due"), {"leases work": 500})

    assert leased.sweep() == [0, 5_000]

    assert leased.changes() == {
        ":q:work:leases": {
            FIRST: f"1 {leased.subscription} 1 5500 5000",
            SECOND: f"2 {leased.subscription} 1 5500 5000",
        },
        ":due": {"leases work": 5_500.0},
    }


def test_after_the_clock_went_back_the_next_lease_brings_the_pass_nearer(leased):
    leased.settle("acknowledged", leased.messages[:1])
    leased.now = 200

    leased.take(leased.subscription, 5)
    (third,) = [p for p in leased.holders("work") if p == THIRD]
    leased.settle("acknowledged", {"work": [(third, "")]})
    leased.publish("orders", "four")

    assert leased.state()[":due"] == {"leases work": 5_200.0}


def test_a_shorter_lease_period_is_looked_at_in_time(leased):
    leased.queue("work", "orders", lease=1_000)
    assert leased.state()[":due"] == {"leases work": 1_000.0}

    leased.sweep_all()

    assert leased.state()[":due"] == {"leases work": 2_000.0}


def test_a_delay_that_is_over_makes_the_message_the_oldest_again(world):
    world.queue("work", "orders")
    world.publish("orders", "one", "two")
    subscription = world.subscribe("work", asked=1)
    world.settle("cancelled", world.take(subscription), period=500)
    world.now = 1_500
    world.mark()

    assert world.sweep() == [0, -1]

    assert world.changes() == {
        ":due": None,
        ":q:work": {"delayed": "0"},
        ":q:work:ready": {FIRST: 0.0},
    }
    world.mark()
    assert world.sweep() == [0, -1]
    assert world.changes() == {}


def test_a_delay_that_is_over_is_pushed_to_who_is_free(world):
    world.queue("work", "orders")
    world.publish("orders", "one", "two")
    subscription = world.subscribe("work", asked=3)
    world.settle("cancelled", world.take(subscription, 1), period=500)
    world.now = 1_500

    world.sweep_all()

    assert [(m.body, m.delivery) for m in world.inbox(subscription)] == [("two", 1), ("one", 2)]


def test_of_many_delays_that_end_together_each_comes_back_once(world):
    world.queue("work", "orders", room=2_000)
    subscription = world.subscribe("work", asked=2_000)
    messages = []
    for part in range(3):
        world.publish("orders", *(str(500 * part + n) for n in range(500)))
        messages += world.take(subscription, 500)
    world.settle("cancelled", messages, period=500)
    world.now = 1_500

    assert world.sweep()[0] == 1
    world.sweep_all()

    state = world.state()
    assert len(state[":q:work:leases"]) == 1_500
    assert state[":q:work"]["delayed"] == "0"
    again = world.take(subscription, 1_500)
    assert [m.body for m in again] == [str(n) for n in range(1_500)]


def test_1200_leases_lapse_in_several_bounded_steps(world):
    world.queue("work", "orders", lease=5_000, room=2_000)
    subscription = world.subscribe("work", asked=1_200)
    for part in range(3):
        world.publish("orders", *(str(400 * part + n) for n in range(400)))
    messages = world.take(subscription, 1_200)
    other = world.subscribe("work", asked=1_200)
    assert len(messages) == 1_200
    world.now = 6_000
    steps = 0

    while world.sweep()[0]:
        steps += 1
        held = world.state()[":q:work:leases"]
        assert len(held) + len(world.state().get(":q:work:ready", {})) == 1_200

    assert steps >= 2
    state = world.state()
    assert len(state[":q:work:leases"]) == 1_200
    assert {lease.split(" ")[2] for lease in state[":q:work:leases"].values()} == {"2"}
    assert "pass" not in state[":q:work"]
    counts = [int(state[f":s:{name}"]["leased"]) for name in (subscription, other)]
    assert sum(counts) == 1_200
    assert state[":q:work"]["returned"] == "1200"


def test_of_leases_in_runs_no_step_gives_back_more_than_it_may(world):
    world.queue("work", "orders", lease=5_000, room=2_000)
    for part in range(3):
        world.publish("orders", *(str(300 * part + n) for n in range(300)))
    subscription = world.subscribe("work", asked=900)
    for _ in range(3):
        world.take(subscription, 300)
    world.now = 6_000
    returned, more = [0], True

    while more:
        more = world.sweep()[0]
        returned.append(int(world.state()[":q:work"].get("returned", 0)))

    assert returned[-1] == 900
    assert all(later - earlier <= RETURNED for earlier, later in itertools.pairwise(returned))


def test_what_nobody_picked_up_keeps_its_order_while_some_of_it_lapses(world):
    # Given four messages in an inbox, of which the leases of two lapse sooner
    world.queue("work", "orders", lease=5_000)
    subscription = world.subscribe("work", asked=4)
    world.publish("orders", "one", "two")
    world.now = 3_000
    world.publish("orders", "three", "four")
    # When they lapse
    world.now = 6_000
    world.sweep()
    # Then they stand behind the others, in their order
    assert world.state()[f":s:{subscription}:inbox"][1::2] == ["three", "four", "one", "two"]


def test_what_a_gone_subscription_held_goes_back_as_disconnected(leased):
    other = leased.subscribe("work", asked=1)
    leased.settle("acknowledged", leased.messages[:1])
    leased.unsubscribe(leased.subscription)
    leased.mark()

    leased.sweep_all()

    changes = leased.changes()
    assert changes[":q:work:attempts"] == {SECOND: f"1 0 disconnected {came_back((1_000, 'disconnected'))}"}
    assert changes[":q:work"] == {"returned": "1"}
    assert other in leased.holders("work").values()


def test_a_dispatch_left_over_is_done_and_left_over_again_until_nothing_waits(world):
    world.queue("work", "orders", room=2_000)
    for part in range(3):
        world.publish("orders", *(str(500 * part + n) for n in range(500)))
    subscription = world.subscribe("work", asked=2_000)
    world.store.redis.zadd(world.key(":due"), {"dispatch work": 0})
    counts = []

    while True:
        more, _ = world.sweep()
        counts.append(len(world.holders("work")))
        if not more:
            break

    assert counts == [500, 1_000, 1_500]
    assert [m.body for m in world.take(subscription, 1_500)] == [str(n) for n in range(1_500)]


def test_a_freed_subscription_of_two_queues_gets_from_the_other_when_its_lease_lapses(world):
    world.queue("work", "orders", lease=5_000, deliveries=1)
    world.queue("mail", "letters")
    subscription = world.subscribe("work", "mail", asked=1)
    world.publish("orders", "one")
    world.publish("letters", "dear")
    assert len(world.take(subscription)) == 1
    world.now = 6_000

    world.sweep_all()

    assert world.inbox(subscription)[-1].body == "dear"


def test_what_nobody_picked_up_counts_for_nothing_behind_many_whose_leases_ended(world):
    # Given an inbox of 67 messages, all but the last of which are settled where they lie
    world.queue("work", "orders", lease=5_000)
    subscription = world.subscribe("work", asked=67)
    world.publish("orders", *map(str, range(67)))
    *before, last = world.inbox(subscription)
    assert world.settle("acknowledged", {"work": [(message.ref, message.token) for message in before]}) == {}
    # When the last one's lease lapses
    world.now = 6_000
    world.sweep()
    # Then that was no delivery
    (again,) = world.take(subscription, 67)
    assert (again.ref, again.delivery) == (last.ref, 1)


def test_what_nobody_picked_up_counts_for_nothing_among_many_of_another_queue(world):
    # Given 71 messages in an inbox whose leases last longer, and behind most of them two whose leases lapse
    world.queue("slow", "parcels", lease=60_000)
    world.queue("work", "orders", lease=5_000)
    subscription = world.subscribe("slow", "work", asked=100)
    world.publish("parcels", *map(str, range(70)))
    world.publish("orders", "one")
    world.publish("parcels", "between")
    world.publish("orders", "two")
    # When they lapse
    world.now = 6_000
    world.sweep()
    # Then that was no delivery, and the others keep their order
    messages = world.take(subscription, 100)
    assert [message.body for message in messages] == [*map(str, range(70)), "between", "one", "two"]
    assert {message.delivery for message in messages} == {1}


def test_the_inbox_of_a_consumer_that_does_not_come_is_bounded_behind_what_lasts(world):
    # Given 100 messages that last, and behind them ten whose leases lapse
    world.queue("slow", "parcels", lease=0)
    world.queue("work", "orders", lease=5_000)
    subscription = world.subscribe("slow", "work", asked=110)
    world.publish("parcels", *map(str, range(100)))
    world.publish("orders", *map(str, range(100, 110)))
    # When they lapse and are pushed again, many times
    for _ in range(50):
        world.now += 5_000
        world.sweep_all()
    # Then the inbox is not much longer than what is leased, and all of it is delivered for the first time and in order
    assert len(world.inbox(subscription)) < 2 * (110 + 10 + 64) + 10
    messages = world.take(subscription, 110)
    assert [message.body for message in messages] == [*map(str, range(110))]
    assert {message.delivery for message in messages} == {1}


def test_1200_messages_that_nobody_picked_up_count_for_nothing(world):
    world.queue("work", "orders", lease=5_000, room=2_000)
    subscription = world.subscribe("work", asked=1_200)
    for part in range(3):
        world.publish("orders", *(str(400 * part + n) for n in range(400)))
    world.sweep_all()
    assert len(world.inbox(subscription)) == 1_200
    world.now = 6_000

    world.sweep_all()

    messages = [message for _ in range(3) for message in world.take(subscription, 400)]
    assert {message.delivery for message in messages} == {1}
    assert sorted(int(message.body) for message in messages) == [*range(1_200)]


def test_of_an_inbox_of_which_all_lapses_a_step_gives_back_the_first_part(world):
    # Given 1,200 messages that nobody picks up, whose leases a pass reads in no order
    world.queue("work", "orders", lease=5_000, room=2_000)
    subscription = world.subscribe("work", asked=1_200)
    for part in range(3):
        world.publish("orders", *(str(400 * part + n) for n in range(400)))
    world.sweep_all()
    # When all of them lapse, and one step is made
    world.now = 6_000
    world.sweep()
    # Then those that stood first were given back and pushed again, and nobody looked for others
    numbers = [int(message.body) for message in world.inbox(subscription)]
    first = numbers[0]
    assert RETURNED <= first < RETURNED + 300
    assert numbers == [*range(first, 1_200), *range(len(numbers) - (1_200 - first))]
    assert int(world.state()[":q:work"]["returned"]) == first
