"""A queue's own filter: what enters, and what is never there."""

from __future__ import annotations

import json

import pytest
from judged import drain, message, numbers, plain_queue, put, put_many, traces

queue = plain_queue


# -- a queue's filter


def test_what_a_queue_s_filter_refuses_never_enters_costs_no_key_and_is_counted(world):
    world.queue("work", "orders", entry="/n > 1")
    subscription = world.subscribe("work", asked=9)
    world.mark()
    places = put(world, message(1), message(2), "no json", '{"x":1}', message(3))
    inbox = [text for i, n in ((1, 2), (4, 3)) for text in (f"work {n - 1} 1 0 b {places[i]}", message(n))]
    found = world.changes()
    del found[":log:orders"], found[":clock"]
    assert found == {
        ":q:work:cursors": {"orders": "1000-4 5"},
        ":q:work": {"token": "2", "filtered": "3"},
        ":q:work:leases": {places[i]: f"{t} {subscription} 1 0 0" for i, t in ((1, 1), (4, 2))},
        f":s:{subscription}": {"leased": "2"},
        f":s:{subscription}:inbox": inbox,
        ":q:work:free:none": {subscription: 2 / 9},
    }


def test_a_queue_s_filter_sees_the_fields_of_foreign_entries(world):
    world.queue("work", "orders", entry="/who = 'me'")
    world.xadd("orders", "1-1", "who", "me", "x", "1")
    world.xadd("orders", "1-2", "who", "you")
    subscription = world.subscribe("work", asked=9)
    assert [m.fields for m in world.take(subscription, 9)] == [{"who": "me", "x": "1"}]
    assert world.state()[":q:work"]["filtered"] == "1"


def test_a_filter_that_refuses_thousands_gives_what_comes_after_and_ends(world):
    world.queue("work", "orders", entry="/n >= 2990")
    put_many(world, 3_000)
    subscription = world.subscribe("work", asked=20)
    assert numbers(drain(world, subscription)) == list(range(2_990, 3_000))
    assert world.state()[":q:work"]["filtered"] == "2990"
    assert world.sweep() == [0, -1]


@pytest.mark.parametrize("verb", ["acknowledged", "expired"])
def test_settled_ahead_is_neither_judged_nor_counted_as_filtered(world, verb):
    world.queue("work", "orders", entry="/n > 1")
    places = put(world, message(1), message(2), message(3))
    assert world.settle(verb, {"work": [(places[0], ""), (places[1], "")]}) == {}
    subscription = world.subscribe("work", asked=9)
    assert numbers(world.take(subscription, 9)) == [3]
    assert "filtered" not in world.state()[":q:work"]
    assert ":q:work:ahead" not in world.state()
    world.mark()
    refused = world.settle(verb, {"work": [(places[0], "")]})
    assert refused == {places[0]: "AMPSQ_ALREADY_ACKED"}
    assert world.changes() == {}


def test_what_was_refused_cannot_be_settled_afterwards(world):
    world.queue("work", "orders", entry="/n > 1")
    (place,) = put(world, message(1))
    world.subscribe("work")
    put(world, message(2))
    world.mark()
    for verb in ("acknowledged", "expired", "cancelled"):
        assert world.settle(verb, {"work": [(place, "")]}) == {place: "AMPSQ_ALREADY_ACKED"}
    assert world.changes() == {}


@pytest.mark.parametrize("state", ["leased", "ready", "delayed"])
def test_what_is_in_the_queue_stays_when_its_filter_changes(queue, state):
    world = queue
    first = world.subscribe("work", asked=1)
    put(world, message(0), message(1), message(2))
    held = world.take(first)
    world.replace(first, "work", asked=0)
    if state != "leased":
        world.settle("cancelled", held, period=500 if state == "delayed" else 0)
    world.queue("work", "orders", entry="/n > 1")
    if state == "leased":
        world.settle("cancelled", held)
    world.now += 500
    world.sweep_all()
    second = world.subscribe("work", asked=9)
    assert [(n, m.delivery) for m, n in ((m, json.loads(m.body)["n"]) for m in world.take(second, 9))] == [
        (0, 2),
        (2, 1),
    ]
    # And without a filter the queue is plain
    world.queue("work", "orders")
    assert traces(world) == []
    assert "sorted" not in world.state()[":q:work"]


def test_what_is_held_behind_a_barrier_stays_when_the_queue_s_filter_changes(world):
    world.queue("work", "orders", entry="/n >= 0", barrier="/end = 1")
    subscription = world.subscribe("work", asked=9)
    put(world, message(0), message(1, end=1), message(2))
    held = world.take(subscription, 9)
    assert len(world.state()[":q:work:held"]) == 2
    world.queue("work", "orders", entry="/n > 8", barrier="/end = 1")
    put(world, message(3), message(9))
    assert numbers(world.take(subscription, 9, held)) == [1, 2, 9]


def test_the_same_definition_again_changes_nothing_but_the_catalog(world):
    world.queue("work", "orders", entry="/n > 1")
    put(world, message(1), message(2))
    world.subscribe("work", asked=0, filter="/n > 0")
    world.sweep_all()
    world.mark()
    world.queue("work", "orders", entry="/n > 1")
    world.sweep_all()
    assert set(world.changes()) <= {":instance"}
