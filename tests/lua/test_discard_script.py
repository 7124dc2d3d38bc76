"""Retention of a topic with queues that have not settled it: each loses a message once, and its counts stay true."""

from __future__ import annotations

import pytest
from trimming import AGE, LATER, log, publish, read_all, trim
from world import ref

from ampsq.protocol.limits import BATCH


def discard(world, topic="orders", *, age=AGE, size="", count="", after="0-0", passed=0):
    return tuple(world.run("discard_unsettled", world.now, world.version(), topic, age, size, count, after, passed))


def missing(world, queue="work"):
    return [
        entry["refs"].split() for entry in world.state().get(f":q:{queue}:journal", []) if entry["how"] == "missing"
    ]


def unread(world, queue="work"):
    return world.run("read_stats", queue)[9]


def test_what_a_queue_has_not_read_is_passed_over_and_journaled(world):
    world.queue("work", "orders")
    ids = publish(world, 3)
    world.now = LATER
    young = publish(world, 2)
    world.mark()
    assert discard(world) == ("", 3, 3)
    assert world.changes() == {
        ":q:work:cursors": {"orders": f"{ids[-1]} 3"},
        ":q:work:journal": [{"how": "missing", "reason": "retention", "refs": " ".join(map(ref, ids))}],
        ":q:work": {"missing": "3"},
        ":due": {"dispatch work": 10_000.0},
    }
    assert unread(world) == 2
    # Then they are nobody's any more, and a second call finds nothing
    assert discard(world) == ("", 3, 0)
    assert trim(world) == ("", 0, 3, 3, "", "")
    assert log(world) == young
    assert [message.ref for message in read_all(world)] == [ref(each) for each in young]
    assert unread(world) == 0


def test_what_came_back_or_comes_back_later_is_lost_and_what_is_leased_is_not(world):
    world.queue("work", "orders")
    ids = publish(world, 4)
    messages = read_all(world)
    gone = world.subscribe("work", asked=2)
    world.settle("cancelled", messages[:1], period=1_000_000)
    world.settle("acknowledged", messages[3:])
    world.settle("given_back", messages[1:2])
    world.unsubscribe(gone)
    back = world.state().get(":q:work:ready", {})
    world.now = LATER
    # The one that was given back is leased again, by whoever is free
    assert back == {}
    assert discard(world) == ("", 4, 1)
    assert missing(world) == [[ref(ids[0])]]
    state = world.state()
    assert state[":q:work"]["delayed"] == "0"
    assert not [member for member in state.get(":due", {}) if member.startswith("ready ")]
    assert ":q:work:attempts" not in state
    # When a leased one comes back, it is lost, too
    world.unsubscribe(next(iter(world.holders("work").values())), messages[1:3])
    assert set(world.state()[":q:work:ready"]) == {ref(ids[1]), ref(ids[2])}
    assert discard(world) == ("", 4, 2)
    assert trim(world).removed == 4
    assert ":q:work:ready" not in world.state()


def test_what_was_settled_ahead_is_not_lost(world):
    world.queue("work", "orders")
    ids = publish(world, 3)
    world.settle("acknowledged", {"work": [(ref(ids[1]), "")]})
    world.now = LATER
    assert discard(world) == ("", 3, 2)
    assert missing(world) == [[ref(ids[0]), ref(ids[2])]]
    assert ":q:work:ahead" not in world.state()
    assert unread(world) == 0


def test_what_is_scheduled_is_lost_and_what_is_for_another_queue_is_not(world):
    world.queue("work", "orders")
    world.queue("mail", "orders")
    later = world.publish("orders", "later", due=50_000)[2]
    world.store.redis.xadd(world.key(":log:orders"), {"b": "again", "q": "mail"}, id="1001-0")
    world.now = LATER
    assert discard(world) == ("", 2, 3)
    assert (missing(world), missing(world, "mail")) == ([[ref(later)]], [[ref(later)], [ref("1001-0")]])
    state = world.state()
    assert state[":q:work"]["scheduled"] == state[":q:mail"]["scheduled"] == "0"
    assert ":q:work:ahead" not in state
    assert [member for member in state[":due"] if member.startswith("scheduled")] == []


def test_each_queue_loses_what_it_had(world):
    world.queue("work", "orders")
    world.queue("mail", "orders", "letters", pattern=True)
    ids = publish(world, 2)
    world.settle("acknowledged", read_all(world, "mail"))
    world.now = LATER
    assert discard(world) == ("", 2, 2)
    assert (missing(world), missing(world, "mail")) == ([[ref(each) for each in ids]], [])


def test_sorted_messages_and_a_waiting_barrier_are_lost_and_what_was_behind_it_is_given(world):
    world.queue("work", "orders", barrier="/b = 1", room=5)
    world.publish("orders", '{"b": 0}', '{"b": 1}')
    subscription = world.subscribe("work", asked=5)
    (held,) = world.take(subscription, 5)
    world.now = LATER
    world.publish("orders", '{"b": 0, "young": 1}')
    world.take(subscription, 4)
    assert len(world.state()[":q:work:held"]) == 1
    assert discard(world) == ("", 2, 1)
    assert ":q:work:held" not in world.state()
    world.sweep_all()
    assert [message.body for message in world.inbox(subscription)] == ['{"b": 0, "young": 1}']
    assert world.settle("acknowledged", [held]) == {}


def test_a_priority_queue_loses_what_is_in_its_place(world):
    world.queue("work", "orders", priority="/p")
    world.publish("orders", '{"p": 5}', '{"p": 18446744073709551615}', '{"p": 1}')
    (first,) = world.take(world.subscribe("work"))
    world.now = LATER
    assert discard(world) == ("", 3, 2)
    state = world.state()
    assert ":q:work:sorted:none" not in state
    assert ":q:work:places" not in state
    assert (first.body, state[":q:work"]["missing"]) == ('{"p": 18446744073709551615}', "2")


def test_a_step_is_bounded_and_the_next_goes_on(world):
    world.queue("work", "orders")
    ids = [each for _ in range(3) for each in publish(world, BATCH)]
    assert discard(world, age="", count=200) == (ids[499], 500, 500)
    assert discard(world, age="", count=200, after=ids[499], passed=500) == (ids[999], 1_000, 500)
    assert discard(world, age="", count=200, after=ids[999], passed=1_000) == ("", 1_300, 300)
    assert unread(world) == 200


def test_a_step_from_the_wrong_place_never_leaves_a_gap_in_what_is_counted(world):
    # Given a queue that has read nothing
    world.queue("work", "orders")
    ids = publish(world, 10)
    world.now = LATER
    # When a step begins behind its cursor
    world.mark()
    assert discard(world, after=ids[4], passed=5) == ("", 10, 0)
    assert world.changes() == {}
    assert discard(world) == ("", 10, 10)


@pytest.mark.parametrize("once", [0, 1])
def test_a_queue_whose_messages_were_lost_goes_on(world, once):
    world.queue("work", "orders", once=once)
    publish(world, 5)
    world.now = LATER
    subscription = world.subscribe("work")
    assert discard(world)[2] == 5
    assert trim(world).removed == 5
    world.publish("orders", "new")
    assert [message.body for message in world.inbox(subscription)] == ["new"]


def test_a_queue_that_is_being_rebuilt_loses_nothing(world):
    world.queue("work", "orders")
    publish(world, 3)
    world.run("begin_rebuild", world.now, "work", "me", 5_000, 0, "orders 0-0 0")
    world.now = LATER
    world.mark()

    assert discard(world) == ("", 3, 0)

    assert world.changes() == {}
