"""Barriers: sent to all at once when everything before them is settled, and only then what is behind them."""

from __future__ import annotations

import json

import pytest
from judged import BARRIER, END, barrier_queue, journal_of, message, put, texts

from ampsq.protocol.limits import BATCH

queue = barrier_queue


# -- the rules


def test_a_barrier_waits_for_a_leased_message_and_goes_to_everybody_when_it_is_acknowledged(queue):
    # Given a holder that is full, one with no backlog at all, one that is free; then a barrier and one behind it
    world = queue
    full, none, free = (world.subscribe("work", asked=asked) for asked in (1, 0, 1))
    before, barrier, behind = put(world, message(1), END, message(2))
    (held,) = world.take(full)
    assert texts(world.inbox(none) + world.inbox(free)) == []
    assert world.state()[":q:work:held"] == {barrier: 0}
    world.mark()
    # When the message before it is acknowledged
    assert world.settle("acknowledged", [held]) == {}
    # Then all three get it, without a lease, and the next is delivered
    head = f"work 2 0 0 b {barrier}"
    entry = f"work 2 {barrier}"
    assert world.changes() == {
        ":q:work:leases": {before: None, behind: f"3 {full} 1 0 0"},
        ":q:work:journal": [
            {"how": "acknowledged", "reason": "", "refs": before},
            {"how": "barrier", "reason": "", "refs": barrier},
        ],
        ":q:work": {"acknowledged": "1", "barrier": "1", "token": "3"},
        ":q:work:held": None,
        ":q:work:cursors": {"orders": "1000-2 3"},
        f":s:{full}:inbox": [head, END, f"work 3 1 0 b {behind}", message(2)],
        f":s:{none}:inbox": [head, END],
        f":s:{free}:inbox": [head, END],
        **{f":s:{name}:barriers": [entry] for name in (full, none, free)},
    }


def test_a_barrier_counts_in_no_backlog_and_needs_no_acknowledgement(queue):
    world = queue
    subscription = world.subscribe("work", asked=1)
    (barrier,) = put(world, END)
    put(world, message(1))

    first, second = world.take(subscription, 5)

    assert (first.ref, first.delivery, first.deadline, first.body) == (barrier, 0, 0, END)
    assert (second.body, second.delivery) == (message(1), 1)
    assert world.state()[f":s:{subscription}"]["leased"] == "1"
    world.mark()
    assert world.settle("acknowledged", [first]) == {barrier: "AMPSQ_ALREADY_ACKED"}
    assert world.changes() == {}


@pytest.mark.parametrize("state", ["unread", "leased", "sorted", "ready", "delayed"])
def test_a_barrier_waits_whatever_state_the_earlier_one_is_in(queue, state):
    world = queue
    other = world.subscribe("work", asked=0)
    if state == "unread":
        put(world, message(1), END, message(2))
    else:
        subscription = world.subscribe("work", asked=1)
        put(world, message(1), END, message(2))
        held = world.take(subscription)
        if state == "sorted":
            world.replace(subscription, "work", asked=0)
            world.settle("given_back", held)
        elif state == "ready":
            world.unsubscribe(subscription, {"work": [(held[0].ref, held[0].token)]})
        elif state == "delayed":
            world.settle("cancelled", held, period=5_000)
    world.sweep_all()
    assert world.inbox(other) == []
    assert journal_of(world, "barrier") == []
    if state == "delayed":
        assert world.state()[":q:work"]["delayed"] == "1"
        world.now += 5_000
        world.sweep_all()
    # When somebody takes and acknowledges it
    taker = subscription if state in ("leased", "delayed") else world.subscribe("work", asked=1)
    (first,) = held if state == "leased" else world.take(taker)
    assert first.body == message(1)
    assert world.inbox(other) == []
    assert texts(world.take(taker, 5, [first])) == [END, message(2)]
    assert texts(world.take(other, 5)) == [END]


def test_a_lapse_and_a_cancel_of_the_earlier_one_keep_the_barrier_waiting(world):
    world.queue("work", "orders", barrier=BARRIER, lease=1_000, deliveries=3)
    subscription = world.subscribe("work", asked=2)
    first, barrier, behind = put(world, message(1), END, message(2))
    (held,) = world.take(subscription, 2)
    world.now += 1_001
    world.sweep_all()
    (held,) = world.take(subscription, 2)
    assert (held.ref, held.delivery) == (first, 2)
    world.settle("cancelled", [held])
    # When its last delivery expires it, then the barrier comes
    (held,) = world.take(subscription, 2)
    world.settle("cancelled", [held])
    assert journal_of(world, "expired") == [first]
    assert [m.ref for m in world.take(subscription, 2)] == [barrier, behind]


def test_several_barriers_in_a_row_come_in_order_between_their_messages(queue):
    world = queue
    subscription = world.subscribe("work", asked=5)
    other = world.subscribe("work", asked=0)
    put(world, END, END, message(1), END, END, message(2), END)
    assert texts(world.take(subscription, 9)) == [END, END, message(1)]
    assert texts(world.take(other, 9)) == [END, END]
    (held,) = [(p, "") for p in world.holders("work")]
    world.settle("acknowledged", {"work": [held]})
    assert texts(world.take(subscription, 9)) == [END, END, message(2)]
    (held,) = [(p, "") for p in world.holders("work")]
    world.settle("acknowledged", {"work": [held]})
    assert texts(world.take(subscription, 9)) == [END]
    assert texts(world.take(other, 9)) == [END, END, END]
    assert len(journal_of(world, "barrier")) == 5
    assert ":q:work:held" not in world.state()


@pytest.mark.parametrize("asked", [0, 1])
def test_hundreds_of_barriers_in_a_row_are_all_sent_by_the_sweeps(queue, asked):
    world = queue
    subscription = world.subscribe("work", asked=asked)
    places = put(world, *[END] * 300)
    world.sweep_all()
    assert journal_of(world, "barrier") == places
    assert [m.ref for m in world.inbox(subscription)] == places


def test_a_barrier_and_nothing_else_in_the_queue_is_sent_at_once_to_who_has_no_room(queue):
    world = queue
    none = world.subscribe("work", asked=0)
    (barrier,) = put(world, END)
    assert [m.ref for m in world.take(none)] == [barrier]
    assert journal_of(world, "barrier") == [barrier]


@pytest.mark.parametrize("size", [150_000, 200_000, 250_000, 300_000, 350_000, 450_000])
def test_a_call_that_ends_with_a_large_barrier_goes_on_with_what_is_behind_it(queue, size):
    # Given a barrier whose judging and sending are a call's work, and one behind it
    world = queue
    subscription = world.subscribe("work", asked=1)
    large = json.dumps({"end": 1, "x": "x" * size})
    put(world, large, message(1))
    world.sweep_all()
    # Then that one is delivered too
    assert [m.kind for m in world.inbox(subscription)] == ["r", "b"]
    assert texts(world.take(subscription, 5)) == [large, message(1)]


def test_many_messages_behind_a_barrier_stay_behind_it(queue):
    world = queue
    subscription = world.subscribe("work", asked=1_000)
    put(world, message(0))
    (held,) = world.take(subscription)
    put(world, END)
    for _ in range(4):
        put(world, *map(message, range(BATCH)))
    world.sweep_all()
    assert len(world.state()[":q:work:held"]) <= 100
    taken = world.take(subscription, 10, [held])
    assert [taken[0].body, taken[1].body] == [END, message(0)]


# -- subscriptions come and go


def test_without_a_subscription_a_barrier_waits_and_the_first_that_comes_gets_it(queue):
    world = queue
    barrier, _ = put(world, END, message(1))
    world.sweep_all()
    assert journal_of(world, "barrier") == []
    subscription = world.subscribe("work", asked=1)
    world.sweep_all()
    assert texts(world.take(subscription, 2)) == [END, message(1)]
    assert journal_of(world, "barrier") == [barrier]


def test_a_barrier_that_was_read_and_lost_its_last_subscription_waits_for_the_next(queue):
    world = queue
    subscription = world.subscribe("work", asked=1)
    first, barrier, behind = put(world, message(1), END, message(2))
    (held,) = world.take(subscription)
    world.unsubscribe(subscription, {"work": [(held.ref, held.token)]})
    world.settle("acknowledged", {"work": [(first, "")]})
    world.sweep_all()
    assert world.state()[":q:work:held"] == {barrier: 0}
    # When one comes that has no backlog, a dispatch is due at once
    new = world.subscribe("work", asked=0)
    world.sweep_all()
    assert [m.ref for m in world.inbox(new)] == [barrier]
    world.sweep_all()
    later = world.subscribe("work", asked=3)
    assert [m.ref for m in world.take(later, 3)] == [behind]


def test_who_leaves_while_a_barrier_waits_does_not_get_it_and_who_comes_does(queue):
    world = queue
    holder, leaver = world.subscribe("work", asked=1), world.subscribe("work", asked=1)
    put(world, message(1), END)
    (held,) = world.take(holder)
    world.unsubscribe(leaver)
    comer = world.subscribe("work", asked=1)
    world.settle("acknowledged", [held])
    assert texts(world.inbox(holder)) == [END]
    assert texts(world.inbox(comer)) == [END]
    assert f":s:{leaver}:inbox" not in world.state()


def test_a_holder_that_unsubscribes_keeps_the_barrier_waiting_until_another_is_through(queue):
    world = queue
    leaver, stayer = world.subscribe("work", asked=1), world.subscribe("work", asked=0)
    put(world, message(1), END)
    world.take(leaver)
    world.unsubscribe(leaver)
    world.sweep_all()
    assert world.inbox(stayer) == []
    new = world.subscribe("work", asked=1)
    (again,) = world.take(new)
    assert (again.body, again.delivery) == (message(1), 2)
    assert texts(world.take(new, 1, [again])) == [END]
    assert texts(world.inbox(stayer)) == [END]


def test_unsubscribing_with_a_barrier_in_the_inbox_leaves_nothing(queue):
    world = queue
    subscription = world.subscribe("work", asked=1)
    put(world, END)
    assert world.unsubscribe(subscription) == 0
    state = world.state()
    assert not [suffix for suffix in state if suffix.startswith(":s:")]
    assert ":q:work:ready" not in state
    assert journal_of(world, "barrier") == ["d1000a0/orders"]


def test_a_queue_left_by_replace_has_its_barrier_s_turn_when_its_last_message_is_acknowledged_by_take(queue):
    # Given a holder that wants another queue meanwhile, and one that waits for the barrier
    world = queue
    world.queue("other", "elsewhere")
    holder, waiter = world.subscribe("work", asked=1), world.subscribe("work", asked=0)
    put(world, message(1), END)
    (held,) = world.take(holder)
    world.replace(holder, "other")
    # When it acknowledges what it still holds as it takes
    world.take(holder, 1, [held])
    world.sweep_all()
    # Then the barrier comes
    assert texts(world.inbox(waiter)) == [END]


# -- filters


def test_who_filters_a_barrier_away_feels_the_pause_and_does_not_get_it(queue):
    world = queue
    wants = world.subscribe("work", asked=0, filter="/end = 1")
    others = world.subscribe("work", asked=5, filter="/n > 0")
    put(world, message(1), END, message(2))
    (held,) = world.take(others, 5)
    assert held.body == message(1)
    assert world.take(others, 5) == []
    assert texts(world.take(others, 5, [held])) == [message(2)]
    assert texts(world.take(wants, 5)) == [END]
    assert f":s:{others}:barriers" not in world.state()


def test_a_barrier_that_nobody_s_filter_matches_leaves_the_queue_all_the_same(queue):
    world = queue
    subscription = world.subscribe("work", asked=5, filter="/n > 0")
    barrier, _ = put(world, END, message(2))
    assert texts(world.take(subscription, 5)) == [message(2)]
    assert journal_of(world, "barrier") == [barrier]


def test_a_message_that_no_filter_wants_holds_the_barrier_back(queue):
    world = queue
    subscription = world.subscribe("work", asked=5, filter="/n > 1 OR /end = 1")
    first, barrier, behind = put(world, message(1), END, message(2))
    assert world.take(subscription, 5) == []
    world.sweep_all()
    assert world.inbox(subscription) == []
    world.settle("expired", {"work": [(first, "")]})
    assert [m.ref for m in world.take(subscription, 5)] == [barrier, behind]


def test_a_barrier_that_the_queue_s_filter_refuses_is_none(world):
    world.queue("work", "orders", barrier=BARRIER, entry="/n > 0")
    subscription = world.subscribe("work", asked=5)
    put(world, message(1), END, message(2), message(3, end=1))
    assert texts(world.take(subscription, 5)) == [message(1), message(2)]
    assert world.state()[":q:work"]["filtered"] == "1"


def test_a_body_that_is_not_json_is_no_barrier_and_a_foreign_entry_may_be_one(queue):
    world = queue
    subscription = world.subscribe("work", asked=5)
    put(world, "end")
    world.xadd("orders", "2000-0", "end", "1", "who", "me")
    world.run("scan_foreign_entries", world.now, "orders", "")
    first = world.take(subscription, 5)
    assert texts(first) == ["end"]
    (barrier,) = world.take(subscription, 5, first)
    assert (barrier.kind, barrier.delivery, barrier.fields) == ("f", 0, {"end": "1", "who": "me"})


# -- several topics


def test_a_barrier_in_one_topic_waits_for_earlier_messages_of_all(world):
    world.queue("work", "orders", "letters", barrier=BARRIER)
    subscription = world.subscribe("work", asked=9)
    (first,) = put(world, message(1))
    (second,) = put(world, message(2), topic="letters")
    (barrier,) = put(world, END)
    (third,) = put(world, message(3), topic="letters")
    taken = world.take(subscription, 9)
    assert [m.ref for m in taken] == [first, second]
    assert world.take(subscription, 9, taken[:1]) == []
    assert [m.ref for m in world.take(subscription, 9, taken[1:])] == [barrier, third]


def test_a_barrier_at_most_once_waits_until_what_was_sent_is_acknowledged(world):
    world.queue("work", "orders", barrier=BARRIER, once=1, fairness="round-robin")
    subscription = world.subscribe("work", asked=9)
    first, barrier, behind = put(world, message(1), END, message(2))
    taken = world.take(subscription, 9)
    assert [m.ref for m in taken] == [first]
    assert [m.ref for m in world.take(subscription, 9, taken)] == [barrier, behind]
    assert journal_of(world, "delivered") == [first, behind]
