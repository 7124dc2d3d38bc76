"""settle: acknowledge, cancel, expire, extend and give back, in time, late, and twice."""

from __future__ import annotations

import pytest
from settling import ACKED, FIRST, SECOND, STALE, UNKNOWN, journaled
from world import came_back

from ampsq.base.errors import UnknownQueue


@pytest.mark.parametrize("verb", ["acknowledged", "cancelled", "expired", "extended", "given_back"])
def test_an_unknown_queue_is_refused_and_nothing_changes(world, leased, verb):
    leased()

    with pytest.raises(UnknownQueue) as refusal:
        world.settle(verb, {"nowhere": [(FIRST, "1")]})

    assert refusal.value.detail == {"queue": "nowhere"}
    assert world.changes() == {}


def test_an_acknowledgement_settles_frees_the_room_and_pushes_the_next(world, leased):
    message = leased()
    world.now = 2_000

    assert world.settle("acknowledged", [message], by=world.subscription) == {}

    assert world.changes() == {
        ":q:work:leases": {FIRST: None, SECOND: f"2 {world.subscription} 1 7000 5000"},
        ":q:work:journal": [journaled("acknowledged", FIRST, by=world.subscription)],
        ":q:work": {"acknowledged": "1", "token": "2"},
        ":q:work:cursors": {"orders": "1000-1 2"},
        f":s:{world.subscription}:inbox": ["work 2 1 7000 b d1000a1/orders", "two"],
    }


def test_an_acknowledgement_twice_is_answered_and_changes_nothing(world, leased):
    message = leased()
    world.settle("acknowledged", [message])
    world.mark()

    assert world.settle("acknowledged", [message]) == {FIRST: ACKED}
    assert world.settle("cancelled", [message]) == {FIRST: ACKED}
    assert world.settle("extended", [message], period=9_000) == {FIRST: ACKED}
    assert world.settle("expired", [message]) == {FIRST: ACKED}
    assert world.settle("given_back", [message]) == {FIRST: ACKED}
    assert world.changes() == {}


def test_after_lapse_and_redelivery_every_late_call_is_stale_and_changes_nothing(world, leased):
    message = leased()
    world.now = 6_000
    world.sweep_all()
    (again,) = world.take(world.subscription)
    assert (again.ref, again.delivery, again.token) == (FIRST, 2, "2")
    world.mark()

    for verb in ("acknowledged", "cancelled", "expired", "extended", "given_back"):
        assert world.settle(verb, [message], period=100) == {FIRST: STALE}
    assert world.changes() == {}


def test_after_a_lapse_an_acknowledgement_of_what_waits_again_is_stale(world, leased):
    message = leased()
    world.unsubscribe(world.subscription)
    world.sweep_all()
    world.mark()

    assert world.settle("acknowledged", [message]) == {FIRST: STALE}
    assert world.changes() == {}


def test_a_stale_token_does_not_hide_the_right_one_in_the_same_batch(world, leased):
    leased()
    world.now = 6_000
    world.sweep_all()

    refused = world.run("settle", world.now, "acknowledged", 0, "", "work", 2, FIRST, FIRST, "1", "2")

    assert refused == [FIRST, STALE]
    assert world.state()[":q:work:journal"] == [journaled("acknowledged", FIRST)]


@pytest.mark.parametrize(
    ("verb", "code"),
    [("acknowledged", ACKED), ("expired", ACKED), ("cancelled", STALE), ("given_back", STALE)],
)
def test_the_same_message_twice_in_a_batch_is_settled_once(world, leased, verb, code):
    message = leased()

    refused = world.run("settle", world.now, verb, 0, "", "work", 2, FIRST, FIRST, message.token, message.token)

    assert refused == [FIRST, code]
    assert world.state()[f":s:{world.subscription}"]["leased"] == "1"


def test_a_cancelled_message_counts_and_is_again_the_oldest(world, leased):
    message = leased()

    assert world.settle("cancelled", [message]) == {}

    assert world.changes() == {
        ":q:work:leases": {FIRST: f"2 {world.subscription} 2 6000 5000"},
        ":q:work:attempts": {FIRST: f"1 1 cancelled {came_back((1_000, 'cancelled'))}"},
        ":q:work": {"returned": "1", "token": "2"},
        f":s:{world.subscription}:inbox": ["work 2 2 6000 b d1000a0/orders", "one"],
    }


def test_a_message_cancelled_with_a_delay_comes_back_when_it_is_due(world, leased):
    message = leased()

    assert world.settle("cancelled", [message], period=3_000) == {}

    assert world.changes() == {
        ":q:work:leases": {FIRST: None, SECOND: f"2 {world.subscription} 1 6000 5000"},
        ":q:work:attempts": {FIRST: f"1 1 cancelled {came_back((1_000, 'cancelled'))}"},
        ":q:work": {"returned": "1", "delayed": "1", "token": "2"},
        ":q:work:cursors": {"orders": "1000-1 2"},
        ":due": {"ready work d1000a0/orders": 4_000.0},
        f":s:{world.subscription}:inbox": ["work 2 1 6000 b d1000a1/orders", "two"],
    }
    world.mark()
    world.now = 3_999
    assert world.sweep() == [0, 1]
    assert world.changes() == {}
    world.now = 4_000
    assert world.sweep() == [0, 2_000]
    assert world.changes() == {
        ":due": {"ready work d1000a0/orders": None},
        ":q:work": {"delayed": "0"},
        ":q:work:ready": {FIRST: 0.0},
    }


def test_what_is_refused_does_not_hold_up_the_rest_of_the_batch(world, leased):
    message = leased()

    refused = world.settle("acknowledged", {"work": [("junk", "1"), (message.ref, message.token), (SECOND, "9")]})

    assert refused == {"junk": UNKNOWN, SECOND: STALE}
    assert world.changes()[":q:work:journal"] == [journaled("acknowledged", FIRST)]


def test_giving_back_burns_no_delivery(world, leased):
    message = leased(deliveries=1)

    assert world.settle("given_back", [message]) == {}

    assert world.changes() == {
        ":q:work:leases": {FIRST: f"2 {world.subscription} 1 6000 5000"},
        ":q:work": {"returned": "1", "token": "2"},
        f":s:{world.subscription}:inbox": ["work 2 1 6000 b d1000a0/orders", "one"],
    }


def test_giving_back_keeps_the_counts_of_earlier_deliveries(world, leased):
    message = leased(deliveries=3)
    world.settle("cancelled", [message])
    (again,) = world.take(world.subscription)
    world.mark()

    world.settle("given_back", [again])

    assert ":q:work:attempts" not in world.changes()
    (third,) = world.take(world.subscription)
    assert third.delivery == 2


def test_the_last_delivery_allowed_expires_the_message_that_comes_back(world, leased):
    message = leased(deliveries=2)
    world.settle("cancelled", [message])
    (again,) = world.take(world.subscription)
    world.mark()

    world.settle("cancelled", [again])

    changes = world.changes()
    assert changes[":q:work:journal"] == [
        journaled(
            "expired", FIRST, reason="max_deliveries", attempts="2:2", history=came_back(*2 * [(1_000, "cancelled")])
        ),
    ]
    assert changes[":q:work"] == {"expired": "1", "returned": "2", "token": "3"}
    assert changes[":q:work:attempts"] is None
    assert changes[":q:work:leases"] == {FIRST: None, SECOND: f"3 {world.subscription} 1 6000 5000"}


@pytest.mark.parametrize(
    ("numbers", "reason"),
    [
        ({"cancels": 1}, "max_cancels"),
        ({"deliveries": 1}, "max_deliveries"),
        ({"cancels": 1, "deliveries": 1}, "max_cancels,max_deliveries"),
    ],
)
def test_a_limit_of_one_expires_at_the_first_cancel(world, leased, numbers, reason):
    message = leased(**numbers)

    world.settle("cancelled", [message], period=60_000)

    changes = world.changes()
    history = came_back((1_000, "cancelled"))
    assert changes[":q:work:journal"] == [journaled("expired", FIRST, reason=reason, attempts="1:1", history=history)]
    assert changes.get(":due") is None


def test_cancels_are_counted_apart_from_deliveries(world, leased):
    message = leased(cancels=2)
    world.settle("given_back", [message])
    (again,) = world.take(world.subscription)
    world.settle("cancelled", [again])
    world.take(world.subscription)
    world.now = 7_000
    world.sweep_all()  # lapses: a delivery, no cancel
    (third,) = world.take(world.subscription)
    assert third.delivery == 3
    world.mark()

    world.settle("cancelled", [third])

    assert world.changes()[":q:work:journal"] == [
        journaled(
            "expired",
            FIRST,
            reason="max_cancels",
            attempts="3:2",
            history=came_back((1_000, "cancelled"), (7_000, "lapsed"), (7_000, "cancelled")),
        ),
    ]


def test_a_lapse_at_the_last_delivery_allowed_expires(world, leased):
    leased(deliveries=1)
    world.now = 6_000

    world.sweep_all()

    changes = world.changes()
    history = came_back((6_000, "lapsed"))
    assert changes[":q:work:journal"] == [
        journaled("expired", FIRST, reason="max_deliveries", attempts="1:0", history=history)
    ]


def test_a_lease_is_extended_beyond_its_period(world, leased):
    message = leased()
    world.now = 2_000

    assert world.settle("extended", [message], period=60_000) == {}

    assert world.changes() == {":q:work:leases": {FIRST: f"1 {world.subscription} 1 62000 60000"}}
    world.now = 30_000
    world.sweep_all()
    assert world.holders("work") == {FIRST: world.subscription}
    world.now = 62_000
    world.sweep_all()
    assert world.take(world.subscription)[0].delivery == 2


def test_a_lease_is_made_shorter_and_looked_at_in_time(world, leased):
    message = leased()

    assert world.settle("extended", [message], period=200) == {}

    assert world.changes() == {
        ":q:work:leases": {FIRST: f"1 {world.subscription} 1 1200 200"},
        ":due": {"leases work": 1_200.0},
    }


def test_a_lease_without_a_period_gets_one_by_extending(world, leased):
    message = leased(lease=0)

    assert world.settle("extended", [message], period=200) == {}

    assert world.changes() == {
        ":q:work:leases": {FIRST: f"1 {world.subscription} 1 1200 200"},
        ":due": {"leases work": 1_200.0},
    }


def test_an_extension_during_a_pass_is_not_forgotten_by_it(world):
    world.queue("work", "orders", lease=30_000)
    subscription = world.subscribe("work", asked=1_000)
    for part in range(2):
        world.publish("orders", *(str(500 * part + i) for i in range(500)))
    world.publish("orders", *(str(i) for i in range(200)))
    messages = world.take(subscription, 1_000)
    assert len(messages) == 1_000
    world.now = 2_000
    world.store.redis.zadd(world.key(":due"), {"leases work": world.now})
    assert world.sweep() == [1, 0]
    (passing,) = (value for name, value in world.state()[":q:work"].items() if name == "pass")
    assert passing.split(" ")[0] != "0"

    world.settle("extended", messages, period=500)
    world.sweep_all()

    assert world.state()[":due"]["leases work"] == world.now + 500


def test_at_most_once_an_acknowledgement_frees_the_room_and_journals_nothing(world, leased):
    message = leased(once=1, fairness="round-robin", lease=0)
    assert world.state()[":q:work:journal"] == [journaled("delivered", FIRST)]

    assert world.settle("acknowledged", [message]) == {}

    changes = world.changes()
    assert changes[":q:work:journal"] == [journaled("delivered", SECOND)]
    assert changes[":q:work"] == {"delivered": "2", "token": "2"}


def test_at_most_once_nothing_comes_back(world, leased):
    message = leased(once=1, fairness="round-robin", lease=0)

    assert world.settle("cancelled", [message]) == {}

    state = world.state()
    assert ":q:work:ready" not in state
    assert ":q:work:attempts" not in state
    assert world.holders("work") == {SECOND: world.subscription}


def test_at_most_once_what_was_never_handed_to_anybody_is_given_again(world, leased):
    message = leased(once=1, fairness="round-robin", lease=0)

    assert world.settle("given_back", [message]) == {}

    assert world.holders("work") == {FIRST: world.subscription}
    hows = [entry["how"] for entry in world.state()[":q:work:journal"]]
    assert hows == ["delivered", "given_back", "delivered"]


def test_many_messages_are_settled_in_one_call_and_one_journal_entry(world):
    world.queue("work", "orders")
    subscription = world.subscribe("work", asked=1_000)
    for _ in range(2):
        world.publish("orders", *map(str, range(500)))
    messages = world.take(subscription, 1_000)
    assert len(messages) == 1_000
    world.mark()

    assert world.settle("acknowledged", messages, by=subscription) == {}

    changes = world.changes()
    assert changes[":q:work:journal"] == [journaled("acknowledged", *(m.ref for m in messages), by=subscription)]
    assert changes[":q:work"] == {"acknowledged": "1000"}
    assert changes[f":s:{subscription}"] == {"leased": "0"}


def test_a_lease_that_ends_makes_its_holder_free_for_its_other_queues(world):
    world.queue("work", "orders")
    world.queue("mail", "letters")
    subscription = world.subscribe("work", "mail", asked=1)
    world.publish("orders", "one")
    (message,) = world.take(subscription)
    world.publish("letters", "dear")

    world.settle("acknowledged", [message])
    world.sweep_all()

    assert [m.body for m in world.inbox(subscription)] == ["dear"]


def test_what_came_back_and_is_then_acknowledged_leaves_no_counts_behind(world, leased):
    message = leased()
    world.settle("cancelled", [message])
    (again,) = world.take(world.subscription)
    world.mark()

    assert world.settle("acknowledged", [again], by=world.subscription) == {}

    assert world.changes()[":q:work:attempts"] is None
