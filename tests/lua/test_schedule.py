"""Messages for later, and messages that come back later."""

from __future__ import annotations

import json

import pytest
from judged import texts
from world import ref

FIRST, SECOND, THIRD = ref("1000-0"), ref("1000-1"), ref("1000-2")


# -- published for later


def test_a_scheduled_message_is_noted_in_every_queue_of_its_topic(world):
    world.queue("work", "orders")
    world.queue("mail", "orders")
    world.mark()

    world.publish("orders", "one", due="+500")

    assert world.changes() == {
        ":log:orders": [("1000-0", {"b": "one", "d": "1500"})],
        ":clock": "1000-0",
        ":due": {f"scheduled work {FIRST}": 1_500.0, f"scheduled mail {FIRST}": 1_500.0},
        ":q:work:ahead": {FIRST: "scheduled"},
        ":q:mail:ahead": {FIRST: "scheduled"},
        ":q:work": {"scheduled": "1"},
        ":q:mail": {"scheduled": "1"},
    }


def test_it_is_delivered_when_its_time_has_come_and_not_before(world):
    world.queue("work", "orders")
    subscription = world.subscribe("work", asked=5)
    world.publish("orders", "one", due="1500")
    world.publish("orders", "two")
    assert texts(world.take(subscription, 5)) == ["two"]
    world.now = 1_499
    world.sweep_all()
    assert world.take(subscription, 5) == []
    world.now = 1_500

    world.sweep_all()

    assert texts(world.take(subscription, 5)) == ["one"]
    state = world.state()
    assert state[":q:work"]["scheduled"] == "0"
    assert not {":due", ":q:work:ahead", ":q:work:ready"} & state.keys()


def test_it_has_its_place_by_when_it_was_published(world):
    world.queue("work", "orders")
    world.publish("orders", "one", due="+500")
    world.publish("orders", "two")
    world.now = 1_500
    world.sweep_all()
    assert texts(world.take(world.subscribe("work", asked=5), 5)) == ["one", "two"]


def test_a_time_that_is_past_is_now(world):
    world.queue("work", "orders")
    subscription = world.subscribe("work", asked=5)
    world.publish("orders", "one", due="900")
    world.publish("orders", "two", due="+0")
    assert texts(world.take(subscription, 5)) == ["one", "two"]


def test_a_queue_defined_later_schedules_what_it_reads(world):
    world.topic("orders")
    world.publish("orders", "one", due="+500")
    world.queue("work", "orders")
    subscription = world.subscribe("work", asked=5)
    world.sweep_all()
    assert world.take(subscription, 5) == []
    state = world.state()
    assert state[":due"] == {f"scheduled work {FIRST}": 1_500.0}
    assert state[":q:work"]["scheduled"] == "1"
    world.now = 1_500
    world.sweep_all()
    assert texts(world.take(subscription, 5)) == ["one"]


def test_what_the_queue_s_filter_refuses_is_not_scheduled(world):
    world.queue("work", "orders", entry="/p > 0")
    world.publish("orders", '{"p": 0}', '{"p": 1}', due="+500")
    scheduled = [member for member in world.state()[":due"] if member.startswith("scheduled")]
    assert scheduled == [f"scheduled work {SECOND}"]
    world.now = 1_500
    world.sweep_all()
    assert texts(world.take(world.subscribe("work", asked=5), 5)) == ['{"p": 1}']
    assert world.state()[":q:work"]["filtered"] == "1"


@pytest.mark.parametrize("kind", [{"priority": "/p"}, {"barrier": "/end = 1"}], ids=str)
def test_a_queue_that_judges_its_messages_judges_it_when_it_is_due(world, kind):
    world.queue("work", "orders", **kind)
    subscription = world.subscribe("work", asked=5)
    world.publish("orders", '{"p": 9}', due="+500")
    world.publish("orders", '{"p": 1}')
    assert texts(world.take(subscription, 5)) == ['{"p": 1}']
    world.now = 1_500
    world.sweep_all()
    assert texts(world.take(subscription, 5)) == ['{"p": 9}']


def test_a_barrier_does_not_wait_for_what_is_scheduled(world):
    world.queue("work", "orders", barrier="/end = 1")
    subscription = world.subscribe("work", asked=5)
    world.publish("orders", "{}", due="+500")
    world.publish("orders", '{"end": 1}')
    assert texts(world.take(subscription, 5)) == ['{"end": 1}']


def test_a_barrier_that_comes_due_holds_back_what_came_after_it_and_has_its_place_already(world):
    # Given a message that is leased, a barrier that is scheduled, and behind it one that was judged and nobody wanted
    world.queue("work", "orders", barrier="/end = 1")
    chooser = world.subscribe("work", asked=5, filter="/n = 9")
    world.publish("orders", '{"n": 9}')
    world.publish("orders", '{"end": 1}', due="+500")
    world.publish("orders", '{"n": 1}')
    held = world.take(chooser, 5)
    assert list(world.state()[":q:work:sorted:none"]) == [THIRD]
    # When the barrier comes due, and somebody comes who wants everything
    world.now = 1_500
    world.sweep_all()
    anybody = world.subscribe("work", asked=5)
    # Then the barrier waits for what is leased, and what is behind it for the barrier
    assert world.take(anybody, 5) == []
    assert world.state()[":q:work:held"] == {SECOND: 0, THIRD: 0}
    assert texts(held) == ['{"n": 9}']
    world.settle("acknowledged", held)
    assert texts(world.take(anybody, 5)) == ['{"end": 1}', '{"n": 1}']


def test_a_barrier_that_comes_due_before_all_others_is_sent_to_who_has_no_room(world):
    # Given one that has its place, since somebody who is gone chose
    world.queue("work", "orders", barrier="/end = 1")
    full = world.subscribe("work", asked=0)
    chooser = world.subscribe("work", asked=1, filter="/n = 9")
    world.publish("orders", '{"end": 1}', due="+500")
    world.publish("orders", '{"n": 1}')
    world.unsubscribe(chooser)
    # When the barrier comes due
    world.now = 1_500
    world.sweep_all()
    # Then nothing is before it
    assert texts(world.inbox(full)) == ['{"end": 1}']


def test_a_barrier_that_comes_due_with_hundreds_before_more_than_a_call_places_anew_stays_between_them(world):
    # Given hundreds and a barrier that are scheduled, and behind them more that have their places
    world.queue("work", "orders", barrier="/end = 1", room=5_000)
    chooser = world.subscribe("work", asked=1, filter="/n = 9")
    before = [json.dumps({"n": 1, "i": i}) for i in range(600)]
    behind = [json.dumps({"n": 2, "i": i}) for i in range(2_500)]
    for bodies_, due in ((before[:300], "+500"), (before[300:], "+500"), (['{"end": 1}'], "+500")):
        world.publish("orders", *bodies_, due=due)
    for first in range(0, 2_500, 500):
        world.publish("orders", *behind[first : first + 500])
    world.sweep_all()
    assert len(world.state()[":q:work:sorted:none"]) == 2_500
    assert world.take(chooser) == []
    # When they are due, and somebody comes who wants everything
    world.now = 1_500
    world.sweep_all()
    anybody = world.subscribe("work", asked=5_000)
    taken = world.take(anybody, 1_000)
    world.sweep_all()
    taken += world.take(anybody, 1_000)
    # Then those before the barrier come, and what is behind it only after it
    assert texts(taken) == before
    taken = world.take(anybody, 500, taken)
    world.sweep_all()
    assert texts([*taken, *world.inbox(anybody)]) == ['{"end": 1}', *behind]


def test_its_life_begins_when_it_is_due(world):
    world.queue("work", "orders", policy={"life": 300})
    world.queue("own", "trades")
    world.publish("orders", "one", due="+500")
    world.publish("trades", "one", due="+500", expiration=300)
    world.now = 1_700
    world.sweep_all()
    assert not [key for key in world.state() if key.endswith(":journal")]
    world.now = 1_900
    world.sweep_all()
    state = world.state()
    assert state[":q:work:journal"][0]["reason"] == state[":q:own:journal"][0]["reason"] == "time_limit"
    assert state[":q:work"]["scheduled"] == "0"
    assert not {":q:work:lives", ":q:work:ready", ":expirations:trades"} & state.keys()


def test_what_comes_back_is_over_when_its_life_since_it_was_due_is(world):
    # Given a message whose life began when it was due, delivered when the order of arrival had been looked through
    world.queue("work", "orders", policy={"life": 700})
    world.subscribe("work")
    world.publish("orders", "one", due="+600")
    world.now = 2_000
    world.sweep_all()
    (subscription,) = world.state()[":subscriptions"]
    # When its holder goes without having begun
    world.unsubscribe(subscription)
    world.now = 2_299
    world.sweep_all()
    assert ":q:work:journal" not in world.state()
    # Then it expires at its time
    world.now = 2_300
    world.sweep_all()
    assert world.state()[":q:work:journal"][0]["reason"] == "time_limit"


def test_an_administrator_settles_what_is_scheduled(world):
    world.queue("work", "orders")
    world.publish("orders", "one", due="+500")

    assert world.settle("acknowledged", {"work": [(FIRST, "")]}) == {}

    state = world.state()
    assert state[":q:work"]["scheduled"] == "0"
    assert ":due" not in state
    world.now = 1_500
    world.sweep_all()
    assert world.take(world.subscribe("work", asked=5), 5) == []
    assert world.settle("acknowledged", {"work": [(FIRST, "")]}) == {FIRST: "AMPSQ_ALREADY_ACKED"}


def test_a_publisher_s_duplicate_is_scheduled_once(world):
    world.queue("work", "orders")
    world.publish("orders", "one", publisher="p", sequence=1, due="+500")
    world.mark()
    assert world.publish("orders", "one", publisher="p", sequence=1, due="+500")[1] == 1
    assert world.changes() == {}


# -- for one queue alone


def test_an_entry_for_one_queue_is_passed_over_by_all_others(world):
    for name, kind in (("work", {}), ("mail", {}), ("vip", {"priority": "/p"})):
        world.queue(name, "orders", **kind)
    world.xadd("orders", "1000-0", "b", '{"p": 1}', "q", "mail")
    world.publish("orders", '{"p": 2}')
    got = {name: texts(world.take(world.subscribe(name, asked=5), 5)) for name in ("work", "mail", "vip")}
    assert got == {"work": ['{"p": 2}'], "mail": ['{"p": 1}', '{"p": 2}'], "vip": ['{"p": 2}']}
    assert not [key for key in world.state() if key.endswith(":journal")]


def test_somebody_else_s_fields_of_the_same_names_mean_nothing(world):
    world.queue("work", "orders")
    world.xadd("orders", "1000-0", "q", "mail", "d", "999999999", "e", "1")
    assert len(world.take(world.subscribe("work", asked=5), 5)) == 1


# -- coming back later


def cancelled(world, number, **policy):
    """The delays of a message that is cancelled so many times, ms."""
    world.queue("work", "orders", policy={"longest": 10 * policy.get("redelivery", 0)} | policy)
    subscription = world.subscribe("work")
    world.publish("orders", "one")
    delays = []
    for _ in range(number):
        world.settle("cancelled", world.take(subscription), period=-1)
        at = next(iter(world.state().get(":due", {"": world.now}).values()))
        delays.append(at - world.now)
        world.now = int(at)
        world.sweep_all()
    return delays


def test_without_a_delay_it_comes_back_at_once(world):
    assert cancelled(world, 2) == [0, 0]


def test_a_delay_is_the_same_each_time(world):
    assert cancelled(world, 3, redelivery=700) == [700] * 3


def test_a_multiplier_makes_it_grow_up_to_the_longest(world):
    assert cancelled(world, 5, redelivery=100, multiplier=3_000, longest=1_500) == [100, 300, 900, 1_500, 1_500]


def test_a_factor_makes_it_vary_on_both_sides(world):
    delays = cancelled(world, 40, redelivery=1_000, jitter=250)
    assert min(delays) < 900
    assert max(delays) > 1_100
    assert all(750 <= delay <= 1_250 for delay in delays)


@pytest.mark.parametrize("period", [0, 5_000])
def test_a_delay_that_the_holder_gives_counts_instead(world, period):
    world.queue("work", "orders", policy={"redelivery": 700, "longest": 7_000})
    subscription = world.subscribe("work")
    world.publish("orders", "one")
    world.settle("cancelled", world.take(subscription), period=period)
    assert world.state().get(":due") == ({f"ready work {FIRST}": 6_000.0} if period else None)


def test_what_lapses_or_was_held_by_one_who_is_gone_comes_back_later_too(world):
    world.queue("work", "orders", lease=1_000, policy={"redelivery": 700, "longest": 7_000})
    staying, going = world.subscribe("work"), world.subscribe("work")
    world.publish("orders", "one", "two")
    (kept,), (lost,) = world.take(staying), world.take(going)
    world.unsubscribe(going)
    world.run("resize_backlog", world.now, staying, 0)
    world.sweep_all()
    assert world.state()[":due"][f"ready work {lost.ref}"] == 1_700
    world.now = 2_000
    world.sweep_all()
    assert world.state()[":due"][f"ready work {kept.ref}"] == 2_700
    assert ":q:work:leases" not in world.state()


def test_what_nobody_began_comes_back_at_once(world):
    world.queue("work", "orders", policy={"redelivery": 700, "longest": 7_000})
    subscription = world.subscribe("work")
    world.publish("orders", "one")
    world.unsubscribe(subscription, held=world.take(subscription))
    assert world.state()[":q:work:ready"] == {FIRST: 0.0}


def test_the_last_twenty_returns_are_told(world):
    world.queue("work", "orders")
    subscription = world.subscribe("work")
    world.publish("orders", "one")
    for world.now in range(2_000, 2_030):
        world.settle("cancelled", world.take(subscription))
    told = world.state()[":q:work:attempts"][FIRST].split(" ")
    assert told[:3] == ["30", "30", "cancelled"]
    assert [item.split(",")[0] for item in told[3].split(";")] == [str(ms) for ms in range(2_010, 2_030)]
