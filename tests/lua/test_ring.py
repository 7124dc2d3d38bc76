"""Rings: the scenarios of Artemis's manual, and what follows from them."""

from __future__ import annotations

import pytest
from world import ref

from ampsq.base.bookmarks import parse_ref


@pytest.fixture
def ring(world):
    """The queue `foo` with a ring of three; gives the world."""
    world.queue("foo", "foo", ring=3)
    return world


def counts(world, name="foo"):
    """Return the numbers that Artemis calls messageCount, deliveringCount and scheduledCount."""
    fields, leased, ready, _, ahead, placed, held, _, *topics = world.run("read_stats", name)
    fields = dict(zip(fields[::2], fields[1::2], strict=True))
    unread = sum(int(topics[i + 1]) for i in range(0, len(topics), 4))
    scheduled = int(fields.get("scheduled", 0)) + int(fields.get("delayed", 0))
    return unread - ahead + ready + placed + held + leased + scheduled, leased, scheduled


def waiting(world, name="foo"):
    """The bodies that wait, in the order of delivery."""
    world.sweep_all()
    state = world.state()
    refs = {**state.get(f":q:{name}:ready", {}), **state.get(f":q:{name}:sorted:none", {})}
    logs = {suffix.removeprefix(":log:"): dict(value) for suffix, value in state.items() if suffix.startswith(":log:")}
    places = [parse_ref(place) for place in sorted(refs)]
    return "".join(logs[topic][stream_id]["b"] for topic, stream_id in places)


def evicted(world, name="foo"):
    return [
        (entry["reason"], entry["refs"])
        for entry in world.state().get(f":q:{name}:journal", [])
        if entry["how"] == "evicted"
    ]


# -- the manual


def test_the_basic_case(ring):
    seen = []
    for letter in "ABCD":
        ring.publish("foo", letter)
        seen.append(waiting(ring))
    assert seen == ["A", "AB", "ABC", "BCD"]
    assert evicted(ring) == [("ring", ref("1000-0", "foo"))]
    assert ring.state()[":q:foo"]["evicted"] == "1"


def test_messages_in_delivery_and_rollback(ring):
    consumer = ring.subscribe("foo", asked=10)
    for number, letter in enumerate("ABCD", 1):
        ring.publish("foo", letter)
        assert counts(ring) == (number, number, 0)
    held = ring.take(consumer, 10)
    assert [message.body for message in held] == list("ABCD")

    # The consumer is closed without acknowledging any of the four.
    ring.unsubscribe(consumer)
    ring.sweep_all()

    assert counts(ring) == (3, 0, 0)
    assert evicted(ring) == [("ring", ref("1000-0", "foo"))]
    assert waiting(ring) == "BCD"


def test_a_batch_of_cancels_is_a_rollback(ring):
    consumer = ring.subscribe("foo", asked=10)
    ring.publish("foo", *"ABCD")
    held = ring.take(consumer, 10)
    ring.run("resize_backlog", ring.now, consumer, 0)

    ring.settle("cancelled", held)

    assert counts(ring) == (3, 0, 0)
    ring.unsubscribe(consumer)
    assert waiting(ring) == "BCD"


def test_scheduled_messages(ring):
    minute = 60_000
    ring.publish("foo", "A", due=str(ring.now + 5 * minute))
    assert counts(ring) == (1, 0, 1)
    for number, letter in enumerate("BCD", 2):
        ring.now += minute
        ring.publish("foo", letter)
        assert counts(ring) == (number, 0, 1)
    ring.now += 2 * minute

    ring.sweep_all()

    assert counts(ring) == (3, 0, 0)
    assert evicted(ring) == [("ring", ref("1000-0", "foo"))]
    assert waiting(ring) == "BCD"


def test_a_scheduled_message_that_was_published_last_gives_way_all_the_same(ring):
    ring.publish("foo", *"BCD")
    ring.publish("foo", "A", due="+500")
    ring.now = 1_500
    ring.sweep_all()
    assert waiting(ring) == "BCD"


def test_a_scheduled_message_enters_where_there_is_room(ring):
    ring.publish("foo", *"BC")
    ring.publish("foo", "A", due="+500")
    ring.now = 1_500
    ring.sweep_all()
    assert waiting(ring) == "BCA"
    assert evicted(ring) == []


def test_a_smaller_size_is_reached_by_consumption_alone(world):
    world.queue("foo", "foo", ring=5)
    world.publish("foo", *"ABCDE")
    world.queue("foo", "foo", ring=3)
    assert counts(world)[0] == 5
    # It does not grow any larger
    world.publish("foo", "F")
    assert waiting(world) == "BCDEF"
    world.publish("foo", *"GH")
    assert waiting(world) == "DEFGH"
    # And gets smaller as its messages are consumed.
    consumer = world.subscribe("foo", asked=2)
    world.settle("acknowledged", world.take(consumer, 2), by=consumer)
    world.unsubscribe(consumer)
    assert waiting(world) == "FGH"
    world.publish("foo", *"IJ")
    assert waiting(world) == "HIJ"


def test_a_larger_size_holds_at_once(ring):
    ring.publish("foo", *"ABC")
    ring.queue("foo", "foo", ring=5)
    ring.publish("foo", *"DEF")
    assert waiting(ring) == "BCDEF"


def test_a_queue_that_becomes_a_ring_keeps_what_waits(world):
    world.queue("foo", "foo")
    consumer = world.subscribe("foo", asked=2)
    world.publish("foo", *"ABCDE")
    world.unsubscribe(consumer, held=world.take(consumer, 2))
    world.queue("foo", "foo", ring=3)
    assert counts(world)[0] == 5
    world.publish("foo", "F")
    assert waiting(world) == "BCDEF"


def test_a_ring_that_is_none_any_more_is_plain_again(ring):
    ring.publish("foo", *"ABC")
    ring.queue("foo", "foo")
    ring.sweep_all()
    ring.publish("foo", *"DE")
    assert [message.body for message in ring.take(ring.subscribe("foo", asked=9), 9)] == list("ABCDE")
    assert "sorted" not in ring.state()[":q:foo"]


def test_what_is_paged_does_not_count(world):
    """Messages beyond the target depth, as Artemis's paged ones, count in the queue but not in the ring."""
    world.queue("foo", "foo", ring=2_000, depth=1_000)
    for _ in range(5):
        world.publish("foo", *["x"] * 500)
        world.sweep_all()
    assert counts(world)[0] == 2_500
    assert evicted(world) == []


# -- what follows


def test_a_push_evicts_as_many_as_entered(ring):
    ring.publish("foo", *"ABCDEFGH")
    assert waiting(ring) == "FGH"
    ring.publish("foo", *"IJ")
    assert waiting(ring) == "HIJ"


def test_what_is_delivered_at_once_does_not_enter(ring):
    ring.publish("foo", *"ABC")
    consumer = ring.subscribe("foo", asked=3)
    assert len(ring.take(consumer, 3)) == 3
    ring.run("resize_backlog", ring.now, consumer, 5)
    ring.publish("foo", *"DEFGH")
    assert counts(ring) == (8, 5, 0)
    assert evicted(ring) == []


def test_what_the_filter_refuses_does_not_enter(world):
    world.queue("foo", "foo", ring=2, entry="/n > 0")
    world.publish("foo", '{"n": 1}', '{"n": 2}', '{"n": 0}', '{"n": 0}')
    assert waiting(world) == '{"n": 1}{"n": 2}'


def test_the_index_of_a_subscription_s_filter_loses_what_is_evicted(ring):
    consumer = ring.subscribe("foo", asked=1, filter="/n = 9")
    ring.publish("foo", '{"n": 9}')
    assert len(ring.take(consumer)) == 1
    ring.publish("foo", '{"n": 9}', '{"n": 1}', '{"n": 2}', '{"n": 3}')
    ring.settle("acknowledged", {"foo": [(ref("1000-0", "foo"), "")]}, by=consumer)
    assert ring.inbox(consumer) == []
    assert waiting(ring) == '{"n": 1}{"n": 2}{"n": 3}'


def test_a_ring_over_several_topics_keeps_the_newest_of_all(world):
    world.queue("foo", "a", "b", ring=3)
    for number, letter in enumerate("ABCDE"):
        world.publish("ab"[number % 2], letter)
    assert waiting(world) == "CDE"


def test_a_ring_expires_too(world):
    world.queue("foo", "foo", ring=3, policy={"life": 5_000})
    world.publish("foo", *"AB")
    world.sweep_all()
    world.now = 6_000
    world.sweep_all()
    assert [e["reason"] for e in world.state()[":q:foo:journal"]] == ["time_limit"]


def test_more_than_one_call_can_take_in_is_evicted_when_it_is_read(ring):
    for _ in range(4):
        ring.publish("foo", *["x"] * 500)
    ring.publish("foo", *"ABC")
    ring.sweep_all()
    assert waiting(ring) == "ABC"
    assert int(ring.state()[":q:foo"]["evicted"]) == 2_000


def test_a_ring_that_is_hardly_smaller_than_the_target_depth_takes_in_many_a_call(world):
    # Given room for one message between the two
    world.queue("foo", "foo", ring=9, depth=10)
    for _ in range(4):
        world.publish("foo", *["x"] * 500)
    world.publish("foo", *"ABCDEFGHI")
    # When a few dozens of calls have done what they found
    world.sweep_all()
    # Then all that is older gave way
    assert waiting(world) == "ABCDEFGHI"
    assert int(world.state()[":q:foo"]["evicted"]) == 2_000
