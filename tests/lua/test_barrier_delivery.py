"""Delivery of a barrier: in order, by reference, again after a lost reply."""

from __future__ import annotations

import json

from judged import BARRIER, END, barrier_queue, message, put, texts

from ampsq.protocol.limits import BARRIERS_KEPT, NO_ROOM

queue = barrier_queue


# -- order at the taker


def test_a_barrier_to_the_taker_itself_comes_before_later_messages_in_the_same_reply(queue):
    world = queue
    subscription = world.subscribe("work", asked=2)
    put(world, message(1), message(2), END, message(3), message(4))
    held = world.take(subscription, 2)
    assert texts(held) == [message(1), message(2)]
    assert texts(world.take(subscription, 5, held)) == [END, message(3), message(4)]


def test_a_barrier_stays_before_later_messages_though_the_inbox_is_more_than_a_reply(queue):
    # Given an inbox with more than a megabyte of another queue, behind that a barrier, and no room
    world = queue
    world.queue("large", "letters")
    subscription = world.subscribe("large", "work", asked=13)
    put(world, message(0))
    put(world, "{}", topic="letters")
    small, held = sorted(world.take(subscription, 2), key=lambda m: m.queue)
    put(world, *[json.dumps({"x": "x" * 100_000})] * 11, topic="letters")
    world.sweep_all()
    put(world, END)
    world.settle("acknowledged", [held])
    put(world, "{}", topic="letters")
    put(world, message(1), message(2))
    assert len(world.inbox(subscription)) == 13
    # When what is behind the barrier gets its room by the call that finds the inbox too large
    taken, acks = [], [small]
    while messages := world.take(subscription, 20, acks):
        taken += texts(m for m in messages if m.queue == "work")
        acks = [m for m in messages if m.delivery]
    # Then it still comes behind
    assert taken == [END, message(1), message(2)]


def test_a_large_barrier_goes_by_reference(queue):
    world = queue
    none = world.subscribe("work", asked=0)
    large = json.dumps({"end": 1, "x": "x" * 20_000})
    put(world, large)
    (pushed,) = world.inbox(none)
    assert (pushed.kind, pushed.body) == ("r", "")
    (taken,) = world.take(none)
    assert (taken.kind, taken.body, taken.delivery) == ("b", large, 0)


def test_a_large_barrier_that_left_the_log_before_it_was_picked_up_is_passed_over(queue):
    world = queue
    none = world.subscribe("work", asked=0)
    put(world, json.dumps({"end": 1, "x": "x" * 20_000}), END)
    world.store.redis.xdel(world.key(":log:orders"), "1000-0")
    assert texts(world.take(none, 5)) == [END]


# -- nothing is lost on the way


def test_after_a_lost_reply_resume_pushes_a_barrier_again_unless_its_token_is_named(queue):
    world = queue
    subscription = world.subscribe("work", asked=1)
    put(world, END, message(1))
    barrier, _ = world.take(subscription, 5)
    world.mark()
    assert world.run("push_again", world.now, subscription, "work", "0", "1", "2") == "0"
    assert world.changes() == {}
    assert world.run("push_again", world.now, subscription, "work", "0") == "0"
    assert texts(world.take(subscription, 5)) == [END, message(1)]
    # Twice pushes it once
    world.run("push_again", world.now, subscription, "work", "0", "2")
    world.run("push_again", world.now, subscription, "work", "0", "2")
    (again,) = world.take(subscription, 5)
    assert again == barrier


def test_only_the_barriers_sent_last_are_remembered(queue):
    world = queue
    subscription = world.subscribe("work", asked=0)
    places = put(world, *[END] * (BARRIERS_KEPT + 6))
    world.sweep_all()
    kept = world.state()[f":s:{subscription}:barriers"]
    assert [entry.split(" ")[2] for entry in kept] == places[6:]


def test_lapses_beside_a_barrier_in_the_inbox_keep_it(world):
    # Given an inbox with a message, then a barrier that came when another queue's message stood before it
    world.queue("work", "orders", barrier=BARRIER)
    world.queue("leased", "letters", lease=1_000)
    subscription = world.subscribe("work", "leased", asked=5)
    put(world, "{}", topic="letters")
    put(world, END)
    assert len(world.inbox(subscription)) == 2
    world.now += 1_001
    world.sweep_all()
    assert [(m.queue, m.body) for m in world.take(subscription, 5)] == [("work", END), ("leased", "{}")]


def test_a_paused_queue_sends_no_barrier_and_gives_nothing_until_it_is_resumed(world):
    world.queue("work", "orders", barrier=BARRIER, room=1_000, backlog=NO_ROOM)
    subscription = world.subscribe("work", asked=5)
    put(world, END, message(1))
    world.sweep_all()
    assert texts(world.take(subscription, 5)) == []

    world.queue("work", "orders", barrier=BARRIER, room=1_000)
    world.sweep_all()

    assert texts(world.take(subscription, 5)) == [END, message(1)]
