"""Expiration: of the queue, of a message, and both; never while leased; on time, in bounded steps."""

from __future__ import annotations

import pytest
from expiring import FIRST, SECOND, THIRD, due, expired
from world import came_back

from ampsq.protocol.limits import BATCH

# -- what the queue says


def test_what_waits_longer_than_the_queue_says_expires_and_is_read_past(world):
    world.queue("work", "orders", policy={"life": 5_000})
    world.publish("orders", "one", "two")
    world.sweep_all()
    world.mark()
    world.now = 5_999
    world.sweep_all()
    assert world.changes() == {}

    world.now = 6_000
    world.sweep_all()

    assert world.changes() == {
        ":q:work:journal": [expired(FIRST, SECOND)],
        ":q:work": {"expired": "2", "aged": "1000"},
        ":q:work:cursors": {"orders": "1000-1 2"},
        # What comes later cannot be over before one life has passed.
        ":due": {"expiry work": 11_000.0},
    }


def test_the_pass_comes_when_the_oldest_is_over(world):
    world.queue("work", "orders", policy={"life": 5_000})
    world.sweep_all()
    assert due(world) == {"expiry work": 6_000.0}
    world.now = 3_000
    world.publish("orders", "one")
    world.now = 6_000

    world.sweep_all()

    assert due(world) == {"expiry work": 8_000.0}
    assert "journal" not in world.state()


def test_what_is_over_is_never_delivered_though_no_pass_came(world):
    world.queue("work", "orders", policy={"life": 5_000})
    world.publish("orders", "one")
    world.now = 3_000
    world.publish("orders", "two")
    subscription = world.subscribe("work", asked=2)
    world.now = 6_000

    assert [m.body for m in world.take(subscription, 2)] == ["two"]

    assert world.state()[":q:work:journal"] == [expired(FIRST)]


def test_a_leased_message_does_not_expire_until_it_comes_back(world):
    world.queue("work", "orders", policy={"life": 5_000})
    subscription = world.subscribe("work", asked=1)
    world.publish("orders", "one")
    (message,) = world.take(subscription)
    assert world.state()[":q:work:leases"] == {FIRST: f"1 {subscription} 1 0 0 6000"}
    world.now = 60_000
    world.sweep_all()
    assert ":q:work:journal" not in world.state()

    world.settle("cancelled", [message])

    assert world.state()[":q:work:journal"] == [
        expired(FIRST, attempts=["1:1"], history=came_back((60_000, "cancelled")))
    ]
    assert world.inbox(subscription) == []


def test_a_lease_that_lapses_after_its_life_ends_the_message_with_every_reason(world):
    world.queue("work", "orders", lease=1_000, deliveries=1, policy={"life": 500})
    subscription = world.subscribe("work", asked=1)
    world.publish("orders", "one")
    world.take(subscription)
    world.now = 2_000

    world.sweep_all()

    (entry,) = world.state()[":q:work:journal"]
    assert entry["reason"] == "max_deliveries,time_limit"


def test_what_is_given_back_after_its_life_expires_too(world):
    world.queue("work", "orders", policy={"life": 500})
    subscription = world.subscribe("work", asked=1)
    world.publish("orders", "one")
    world.now = 2_000

    world.unsubscribe(subscription)

    assert world.state()[":q:work:journal"] == [expired(FIRST, attempts=["1:0"])]


def test_what_came_back_in_time_expires_in_time(world):
    world.queue("work", "orders", policy={"life": 5_000})
    subscription = world.subscribe("work", asked=1)
    world.publish("orders", "one")
    world.sweep_all()
    (message,) = world.take(subscription)
    world.now = 5_500
    world.sweep_all()
    world.unsubscribe(subscription, held=[message])
    assert due(world)["expiry work"] == 6_000.0

    world.now = 6_000
    world.sweep_all()

    assert world.state()[":q:work:journal"] == [expired(FIRST)]
    assert ":q:work:ready" not in world.state()


def test_what_is_delayed_beyond_its_life_expires_in_time(world):
    world.queue("work", "orders", policy={"life": 5_000})
    subscription = world.subscribe("work", asked=1)
    world.publish("orders", "one")
    world.settle("cancelled", world.take(subscription), period=60_000)
    world.now = 6_000

    world.sweep_all()

    state = world.state()
    assert state[":q:work:journal"] == [expired(FIRST, attempts=["1:1"], history=came_back((1_000, "cancelled")))]
    assert state[":q:work"]["delayed"] == "0"
    assert not {":q:work:lives", ":q:work:ready", ":q:work:attempts"} & state.keys()
    assert due(world) == {"expiry work": 11_000.0}


def test_what_enters_late_since_the_filter_is_gone_expires_when_it_is_due_plus_its_life(world):
    world.queue("work", "orders", entry="/n < 4", policy={"life": 700})
    world.publish("orders", "no number", due="+600")
    world.sweep_all()
    world.queue("work", "orders", policy={"life": 700})
    # A pass by the order of arrival takes it up: it is due, and not over.
    world.now = 1_800
    world.sweep_all()
    world.now = 2_299
    world.sweep_all()
    assert "expired" not in world.state()[":q:work"]

    world.now = 2_300
    world.sweep_all()

    assert world.state()[":q:work:journal"] == [expired(FIRST)]
    assert not {":q:work:lives", ":q:work:ready"} & world.state().keys()


@pytest.mark.parametrize("life", ["queue", "own"])
def test_the_life_of_what_was_due_before_it_came_begins_when_it_came(world, life):
    world.queue("work", "orders", policy={"life": 5_000} if life == "queue" else None)
    world.now = 100_000
    world.publish("orders", "late", due="1000", expiration=None if life == "queue" else 5_000)
    world.now = 104_900
    world.sweep_all()
    assert ":q:work:journal" not in world.state()

    world.now = 105_000
    world.sweep_all()

    (entry,) = world.state()[":q:work:journal"]
    assert (entry["how"], entry["reason"]) == ("expired", "time_limit")


def test_an_at_most_once_queue_expires_what_nobody_requested(world):
    world.queue("work", "orders", once=1, fairness="round-robin", policy={"life": 5_000})
    world.publish("orders", "one")
    world.now = 6_000
    world.sweep_all()
    assert world.state()[":q:work:journal"] == [expired(FIRST)]


def test_every_topic_of_a_queue_is_looked_at(world):
    world.queue("work", "orders", "trades", policy={"life": 5_000})
    world.publish("orders", "one")
    world.publish("trades", "two")
    world.sweep_all()
    world.now = 6_000
    world.sweep_all()
    world.now = 6_100
    world.sweep_all()
    assert world.state()[":q:work"]["expired"] == "2"


@pytest.mark.parametrize("kind", [{"priority": "/p"}, {"entry": "/p > 0"}, {"barrier": "/end = 1"}], ids=str)
def test_a_queue_that_judges_its_messages_expires_them_in_time(world, kind):
    world.queue("work", "orders", policy={"life": 5_000}, **kind)
    world.publish("orders", '{"p": 1}', '{"p": 2}')
    world.sweep_all()
    world.now = 3_000
    world.publish("orders", '{"p": 3}')
    world.sweep_all()
    world.now = 6_000

    world.sweep_all()

    state = world.state()
    assert sorted(" ".join(e["refs"] for e in state[":q:work:journal"]).split()) == [FIRST, SECOND]
    subscription = world.subscribe("work", asked=5)
    assert [m.body for m in world.take(subscription, 5)] == ['{"p": 3}']


def test_what_the_queue_s_filter_refuses_never_expires(world):
    world.queue("work", "orders", entry="/p > 0", policy={"life": 5_000})
    world.publish("orders", '{"p": 0}', '{"p": 1}')
    world.now = 6_000
    world.sweep_all()
    assert world.state()[":q:work:journal"] == [expired(SECOND)]
    assert world.state()[":q:work"]["filtered"] == "1"


def test_a_barrier_and_what_is_held_behind_it_expire(world):
    world.queue("work", "orders", barrier="/end = 1", policy={"life": 5_000})
    subscription = world.subscribe("work", asked=5)
    world.publish("orders", "{}", '{"end": 1}', "{}")
    (message,) = world.take(subscription)
    assert set(world.state()[":q:work:held"]) >= {SECOND}
    world.now = 6_000
    world.sweep_all()
    assert sorted(" ".join(e["refs"] for e in world.state()[":q:work:journal"]).split()) == [SECOND, THIRD]
    world.settle("acknowledged", [message])
    assert ":q:work:held" not in world.state()


def test_a_million_that_are_over_leave_in_bounded_steps(world):
    world.queue("work", "orders", policy={"life": 5_000})
    for _ in range(4):
        world.publish("orders", *["x"] * 500)
    world.now = 6_000
    steps = 0
    while world.state().get(":q:work", {}).get("expired") != "2000":
        more, _ = world.sweep()
        assert more or steps >= 3
        steps += 1
        journaled = world.state().get(":q:work:journal", [])
        assert all(len(entry["refs"].split()) <= BATCH for entry in journaled)
    assert steps >= 4


# -- what a message says


# -- changes


def test_a_new_life_is_checked_against_everything_that_waits(world):
    world.queue("work", "orders")
    subscription = world.subscribe("work", asked=1)
    world.publish("orders", "one", "two")
    world.unsubscribe(subscription)
    world.now = 60_000
    world.sweep_all()
    world.queue("work", "orders", policy={"life": 5_000})
    world.sweep_all()
    assert world.state()[":q:work"]["expired"] == "2"


def test_a_life_that_is_taken_away_ends_nothing(world):
    world.queue("work", "orders", policy={"life": 5_000})
    world.publish("orders", "one")
    world.sweep_all()
    world.queue("work", "orders")
    world.now = 60_000
    world.sweep_all()
    assert ":q:work:journal" not in world.state()
    assert due(world) == {}


def test_a_leased_message_is_judged_by_the_definition_at_its_return(world):
    world.queue("work", "orders", policy={"life": 500})
    subscription = world.subscribe("work", asked=1)
    world.publish("orders", "one")
    (message,) = world.take(subscription)
    world.now = 2_000
    world.queue("work", "orders", policy={"life": 50_000})
    world.settle("cancelled", [message])
    assert ":q:work:journal" not in world.state()
    assert world.inbox(subscription)[0].delivery == 2


@pytest.mark.parametrize("before", [0, 5_000])
def test_a_life_that_changes_while_a_message_is_leased_ends_it_in_time_when_it_is_back(world, before):
    # Given a queue whose life is another one since a message was delivered
    world.queue("work", "orders", policy={"life": before})
    subscription = world.subscribe("work")
    world.publish("orders", "one")
    assert len(world.take(subscription)) == 1
    world.now = 1_100
    world.queue("work", "orders", policy={"life": 700})
    world.sweep_all()
    # When it comes back before its end
    world.now = 1_300
    world.unsubscribe(subscription)
    world.sweep_all()
    assert ":q:work:journal" not in world.state()
    # Then it ends when the definition of today says
    world.now = 1_700
    world.sweep_all()
    assert world.state()[":q:work:journal"][0]["reason"] == "time_limit"


def test_a_life_that_is_given_ends_what_had_been_scheduled_when_it_was_due_and_not_before(world):
    # Given a message that came due before its queue had a life, and is older than that
    world.queue("work", "orders")
    world.publish("orders", "one", due="+600")
    world.now = 1_600
    world.sweep_all()
    world.now = 2_000
    world.queue("work", "orders", policy={"life": 700})
    # When the order of arrival is looked through
    world.sweep_all()
    world.now = 2_299
    world.sweep_all()
    assert ":q:work:journal" not in world.state()
    # Then it ends one life after it was due
    world.now = 2_300
    world.sweep_all()
    assert world.state()[":q:work:journal"][0]["reason"] == "time_limit"


def test_a_priority_queue_gets_a_life_for_what_has_its_place(world):
    world.queue("work", "orders", priority="/p")
    world.publish("orders", '{"p": 1}')
    world.sweep_all()
    world.queue("work", "orders", priority="/p", policy={"life": 5_000})
    world.sweep_all()
    world.now = 6_000
    world.sweep_all()
    assert world.state()[":q:work:journal"] == [expired(FIRST)]
    assert not {":q:work:sorted:none", ":q:work:lives", ":q:work:ready"} & world.state().keys()


# -- beside other things


def test_lives_wait_until_a_queue_is_rebuilt(world):
    # Given an acknowledged and a waiting message whose own lives end while their queue is rebuilt
    world.queue("work", "orders")
    subscription = world.subscribe("work")
    world.publish("orders", "one", "two", expiration=700)
    world.settle("acknowledged", world.take(subscription), by=subscription)
    world.unsubscribe(subscription)
    world.sweep_all()
    cursor = world.state()[":q:work:cursors"]["orders"]
    world.run("begin_rebuild", world.now, "work", "me", 5_000, 0, "orders 0-0 0")
    world.now = 1_700
    # When they are over, then nothing is journaled before the rebuild has ended
    world.sweep_all()
    assert [entry["how"] for entry in world.state()[":q:work:journal"]] == ["acknowledged"]
    assert world.run("end_rebuild", world.now, "work", "me", "0-0", SECOND, "", f"orders {cursor}")[0] == 0
    world.now = 2_700
    world.sweep_all()
    assert [entry["refs"] for entry in world.state()[":q:work:journal"]] == [FIRST, SECOND]


def test_a_new_queue_finds_what_was_over_before_it_was_there(world):
    world.topic("orders")
    world.publish("orders", "one", expiration=700)
    world.publish("orders", "two")
    world.now = 5_000
    world.sweep_all()
    world.queue("work", "orders")
    world.sweep_all()
    assert world.state()[":q:work:journal"] == [expired(FIRST)]
    assert due(world) == {}
