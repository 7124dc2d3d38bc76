"""Changes of a barrier: settled by bookmark, gone, or with another expression."""

from __future__ import annotations

import json

import pytest
from judged import BARRIER, END, barrier_queue, journal_of, message, put, texts

queue = barrier_queue


# -- settled by bookmark


@pytest.mark.parametrize("verb", ["acknowledged", "expired"])
def test_a_barrier_that_waits_is_settled_by_bookmark_and_what_is_behind_it_goes_on(queue, verb):
    world = queue
    subscription = world.subscribe("work", asked=2)
    _, barrier, behind = put(world, message(1), END, message(2))
    world.take(subscription, 2)
    assert world.settle(verb, {"work": [(barrier, "")]}) == {}
    assert [m.ref for m in world.take(subscription, 2)] == [behind]
    assert journal_of(world, verb) == [barrier]
    assert journal_of(world, "barrier") == []
    assert ":q:work:held" not in world.state()
    world.mark()
    assert world.settle(verb, {"work": [(barrier, "")]}) == {barrier: "AMPSQ_ALREADY_ACKED"}
    assert world.changes() == {}


@pytest.mark.parametrize("verb", ["acknowledged", "expired"])
def test_what_is_behind_a_barrier_is_settled_by_bookmark_and_the_barrier_still_waits(queue, verb):
    world = queue
    subscription = world.subscribe("work", asked=4)
    _, barrier, behind, last = put(world, message(1), END, message(2), message(3))
    (held,) = world.take(subscription, 4)
    assert world.state()[":q:work:held"] == {barrier: 0, behind: 0, last: 0}
    assert world.settle(verb, {"work": [(behind, "")]}) == {}
    assert journal_of(world, verb) == [behind]
    assert world.state()[":q:work:held"] == {barrier: 0, last: 0}
    assert [m.ref for m in world.take(subscription, 3, [held])] == [barrier, last]


@pytest.mark.parametrize("verb", ["acknowledged", "expired"])
def test_an_unread_barrier_is_settled_ahead_and_never_sent(queue, verb):
    world = queue
    barrier, behind = put(world, END, message(2))
    assert world.settle(verb, {"work": [(barrier, "")]}) == {}
    subscription = world.subscribe("work", asked=2)
    assert [m.ref for m in world.take(subscription, 2)] == [behind]


@pytest.mark.parametrize("verb", ["acknowledged", "expired"])
def test_the_last_one_before_a_barrier_settled_by_bookmark_releases_it(queue, verb):
    world = queue
    subscription = world.subscribe("work", asked=0)
    first, barrier = put(world, message(1), END)
    world.sweep_all()
    world.settle(verb, {"work": [(first, "")]})
    assert [m.ref for m in world.take(subscription, 2)] == [barrier]


def test_a_barrier_that_somebody_removed_from_the_log_is_missing_and_what_is_behind_goes_on(queue):
    world = queue
    subscription = world.subscribe("work", asked=2)
    _, barrier, behind = put(world, message(1), END, message(2))
    (held,) = world.take(subscription, 2)
    world.store.redis.xdel(world.key(":log:orders"), "1000-1")
    assert [m.ref for m in world.take(subscription, 2, [held])] == [behind]
    assert journal_of(world, "missing") == [barrier]
    assert journal_of(world, "barrier") == []


# -- the definition changes


def test_a_new_barrier_expression_judges_what_waits_anew(world):
    world.queue("work", "orders", barrier=BARRIER)
    subscription = world.subscribe("work", asked=1)
    put(world, message(1), message(2), END, message(3), message(4, stop=1), message(5))
    (held,) = world.take(subscription)
    world.queue("work", "orders", barrier="/stop = 1")
    assert texts(world.take(subscription, 1, [held])) == [message(2)]
    assert journal_of(world, "barrier") == []
    order = []
    while True:
        taken = world.take(subscription, 1, {"work": [(p, "") for p in world.holders("work")]})
        if not taken:
            break
        order += texts(taken)
    assert order == [END, message(3), message(4, stop=1), message(5)]


def test_without_its_expression_nothing_is_a_barrier_and_the_queue_is_plain(world):
    world.queue("work", "orders", barrier=BARRIER)
    subscription = world.subscribe("work", asked=9)
    put(world, message(1), END, message(2))
    (held,) = world.take(subscription)
    world.queue("work", "orders")
    state = world.state()
    assert "sorted" not in state[":q:work"]
    assert not [suffix for suffix in state if suffix.startswith((":q:work:sorted", ":q:work:filters", ":q:work:held"))]
    world.sweep_all()
    assert [(m.body, m.delivery) for m in world.take(subscription, 9)] == [(END, 1), (message(2), 1)]
    assert held.body == message(1)


@pytest.mark.parametrize("stop", [3, 50, 150, 299])
def test_a_barrier_expression_that_comes_while_hundreds_wait_holds_back_all_that_is_behind(world, stop):
    # Given 300 messages that have their places for a filter, one of which becomes a barrier
    world.queue("work", "orders")
    world.queue("elsewhere", "elsewhere")
    some = world.subscribe("work", asked=1, filter="/n >= 100000")
    put(world, *[message(i, stop=int(i == stop)) for i in range(300)])
    world.sweep_all()
    assert len(world.state()[":q:work:sorted:none"]) == 300
    world.queue("work", "orders", barrier="/stop = 1")
    world.unsubscribe(some)
    # When one subscription works them off, in turn
    subscription = world.subscribe("work", asked=400)
    order, late = [], []
    for _ in range(400):
        world.sweep_all()
        taken = world.take(subscription, 400)
        if not taken:
            break
        order += [json.loads(m.body)["n"] for m in taken]
        late += [m.body for m in taken if json.loads(m.body)["n"] == stop and m.delivery]
        if acked := [m for m in taken if m.delivery]:
            world.settle("acknowledged", acked, by=subscription)
    # Then all come in order, the barrier as one
    assert order == list(range(300))
    assert late == []
    assert len(journal_of(world, "barrier")) == 1


def test_what_came_back_and_became_a_barrier_leaves_no_counts(world):
    world.queue("work", "orders")
    subscription = world.subscribe("work")
    put(world, END)
    held = world.take(subscription)
    world.replace(subscription, "work", asked=0)
    world.settle("cancelled", held)
    assert ":q:work:attempts" in world.state()
    world.queue("work", "orders", barrier=BARRIER)
    world.sweep_all()
    assert len(journal_of(world, "barrier")) == 1
    assert ":q:work:attempts" not in world.state()


def test_a_barrier_before_large_messages_that_came_back_holds_them_back(world):
    # Given fifteen large messages in `ready`, the second of which is a barrier by a new expression
    world.queue("work", "orders", room=100)
    former = world.subscribe("work", asked=20)
    put(world, *[json.dumps({"n": i, "x": "x" * 150_000}) for i in range(15)])
    world.sweep_all()
    assert len(world.holders("work")) == 15
    world.queue("work", "orders", room=100, barrier="/n = 1")
    world.unsubscribe(former)
    world.sweep_all()
    assert world.holders("work") == {}
    # When another takes, then only what is before the barrier comes
    subscription = world.subscribe("work", asked=20)
    taken = []
    for _ in range(10):
        taken += world.take(subscription, 20)
        world.sweep_all()
    assert [json.loads(m.body)["n"] for m in taken] == [0]
    # And then, in order, the barrier and the others
    order = []
    while taken:
        world.settle("acknowledged", [m for m in taken if m.delivery], by=subscription)
        world.sweep_all()
        taken = world.take(subscription, 20)
        order += [json.loads(m.body)["n"] for m in taken]
    assert order == list(range(1, 15))


def test_a_queue_with_priorities_that_has_barriers_instead_holds_back_by_age(world):
    # Given messages whose priorities fall with their age
    world.queue("work", "orders", priority="/p")
    places = put(world, *[message(i, p=10 + i) for i in range(2)], message(2, p=1, end=1), message(3, p=50))
    world.sweep_all()
    world.queue("work", "orders", barrier=BARRIER)
    # When it has barriers from now on
    subscription = world.subscribe("work", asked=9)
    first = world.take(subscription, 9)
    # Then the two before it come first, the barrier, and the last
    assert [m.ref for m in first] == places[:2]
    assert [(m.ref, m.delivery) for m in world.take(subscription, 9, first)] == [(places[2], 0), (places[3], 1)]
